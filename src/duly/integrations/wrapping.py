"""Registrations whose callbacks have something around them, for the integrations that need it.

Callbacks are never stored, so wrapping them changes nothing for a store. Whatever `initialize` would refuse is left as
it is, so that it is refused as without an integration.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

Callback = Callable[[], Any]


def wrapped(registrations: Any, wrap: Callable[[str, str, Callback], Callback]) -> Any:
    """The registrations, with `wrap(name, cron, callback)` in the place of each callback."""
    if not isinstance(registrations, list | tuple):
        return registrations
    return [_wrapped(each, wrap) for each in registrations]


def _wrapped(registration: Any, wrap: Callable[[str, str, Callback], Callback]) -> Any:
    match registration:
        case (str(name), str(cron), callback, delay) if callable(callback) and _can_work(callback):
            return (name, cron, wrap(name, cron, callback), delay)
        case _:
            return registration


def runs_on_loop(callback: Callback) -> bool:
    """Whether a call makes a coroutine (SPEC 1.3): partials, bound methods and `async __call__` included."""
    inner = _inner(callback)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def _can_work(callback: Callback) -> bool:
    """Whether a call without arguments can run the code of a callback (SPEC 10.3)."""
    inner = _inner(callback)
    for each in (inner, type(inner).__call__):
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            return False
    try:
        inspect.signature(callback).bind()
    except TypeError:
        return False
    except ValueError:
        return True  # some callables that are written in C have no signature
    return True


def _inner(callback: Any) -> Any:
    while isinstance(callback, partial):
        callback = callback.func
    return callback
