"""`duly mcp`: a read-only server of the Model Context Protocol, on standard input and output."""

import importlib.util

import click

from duly.cli.completion import complete_target
from duly.cli.output import Exit, fail
from duly.cli.store import reader_of, store_option
from duly.cli.target import TARGET_HELP, load_now
from duly.errors import StoreUnusedError
from duly.stores.place import StorePlace


@click.command(epilog=f"TARGET is {TARGET_HELP}.")
@click.argument("target", required=False, shell_complete=complete_target)
@store_option
def mcp(target: str | None, store: StorePlace) -> int:
    """Let an assistant look at the store, over MCP.

    A client of the Model Context Protocol starts this command and talks to it on standard input and output. It has the
    tools status, history, explain, next and check, and with TARGET plan. All of them only read; none takes the name of
    a file or of code.

    \b
    Example:
      duly mcp --store state.db
      duly mcp --store state.db tasks.py
    """
    if importlib.util.find_spec("mcp") is None:
        fail("duly mcp needs the package mcp", 'pip install "duly[mcp]"')
    from duly.cli.mcp_server import server

    loaded = None if target is None else load_now(target)
    try:
        reader_of(store).read(lambda view: view.snapshot())
    except StoreUnusedError:
        if loaded is None:
            raise  # a plan can be made of a store that does not exist yet; nothing else can
    server(store, loaded).run("stdio")
    return Exit.OK
