"""Every zone of the tz database, every transition of 1970 to 2037, against a walk from minute to minute."""

import random
import secrets
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import pytest

from duly.core.cron import CronExpression, parse_cron
from duly.core.due import latest_due, next_due
from duly.core.moments import Minute
from tests.conftest import soak_seconds
from tests.counts import share

CHUNKS: Final = 16
SOAK_CHUNKS: Final = 2
SAMPLE_OF_A_CHUNK: Final = 340
"""Transitions that `make test-all` walks round, per chunk of zones: 5,440 of them, always the same."""

DAY: Final = 86_400
EPOCH: Final = datetime(1970, 1, 1)
FIRST_YEAR, LAST_YEAR = 1970, 2037

EXPRESSIONS: Final = (
    "* * * * *",
    "0 * * * *",
    "0,30 * * * *",
    "0,15,30,45 * * * *",
    "44,45 * * * *",
    "30 2 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "0-29 0-3 * * *",
    "*  22-23 * * *",
    "10 1,2,3 * * 0",
    "0 0,12 * * 1-5",
    "20 * 1,15,25-31 * *",
    "5 * 1-7 * 0",
    "0 1 * 3,4,10,11 *",
    "* 0-2 * 1-6 *",
)


# --- the transitions ----------------------------------------------------------------------------------------


@cache
def probes() -> list[datetime]:
    """Local times, twelve hours apart."""
    beginning = datetime(FIRST_YEAR, 1, 1)
    count = 2 * (datetime(LAST_YEAR + 1, 1, 1) - beginning).days
    return [beginning + timedelta(hours=12 * step) for step in range(count + 1)]


def shown(second: int, zone: ZoneInfo) -> datetime:
    """The wall-clock time at a second since the epoch."""
    return datetime.fromtimestamp(second, zone)


@cache
def transitions(name: str) -> tuple[int, ...]:
    """The seconds at which the offset of a zone changes, found by looking twice a day and halving the interval."""
    zone = ZoneInfo(name)
    found = []
    moments = probes()
    offsets = [zone.utcoffset(moment) or timedelta(0) for moment in moments]
    for index in range(1, len(moments)):
        old, new = offsets[index - 1], offsets[index]
        if old == new:
            continue
        # A local time may be skipped or repeated; with the greater offset it is surely before, with the lesser after.
        before = int((moments[index - 1] - EPOCH - max(old, new)).total_seconds())
        after = int((moments[index] - EPOCH - min(old, new)).total_seconds())
        while after - before > 1:
            middle = (before + after) // 2
            if shown(middle, zone).utcoffset() == old:
                before = middle
            else:
                after = middle
        found.append(after)
    return tuple(found)


def transitions_of_chunk(chunk: int, of: int) -> list[tuple[str, int]]:
    names = sorted(available_timezones())[chunk::of]
    return [(name, turn) for name in names for turn in transitions(name)]


# --- the oracle ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Walk:
    """The wall-clock times round a transition: each minute at the second at which it began first."""

    zone: ZoneInfo
    begin: int
    end: int
    first_copies: dict[datetime, int]

    def due(self, expression: str) -> list[int]:
        minutes, hours, days, months, weekdays = map(named, expression.split(), (0, 0, 1, 1, 0), (59, 23, 31, 12, 6))
        day_star, weekday_star = (expression.split()[index] == "*" for index in (2, 4))
        return [
            second
            for wall, second in self.first_copies.items()
            if wall.minute in minutes
            and wall.hour in hours
            and wall.month in months
            and (
                (wall.day in days and wall.isoweekday() % 7 in weekdays)
                if day_star or weekday_star
                else (wall.day in days or wall.isoweekday() % 7 in weekdays)
            )
        ]


def named(field: str, low: int, high: int) -> set[int]:
    if field == "*":
        return set(range(low, high + 1))
    values: set[int] = set()
    for element in field.split(","):
        first, _, last = element.partition("-")
        values.update(range(int(first), int(last or first) + 1))
    return values


def walk(name: str, turn: int) -> Walk:
    """Go from minute to minute, a day and a little before the transition to a day after it."""
    zone = ZoneInfo(name)
    begin, end = turn - DAY - 4 * 3600, turn + DAY
    first_copies: dict[datetime, int] = {}
    second = begin
    wall = shown(second, zone)
    while second <= end:
        if wall.second == 0:
            first_copies.setdefault(wall, second)  # datetimes of one zone are equal whatever their fold
            ahead = shown(second + 60, zone)
            if ahead.second == 0:
                second, wall = second + 60, ahead
                continue
        second += 1  # not in step with the clock: look at every second until a minute begins
        wall = shown(second, zone)
    return Walk(zone, turn - DAY, end, first_copies)


def moments_of_interest(turn: int, due: list[int], rng: random.Random) -> Iterator[int]:
    yield from (
        turn - 3600,
        turn - 61,
        turn - 1,
        turn,
        turn + 1,
        turn + 59,
        turn + 60,
        turn + 3599,
        turn + 3600,
    )
    yield from (rng.randint(turn - DAY, turn + DAY) for _ in range(4))
    for occurrence in rng.sample(due, min(3, len(due))):
        yield from (occurrence - 1, occurrence, occurrence + 59)


# --- the comparison -----------------------------------------------------------------------------------------


