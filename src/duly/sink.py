"""Carries events, in commit order, to `logging` and to the application's `on_event`.

Delivery is immediate as long as it is short. A burst (a million starts with a log line each) is delivered in slices,
in the same order, so that the event loop stays responsive.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from duly.clock import Clock
from duly.events import Event, TaskRunFailed

SLICE_SECONDS: Final = 0.010
_logger: Final = logging.getLogger("duly")


class Sink:
    """Where a scheduler's events go."""

    def __init__(
        self, clock: Clock, on_event: Callable[[Event], object] | None, *, unheard: frozenset[type[Event]] = frozenset()
    ) -> None:
        self._clock = clock
        self._on_event = on_event
        self._unheard = unheard  # what on_event does not want, so that nobody builds it in vain
        self._outbox: deque[Event] = deque()
        self._delivering = False
        self._complained = False

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody listens; asked once for many, so that events nobody hears are not even built."""
        return (self._on_event is not None and kind not in self._unheard) or _logger.isEnabledFor(kind.level)

    def emit(self, event: Event) -> None:
        """Deliver an event after all earlier ones."""
        self._outbox.append(event)
        if not self._delivering:
            self._deliver()

    def flush(self) -> None:
        """Deliver what waits, however long that takes."""
        while self._outbox:
            self._hand_over(self._outbox.popleft())

    def unexpected(self, fault: Exception) -> None:
        """Report a fault that duly has no event for: a defect of its own."""
        try:
            _logger.error("duly: unexpected fault, going on", exc_info=fault)
        except Exception as error:
            self._complain("logging", error)

    def _deliver(self) -> None:
        self._delivering = True
        begun = self._clock.elapsed()
        try:
            while self._outbox:
                self._hand_over(self._outbox.popleft())
                if self._outbox and self._clock.elapsed() - begun > SLICE_SECONDS:
                    asyncio.get_running_loop().call_soon(self._deliver)
                    return
        finally:
            self._delivering = bool(self._outbox)

    def _hand_over(self, event: Event) -> None:
        if _logger.isEnabledFor(event.level):
            try:
                _log(event)
            except Exception as error:
                self._complain("logging", error)
        if self._on_event is not None and type(event) not in self._unheard:
            try:
                self._on_event(event)
            except Exception as error:
                self._complain("on_event", error)

    def _complain(self, where: str, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        try:
            _logger.error("duly: %s raised; scheduling goes on, and this is said once", where, exc_info=error)
        except Exception:
            return  # logging itself is what fails


def _log(event: Event) -> None:
    fields = event.fields
    exception = event.exception if isinstance(event, TaskRunFailed) else None
    # LogRecord has owned an attribute `taskName` since 3.12, so the fields travel nested.
    _logger.log(
        event.level,
        "%s",
        readable(event.name, fields),
        extra={"event": event.name, "fields": fields},
        exc_info=exception,
    )


def readable(name: str, fields: Mapping[str, Any]) -> str:
    """One line for people, whatever a task is called: no injected lines, no terminal codes."""
    return " ".join([name, *(f"{key}={printable(value)}" for key, value in fields.items())])


def printable(value: object) -> str:
    """A value as text that stays on its line and does nothing to a terminal."""
    text = value if isinstance(value, str) else repr(value) if isinstance(value, Mapping | tuple | list) else str(value)
    if text.isprintable() and text and not (isinstance(value, str) and (" " in text or '"' in text)):
        return text
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode("ascii")
        for letter in text
    )
    return '"' + shown.replace('"', '\\"') + '"' if isinstance(value, str) else shown
