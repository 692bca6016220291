"""Traces as bytes: what is written is read, and whatever is wrong is refused with its line."""

import importlib
import io
import json
from collections.abc import Callable

import pytest

from duly.core.moments import Delay, Instant
from duly.errors import TraceError
from duly.formal import reader
from duly.formal.checking import Checker, check
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.reader import Rows, TraceReader, events
from duly.formal.trace import (
    BT,
    CK,
    IE,
    IF,
    IS,
    RE,
    RG,
    RS,
    SE,
    SF,
    SS,
    WK,
    Event,
    Header,
    Seal,
    Writer,
    digest,
    encode,
)  # fmt: skip
from tests.conftest import require
from tests.formal.story import story

T = Instant(1_764_000_600_000_000)
ALL: list[Event] = [
    BT(1, T, "boot-1", 0),
    IS(2, T, 1),
    RG(3, T, "näme \"quoted\"\n\\", 7, "new", "0 * * * *", Delay(60_000), "Europe/Berlin", T, "thread"),
    IE(4, T, 1, 1, "", "restart", None, 36, "Europe/Berlin"),
    IS(5, T, 2),
    IF(6, T, 2, "ScheduleTaskError"),
    CK(7, T, Instant(T - 5)),
    WK(8, T, 12_345),
    RS(9, T, "näme \"quoted\"\n\\", 7, 1, "cron", 0),
    RE(10, T, "näme \"quoted\"\n\\", 7, 1, False),
    SF(11, T, 9, "StopSchedulerError"),
    SS(12, T, 3),
    SE(13, T, 3),
]  # fmt: skip


