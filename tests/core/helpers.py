"""Short ways to say moments, tasks and states in the tests of the core."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from duly.core.cron import parse_cron
from duly.core.moments import MICROSECONDS, Delay, Instant, Minute, instant_of
from duly.core.record import EqualRows, StoredTask, read_equal
from duly.core.registration import Callback, RunsOn
from duly.core.task import AwaitingRetry, AwaitingRun, Interrupted, Obligation, Running, Task, TaskState, Withdrawn

BERLIN: Final = ZoneInfo("Europe/Berlin")
SECOND: Final = MICROSECONDS
MINUTE: Final = 60 * SECOND


def at(text: str, zone: tzinfo = UTC) -> Instant:
    """The instant of a local time, `~` before it meaning the second copy."""
    wall = datetime.fromisoformat(text.removeprefix("~"))
    return instant_of(wall.replace(tzinfo=zone, fold=text.startswith("~")))


def minute(text: str, zone: tzinfo = UTC) -> Minute:
    """The minute that begins at a local time."""
    return Minute(at(text, zone) // SECOND)


async def on_the_loop() -> None:
    """A callback for the event loop."""


def in_a_thread() -> None:
    """A callback for a worker thread."""


def task(
    name: str,
    cron: str,
    state: TaskState,
    *,
    runs_on: RunsOn = RunsOn.LOOP,
    delay_ms: int = 5_000,
    generation: int = 1,
) -> Task:
    """A declared task in a state."""
    callback: Callback = on_the_loop if runs_on is RunsOn.LOOP else in_a_thread
    return Task(generation, name, parse_cron(cron), Delay(delay_ms), state, callback, runs_on)


# --- strategies ------------------------------------------------------------------------------------------------------

NEAR: Final = at("2025-06-15T12:00")

# Close together, so that they meet, and days apart, so that they do not.
instants: Final = st.one_of(
    st.integers(-10, 10).map(lambda each: Instant(NEAR + 30 * SECOND * each)),
    st.integers(NEAR - 2 * 86_400 * SECOND, NEAR + 2 * 86_400 * SECOND).map(Instant),
)
minutes: Final = st.one_of(st.integers(-5, 5), st.integers(-2 * 1_440, 2 * 1_440)).map(
    lambda each: Minute(NEAR // SECOND + 60 * each)
)
delays: Final = st.integers(0, 3 * 86_400_000).map(Delay)
maybe_instants: Final = st.none() | instants
counts: Final = st.integers(0, 5)
FIRST: Final = Obligation(Instant(NEAR), Instant(NEAR), 1)
"""Where it does not matter what a run is for."""

obligations: Final = st.builds(Obligation, instants, instants, st.integers(1, 5))

awaiting_run: Final = st.builds(AwaitingRun, minutes, maybe_instants, maybe_instants, maybe_instants)
awaiting_retry: Final = st.builds(
    AwaitingRetry, minutes, instants, maybe_instants, instants, instants, st.integers(1, 5), obligations
)
running: Final = st.builds(
    Running, minutes, instants, maybe_instants, maybe_instants, maybe_instants, counts, counts, obligations
)
# A run that is owed again by itself has consumed the retry; one that waits still owes it (SPEC 3.7).
interrupted: Final = st.builds(
    lambda served, started, success, failure, failures, row, resume, retry, obligation: Interrupted(
        served, started, success, failure, None if resume is not None else retry, failures, row, resume, obligation
    ),
    minutes,
    instants,
    maybe_instants,
    maybe_instants,
    counts,
    st.integers(1, 5),
    maybe_instants,
    maybe_instants,
    obligations,
)
withdrawn: Final = st.builds(Withdrawn, minutes)
startable: Final = st.one_of(awaiting_run, awaiting_retry, interrupted)
states: Final = st.one_of(startable, running, withdrawn)


def stored_tasks(records: Sequence[EqualRows]) -> list[StoredTask]:
    """The tasks in the records of a store, one by one."""
    return [
        StoredTask(generation, name, *block[2:])
        for block in read_equal(records)
        for generation, name in zip(block.generations, block.names, strict=True)
    ]
