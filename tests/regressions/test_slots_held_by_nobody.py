"""A start may not claim any number of slots in use: nothing compared `slots` with what runs."""

import pytest

from duly.formal.monitor import Monitor
from duly.formal.trace import RS, Event
from duly.formal.witnesses import witness
from tests.formal.reference.unfold import violated
from tests.formal.story import story


def with_slots(events: list[Event], *slots: int) -> list[Event]:
    """The events, with these numbers of slots in their starts."""
    numbers = iter(slots)
    return [event._replace(slots=next(numbers)) if isinstance(event, RS) else event for event in events]


def found(events: list[Event]) -> dict[str, int]:
    monitor = Monitor()
    first: dict[str, int] = {}
    for event in events:
        for violation in monitor.step(event):
            first.setdefault(violation.property, event.seq)
    return first


TWO = story("IS IE Due RS:x RS:y REs:x REs:y Due RS:y REs:y", tasks="xy")
STARTS = [event.seq for event in TWO if isinstance(event, RS)]


def test_the_number_of_runs_is_right() -> None:
    """EW: what a scheduler writes, single events and rows alike."""
    assert found(TWO) == violated(TWO) == {}
    assert [event.slots for event in TWO if isinstance(event, RS)] == [0, 1, 0]
    monitor = Monitor()
    monitor.feed([[type(event).__name__, *event] for event in TWO])
    assert not monitor.violations


@pytest.mark.parametrize(("slots", "wrong"), [((1, 1, 0), 0), ((0, 0, 0), 1), ((0, 2, 0), 1), ((0, 1, 99), 2)])
def test_another_number_is_a_violation(slots: tuple[int, ...], wrong: int) -> None:
    """EW, by monitor, rows and formulas, at the start that says it; the smallest sub-trace shows all that runs."""
    events = with_slots(TWO, *slots)
    assert found(events) == violated(events) == {"EW": STARTS[wrong]}
    monitor = Monitor()
    monitor.feed([[type(event).__name__, *event] for event in events])
    (violation,) = monitor.violations
    assert (violation.property, violation.seq) == ("EW", STARTS[wrong])
    assert f"{slots[wrong]} slots in use" in violation.sentence
    assert witness(events, violation).events[-1] == events[STARTS[wrong] - 1]


def test_runs_that_overlap_count_as_one_or_two() -> None:
    """S1 is violated; how a scheduler counts after that is not held against it."""
    events = story("IS IE Due RS Due RS RS:y", tasks="xy")
    for slots in (1, 2):
        assert found(with_slots(events, 0, 1, slots)) == {"S1": 7}
    assert "EW" in found(with_slots(events, 0, 1, 3))


def test_a_crash_frees_all_slots() -> None:
    """Runs from before it do not run after it."""
    events = story("IS IE Due RS:x RS:y Crash IS IE RS:x", tasks="xy")
    assert [event.slots for event in events if isinstance(event, RS)] == [0, 1, 0]
    assert found(events) == violated(events) == {}
