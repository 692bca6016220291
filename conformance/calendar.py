"""Cron expressions and clock changes the slow way: every minute is looked at, and nothing is shared with duly.

The generator computes vectors with it, and the comparison asks it what an answer means.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
_LONGEST_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


# --- expressions -----------------------------------------------------------------------------------------------------


class UnreadableError(Exception):
    """A text is not a cron expression of the specification: the field to blame, and why (SPEC 6.1, 6.3)."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as five sets, with the texts of its fields."""

    texts: tuple[str, ...]
    sets: tuple[frozenset[int], ...]

    def names_date(self, day: date) -> bool:
        """Whether a day is one that the expression names (SPEC 6.2)."""
        _, _, days, months, weekdays = self.sets
        _, _, day_text, _, weekday_text = self.texts
        on_day, on_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        if "*" in (day_text, weekday_text):
            return day.month in months and on_day and on_weekday
        return day.month in months and (on_day or on_weekday)

    def names(self, wall: datetime) -> bool:
        """Whether the expression names a minute of the wall clock."""
        return wall.minute in self.sets[0] and wall.hour in self.sets[1] and self.names_date(wall.date())

    @property
    def is_at_fixed_times(self) -> bool:
        """Whether it names times of day, and not every minute or every hour (as crontab(5) distinguishes the two)."""
        return "*" not in self.texts[:2]


@cache
def read(text: str) -> Expression:
    """Read an expression; raises UnreadableError with the leftmost field that is wrong."""
    texts = tuple(re.findall(r"[^ \t]+", text))
    if not texts:
        raise UnreadableError("expression", "empty")
    if len(texts) != 5:
        raise UnreadableError("expression", "macro" if texts[0].startswith("@") else "field-count")
    sets = tuple(frozenset(_members(part, *field)) for part, field in zip(texts, FIELDS, strict=True))
    found = Expression(texts, sets)
    if texts[4] == "*" and all(day > _LONGEST_MONTHS[month - 1] for day in sets[2] for month in sets[3]):
        raise UnreadableError("day", "never-matches")
    return found


def _members(text: str, field: str, low: int, high: int) -> Iterator[int]:
    if text == "*":
        yield from range(low, high + 1)
        return
    for element in text.split(","):
        if element == "":
            raise UnreadableError(field, "empty-element")
        if re.search("[^0-9*-]", element):
            raise UnreadableError(field, "foreign-character")
        if "*" in element:
            raise UnreadableError(field, "star-not-alone")
        ends = re.fullmatch("([0-9]+)(?:-([0-9]+))?", element)
        if ends is None:
            raise UnreadableError(field, "not-a-range")
        first, last = _number(ends[1]), _number(ends[2] or ends[1])
        if not (low <= first <= high and low <= last <= high):
            raise UnreadableError(field, "out-of-range")
        if first > last:
            raise UnreadableError(field, "backwards")
        yield from range(first, last + 1)


def _number(digits: str) -> int:
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) < 4 else 9999  # out of every range


# --- the wall clock --------------------------------------------------------------------------------------------------


def offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    """The offset from UTC at an instant."""
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def transitions(zone: ZoneInfo, begin: datetime, end: datetime) -> list[datetime]:
    """The instants, in UTC, at which the offset of a zone changes: found by asking twice a day and halving."""
    found = []
    low, before = begin, offset_at(zone, begin)
    while low < end:
        high = low + DAY / 2
        after = offset_at(zone, high)
        if after != before:
            found.append(_turning_point(zone, low, high))
        low, before = high, after
    return found


def _turning_point(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    before = offset_at(zone, low)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def is_second_copy(zone: ZoneInfo, instant: datetime) -> bool:
    """Whether the wall clock has shown this minute before: it was set back in between."""
    return instant.astimezone(zone).fold == 1


def occurrences(expression: Expression, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants after a moment at which an expression occurs, in UTC: minute by minute (SPEC 2.1 to 2.3).

    A minute that the wall clock skips is never shown, so it is not found; a minute that it shows again is left out.
    """
    instant = _minute_after(zone, after)
    while True:
        wall = instant.astimezone(zone)
        if expression.names_date(wall.date()):
            if wall.fold == 0 and expression.names(wall):
                yield instant
        elif (quiet := _quiet_stretch(expression, zone, instant)) is not None:
            instant += quiet
            continue
        instant = _minute_after(zone, instant)


def _quiet_stretch(expression: Expression, zone: ZoneInfo, instant: datetime) -> timedelta | None:
    """A day or an hour from an instant in which the offset stays and the wall clock shows no date that is named."""
    wall = instant.astimezone(zone)
    for stretch in (DAY, HOUR):
        end = (instant + stretch).astimezone(zone)
        if end.utcoffset() == wall.utcoffset() and not any(map(expression.names_date, _dates(wall.date(), end.date()))):
            return stretch
    return None


def _dates(first: date, last: date) -> Iterator[date]:
    while first <= last:
        yield first
        first += DAY


def _minute_after(zone: ZoneInfo, instant: datetime) -> datetime:
    """The next instant at which the wall clock shows second 0.

    Offsets are not always whole minutes, so a minute of the zone can begin between two minutes of UTC.
    """
    ahead = instant + MINUTE
    if instant.astimezone(zone).second == ahead.astimezone(zone).second == 0:
        return ahead
    instant += timedelta(seconds=1)
    while instant.astimezone(zone).second != 0:
        instant += timedelta(seconds=1)
    return instant


# --- text ------------------------------------------------------------------------------------------------------------


def utc_text(instant: datetime) -> str:
    """An instant in UTC, as vectors write it."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def local_text(instant: datetime, zone: ZoneInfo) -> str:
    """An instant as the wall clock of a zone shows it, with its offset."""
    return instant.astimezone(zone).isoformat()


def instant_of(text: str) -> datetime:
    """The instant, in UTC, that a text with an offset names. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return moment.astimezone(UTC)
