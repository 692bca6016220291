"""Every error that duly raises: one family, with `details` for programs and a text for people.

DulyError
├── RegistrationError                     a registration handed to initialize() is wrong; nothing has changed
│   ├── RegistrationsNotArrayError
│   ├── RegistrationShapeError
│   ├── InvalidRegistrationError
│   ├── ScheduleDuplicateTaskError
│   ├── CronExpressionInvalidError        (caused by an InvalidCronExpressionError)
│   └── NegativeRetryDelayError
├── LifecycleError                        initialize() or stop() could not take effect
│   ├── ScheduleTaskError
│   ├── StopSchedulerError
│   └── SchedulerStoppingError
├── CronError                             cron text that cannot be read, or cron arithmetic without an answer
│   ├── InvalidCronExpressionError        (caused by a FieldParseError where one field is to blame)
│   ├── FieldParseError
│   └── CronCalculationError
├── TaskTryDeserializeError               a stored record is not what duly writes
│   ├── TaskMissingFieldError
│   ├── TaskInvalidTypeError
│   ├── TaskInvalidValueError
│   └── TaskInvalidStructureError
├── TaskListMismatchError                 on_mismatch="refuse", and stored and declared tasks differ
├── StoreError                            the store cannot be used
│   ├── StoreLockedError
│   ├── StoreCorruptedError
│   ├── StoreVersionError
│   ├── StoreSchemaError                  (a shared store without its tables, and no right to create them)
│   ├── StoreRewoundError                 (a shared store was set back: a failover, a restored backup)
│   ├── HostGoneError                     (this host was buried, or has left)
│   ├── ForeignSetError                   (two applications in one schema)
│   ├── ClusterZoneError                  (hosts of one shared store in different zones)
│   └── StoreUnusedError                  (when reading: no scheduler has used it yet)
├── HostZoneError                         the host's time zone cannot be determined, or has no name
├── TraceError                            a trace is broken: malformed, cut, edited, reordered or mixed
└── UnsupportedPlatformError

LeaseLostError is none of them: it is an asyncio.CancelledError, raised inside callbacks of a host that was buried.

Constructors take facts and write the message themselves, so that one error is worded in one way. The keys of
`details` are wire names (camelCase), stable across versions.
"""

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from typing import Any, Final

from duly.text import plain

LONGEST_QUOTE: Final = 200
"""Characters of a name or an expression that a message shows."""


class DulyError(Exception):
    """The root of the family: a message, `details`, and optionally a hint that says what to do.

    The text of the error is the message and, where there is one, the hint (SPEC 1.5).
    """

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details
        if isinstance(cause := details.get("cause"), BaseException):
            self.__cause__ = cause  # even without `raise ... from`, and after pickling
        if hint is not None:
            self.details["hint"] = hint

    def __str__(self) -> str:
        hint = self.details.get("hint")
        return self.message if hint is None else f"{self.message}: {hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors below take facts, not messages: the default, which passes `args` to them, would fail.
        return (_revive, (type(self), self.message, self.details, getattr(self, "__notes__", [])))


def _revive(kind: type[DulyError], message: str, details: dict[str, Any], notes: list[str]) -> DulyError:
    error = kind.__new__(kind, message)
    DulyError.__init__(error, message, **details)
    error.details = details
    for note in notes:
        error.add_note(note)
    return error


def _message_of(cause: BaseException) -> str:
    """What a cause says, without its hint: the error that wraps it has one of its own, or passes it on."""
    return cause.message if isinstance(cause, DulyError) else str(cause)


def _hint_of(cause: BaseException) -> str | None:
    return cause.details.get("hint") if isinstance(cause, DulyError) else None


# --- registrations ---------------------------------------------------------------------------------------------------


class RegistrationError(DulyError):
    """A registration handed to initialize() is wrong; nothing has changed."""


class RegistrationsNotArrayError(RegistrationError):
    """The registrations are not a list or tuple."""

    def __init__(self, received: object) -> None:
        super().__init__(
            "Registrations must be an array",
            hint=f"pass a list or tuple of (name, cron, callback, retry delay), not {_what(received)}",
        )


def _what(received: object) -> str:
    """The type of something that should have been a list, and how to make one of it where that is clear."""
    name = type(received).__name__
    remedy = {"generator": "list(...) makes one of it", "coroutine": "await it"}.get(name)
    return f"{name}; {remedy}" if remedy else name


class RegistrationShapeError(RegistrationError):
    """An item is not (str, str, callable, timedelta)."""

    def __init__(self, registration_index: int, received: object, problem: str) -> None:
        super().__init__(
            "Invalid registration shape: expected [string, string, function, Duration]",
            hint=f"registration {registration_index}: {problem}",
            registrationIndex=registration_index,
            received=received,
        )


class InvalidRegistrationError(RegistrationError):
    """A field has the right type, but a value that cannot be used."""

    def __init__(self, registration_index: int, field: str, value: object, reason: str) -> None:
        super().__init__(
            f"Invalid registration {field}: {reason}",
            registrationIndex=registration_index,
            field=field,
            value=value,
            reason=reason,
        )


