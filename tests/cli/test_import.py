"""`duly import`: registrations from crontabs, Celery and APScheduler, with every difference named."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly import CronExpression, parse_cron
from duly.cli.importers.crontab import read_crontab
from duly.cli.importers.draft import Draft
from duly.cli.importers.python_file import python_source
from duly.cli.importers.result import ImportedEntry, finish
from duly.core import steps
from duly.core.registration import read_registrations
from tests.cli.program import Outcome, duly, environment

BERLIN = ZoneInfo("Europe/Berlin")


def crontab(text: str, *, system: bool | None = False) -> Sequence[ImportedEntry]:
    found = read_crontab(text, "test", system=system, is_user=lambda name: name in ("root", "www-data"))
    return finish(found, BERLIN, datetime(2024, 1, 1, tzinfo=BERLIN)).entries


def run_file(folder: Path, text: str) -> dict[str, Any]:
    """Run an imported file as a user would, and return what it defines."""
    defined: dict[str, Any] = {"__name__": "imported"}
    sys.path.insert(0, str(folder))
    try:
        exec(compile(text, "imported.py", "exec"), defined)
    finally:
        sys.path.remove(str(folder))
    return defined


# --- crontabs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name", "posix", "note"),
    [
        ("30 2 * * 1-5 /usr/bin/backup --all", "backup", "30 2 * * 1-5", None),
        ("*/15 * * * * poll.sh", "poll", "0,15,30,45 * * * *", "rewritten from '*/15 * * * *'"),
        ("0 9 * * mon cd /srv && ./report.py", "report", "0 9 * * 1", "mon is 1"),
        ("0 0 * * 7 weekly", "weekly", "0 0 * * 0", "7 is 0 in POSIX"),
        ("@daily /usr/bin/rotate", "rotate", "0 0 * * *", "macro"),
        ("-5 * * * * quiet", "quiet", "5 * * * *", "keeps some crons from logging"),
        ("0 9 1 * 5 both", "both", "0 9 1 * 5", "either is enough, here as in cron"),
        ("5/10 * * * * poll", "poll", "5,15,25,35,45,55 * * * *", "some crons read 5 alone"),
        ("@every 5m /usr/bin/poll", "poll", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *", "an interval of 0:05:00"),
        ("@every 1h poll", "poll", "0 * * * *", "an interval of 1:00:00"),
        ("0 1 * * * manage.py clearsessions --all", "manage-clearsessions", "0 1 * * *", None),
    ],
)
def test_a_line_becomes_a_registration(line: str, name: str, posix: str, note: str | None) -> None:
    """Rewritten parts are named."""
    [entry] = crontab(line)
    assert entry.imported
    assert (entry.task, entry.expression) == (name, parse_cron(posix))
    assert note is None or any(note in each for each in entry.notes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@reboot /usr/bin/hello", "not a time"),
        ("0 0 */2 * 1 odd", "Vixie"),
        ("61 * * * * wrong", "out of range 0-59"),
        ("0 0 L * * last", "last day"),
        ("@every 90s poll", "not a whole number of minutes"),
        ("@every 1h7m poll", "an interval that cron cannot express"),
        ("@every often poll", "counts from the start of a process"),
        ("just some words", "neither five fields"),
        ("* * * * *", "neither five fields"),
    ],
)
def test_what_cannot_be_expressed_is_left_out_with_its_reason(line: str, reason: str) -> None:
    """Instead of hiding it, or of importing something near."""
    [entry] = crontab(line)
    assert not entry.imported
    assert any(reason in each for each in entry.obstacles)


def test_variables_hold_from_their_line_on_and_percent_signs_are_standard_input() -> None:
    """crontab(5): NAME = value, quotes, `%` and `\\%`."""
    text = 'A=1\n0 0 * * * one\n  "B" = "two words"\nMAILTO=x\n# c\n\n0 0 * * * mail x%a\\%b%c\n'
    one, two = crontab(text)
    assert one.call == "shell('one', A='1')"
    assert two.call == "shell('mail x', 'a%b\\nc\\n', A='1', B='two words')"


@pytest.mark.parametrize(
    ("zone", "line", "imported"),
    [
        ("America/New_York", "0 9 * * *", False),
        ("Europe/Berlin", "0 9 * * *", True),
        ("Arctic/Longyearbyen", "0 9 * * *", True),  # another name of the same rules
        ("America/New_York", "0,15,30,45 * * * *", True),  # due at the same minutes in both
        ("Asia/Kolkata", "0,30 * * * *", True),
        ("Asia/Kolkata", "0 * * * *", False),  # its hours begin in the middle of those of Berlin
        ("Asia/Kolkata", "* * * * 1", False),
        ("Nowhere/At-All", "0 9 * * *", False),
    ],
)
def test_a_schedule_of_another_zone_is_left_out(zone: str, line: str, imported: bool) -> None:
    """A job for 09:00 in New York must not run at 09:00 in Berlin."""
    [entry] = crontab(f"CRON_TZ={zone}\n{line} x")
    assert entry.imported is imported
    assert imported or f"meant in the time zone {zone} (CRON_TZ)" in entry.obstacles[0]


def test_the_variable_tz_is_one_of_the_command() -> None:
    """crontab(5): TZ does not change when a command runs."""
    [entry] = crontab("TZ=America/New_York\n0 9 * * * x")
    assert entry.imported
    assert entry.call == "shell('x', TZ='America/New_York')"
    assert "TZ=America/New_York is a variable of the command" in entry.notes[0]


def test_tz_says_that_the_zone_of_a_crontab_is_the_one_duly_will_run_in(tmp_path: Path) -> None:
    """The program: left out with exit code 1 and a reason that says what to do, or imported with 0."""
    (tmp_path / "crontab").write_text("CRON_TZ=America/New_York\n30 4 * * * x\n")
    refused = duly("import", "crontab", "crontab", folder=tmp_path)
    assert refused.code == 1
    assert "registrations = [\n    # NOT IMPORTED: line 2" in refused.out
    assert "say so with --tz America/New_York" in " ".join(refused.out.replace("#", "").split())
    taken = duly("import", "crontab", "crontab", "--tz", "America/New_York", folder=tmp_path)
    assert (taken.code, "('x', '30 4 * * *'" in taken.out) == (0, True)


def test_the_coming_changes_of_the_clock_are_told_where_they_matter() -> None:
    """SPEC 2.2, 2.3: with the date and the minutes, in the zone duly will run in."""
    night, day = crontab("30 2 * * * night\n30 12 * * * day")
    assert [each for each in night.notes if "2024-03-31, 02:30 does not exist in Europe/Berlin" in each]
    assert [each for each in night.notes if "2024-10-27, 02:30 occurs twice" in each]
    assert day.notes == []


def test_a_line_for_every_minute_costs_no_more_than_one_for_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its notes came of a walk over all minutes of a year, 2.6 s of compute; now of the few that a change concerns."""
    asked = 0
    next_after = CronExpression.next_after

    def counted(expression: CronExpression, after: datetime) -> datetime:
        nonlocal asked
        asked += 1
        return next_after(expression, after)

    monkeypatch.setattr(CronExpression, "next_after", counted)
    [entry] = crontab("* * * * * every-minute")
    assert "on 2024-03-31, 02:00 to 02:59 does not exist" in entry.notes[0]
    assert asked <= 150  # two changes of an hour
    asked = 0
    assert len(crontab("* * * * * x\n" * 10)) == 10
    assert asked <= 1_500


