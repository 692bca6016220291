"""The cron language: what is read, as what, and why everything else is refused."""

import pickle
import sys
import tracemalloc
from calendar import monthrange
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duly.core.cron import CronExpression, parse_cron
from duly.errors import CronCalculationError, FieldParseError, InvalidCronExpressionError

EVERY = {
    "minutes": tuple(range(60)),
    "hours": tuple(range(24)),
    "days": tuple(range(1, 32)),
    "months": tuple(range(1, 13)),
    "weekdays": tuple(range(7)),
}
NOON = datetime(2025, 6, 15, 12, 0, tzinfo=UTC)


def refused(text: str) -> InvalidCronExpressionError:
    with pytest.raises(InvalidCronExpressionError) as caught:
        parse_cron(text)
    return caught.value


# --- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "restricted"),
    [
        ("* * * * *", {}),
        ("0 0 * * *", {"minutes": (0,), "hours": (0,)}),
        ("15 3 * * 1-5", {"minutes": (15,), "hours": (3,), "weekdays": (1, 2, 3, 4, 5)}),
        ("0,30 * * * *", {"minutes": (0, 30)}),
        ("0 12 14 2 *", {"minutes": (0,), "hours": (12,), "days": (14,), "months": (2,)}),
        (
            "59 23 31 12 6",
            {"minutes": (59,), "hours": (23,), "days": (31,), "months": (12,), "weekdays": (6,)},
        ),
        ("0-59 0-23 1-31 1-12 0-6", {}),
        ("5-5 * * * *", {"minutes": (5,)}),
        ("30,10,20 * * * *", {"minutes": (10, 20, 30)}),
        ("1,1,1-3,2-4 * * * *", {"minutes": (1, 2, 3, 4)}),
        ("* * 1,15 * 1", {"days": (1, 15), "weekdays": (1,)}),
        (
            "00 007 01 0012 000",
            {"minutes": (0,), "hours": (7,), "days": (1,), "months": (12,), "weekdays": (0,)},
        ),
        ("000-0059 * * * *", {}),
        ("  0\t \t0 * *\t*\t", {"minutes": (0,), "hours": (0,)}),
        ("\t* * * * *", {}),
    ],
)
def test_a_posix_expression_is_read_as_five_sets(text: str, restricted: dict[str, tuple[int, ...]]) -> None:
    """SPEC 6.1: digits, '-', ',' and a lone '*', separated by spaces and tabs; leading zeros are fine."""
    expression = parse_cron(text)
    assert {name: getattr(expression, name) for name in EVERY} == EVERY | restricted
    assert expression.text == text


