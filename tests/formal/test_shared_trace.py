"""The trace of a shared store as bytes: what is written is read, and a wrong line is refused with what is wrong."""

import importlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.moments import Delay, Instant
from duly.errors import TraceError
from duly.formal import reader
from duly.formal.checking import check
from duly.formal.reader import Rows, TraceReader, events
from duly.formal.trace import (
    BT,
    BY,
    CK,
    IE,
    IF,
    IS,
    LR,
    RE,
    RG,
    RN,
    RS,
    SE,
    SF,
    SHARED_VERSION,
    SS,
    UNNUMBERED,
    WK,
    Header,
    HostEvent,
    Writer,
    encode,
    encode_header,
    encode_shared_row,
    line_of,
    numbered,
    row_of,
    shared_header,
    shared_lines,
)
from tests.conftest import require
from tests.formal.hosts import hosts_story
from tests.formal.story import story

T = Instant(1_764_000_600_000_000)
NAME = "näme \"quoted\"\n\\"  # fmt: skip
ALL = [
    HostEvent(1, BT(1, T, "boot-1", 0)),
    HostEvent(1, IS(2, T, 1)),
    HostEvent(1, RG(3, T, NAME, 7, "new", "0 * * * *", Delay(60_000), "Europe/Berlin", T, "thread")),
    HostEvent(1, IE(4, T, 1, 1, "", "restart", None, 36, "Europe/Berlin", 3, False)),
    HostEvent(2, BT(5, T, "boot-2", 0)),
    HostEvent(2, IS(6, T, 1)),
    HostEvent(2, IE(7, T, 1, 1, "", "restart", 4, None, "Europe/Berlin", 2, True)),
    HostEvent(2, IS(8, T, 2)),
    HostEvent(2, IF(9, T, 2, "ScheduleTaskError")),
    HostEvent(1, CK(10, T, Instant(T - 5))),
    HostEvent(2, WK(11, T, 12_345)),
    HostEvent(1, RS(12, T, NAME, 7, 1, "cron", 0)),
    HostEvent(1, RE(13, T, NAME, 7, 1, False)),
    HostEvent(2, SF(14, T, 9, "StopSchedulerError")),
    HostEvent(2, BY(15, T, 1)),
    HostEvent(2, SS(16, T, 3)),
    HostEvent(2, SE(17, T, 3)),
    HostEvent(2, LR(18, T)),
    HostEvent(2, RN(19, T, 1)),
]


