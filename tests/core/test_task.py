"""`obligation()` and every transition of a task: as tables, and as properties of all states."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.core.cron import parse_cron
from duly.core.moments import LAST_INSTANT, Delay, Instant, Minute, begin
from duly.core.registration import RunsOn
from duly.core.task import (
    AwaitingRetry,
    AwaitingRun,
    Cause,
    End,
    Grounds,
    Interrupted,
    Owed,
    Running,
    Task,
    TaskState,
    Withdrawn,
    begin_run,
    corrected,
    effective,
    fail,
    grounds_for,
    interrupt,
    lateness_threshold,
    newly_declared,
    obligation,
    served_by_starts,
    succeed,
)
from tests.core.helpers import (
    FIRST,
    MINUTE,
    SECOND,
    at,
    delays,
    instants,
    minute,
    minutes,
    on_the_loop,
    running,
    startable,
    states,
    withdrawn,
)

NOON = minute("2025-06-15T12:00")
NOW = at("2025-06-15T12:00:30")


def owes(earliest: str, latest: str | None = None) -> Owed:
    first = minute(f"2025-06-15T{earliest}")
    return Owed(first, first if latest is None else minute(f"2025-06-15T{latest}"))


def waits() -> AwaitingRun:
    return AwaitingRun(minute("2025-06-15T11:59"), at("2025-06-15T11:59"), at("2025-06-15T11:59:10"))


def retries(when: str, failures: int = 1) -> AwaitingRetry:
    served, failed = minute("2025-06-15T11:58"), at("2025-06-15T11:58:05")
    return AwaitingRetry(served, at("2025-06-15T11:58"), None, failed, at(f"2025-06-15T{when}"), failures, FIRST)


def runs(**changes: object) -> Running:
    served, begun = minute("2025-06-15T11:58"), at("2025-06-15T11:58:01")
    state = Running(served, begun, None, None, pending_retry_until=None, failures=0, interruptions=0, obligation=FIRST)
    return replace(state, **changes)  # type: ignore[arg-type]


def was_cut_short(resume: str | None, retry: str | None = None) -> Interrupted:
    return Interrupted(
        minute("2025-06-15T11:58"),
        at("2025-06-15T11:58:01"),
        None,
        at("2025-06-15T11:57") if retry else None,
        pending_retry_until=at(f"2025-06-15T{retry}") if retry else None,
        failures=2 if retry else 0,
        interruptions=1,
        resume_at=at(f"2025-06-15T{resume}") if resume else None,
        obligation=FIRST,
    )


# --- obligation(), the whole rule ------------------------------------------------------------------------------------

OBLIGATIONS: list[tuple[str, TaskState, Owed | None, Cause | None]] = [
    # SPEC 3.1
    ("nothing is due", waits(), None, None),
    ("a due minute", waits(), owes("12:00"), Cause.CRON),
    # SPEC 3.2
    ("many missed minutes", waits(), owes("03:00", "12:00"), Cause.CRON),
    # SPEC 3.3
    ("due while running", runs(), owes("12:00"), None),
    ("running over a ripe retry", runs(pending_retry_until=at("2025-06-15T11:59"), failures=1), None, None),
    # SPEC 3.4
    ("a retry not yet ripe", retries("12:00:30.000001"), None, None),
    ("a retry ripe to the microsecond", retries("12:00:30"), None, Cause.RETRY),
    ("a retry long ripe", retries("11:59"), None, Cause.RETRY),
    # SPEC 3.5
    ("due before the retry is ripe", retries("12:01"), owes("12:00"), Cause.CRON),
    ("both ripe, the retry earlier", retries("11:59:59.999999"), owes("12:00"), Cause.RETRY),
    ("both ripe at one instant", retries("12:00"), owes("12:00"), Cause.CRON),
    ("both ripe, the due minute earlier", retries("12:00:00.000001"), owes("12:00"), Cause.CRON),
    ("both ripe, the earliest owed minute counts", retries("11:59:30"), owes("11:59", "12:00"), Cause.CRON),
    # SPEC 3.7
    ("interrupted", was_cut_short("11:58:01"), None, Cause.INTERRUPTED),
    ("interrupted, and due", was_cut_short("11:58:01"), owes("12:00"), Cause.INTERRUPTED),
    ("interrupted again, still waiting", was_cut_short("12:00:30.000001"), None, None),
    ("interrupted again, waited", was_cut_short("12:00:30"), None, Cause.INTERRUPTED),
    ("interrupted again, waiting, and due", was_cut_short("12:01"), owes("12:00"), Cause.CRON),
    ('interrupted="wait"', was_cut_short(None), None, None),
    ('interrupted="wait", and due', was_cut_short(None), owes("12:00"), Cause.CRON),
    ('interrupted="wait", retry ripe', was_cut_short(None, retry="11:59"), None, Cause.RETRY),
    ('interrupted="wait", retry not ripe', was_cut_short(None, retry="12:01"), None, None),
    ('interrupted="wait", retry not ripe, and due', was_cut_short(None, retry="12:01"), owes("12:00"), Cause.CRON),
    # SPEC 5.1
    ("withdrawn", Withdrawn(minute("2025-06-15T11:58")), owes("12:00"), None),
]


@pytest.mark.parametrize(
    ("state", "owed", "expected"), [row[1:] for row in OBLIGATIONS], ids=[r[0] for r in OBLIGATIONS]
)
def test_obligation(state: TaskState, owed: Owed | None, expected: Cause | None) -> None:
    """SPEC 3: why a task must start now, case by case."""
    assert obligation(state, owed, NOW) is expected


@st.composite
def situations(draw: st.DrawFn) -> tuple[TaskState, Owed | None, Instant]:
    """Any state, at any moment, with any due minutes before it, or none."""
    now = draw(instants)
    since = draw(st.none() | st.integers(0, 10))
    if since is None:
        return draw(states), None, now
    latest = Minute(now // MINUTE * 60 - 60 * draw(st.integers(0, 3)))
    return draw(states), Owed(Minute(latest - 60 * since), latest), now


@given(situations())
def test_a_running_task_is_never_owed(situation: tuple[TaskState, Owed | None, Instant]) -> None:
    """002 S1, SPEC 7.3: no overlap, whatever is due; and a withdrawn one owes nothing."""
    state, owed, now = situation
    if isinstance(state, Running | Withdrawn):
        assert obligation(state, owed, now) is None
        assert grounds_for(state, owed, now, NOON) is None


@given(situations())
def test_a_due_minute_starts_every_task_that_does_not_run(situation: tuple[TaskState, Owed | None, Instant]) -> None:
    """SPEC 3.1, 3.5, 3.7: neither a pending retry nor an interruption holds a due minute back."""
    state, owed, now = situation
    if owed is not None and not isinstance(state, Running | Withdrawn):
        assert obligation(state, owed, now) is not None


@given(situations(), st.integers(0, 3 * 86_400 * SECOND))
def test_what_is_owed_stays_owed(situation: tuple[TaskState, Owed | None, Instant], later: int) -> None:
    """SPEC 3.10, 4.6: still owed, not lost; only a start consumes it."""
    state, owed, now = situation
    if obligation(state, owed, now) is not None:
        assert obligation(state, owed, Instant(now + later)) is not None


@given(situations())
def test_nothing_starts_without_a_reason(situation: tuple[TaskState, Owed | None, Instant]) -> None:
    """002 S2: a start only when owed; each cause names a debt that exists and is ripe."""
    state, owed, now = situation
    cause = obligation(state, owed, now)
    if cause is Cause.CRON:
        assert owed is not None
    elif cause is Cause.RETRY:
        assert isinstance(state, AwaitingRetry | Interrupted)
        assert state.pending_retry_until is not None
        assert state.pending_retry_until <= now
    elif cause is Cause.INTERRUPTED:
        assert isinstance(state, Interrupted)
        assert state.resume_at is not None
        assert state.resume_at <= now


# --- grounds_for(): what is decided, stored and reported of a start --------------------------------------------------


def grounds(state: TaskState, owed: Owed | None) -> Grounds:
    found = grounds_for(state, owed, NOW, NOON)
    assert found is not None
    return found


def test_a_due_minute_reports_the_latest_occurrence_and_queues_by_the_earliest() -> None:
    """`scheduledTime` is the latest occurrence served. SPEC 3.10: longest owed first."""
    found = grounds(waits(), owes("03:00", "12:00"))
    assert (found.scheduled, found.owed_since) == (at("2025-06-15T12:00"), at("2025-06-15T03:00"))
    assert (found.cause, found.at, found.retry_count, found.preempts_retry) == (Cause.CRON, NOW, 0, False)


def test_a_retry_reports_the_instant_it_was_due() -> None:
    """`scheduledTime` of a retry is that instant; `retryCount` begins at 1."""
    found = grounds(retries("11:59:07", failures=1), None)
    assert (found.cause, found.scheduled, found.owed_since) == (Cause.RETRY, *2 * (at("2025-06-15T11:59:07"),))
    assert (found.retry_count, found.preempts_retry) == (1, False)


def test_a_retry_that_was_ripe_first_consumes_the_due_minute_too() -> None:
    """SPEC 3.5: both ripe, one run; the earlier names it."""
    found = grounds(retries("11:59:59", failures=3), owes("12:00"))
    assert (found.cause, found.retry_count, found.preempts_retry) == (Cause.RETRY, 3, False)
    assert found.after.served_through == NOON


@pytest.mark.parametrize("retry", ["12:01", "12:00:10", "12:00"])
def test_a_due_minute_preempts_a_pending_retry_ripe_or_not(retry: str) -> None:
    """SPEC 3.5: cron → TaskRetryPreempted, TaskRunStarted."""
    found = grounds(retries(retry), owes("12:00"))
    assert (found.cause, found.preempts_retry) == (Cause.CRON, True)


def test_a_restart_reports_the_interrupted_start() -> None:
    """`scheduledTime` of an interrupted run is the interrupted start."""
    found = grounds(was_cut_short("11:58:01"), owes("12:00"))
    assert (found.cause, found.scheduled) == (Cause.INTERRUPTED, at("2025-06-15T11:58:01"))
    assert found.owed_since == at("2025-06-15T11:58:01")


def test_a_restart_that_had_to_wait_is_owed_since_the_earliest_of_what_it_merges() -> None:
    """SPEC 3.7, 3.10: merged with anything else owed, and longest owed first."""
    found = grounds(was_cut_short("12:00:20"), owes("11:59", "12:00"))
    assert (found.cause, found.scheduled) == (Cause.INTERRUPTED, at("2025-06-15T11:58:01"))
    assert found.owed_since == at("2025-06-15T11:59")


@settings(max_examples=500)
@given(situations())
def test_a_start_is_owed_since_the_earliest_of_its_ripe_debts(
    situation: tuple[TaskState, Owed | None, Instant],
) -> None:
    """SPEC 3.10: the place in the queue."""
    state, owed, now = situation
    found = grounds_for(state, owed, now, Minute(now // MINUTE * 60))
    if found is not None:
        debts = [begin(owed.earliest)] if owed is not None else []
        debts += [each for name in ("pending_retry_until", "resume_at") if (each := getattr(state, name, None))]
        assert found.owed_since == min(each for each in debts if each <= now)


@given(situations())
def test_a_start_carries_one_clock_sample(situation: tuple[TaskState, Owed | None, Instant]) -> None:
    """SPEC 3.9: decided, stored and reported with the same moment."""
    state, owed, now = situation
    found = grounds_for(state, owed, now, NOON)
    assert (found is None) == (obligation(state, owed, now) is None)
    if found is not None:
        assert found.cause is obligation(state, owed, now)
        assert found.at == found.after.last_attempt_at == now
        assert found.scheduled <= now or found.cause is Cause.INTERRUPTED


# --- a start ---------------------------------------------------------------------------------------------------------


@given(startable, instants, minutes)
def test_a_start_raises_served_through_to_its_own_minute_and_never_lowers_it(
    state: AwaitingRun | AwaitingRetry | Interrupted, now: Instant, own: Minute
) -> None:
    """SPEC 3.1: every start, whatever its cause. SPEC 2.5: if the clock was set back, it stays ahead."""
    after = begin_run(state, now, own, FIRST)
    assert after.served_through == max(state.served_through, own)


@given(startable, instants, minutes)
def test_a_start_keeps_the_history_and_what_a_crash_must_not_forget(
    state: AwaitingRun | AwaitingRetry | Interrupted, now: Instant, own: Minute
) -> None:
    """SPEC 3: last attempt is the start of the latest run; 3.7: the retry it took the place of is remembered."""
    after = begin_run(state, now, own, FIRST)
    assert after.last_attempt_at == now
    assert (after.last_success_at, after.last_failure_at) == (state.last_success_at, state.last_failure_at)
    assert after.pending_retry_until == getattr(state, "pending_retry_until", None)
    assert after.failures == getattr(state, "failures", 0)
    assert after.interruptions == getattr(state, "interruptions", 0)


# --- an end ----------------------------------------------------------------------------------------------------------


@given(running, instants)
def test_success_clears_the_retry(run: Running, now: Instant) -> None:
    """SPEC 3.4: nothing is pending any more; a new failure would count from one again."""
    after = succeed(run, now)
    assert after == AwaitingRun(run.served_through, run.last_attempt_at, now, run.last_failure_at)
    again = fail(begin_run(after, now, after.served_through, FIRST), now, Delay(0))
    assert again.failures == 1


@given(running, instants, delays)
def test_failure_re_arms_the_retry_from_the_new_failure(run: Running, now: Instant, delay: Delay) -> None:
    """SPEC 3.4: failure time + effective delay; 3.6: at least one second."""
    after = fail(run, now, delay)
    assert after.pending_retry_until == now + max(1_000, delay) * 1_000
    assert after.last_failure_at == now
    assert after.failures == run.failures + 1
    assert (after.served_through, after.last_attempt_at, after.last_success_at) == (
        run.served_through,
        run.last_attempt_at,
        run.last_success_at,
    )


@pytest.mark.parametrize(("delay", "waited"), [(0, 1_000), (1, 1_000), (999, 1_000), (1_000, 1_000), (1_001, 1_001)])
def test_the_effective_delay_is_at_least_a_second(delay: int, waited: int) -> None:
    """SPEC 3.6: zero is legal and never spins."""
    assert effective(Delay(delay)) == waited


def test_a_retry_beyond_the_calendar_waits_in_its_last_minute() -> None:
    """SPEC 3.6: stored as the last minute of 9999."""
    assert fail(runs(), NOW, Delay(86_400_000_000_000_000)).pending_retry_until == LAST_INSTANT


@given(running, instants)
def test_a_run_that_ends_before_it_started_still_ends(run: Running, now: Instant) -> None:
    """SPEC 2.5: a clock set back does not keep a run from ending."""
    earlier = Instant(min(now, run.last_attempt_at - SECOND))
    assert succeed(run, earlier).last_success_at == earlier
    assert fail(run, earlier, Delay(0)).last_failure_at == earlier


# --- an interruption -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1, 2, 7])
@pytest.mark.parametrize(
    ("delay", "waited"), [(0, 60), (5_000, 60), (60_000, 60), (60_001, 60.001), (3_600_000, 3_600)]
)
def test_an_interrupted_task_restarts_at_once_and_after_the_second_time_waits(
    before: int, delay: int, waited: float
) -> None:
    """SPEC 3.7: twice or more in a row waits its retry delay, at least one minute, from its last start."""
    after = interrupt(runs(interruptions=before), NOW, Delay(delay), restart=True)
    assert after.interruptions == before + 1
    started = at("2025-06-15T11:58:01")
    assert after.resume_at == (started if before == 0 else started + waited * SECOND)


@given(running, instants, delays)
def test_an_interrupted_run_is_owed_again_whatever_it_took_the_place_of(
    run: Running, now: Instant, delay: Delay
) -> None:
    """SPEC 3.7: the run is owed again, merged with anything else owed."""
    after = interrupt(run, now, delay, restart=True)
    assert after.resume_at is not None
    assert after.pending_retry_until is None
    assert obligation(after, None, Instant(max(now, after.resume_at))) is Cause.INTERRUPTED
    if run.interruptions == 0:
        assert obligation(after, None, now) is Cause.INTERRUPTED


@given(running, instants, delays)
def test_with_wait_an_interrupted_run_waits_for_its_next_due_minute(run: Running, now: Instant, delay: Delay) -> None:
    """SPEC 3.7, 002 S2: a retry that was pending when the interrupted run started is then still owed."""
    after = interrupt(run, now, delay, restart=False)
    assert after.resume_at is None
    assert after.pending_retry_until == run.pending_retry_until
    ripe = run.pending_retry_until is not None and run.pending_retry_until <= now
    assert obligation(after, None, now) is (Cause.RETRY if ripe else None)


@given(running, instants, delays, st.booleans())
def test_an_interruption_keeps_served_through_and_history(
    run: Running, now: Instant, delay: Delay, restart: bool
) -> None:
    """SPEC 3.7: nothing ended, so no outcome is made up (000 S6b)."""
    after = interrupt(run, now, delay, restart=restart)
    for name in ("served_through", "last_attempt_at", "last_success_at", "last_failure_at", "failures"):
        assert getattr(after, name) == getattr(run, name)
    assert after.interruptions == run.interruptions + 1


def test_a_start_stamped_by_a_clock_that_was_ahead_restarts_now() -> None:
    """SPEC 2.5: after a correction no task falls silent for long."""
    run = runs(last_attempt_at=Instant(NOW + 86_400 * SECOND))
    assert interrupt(run, NOW, Delay(0), restart=True).resume_at == NOW
    again = interrupt(replace(run, interruptions=1), NOW, Delay(0), restart=True)
    assert again.resume_at == NOW + 60 * SECOND


def test_interruptions_are_counted_in_a_row() -> None:
    """SPEC 3.7: an end, success or failure, ends the row."""
    cut = interrupt(runs(interruptions=1), NOW, Delay(0), restart=True)
    again = begin_run(cut, NOW, NOON, FIRST)
    assert again.interruptions == 2
    assert begin_run(succeed(again, NOW), NOW, NOON, FIRST).interruptions == 0
    assert begin_run(fail(again, NOW, Delay(0)), NOW, NOON, FIRST).interruptions == 0


# --- declared --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "expected"),
    [(None, "11:59"), ("11:30", "11:59"), ("11:59", "11:59"), ("12:00", "12:00"), ("12:45", "12:45")],
)
def test_a_new_task_may_owe_this_minute_and_an_overriding_one_keeps_served_through(
    served: str | None, expected: str
) -> None:
    """SPEC 3.1: occurrences before the first registration are not owed. SPEC 5.1: what was served stays served."""
    before = None if served is None else minute(f"2025-06-15T{served}")
    state = newly_declared(NOON, before)
    assert state == AwaitingRun(minute(f"2025-06-15T{expected}"), served_before=before)
    assert (state.last_attempt_at, state.last_success_at, state.last_failure_at) == (None, None, None)


@pytest.mark.parametrize(
    ("served", "before", "expected"),
    [
        # What earlier declarations have served is too far ahead: it becomes this minute, and `known_since` with it.
        ("15:10", "15:01", ("12:00", "12:00")),
        ("15:01", "15:01", ("12:00", "12:00")),
        # `known_since` is too far ahead (its minute follows `served_through`), what was served is not.
        ("15:10", "15:00", ("15:00", "15:00")),
        ("15:10", "11:00", ("11:59", "11:00")),
        ("15:10", None, ("11:59", None)),
        # Neither.
        ("14:59", "14:00", ("14:59", "14:00")),
        ("14:59", None, ("14:59", None)),
    ],
)
def test_a_task_that_never_started_is_corrected_together_with_what_was_served_before(
    served: str, before: str | None, expected: tuple[str, str | None]
) -> None:
    """SPEC 2.5: at noon, a mark more than 3 hours ahead and a `known_since` in the future are lowered together."""

    def of(text: str | None) -> Minute | None:
        return None if text is None else minute(f"2025-06-15T{text}")

    state = AwaitingRun(minute(f"2025-06-15T{served}"), served_before=of(before))
    through, kept = expected
    assert corrected(state, NOW, NOON, Delay(0)) == AwaitingRun(minute(f"2025-06-15T{through}"), served_before=of(kept))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (AwaitingRun(NOON), None),
        (AwaitingRun(NOON, served_before=Minute(NOON - 60)), NOON - 60),
        (AwaitingRun(NOON, NOW, NOW), NOON),
        (AwaitingRetry(NOON, NOW, None, NOW, NOW, 1, FIRST), NOON),
        (Running(NOON, NOW, None, None, None, 0, 0, FIRST), NOON),
    ],
)
def test_a_mark_is_one_that_a_start_has_made(state: TaskState, expected: int | None) -> None:
    """SPEC 5.1: `served_through` of a task that never started is the minute before it was known."""
    assert served_by_starts(state) == expected


# --- a clock set back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ("11:00", "11:00"),
        ("12:00", "12:00"),
        ("14:59", "14:59"),
        ("15:00", "15:00"),
        ("15:01", "12:00"),
        ("23:59", "12:00"),
        ("15:00:01", "12:00"),  # in a zone whose minutes begin between ours
    ],
)
@pytest.mark.parametrize(
    "state",
    [waits(), retries("12:00:31"), runs(), was_cut_short("11:58:01"), Withdrawn(NOON)],
    ids=lambda s: type(s).__name__,
)
def test_served_through_more_than_three_hours_ahead_is_lowered_to_this_minute(
    state: TaskState, served: str, expected: str
) -> None:
    """SPEC 2.5: at most 3 hours ahead it stands; more means that the clock was corrected."""
    ahead = replace(state, served_through=minute(f"2025-06-15T{served}"))
    after = corrected(ahead, NOW, NOON, Delay(5_000))
    assert after == replace(ahead, served_through=minute(f"2025-06-15T{expected}"))
    assert (after is ahead) == (served == expected)


@pytest.mark.parametrize(
    ("state", "delay", "expected"),
    [
        (retries("12:00:35"), 5_000, "12:00:35"),
        (retries("12:00:35.000001"), 5_000, "12:00:35"),
        (retries("18:00"), 5_000, "12:00:35"),
        (retries("18:00"), 0, "12:00:31"),
        (retries("18:00"), 86_400_000, "18:00"),
        (runs(pending_retry_until=at("2025-06-15T18:00"), failures=1), 5_000, "12:00:35"),
        (was_cut_short(None, retry="18:00"), 5_000, "12:00:35"),
    ],
)
def test_a_pending_retry_never_lies_further_ahead_than_its_delay(state: TaskState, delay: int, expected: str) -> None:
    """SPEC 2.5: now + its effective delay."""
    after = corrected(state, NOW, NOON, Delay(delay))
    assert not isinstance(after, AwaitingRun | Withdrawn)
    assert after.pending_retry_until == at(f"2025-06-15T{expected}")
    assert (after is state) is (after == state)


@pytest.mark.parametrize(
    ("interruptions", "resume", "delay", "expected"),
    [
        (1, "11:58:01", 120_000, "11:58:01"),
        (1, "12:00:31", 120_000, "12:00:30"),
        (2, "12:01:30", 5_000, "12:01:30"),
        (2, "12:01:31", 5_000, "12:01:30"),
        (3, "18:00", 120_000, "12:02:30"),
    ],
)
def test_a_resumption_never_lies_further_ahead_than_its_wait(
    interruptions: int, resume: str, delay: int, expected: str
) -> None:
    """SPEC 2.5, 3.7: at once the first time; from the second on its delay, at least one minute."""
    state = replace(was_cut_short(resume), interruptions=interruptions)
    after = corrected(state, NOW, NOON, Delay(delay))
    assert isinstance(after, Interrupted)
    assert after.resume_at == at(f"2025-06-15T{expected}")
    assert (after is state) is (after == state)


@pytest.mark.parametrize(("known_since", "served"), [("12:00", "11:59"), ("15:00", "14:59"), ("15:01", "11:59")])
def test_a_task_that_never_ran_is_known_since_this_minute(known_since: str, served: str) -> None:
    """SPEC 2.5: a `knownSince` too far in the future is lowered likewise; this minute may then be owed."""
    state = newly_declared(minute(f"2025-06-15T{known_since}"))
    assert corrected(state, NOW, NOON, Delay(0)) == AwaitingRun(minute(f"2025-06-15T{served}"))


@given(states, instants, delays)
def test_correcting_is_done_once(state: TaskState, now: Instant, delay: Delay) -> None:
    """SPEC 2.5: lowered once; what is right already stays the very same object."""
    own = Minute(now // MINUTE * 60)
    once = corrected(state, now, own, delay)
    assert corrected(once, now, own, delay) is once
    assert type(once) is type(state)
    assert once.served_through <= own + 3 * 3600
    retry = getattr(once, "pending_retry_until", None)
    assert retry is None or retry <= now + max(1_000, delay) * 1_000


@given(states, instants, delays)
def test_correcting_only_ever_brings_things_nearer(state: TaskState, now: Instant, delay: Delay) -> None:
    """SPEC 2.5: so no task falls silent for long; history is left alone."""
    after = corrected(state, now, Minute(now // MINUTE * 60), delay)
    assert after.served_through <= state.served_through
    for name in ("pending_retry_until", "resume_at"):
        old, new = getattr(state, name, None), getattr(after, name, None)
        assert (old is None) == (new is None)
        assert old is None or new <= old
    for name in ("last_attempt_at", "last_success_at", "last_failure_at", "failures", "interruptions"):
        assert getattr(after, name, None) == getattr(state, name, None)


@given(withdrawn, instants)
def test_a_withdrawn_task_owes_nothing_for_ever(state: Withdrawn, now: Instant) -> None:
    """SPEC 5.3: if the process dies, owes nothing."""
    assert obligation(state, Owed(NOON, NOON), now) is None


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "seconds"), [(0, 60), (1, 60), (10_000, 60), (10_001, 60.006), (100_000, 600), (1_000_000, 6_000)]
)
def test_lateness_is_tolerated_in_proportion_to_the_number_of_tasks(tasks: int, seconds: float) -> None:
    """000 R1, SPEC 7.5: 60 s × max(1, tasks/10,000)."""
    assert lateness_threshold(tasks) == int(seconds * SECOND)


def test_an_end_without_an_error_succeeded_and_leaves_nothing_pending() -> None:
    """SPEC 3.4: success clears the retry, and the failures in a row."""
    grounds = grounds_for(waits(), Owed(NOON, NOON), NOW, NOON)
    assert grounds is not None
    a = Task(1, "a", parse_cron("* * * * *"), Delay(0), waits(), on_the_loop, RunsOn.LOOP)
    end = End(a, 7, grounds, NOW)
    assert (end.error, end.pending_retry_until, end.failures) == (None, None, 0)


def test_a_task_says_what_it_is() -> None:
    shown = repr(Task(1, "night\nly", parse_cron("0 3 * * *"), Delay(0), waits(), on_the_loop, RunsOn.LOOP))
    assert "'night\\nly'" in shown
    assert "'0 3 * * *'" in shown
    assert "AwaitingRun" in shown