@pytest.mark.parametrize(
    ("text", "day", "due"),
    [
        ("0 0 15 * *", date(2025, 6, 15), True),  # a Sunday
        ("0 0 15 * *", date(2025, 6, 16), False),
        ("0 0 * * 1", date(2025, 6, 16), True),
        ("0 0 * * 1", date(2025, 6, 15), False),
        ("0 0 15 * 1", date(2025, 6, 15), True),
        ("0 0 15 * 1", date(2025, 6, 16), True),
        ("0 0 15 * 1", date(2025, 6, 17), False),
        ("0 0 1-31 * 1", date(2025, 6, 17), True),  # 1-31 restricts, though it names every day
        ("0 0 15 * 0-6", date(2025, 6, 17), True),
        ("0 0 * * 0-6", date(2025, 6, 17), True),
        ("0 0 15 7 1", date(2025, 6, 15), False),  # the month applies to both
        ("0 0 15 7 1", date(2025, 6, 16), False),
        ("0 0 31 4 1", date(2025, 4, 7), True),
        ("0 0 31 4 1", date(2025, 4, 30), False),
    ],
)
def test_a_day_matches_if_the_month_does_and_either_restricted_day_field(text: str, day: date, due: bool) -> None:
    """SPEC 6.2: month AND (day OR weekday), where a field is restricted unless its text is exactly '*'."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert parse_cron(text).matches(midnight) is due


def test_an_expression_is_a_value() -> None:
    """Equal texts make equal expressions; a text is its own identity (SPEC 5.1 compares texts)."""
    expression = parse_cron("0 0 * * *")
    assert expression == parse_cron("0 0 * * *")
    assert hash(expression) == hash(parse_cron("0 0 * * *"))
    assert expression != parse_cron("00 0 * * *")
    assert {expression: "kept"}[parse_cron("0 0 * * *")] == "kept"
    assert str(expression) == "0 0 * * *"
    assert repr(expression) == "CronExpression(text='0 0 * * *')"
    for copied in (pickle.loads(pickle.dumps(expression)), deepcopy(expression)):
        assert copied == expression
        assert copied.next_after(NOON) == expression.next_after(NOON)


def test_an_expression_cannot_be_changed() -> None:
    expression = parse_cron("0 0 * * *")
    with pytest.raises(FrozenInstanceError):
        expression.text = "1 1 * * *"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        expression.other = 1  # type: ignore[attr-defined]
    assert not hasattr(expression, "__dict__")


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        # 000, validation rule 2: steps
        ("*/15 * * * *", "minute", "contains step syntax '/'; list the values instead"),
        ("0 0-12/2 * * *", "hour", "contains step syntax '/'; list the values instead"),
        ("0 0 1,2,*/3 * *", "day", "contains step syntax '/'; list the values instead"),
        ("/ * * * *", "minute", "contains step syntax '/'; list the values instead"),
        # rule 3: names
        ("0 0 * jan *", "month", "contains names"),
        ("0 0 * * mon", "weekday", "contains names"),
        ("0 0 * * Sunday", "weekday", "contains names"),
        ("0 0 * * MON-FRI", "weekday", "contains names"),
        ("H * * * *", "minute", "contains names"),
        # rule 4: macros among five fields
        ("@daily 0 * * *", "minute", "contains macros"),
        # rule 5: Quartz
        ("0 0 ? * *", "day", "contains Quartz token '?'"),
        ("0 0 L * *", "day", "contains Quartz token 'L'"),
        ("0 0 L-3 * *", "day", "contains Quartz token 'L'"),
        ("0 0 * * 5L", "weekday", "contains Quartz token 'L'"),
        ("0 0 15W * *", "day", "contains Quartz token 'W'"),
        ("0 0 LW * *", "day", "contains Quartz token 'W'"),
        ("0 0 * * 6#3", "weekday", "contains Quartz token '#'"),
        # rule 6: 7
        ("0 0 * * 7", "weekday", "7 is not a weekday; use 0 for Sunday"),
        ("0 0 * * 007", "weekday", "7 is not a weekday; use 0 for Sunday"),
        ("0 0 * * 1-7", "weekday", "7 is not a weekday; use 0 for Sunday"),
        ("0 0 * * 7-7", "weekday", "7 is not a weekday; use 0 for Sunday"),
        # rule 7: wrap-around
        ("5-1 * * * *", "minute", "range 5-1 runs backwards"),
        ("0 22-02 * * *", "hour", "range 22-2 runs backwards"),
        ("0 0 * * 5-0", "weekday", "range 5-0 runs backwards"),
        # rule 8: out of range
        ("60 * * * *", "minute", "value 60 is out of range 0-59"),
        ("0 24 * * *", "hour", "value 24 is out of range 0-23"),
        ("0 0 0 * *", "day", "value 0 is out of range 1-31"),
        ("0 0 32 * *", "day", "value 32 is out of range 1-31"),
        ("0 0 * 0 *", "month", "value 0 is out of range 1-12"),
        ("0 0 * 13 *", "month", "value 13 is out of range 1-12"),
        ("0 0 * * 8", "weekday", "value 8 is out of range 0-6"),
        ("0-60 * * * *", "minute", "value 60 is out of range 0-59"),
        ("70-60 * * * *", "minute", "value 70 is out of range 0-59"),
        ("0 0 0-5 * *", "day", "value 0 is out of range 1-31"),
        ("00060 * * * *", "minute", "value 60 is out of range 0-59"),
        # rule 9: other ways to write numbers
        ("0x1 * * * *", "minute", "contains a number that is not decimal"),
        ("0B1 * * * *", "minute", "contains a number that is not decimal"),
        ("1e1 * * * *", "minute", "contains scientific notation"),
        ("+5 * * * *", "minute", "contains a sign '+'"),
        ("-5 * * * *", "minute", "contains a sign '-'"),
        ("- * * * *", "minute", "contains a sign '-'"),
        ("1.5 * * * *", "minute", "contains a decimal point"),
        ("1_0 * * * *", "minute", "contains '_' (U+005F)"),
        ("٣ * * * *", "minute", "contains digits of another script"),
        ("0 １ * * *", "hour", "contains digits of another script"),  # noqa: RUF001
        ("² * * * *", "minute", "contains '²' (U+00B2)"),
        # lists and ranges that are none
        ("*,5 * * * *", "minute", "mixes '*' with something else"),
        ("5,* * * * *", "minute", "mixes '*' with something else"),
        ("** * * * *", "minute", "mixes '*' with something else"),
        ("*-5 * * * *", "minute", "mixes '*' with something else"),
        (", * * * *", "minute", "contains an empty element"),
        ("5, * * * *", "minute", "contains an empty element"),
        (",5 * * * *", "minute", "contains an empty element"),
        ("5,,6 * * * *", "minute", "contains an empty element"),
        ("5x * * * *", "minute", "contains names"),
        ("e * * * *", "minute", "contains names"),
        ("1ex * * * *", "minute", "contains names"),
        ("1e * * * *", "minute", "contains scientific notation"),
        ("9e2 * * * *", "minute", "contains scientific notation"),
        ("-e2 * * * *", "minute", "contains names"),
        ("10x1F * * * *", "minute", "contains a number that is not decimal"),
        ("1x1F * * * *", "minute", "contains names"),
        ("5- * * * *", "minute", "contains '5-', which is not a range"),
        ("1-2-3 * * * *", "minute", "contains '1-2-3', which is not a range"),
        ("1--3 * * * *", "minute", "contains '1--3', which is not a range"),
        # blanks that are none, and other characters
        ("0 0 * * *\n", "weekday", "contains a line break"),
        ("\r\n0 0 * * *", "minute", "contains a line break"),
        ("0\n0 0 * * *", "minute", "contains a line break"),
        ("0\v 0 * * *", "minute", "contains white space that is neither space nor tab"),
        ("0 0\xa0 * * *", "hour", "contains white space that is neither space nor tab"),
        ("0 0\u2003 * * *", "hour", "contains white space that is neither space nor tab"),
        ("0 0 * * *\x1f", "weekday", "contains white space that is neither space nor tab"),
        ("0\x00 0 * * *", "minute", r"contains '\x00' (U+0000)"),
        ("0 0 * * \ud800", "weekday", r"contains '\ud800' (U+D800)"),
        ("0 0 * * \u200b1", "weekday", r"contains '\u200b' (U+200B)"),
        ("% * * * *", "minute", "contains '%' (U+0025)"),
        ("½ * * * *", "minute", "contains '½' (U+00BD)"),
    ],
)
def test_a_wrong_field_is_named_with_the_reason(text: str, field: str, reason: str) -> None:
    """SPEC 6.1 and 000's validation rules: the field, the reason, and a FieldParseError as the cause."""
    error = refused(text)
    assert (error.details["expression"], error.details["field"], error.details["reason"]) == (
        text,
        field,
        reason,
    )
    cause = error.__cause__
    assert isinstance(cause, FieldParseError)
    assert cause.details["fieldName"] == field
    assert cause.details["fieldValue"] in text
    assert cause.details["reason"] == reason
    assert f": {field} field {reason}" in str(error)
    assert str(cause) == f"{field} field {reason}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        (" \t ", "is empty"),
        ("*", "has 1 field instead of 5"),
        ("0 0 * *", "has 4 fields instead of 5"),
        ("0 0 * * * *", "has 6 fields instead of 5"),
        ("0 0 12 * * ?", "has 6 fields instead of 5"),
        ("0 0 * * * \n", "has 6 fields instead of 5"),
        ("0\n0 * * *", "has 4 fields instead of 5"),
        ("0\xa00 * * *", "has 4 fields instead of 5"),
        ("\n", "has 1 field instead of 5"),
        ("1 2 3 4 5 6 7 8 9", "has 9 fields instead of 5"),
        ("* " * 1000, "has more than 9 fields instead of 5"),
        ("*\t" * 1000, "has more than 9 fields instead of 5"),
        ("@daily", "contains macros"),
        ("  @every 5m", "contains macros"),
        ("@reboot", "contains macros"),
        ("x y", "has 2 fields instead of 5"),
    ],
)
def test_a_text_without_five_fields_is_wrong_as_a_whole(text: str, reason: str) -> None:
    """SPEC 6.1: wrong number of fields or empty text, so `field` is `expression`, and no single field is to blame."""
    error = refused(text)
    assert (error.details["field"], error.details["reason"]) == ("expression", reason)
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("x x x x x", "minute"),
        ("0 x x x x", "hour"),
        ("0 0 x x x", "day"),
        ("0 0 1 x x", "month"),
        ("0 0 1 1 x", "weekday"),
        ("0 0 30 2 x", "weekday"),  # what cannot be read goes before what can never match
        ("99 */5 mon ? 7", "minute"),
    ],
)
def test_the_leftmost_wrong_field_is_named(text: str, field: str) -> None:
    """SPEC 6.1: the leftmost bad field is named."""
    assert refused(text).details["field"] == field


