"""Makes histories, from a seed or from what hypothesis draws; in both cases 0 is the simplest choice.

One function makes both, so what a seed finds can be shrunk, and what shrinks is what seeds find.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

from duly.testing.sim_threads import Dice
from tests.simulation.faults import Fault, Kind
from tests.simulation.histories import (
    Crash,
    Damage,
    Declared,
    Doing,
    Freeze,
    History,
    Initialize,
    Intrude,
    Pass,
    SetClock,
    Step,
    Stop,
    Suspend,
)

T = TypeVar("T")

NAMES: Final = ("a", "b", "c", "d")
CRONS: Final = (
    "* * * * *",
    "0,10,20,30,40,50 * * * *",
    "30 2 * * *",
    "0,1,2,30,31 * * * *",
    "0 0,12 * * *",
    "15 * 1-7 * 1",
)
SPARSE_CRONS: Final = ("30 2 * * *", "0 0,12 * * *", "0 0 1,15 * *", "15 3 * 1-6 1-5")
YEAR_CRONS: Final = ("30 2 * * 0", "0 0 1,15 * *", "15 3 * 1-6 1", "0 12 29 2 *")
YEAR_DELAYS_MS: Final = (5 * 86_400_000, 86_400_000, 90_000_000, 30 * 86_400_000)
SPARSE_DELAYS_MS: Final = (3_600_000, 7_200_000, 86_400_000, 40_000_000)
DELAYS_MS: Final = (60_000, 20_000, 5_000, 90_000, 0, 600_000, 1, 3_600_000)
ENDS: Final = ("returns", "raises", "raises", "returns", "exits", "gives up", "resists", "stops", "declares")
WORK_SECONDS: Final = (0, 1, 30, 59, 60, 90, 200, 0.25)
PASS_SECONDS: Final = (60, 1, 30, 90, 0, 125)
LONG_SECONDS: Final = (300, 600, 3600)
SPARSE_SECONDS: Final = (3600, 86_400, 7200, 3 * 86_400)
STEP_SECONDS: Final = (-30, 30, -90, 120, -3000, 3600, -4 * 3600, 5 * 3600, -86_400, 86_400, 2, -2)
PAUSE_SECONDS: Final = (30, 1, 61, 150, 1200, 4000)
PLACES: Final = (
    ("UTC", "2024-01-01T00:00"),
    ("UTC", "2024-02-28T23:55:30"),
    ("Europe/Berlin", "2024-03-31T01:55"),  # 02:00 to 03:00 does not exist
    ("Europe/Berlin", "2024-10-27T01:50"),  # 02:00 to 03:00 comes twice
    ("America/New_York", "2024-11-03T00:45:20"),
    ("Australia/Lord_Howe", "2024-10-06T01:40"),  # half an hour
    ("America/Sao_Paulo", "2018-11-03T23:50"),  # a day without a midnight
    ("Asia/Kathmandu", "2024-12-31T23:58"),
    ("Pacific/Apia", "2011-12-29T23:50"),  # a whole day is left out
)
WRONGS: Final = ("cron", "duplicate", "delay", "shape", "name", "list")
DAMAGES: Final = ("missing", "structure", "type", "value", "corrupted", "version")
FAULT_SECONDS: Final[dict[Kind, tuple[int, ...]]] = {
    Kind.SLOW: (1, 5, 20),
    Kind.HUNG: (45, 100, 400),
    Kind.HUNG_AFTER: (45, 100, 400),
    Kind.FROZEN: (1, 59, 300),
    Kind.STEPPED: (-30, 45, -4000, 7200),
}


class Chance(Protocol):
    """Where choices come from."""

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1; 0 is the simplest."""
        ...


