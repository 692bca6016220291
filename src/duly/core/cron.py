"""Strict POSIX cron text to five sets of numbers, or an error that names the field and the reason.

    expression = blanks? minute blanks hour blanks day blanks month blanks weekday blanks?
    field      = "*" | element ("," element)*
    element    = number | number "-" number

Numbers are ASCII digits, blanks are spaces and tabs, that is all: no steps, no names, no macros (SPEC 6.1).
"""

import dataclasses
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Final

from duly.core import occurrences
from duly.errors import CronCalculationError, FieldParseError, InvalidCronExpressionError
from duly.text import plain


@dataclasses.dataclass(frozen=True, slots=True)
class CronExpression:
    """A POSIX cron expression, made by `parse_cron`; equal to another if their texts are.

    Moments are datetimes, aware ones in any zone or naive ones in the host's local time; so are the answers,
    with `fold=0`. Local minutes that a zone skips do not exist, those it repeats are due the first time only.
    Where the years 1 to 9999 have no answer, CronCalculationError is raised.
    """

    text: str
    _pattern: occurrences.Pattern = dataclasses.field(repr=False, compare=False)

    def matches(self, when: datetime) -> bool:
        """Whether the minute that contains `when` is due."""
        if type(when) is not datetime:
            when = _plain(when)
        try:
            return occurrences.is_due(self._pattern, when)
        except OverflowError:  # a local time that the host cannot place in the calendar
            return False

    def next_after(self, when: datetime) -> datetime:
        """The first due minute strictly after `when`."""
        if type(when) is not datetime:
            when = _plain(when)
        try:
            return occurrences.following(self._pattern, when)
        except OverflowError as fault:
            raise CronCalculationError(self.text, when.isoformat(), fault) from fault

    def previous_before(self, when: datetime) -> datetime:
        """The last due minute that began strictly before `when`."""
        if type(when) is not datetime:
            when = _plain(when)
        try:
            return occurrences.preceding(self._pattern, when)
        except OverflowError as fault:
            raise CronCalculationError(self.text, when.isoformat(), fault) from fault

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
        return _values(self._pattern[2] or _DAY.every)

    @property
    def months(self) -> tuple[int, ...]:
        """The months of the year, sorted."""
        return _values(self._pattern[4])

    @property
    def weekdays(self) -> tuple[int, ...]:
        """The days of the week that the weekday field names, sorted; 0 is Sunday."""
        return _values(self._pattern[3] & _WEEKDAY.every or _WEEKDAY.every)

    def __str__(self) -> str:
        return self.text


def parse_cron(text: str) -> CronExpression:
    """Read a POSIX cron expression.

    Raises InvalidCronExpressionError, which names the leftmost field that cannot be read, and says why.
    """
    if not isinstance(text, str):
        raise TypeError(f"a cron expression is a str, not {type(text).__name__}")
    # Of all that str.split takes for white space, only the space itself is printable.
    fields = text.split(None, 5) if text.isprintable() else list(islice(_separated(text), 6))
    if len(fields) != 5:
        reason, hint = _not_five_fields(text)
        raise InvalidCronExpressionError(text, "expression", reason, hint=hint)
    minute, hour, day, month, weekday = fields
    try:
        pattern = occurrences.pattern_of(
            _MINUTE.simple.get(minute) or _read(_MINUTE, minute),
            _HOUR.simple.get(hour) or _read(_HOUR, hour),
            None if day == "*" else _DAY.simple.get(day) or _read(_DAY, day),
            _MONTH.simple.get(month) or _read(_MONTH, month),
            None if weekday == "*" else _WEEKDAY.simple.get(weekday) or _read(_WEEKDAY, weekday),
        )
        if not occurrences.can_match(pattern):
            raise _UnreadableError(_DAY, day, *_never(pattern))
    except _UnreadableError as fault:
        cause = FieldParseError(fault.field.name, fault.text, fault.reason)
        raise InvalidCronExpressionError(text, fault.field.name, fault.reason, hint=fault.hint) from cause
    return CronExpression(text, pattern)


# --- reading ------------------------------------------------------------------------------------------------


