"""What a shell completes beside commands, options and choices: names of tasks, zones, and files as TARGET.

Completion answers while somebody types: it opens nothing that is not named already, imports no TARGET, and says nothing
where it does not know.
"""

import os
from pathlib import Path
from zoneinfo import available_timezones

import click
from click.shell_completion import CompletionItem

from duly.cli.output import Failure
from duly.cli.reading import read_store


def complete_task(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The tasks of the store that is named before, or in DULY_STORE; also orphaned ones that history knows."""
    store = ctx.params.get("store") or os.environ.get("DULY_STORE")
    if not store:
        return []
    try:
        snapshot = read_store(Path(store), runs=False)
    except (Failure, OSError):
        return []
    names = sorted({each.task for each in snapshot.declarations})
    # The protocol with the shell is made of lines.
    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def complete_target(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A file; what is a module is for whoever types to know."""
    return [CompletionItem(incomplete, type="file")]


def complete_zone(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of zones, however they are capitalised."""
    lower = incomplete.lower()
    return [CompletionItem(name) for name in sorted(available_timezones()) if name.lower().startswith(lower)]
