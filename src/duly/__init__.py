"""A declarative, durable cron scheduler for asyncio.

scheduler, initialization, options           the shell's front: lifecycle, one call after the other
loop, life, journal, execution, runs         its engine: waits, decides, commits, runs callbacks
clock, host, reports, sink, observing        its surroundings: time, threads, where events and the trace go
core/       pure decisions: cron, occurrences, task states, resolution, agenda
stores/     durability: the Store protocol, SQLite
formal/     the observable trace, the properties it must satisfy, and the checker
testing/    the simulated host, for your tests and ours
console/    for people: the command line
errors, events                               the words all of them share

Imports point one way: console -> testing -> shell -> stores -> core -> errors, events; formal reads core and errors.
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