def test_the_leftmost_wrong_element_gives_the_reason() -> None:
    assert refused("0,61,mon,*/5 * * * *").details["reason"] == "value 61 is out of range 0-59"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 0 30 2 *", "never matches: there is no day 30 in month 2"),
        ("0 0 31 4,6 *", "never matches: there is no day 31 in month 4 or 6"),
        ("0 0 30-31 2 *", "never matches: there is no day 30 or 31 in month 2"),
        ("0 0 31 2,4,6,9,11 *", "never matches: there is no day 31 in month 2 or 4 or 6 or 9 or 11"),
    ],
)
def test_an_expression_that_can_never_match_is_refused(text: str, reason: str) -> None:
    """SPEC 6.3: rejected when parsed, with the reason; the field is `day`."""
    error = refused(text)
    assert (error.details["field"], error.details["reason"]) == ("day", reason)
    assert isinstance(error.__cause__, FieldParseError)
    assert error.__cause__.details["fieldValue"] == text.split()[2]


@pytest.mark.parametrize(
    "text",
    ["0 0 29 2 *", "0 0 30 4 *", "0 0 31 4,5 *", "0 0 29-31 2 *", "0 0 30 2 1", "0 0 30 2 0-6", "0 0 31 4 1"],
)
def test_an_expression_that_matches_now_and_then_is_welcome(text: str) -> None:
    """SPEC 6.3: every parsed expression has occurrences; `0 0 31 4 1` is Mondays in April."""
    expression = parse_cron(text)
    assert expression.matches(expression.next_after(NOON))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("*/15 * * * *", "write 0,15,30,45"),
        ("*/1 * * * *", "write *"),
        ("0 8-18/5 * * *", "write 8,13,18"),
        ("0 0 */10 * *", "write 1,11,21,31"),
        ("5/20 * * * *", "write 5,25,45"),
        ("0 0 * * */2", "write 0,2,4,6"),
        ("0 0 * feb-mar *", "write 2 for feb and 3 for mar"),
        ("0 0 * * Sunday", "write 0 for Sunday"),
        ("foo * * * *", "write numbers"),
        ("@daily", "write 0 0 * * *"),
        ("@Hourly", "write 0 * * * *"),
        ("0 0 * * 7", "write 0"),
        ("0 0 * * 5-7", "write 0,5-6"),
        ("0 0 * * 6-7", "write 0,6"),
        ("0 0 * * 0-7", "write 0-6"),
        ("0 0 * * 1-7", "write 0,1-6"),
        ("0 22-2 * * *", "write 0-2,22-23 if it is meant to wrap around"),
        ("0 0 * * 5-0", "write 0,5-6 if it is meant to wrap around"),
    ],
)
def test_an_error_says_what_to_write_instead(text: str, hint: str) -> None:
    """SPEC 1.5: hints go into `details["hint"]` and an exception note; what they advise can be read."""
    error = refused(text)
    assert error.details["hint"] == hint
    assert str(error) == f"{error.message}: {hint}"


