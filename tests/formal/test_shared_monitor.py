"""Rights and wrongs of many hosts on each other's tasks: each property, violated by a second host."""

import io
from typing import Any

import pytest

from duly.core.moments import Instant
from duly.formal.checking import check
from duly.formal.monitor import Monitor
from duly.formal.properties import SHARED_FORMULAS, Value
from duly.formal.reader import events
from duly.formal.registers import HostStart, RegisterSnapshot
from duly.formal.trace import CK, IE, RG, RS, SHARED_VERSION, WK, HostEvent, Writer, shared_header
from duly.formal.verdicts import Violation
from duly.formal.witnesses import witness
from tests.formal.hosts import HostsStory, hosts_story
from tests.formal.reference.shared import violated_in_shared
from tests.formal.story import HOUR, SECOND, story


def found_in(told: list[HostEvent], *, bounded: bool = True) -> list[Violation]:
    monitor = Monitor(bounded=bounded, shared=True)
    return [found for event in told for found in monitor.step(event)]


def properties_of(text: str, **options: Any) -> list[str]:
    """The properties that a trace violates, in its order."""
    return [found.property for found in found_in(hosts_story(text, **options), bounded=False)]


# --- what hosts may do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "1:Join 2:Join Due 1:RS 1:REs Due 2:RS 2:REs",
        "1:Join 2:Join Due 1:RS 2:BY:1 2:RS 2:REs",  # a buried host's run is owed again
        "1:Join Due 1:RS 1:BY:1 2:Join 2:RS 2:REs",  # a host that is torn down buries itself
        "1:Join 2:Join Due 1:RS 1:REf RetryDue 2:RS 2:REs",
        "1:Join 2:Join 1:SS 1:SE Due 2:RS 2:REs",
        "1:Join 2:Join Due 1:RS 2:SS 2:SE 1:REs",  # a stop waits for the runs of its own host alone
        "1:Join 2:Join Due 1:RS 2:Override 1:REs Due 2:RS 2:REs",
        "1:Join 2:JoinOld Due 2:RS 2:REs",  # an outdated host serves what is unchanged
        "1:Join 2:Join 2:BY:1 3:Join 2:BY:3 4:Join Due 4:RS 4:REs",
        "1:Join 2:Join Due 1:RS 2:BY:1 2:RS 3:Join 3:BY:2 Rest 3:RS 3:REs",  # twice in a row: after a rest
    ],
)
def test_hosts_take_turns_and_take_over(text: str) -> None:
    """SPEC 9.3, 9.5, 9.10, 9.16, 9.19."""
    assert properties_of(text) == []
    assert violated_in_shared(hosts_story(text)) == {}


def test_the_joining_of_a_host_is_not_the_crash_of_another() -> None:
    """SPEC 9.5: nothing but a burial is; in an embedded store a boot is one."""
    monitor = Monitor(shared=True)
    for event in hosts_story("1:Join Due 1:RS 2:Join"):
        assert not monitor.step(event)
    assert monitor.registers.crashes == 0
    assert not monitor.obliged("x", Instant(monitor.registers.clock + HOUR))


def test_a_burial_interrupts_the_runs_of_that_host_alone() -> None:
    """SPEC 9.5: InterruptedPending is raised by the burial of the host that runs the task."""
    told = HostsStory(tasks="xy").tell("1:Join 2:Join 3:Join Due 1:RS:x 2:RS:y 3:BY:1")
    monitor = Monitor(shared=True)
    for event in told.events:
        assert not monitor.step(event)
    at = Instant(told.now)
    assert list(monitor.obligations(at)) == ["x"]
    assert monitor.registers.owed_since(monitor.registers.tasks["x"])[1] == "interrupted"
    assert monitor.registers.is_running(monitor.registers.tasks["y"])


def test_what_waits_does_not_start_again_after_a_burial() -> None:
    """SPEC 3.7: `interrupted="wait"` is read by all hosts."""
    assert properties_of("1:Join 2:Join Due 1:RS 2:BY:1 2:RS", mode="wait") == ["S2"]
    assert properties_of("1:Join 2:Join Due 1:RS 2:BY:1 Due 2:RS", mode="wait") == []


# --- each property, violated by a second host -------------------------------------------------------------------------

