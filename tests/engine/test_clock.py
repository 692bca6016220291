"""The system's clock."""

import asyncio
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import duly
from duly.clock import Clock, SystemClock
from duly.errors import DulyError
from tests.spec.helpers import ManualClock

LONG = 60 * 1_000_000


def test_the_system_clock_is_a_clock() -> None:
    """`duly.Clock` has now, elapsed, zone and sleep_until."""
    assert isinstance(SystemClock(), duly.Clock)
    assert isinstance(ManualClock(), duly.Clock)
    assert not isinstance(object(), duly.Clock)
    assert duly.Clock is Clock


def test_now_is_the_wall_clock_in_microseconds() -> None:
    """SPEC 2.1: host clock."""
    before = datetime.now(UTC)
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=SystemClock().now())
    assert before - timedelta(microseconds=1) <= now <= datetime.now(UTC)


def test_elapsed_time_never_goes_back() -> None:
    """Clock protocol: whatever the wall clock does."""
    clock = SystemClock()
    samples = [clock.elapsed() for _ in range(1_000)]
    assert samples == sorted(samples)


# --- the zone --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tz(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A variable TZ that can be set; afterwards the zone is what it was."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Europe/Berlin", "Europe/Berlin"), (":Asia/Tokyo", "Asia/Tokyo"), ("UTC", "UTC")],
)
def test_the_zone_is_that_of_the_host(tz: pytest.MonkeyPatch, name: str, expected: str) -> None:
    """SPEC 2.1: host zone; a real zone with its rules, not an offset."""
    tz.setenv("TZ", name)
    assert SystemClock().zone() == ZoneInfo(expected)


def test_the_zone_is_read_anew_each_time(tz: pytest.MonkeyPatch) -> None:
    """HostZoneChanged: a long-lived process hears of a change at its next initialize."""
    clock = SystemClock()
    found: list[tzinfo] = []
    for name in ("Europe/Berlin", "America/New_York"):
        tz.setenv("TZ", name)
        found.append(clock.zone())
    assert found == [ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")]


@pytest.mark.parametrize("name", ["Mars/Olympus_Mons", "bogus"])
def test_a_zone_that_cannot_be_determined_is_explained(tz: pytest.MonkeyPatch, name: str) -> None:
    """SPEC 1.5: a typed error with a hint, and the original as its cause."""
    tz.setenv("TZ", name)
    with pytest.raises(DulyError, match="time zone") as caught:
        SystemClock().zone()
    assert "TZ" in caught.value.details["hint"]
    assert caught.value.details["cause"] is caught.value.__cause__
    assert caught.value.__cause__ is not None


async def test_a_scheduler_on_a_host_without_a_zone_does_not_start(tz: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SPEC 4.5: any failure of the first initialize leads back to uninitialised, store as before."""
    scheduler = duly.Scheduler(tmp_path / "state.db")
    tz.setenv("TZ", "Mars/Olympus_Mons")
    with pytest.raises(DulyError, match="time zone"):
        await scheduler.initialize([])
    assert os.listdir(tmp_path) == []
    tz.setenv("TZ", "Europe/Berlin")
    await scheduler.initialize([])
    await scheduler.stop()


# --- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-LONG, -1, 0, 50_000])
async def test_a_wait_ends_when_the_time_has_come(ahead: int) -> None:
    """Clock protocol: sleep_until returns when now() has reached the instant."""
    clock = SystemClock()
    instant = clock.now() + ahead
    await asyncio.wait_for(clock.sleep_until(instant, asyncio.Event()), 30)
    # The wall clock is slewed, and the event loop's timer has its own resolution: microseconds, not milliseconds.
    assert clock.now() >= instant - 5_000


async def test_a_wait_ends_as_soon_as_it_is_woken() -> None:
    """Clock protocol: or as soon as `wake` is set."""
    clock, wake = SystemClock(), asyncio.Event()
    waiting = asyncio.create_task(clock.sleep_until(clock.now() + LONG, wake))
    await asyncio.sleep(0)
    assert not waiting.done()
    wake.set()
    await asyncio.wait_for(waiting, 30)


async def test_a_wait_that_is_woken_already_only_lets_others_work() -> None:
    """Clock protocol: it yields once, so that a loop that is always woken starves nobody."""
    clock, wake, turns = SystemClock(), asyncio.Event(), 0

    async def other() -> None:
        nonlocal turns
        turns += 1

    wake.set()
    others = asyncio.create_task(other())
    await asyncio.wait_for(clock.sleep_until(clock.now() + LONG, wake), 30)
    assert turns == 1
    await others


async def test_a_wait_leaves_no_timer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing left after stop; a timer that fired later would wake the wrong sleep."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    original = loop.call_later

    def call_later(delay: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        timers.append(original(delay, callback, *arguments))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", call_later)
    clock, wake = SystemClock(), asyncio.Event()
    waiting = asyncio.create_task(clock.sleep_until(clock.now() + LONG, wake))
    await asyncio.sleep(0)
    wake.set()
    await waiting
    (timer,) = timers
    assert timer.cancelled()


async def test_a_wait_can_be_cancelled() -> None:
    """SPEC 3.11: the loop is being torn down."""
    clock, wake = SystemClock(), asyncio.Event()
    waiting = asyncio.create_task(clock.sleep_until(clock.now() + LONG, wake))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not wake.is_set()
