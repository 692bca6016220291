"""The agenda against brute force that asks every task, through histories that hypothesis draws."""

from dataclasses import replace
from datetime import UTC, tzinfo

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duly.core.agenda import Agenda, Slots, decide
from duly.core.moments import Instant, Minute, as_datetime, begin, minute_of
from duly.core.registration import RunsOn
from duly.core.steps import finish
from duly.core.task import (
    AwaitingRetry,
    AwaitingRun,
    Interrupted,
    Owed,
    Running,
    Task,
    TaskState,
    corrected,
    grounds_for,
    newly_declared,
)
from tests.core.agendas import LOOP, THREAD, correct, end, serve
from tests.core.helpers import BERLIN, FIRST, SECOND, at, minute, task
from tests.counts import count

CRONS = ("* * * * *", "0,30 * * * *", "0-59 2 * * *", "15 2 * * *", "0 3 * * *")
ZONES = (UTC, BERLIN)
STEPS = (0, 7, 30, 59, 60, 61, 90, 600, 1_800, 3_600)


class AgainstBruteForce(RuleBasedStateMachine):
    """The agenda against its definition: at each poll, every task is asked what it owes, minute by minute."""

    def __init__(self) -> None:
        super().__init__()
        self.now = at("2025-10-25T23:58:30")  # an hour before Berlin repeats one
        self.zone: tzinfo = UTC
        self.agenda = Agenda(self.zone)
        self.tasks: dict[str, Task] = {}
        self.serial = 0

    # What happens.

    @initialize(zone=st.sampled_from(ZONES))
    def begin(self, zone: tzinfo) -> None:
        self.zone = zone
        self.agenda = Agenda(zone)

    @rule(
        crons=st.lists(st.sampled_from(CRONS), min_size=1, max_size=4),
        runs_on=st.sampled_from(RunsOn),
        delay=st.sampled_from([0, 5_000, 90_000, 7_200_000]),
        served=st.none() | st.integers(0, 120),
        retry=st.none() | st.integers(-300, 300),
        resume=st.none() | st.integers(-300, 120),
    )
    def enter(
        self, crons: list[str], runs_on: RunsOn, delay: int, served: int | None, retry: int | None, resume: int | None
    ) -> None:
        this = minute_of(self.now, self.zone)
        state: TaskState = newly_declared(this)
        if served is not None:  # it was stored, and has run
            served_through = Minute(this - 60 * served)
            begun = min(begin(served_through), self.now)
            ripe = None if retry is None else Instant(self.now + retry * SECOND)
            state = AwaitingRun(served_through, begun, begun)
            if ripe is not None:
                state = AwaitingRetry(served_through, begun, None, begun, ripe, 1, FIRST)
            if resume is not None:
                state = Interrupted(
                    served_through, begun, None, begun, None, 1, 1, Instant(self.now + resume * SECOND), FIRST
                )
            elif delay == 0:
                state = Interrupted(served_through, begun, None, begun, ripe, 1, 1, None, FIRST)
        self._enter([task("", cron, state, runs_on=runs_on, delay_ms=delay) for cron in crons])

    def _enter(self, tasks: list[Task]) -> None:
        for each in tasks:
            self.serial += 1
            each.name = f"t{self.serial}"
            self.tasks[each.name] = each
        finish(self.agenda.enter(tasks, self.now))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(sorted(self.tasks)), unique=True, max_size=3))
        finish(self.agenda.leave([self.tasks.pop(name) for name in gone]))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.tasks)), unique=True, max_size=3))
        moves = [(self.tasks[name], THREAD if self.tasks[name].runs_on is LOOP else LOOP) for name in chosen]
        self.agenda.change_queue(moves, self.now)

    @precondition(lambda self: any(isinstance(each.state, Running) for each in self.tasks.values()))
    @rule(data=st.data(), failed=st.booleans())
    def finish(self, data: st.DataObject, failed: bool) -> None:
        running = sorted(name for name, each in self.tasks.items() if isinstance(each.state, Running))
        for name in data.draw(st.lists(st.sampled_from(running), unique=True, min_size=1)):
            end(self.agenda, self.tasks[name], self.now, failed=failed)

    @rule(seconds=st.none() | st.sampled_from([60, 3_600, 86_400]), zone=st.sampled_from(ZONES))
    def upset(self, seconds: int | None, zone: tzinfo) -> None:
        """The clock is set back, or the host moves to another zone."""
        if seconds is None:
            self.zone = zone
            finish(self.agenda.rebuild(self.now, zone=zone))
            return
        self.now = Instant(self.now - seconds * SECOND)
        this = minute_of(self.now, self.zone)
        expected = {name: corrected(each.state, self.now, this, each.delay) for name, each in self.tasks.items()}
        changed = any(expected[name] is not each.state for name, each in self.tasks.items())
        assert correct(self.agenda, self.now) == changed
        assert {name: each.state for name, each in self.tasks.items()} == expected
        finish(self.agenda.rebuild(self.now))

    @rule(seconds=st.sampled_from(STEPS))
    def look_freely(self, seconds: int) -> None:
        self._look(seconds, Slots(), 100)
        assert not self.owing()
        timers = [
            ripe
            for each in self.tasks.values()
            for ripe in (getattr(each.state, "pending_retry_until", None), getattr(each.state, "resume_at", None))
            if ripe is not None and not isinstance(each.state, Running)
        ]
        assert self.agenda.next_timer() == min(timers, default=None)

    @rule(seconds=st.sampled_from(STEPS))
    def poll_without_slots(self, seconds: int) -> None:
        self._look(seconds, Slots(0), 100)

    @rule(
        seconds=st.sampled_from(STEPS),
        total=st.none() | st.integers(1, 3),
        threads=st.none() | st.integers(0, 2),
        limit=st.sampled_from([1, 2, 100]),
    )
    def look_with_slots(self, seconds: int, total: int | None, threads: int | None, limit: int) -> None:
        self._look(seconds, Slots(total, threads), limit)

    def _look(self, seconds: int, slots: Slots, limit: int) -> None:
        self.now = Instant(self.now + seconds * SECOND)
        finish(self.agenda.queue_due(self.now))
        first, second = (decide(self.agenda, self.now, slots, limit=limit, first_run=1) for _ in range(2))
        assert list(first.starts.singles()) == list(second.starts.singles())
        assert replace(first, starts=second.starts) == second
        expected = self.brute_force(slots)
        started = serve(self.agenda, self.now, slots, limit=limit)
        assert [start.grounds.owed_since for start in started] == [since for since, _ in expected]

    # What is expected.

    def owing(self) -> list[tuple[Instant, RunsOn]]:
        """Since when each task owes something, by asking all of them, minute by minute."""
        this = minute_of(self.now, self.zone)
        found = []
        for each in self.tasks.values():
            owed = occurrences(each, this, self.zone)
            grounds = grounds_for(each.state, owed, self.now, this)
            if grounds is not None:
                found.append((grounds.owed_since, each.runs_on))
        return sorted(found, key=lambda one: one[0])

    def brute_force(self, slots: Slots) -> list[tuple[Instant, RunsOn]]:
        """Longest owed first, while its queue has slots."""
        chosen: list[tuple[Instant, RunsOn]] = []
        threads = 0
        for since, runs_on in self.owing():
            if slots.total is not None and len(chosen) >= slots.total:
                break
            if runs_on is THREAD:
                if slots.threads is not None and threads >= slots.threads:
                    continue
                threads += 1
            chosen.append((since, runs_on))
        return chosen

    @invariant()
    def everybody_is_known(self) -> None:
        assert self.agenda.size == len(self.tasks)
        assert {each.name for each in self.agenda.tasks()} == set(self.tasks)


def occurrences(each: Task, this: Minute, zone: tzinfo) -> Owed | None:
    """The due minutes after `served_through`, found by testing every single minute."""
    candidates = range(this, max(each.state.served_through, this - 3 * 86_400), -60)
    due = [second for second in candidates if each.expression.matches(as_datetime(second * SECOND, zone))]
    return Owed(Minute(due[-1]), Minute(due[0])) if due else None


TestAgainstBruteForce = AgainstBruteForce.TestCase
TestAgainstBruteForce.settings = settings(max_examples=count(150, 40), stateful_step_count=40)


def test_the_helpers_agree_with_the_expressions() -> None:
    """The brute force finds what there is: the repeated hour of Berlin counts once."""
    a = task("a", "15 2 * * *", AwaitingRun(minute("2025-10-25T12:00", BERLIN)))
    found = occurrences(a, minute("~2025-10-26T02:30", BERLIN), BERLIN)
    assert found == Owed(minute("2025-10-26T02:15", BERLIN), minute("2025-10-26T02:15", BERLIN))
