"""`duly import`: registrations from a crontab, from Celery's beat schedule, or from APScheduler's jobs."""

import pwd
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from duly.cli.completion import complete_target, complete_zone
from duly.cli.importers.crontab import read_crontab
from duly.cli.importers.draft import Drafts
from duly.cli.importers.python_file import python_source
from duly.cli.importers.result import finish
from duly.cli.output import Exit, fail, json_option, note, print_json
from duly.cli.time_text import duration_argument, host_zone, now, zone_named
from duly.core.moments import as_datetime
from duly.insight.json_form import json_form

_EPILOG: Final = "Exit code 0 if all was imported, 1 if anything was left out, or if there was nothing to import."

F = TypeVar("F", bound=Callable[..., Any])


@click.group(name="import", no_args_is_help=False)
def import_() -> None:
    """Convert crontab, Celery beat or APScheduler to registrations.

    The result is a Python file on standard output. Its comments say what will be different under duly; schedules that
    duly cannot express, or that are meant in another zone, are left out, with the reason.

    \b
    Example:
      crontab -l | duly import crontab - > tasks.py
      duly import celery proj.celery:app > tasks.py
      duly import apscheduler jobs.py:scheduler > tasks.py
    """


def _common(command: F) -> F:
    command = click.option(
        "--tz",
        metavar="ZONE",
        shell_complete=complete_zone,
        help="The zone duly will run in; the default is the host's. Schedules meant in another one are left out.",
    )(command)
    delayed = click.option(
        "--retry-delay",
        type=duration_argument,
        metavar="DURATION",
        default="5m",
        show_default=True,
        help="Retry failed runs after this delay.",
    )
    return delayed(json_option(command))


@import_.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--system/--user",
    default=None,
    help="Whether a user name precedes each command; detected automatically by default.",
)
@_common
def crontab(file: Path, system: bool | None, tz: str | None, retry_delay: timedelta, as_json: bool) -> int:
    """Convert a crontab of a user or of the system.

    FILE is a crontab, or - for standard input.

    \b
    Example:
      crontab -l | duly import crontab -
      duly import crontab /etc/cron.d/backup --system
    """
    if system is None and (str(file) == "/etc/crontab" or file.parent == Path("/etc/cron.d")):
        system = True
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as fault:
        fail(f"{file} cannot be read: {fault.strerror}")
    except UnicodeDecodeError:
        fail(f"{file} is not a text file in UTF-8")
    found = read_crontab(
        text, "from standard input" if str(file) == "-" else str(file), system=system, is_user=_is_user
    )
    return _print(found, tz, retry_delay, as_json=as_json)


@import_.command(epilog=_EPILOG)
@click.argument("target", shell_complete=complete_target)
@_common
def celery(target: str, tz: str | None, retry_delay: timedelta, as_json: bool) -> int:
    """Convert Celery's beat_schedule.

    TARGET is an application, or a beat_schedule itself.

    \b
    Example:
      duly import celery proj.celery:app
    """
    from duly.cli.importers.celery import read_celery

    return _print(read_celery(target), tz, retry_delay, as_json=as_json)


@import_.command(epilog=_EPILOG)
@click.argument("target", shell_complete=complete_target)
@_common
def apscheduler(target: str, tz: str | None, retry_delay: timedelta, as_json: bool) -> int:
    """Convert the jobs of an APScheduler 3.

    TARGET is a scheduler, or a function that returns one.

    \b
    Example:
      duly import apscheduler jobs.py:scheduler
    """
    from duly.cli.importers.apscheduler import read_apscheduler

    return _print(read_apscheduler(target), tz, retry_delay, as_json=as_json)


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def _print(drafts: Drafts, tz: str | None, retry_delay: timedelta, *, as_json: bool) -> int:
    zone = host_zone() if tz is None else zone_named(tz)
    found = finish(drafts, zone, as_datetime(now(), zone))
    if as_json:
        print_json("import", json_form(found, zone))
    elif found.entries:
        click.echo(python_source(found, retry_delay), nl=False)
    if not found.entries:
        note(f"nothing to import in {found.origin}", "import")
        return Exit.NO
    notes = sum(len(entry.notes) for entry in found.imported)
    note(
        f"{len(found.imported)} of {len(found.entries)} imported, with {notes} differences noted beside them", "import"
    )
    if found.left_out:
        note(f"{len(found.left_out)} left out: see NOT IMPORTED in the result", "import", "bold yellow")
    return Exit.NO if found.left_out else Exit.OK