@pytest.mark.parametrize("text", ["*/0 * * * *", "*/x * * * *", "/5 * * * *", "60-70/2 * * * *", "*/100 * * * *"])
def test_a_step_that_means_nothing_gets_no_advice(text: str) -> None:
    assert "hint" not in refused(text).details


def test_an_error_about_blanks_says_what_separates_fields() -> None:
    assert "only spaces and tabs separate fields" in refused("0 0\u00a0* * *").details["hint"]
    assert "seconds and years have none" in refused("0 0 0 * * *").details["hint"]


@pytest.mark.parametrize("thing", [None, 5, b"* * * * *", ["*", "*", "*", "*", "*"], object()])
def test_only_text_is_read(thing: Any) -> None:
    with pytest.raises(TypeError, match=f"a cron expression is a str, not {type(thing).__name__}"):
        parse_cron(thing)


@pytest.mark.parametrize("thing", [None, 1_750_000_000, 1.5, "2025-06-15T12:00", date(2025, 6, 15)])
@pytest.mark.parametrize("method", ["matches", "next_after", "previous_before"])
def test_only_datetimes_are_moments(method: str, thing: Any) -> None:
    with pytest.raises(TypeError, match=f"a moment is a datetime, not {type(thing).__name__}"):
        getattr(parse_cron("* * * * *"), method)(thing)


