"""The words in which a reader refuses a trace: which field, what was found, what was wanted; in bounded length."""

import io
import json
from typing import Any

import pytest

from duly.errors import TraceError
from duly.formal.monitor import Monitor
from duly.formal.reader import TraceReader, events
from duly.formal.trace import VERSIONS, Header, encode_header, line_of
from tests.formal.test_reader import ALL, LINES, written

HEADER = json.loads(LINES[0])


def told(data: bytes) -> str:
    """The text of the error; it is about the last line."""
    with pytest.raises(TraceError) as refused:
        list(TraceReader().read(io.BytesIO(data)))
    assert refused.value.details["fault"] == "malformed"
    assert refused.value.details["line"] == data.count(b"\n")
    return str(refused.value)


def event_with(letters: str, position: int, value: Any) -> bytes:
    """A trace whose last line is an event with another value there."""
    index = next(index for index, event in enumerate(ALL) if type(event).__name__ == letters)
    row = [*line_of(ALL[index])]
    row[position] = value
    return b"".join(LINES[: index + 1]) + json.dumps(row).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'["ABCDEFGHIJKLMNOPQRSTUVWXYZ",1]\n', "there is no event 'ABCDEFGHIJKLMNOPQRST'"),
        (b'["IS",1,2,3,4]\n', "IS has 3 fields (seq, at, call), not 4"),
        (b'["IS",1]\n', "IS has 3 fields (seq, at, call), not 1"),
        (b'["IS",1,2,"3"]\n', "call of IS is a string, not an integer"),
        (b'["IS",1,2,null]\n', "call of IS is null, not an integer"),
        (b'["IS",1,2,[]]\n', "call of IS is an array, not an integer"),
        (b'["IS",1,2,{}]\n', "call of IS is an object, not an integer"),
        (b'["IS",1,2,true]\n', "call of IS is true or false, not an integer"),
        (b'["IS",1.5,2,3]\n', "seq of IS is a number with a fraction or too large, not an integer"),
        (b'["RE",1,2,"x",4,5,6]\n', "ok of RE is an integer, not true or false"),
        (b'["BT",1,2,3,4]\n', "boot of BT is an integer, not a string"),
        (b'[1]\n', "the line is not an event: an array that begins with its letters"),
        (b'7\n', "the line is not an event: an array that begins with its letters"),
        (b'[]\n', "the line is not an event: an array that begins with its letters"),
        (b'{"seal":"shut"}\n', "the line is neither an event nor a header nor a seal"),
        (b'hello\n', "the line is not JSON: "),
    ],
)  # fmt: skip
def test_a_line_that_is_not_an_event_is_refused_for_its_form(line: bytes, reason: str) -> None:
    assert reason in told(LINES[0] + line)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (event_with("IE", 7, "3"), "max_concurrency of IE is a string, not an integer or null"),
        (event_with("IE", 8, 1.5), "threads of IE is a number with a fraction or too large, not an integer or null"),
        (event_with("IE", 4, -1), "declared is a number of tasks"),
        (event_with("RG", 3, ""), "a task has a name, and a delay that is not negative"),
        (event_with("RG", 7, -1), "a task has a name, and a delay that is not negative"),
        (event_with("RG", 5, "x" * 30), f"change '{'x' * 20}' is none of new, overridden, orphaned, preserved"),
        (event_with("RG", 10, "x" * 30), f"place '{'x' * 20}' is none of loop, thread"),
        (event_with("IE", 6, "x" * 30), f"interrupted '{'x' * 20}' is none of restart, wait"),
        (event_with("RS", 6, "x" * 30), f"cause '{'x' * 20}' is none of cron, retry, interrupted"),
        (event_with("RG", 9, 10**18), "known_since 1000000000000000000 is not a microsecond of the calendar"),
        (event_with("CK", 3, 10**18), "old 1000000000000000000 is not a microsecond of the calendar"),
        (event_with("WK", 2, -(10**18)), "at -1000000000000000000 is not a microsecond of the calendar"),
        (event_with("RG", 8, "Mars/Olympus"), "unknown time zone 'Mars/Olympus'"),
        (event_with("IE", 9, "Mars/Olympus"), "unknown time zone 'Mars/Olympus'"),
        (event_with("RG", 6, "* * * *"), "cron expression '* * * *' does not have 5 fields"),
    ],
)
def test_an_impossible_value_is_refused_with_its_field(data: bytes, reason: str) -> None:
    assert reason in told(data)


