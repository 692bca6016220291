"""Long work in short steps: a generator that yields where others may run, and returns its result.

On the event loop `duly.engine.pacing.paced` drives it and lets others run in between; everywhere else `finish` does.
"""

from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields between its steps and returns a T."""

STEP_TASKS: Final = 64
"""Tasks that one step handles, wherever work goes through all of them."""


def finish(steps: Steps[T]) -> T:
    """Go through all steps without a pause, and return their result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
