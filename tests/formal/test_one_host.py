"""One host of a shared store is judged as an embedded store is: every corpus of the tests, through both.

Each boot becomes a host of its own, and each crash the burial of the host before. What two boots do to each other is
the exception: S4, S5, S6a and S6b are about one host, so a start of a new process before its initialize violates them
in an embedded store alone. There, S2 or E2 is violated in both, by this event or by the start of the run that it ends.
"""

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.formal.checking import check
from duly.formal.monitor import Monitor
from duly.formal.reader import events as read_events
from duly.formal.trace import BT, RE, RS, SE, Event, HostEvent, Writer, shared_header
from duly.formal.verdicts import Violation
from duly.formal.witnesses import witnesses
from tests.counts import count
from tests.formal import test_literal_problems, test_witness
from tests.formal.hosts import as_hosts, is_told_boot_by_boot
from tests.formal.reference.shared import violated_in_shared
from tests.formal.reference.unfold import violated
from tests.formal.story import story
from tests.formal.test_fast_path import Wild
from tests.formal.test_monitor_against_formulas import legal_story

ROOT = Path(__file__).parent.parent.parent
OF_ONE_BOOT = {"S4", "S5", "S6a", "S6b"}
STORIES = [
    *test_witness.LONG,
    "IS IE Due RS REs SS SE IS IE Due RS REf RetryDue RS REs SS SE",
    "IS IE Due RS Crash IS IE RS REs",
    "IS IE Due RS REf RetryDue RS Crash IS IE RS Crash IS IE Rest RS REs",
    "IS IE Due RS RS REs",
    "IS IE Due RS SS SE",
    "IS IE Due RS SS SE REs",
    "IS IE SS SE RS",
    "IS IE Due RS Crash REs",
    "IS IE Due RS Crash RS",
    "IS IE SS SS SE SE IS IE Due RS Override REs Due RS",
    "IS IE IS IF IS IE∅ IS IE Due RS REs RS REs",
]


def embedded(events: list[Event], *, bounded: bool) -> list[Violation]:
    monitor = Monitor(bounded=bounded)
    return [found for event in events for found in monitor.step(event)]


def on_hosts(told: list[HostEvent], *, bounded: bool) -> list[Violation]:
    monitor = Monitor(bounded=bounded, shared=True)
    return [found for event in told for found in monitor.step(event)]


def compare(events: list[Event], *, bounded: bool = True) -> None:
    """Violations, their tasks and places, and the values of all verdicts."""
    events = up_to_a_run_that_outlives_its_stop(events)
    one = embedded(events, bounded=bounded)
    told, before = as_hosts(events)
    many = on_hosts(told, bounded=bounded)
    first_of_boot = [event.seq for event in events if isinstance(event, BT)]
    expected = {
        (each.seq, each.property, each.task)
        for each in one
        if each.property not in OF_ONE_BOOT or _is_of_its_own_boot(each, events, first_of_boot)
    }
    found = {
        (before[each.seq], each.property, each.task)
        for each in many
        if each.event != "BY" and not each.sentence.endswith("has left")  # a process may write after its stop
    }
    assert found == expected
    dropped = {(each.seq, each.property) for each in one} - {(seq, name) for seq, name, _ in expected}
    wrong = {seq for seq, name, _ in found if name in ("S2", "E2")}
    wrong_runs = {event.run for event in events if isinstance(event, RS) and event.seq in wrong}
    wrong |= {event.seq for event in events if isinstance(event, RE) and event.run in wrong_runs}
    assert {seq for seq, _ in dropped} <= wrong
    if not one:
        verdicts = [Monitor(bounded=bounded), Monitor(bounded=bounded, shared=True)]
        for event in events:
            verdicts[0].step(event)
        for each in told:
            verdicts[1].step(each)
        values = [{name: found.value for name, found in each.verdicts().items()} for each in verdicts]
        assert values[0] == values[1]


def up_to_a_run_that_outlives_its_stop(events: list[Event]) -> list[Event]:
    """A run that goes on in the next process, which S5⁺ and S1 forbid, belongs to no host there."""
    monitor = Monitor(bounded=False)
    for event in events:
        monitor.step(event)
        if isinstance(event, SE) and (monitor.registers.running or monitor.registers.overlapped):
            return events[: event.seq]
    return events


def _is_of_its_own_boot(violation: Violation, events: list[Event], boots: list[int]) -> bool:
    """Whether what makes an event wrong, a stop or a crash, happened to the process whose event it is."""
    boot = max((seq for seq in boots if seq <= violation.seq), default=0)
    return any(type(event).__name__ == "SE" and boot < event.seq < violation.seq for event in events)


def test_every_story_is_judged_alike() -> None:
    for text in STORIES:
        events = story(text)
        if is_told_boot_by_boot(events[:-1]):
            compare(events)


def test_literal_problems_are_judged_alike() -> None:
    """FORMAL A5: the stories of the table, those with and those without a problem."""
    texts = set(_stories_in(Path(test_literal_problems.__file__).read_text(encoding="utf-8")))
    compared = 0
    for text in sorted(texts):
        events = story(text)
        if is_told_boot_by_boot(events[:-1]):
            compare(events)
            compared += 1
    assert compared > 10