def test_an_answer_outside_the_calendar_is_an_error_with_details() -> None:
    """SPEC 6.3: CronCalculationError remains for searches that leave the years 1 to 9999."""
    expression = parse_cron("0 0 1 1 *")
    with pytest.raises(CronCalculationError) as caught:
        expression.next_after(datetime(9999, 1, 1, tzinfo=UTC))
    assert caught.value.details["expression"] == "0 0 1 1 *"
    assert caught.value.details["currentTime"] == "9999-01-01T00:00:00+00:00"
    assert caught.value.details["cause"] is caught.value.__cause__
    assert str(caught.value) == ("Failed to calculate next occurrence: no occurrence until the end of the year 9999")
    with pytest.raises(CronCalculationError, match="no occurrence since the beginning of the year 1"):
        expression.previous_before(datetime(1, 1, 1, tzinfo=UTC))


# --- input of any size --------------------------------------------------------------------------------------

HUGE = 2_000_000


def work_of_refusing(text: str) -> tuple[InvalidCronExpressionError, int, int]:
    """The error, how many functions (Python's own included) were called on the way to it, and the memory taken."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        refused(text)
    finally:
        sys.setprofile(before)

    tracemalloc.start()
    error = refused(text)
    _, memory_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return error, calls, memory_peak


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("9" * HUGE + " * * * *", "minute"),
        ("* * * * " + "1" * HUGE, "weekday"),
        ("9" * HUGE, "expression"),
        ("," * HUGE + " * * * *", "minute"),
        ("99," * HUGE + "1 * * * *", "minute"),
        ("x," * HUGE + "1 * * * *", "minute"),
        ("x" * HUGE + " * * * *", "minute"),
        ("L" * HUGE + " * * * *", "minute"),
        ("1-" * HUGE + " * * * *", "minute"),
        ("-" * HUGE + " * * * *", "minute"),
        ("*" * HUGE + " * * * *", "minute"),
        ("*/" + "9" * HUGE + " * * * *", "minute"),
        ("٣" * HUGE + " * * * *", "minute"),
        ("\n" * HUGE, "expression"),
        (" " * HUGE, "expression"),
        ("\t" * HUGE, "expression"),
        ("* " * HUGE, "expression"),
        ("*\t" * HUGE, "expression"),
        ("@" * HUGE, "expression"),
        ("\ud800" * HUGE + " * * * *", "minute"),
    ],
    ids=lambda value: f"{value[:9]!a}" if len(value) > 20 else value,
)
def test_huge_input_fails_after_a_few_calls_and_with_a_short_message(text: str, field: str) -> None:
    """SPEC 6.1: input of any length fails fast. Counted in calls and bytes: seconds would measure the machine."""
    error, calls, memory_peak = work_of_refusing(text)
    assert error.details["field"] == field
    assert calls < HUGE / 500  # escaping a quotation of 200 characters takes most of them
    assert memory_peak < 3 * sys.getsizeof(text)
    assert len(str(error)) < 2000
    assert len(error.details["reason"]) < 200
    assert len(str(error.__cause__)) < 200
    assert len(error.details.get("hint", "")) < 200


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        (
            "1-" * 30 + " * * * *",
            "contains '1-1-1-1-1-1-1-1-1-1-…', which is not a range",
            "a range is two numbers and a '-'",
        ),
        ("9" * 30 + " * * * *", "value 99999999999999999999… is out of range 0-59", None),
        ("* * * jan" + "-" * 34 + "feb *", "contains names", "write 1 for jan and 2 for feb"),
        ("* * * jan" + "-" * 35 + "feb *", "contains names", "write 1 for jan"),
    ],
)
def test_the_beginning_of_a_long_element_is_shown(text: str, reason: str, hint: str | None) -> None:
    """SPEC 6.1: a reason stays readable: 20 characters of a text are quoted, and 40 searched for names."""
    error = refused(text)
    assert (error.details["reason"], error.details.get("hint")) == (reason, hint)


@pytest.mark.parametrize("month", range(1, 13))
@pytest.mark.parametrize("day", [29, 30, 31])
def test_a_day_that_its_month_never_has_is_refused_and_no_other(day: int, month: int) -> None:
    """SPEC 6.3: an expression that can never match is rejected; a leap year has every day."""
    text = f"0 0 {day} {month} *"
    if day <= monthrange(2024, month)[1]:
        assert parse_cron(text).next_after(datetime(2024, 1, 1, tzinfo=UTC)).day == day
    else:
        assert refused(text).details["field"] == "day"


@pytest.mark.parametrize("element", ["", "61", "x", "1-", "5-4"])
@pytest.mark.parametrize("before", [0, 1, 2, 600])
def test_the_first_bad_element_is_named_however_long_the_list(element: str, before: int) -> None:
    """SPEC 6.1: long lists are read in another way, with the same result."""
    short = ",".join([*["1"] * min(before, 2), element, "2", "99"])
    long = ",".join([*["1"] * before, element, *["2"] * 1_200, "99"])
    expected, found = refused(f"{short} * * * *"), refused(f"{long} * * * *")
    assert found.details["reason"] == expected.details["reason"]
    assert found.details.get("hint") == expected.details.get("hint")


def test_a_long_list_that_is_right_is_read_to_its_end() -> None:
    """SPEC 6.1: input of any length."""
    assert parse_cron(",".join(["1"] * 1_200 + ["59"]) + " * * * *").minutes == (1, 59)


@pytest.fixture
def _digits_are_dear() -> Iterator[None]:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)  # the lowest that Python allows: int() refuses more
    yield
    sys.set_int_max_str_digits(limit)


@pytest.mark.usefixtures("_digits_are_dear")
def test_long_numbers_are_never_converted() -> None:
    """SPEC 6.1: leading zeros are stripped before conversion."""
    assert parse_cron("0" * 5000 + "7 * * * *").minutes == (7,)
    assert parse_cron("0" * 5000 + " * * * *").minutes == (0,)
    assert parse_cron(f"{'0' * 5000}1-{'0' * 5000}3 * * * *").minutes == (1, 2, 3)
    assert refused("1" * 5000 + " * * * *").details["reason"] == f"value {'1' * 20}… is out of range 0-59"
    assert refused(f"5-{'0' * 5000}3 * * * *").details["reason"] == "range 5-3 runs backwards"
    assert refused(f"*/{'1' * 5000} * * * *").details["field"] == "minute"


def test_a_long_list_is_read_like_a_short_one() -> None:
    assert parse_cron("3,1-2," * 1000 + "0 * * * *").minutes == (0, 1, 2, 3)
    assert refused("3,1-2," * 1000 + " * * * *").details["reason"] == "contains an empty element"
    assert refused("3,1-2," * 1000 + "60 * * * *").details["reason"] == "value 60 is out of range 0-59"


# --- generated texts ----------------------------------------------------------------------------------------

RANGES = {"minutes": (0, 59), "hours": (0, 23), "days": (1, 31), "months": (1, 12), "weekdays": (0, 6)}


def zero_padded(number: int) -> st.SearchStrategy[str]:
    return st.integers(0, 3).map(lambda zeros: "0" * zeros + str(number))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, frozenset[int] | None]:
    """A field's text and what it stands for; None for '*'."""
    if draw(st.booleans()):
        return "*", None
    texts: list[str] = []
    values: set[int] = set()
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        if draw(st.booleans()):
            last = first
            texts.append(draw(zero_padded(first)))
        else:
            texts.append(f"{draw(zero_padded(first))}-{draw(zero_padded(last))}")
        values.update(range(first, last + 1))
    return ",".join(texts), frozenset(values)