class _Field:
    """One of the five fields: its name, its range, and the sets that its simplest texts stand for."""

    def __init__(self, name: str, low: int, high: int) -> None:
        self.name: Final = name
        self.low: Final = low
        self.high: Final = high
        self.every: Final = (2 << high) - (1 << low)
        self.numbers: Final = {f"{n:0{digits}}": 1 << n for digits in (1, 2) for n in range(low, high + 1)}
        self.simple: Final = {"*": self.every, **self.numbers}


_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DAY: Final = _Field("day", 1, 31)
_MONTH: Final = _Field("month", 1, 12)
_WEEKDAY: Final = _Field("weekday", 0, 6)


def _read(field: _Field, text: str) -> int:
    """The set that a list of elements stands for; reads no further than to the first that is wrong."""
    numbers = field.numbers
    found = 0
    for element in text.split(",") if len(text) < 1000 else _elements(text):
        members = numbers.get(element) or _range(field, element)
        if not members:
            raise _UnreadableError(field, text, *_fault(field, element))
        found |= members
    return found


def _range(field: _Field, element: str) -> int:
    """The set of a range, or of a single number with leading zeros; empty if the element is wrong."""
    numbers = field.numbers
    low, dash, high = element.partition("-")
    first = numbers.get(low) or _number(field, low)
    last = (numbers.get(high) or _number(field, high)) if dash else first
    return 2 * last - first if 0 < first <= last else 0  # all bits from the first to the last


def _number(field: _Field, digits: str) -> int:
    """The set of one number, leading zeros or not; empty if it is none, or out of range.

    Looked up, never computed: int() of a million digits takes seconds, or refuses.
    """
    return field.numbers.get(digits.lstrip("0") or digits[-1:], 0)


def _elements(text: str) -> Iterator[str]:
    """What `text.split(",")` returns, but one by one: a long text may be wrong from its beginning."""
    begin = 0
    while (end := text.find(",", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]


def _separated(text: str) -> Iterator[str]:
    """The fields of a text in which spaces and tabs separate, and nothing else does."""
    return (field.group() for field in re.finditer(r"[^ \t]+", text))


def _values(members: int) -> tuple[int, ...]:
    return tuple(value for value in range(members.bit_length()) if members >> value & 1)


def _plain(when: object) -> datetime:
    """A datetime without the arithmetic of its own that a subclass may have."""
    if not isinstance(when, datetime):
        raise TypeError(f"a moment is a datetime, not {type(when).__name__}")
    return datetime.combine(when.date(), when.timetz())


# --- explaining ---------------------------------------------------------------------------------------------

_Fault = tuple[str, str | None]
"""A reason, to be read after "<name> field", and a hint that says what to write instead."""


class _UnreadableError(Exception):
    """A field is wrong; on its way to becoming the cause of an InvalidCronExpressionError."""

    def __init__(self, field: _Field, text: str, reason: str, hint: str | None) -> None:
        self.field = field
        self.text = text
        self.reason = reason
        self.hint = hint


_ORDER: Final = "the five fields are minute, hour, day, month and weekday"
_SEPARATORS: Final = "only spaces and tabs separate fields"
_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NAMES: Final = {
    "month": ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "weekday": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
_FOREIGN: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), reason, hint)
    for pattern, reason, hint in (
        (r"@", "contains macros", "write the five fields instead"),
        (r"[?]", "contains Quartz token '?'", "write '*' in a field that does not restrict"),
        (r"#", "contains Quartz token '#'", "POSIX cron cannot count the weekdays of a month"),
        (r"l?w(?![a-z])", "contains Quartz token 'W'", "POSIX cron cannot name the nearest working day"),
        (r"l(?![a-z])", "contains Quartz token 'L'", "POSIX cron cannot name the last day of a month"),
        (r"(?<=0)[xob]", "contains a number that is not decimal", "write it with the digits 0-9"),
        (r"(?<=[0-9])e(?![a-z])", "contains scientific notation", "write the number with the digits 0-9"),
        (r"[+]", "contains a sign '+'", "write the number alone"),
        (r"[.]", "contains a decimal point", "write whole numbers"),
        (r"[\r\n]", "contains a line break", _SEPARATORS),
        (r"\s", "contains white space that is neither space nor tab", _SEPARATORS),
        (r"\d", "contains digits of another script", "write the digits 0-9"),
    )
)


