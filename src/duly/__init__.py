"""A declarative, durable cron scheduler for asyncio.

scheduler   the public class: initialize() and stop()
engine/     waits, commits, runs callbacks
core/       pure decisions: cron, occurrences, task states, resolution, agenda
stores/     durability: the Store and Reader protocols, SQLite
formal/     the observable trace, the properties it must satisfy, and the checker
testing/    the simulated host, for your tests and ours
insight/    what a store means to people, as values
simulation/ what if: the real scheduler on a simulated host, with stand-ins for the callbacks
cli/        for people: the command line
errors, events, clock       the words all of them share
text        text from outside, made safe to show
threads     daemon threads for blocking calls: callbacks, and a store's writer

Imports point one way: cli -> testing -> scheduler, engine -> stores -> core -> errors, events -> text; formal and
insight read core.
"""

from duly import errors, events, stores
from duly.clock import Clock
from duly.core.cron import CronExpression, parse_cron
from duly.errors import (
    CronCalculationError,
    CronError,
    CronExpressionInvalidError,
    DulyError,
    FieldParseError,
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
from duly.scheduler import Scheduler

__all__ = [
    "Clock",
    "CronCalculationError",
    "CronError",
    "CronExpression",
    "CronExpressionInvalidError",
    "DulyError",
    "FieldParseError",
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
    "StopSchedulerError",
    "StoreCorruptedError",
    "StoreError",
    "StoreLockedError",
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
    "errors",
    "events",
    "parse_cron",
    "stores",
]
