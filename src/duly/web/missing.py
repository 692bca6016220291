"""The answers about a task that a store does not have, or has in its history alone."""

from duly.insight.closest_name import closest_name
from duly.stores.port import View
from duly.web.display import Display, long_names, shown_name
from duly.web.frame import NotThereError


def check_known(view: View, name: str, display: Display) -> None:
    """Raise if neither a task in force nor history has this name."""
    if not view.declarations(name):
        raise unknown_task(view, name, display)


def name_of_declaration(view: View, generation: int) -> str:
    """The name of the task that a declaration is of; raises if the store does not have it."""
    declaration = view.declaration(generation)
    if declaration is None:
        raise NotThereError(f"The store has no declaration {generation}.")
    return declaration.task


def unknown_task(view: View, name: str, display: Display) -> NotThereError:
    """The error for a name that the store does not have, with the closest that it has."""
    close = closest_name(view, name)
    suggestion = None
    if close is not None:
        suggestion = shown_name(close), display.knowing(long_names(view, [close])).task_link(close)
    return NotThereError(f"No task is called {shown_name(name)}, now or in history.", suggestion)


def orphaned_task(name: str) -> NotThereError:
    """The error for a task that history alone names: what it owes, and how often it failed in a row, is not known."""
    return NotThereError(
        f"{shown_name(name)} is orphaned: no longer declared, and named by history alone.",
        hint="/api/v1/runs and /api/v1/explain answer about it",
    )
