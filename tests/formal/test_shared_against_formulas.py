"""The monitor against the formulas on traces of many hosts: burials, hosts that come back, outdated hosts, mistakes.

As in `test_monitor_against_formulas`, both must find the same properties violated at the first event at which any is.
"""

import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.core.moments import Instant
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.trace import BT, BY, CK, IE, IF, IS, RE, RG, RS, SE, SS, HostEvent, line_of
from tests.counts import count, share
from tests.formal.hosts import HostsStory, hosts_story
from tests.formal.reference.formulas import Evaluation
from tests.formal.reference.shared import (
    hosts_of,
    read_for,
    shared_formula,
    shared_instances,
    unfold_shared,
    violated_in_shared,
)
from tests.formal.story import HOUR, SECOND
from tests.formal.test_fast_path import everything

LIVENESS = ("L1", "L2", "L3")
PRIMITIVE = {"S1", "S2", "S5⁺", "E2", "EW"}


def first_found(told: list[HostEvent]) -> tuple[int, set[str]] | None:
    monitor = Monitor(bounded=False, shared=True)
    for event in told:
        if found := monitor.step(event):
            return event.seq, {each.property for each in found}
    return None


def first_by_formulas(told: list[HostEvent]) -> tuple[int, set[str]] | None:
    found = violated_in_shared(told)
    if not found:
        return None
    first = min(found.values())
    return first, {property_id for property_id, seq in found.items() if seq == first}


def liveness(told: list[HostEvent]) -> dict[str, Value]:
    values = dict.fromkeys(LIVENESS, Value.HOLDING)
    hosts = hosts_of(told)
    for name in sorted({each.event.task for each in told if isinstance(each.event, RG)}) or [""]:
        evaluation = Evaluation(unfold_shared(told, name))
        for property_id in LIVENESS:
            for text in shared_instances(shared_formula(property_id), told, name):
                if evaluation.judge(read_for(text, hosts)) is Value.PENDING:
                    values[property_id] = Value.PENDING
    return values


def compare(told: list[HostEvent]) -> set[str]:
    """Returns what is violated first, by both."""
    expected = first_by_formulas(told)
    assert first_found(told) == expected
    if expected is not None:
        assert expected[1] & PRIMITIVE  # the others follow from these
        return expected[1]
    monitor = Monitor(bounded=False, shared=True)
    for event in told:
        monitor.step(event)
    verdicts = monitor.verdicts()
    assert {property_id: verdicts[property_id].value for property_id in LIVENESS} == liveness(told)
    return set()


def all_stories(alphabet: tuple[str, ...], length: int) -> Iterator[str]:
    for letters in product(alphabet, repeat=length):
        yield " ".join(letters)


TWO = ("1:RS", "2:RS", "1:REs", "2:REf", "2:REs@1", "Due", "1:BY:2", "2:BY:1", "1:SS", "2:SE", "3:Join", "2:Override")


@pytest.mark.parametrize("beginning", ["1:Join 2:Join Due", "1:Join 2:Join Due 1:RS", "1:Join 2:JoinOld Due 2:RS 2:SS"])
def test_all_short_traces_of_two_hosts(beginning: str) -> None:
    """Every continuation of three events: take-overs, overlaps, ends of others, stops and burials in every order."""
    for text in share(list(all_stories(TWO, 3)), 150):
        compare(hosts_story(f"{beginning} {text}"))