def test_a_system_crontab_is_recognised_and_its_users_named() -> None:
    """System and user formats; who would have run it is a difference."""
    text = "0 3 * * * root /usr/sbin/clean\n0 4 * * * www-data run-parts /srv"
    for entries in (crontab(text, system=None), crontab(text, system=True)):
        assert [(entry.task, entry.imported) for entry in entries] == [("clean", True), ("run-parts", True)]
        assert "ran as www-data" in entries[1].notes[0]
    assert crontab("0 3 * * * backup root", system=None)[0].call == "shell('backup root')"
    assert not crontab("0 3 * * * /usr/bin/x", system=True)[0].imported


def test_equal_names_are_told_apart() -> None:
    """SPEC 1.4: names are unique."""
    lines = ["0 1 * * * x", "0 2 * * * x", "@reboot x", "0 3 * * * y", "0 4 * * * [ -f /z ]", "0 5 * * * $A"]
    names = {entry.source.partition(": ")[2]: entry.task for entry in crontab("\n".join(lines))}
    assert len(set(names.values())) == len(lines)
    assert names["0 3 * * * y"] == "y"
    assert names["0 1 * * * x"].startswith("x-")


def test_names_do_not_depend_on_the_order_of_the_lines() -> None:
    """SPEC 4.2: a task that is called otherwise after the next import is a new one, and the old one is orphaned."""
    lines = ["0 1 * * * x", "0 2 * * * x", "@reboot x", "0 3 * * * $A", "0 4 * * * x --y", "0 1 * * * x"]
    one = crontab("\n".join(lines))
    other = crontab("\n".join(["# a comment", *reversed(lines)]))
    assert sorted((entry.task, entry.call or "") for entry in one) == sorted(
        (entry.task, entry.call or "") for entry in other
    )
    assert len({entry.task for entry in one}) == len(lines)


