"""Strict POSIX cron text to five sets of numbers, or an error that names the field and the reason.

    expression = blanks? minute blanks hour blanks day blanks month blanks weekday blanks?
    field      = "*" | element ("," element)*
    element    = number | number "-" number

Numbers are ASCII digits, blanks are spaces and tabs. There is nothing else: no steps, no names, no macros (SPEC 6.1).
`core/dialects.py` knows what those mean elsewhere, and writes the hints.
"""

import dataclasses
import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Final

from duly.core import dialects, occurrences
from duly.core.fields import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field
from duly.errors import CronCalculationError, FieldParseError, InvalidCronExpressionError
from duly.text import plain


@dataclasses.dataclass(frozen=True, slots=True)
class CronExpression:
    """A POSIX cron expression, made by `parse_cron`; two are equal if their texts are.

    Moments are datetimes: aware ones in any zone, or naive ones in the host's local time. So are the answers, with
    `fold=0`. Local minutes that a zone skips do not exist; those that it repeats are due the first time only. Where the
    years 1 to 9999 have no answer, CronCalculationError is raised.
    """

    text: str  #: as it was given to `parse_cron`
    _pattern: occurrences.Pattern = dataclasses.field(repr=False, compare=False)

    def matches(self, when: datetime) -> bool:
        """Whether the minute that contains a moment is due.

        Parameters:
            when: the moment.

        Raises:
            TypeError: `when` is not a `datetime`.
        """
        if type(when) is not datetime:
            when = _as_plain_datetime(when)
        try:
            return occurrences.is_due(self._pattern, when)
        except OverflowError:  # a local time that the host cannot place in the calendar
            return False

    def next_after(self, when: datetime) -> datetime:
        """The first due minute strictly after a moment.

        Parameters:
            when: the moment.

        Raises:
            TypeError: `when` is not a `datetime`.
            CronCalculationError: there is none up to the year 9999.
        """
        if type(when) is not datetime:
            when = _as_plain_datetime(when)
        try:
            return occurrences.following(self._pattern, when)
        except OverflowError as fault:
            raise CronCalculationError(self.text, when.isoformat(), fault) from fault

    def previous_before(self, when: datetime) -> datetime:
        """The last due minute that began strictly before a moment.

        Parameters:
            when: the moment.

        Raises:
            TypeError: `when` is not a `datetime`.
            CronCalculationError: there is none since the year 1.
        """
        if type(when) is not datetime:
            when = _as_plain_datetime(when)
        try:
            return occurrences.preceding(self._pattern, when)
        except OverflowError as fault:
            raise CronCalculationError(self.text, when.isoformat(), fault) from fault

    def due_days(self, year: int, month: int) -> tuple[int, ...]:
        """The days of a month on which minutes are due, sorted: those that either day field names, if both do.

        Parameters:
            year: the year.
            month: the month, from 1 to 12.
        """
        return _values(occurrences.matching_days(self._pattern, year, month))

    @property
    def minutes(self) -> tuple[int, ...]:
        """The minutes of the hour, sorted."""
        return _values(self._pattern[0])

    @property
    def hours(self) -> tuple[int, ...]:
        """The hours of the day, sorted."""
        return _values(self._pattern[1])

    @property
    def days(self) -> tuple[int, ...]:
        """The days of the month that the day field names, sorted."""
        return _values(self._pattern[2] or DAY.every)

    @property
    def months(self) -> tuple[int, ...]:
        """The months of the year, sorted."""
        return _values(self._pattern[4])

    @property
    def weekdays(self) -> tuple[int, ...]:
        """The days of the week that the weekday field names, sorted; 0 is Sunday."""
        return _values(self._pattern[3] & WEEKDAY.every or WEEKDAY.every)

    def __str__(self) -> str:
        return self.text


def parse_cron(text: str) -> CronExpression:
    """Read a POSIX cron expression.

    Parameters:
        text: five fields: minute, hour, day, month, weekday; numbers, lists, ranges and `*`.

    Raises:
        TypeError: `text` is not a `str`.
        InvalidCronExpressionError: the text is not a POSIX expression, or can never match. It names the leftmost field
            that cannot be read, and says why; its cause is the `FieldParseError` of that field.
    """
    if not isinstance(text, str):
        raise TypeError(f"a cron expression is a str, not {type(text).__name__}")
    # str.split() separates at any white space; of that only the space itself is printable.
    fields = text.split(None, 5) if text.isprintable() else list(islice(_separated(text), 6))
    if len(fields) != 5:
        reason, hint = _not_five_fields(text)
        raise InvalidCronExpressionError(text, "expression", reason, hint=hint)
    minute, hour, day, month, weekday = fields
    try:
        pattern = occurrences.pattern_of(
            MINUTE.simple.get(minute) or _read(MINUTE, minute),
            HOUR.simple.get(hour) or _read(HOUR, hour),
            None if day == "*" else DAY.simple.get(day) or _read(DAY, day),
            MONTH.simple.get(month) or _read(MONTH, month),
            None if weekday == "*" else WEEKDAY.simple.get(weekday) or _read(WEEKDAY, weekday),
        )
        if not occurrences.can_match(pattern):
            raise _UnreadableError(DAY, day, *_never(pattern))
    except _UnreadableError as fault:
        cause = FieldParseError(fault.field.name, fault.text, fault.reason)
        raise InvalidCronExpressionError(text, fault.field.name, fault.reason, hint=fault.hint) from cause
    return CronExpression(text, pattern)


