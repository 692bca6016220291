"""The targets of the fuzzer: one function for each reader of bytes that others wrote, and what must hold of it.

Whatever comes in, the answer is a value or one typed error. A value has further duties: what it says can be written and
read again, another implementation reads the same, and what cannot be in the calendar is not in the value.
"""

import contextlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import LAST_INSTANT, MICROSECONDS
from duly.core.record import FIELDS, read_records
from duly.core.task import AwaitingRetry, Running
from duly.errors import (
    FieldParseError,
    InvalidCronExpressionError,
    TaskTryDeserializeError,
    TraceError,
)
from duly.formal import calendar
from duly.formal.checking import check
from duly.formal.reader import events
from duly.formal.trace import encode, line_of

MOMENT: Final = datetime(2024, 2, 28, 23, 59, tzinfo=UTC)
ERROR_CHARACTERS_MAX: Final = 2000
"""An error message does not repeat a megabyte of its input."""

FIELD_NAMES: Final = {"minute", "hour", "day", "month", "weekday"}
FIRST_INSTANT: Final = -62_135_596_800 * MICROSECONDS


def fuzz_cron(data: bytes) -> None:
    """`parse_cron`: five fields, or an error that names one of them; and a second parser agrees (SPEC 6.1 to 6.3)."""
    text = data.decode("utf-8", "surrogateescape")
    expression = _cron(text)
    if isinstance(expression, InvalidCronExpressionError):
        _says_what_is_wrong(expression)
        with contextlib.suppress(ValueError):
            calendar.parse(text)
            raise AssertionError(f"the checker reads what the scheduler refuses: {text!r}")
        return
    assert expression.text == text
    _holds_only_what_cron_allows(expression)
    due = expression.next_after(MOMENT)
    assert due > MOMENT
    assert expression.matches(due)
    # Written in the plainest way it is read again, as the same sets.
    again = parse_cron(_plainly(expression, text))
    assert (again.minutes, again.hours, again.days, again.months, again.weekdays) == (
        *(expression.minutes, expression.hours, expression.days),
        *(expression.months, expression.weekdays),
    )
    assert again.next_after(MOMENT) == due
    minutes, hours, _, months, _, _ = calendar.parse(text)
    assert (tuple(minutes), tuple(hours), tuple(sorted(months))) == (
        expression.minutes,
        expression.hours,
        expression.months,
    )


def _cron(text: str) -> CronExpression | InvalidCronExpressionError:
    try:
        return parse_cron(text)
    except InvalidCronExpressionError as refusal:
        return refusal


def _says_what_is_wrong(refusal: InvalidCronExpressionError) -> None:
    field = refusal.details["field"]
    assert field in FIELD_NAMES | {"expression"}
    assert refusal.details["expression"] is not None
    assert len(str(refusal)) < ERROR_CHARACTERS_MAX
    cause = refusal.__cause__
    assert isinstance(cause, FieldParseError) if field in FIELD_NAMES else cause is None


def _holds_only_what_cron_allows(expression: CronExpression) -> None:
    for values, low, high in (
        (expression.minutes, 0, 59),
        (expression.hours, 0, 23),
        (expression.days, 1, 31),
        (expression.months, 1, 12),
        (expression.weekdays, 0, 6),
    ):
        assert values
        assert all(low <= value <= high for value in values)
        assert list(values) == sorted(set(values))


def _plainly(expression: CronExpression, text: str) -> str:
    """Every value listed; a star stays one, because a restricted day means something else (SPEC 6.2)."""
    fields = text.replace("\t", " ").split(" ")
    _, _, day, _, weekday = (field for field in fields if field)
    lists = [
        ",".join(map(str, values))
        for values in (expression.minutes, expression.hours, expression.days, expression.months, expression.weekdays)
    ]
    if day == "*":
        lists[2] = "*"
    if weekday == "*":
        lists[4] = "*"
    return " ".join(lists)


