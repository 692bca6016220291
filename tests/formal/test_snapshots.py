"""A register snapshot in a header is foreign input: read as it was written, or refused with the line it stands in."""

import copy
import io
import json
from typing import Any

import pytest

from duly.core.moments import LAST_INSTANT, Instant
from duly.errors import TraceError
from duly.formal.checking import check
from duly.formal.monitor import Monitor
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import BT, IE, IS, SS, WK, Header, encode, encode_header
from tests.formal.story import story

WRONG: tuple[Any, ...] = (None, True, 0.5, "x", [], {}, [1], -1, 10**30, LAST_INSTANT + 1, -(2**62))


STORY = story("IS IE Due RS:x RS:y REf:y Crash IS IE SS IS", tasks="xy")
EVENTS = len(STORY)
OPTIONAL = ("stepped_to", "limit", "pool")


def snapshot() -> dict[str, Any]:
    """Of a scheduler with an open stop, an open initialize, one task that runs and one whose retry is pending."""
    monitor = Monitor()
    for event in STORY:
        monitor.step(event)
    return monitor.snapshot().as_json()


def judged(registers: Any) -> None:
    """A short trace that begins with these registers."""
    first = EVENTS + 1
    header = encode_header(Header("s", segment=2, previous="0" * 64, first=first, registers=registers))
    clock = registers["scheduler"]["clock"]
    moment = Instant(clock if type(clock) is int and 0 <= clock < LAST_INSTANT else 0)
    check(io.BytesIO(header + encode(WK(first, moment, 0)) + encode(SS(first + 1, moment, 9))), unsealed=True)


def test_a_snapshot_is_read_as_it_was_written() -> None:
    """Through JSON and back it is equal, and a monitor that begins with it writes it again."""
    registers = snapshot()
    again = json.loads(json.dumps(registers))
    assert RegisterSnapshot.from_json(again).as_json() == registers
    assert Monitor(RegisterSnapshot.from_json(again)).snapshot().as_json() == registers
    judged(registers)


@pytest.mark.parametrize("name", sorted(snapshot()["scheduler"]))
def test_no_value_of_a_register_does_harm(name: str) -> None:
    """Whatever stands there, the trace is judged, or refused in its first line."""
    registers = snapshot()
    right = type(registers["scheduler"][name])
    for value in WRONG:
        changed = copy.deepcopy(registers)
        changed["scheduler"][name] = value
        if type(value) is not right and not (name in OPTIONAL and type(value) in (int, type(None))):
            with pytest.raises(ValueError, match="register snapshot"):
                RegisterSnapshot.from_json(changed)
        try:
            judged(changed)
        except TraceError as refusal:
            assert refusal.details["line"] in (1, 2)  # noqa: PT017 - it may also be accepted


@pytest.mark.parametrize("column", range(20))
def test_no_value_in_a_tasks_row_does_harm(column: int) -> None:
    """Each register of a task, with a value of another type or out of its range."""
    registers = snapshot()
    for value in WRONG:
        changed = copy.deepcopy(registers)
        changed["tasks"][0][column] = value
        try:
            judged(changed)
        except TraceError as refusal:
            assert refusal.details["line"] in (1, 2)  # noqa: PT017 - it may also be accepted
    for shorter in (registers["tasks"][0][:-1], [*registers["tasks"][0], 1]):
        with pytest.raises(ValueError, match="cannot be read"):
            RegisterSnapshot.from_json({**registers, "tasks": [shorter]})


@pytest.mark.parametrize("name", ["stops", "inits", "overlapped"])
def test_a_list_of_something_else_is_refused(name: str) -> None:
    """Open calls and overlapped runs are rows of three, of their types."""
    wrong: list[Any] = [[["x", "y", "z"]], [[1, 1]], [1], {}, "x", [[True, 1, 1]], [[1, 1, 1, 1]]]
    for rows in wrong:
        registers = snapshot()
        registers["scheduler"][name] = rows
        with pytest.raises(ValueError, match="another type"):
            RegisterSnapshot.from_json(registers)


def test_fields_that_are_missing_or_too_many_are_refused() -> None:
    """A snapshot with another set of registers is refused."""
    for name in snapshot()["scheduler"]:
        registers = snapshot()
        del registers["scheduler"][name]
        with pytest.raises(ValueError, match="another type"):
            RegisterSnapshot.from_json(registers)
    registers = snapshot()
    registers["scheduler"]["more"] = 1
    with pytest.raises(ValueError, match="another type"):
        RegisterSnapshot.from_json(registers)
    wholes: list[Any] = [None, [], "x", {"tasks": []}, {"scheduler": {}}, {"scheduler": {}, "tasks": 1}]
    for whole in wholes:
        with pytest.raises(ValueError, match="register snapshot"):
            RegisterSnapshot.from_json(whole)


def test_a_task_that_is_named_twice_is_refused() -> None:
    """It would be unclear which of the two is meant."""
    registers = snapshot()
    registers["tasks"].append(registers["tasks"][0])
    with pytest.raises(ValueError, match="names a task twice"):
        RegisterSnapshot.from_json(registers)


def test_a_stop_that_completes_too_early_names_the_task_that_runs() -> None:
    """S5⁺: of several tasks, the one whose run has not ended, not the first one."""
    monitor = Monitor()
    found = [each for event in story("IS IE Due RS:x REs:x RS:y SS SE", tasks="xy") for each in monitor.step(event)]
    assert [(each.property, each.task) for each in found] == [("S5⁺", "y")]


def test_the_registers_of_a_trace_that_has_not_begun() -> None:
    """A segment after an empty one begins with these; nothing is active, nothing is open, every limit is absent."""
    assert Monitor().snapshot().as_json() == {
        "scheduler": {
            "active": False,
            "active_since": 0,
            "boot": "",
            "boot_at": 0,
            "boot_seq": 0,
            "booted": False,
            "clock": 0,
            "compute_since": 0,
            "crashed": False,
            "epoch": 0,
            "free_threads_since": 0,
            "free_total_since": 0,
            "inits": [],
            "latest": 0,
            "limit": None,
            "overlapped": [],
            "pool": None,
            "quiet": False,
            "restart": True,
            "seq": 0,
            "stepped_to": None,
            "stops": [],
            "zone": "UTC",
        },
        "tasks": [],
    }


@pytest.mark.parametrize(("text", "crashed"), [("IS IE Due RS", True), ("IS IE Due RS REs SS SE", False)])
def test_a_trace_of_a_used_store_begins_with_what_the_store_says(text: str, crashed: bool) -> None:
    """SPEC 3.7: the boot with which it begins finds a crash, or a store that was closed."""
    monitor = Monitor()
    for event in story(text):
        monitor.step(event)
    begun = RegisterSnapshot.of_stored(monitor.snapshot().tasks, crashed=crashed, zone="Europe/Berlin")
    empty = Monitor().snapshot().scheduler
    assert begun.scheduler == {**empty, "booted": True, "quiet": not crashed, "zone": "Europe/Berlin"}
    assert RegisterSnapshot.from_json(begun.as_json()) == begun
    monitor = Monitor(begun)
    at = Instant(begun.tasks[0].started + 1)
    assert monitor.step(BT(1, at, "boot-9", 0)) == []
    assert monitor.registers.crashes == crashed
    monitor.step(IS(2, at, 1))
    monitor.step(IE(3, at, 1, 1, "", "restart", None, None, "Europe/Berlin"))
    assert monitor.obliged("x", at) is crashed
