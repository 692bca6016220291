"""An expression in words: exact, and readable."""

import itertools

import pytest

from duly import CronExpression, parse_cron
from duly.insight.cron_words import in_words, shortened, shortened_pair

_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute"),
        ("30 2 * * *", "at 02:30 every day"),
        ("30 2 * * 1-5", "at 02:30 on weekdays Monday to Friday"),
        ("0 0 * * 0,6", "at 00:00 on Saturdays and Sundays"),
        ("0 0 * * 5,6,0", "at 00:00 on weekdays Friday to Sunday"),
        ("0 0 * * 1,3", "at 00:00 on Mondays and Wednesdays"),
        ("0 * * * *", "every hour, on the hour"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("0,15,30,45 * * * *", "every 15 minutes from minute 0 of every hour"),
        ("3,18,33,48 * * * *", "every 15 minutes from minute 3 of every hour"),
        ("0,7,14,21,28,35,42,49,56 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("0,30 9-17 * * *", "at minutes 0 and 30 of the hours 9 to 17"),
        ("0 9-17 * * 1-5", "every hour from 09:00 to 17:00 on weekdays Monday to Friday"),
        ("* 9-17 * * *", "every minute from 09:00 to 17:59"),
        ("* 3,5 * * *", "every minute from 03:00 to 03:59 and from 05:00 to 05:59"),
        ("0 0,6,12,18 * * *", "at 00:00, 06:00, 12:00 and 18:00 every day"),
        ("30 0,2,4,6,8,10,12,14,16,18,20,22 * * *", "every 2 hours from 00:30"),
        ("0 0 1 * *", "at 00:00 on day 1 of the month"),
        ("0 0 1,15 1-3,7 *", "at 00:00 on days 1 and 15 of January to March and July"),
        ("0 0 31 * *", "at 00:00 on day 31 of the month (in months that have it)"),
        ("0 0 29 2 *", "at 00:00 on day 29 of February (in leap years)"),
        ("0 0 28,29 2 *", "at 00:00 on days 28 and 29 of February (29 in leap years)"),
        ("0 0 * 2 *", "at 00:00 every day in February"),
        ("  0\t0  * * * ", "at 00:00 every day"),
    ],
)
def test_an_expression_in_words(text: str, words: str) -> None:
    """`duly next` shows the expression in words."""
    assert in_words(parse_cron(text)) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 13 * 5", "at 00:00 on day 13 of the month and also on Fridays"),
        ("0 0 1 1,6 5", "at 00:00 on day 1 of the month and also on Fridays, in January and June only"),
        ("0 0 31 4 1", "at 00:00 on Mondays in April"),
        ("0 0 1-31 * 1", "at 00:00 every day"),
        ("0 0 1 * 0-6", "at 00:00 every day"),
    ],
)
def test_either_day_field_is_enough(text: str, words: str) -> None:
    """SPEC 6.2, 6.3: month AND (day OR weekday); a day that no month has adds nothing."""
    assert in_words(parse_cron(text)) == words


def meaning(expression: CronExpression) -> object:
    """The matches of an expression, computed the long way."""
    _, _, day, _, weekday = expression.text.split()
    by_day, by_weekday = day != "*", weekday != "*"
    days = {
        (month, number, week)
        for month in expression.months
        for number in range(1, _LONGEST[month - 1] + 1)
        for week in range(7)
        if (by_day and number in expression.days)
        or (by_weekday and week in expression.weekdays)
        or not (by_day or by_weekday)
    }
    return expression.minutes, expression.hours, frozenset(days)


def test_the_same_words_mean_the_same_minutes() -> None:
    """Of some hundred expressions, no two that match different minutes have equal words."""
    minutes = ("*", "0", "5", "0,30", "0-9", "0,15,30,45", "1,16,31,46", "0,10,20,30,40,51")
    hours = ("*", "0", "3", "9-17", "0,12", "0,6,12,18", "1,7,13,19", "0,2,4,6,8,10,12,14,16,18,20,22", "22,23")
    days = ("*", "1", "29,31", "1,15", "1-7", "1-31")
    months = ("*", "2", "4,6", "1-3")
    weekdays = ("*", "0", "1-5", "0,6", "0-6")
    meanings: dict[str, object] = {}
    combinations = list(itertools.product(minutes, hours, days, months, weekdays))
    assert len(combinations) > 5000
    for combination in combinations[::47]:
        expression = parse_cron(" ".join(combination))
        meant = meaning(expression)
        assert meanings.setdefault(in_words(expression), meant) == meant, expression.text
    assert len(meanings) > 150


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("0,10,20,30,40,50 * * * *", "0,10,20,30,40,50 * * * *"),
        ("1,3,5,7,9,11,13,59 * * * *", "1,3,…,59 * * * *"),
        ("0 0 1-3,5,7,9,11,13,15 *  *", "0 0 1-3,5,…,15 * *"),
    ],
)
def test_a_long_list_is_cut_short_for_people(text: str, short: str) -> None:
    """One long expression would make a table of many tasks too wide to read."""
    assert shortened(text) == short


def test_two_expressions_that_look_alike_when_they_are_cut_short_stay_whole() -> None:
    """A change must be seen."""
    old, new = "0,5,10,15,20,25,30 * * * *", "0,5,10,16,20,25,30 * * * *"
    assert shortened(old) == shortened(new)
    assert shortened_pair(old, new) == (old, new)
    assert shortened_pair(old, "* * * * *") == ("0,5,…,30 * * * *", "* * * * *")
