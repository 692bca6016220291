"""The outbox of a scheduler: hands events, in commit order, to `logging` and to the application's `on_event`.

Delivery is immediate as long as it is short. A burst (a million starts with a log line each) is delivered in slices,
in the same order, so that the event loop stays responsive.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from duly.clock import Clock
from duly.events import Event, TaskEvent, TaskRunFailed
from duly.text import plain

DELIVERY_SECONDS_MAX: Final = 0.010
"""How long one round of the event loop may spend on handing over events; the rest waits for the next round."""

_logger: Final = logging.getLogger("duly")

_NUMBERS: Final = frozenset({int, bool, type(None)})  # types whose text is always printable


class Outbox:
    """Where a scheduler's events go."""

    def __init__(
        self, clock: Clock, on_event: Callable[[Event], object] | None, *, ignored: frozenset[type[Event]] = frozenset()
    ) -> None:
        self.host: int | None = None
        """The key of this host in a shared store, which each event about a task then has."""
        self._clock = clock
        self._on_event = on_event
        self._ignored = ignored  # what on_event ignores, so that it need not be built
        self._waiting: deque[Event] = deque()
        self._delivering = False
        self._round_of: asyncio.AbstractEventLoop | None = None  # the event loop in whose present round ...
        self._round_began = 0.0  # ... events have been handed over since this moment
        self._complained: set[str] = set()

    def wants(self, kind: type[Event]) -> bool:
        """Whether anything listens to this kind of event."""
        return (self._on_event is not None and kind not in self._ignored) or _logger.isEnabledFor(kind.level)

    def emit(self, event: Event) -> None:
        """Deliver an event after all earlier ones."""
        if self.host is not None and isinstance(event, TaskEvent) and event.host is None:
            # Frozen for those that it is handed to; to make another one of it takes longer than to make it.
            object.__setattr__(event, "host", self.host)
        self._waiting.append(event)
        if not self._delivering:
            self._deliver()

    def flush(self) -> None:
        """Deliver all that waits, however long that takes."""
        self._delivering = True
        try:
            while self._waiting:
                self._hand_over(self._waiting.popleft())
        finally:
            self._delivering = False

    def unexpected(self, fault: Exception) -> None:
        """Log a fault that has no event: a defect of duly itself."""
        try:
            _logger.error("duly: unexpected fault, going on", exc_info=fault)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._complain("logging", error)

    def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._round_of:
            self._round_of, self._round_began = loop, self._clock.elapsed()
            loop.call_soon(self._next_round)
        self._delivering = True
        try:
            while self._waiting and self._clock.elapsed() - self._round_began <= DELIVERY_SECONDS_MAX:
                self._hand_over(self._waiting.popleft())
        finally:
            self._delivering = False

    def _next_round(self) -> None:
        self._round_of = None
        if self._waiting:
            self._deliver()

    def _hand_over(self, event: Event) -> None:
        # What a handler or a listener raises does not end the scheduler, as with callbacks (SPEC 3.11): a
        # CancelledError from here would look as if the event loop were going away.
        if _logger.isEnabledFor(event.level):
            try:
                _log(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._complain("logging", error)
        if self._on_event is not None and type(event) not in self._ignored:
            try:
                self._on_event(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._complain("on_event", error)

    def _complain(self, where: str, error: BaseException) -> None:
        if where in self._complained:
            return
        self._complained.add(where)
        text = f"duly: {where} raised; scheduling goes on, and this is said once"
        try:
            _logger.error(text, exc_info=error)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # Logging itself fails. Its last resort writes to standard error.
            record = _logger.makeRecord(
                _logger.name, logging.ERROR, __file__, 0, text, (), (type(error), error, error.__traceback__)
            )
            if logging.lastResort is not None:
                logging.lastResort.handle(record)


def _log(event: Event) -> None:
    fields = event.fields
    exception = event.exception if isinstance(event, TaskRunFailed) else None
    text = readable(event.name, fields)
    # LogRecord has owned an attribute `taskName` since 3.12, so the fields travel nested.
    extra = {"event": event.name, "fields": fields}
    if type(_logger) is not logging.Logger:  # a class of the application's own, which may change what log() does
        _logger.log(event.level, "%s", text, extra=extra, exc_info=exception)
        return
    # What Logger.log() does, but for its search of the stack for the caller, which is known here. Whether the level is
    # enabled was asked before.
    info = None if exception is None else (type(exception), exception, exception.__traceback__)
    here = _log.__code__
    record = _logger.makeRecord(
        _logger.name, event.level, here.co_filename, here.co_firstlineno, "%s", (text,), info, here.co_name, extra
    )
    _logger.handle(record)


def readable(name: str, fields: Mapping[str, Any]) -> str:
    """One line for people, whatever a task is called: no injected lines, no terminal codes."""
    return " ".join([name, *(f"{key}={_field(value)}" for key, value in fields.items())])


def _field(value: object) -> str:
    """A value of a field, in quotes where it could be taken for more than one."""
    if type(value) is float:
        return str(round(value, 3))  # milliseconds, with more digits than any clock has
    if type(value) in _NUMBERS:
        return str(value)
    if not isinstance(value, str):
        return plain(repr(value) if isinstance(value, Mapping | tuple | list) else value)
    if value and value.isprintable() and not (" " in value or '"' in value):
        return value
    return '"' + plain(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
