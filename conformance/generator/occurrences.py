"""Next occurrences: a table of calendars, and every zone's clock changes in a range of years.

The answers come from `conformance.calendar`, which looks at every minute with `zoneinfo`. The committed file has all
changes of the years `YEARS` in every zone of the tz database, and a seeded sample of those since 1970. `full` has all
of them.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from conformance import tz_database
from conformance.calendar import (
    HOUR,
    MINUTE,
    instant_of,
    local_text,
    occurrences,
    offset_at,
    read,
    transitions,
    utc_text,
)
from conformance.vector_files import Group, Vector, VectorFile

SEED: Final = 1
YEARS: Final = (2024, 2027)
"""All changes of these years, the last one included, are in the committed file."""

SAMPLED_YEARS: Final = (1970, 2037)
SAMPLED_ZONES: Final = 150
SAMPLED_CHANGES: Final = 400


# --- calendars -------------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """A row of the table: what it is about, an expression, a zone, a moment, and how many occurrences are asked for."""

    rule: str
    expression: str
    after: str
    zone: str = "UTC"
    number: int = 4


QUESTIONS: Final = (
    Question("plain", "* * * * *", "2025-01-01T00:00:00Z"),
    Question("plain", "* * * * *", "2025-12-31T23:58:30Z"),
    Question("plain", "* * * * *", "2024-02-29T23:58:59Z"),
    Question("plain", "0 * * * *", "2025-06-30T22:30:00Z"),
    Question("plain", "0 0 * * *", "2024-02-27T12:00:00Z"),
    Question("plain", "0 0 * * *", "2025-02-27T12:00:00Z"),
    Question("plain", "59 23 31 12 *", "2025-12-31T23:59:00Z", number=2),
    Question("plain", "0,15,30,45 9-17 * * *", "2025-05-05T17:44:59Z"),
    Question("plain", "7,3 5,4 * * *", "2025-05-05T04:03:00Z"),
    Question("plain", "0 12 1 1,7 *", "2025-05-05T04:03:00Z", "Asia/Kathmandu"),
    Question("plain", "30 6 * * *", "2025-05-05T04:03:00Z", "Pacific/Chatham"),
    Question("plain", "30 23 * * *", "2025-05-05T04:03:00Z", "Pacific/Kiritimati"),
    Question("plain", "5 0 28-31 * *", "2025-01-29T00:00:00Z", number=8),
    Question("strictly-after", "0 0 * * *", "2025-03-03T00:00:00Z", number=1),
    Question("strictly-after", "* * * * *", "2025-03-03T10:10:00Z", number=1),
    Question("strictly-after", "0 0 * * *", "2025-03-02T23:59:59Z", number=1),
    Question("month-lengths", "0 0 31 * *", "2025-01-31T00:00:00Z", number=7),
    Question("month-lengths", "0 0 30 * *", "2025-01-30T00:00:00Z", number=4),
    Question("month-lengths", "0 0 31 4,5 *", "2025-01-01T00:00:00Z", number=2),
    Question("leap-day", "0 0 29 2 *", "2024-02-28T00:00:00Z", number=3),
    Question("leap-day", "0 0 29 2 *", "2096-02-29T00:00:00Z", number=2),
    Question("leap-day", "0 0 29 2 *", "1996-02-29T00:00:00Z", number=2),
    Question("leap-day", "30 12 29 2 *", "2025-01-01T00:00:00Z", "America/New_York", number=2),
    Question("leap-day", "0 0 29 2,3 *", "2025-01-01T00:00:00Z", number=4),
    *(Question("weekday", f"0 8 * * {day}", "2025-01-01T00:00:00Z", number=2) for day in range(7)),
    Question("weekday", "0 8 * * 1-5", "2025-01-03T09:00:00Z", number=3),
    Question("weekday", "0 8 * * 0,6", "2025-01-03T09:00:00Z", number=4),
    Question("weekday", "0 8 * 2 0", "2025-01-03T09:00:00Z", number=5),
    Question("either-day", "30 4 1,15 * 5", "2025-01-01T00:00:00Z", number=8),
    Question("either-day", "0 0 13 * 5", "2025-06-01T00:00:00Z", number=6),
    Question("either-day", "0 0 1 * 1", "2025-08-25T12:00:00Z", number=4),
    Question("either-day", "0 0 1-7 * 1", "2025-09-01T12:00:00Z", number=8),
    Question("either-day", "0 12 10 * 0", "2025-09-01T12:00:00Z", "Europe/Berlin", number=5),
    Question("month-and-either-day", "0 0 1 6 1", "2025-06-10T00:00:00Z", number=6),
    Question("month-and-either-day", "0 0 31 4 1", "2025-01-01T00:00:00Z", number=6),
    Question("month-and-either-day", "0 0 30 2 0", "2025-02-20T00:00:00Z", number=4),
    Question("range-restricts", "0 0 1-31 * 1", "2025-03-04T12:00:00Z", number=4),
    Question("range-restricts", "0 0 1 * 0-6", "2025-03-04T12:00:00Z", number=4),
)
"""Away from clock changes; zones with whole-minute offsets that do not change in the years asked about, or UTC."""


def calendar_file() -> VectorFile:
    """The group `calendar`."""
    vectors = []
    tz_database.use_package()
    for number, question in enumerate(QUESTIONS, 1):
        zone = ZoneInfo(question.zone)
        found = _next(question.expression, zone, instant_of(question.after), question.number)
        head = {"id": f"{question.rule}/{number}", "rule": question.rule, "expression": question.expression}
        vectors.append({**head, "zone": question.zone, "from": question.after, "next": found})
    return VectorFile(
        Group.CALENDAR,
        "The next occurrences of an expression after a moment, away from clock changes.",
        "SPEC 2.1, 6.2, 6.3",
        vectors,
    )


def _next(expression: str, zone: ZoneInfo, after: datetime, count: int) -> list[str]:
    return [local_text(instant, zone) for instant in islice(occurrences(read(expression), zone, after), count)]


# --- clock changes ---------------------------------------------------------------------------------------------------


def transitions_file() -> VectorFile:
    """The group `transitions`, as it is committed."""
    tz_database.use_package()
    vectors: dict[str, Vector] = {}
    dice = random.Random(SEED)
    names = tz_database.all_zones()
    for name in names:
        _add(vectors, _round_zone(name, YEARS, dice))
    older = [
        (name, change)
        for name in sorted(dice.sample(names, SAMPLED_ZONES))
        for change in _changes(name, SAMPLED_YEARS)
        if not YEARS[0] <= change.year <= YEARS[1]
    ]
    for name, change in sorted(dice.sample(older, min(SAMPLED_CHANGES, len(older)))):
        _add(vectors, _round_change(name, change, dice))
    return _file(
        list(vectors.values()),
        f"All clock changes of all zones from {YEARS[0]} to {YEARS[1]}, and {SAMPLED_CHANGES} of the others from "
        f"{SAMPLED_YEARS[0]} to {SAMPLED_YEARS[1]}, in {SAMPLED_ZONES} zones, chosen by the seed.",
    )


def full_transitions_file() -> VectorFile:
    """The group `transitions`, with every clock change since 1970 in every zone."""
    tz_database.use_package()
    vectors: dict[str, Vector] = {}
    dice = random.Random(SEED)
    for name in tz_database.all_zones():
        _add(vectors, _round_zone(name, SAMPLED_YEARS, dice))
    return _file(
        list(vectors.values()), f"All clock changes of all zones from {SAMPLED_YEARS[0]} to {SAMPLED_YEARS[1]}."
    )


def _add(vectors: dict[str, Vector], more: Iterator[Vector]) -> None:
    vectors.update((vector["id"], vector) for vector in more)


def _file(vectors: list[Vector], extent: str) -> VectorFile:
    return VectorFile(
        Group.TRANSITIONS,
        f"The next occurrences of an expression round clock changes. {extent}",
        "SPEC 2.1 to 2.3",
        vectors,
        tz_database.version(),
        {"seed": SEED},
    )


def _changes(name: str, years: tuple[int, int]) -> list[datetime]:
    return transitions(ZoneInfo(name), datetime(years[0], 1, 1, tzinfo=UTC), datetime(years[1] + 1, 1, 1, tzinfo=UTC))


def _round_zone(name: str, years: tuple[int, int], dice: random.Random) -> Iterator[Vector]:
    changes = _changes(name, years)
    if not changes:  # its offset is worth a question
        zone = ZoneInfo(name)
        moment = datetime(years[1], 3, 1, 11, 58, 30, tzinfo=UTC)
        wall = moment.astimezone(zone) + timedelta(hours=5)
        yield _vector(name, "no-change", f"{wall.minute} {wall.hour} * * *", moment, 2, None)
    for change in changes:
        yield from _round_change(name, change, dice)


def _round_change(name: str, change: datetime, dice: random.Random) -> Iterator[Vector]:
    zone = ZoneInfo(name)
    before, after = offset_at(zone, change - timedelta(seconds=1)), offset_at(zone, change)
    gap = int((after - before).total_seconds())
    if abs(gap) < 60:  # an odd second was put right: no whole minute is skipped or shown again
        return
    if gap > 0:
        yield from _round_gap(name, change, before, gap, dice)
    else:
        yield from _round_repeat(name, change, after, -gap, dice)


def _round_gap(name: str, change: datetime, before: timedelta, gap: int, dice: random.Random) -> Iterator[Vector]:
    wall = change.replace(tzinfo=None) + before  # the first that is skipped
    wall += timedelta(seconds=-wall.second % 60, minutes=dice.randrange(max(1, gap // 60)))
    at = f"{wall.minute} {wall.hour}"
    yield _vector(name, "skipped", f"{at} * * *", change - MINUTE, 2, change)
    match dice.randrange(4):
        case 0:
            yield _vector(name, "every-minute-forward", "* * * * *", change - 2 * MINUTE, 4, change)
        case 1:
            yield _vector(name, "hourly-forward", f"{wall.minute} * * * *", change - HOUR, 4, change)
        case 2:
            yield _vector(name, "skipped-date", f"{at} {wall.day} {wall.month} *", change - MINUTE, 1, change)
        case _:
            between = f"{wall.minute} {max(wall.hour - 1, 0)}-{min(wall.hour + 1, 23)} * * *"
            yield _vector(name, "skipped-hours", between, change - 2 * HOUR, 4, change)


def _round_repeat(name: str, change: datetime, after: timedelta, length: int, dice: random.Random) -> Iterator[Vector]:
    wall = change.replace(tzinfo=None) + after  # the first that is shown again
    wall += timedelta(seconds=-wall.second % 60, minutes=dice.randrange(max(1, length // 60)))
    at = f"{wall.minute} {wall.hour}"
    begin = change - timedelta(seconds=length) - MINUTE
    yield _vector(name, "repeated", f"{at} * * *", begin, 2, change)
    match dice.randrange(4):
        case 0:
            yield _vector(name, "every-minute-back", "* * * * *", change - 2 * MINUTE, 4, change)
        case 1:
            yield _vector(name, "hourly-back", f"{wall.minute} * * * *", begin, 4, change)
        case 2:
            yield _vector(name, "between-copies", f"{at} * * *", change - timedelta(seconds=1), 1, change)
        case _:
            between = f"{wall.minute} {max(wall.hour - 1, 0)}-{min(wall.hour + 1, 23)} * * *"
            yield _vector(name, "repeated-hours", between, begin - HOUR, 4, change)


def _vector(name: str, rule: str, expression: str, after: datetime, count: int, change: datetime | None) -> Vector:
    zone = ZoneInfo(name)
    head: Vector = {"id": f"{name}/{utc_text(change or after)[:10]}/{rule}", "rule": rule, "expression": expression}
    head |= {"zone": name, "from": utc_text(after)}
    if change is not None:
        sides = [local_text(change - timedelta(seconds=1), zone), local_text(change, zone)]
        head["change"] = sides
    return {**head, "next": _next(expression, zone, after, count)}
