"""SPEC 6: cron, as the public API shows it. The grammar's corners are in tests/core/test_cron.py."""

import sys
import time
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import duly
from duly.events import TaskRunStarted
from duly.testing import SimulatedHost

BERLIN = ZoneInfo("Europe/Berlin")


async def noop() -> None:
    """Work that is done at once."""


def refused(text: str) -> duly.InvalidCronExpressionError:
    with pytest.raises(duly.InvalidCronExpressionError) as caught:
        duly.parse_cron(text)
    return caught.value


# --- 6.1 grammar -----------------------------------------------------------------------------------------------------


def test_digits_ranges_lists_and_a_lone_star_are_the_whole_language() -> None:
    """SPEC 6.1: ASCII digits, `-`, `,`, `*` alone in its field."""
    expression = duly.parse_cron("0,30 9-17 1,10-12 * 1-5")
    assert expression.text == str(expression) == "0,30 9-17 1,10-12 * 1-5"
    assert expression.minutes == (0, 30)
    assert expression.hours == (9, 10, 11, 12, 13, 14, 15, 16, 17)
    assert expression.days == (1, 10, 11, 12)
    assert expression.months == tuple(range(1, 13))
    assert expression.weekdays == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("text", ["0 0 * * *", "\t0 \t 0  * *\t* ", "00 000 * * *", f"{'0' * 5000} 0 * * *"])
def test_blanks_are_space_and_tab_and_leading_zeros_are_fine(text: str) -> None:
    """SPEC 6.1: blanks are space and tab only, leading zeros are fine."""
    expression = duly.parse_cron(text)
    assert (expression.minutes, expression.hours) == ((0,), (0,))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("*,5 * * * *", "minute"),
        ("5,* * * * *", "minute"),
        ("** * * * *", "minute"),
        ("0\n 0 * * *", "minute"),
        ("0 0 * * *\n", "weekday"),
        ("0\u00a0 0 * * *", "minute"),
        ("\u0663 * * * *", "minute"),
        ("* \uff11 * * *", "hour"),
        ("+5 * * * *", "minute"),
        ("-5 * * * *", "minute"),
        ("0x1 * * * *", "minute"),
        ("1e1 * * * *", "minute"),
        ("1.0 * * * *", "minute"),
        ("* * * * 7", "weekday"),
        ("* * * * 0-7", "weekday"),
        ("*/15 * * * *", "minute"),
        ("0 0 * * mon", "weekday"),
        ("0 0 * jan *", "month"),
        ("0 0 ? * *", "day"),
        ("0 0 L * *", "day"),
        ("0 0 15W * *", "day"),
        ("0 0 * * 1#2", "weekday"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day"),
        ("* * 32 * *", "day"),
        ("* * * 0 *", "month"),
        ("* * * 13 *", "month"),
        ("30-10 * * * *", "minute"),
        ("1--2 * * * *", "minute"),
        ("1- * * * *", "minute"),
        (", * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("\x00 * * * *", "minute"),
        ("99 99 99 99 99", "minute"),
        ("* 99 * * x", "hour"),
    ],
)
async def test_everything_else_is_refused_with_the_leftmost_field_and_the_reason(text: str, field: str) -> None:
    """SPEC 6.1: rejected with the field and the reason, the leftmost bad field is named; by initialize() alike."""
    error = refused(text)
    assert error.details["expression"] == text
    assert error.details["field"] == field
    assert error.details["reason"]
    assert error.message.endswith(f": {field} field {error.details['reason']}")
    with pytest.raises(duly.CronExpressionInvalidError) as caught:
        await duly.Scheduler(":memory:").initialize([("task", text, noop, timedelta(0))])
    assert caught.value.message == error.message
    assert caught.value.details["hint"] == ": ".join(["registration 0 ('task')", *_hint(error)])
    facts = {key: value for key, value in error.details.items() if key != "hint"}
    assert {key: caught.value.details[key] for key in facts} == facts


def _hint(error: duly.DulyError) -> list[str]:
    return [error.details["hint"]] if "hint" in error.details else []


@pytest.mark.parametrize(
    "text",
    ["", " ", "\t", "@daily", "* * * *", "* * * * * *", "0 0 * *", "0 0 0 * * * 2024", "*****", "0\n0\n*\n*\n*"],
)
def test_a_wrong_number_of_fields_is_the_expressions_fault(text: str) -> None:
    """SPEC 6.1: wrong number of fields or empty text: `field` is `expression`."""
    error = refused(text)
    assert error.details["field"] == "expression"
    assert error.__cause__ is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1" * 1_000_000 + " * * * *", id="one number"),
        pytest.param("1," * 500_000 + " * * * *", id="one list"),
        pytest.param("* " * 500_000, id="many fields"),
        pytest.param(" " * 1_000_000, id="blanks"),
        pytest.param("1-" * 500_000 + " * * * *", id="one range"),
        pytest.param("x" * 1_000_000, id="letters"),
        pytest.param("* * * * " + "9" * 1_000_000, id="last field"),
    ],
)
def test_input_of_any_length_fails_fast(text: str) -> None:
    """SPEC 6.1: input of any length fails fast; anything quadratic would take minutes here, on any machine."""
    begun = time.thread_time()
    error = refused(text)
    assert time.thread_time() - begun < 10
    assert len(str(error)) < 1000


