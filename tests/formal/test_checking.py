"""A report beyond its verdicts: what was read, how far, and whether the trace has ended."""

import io
from pathlib import Path
from typing import Any

import pytest

from duly.core.moments import Instant
from duly.errors import TraceError
from duly.formal.checking import Checker, check
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.trace import WK, Event, Header, Writer, encode_header
from tests.formal.story import story

LIFE = story("IS IE Due RS REs SS SE")


def written(events: list[Event], *, header: Header | None = None, seal: bool = False) -> tuple[bytes, Writer]:
    """A segment, and its writer, which has the header of the next one."""
    lines: list[bytes] = []
    writer = Writer(lines.append, header or Header("store"))
    writer.add_all(events)
    if seal:
        writer.seal(clean=False)
    return b"".join(lines), writer


def registers_after(events: list[Event]) -> dict[str, Any]:
    monitor = Monitor()
    for event in events:
        monitor.step(event)
    return monitor.snapshot().as_json()


def test_without_a_source_nothing_is_read() -> None:
    """The report says that nothing was read."""
    report = Checker().report()
    assert (report.scheduler, report.events, report.segments, report.first_segment) == ("", 0, 0, 0)
    assert (report.tasks, report.crashes, report.until) == (0, 0, 0)
    assert not report.ended
    assert not report.sealed
    assert not report.violated
    assert {verdict.value for verdict in report.verdicts.values()} == {Value.HOLDING}
    assert check(unsealed=True) == report
    with pytest.raises(TraceError, match="without a seal"):
        check()


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ("trace.jsonl", "str"),
        (Path("trace.jsonl"), "PosixPath"),
        (b"a trace", "bytes"),
        (None, "NoneType"),
        (io.StringIO("a trace"), "one opened in text mode"),
    ],
    ids=["str", "path", "bytes", "None", "text"],
)
def test_what_is_no_binary_file_is_refused_with_the_remedy(given: Any, got: str) -> None:
    """As a source, and among the segments of one."""
    for sources in (given, [given]):
        with pytest.raises(TypeError, match=f"^check takes files opened in binary mode, got {got}$"):
            check(sources)


def test_segments_may_come_from_any_iterable() -> None:
    """Of files, or of whatever has a binary file's `read`."""
    segment, _ = written(LIFE)
    report = check(io.BytesIO(segment), unsealed=True)
    assert check([io.BytesIO(segment)], unsealed=True) == report
    assert check(iter([io.BytesIO(segment)]), unsealed=True) == report


def test_progress_is_reported_in_events() -> None:
    """Over all sources: the number grows, and ends with that of all events."""
    half = len(LIFE) // 2
    first, writer = written(LIFE[:half])
    second, _ = written(LIFE[half:], header=writer.following(registers_after(LIFE[:half])))
    told: list[int] = []
    report = check(io.BytesIO(first), io.BytesIO(second), progress=told.append, unsealed=True)
    assert told == sorted(told)
    assert told[-1] == report.events == len(LIFE)


def test_a_segment_without_a_seal_after_one_with_it_is_not_sealed() -> None:
    """Only the last seal says whether lines are missing at the end."""
    first, writer = written(LIFE[:4], seal=True)
    header = writer.following(registers_after(LIFE[:4]))
    assert check(io.BytesIO(first)).sealed
    assert not check(io.BytesIO(first + written(LIFE[4:], header=header)[0]), unsealed=True).sealed
    assert not check(io.BytesIO(first + encode_header(header)), unsealed=True).sealed
    assert check(io.BytesIO(first + written(LIFE[4:], header=header, seal=True)[0])).sealed


@pytest.mark.parametrize(("where", "value"), [("zone", "Mars/Olympus"), ("cron", "* * * *")])
def test_registers_that_name_what_does_not_exist_are_malformed(where: str, value: str) -> None:
    """Their types are right; that they are not a zone and not a schedule is reported with the line of the header."""
    registers = registers_after(LIFE[:4])
    if where == "zone":
        registers["scheduler"]["zone"] = value
    else:
        registers["tasks"][0][3] = value
    header = encode_header(Header("store", 2, "0" * 64, 5, registers))
    with pytest.raises(TraceError) as refused:
        check(io.BytesIO(header))
    assert (refused.value.details["fault"], refused.value.details["line"]) == ("malformed", 1)
    assert value in str(refused.value)


def test_lateness_is_left_out_on_request() -> None:
    """`bounded=False`: even in a trace that begins with registers; R1, R2 and L2ᵇ have no verdict then."""
    events = story("IS IE")
    noon = Instant(events[-1].at - events[-1].at % 3_600_000_000 + 3_600_000_000)
    late: list[Event] = [WK(len(events) + n, Instant(noon + n * 50_000_000), 0) for n in range(1, 4)]
    awake: list[Event] = []
    moment = events[-1].at
    while moment < noon:
        moment = Instant(moment + 60_000_000)
        awake.append(WK(len(events) + len(awake) + 1, moment, 0))
    whole = [*events, *awake, *(each._replace(seq=each.seq + len(awake)) for each in late)]
    assert check(io.BytesIO(written(whole)[0]), unsealed=True).verdicts["R1"].value is Value.VIOLATED
    header = written(events)[1].following(registers_after(events))
    alone = written(whole[len(events) :], header=header)[0]
    assert check(io.BytesIO(alone), unsealed=True).verdicts["R1"].value is Value.VIOLATED
    assert not {"R1", "R2", "L2ᵇ"} & set(check(io.BytesIO(alone), bounded=False, unsealed=True).verdicts)
    assert not {"R1", "R2", "L2ᵇ"} & set(check(io.BytesIO(written(whole)[0]), bounded=False, unsealed=True).verdicts)


def test_a_checker_judges_source_by_source_what_check_judges_at_once() -> None:
    """The bounded shadows included, unless they are left out."""
    half = len(LIFE) // 2
    first, writer = written(LIFE[:half])
    second, _ = written(LIFE[half:], header=writer.following(registers_after(LIFE[:half])))
    checker = Checker()
    for each in (first, second):
        checker.take(io.BytesIO(each))
    assert checker.report() == check(io.BytesIO(first), io.BytesIO(second), unsealed=True)
    assert {"R1", "R2", "L2ᵇ"} <= set(checker.report().verdicts)
    assert Checker(bounded=False).report() == check(bounded=False, unsealed=True)