VIOLATED = {
    "S1": ("1:Join 2:Join Due 1:RS Due 2:RS", {"S1"}),
    "S2": ("1:Join 2:Join Due 1:RS 1:REs 2:RS", {"S2"}),
    "S2 not active": ("1:Join 2:BT 2:IS Due 2:RS", {"S2"}),
    "S2 stopping": ("1:Join 2:Join 2:SS Due 2:RS", {"S2"}),
    "S4": ("1:Join 2:Join 2:SS 2:SE Due 2:RS", {"S2", "S4", "EW"}),
    "S5": ("1:Join 2:Join Due 1:RS 2:SS 2:SE 2:REs@1", {"E2", "S5", "EW"}),
    "S5⁺": ("1:Join 2:Join Due 2:RS 2:SS 2:SE", {"S5⁺"}),
    "S6a": ("1:Join 2:Join 1:BY:2 Due 2:RS", {"S2", "S6a", "EW"}),
    "S6b": ("1:Join 2:Join Due 2:RS 1:BY:2 1:RS 2:REs@1", {"E2", "S6b", "EW"}),
    "E2": ("1:Join 2:Join Due 1:RS 2:REs@1", {"E2"}),
    "EW": ("1:Join 2:IS", {"EW"}),
}


@pytest.mark.parametrize("case", VIOLATED)
def test_a_second_host_can_violate_each_property(case: str) -> None:
    """The last event does it, by the monitor and by the formulas."""
    text, expected = VIOLATED[case]
    told = hosts_story(text)
    found = found_in(told, bounded=False)
    assert {each.property for each in found} == expected
    assert {each.seq for each in found} == {told[-1].seq}
    assert violated_in_shared(told) == dict.fromkeys(expected, told[-1].seq)


def test_every_safety_property_that_speaks_of_hosts_is_among_them() -> None:
    shown = {case.split()[0] for case in VIOLATED}
    assert set(SHARED_FORMULAS) - {"L2", "L3"} <= shown


def test_a_second_success_of_one_due_period_on_another_host_is_noticed() -> None:
    """S3 follows from E2, S1 and S2: it is violated where these were before."""
    told = hosts_story("1:Join 2:Join Due 1:RS 1:REs 2:RS 2:REs")
    assert [(each.property, each.seq) for each in found_in(told)] == [("S2", len(told) - 1), ("S3", len(told))]
    assert violated_in_shared(told) == {"S2": len(told) - 1, "S3": len(told)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1:Join 2:IS", "host 2 writes, but has not joined"),
        ("1:Join 2:RS", "host 2 writes, but has not joined"),
        ("1:Join 1:BT", "host 1 joins, but has joined already"),
        ("1:Join 2:IS 2:BT", "host 2 joins, but has written before"),
        ("1:Join 2:Join 1:BY:2 2:WK", "host 2 writes, but was buried"),
        ("1:Join 2:Join 1:BY:2 2:BT", "host 2 joins, but was buried"),
        ("1:Join 2:Join 1:BY:2 2:IS 2:IE", "host 2 writes, but was buried"),
        ("1:Join 2:Join 2:SS 2:SE 2:IS", "host 2 writes, but has left"),
        ("1:Join 2:Join 2:SS 2:SE 2:CK", "host 2 writes, but has left"),
        ("1:Join 1:BY:7", "host 7 is buried, but has not joined"),
        ("1:Join 1:BY:7 7:BT", "host 7 joins, but was buried"),
        ("1:Join 2:Join 1:BY:2 1:BY:2", "host 2 is buried, but was buried"),
        ("1:Join 2:Join 2:SS 2:SE 1:BY:2", "host 2 is buried, but has left"),
        ("1:Join 1:RN:7", "host 7 declares the set in force, but has not joined"),
        ("1:Join 2:Join 1:BY:2 1:RN:2", "host 2 declares the set in force, but was buried"),
        ("1:Join 7:BY:1", "host 7 writes, but has not joined"),
    ],
)
def test_a_host_that_is_not_there_writes_nothing(text: str, sentence: str) -> None:
    """SPEC 9.5, 9.19: a host joins once, and what it writes before that, or after it is gone, is a broken log."""
    told = hosts_story(text)
    found = [each for each in found_in(told, bounded=False) if each.property == "EW"]
    assert found[-1].seq == told[-1].seq
    assert found[-1].sentence == sentence
    assert violated_in_shared(told)["EW"] == found[0].seq


def test_a_host_may_bury_itself() -> None:
    """SPEC 9.19: one that is torn down without a stop does."""
    assert properties_of("1:Join Due 1:RS 1:BY:1") == []


