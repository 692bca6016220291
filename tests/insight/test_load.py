"""How many tasks are due in each minute to come."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from duly.core.cron import parse_cron
from duly.core.moments import Instant, instant_of
from duly.insight.json_form import json_form
from duly.insight.load import load_of

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


def test_the_calendar_ends() -> None:
    load = load_of([(parse_cron("0 0 1 1 *"), 1)], at("9998-06-01"), at("9999-12-31T22:00"), BERLIN, busiest=1)
    assert load.starts == 1
    form = json_form(load, BERLIN)
    assert form["busiest"] == [{"minute": "9999-01-01T00:00:00+01:00", "tasks": 1}]
    assert "minutes" not in form