class Maker:
    """Makes one history."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._crons: tuple[str, ...] = CRONS
        self._delays: tuple[int, ...] = DELAYS_MS
        self._declared: tuple[Declared, ...] | None = None

    def one_of(self, options: Sequence[T]) -> T:
        return options[self._chance.below(len(options))]

    def seldom(self, one_in: int) -> bool:
        return self._chance.below(one_in) == one_in - 1

    def history(self) -> History:
        zone, at = self.one_of(PLACES)
        sparse = self.seldom(8)
        if sparse:
            self._crons, self._delays = SPARSE_CRONS, SPARSE_DELAYS_MS
        options: dict[str, Any] = {}
        if self.seldom(4):
            options["max_concurrency"] = 1 + self._chance.below(2)
        if self.seldom(5):
            options["run_timeout"] = self.one_of((40, 5, 100))
        if self.seldom(3):
            options["interrupted"] = "wait"
        if self.seldom(12):
            options["on_mismatch"] = "refuse"
        steps: list[Step] = [self.initialize(), Pass(seconds=self.seconds(sparse=sparse))]
        for _ in range(self._chance.below(7)):
            steps += self.scene()
            steps.append(Pass(seconds=self.seconds(sparse=sparse)))
        return History(
            seed=self.order(),
            at=at,
            zone=zone,
            options=options,
            steps=tuple(steps),
            faults=self.faults(),
            idle_looks=not sparse,
        )

    def order(self) -> int:
        return self._chance.below(1_000_000) if self.seldom(2) else 0

    def seconds(self, *, sparse: bool) -> float:
        if sparse and self.seldom(2):
            return self.one_of(SPARSE_SECONDS)
        return self.one_of(LONG_SECONDS if self.seldom(20) else PASS_SECONDS)

    def scene(self) -> list[Step]:
        """A step, and what usually follows: after a crash a new start, and perhaps another crash soon."""
        step = self.step()
        if not isinstance(step, Crash) or self._declared is None or self.seldom(4):
            return [step]
        again = Initialize(tasks=self._declared)
        if not self.seldom(3):
            return [step, again]
        return [step, again, Pass(seconds=self.one_of((1, 0, 45, 60))), step, again]

    def step(self) -> Step:
        kind = self._chance.below(20)
        if kind < 5:
            return self.initialize()
        if kind < 8:
            return Stop(background=self.seldom(3), cancelled_after=self.cancellation())
        if kind < 12:
            return Crash()
        if kind < 14:
            return Freeze(seconds=self.one_of(PAUSE_SECONDS))
        if kind < 16:
            return Suspend(seconds=self.one_of(PAUSE_SECONDS))
        if kind < 18:
            return SetClock(seconds=self.one_of(STEP_SECONDS))
        if kind < 19:
            return Damage(kind=self.one_of(DAMAGES))
        return Intrude()

    def initialize(self) -> Initialize:
        tasks = tuple(self.declared(name) for name in NAMES if not self.seldom(3))
        self._declared = tasks
        return Initialize(
            tasks=tasks,
            wrong=self.one_of(WRONGS) if self.seldom(10) else "",
            background=self.seldom(4),
            cancelled_after=self.cancellation(),
        )

    def cancellation(self) -> int | None:
        return self._chance.below(12) if self.seldom(10) else None

    def declared(self, name: str) -> Declared:
        # Mostly as before: what changes is overridden, and what is preserved is more interesting.
        usual = NAMES.index(name)
        changed = self.seldom(5)
        return Declared(
            name=name,
            cron=self.one_of(self._crons) if changed else self._crons[usual],
            delay_ms=self.one_of(self._delays) if changed else self._delays[usual],
            blocking=self.seldom(5),
            doings=tuple(self.doing() for _ in range(self._chance.below(4))),
        )

    def doing(self) -> Doing:
        return Doing(end=self.one_of(ENDS), seconds=self.one_of(WORK_SECONDS))

    def year(self) -> History:
        """Five seasons, so that every change of the clocks comes at least once; each begins with some trouble."""
        zone, at = self.one_of(PLACES)
        self._crons, self._delays = YEAR_CRONS, YEAR_DELAYS_MS
        steps: list[Step] = [Initialize(tasks=tuple(self.declared(name) for name in NAMES))]
        for _ in range(5):
            steps += [Pass(seconds=76 * 86_400), self.step(), Pass(seconds=self.one_of(PASS_SECONDS))]
            if not isinstance(steps[-2], Initialize) and self.seldom(2):
                steps.append(Crash())
            steps.append(Initialize(tasks=tuple(self.declared(name) for name in NAMES)))
        return History(seed=self.order(), at=at, zone=zone, steps=tuple(steps), idle_looks=False)

    def faults(self) -> dict[int, Fault]:
        planned: dict[int, Fault] = {}
        for _ in range(max(0, self._chance.below(8) - 3)):
            kind = self.one_of(tuple(Kind))
            seconds = self.one_of(FAULT_SECONDS[kind]) if kind in FAULT_SECONDS else 0
            first = self._chance.below(24)
            for operation in range(first, first + 1 + (self._chance.below(4) if self.seldom(3) else 0)):
                planned[operation] = Fault(kind, seconds)
        return planned


def history_of(seed: int) -> History:
    """The history of a seed: the same for ever, wherever."""
    return Maker(Dice(seed)).history()


def year_of(seed: int) -> History:
    """A long, sparse history of a seed: a year and more, with a few events in between."""
    return Maker(Dice(seed)).year()
