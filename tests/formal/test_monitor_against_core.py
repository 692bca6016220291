"""The monitor's obligation against the scheduler's: one task, the pure core, random histories.

SPEC 7.2: a start is legal exactly if Obl held just before. Here `core.task` decides and the monitor watches; they share
no line of code and must agree at every moment that is asked about.
"""

import random
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from duly import parse_cron
from duly.core.due import latest_due, next_due
from duly.core.moments import MICROSECONDS, Delay, Instant, Minute, instant_of, minute_of
from duly.core.resolution import counts
from duly.core.task import (
    AwaitingRun,
    Owed,
    Running,
    TaskState,
    Withdrawn,
    begin_run,
    corrected,
    fail,
    interrupt,
    newly_declared,
    obligation,
    served_by_starts,
    succeed,
)  # fmt: skip
from duly.formal.monitor import Monitor
from duly.formal.trace import BT, CK, IE, IS, RE, RG, RS, Event
from tests.core.helpers import FIRST

SECOND = MICROSECONDS


class History:
    """The core's state of one task, and the trace that a store would have written."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.monitor = Monitor(bounded=False)
        self.zone = ZoneInfo(chance.choice(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]))
        year = chance.choice([2024, 2025])
        self.now = instant_of(datetime(year, chance.choice([3, 10, 11]), chance.randrange(1, 31), tzinfo=UTC))
        self.now = Instant(self.now + chance.randrange(86_400) * SECOND)
        self.restart = chance.random() < 0.6
        self.seq = self.run = self.generation = self.boots = 0
        self.state: TaskState
        self.stored: TaskState | None = None
        self.removed: Minute | None = None
        """The mark of the task when it was removed."""
        self.boot()
        self.declare("new", None)

    def note(self, event: Event) -> None:
        self.seq += 1
        found = self.monitor.step(event._replace(seq=self.seq))
        assert not found, found

    def minute(self) -> Minute:
        return minute_of(self.now, self.zone)

    def declare(self, change: str, mark: Minute | None) -> None:
        self.generation += 1
        self.cron = self.chance.choice(["* * * * *", "0,30 * * * *", "30 2 * * *", "0 * * * *"])
        self.delay = Delay(self.chance.choice([0, 500, 30_000, 90_000, 7_200_000]))
        self.expression = parse_cron(self.cron)
        self.removed = None
        self.state = newly_declared(self.minute(), mark)
        name = self.zone.key
        self.note(RG(0, self.now, "x", self.generation, change, self.cron, self.delay, name, self.now, "loop"))
        self.take_effect()

    def take_effect(self) -> None:
        mode = "restart" if self.restart else "wait"
        declared = int(not isinstance(self.state, Withdrawn))
        self.note(IE(0, self.now, self.call, declared, "", mode, None, None, self.zone.key))
        # What was served more than a day ago by another declaration is forgotten.
        if self.removed is not None and not counts(self.removed, self.now):
            self.removed = None
        if isinstance(self.state, AwaitingRun) and self.state.served_before is not None:
            if not counts(self.state.served_before, self.now):
                self.state = replace(self.state, served_before=None)

    def initialize(self) -> None:
        self.call = self.seq
        self.note(IS(0, self.now, self.call))

    def boot(self) -> None:
        self.boots += 1
        self.note(BT(0, self.now, f"boot-{self.boots}", 0))
        self.initialize()

    def owed(self) -> Owed | None:
        latest = latest_due(self.expression, self.minute(), self.zone)
        if latest is None or latest <= self.state.served_through:
            return None
        return Owed(next_due(self.expression, self.state.served_through, self.zone), latest)

    def agree(self) -> bool:
        """Whether the task must start now; both must say the same."""
        cause = obligation(self.state, self.owed(), self.now)
        assert self.monitor.obliged("x", self.now) == (cause is not None), (self.state, cause)
        return cause is not None

    # --- what can happen ---------------------------------------------------------------------------------------------

    def passes(self) -> None:
        self.now = Instant(self.now + self.chance.choice([1, 1000, 999_999, 31 * SECOND, 61 * SECOND, 3_700 * SECOND]))

    def starts(self) -> None:
        if self.agree() and not isinstance(self.state, Running | Withdrawn):
            self.run += 1
            self.state = begin_run(self.state, self.now, self.minute(), FIRST)
            self.note(RS(0, self.now, "x", self.generation, self.run, "cron", 0))

    def ends(self) -> None:
        if isinstance(self.state, Running):
            ok = self.chance.random() < 0.5
            self.state = succeed(self.state, self.now) if ok else fail(self.state, self.now, self.delay)
            self.note(RE(0, self.now, "x", self.generation, self.run, ok))

    def crashes(self) -> None:
        if self.chance.random() < 0.3:
            self.now = Instant(self.now + self.chance.choice([-7_200, -86_400, 5, 86_400]) * SECOND)
        if self.chance.random() < 0.2:
            self.restart = not self.restart
        stored = self.stored
        state = self.state
        if isinstance(state, Running):
            self.stored = stored = state  # what the store says until the next start
        elif isinstance(stored, Running) and type(state).__name__ == "Interrupted":
            state = stored  # nothing was rewritten: it is found running once more
        if isinstance(state, Running):
            found = corrected(state, self.now, self.minute(), self.delay)
            assert isinstance(found, Running)
            self.stored = found
            state = interrupt(found, self.now, self.delay, restart=self.restart)
        self.state = corrected(state, self.now, self.minute(), self.delay)
        if self.removed is not None and self.removed > self.minute() + 3 * 3_600:
            self.removed = self.minute()
        self.boot()
        self.take_effect()

    def steps(self) -> None:
        old = self.now
        self.now = Instant(self.now + self.chance.choice([-90, -3_600, -4 * 3_600, -100_000, 7_200]) * SECOND)
        if self.now < old:
            self.state = corrected(self.state, self.now, self.minute(), self.delay)
            stored = self.stored
            if isinstance(stored, Running):
                right = corrected(stored, self.now, self.minute(), self.delay)
                assert isinstance(right, Running)
                self.stored = right
        if self.removed is not None and self.removed > self.minute() + 3 * 3_600 and self.now < old:
            self.removed = self.minute()
        self.note(CK(0, self.now, old))

    def changes(self) -> None:
        if not isinstance(self.state, Running):
            self.initialize()
            if isinstance(self.state, Withdrawn):
                self.declare("new", self.removed)
            elif self.chance.random() < 0.5:
                self.declare("overridden", served_by_starts(self.state))
            else:
                self.removed = served_by_starts(self.state)
                self.state, self.stored = Withdrawn(Minute(0)), None
                self.note(
                    RG(
                        0, self.now, "x", self.generation, "orphaned", self.cron, self.delay, self.zone.key, self.now,
                        "loop",
                    )
                )  # fmt: skip
                self.take_effect()


@given(seed=st.integers(0, 1 << 40))
@settings(max_examples=150, deadline=None)
def test_the_decision_equals_the_obligation(seed: int) -> None:
    """Starts, ends, crashes in both modes, clock steps and overrides, in four zones around their changes of offset."""
    history = History(random.Random(seed))
    for _ in range(40):
        history.agree()
        move = history.chance.choices(
            [history.passes, history.starts, history.ends, history.crashes, history.steps, history.changes],
            [8, 8, 4, 2, 1, 1],
        )[0]
        move()
    history.agree()