@pytest.fixture(params=["orjson", "json"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that asks for this runs with both parsers, orjson and json."""
    require(request.param, 'pip install "duly[cli]"')
    loads = reader.standard_loads if request.param == "json" else importlib.import_module(request.param).loads
    monkeypatch.setattr(reader, "_loads", loads)


def written(trace: list[HostEvent], *, clean: bool | None = None) -> bytes:
    out = io.BytesIO()
    writer = Writer(out.write, shared_header("shared store"))
    writer.add_all(trace)
    if clean is not None:
        writer.seal(clean=clean)
    return out.getvalue()


def refusal(data: bytes) -> TraceError:
    with pytest.raises(TraceError) as caught:
        for _ in TraceReader().read(io.BytesIO(data)):
            pass
    return caught.value


@pytest.mark.usefixtures("parser")
def test_what_hosts_write_is_read() -> None:
    """SPEC 9.3: every event has the key of its host, and names are escaped as in an embedded store."""
    back = list(events(io.BytesIO(written(ALL, clean=True))))
    assert back == ALL
    assert all(isinstance(each, HostEvent) for each in back)


def test_the_host_stands_after_the_instant_and_the_edition_at_the_end_of_ie() -> None:
    """docs/formal.md: the form of version 3."""
    assert encode(ALL[3]) == (
        b'["IE",4,1764000600000000,1,1,1,"","restart",null,36,"Europe/Berlin",3,false]\n'
    )  # fmt: skip
    assert encode(ALL[14]) == b'["BY",15,1764000600000000,2,1]\n'
    header = json.loads(encode_header(shared_header("s", segment=2, previous="0" * 64, first=9, registers={})))
    assert (header["version"], header["store"], header["first"]) == (SHARED_VERSION, "shared", 9)
    assert "store" not in json.loads(encode_header(Header("s")))


@given(st.text(), st.integers(1, 1 << 53), st.booleans(), st.sampled_from(["cron", "retry", "interrupted"]))
def test_a_line_of_a_host_is_canonical_json(task: str, number: int, ok: bool, cause: str) -> None:
    """Starts and ends are put together by hand, and equal what the standard library writes."""
    for event in (
        RE(number, Instant(number + 1), task, 2, number + 3, ok),
        RS(number, Instant(number + 1), task, 2, number + 3, cause, 4),
        BY(number, Instant(number + 1), 2),
    ):
        told = HostEvent(number, event)
        canonical = json.dumps(line_of(told), separators=(",", ":"), ensure_ascii=True)
        assert encode(told) == f"{canonical}\n".encode("ascii")
        assert line_of(told) == (type(event).__name__, event.seq, event.at, number, *event[2:])


def test_a_store_numbers_the_rows_of_a_host_when_it_writes_them() -> None:
    """SPEC 7.6: rows know neither their number nor their host; the transaction that writes them does."""
    rows = [row_of(each.event) for each in ALL]
    for host in (1, 2):
        mine = [each for each in ALL if each.host == host]
        lines = shared_lines([row_of(each.event) for each in mine], 101, host)
        renumbered = [each.event._replace(seq=number) for number, each in enumerate(mine, 101)]
        assert [f"{line}\n".encode() for line in lines] == [encode(HostEvent(host, each)) for each in renumbered]
    numbered = [encode_shared_row(n, each.host, row) for n, (each, row) in enumerate(zip(ALL, rows, strict=True), 1)]
    assert [f"{line}\n".encode() for line in numbered] == [encode(each) for each in ALL]


def test_a_store_may_number_lines_as_well() -> None:
    """For one that gets lines of a host, and knows their numbers only when it writes them."""
    for each in ALL:
        unnumbered = encode(each._replace(event=each.event._replace(seq=UNNUMBERED))).decode()
        assert numbered(unnumbered, each.seq).encode() == encode(each)
        bare = each.event._replace(seq=UNNUMBERED)
        assert numbered(encode(bare).decode(), 10**12).encode() == encode(bare._replace(seq=10**12))


def test_an_embedded_store_goes_on_without_hosts_and_editions() -> None:
    """A trace of an embedded store has neither."""
    (declared,) = [each for each in story("IS IE") if isinstance(each, IE)]
    assert len(row_of(declared)) == 10 - 1
    assert json.loads(encode(declared)) == list(line_of(declared))
    assert line_of(declared)[-1] == "UTC"


def test_a_writer_takes_the_events_of_its_kind_of_store_alone() -> None:
    """Else a file would be written that no reader takes."""
    with pytest.raises(ValueError, match=r"^event 1 must be a HostEvent: the store is shared$"):
        Writer(lambda _: None, shared_header("s")).add(ALL[0].event)
    with pytest.raises(ValueError, match=r"^event 1 must be no HostEvent: the store has one host$"):
        Writer(lambda _: None, Header("s")).add(ALL[0])


def test_the_segment_after_one_of_a_shared_store_is_one_too() -> None:
    """The version stays: hosts are named in all segments, or in none."""
    writer = Writer(lambda _: None, shared_header("s"))
    assert writer.following({}).version == SHARED_VERSION
    assert Writer(lambda _: None, Header("s", version=1)).following({}).version == 2


# --- hostile input ----------------------------------------------------------------------------------------------------

LINES = written(ALL, clean=False).splitlines(keepends=True)


def edited(number: int, change: Callable[[list[Any]], object]) -> bytes:
    """The trace with one event changed: its number is that of its line, too, after the header."""
    row = json.loads(LINES[number])
    change(row)
    return b"".join([*LINES[:number], json.dumps(row).encode() + b"\n", *LINES[number + 1 :]])


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (12, lambda row: row.__setitem__(3, 0), "host 0 is not the key of a host: these are numbered from 1"),
        (12, lambda row: row.__setitem__(3, -3), "host -3 is not the key of a host: these are numbered from 1"),
        (11, lambda row: row.__setitem__(3, 0), "host 0 is not the key of a host: these are numbered from 1"),
        (12, lambda row: row.__setitem__(3, "1"), "host of RS is a string, not an integer"),
        (13, lambda row: row.__setitem__(3, None), "host of RE is null, not an integer"),
        (1, lambda row: row.__setitem__(3, True), "host of BT is true or false, not an integer"),
        (1, lambda row: row.__setitem__(3, 1.5), "host of BT is a number with a fraction or too large, not an integer"),
        (12, lambda row: row.__setitem__(3, [1]), "host of RS is an array, not an integer"),
        (15, lambda row: row.__setitem__(4, 0), "who 0 is not the key of a host: these are numbered from 1"),
        (15, lambda row: row.__setitem__(4, "1"), "who of BY is a string, not an integer"),
        (15, lambda row: row.append(1), "BY has 4 fields (seq, at, host, who), not 5"),
        (4, lambda row: row.__setitem__(11, 0), "edition 0 is not an edition: these are numbered from 1"),
        (4, lambda row: row.__setitem__(11, None), "edition of IE is null, not an integer"),
        (4, lambda row: row.__setitem__(12, None), "outdated of IE is null, not true or false"),
        (12, lambda row: row.__setitem__(1, 13), "event 13 follows event 11: 1 event is missing, or comes later"),
    ],
)
def test_a_line_with_a_wrong_host_is_refused_with_what_is_wrong(
    number: int, change: Callable[[list[Any]], object], reason: str
) -> None:
    """Named with its line, whichever way it is read: in a block, or alone."""
    for data in (edited(number, change), edited(number, change).replace(b"]\n", b"] \n")):
        found = refusal(data)
        assert found.details["line"] == number + 1
        assert found.details["reason"] == reason


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("number", [1, 2, 3, 4, 11, 12, 13, 15])
def test_a_line_without_a_host_is_refused_in_a_shared_store(number: int) -> None:
    """The hint says where it belongs."""
    found = refusal(edited(number, lambda row: row.pop(3)))
    assert found.details["line"] == number + 1
    assert "fields (seq, at, host, " in found.details["reason"]
    if number not in (4, 15, 18):  # an IE also lacks its edition then, and BY and LR have no form without a host
        assert found.details["hint"] == "in a shared store each event has the key of its host after its instant"


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("number", [1, 2, 4, 12, 13, 15])
def test_a_line_with_a_host_is_refused_in_an_embedded_store(number: int, version: int) -> None:
    """And so is a burial: the only host of an embedded store cannot be buried by another."""
    row = [*json.loads(LINES[number])]
    row[1] = 1
    found = refusal(encode_header(Header("s", version=version)) + json.dumps(row).encode() + b"\n")
    assert found.details["line"] == 2
    if number == 15:
        assert found.details["reason"] == "BY is an event of a shared store"
        assert found.details["hint"] == "an embedded store has one host, and a crash of it is derived by the checker"
    else:
        assert found.details["hint"] == "only in a shared store, whose traces have version 3, do events name hosts"


@pytest.mark.parametrize(
    ("version", "store"), [(3, None), (3, "embedded"), (3, 1), (2, "shared"), (1, "shared"), (3, ["shared"])]
)
def test_the_version_and_the_kind_of_store_belong_together(version: int, store: object) -> None:
    header = json.loads(encode_header(Header("s", version=version)))
    header.pop("store", None)
    if store is not None:
        header["store"] = store
    found = refusal(json.dumps(header).encode() + b"\n")
    assert (found.details["fault"], found.details["line"]) == ("malformed", 1)
    assert found.details["reason"].endswith(f"store is {store!r}")


def test_segments_of_an_embedded_and_of_a_shared_store_do_not_follow_each_other() -> None:
    """Even if all numbers and hashes fit."""
    first = Writer(lambda _: None, Header("s"))
    lines: list[bytes] = []
    first = Writer(lines.append, Header("s"))
    first.add_all(story("IS IE"))
    second = shared_header("s", segment=2, previous=first.hash, first=5, registers=empty_registers())
    found = refusal(b"".join(lines) + encode_header(second))
    assert found.details["fault"] == "mixed"
    assert "store is 'shared', not 'embedded'" in found.details["reason"]


def empty_registers() -> dict[str, Any]:
    from duly.formal.monitor import Monitor

    return Monitor(shared=True).snapshot().as_json()


def test_a_long_text_of_a_host_is_refused_too() -> None:
    """The fast way through starts and ends does not look at lengths; a line of megabytes is looked at again."""
    told = written([*ALL[:11], HostEvent(1, RS(12, T, "x" * (1 << 22), 7, 1, "cron", 0))])
    assert refusal(told).details["reason"] == "task has 4,194,304 characters, and may have 2,097,152"


@pytest.mark.parametrize("at_once", [True, False])
def test_rows_are_delivered_with_their_hosts_beside_them(at_once: bool) -> None:
    """So all that reads rows of an embedded store reads these as well; in blocks, and line by line."""
    reading = TraceReader()
    head, *lines = LINES[:-1]
    sources = [head, b"".join(lines)] if at_once else [b"".join([head, *lines])]
    parts = [part for data in sources for part in reading.read(io.BytesIO(data)) if isinstance(part, Rows)]
    assert len(parts) == (1 if at_once else len(ALL))
    assert [host for part in parts for host in part.hosts or ()] == [each.host for each in ALL]
    assert [tuple(row) for part in parts for row in part.rows] == [line_of(each.event) for each in ALL]
    assert [event for part in parts for event in part.events()] == ALL


# --- through the checker ----------------------------------------------------------------------------------------------


def test_a_shared_trace_ends_when_its_last_host_has_left() -> None:
    """SPEC 9.19: the last one's stop seals the trace."""
    told = hosts_story("1:Join 2:Join Due 1:RS 1:REs 1:SS 1:SE Due 2:RS 2:REs 2:SS 2:SE")
    report = check(io.BytesIO(written(told, clean=True)))
    assert report.ended
    assert not report.violated
    assert (report.tasks, report.crashes, report.events) == (1, 0, len(told))


@pytest.mark.parametrize("text", ["1:Join 2:Join 1:SS 1:SE", "1:Join", "1:Join 2:Join 1:SS 1:SE 2:BY:2"])
def test_a_clean_seal_is_refused_while_a_host_runs_or_if_the_last_one_was_buried(text: str) -> None:
    told = hosts_story(text)
    with pytest.raises(TraceError, match="the seal is clean, but a host is running"):
        check(io.BytesIO(written(told, clean=True)))
    assert not check(io.BytesIO(written(told, clean=False))).ended


def test_burials_are_counted_as_crashes() -> None:
    told = hosts_story("1:Join 2:Join 2:BY:1 3:Join 3:BY:3")
    assert check(io.BytesIO(written(told, clean=False))).crashes == 2
