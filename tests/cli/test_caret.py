"""The caret under the place that an error is about."""

import pytest

from duly.cli.caret import pointed_at
from duly.insight.cron_check import examine


def pointed(text: str) -> list[str]:
    error = examine(text).error
    assert error is not None
    return pointed_at(text, error.begin, error.end)


@pytest.mark.parametrize(
    ("text", "caret"),
    [
        ("*/15 * * * *", "^~~~        "),
        ("0 25 * * *", "  ^~      "),
        ("0 1,2-40 * * *", "      ^~      "),
        ("0 1,40-44 * * *", "    ^~         "),
        ("0 9 * * mon-fri", "        ^~~~~~~"),
        ("0 22-2 * * *", "  ^~~~      "),
        ("5, * * * *", " ^"),
        (",5 * * * *", "^"),
        ("5,,6 * * * *", " ^"),
        ("0 0 30 2 *", "    ^~"),
        ("0 0 * *", "        ^"),
        ("0 0 * * * 5 3", "          ^~~"),
        ("@daily", "^~~~~~"),
        ("", "^"),
    ],
)
def test_the_caret_stands_under_the_offending_place(text: str, caret: str) -> None:
    """Errors are explained with a caret under the offending place."""
    line, under = pointed(text)
    assert line == text
    assert under == caret.rstrip()


def test_wide_letters_and_control_codes_move_the_caret_as_they_move_the_text() -> None:
    """Columns of a terminal, not characters; and hostile input does nothing to it."""
    wide, hostile = "分 99 * * *", "\x1b[31m 0 * * *"
    for text, column in ((wide, 0), (hostile, 0)):
        line, under = pointed(text)
        assert "\x1b" not in line
        assert under.index("^") == column
    assert pointed("0 分 * * *")[1] == "  ^~"


def test_a_very_long_text_is_shown_around_its_error() -> None:
    """SPEC 6.1: any length; a screen is not flooded."""
    text = "1," * 500 + "99 * * * *"
    line, under = pointed(text)
    assert len(line) < 210
    assert line[under.index("^") :].startswith("99")
