"""Raw tuples to checked registrations, or the first error."""

import functools
import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import timedelta
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import Delay, delay_of
from duly.core.names import Names
from duly.core.steps import STEP_TASKS, Steps
from duly.errors import (
    CronExpressionInvalidError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
)
from duly.text import plain

Callback = Callable[[], Any]


class RunsOn(Enum):
    """Where a callback runs: a coroutine function on the event loop, anything else in a worker thread."""

    LOOP = "loop"
    THREAD = "thread"

    if not TYPE_CHECKING:  # which would call it another type than Enum's
        __hash__ = object.__hash__  # by identity: asked for every task, and Enum's own is written in Python


class Registration(NamedTuple):
    """One checked item of what initialize() was given."""

    name: str
    expression: CronExpression
    callback: Callback
    runs_on: RunsOn
    delay: Delay


class Registrations:
    """Checked registrations in columns: a million objects fewer for the garbage collector to visit."""

    known: Names

    __slots__ = ("callbacks", "delays", "expressions", "known", "names", "runs_on")

    def __init__(self, registrations: Iterable[Registration] = ()) -> None:
        self.known = Names()
        """The names again, to ask whether one is declared."""
        self.names: list[str] = []
        self.expressions: list[CronExpression] = []
        self.callbacks: list[Callback] = []
        self.runs_on: list[RunsOn] = []
        self.delays: list[Delay] = []
        self.extend(*zip(*registrations, strict=True))
        for name in self.names:
            self.known.add(name)

    def extend(
        self,
        names: Iterable[str] = (),
        expressions: Iterable[CronExpression] = (),
        callbacks: Iterable[Callback] = (),
        runs_on: Iterable[RunsOn] = (),
        delays: Iterable[Delay] = (),
    ) -> None:
        """Append registrations, given as columns; their names are in `known` already."""
        self.names.extend(names)
        self.expressions.extend(expressions)
        self.callbacks.extend(callbacks)
        self.runs_on.extend(runs_on)
        self.delays.extend(delays)

    @property
    def count(self) -> int:
        """How many registrations there are."""
        return len(self.names)

    def single(self, index: int) -> Registration:
        """The registration at an index."""
        return Registration(
            self.names[index], self.expressions[index], self.callbacks[index], self.runs_on[index], self.delays[index]
        )

    def singles(self) -> Iterator[Registration]:
        """The registrations one by one, in order."""
        return map(Registration, self.names, self.expressions, self.callbacks, self.runs_on, self.delays)


def snapshot(registrations: object) -> Sequence[object]:
    """A copy of the registrations, so that the caller may change its list afterwards."""
    if not isinstance(registrations, list | tuple):
        raise RegistrationsNotArrayError(registrations)
    return tuple(registrations)


def read_registrations(items: Sequence[object]) -> Steps[Registrations]:
    """Check items left to right, each completely before the next; the first failure is raised (SPEC 1.4)."""
    if len(items) == 4 and isinstance(items[0], str) and isinstance(items[1], str):
        problem = "this is one registration, not a list of them: write [(name, cron, callback, retry delay)]"
        raise RegistrationShapeError(0, items[0], problem)
    reader = _Reader()
    for begin in range(0, len(items), STEP_TASKS):
        some = items[begin : begin + STEP_TASKS]
        if not reader.take_together(some):
            for index, item in enumerate(some, begin):
                reader.take(index, item)
        yield
    return reader.checked


