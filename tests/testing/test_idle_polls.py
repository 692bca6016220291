"""Polls that find nothing due: made where something could notice them, left out where nothing can."""

import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from duly.engine.loop import Loop
from duly.events import ClockJumped, Event, PollStarted
from duly.testing import SimulatedHost

DELAY = timedelta(minutes=1)


async def nothing() -> None:
    """A task's work."""


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    """Grows by one with each poll of any loop."""
    made: list[Loop] = []
    poll = Loop.poll

    async def counted(self: Loop) -> None:
        made.append(self)
        await poll(self)

    monkeypatch.setattr(Loop, "poll", counted)
    return made


async def test_polls_that_leave_no_mark_are_left_out(polls: list[Loop]) -> None:
    """A simulated year takes seconds, without any option."""
    async with SimulatedHost("2024-01-01T00:00", "UTC") as host:
        await host.scheduler().initialize([("daily", "0 12 * * *", nothing, DELAY)])
        await host.advance(days=30)
        assert len([event for event in host.events if event.name == "TaskRunCompleted"]) == 30
    assert len(polls) < 130  # at each due time, at the end of that minute, and now and then


async def test_polls_that_a_listener_hears_of_are_made(polls: list[Loop]) -> None:
    """SPEC 2.4: every minute at the latest, for a listener."""
    heard: list[Event] = []
    async with SimulatedHost("2024-01-01T00:00", "UTC") as host:
        await host.scheduler(on_event=heard.append).initialize([("daily", "0 12 * * *", nothing, DELAY)])
        await host.advance(hours=2)
    assert sum(isinstance(event, PollStarted) for event in heard) == 121
    assert len(polls) == 121


async def test_polls_that_a_trace_tells_of_are_made(tmp_path: Path) -> None:
    """FORMAL A1: WK, one per wake-up, is the evidence that a process had compute."""
    store = tmp_path / "duly.db"
    async with SimulatedHost("2024-01-01T00:00", "UTC", store) as host:
        await host.scheduler(trace=True).initialize([("daily", "0 12 * * *", nothing, DELAY)])
        await host.advance(hours=2)
    with contextlib.closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT count(*) FROM trace WHERE line LIKE '[\"WK\"%'").fetchone() == (121,)


@pytest.mark.parametrize("minutes", [0, 7, 90])
@pytest.mark.parametrize("moment", ["2024-01-01T00:20:00", "2024-01-01T05:00:00", "2023-12-31T22:00:00"])
async def test_a_clock_that_is_set_is_noticed_as_soon_as_with_them(minutes: int, moment: str) -> None:
    """SPEC 2.4, 2.5: within a minute of passing time, and at the same moment whether or not anybody listens."""
    told = []
    for listener in (None, lambda _: None):
        async with SimulatedHost("2024-01-01T00:00:07", "Europe/Berlin") as host:
            await host.scheduler(on_event=listener).initialize([("daily", "0 12 * * *", nothing, DELAY)])
            await host.advance(minutes=minutes)
            await host.set_clock(moment)
            await host.advance(seconds=52)
            assert not [event for event in host.events if isinstance(event, ClockJumped)]
            await host.advance(seconds=1)
            told.append([event for event in host.events if isinstance(event, ClockJumped)])
    assert told[0] == told[1]
    assert len(told[0]) == 1
