"""SPEC 10.3: a callable that can never do its work is refused at registration, with the remedy in the hint."""

import functools
import inspect
import sys
import time
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

import duly
from duly.core.registration import read_registrations, what_keeps_it_from_work
from duly.core.steps import finish

DELAY = timedelta(minutes=1)


@types.coroutine
def awaitable_generator() -> Generator[None, None, None]:
    """A generator that can be awaited."""
    yield


def refusal(callback: Any) -> duly.RegistrationShapeError:
    """The error with which a callback is refused."""
    with pytest.raises(duly.RegistrationShapeError) as caught:
        finish(read_registrations([("before", "* * * * *", print, DELAY), ("job", "* * * * *", callback, DELAY)]))
    assert caught.value.details["registrationIndex"] == 1
    assert caught.value.details["received"][2] is callback
    return caught.value


def generator() -> Generator[int, None, None]:
    yield 1


async def async_generator() -> AsyncGenerator[int, None]:
    yield 1


async def coroutine() -> None: ...


def plain() -> None: ...


def needs_one(first: int) -> None: ...


async def needs_two(first: int, second: int, third: int = 3) -> None: ...


def needs_a_keyword(*, urgent: bool, other: bool = True) -> None: ...


def needs_nothing(first: int = 1, *rest: int, other: int = 2, **more: int) -> None: ...


class Job:
    def __init__(self, name: str = "") -> None: ...

    def run(self) -> None: ...

    def steps(self) -> Generator[int, None, None]:
        yield 1

    def of(self, customer: str) -> None: ...

    @classmethod
    def made(cls) -> None: ...

    @staticmethod
    def static() -> None: ...


class NeedsName:
    def __init__(self, name: str) -> None: ...


class Call:
    def __call__(self) -> None: ...


class CallWithArgument:
    def __call__(self, customer: str) -> None: ...


class GeneratorCall:
    def __call__(self) -> Generator[int, None, None]:
        yield 1


class StaticCall:
    @staticmethod
    def __call__() -> None: ...


def decorated(function: Callable[..., object]) -> Callable[[], object]:
    """A decorator that brings the argument itself."""

    @functools.wraps(function)
    def wrapper() -> object:
        return function(1)

    return wrapper


@pytest.mark.parametrize(
    ("callback", "kind", "remedy"),
    [
        (generator, "generator is a generator function", "(for)"),
        (partial(generator), "generator is a generator function", "(for)"),
        (Job().steps, "Job.steps is a generator function", "(for)"),
        (GeneratorCall(), "(a GeneratorCall) is a generator function", "(for)"),
        (async_generator, "async_generator is an async generator function", "(async for)"),
        (partial(partial(async_generator)), "async_generator is an async generator function", "(async for)"),
    ],
)
def test_a_generator_function_is_refused(callback: Any, kind: str, remedy: str) -> None:
    """A call makes a generator and runs not one line: it would succeed for ever."""
    hint = refusal(callback).details["hint"]
    assert kind in hint
    assert "a call runs none of its code; remove the yield, or pass a function that iterates over it" in hint
    assert hint.endswith(remedy)


@pytest.mark.parametrize(
    ("callback", "problem"),
    [
        (needs_one, "needs_one needs the argument first, and is called without"),
        (needs_two, "needs_two needs the arguments first, second, and is called without"),
        (needs_a_keyword, "needs_a_keyword needs the argument urgent"),
        (lambda x: x, "<lambda> needs the argument x"),
        (partial(needs_two, 1), "needs_two needs the argument second"),
        (partial(needs_two, second=2), "needs_two needs the argument first"),
        (partial(partial(needs_two, third=1), 1), "needs_two needs the argument second"),
        (Job().of, "Job.of needs the argument customer"),
        (CallWithArgument(), "(a CallWithArgument) needs the argument customer"),
        (NeedsName, "NeedsName needs the argument name"),
        (open, "open needs the argument file"),
        (partial(decorated, needs_one).func, "decorated needs the argument function"),
    ],
)
def test_a_callable_that_needs_arguments_is_refused(callback: Any, problem: str) -> None:
    """It would fail at three in the morning; the hint says how to bind the arguments."""
    hint = refusal(callback).details["hint"]
    assert problem in hint
    assert "functools.partial(callback, " in hint


