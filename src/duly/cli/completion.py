"""The script of a shell, and completion beyond commands, options and choices: tasks, zones, files as TARGET.

Completion runs while a person types: it opens no store but the one that is named, imports no TARGET, and offers nothing
instead of failing.
"""

import os
from collections.abc import Sequence
from typing import Final
from zoneinfo import available_timezones

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from duly.cli.output import Failure
from duly.cli.store import reader_of
from duly.errors import DulyError
from duly.stores import View
from duly.stores.place import place_of
from duly.stores.postgres.url import DEFAULT_SCHEMA

_NAMES_MAX: Final = 1_000
"""The most names that are offered; a shell asks before it shows even fewer."""

_HIGHEST: Final = "\U0010ffff"


def completion_script(command: click.Command, shell: str) -> str:
    """The script by which a shell that click knows completes `duly`, with an end of line."""
    kind = get_completion_class(shell)
    assert kind is not None
    # That of the base class: bash's own starts bash, to see whether it is new enough.
    return ShellComplete.source(kind(command, {}, "duly", "_DULY_COMPLETE")).rstrip("\n") + "\n"


def complete_task(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks of the store that is named before, or in DULY_STORE, and orphaned ones that history still has."""
    store = ctx.params.get("store") or os.environ.get("DULY_STORE")
    if not store:
        return []
    try:
        schema = ctx.params.get("schema") or os.environ.get("DULY_SCHEMA") or DEFAULT_SCHEMA
        names = reader_of(place_of(store, schema)).read(lambda view: _names(view, incomplete))
    except (DulyError, Failure, OSError):
        return []
    # The shell reads one name per line.
    return [CompletionItem(name) for name in names if name.isprintable()]


def _names(view: View, prefix: str) -> Sequence[str]:
    """The names that begin with a prefix; if there are very many, the first ones and the last.

    A shell completes what all names have in common, and the first and the last decide that.
    """
    names = view.names(prefix=prefix, limit=_NAMES_MAX)
    if len(names) < _NAMES_MAX:
        return names
    return [*names[:-1], *view.names_before(prefix + _HIGHEST, limit=1)]


def complete_target(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files; modules are not completed."""
    return [CompletionItem(incomplete, type="file")]


def complete_zone(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of zones, however they are capitalised."""
    lower = incomplete.lower()
    return [CompletionItem(name) for name in sorted(available_timezones()) if name.lower().startswith(lower)]
