"""How many tasks are due in each minute to come."""

import random
from collections import Counter
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly.core.cron import parse_cron
from duly.core.due import next_due
from duly.core.moments import MICROSECONDS, Instant, Minute, begin, instant_of
from duly.insight.json_form import json_form
from duly.insight.load import load_of, part_of

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text).replace(tzinfo=BERLIN))


def test_every_due_minute_counts_as_many_times_as_tasks_have_the_expression() -> None:
    expressions = [(parse_cron("0,30 * * * *"), 3), (parse_cron("30 12 * * *"), 1)]
    load = load_of(expressions, at("2026-05-01T12:00"), at("2026-05-01T14:00"), BERLIN)
    assert load.starts == 4 * 3 + 1
    assert [(each.minute, each.tasks) for each in load.busiest[:2]] == [
        (at("2026-05-01T12:30"), 4),
        (at("2026-05-01T12:00"), 3),
    ]


def test_a_minute_that_has_begun_is_past_and_the_last_one_is_not_included() -> None:
    every = [(parse_cron("* * * * *"), 1)]
    begun = Instant(at("2026-05-01T12:00") + 1)
    assert load_of(every, begun, at("2026-05-01T12:03"), BERLIN).starts == 2
    assert load_of(every, at("2026-05-01T12:00"), at("2026-05-01T12:03"), BERLIN).starts == 3


def test_skipped_and_repeated_hours_count_as_they_are_due() -> None:
    """SPEC 2.2, 2.3: on 29 March 02:30 does not exist, and on 25 October each minute of that hour is due once."""
    nightly = [(parse_cron("30 2 * * *"), 1)]
    day = timedelta(days=1)
    spring = at("2026-03-29T00:00")
    assert load_of(nightly, spring, instant_of(datetime(2026, 3, 29, tzinfo=BERLIN) + day), BERLIN).starts == 0
    every = [(parse_cron("* * * * *"), 1)]
    autumn = datetime(2026, 10, 25, tzinfo=BERLIN)
    assert load_of(every, instant_of(autumn), instant_of(autumn + day), BERLIN).starts == 24 * 60


@pytest.mark.parametrize(
    ("zone_name", "since"),
    [
        ("Europe/Berlin", "2026-05-28T11:59:30"),
        ("Europe/Berlin", "2026-10-24T13:07:00"),
        ("Europe/Berlin", "2026-03-28T13:07:00"),
        ("Australia/Lord_Howe", "2026-04-03T23:00:00"),
        ("Australia/Lord_Howe", "2026-10-01T02:15:00"),
        ("America/Sao_Paulo", "2018-02-16T23:30:00"),
        ("America/Sao_Paulo", "2018-11-03T00:00:00"),
        ("Africa/Monrovia", "1972-01-05T12:00:00"),
    ],
)
def test_the_load_is_that_of_all_due_minutes_found_one_by_one(zone_name: str, since: str) -> None:
    """SPEC 2.2, 2.3, 6.2: expressions that share hours, days, both or nothing, over a change and an end of a month."""
    chance = random.Random(f"{zone_name} {since}")
    zone = ZoneInfo(zone_name)
    minutes = ["*", "0", "0,30", "15,44,45", *(f"{n},{n + 30}" for n in range(30))]
    hours = ["*", "*", "0", "0-3", "23", "1,2,13"]
    days = ["* * *", "* * *", "1-31 * 0", "* * 1-5", "1 * *", "29-31 3,10 0,6", "* 2,5,10 *", "4 * 1"]
    expressions = [
        (parse_cron(f"{chance.choice(minutes)} {chance.choice(hours)} {chance.choice(days)}"), chance.randint(1, 9))
        for _ in range(40)
    ]
    begins = datetime.fromisoformat(since).replace(tzinfo=zone)
    for hours_long in (1, 26, 8 * 24):
        first = instant_of(begins)
        end = Instant(first + hours_long * 3600 * MICROSECONDS)
        expected: Counter[Minute] = Counter()
        for expression, tasks in expressions:
            minute = Minute(first // MICROSECONDS - 1)
            while begin(minute := next_due(expression, minute, zone)) < end:
                expected[minute] += tasks
        load = load_of(expressions, first, end, zone)
        assert load.minutes == expected
        assert load.starts == expected.total()
        ranked = sorted(expected.items(), key=lambda item: (-item[1], item[0]))[:10]
        assert [(each.minute, each.tasks) for each in load.busiest] == [(begin(due), tasks) for due, tasks in ranked]


def test_a_part_of_a_load_is_what_would_have_been_counted_for_it() -> None:
    expressions = [(parse_cron("0,30 * * * *"), 3), (parse_cron("* 12 * * 1-5"), 1)]
    whole = load_of(expressions, at("2026-10-23T11:00"), at("2026-10-31T12:00"), BERLIN, tasks_left_out=7)
    for since in (at("2026-10-23T11:00"), Instant(at("2026-10-23T11:29") + 1), at("2026-10-23T11:30")):
        for until in (at("2026-10-23T12:30"), Instant(at("2026-10-25T02:30") + 1), at("2026-10-31T12:00")):
            counted = load_of(expressions, since, until, BERLIN, busiest=3, tasks_left_out=7)
            assert part_of(whole, since, until, busiest=3) == counted


def test_two_thousand_expressions_of_a_week_ask_for_no_start_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has 100 ms of processor time, and `next_due` for each start took seconds: the bench holds the time."""
    monkeypatch.setattr("duly.core.occurrences.following", lambda *_: pytest.fail("asked for one start"))
    pairs = [(first, second) for first in range(60) for second in range(first)][:1000]
    expressions = [(parse_cron(f"{two},{one} * * * {days}"), 1) for one, two in pairs for days in ("*", "1-5")]
    since = at("2026-10-05T11:00")
    load = load_of(expressions, since, Instant(since + 8 * 24 * 3600 * MICROSECONDS), BERLIN)
    assert load.starts == 1000 * 2 * 8 * 24 + 1000 * 2 * 6 * 24


def test_the_calendar_ends() -> None:
    load = load_of([(parse_cron("0 0 1 1 *"), 1)], at("9998-06-01"), at("9999-12-31T22:00"), BERLIN, busiest=1)
    assert load.starts == 1
    form = json_form(load, BERLIN)
    assert form["busiest"] == [{"minute": "9999-01-01T00:00:00+01:00", "tasks": 1}]
    assert "minutes" not in form
