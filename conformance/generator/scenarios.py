"""Lives of a scheduler, and the starts that they owe: declarations, clocks, runs, crashes and stops.

The starts come from the reference scheduler of tests/simulation/reference.py, which shares nothing with duly. `World`
lets time pass for it, lets runs take their time, and turns steps into the events that it is given.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final
from zoneinfo import ZoneInfo

from conformance import tz_database
from conformance.calendar import instant_of, utc_text
from conformance.vector_files import Group, Vector, VectorFile
from tests.simulation.reference import SECOND, Record, Reference, next_due

SEED: Final = 1
DRAWN: Final = 100
STARTS_MAX: Final = 25
"""Of drawn scenarios; one with more says little more, and takes long to read."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Step = dict[str, Any]


# --- the world -------------------------------------------------------------------------------------------------------


class World:
    """The world of a scenario; microseconds since the epoch by the wall clock, and by a steady clock for runs."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self._scenario = scenario
        self._zone = ZoneInfo(scenario["zone"])
        self._reference = Reference(self._zone)
        self._wall = _microseconds(scenario["at"])
        self._steady = 0
        self._reference.now = self._wall
        self._has_scheduler = False
        self._generations = 0
        self._declared: dict[str, dict[str, Any]] = {}
        self._runs: dict[str, int] = {}
        self._seen = 0
        self._ends: list[tuple[int, str, int, bool]] = []  # by the steady clock: task, generation, success
        self.starts: list[dict[str, str]] = []

    def live(self) -> list[dict[str, str]]:
        """Go through all steps; returns the starts, in their order."""
        for step in self._scenario["steps"]:
            getattr(self, "_" + step["do"].replace("-", "_"))(step)
        return sorted(self.starts, key=lambda start: (start["at"], start["task"]))

    # --- steps -------------------------------------------------------------------------------------------------------

    def _initialize(self, step: Step) -> None:
        if not self._has_scheduler:
            self._has_scheduler = True
            self._take("BT", "", 0)
        tasks = {task["name"]: task for task in step["tasks"]}
        for name in [*self._reference.records]:
            if name not in tasks:
                self._register(self._declared[name], "orphaned", self._reference.records[name])
        for name, task in tasks.items():
            stored = self._reference.records.get(name)
            if stored is None:
                self._register(task, "new", None)
            elif (stored.cron, stored.delay_ms) != (task["cron"], task["retryDelayMs"]):
                self._register(task, "overridden", None)
        self._declared = tasks
        mode, limit = self._scenario.get("interrupted", "restart"), self._scenario.get("maxConcurrency")
        self._take("IE", 0, len(tasks), "", mode, limit, None, self._zone.key)
        self._start_all()

    def _register(self, task: dict[str, Any], change: str, stored: Record | None) -> None:
        if stored is None:
            self._generations += 1
        generation = self._generations if stored is None else stored.generation
        head = (task["name"], generation, change, task["cron"], task["retryDelayMs"])
        self._take("RG", *head, self._zone.key, self._wall, "loop")

    def _stop(self, step: Step) -> None:
        self._take("SS", 0)
        while self._ends:
            self._pass_by(self._ends[0][0] - self._steady)
        self._has_scheduler = False

    def _crash(self, step: Step) -> None:
        self._ends.clear()
        self._reference.active = self._has_scheduler = False
        self._reference.alive = {}

    def _pass(self, step: Step) -> None:
        self._pass_by(round(step["seconds"] * SECOND))

    def _freeze(self, step: Step) -> None:
        """Time passes, and nothing is decided or ends meanwhile."""
        moved = round(step["seconds"] * SECOND)
        self._wall += moved
        self._steady += moved
        self._reference.now = self._wall
        self._settle()

    def _set_clock(self, step: Step) -> None:
        """The wall clock is set; the steady one is not."""
        self._wall += round(step["seconds"] * SECOND)
        self._reference.correct(self._wall)
        self._settle()

    # --- time --------------------------------------------------------------------------------------------------------

    def _pass_by(self, duration: int) -> None:
        """Time passes, from one instant at which something can happen to the next."""
        until = self._steady + duration
        self._settle()
        while self._steady < until:
            moments = [self._wall + until - self._steady]
            moments += [self._wall + end - self._steady for end, *_ in self._ends[:1]]
            moments += self._moments_of_the_scheduler()
            now = min(moment for moment in moments if moment > self._wall)
            self._steady += now - self._wall
            self._wall = self._reference.now = now
            self._settle()

    def _moments_of_the_scheduler(self) -> Iterator[int]:
        records = self._reference.records.values()
        if self._reference.active:
            yield from (next_due(each.cron, self._zone, max(each.mark, self._wall)) for each in records)
            yield from (each.retry_at for each in records if each.retry_at is not None)
            yield from self._reference.resume_at.values()

    def _settle(self) -> None:
        """Let runs end that end now, and tasks start that are owed now, until neither happens."""
        while True:
            while self._ends and self._ends[0][0] <= self._steady:
                _, name, generation, ok = self._ends.pop(0)
                self._take("RE", name, generation, 0, ok)
            before = self._seen
            self._start_all()
            if self._seen == before:
                return

    def _start_all(self) -> None:
        self._reference.start_all()
        for start in self._reference.starts[self._seen :]:
            assert start.at == self._wall
            number, runs = self._runs.get(start.task, 0), self._declared[start.task]["runs"]
            self._runs[start.task] = number + 1
            doing = runs[number % len(runs)]
            generation = self._reference.alive[start.task][0]
            end = self._steady + round(doing["seconds"] * SECOND)
            self._ends.append((end, start.task, generation, doing["outcome"] == "success"))
            self.starts.append({"task": start.task, "cause": start.cause, "at": _text(start.at)})
        self._seen = len(self._reference.starts)
        self._ends.sort()

    def _take(self, letters: str, *fields: Any) -> None:
        self._reference.take((letters, 0, self._wall, *fields))


def _microseconds(text: str) -> int:
    return (instant_of(text) - _EPOCH) // timedelta(microseconds=1)


def _text(microseconds: int) -> str:
    assert microseconds % SECOND == 0, "scenarios happen at whole seconds"
    return utc_text(_EPOCH + timedelta(microseconds=microseconds))


# --- scenarios -------------------------------------------------------------------------------------------------------

EVERY: Final = "* * * * *"
HOURLY: Final = "0 * * * *"


def task(
    name: str = "a", cron: str = EVERY, delay: int = 60, runs: Sequence[tuple[float, bool]] = ((0, True),)
) -> dict[str, Any]:
    """A task; `delay` in seconds; each run as its seconds and whether it succeeds."""
    doings = [{"seconds": seconds, "outcome": "success" if ok else "failure"} for seconds, ok in runs]
    return {"name": name, "cron": cron, "retryDelayMs": delay * 1_000, "runs": doings}


def declare(*tasks: dict[str, Any]) -> Step:
    """initialize() returns."""
    return {"do": "initialize", "tasks": list(tasks)}


def passing(seconds: float) -> Step:
    """Time passes."""
    return {"do": "pass", "seconds": seconds}


def frozen(seconds: float) -> Step:
    """The process stands still while time passes."""
    return {"do": "freeze", "seconds": seconds}


def clock_set(seconds: float) -> Step:
    """The wall clock is set by this much."""
    return {"do": "set-clock", "seconds": seconds}


CRASH: Final[Step] = {"do": "crash"}
STOP: Final[Step] = {"do": "stop"}
NOON: Final = "2025-01-15T12:00:00Z"
FAILS: Final = ((0, False),)
FAILS_ONCE: Final = ((0, False), (0, True))


def scene(clause: str, about: str, *steps: Step, at: str = NOON, zone: str = "UTC", **more: Any) -> Vector:
    """A scenario without its starts."""
    return {"clause": clause, "about": about, "zone": zone, "at": at, **more, "steps": list(steps)}


SCENES: Final = (
    scene("2.1", "An occurrence starts at second 0 of its minute.", declare(task(cron="2 12 * * *")), passing(300)),
    scene(
        "2.2",
        "A minute that the clock skips is not owed.",
        declare(task(cron="30 2 * * *"), task("b", HOURLY)),
        passing(3 * 3600),
        at="2025-03-30T00:20:00Z",
        zone="Europe/Berlin",
    ),
    scene(
        "2.2",
        "A minute that the clock skips is not owed after downtime either.",
        declare(task(cron="30 2 * * *")),
        passing(60),
        STOP,
        passing(4 * 3600),
        declare(task(cron="30 2 * * *")),
        passing(60),
        at="2025-03-30T00:20:00Z",
        zone="Europe/Berlin",
    ),
    scene(
        "2.3",
        "A minute that the clock shows twice is due the first time, whatever the expression.",
        declare(task(cron="30 2 * * *"), task("b", "0,30 * * * *")),
        passing(4 * 3600),
        at="2025-10-25T23:50:00Z",
        zone="Europe/Berlin",
    ),
    scene(
        "2.3",
        "A first start-up inside the second copy of a matching minute does not run.",
        declare(task(cron="30 2 * * *"), task("b", "31 2 * * *")),
        passing(300),
        at="2025-10-26T01:30:20Z",
        zone="Europe/Berlin",
    ),
    scene(
        "2.2",
        "A day that a zone leaves out has no occurrences.",
        declare(task(cron="0 12 * * *")),
        passing(50 * 3600),
        at="2011-12-29T21:00:00Z",
        zone="Pacific/Apia",
    ),
    scene(
        "2.5",
        "After a small step back a task is silent until the clock passes what was served.",
        declare(task()),
        passing(180),
        clock_set(-120),
        passing(300),
        withinSeconds=60,
    ),
    scene(
        "2.5",
        "A mark more than three hours ahead means that the clock was corrected.",
        declare(task(cron=HOURLY)),
        passing(2 * 3600),
        clock_set(-5 * 3600),
        passing(2 * 3600),
        withinSeconds=60,
    ),
    scene(
        "2.5",
        "What a step forward jumped over is served once.",
        declare(task(cron=HOURLY), task("b", "30 14 * * *")),
        passing(60),
        clock_set(3 * 3600),
        passing(2 * 3600),
        withinSeconds=60,
    ),
    scene(
        "2.5",
        "A pending retry never lies further ahead than its delay after a step back.",
        declare(task(cron="0 12 * * *", delay=600, runs=FAILS_ONCE)),
        passing(60),
        clock_set(-86_400),
        passing(1_200),
        withinSeconds=60,
    ),
    scene(
        "3.1",
        "The minute in which a task becomes known is owed.",
        declare(task()),
        passing(30),
        at="2025-01-15T12:00:20Z",
    ),
    scene(
        "3.1",
        "Occurrences before a task became known are not owed.",
        declare(task(cron="0 11 * * *"), task("b", "59 11 * * *"), task("c", "0 12 * * *")),
        passing(120),
    ),
    scene(
        "3.1",
        "Occurrences after it are owed across a restart.",
        declare(task(cron="30 12 * * *")),
        passing(60),
        STOP,
        passing(3600),
        declare(task(cron="30 12 * * *")),
        passing(60),
    ),
    scene(
        "3.2",
        "One start serves all that was missed in a downtime.",
        declare(task()),
        passing(90),
        STOP,
        passing(7200),
        declare(task()),
        passing(90),
    ),
    scene(
        "3.2",
        "One start serves all that was missed in a freeze.",
        declare(task()),
        passing(90),
        frozen(600),
        passing(90),
    ),
    scene(
        "3.3",
        "A minute that falls due inside a run is owed when the run ends.",
        declare(task(runs=((150, True), (0, True)))),
        passing(300),
    ),
    scene(
        "3.3",
        "A run that ends exactly at its next minute is followed by one start.",
        declare(task(runs=((60, True),))),
        passing(300),
    ),
    scene(
        "3.4",
        "A failure is retried after its delay, again and again.",
        declare(task(cron="0 12 * * *", delay=17, runs=((2, False), (2, False), (2, True)))),
        passing(600),
    ),
    scene(
        "3.4", "A success leaves no retry.", declare(task(cron="0 12 * * *", delay=60, runs=FAILS_ONCE)), passing(7200)
    ),
    scene(
        "3.5",
        "A due minute takes the place of a retry that is not ripe yet.",
        declare(task(cron="0,5,10 * * * *", delay=600, runs=FAILS_ONCE)),
        passing(1200),
    ),
    scene(
        "3.5",
        "Retry and due minute together: the earlier names the one start.",
        declare(task(cron="0,10 * * * *", delay=300, runs=FAILS_ONCE)),
        passing(30),
        STOP,
        passing(900),
        declare(task(cron="0,10 * * * *", delay=300, runs=FAILS_ONCE)),
        passing(900),
    ),
    scene(
        "3.5",
        "Retry and due minute at one instant: cron names the start.",
        declare(task(cron="0,5 * * * *", delay=300, runs=FAILS_ONCE)),
        passing(900),
    ),
    scene(
        "3.6",
        "A delay of zero is one second.",
        declare(task(cron="0 12 * * *", delay=0, runs=((0, False),) * 3 + ((0, True),))),
        passing(60),
    ),
    scene(
        "3.7",
        "A run that a crash interrupted starts at once after the next initialize.",
        declare(task(cron="0 12 * * *", runs=((100, True), (1, True)))),
        passing(30),
        CRASH,
        passing(40),
        declare(task(cron="0 12 * * *", runs=((100, True), (1, True)))),
        passing(600),
    ),
    scene(
        "3.7",
        "An interrupted run and a missed minute are one start.",
        declare(task(cron="0,5 * * * *", runs=((100, True), (1, True)))),
        passing(30),
        CRASH,
        passing(600),
        declare(task(cron="0,5 * * * *", runs=((100, True), (1, True)))),
        passing(600),
    ),
    scene(
        "3.7",
        "The second interruption in a row waits for its delay from the last start.",
        declare(task(cron="0 12 * * *", delay=90, runs=((1000, True),))),
        passing(30),
        CRASH,
        passing(5),
        declare(task(cron="0 12 * * *", delay=90, runs=((1000, True),))),
        passing(10),
        CRASH,
        passing(5),
        declare(task(cron="0 12 * * *", delay=90, runs=((1000, True),))),
        passing(600),
    ),
    scene(
        "3.7",
        "A due minute ends the wait of an interrupted task.",
        declare(task(cron="0,1,2 * * * *", delay=900, runs=((1000, True),))),
        passing(30),
        CRASH,
        declare(task(cron="0,1,2 * * * *", delay=900, runs=((1000, True),))),
        passing(10),
        CRASH,
        declare(task(cron="0,1,2 * * * *", delay=900, runs=((1000, True),))),
        passing(60),
    ),
    scene(
        "3.7",
        "With interrupted = wait, an interrupted run waits for its next due minute.",
        declare(task(cron="0,5 * * * *", runs=((100, True), (1, True)))),
        passing(30),
        CRASH,
        passing(40),
        declare(task(cron="0,5 * * * *", runs=((100, True), (1, True)))),
        passing(600),
        interrupted="wait",
    ),
    scene(
        "3.7",
        "With interrupted = wait, a retry that was pending is still owed.",
        declare(task(cron="0 12 * * *", delay=60, runs=((0, False), (100, True), (0, True)))),
        passing(90),
        CRASH,
        passing(10),
        declare(task(cron="0 12 * * *", delay=60, runs=((0, False), (100, True), (0, True)))),
        passing(600),
        interrupted="wait",
    ),
    scene(
        "3.10",
        "With one slot the task that is owed for longest comes first.",
        declare(
            task("a", "0 12 * * *", runs=((200, True),)),
            task("b", "1 12 * * *", runs=((30, True),)),
            task("c", "2 12 * * *"),
        ),
        passing(600),
        maxConcurrency=1,
    ),
    scene(
        "4.1",
        "A re-initialisation with what is declared changes nothing.",
        declare(task(cron="0,1,2 * * * *", runs=((20, True),))),
        passing(10),
        declare(task(cron="0,1,2 * * * *", runs=((20, True),))),
        passing(10),
        declare(task(cron="0,1,2 * * * *", runs=((20, True),))),
        passing(120),
    ),
    scene(
        "4.3",
        "Nothing starts after a stop; it waits for what runs.",
        declare(task(runs=((90, True),))),
        passing(30),
        STOP,
        passing(300),
        declare(task(runs=((90, True),))),
        passing(30),
    ),
    scene(
        "4.4",
        "An empty declaration is legal, and starts nothing.",
        declare(),
        passing(300),
        declare(task()),
        passing(90),
    ),
    scene(
        "5.1",
        "A preserved task keeps what it owes.",
        declare(task(cron="1 12 * * *")),
        passing(30),
        STOP,
        passing(600),
        declare(task(cron="1 12 * * *"), task("b", "0 13 * * *")),
        passing(60),
    ),
    scene(
        "5.1",
        "An overridden task begins anew: what it owed is dropped.",
        declare(task(cron="1 12 * * *")),
        passing(30),
        STOP,
        passing(600),
        declare(task(cron="1,20 12 * * *")),
        passing(900),
    ),
    scene(
        "5.1",
        "An overridden task drops its retry, and keeps the minute that was served.",
        declare(task(delay=30, runs=FAILS)),
        passing(10),
        declare(task(delay=40, runs=FAILS_ONCE)),
        passing(120),
    ),
    scene(
        "5.1",
        "A task that was left out and declared again is new, and a served minute stays served.",
        declare(task(cron="0,1 * * * *")),
        passing(10),
        declare(),
        passing(10),
        declare(task(cron="0,1 * * * *")),
        passing(120),
    ),
    scene(
        "5.1",
        "An orphaned task does not start.",
        declare(task(), task("b")),
        passing(90),
        declare(task("b")),
        passing(120),
    ),
    scene(
        "5.3",
        "A run that outlives its declaration: its successor waits for it.",
        declare(task(runs=((150, False), (0, True)))),
        passing(30),
        declare(task(delay=61, runs=((150, False), (0, True)))),
        passing(300),
    ),
)


def vector_file() -> VectorFile:
    """The group `scenarios`."""
    tz_database.use_package()
    return VectorFile(
        Group.SCENARIOS,
        "What is declared, called and suffered, and the starts that a scheduler owes, with their cause.",
        "SPEC 2 to 5",
        list(vectors()),
        tz_database.version(),
        {"seed": SEED},
    )


def vectors() -> Iterator[Vector]:
    """The table of scenes, and drawn ones."""
    numbers: dict[str, int] = {}
    for each in SCENES:
        clause = each["clause"]
        numbers[clause] = numbers.get(clause, 0) + 1
        yield {"id": f"{clause}/{numbers[clause]}", **each, "starts": World(each).live()}
    with_starts = ((each, World(each).live()) for each in drawn())
    short = ((each, starts) for each, starts in with_starts if len(starts) <= STARTS_MAX)
    for number, (each, starts) in enumerate(islice(short, DRAWN), 1):
        yield {"id": f"drawn/{number}", **each, "starts": starts}


# --- chance ----------------------------------------------------------------------------------------------------------

_PLACES: Final = (
    ("UTC", "2025-01-15T12:00:10Z"),
    ("Europe/Berlin", "2025-03-30T00:50:00Z"),
    ("Europe/Berlin", "2025-10-26T00:20:30Z"),
    ("Australia/Lord_Howe", "2025-04-05T14:40:00Z"),
    ("America/New_York", "2025-03-09T06:45:00Z"),
    ("Asia/Kathmandu", "2025-12-31T18:10:00Z"),
)
_CRONS: Final = ("* * * * *", "0,5,10,15,30,45 * * * *", "0 * * * *", "30 2 * * *", "0,1,2 1-3 * * *")
_DELAYS: Final = (60, 0, 5, 90, 700)
_SECONDS: Final = (0, 0, 1, 30, 60, 90, 400)


def drawn() -> Iterator[Vector]:
    """Scenarios by chance: tasks that fail and take their time, crashes, stops, freezes, other declarations."""
    dice = random.Random(SEED)
    while True:
        zone, at = dice.choice(_PLACES)
        tasks = [_drawn_task(name, dice) for name in "abc"[: dice.randint(1, 3)]]
        steps: list[Step] = [declare(*tasks), passing(dice.choice((30, 90, 200)))]
        for _ in range(dice.randint(1, 5)):
            match dice.randrange(6):
                case 0 | 1:
                    steps += [CRASH, passing(dice.choice((0, 7, 61, 500))), declare(*tasks)]
                case 2:
                    steps += [STOP, passing(dice.choice((0, 61, 4000))), declare(*tasks)]
                case 3:
                    steps.append(frozen(dice.choice((1, 61, 700))))
                case 4:
                    changed = dice.randrange(len(tasks))
                    tasks = [*tasks[:changed], _drawn_task(tasks[changed]["name"], dice), *tasks[changed + 1 :]]
                    steps.append(declare(*tasks))
                case _:
                    steps.append(declare(*tasks))
            steps.append(passing(dice.choice((10, 61, 130, 600, 3700))))
        more = {"interrupted": "wait"} if dice.random() < 0.25 else {}
        yield scene("2-5", "Drawn by chance.", *steps, at=at, zone=zone, **more)


def _drawn_task(name: str, dice: random.Random) -> dict[str, Any]:
    runs = [(dice.choice(_SECONDS), dice.random() < 0.6) for _ in range(dice.randint(1, 3))]
    return task(name, dice.choice(_CRONS), dice.choice(_DELAYS), runs)