blanks = st.text(" \t", min_size=1, max_size=3)


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, dict[str, frozenset[int] | None]]:
    parts = {name: draw(fields(low, high)) for name, (low, high) in RANGES.items()}
    text = draw(st.text(" \t", max_size=2))
    for name in ("minutes", "hours", "days", "months", "weekdays"):
        text += parts[name][0] + draw(blanks)
    return text, {name: values for name, (_, values) in parts.items()}


def obviously_matches(meaning: dict[str, frozenset[int] | None], when: datetime) -> bool:
    """The rule of SPEC 6.2, written out."""

    def has(name: str, value: int) -> bool:
        values = meaning[name]
        return values is None or value in values

    weekday = (when.weekday() + 1) % 7  # Monday is 0 for Python and 1 for cron
    if meaning["days"] is not None and meaning["weekdays"] is not None:
        day_matches = has("days", when.day) or has("weekdays", weekday)
    else:
        day_matches = has("days", when.day) and has("weekdays", weekday)
    return has("minutes", when.minute) and has("hours", when.hour) and has("months", when.month) and day_matches


def never_matches(meaning: dict[str, frozenset[int] | None]) -> bool:
    days, months, weekdays = meaning["days"], meaning["months"], meaning["weekdays"]
    if days is None or weekdays is not None or months is None:
        return False
    longest = {month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in months}
    return min(days) > max(longest.values())