def test_a_buried_host_does_not_come_back_by_initializing_again() -> None:
    """S6a: for ever, where an embedded store is opened again."""
    assert properties_of("1:Join 2:Join 1:BY:2 2:IS 2:IE Due 2:RS") == ["EW", "EW", "EW", "S2", "S6a"]


def test_each_host_counts_its_own_slots() -> None:
    """EW: `slots` is the number of runs that go on on this host."""
    told = HostsStory(tasks="xy").tell("1:Join 2:Join Due 1:RS:x 2:RS:y")
    assert found_in(told.events) == []
    wrong = [*told.events]
    last = wrong[-1].event
    assert isinstance(last, RS)
    wrong[-1] = HostEvent(2, last._replace(slots=1))
    (found,) = found_in(wrong)
    assert (found.property, found.sentence) == ("EW", "'y' starts with 1 slots in use, but 0 runs go on")


def test_a_violation_says_which_host_and_where_the_run_goes_on() -> None:
    (found,) = found_in(hosts_story("1:Join 2:Join Due 1:RS Due 2:RS"))
    assert found.sentence == "starts while run 1001 on host 1 has not ended"
    assert (found.registers["host"], found.registers["runHost"]) == (2, 1)


# --- editions ---------------------------------------------------------------------------------------------------------


def test_an_outdated_host_alone_owes_nothing() -> None:
    """SPEC 9.16, 9.17: what is in force is owed by hosts that declare it."""
    told = HostsStory().tell("1:Join 2:JoinOld Due")
    monitor = Monitor(shared=True)
    for event in told.events:
        monitor.step(event)
    at = Instant(told.now)
    assert monitor.obliged("x", at)
    told.tell("1:SS 1:SE")
    for event in told.events[-2:]:
        monitor.step(event)
    assert not monitor.obliged("x", at)


def test_a_host_whose_set_comes_back_serves_it_like_the_one_that_put_it_in_force() -> None:
    """SPEC 9.15: its edition is the one in force, so that what is due is owed although the other one leaves."""
    for text, owed in (("", []), ("1:RN:2 ", ["x"])):
        told = HostsStory().tell(f"1:Join 2:JoinOld {text}1:SS 1:SE Due")
        monitor = Monitor(shared=True)
        for event in told.events:
            assert not monitor.step(event)
        assert list(monitor.obligations(Instant(told.now))) == owed


def test_a_reinstated_edition_is_owed_by_all_of_its_hosts() -> None:
    """SPEC 9.17: the hosts that were outdated are so no longer."""
    told = HostsStory().tell("1:Join 2:JoinOld 3:JoinOld 1:SS 1:SE 2:IS")
    (_, declared), *_ = [each for each in told.events if isinstance(each.event, IE) and each.event.outdated]
    assert isinstance(declared, IE)
    told.add(2, IE, 2, 1, "", "restart", None, None, "UTC", declared.edition, False)
    told.tell("2:SS Due 3:WK")
    monitor = Monitor(shared=True)
    assert [found for event in told.events for found in monitor.step(event)] == []
    assert monitor.obliged("x", Instant(told.now))


def test_the_declared_set_of_an_outdated_host_is_not_compared() -> None:
    """Its tasks are not registered: the trace knows those in force."""
    told = hosts_story("1:Join 2:JoinOld")
    last = told[-1].event
    assert isinstance(last, IE)
    other = last._replace(declared=77, digest="0123456789abcdef", interrupted="wait")
    assert found_in([*told[:-1], HostEvent(2, other)]) == []
    (found,) = found_in([*told[:-1], HostEvent(2, other._replace(outdated=False))])
    assert found.sentence == "77 tasks are declared, but 1 are registered"


@pytest.mark.parametrize(
    ("text", "why"),
    [("1:BT 1:IS 1:IEold", "no other one is in force"), ("1:Join 2:BT 2:IS 2:IEold", "is in force")],
)
def test_an_edition_is_outdated_only_beside_another_one(text: str, why: str) -> None:
    told = hosts_story(text)
    last = told[-1].event
    assert isinstance(last, IE)
    (found,) = found_in([*told[:-1], HostEvent(told[-1].host, last._replace(edition=5, declared=0))])
    assert found.property == "EW"
    assert found.sentence == f"edition 5 is called outdated, but {why}"


# --- bounds -----------------------------------------------------------------------------------------------------------