def test_the_file_runs_and_its_callbacks_do_what_cron_did(tmp_path: Path) -> None:
    """Hostile names and commands stay text; the command runs in a shell, with its variables and its input."""
    out = tmp_path / "out"
    lines = f'V=\'quo"te\'\n0 0 * * * cat > {out}; echo "$V" >> {out}%hello%"""%\n1 0 * * * x # \\ """ {{}}\n'
    drafts = read_crontab(lines, 'a"""\\name', system=False, is_user=lambda _: False)
    found = finish(drafts, BERLIN, datetime(2024, 1, 1, tzinfo=BERLIN))
    source = python_source(found, timedelta(seconds=90))
    defined = run_file(tmp_path, source)
    registrations = list(steps.finish(read_registrations(defined["registrations"])).singles())
    assert [each.delay for each in registrations] == [90_000, 90_000]
    registrations[0].callback()
    assert out.read_text() == 'hello\n"""\n\nquo"te\n'
    with pytest.raises(subprocess.CalledProcessError):
        defined["shell"]("exit 3")()


def test_the_program(tmp_path: Path) -> None:
    """A file that `duly next` takes at once; exit code 1 when something was left out; a summary on stderr."""
    (tmp_path / "crontab").write_text("*/30 * * * * poll\n@reboot hello\n")
    done = duly("import", "crontab", "crontab", folder=tmp_path)
    assert done.code == 1
    assert "1 of 2 imported" in done.err
    assert "# NOT IMPORTED: line 2: @reboot hello" in done.out
    (tmp_path / "tasks.py").write_text(done.out)
    assert duly("next", "tasks.py", "-n", "1", folder=tmp_path).code == 0
    as_json = duly("import", "crontab", "crontab", "--json", folder=tmp_path).json
    assert [(each["task"], each["imported"], each["expression"]) for each in as_json["entries"]] == [
        ("poll", True, "0,30 * * * *"),
        ("hello", False, None),
    ]