class ScheduleDuplicateTaskError(RegistrationError):
    """Two registrations have the same name."""

    def __init__(self, registration_index: int, task_name: str) -> None:
        super().__init__(
            f'Task with name "{plain(task_name, longest=LONGEST_QUOTE)}" is already scheduled',
            hint=f"registration {registration_index} repeats an earlier name; names must be unique",
            registrationIndex=registration_index,
            taskName=task_name,
        )


class CronExpressionInvalidError(RegistrationError):
    """A registration's cron text is not a POSIX expression that can match."""

    def __init__(self, registration_index: int, task_name: str, cause: "InvalidCronExpressionError") -> None:
        super().__init__(
            cause.message,
            **cause.details,
            registrationIndex=registration_index,
            taskName=task_name,
            cause=cause,
        )


class NegativeRetryDelayError(RegistrationError):
    """A registration asks to be retried before it failed."""

    def __init__(self, registration_index: int, task_name: str, retry_delay_ms: int) -> None:
        super().__init__(
            "Retry delay must be non-negative",
            registrationIndex=registration_index,
            taskName=task_name,
            retryDelayMs=retry_delay_ms,
        )


# --- lifecycle -------------------------------------------------------------------------------------------------------


class LifecycleError(DulyError):
    """initialize() or stop() could not take effect."""


class ScheduleTaskError(LifecycleError):
    """The transaction of initialize() failed; the previous state is unchanged."""

    def __init__(self, name: str, cron_expression: str, cause: BaseException) -> None:
        super().__init__(
            f"Failed to schedule task '{plain(name, longest=LONGEST_QUOTE)}': {_message_of(cause)}",
            hint=_hint_of(cause),
            name=name,
            cronExpression=cron_expression,
            cause=cause,
        )


class StopSchedulerError(LifecycleError):
    """stop() could not record everything, or was called where it cannot wait."""

    def __init__(self, cause: BaseException, *, hint: str | None = None) -> None:
        super().__init__(f"Failed to stop scheduler: {_message_of(cause)}", hint=hint, cause=cause)


class SchedulerStoppingError(LifecycleError):
    """initialize() was awaited inside a callback for which a stop() is waiting."""

    def __init__(self, task_name: str) -> None:
        super().__init__(
            "Scheduler is stopping: initialize() inside a running callback would wait for itself",
            hint="return from the callback and initialise again from outside, after stop() has returned",
            taskName=task_name,
        )


# --- cron ------------------------------------------------------------------------------------------------------------


class CronError(DulyError):
    """Cron text cannot be read, or cron arithmetic leaves the calendar."""


class InvalidCronExpressionError(CronError):
    """A text is not a POSIX cron expression, or can never match."""

    def __init__(self, expression: str, field: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f'Invalid cron expression "{plain(expression, longest=LONGEST_QUOTE)}": {field} field {reason}',
            hint=hint,
            expression=expression,
            field=field,
            reason=reason,
        )


class FieldParseError(CronError):
    """One field of a cron expression cannot be read."""

    def __init__(self, field_name: str, field_value: str, reason: str) -> None:
        super().__init__(f"{field_name} field {reason}", fieldName=field_name, fieldValue=field_value, reason=reason)


class CronCalculationError(CronError):
    """A search for an occurrence leaves the years 1 to 9999."""

    def __init__(self, expression: str, current_time: str, cause: BaseException) -> None:
        super().__init__(
            f"Failed to calculate next occurrence: {cause}",
            expression=expression,
            currentTime=current_time,
            cause=cause,
        )


# --- stored records --------------------------------------------------------------------------------------------------


class TaskTryDeserializeError(DulyError):
    """A stored record is not what duly writes; the scheduler does not start, and the store is unchanged."""


class TaskMissingFieldError(TaskTryDeserializeError):
    """A required field of a stored record is absent."""

    def __init__(self, field: str, *, task: str | None = None) -> None:
        super().__init__(f"Missing required field: {field}", field=field, taskName=task)


class TaskInvalidTypeError(TaskTryDeserializeError):
    """A field of a stored record has the wrong type."""

    def __init__(self, field: str, value: object, expected_type: str, *, task: str | None = None) -> None:
        actual = type(value).__name__
        super().__init__(
            f"Invalid type for field '{field}': expected {expected_type}, got {actual}",
            field=field,
            value=value,
            expectedType=expected_type,
            actualType=actual,
            taskName=task,
        )


class TaskInvalidValueError(TaskTryDeserializeError):
    """A field of a stored record has a value that duly never writes."""

    def __init__(self, field: str, value: object, reason: str, *, task: str | None = None) -> None:
        super().__init__(
            f"Invalid value for field '{field}': {reason}", field=field, value=value, reason=reason, taskName=task
        )


class TaskInvalidStructureError(TaskTryDeserializeError):
    """The fields of a stored record contradict each other."""

    def __init__(self, value: object, reason: str, *, task: str | None = None) -> None:
        super().__init__(f"Invalid task structure: {reason}", value=value, reason=reason, taskName=task)


