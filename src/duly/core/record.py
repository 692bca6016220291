"""The persisted form of a task, read back into a state or refused with a typed error."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, overload

from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import LAST_INSTANT, MICROSECONDS, Delay, Instant, Minute
from duly.core.task import AwaitingRetry, AwaitingRun, Cause, Running, TaskState
from duly.errors import (
    InvalidCronExpressionError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
)

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
)
"""The fields of a record, in the order in which stores hand them over. `known_since` and instants are microseconds
since the epoch, `served_through` is a minute; a record is running exactly if `run` is set."""

_FIRST_INSTANT: Final = -62_135_596_800 * MICROSECONDS  # the year 1
_CAUSES: Final = frozenset(cause.value for cause in Cause)


class Stored(NamedTuple):
    """A task as the store knows it; whether a run that it calls running is alive, the store cannot know."""

    generation: int
    name: str
    expression: CronExpression
    delay: Delay
    state: TaskState
    run: int | None
    written_by: int


class Alike(NamedTuple):
    """Records that differ in nothing but their generation and name, as thousands do; the rest is said once."""

    generations: Sequence[Any]
    names: Sequence[Any]
    rest: Sequence[Any]  # FIELDS[2:]


class Records(Sequence[Sequence[Any]]):
    """Records as a store may hand them over: to everybody a sequence of rows, and kept as few that are alike."""

    def __init__(self, alike: Sequence[Alike]) -> None:
        self.alike = alike
        self._begins = [0, *accumulate(len(each.names) for each in alike)]

    def __len__(self) -> int:
        return self._begins[-1]

    @overload
    def __getitem__(self, index: int) -> Sequence[Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[Any]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        position = range(len(self))[index]  # as a list counts, and complains
        block = bisect_right(self._begins, position) - 1
        generations, names, rest = self.alike[block]
        within = position - self._begins[block]
        return (generations[within], names[within], *rest)

    def __iter__(self) -> Iterator[Sequence[Any]]:
        for generations, names, rest in self.alike:
            for generation, name in zip(generations, names, strict=True):
                yield (generation, name, *rest)


class Checked(NamedTuple):
    """Records that are alike, read: what all of them share, and who they are."""

    generations: Sequence[int]
    names: Sequence[str]
    expression: CronExpression
    delay: Delay
    state: TaskState
    run: int | None
    written_by: int


def read_records(rows: Iterable[Sequence[Any]]) -> Iterator[Stored]:
    """Check and convert rows, each a sequence of `FIELDS`; the first bad one is raised (SPEC 5.5)."""
    for generations, names, expression, delay, state, run, written_by in read_alike(rows):
        for generation, name in zip(generations, names, strict=True):
            yield Stored(generation, name, expression, delay, state, run, written_by)


def read_alike(rows: Iterable[Sequence[Any]]) -> Iterator[Checked]:
    """The same, as few that are alike at a time: what they share is checked once.

    States are values, so records that say the same share one, also when they do not follow each other.
    """
    seen: set[str] = set()
    expressions: dict[object, CronExpression] = {}
    states: dict[tuple[Any, ...], TaskState] = {}
    for generations, names, rest in rows.alike if isinstance(rows, Records) else _alike(rows):
        known = len(seen)
        if set(map(type, names)) == {str} and set(map(type, generations)) == {int} and "" not in names:
            seen.update(names)
        if len(seen) != known + len(names):
            raise _bad_identity(rows if isinstance(rows, Records) else ((generations[0], names[0]),), seen)
        name = names[0]
        cron, delay_ms, *said = rest
        expression = expressions.get(cron) if type(cron) is str else None
        if expression is None:
            expression = expressions[cron] = _expression(cron, name)
        if type(delay_ms) is not int or delay_ms < 0:
            raise _bad_number("delay_ms", delay_ms, name)
        run = said[8]
        shared = tuple(said)
        if run is not None:
            if type(run) is not int or run < 1:
                raise _bad_number("run", run, name)
            # It differs from task to task; what it says about the state is only that there is one.
            said[8] = "running"
        # Types are part of what is said: 1.0 and True equal 1, and duly writes neither.
        key = (*said, *map(type, shared))
        try:
            state = states.get(key)
        except TypeError:  # unhashable: nothing a store hands over, so let the checks name it
            state = None
        if state is None:
            state = states[key] = _state(shared, name)
        yield Checked(generations, names, expression, Delay(delay_ms), state, run, shared[11])


def _alike(rows: Iterable[Sequence[Any]]) -> Iterator[Alike]:
    for row in rows:
        if len(row) != len(FIELDS):
            raise TaskInvalidStructureError(tuple(row), f"expected {len(FIELDS)} fields, got {len(row)}")
        yield Alike(row[:1], row[1:2], row[2:])


def _state(rest: tuple[Any, ...], name: str) -> TaskState:
    known_since, served, attempt, success, failure, retry, failures, interruptions, run, cause, scheduled, writer = rest
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
    # A run that began after an interruption has dropped its retry and still counts the failures before it.
    if (failures == 0 or failure is None) if retry is not None else (failures > 0 and run is None):
        raise TaskInvalidStructureError(
            rest, "pending_retry_until, failures and last_failure_at contradict each other", task=name
        )
    if run is not None:
        _running_details(cause, scheduled, name)
        return Running(
            Minute(served),
            attempt,
            success,
            failure,
            pending_retry_until=retry,
            failures=failures,
            interruptions=interruptions,
        )
    if cause is not None or scheduled is not None:
        raise TaskInvalidStructureError(rest, "run_cause or run_scheduled of a run that is not there", task=name)
    if retry is not None:
        return AwaitingRetry(Minute(served), attempt, success, failure, Instant(retry), failures)
    return AwaitingRun(Minute(served), attempt, success, failure)


def _running_details(cause: object, scheduled: object, name: str) -> None:
    if cause is None:
        raise TaskMissingFieldError("run_cause", task=name)
    if type(cause) is not str:
        raise TaskInvalidTypeError("run_cause", cause, "str", task=name)
    if cause not in _CAUSES:
        raise TaskInvalidValueError("run_cause", cause, f"must be one of {', '.join(sorted(_CAUSES))}", task=name)
    _instant("run_scheduled", scheduled, name, required=True)


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


def _bad_identity(rows: Iterable[Sequence[Any]], seen: set[str]) -> Exception:
    """What is wrong with the first generation or name that cannot be; of a single row, whether it was seen before."""
    earlier = set() if isinstance(rows, Records) else seen
    for generation, name, *_ in rows:
        label = name if isinstance(name, str) else None
        if type(generation) is not int:
            return _bad_number("generation", generation, label or "")
        if name is None:
            return TaskMissingFieldError("name")
        if type(name) is not str:
            return TaskInvalidTypeError("name", name, "str")
        if not name or name in earlier:
            reason = "appears twice" if name else "must not be empty"
            return TaskInvalidValueError("name", name, reason, task=label)
        earlier.add(name)
    raise AssertionError("nothing is wrong with them")
