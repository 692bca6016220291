"""The store that a command reads: `--store`, its reader, and names of tasks that it does not have."""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from duly.cli.output import Exit, Failure
from duly.clock import SystemClock
from duly.insight.closest_name import closest_name
from duly.stores import Reader, View, place
from duly.stores.place import StorePlace, place_of
from duly.stores.postgres.url import DEFAULT_SCHEMA, is_url
from duly.text import plain

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_LISTED: Final = 8


class StoreText(click.Path):
    """The name of a store: a path, or a URL, which stays text until its schema is known."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path or the URL. Empty text is refused: to the system it is the current folder."""
        if value == "":
            self.fail("it is empty: name a file or a URL, and see whether a variable is unset", param, ctx)
        return value if isinstance(value, str) and is_url(value) else super().convert(value, param, ctx)


schema_option = click.option(
    "--schema",
    default=DEFAULT_SCHEMA,
    show_default=True,
    envvar="DULY_SCHEMA",
    show_envvar=True,
    metavar="S",
    help="The schema of a store on PostgreSQL; one schema is one scheduler.",
)


def store_option(command: F) -> F:
    """`--store PATH|URL`, which every command that reads has, and `--schema`; the parameter is `store`.

    The reader says what may not be read, with the exit code of a store; click would call it wrong usage.
    """
    return _store_option(command, required=True)


def optional_store_option(command: F) -> F:
    """`--store PATH|URL` for a command that can do without; the parameter may be None."""
    return _store_option(command, required=False)


def _store_option(command: F, *, required: bool) -> F:
    option = click.option(
        "--store",
        required=required,
        envvar="DULY_STORE",
        show_envvar=True,
        metavar="PATH|URL",
        type=StoreText(readable=False, path_type=Path),
        help="The store: the SQLite file of a scheduler, or the postgresql:// URL that hosts share.",
    )
    return option(schema_option(located(command)))


def located(command: F) -> F:
    """A command that is given the place of its `store`, made of what was named and of `--schema`."""

    @functools.wraps(command)
    def call(*arguments: Any, store: Path | str | None, schema: str, **named: Any) -> Any:
        located_at = None if store is None else place_of(store, schema)
        return command(*arguments, store=located_at, **named)

    return call  # type: ignore[return-value]  # click calls it by the names of its options


def reader_of(store: StorePlace) -> Reader:
    """The reader of a store that was named on the command line."""
    return place.reader_of(store, SystemClock().now)


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