class TaskListMismatchError(DulyError):
    """Stored and declared tasks differ, and `on_mismatch="refuse"` was given."""

    def __init__(
        self,
        *,
        expected: Sequence[str],
        actual: Sequence[str],
        added: Sequence[str],
        removed: Sequence[str],
        changed: Mapping[str, Mapping[str, Any]],
    ) -> None:
        super().__init__(
            f"Declared tasks do not match the stored ones: "
            f"{len(added)} added, {len(removed)} removed, {len(changed)} changed",
            hint='declare the stored tasks unchanged, or use on_mismatch="override" to let the declaration win',
            expected=list(expected),
            actual=list(actual),
            added=list(added),
            removed=list(removed),
            changed=dict(changed),
        )


# --- stores ----------------------------------------------------------------------------------------------------------


class StoreError(DulyError):
    """The store cannot be used: a missing folder, an unwritable path, a foreign file, a full disk."""

    def __init__(self, message: str, *, store: str, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, store=store, **details)


class StoreLockedError(StoreError):
    """Another running scheduler holds the store."""

    def __init__(self, store: str, holder: Mapping[str, Any]) -> None:
        pid, host, since = holder.get("pid", "?"), holder.get("host", "?"), holder.get("since", "?")
        super().__init__(
            f"Store {store} is in use by process {pid} on {host} since {since}",
            store=store,
            hint=(
                "one store belongs to one scheduler: to wait until it is free, use duly.standby or "
                "`duly run --standby`; or give each scheduler its own store"
            ),
            holder=dict(holder),
        )


class StoreCorruptedError(StoreError):
    """The file is damaged, or is not a database."""


class StoreVersionError(StoreError):
    """The store was written by a newer duly."""

    def __init__(self, store: str, found: int, supported: int) -> None:
        super().__init__(
            f"Store {store} has schema version {found}, this duly reads up to {supported}",
            store=store,
            hint="upgrade duly, or give this version a store of its own",
            found=found,
            supported=supported,
        )


class StoreSchemaError(StoreError):
    """A shared store has no tables of this version, and the role may not create them (SPEC 9.22)."""

    def __init__(self, store: str, problem: str, command: str, *, cause: BaseException | None = None) -> None:
        known = {} if cause is None else {"cause": cause}
        super().__init__(
            f"Store {store} {problem}",
            store=store,
            hint=f"let a role that has the right run: {command}",
            command=command,
            **known,
        )


class StoreRewoundError(StoreError):
    """A shared store lost what a host had seen in it: a failover to a late replica, a restored backup (SPEC 9.21)."""

    def __init__(self, store: str, lost: str) -> None:
        super().__init__(
            f"Store {store} was set back: {lost} is not there any more",
            store=store,
            hint="what was lost may run twice; use synchronous replication to exclude that",
            lost=lost,
        )


class HostGoneError(StoreError):
    """A host of a shared store has no right to write any more: it was buried, or has left (SPEC 9.5)."""

    def __init__(self, store: str, host: int, how: str) -> None:
        super().__init__(f"Host {host} of store {store} {how}", store=store, host=host, how=how)


class ForeignSetError(StoreError):
    """The declared tasks share no name with those of the hosts that are running (SPEC 9.14)."""

    def __init__(self, store: str) -> None:
        super().__init__(
            f"The declared tasks share no name with those in force in {store}",
            store=store,
            hint="two applications? give each its own schema, as in PostgresStore(url, schema=...)",
        )


class ClusterZoneError(StoreError):
    """Other hosts of a shared store run in another zone (SPEC 9.12)."""

    def __init__(self, store: str, zone: str, zone_in_force: str) -> None:
        super().__init__(
            f"Host in zone {zone} cannot join {store}, whose hosts run in zone {zone_in_force}",
            store=store,
            hint=f"set TZ={zone_in_force} for this host, or stop the others first",
            zone=zone,
            zoneInForce=zone_in_force,
        )


class StoreUnusedError(StoreError):
    """There is nothing to read yet: no file, or a file that no scheduler has used."""


class HostZoneError(DulyError):
    """The host's time zone cannot be determined, or has no name although a trace or a monitor needs one."""

    def __init__(self, message: str, *, cause: BaseException | None = None) -> None:
        known = {} if cause is None else {"cause": cause}
        hint = "set TZ to a zone name such as Europe/Berlin, or fix the system's setting"
        super().__init__(message, hint=hint, **known)


class TraceError(DulyError):
    """A trace cannot be judged, because it is not whole; `details["fault"]` says why."""

    def __init__(self, fault: str, line: int, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"Line {line}: {reason}", hint=hint, fault=fault, line=line, reason=reason)


class UnsupportedPlatformError(DulyError):
    """duly runs on Linux and macOS."""

    def __init__(self, platform: str) -> None:
        super().__init__(
            f"duly does not run on {platform}",
            hint="it needs POSIX file locks and durable renames; use Linux, macOS or WSL",
            platform=platform,
        )


class LeaseLostError(CancelledError):
    """This host was buried while the callback was running: another host starts the task again (SPEC 9.6).

    A cancellation, so that `except Exception` does not swallow it.
    """

    def __init__(self) -> None:
        super().__init__("the lease of this host is lost: another host may be running the task already")