def late(text: str, *more: tuple[int, int], tasks: str = "x") -> list[Violation]:
    """The findings if these hosts wake up this many seconds after the story."""
    told = HostsStory(tasks=tasks).tell(text)
    begun = told.now
    for host, second in more:
        told.now = begun + second * SECOND
        told.tell(f"{host}:WK")
    return found_in(told.events)


def awake(host: int, until: int) -> list[tuple[int, int]]:
    return [(host, second) for second in range(5, until, 30)]


def test_what_a_host_could_have_started_is_late_after_the_bound() -> None:
    """R1: the second host had compute and free slots, and let it wait."""
    (found,) = late("1:Join 2:Join 1:WK 2:WK Due", *awake(2, 100))
    assert (found.property, found.registers["host"]) == ("R1", 2)


def test_a_host_that_is_silent_is_not_late() -> None:
    """Only its own events show that it had compute: nobody accuses a dead host, or a frozen one."""
    assert late("1:Join 2:JoinOld 1:WK 2:WK Due", *awake(2, 600)) == []
    assert late("1:Join 2:JoinOld 1:WK 2:WK Due", *awake(2, 600), (1, 601)) == []
    (found,) = late("1:Join 2:JoinOld 1:WK 2:WK Due", *awake(2, 600), (1, 601), (1, 640), (1, 670))
    assert (found.property, found.registers["host"]) == ("R1", 1)


def test_the_bound_begins_anew_with_a_burial() -> None:
    """R2: an interrupted run has its bound from the burial on."""
    text = "1:Join 2:Join 2:WK Due 1:RS 2:WK 2:BY:1"
    assert late(text, *awake(2, 60)) == []
    (found,) = late(text, *awake(2, 100))
    assert (found.property, found.event) == ("R2", "WK")


def test_a_host_that_could_not_reach_the_store_is_not_late() -> None:
    """LR begins the bound anew, for its own host alone."""
    begun = "1:Join 2:JoinOld 1:WK 2:WK Due"
    assert [found.property for found in late(begun, *awake(1, 100))] == ["R1"]
    told = HostsStory().tell(begun)
    begun_at = told.now
    for second, word in ((5, "1:WK"), (40, "1:LR"), (95, "1:WK")):
        told.now = begun_at + second * SECOND
        told.tell(word)
    assert found_in(told.events) == []
    told.now += 10 * SECOND
    assert [found.property for found in found_in(told.tell("1:WK").events)] == ["R1"]
    assert properties_of("1:Join 2:Join 1:BY:2 2:LR") == ["EW"]


def test_an_end_that_is_written_late_counts_for_other_hosts_from_then_on() -> None:
    """Until its host reached the store again, nobody else could know that x may start."""
    told = HostsStory().tell("1:Join 2:Join Due 1:RS Due")
    due = told.now
    for second in range(5, 300, 30):
        told.now = due + second * SECOND
        told.tell("2:WK")
    written = told.now = due + 300 * SECOND
    told.tell("1:LR")
    told.now = due - 60 * SECOND  # the callback ended before x was due again
    told.tell("1:REs")
    told.now = written + 5 * SECOND
    told.tell("2:WK")
    told.now = written + 60 * SECOND
    assert judged(told.tell("2:WK").events) == []
    told.now = written + 61 * SECOND
    assert judged(told.tell("2:WK").events) == ["R1"]


def judged(told: list[HostEvent]) -> list[str]:
    """The properties that are violated, found event by event and in blocks."""
    found = [each.property for each in found_in(told)]
    report = check(io.BytesIO(in_segments(told, len(told))))
    assert [each.property for each in report.violations] == found
    return found


def test_the_bound_begins_anew_with_an_edition_that_comes_in_force() -> None:
    """SPEC 9.17: a reinstated edition owes what fell due before; a host that declared it all along is not late."""
    told = HostsStory().tell("1:Join 2:JoinOld 3:JoinOld Due")
    due = told.now
    told.tell("1:SS 1:SE 3:WK")
    for _ in range(3):
        told.now += 30 * SECOND
        told.tell("3:WK")
    told.tell("2:IS")
    told.add(2, RG, "x", 100, "overridden", "0 * * * *", 60_000, "UTC", Instant(due), "loop")
    old = next(event.event.edition for event in told.events if event.host == 2 and isinstance(event.event, IE))
    told.add(2, IE, 2, 1, "", "restart", None, None, "UTC", old, False)
    assert found_in(told.tell("3:WK").events) == []
    for _ in range(3):
        told.now += 30 * SECOND
        told.tell("3:WK")
    assert [found.property for found in found_in(told.events)] == ["R1"]


