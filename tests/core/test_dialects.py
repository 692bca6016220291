"""Cron as it is written elsewhere, and its POSIX equivalent, or why there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly import parse_cron
from duly.core.dialects import translate
from duly.errors import InvalidCronExpressionError


@pytest.mark.parametrize(
    ("text", "posix"),
    [
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("5/10 * * * *", "5,15,25,35,45,55 * * * *"),
        ("0 8-18/5 * * *", "0 8,13,18 * * *"),
        ("0 0 1-30/7 * *", "0 0 1,8,15,22,29 * *"),
        ("*/1 */1 * * *", "* * * * *"),
        ("0 9 * * mon", "0 9 * * 1"),
        ("0 9 * * MON-Friday", "0 9 * * 1-5"),
        ("0 0 1 jan-mar *", "0 0 1 1-3 *"),
        ("0 0 1 nov-feb *", "0 0 1 1,2,11,12 *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * fri-sun", "0 0 * * 0,5,6"),
        ("0 22-2 * * *", "0 0-2,22,23 * * *"),
        ("*,5 * * * *", "* * * * *"),
        ("0 0 ? * 1", "0 0 * * 1"),
        ("@yearly", "0 0 1 1 *"),
        ("@Daily", "0 0 * * *"),
        (" @hourly ", "0 * * * *"),
        ("@weekly", "0 0 * * 0"),
        ("30 2 * * 1-5", "30 2 * * 1-5"),
        ("0 0 * * 7-2", "0 0 * * 0-2"),
        ("0 0 * * 7-7", "0 0 * * 0"),
        ("0 0 * * 7-0", "0 0 * * 0"),
        ("0 0 */10 * *", "0 0 1,11,21,31 * *"),
        ("0 0 * * */3", "0 0 * * 0,3,6"),
        ("0 7-9/2 * * *", "0 7,9 * * *"),
        ("1,2,3 */12 * * *", "1,2,3 0,12 * * *"),  # what is POSIX already stays as it is written
        ("*/30 0 31 12 *", "0,30 0 31 12 *"),
        ("*/30 23 1 1 *", "0,30 23 1 1 *"),
        ("*/30 0000000005 * * *", "0,30 0000000005 * * *"),
        ("*/30 0 * * 6,0", "0,30 0 * * 6,0"),
    ],
)
def test_what_has_an_equivalent(text: str, posix: str) -> None:
    """Common non-POSIX forms, and the POSIX text that means the same."""
    found = translate(text)
    assert found is not None
    assert found.posix == posix
    assert not found.obstacles
    assert parse_cron(posix)


@pytest.mark.parametrize(
    ("text", "posix"),
    [
        ("0 0 12 * * *", "0 12 * * *"),
        ("0 0 12 ? * 2", "0 12 * * 1"),  # Quartz: Sunday is 1
        ("0 0 12 ? * MON-FRI", "0 12 * * 1-5"),
        ("0 12 ? * 2-6 *", "0 12 * * 1-5"),  # EventBridge: the year comes last
        ("0 0 12 * * 2", "0 12 * * 2"),  # Spring: Sunday is 0
        ("0 0 12 ? * 7 *", "0 12 * * 6"),
        ("0 0 12 ? * 1", "0 12 * * 0"),
        ("0 12 1 * ? *", "0 12 1 * *"),
        ("00 0 12 1 * ?", "0 12 1 * *"),
    ],
)
def test_six_and_seven_fields_lose_those_that_say_nothing(text: str, posix: str) -> None:
    """The position of '?' tells which field is which and how weekdays are numbered; remarks say so."""
    found = translate(text)
    assert found is not None
    assert found.posix == posix
    assert found.rewritten


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("0 0 L * *", "L", "last day of a month"),
        ("0 0 LW * *", "LW", "nearest working day"),
        ("0 0 15W * *", "15W", "nearest working day"),
        ("0 0 * * 5L", "5L", "last of a weekday"),
        ("0 0 * * 1#2", "1#2", "use the days 8-14"),
        ("H 3 * * *", "H", "choose a value"),
        ("0~30 3 * * *", "0~30", "random"),
        ("@reboot", "@reboot", "not a time"),
        (" @reboot ", "@reboot", "not a time"),
        ("@every 1h", "@every 1h", "wall clock"),
        ("*/10 * * * * *", "*/10", "grain is the minute"),
        ("0 0 12 1 1 ? 2030", "2030", "every year"),
        ("0 0 */2 * 1", "*/2", "Vixie"),
        ("0 0 1 * */2", "*/2", "Vixie"),
    ],
)
def test_what_has_none_says_so_and_where(text: str, place: str, reason: str) -> None:
    """No equivalent is shown if none means the same, not even a similar one."""
    found = translate(text)
    assert found is not None
    assert found.posix is None
    [obstacle] = found.obstacles
    assert text[obstacle.begin : obstacle.end] == place
    assert reason in obstacle.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo",
        "70 * * * *",
        "* * * *",
        "* * * * * * * *",
        "*/0 * * * *",
        "*/12345 * * * *",
        "0 0 * * fry",
        "0 0 30 2 *",
        "0 0 */30 2 8",
        "*/30 24 * * *",
        "*/30 0 0 * *",
        "*/30 0 * 13 *",
        "*/30 0 * * 8",
        "1-2-3 * * * *",
        "? * * * *",
        "0 0 12 ? * 0",
        "0 0 12 ? * 8",
        "@reboot now",
        "@daily now",
        "@fortnightly",
        "@",
    ],
)
def test_what_is_wrong_everywhere_is_no_dialect(text: str) -> None:
    """Then the parser's own reason is all there is to say."""
    assert translate(text) is None


