"""Checks of the scheduler's options: a wrong one is named when the scheduler is made, not when it runs."""

from datetime import timedelta
from typing import Final

from duly.clock import Clock
from duly.core.registration import RunsOn, where_it_runs

_LARGEST_NUMBER: Final = 2**63 - 1  # what a store can count to


def check_options(
    *,
    max_concurrency: object,
    run_timeout: object,
    interrupted: object,
    on_mismatch: object,
    history: object,
    on_event: object,
    clock: object,
    trace: object,
    monitor: object,
) -> None:
    """Raise a TypeError or ValueError that says which option is wrong, and how."""
    for name, flag in (("trace", trace), ("monitor", monitor)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, got {type(flag).__name__}")
    if max_concurrency is not None:
        _check_number("max_concurrency", max_concurrency, least=1)
    _check_number("history", history, least=0)
    _check_choice("interrupted", interrupted, ("restart", "wait"))
    _check_choice("on_mismatch", on_mismatch, ("override", "refuse"))
    if run_timeout is not None:
        if not isinstance(run_timeout, timedelta):
            raise TypeError(f"run_timeout must be a timedelta, got {type(run_timeout).__name__}")
        if run_timeout <= timedelta(0):
            raise ValueError(f"run_timeout must be positive, got {run_timeout}")
    check_listener(on_event)
    if isinstance(clock, type):
        raise TypeError(f"clock must be an object, got the class {clock.__name__}: call it")
    if clock is not None and not isinstance(clock, Clock):
        raise TypeError(f"clock must have now, elapsed, zone and sleep_until; {type(clock).__name__} has not")


def check_listener(on_event: object) -> None:
    """Raise a TypeError unless it is None or can be called with an event."""
    if on_event is not None:
        if not callable(on_event):
            raise TypeError(f"on_event must be callable, got {type(on_event).__name__}")
        if where_it_runs(on_event) is RunsOn.LOOP:
            raise TypeError("on_event must be a plain callable, not a coroutine function: it is called, not awaited")


def _check_number(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if value > _LARGEST_NUMBER:
        raise ValueError(f"{name} must be at most {_LARGEST_NUMBER}, got {value}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {', '.join(choices)}, got {type(value).__name__}")
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
