"""Rows of the tables: a figure, its bound, and whether it is met."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from benchmarks.figures import Figure, Figures
from benchmarks.plan import Measurement


@dataclass(frozen=True)
class Verdict:
    """One row: what, its target, the measured figure, and whether that meets it (None: cannot be said)."""

    section: str
    what: str
    target: str
    measured: str
    met: bool | None
    headline: bool = False  # one of the four rows that the README shows
    when: str = ""  # local time at which it was measured
    why: str = ""  # why the target is missed, where it is and the reason is known
    figure: Figure | None = None
    more_is_better: bool = False

    @property
    def mark(self) -> str:
        """As a table shows it."""
        return "–" if self.met is None else "yes" if self.met else "**no**"


def is_worse(now: Figure, before: Figure, *, more_is_better: bool) -> bool:
    """Whether a median lies beyond every earlier round, on the wrong side."""
    return now.median < before.low if more_is_better else now.median > before.high


FEWEST_ROUNDS = 3
"""A median of two is an average."""


class Judge:
    """Compares figures with bounds.

    `full` says whether the numbers of tasks are the ones in the targets: otherwise nothing is judged.
    """

    def __init__(self, figures: Figures, planned: Iterable[Measurement], *, full: bool) -> None:
        self.figures = figures
        self._full = full
        planned = list(planned)
        self._once = {measurement.key for measurement in planned if measurement.once}
        self._a_round = Counter(measurement.key for measurement in planned)

    def at_most(self, section: str, what: str, bound: float, unit: str, figure: Figure | None, *keys: str,
                headline: bool = False, why: str = "") -> Verdict:  # fmt: skip
        """The median must not exceed the bound."""
        blank = "" if unit in ("", "×") else " "
        target = f"≤ {bound:,g}{blank}{unit}"
        met = figure.median <= bound if figure is not None and self._is_judged(keys) else None
        row = self._verdict(section, what, target, self._text(figure, unit, keys), met, keys, headline, why)
        return replace(row, figure=figure)

    def at_least(self, section: str, what: str, bound: float, figure: Figure | None, *keys: str,
                 headline: bool = False, lower_bound: bool = False, unit: str = "×",
                 why: str = "") -> Verdict:  # fmt: skip
        """The median must reach the bound; it is a ratio, unless a unit says otherwise."""
        met = figure.median >= bound if figure is not None and self._is_judged(keys) else None
        text = self._text(figure, unit, keys)
        text = f"> {text}" if lower_bound and figure is not None else text
        target = f"≥ {bound:,g}×" if unit == "×" else f"≥ {bound:,} {unit}"  # six digits, and none of them as a power
        row = self._verdict(section, what, target, text, met, keys, headline, why)
        return replace(row, figure=figure, more_is_better=True)

    def exactly(self, section: str, what: str, count: int, target: str, least: Figure | None, most: Figure | None,
                *keys: str) -> Verdict:  # fmt: skip
        """The least and the most of some counts must both be this one, which `target` puts into words."""
        if least is None or most is None:
            return self._verdict(section, what, target, self.figures.reason(*keys), None, keys)
        low, high = least.low, most.high
        met = low == high == count if self._is_judged(keys) else None
        text = f"{low:g}" if low == high else f"{low:g}–{high:g}"
        return self._verdict(section, what, target, text, met, keys)

    def stated(self, section: str, what: str, figure: Figure | None, unit: str, *keys: str,
               more_is_better: bool = False) -> Verdict:  # fmt: skip
        """No bound: the figure is shown only."""
        row = self._verdict(section, what, "stated", self._text(figure, unit, keys), None, keys)
        return replace(row, figure=figure, more_is_better=more_is_better)

    def _verdict(self, section: str, what: str, target: str, measured: str, met: bool | None, keys: tuple[str, ...],
                 headline: bool = False, why: str = "") -> Verdict:  # fmt: skip
        when = self.figures.when(*keys)
        return Verdict(section, what, target, measured, met, headline, when, why if met is False else "")

    def _is_judged(self, keys: tuple[str, ...]) -> bool:
        """Whether there are as many tasks as the targets speak of, and rounds enough for a median."""
        return self._full and all(key in self._once or self._rounds(key) >= FEWEST_ROUNDS for key in keys)

    def _rounds(self, key: str) -> int:
        """The rounds from which every sample is there: some measurements are repeated within a round."""
        return self.figures.samples(key) // max(1, self._a_round[key])

    def _text(self, figure: Figure | None, unit: str, keys: tuple[str, ...]) -> str:
        if figure is None:
            return self.figures.reason(*keys)
        text = figure.text(unit)
        if self._full and not self._is_judged(keys):
            text += f", {min(map(self._rounds, keys))} of {FEWEST_ROUNDS} rounds"
        return text
