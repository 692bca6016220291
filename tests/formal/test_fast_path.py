"""The fast path for long traces leads to exactly what the machine leads to, event by event."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.ours.checker import measure
from duly.core.moments import Delay, Instant
from duly.formal.monitor import Monitor
from duly.formal.trace import BT, CK, IE, IS, LETTERS, RE, RG, RS, SE, SF, SS, WK, Event

NOON = 1_748_865_600_000_000
SECOND = 1_000_000
CRONS = ("* * * * *", "0,10,20,30,40,50 * * * *", "0 * * * *", "5 2 * * *")


class Wild:
    """Events of several tasks: mostly what a scheduler would do, now and then anything at all."""

    def __init__(self, seed: int, wrong: float) -> None:
        self.chance = random.Random(seed)
        self.wrong = wrong
        self.now = NOON - 30 * SECOND
        self.events: list[Event] = []
        self.runs = 0
        self.calls = 1
        self.open: dict[str, tuple[int, int]] = {}
        self.generations: dict[str, int] = {}
        self.boot()

    def add(self, kind: type[Event], *fields: Any) -> None:
        self.events.append(kind(len(self.events) + 1, Instant(self.now), *fields))

    def boot(self) -> None:
        self.add(BT, f"boot-{len(self.events)}", 0)
        self.initialize()

    def initialize(self) -> None:
        chance = self.chance
        self.calls += 1
        self.add(IS, self.calls)
        for name in "abcde":
            if name not in self.generations or chance.random() < 0.3:
                known = name in self.generations
                if known and chance.random() < 0.3:
                    self.register(name, self.generations.pop(name), "orphaned")
                    continue
                self.generations[name] = generation = len(self.events) + 1
                self.register(name, generation, "overridden" if known else "new")
        limits = chance.choice([(None, None), (None, None), (2, None), (None, 1)])
        mode = chance.choice(["restart", "wait"])
        self.add(IE, self.calls, len(self.generations), "", mode, *limits, "Europe/Berlin")

    def register(self, name: str, generation: int, change: str) -> None:
        place = self.chance.choice(["loop", "thread"])
        cron, delay = self.chance.choice(CRONS), Delay(self.chance.choice([0, 500, 30_000, 600_000]))
        self.add(RG, name, generation, change, cron, delay, "Europe/Berlin", Instant(self.now), place)

    def step(self) -> None:
        chance = self.chance
        pick = chance.random()
        name = chance.choice("abcde")
        if chance.random() < 0.05:
            self.now += chance.choice([SECOND, 89 * SECOND, 120 * SECOND])  # a silence
        if chance.random() < self.wrong:
            self.out_of_nowhere(name)
        elif pick < 0.75:
            if name in self.open:
                run, generation = self.open.pop(name)
                self.add(RE, name, generation, run, chance.random() < 0.7)
            elif name in self.generations:
                self.start(name, self.generations[name])
        elif pick < 0.95:
            self.now += chance.choice([1_000, SECOND, 20 * SECOND, 60 * SECOND, 100 * SECOND, 3_600 * SECOND])
            self.add(WK, 0)
        elif pick < 0.96:
            if chance.random() >= self.wrong:
                self.open.clear()
            self.boot()
        elif pick < 0.97:
            self.initialize()
        elif pick < 0.98:
            old, self.now = Instant(self.now), self.now - chance.choice([SECOND, 7_200 * SECOND, 4 * 3_600 * SECOND])
            self.add(CK, old)
        else:
            self.calls += 1
            self.add(SS, self.calls)
            if chance.random() < 0.7:
                self.add(SF, self.calls, "StopSchedulerError") if chance.random() < 0.5 else self.add(SE, self.calls)

    def out_of_nowhere(self, name: str) -> None:
        chance = self.chance
        generation = chance.choice([-1, self.generations.get(name, 3) - chance.randrange(2)])
        if chance.random() < 0.2:
            self.now -= 5 * SECOND  # earlier than before, and nobody says that the clock was set back
        if chance.random() < 0.5:
            self.start(name, generation)
        else:
            self.add(RE, name, generation, max(1, self.runs - chance.randrange(3)), chance.random() < 0.5)

    def start(self, name: str, generation: int) -> None:
        self.runs += 1
        self.open[name] = (self.runs, generation)
        self.add(RS, name, generation, self.runs, "cron", len(self.open))


def everything(monitor: Monitor) -> dict[str, Any]:
    """Everything that a monitor knows and has found."""
    return {
        "registers": monitor.snapshot(),
        "violations": monitor.violations,
        "counts": monitor.counts,
        "verdicts": monitor.verdicts(),
        "running": [(host.running, host.threads_running) for _, host in sorted(monitor.registers.hosts.items())],
        "alarm": monitor._machine.alarm,
        "watched": {name: task.watched for name, task in monitor.registers.tasks.items()},
    }


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9), st.sampled_from([0.0, 0.02, 0.2]), st.booleans())
@example(1, 0.0, True)
def test_both_ways_lead_to_the_same(seed: int, wrong: float, bounded: bool) -> None:
    """Registers, violations, verdicts and deadlines; in slices of any size."""
    wild = Wild(seed, wrong)
    for _ in range(300):
        wild.step()
    stepped, fed = Monitor(bounded=bounded), Monitor(bounded=bounded)
    rows = [[type(event).__name__, *event] for event in wild.events]
    begin = 0
    while begin < len(rows):
        end = begin + wild.chance.randrange(1, 60)
        for event in wild.events[begin:end]:
            stepped.step(event)
        fed.feed(rows[begin:end])
        assert everything(fed) == everything(stepped)
        begin = end


@pytest.mark.parametrize("bounded", [False, True])
def test_what_is_ordinary_takes_the_fast_way(bounded: bool) -> None:
    """Otherwise only the speed would suffer, which no other test notices."""
    monitor = Monitor(bounded=bounded)
    taken: list[str] = []
    ordinary = dict(monitor._machine.on)
    for letters in LETTERS:

        def note(*row: Any, letters: str = letters) -> None:
            taken.append(letters)
            ordinary[letters](*row)

        monitor._machine.on[letters] = note
    at = Instant(NOON)
    rows: list[list[Any]] = [
        ["BT", 1, at, "boot", 0],
        ["IS", 2, at, 1],
        ["RG", 3, at, "a", 1, "new", "* * * * *", 30_000, "UTC", at, "loop"],
        ["RG", 4, at, "b", 2, "new", "* * * * *", 30_000, "UTC", at, "thread"],
        ["IE", 5, at, 1, 2, "", "restart", None, 4, "UTC"],
    ]
    run = 0
    for minute in range(200):
        for name, generation in (("a", 1), ("b", 2)):
            run += 1
            begun = at + minute * 60 * SECOND + 1_000
            rows.append(["RS", len(rows) + 1, begun, name, generation, run, "cron", 0])
            failed = minute % 7 == 3 and name == "a"
            rows.append(["RE", len(rows) + 1, begun + 10, name, generation, run, not failed])
            if failed:
                run += 1
                rows.append(["RS", len(rows) + 1, begun + 31 * SECOND, name, generation, run, "retry", 0])
                rows.append(["RE", len(rows) + 1, begun + 31 * SECOND + 5, name, generation, run, True])
    monitor.feed(rows)
    assert not monitor.violations
    assert taken.count("RG") == 2
    others = len(taken) - 5  # when a deadline comes, an event goes the ordinary way, which looks at it
    assert others <= (420 if bounded else 0)
    assert others < len(rows) // 2


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("outcomes", ["sss", "fff", "sfs", "fsf"])
def test_both_ways_agree_at_the_very_instants(outcomes: str, bounded: bool) -> None:
    """Starts on the minute, ends on the next due one, retries when they ripen, silences of just the bound."""
    wild = Wild(0, 0.0)
    wild.events.clear()
    wild.now = NOON
    wild.add(BT, "boot", 0)
    wild.add(IS, 1)
    for generation, (name, cron) in enumerate((("a", "* * * * *"), ("b", "0,10 * * * *"), ("c", "0 * * * *")), 1):
        wild.add(
            RG, name, generation, "new", cron, Delay(60_000), "UTC", Instant(NOON), "loop" if name == "b" else "thread"
        )
    wild.add(IE, 1, 3, "", "restart", 3, 2, "UTC")
    for minute, outcome in enumerate(outcomes * 8):
        for generation, name in enumerate("abc", 1):
            wild.runs += 1
            wild.add(RS, name, generation, wild.runs, "cron", 0)
            wild.open[name] = (wild.runs, generation)
        if minute % 3 == 0:
            wild.now += 60 * SECOND
        for name in "cba":
            run, generation = wild.open.pop(name)
            wild.add(RE, name, generation, run, outcome == "s")
        wild.now += (0, 60 * SECOND, 90 * SECOND, 90 * SECOND + 1)[minute % 4]
    compare(wild.events, bounded=bounded)


def compare(events: list[Event], *, bounded: bool) -> None:
    """After every event, and when all are taken at once."""
    stepped, one_by_one, fed = (Monitor(bounded=bounded) for _ in range(3))
    rows = [[type(event).__name__, *event] for event in events]
    for event, row in zip(events, rows, strict=True):
        stepped.step(event)
        one_by_one.feed([row])
        assert everything(one_by_one) == everything(stepped)
    fed.feed(rows)
    assert everything(fed) == everything(stepped)


def test_both_ways_agree_on_a_due_minute_that_meets_the_retry_of_a_run_nobody_owed() -> None:
    """The minute makes the start a fresh one, even at its very instant."""
    at = [Instant(NOON + seconds * SECOND) for seconds in (0, 1, 2, 3, 60)]
    compare(
        [
            BT(1, at[0], "boot", 0),
            IS(2, at[0], 1),
            RG(3, at[0], "a", 1, "new", "* * * * *", Delay(1_000), "UTC", at[0], "loop"),
            IE(4, at[0], 1, 1, "", "restart", None, None, "UTC"),
            RS(5, at[0], "a", 1, 1, "cron", 0),
            RE(6, at[1], "a", 1, 1, True),
            RS(7, at[2], "a", 1, 2, "cron", 0),
            RE(8, at[3], "a", 1, 2, False),
            RS(9, at[4], "a", 1, 3, "cron", 0),
        ],
        bounded=False,  # else the deadline of the minute before is looked at in this moment, in the ordinary way
    )


def test_a_stranger_that_failed_is_forgotten_either_way() -> None:
    """After the end of a run whose task was never declared, the monitor has forgotten the task."""
    wild = Wild(0, 0.0)
    wild.add(RS, "stranger", -1, 77, "cron", 0)
    wild.add(RE, "stranger", -1, 77, False)
    stepped, fed = Monitor(), Monitor()
    for event in wild.events:
        stepped.step(event)
    fed.feed([[type(event).__name__, *event] for event in wild.events])
    assert everything(fed) == everything(stepped)
    assert "stranger" not in fed.registers.tasks


def test_the_benchmark_of_the_checker_measures_what_it_says(tmp_path: Path) -> None:
    """The benchmark measures the speed; this test shows that it runs, on a trace without a violation."""
    figures = measure(tmp_path, events=2_000, tasks=150)
    assert figures["events"] >= 2_000
    assert figures["safety_events_a_second"] > 0
    assert figures["all_events_a_second"] > 0
    assert (tmp_path / "long.jsonl").read_bytes().count(b'"retry"') > 0
