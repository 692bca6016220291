"""Traffic: what loop, journal, runner and settlement must know of each other while runs are under way."""

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Each field has one writer."""

    under_way: int = 0
    """Callbacks whose start is durable and that have not returned; written by the runner."""

    starts_follow: bool = False
    """A full chunk of starts is being committed, and the next follows at once; written by the loop.

    The journal then holds ends back, to write them together with those starts."""

    at_the_store: bool = False
    """A batch is being written; written by the journal. Loop and runner then give the store's thread its turn."""

    end_lies_ahead: bool = False
    """The clock went back between an end and the moment that end was durable: what it armed may lie too far ahead.

    Set by the settlement, cleared by the loop, which corrects it."""
