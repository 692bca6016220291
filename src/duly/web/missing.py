"""What is said about a task that a store does not have."""

from duly.insight.closest_name import closest_name
from duly.stores.port import View
from duly.web.display import Display, shown_name
from duly.web.frame import NotThereError


def check_known(view: View, name: str, display: Display) -> None:
    """Raise if neither a task in force nor history has this name."""
    if not view.declarations(name):
        raise unknown_task(view, name, display)


def unknown_task(view: View, name: str, display: Display) -> NotThereError:
    """The error for a name that the store does not have, with the closest that it has."""
    close = closest_name(view, name)
    suggestion = None if close is None else (shown_name(close), display.task_link(close))
    return NotThereError(f"No task is called {shown_name(name)}, now or in history.", suggestion)
