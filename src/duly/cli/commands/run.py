"""`duly run`: the scheduler as a program of its own."""

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from duly.cli import signals
from duly.cli.completion import complete_target, complete_zone
from duly.cli.file_trust import warn_of_other_users
from duly.cli.output import Exit, fail, note
from duly.cli.service.dashboard import Access, open_dashboard, parse_address
from duly.cli.service.events_log import EventsLog
from duly.cli.service.once import run_once
from duly.cli.service.program import Program
from duly.cli.store import optional_store_option
from duly.cli.target import parse_target
from duly.cli.time_text import duration_argument, set_host_zone
from duly.stores.place import StorePlace
from duly.stores.port import DEFAULT_HISTORY

_WITH_ONCE = frozenset({"target", "once", "tz", "run_timeout", "uvloop", "log_format", "as_json", "verbose"})
"""The parameters that say something about a single run."""


@click.command()
@click.argument("target", shell_complete=complete_target)
@optional_store_option
@click.option(
    "--once",
    metavar="TASK",
    help="Run this task now, once, without a scheduler and without a store; exit with 1 if it fails.",
)
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=complete_zone,
    help="Run in this zone instead of the host's, as with TZ=ZONE in the environment.",
)
@click.option("--max-concurrency", type=click.IntRange(min=1), metavar="N", help="Run at most N callbacks at once.")
@click.option(
    "--run-timeout",
    type=duration_argument,
    metavar="DURATION",
    help="Cancel runs that take longer, such as 90s or 1h30m.",
)
@click.option(
    "--interrupted",
    type=click.Choice(["restart", "wait"]),
    default="restart",
    show_default=True,
    help="After a crash, start interrupted runs again at once, or wait for their next due minute.",
)
@click.option(
    "--on-mismatch",
    type=click.Choice(["override", "refuse"]),
    default="override",
    show_default=True,
    help="If stored and declared tasks differ, let the declaration win, or refuse to start.",
)
@click.option(
    "--history",
    type=click.IntRange(min=0),
    default=DEFAULT_HISTORY,
    show_default=True,
    metavar="N",
    help="Keep the records of the latest N runs.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Load TARGET again whenever its file, or one that it imports from its folder, changes.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="If another scheduler holds the store, wait until it is free, and then run; without it, exit with code 5.",
)
@click.option(
    "--web",
    "web_address",
    metavar="ADDRESS",
    help="Serve the dashboard at this address as well, such as 127.0.0.1:8347 (docs/dashboard.md).",
)
@click.option(
    "--web-token-file",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Demand the token in this file from those who look at the dashboard.",
)
@click.option(
    "--web-allowed-host",
    "web_allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Answer to this host name as well; repeatable.",
)
@click.option("--trace", is_flag=True, help="Keep a formal trace in the store, for `duly verify`.")
@click.option(
    "--monitor", is_flag=True, help="Check the formal properties while running; exit with 1 if one was violated."
)
@click.option("--uvloop", is_flag=True, help='Use uvloop as the event loop (pip install "duly[uvloop]").')
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Log as text or as JSON lines; the default is text on a terminal, JSON otherwise.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --log-format json.")
@click.option("-v", "--verbose", is_flag=True, help="Log events of level DEBUG as well, such as every poll.")
def run(
    target: str,
    store: StorePlace | None,
    once: str | None,
    tz: str | None,
    max_concurrency: int | None,
    run_timeout: timedelta | None,
    interrupted: str,
    on_mismatch: str,
    history: int,
    watch: bool,
    standby: bool,
    web_address: str | None,
    web_token_file: Path | None,
    web_allowed_hosts: tuple[str, ...],
    trace: bool,
    monitor: bool,
    uvloop: bool,
    log_format: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Run the tasks of TARGET until told to stop.

    TARGET is module:attribute or path/to/file.py[:attribute] (default attribute: registrations): a list of (name,
    cron, callback, retry delay), or a function, plain or async, that returns such a list.

    SIGTERM and Ctrl-C stop gracefully: nothing more starts, and running callbacks are waited for. A second one abandons
    them (exit code 6); they are interrupted runs at the next start. SIGHUP loads TARGET again; if that fails, the old
    registrations stay in force. Under systemd, Type=notify and WatchdogSec= work.

    \b
    Example:
      duly run tasks.py --store state.db
      duly run myapp.jobs:nightly --store /var/lib/myapp/state.db --run-timeout 1h
      duly run --once backup tasks.py
    """
    if run_timeout is not None and run_timeout <= timedelta(0):
        raise click.BadParameter("must be greater than zero", param_hint="--run-timeout")
    if tz is not None:
        set_host_zone(tz)
    options: dict[str, Any] = {
        "max_concurrency": max_concurrency,
        "run_timeout": run_timeout,
        "interrupted": interrupted,
        "on_mismatch": on_mismatch,
        "history": history,
        "trace": trace,
        "monitor": monitor,
    }
    form = "json" if as_json else log_format or ("text" if sys.stdout.isatty() else "json")
    parsed = parse_target(target)
    if once is not None:
        _refuse_options_of_a_scheduler()

        async def do_once() -> Exit:
            log = EventsLog(form, verbose=verbose)
            with log.keeping_output():
                return await run_once(parsed, once, run_timeout, log)

        return signals.run(do_once(), _uvloop() if uvloop else None)
    place = _checked(store)
    dashboard = None
    if web_address is not None:
        try:
            host, port = parse_address(web_address)
        except ValueError as fault:
            raise click.BadParameter(str(fault), param_hint="--web") from None
        dashboard = open_dashboard(place, host, port, Access(web_token_file, web_allowed_hosts, False, "--web-"))
        note(f"dashboard at {dashboard.address}")
    elif web_token_file is not None or web_allowed_hosts:
        fail("--web-token-file and --web-allowed-host are about the dashboard", "add --web 127.0.0.1:8347")

    log = EventsLog(form, verbose=verbose)
    program = Program(
        parsed,
        place,
        options,
        log,
        watching=watch,
        standby=standby,
        verbose=verbose,
        dashboard=dashboard,
    )

    async def serve() -> Exit:
        with log.keeping_output():
            return await program.serve()

    try:
        return signals.run(serve(), _uvloop() if uvloop else None)
    except KeyboardInterrupt:
        program.report_interrupt()
        return Exit.INTERRUPTED


def _refuse_options_of_a_scheduler() -> None:
    """Fail if an option was typed that a single run does not heed; DULY_STORE may be set."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in _WITH_ONCE and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = max(parameter.opts, key=len)
            fail(f"--once runs no scheduler, which {option} is about", f"leave out {option}")


def _checked(store: StorePlace | None) -> StorePlace:
    """The place of the store; other users must not be able to change a file."""
    if store is None:
        raise click.UsageError("Missing option '--store' (env var: 'DULY_STORE').", click.get_current_context())
    if isinstance(store, Path):
        warn_of_other_users(store, "others can change what runs, and when")
    return store


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ModuleNotFoundError:
        fail("--uvloop needs the package uvloop", 'pip install "duly[uvloop]"')
    new: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return new
