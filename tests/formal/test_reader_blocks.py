"""Long traces are read in blocks of lines, and whatever is wrong is found in the line in which it stands."""

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant
from duly.errors import TraceError
from duly.formal import reader
from duly.formal.checking import Checker
from duly.formal.reader import Rows, TraceReader
from duly.formal.trace import RE, RS, WK, Event, Header, Writer, encode, encode_header, line_of
from tests.conftest import require

T = 1_764_000_600_000_000
FIRST_INSTANT = -62_135_596_800 * MICROSECONDS
PAIRS = 60
HEAD = encode_header(Header("store"))


class Chunks:
    """A source that gives these chunks, one at a time."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)
        self.reads = 0

    def read(self, _size: int, /) -> bytes:
        self.reads += bool(self._chunks)
        return self._chunks.pop(0) if self._chunks else b""


def long_trace() -> list[Event]:
    """Starts and ends, and now and then a wake-up."""
    trace: list[Event] = []
    for run in range(1, PAIRS + 1):
        trace.append(RS(len(trace) + 1, Instant(T + run), f"task {run % 7}", 1, run, "cron", 0))
        trace.append(RE(len(trace) + 1, Instant(T + run), f"task {run % 7}", 1, run, run % 3 > 0))
        if run % 20 == 0:
            trace.append(WK(len(trace) + 1, Instant(T + run), run))
    return trace


def written(trace: list[Event], *, sealed: bool = True) -> bytes:
    lines: list[bytes] = []
    writer = Writer(lines.append, Header("store"))
    writer.add_all(trace)
    if sealed:
        writer.seal(clean=False)
    return b"".join(lines)


TRACE = long_trace()
LINES = written(TRACE).splitlines(keepends=True)


def refused(*chunks: bytes) -> tuple[str, int, str]:
    """The fault that a reader finds, its line, and the reason."""
    with pytest.raises(TraceError) as caught:
        list(TraceReader().read(Chunks(*chunks)))
    details = caught.value.details
    return str(details["fault"]), int(str(details["line"])), str(caught.value)


@pytest.fixture(params=["orjson", "json"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with both parsers, orjson and json."""
    require(request.param, 'pip install "duly[cli]"')
    loads = reader.standard_loads if request.param == "json" else importlib.import_module(request.param).loads
    monkeypatch.setattr(reader, "_loads", loads)


def test_a_long_trace_is_read_whole() -> None:
    """With its seal, which counts and hashes all blocks; rows know their lines."""
    read = TraceReader()
    parts = list(read.read(Chunks(b"".join(LINES[:50]), b"".join(LINES[50:-1]), LINES[-1])))
    rows = [part for part in parts if isinstance(part, Rows)]
    assert [tuple(row[1:]) for part in rows for row in part.rows] == [tuple(event) for event in TRACE]
    assert all(part.line == part.rows[0][1] + 1 for part in rows)
    assert read.line == len(LINES)
    assert [len(part.rows) for part in rows] == [1] * 49 + [len(TRACE) - 49]