class _Reader:
    """The registrations read so far, and what they had.

    A million tasks have a million names, but few expressions, delays and callbacks: each of those is checked once.
    """

    def __init__(self) -> None:
        self.checked = Registrations()
        self._expressions: dict[str, CronExpression] = {}
        self._delays: dict[timedelta, Delay] = {}
        self._runs_on: dict[int, RunsOn] = {}

    def take(self, index: int, item: object) -> None:
        """Check one item in every respect."""
        name, cron, callback, delay = _fields(index, item)
        # By identity, because callbacks need not be hashable; `checked` keeps them alive meanwhile.
        runs_on = self._runs_on.get(id(callback))
        if runs_on is None:
            if (problem := what_keeps_it_from_work(callback)) is not None:
                raise RegistrationShapeError(index, item, problem)
            runs_on = self._runs_on[id(callback)] = where_it_runs(callback)
        if not name or "\0" in name or not _encodable(name):
            raise InvalidRegistrationError(index, "name", name, _what_is_wrong_with(name))
        if not self.checked.known.add_new((name,)):
            raise ScheduleDuplicateTaskError(index, name)
        expression = self._expressions.get(cron)
        if expression is None:
            try:
                expression = self._expressions[cron] = parse_cron(cron)
            except InvalidCronExpressionError as cause:
                raise CronExpressionInvalidError(index, name, cause) from cause
        milliseconds = delay_of(delay)
        if milliseconds < 0:
            raise NegativeRetryDelayError(index, name, milliseconds)
        if type(delay) is timedelta:
            self._delays[delay] = milliseconds
        self.checked.extend((name,), (expression,), (callback,), (runs_on,), (milliseconds,))

    def take_together(self, items: Sequence[Any]) -> bool:
        """Check items column by column; False, and nothing is taken, if any item needs the check of `take`.

        It is enough for items with a good new name, and expression, callback and delay of earlier ones: nearly all of a
        million are such. Columns are checked in a fraction of the time.
        """
        if set(map(type, items)) != {tuple} or set(map(len, items)) != {4}:
            return False
        names, crons, callbacks, delays = zip(*items, strict=True)
        if not set(map(type, names)) == {str} == set(map(type, crons)) or set(map(type, delays)) != {timedelta}:
            return False
        text = "".join(names)
        if not all(names) or "\0" in text or not _encodable(text):
            return False
        try:
            expressions = [*map(self._expressions.__getitem__, crons)]
            runs_on = [*map(self._runs_on.__getitem__, map(id, callbacks))]
            milliseconds = [*map(self._delays.__getitem__, delays)]
        except KeyError:
            return False
        if not self.checked.known.add_new(names):
            return False
        self.checked.extend(names, expressions, callbacks, runs_on, milliseconds)
        return True


def where_it_runs(callback: Callback) -> RunsOn:
    """On the loop if calling it makes a coroutine; sees through partials, bound methods and `async __call__`."""
    inner: object = callback
    while _is_partial(inner):
        inner = inner.func
    call = type(inner).__call__ if callable(inner) else None
    return RunsOn.LOOP if _makes_a_coroutine(inner) or _makes_a_coroutine(call) else RunsOn.THREAD


def _makes_a_coroutine(function: object) -> bool:
    try:
        return inspect.iscoroutinefunction(function)
    except TypeError:  # it claims to be a function, and its code is none: Mock(spec=function)
        return False


def _is_partial(callback: object) -> TypeGuard[partial[Any]]:
    """Whether it really is one: isinstance() believes a proxy or a mock that claims to be."""
    return isinstance(callback, partial) and type(callback).__call__ is partial.__call__


# --- callables that can never do their work --------------------------------------------------------------------------


def what_keeps_it_from_work(callback: Callback) -> str | None:
    """Why a call of the callback, without arguments, can never run its code, and what to do about it; else None.

    A callable that does not say what it takes, as some that are written in C, is accepted (SPEC 10.3).
    """
    inner: Any = callback
    given, named, objects = 0, set[str](), 0  # arguments that partials hold, and objects that methods bring
    while True:
        if _is_partial(inner):
            given, named, inner = given + len(inner.args), named | inner.keywords.keys(), inner.func
        elif type(inner) is MethodType:
            objects, inner = objects + 1, inner.__func__
        else:
            break
    function: object = inner
    if type(inner) is not FunctionType:  # isinstance() would believe a proxy or a mock that claims to be one
        calls = (kind.__dict__["__call__"] for kind in type(inner).__mro__ if "__call__" in kind.__dict__)
        function = next(calls, None)
    takes = None
    if type(function) is FunctionType:
        flags = function.__code__.co_flags
        if flags & inspect.CO_ASYNC_GENERATOR:
            return f"{_called(inner)} is an async generator function: {_RUNS_NOTHING.format('async for')}"
        # A coroutine function that is made of a generator has both flags.
        if flags & inspect.CO_GENERATOR and not flags & inspect.CO_ITERABLE_COROUTINE:
            return f"{_called(inner)} is a generator function: {_RUNS_NOTHING.format('for')}"
    if _has_placeholder(callback):
        takes, given, named, objects = _taken_by_signature(callback), 0, set(), 0
    elif type(function) is FunctionType:
        objects += function is not inner
        takes = None if _certainly_takes(function, given + objects, named) else _taken_by(function)
    elif isinstance(function, WrapperDescriptorType):
        takes = _taken_by_signature(inner)
    return None if takes is None else _misfit(inner, takes, given, named, objects)


