"""Text from outside is shown, and neither breaks a line nor reaches a terminal as a command."""

import pytest

from duly.text import meant, plain


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", ""),
        ("täsk 🎉", "täsk 🎉"),
        ("back\\slash", "back\\slash"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\u202eright to left\u2028", "\\u202eright to left\\u2028"),
        ("lone \ud800", "lone \\ud800"),
        (7, "7"),
        (None, "None"),
    ],
)
def test_unprintable_characters_are_escaped(value: object, shown: str) -> None:
    """SPEC 5.5: names may hold anything but NUL."""
    assert plain(value) == shown
    assert shown.isprintable()


def test_line_ends_stay_where_lines_are_wanted() -> None:
    """A message of several lines."""
    assert plain("one\ntwo\x1b\r\n", lines=True) == "one\ntwo\\x1b\\r\n"


@pytest.mark.parametrize(("text", "shown"), [("abc", "abc"), ("abcd", "abc…"), ("ab\nd", "ab\\n…"), ("", "")])
def test_a_long_text_is_shortened(text: str, shown: str) -> None:
    """Counted before it is escaped, so that no escape is cut in two."""
    assert plain(text, longest=3) == shown


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("stats", ["run", "status", "history"], "status"),
        ("exprot", ["export", "import"], "export"),
        ("task-00001", ["task-090001", "task-000001"], "task-000001"),
        ("backup", ["backup-nightly", "backups-of-all"], "backup-nightly"),
        ("BACKUP", ["backup"], "backup"),
        ("--stor", ["--json", "--store"], "--store"),
        ("wrong", ["logging", "registrations"], None),
        ("missing.db", ["sg.db"], None),
        ("a", ["b", "ab"], None),
        ("A", ["b", "a"], "a"),
        ("ac", ["b", "ab"], "ab"),
        ("ab", ["xy"], None),
        ("", ["a long name"], None),
        ("anything", [], None),
    ],
)
def test_a_word_is_suggested_only_if_it_is_near(word: str, known: list[str], expected: str | None) -> None:
    """Few letters differ, or it is the beginning."""
    assert meant(word, known) == expected