# --- intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "posix"),
    [
        (60, "* * * * *"),
        (600, "0,10,20,30,40,50 * * * *"),
        (3600, "0 * * * *"),
        (6 * 3600, "0 0,6,12,18 * * *"),
        (86400, "0 0 * * *"),
        (7 * 86400, "0 0 * * 0"),
        (30, None),
        (90, None),
        (420, None),
        (5 * 3600, None),
        (2 * 86400, None),
        (0, None),
    ],
)
def test_an_interval_is_imported_only_if_cron_can_say_it(seconds: int, posix: str | None) -> None:
    """Intervals that cron cannot express are named, not bent."""
    draft = Draft("x", "x")
    draft.set_interval(timedelta(seconds=seconds))
    assert draft.posix == posix
    assert bool(draft.obstacles) is (posix is None)
    assert bool(draft.notes) is (posix is not None)


# --- Celery ----------------------------------------------------------------------------------------------------------

CELERY = """
from datetime import timedelta
from celery import Celery
from celery.schedules import crontab, schedule, solar

app = Celery("x", broker="memory://")
sunset = solar.__new__(solar)  # its own constructor needs an ephemeris
sunset.event = "sunset"
solar.__repr__ = lambda self: "<solar: sunset>"
app.conf.beat_schedule = {
    "quarters": {"task": "p.poll", "schedule": crontab(minute="*/15"), "args": (1, "a"), "options": {"queue": "q"}},
    "mondays": {"task": "p.report", "schedule": crontab(minute=0, hour=7, day_of_week="mon,0"), "kwargs": {"x": [1]}},
    "both": {"task": "p.both", "schedule": crontab(minute=0, hour=7, day_of_week=1, day_of_month="1-7")},
    "fast": {"task": "p.fast", "schedule": timedelta(seconds=30)},
    "ten": {"task": "p.ten", "schedule": 600.0},
    "seven": {"task": "p.seven", "schedule": schedule(timedelta(minutes=7))},
    "sun": {"task": "p.sun", "schedule": sunset},
    "thing": {"task": "p.thing", "schedule": 60, "args": (object(),)},
}
"""


def entries_of(done: Outcome) -> dict[str, dict[str, Any]]:
    return {each["task"]: each for each in done.json["entries"]}


def test_celery_beat_schedules(tmp_path: Path) -> None:
    """Crontab, timedelta and solar; numbering, AND, intervals and zone named."""
    (tmp_path / "proj.py").write_text(CELERY)
    here = entries_of(duly("import", "celery", "proj.py", "--json", folder=tmp_path))
    assert not here["mondays"]["imported"]
    assert "meant in the time zone UTC (the zone of the application)" in here["mondays"]["obstacles"][0]
    assert here["quarters"]["imported"]  # due at the same minutes in both zones
    assert here["ten"]["imported"]  # an interval
    done = duly("import", "celery", "proj.py", "--json", "--tz", "Etc/UTC", folder=tmp_path)
    assert done.code == 1, done.err
    found = entries_of(done)
    assert {name: each["expression"] for name, each in found.items()} == {
        "quarters": "0,15,30,45 * * * *",
        "mondays": "0 7 * * 0,1",
        "both": None,
        "fast": None,
        "ten": "0,10,20,30,40,50 * * * *",
        "seven": None,
        "sun": None,
        "thing": None,
    }
    assert "both have to match" in found["both"]["obstacles"][0]
    assert "whole number of minutes" in found["fast"]["obstacles"][0]
    assert "cannot express" in found["seven"]["obstacles"][0]
    assert "follows the sun" in found["sun"]["obstacles"][0]
    assert "write the callback by hand" in found["thing"]["obstacles"][0]


def test_the_callbacks_of_an_imported_beat_schedule_send_the_task(tmp_path: Path) -> None:
    """The file runs; its callback hands the task, its arguments and options to the application."""
    (tmp_path / "proj.py").write_text(CELERY)
    source = duly("import", "celery", "proj:app", "--tz", "UTC", folder=tmp_path).out
    stub = "class app:\n    sent = []\n    @classmethod\n    def send_task(cls, *a, **o): cls.sent.append((a, o))\n"
    (tmp_path / "proj.py").write_text(stub)
    sys.modules.pop("proj", None)
    defined = run_file(tmp_path, source)
    for _, _, callback, _ in defined["registrations"][:2]:
        callback()
    assert defined["app"].sent == [
        (("p.poll", (1, "a"), None), {"queue": "q"}),
        (("p.report", (), {"x": [1]}), {}),
    ]
    sys.modules.pop("proj", None)


