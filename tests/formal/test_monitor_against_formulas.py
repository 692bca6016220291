"""The fast monitor against the formulas: on all short traces, and on random long ones.

The formulas are read from the texts in `properties` and evaluated on positions that `unfold` derives on its own. Both
must find the same properties violated at the first event at which any is. After it the monitor goes on as best it can,
so later violations are not compared.
"""

import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.core.moments import Instant
from duly.formal.monitor import Monitor
from duly.formal.properties import BY_ID, Value
from duly.formal.trace import CK, RG, Event
from tests.counts import count, share
from tests.formal.reference.formulas import Evaluation, read
from tests.formal.reference.unfold import instances, unfold, violated
from tests.formal.story import HOUR, SECOND, Story, story

ONE_TASK = ("IS", "IE", "SS", "SE", "Crash", "Due", "RS", "REs", "REf", "RetryDue")
LIVENESS = ("L1", "L2", "L3")
PRIMITIVE = {"S1", "S2", "S5⁺", "E2", "EW"}


def first_found(events: list[Event]) -> tuple[int, set[str]] | None:
    """The first event at which the monitor finds anything violated, and what."""
    monitor = Monitor(bounded=False)
    for event in events:
        if found := monitor.step(event):
            return event.seq, {each.property for each in found}
    return None


def first_by_formulas(events: list[Event]) -> tuple[int, set[str]] | None:
    found = violated(events)
    if not found:
        return None
    first = min(found.values())
    return first, {property_id for property_id, seq in found.items() if seq == first}


def liveness(events: list[Event]) -> dict[str, Value]:
    """The values of L1, L2, L3 by the formulas, over all tasks and calls."""
    values = dict.fromkeys(LIVENESS, Value.HOLDING)
    for name in sorted({event.task for event in events if isinstance(event, RG)}) or [""]:
        evaluation = Evaluation(unfold(events, name))
        for property_id in LIVENESS:
            for text in instances(BY_ID[property_id].formula, events, name):
                if evaluation.judge(read(text)) is Value.PENDING:
                    values[property_id] = Value.PENDING
    return values


def compare(events: list[Event]) -> None:
    expected = first_by_formulas(events)
    assert first_found(events) == expected
    if expected is not None:
        assert expected[1] & PRIMITIVE  # the others follow from these, so none of them is violated first, alone
    else:
        monitor = Monitor(bounded=False)
        monitor.feed([[type(event).__name__, *event] for event in events])
        verdicts = monitor.verdicts()
        assert {property_id: verdicts[property_id].value for property_id in LIVENESS} == liveness(events)


def all_stories(alphabet: tuple[str, ...], length: int) -> Iterator[str]:
    for letters in product(alphabet, repeat=length):
        yield " ".join(letters)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_all_short_traces_of_one_task(length: int) -> None:
    """After a first initialize, every continuation of this length (FORMAL B5)."""
    for text in all_stories(ONE_TASK, length):
        compare(story("IS IE " + text))


@pytest.mark.parametrize("beginning", ["IS IE Due RS"])
def test_all_traces_of_four_more_events(beginning: str) -> None:
    """All 10,000 continuations of a trace with a run that has not ended."""
    for text in share(list(all_stories(ONE_TASK, 4)), 1_500):
        compare(story(f"{beginning} {text}"))


@pytest.mark.parametrize("mode", ["restart", "wait"])
def test_all_ways_on_from_an_interrupted_retry(mode: str) -> None:
    """SPEC 3.7: both readings of what an interrupted run owes."""
    for text in all_stories(("Crash", "RS", "REs", "Due", "Rest"), 3):
        compare(story("IS IE Due RS REf RetryDue RS Crash IS IE " + text, mode=mode))
        compare(story("IS IE Due RS REf RetryDue RS Crash IS IE RS Crash IS IE " + text, mode=mode))


def test_all_short_traces_of_two_tasks() -> None:
    """S5⁺ and the calls are about all tasks at once."""
    alphabet = ("SS", "SE", "Due", "RS", "RS:y", "REs", "REs:y", "Crash")
    for text in all_stories(alphabet, 3):
        compare(Story(tasks="xy").tell("IS IE Due RS:y " + text).events)


def test_all_ways_to_change_a_declaration() -> None:
    """SPEC 5.1, 5.3: overriding and removing while a run has not ended, or was cut short."""
    for text in all_stories(("Override", "IS IE∅", "IS IE", "RS", "REs", "REf", "Due", "Crash IS IE"), 3):
        compare(story("IS IE Due RS " + text))


def legal_story(chance: random.Random, length: int, *, wrong: float) -> list[Event]:
    """A long trace that is mostly right: what comes next is drawn from what may come, and rarely from anything."""
    mode = chance.choice(["restart", "wait"])
    cron = chance.choice(["0 * * * *", "0,20,40 * * * *", "* * * * *", "30 2 * * *"])
    told = Story(tasks="xy", cron=cron, mode=mode, zone=chance.choice(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]))
    told.tell("IS IE")
    shadow = Monitor(bounded=False)
    seen = 0
    for _ in range(length):
        for event in told.events[seen:]:
            shadow.step(event)
        seen = len(told.events)
        told.now += chance.choice([0, SECOND // 100, SECOND, 61 * SECOND, HOUR])
        choices = ["Due", "RetryDue", "RetryDue:y", "Crash IS IE", "Override", "Override:y", "IS IE", "SS SE IS IE"]
        if chance.random() < wrong:
            choices = [*ONE_TASK, "RS:y", "REs:y", "REf:y", "IS IE∅"]
        else:
            for name in "xy":
                task = shadow.registers.tasks.get(name)
                if shadow.obliged(name, Instant(told.now + 1_000)):
                    choices += [f"RS:{name}"] * 8
                if task is not None and shadow.registers.is_running(task):
                    choices += [f"REs:{name}", f"REf:{name}"] * 6
            if shadow.registers.running:
                choices.remove("SS SE IS IE")
        told.tell(chance.choice(choices))
    return told.events


@given(seed=st.integers(0, 1 << 32), wrong=st.sampled_from([0.0, 0.01, 0.05]))
@settings(max_examples=count(100, 25), deadline=None)
def test_random_long_traces(seed: int, wrong: float) -> None:
    """Crashes, overrides, retries, both modes, several zones; some with a mistake somewhere."""
    compare(legal_story(random.Random(seed), 60, wrong=wrong))


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=25, deadline=None)
def test_random_traces_with_a_clock_that_steps(seed: int) -> None:
    """SPEC 2.5: what a step back silences, and what it lowers."""
    chance = random.Random(seed)
    events = legal_story(chance, 25, wrong=0.02)
    at = chance.randrange(len(events) // 2, len(events))
    step = chance.choice([-10 * HOUR, -4 * HOUR, -HOUR, -90 * SECOND, -SECOND, HOUR])
    moved: list[Event] = [CK(at + 1, Instant(events[at].at + step), events[at].at)]
    moved += [event._replace(seq=event.seq + 1, at=Instant(event.at + step)) for event in events[at:]]
    compare(events[:at] + moved)


def test_the_comparison_can_fail() -> None:
    """A monitor that never finds anything would be noticed: the formulas do find the overlap."""
    events = story("IS IE Due RS Due RS")
    assert first_by_formulas(events) == (6, {"S1"})
    assert first_found(events[:-1]) is None
