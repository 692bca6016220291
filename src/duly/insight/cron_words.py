"""A cron expression in words: exact, and short enough to be read aloud.

30 2 * * 1-5      at 02:30 on weekdays Monday to Friday
0 0 13 * 5        at 00:00 on day 13 of the month and also on Fridays
"""

from collections.abc import Callable, Sequence
from typing import Final

from duly.core.cron import CronExpression
from duly.core.fields import MONTHS, WEEKDAYS, spans
from duly.insight.words import listed

_TIMES_LISTED_MAX: Final = 6
"""Up to this many times of day are listed one by one; more become hours and minutes."""

_LONGEST_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


_ELEMENTS_SHOWN_MAX: Final = 6
"""Up to this many elements of a list stay in a shortened text."""


def in_words(expression: CronExpression) -> str:
    """When an expression is due, as a phrase that follows "runs".

    Parameters:
        expression: the cron expression.
    """
    time = _time_of_day(expression.minutes, expression.hours)
    days = _days(expression)
    if days == "every day" and time.startswith(("every", "at minute")):
        return time  # "every minute" needs no "every day"
    return f"{time} {days}"


def shortened(text: str) -> str:
    """The text of an expression with long lists cut short: `1,3,…,59 * * * *`; for lists and logs, not for programs."""
    return " ".join(_short_list(word) for word in text.split())


def _short_list(word: str) -> str:
    elements = word.split(",")
    if len(elements) <= _ELEMENTS_SHOWN_MAX:
        return word
    return f"{elements[0]},{elements[1]},…,{elements[-1]}"


def shortened_pair(old: str, new: str) -> tuple[str, str]:
    """Two texts, cut short unless they would then look alike."""
    short = shortened(old), shortened(new)
    return short if short[0] != short[1] else (old, new)


# --- the time of day -------------------------------------------------------------------------------------------------


def _time_of_day(minutes: Sequence[int], hours: Sequence[int]) -> str:
    if len(minutes) * len(hours) <= _TIMES_LISTED_MAX:
        return "at " + listed([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    if len(minutes) == 60:
        if len(hours) == 24:
            return "every minute"
        windows = [f"from {first:02}:00 to {last:02}:59" for first, last in spans(hours)]
        return "every minute " + listed(windows)
    if len(minutes) == 1 and len(hours) < 24 and (step := _even_step(hours, 24)):
        return f"every {step} hours from {hours[0]:02}:{minutes[0]:02}"
    if len(minutes) == 1 and len(hours) == 24 and minutes[0] == 0:
        return "every hour, on the hour"
    if len(minutes) == 1 and len(hours) < 24 and len(spans(hours)) == 1:
        return f"every hour from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[0]:02}"
    if step := _even_step(minutes, 60):
        minutes_text = f"every {step} minutes from minute {minutes[0]}"
    else:
        minutes_text = f"at minute{'s' if len(minutes) > 1 else ''} {_numbers(minutes)}"
    if len(hours) == 24:
        return f"{minutes_text} of every hour"
    if step := _even_step(hours, 24):
        return f"{minutes_text} of every {ordinal(step)} hour from {hours[0]:02}:00"
    return f"{minutes_text} of the hour{'s' if len(hours) > 1 else ''} {_numbers(hours)}"


def _even_step(values: Sequence[int], circle: int) -> int | None:
    """The step of values that divide an hour, or a day, evenly; "every 7 minutes" would be untrue at its end."""
    step = circle // len(values)
    even = len(values) >= 3 and tuple(values) == tuple(range(values[0], circle, step)) and step * len(values) == circle
    return step if even and values[0] < step and step > 1 else None


# --- the days --------------------------------------------------------------------------------------------------------


def _days(expression: CronExpression) -> str:
    _, _, day_text, _, weekday_text = expression.text.split()
    by_day, by_weekday = day_text != "*", weekday_text != "*"
    months = expression.months
    # Days that none of these months has are in the text, but never on the calendar.
    longest = max(_LONGEST_MONTHS[month - 1] for month in months)
    days = tuple(day for day in expression.days if day <= longest)
    if by_day and by_weekday and not days:
        by_day = False
    if (by_weekday and len(expression.weekdays) == 7) or (by_day and len(expression.days) == 31):
        by_day = by_weekday = False  # either is enough, and one of them is every day
    named = "" if len(months) == 12 else _names(months, lambda month: MONTHS[month - 1])
    if by_day and by_weekday:
        both = f"on {_day_numbers(days)} of the month{_shorter(days, months)} and also on {_weekdays(expression)}"
        return f"{both}, in {named} only" if named else both
    if by_day:
        return f"on {_day_numbers(days)} of {named or 'the month'}{_shorter(days, months)}"
    if by_weekday:
        return f"on {_weekdays(expression)}" + (f" in {named}" if named else "")
    return f"every day in {named}" if named else "every day"


def _day_numbers(days: Sequence[int]) -> str:
    return f"day{'s' if len(days) > 1 else ''} {_numbers(days)}"


def _shorter(days: Sequence[int], months: Sequence[int]) -> str:
    """A remark where some of the months do not have some of the days."""
    if all(day <= (28 if month == 2 else _LONGEST_MONTHS[month - 1]) for day in days for month in months):
        return ""
    if tuple(months) == (2,):
        return " (29 in leap years)" if len(days) > 1 else " (in leap years)"
    return " (in months that have it)" if len(days) == 1 else " (in months that have them)"


def _weekdays(expression: CronExpression) -> str:
    # The week begins on Monday here, so that Saturday and Sunday are neighbours.
    order = sorted((weekday - 1) % 7 for weekday in expression.weekdays)
    if all(last - first < 2 for first, last in spans(order)):
        return listed([WEEKDAYS[(place + 1) % 7] + "s" for place in order])
    return "weekdays " + _names(order, lambda place: WEEKDAYS[(place + 1) % 7])


# --- lists -----------------------------------------------------------------------------------------------------------


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, ..."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _numbers(values: Sequence[int]) -> str:
    return _names(values, str)


def _names(values: Sequence[int], name: Callable[[int], str]) -> str:
    parts: list[str] = []
    for first, last in spans(values):
        if last - first >= 2:
            parts.append(f"{name(first)} to {name(last)}")
        else:
            parts.extend(name(value) for value in range(first, last + 1))
    return listed(parts)