# --- APScheduler -----------------------------------------------------------------------------------------------------

APSCHEDULER = """
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apsjobs import Thing, work

scheduler = BackgroundScheduler(timezone="Europe/Berlin")
add = scheduler.add_job
add(work, "cron", day_of_week="0-4", hour=9, id="weekdays", args=[1], kwargs={"x": "y"})
add(work, "cron", day_of_week="sun", hour="*/6", id="sundays", jitter=10, misfire_grace_time=60, coalesce=False,
    max_instances=3, start_date="2030-01-01")
add(work, "cron", hour=3, id="elsewhere", timezone="America/New_York")
add(work, "cron", second="*/10", id="fast")
add(work, "cron", day="last", id="last")
add(work, "cron", day="1-7", day_of_week="mon", id="and")
add(work, "cron", day="2nd fri", id="position")
add(work, "cron", year=2030, id="year")
add(work, "cron", week=3, id="week")
add(work, "cron", minute=5, second=30, id="half")
add(work, "interval", minutes=10, id="ten")
add(work, "interval", minutes=7, id="seven")
add(work, "date", run_date="2030-01-01", id="once")
add(lambda: None, "cron", hour=1, id="lambda")
berlin = {"timezone": "Europe/Berlin"}
add(work, OrTrigger([CronTrigger(hour=1, **berlin), CronTrigger(hour=2, **berlin)]), id="or")
add(work, AndTrigger([CronTrigger(hour=1), CronTrigger(hour=2)]), id="joined")
add(Thing.go, "cron", month="jan-mar", day="*/10", id="method")
"""
APSJOBS = "called = []\ndef work(*a, **k): called.append((a, k))\nclass Thing:\n    @staticmethod\n    def go(): ...\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APSCHEDULER)
    (tmp_path / "apsjobs.py").write_text(APSJOBS)
    return tmp_path


def test_apscheduler_jobs(jobs: Path) -> None:
    """Cron, interval and date triggers; 0 is Monday there; AND, seconds, years, jitter, misfires named."""
    done = duly("import", "apscheduler", "jobs.py", "--json", "--tz", "Europe/Berlin", folder=jobs)
    assert done.code == 1, done.err
    found = entries_of(done)
    assert {name: each["expression"] for name, each in found.items() if each["imported"]} == {
        "weekdays": "0 9 * * 1-5",
        "sundays": "0 0,6,12,18 * * 0",
        "half": "5 * * * *",
        "ten": "0,10,20,30,40,50 * * * *",
        "or-1": "0 1 * * *",
        "or-2": "0 2 * * *",
        "method": "0 0 1,11,21,31 1-3 *",
    }
    left = {name: each["obstacles"][0] for name, each in found.items() if not each["imported"]}
    for name, reason in {
        "fast": "unit of cron is the minute", "last": "POSIX cron cannot say", "and": "both have to match",
        "position": "POSIX cron cannot say", "year": "every year", "week": "weeks of the year",
        "elsewhere": "time zone America/New_York (the trigger's timezone)",
        "seven": "cannot express", "once": "one-shot", "lambda": "no name to import", "joined": "AndTrigger",
    }.items():  # fmt: skip
        assert reason in left.pop(name)
    assert left == {}
    assert "weekday '0-4', where 0 is Monday, became '1-5'" in found["weekdays"]["notes"]
    noted = " ".join(found["sundays"]["notes"])
    for word in ("jitter", "misfire_grace_time=60", "coalesce=False", "max_instances=3", "start_date"):
        assert word in noted