def _stories_in(source: str) -> Iterator[str]:
    import re

    for text in re.findall(r'"((?:[A-Z][A-Za-z∅]+ ){2,}[A-Z][A-Za-z∅]+)"', source):
        try:
            story(text)
        except ValueError:
            continue
        yield text


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "tests/fixtures/v0.1.0/trace.jsonl",
        ROOT / "examples/traces/overlap-after-a-pause.jsonl",
        ROOT / "examples/traces/late-run-dropped.jsonl",
    ],
    ids=lambda path: path.stem,
)
def test_files_are_judged_alike(path: Path) -> None:
    """A version 1 trace is that of host 1 of an embedded store; as one of a shared store it says as much."""
    events = [event for event in read_events(io.BytesIO(path.read_bytes())) if not isinstance(event, HostEvent)]
    compare(events)
    told, _ = as_hosts(events)
    out = io.BytesIO()
    writer = Writer(out.write, shared_header("rewritten"))
    writer.add_all(told)
    one, many = check(io.BytesIO(path.read_bytes()), unsealed=True), check(io.BytesIO(out.getvalue()), unsealed=True)
    assert {each.property for each in one.violations} == {each.property for each in many.violations}
    assert (one.tasks, one.crashes, one.until) == (many.tasks, many.crashes, many.until)


@pytest.mark.parametrize("wrong", [0.0, 0.03, 0.1])
def test_generated_traces_are_judged_alike(wrong: float) -> None:
    """Seeded histories with crashes, overrides and retries, right and wrong ones."""
    compared = 0
    for seed in range(count(300, 60)):
        events = legal_story(random.Random(seed), 60, wrong=wrong)
        if is_told_boot_by_boot(events):
            compare(events)
            compared += 1
    assert compared > count(60, 10)


def test_wild_traces_with_limits_and_clock_steps_are_judged_alike() -> None:
    """Limits, threads, silences, steps of the clock, stops that raise, and events out of nowhere."""
    compared = 0
    for seed in range(count(400, 60)):
        wild = Wild(seed, 0.02 if seed % 2 else 0.0)
        for _ in range(120):
            wild.step()
        if is_told_boot_by_boot(wild.events):
            compare(wild.events)
            compared += 1
    assert compared > count(40, 5)


def test_mutated_traces_are_judged_alike() -> None:
    """An event is lost, comes twice, or is of another run."""
    compared = 0
    for seed in range(count(600, 120)):
        chance = random.Random(seed)
        events = legal_story(chance, 40, wrong=0.0)
        at = chance.randrange(1, len(events))
        event = events[at]
        changed = [*events[:at], *events[at + 1 :]]
        if chance.random() < 0.5:
            changed = [*events[:at], event, *events[at:]]
        elif isinstance(event, RS | RE):
            changed = [*events[:at], event._replace(run=event.run + 1), *events[at + 1 :]]
        changed = [each._replace(seq=number) for number, each in enumerate(changed, 1)]
        if is_told_boot_by_boot(changed):
            compare(changed)
            compared += 1
    assert compared > count(100, 20)


@pytest.mark.parametrize("text", [text for text in STORIES if is_told_boot_by_boot(story(text)[:-1])])
def test_the_witnesses_are_the_same_but_for_the_boot(text: str) -> None:
    """A host that acts has joined, so its boot stays in; nothing else differs."""
    events = story(text)
    told, before = as_hosts(events)
    many = on_hosts(told, bounded=True)
    one = embedded(events, bounded=True)
    alike = [
        each for each in one if any((before[other.seq], other.property) == (each.seq, each.property) for other in many)
    ]
    shown = {(each.violation.seq, each.violation.property): each for each in witnesses(events, alike) if each}
    compared = 0
    for found in witnesses(told, many):
        assert found is not None
        of_one = shown.get((before[found.violation.seq], found.violation.property))
        if of_one is None:
            continue
        kept = [each.event for each in found.events if isinstance(each, HostEvent) and not _is_joining(each)]
        bare = [event for event in of_one.events if not isinstance(event, BT)]
        if len({each.host for each in found.events if isinstance(each, HostEvent)}) == 1:
            assert [type(event).__name__ for event in kept] == [type(event).__name__ for event in bare]
        else:  # each of several hosts needs an initialize of its own
            assert len(kept) >= len(bare)
        assert type(kept[-1]) is type(bare[-1])
        compared += 1
    assert compared == len({(before[each.seq], each.property) for each in many} & shown.keys())


def _is_joining(event: HostEvent) -> bool:
    return isinstance(event.event, BT)


def test_the_formulas_agree_about_one_host() -> None:
    """Formulas for many hosts and formulas for one, each evaluated by definition."""
    for seed in range(count(60, 8)):
        events = legal_story(random.Random(seed), 40, wrong=0.05)
        if not is_told_boot_by_boot(events):
            continue
        told, before = as_hosts(events)
        one, many = violated(events), {name: before[seq] for name, seq in violated_in_shared(told).items()}
        first = min([*one.values(), *many.values()], default=0)
        by_both = [{name for name, seq in found.items() if seq == first} - OF_ONE_BOOT for found in (one, many)]
        assert by_both[0] == by_both[1]