# --- reading ------------------------------------------------------------------------------------------------


def _read(field: Field, text: str) -> int:
    """The set that a list of elements stands for; stops at the first element that is wrong."""
    numbers = field.numbers
    found = 0
    for element in text.split(",") if len(text) < 1000 else _elements(text):
        members = numbers.get(element) or _range(field, element)
        if not members:
            raise _UnreadableError(field, text, *_fault(field, element))
        found |= members
    return found


def _range(field: Field, element: str) -> int:
    """The set of a range, or of a single number with leading zeros; empty if the element is wrong."""
    numbers = field.numbers
    low, dash, high = element.partition("-")
    first = numbers.get(low) or _number(field, low)
    last = (numbers.get(high) or _number(field, high)) if dash else first
    return 2 * last - first if 0 < first <= last else 0  # all bits from the first to the last


def _number(field: Field, digits: str) -> int:
    """The set of one number, with leading zeros or without; empty if it is not a number or is out of range.

    It is looked up, not computed: int() of a million digits takes seconds, or raises.
    """
    return field.numbers.get(digits.lstrip("0") or digits[-1:], 0)


def _elements(text: str) -> Iterator[str]:
    """The parts of `text.split(",")` one by one, because a long text may be wrong from its beginning."""
    begin = 0
    while (end := text.find(",", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]


def _separated(text: str) -> Iterator[str]:
    """The fields of a text, separated by spaces and tabs only."""
    return (field.group() for field in re.finditer(r"[^ \t]+", text))


@lru_cache(4096)
def _values(members: int) -> tuple[int, ...]:
    return tuple(value for value in range(members.bit_length()) if members >> value & 1)


def _as_plain_datetime(when: object) -> datetime:
    """The datetime that a subclass stands for, without arithmetic of its own."""
    if not isinstance(when, datetime):
        raise TypeError(f"a moment is a datetime, not {type(when).__name__}")
    return datetime.combine(when.date(), when.timetz())


# --- explaining ---------------------------------------------------------------------------------------------

_Fault = tuple[str, str | None]
"""A reason, to be read after "<name> field", and a hint that says what to write instead."""


class _UnreadableError(Exception):
    """A field is wrong; `parse_cron` turns this into an InvalidCronExpressionError."""

    def __init__(self, field: Field, text: str, reason: str, hint: str | None) -> None:
        self.field = field
        self.text = text
        self.reason = reason
        self.hint = hint


_ORDER: Final = "the five fields are minute, hour, day, month and weekday"


def _not_five_fields(text: str) -> _Fault:
    if not text.strip(" \t"):
        return "is empty", _ORDER
    fields = list(islice(_separated(text), 10))
    if fields[0].startswith("@"):
        equivalent = dialects.MACROS.get(fields[0].lower())
        return "contains macros", f"write {equivalent}" if equivalent else _ORDER
    count = len(fields)
    reason = f"has {count if count < 10 else 'more than 9'} field{'s' if count > 1 else ''} instead of 5"
    if re.search(r"[^\S \t]", text):
        return reason, f"{_ORDER}; {dialects.SEPARATORS}"
    return reason, f"{_ORDER}; seconds and years have none" if count > 5 else _ORDER


def _fault(field: Field, element: str) -> _Fault:
    """The fault of an element that cannot be read."""
    if not element:
        return "contains an empty element", "remove the comma that separates nothing"
    if stranger := re.search(r"[^0-9*-]", element):
        return dialects.foreign(field, element, stranger.start())
    if "*" in element:
        return "mixes '*' with something else", "'*' stands alone in its field"
    low, dash, high = element.partition("-")
    if not low:
        return "contains a sign '-'", "write numbers alone, and ranges with both their ends"
    if (dash and not high) or "-" in high:
        return (
            f"contains '{plain(element, longest=20)}', which is not a range",
            "a range is two numbers and a '-'",
        )
    for digits in (low, high) if dash else (low,):
        if not _number(field, digits):
            return _out_of_range(field, element, digits)
    start, end = int(low.lstrip("0") or "0"), int(high.lstrip("0") or "0")
    return f"range {start}-{end} runs backwards", dialects.without_wrap(field, start, end)


def _out_of_range(field: Field, element: str, digits: str) -> _Fault:
    number = digits.lstrip("0") or "0"
    if field is not WEEKDAY or number != "7":
        return f"value {plain(number, longest=20)} is out of range {field.low}-{field.high}", None
    begins = _number(field, element.partition("-")[0])  # empty if it is this 7 itself
    first = begins.bit_length() - 1 if begins else None
    return "7 is not a weekday; use 0 for Sunday", dialects.without_seven(first)


def _never(pattern: occurrences.Pattern) -> _Fault:
    _, _, days, _, months = pattern
    day = " or ".join(map(str, _values(days)))
    month = " or ".join(map(str, _values(months)))
    return f"never matches: there is no day {day} in month {month}", "choose a day that the month has"
