"""The derived properties as alarms of their own, and the words in which a broken log is told."""

import pytest

from duly.core.moments import Delay
from duly.formal.monitor import Monitor
from duly.formal.trace import IE, IS, RE, RG, RS, Event
from duly.formal.verdicts import Violation
from tests.formal.story import Story, story


def violations(events: list[Event]) -> list[Violation]:
    monitor = Monitor()
    return [found for event in events for found in monitor.step(event)]


@pytest.mark.parametrize(
    ("text", "alarms"),
    [
        ("IS IE Due SS SE RS", {"S2", "S4"}),  # a start after a completed stop
        ("IS IE Due RS SS SE REs", {"S5⁺", "S5"}),  # an end after one
        ("IS IE Due Crash RS", {"S2", "S6a"}),  # a start before the next initialize
        ("IS IE Due RS Crash IS IE REs", {"E2", "S6b"}),  # an end of what a crash had cut short
        ("IS IE Due RS REs REs", {"E2"}),
        ("IS IE Due RS REs RS REs", {"S2", "S3"}),  # two successes for one due minute
    ],
)
def test_each_derived_property_raises_its_own_alarm(text: str, alarms: set[str]) -> None:
    """FORMAL A4: they follow from the primitive ones, and are told beside them, as a second opinion."""
    assert {found.property for found in violations(story(text))} == alarms


@pytest.mark.parametrize(("run", "generation"), [(2, 1), (1, 2), (7, 7)])
def test_the_end_of_another_run_is_told_with_both(run: int, generation: int) -> None:
    """E2: which run ended, and which one was going on."""
    events = story("IS IE Due RS REs")
    start, end = events[-2], events[-1]
    assert isinstance(start, RS)
    assert isinstance(end, RE)
    (found,) = violations([*events[:-1], end._replace(run=run, generation=generation)])
    assert found.property == "E2"
    assert f"run {run} of declaration {generation} ends" in found.sentence
    assert f"run {start.run} of declaration {start.generation} was going on" in found.sentence


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_preserved_task_may_move_to_where_threads_are(place: str) -> None:
    """Where a callback runs decides which slots it needs, so a snapshot has to know."""
    told = Story().tell("IS IE")
    first = next(event for event in told.events if isinstance(event, RG))
    told.tell("IS")
    call, seq, at = told.events[-1], len(told.events) + 1, told.events[-1].at
    assert isinstance(call, IS)
    moved = RG(seq, at, "x", first.generation, "preserved", first.cron, Delay(60_000), "UTC", first.known_since, place)
    done = IE(seq + 1, at, call.call, 1, "", "restart", None, 4, "UTC")
    monitor = Monitor()
    assert [found for event in (*told.events, moved, done) for found in monitor.step(event)] == []
    assert [row.thread for row in monitor.snapshot().tasks] == [place == "thread"]