def legal_story(chance: random.Random, length: int, *, wrong: float) -> HostsStory:
    """A trace of up to three hosts at a time that is mostly right; hosts that were buried come back as new ones."""
    told = HostsStory(
        tasks="xy",
        cron=chance.choice(["0 * * * *", "0,20,40 * * * *", "* * * * *"]),
        mode=chance.choice(["restart", "wait"]),
        zone=chance.choice(["UTC", "Europe/Berlin"]),
    )
    told.tell("1:Join")
    shadow = Monitor(bounded=False, shared=True)
    seen = 0
    for _ in range(length):
        for event in told.events[seen:]:
            shadow.step(event)
        seen = len(told.events)
        told.now += chance.choice([0, SECOND // 100, SECOND, 61 * SECOND, HOUR])
        told.tell(chance.choice(_choices(chance, told, shadow, anything=chance.random() < wrong)))
    return told


def _choices(chance: random.Random, told: HostsStory, shadow: Monitor, *, anything: bool) -> list[str]:
    registers = shadow.registers
    living = [key for key, host in registers.hosts.items() if host.is_living]
    newest = max(registers.hosts)
    if anything:
        one, other, about = chance.randint(1, newest + 1), chance.randint(1, newest + 1), chance.choice("xy")
        words = (
            "RS",
            "REs",
            "REf",
            f"REs@{other}",
            "IS",
            "IE",
            "IEold",
            "SS",
            "SE",
            "SF",
            "BT",
            "WK",
            "LR",
            "Override",
        )
        return [*(f"{one}:{word}:{about}" for word in words), f"{one}:BY:{other}", f"{one}:RN:{other}"]
    choices = ["Due", "RetryDue", "RetryDue:y"]
    if len(living) < 3:
        choices += [f"{newest + 1}:Join", f"{newest + 1}:JoinOld"] if registers.edition else [f"{newest + 1}:Join"]
    for key in living:
        host = registers.hosts[key]
        choices += [f"{key}:Override", f"{key}:Override:y", f"{key}:WK", f"{key}:LR"]
        choices += [f"{chance.choice(living)}:BY:{key}", f"{chance.choice(living)}:RN:{key}"]
        if not host.running and len(living) > 1:
            choices.append(f"{key}:SS {key}:SE")
        for name in "xy":
            task = registers.tasks.get(name)
            if host.active and shadow.obliged(name, Instant(told.now + 1_000)):
                choices += [f"{key}:RS:{name}"] * 6
            if task is not None and registers.is_running(task) and task.epoch == key:
                choices += [f"{key}:REs:{name}", f"{key}:REf:{name}"] * 4
    return choices


@given(seed=st.integers(0, 1 << 32), wrong=st.sampled_from([0.0, 0.02, 0.1]))
@settings(max_examples=count(200, 25), deadline=None)
def test_random_long_traces_of_many_hosts(seed: int, wrong: float) -> None:
    """Burials, self-burials, rejoining under a new key, outdated hosts, overrides; some with a mistake somewhere."""
    compare(legal_story(random.Random(seed), 40, wrong=wrong).events)


def test_legal_traces_of_many_hosts_violate_nothing() -> None:
    """Otherwise all of them would end at their first mistake, and the comparison would see little."""
    burials = 0
    for seed in range(count(100, 10)):
        told = legal_story(random.Random(seed), 60, wrong=0.0).events
        assert compare(told) == set()
        burials += sum(isinstance(each.event, BY) for each in told)
    assert burials > 10


def mutated(told: list[HostEvent], chance: random.Random) -> list[HostEvent]:
    """A trace with one thing wrong: an event is lost, comes twice, is another host's, or changes places."""
    at = chance.randrange(len(told))
    changed = [*told]
    match chance.choice(["lost", "twice", "of another host", "swapped", "of another run"]):
        case "lost":
            del changed[at]
        case "twice":
            changed.insert(at, told[at])
        case "of another host":
            changed[at] = told[at]._replace(host=chance.randint(1, max(hosts_of(told)) + 1))
        case "swapped":
            other = chance.randrange(len(told))
            changed[at], changed[other] = told[other], told[at]
        case "of another run":
            event = told[at].event
            if isinstance(event, RS | RE):
                changed[at] = told[at]._replace(event=event._replace(run=event.run + chance.choice([-1, 1])))
        case _:
            raise AssertionError
    return [each._replace(event=each.event._replace(seq=n)) for n, each in enumerate(changed, 1)]


def is_comparable(told: list[HostEvent]) -> bool:
    """Whether the formulas speak of all that is wrong.

    They leave out calls, boots and editions that repeat themselves, what registrations add up to, and instants. At the
    first position `Y` is false whatever it is about, so there an event other than a joining violates more than EW.
    """
    return isinstance(told[0].event, BT) and _calls_are_told_once(told) and _registrations_add_up(told)


def _calls_are_told_once(told: list[HostEvent]) -> bool:
    seen: set[object] = set()
    for host, event in told:
        if isinstance(event, BT | IS | SS):
            told_once = event.boot if isinstance(event, BT) else (host, type(event), event.call)
            if told_once in seen:
                return False
            seen.add(told_once)
    return True


def _registrations_add_up(told: list[HostEvent]) -> bool:
    latest: dict[str, int] = {}
    initializing: set[int] = set()
    declared: dict[str, int] = {}
    in_force: int | None = None
    for host, event in told:
        match event:
            case IS():
                initializing.add(host)
            case IE() | IF():
                initializing.discard(host)
                if isinstance(event, IE) and event.outdated and in_force in (None, event.edition):
                    return False
                if isinstance(event, IE) and not event.outdated:
                    in_force = event.edition
                    if event.declared != len(declared):
                        return False
            case RG():
                fits = (event.task in declared) != (event.change == "new")
                if host not in initializing or not fits or event.generation == declared.get(event.task):
                    return False
                declared[event.task] = event.generation
            case RS():
                if event.at < latest.get(event.task, 0):
                    return False
                latest[event.task] = event.at
            case _:
                pass
    return True


def test_traces_with_one_thing_wrong_are_judged_alike() -> None:
    """Each property that speaks of hosts is violated in some of them."""
    seen: set[str] = set()
    compared = 0
    for seed in range(count(1_500, 100)):
        chance = random.Random(seed)
        told = mutated(legal_story(chance, 30, wrong=0.0).events, chance)
        if is_comparable(told):
            seen |= compare(told)
            compared += 1
    assert compared > count(400, 25)
    assert {"S1", "S2", "E2", "EW"} <= seen


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=count(50, 10), deadline=None)
def test_a_clock_that_steps_steps_for_all_hosts(seed: int) -> None:
    """SPEC 2.5, 9.11: what a step back silences, and what it lowers."""
    chance = random.Random(seed)
    told = legal_story(chance, 25, wrong=0.02).events
    at = chance.randrange(len(told) // 2, len(told))
    step = chance.choice([-10 * HOUR, -4 * HOUR, -HOUR, -90 * SECOND, -SECOND, HOUR])
    host, event = told[at]
    moved = [HostEvent(host, CK(at + 1, Instant(event.at + step), event.at))]
    moved += [
        each._replace(event=each.event._replace(seq=each.seq + 1, at=Instant(each.at + step))) for each in told[at:]
    ]
    compare(told[:at] + moved)


@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.05, 0.3]), st.booleans())
@settings(deadline=None, max_examples=count(60, 20))
def test_the_fast_path_leads_to_the_same_for_many_hosts(seed: int, wrong: float, bounded: bool) -> None:
    """Registers, violations, verdicts and deadlines; in slices of any size."""
    chance = random.Random(seed)
    told = legal_story(chance, 120, wrong=wrong).events
    stepped, fed = Monitor(bounded=bounded, shared=True), Monitor(bounded=bounded, shared=True)
    begin = 0
    while begin < len(told):
        part = told[begin : begin + chance.randrange(1, 40)]
        for event in part:
            stepped.step(event)
        fed.feed([list(line_of(each.event)) for each in part], [each.host for each in part])
        assert everything(fed) == everything(stepped)
        begin += len(part)


def test_the_comparison_can_fail() -> None:
    """A monitor that never finds anything would be noticed: the formulas do find an overlap of two hosts."""
    told = hosts_story("1:Join 2:Join Due 1:RS Due 2:RS")
    assert first_by_formulas(told) == (len(told), {"S1"})
    assert first_found(told[:-1]) is None


def test_a_stop_of_one_host_does_not_end_the_trace_of_another() -> None:
    """The letters of a host are its own: an SE of host 1 says nothing about host 2."""
    told = hosts_story("1:Join 2:Join 1:SS 1:SE Due 2:RS 2:REs")
    assert any(isinstance(each.event, SE) for each in told)
    assert compare(told) == set()
