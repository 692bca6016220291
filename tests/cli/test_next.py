"""`duly next`: coming starts, and what daylight saving does to them."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from duly import parse_cron
from duly.insight.coming import Calendar, Coming
from duly.insight.zone_changes import leap_in_words
from tests.cli.program import duly, write_target

BERLIN = ZoneInfo("Europe/Berlin")


def coming(expression: str, since: datetime, count: int) -> Coming:
    """The coming starts of an expression."""
    return Calendar(since, count).coming(None, parse_cron(expression))


def test_a_skipped_minute_is_shown_where_it_would_have_been() -> None:
    """SPEC 2.2: it does not exist, nothing runs for it."""
    found = coming("30 2 * * *", datetime(2024, 3, 30, tzinfo=BERLIN), 2)
    assert [start.isoformat() for start in found.starts] == ["2024-03-30T02:30:00+01:00", "2024-04-01T02:30:00+02:00"]
    [leap] = found.leaps
    assert leap.minutes == (datetime(2024, 3, 31, 2, 30),)
    assert leap_in_words(leap) == (
        "Sun 2024-03-31 02:30 does not exist: clocks go forward from 02:00 to 03:00, nothing runs for it"
    )


def test_a_repeated_minute_is_due_the_first_time_only() -> None:
    """SPEC 2.3: fold 0, for every expression."""
    found = coming("30 * * * *", datetime(2024, 10, 27, 2, tzinfo=BERLIN), 2)
    assert [start.isoformat() for start in found.starts] == ["2024-10-27T02:30:00+02:00", "2024-10-27T03:30:00+01:00"]
    [leap] = found.leaps
    assert "02:30 occurs twice: clocks go back from 03:00 to 02:00, due the first time only" in leap_in_words(leap)


def test_a_day_that_a_zone_left_out() -> None:
    """Samoa crossed the date line: 2011-12-30 does not exist."""
    found = coming("0 12 30 12 *", datetime(2011, 12, 1, tzinfo=ZoneInfo("Pacific/Apia")), 1)
    assert found.starts[0].year == 2012
    assert "from 2011-12-30 00:00 to 2011-12-31 00:00" in leap_in_words(found.leaps[0])


def test_an_expression_at_the_command_line(tmp_path: Path) -> None:
    """The words, the zone, one line for each start."""
    done = duly("next", "30 2 * * 1-5", "-n", "3", "--from", "2024-03-29", "--tz", "Europe/Berlin", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "30 2 * * 1-5  at 02:30 on weekdays Monday to Friday",
        "  Europe/Berlin, from 2024-03-29 00:00",
        "  Fri 2024-03-29 02:30 +01:00",
        "  Mon 2024-04-01 02:30 +02:00",
        "  Tue 2024-04-02 02:30 +02:00",
    ]


def test_a_target_task_by_task_and_merged(tmp_path: Path) -> None:
    """TARGET instead of EXPR."""
    registrations = '[("a", "0 1 * * *", quick, timedelta(1)), ("b", "0 2 * * *", quick, timedelta(1))]'
    target = write_target(tmp_path, registrations)
    done = duly(
        "next", target, "-n", "3", "--from", "2024-05-01", "--merged", "--json", folder=tmp_path, TZ="Europe/Berlin"
    )
    assert done.code == 0
    assert [each["task"] for each in done.json["tasks"]] == ["a", "b"]
    assert done.json["tasks"][1]["starts"][0] == "2024-05-01T02:00:00+02:00"
    assert [(each["at"][8:13], each["task"]) for each in done.json["merged"]] == [
        ("01T01", "a"),
        ("01T02", "b"),
        ("02T01", "a"),
    ]
    shown = duly("next", target, "-n", "2", "--from", "2024-05-01", "--merged", folder=tmp_path).out
    assert [line.split()[-1] for line in shown.splitlines()[1:]] == ["a", "b"]
    far = duly("next", target, "-n", "2", "--from", "2127-05-01T01:30", "--merged", folder=tmp_path).out.splitlines()
    assert len({line.rindex("  ") for line in far[1:]}) == 1  # names stand below each other


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["*/5 * * * *"], 2, "hint: write '0,5,10,15,20,25,30,35,40,45,50,55 * * * *'"),
        (["nonsense"], 2, "TARGET is module:attribute"),
        (["0 0 * * *", "--tz", "Europe/Berln"], 2, "did you mean Europe/Berlin?"),
        (["0 0 * * *", "--from", "yesterday"], 2, "--from: 'yesterday' is not a moment"),
        (["0 0 * * *", "-n", "0"], 2, "-n"),
        (["missing.py"], 3, "no such file: missing.py"),
        (["0", "0", "*", "*", "*"], 2, "quote it: duly next '0 0 * * *'"),
        (["0", "0", *"abcdefgh"], 2, "the shell replaces * with the names of files"),
        (["0 0 * * *", "0 1 * * *"], 2, "got 2 arguments, and takes one EXPR or TARGET"),
        (["a.py", "b.py"], 2, "takes one EXPR or TARGET\nhint: ask for one after the other"),
    ],
)
def test_wrong_usage_gives_one_message_and_a_documented_code(
    arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    """One clear message on stderr, no traceback."""
    done = duly("next", *arguments, folder=tmp_path)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("since", "said"),
    [("9999-01-01", ["  no start before the calendar ends, with the year 9999"]), ("9993-01-01", None)],
)
def test_the_end_of_the_calendar_is_said(since: str, said: list[str] | None, tmp_path: Path) -> None:
    """A header with nothing below it looked like an answer that was cut off."""
    lines = duly("next", "0 0 29 2 *", "--from", since, folder=tmp_path).out.splitlines()
    assert lines[-1:] == (said or ["  no further start before the calendar ends, with the year 9999"])
    assert len(lines) == (3 if said else 4)
    target = write_target(tmp_path, '[("leap", "0 0 29 2 *", quick, timedelta(0))]')
    assert duly("next", target, "--merged", "--from", since, folder=tmp_path).out.splitlines()[-1:] == lines[-1:]
    exactly = duly("next", "0 0 29 2 *", "--from", "9993-01-01", "-n", "1", folder=tmp_path).out
    assert "calendar" not in exactly
