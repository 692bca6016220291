"""The smallest sub-trace that shows a violation, and the example traces of other schedulers."""

import io
from pathlib import Path

import pytest

from duly.formal import witnesses as module
from duly.formal.checking import check
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.reader import events
from duly.formal.trace import IE, Event, Header, Writer
from duly.formal.verdicts import Violation
from duly.formal.witnesses import Witness, witness
from tests.formal.story import Story, story

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "traces"


def first_violation(trace: list[Event]) -> Violation:
    monitor = Monitor()
    for event in trace:
        monitor.step(event)
    return monitor.violations[0]


def letters(found: Witness) -> str:
    return " ".join(type(event).__name__ for event in found.events)


@pytest.mark.parametrize(
    ("text", "property_id", "smallest"),
    [
        ("IS IE Due RS REs Due RS REf RetryDue RS RS", "S1", "IS RG IE RS RS"),
        ("IS IE Due RS REs Due RS REf RetryDue RS REs RS", "S2", "IS RG IE RS RE RS"),
        ("IS IE Due RS REs SS SE IS IE Due RS REs SS SE RS", "S2", "IS RG SS SE RS"),
        ("IS IE Due RS REs Due RS SS SE", "S5⁺", "IS RG IE RS SS SE"),
        ("IS IE Due RS REs Due RS Crash REs", "E2", "BT IS RG IE RS BT RE"),
        ("IS IE Due RS REs SE", "EW", "IS RG IE SE"),
    ],
)
def test_what_does_not_matter_is_left_out(text: str, property_id: str, smallest: str) -> None:
    trace = story(text)
    found = witness(trace, first_violation(trace))
    assert found.violation.property == property_id
    assert letters(found) == smallest
    assert found.start is None


def test_other_tasks_do_not_matter() -> None:
    trace = Story(tasks="xy").tell("IS IE Due RS RS:y REs:y REs Due RS:y RS RS").events
    found = witness(trace, first_violation(trace))
    assert letters(found) == "IS RG IE RS RS"
    assert {getattr(event, "task", "x") for event in found.events} == {"x"}


def test_nothing_smaller_shows_it() -> None:
    """Every single event of the witness is needed."""
    trace = story("IS IE Due RS Crash IS IE RS Crash IS IE RS")
    violation = first_violation(trace)
    found = witness(trace, violation).events
    for left_out in found[:-1]:
        monitor = Monitor()
        found_now = [each for event in found if event is not left_out for each in monitor.step(event)]
        assert [(each.property, each.sentence) for each in found_now] != [("S2", violation.sentence)]


def test_a_long_past_is_kept_as_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the trace."""
    monkeypatch.setattr(module, "WINDOW", 10)
    trace = story("IS IE " + "Due RS REs " * 20 + "Due RS Due RS")
    found = witness(trace, first_violation(trace))
    assert letters(found) == "RS RS"
    assert found.start is not None
    monitor = Monitor(found.start)
    assert [each.property for event in found.events for each in monitor.step(event)] == ["S1"]
    assert "registers" in str(found)


def test_a_witness_can_be_checked_like_any_trace() -> None:
    """It is told with the numbers of the whole trace; renumbered it is a trace of its own."""
    trace = story("IS IE Due RS REs Due RS RS")
    found = witness(trace, first_violation(trace))
    out = io.BytesIO()
    writer = Writer(out.write, Header("witness"))
    for number, event in enumerate(found.events, 1):
        if isinstance(event, IE):
            event = event._replace(declared=1)
        writer.add(event._replace(seq=number))
    report = check(io.BytesIO(out.getvalue()))
    assert [each.property for each in report.violations] == ["S1", "S2"]


def test_a_trace_that_does_not_show_it_is_refused() -> None:
    trace = story("IS IE Due RS RS")
    with pytest.raises(ValueError, match="does not show"):
        witness(trace[:-1], first_violation(trace))


# --- traces of other schedulers ---------------------------------------------------------------------------------------


def test_an_overlap_after_a_pause_is_caught() -> None:
    """A machine slept for half an hour; the timer fired at once when it woke, and the run was still going on."""
    path = EXAMPLES / "overlap-after-a-pause.jsonl"
    report = check(io.BytesIO(path.read_bytes()))
    assert {each for each, verdict in report.verdicts.items() if verdict.value is Value.VIOLATED} == {"S1"}
    (violation,) = report.violations
    assert (violation.task, violation.seq) == ("report", 11)
    found = witness(events(io.BytesIO(path.read_bytes())), violation)
    assert letters(found) == "IS RG IE RS RS"


def test_a_late_run_that_is_dropped_is_caught() -> None:
    """The event loop was busy for 1.7 s at three o'clock; the backup was "misfired", and never ran."""
    path = EXAMPLES / "late-run-dropped.jsonl"
    report = check(io.BytesIO(path.read_bytes()))
    assert {each for each, verdict in report.verdicts.items() if verdict.value is Value.VIOLATED} == {"R1"}
    assert report.verdicts["L1"].value is Value.PENDING
    assert [each.what for each in report.verdicts["L1"].open] == ["backup"]
    (violation,) = report.violations
    found = witness(events(io.BytesIO(path.read_bytes())), violation)
    assert letters(found) == "IS RG IE WK WK WK"


def test_pairs_of_a_long_trace_are_left_out_although_neither_could_go_alone() -> None:
    """A start and its end go only together; a task that is late by what is left out is no other violation."""
    trace = story("IS IE Due RS REs " + "Due RS REf RetryDue RS REs " * 30 + "RS")
    found = witness(trace, first_violation(trace))
    assert letters(found) == "IS RG IE RS RE RS"
    assert [getattr(event, "run", None) for event in found.events][-1] == 62
