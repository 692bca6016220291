"""Whether a text is POSIX cron, what it says, and what to write instead."""

from datetime import UTC

from duly.insight.cron_check import examine
from duly.insight.json_form import json_form


def test_the_advice_is_the_whole_expression_or_why_there_is_none() -> None:
    """It can be copied, all five fields of it."""
    assert examine("*/20 3 * * mon-fri").advice == "write '0,20,40 3 * * 1-5'"
    last_day = examine("0 0 L * *")
    assert last_day.advice == last_day.obstacles[0].text
    assert "POSIX cron cannot name the last day of a month" in last_day.obstacles[0].text
    assert examine("0 0 * * *").advice is None


def test_without_an_equivalent_the_advice_is_the_hint_of_the_error() -> None:
    check = examine("0 25 * * *")
    assert check.error is not None
    assert (check.posix, check.obstacles, check.advice) == (None, (), check.error.hint)


def test_both_day_fields_restricted_is_a_warning() -> None:
    """SPEC 6.3: either is enough, which surprises many."""
    assert "day of the month or weekday" in examine("0 0 13 * 5").warnings[0]
    assert "one of them is every day" in examine("0 0 1-31 * 5").warnings[0]
    assert examine("0 0 13 * *").warnings == []


def test_a_check_has_one_json_form() -> None:
    assert json_form(examine("*/30 * * * *"), UTC) == {
        "expression": "*/30 * * * *",
        "valid": False,
        "words": None,
        "warnings": [],
        "error": {
            "field": "minute",
            "reason": "contains step syntax '/'; list the values instead",
            "hint": "write 0,30",
            "begin": 0,
            "end": 4,
        },
        "posix": "0,30 * * * *",
        "posixWords": "at minutes 0 and 30 of every hour",
        "rewritten": [{"field": "minute", "begin": 0, "end": 4, "text": "a step: the values one by one"}],
        "obstacles": [],
    }
