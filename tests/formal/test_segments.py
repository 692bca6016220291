"""Several segments in one trace: each begins with what the one before led to, and only the last can end it."""

import io
from typing import Any

import pytest

from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant
from duly.errors import TraceError
from duly.formal.checking import Report, check
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.trace import BT, Event, Header, Writer, encode
from tests.formal.story import story

FIRST_INSTANT = -62_135_596_800 * MICROSECONDS
LIFE = "IS IE Due RS REf RetryDue RS REs SS SE IS IE Due RS REs SS SE"


def in_segments(events: list[Event], *cuts: int, change: Any = None, clean: bool = True) -> bytes:
    """The events as segments that end at these positions; `change` is done to the registers of the second header."""
    lines: list[bytes] = []
    monitor = Monitor()
    writer = Writer(lines.append, Header("s"))
    begin = 0
    for number, cut in enumerate((*cuts, len(events))):
        for event in events[begin:cut]:
            writer.add(event)
            monitor.step(event)
        writer.seal(clean=clean and cut == len(events))
        begin = cut
        if cut < len(events):
            registers = monitor.snapshot().as_json()
            if change is not None and number == 0:
                change(registers)
            writer = Writer(lines.append, writer.following(registers))
    return b"".join(lines)


def judged(trace: bytes) -> Report:
    return check(io.BytesIO(trace), unsealed=True)


def test_a_trace_in_segments_is_the_same_trace() -> None:
    """Wherever a trace is cut into segments."""
    events = story(LIFE)
    whole = judged(in_segments(events))
    for cut in range(1, len(events)):
        parts = judged(in_segments(events, cut))
        assert (parts.verdicts, parts.events, parts.ended) == (whole.verdicts, whole.events, True)
        assert (parts.segments, parts.first_segment) == (2, 1)
    assert judged(in_segments(events, 3, 4, 9)).segments == 4


def test_registers_that_the_segment_before_does_not_lead_to_are_refused() -> None:
    """Edited between two segments, with hashes that fit: the registers differ."""
    events = story(LIFE)

    def later(registers: Any) -> None:
        registers["scheduler"]["clock"] += 1

    with pytest.raises(TraceError) as refused:
        judged(in_segments(events, 6, change=later))
    assert refused.value.details["fault"] == "registers"
    assert refused.value.details["line"] == 1 + 6 + 1 + 1


def test_what_follows_an_end_opens_the_trace_again() -> None:
    """A clean seal ends the trace only as long as nothing follows it; then what is pending is pending again."""
    ended = story("IS IE Due SS SE")
    report = judged(in_segments(ended))
    assert report.ended
    trace = in_segments(ended)
    monitor = Monitor()
    for event in ended:
        monitor.step(event)
    lines: list[bytes] = []
    first = Writer(lambda _: None, Header("s"))
    first.add_all(ended)
    following = story("IS IE Due SS SE IS IE")[len(ended) :]
    second = Writer(lines.append, first.following(monitor.snapshot().as_json()))
    second.add_all(following)
    open_again = judged(trace + b"".join(lines))
    assert not open_again.ended
    assert open_again.verdicts["L1"].value is Value.PENDING


def test_a_clean_seal_needs_a_completed_stop() -> None:
    """A trace whose scheduler still runs has not ended, whatever its seal says."""
    with pytest.raises(TraceError, match="no stop has completed"):
        judged(in_segments(story("IS IE Due RS REs")))
    assert not judged(in_segments(story("IS IE Due RS REs"), clean=False)).ended


def test_registers_and_the_first_event_belong_together() -> None:
    """A segment that is judged alone begins where its registers end."""
    events = story(LIFE)
    monitor = Monitor()
    for event in events[:6]:
        monitor.step(event)
    for first in (6, 8):
        lines: list[bytes] = []
        header = Header("s", 2, "0" * 64, first, monitor.snapshot().as_json())
        writer = Writer(lines.append, header)
        writer.add(events[6]._replace(seq=first))
        with pytest.raises(TraceError, match="its registers end with 6"):
            judged(b"".join(lines))


def test_the_latest_moment_of_a_trace_is_reported() -> None:
    """A report says until when it speaks, and over how many tasks and crashes."""
    events = story("IS IE Due RS Crash IS IE RS REs SS SE", tasks="xy")
    report = judged(in_segments(events, 5))
    assert report.until == Instant(events[-1].at)
    assert (report.tasks, report.crashes, report.scheduler) == (2, 1, "s")


@pytest.mark.parametrize("letters", ["Crash", "Due", "RetryDue", "Resume"])
def test_what_the_checker_derives_is_not_an_event_of_a_trace(letters: str) -> None:
    """The hint says why: it would be the scheduler's word."""
    trace = in_segments(story("IS IE")[:1], clean=False).splitlines(keepends=True)[:2]
    with pytest.raises(TraceError) as refused:
        judged(b"".join(trace) + f'["{letters}",2,0]\n'.encode())
    assert refused.value.details["hint"] == "Due, RetryDue and Crash are derived by the checker"
    with pytest.raises(TraceError) as unknown:
        judged(b"".join(trace) + b'["XX",2,0]\n')
    assert unknown.value.details.get("hint") is None


@pytest.mark.parametrize("inside", [True, False])
def test_a_trace_may_speak_of_the_whole_calendar_and_of_nothing_else(inside: bool) -> None:
    """Instants from the first of the year 1 to the last of the year 9999."""
    for edge, outward in ((FIRST_INSTANT, -1), (LAST_INSTANT, 1)):
        lines: list[bytes] = []
        Writer(lines.append, Header("s")).add(BT(1, Instant(edge if inside else edge + outward), "boot", 0))
        if inside:
            assert judged(b"".join(lines)).events == 1
        else:
            with pytest.raises(TraceError, match="not a microsecond of the calendar"):
                judged(b"".join(lines))


def test_lines_that_were_encoded_before_are_written_as_they_are() -> None:
    """A store keeps lines; a segment made of them equals one made of events."""
    events = story(LIFE)
    added: list[bytes] = []
    put: list[bytes] = []
    one, other = Writer(added.append, Header("s")), Writer(put.append, Header("s"))
    one.add_all(events)
    for event in events:
        other.put(encode(event))
    assert (other.count, other.hash) == (one.count, one.hash) == (len(events), one.hash)
    one.seal(clean=True)
    other.seal(clean=True)
    assert put == added
    assert other.following(None) == one.following(None) == Header("s", 2, one.hash, len(events) + 1, None)


def test_a_writer_says_which_event_it_expected() -> None:
    """Numbers have no gaps, from the header's first on."""
    writer = Writer(lambda _: None, Header("s", 3, "0" * 64, 7, Monitor().snapshot().as_json()))
    with pytest.raises(ValueError, match=r"^event 9 does not follow 6: seq has no gaps$"):
        writer.add(BT(9, Instant(0), "boot", 0))
    writer.add(BT(7, Instant(0), "boot", 0))
    with pytest.raises(ValueError, match=r"^event 7 does not follow 7: seq has no gaps$"):
        writer.add(BT(7, Instant(0), "boot", 0))


def test_what_json_has_no_word_for_is_never_written() -> None:
    """A line that other readers refuse would make the whole trace unreadable."""
    with pytest.raises(ValueError):
        encode(BT(1, Instant(0), "boot", float("nan")))  # type: ignore[arg-type]