_RUNS_NOTHING: Final = "a call runs none of its code; remove the yield, or pass a function that iterates over it ({})"


def _called(inner: object) -> str:
    name = getattr(inner, "__qualname__", None)
    return f"the callback {plain(name)}" if isinstance(name, str) else f"the callback (a {type(inner).__name__})"


class _Takes(NamedTuple):
    """The arguments that a callable takes."""

    by_position: Sequence[str]
    only_by_position: int
    """The number of these that cannot be given by name; they come first."""
    required: int
    """The number of these that have no default; they come first."""
    only_by_name: Sequence[str]
    optional: Container[str]
    """Names among `only_by_name` that have a default."""
    more_by_position: bool
    more_by_name: bool


def _certainly_takes(function: FunctionType, given: int, named: set[str]) -> bool:
    """Whether a function takes the arguments of a call; False if `_misfit` has to look closer.

    In a third of its time: a million tasks may have a million lambdas or partials.
    """
    code = function.__code__
    required = code.co_argcount - len(function.__defaults__ or ())
    if code.co_kwonlyargcount or not required <= given + len(named) <= code.co_argcount:
        return False
    if not named:
        return True
    names = code.co_varnames[: code.co_argcount]
    return named.issuperset(names[given:required]) and named.issubset(names[max(given, code.co_posonlyargcount) :])


def _misfit(inner: Any, takes: _Takes, given: int, named: set[str], objects: int) -> str | None:
    """The fault in the arguments of a call, and what to do about it; None if the callable takes them."""
    total = given + objects
    if total > len(takes.by_position) and not takes.more_by_position:
        if not given:
            return f"{_called(inner)} takes no argument, but a method gets its object: add self, or make it static"
        most = max(0, len(takes.by_position) - objects)
        taken = f"takes {f'at most {most}' if most else 'no'} argument{'s' if most > 1 else ''} by position"
        return f"{_called(inner)} {taken}, and is given {given}: bind fewer with functools.partial"
    only_by_position = takes.by_position[: takes.only_by_position]
    by_either = takes.by_position[takes.only_by_position :]
    if twice := named.intersection(takes.by_position[takes.only_by_position : total]):
        return f"{_called(inner)} is given {', '.join(sorted(twice))} by position and by name: bind it once"
    if not takes.more_by_name and (unknown := named.difference(by_either, takes.only_by_name)):
        if places := ["..." for name in only_by_position if name in unknown]:
            wanted = f"takes {', '.join(sorted(unknown.intersection(only_by_position)))} by position only"
            return f"{_called(inner)} {wanted}: bind with functools.partial(callback, {', '.join(places)})"
        return f"{_called(inner)} has no parameter {', '.join(sorted(unknown))}: bind only those that it has"
    return _missing(inner, takes, total, named)


def _missing(inner: Any, takes: _Takes, given: int, named: set[str]) -> str | None:
    """The arguments that a call lacks, and how to bind them; None if it lacks none."""
    places = dict(enumerate(takes.by_position[: takes.required]))
    missing = {name: "..." for n, name in places.items() if given <= n < takes.only_by_position}
    others = [name for n, name in places.items() if n >= max(given, takes.only_by_position)]
    others += [name for name in takes.only_by_name if name not in takes.optional]
    missing |= {name: f"{name}=..." for name in others if name not in named}
    if not missing:
        return None
    if next(iter(missing)) == "self" and _is_in_a_class(inner):
        return f"{_called(inner)} is a method without its object: pass a bound one, such as thing.{inner.__name__}"
    wanted = f"the argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    values = ", ".join(missing.values())
    return f"{_called(inner)} needs {wanted}, and is called without: bind with functools.partial(callback, {values})"