@given(
    expressions(),
    st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)), max_size=20),
)
def test_generated_expressions_mean_what_they_say(
    generated: tuple[str, dict[str, frozenset[int] | None]], moments: list[datetime]
) -> None:
    """SPEC 6.1 and 6.2, against an evaluator that knows nothing of bits."""
    text, meaning = generated
    if never_matches(meaning):
        assert refused(text).details["field"] == "day"
        return
    expression = parse_cron(text)
    for name, every in EVERY.items():
        values = meaning[name]
        assert getattr(expression, name) == (every if values is None else tuple(sorted(values)))
    for when in moments:
        assert expression.matches(when) is obviously_matches(meaning, when)
    for found in (expression.next_after(NOON), expression.previous_before(NOON)):
        assert obviously_matches(meaning, found)


cron_like = st.text(st.sampled_from("0123456789-,*/ \t?LW#@abmonjx+.\n\xa0٣７²\x00\ud800"), max_size=40)  # noqa: RUF001
five_words = st.lists(st.text(st.sampled_from("0123456789-,*/?L"), min_size=1, max_size=6), min_size=5, max_size=5)


@given(st.one_of(st.text(max_size=60), cron_like, five_words.map(" ".join)))
@example("0 0 30 2 *")
@example("0-0-0 0 * * *")
@example("-0 0 * * *")
def test_junk_never_raises_anything_but_an_error_about_the_expression(text: str) -> None:
    """SPEC 6.1: rejected with the field and the reason, or read in a way that its own text confirms."""
    try:
        expression = parse_cron(text)
    except InvalidCronExpressionError as caught:
        assert_explains_itself(caught, text)
    else:
        assert set(text) <= set("0123456789-,* \t")
        assert len(text.split()) == 5
        assert_reads_itself(expression)


