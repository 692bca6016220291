"""The task that was probably meant by a name which a store does not have."""

from typing import Final

from duly.stores.port import View
from duly.text import meant

_NAMES_COMPARED: Final = 1_000
"""Names on either side of a mistyped one, in alphabetical order, that are compared with it."""


def closest_name(view: View, name: str) -> str | None:
    """The name of a task in force or in history that is most like another one; None if none is."""
    near = [*view.names_before(name, limit=_NAMES_COMPARED), *view.names(after=name, limit=_NAMES_COMPARED)]
    return meant(name, near)