def _is_in_a_class(function: Any) -> bool:
    """Whether a function was defined in the body of a class, by its qualified name."""
    outside = getattr(function, "__qualname__", "").rpartition(".")[0]
    return bool(outside) and not outside.endswith("<locals>")


def _taken_by(function: FunctionType) -> _Takes:
    """The arguments of a Python function, as `_taken_by_signature` finds them more slowly."""
    code = function.__code__
    positional = code.co_argcount
    return _Takes(
        code.co_varnames[:positional],
        code.co_posonlyargcount,
        positional - len(function.__defaults__ or ()),
        code.co_varnames[positional : positional + code.co_kwonlyargcount],
        function.__kwdefaults__ or (),
        bool(code.co_flags & inspect.CO_VARARGS),
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
    )


def _taken_by_signature(inner: Any) -> _Takes | None:
    """The arguments of any callable; None if they cannot be found out, or are no more than a claim.

    A decorator may pass arguments of its own. So this is neither the signature of a function that another one wraps,
    nor one that was put in place of its own.
    """
    try:
        if type(inner) is not BuiltinFunctionType and inspect.getattr_static(inner, "__signature__", None) is not None:
            return None
        parameters = inspect.signature(inner, follow_wrapped=False).parameters.values()
    except Exception:
        return None
    kinds = {each.name: each.kind for each in parameters}
    needed = {each.name for each in parameters if each.default is inspect.Parameter.empty}
    by_position = [name for name, kind in kinds.items() if kind in _BY_POSITION]
    only_by_name = [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    return _Takes(
        by_position,
        sum(kind is inspect.Parameter.POSITIONAL_ONLY for kind in kinds.values()),
        sum(name in needed for name in by_position),
        only_by_name,
        [name for name in only_by_name if name not in needed],
        inspect.Parameter.VAR_POSITIONAL in kinds.values(),
        inspect.Parameter.VAR_KEYWORD in kinds.values(),
    )


_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _has_placeholder(callback: Callback) -> bool:
    """Whether a partial leaves a place free between its arguments, as is possible since Python 3.14."""
    free = getattr(functools, "Placeholder", None)
    while _is_partial(callback):
        if free is not None and any(each is free for each in callback.args):
            return True
        callback = callback.func
    return False


# --- shapes ----------------------------------------------------------------------------------------------------------


def _fields(index: int, item: object) -> tuple[str, str, Callback, timedelta]:
    if not isinstance(item, list | tuple):
        raise RegistrationShapeError(index, item, f"expected a tuple of four, got {type(item).__name__}")
    if len(item) != 4:
        expected = "write (name, cron, callback, retry delay)"
        raise RegistrationShapeError(index, item, f"expected four items, got {len(item)}: {expected}")
    name, cron, callback, delay = item
    if not isinstance(name, str):
        raise RegistrationShapeError(index, item, f"the name must be a str, got {type(name).__name__}")
    if not isinstance(cron, str):
        raise RegistrationShapeError(index, item, f"the cron expression must be a str, got {type(cron).__name__}")
    if not callable(callback):
        raise RegistrationShapeError(index, item, _not_callable(callback))
    if not isinstance(delay, timedelta):
        raise RegistrationShapeError(index, item, _not_a_delay(delay))
    # A str that is an enum member is stored and compared as its text.
    return str.__str__(name), str.__str__(cron), callback, delay


def _not_callable(value: object) -> str:
    problem = f"the callback must be callable, got {type(value).__name__}"
    if inspect.iscoroutine(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        name = plain(value.__name__)
        problem += f": pass the function itself, without calling it: {name}, not {name}()"
    return problem


def _not_a_delay(value: object) -> str:
    problem = f"the retry delay must be a timedelta, got {type(value).__name__}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        problem += f": write timedelta(seconds={value!r})"
    return problem


def _encodable(name: str) -> bool:
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _what_is_wrong_with(name: str) -> str:
    if not name:
        return "must not be empty"
    if "\0" in name:
        return "must not contain NUL"
    return "must not contain lone surrogates"
