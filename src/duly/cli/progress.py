"""A progress bar on standard error, where that is a terminal."""

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from duly.cli.output import error_console


@contextlib.contextmanager
def progress(label: str, total: float = 1.0, *, shown: bool = True) -> Iterator[Callable[[float], object]]:
    """Show a bar until the work is done; yields a function that takes how much of `total` is done."""
    terminal = error_console()
    if not shown or not terminal.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn(label), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
        bar.update(task, completed=total)
