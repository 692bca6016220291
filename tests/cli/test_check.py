"""`duly check`: valid or not, where not, and what to write instead."""

from pathlib import Path

import pytest

from duly.cli.commands.check import examine, pointed_at
from tests.cli.program import Terminal, duly


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
    error = examine(text).error
    assert error is not None
    line, under = pointed_at(text, error)
    assert line == text
    assert under == caret.rstrip()


def test_wide_letters_and_control_codes_move_the_caret_as_they_move_the_text() -> None:
    """Columns of a terminal, not characters; and hostile input does nothing to it."""
    wide, hostile = "分 99 * * *", "\x1b[31m 0 * * *"
    for text, column in ((wide, 0), (hostile, 0)):
        error = examine(text).error
        assert error is not None
        line, under = pointed_at(text, error)
        assert "\x1b" not in line
        assert under.index("^") == column
    error = examine("0 分 * * *").error
    assert error is not None
    assert pointed_at("0 分 * * *", error)[1] == "  ^~"


def test_a_very_long_text_is_shown_around_its_error() -> None:
    """SPEC 6.1: any length; a screen is not flooded."""
    text = "1," * 500 + "99 * * * *"
    error = examine(text).error
    assert error is not None
    line, under = pointed_at(text, error)
    assert len(line) < 210
    assert line[under.index("^") :].startswith("99")


def test_valid_expressions_are_told_in_words(tmp_path: Path) -> None:
    """Exit code 0, and a note where both day fields are restricted."""
    done = duly("check", "30 2 * * 1-5", "0 0 13 * 5", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "✓ 30 2 * * 1-5\n  at 02:30 on weekdays Monday to Friday\n" in done.out
    assert "either is enough" in done.out
    assert "\x1b" not in done.out


def test_an_invalid_expression_is_pointed_at_and_its_equivalent_shown(tmp_path: Path) -> None:
    """`*/15` → `0,15,30,45`; exit code 1, because the answer is no."""
    done = duly("check", "*/15 * * * *", "30 2 * * *", folder=tmp_path)
    assert done.code == 1
    assert done.out.startswith("✗ */15 * * * *\n  ^~~~\n  minute field contains step syntax '/'")
    assert "write: 0,15,30,45 * * * *" in done.out


def test_the_json_shape(tmp_path: Path) -> None:
    """docs/commands.md, check: the documented fields, and places as offsets."""
    done = duly("check", "0 0 L * *", "0 0 * * *", "--json", folder=tmp_path)
    assert done.code == 1
    assert (done.json["command"], done.json["valid"]) == ("check", False)
    bad, good = done.json["expressions"]
    assert bad["error"]["field"] == "day"
    assert (bad["error"]["begin"], bad["error"]["end"]) == (4, 5)
    assert bad["posix"] is None
    assert "last day" in bad["obstacles"][0]["text"]
    assert good == {
        "expression": "0 0 * * *",
        "valid": True,
        "words": "at 00:00 every day",
        "warnings": [],
        "error": None,
        "posix": None,
        "posixWords": None,
        "rewritten": [],
        "obstacles": [],
    }


def test_an_expression_that_the_shell_took_apart_is_recognised(tmp_path: Path) -> None:
    """One message on standard error, and the line to type instead."""
    done = duly("check", "0", "2", "1", "*", "5", folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "quote it: duly check '0 2 1 * 5'" in done.err


def test_colour_only_on_a_terminal_and_never_with_no_color(tmp_path: Path) -> None:
    """Colour only on a terminal, NO_COLOR respected."""
    with Terminal("check", "0 0 * * *", folder=tmp_path) as coloured:
        assert coloured.end() == 0
    with Terminal("check", "0 0 * * *", folder=tmp_path, NO_COLOR="1") as plain:
        assert plain.end() == 0
    assert "\x1b[32m" in coloured.shown
    assert "\x1b[32m" not in plain.shown
