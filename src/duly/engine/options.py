"""The options of a scheduler: a value that checks itself, so a wrong option is named when the scheduler is made."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from duly.core.registration import RunsOn, where_it_runs
from duly.events import Event
from duly.stores.port import DEFAULT_HISTORY

_LARGEST_NUMBER: Final = 2**63 - 1  # what a store can count to


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `Scheduler` besides its store and its clock; a wrong value raises a TypeError or a ValueError."""

    max_concurrency: int | None = None
    run_timeout: timedelta | None = None
    interrupted: Literal["restart", "wait"] = "restart"
    on_mismatch: Literal["override", "refuse"] = "override"
    history: int = DEFAULT_HISTORY
    on_event: Callable[[Event], object] | None = None
    trace: bool = False
    monitor: bool = False

    def __post_init__(self) -> None:
        for name, flag in (("trace", self.trace), ("monitor", self.monitor)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, got {type(flag).__name__}")
        if self.max_concurrency is not None:
            _check_number("max_concurrency", self.max_concurrency, least=1)
        _check_number("history", self.history, least=0)
        _check_choice("interrupted", self.interrupted, ("restart", "wait"))
        _check_choice("on_mismatch", self.on_mismatch, ("override", "refuse"))
        _check_timeout(self.run_timeout)
        check_listener(self.on_event)

    @property
    def restarts_interrupted(self) -> bool:
        """Whether a run that a crash cut short starts again at once."""
        return self.interrupted == "restart"

    @property
    def observed(self) -> bool:
        """Whether rows of the trace are made at all, for the store or for the monitor."""
        return self.trace or self.monitor


def check_listener(on_event: object) -> None:
    """Raise a TypeError unless it is None or can be called with an event."""
    if on_event is not None:
        if not callable(on_event):
            raise TypeError(f"on_event must be callable, got {type(on_event).__name__}")
        if where_it_runs(on_event) is RunsOn.LOOP:
            raise TypeError("on_event must be a plain callable, not a coroutine function: it is called, not awaited")


def _check_timeout(run_timeout: object) -> None:
    if run_timeout is None:
        return
    if not isinstance(run_timeout, timedelta):
        raise TypeError(f"run_timeout must be a timedelta, got {type(run_timeout).__name__}")
    if run_timeout <= timedelta(0):
        raise ValueError(f"run_timeout must be positive, got {run_timeout}")


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