def fuzz_record(data: bytes) -> None:
    """`read_records`: rows as a malicious or damaged store could hand them over (SPEC 5.5)."""
    rows = _rows(data)
    refusal: TaskTryDeserializeError | None = None
    found = []
    try:
        found = list(read_records(rows))
    except TaskTryDeserializeError as error:
        refusal = error
    if refusal is not None:
        assert len(str(refusal)) < ERROR_CHARACTERS_MAX
        return
    assert [record.name for record in found] == [row[1] for row in rows]
    assert len({record.name for record in found}) == len(found)
    for row, record in zip(rows, found, strict=True):
        named: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
        assert record.generation == named["generation"]
        assert record.expression.text == named["cron"]
        assert record.delay == named["delay_ms"] >= 0
        assert record.run == named["run"]
        state = record.state
        assert state.served_through == named["served_through"]
        assert isinstance(state, Running) == (named["run"] is not None)
        if isinstance(state, AwaitingRetry):
            assert state.pending_retry_until == named["pending_retry_until"]
        for name, value in named.items():
            if name.endswith(("_at", "_until", "_since")) and value is not None:
                assert FIRST_INSTANT <= value <= LAST_INSTANT + 60 * MICROSECONDS
    assert list(read_records(rows)) == found


def _rows(data: bytes) -> list[list[Any]]:
    """Rows as JSON, where the bytes are that; else one byte a field, which chooses one of the values worth trying."""
    try:
        rows = json.loads(data)
        if isinstance(rows, list) and all(isinstance(row, list) for row in rows):
            return rows
    except (ValueError, RecursionError):
        pass
    width = len(FIELDS)
    return [
        [
            _VALUES[byte % len(_VALUES)] if byte >= 32 else _RIGHT[byte % 4][at]
            for at, byte in enumerate(data[row : row + width])
        ]
        for row in range(0, len(data), width)
    ]


_NOW: Final = 1_748_833_110_000_000
_RIGHT: Final[list[list[Any]]] = [
    [1, "a", "0 3 * * *", 60_000, _NOW, _NOW // MICROSECONDS, None, None, None, None, 0, 0, None, None, None, 1,
     None, None, None],
    [2, "b", "* * * * *", 0, _NOW, _NOW // MICROSECONDS, _NOW, _NOW, None, None, 0, 0, None, None, None, 1,
     None, None, None],
    [3, "c", "0 0 29 2 *", 1, _NOW, 0, _NOW, None, _NOW, _NOW, 1, 0, None, None, None, 2, _NOW, _NOW, 1],
    [4, "d", "1-31 0 1-31 * *", 1, _NOW, 0, _NOW, None, _NOW, _NOW, 1, 3, 7, "retry", _NOW, 2, _NOW, _NOW, 4],
]  # fmt: skip
"""Four kinds of rows that are right; the fuzzer mixes their fields."""

_VALUES: Final[tuple[Any, ...]] = (
    *(None, 0, 1, -1, 2, True, False, 1.0, 0.5, float("nan"), float("inf"), "", "a", "cron", "interrupted", b"\x00"),
    *(2**63 - 1, 2**63, -(2**63), 10**30, LAST_INSTANT, LAST_INSTANT + 1, FIRST_INSTANT, FIRST_INSTANT - 1, _NOW),
    *("\ud800", "\x00", "x" * 5000, "* * * * *", "0 0 30 2 *", "*/5 * * * *", [], {}, ["a"], ("a",)),
)


def fuzz_trace(data: bytes) -> None:
    """The trace's reader and checker: a verdict, or a TraceError with a line; and what was read can be written."""
    refusal: TraceError | None = None
    report = None
    try:
        report = check(io.BytesIO(data), unsealed=True)
    except TraceError as error:
        refusal = error
    if refusal is not None:
        assert 1 <= refusal.details["line"] <= data.count(b"\n") + 1
        assert len(str(refusal)) < ERROR_CHARACTERS_MAX
        return
    assert report is not None
    read = list(events(io.BytesIO(data)))
    assert len(read) == report.events
    for event in read:
        assert json.loads(encode(event)) == [*line_of(event)]
    # Read through a straw, it is the same trace.
    assert check(_Straw(data), unsealed=True) == report


class _Straw:
    """A source that hands over seven bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._source = io.BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._source.read(min(size, 7))


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {"cron": fuzz_cron, "record": fuzz_record, "trace": fuzz_trace}
