"""The coming starts of an expression."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from duly import parse_cron
from duly.insight.coming import Calendar, Coming
from duly.insight.json_form import json_form

BERLIN = ZoneInfo("Europe/Berlin")


def coming(expression: str, since: datetime, count: int) -> Coming:
    """The coming starts of an expression."""
    return Calendar(since, count).coming(None, parse_cron(expression))


def test_leaps_that_skip_or_repeat_no_named_minute_are_left_out() -> None:
    """Noon exists on the day on which the clocks go forward."""
    assert coming("0 12 * * *", datetime(2024, 3, 30, tzinfo=BERLIN), 5).leaps == ()


def test_a_due_minute_that_is_asked_from_is_the_first_start() -> None:
    """From its second copy, which is not due, the first start is the next day."""
    minute = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    expression = "30 2 * * *"
    assert coming(expression, minute, 1).starts[0].isoformat() == "2024-10-27T02:30:00+02:00"
    assert coming(expression, minute.replace(fold=1), 1).starts[0].isoformat() == "2024-10-28T02:30:00+01:00"


def test_a_thousand_leap_years_take_no_longer_than_their_starts() -> None:
    """The search follows the expression, not the calendar; where the calendar ends, so do the starts."""
    found = coming("0 0 29 2 *", datetime(2024, 1, 1, tzinfo=BERLIN), 1000)
    assert len(found.starts) == 1000
    assert len(coming("0 0 29 2 *", datetime(9990, 1, 1, tzinfo=BERLIN), 1000).starts) == 2


def test_the_starts_of_several_tasks_are_merged_by_time() -> None:
    """Starts of one minute stay in the order of the tasks."""
    tasks = [("b", parse_cron("0 12 * * *")), ("a", parse_cron("0,30 12 * * *"))]
    merged = Calendar(datetime(2024, 5, 1, tzinfo=BERLIN), 2).merged(tasks, 3)
    assert [(f"{start.at:%H:%M}", start.task) for start in merged] == [("12:00", "b"), ("12:00", "a"), ("12:30", "a")]


def test_what_comes_has_one_json_form() -> None:
    """Starts have the offset of their own zone; skipped minutes, which have none, are wall-clock times."""
    form = json_form(coming("30 2 * * *", datetime(2024, 3, 31, tzinfo=BERLIN), 1), UTC)
    assert form == {
        "task": None,
        "expression": "30 2 * * *",
        "words": "at 02:30 every day",
        "starts": ["2024-04-01T02:30:00+02:00"],
        "leaps": [
            {
                "kind": "skipped",
                "at": "2024-03-31T01:00:00+00:00",
                "clockBefore": "2024-03-31T02:00:00",
                "clockAfter": "2024-03-31T03:00:00",
                "minutes": ["2024-03-31T02:30:00"],
            }
        ],
    }
