"""The reference for hosts can object: to a start that nothing was owed for, to one that is missing, to a late one."""

import json
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from duly.core.news import Written
from tests.cluster.histories import QUIET, History
from tests.cluster.reference import objections

SEED = 5


@pytest.fixture
async def history() -> History:
    return await History(SEED).play()


def events_of(history: History) -> list[list[Any]]:
    return [json.loads(line) for line in list(history.cluster.memory.trace_lines())[1:-1]]


def found(history: History, events: list[list[Any]], *, quiet: int = QUIET) -> list[str]:
    now = int(history.cluster.now.timestamp() * 1_000_000)
    return objections(history.cluster.memory, events, UTC, quiet_since=now - quiet, now=now)


async def test_a_history_is_as_the_reference_says(history: History) -> None:
    assert found(history, events_of(history)) == []


async def test_a_start_that_the_trace_does_not_have_is_served_and_not_owed(history: History) -> None:
    events = events_of(history)
    last = max(place for place, event in enumerate(events) if event[0] == "RS" and event[4] == "quick")
    complaints = found(history, [event for place, event in enumerate(events) if place != last])
    assert any(each.startswith("served, and not owed: Served(task='quick'") for each in complaints)
    assert "quick is owed (cron) and not started" in complaints


async def test_a_start_for_another_minute_is_noticed(history: History) -> None:
    memory, events = history.cluster.memory, events_of(history)
    seq, written = next(
        (seq, entry.content)
        for seq, entry in memory.log.items()
        if isinstance(entry.content, Written) and entry.content.starts and not entry.content.refused
    )
    moved = tuple(replace(block, scheduled=block.scheduled - 60_000_000) for block in written.starts)  # type: ignore[arg-type]
    memory.log[seq] = replace(memory.log[seq], content=replace(written, starts=moved))
    complaints = found(history, events)
    assert {each.partition(":")[0] for each in complaints} == {"served, and not owed", "owed, and not served"}


async def test_a_start_twice_is_noticed(history: History) -> None:
    events = events_of(history)
    place = next(place for place, event in enumerate(events) if event[0] == "RS")
    assert any("or runs" in each for each in found(history, [*events[:place], *events[place : place + 1] * 2]))


async def test_late_starts_are_noticed_where_all_is_said_to_be_quiet(history: History) -> None:
    """The history has faults: if it is taken for a quiet one from its beginning, its starts are late."""
    assert any("and all is quiet" in each for each in found(history, events_of(history), quiet=10**9))