@pytest.mark.parametrize("method", ["run", "of"])
def test_a_method_of_a_class_without_its_object_is_refused(method: str) -> None:
    """`Job.run` where `Job().run` was meant, whatever else it needs."""
    problem = f"the callback Job.{method} is a method without its object: pass a bound one, such as thing.{method}"
    assert refusal(getattr(Job, method)).details["hint"] == f"registration 1: {problem}"


def test_a_function_whose_argument_is_called_self_is_no_method() -> None:
    """It was called one."""

    def greet(self: str) -> None: ...

    assert "greet needs the argument self" in refusal(greet).details["hint"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="functools.Placeholder is new in Python 3.14")
def test_a_place_that_a_partial_leaves_free_is_an_argument_that_is_needed() -> None:
    free = getattr(functools, "Placeholder")  # noqa: B009
    assert "needs the argument first" in refusal(partial(needs_two, free, 2)).details["hint"]
    assert "needs the argument obj" in refusal(partial(isinstance, free, int)).details["hint"]
    mock = Mock(spec=partial(needs_two, free, 2))  # it claims to be one, and has no arguments
    assert finish(read_registrations([("job", "* * * * *", mock, DELAY)])).names == ["job"]


@pytest.mark.parametrize("made", [coroutine, generator, async_generator])
def test_what_a_call_returned_is_refused_and_the_hint_names_the_function(made: Any) -> None:
    """`nightly()` where `nightly` was meant."""
    called = made()
    hint = refusal(called).details["hint"]
    assert hint.endswith(f"pass the function itself, without calling it: {made.__name__}, not {made.__name__}()")
    if isinstance(called, Coroutine):
        called.close()


class Untold:
    """A callable whose signature cannot be asked for."""

    @property
    def __signature__(self) -> inspect.Signature:
        raise RuntimeError("no")

    @property
    def __call__(self) -> Any:
        return print


@pytest.mark.parametrize(
    "callback",
    [
        plain, coroutine, needs_nothing, lambda: None, lambda x=1: x,
        partial(needs_two, 1, 2), partial(needs_two, first=1, second=2), partial(needs_a_keyword, urgent=True),
        partial(partial(needs_two, 1), 2), Job().run, Job.made, Job.static, Job, Call(), StaticCall(), partial(Call()),
        partial(CallWithArgument(), "a"), decorated(needs_one), awaitable_generator, Mock(), AsyncMock(),
        print, time.time, [].clear, dict, min, Untold(), functools.lru_cache(plain),
        functools.partialmethod(needs_two, 1).__get__(Job()),
    ],
)  # fmt: skip
def test_a_callable_that_can_do_its_work_is_accepted(callback: Any) -> None:
    """Also one that does not say what it needs; `min` would fail, and cannot be known to."""
    (registration,) = finish(read_registrations([("job", "* * * * *", callback, DELAY)])).singles()
    assert registration.callback is callback


