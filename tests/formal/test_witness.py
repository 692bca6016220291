"""The smallest sub-trace that shows a violation, and the example traces of other schedulers."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from duly.core.moments import Instant
from duly.formal import witnesses as module
from duly.formal.checking import check
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.reader import events
from duly.formal.trace import IE, RG, RS, WK, AnyEvent, Event, Header, HostEvent, Writer
from duly.formal.verdicts import Violation
from duly.formal.witnesses import Witness, witness, witnesses
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


@pytest.mark.parametrize(("most", "smallest"), [(6, "IS IE RS"), (5, "IS RG IE IS RG RS")])
def test_short_ones_are_searched_for_smaller_ones_in_every_way(
    most: int, smallest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A declaration and its withdrawal, with others between them, go only together."""
    monkeypatch.setattr(module, "EXHAUSTIVE_MAX", most)
    trace = story("IS IE IS IE∅ Due RS")
    assert letters(witness(trace, first_violation(trace))) == smallest


def test_what_has_gone_wrong_before_has_a_witness_as_well() -> None:
    """Of the same kind, at the same task."""
    trace = story("IS IE Due RS RS REs Due RS RS")
    monitor = Monitor()
    found = [each for event in trace for each in monitor.step(event) if each.property == "S1"]
    assert [each.seq for each in found] == [6, 9]
    assert [letters(witness(trace, each)) for each in found] == ["IS RG IE RS RS", "IS RG IE RS RS"]


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
    """It has the numbers of the whole trace; renumbered it is a trace of its own."""
    trace = story("IS IE Due RS REs Due RS RS")
    found = witness(trace, first_violation(trace))
    out = io.BytesIO()
    writer = Writer(out.write, Header("witness"))
    for number, event in enumerate(found.events, 1):
        assert not isinstance(event, HostEvent)
        if isinstance(event, IE):
            event = event._replace(declared=1)
        writer.add(event._replace(seq=number))
    report = check(io.BytesIO(out.getvalue()), unsealed=True)
    assert [each.property for each in report.violations] == ["S1", "S2"]


def test_a_witness_is_printed_line_by_line() -> None:
    """Without what one task cannot know, and without what is not set; names cannot move the cursor."""
    trace = [each._replace(task="x\x1b[2J") if isinstance(each, RG | RS) else each for each in story("IS IE Due RS RS")]
    assert str(witness(trace, first_violation(trace))).splitlines() == [
        "       2  2025-11-24T16:10:00.002Z  IS  call=1",
        (
            "       3  2025-11-24T16:10:00.003Z  RG  task=x\\x1b[2J generation=1 change=new cron=0 * * * *"
            " delay_ms=60000 zone=UTC known_since=1764000600003000 place=loop"
        ),
        "       4  2025-11-24T16:10:00.004Z  IE  call=1 interrupted=restart zone=UTC",
        "       5  2025-11-24T17:00:00.001Z  RS  task=x\\x1b[2J generation=1 run=1 cause=cron slots=0",
        "       6  2025-11-24T17:00:00.002Z  RS  task=x\\x1b[2J generation=1 run=2 cause=cron slots=1",
    ]
    whole = story("IS IE SE")
    (declared,) = [each for each in whole if isinstance(each, IE)]
    told = str(witness([*whole[:-1], declared._replace(seq=5, declared=0)], EW_TWICE)).splitlines()
    assert told[-1] == "       5  2025-11-24T16:10:00.004Z  IE  call=1 declared=0 digest= interrupted=restart zone=UTC"


EW_TWICE = Violation(
    "EW", 5, Instant(0), "IE", None, "initialize 1 returns, but is not open", {"Active": True, "Quiet": False}
)


def test_events_of_another_task_are_printed_as_signs_of_life() -> None:
    """In a witness of lateness: that something happened, not what; a wake-up is printed as itself."""
    events_ = story("IS IE", tasks="xy")
    noon = 1_764_003_600_000_000
    awake: list[Event] = [WK(6, Instant(noon - 10_000_000), 5), RS(7, Instant(noon), "y", 2, 1, "cron", 0)]
    late: list[Event] = [WK(8, Instant(noon + 60_000_000), 6), WK(9, Instant(noon + 60_000_001), 7)]
    moved = [each._replace(at=Instant(noon - 30_000_000)) for each in events_]
    moved = [each._replace(known_since=each.at) if isinstance(each, RG) else each for each in moved]
    trace = [*moved, *awake, *late]
    violation = first_violation(trace)
    assert (violation.property, violation.task) == ("R1", "x")
    text = str(witness(trace, violation))
    assert text.splitlines()[-1].endswith("WK  mono=7")
    assert "WK  of=another task" in str(Witness(violation, (WK(7, Instant(noon), -1),)))
    assert "WK  mono=6" in str(Witness(violation, (WK(8, Instant(noon), 6),)))


