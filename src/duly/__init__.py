"""A declarative, durable cron scheduler for asyncio.

scheduler   the public class: initialize() and stop()
standby     a scheduler that waits until no other one holds its store
wiring      the inside of a scheduler, put together from the parts below
engine/     waits, commits, runs callbacks
core/       pure decisions: cron, occurrences, task states, resolution, agenda
stores/     durability: the Store and Reader protocols, SQLite, PostgreSQL
formal/     the observable trace, the properties it must satisfy, and the checker
testing/    the simulated host, and several on one store, for your tests and ours
insight/    what a store means to people, as values
simulation/  what if: the real scheduler on a simulated host, with stand-ins for the callbacks
cli/        for people: the command line
web/        for people: the dashboard
integrations/   inside of, or beside, what applications use already: one module for each framework
errors, events, clock       the words all of them share
run_context  the run that the current code belongs to; log_filter: the same for log records
text        text from outside, made safe to show
lazy        names of a package that are loaded at their first use
threads     daemon threads for blocking calls: callbacks, and a store's writer

Imports point one way: cli, web -> testing -> scheduler -> engine, stores -> stores.port -> core -> errors, events ->
text. The engine knows of stores no more than their port; formal and insight read core.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from duly import errors
from duly.clock import Clock
from duly.core.cron import CronExpression, parse_cron
from duly.errors import (
    ClusterZoneError,
    CronCalculationError,
    CronError,
    CronExpressionInvalidError,
    DulyError,
    FieldParseError,
    ForeignSetError,
    HostGoneError,
    HostZoneError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    LifecycleError,
    NegativeRetryDelayError,
    RegistrationError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
    SchedulerStoppingError,
    ScheduleTaskError,
    StopSchedulerError,
    StoreCorruptedError,
    StoreError,
    StoreLockedError,
    StoreRewoundError,
    StoreSchemaError,
    StoreUnusedError,
    StoreVersionError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskListMismatchError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
    TraceError,
    UnsupportedPlatformError,
)
from duly.run_context import CurrentRun, current_run
from duly.scheduler import Scheduler
from duly.standby import Standby, standby

if TYPE_CHECKING:
    from duly import events, stores

    __version__: str

__all__ = [
    "Clock",
    "ClusterZoneError",
    "CronCalculationError",
    "CronError",
    "CronExpression",
    "CronExpressionInvalidError",
    "CurrentRun",
    "DulyError",
    "FieldParseError",
    "ForeignSetError",
    "HostGoneError",
    "HostZoneError",
    "InvalidCronExpressionError",
    "InvalidRegistrationError",
    "LifecycleError",
    "NegativeRetryDelayError",
    "RegistrationError",
    "RegistrationShapeError",
    "RegistrationsNotArrayError",
    "ScheduleDuplicateTaskError",
    "ScheduleTaskError",
    "Scheduler",
    "SchedulerStoppingError",
    "Standby",
    "StopSchedulerError",
    "StoreCorruptedError",
    "StoreError",
    "StoreLockedError",
    "StoreRewoundError",
    "StoreSchemaError",
    "StoreUnusedError",
    "StoreVersionError",
    "TaskInvalidStructureError",
    "TaskInvalidTypeError",
    "TaskInvalidValueError",
    "TaskListMismatchError",
    "TaskMissingFieldError",
    "TaskTryDeserializeError",
    "TraceError",
    "UnsupportedPlatformError",
    "current_run",
    "errors",
    "events",
    "parse_cron",
    "standby",
    "stores",
]


def __getattr__(name: str) -> ModuleType | str:
    """Load `duly.events` and `duly.stores` at their first use, and look up the version only when it is asked for.

    `import duly` leaves out all but the public names.
    """
    if name in ("events", "stores"):
        return import_module(f"{__name__}.{name}")
    if name == "__version__":
        metadata = import_module("importlib.metadata")
        try:
            return str(metadata.version("duly"))
        except metadata.PackageNotFoundError as error:
            raise AttributeError("duly is not installed here, so its version is not known") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and those that every module has; modules that were loaded meanwhile are left out."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