def test_a_long_number_is_no_matter_of_conversion() -> None:
    """SPEC 6.1: leading zeros are stripped before conversion; the interpreter's limit on digits never shows."""
    digits = sys.get_int_max_str_digits() + 10
    assert duly.parse_cron("0" * digits + "7 * * * *").minutes == (7,)
    assert refused("7" * digits + " * * * *").details["field"] == "minute"


def test_one_field_to_blame_is_the_cause() -> None:
    """SPEC 6.1: `parse_cron` raises `InvalidCronExpressionError`, its cause a `FieldParseError`."""
    error = refused("0 24 * * *")
    assert isinstance(error.__cause__, duly.FieldParseError)
    assert error.__cause__.details["fieldName"] == "hour"
    assert error.__cause__.details["fieldValue"] == "24"


async def test_initialize_raises_from_what_the_parser_raised() -> None:
    """SPEC 6.1: `initialize` raises `CronExpressionInvalidError` from it."""
    with pytest.raises(duly.CronExpressionInvalidError) as caught:
        await duly.Scheduler(":memory:").initialize([("task", "0 24 * * *", noop, timedelta(0))])
    cause = caught.value.__cause__
    assert type(cause) is duly.InvalidCronExpressionError
    assert not isinstance(caught.value, duly.InvalidCronExpressionError)
    assert isinstance(cause.__cause__, duly.FieldParseError)


# --- 6.2 days --------------------------------------------------------------------------------------------------------


def days(text: str, first: str, count: int) -> list[int]:
    """The days of a month on which an expression is due, among `count` days from `first` on."""
    expression = duly.parse_cron(text)
    begin = datetime.fromisoformat(first).replace(tzinfo=BERLIN)
    return [(begin + timedelta(days=n)).day for n in range(count) if expression.matches(begin + timedelta(days=n))]


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("0 0 * * *", list(range(1, 31))),
        ("0 0 * * 1", [3, 10, 17, 24]),
        ("0 0 15 * *", [15]),
        ("0 0 1,15 * 1", [1, 3, 10, 15, 17, 24]),
        ("0 0 1-31 * 1", list(range(1, 31))),
        ("0 0 15 * 0-6", list(range(1, 31))),
        ("0 0 01-31 * *", list(range(1, 31))),
        ("0 0 15 6 1", [3, 10, 15, 17, 24]),
        ("0 0 15 7 1", []),
        ("0 0 15 7 *", []),
        ("0 0 * 7 1", []),
    ],
)
def test_day_fields_are_joined_by_or_when_both_are_restricted_and_the_month_always_applies(
    text: str, due: list[int]
) -> None:
    """SPEC 6.2: restricted if not exactly `*` (so `1-31` is); both: OR; month AND (day OR weekday). June 2024."""
    assert days(text, "2024-06-01", 30) == due


# --- 6.3 never and for ever ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 2 *", "0 0 30,31 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 4 *"])
async def test_an_expression_that_never_matches_is_refused_when_parsed(text: str) -> None:
    """SPEC 6.1, 6.3: rejected when parsed, with the reason; `field` is `day`."""
    error = refused(text)
    assert error.details["field"] == "day"
    assert "never" in error.details["reason"]
    with pytest.raises(duly.CronExpressionInvalidError):
        await duly.Scheduler(":memory:").initialize([("task", text, noop, timedelta(0))])


@pytest.mark.parametrize(
    ("text", "following"),
    [
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 31 4 1", ["2025-04-07", "2025-04-14", "2025-04-21"]),
        ("0 0 30,1 2 *", ["2025-02-01", "2026-02-01", "2027-02-01"]),
    ],
)
def test_every_parsed_expression_goes_on_occurring(text: str, following: list[str]) -> None:
    """SPEC 6.3: infinitely many occurrences (002 E4); `0 0 31 4 1` is Mondays in April."""
    expression = duly.parse_cron(text)
    when = datetime(2024, 6, 1, tzinfo=BERLIN)
    found = []
    for _ in following:
        when = expression.next_after(when)
        found.append(when.date().isoformat())
    assert found == following


@pytest.mark.parametrize(
    ("search", "at"),
    [
        ("next_after", datetime(9999, 12, 31, 12, 0, tzinfo=BERLIN)),
        ("previous_before", datetime(1, 1, 2, tzinfo=BERLIN)),
    ],
)
def test_a_search_that_leaves_the_calendar_says_so(search: str, at: datetime) -> None:
    """SPEC 6.3: `CronCalculationError` remains for searches that leave the years 1 to 9999; 000's message."""
    with pytest.raises(duly.CronCalculationError) as caught:
        getattr(duly.parse_cron("0 3 29 2 *"), search)(at)
    error = caught.value
    assert error.details["expression"] == "0 3 29 2 *"
    assert error.details["currentTime"] == at.isoformat()
    assert error.details["cause"] is error.__cause__
    assert str(error) == f"Failed to calculate next occurrence: {error.__cause__}"


# --- 6.4 every minute ------------------------------------------------------------------------------------------------


async def test_the_loop_observes_every_minute() -> None:
    """SPEC 6.4: nothing is too frequent; a task of every minute starts in every minute."""
    async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
        await host.scheduler().initialize([("task", "* * * * *", noop, timedelta(0))])
        await host.advance(minutes=119)
        started = [each.actual_time for each in host.events if isinstance(each, TaskRunStarted)]
    assert [(each.hour, each.minute) for each in started] == [divmod(600 + n, 60) for n in range(120)]