def test_what_is_ordinary_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise only the speed would suffer, which no other test notices."""
    calls = {"loads": 0, "check": 0}
    loads, check = reader._loads, reader._check_one

    def counted_loads(data: bytes) -> Any:
        calls["loads"] += 1
        return loads(data)

    def counted_check(row: Any, line: int, form: Any) -> None:
        calls["check"] += 1
        check(row, line, form)

    monkeypatch.setattr(reader, "_loads", counted_loads)
    monkeypatch.setattr(reader, "_check_one", counted_check)
    source = Chunks(b"".join(LINES[:3]), b"".join(LINES[3:70]), b"".join(LINES[70:-1]))
    list(TraceReader().read(source))
    assert source.reads == 3
    assert calls["loads"] == 2 + 1 + 1  # the events of the header's block one by one, the others at once
    assert calls["check"] == sum(isinstance(event, WK) for event in TRACE)


@pytest.mark.parametrize("cut", [1, 5, 70, 110])
def test_lines_are_counted_over_blocks(cut: int) -> None:
    """A seal that counts wrongly is refused in its own line, wherever blocks end."""
    wrong = LINES[-1].replace(b'"count":%d' % len(TRACE), b'"count":1')
    found = refused(b"".join(LINES[:cut]), b"".join(LINES[cut:-1]), wrong)
    assert found[:2] == ("truncated", len(LINES))
    changed = [line.replace(b"task", b"tusk") if n == 115 else line for n, line in enumerate(LINES)]
    assert changed != LINES
    assert refused(b"".join(changed[:cut]), b"".join(changed[cut:]))[:2] == ("hash", len(LINES))


# --- one wrong event in a block ---------------------------------------------------------------------------------------


def with_row(index: int, change: Callable[[list[Any]], object]) -> tuple[bytes, bytes]:
    """The header, and all events as one block, with one of them changed."""
    event = TRACE[index]
    row: list[Any] = [*line_of(event)]
    change(row)
    line = json.dumps(row).encode() + b"\n"
    return HEAD, b"".join([*LINES[1 : index + 1], line, *LINES[index + 2 : -1]])


def assign(position: int, value: Any) -> Callable[[list[Any]], object]:
    return lambda row: row.__setitem__(position, value)


START, END, WAKE = 82, 83, 81


def fields(indexes: tuple[int, ...], position: int, *values: Any) -> list[tuple[int, int, Any]]:
    return [(index, position, value) for index in indexes for value in values]


WRONG = [
    *fields((START, END, WAKE), 1, "85", None, True, [], 82.5),
    *fields((START, END), 2, "1", None, True, 1.0, []),
    *fields((START, END, WAKE), 2, FIRST_INSTANT - 1, LAST_INSTANT + 1),
    *fields((START, END), 3, 1, None, True, ["x"]),
    *fields((START, END), 4, "1", None, True, 1.5),
    *fields((START, END), 5, "1", None, False, 1.5),
    *fields((START,), 6, "luck", None, 1, [], {}),
    *fields((START,), 7, "0", None, True, 0.5),
    *fields((END,), 6, 1, 0, None, "true", []),
]


def test_the_events_that_are_changed_are_what_they_are_taken_for() -> None:
    assert [type(TRACE[index]) for index in (START, END, WAKE)] == [RS, RE, WK]


def test_a_wrong_field_in_a_block_is_refused_in_its_line() -> None:
    """Whatever field it is."""
    for index, position, value in WRONG:
        found = refused(*with_row(index, assign(position, value)))
        assert found[:2] == ("malformed", index + 2), (index, position, value)


@pytest.mark.parametrize("index", [START, END])
def test_the_number_of_an_event_is_an_integer(index: int) -> None:
    """83.0 is equal to 83, and is not an integer."""
    found = refused(*with_row(index, assign(1, float(TRACE[index].seq))))
    assert found[:2] == ("malformed", index + 2)


@pytest.mark.parametrize("index", [START, END, WAKE])
@pytest.mark.parametrize("change", [lambda row: row.append(1), lambda row: row.pop(), lambda row: row.clear()])
def test_fields_too_many_or_too_few_in_a_block_are_refused(index: int, change: Callable[[list[Any]], object]) -> None:
    assert refused(*with_row(index, change))[:2] == ("malformed", index + 2)


@pytest.mark.parametrize("index", [START, END])
@pytest.mark.parametrize("moment", [FIRST_INSTANT, LAST_INSTANT])
def test_the_ends_of_the_calendar_are_fine_in_a_block(index: int, moment: int) -> None:
    """Instants at both ends of the calendar do not make a block be checked twice."""
    read = [
        row
        for part in TraceReader().read(Chunks(*with_row(index, assign(2, moment))))
        for row in getattr(part, "rows", ())
    ]
    assert read[index][2] == moment


@pytest.mark.parametrize("index", [0, START, END, WAKE, len(TRACE) - 1])
@pytest.mark.parametrize(("by", "why"), [
    (1, "1 event is missing, or comes later"),
    (5, "5 events are missing, or come later"),
    (-1, "a line was moved, repeated, or belongs to another trace"),
    (-70, "a line was moved, repeated, or belongs to another trace"),
])  # fmt: skip
def test_a_wrong_number_in_a_block_is_reported_with_the_one_before(index: int, by: int, why: str) -> None:
    """Reordered: what was found, after what, and what that means."""
    seq = TRACE[index].seq
    fault, line, reason = refused(*with_row(index, assign(1, seq + by)))
    assert (fault, line) == ("reordered", index + 2)
    assert f"event {seq + by} follows event {seq - 1}: {why}" in reason


def test_numbers_go_on_over_blocks() -> None:
    """The first event of a block follows the last of the one before."""
    for cut in (2, 81, 82, 100):
        fault, line, reason = refused(b"".join(LINES[:cut]), b"".join(LINES[cut + 1 :]))
        assert (fault, line) == ("reordered", cut + 1)
        assert f"event {cut + 1} follows event {cut - 1}: 1 event is missing" in reason


# --- blocks that only look like lines of events -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "line"),
    [
        (b'["WK",1,%d,1],["WK",2\n%d,2]\n' % (T, T), 2),  # joined by a comma these are two events, in two lines
        (b'["WK",1,%d,1],["WK",2,%d,2]\n' % (T, T), 2),
        (b'["WK",1,%d,1],["WK",2,%d,2]\n["WK",3,[1]\n4]\n' % (T, T), 2),
        (b'["WK",1,%d,1]\n["WK",2,%d,[2]\n3]\n' % (T, T), 3),
        (b'["WK",1,%d,1]\n\n' % T, 3),
        (b'["WK",1,%d,1]\n]\n' % T, 3),
        (b'["WK",1,%d,1]\n1\n' % T, 3),
    ],
)
def test_every_line_is_an_event_of_its_own(block: bytes, line: int) -> None:
    """Lines that are JSON only together with their neighbours are refused."""
    fault, found, _ = refused(HEAD, block)
    assert fault == "malformed"
    assert found >= line


def test_a_block_of_events_needs_a_segment_to_belong_to() -> None:
    """Not before a header, and not after a seal."""
    events = b"".join(encode(each) for each in TRACE[:5])
    assert refused(events, HEAD)[:2] == ("malformed", 1)
    sealed = written(TRACE[:5])
    more = b"".join(encode(each) for each in TRACE[5:9])
    assert refused(sealed, more)[:2] == ("mixed", 8)


def test_blocks_without_a_last_newline_and_with_others_are_read() -> None:
    """Traces may be written by hand; the last line may lack its end."""
    block = b"".join(encode(each) for each in TRACE[:5])
    for variant in (block[:-1], block.replace(b"\n", b"\r\n"), block.replace(b"]\n", b"] \n"), b" " + block):
        rows = [part for part in TraceReader().read(Chunks(HEAD, variant)) if isinstance(part, Rows)]
        assert sum(len(part.rows) for part in rows) == 5


@pytest.mark.parametrize("size", [1, 2, 50, 51, 52, 53, 54, 1_000])
def test_a_block_may_end_within_a_line(size: int) -> None:
    """The rest of a line comes with the next chunk."""
    data = b"".join(LINES)
    source = Chunks(*(data[begin : begin + size] for begin in range(0, len(data), size)))
    rows = [row for part in TraceReader().read(source) if isinstance(part, Rows) for row in part.rows]
    assert [tuple(row[1:]) for row in rows] == [tuple(event) for event in TRACE]


def test_nothing_has_been_read_at_first() -> None:
    """An error before the first line names line 1."""
    assert Checker().line == TraceReader().line == 0