def test_a_callable_is_examined_once_however_many_tasks_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million tasks have few callables."""
    from duly.core import registration

    examined: list[object] = []
    real = registration.what_keeps_it_from_work

    def counting(callback: Callable[[], object]) -> str | None:
        examined.append(callback)
        return real(callback)

    monkeypatch.setattr(registration, "what_keeps_it_from_work", counting)
    finish(read_registrations([(str(n), "* * * * *", (plain, coroutine)[n % 2], DELAY) for n in range(10_000)]))
    assert examined == [plain, coroutine]


bound: Any = partial
"""Unchecked: what does not fit is no type error here."""


class Careless:
    """Its author forgot self."""

    def nightly() -> None: ...  # type: ignore[misc]

    def __call__() -> None: ...  # type: ignore[misc]


careless: Any = Careless()


def by_position(first: int, /, second: int = 2) -> None: ...


def collects(*rest: int, **more: int) -> None: ...


def collects_and_needs(*rest: int, first: int) -> None: ...


def collects_names(first: int, /, **more: int) -> None: ...


@pytest.mark.parametrize(
    ("callback", "problem"),
    [
        (
            careless.nightly,
            "Careless.nightly takes no argument, but a method gets its object: add self, or make it static",
        ),
        (careless, "(a Careless) takes no argument, but a method gets its object"),
        (bound(Job().run, 1), "Job.run takes no argument by position, and is given 1: bind fewer"),
        (bound(needs_one, "a", "b"), "needs_one takes at most 1 argument by position, and is given 2: bind fewer"),
        (bound(bound(needs_one, "a"), "b"), "needs_one takes at most 1 argument by position, and is given 2"),
        (bound(NeedsName, 1, 2), "NeedsName takes at most 1 argument by position, and is given 2"),
        (bound([].clear, 1), "list.clear takes no argument by position, and is given 1"),
        (bound(coroutine, z=1), "coroutine has no parameter z: bind only those that it has"),
        (bound(needs_one, 1, z=1), "needs_one has no parameter z: bind only those that it has"),
        (bound(NeedsName, "a", z=1), "NeedsName has no parameter z: bind only those that it has"),
        (bound(needs_one, 1, first=1), "needs_one is given first by position and by name: bind it once"),
        (bound(len, obj=[]), "len takes obj by position only: bind with functools.partial(callback, ...)"),
        (bound(by_position, first=1), "by_position takes first by position only: bind with functools.partial(callba"),
    ],
)
def test_a_callable_that_is_given_what_it_does_not_take_is_refused(callback: Any, problem: str) -> None:
    """Each of its runs would fail."""
    assert problem in refusal(callback).details["hint"]
    with pytest.raises(TypeError):
        callback()


@pytest.mark.parametrize("callback", [len, by_position, lambda first, /: first, bound(collects_names, first=1)])
def test_an_argument_that_has_no_name_outside_is_bound_by_position(callback: Any) -> None:
    """The hint said `functools.partial(callback, obj=...)`, which fails as well."""
    hint = refusal(callback).details["hint"]
    assert hint.endswith("and is called without: bind with functools.partial(callback, ...)")


class Proxy:
    """A wrapper that shows the signature of what it wraps, and passes an argument of its own."""

    __signature__ = inspect.signature(needs_one)

    @staticmethod
    def __call__(first: int = 1) -> None: ...


class Transparent:
    """A proxy that says it is the function that it wraps, and passes an argument of its own."""

    __code__ = needs_one.__code__
    __defaults__ = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """As proxies of wrapt have it."""
        return types.FunctionType

    def __call__(self) -> None:
        return needs_one(1)


class AddsOne(partial[None]):
    """A partial whose call does something else."""

    def __call__(self, *args: Any, **keywords: Any) -> None:
        return self.func(1)


@pytest.mark.parametrize(
    "callback",
    [
        bound(collects, 1, 2, z=3), bound(needs_nothing, 1, 2, other=3, z=4), bound(min, 1, 2),
        bound(collects_names, 1, first=1), bound(Mock(), 1, z=2),
        bound(needs_two, 1, second=2, third=3), bound(by_position, 1, second=3), bound([].append, 1), Proxy(),
        bound(Proxy(), 1), AddsOne(needs_one), AddsOne(needs_one, 1, 2), bound(print, "a", end=""),
        types.MethodType(bound(needs_two, 1), 2), types.MethodType(print, "a"), bound(functools.lru_cache(plain)),
        bound(dict, a=1), type("Made", (), {}), Transparent(),
        Mock(spec=plain), MagicMock(spec=plain), AsyncMock(spec=coroutine), Mock(spec=Job().run),
    ],
)  # fmt: skip
def test_a_callable_that_takes_what_it_is_given_is_accepted(callback: Any) -> None:
    """Nothing is refused that can work: each is called here."""
    finish(read_registrations([("job", "* * * * *", callback, DELAY)]))
    made = callback()
    if isinstance(made, Coroutine):
        made.close()


def test_what_is_refused_for_its_arguments_is_what_no_call_can_bind() -> None:
    """The quick look at the code of a function, the close one, and Python agree."""
    functions: list[Any] = [plain, needs_one, needs_two, needs_a_keyword, needs_nothing, by_position, collects]
    functions += [
        collects_and_needs,
        collects_names,
        Job().run,
        Job().of,
        Call(),
        CallWithArgument(),
        NeedsName,
        lambda x, /, y: x,
    ]
    names: list[dict[str, int]] = [{}, {"first": 1}, {"second": 1}, {"urgent": True}, {"z": 1}, {"second": 1, "z": 1}]
    for function in functions:
        for given in range(4):
            for named in names:
                callback = partial(function, *range(given), **named) if given or named else function
                problem = what_keeps_it_from_work(callback)
                try:
                    inspect.signature(function).bind(*range(given), **named)
                except TypeError:
                    assert problem is not None, callback
                else:
                    assert problem is None, callback
