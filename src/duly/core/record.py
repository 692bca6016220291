"""Rows of a store to tasks and their states, or a typed error."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import LAST_INSTANT, MICROSECONDS, Delay, Instant, Minute
from duly.core.names import Names
from duly.core.task import AwaitingRetry, AwaitingRun, Cause, Obligation, Running, TaskState
from duly.errors import (
    InvalidCronExpressionError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
)

T = TypeVar("T")

FIELDS: Final = (
    "generation",
    "name",
    "cron",
    "delay_ms",
    "known_since",
    "served_through",
    "last_attempt_at",
    "last_success_at",
    "last_failure_at",
    "pending_retry_until",
    "failures",
    "interruptions",
    "run",
    "run_cause",
    "run_scheduled",
    "written_by",
    "first_started_at",
    "first_scheduled",
    "attempt",
)
"""The fields of a row, in the order in which stores return them. `known_since` and instants are microseconds since the
epoch, `served_through` is a minute; a task is running if and only if `run` is set.

The last three are the obligation that a pending retry or the present run repeats, None where there is no such thing: a
run of cause cron begins its obligation."""

_FIRST_INSTANT: Final = -62_135_596_800 * MICROSECONDS  # the year 1
_CAUSES: Final = frozenset(cause.value for cause in Cause)


class StoredTask(NamedTuple):
    """A task as the store has it; the store cannot know whether a run that it calls running is alive."""

    generation: int
    name: str
    expression: CronExpression
    delay: Delay
    state: TaskState
    run: int | None
    written_by: int


class EqualRows(NamedTuple):
    """Rows that are equal but for their generations and names, as those of thousands of tasks are."""

    generations: Sequence[Any]
    names: Sequence[Any]
    rest: Sequence[Any]  # FIELDS[2:], the same for all

    @classmethod
    def single(cls, row: Sequence[Any]) -> "EqualRows":
        """One row as a block of its own."""
        return cls(row[:1], row[1:2], row[2:])

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows one by one, each a sequence of `FIELDS`."""
        for generation, name in zip(self.generations, self.names, strict=True):
            yield (generation, name, *self.rest)


class EqualTasks(NamedTuple):
    """Tasks read from equal rows: what they share, and their generations and names."""

    generations: Sequence[int]
    names: Sequence[str]
    expression: CronExpression
    delay: Delay
    state: TaskState
    run: int | None
    written_by: int


def read_records(rows: Iterable[Sequence[Any]]) -> Iterator[StoredTask]:
    """Check and convert rows, each a sequence of `FIELDS`; the first bad one is raised (SPEC 5.5)."""
    names: set[str] = set()
    reader = _Reader()
    for row in rows:
        if len(row) != len(FIELDS):
            raise TaskInvalidStructureError(tuple(row), f"expected {len(FIELDS)} fields, got {len(row)}")
        generation, name = row[:2]
        if (fault := _bad_identity(generation, name, names)) is not None:
            raise fault
        names.add(name)
        yield StoredTask(generation, name, *reader.read(row[2:], name))


def read_equal(blocks: Sequence[EqualRows]) -> Iterator[EqualTasks]:
    """Check and convert rows block by block, so that a million equal ones cost a few checks (SPEC 5.5).

    The first bad row is raised, with the error that `read_records` raises for it.
    """
    return (tasks for tasks, _ in read_found(blocks, lambda _: None))


def read_found(
    blocks: Sequence[EqualRows], find: Callable[[EqualRows], T | None]
) -> Iterator[tuple[EqualTasks, T | None]]:
    """As `read_equal`, each block with what `find` has found for it: registrations with these names, or None.

    No registration is found twice, so names that were found are good and differ from each other. All other names are
    checked here; the caller checks that none of them is among those that were found.
    """
    others = Names()
    reader = _Reader()
    for block in blocks:
        found = find(block)
        names_are_good = found is not None or (
            set(map(type, block.names)) == {str} and "" not in block.names and others.add_new(block.names)
        )
        # Every item of a range is an int.
        if not names_are_good or not (type(block.generations) is range or set(map(type, block.generations)) == {int}):
            raise _first_bad_identity(blocks)
        yield EqualTasks(block.generations, block.names, *reader.read(block.rest, block.names[0])), found


class _Reader:
    """Reads what follows generation and name in a row; rows that say the same share one expression and one state."""

    def __init__(self) -> None:
        self._expressions: dict[object, CronExpression] = {}
        self._states: dict[tuple[Any, ...], TaskState] = {}

    def read(self, rest: Sequence[Any], name: str) -> tuple[CronExpression, Delay, TaskState, int | None, int]:
        """Check `FIELDS[2:]`; `name` is for the error."""
        cron, delay_ms, *fields = rest
        expression = self._expressions.get(cron) if type(cron) is str else None
        if expression is None:
            expression = self._expressions[cron] = _expression(cron, name)
        if type(delay_ms) is not int or delay_ms < 0:
            raise _bad_number("delay_ms", delay_ms, name)
        run = fields[8]
        shared = tuple(fields)
        if run is not None:
            if type(run) is not int or run < 1:
                raise _bad_number("run", run, name)
            # The number differs from task to task; to the state it only matters that there is one.
            fields[8] = "running"
        # Types are part of the key: 1.0 and True equal 1, and duly writes neither.
        key = (*fields, *map(type, shared))
        try:
            state = self._states.get(key)
        except TypeError:  # unhashable: no store returns such a value, so let the checks name it
            state = None
        if state is None:
            state = self._states[key] = _state(shared, name)
        return expression, Delay(delay_ms), state, run, shared[11]


