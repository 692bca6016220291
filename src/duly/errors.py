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

    The text of the error is the message and, where there is one, the hint (SPEC 1.5). Raised itself when a name or an
    expression is too long for a trace or a monitor.

    Parameters:
        message: what is wrong; `error.message`.
        hint: what to do about it; `details["hint"]`.
        **details: the facts, under their wire names. A `cause` becomes `__cause__` as well.
    """

    __cause__: BaseException | None

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
    """The message of a cause, without its hint: the error that wraps it has one of its own, or passes it on."""
    return cause.message if isinstance(cause, DulyError) else str(cause)


def _hint_of(cause: BaseException) -> str | None:
    return cause.details.get("hint") if isinstance(cause, DulyError) else None


# --- registrations ---------------------------------------------------------------------------------------------------


class RegistrationError(DulyError):
    """A registration handed to initialize() is wrong; nothing has changed."""


class RegistrationsNotArrayError(RegistrationError):
    """The registrations are not a list or tuple.

    Parameters:
        received: what was given instead; the hint names its type.
    """

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


def _place(registration_index: int, name: object) -> str:
    """Which registration is meant, by its position and the name of its task."""
    quoted = f" ('{plain(name, longest=LONGEST_QUOTE)}')" if isinstance(name, str) else ""
    return f"registration {registration_index}{quoted}"


class RegistrationShapeError(RegistrationError):
    """An item is not (str, str, callable, timedelta), or its callable can never do its work.

    Parameters:
        registration_index: the position of the registration, from 0; `registrationIndex` in `details`.
        received: the registration as it was given; `received` in `details`.
        problem: which of the four items is wrong, and how; part of the hint.
    """

    def __init__(self, registration_index: int, received: object, problem: str) -> None:
        super().__init__(
            "Invalid registration shape: expected [string, string, function, Duration]",
            hint=f"registration {registration_index}: {problem}",
            registrationIndex=registration_index,
            received=received,
        )


class InvalidRegistrationError(RegistrationError):
    """A field has the right type, but a value that cannot be used.

    Parameters:
        registration_index: the position of the registration, from 0; `registrationIndex` in `details`.
        field: the field, which is `name`; `field` in `details`.
        value: its value; `value` in `details`.
        reason: why it cannot be used; `reason` in `details`.
    """

    def __init__(self, registration_index: int, field: str, value: object, reason: str) -> None:
        super().__init__(
            f"Invalid registration {field}: {reason}",
            hint=f"{_place(registration_index, value)}: use another {field}",
            registrationIndex=registration_index,
            field=field,
            value=value,
            reason=reason,
        )


class ScheduleDuplicateTaskError(RegistrationError):
    """Two registrations have the same name.

    Parameters:
        registration_index: the position of the second of them, from 0; `registrationIndex` in `details`.
        task_name: the name; `taskName` in `details`.
    """

    def __init__(self, registration_index: int, task_name: str) -> None:
        super().__init__(
            f'Task with name "{plain(task_name, longest=LONGEST_QUOTE)}" is already scheduled',
            hint=f"registration {registration_index} repeats an earlier name; names must be unique",
            registrationIndex=registration_index,
            taskName=task_name,
        )


class CronExpressionInvalidError(RegistrationError):
    """A registration's cron text is not a POSIX expression that can match.

    Parameters:
        registration_index: the position of the registration, from 0; `registrationIndex` in `details`.
        task_name: the name of the task; `taskName` in `details`.
        cause: the error of the text; its message and `details` are this error's, too, but for the hint, which says
            where that text is as well.
    """

    def __init__(self, registration_index: int, task_name: str, cause: "InvalidCronExpressionError") -> None:
        place, remedy = _place(registration_index, task_name), _hint_of(cause)
        super().__init__(
            cause.message,
            hint=place if remedy is None else f"{place}: {remedy}",
            **{key: value for key, value in cause.details.items() if key != "hint"},
            registrationIndex=registration_index,
            taskName=task_name,
            cause=cause,
        )


class NegativeRetryDelayError(RegistrationError):
    """A registration asks to be retried before it failed.

    Parameters:
        registration_index: the position of the registration, from 0; `registrationIndex` in `details`.
        task_name: the name of the task; `taskName` in `details`.
        retry_delay_ms: the delay in milliseconds, rounded away from zero; `retryDelayMs` in `details`.
    """

    def __init__(self, registration_index: int, task_name: str, retry_delay_ms: int) -> None:
        seconds, rest = divmod(retry_delay_ms, 1000)
        unit, number = ("milliseconds", retry_delay_ms) if rest else ("seconds", seconds)
        super().__init__(
            "Retry delay must be non-negative",
            hint=f"{_place(registration_index, task_name)}: write timedelta({unit}={-number}), not {unit}={number}",
            registrationIndex=registration_index,
            taskName=task_name,
            retryDelayMs=retry_delay_ms,
        )


# --- lifecycle -------------------------------------------------------------------------------------------------------


class LifecycleError(DulyError):
    """initialize() or stop() could not take effect."""


class ScheduleTaskError(LifecycleError):
    """The transaction of initialize() failed; the previous state is unchanged.

    Parameters:
        name: the first task that would have changed; `name` in `details`.
        cron_expression: its expression; `cronExpression` in `details`.
        cause: the fault of the store, which passes on its hint; `cause` in `details`.
    """

    def __init__(self, name: str, cron_expression: str, cause: BaseException) -> None:
        super().__init__(
            f"Failed to schedule task '{plain(name, longest=LONGEST_QUOTE)}': {_message_of(cause)}",
            hint=_hint_of(cause),
            name=name,
            cronExpression=cron_expression,
            cause=cause,
        )


class StopSchedulerError(LifecycleError):
    """stop() could not record everything, or was called where it cannot wait.

    Parameters:
        cause: the fault of the store, or a `RuntimeError` that names the callback; `cause` in `details`.
        hint: what to do, or what became of the runs.
    """

    def __init__(self, cause: BaseException, *, hint: str | None = None) -> None:
        super().__init__(f"Failed to stop scheduler: {_message_of(cause)}", hint=hint, cause=cause)


class SchedulerStoppingError(LifecycleError):
    """initialize() was awaited inside a callback for which a stop() is waiting.

    Parameters:
        task_name: the task whose callback it is; `taskName` in `details`.
    """

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
    """A text is not a POSIX cron expression, or can never match.

    Parameters:
        expression: the text; `expression` in `details`.
        field: the field that is wrong (`minute`, `hour`, `day`, `month`, `weekday`), or `expression` for the text
            as a whole; `field` in `details`.
        reason: what is wrong with it; `reason` in `details`.
        hint: what to write instead.
    """

    def __init__(self, expression: str, field: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f'Invalid cron expression "{plain(expression, longest=LONGEST_QUOTE)}": {field} field {reason}',
            hint=hint,
            expression=expression,
            field=field,
            reason=reason,
        )


class FieldParseError(CronError):
    """One field of a cron expression cannot be read; the cause of an InvalidCronExpressionError.

    Parameters:
        field_name: `minute`, `hour`, `day`, `month` or `weekday`; `fieldName` in `details`.
        field_value: the text of the field; `fieldValue` in `details`.
        reason: what is wrong with it; `reason` in `details`.
    """

    def __init__(self, field_name: str, field_value: str, reason: str) -> None:
        super().__init__(f"{field_name} field {reason}", fieldName=field_name, fieldValue=field_value, reason=reason)


class CronCalculationError(CronError):
    """A search for an occurrence leaves the years 1 to 9999.

    Parameters:
        expression: the cron expression; `expression` in `details`.
        current_time: where the search began, in ISO 8601; `currentTime` in `details`.
        cause: why the calendar could not go on; `cause` in `details`.
    """

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
    """A required field of a stored record is absent.

    Parameters:
        field: the field of the record; `field` in `details`.
        task: the task, if its name could be read; `taskName` in `details`.
    """

    def __init__(self, field: str, *, task: str | None = None) -> None:
        super().__init__(f"Missing required field: {field}", hint=_record_of(task), field=field, taskName=task)


class TaskInvalidTypeError(TaskTryDeserializeError):
    """A field of a stored record has the wrong type.

    Parameters:
        field: the field of the record; `field` in `details`.
        value: its value; `value` in `details`, and its type under `actualType`.
        expected_type: the type that it should have; `expectedType` in `details`.
        task: the task, if its name could be read; `taskName` in `details`.
    """

    def __init__(self, field: str, value: object, expected_type: str, *, task: str | None = None) -> None:
        actual = type(value).__name__
        super().__init__(
            f"Invalid type for field '{field}': expected {expected_type}, got {actual}",
            hint=_record_of(task),
            field=field,
            value=value,
            expectedType=expected_type,
            actualType=actual,
            taskName=task,
        )


class TaskInvalidValueError(TaskTryDeserializeError):
    """A field of a stored record has a value that duly never writes.

    Parameters:
        field: the field of the record; `field` in `details`.
        value: its value; `value` in `details`.
        reason: what is wrong with it; `reason` in `details`.
        task: the task, if its name could be read; `taskName` in `details`.
    """

    def __init__(self, field: str, value: object, reason: str, *, task: str | None = None) -> None:
        super().__init__(
            f"Invalid value for field '{field}': {reason}",
            hint=_record_of(task),
            field=field,
            value=value,
            reason=reason,
            taskName=task,
        )


class TaskInvalidStructureError(TaskTryDeserializeError):
    """The fields of a stored record contradict each other.

    Parameters:
        value: the fields in question; `value` in `details`.
        reason: what contradicts what; `reason` in `details`.
        task: the task, if its name could be read; `taskName` in `details`.
    """

    def __init__(self, value: object, reason: str, *, task: str | None = None) -> None:
        super().__init__(
            f"Invalid task structure: {reason}", hint=_record_of(task), value=value, reason=reason, taskName=task
        )


def _record_of(task: str | None) -> str | None:
    """The hint of an error about a stored record: where to look."""
    return None if task is None else f"in the record of '{plain(task, longest=LONGEST_QUOTE)}'"


class TaskListMismatchError(DulyError):
    """Stored and declared tasks differ, and `on_mismatch="refuse"` was given; nothing has changed.

    Each parameter is in `details` under its own name.

    Parameters:
        expected: the names of the stored tasks.
        actual: the names of the declared tasks.
        added: names that are declared, and not stored.
        removed: names that are stored, and not declared.
        changed: by name, what differs, stored and declared.
        interrupted: the option, stored and declared, if it differs; it belongs to the set of a shared store.
    """

    def __init__(
        self,
        *,
        expected: Sequence[str],
        actual: Sequence[str],
        added: Sequence[str],
        removed: Sequence[str],
        changed: Mapping[str, Mapping[str, Any]],
        interrupted: Mapping[str, str] | None = None,
    ) -> None:
        option = ""
        if interrupted is not None:
            option = f"; interrupted is '{interrupted['declared']}' and was '{interrupted['stored']}'"
        super().__init__(
            f"Declared tasks do not match the stored ones: "
            f"{len(added)} added, {len(removed)} removed, {len(changed)} changed{option}",
            hint='declare the stored tasks unchanged, or use on_mismatch="override" to let the declaration win',
            expected=list(expected),
            actual=list(actual),
            added=list(added),
            removed=list(removed),
            changed=dict(changed),
            **({} if interrupted is None else {"interrupted": dict(interrupted)}),
        )


# --- stores ----------------------------------------------------------------------------------------------------------


class StoreError(DulyError):
    """The store cannot be used: a missing folder, an unwritable path, a foreign file, a full disk.

    Parameters:
        message: the reason.
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
        hint: what to do about it.
        **details: further facts, such as `cause`, `operation` and the database's own `code`.
    """

    def __init__(self, message: str, *, store: str, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, store=store, **details)


class StoreLockedError(StoreError):
    """Another running scheduler holds the store.

    Parameters:
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
        holder: `pid`, `host` and `since` of the holder, as far as its lock file says; `holder` in `details`.
    """

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
    """The file is damaged, was cut or copied in part, or is not a database.

    It has the parameters and `details` of a StoreError; `bytes` and `expectedBytes` if the file lost its end.
    """


class StoreVersionError(StoreError):
    """The store was written by a newer duly.

    Parameters:
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
        found: the version of the store's schema; `found` in `details`.
        supported: the newest version that this duly reads; `supported` in `details`.
    """

    def __init__(self, store: str, found: int, supported: int) -> None:
        super().__init__(
            f"Store {store} has schema version {found}, this duly reads up to {supported}",
            store=store,
            hint="upgrade duly, or give this version a store of its own",
            found=found,
            supported=supported,
        )


class StoreSchemaError(StoreError):
    """A shared store has no tables of this version, and the role may not create them (SPEC 9.22).

    Parameters:
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
        problem: what is missing; part of the message.
        command: the command that helps, for a role that has the right; `command` in `details`.
        cause: the error of the database; `cause` in `details`.
    """

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
    """A shared store lost what a host had seen in it: a failover to a late replica, a restored backup (SPEC 9.21).

    Parameters:
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
        lost: what is not there any more: a host, or an entry of the log; `lost` in `details`.
    """

    def __init__(self, store: str, lost: str) -> None:
        super().__init__(
            f"Store {store} was set back: {lost} is not there any more",
            store=store,
            hint="what was lost may run twice; use synchronous replication to exclude that",
            lost=lost,
        )


class HostGoneError(StoreError):
    """A host of a shared store has no right to write any more: it was buried, or has left (SPEC 9.5).

    Parameters:
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
        host: the key of the host; `host` in `details`.
        how: `was buried` or `has left`; `how` in `details`.
    """

    def __init__(self, store: str, host: int, how: str) -> None:
        super().__init__(f"Host {host} of store {store} {how}", store=store, host=host, how=how)


class ForeignSetError(StoreError):
    """The declared tasks share no name with those of the hosts that are running (SPEC 9.14).

    Parameters:
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
    """

    def __init__(self, store: str) -> None:
        super().__init__(
            f"The declared tasks share no name with those in force in {store}",
            store=store,
            hint="two applications? give each its own schema, as in PostgresStore(url, schema=...)",
        )


class ClusterZoneError(StoreError):
    """Other hosts of a shared store run in another zone (SPEC 9.12).

    Parameters:
        store: the path of the store, or the name of a shared one without its password; `store` in `details`.
        zone: the zone of this host; `zone` in `details`.
        zone_in_force: the zone of the others; `zoneInForce` in `details`.
    """

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
    """The host's time zone cannot be determined, or has no name although a trace or a monitor needs one.

    Parameters:
        message: the reason.
        cause: why the zone cannot be determined; `cause` in `details`.
    """

    def __init__(self, message: str, *, cause: BaseException | None = None) -> None:
        known = {} if cause is None else {"cause": cause}
        hint = "set TZ to a zone name such as Europe/Berlin, or fix the system's setting"
        super().__init__(message, hint=hint, **known)


class TraceError(DulyError):
    """A trace cannot be judged, because it is not whole.

    Parameters:
        fault: `malformed`, `truncated`, `hash`, `reordered`, `mixed`, `version` or `registers`; `fault` in
            `details`.
        line: the line of the trace, from 1; `line` in `details`.
        reason: what is wrong there; `reason` in `details`.
        hint: what to do about it.
    """

    def __init__(self, fault: str, line: int, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"Line {line}: {reason}", hint=hint, fault=fault, line=line, reason=reason)


class UnsupportedPlatformError(DulyError):
    """duly runs on Linux and macOS.

    Parameters:
        platform: the platform that it was started on; `platform` in `details`.
    """

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