def _not_five_fields(text: str) -> _Fault:
    if not text.strip(" \t"):
        return "is empty", _ORDER
    fields = list(islice(_separated(text), 10))
    if fields[0].startswith("@"):
        equivalent = _MACROS.get(fields[0].lower())
        return "contains macros", f"write {equivalent}" if equivalent else _ORDER
    count = len(fields)
    reason = f"has {count if count < 10 else 'more than 9'} field{'s' if count > 1 else ''} instead of 5"
    if re.search(r"[^\S \t]", text):
        return reason, f"{_ORDER}; {_SEPARATORS}"
    return reason, f"{_ORDER}; seconds and years have none" if count > 5 else _ORDER


def _fault(field: _Field, element: str) -> _Fault:
    """What is wrong with an element that cannot be read."""
    if not element:
        return "contains an empty element", "remove the comma that separates nothing"
    if stranger := re.search(r"[^0-9*-]", element):
        return _foreign(field, element, stranger.start())
    if "*" in element:
        return "mixes '*' with something else", "'*' stands alone in its field"
    low, dash, high = element.partition("-")
    if not low:
        return "contains a sign '-'", "write numbers alone, and ranges with both their ends"
    if (dash and not high) or "-" in high:
        return (
            f"contains '{plain(element, longest=20)}', which is no range",
            "a range is two numbers and a '-'",
        )
    for digits in (low, high) if dash else (low,):
        if not _number(field, digits):
            return _out_of_range(field, element, digits)
    start, end = int(low.lstrip("0") or "0"), int(high.lstrip("0") or "0")
    wrapped = f"{_span(field.low, end)},{_span(start, field.high)}"
    return f"range {start}-{end} runs backwards", f"write {wrapped} if it is meant to wrap around"


def _foreign(field: _Field, element: str, at: int) -> _Fault:
    """What the first character that POSIX does not know seems to mean."""
    letter = element[at]
    if letter == "/":
        return "contains step syntax '/'; list the values instead", _without_step(field, element)
    for pattern, reason, hint in _FOREIGN:
        if pattern.match(element, at):
            return reason, hint
    if letter.isascii() and letter.isalpha():
        return "contains names", _without_names(field, element[at : at + 40])
    return f"contains '{plain(letter)}' (U+{ord(letter):04X})", "write digits, '-' and ',', or '*' alone"


def _out_of_range(field: _Field, element: str, digits: str) -> _Fault:
    number = digits.lstrip("0") or "0"
    if field is not _WEEKDAY or number != "7":
        return f"value {plain(number, longest=20)} is out of range {field.low}-{field.high}", None
    first = _number(field, element.partition("-")[0])  # empty if it is this 7 itself
    monday = 2
    if first < monday:
        hint = "write 0-6" if first else "write 0"
    else:
        hint = f"write 0,{_span(first.bit_length() - 1, 6)}"
    return "7 is not a weekday; use 0 for Sunday", hint


def _without_step(field: _Field, element: str) -> str | None:
    """The list of values that a step stands for elsewhere."""
    step = re.fullmatch(r"(?:\*|([0-9]{1,2})(?:-([0-9]{1,2}))?)/([0-9]{1,2})", element)
    if step is None or int(step[3]) == 0:
        return None
    low, high = int(step[1] or field.low), int(step[2] or field.high)
    values = range(max(low, field.low), min(high, field.high) + 1, int(step[3]))
    if values == range(field.low, field.high + 1):
        return "write *"
    return f"write {','.join(map(str, values))}" if values else None


def _without_names(field: _Field, text: str) -> str:
    """The numbers that the names of months and weekdays stand for."""
    names = _NAMES.get(field.name, ())
    words = {word: word[:3].lower() for word in re.findall(r"[A-Za-z]+", text)}
    known = [f"{names.index(name)} for {word}" for word, name in words.items() if name in names]
    return f"write {' and '.join(known) or 'numbers'}"


def _span(low: int, high: int) -> str:
    return f"{low}-{high}" if low < high else f"{low}"


def _never(pattern: occurrences.Pattern) -> _Fault:
    _, _, days, _, months = pattern
    day = " or ".join(map(str, _values(days)))
    month = " or ".join(map(str, _values(months)))
    return f"never matches: there is no day {day} in month {month}", "choose a day that the month has"