def test_the_callbacks_of_imported_jobs_are_the_functions_with_their_arguments(jobs: Path) -> None:
    """The file runs and calls what APScheduler would have called."""
    source = duly("import", "apscheduler", "jobs:scheduler", "--tz", "Europe/Berlin", folder=jobs).out
    sys.modules.pop("apsjobs", None)
    defined = run_file(jobs, source)
    list(steps.finish(read_registrations(defined["registrations"])).singles())
    defined["registrations"][0][2]()
    assert sys.modules["apsjobs"].called == [((1,), {"x": "y"})]
    del sys.modules["apsjobs"]


@pytest.mark.parametrize(
    ("arguments", "origin"),
    [
        (("crontab", "empty"), "the user crontab empty"),
        (("crontab", "/dev/null"), "the user crontab /dev/null"),
        (("celery", "empty.py:schedule"), "the beat schedule of empty.py:schedule"),
    ],
)
def test_nothing_to_import_is_an_answer_and_no_error(tmp_path: Path, arguments: tuple[str, ...], origin: str) -> None:
    """Exit code 1 without an error, and a document all the same: docs/reference/exit-codes.md."""
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "empty.py").write_text("schedule = {}\n")
    done = duly("import", *arguments, folder=tmp_path)
    assert done == (1, "", f"import: nothing to import in {origin}\n")
    told = duly("import", *arguments, "--json", folder=tmp_path)
    assert (told.code, told.err) == (done.code, done.err)
    assert (told.json["origin"], told.json["entries"]) == (origin, [])


# --- wrong usage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["crontab", "missing"], 2, "missing cannot be read"),
        (["celery", "empty.py:thing"], 3, "has no beat_schedule"),
        (["apscheduler", "empty.py:thing"], 3, "not an APScheduler scheduler"),
        (["celery", "nowhere.py"], 3, "no such file"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    """One clear message, the documented exit code, no traceback."""
    (tmp_path / "empty.py").write_text("thing = 1\n")
    done = duly("import", *arguments, folder=tmp_path)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("library", "hint"),
    [
        ("celery", "name a Celery application, or a dict of beat entries; worker is an application"),
        ("apscheduler", "name the scheduler, or a function without arguments that returns it; jobs is a scheduler"),
    ],
)
def test_the_hint_about_a_missing_object_names_what_the_import_wants(tmp_path: Path, library: str, hint: str) -> None:
    """Not a list of registrations, which is what other commands want."""
    (tmp_path / "x.py").write_text(
        "from apscheduler.schedulers.background import BackgroundScheduler\n"
        "from celery import Celery\n"
        "jobs, worker = BackgroundScheduler(timezone='UTC'), Celery('shop')\n"
    )
    done = duly("import", library, "x.py", folder=tmp_path)
    assert done.code == 3
    assert done.err.splitlines()[1:] == [f"hint: {hint}"]


def test_other_libraries_are_imported_only_when_they_are_used(tmp_path: Path) -> None:
    """`duly import crontab` works where neither Celery nor APScheduler is installed; the others say what they need."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules.update(celery=None, apscheduler=None)\n")
    (tmp_path / "crontab").write_text("0 0 * * * x\n")
    path = f"{environment()['PYTHONPATH']}:{tmp_path}"
    assert duly("import", "crontab", "crontab", folder=tmp_path, PYTHONPATH=path).code == 0
    for library in ("celery", "apscheduler"):
        done = duly("import", library, "crontab:x", folder=tmp_path, PYTHONPATH=path)
        assert done.code == 2
        assert "pip install" in done.err


def test_a_crontab_on_standard_input(tmp_path: Path) -> None:
    """`crontab -l | duly import crontab -`."""

    async def piped() -> bytes:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "duly", "import", "crontab", "-", cwd=tmp_path, env=environment(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await program.communicate(b"0 0 * * * x\n")
        assert program.returncode == 0
        return out

    assert b"('x', '0 0 * * *', shell('x'), RETRY_DELAY)," in asyncio.run(piped())
