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
from unittest.mock import AsyncMock, Mock

import pytest

import duly
from duly.core.registration import read_registrations
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


def test_a_method_of_a_class_without_its_object_is_refused() -> None:
    """`Job.run` where `Job().run` was meant."""
    assert refusal(Job.run).details["hint"] == (
        "registration 1: the callback Job.run is a method without its object: pass a bound one, such as thing.run"
    )


@pytest.mark.skipif(sys.version_info < (3, 14), reason="functools.Placeholder is new in Python 3.14")
def test_a_place_that_a_partial_leaves_free_is_an_argument_that_is_needed() -> None:
    free = getattr(functools, "Placeholder")  # noqa: B009
    assert "needs the argument first" in refusal(partial(needs_two, free, 2)).details["hint"]


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
        functools.partialmethod(needs_one, 1).__get__(Job()),
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


def test_quick_and_thorough_ways_to_find_missing_arguments_agree() -> None:
    """The quick one reads the code of a function; `inspect.signature` is thirty times as slow."""
    from duly.core.registration import _missing_by_signature, what_keeps_it_from_work

    functions: list[Any] = [plain, coroutine, needs_one, needs_two, needs_a_keyword, needs_nothing, Job().run, Job().of]
    functions += [Call(), CallWithArgument(), partial(needs_two, 1), partial(needs_two, second=1), lambda x, /, y: x]
    for each in functions:
        missing, problem = _missing_by_signature(each), what_keeps_it_from_work(each)
        assert (problem is None) == (missing == [])
        assert problem is None or f" {', '.join(missing)}, and is called without" in problem
