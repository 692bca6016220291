"""What a shell completes beside commands, options and choices: names of tasks, zones, and files as TARGET.

Completion answers while somebody types: it opens nothing that is not named already, imports no TARGET, and says nothing
where it does not know.
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
"""Names that are offered: as many as a shell shows without being asked again, several times over."""

_HIGHEST: Final = "\U0010ffff"


def complete_task(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks of the store that is named before, or in DULY_STORE; also orphaned ones that history knows."""
    store = ctx.params.get("store") or os.environ.get("DULY_STORE")
    if not store:
        return []
    try:
        names = reader_of(Path(store)).read(lambda view: _names(view, incomplete))
    except (DulyError, OSError):
        return []
    # The protocol with the shell is made of lines.
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
    """A file; what is a module is for whoever types to know."""
    return [CompletionItem(incomplete, type="file")]


def complete_zone(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of zones, however they are capitalised."""
    lower = incomplete.lower()
    return [CompletionItem(name) for name in sorted(available_timezones()) if name.lower().startswith(lower)]
