"""The hosts beside this one, as the loop asks about them; an embedded store has none."""

from typing import Final, Protocol


class Company(Protocol):
    """The questions of the loop before it decides."""

    @property
    def behind(self) -> bool:
        """Whether others have written something that this host has not applied."""
        ...

    async def learn(self) -> bool:
        """Apply what others wrote; False if that failed, and nothing may be decided."""
        ...

    def refused(self, starts: int) -> None:
        """The store refused starts: others were faster."""
        ...


class Alone:
    """An embedded store: nobody else writes."""

    behind = False

    async def learn(self) -> bool:
        """There is nothing to learn."""
        return True

    def refused(self, starts: int) -> None:
        """A store of the application's own said no; it is asked again."""


ALONE: Final = Alone()