@pytest.mark.parametrize("length", [0, 5, 6])
def test_a_trace_that_does_not_show_it_is_refused(length: int) -> None:
    """One that ends too early, even if it ends with another violation of its kind."""
    trace = story("IS IE Due RS RS RS")
    monitor = Monitor()
    *_, last = (each for event in trace for each in monitor.step(event) if each.property == "S1")
    with pytest.raises(ValueError, match="does not show"):
        witness(trace[:length], last)


def test_several_violations_have_each_a_witness_of_their_own() -> None:
    """In one pass over the trace, whichever comes last; None for what the trace does not show."""
    trace = story("IS IE Due RS RS REs Due RS REs RS SE")
    monitor = Monitor()
    for event in trace:
        monitor.step(event)
    violations = monitor.violations
    assert len({each.seq for each in violations}) > 2
    found = witnesses(trace, violations)
    assert [each.events[-1].seq if each else None for each in found] == [each.seq for each in violations]
    assert [each.violation if each else None for each in found] == violations
    assert witnesses(trace, violations[::-1])[-1] == found[0]
    assert witnesses(trace, []) == []
    shown = [each.seq <= trace[-2].seq for each in violations]
    assert [each is not None for each in witnesses(trace[:-1], violations)] == shown


@pytest.mark.parametrize(("more", "kept_whole"), [("", True), ("IS", False)])
def test_the_past_becomes_registers_beyond_two_windows(
    more: str, kept_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to there the trace is known from its beginning."""
    monkeypatch.setattr(module, "WINDOW", 3)
    trace = story(f"IS IE {more} Due RS Due RS")
    assert len(trace) == (6 if kept_whole else 7)
    found = witness(trace, first_violation(trace))
    assert (found.start is None) == kept_whole
    assert letters(found) == ("IS RG IE RS RS" if kept_whole else "IE RS RS")


LONG = [
    "IS IE Due RS REs Due RS REf RetryDue RS REs RS",
    "IS IE Due RS REs SS SE IS IE Due RS Crash IS IE RS REs Due RS Due RS",
    "IS IE Due RS Crash IS IE RS Crash IS IE Rest RS REs SS SE IS IE RS",
    "IS IE Due RS REf RetryDue RS REf RetryDue RS Override REs Due RS REs REs",
    "IS IE Override Due RS REs SS IS SE IE Due RS REs SS SE SE",
    "IS IE IS IE∅ IS IE Due RS REs Due RS SS SE",
]


@pytest.mark.parametrize("text", LONG)
def test_no_single_event_can_be_left_out_of_a_long_witness_either(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all sub-traces can be tried: every event of what remains is needed."""
    monkeypatch.setattr(module, "EXHAUSTIVE_MAX", 0)
    trace = story(text)
    violation = first_violation(trace)
    found = witness(trace, violation).events
    assert shows(found, violation)
    for left_out in found[:-1]:
        assert not shows([event for event in found if event is not left_out], violation)


def shows(part: Sequence[AnyEvent], violation: Violation) -> bool:
    """Whether the last event violates the same for the same reason, and nothing before it violates anything."""

    def reason(found: Violation) -> tuple[object, ...]:
        registers = (found.registers.get(name) for name in ("Active", "Quiet", "Registered", "Running"))
        return found.property, found.task, re.sub(r"[0-9]+", "", found.sentence), *registers

    monitor = Monitor(bounded=False)
    before = [each for event in part[:-1] for each in monitor.step(event)]
    return not before and reason(violation) in map(reason, monitor.step(part[-1]))


def test_pairs_of_a_long_trace_are_left_out_although_neither_could_go_alone() -> None:
    """A start and its end go together; a task that is late because events were removed is not another violation."""
    trace = story("IS IE Due RS REs " + "Due RS REf RetryDue RS REs " * 30 + "RS")
    found = witness(trace, first_violation(trace))
    assert letters(found) == "IS RG IE RS RE RS"
    assert [getattr(event, "run", None) for event in found.events][-1] == 62


def test_pairs_are_left_out_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """With any number of events before them, even where not all sub-traces can be tried."""
    monkeypatch.setattr(module, "EXHAUSTIVE_MAX", 0)
    trace = story("IS IE Crash IS IE Due RS REs SE")
    assert letters(witness(trace, first_violation(trace))) == "IS RG IE SE"


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
