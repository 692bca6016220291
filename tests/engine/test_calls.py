"""The trace of initialize() and stop() when calls overlap, outlive an engine, fail, or are cancelled."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import duly
from duly.clock import SystemClock
from duly.engine.calls import Calls
from duly.engine.journal import Journal
from duly.testing import SimulatedHost

MINUTE = timedelta(minutes=1)
CALLS = {"BT", "IS", "IE", "IF", "SS", "SE", "SF"}


def calls(store: Path) -> list[tuple[Any, ...]]:
    """The rows about calls, in their order: the letters, the number of the call, the error if there is one."""
    with closing(sqlite3.connect(store)) as connection:
        rows = [json.loads(line) for (line,) in connection.execute("SELECT line FROM trace ORDER BY seq")]
    return [(row[0], *row[3:5]) if row[0].endswith("F") else (row[0], row[3]) for row in rows if row[0] in CALLS]


def tasks(count: int, work: Callable[[], Awaitable[None]]) -> list[tuple[Any, ...]]:
    return [(f"t{number}", "* * * * *", work, MINUTE) for number in range(count)]


async def test_calls_that_outlive_an_engine_are_closed_in_its_trace_and_noted_in_the_next(store: Path) -> None:
    """SPEC 4.2, 4.3, FORMAL A1: an initialize() begins anew under another number, a stop() keeps its own."""
    async with SimulatedHost("2024-01-01T12:00:30", "UTC", store) as host:

        async def work() -> None:
            await host.sleep(20)

        scheduler = host.scheduler(trace=True)
        await scheduler.initialize(tasks(1, work))
        await host.advance(seconds=1)
        overlapping = [
            asyncio.ensure_future(call)
            for call in (
                scheduler.stop(),
                scheduler.initialize(tasks(2, work)),
                scheduler.initialize([()]),
                scheduler.stop(),
                scheduler.initialize(tasks(1, work)),
            )
        ]
        await host.advance(minutes=2)
        assert [type(call.exception()) for call in overlapping].count(duly.RegistrationShapeError) == 1
    boot = "00000000000000000000000000000001"
    assert calls(store) == [
        ("BT", f"{boot}/1"),
        ("IS", 1),
        ("IE", 1),
        *[("SS", 2), ("IS", 3), ("IS", 4), ("SS", 5), ("IS", 6)],  # as they were made, while a callback runs
        ("IF", 4, "RegistrationShapeError"),
        *[("IF", 3, "SchedulerStopped"), ("IF", 6, "SchedulerStopped")],
        *[("SE", 2), ("SE", 5)],
        ("BT", f"{boot}/7"),
        *[("IS", 7), ("IE", 7)],  # the call that was number 3
        *[("SS", 5), ("IS", 6)],  # those that still wait
        ("IF", 6, "SchedulerStopped"),
        ("SE", 5),
        ("BT", f"{boot}/8"),
        *[("IS", 8), ("IE", 8)],
    ]


async def test_a_refused_stop_and_a_cancelled_initialize_leave_one_row_each(store: Path) -> None:
    """SPEC 4.3: a stop() from inside a callback has no effect; a cancelled initialize() is all or nothing."""
    async with SimulatedHost("2024-01-01T12:00:30", "UTC", store) as host:
        scheduler = host.scheduler(trace=True)

        async def stops() -> None:
            with suppress(duly.StopSchedulerError):
                await scheduler.stop()

        await scheduler.initialize(tasks(1, stops))
        await host.advance(seconds=1)
        cancelled = asyncio.ensure_future(scheduler.initialize(tasks(2, stops)))
        await asyncio.sleep(0)
        cancelled.cancel()
        await host.advance()
        await scheduler.stop()
    assert calls(store)[3:] == [
        ("SF", 2, "StopSchedulerError"),
        ("IS", 3),
        ("IF", 3, "CancelledError"),
        ("SS", 4),
        ("SE", 4),
    ]


async def test_an_initialize_that_was_cancelled_before_its_first_step_is_closed_in_the_trace(store: Path) -> None:
    """SPEC 4.3, FORMAL A1: something cancels every task of the event loop in the round in which the call is made."""
    async with SimulatedHost("2024-01-01T12:00:30", "UTC", store) as host:
        scheduler = host.scheduler(trace=True)

        async def work() -> None: ...

        await scheduler.initialize(tasks(1, work))
        await host.advance(seconds=1)
        before = asyncio.all_tasks()
        call = asyncio.ensure_future(scheduler.initialize(tasks(2, work)))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await host.advance()
        assert call.cancelled()
        await scheduler.stop()
    assert calls(store)[3:] == [("IS", 2), ("IF", 2, "CancelledError"), ("SS", 3), ("SE", 3)]


# --- one call after the other ----------------------------------------------------------------------------------------


class Notes:
    """A journal that only remembers what is noted."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []

    def note(self, event: Any) -> None:
        self.rows.append((type(event).__name__, event.call))


def made() -> tuple[Calls, Notes, Journal]:
    notes = Notes()
    return Calls(SystemClock()), notes, cast(Journal, notes)


def test_a_call_is_noted_in_the_trace_of_the_engine_that_runs() -> None:
    """FORMAL A1: one that was made while none ran is noted when the next begins, and only an open call is noted."""
    calls, notes, journal = made()
    early = calls.initialize(None)
    assert not calls.is_noted(early)
    assert not calls.is_noted(99)
    calls.engine_begins(journal)
    assert calls.is_noted(early)
    late = calls.stop(journal)
    assert notes.rows == [("IS", early), ("SS", late)]
    calls.took_effect(early)
    assert not calls.is_noted(early)


def test_a_trace_that_a_stop_has_closed_takes_no_further_call() -> None:
    """FORMAL A1: nothing follows its last SE; the next engine's trace has what was called meanwhile."""
    calls, notes, journal = made()
    calls.engine_begins(journal)
    stop = calls.stop(journal)
    calls.close(journal)
    assert notes.rows == [("SS", stop), ("SE", stop)]
    late = calls.initialize(journal)
    assert notes.rows == [("SS", stop), ("SE", stop)]
    calls.engine_begins(journal)
    assert notes.rows[2:] == [("SS", stop), ("IS", late)]


def test_a_stop_counts_until_it_has_returned() -> None:
    """SPEC 4.3: open stops are counted per call; other calls do not count, and none counts twice."""
    calls, _, journal = made()
    assert calls.open_stops == 0
    stops = [calls.stop(None), calls.stop(journal)]
    other = calls.initialize(journal)
    assert calls.open_stops == 2
    for number in (other, stops[0], stops[0]):
        calls.returned(number)
    assert calls.open_stops == 1
    calls.forget()
    assert calls.open_stops == 0
    calls.returned(stops[1])
    assert calls.open_stops == 0
