"""The plan of an initialize(), as a value."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from duly import parse_cron
from duly.core.moments import Delay, Instant, Minute, begin, instant_of, minute_of
from duly.core.record import StoredTask
from duly.core.registration import Registration, read_registrations
from duly.core.resolution import Mark
from duly.core.steps import finish
from duly.core.task import AwaitingRun, Obligation, Running, TaskState
from duly.insight.json_form import json_form
from duly.insight.plan import Plan, plan_of

NOON = instant_of(datetime(2024, 5, 1, 12, tzinfo=UTC))
MINUTE = minute_of(NOON, UTC)
FIVE_MINUTES = 300_000


async def nothing() -> None: ...


def declared(*tasks: tuple[str, str]) -> list[Registration]:
    return list(
        finish(read_registrations([(name, cron, nothing, timedelta(minutes=5)) for name, cron in tasks])).singles()
    )


def stored(name: str, cron: str, state: TaskState) -> StoredTask:
    run = 1 if isinstance(state, Running) else None
    return StoredTask(1, name, parse_cron(cron), Delay(FIVE_MINUTES), state, run, 1)


def idle(served_through: Minute = MINUTE) -> TaskState:
    return AwaitingRun(served_through, None, None, None)


def running(started_at: Instant) -> TaskState:
    return Running(
        minute_of(started_at, UTC), started_at, None, None, None, 0, 0, Obligation(started_at, started_at, 1)
    )


def planned(registrations: Sequence[Registration], *tasks: tuple[StoredTask, bool], restart: bool = True) -> Plan:
    return plan_of(registrations, tasks, now=NOON, zone=UTC, restart=restart)


def test_a_plan_has_one_json_form() -> None:
    """New, overridden, orphaned and preserved, each with what people want to know of it."""
    found = planned(
        declared(("fresh", "0 13 * * *"), ("changed", "0 14 * * *"), ("kept", "0 15 1 1 *")),
        (stored("changed", "30 12 * * *", idle()), False),
        (stored("gone", "0 11 * * *", idle(Minute(MINUTE - 7200))), False),
        (stored("kept", "0 15 1 1 *", idle()), False),
    )
    form = json_form(found, UTC)
    assert list(form) == [
        "at", "zone", "new", "overridden", "orphaned", "interrupted", "preserved", "busiest", "losses",
    ]  # fmt: skip
    (new,) = form["new"]
    assert (new["task"], new["expression"], new["retryDelayMs"]) == ("fresh", "0 13 * * *", FIVE_MINUTES)
    assert new["nextStarts"] == [f"2024-05-0{day}T13:00:00+00:00" for day in range(1, 6)]
    (changed,) = form["overridden"]
    assert changed["stored"] == {"expression": "30 12 * * *", "retryDelayMs": FIVE_MINUTES}
    assert changed["declared"] == {"expression": "0 14 * * *", "retryDelayMs": FIVE_MINUTES}
    assert (changed["dropped"], changed["running"]) == ([], False)
    (gone,) = form["orphaned"]
    assert (gone["task"], gone["lastAttemptAt"], len(gone["dropped"])) == ("gone", None, 1)
    assert (form["preserved"], form["losses"]) == (["kept"], ["gone"])


def test_an_interrupted_run_starts_again_or_waits() -> None:
    """SPEC 3.7: at once, unless interrupted runs have to wait; a run that is alive goes on."""
    cut_short = stored("t", "0 * * * *", running(Instant(NOON - 1_000_000)))
    (restarted,) = planned(declared(("t", "0 * * * *")), (cut_short, True)).interrupted
    assert (restarted.started_at, restarted.interruptions) == (NOON - 1_000_000, 1)
    assert restarted.resumes_at is not None
    assert restarted.resumes_at <= NOON
    (waiting,) = planned(declared(("t", "0 * * * *")), (cut_short, True), restart=False).interrupted
    assert waiting.resumes_at is None
    alive = planned(declared(("t", "5 * * * *")), (cut_short, False))
    assert alive.interrupted == []
    assert alive.overridden[0].running


def test_the_busiest_minutes_of_the_coming_day() -> None:
    """The busiest first, then the earliest; the minutes beyond the listed ones are counted."""
    noon = [(f"noon-{number}", "0 12 * * *") for number in range(3)]
    found = planned(declared(*noon, ("half-hourly", "0,30 * * * *"), ("yearly", "0 0 1 1 *")))
    first, *others = found.busiest
    assert (first.minute, first.tasks) == (NOON + 86_400_000_000, 4)
    assert list(first.names) == ["noon-0", "noon-1", "noon-2", "half-hourly"]
    assert [each.minute for each in others] == [NOON + half * 1_800_000_000 for half in (1, 2, 3, 4)]
    assert found.as_busy == 48 - 5
    assert planned([]).busiest == []


def test_a_plan_remembers_what_a_removed_name_has_served() -> None:
    """SPEC 5.1: declared again within the minute that it has served, a task starts in the next one."""
    registrations = declared(("again", "* * * * *"), ("other", "* * * * *"))
    mark = Mark(MINUTE, NOON)
    found = plan_of(registrations, (), now=NOON, zone=UTC, restart=True, marks={"again": mark})
    assert {each.task: each.next_starts[0] for each in found.new} == {
        "again": begin(Minute(MINUTE + 60)),
        "other": NOON,
    }
    never = stored("again", "0 3 * * *", AwaitingRun(Minute(MINUTE - 60)))
    overridden = plan_of(registrations, [(never, False)], now=NOON, zone=UTC, restart=True, marks={"again": mark})
    assert [each.next_starts[0] for each in overridden.overridden] == [begin(Minute(MINUTE + 60))]
