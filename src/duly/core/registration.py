"""Raw tuples to registrations, or the first error, before any side effect."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import Delay, delay_of
from duly.errors import (
    CronExpressionInvalidError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
)

Callback = Callable[[], Any]


class Kind(Enum):
    """Where a callback runs: a coroutine function on the event loop, anything else in a worker thread."""

    LOOP = "loop"
    THREAD = "thread"

    __hash__ = object.__hash__  # there is one object for each: asked for every task, and Enum's own is slow


class Registration(NamedTuple):
    """One declared task, checked."""

    name: str
    expression: CronExpression
    callback: Callback
    kind: Kind
    delay: Delay


def snapshot(registrations: object) -> Sequence[object]:
    """The registrations as they are now; what the caller does to its list later changes nothing."""
    if not isinstance(registrations, list | tuple):
        raise RegistrationsNotArrayError(registrations)
    return tuple(registrations)


def read_registrations(items: Sequence[object]) -> Iterator[Registration]:
    """Check items left to right, each completely before the next; the first failure is raised (SPEC 1.4).

    An iterator, so that a caller with a million of them can let others work in between.
    """
    seen: set[str] = set()
    expressions: dict[str, CronExpression] = {}
    delays: dict[timedelta, Delay] = {}
    kinds: dict[int, Kind] = {}
    for index, item in enumerate(items):
        if type(item) is tuple and len(item) == 4:
            name, cron, callback, delay = item
            if not (type(name) is str and type(cron) is str and callable(callback) and type(delay) is timedelta):
                name, cron, callback, delay = _fields(index, item)
        else:
            name, cron, callback, delay = _fields(index, item)
        if not name or "\0" in name or not (name.isascii() or _encodable(name)):
            raise InvalidRegistrationError(index, "name", name, _what_is_wrong_with(name))
        if name in seen:
            raise ScheduleDuplicateTaskError(index, name)
        seen.add(name)
        # Looked up, because a million tasks have few expressions, delays and callbacks.
        expression = expressions.get(cron)
        if expression is None:
            try:
                expression = expressions[cron] = parse_cron(cron)
            except InvalidCronExpressionError as cause:
                raise CronExpressionInvalidError(index, name, cause) from cause
        milliseconds = delays.get(delay) if type(delay) is timedelta else None
        if milliseconds is None:
            milliseconds = delay_of(delay)
            if milliseconds < 0:
                raise NegativeRetryDelayError(index, name, milliseconds)
            if type(delay) is timedelta:
                delays[delay] = milliseconds
        # By identity: callbacks need not be hashable, and `items` keeps them alive meanwhile.
        kind = kinds.get(id(callback))
        if kind is None:
            kind = kinds[id(callback)] = kind_of(callback)
        yield _new(Registration, (name, expression, callback, kind, milliseconds))


_new: Final = tuple.__new__  # what the constructor of a named tuple calls, without the call around it


def kind_of(callback: Callback) -> Kind:
    """Whether calling it makes a coroutine, seen through partials, bound methods and `async __call__`."""
    inner: object = callback
    while isinstance(inner, partial):
        inner = inner.func
    call = type(inner).__call__ if callable(inner) else None
    return Kind.LOOP if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call) else Kind.THREAD


def _fields(index: int, item: object) -> tuple[str, str, Callback, timedelta]:
    if not isinstance(item, list | tuple):
        raise RegistrationShapeError(index, item, f"expected a tuple of four, got {type(item).__name__}")
    if len(item) != 4:
        raise RegistrationShapeError(index, item, f"expected four items, got {len(item)}")
    name, cron, callback, delay = item
    if not isinstance(name, str):
        raise RegistrationShapeError(index, item, f"the name must be a str, got {type(name).__name__}")
    if not isinstance(cron, str):
        raise RegistrationShapeError(index, item, f"the cron expression must be a str, got {type(cron).__name__}")
    if not callable(callback):
        raise RegistrationShapeError(index, item, f"the callback must be callable, got {type(callback).__name__}")
    if not isinstance(delay, timedelta):
        raise RegistrationShapeError(index, item, f"the retry delay must be a timedelta, got {type(delay).__name__}")
    # An enum member that is a str is welcome, but what is stored and compared is its text.
    return str.__str__(name), str.__str__(cron), callback, delay


def _encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _what_is_wrong_with(name: str) -> str:
    if not name:
        return "must not be empty"
    if "\0" in name:
        return "must not contain NUL"
    return "must not contain lone surrogates"
