"""The base scenarios that are run with a crash at every point: what is declared when, and what the callbacks do.

A callback's behaviour follows from the wall clock at its start, not from how often it was called: a process that died
and came back does what the one before would have done.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple


class Deed(NamedTuple):
    """One run: it takes some time, then it returns or raises."""

    seconds: float = 0
    fails: bool = False


class Task(NamedTuple):
    """A declared task; `deed` says what a run does that starts at a moment."""

    name: str
    cron: str
    delay: float = 60  # seconds
    deed: Callable[[datetime], Deed] = lambda _: Deed()
    blocking: bool = False


class Act(NamedTuple):
    """A deed of the program, some minutes after the beginning: declare tasks, or, None, stop."""

    minutes: float
    tasks: tuple[Task, ...] | None


@dataclass(frozen=True)
class Scenario:
    """One program's life, and how it is crashed."""

    name: str
    begin: str
    acts: tuple[Act, ...]
    minutes: float  # until the program is stopped
    points_min: int
    """The number of its crash points, at least."""
    pairs: int
    """The number of pairs of crashes that `make test-all` tries."""
    zone: str = "UTC"
    options: dict[str, Any] = field(default_factory=dict)
    downtimes: tuple[float, ...] = (0, 20, 65, 190)  # seconds, one after the other
    run_on: float = 2.5  # minutes after a restart; the program is then stopped
    idle_looks: bool = True


def takes(seconds: float) -> Callable[[datetime], Deed]:
    """Every run takes this long, and succeeds."""
    return lambda _: Deed(seconds)


def fails_in(*minutes: int, seconds: float = 0) -> Callable[[datetime], Deed]:
    """Runs that start in one of these minutes of ten fail."""
    return lambda now: Deed(seconds, now.minute % 10 in minutes)


EVERY: Final = "* * * * *"
EVEN: Final = ",".join(map(str, range(0, 60, 2))) + " * * * *"
THIRD: Final = ",".join(map(str, range(0, 60, 3))) + " * * * *"


def _declared(*tasks: Task, at: float = 0) -> Act:
    return Act(at, tasks)


QUICK: Final = Scenario(
    "quick",
    "2024-01-01T12:00:20",  # inside a matching minute: it is owed at once (SPEC 3.1)
    (_declared(Task("every", EVERY), Task("even", EVEN, deed=takes(3)), Task("blocking", THIRD, blocking=True)),),
    minutes=13,
    points_min=124,
    pairs=150,
)

FAILING: Final = Scenario(
    "failing",
    "2024-01-01T12:08:50",
    (
        _declared(
            Task("soon", EVEN, 15, fails_in(0, 2, 4, seconds=2)),
            Task("zero", THIRD, 0, lambda now: Deed(0, now.second < 3)),
            Task("late", "10,14,15 * * * *", 150, fails_in(0, 2, 4, 5)),
        ),
    ),
    minutes=9,
    points_min=190,
    pairs=200,
)

LONG: Final = Scenario(
    "long",
    "2024-01-01T12:00:00",
    (
        _declared(
            Task("long", EVERY, 30, takes(130)),
            Task("breaks", EVEN, 200, lambda now: Deed(75, now.minute % 4 == 0)),
            Task("exact", EVERY, 5, takes(60)),
        ),
    ),
    minutes=14,
    points_min=155,
    pairs=150,
)

QUEUE: Final = Scenario(
    "queue",
    "2024-01-01T12:00:30",
    (
        _declared(
            *(Task(f"busy {number}", EVEN, 20, takes(17 + 2 * number)) for number in range(3)),
            Task("blocking", THIRD, 20, fails_in(3, 6), blocking=True),
            Task("slow", "0,5,10 * * * *", 20, takes(100)),
        ),
    ),
    minutes=12,
    points_min=188,
    pairs=200,
    options={"max_concurrency": 2},
)

CHANGING: Final = Scenario(
    "changing",
    "2024-01-01T12:00:40",
    (
        _declared(
            Task("kept", EVERY, 30, takes(5)),
            Task("overridden", EVERY, 30, takes(70)),
            Task("orphaned", EVERY, 30, takes(100)),
            Task("failing", EVEN, 100, fails_in(0, 2, 4, 6, 8)),
            Task("touched", EVERY, 30, takes(1)),
        ),
        _declared(
            Task("kept", EVERY, 30, takes(5)),
            Task("overridden", EVERY, 45, takes(20)),
            Task("new", EVEN, 30, takes(2)),
            Task("failing", EVEN, 40, fails_in(0, 2, 4, 6, 8)),
            Task("touched", EVERY, 31, takes(1)),  # its minute has been served, and stays so
            at=2.8,
        ),
        _declared(
            Task("kept", EVERY, 30, takes(5), blocking=False),
            Task("orphaned", EVERY, 30, takes(20)),  # declared again: new, and its old run may go on
            Task("overridden", THIRD, 45, takes(20)),
            at=3.5,
        ),
        _declared(at=6.1),
        _declared(Task("kept", EVERY, 30, takes(90)), Task("overridden", THIRD, 45, takes(20)), at=7.2),
        _declared(Task("kept", EVERY, 30, takes(90)), Task("overridden", THIRD, 45, takes(20)), at=8.5),
    ),
    minutes=11,
    points_min=170,
    pairs=250,
)