@pytest.mark.parametrize(("letters", "position", "value"), [("RG", 7, 0), ("IE", 4, 0), ("IE", 7, 5), ("IE", 8, None)])
def test_the_least_that_an_event_can_say_is_fine(letters: str, position: int, value: Any) -> None:
    """Zero milliseconds, zero tasks, a limit or null."""
    assert list(events(io.BytesIO(event_with(letters, position, value))))[-1][position - 1] == value


@pytest.mark.parametrize(("version", "hint"), [(VERSIONS[-1] + 1, "upgrade duly"), (0, None)])
def test_another_version_is_refused_with_a_hint(version: int, hint: str | None) -> None:
    """A newer version can be read by a newer duly, an older version by no duly."""
    with pytest.raises(TraceError) as refused:
        list(TraceReader().read(io.BytesIO(json.dumps({**HEADER, "version": version}).encode() + b"\n")))
    assert refused.value.details["fault"] == "version"
    assert refused.value.details.get("hint") == hint
    assert f"the trace has version {version}, this duly reads 1, 2 and 3" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("trace", "other", "the header is not that of a trace"),
        ("version", "1", "the header is not that of a trace"),
        ("scheduler", 1, "the header has fields of another type"),
        ("segment", "1", "the header has fields of another type"),
        ("segment", True, "the header has fields of another type"),
        ("first", 1.0, "the header has fields of another type"),
        ("previous", 1, "the header has fields of another type"),
        ("segment", 2, "a segment that is not the first begins with a register snapshot"),
        ("first", 2, "a segment that is not the first begins with a register snapshot"),
        ("registers", {"scheduler": {}, "tasks": []}, "the register snapshot has fields of another type"),
        ("registers", 1, "the register snapshot cannot be read"),
    ],
)
def test_a_wrong_header_is_refused_with_its_field(name: str, value: Any, reason: str) -> None:
    """By the reader alone, before any monitor is fed."""
    assert reason in told(json.dumps({**HEADER, name: value}).encode() + b"\n")


@pytest.mark.parametrize("name", sorted(set(HEADER) - {"trace", "version"}))
def test_a_header_that_lacks_a_field_is_refused_with_its_name(name: str) -> None:
    lacking = {key: value for key, value in HEADER.items() if key != name}
    assert f"the header lacks '{name}'" in told(json.dumps(lacking).encode() + b"\n")


def test_a_cut_line_is_reported_as_such() -> None:
    """Truncated, with a hint; a whole line that is not JSON is malformed."""
    with pytest.raises(TraceError) as refused:
        list(TraceReader().read(io.BytesIO(b"".join(LINES[:3]) + LINES[3][:-9])))
    assert (refused.value.details["fault"], refused.value.details["line"]) == ("truncated", 4)
    assert "judge it up to the line before" in str(refused.value.details["hint"])


def test_a_segment_says_what_it_does_not_follow() -> None:
    """Mixed: by its store, its number, or its first event."""
    first = written(ALL[:3])
    for change, reason in (
        ({"scheduler": "other"}, "scheduler is 'other', not 'store-1'"),
        ({"segment": 1}, "segment is 1, not 2"),
        ({"segment": 3}, "segment is 3, not 2"),
        ({"first": 1}, "first is 1, not 4"),
        ({"first": 5}, "first is 5, not 4"),
    ):
        fields: dict[str, Any] = {"scheduler": "store-1", "segment": 2, "first": 4, "previous": "0" * 64, **change}
        header = encode_header(Header(registers=Monitor().snapshot().as_json(), **fields))
        with pytest.raises(TraceError) as refused:
            list(TraceReader().read(io.BytesIO(first + header)))
        assert (refused.value.details["fault"], refused.value.details["line"]) == ("mixed", 5)
        assert reason in str(refused.value)