def aimed_at(turn: int, zone: ZoneInfo, rng: random.Random) -> str:
    """An expression that names a minute of the day in which the clock is changed, perhaps a skipped or repeated one."""
    side = rng.choice((turn - 1, turn))
    wall = shown(side, zone).replace(tzinfo=None) + timedelta(minutes=rng.randint(-90, 90))
    return rng.choice(
        (
            f"{wall.minute} {wall.hour} * * *",
            f"{wall.minute} {wall.hour} {wall.day} {wall.month} *",
            f"* {wall.hour} * * *",
        )
    )


def compare(name: str, turn: int, rng: random.Random) -> None:
    history = walk(name, turn)
    for text in (rng.choice(EXPRESSIONS), aimed_at(turn, history.zone, rng)):
        compare_expression(parse_cron(text), history, turn, rng)


def compare_expression(expression: CronExpression, history: Walk, turn: int, rng: random.Random) -> None:
    zone, due = history.zone, history.due(expression.text)
    assert due == sorted(due)  # first copies come in the order of the wall clock, which the search relies on
    for second in moments_of_interest(turn, due, rng):
        if not history.begin <= second <= history.end:
            continue
        about = f"{expression.text!r} in {zone.key} at {second}: {shown(second, zone)}"
        when = shown(second, zone)

        later = bisect_right(due, second)
        following = next_due(expression, Minute(second), zone)
        if later < len(due):
            assert following == due[later], about
            assert same(expression.next_after(when), due[later], zone), about
        else:
            assert following > history.end, about

        latest = latest_due(expression, Minute(second), zone)
        assert latest is not None
        if due and due[0] <= second:
            assert latest == due[later - 1], about
        else:
            assert latest < history.begin, about
        earlier = bisect_left(due, second)
        if earlier:
            assert same(expression.previous_before(when), due[earlier - 1], zone), about

        began = second - when.second
        first_copy = history.first_copies.get(when.replace(second=0))
        assert expression.matches(when) == (began == first_copy and due[later - 1 : later] == [began]), about


def same(found: datetime, second: int, zone: ZoneInfo) -> bool:
    """Same clock face, zone and fold: `==` alone would overlook the fold."""
    expected = shown(second, zone)
    return (found, found.fold, found.tzinfo) == (expected, 0, zone) and expected.fold == 0


@pytest.mark.parametrize("chunk", share(range(CHUNKS), 2))
def test_a_walk_from_minute_to_minute_finds_the_same_round_a_sample_of_transitions(chunk: int) -> None:
    """SPEC 2.1 to 2.3: next, latest, previous and matches, a day before and after each transition of the sample."""
    rng = random.Random(f"chunk {chunk}")
    sample = rng.sample(transitions_of_chunk(chunk, CHUNKS), SAMPLE_OF_A_CHUNK)
    for name, turn in sample:
        compare(name, turn, rng)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(SOAK_CHUNKS))
def test_a_walk_from_minute_to_minute_finds_the_same_round_every_transition(chunk: int) -> None:
    """SPEC 2.1 to 2.3, all zones, all transitions: once each, which is due however few the minutes of the soak are.

    Then again, with expressions and moments that nobody has tried, until the minutes are over.
    """
    until = time.monotonic() + soak_seconds()
    every = transitions_of_chunk(chunk, SOAK_CHUNKS)
    for name, turn in every:
        compare_thrown(name, turn, 0)
    again = 0
    while time.monotonic() < until:
        compare_thrown(*random.choice(every), secrets.randbits(62))
        again += 1
    print(f"{len(every)} transitions, and {again} of them again")


def compare_thrown(name: str, turn: int, seed: int) -> None:
    """Compare round one transition, with dice of its own: a failure says how it is repeated."""
    try:
        compare(name, turn, random.Random(f"{name} {turn} {seed}"))
    except BaseException as error:
        error.add_note(f"again: compare_thrown({name!r}, {turn}, {seed})")
        raise


def test_the_sample_is_large_enough() -> None:
    """A seeded sample of at least 5,000."""
    assert CHUNKS * SAMPLE_OF_A_CHUNK >= 5000


def test_known_transitions_are_found() -> None:
    """The scan sees what the almanac says, skipped days and odd seconds included."""
    assert utc("1972-01-07T00:44:30") in transitions("Africa/Monrovia")
    assert utc("1993-08-21T12:00:00") in transitions("Pacific/Kwajalein")
    assert utc("2011-12-30T10:00:00") in transitions("Pacific/Apia")
    assert {utc("2025-03-30T01:00:00"), utc("2025-10-26T01:00:00")} <= set(transitions("Europe/Berlin"))
    assert transitions("UTC") == ()


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_the_oracle_knows_skipped_and_repeated_minutes() -> None:
    """The ground of the comparison: two transitions that can be checked by hand."""
    berlin = ZoneInfo("Europe/Berlin")
    skipped = walk("Europe/Berlin", utc("2025-03-30T01:00:00"))
    assert datetime(2025, 3, 30, 2, 30, tzinfo=berlin) not in skipped.first_copies
    assert skipped.first_copies[datetime(2025, 3, 30, 3, 0, tzinfo=berlin)] == utc("2025-03-30T01:00:00")
    repeated = walk("Europe/Berlin", utc("2025-10-26T01:00:00"))
    assert repeated.first_copies[datetime(2025, 10, 26, 2, 30, tzinfo=berlin)] == utc("2025-10-26T00:30:00")
    assert repeated.due("30 2 * * *")[1:] == [utc("2025-10-26T00:30:00")]