@pytest.fixture(params=["orjson", "json"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with both parsers, orjson and json."""
    require(request.param, 'pip install "duly[cli]"')
    loads = reader.standard_loads if request.param == "json" else importlib.import_module(request.param).loads
    monkeypatch.setattr(reader, "_loads", loads)


def written(trace: list[Event], *, clean: bool | None = None, header: Header | None = None) -> bytes:
    out = io.BytesIO()
    writer = Writer(out.write, header or Header("store-1", first=trace[0].seq if trace else 1))
    writer.add_all(trace)
    if clean is not None:
        writer.seal(clean=clean)
    return out.getvalue()


def fault(data: bytes) -> tuple[str, int]:
    """The kind of the fault that a reader finds, and its line."""
    with pytest.raises(TraceError) as caught:
        for _ in TraceReader().read(io.BytesIO(data)):
            pass
    return caught.value.details["fault"], caught.value.details["line"]


def test_what_is_written_is_read() -> None:
    """Every event of FORMAL A1, with names that JSON must escape."""
    back = list(events(io.BytesIO(written(ALL, clean=True))))
    assert back == ALL
    assert [type(event) for event in back] == [type(event) for event in ALL]


def test_the_bytes_are_always_the_same() -> None:
    """They are hashed, so there is one way to write a value: ASCII, no blanks, fields in the order of the class."""
    assert encode(ALL[8]) == (
        b'["RS",9,1764000600000000,"n\\u00e4me \\"quoted\\"\\n\\\\",7,1,"cron",0]\n'
    )  # fmt: skip
    assert written(ALL) == written(list(ALL))


def test_an_empty_segment_is_a_trace() -> None:
    parts = list(TraceReader().read(io.BytesIO(written([], clean=False))))
    assert [type(part) for part in parts] == [Header, Seal]


def test_blanks_between_values_are_accepted() -> None:
    """Traces may be written by hand."""
    data = written(ALL[:2]).replace(b",", b" ,\t ")
    assert list(events(io.BytesIO(data))) == ALL[:2]


def test_windows_line_ends_are_accepted() -> None:
    assert list(events(io.BytesIO(written(ALL[:2]).replace(b"\n", b"\r\n")))) == ALL[:2]


def test_long_traces_are_read_in_pieces_of_any_size() -> None:
    """Blocks end anywhere; what comes out is the same, and rows know their lines."""
    trace = [WK(n, T, n) for n in range(1, 2_000)]
    data = written([*trace], clean=False)
    for size in (1, 7, 100, 4_096, 1 << 20):

        class Slowly(io.BytesIO):
            def read(self, _: int | None = -1, /, size: int = size) -> bytes:
                return super().read(size)

        rows = [part for part in TraceReader().read(Slowly(data)) if isinstance(part, Rows)]
        assert sum(len(part.rows) for part in rows) == len(trace)
        assert all(part.line == part.rows[0][1] + 1 for part in rows)


LINES = written(ALL, clean=True).splitlines(keepends=True)


def edited(number: int, change: Callable[[bytes], bytes]) -> bytes:
    """The trace with one line changed, and its seal as it was."""
    return b"".join(change(line) if n == number else line for n, line in enumerate(LINES, 1))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", ("truncated", 1), id="nothing"),
        pytest.param(b"\n", ("malformed", 1), id="a blank line"),
        pytest.param(b"hello\n", ("malformed", 1), id="no JSON"),
        pytest.param(b"{}\n", ("malformed", 1), id="an object"),
        pytest.param(b"SQLite format 3\0" + bytes(100), ("malformed", 1), id="a store"),
        pytest.param(LINES[1], ("malformed", 1), id="no header"),
        pytest.param(LINES[0] + LINES[2], ("reordered", 2), id="first event missing"),
        pytest.param(b"".join([*LINES[:5], *LINES[6:]]), ("reordered", 6), id="a line missing"),
        pytest.param(b"".join([*LINES[:5], LINES[4], *LINES[5:]]), ("reordered", 6), id="a line twice"),
        pytest.param(b"".join([*LINES[:5], LINES[6], LINES[5], *LINES[7:]]), ("reordered", 6), id="two lines swapped"),
        pytest.param(b"".join(LINES[:10]) + LINES[10][:20], ("truncated", 11), id="cut within a line"),
        pytest.param(b"".join([*LINES[:13], LINES[14]]), ("truncated", 14), id="the last event missing"),
        pytest.param(b"".join([*LINES, LINES[1]]), ("mixed", 16), id="an event after the seal"),
        pytest.param(b"".join([*LINES, LINES[14]]), ("mixed", 16), id="two seals"),
        pytest.param(b"".join([*LINES, LINES[0]]), ("mixed", 16), id="the same segment again"),
        pytest.param(LINES[14], ("mixed", 1), id="a seal alone"),
        pytest.param(edited(9, lambda line: line.replace(b"12345", b"12346")), ("hash", 15), id="a number edited"),
        pytest.param(edited(1, lambda line: line.replace(b"store-1", b"store-2")), ("hash", 15), id="header edited"),
        pytest.param(edited(1, lambda line: line.replace(b'on":2', b'on":4')), ("version", 1), id="newer"),
        pytest.param(edited(1, lambda line: line.replace(b'on":2', b'on":"2"')), ("malformed", 1), id="version's type"),
        pytest.param(edited(1, lambda line: line.replace(b'ment":1', b'ment":2')), ("malformed", 1), id="no registers"),
        pytest.param(edited(1, lambda line: line.replace(b'"first":1,', b"")), ("malformed", 1), id="header lacks"),
        pytest.param(edited(3, lambda line: line.replace(b'"IS"', b'"XX"')), ("malformed", 3), id="unknown letters"),
        pytest.param(edited(3, lambda line: line.replace(b'"IS"', b'"Due"')), ("malformed", 3), id="a derived event"),
        pytest.param(edited(3, lambda line: line.replace(b"]", b",1]")), ("malformed", 3), id="a field too many"),
        pytest.param(edited(3, lambda line: line.replace(b",1]", b"]")), ("malformed", 3), id="a field too few"),
        pytest.param(edited(3, lambda line: line.replace(b",1]", b',"1"]')), ("malformed", 3), id="a string"),
        pytest.param(edited(3, lambda line: line.replace(b",1]", b",1.0]")), ("malformed", 3), id="a fraction"),
        pytest.param(edited(3, lambda line: line.replace(b",1]", b",true]")), ("malformed", 3), id="a truth value"),
        pytest.param(edited(3, lambda line: line.replace(b",1]", b",[1]]")), ("malformed", 3), id="an array inside"),
        pytest.param(edited(3, lambda line: b"3\n"), ("malformed", 3), id="a number alone"),
        pytest.param(edited(3, lambda line: b"[]\n"), ("malformed", 3), id="an empty array"),
        pytest.param(edited(3, lambda line: line[:-1] + line), ("malformed", 3), id="two events on a line"),
        pytest.param(edited(3, lambda line: b"\xff" + line), ("malformed", 3), id="not UTF-8"),
        pytest.param(edited(3, lambda line: line.replace(b"600", b"6" * 30)), ("malformed", 3), id="a huge number"),
        pytest.param(edited(4, lambda line: line.replace(b"0 * * * *", b"* * * *")), ("malformed", 4), id="cron"),
        pytest.param(edited(4, lambda line: line.replace(b"Europe", b"Mars")), ("malformed", 4), id="zone"),
        pytest.param(edited(4, lambda line: line.replace(b'"new"', b'"old"')), ("malformed", 4), id="change"),
        pytest.param(edited(4, lambda line: line.replace(b"thread", b"process")), ("malformed", 4), id="place"),
        pytest.param(edited(4, lambda line: line.replace(b",60000,", b",-1,")), ("malformed", 4), id="negative delay"),
        pytest.param(edited(5, lambda line: line.replace(b"restart", b"ignore")), ("malformed", 5), id="mode"),
        pytest.param(edited(10, lambda line: line.replace(b"cron", b"luck")), ("malformed", 10), id="cause"),
        pytest.param(edited(15, lambda line: line.replace(b"13", b"12")), ("truncated", 15), id="count"),
        pytest.param(edited(15, lambda line: b'{"seal":"clean"}\n'), ("malformed", 15), id="half a seal"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(data: bytes, expected: tuple[str, int]) -> None:
    """Malformed, truncated, reordered, mixed, other versions, other hashes: never a verdict."""
    assert fault(data) == expected


def test_rows_that_reach_over_lines_are_noticed_in_a_block() -> None:
    """Lines are parsed together; lines that are JSON only when joined are refused nevertheless."""
    good = [encode(WK(n, T, n)) for n in range(1, 6)]
    head = written([])
    assert fault(head + b"".join(good[:2]) + b'["WK",3,[1],\n[2],4]\n' + good[4])[0] == "malformed"
    assert fault(head + b"".join(good[:2]) + b'["WK",3,1]\n["WK]\n["]\n' + good[4])[0] == "malformed"
    assert fault(head + good[0][:-1] + b"," + good[1] + b'["WK",[3]\n[4]]\n')[0] == "malformed"


def test_every_cut_is_noticed() -> None:
    """A trace that is cut, within a line or between two, is refused; the part before a cut between two lines can be
    judged by a caller that knows that it has no end.
    """
    data = b"".join(LINES)
    for end in range(len(data) - 1):  # without its last newline the seal is whole
        with pytest.raises(TraceError):
            check(io.BytesIO(data[:end]))
        try:
            report = check(io.BytesIO(data[:end]), unsealed=True)
        except TraceError:
            continue
        assert not report.ended
        assert data[end - 1 : end] == b"\n" or data[end : end + 1] == b"\n"


def test_every_changed_byte_of_a_sealed_trace_is_noticed() -> None:
    """Bit rot and editors."""
    data = written(story("IS IE Due RS REs SS SE"), clean=True)
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(TraceError):
            check(io.BytesIO(bytes(changed)))


# --- segments ---------------------------------------------------------------------------------------------------------


def segments(trace: list[Event], *cuts: int, clean: bool = False) -> list[bytes]:
    """A trace in several segments, each beginning with the registers of a monitor."""
    monitor = Monitor()
    result = []
    header = Header("store-1")
    for begin, end in zip((0, *cuts), (*cuts, len(trace)), strict=True):
        out = io.BytesIO()
        writer = Writer(out.write, header)
        for event in trace[begin:end]:
            monitor.step(event)
            writer.add(event)
        writer.seal(clean=clean and end == len(trace))
        header = writer.following(monitor.snapshot().as_json())
        result.append(out.getvalue())
    return result


LONG = story("IS IE Due RS REs Due RS REf RetryDue RS Crash IS IE RS REs Due RS SS REs SE")


def test_a_trace_in_segments_is_judged_as_a_whole() -> None:
    """Rotation does not change a verdict."""
    whole = check(io.BytesIO(written(LONG, clean=True)))
    parts = segments(LONG, 5, 9, 14, clean=True)
    in_parts = check([io.BytesIO(part) for part in parts])
    assert in_parts.verdicts == whole.verdicts
    assert in_parts.ended
    assert {verdict.value for verdict in whole.verdicts.values()} == {Value.SATISFIED}
    assert check(io.BytesIO(b"".join(parts))).segments == 4


@pytest.mark.parametrize("wrong", ["RS", "REs", "SE", "Due RS RS"])
def test_a_segment_alone_is_judged_as_exactly(wrong: str) -> None:
    """FORMAL A1: whatever is wrong in the last segment is found without the ones before."""
    trace = story("IS IE Due RS REs Due RS REf RetryDue RS Crash IS IE RS REs " + wrong)
    whole = check(io.BytesIO(written(trace, clean=False)))
    for cut in range(1, len(trace)):
        alone = check(io.BytesIO(segments(trace, cut)[1]))
        assert alone.verdicts == whole.verdicts
        assert alone.first_segment == 2


def test_segments_that_do_not_follow_each_other_are_refused() -> None:
    """One left out, one twice, the order changed, one of another store, one edited and sealed again."""
    first, second, third = segments(LONG, 5, 9)
    other = written(LONG[:5], clean=False, header=Header("store-2"))
    forged = written(story("IS IE Due RS REf")[:5], clean=False)

    def kind(*parts: bytes) -> str:
        with pytest.raises(TraceError) as caught:
            check([io.BytesIO(part) for part in parts])
        return str(caught.value.details["fault"])

    assert kind(first, third) == "mixed"
    assert kind(first, second, second) == "mixed"
    assert kind(third, second) == "mixed"
    assert kind(other, second) == "mixed"
    assert kind(forged[: forged.rindex(b"{")].replace(b"1764", b"1765", 1), second) == "hash"


def test_registers_that_do_not_follow_are_refused() -> None:
    """A snapshot that hides an obligation is found out when the segment before is there."""
    first, second = segments(LONG, 5)
    header, rest = second.split(b"\n", 1)
    value = json.loads(header)
    value["registers"]["scheduler"]["active"] = False
    forged = json.dumps(value).encode() + b"\n" + rest[: rest.rindex(b"{")]
    with pytest.raises(TraceError, match="registers"):
        check([io.BytesIO(first), io.BytesIO(forged)])


@pytest.mark.parametrize("registers", [[], {}, {"scheduler": {}, "tasks": [[1]]}, {"scheduler": {}, "tasks": []}, "x"])
def test_registers_that_cannot_be_read_are_refused(registers: object) -> None:
    header = json.loads(LINES[0])
    header["registers"] = registers
    with pytest.raises(TraceError) as caught:
        check(io.BytesIO(json.dumps(header).encode() + b"\n"))
    assert caught.value.details["fault"] == "malformed"


@pytest.mark.parametrize("value", [{}, 1.5, [["x"]]])
def test_every_register_of_another_type_is_refused_with_its_line(value: object) -> None:
    """A header with arbitrary registers leads neither to a crash nor to a verdict."""
    _, second = segments(LONG, 5)
    for name in sorted(Monitor().snapshot().as_json()["scheduler"]):
        header = json.loads(second.split(b"\n", 1)[0])
        header["registers"]["scheduler"][name] = value
        with pytest.raises(TraceError) as caught:
            check(io.BytesIO(json.dumps(header).encode() + b"\n"))
        assert (caught.value.details["fault"], caught.value.details["line"]) == ("malformed", 1), name


def test_registers_of_another_position_are_refused() -> None:
    """Registers name the event up to which they were kept; a segment that does not follow it is refused."""
    _, second = segments(LONG, 5)
    header = json.loads(second.split(b"\n", 1)[0])
    header["registers"]["scheduler"]["seq"] -= 1
    with pytest.raises(TraceError) as caught:
        check(io.BytesIO(json.dumps(header).encode() + b"\n"))
    assert (caught.value.details["fault"], caught.value.details["line"]) == ("registers", 1)


def test_errors_name_the_line_of_their_own_source() -> None:
    """Lines are counted anew in every file."""
    first, second = segments(LONG, 5)
    checker = Checker()
    checker.take(io.BytesIO(first))
    with pytest.raises(TraceError) as caught:
        checker.take(io.BytesIO(second.replace(b'"active":true', b'"active":false', 1)))
    assert (caught.value.details["fault"], caught.value.details["line"]) == ("registers", 1)


def test_a_clean_seal_over_a_run_that_goes_on_is_judged_and_does_not_end_the_trace() -> None:
    """S5⁺ is violated by such a stop; the seal does not make the evidence invalid."""
    report = check(io.BytesIO(written(story("IS IE Due RS SS SE"), clean=True)))
    assert report.verdicts["S5⁺"].value is Value.VIOLATED
    assert not report.ended
    assert report.sealed


def test_whether_the_end_has_its_seal_is_reported() -> None:
    """Without a seal, lines may be missing at the end: only a caller that says so gets a verdict."""
    assert check(io.BytesIO(written(LONG, clean=False))).sealed
    assert not check(io.BytesIO(written(LONG)), unsealed=True).sealed
    with pytest.raises(TraceError, match="without a seal") as refused:
        check(io.BytesIO(written(LONG)))
    assert refused.value.details["fault"] == "truncated"
    assert refused.value.details["line"] == len(LONG) + 1
    assert "unsealed=True" in str(refused.value.details["hint"])


def test_a_clean_seal_wants_a_completed_stop() -> None:
    """Only then has the trace ended, and what is pending is violated."""
    with pytest.raises(TraceError):
        check(io.BytesIO(written(story("IS IE Due RS"), clean=True)))


def test_a_writer_leaves_no_gap() -> None:
    writer = Writer(io.BytesIO().write, Header("store-1"))
    with pytest.raises(ValueError, match="seq"):
        writer.add(WK(2, T, 0))


def test_the_digest_does_not_depend_on_the_order() -> None:
    tasks = [("a", 1, "* * * * *", 0), ("b", 2, "0 * * * *", 60_000)]
    assert digest(tasks) == digest(tasks[::-1])
    assert digest(tasks) != digest(tasks[:1])