def test_a_stop_is_late_on_its_own_host() -> None:
    """L2ᵇ: another host that runs on does not excuse it, and its events do not accuse it."""
    text = "1:Join 2:Join 1:SS"
    (found,) = late(text, *awake(1, 100))
    assert (found.property, found.registers["host"]) == ("L2ᵇ", 1)
    assert late(text, *awake(2, 100)) == []


def test_the_clock_of_the_database_steps_for_all_hosts() -> None:
    """SPEC 9.11: one CK, written by the host that noticed it first."""
    told = HostsStory().tell("1:Join 2:Join Due 1:RS 1:REs")
    told.now -= 30 * SECOND
    told.add(2, CK, Instant(told.now + 30 * SECOND))
    told.tell("1:WK 2:WK")
    assert found_in(told.events) == []
    told.tell("2:RS")  # 12:59:30 again: the minute is served, and nothing is owed
    assert [found.property for found in found_in(told.events)] == ["S2"]


# --- verdicts, segments, witnesses ------------------------------------------------------------------------------------


def test_what_is_open_names_its_host() -> None:
    monitor = Monitor(shared=True)
    for event in hosts_story("1:Join 2:Join 1:SS 2:IS Due 2:WK"):
        monitor.step(event)
    verdicts = monitor.verdicts()
    assert [each.what for each in verdicts["L2"].open] == ["stop 2 of host 1"]
    assert [each.what for each in verdicts["L3"].open] == ["initialize 2 of host 2"]
    assert [each.what for each in verdicts["L1"].open] == ["x"]


LIFE = "1:Join 2:Join Due 1:RS 1:REf RetryDue 2:RS 3:JoinOld 1:BY:2 1:RS 1:REs 1:SS 1:IS 3:SS 3:SE Due 1:SE"


def test_a_shared_trace_in_segments_is_the_same_trace() -> None:
    """Wherever it is cut: the registers of all hosts go over into the next segment."""
    told = hosts_story(LIFE)
    whole = check(io.BytesIO(in_segments(told, len(told))), unsealed=True)
    for cut in range(1, len(told)):
        parts = check(io.BytesIO(in_segments(told, cut)), unsealed=True)
        assert (parts.verdicts, parts.events, parts.crashes) == (whole.verdicts, whole.events, whole.crashes)
        second = in_segments(told, cut).split(b'"}\n', 1)[1]  # the seal of the first ends so
        assert check(io.BytesIO(second), unsealed=True).verdicts == whole.verdicts


def in_segments(told: list[HostEvent], cut: int) -> bytes:
    lines: list[bytes] = []
    writer = Writer(lines.append, shared_header("s"))
    writer.add_all(told[:cut])
    monitor = Monitor(shared=True)
    for event in told[:cut]:
        monitor.step(event)
    if cut < len(told):
        writer.seal(clean=False)
        writer = Writer(lines.append, writer.following(monitor.snapshot().as_json()))
        writer.add_all(told[cut:])
    writer.seal(clean=False)
    return b"".join(lines)


def test_a_snapshot_of_a_shared_store_is_read_as_it_was_written() -> None:
    for length in range(len(hosts_story(LIFE))):
        monitor = Monitor(shared=True)
        for event in hosts_story(LIFE)[:length]:
            monitor.step(event)
        kept = monitor.snapshot().as_json()
        read = RegisterSnapshot.from_json(kept, SHARED_VERSION)
        assert read.is_shared
        assert read.as_json() == Monitor(read).snapshot().as_json() == kept


def test_a_trace_of_a_used_shared_store_begins_with_what_the_store_says() -> None:
    """Hosts that live are active, runs of hosts that are gone are interrupted, and the others go on."""
    monitor = Monitor(shared=True)
    for event in HostsStory(tasks="xy").tell("1:Join 2:Join 3:JoinOld Due 1:RS:x 2:RS:y 3:BY:1").events:
        monitor.step(event)
    rows, at = monitor.snapshot().tasks, Instant(monitor.registers.clock)
    begun = RegisterSnapshot.of_shared_store(
        rows, {2: HostStart(5), 3: HostStart(4)}, edition=5, restart=True, zone="Europe/Berlin", at=at
    )
    assert RegisterSnapshot.from_json(begun.as_json(), SHARED_VERSION) == begun
    monitor = Monitor(begun)
    assert list(monitor.obligations(at)) == ["x"]
    assert monitor.registers.zone.name == "Europe/Berlin"
    generation = monitor.registers.tasks["x"].generation
    assert monitor.step(HostEvent(3, RS(1, at, "x", generation, 3001, "interrupted", 0))) == []
    found = monitor.step(HostEvent(3, RS(2, at, "y", 2, 3002, "cron", 1)))
    assert [each.property for each in found] == ["S1", "S2"]
    assert found[0].sentence == "starts while run 2001 on host 2 has not ended"


