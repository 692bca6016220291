"""`duly web`: the dashboard of a store, as a process of its own."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import click

from duly.cli import signals
from duly.cli.output import Exit, say
from duly.cli.service.dashboard import Access, Dashboard, open_dashboard
from duly.cli.store import store_option
from duly.stores.place import StorePlace


@click.command()
@store_option
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen at this address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8347,
    show_default=True,
    metavar="N",
    help="Listen at this port; 0 takes a free one.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Demand the token in this file, as a bearer token or as the password of any user.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Answer to this host name as well; repeatable.",
)
@click.option("--insecure", is_flag=True, help="Listen without a token where others can reach it.")
@click.option("--hide-errors", is_flag=True, help="Show neither texts of errors nor tracebacks.")
@click.option("--title", metavar="WORDS", help="Show this title in the head of each page.")
def web(
    store: StorePlace,
    host: str,
    port: int,
    token_file: Path | None,
    allowed_hosts: tuple[str, ...],
    insecure: bool,
    hide_errors: bool,
    title: str | None,
) -> int:
    """Show a store in the browser.

    What runs, what fails, what is owed, what comes, and why something did or did not run. The dashboard only reads, in
    a process of its own; a store that does not exist yet is a page that says so. It listens at 127.0.0.1; any other
    address needs a token. Ctrl-C ends it.

    \b
    Example:
      duly web --store state.db
      duly web --store state.db --host 0.0.0.0 --token-file token --allowed-host cron.example.net
    """
    access = Access(token_file, allowed_hosts, insecure, "--")
    opened = open_dashboard(store, host, port, access, show_errors=not hide_errors, title=title)
    return signals.run(_serve(opened))


async def _serve(opened: Dashboard) -> Exit:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(each, opened.server.end)
    # Only now: a program that has read the address may end this one at once.
    say(f"dashboard at {opened.address}")
    sys.stdout.flush()
    await opened.serve()
    return Exit.OK
