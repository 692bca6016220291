"""The store that a command reads: `--store`, its reader, and names of tasks that it does not have."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from duly.cli.output import Exit, Failure
from duly.clock import SystemClock
from duly.insight.closest_name import closest_name
from duly.stores import Reader, SqliteReader, View
from duly.stores.postgres.url import is_url
from duly.text import plain

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_LISTED: Final = 8


class StorePath(click.Path):
    """A path that may name a store; a URL is not one, and may hold a password, which no message must quote."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if isinstance(value, str) and is_url(value):
            hint = "this version reads files only; `duly store` installs and checks a store on PostgreSQL"
            raise Failure("a store on PostgreSQL cannot be read or run yet", hint, Exit.STORE)
        return super().convert(value, param, ctx)


def store_option(command: F) -> F:
    """`--store PATH`, which every command that reads has; the parameter is `store`.

    The reader says what may not be read, with the exit code of a store; click would call it wrong usage.
    """
    return _store_option(command, required=True)


def optional_store_option(command: F) -> F:
    """`--store PATH` for a command that can do without; the parameter may be None."""
    return _store_option(command, required=False)


def _store_option(command: F, *, required: bool) -> F:
    return click.option(
        "--store",
        required=required,
        envvar="DULY_STORE",
        show_envvar=True,
        type=StorePath(readable=False, path_type=Path),
        help="The store: the SQLite file a scheduler keeps its state in.",
    )(command)


def reader_of(store: Path) -> Reader:
    """The reader of a store that was named on the command line."""
    return SqliteReader(store, SystemClock().now)


def unknown_task(view: View, name: str) -> Failure:
    """The failure that a name which the store does not have leads to."""
    if close := closest_name(view, name):
        hint = f"did you mean {shlex.quote(plain(close))}?"
    elif first := view.names(limit=_NAMES_LISTED):
        more = view.count_names() - len(first)
        hint = f"the store has {', '.join(map(plain, first))}" + (f" and {more} more" if more else "")
    else:
        hint = "the store has no tasks"
    return Failure(f"no task is called {plain(name)!r}", hint, Exit.USAGE)