def test_what_a_buried_host_starts_never_goes_on() -> None:
    """Whatever follows, the checker goes on: its runs take no slot, and no stop waits for them."""
    told = HostsStory().tell("1:Join 2:Join 1:BY:2 Due 2:RS 1:RS 2:SS 2:SE 1:REs 1:SS 1:SE")
    found = found_in(told.events, bounded=False)
    assert {each.property for each in found} == {"S2", "S6a", "EW"}


def snapshot() -> dict[str, Any]:
    monitor = Monitor(shared=True)
    for event in hosts_story(LIFE)[:-4]:
        monitor.step(event)
    return monitor.snapshot().as_json()


@pytest.mark.parametrize("value", [None, True, 0.5, "x", [], {}, [1], -1, 10**30])
def test_no_value_in_the_registers_of_a_host_does_harm(value: Any) -> None:
    """They are foreign input: read, or refused with a reason."""
    for place in ("scheduler", "hosts"):
        known = snapshot()["scheduler"]
        for name in known if place == "scheduler" else known["hosts"][0]:
            kept = snapshot()
            target = kept["scheduler"] if place == "scheduler" else kept["scheduler"]["hosts"][0]
            target[name] = value
            try:
                monitor = Monitor(RegisterSnapshot.from_json(kept, SHARED_VERSION))
            except ValueError as refused:
                assert "register snapshot" in str(refused) or "unknown time zone" in str(refused)  # noqa: PT017
            else:
                monitor.step(HostEvent(1, WK(1, Instant(0), 0)))
                monitor.verdicts()


def test_registers_of_hosts_that_cannot_be_are_refused() -> None:
    twice = snapshot()
    twice["scheduler"]["hosts"].append(twice["scheduler"]["hosts"][0])
    with pytest.raises(ValueError, match="names a host twice"):
        RegisterSnapshot.from_json(twice, SHARED_VERSION)
    with pytest.raises(ValueError, match="another type"):
        RegisterSnapshot.from_json(snapshot(), 2)
    with pytest.raises(ValueError, match="another type"):
        RegisterSnapshot.from_json(Monitor().snapshot().as_json(), SHARED_VERSION)


def test_a_monitor_takes_the_events_of_its_kind_of_store_alone() -> None:
    """An event without a host, or with one, would be judged by the wrong rules."""
    with pytest.raises(ValueError, match="a shared store, so its events name a host"):
        Monitor(shared=True).step(story("IS IE")[0])
    with pytest.raises(ValueError, match="one host, so no event names a host"):
        Monitor().step(hosts_story("1:Join")[0])
    with pytest.raises(ValueError, match="a shared store"):
        Monitor(shared=True).feed([])


def test_a_witness_keeps_the_hosts_that_matter() -> None:
    told = hosts_story("1:Join 2:Join 3:Join Due 3:RS 3:REs Due 1:RS 1:REs Due 1:RS 2:WK Due 2:RS")
    (violation,) = found_in(told)
    found = witness(told, violation)
    assert [(each.host, type(each.event).__name__) for each in found.events if isinstance(each, HostEvent)] == [
        (1, "BT"), (1, "IS"), (1, "RG"), (1, "IE"), (2, "BT"), (2, "IS"), (2, "IE"), (1, "RS"), (2, "RS"),
    ]  # fmt: skip
    assert "RS  host=2 task=x" in str(found).splitlines()[-1]


def test_a_shared_trace_is_read_back_and_judged_alike() -> None:
    """Through bytes, and fed in blocks, as one event after the other."""
    told = hosts_story("1:Join 2:Join Due 1:RS Due 2:RS 2:REs 1:REs 2:BY:1")
    data = in_segments(told, len(told))
    assert list(events(io.BytesIO(data))) == told
    report = check(io.BytesIO(data))
    assert [each.property for each in report.violations] == [each.property for each in found_in(told)] == ["S1"]
    assert report.verdicts["S1"].value is Value.VIOLATED
