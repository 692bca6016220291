"""Times, durations, numbers and lists in words."""

from collections.abc import Sequence
from datetime import timedelta, tzinfo
from typing import Final

from duly.core.moments import MICROSECONDS, Instant, as_datetime
from duly.text import plain

_DAYS_SHOWN_MAX: Final = 3 * 365
"""Longer times are shown in years of 365 days."""


def iso(instant: Instant | int, zone: tzinfo) -> str:
    """An instant in ISO 8601, with the offset of a zone."""
    return as_datetime(instant, zone).isoformat()


def offset(instant: Instant | int, zone: tzinfo) -> str:
    """A zone's offset from UTC at an instant, as in ISO 8601."""
    return as_datetime(instant, zone).isoformat(timespec="seconds")[19:]


def clock_time(instant: Instant | int, zone: tzinfo, at: Instant | int) -> str:
    """An instant for people: the time, with the date if it is another day than `at`, seconds if there are any."""
    when, today = as_datetime(instant, zone), as_datetime(at, zone).date()
    shown = f"{when:%H:%M:%S}" if when.second or when.microsecond else f"{when:%H:%M}"
    if when.date() == today:
        return shown
    return f"{when:%a} {shown}" if timedelta(0) < when.date() - today < timedelta(7) else f"{when:%Y-%m-%d} {shown}"


def stretch(seconds: float) -> str:
    """A length of time for people, in at most two units: `12 ms`, `3.2 s`, `4 min 10 s`, `12 d 4 h`, `3 y 10 d`."""
    if seconds < 0:
        return "-" + stretch(-seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    if (days := whole // 86400) >= _DAYS_SHOWN_MAX:
        years, rest = divmod(days, 365)
        return f"{years:,} y" + (f" {rest} d" if rest else "")
    for size, name, lower_size, lower_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // lower_size
            return f"{whole // size} {name}" + (f" {rest} {lower_name}" if rest else "")
    return f"{whole} s"


def between(start: Instant | int, end: Instant | int) -> str:
    """The time between two instants, for people."""
    return stretch((end - start) / MICROSECONDS)


def ago(instant: Instant | int, at: Instant | int) -> str:
    """How long ago, or how far ahead, an instant is, for people."""
    return f"{between(instant, at)} ago" if instant <= at else f"in {between(at, instant)}"


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def names(some: Sequence[str], total: int | None = None, *, most: int = 5) -> str:
    """The first few names, safe to show on a terminal, and how many more there are: "a, b and 3 more".

    `total` is how many there are in all, if `some` are not all of them.
    """
    more = (len(some) if total is None else total) - min(most, len(some))
    return ", ".join(map(visible, some[:most])) + (f" and {more:,} more" if more > 0 else "")


def visible(name: str, *, longest: int | None = None) -> str:
    """A name on one line, of at most `longest` letters; in quotation marks where blanks would not be seen."""
    text = plain(name, longest=longest)
    return text if text == text.strip() and text else f'"{text}"'


def counted(number: int, noun: str) -> str:
    """A number and what it counts: "1 task", "1,000 tasks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