def assert_explains_itself(error: InvalidCronExpressionError, text: str) -> None:
    field, reason = error.details["field"], error.details["reason"]
    assert field in {"expression", "minute", "hour", "day", "month", "weekday"}
    assert reason
    assert error.details["expression"] == text
    assert (error.__cause__ is None) == (field == "expression")
    assert str(error).isprintable()


def assert_reads_itself(expression: CronExpression) -> None:
    """Written out as plain lists, an expression means the same."""
    texts = expression.text.split()
    plain = " ".join(
        text if text == "*" else ",".join(map(str, getattr(expression, name)))
        for name, text in zip(EVERY, texts, strict=True)
    )
    again = parse_cron(plain)
    assert all(getattr(again, name) == getattr(expression, name) for name in EVERY)
    assert again.next_after(NOON) == expression.next_after(NOON)
    assert again.previous_before(NOON) == expression.previous_before(NOON)


class Peculiar(datetime):
    """A datetime with arithmetic of its own, as in some libraries."""

    def __sub__(self, other: object) -> timedelta:  # type: ignore[override]
        raise AssertionError("the search uses plain datetimes")

    __rsub__ = __sub__

    def __add__(self, other: object) -> datetime:  # type: ignore[override]
        raise AssertionError("the search uses plain datetimes")


def test_subclasses_of_datetime_are_moments_too() -> None:
    expression = parse_cron("30 12 * * *")
    when = Peculiar(2025, 6, 15, 12, 30, 10, tzinfo=UTC)
    assert expression.matches(when)
    assert expression.next_after(when) == datetime(2025, 6, 16, 12, 30, tzinfo=UTC)
    assert expression.previous_before(when) == datetime(2025, 6, 15, 12, 30, tzinfo=UTC)
    assert type(expression.next_after(when)) is datetime


@pytest.mark.parametrize(
    ("text", "year", "month", "days"),
    [
        ("0 0 1,30 * *", 2027, 2, (1,)),
        ("0 0 29-31 * *", 2028, 2, (29,)),
        ("0 0 * * 1", 2026, 6, (1, 8, 15, 22, 29)),
        ("0 0 2 * 1", 2026, 6, (1, 2, 8, 15, 22, 29)),  # both fields are restricted: either will do
        ("0 0 1-31 * 1", 2026, 6, tuple(range(1, 31))),
        ("0 0 2 7 1", 2026, 6, ()),
    ],
)
def test_the_due_days_of_a_month_follow_the_rule_that_joins_the_day_fields(
    text: str, year: int, month: int, days: tuple[int, ...]
) -> None:
    """SPEC 6.2."""
    assert parse_cron(text).due_days(year, month) == days