def test_a_step_over_every_day_restricts_nothing_and_a_full_range_does() -> None:
    """SPEC 6.2: only a bare '*' leaves the other day field alone; '*/1' is one, '1-7' is not."""
    found, full = translate("0 0 */1 * 1"), translate("0 0 1 * 1-7")
    assert found is not None
    assert full is not None
    assert found.posix == "0 0 * * 1"
    assert full.posix == "0 0 1 * 0-6"


def test_a_text_of_any_length_is_answered_at_once() -> None:
    """SPEC 6.1: input of any length fails fast."""
    assert translate("*/5," * 1_000_000 + "1 * * * *") is None


@pytest.mark.parametrize(
    ("text", "posix"),
    [("0 0 * * Thurs", "0 0 * * 4"), ("0 0 * SEPT *", "0 0 * 9 *"), ("0 0 1 january *", "0 0 1 1 *")],
)
def test_names_may_be_whole_or_cut_after_three_letters(text: str, posix: str) -> None:
    """The errors of `parse_cron` give the same number."""
    found = translate(text)
    assert found is not None
    assert found.posix == posix
    with pytest.raises(InvalidCronExpressionError) as caught:
        parse_cron(text)
    (remark,) = found.rewritten
    assert remark.text.split()[-1] in caught.value.details["hint"]


@pytest.mark.parametrize("text", ["0 0 * * mo", "0 0 * * mondays", "0 0 * janx *", "0 jan * * *"])
def test_a_word_that_is_not_a_name_of_the_field_is_not_a_dialect(text: str) -> None:
    assert translate(text) is None


TOKENS = ("0", "5", "7", "12", "31", "007", "*", "?", "mon", "feb", "1-5", "5-1", "6-0", "*/2", "1-9/3", "3/4", "*,7")


@given(st.lists(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=2).map(",".join), min_size=5, max_size=7))
def test_an_equivalent_is_posix_cron(words: list[str]) -> None:
    """SPEC 6.1: what `duly check` advises can be declared."""
    found = translate(" ".join(words))
    if found is not None and found.posix is not None:
        assert parse_cron(found.posix).text == found.posix


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("0 0 ? * 1", [("?", "day", "'?' is '*' in POSIX")]),
        ("0,*/20 * * * *", [("*/20", "minute", "a step: the values one by one")]),
        ("0 0 * * mon-fri/2", [("mon-fri/2", "weekday", "a step: the values one by one; mon is 1; fri is 5")]),
        ("0 0 * * 7-2", [("7-2", "weekday", "7 is 0 in POSIX, Sunday; a range that wraps around")]),
        ("0 0 * * fri-7", [("fri-7", "weekday", "fri is 5; 7 is 0 in POSIX, Sunday")]),
        (
            "*,5 22-2 * * *",
            [("*", "minute", "'*' among others is every value"), ("22-2", "hour", "a range that wraps around")],
        ),
        (
            "0 0 12 ? * 2",
            [
                ("0", "second", "the first of six fields (as in Quartz) is the second, which cron does not have"),
                ("?", "day", "'?' is '*' in POSIX"),
                ("2", "weekday", "2 is Monday where 1 is Sunday, as in Quartz"),
            ],
        ),
    ],
)
def test_every_part_that_was_rewritten_is_named(text: str, remarks: list[tuple[str, str, str]]) -> None:
    """A person can check the equivalent part by part, in the order of the text."""
    found = translate(text)
    assert found is not None
    assert [(text[each.begin : each.end], each.field, each.text) for each in found.rewritten] == remarks


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        ("0 0 15W * *", "POSIX cron cannot name the nearest working day"),
        ("0 0 * * 5L", "POSIX cron cannot name the last of a weekday in a month"),
        (
            "0 0 L * *",
            (
                "POSIX cron cannot name the last day of a month: use the days 28-31, and let the callback return "
                "unless tomorrow is another month's first day"
            ),
        ),
        (
            "0 0 * * 5#5",
            (
                "POSIX cron cannot count the weekdays of a month: use the days 29-31, and let the callback return on "
                "other weekdays"
            ),
        ),
    ],
)
def test_an_obstacle_comes_with_advice_where_there_is_some(text: str, obstacle: str) -> None:
    found = translate(text)
    assert found is not None
    assert [each.text for each in found.obstacles] == [obstacle]


def test_a_text_is_translated_up_to_a_thousand_characters() -> None:
    """SPEC 6.1: input of any length; a person writes far fewer."""
    text = "*/30 " + "0," * 400 + "1 * * *"
    for blanks, translated in ((1000 - len(text), True), (1001 - len(text), False)):
        assert (translate(text + " " * blanks) is not None) is translated


def test_a_rate_of_eventbridge_is_recognised() -> None:
    """It has no equivalent, as `@every` has none."""
    translation = translate("rate(5 minutes)")
    assert translation is not None
    assert translation.posix is None
    assert "EventBridge" in translation.obstacles[0].text
    assert translate("rate(often)") is None
