"""The reach of histories: causes, transitions, errors, faults, events, steps; and all that there is to reach."""

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Final, get_args

import duly
from duly import errors, events
from duly.core.task import Cause
from tests.simulation.executor import Result
from tests.simulation.faults import Kind
from tests.simulation.histories import Step

_STARTED: Final = ("awaiting run", "awaiting retry", "interrupted")

TRANSITIONS: Final = (
    "nothing -> awaiting run",
    *(f"{state} -> running" for state in _STARTED),
    "running -> awaiting run",
    "running -> awaiting retry",
    "running -> interrupted",
    *(f"{state} -> overridden" for state in (*_STARTED, "running")),
    *(f"{state} -> orphaned" for state in (*_STARTED, "running")),
    "withdrawn -> ended",
)

# Not of the lifecycle on an embedded store: raised by parse_cron(), by searches that leave the calendar, by readers of
# traces and stores, by shared stores, on other platforms.
_ELSEWHERE: Final = {
    duly.InvalidCronExpressionError,
    duly.FieldParseError,
    duly.CronCalculationError,
    duly.StoreUnusedError,
    duly.HostZoneError,  # a simulated host has a zone
    duly.TraceError,
    duly.ClusterZoneError,
    duly.ForeignSetError,
    duly.HostGoneError,
    duly.StoreRewoundError,
    duly.StoreSchemaError,
    duly.UnsupportedPlatformError,
}


def _raised() -> Iterator[type[duly.DulyError]]:
    """Every error class of which there are no subclasses, and `StoreError`, which is raised itself."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, duly.DulyError) and value not in _ELSEWHERE:
            if value is duly.StoreError or not value.__subclasses__():
                yield value


def everything() -> set[str]:
    """All there is to reach."""
    told = {
        name for name in events.__all__ if name not in ("Event", "PropertyViolated", "PollStarted", "PollCompleted")
    }
    told.discard("HostZoneChanged")  # a host that moves has tests of its own: its trace begins anew
    # Histories have one scheduler that calls initialize(), and no time passes in a step of a callback.
    told -= {"StandbyStarted", "StandbyEnded", "StandbyFailed", "EventLoopBlocked"}
    # And an embedded store; histories of hosts are in tests/cluster.
    told -= {"HostJoined", "HostLeft", "HostLost", "LeaseSuspended", "LeaseResumed", "LeaseLost", "RejoinFailed"}
    told -= {"TaskRunFenced", "StartsRefused", "DeclarationSuperseded", "EditionReinstated", "HostOptionOverruled"}
    told -= {"HostClockSkewed"}
    return {
        *(f"cause {cause.value}" for cause in Cause),
        *(f"transition {name}" for name in TRANSITIONS),
        *(f"error {kind.__name__}" for kind in _raised()),
        *(f"fault {kind.name}" for kind in Kind),
        *(f"event {name}" for name in told),
        *(f"row {letters}" for letters in ("BT", "IS", "RG", "IE", "IF", "SS", "SE", "SF", "RS", "RE", "CK", "WK")),
        *(f"call {verb} {outcome}" for verb in ("initialize", "stop") for outcome in _OUTCOMES),
        *(f"step {step.__name__}" for step in get_args(Step)),
        "reference asked",
    }


_OUTCOMES: Final = ("returned", "raised", "cancelled", "died")


def reached(result: Result) -> Counter[str]:
    """The reach of one history, with counts."""
    found: Counter[str] = Counter()
    found.update(f"fault {kind}" for kind in result.faults.elements())
    found.update(f"error {name}" for name in result.errors.elements())
    found.update(f"event {event.name}" for event in result.events)
    found.update(f"call {call.verb} {call.outcome}" for call in result.calls)
    found.update(f"step {type(step).__name__}" for step in result.history.steps)
    found.update(f"row {row[0]}" for row in result.rows)
    found.update(f"cause {row[6]}" for row in result.rows if row[0] == "RS")
    found.update(f"transition {name}" for name in _transitions(result))
    found.update(["reference asked"] if result.referenced else [])
    return found


def _transitions(result: Result) -> Iterator[str]:
    states: dict[str, str] = {}
    generations: dict[str, int] = {}
    for letters, _, _, *fields in result.rows:
        if letters == "BT":
            for name in [name for name, state in states.items() if state == "running"]:
                yield "running -> interrupted"
                states[name] = "interrupted"
        elif letters == "RG":
            name, generation, change = fields[:3]
            if change in ("overridden", "orphaned"):
                yield f"{states[name]} -> {change}"
            if change in ("new", "overridden"):
                states[name], generations[name] = "awaiting run", generation
            if change == "new":
                yield "nothing -> awaiting run"
        elif letters == "RS":
            yield f"{states[fields[0]]} -> running"
            states[fields[0]] = "running"
        elif letters == "RE":
            name, generation, _, ok = fields
            if generations[name] != generation or states[name] != "running":
                yield "withdrawn -> ended"
                continue
            states[name] = "awaiting run" if ok else "awaiting retry"
            yield f"running -> {states[name]}"
