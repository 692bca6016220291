"""The content that moves from one kind of store to another: declarations, states, marks and history, as rows.

An embedded store and a shared one have these tables in common, column by column. What only one of them has is made
anew where it arrives: run numbers of hosts, the log, editions. A trace is not moved: the two kinds have different
traces, and events that name no host must not stand in one whose events do (decision 18).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from duly.core.moments import Instant
from duly.core.record import FIELDS

Row = Sequence[Any]

DECLARATION: Final = ("generation", "name", "cron", "delay_ms", "known_since", "retired_at")
STATE: Final = ("generation", *FIELDS[5:])
MARK: Final = ("name", "served_through", "retired_at")
RUN: Final = (
    "seq", "run", "generation", "cause", "scheduled", "started_at", "ended_at", "outcome", "error", "traceback",
    "first_started_at", "attempt", "called_at",
)  # fmt: skip
"""The columns of each table, in the order in which rows have them."""


class Extent(NamedTuple):
    """How many rows there are."""

    declarations: int
    states: int
    marks: int
    runs: int

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(self)


class Content(Protocol):
    """The rows of a store at one moment; each iterator is used once, before the next one is asked for."""

    zone: str | None
    highest_generation: int
    highest_run: int
    last_sign: Instant | None
    """The last poll, or the last beat."""

    extent: Extent
    interrupted: int
    """Runs that were cut short, and that history does not have yet."""

    def schedulers(self) -> Iterator[Row]:
        """Key, identifier and arrival of each scheduler, or host, that rows may name."""
        ...

    def declarations(self) -> Iterator[Row]:
        """The columns `DECLARATION`."""
        ...

    def states(self) -> Iterator[Row]:
        """The columns `STATE`."""
        ...

    def marks(self) -> Iterator[Row]:
        """The columns `MARK`."""
        ...

    def runs(self) -> Iterator[Row]:
        """The columns `RUN`."""
        ...
