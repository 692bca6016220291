"""What a shell completes beside commands, options and choices: names of tasks, zones, and files as TARGET.

Completion runs while a person types: it opens no store but the one that is named, imports no TARGET, and offers nothing
instead of failing.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zoneinfo import available_timezones

import click
from click.shell_completion import CompletionItem

from duly.cli.store import reader_of
from duly.errors import DulyError
from duly.stores import View

_NAMES_MAX: Final = 1_000
"""The most names that are offered; a shell asks before it shows even fewer."""

_HIGHEST: Final = "\U0010ffff"


def complete_task(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks of the store that is named before, or in DULY_STORE, and orphaned ones that history still has."""
    store = ctx.params.get("store") or os.environ.get("DULY_STORE")
    if not store:
        return []
    try:
        names = reader_of(Path(store)).read(lambda view: _names(view, incomplete))
    except (DulyError, OSError):
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