STOPPING: Final = Scenario(
    "stopping",
    "2024-01-01T12:00:15",
    (
        _declared(Task("long", EVERY, 20, takes(100)), Task("fails", EVERY, 20, lambda _: Deed(15, True))),
        Act(2.5, None),
        _declared(Task("long", EVERY, 20, takes(100)), Task("fails", EVEN, 20, lambda _: Deed(15, True)), at=3),
        Act(6.6, None),
        Act(6.7, None),
        _declared(Task("long", EVERY, 20, takes(10)), at=9),
    ),
    minutes=11,
    points_min=128,
    pairs=200,
)

SPRING: Final = Scenario(
    "spring",
    "2024-03-31T01:54:30",
    (
        _declared(
            Task("every", EVERY, 30, lambda now: Deed(4, now.hour == 1)),
            Task("skipped", "30 2 * * *"),
            Task("at three", "0 3 * * *", 40, lambda now: Deed(30, now.minute == 0)),
            Task("night", "57,58,59,0,1,2,3 1-3 * * *", 200, takes(80)),
        ),
    ),
    minutes=11,
    points_min=140,
    pairs=150,
    zone="Europe/Berlin",
)

AUTUMN: Final = Scenario(
    "autumn",
    "2024-10-27T02:54:30",
    (
        _declared(
            Task("often", "0,10,20,30,40,50,55,58 * * * *", 300, lambda now: Deed(20, now.minute == 58)),
            Task("at two", "0 2 * * *"),  # long over, and its second copy is none
            Task("at half past two", "30 2 * * *", 60, takes(5)),
            Task("at three", "0 3 * * *", 60, takes(200)),
        ),
    ),
    minutes=90,
    points_min=44,
    pairs=120,
    zone="Europe/Berlin",
    downtimes=(5, 65, 1_500, 3_700),
    run_on=80,
    idle_looks=False,
)

WAITING: Final = Scenario(
    "waiting",
    "2024-01-01T12:00:50",
    (
        _declared(
            Task("fails", THIRD, 70, lambda now: Deed(12, now.minute % 2 == 0)),
            Task("rare", "2,9 12 * * *", 100, lambda now: Deed(25, now.minute < 5)),
            Task("every", EVERY, 30, takes(35)),
        ),
    ),
    minutes=12,
    points_min=130,
    pairs=200,
    options={"interrupted": "wait"},
)

BOOT: Final = Scenario(
    "boot",
    "2024-01-01T12:00:05",  # its minute matches, and will not again before tomorrow
    (
        _declared(Task("noon", "0 12 * * *", 90, takes(20)), Task("fails", "0 12 1 1 *", 30, lambda _: Deed(7, True))),
        _declared(Task("noon", "0 12 * * *", 90, takes(20)), Task("later", "0-1 12 * * *"), at=0.5),
        _declared(Task("noon", "0-9 12 * * *", 90, takes(20)), Task("later", "0-1 12 * * *"), at=1.2),
    ),
    minutes=5,
    points_min=62,
    pairs=150,
    downtimes=(0, 10, 40, 61),
)

CLOCK: Final = Scenario(
    "clock",
    "2024-01-01T12:00:20",
    (
        _declared(
            Task("every", EVERY, 30, lambda now: Deed(6, now.minute % 3 == 0)),
            Task("slow retry", THIRD, 3_000, lambda now: Deed(6, now.minute < 6)),
            Task("long", EVEN, 90, takes(80)),
        ),
    ),
    minutes=9,
    points_min=108,
    pairs=150,
    downtimes=(-45, -2_000, -20_000, 40_000, 0),  # the clock was set while no process was running
)

TIMEOUTS: Final = Scenario(
    "timeouts",
    "2024-01-01T12:00:10",
    (
        _declared(
            Task("stuck", EVEN, 25, lambda now: Deed(500 if now.minute % 4 == 0 and now.second == 0 else 20)),
            Task("in time", EVERY, 25, takes(40)),
            Task("blocking", THIRD, 25, fails_in(3, 9), blocking=True),
        ),
    ),
    minutes=9,
    points_min=122,
    pairs=150,
    options={"run_timeout": timedelta(seconds=50), "max_concurrency": 2},
)

SCENARIOS: Final = (CLOCK, TIMEOUTS, QUICK, FAILING, LONG, QUEUE, CHANGING, STOPPING, SPRING, AUTUMN, WAITING, BOOT)

_YEAR_MINUTES: Final = timedelta(days=366) / timedelta(minutes=1)

YEAR: Final = Scenario(
    "year",
    "2024-01-01T08:00:00",
    (
        _declared(
            Task("monthly", "0 9 1 * *", 3_600, lambda now: Deed(1_800, now.month % 3 == 0 and now.hour == 9)),
            Task("weekly", "30 2 * * 0", 600, takes(7_200)),  # the night of every change of the clocks
            Task("leap day", "0 12 29 2 *", 60, takes(60)),
            Task("new year", "0 0 31 12 *", 60, takes(90_000)),
        ),
        _declared(
            Task("monthly", "0 9 1 * *", 3_600, lambda now: Deed(1_800, now.month % 3 == 0 and now.hour == 9)),
            Task("weekly", "30 1 * * 0", 600, takes(7_200)),
            Task("quarterly", "0 6 15 2,5,8,11 *", 86_400, lambda now: Deed(30, now.day == 15)),
            at=0.6 * _YEAR_MINUTES,
        ),
    ),
    minutes=_YEAR_MINUTES,
    points_min=430,
    pairs=0,
    zone="Europe/Berlin",
    downtimes=(30, 5_000, 90_000, 3_000_000),
    run_on=_YEAR_MINUTES,
    idle_looks=False,
)
