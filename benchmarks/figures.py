"""Medians, spreads, ratios and slopes of what the rounds measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.children import Outcomes


@dataclass(frozen=True)
class Figure:
    """A median, with the range over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure | None":
        """The figure of some values; None if there are none."""
        return cls(median(values), min(values), max(values)) if values else None

    def text(self, unit: str = "") -> str:
        """The text of a table's cell."""
        blank = " " if unit and unit != "×" else ""
        if self.low == self.high:
            return f"{number(self.median)}{blank}{unit}"
        return f"{number(self.median)}{blank}{unit} ({number(self.low)}–{number(self.high)})"


def number(value: float) -> str:
    """A number with three significant digits, and separators for thousands."""
    value = float(f"{value:.3g}") if abs(value) < 1000 else value
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(decimals, 0), 6)}f}"


class Figures:
    """The outcomes, by key and name."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._samples = outcomes.samples
        self._absent = outcomes.absent
        self._broken = outcomes.broken
        self._ran = outcomes.ran

    def __contains__(self, key: str) -> bool:
        return bool(self._samples.get(key))

    def reason(self, *keys: str) -> str:
        """Why there is no figure."""
        if any(key in self._broken for key in keys):
            return "broken: see below"
        return next((self._absent[key] for key in keys if key in self._absent), "not measured in this run")

    def samples(self, key: str) -> int:
        """How many samples there are."""
        return len(self._samples.get(key, []))

    def when(self, *keys: str) -> str:
        """When the earliest of these measurements ran, as local time to the minute; empty if that is not known."""
        return min((self._ran[key].at for key in keys if key in self._ran and key in self), default="")

    def values(self, key: str, name: str) -> list[float]:
        """The values of a measurement, one per round."""
        return [sample[name] for sample in self._samples.get(key, []) if name in sample]

    def of(self, key: str, name: str) -> Figure | None:
        """The median and spread of a measurement."""
        return Figure.of(self.values(key, name))

    def ratio(self, above: str, above_name: str, below: str, below_name: str) -> Figure | None:
        """The ratio of two measurements, round by round, because the machine's load differs between rounds."""
        pairs = zip(self.values(above, above_name), self.values(below, below_name), strict=False)
        return Figure.of([one / other for one, other in pairs if other > 0])

    def slope(self, small: str, large: str, name: str) -> Figure | None:
        """The exponent with which it grows from one number of tasks to another; 1 is linear."""
        sizes = self.values(small, "tasks")[:1] + self.values(large, "tasks")[:1]
        if len(sizes) < 2 or sizes[0] == sizes[1]:
            return None
        ratio = self.ratio(large, name, small, name)
        if ratio is None:
            return None
        step = math.log(sizes[1] / sizes[0])
        return Figure(*(math.log(value) / step for value in (ratio.median, ratio.low, ratio.high)))
