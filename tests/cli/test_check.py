"""`duly check`: valid or not, where not, and what to write instead."""

from pathlib import Path

from tests.cli.program import Terminal, duly, write_target


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


def test_a_target_is_checked_without_a_store(tmp_path: Path) -> None:
    """Refusals of a scheduler are reported, with the exit code of a TARGET; surprises are noted."""
    write_target(
        tmp_path,
        '[("a", "0 1 * * *", quick, timedelta(1)), ("b", "0 1 * * *", quick, timedelta(1)), '
        '("c", "0 0 13 * 5", quick, timedelta(1))]',
    )
    done = duly("check", "tasks.py", "0 0 * * *", folder=tmp_path)
    assert done.code == 0
    assert done.out.splitlines()[:2] == ["✓ tasks.py", "  3 tasks, 2 expressions"]
    assert "  note: c, 0 0 13 * 5: both day fields are restricted" in done.out
    assert "✓ 0 0 * * *" in done.out
    [target] = duly("check", "tasks.py", "--json", folder=tmp_path).json["targets"]
    assert (target["target"], target["tasks"], target["expressions"]) == ("tasks.py", 3, 2)
    assert [each["task"] for each in target["warnings"]] == ["c"]
    write_target(tmp_path, '[("a", "*/5 * * * *", quick, timedelta(1))]')
    wrong = duly("check", "tasks.py", folder=tmp_path)
    assert (wrong.code, wrong.out) == (3, "")
    assert "tasks.py: registration 0 (a): " in wrong.err
    missing = duly("check", "task.py", folder=tmp_path)
    assert (missing.code, missing.out) == (3, "")
    assert "did you mean tasks.py?" in missing.err
    assert [each.name for each in tmp_path.iterdir()] == ["tasks.py"]


def test_a_url_that_is_no_target_is_refused_without_its_password(tmp_path: Path) -> None:
    """On standard error and in the document."""
    refused = duly("check", "postgresql://u:sekret@h/x", "--json", folder=tmp_path)
    assert refused.code == 3
    assert "sekret" not in refused.out + refused.err
    assert [each["target"] for each in refused.json["refused"]] == ["postgresql://u:…@h/x"]


def test_a_target_that_is_refused_does_not_keep_the_others_from_being_checked(tmp_path: Path) -> None:
    """The first refusal of each TARGET, and the answers about all other arguments, in text and in JSON."""
    two = '[("a", "*/5 * * * *", quick, timedelta(1)), ("b", "0 25 * * *", quick, timedelta(1))]'
    write_target(tmp_path, two, "two.py")
    write_target(tmp_path, "[]", "good.py")
    arguments = ("check", "two.py", "missing.py", "good.py", "*/15 * * * *", "0 3 * * *")
    done = duly(*arguments, folder=tmp_path)
    assert done.code == 3
    first, second = (line for line in done.err.splitlines() if line.startswith("error: "))
    assert first.startswith("error: two.py: registration 0 (a): ")
    assert second == "error: no such file: missing.py"
    marks = [line for line in done.out.splitlines() if line[:1] in "✓✗"]
    assert marks == ["✓ good.py", "✗ */15 * * * *", "✓ 0 3 * * *"]
    told = duly(*arguments, "--json", folder=tmp_path)
    assert (told.code, told.err) == (done.code, done.err)
    document = told.json
    assert document["valid"] is False
    assert [each["valid"] for each in document["expressions"]] == [False, True]
    assert [each["target"] for each in document["targets"]] == ["good.py"]
    assert [f"error: {each['error']}" for each in document["refused"]] == [first, second]
    assert [each["target"] for each in document["refused"]] == ["two.py", "missing.py"]
    alone = duly("check", "two.py", "--json", folder=tmp_path)
    assert (alone.code, alone.json["valid"]) == (3, False)


def test_colour_only_on_a_terminal_and_never_with_no_color(tmp_path: Path) -> None:
    """Colour only on a terminal, NO_COLOR respected."""
    with Terminal("check", "0 0 * * *", folder=tmp_path) as coloured:
        assert coloured.end() == 0
    with Terminal("check", "0 0 * * *", folder=tmp_path, NO_COLOR="1") as plain:
        assert plain.end() == 0
    assert "\x1b[32m" in coloured.shown
    assert "\x1b[32m" not in plain.shown
