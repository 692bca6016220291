"""The vocabulary of the search: what can be declared, what a store keeps of it, and what can happen."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from duly.core.cron import parse_cron
from duly.core.moments import instant_of
from duly.core.registration import Registration, read_registrations
from duly.core.steps import finish

SECOND: Final = 1_000_000
BASE: Final = instant_of(datetime(2025, 6, 2, 12, tzinfo=UTC))
PERIOD: Final = 3600 * SECOND
"""Everything repeats after this: expressions name every hour or half past, and no delay is longer."""

OPEN_STOPS_MAX: Final = 2

HOUR: Final = "0 * * * *"
HALF: Final = "30 * * * *"
EXPRESSIONS: Final = {text: parse_cron(text) for text in (HOUR, HALF)}


async def _on_the_loop() -> None: ...


def _in_a_thread() -> None: ...


def _declared(*items: tuple[str, str, Any, int]) -> tuple[Registration, ...]:
    items_given = [(name, cron, callback, timedelta(minutes=delay)) for name, cron, callback, delay in items]
    return tuple(finish(read_registrations(items_given)).singles())


_X = ("x", HOUR, _on_the_loop, 30)
_OTHER_X = ("x", HALF, _on_the_loop, 30)
_Y = ("y", HALF, _in_a_thread, 30)
SETS: Final = {
    "xy": _declared(_X, _Y),
    "x'y": _declared(_OTHER_X, _Y),  # x overridden, and now of the same expression as y
    "y": _declared(_Y),  # x removed
    "x": _declared(_X),
    "x'": _declared(_OTHER_X),
    "": (),
}
"""The sets that can be declared."""


@dataclass(frozen=True)
class Instance:
    """The instance of a search: which sets can be declared, whose runs can fail, how far the loop may lag behind."""

    sets: tuple[str, ...] = ("xy", "x'y", "y")
    fails: str = "xy"
    neglect_max: int = 0
    """How often time passes while something is owed and the loop does not look."""


class Row(NamedTuple):
    """A record as a store keeps it, in the order of `core.record.FIELDS`."""

    generation: int
    name: str
    cron: str
    delay_ms: int
    known_since: int
    served_through: int
    last_attempt_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    pending_retry_until: int | None = None
    failures: int = 0
    interruptions: int = 0
    run: int | None = None
    run_cause: str | None = None
    run_scheduled: int | None = None
    written_by: int = 1
    first_started_at: int | None = None
    first_scheduled: int | None = None
    attempt: int | None = None


@dataclass(frozen=True)
class Move:
    """A step of the search: something that can happen."""

    what: str
    task: str = ""
    ok: bool = False
    declares: str = ""
    restart: bool = True

    def __str__(self) -> str:
        if self.what == "end":
            return f"{self.task} {'succeeds' if self.ok else 'fails'}"
        if self.what in ("boot", "initialize", "overtaken"):
            option = "" if self.what != "boot" else f", interrupted={'restart' if self.restart else 'wait'}"
            return (
                f"{self.what} with {{{', '.join(each.name for each in SETS[self.declares])}}}"
                + (f" ({self.declares})" if "'" in self.declares else "")
                + option
            )
        return self.what