def _state(rest: tuple[Any, ...], name: str) -> TaskState:
    known_since, served, attempt, success, failure, retry, failures, interruptions, *about_run = rest
    run, cause, scheduled, writer, *repeated = about_run
    _instant("known_since", known_since, name, required=True)
    _whole("served_through", served, name, lowest=_FIRST_INSTANT // MICROSECONDS)
    if served > LAST_INSTANT // MICROSECONDS:
        raise TaskInvalidValueError("served_through", served, "lies beyond the year 9999", task=name)
    _instant("last_attempt_at", attempt, name)
    _instant("last_success_at", success, name)
    _instant("last_failure_at", failure, name)
    _instant("pending_retry_until", retry, name)
    _whole("failures", failures, name)
    _whole("interruptions", interruptions, name)
    _whole("written_by", writer, name, lowest=1)
    if attempt is None and not (success is None and failure is None and run is None):
        raise TaskInvalidStructureError(rest, "a task that never started has an outcome or a run", task=name)
    # A run that began after an interruption has no retry any more, and still counts the failures before it.
    if (failures == 0 or failure is None) if retry is not None else (failures > 0 and run is None):
        raise TaskInvalidStructureError(
            rest, "pending_retry_until, failures and last_failure_at contradict each other", task=name
        )
    if run is not None:
        _running_details(cause, scheduled, name)
    begins = cause == Cause.CRON.value
    if (begins or (run is None and retry is None)) and repeated != [None, None, None]:
        raise TaskInvalidStructureError(rest, "an obligation is repeated that nothing repeats", task=name)
    if run is not None:
        return Running(
            Minute(served),
            attempt,
            success,
            failure,
            pending_retry_until=retry,
            failures=failures,
            interruptions=interruptions,
            obligation=Obligation(attempt, scheduled, 1) if begins else _obligation(repeated, name),
        )
    if cause is not None or scheduled is not None:
        raise TaskInvalidStructureError(rest, "run_cause or run_scheduled of a run that is not there", task=name)
    if retry is not None:
        return AwaitingRetry(
            Minute(served), attempt, success, failure, Instant(retry), failures, _obligation(repeated, name)
        )
    return AwaitingRun(Minute(served), attempt, success, failure)


def _running_details(cause: object, scheduled: object, name: str) -> None:
    if cause is None:
        raise TaskMissingFieldError("run_cause", task=name)
    if type(cause) is not str:
        raise TaskInvalidTypeError("run_cause", cause, "str", task=name)
    if cause not in _CAUSES:
        raise TaskInvalidValueError("run_cause", cause, f"must be one of {', '.join(sorted(_CAUSES))}", task=name)
    _instant("run_scheduled", scheduled, name, required=True)


def _obligation(fields: Sequence[Any], name: str) -> Obligation:
    first_started_at, scheduled, attempt = fields
    _instant("first_started_at", first_started_at, name, required=True)
    _instant("first_scheduled", scheduled, name, required=True)
    _whole("attempt", attempt, name, lowest=1)
    return Obligation(first_started_at, scheduled, attempt)


def _expression(cron: object, name: str) -> CronExpression:
    if cron is None:
        raise TaskMissingFieldError("cron", task=name)
    if type(cron) is not str:
        raise TaskInvalidTypeError("cron", cron, "str", task=name)
    try:
        return parse_cron(cron)
    except InvalidCronExpressionError as cause:
        raise TaskInvalidValueError("cron", cron, cause.message, task=name) from cause


def _whole(field: str, value: object, name: str, *, lowest: int = 0) -> None:
    if type(value) is not int or value < lowest:
        raise _bad_number(field, value, name)


def _instant(field: str, value: object, name: str, *, required: bool = False) -> None:
    if value is None and not required:
        return
    if type(value) is not int:
        raise _bad_number(field, value, name)
    if not _FIRST_INSTANT <= value <= LAST_INSTANT + 60 * MICROSECONDS:
        raise TaskInvalidValueError(field, value, "lies outside the years 1 to 9999", task=name)


def _bad_number(field: str, value: object, name: str) -> Exception:
    if value is None:
        return TaskMissingFieldError(field, task=name)
    if type(value) is not int:
        return TaskInvalidTypeError(field, value, "int", task=name)
    return TaskInvalidValueError(field, value, "is too small", task=name)


def _first_bad_identity(blocks: Iterable[EqualRows]) -> Exception:
    """The error of the first generation or name, in the order of the rows, that cannot be."""
    earlier: set[str] = set()
    for block in blocks:
        for generation, name, *_ in block.rows():
            if (fault := _bad_identity(generation, name, earlier)) is not None:
                return fault
            earlier.add(name)
    raise AssertionError("every generation and name is good")


def _bad_identity(generation: object, name: object, earlier: set[str]) -> Exception | None:
    if type(generation) is not int:
        return _bad_number("generation", generation, name if isinstance(name, str) else "")
    if name is None:
        return TaskMissingFieldError("name")
    if type(name) is not str:
        return TaskInvalidTypeError("name", name, "str")
    if not name or name in earlier:
        return TaskInvalidValueError("name", name, "appears twice" if name else "must not be empty", task=name)
    return None
