"""Raw tuples to registrations: every check, in its order, with its error and its details."""

import inspect
import sys
from collections import UserList, UserString, deque
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.registration import Registration, RunsOn, read_registrations, snapshot, where_it_runs
from duly.core.steps import finish
from duly.errors import (
    CronExpressionInvalidError,
    DulyError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
)
from tests.core.helpers import in_a_thread, on_the_loop

DELAY = timedelta(minutes=5)


def read(*items: object) -> list[Registration]:
    return list(finish(read_registrations(snapshot(list(items)))).singles())


def good(**changes: object) -> tuple[object, ...]:
    """A correct registration, with changes by name."""
    parts: dict[str, object] = {"name": "a", "cron": "* * * * *", "callback": on_the_loop, "delay": DELAY, **changes}
    return tuple(parts.values())


# --- the outer collection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "received",
    [
        None,
        "abcd",
        b"abcd",
        {},
        {"a": 1},
        set(),
        5,
        (letter for letter in "ab"),
        range(0),
        deque[object](),
        UserList[object](),
    ],
    ids=lambda received: type(received).__name__,
)
def test_the_outer_collection_is_a_list_or_tuple(received: object) -> None:
    """SPEC 1.2: a str, dict, None, generator … is RegistrationsNotArrayError, with the text of 000."""
    with pytest.raises(RegistrationsNotArrayError) as caught:
        snapshot(received)
    assert caught.value.message == "Registrations must be an array"
    assert set(caught.value.details) == {"hint"}
    assert type(received).__name__ in caught.value.details["hint"]
    assert str(caught.value) == f"Registrations must be an array: {caught.value.details['hint']}"


@pytest.mark.parametrize("empty", [[], ()])
def test_an_empty_collection_is_legal(empty: object) -> None:
    """SPEC 4.4: no registrations is a declaration, too."""
    assert list(finish(read_registrations(snapshot(empty))).singles()) == []


def test_what_the_caller_does_to_its_list_later_changes_nothing() -> None:
    """Architecture: a large initialize is validated on a snapshot."""
    registrations: list[object] = [good()]
    taken = snapshot(registrations)
    registrations.clear()
    assert [each.name for each in finish(read_registrations(taken)).singles()] == ["a"]


# --- one item --------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A registration with names for its parts."""

    name: str
    cron: str
    callback: Callable[[], object]
    delay: timedelta


@pytest.mark.parametrize("item", [good(), list(good()), Pair("a", "* * * * *", on_the_loop, DELAY)])
def test_a_registration_is_a_tuple_or_list_of_four(item: object) -> None:
    """SPEC 1.2: name, cron, callback, retry delay."""
    (registration,) = read(item)
    assert registration.name == "a"
    assert registration.expression.text == "* * * * *"
    assert registration.callback is on_the_loop
    assert registration.runs_on is RunsOn.LOOP
    assert registration.delay == 300_000


@pytest.mark.parametrize(
    ("item", "hint"),
    [
        (None, "NoneType"),
        ("abcd", "str"),
        (b"abcd", "bytes"),
        ({"name": "a"}, "dict"),
        ({1, 2, 3, 4}, "set"),
        (7, "int"),
        ((), "0"),
        (good()[:3], "3"),
        ((*good(), 1), "5"),
        (good(name=None), "name"),
        (good(name=7), "name"),
        (good(name=True), "name"),
        (good(name=b"a"), "name"),
        (good(name=UserString("a")), "name"),
        (good(cron=None), "cron"),
        (good(cron=["*"] * 5), "cron"),
        (good(cron=b"* * * * *"), "cron"),
        (good(callback=None), "callback"),
        (good(callback="print"), "callback"),
        (good(delay=None), "delay"),
        (good(delay=0), "delay"),
        (good(delay=5.0), "delay"),
        (good(delay=True), "delay"),
        (good(delay="5"), "delay"),
    ],
)
def test_a_wrong_shape_is_named_with_its_index_and_what_was_received(item: object, hint: str) -> None:
    """SPEC 1.4: shape and types of all four first; bool is not a number, str is not a sequence."""
    with pytest.raises(RegistrationShapeError) as caught:
        read(good(name="before"), item)
    error = caught.value
    assert error.message == "Invalid registration shape: expected [string, string, function, Duration]"
    assert error.details["registrationIndex"] == 1
    assert error.details["received"] is item
    assert hint in error.details["hint"]
    assert "registration 1" in error.details["hint"]


def test_a_coroutine_object_is_no_callback() -> None:
    """SPEC 1.2: `backup()` where `backup` was meant is a common slip."""
    coroutine = on_the_loop()
    with pytest.raises(RegistrationShapeError):
        read(good(callback=coroutine))
    coroutine.close()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("\0", "NUL"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ("ä\udfff", "surrogate"),
    ],
)
def test_a_name_that_cannot_be_stored_is_refused(name: str, reason: str) -> None:
    """SPEC 1.4: not empty and storable, i.e. no NUL and no lone surrogate."""
    with pytest.raises(InvalidRegistrationError) as caught:
        read(good(name="before"), good(name=name))
    details = caught.value.details
    assert details["registrationIndex"] == 1
    assert details["field"] == "name"
    assert details["value"] == name
    assert reason in details["reason"]
    assert details["reason"] in str(caught.value)
    assert details["hint"].startswith("registration 1 ('")


@pytest.mark.parametrize("name", [" ", "\t", "\n", "a b", "🎉", "ä", "\U0010ffff", "\x01", "x" * 100_000, "'\";--"])
def test_any_other_name_is_fine(name: str) -> None:
    """SPEC 1.4: a name of blanks is not empty."""
    assert read(good(name=name))[0].name == name


def test_names_are_compared_exactly() -> None:
    """SPEC 1.4: case- and blank-sensitive; and no Unicode normalisation either."""
    names = ["a", "A", " a", "a ", "\u00e9", "e\u0301"]
    assert [each.name for each in read(*(good(name=name) for name in names))] == names


def test_a_name_given_twice_is_refused() -> None:
    """SPEC 1.4, 000: the message has the name in double quotes."""
    with pytest.raises(ScheduleDuplicateTaskError) as caught:
        read(good(name="x"), good(name="y"), good(name="x"))
    assert caught.value.message == 'Task with name "x" is already scheduled'
    assert caught.value.details["taskName"] == "x"
    assert caught.value.details["registrationIndex"] == 2


def test_a_bad_expression_is_refused_with_the_parser_error_as_its_cause() -> None:
    """SPEC 6.1: `initialize` raises CronExpressionInvalidError from InvalidCronExpressionError."""
    with pytest.raises(CronExpressionInvalidError) as caught:
        read(good(name="x", cron="0 24 * * *"))
    error = caught.value
    cause = error.__cause__
    assert isinstance(cause, InvalidCronExpressionError)
    assert error.details["cause"] is cause
    assert error.message == cause.message
    assert str(error) == f"{cause}: registration 0 ('x')"
    assert str(error).startswith('Invalid cron expression "0 24 * * *": hour field ')
    assert {key: error.details[key] for key in ("expression", "field", "reason")} == {
        key: cause.details[key] for key in ("expression", "field", "reason")
    }
    assert error.details["registrationIndex"] == 0
    assert error.details["taskName"] == "x"


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [(timedelta(microseconds=-1), -1), (timedelta(seconds=-1), -1_000), (timedelta(microseconds=-1_001), -2)],
)
def test_a_negative_delay_is_refused_in_milliseconds_away_from_zero(delay: timedelta, milliseconds: int) -> None:
    """SPEC 1.5: retryDelayMs of a negative delay is rounded away from zero."""
    with pytest.raises(NegativeRetryDelayError) as caught:
        read(good(name="x", delay=delay))
    assert caught.value.message == "Retry delay must be non-negative"
    hint = caught.value.details["hint"]
    unit, number = ("seconds", milliseconds // 1000) if milliseconds % 1000 == 0 else ("milliseconds", milliseconds)
    assert hint == f"registration 0 ('x'): write timedelta({unit}={-number}), not {unit}={number}"
    assert str(caught.value) == f"Retry delay must be non-negative: {hint}"
    facts = {"registrationIndex": 0, "taskName": "x", "retryDelayMs": milliseconds}
    assert caught.value.details == facts | {"hint": hint}


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [(timedelta(0), 0), (timedelta(microseconds=1), 1), (timedelta.max, 86_400_000_000_000_000)],
)
def test_any_other_delay_is_fine(delay: timedelta, milliseconds: int) -> None:
    """SPEC 3.6: zero is legal. SPEC 5.1: sub-millisecond delays are rounded up."""
    assert read(good(delay=delay))[0].delay == milliseconds


class OddDelay(timedelta):
    """A duration of another library: unequal to any other, and not hashable."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_delay_may_be_of_a_class_of_its_own() -> None:
    """SPEC 1.2: a `timedelta` it is, whatever else it can or cannot do."""
    delays = [OddDelay(seconds=1), timedelta(seconds=2), OddDelay(seconds=3), timedelta(seconds=2)]
    found = read(*(good(name=f"t{n}", delay=delay) for n, delay in enumerate(delays)))
    assert [each.delay for each in found] == [1_000, 2_000, 3_000, 2_000]


# --- the order of the checks -----------------------------------------------------------------------------------------

SHAPE = good(delay=None)
NAME = ("", "bad cron", on_the_loop, -DELAY)
DUPLICATE = ("first", "bad cron", on_the_loop, -DELAY)
CRON = ("b", "bad cron", on_the_loop, -DELAY)
NEGATIVE = ("b", "* * * * *", on_the_loop, -DELAY)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (("", "bad cron", on_the_loop, "no delay"), RegistrationShapeError),
        (("first", "bad cron", "no callback", -DELAY), RegistrationShapeError),
        (NAME, InvalidRegistrationError),
        (DUPLICATE, ScheduleDuplicateTaskError),
        (CRON, CronExpressionInvalidError),
        (NEGATIVE, NegativeRetryDelayError),
    ],
)
def test_within_an_item_the_first_failing_check_wins(item: object, expected: type[DulyError]) -> None:
    """SPEC 1.4: shape, name, duplicate, cron, delay, in this order."""
    with pytest.raises(RegistrationError) as caught:
        read(good(name="first"), item)
    assert type(caught.value) is expected


FAULTY: list[tuple[object, type[DulyError]]] = [
    (SHAPE, RegistrationShapeError),
    (NAME, InvalidRegistrationError),
    (DUPLICATE, ScheduleDuplicateTaskError),
    (CRON, CronExpressionInvalidError),
    (NEGATIVE, NegativeRetryDelayError),
]


@pytest.mark.parametrize(("first", "expected"), FAULTY)
@pytest.mark.parametrize("second", [item for item, _ in FAULTY])
def test_items_are_checked_from_left_to_right(first: object, expected: type[DulyError], second: object) -> None:
    """SPEC 1.4: each completely before the next."""
    with pytest.raises(RegistrationError) as caught:
        read(good(name="first"), first, second)
    assert type(caught.value) is expected
    assert caught.value.details["registrationIndex"] == 1


def test_expressions_of_the_same_text_are_parsed_once() -> None:
    """A million tasks of one expression cost one parse, and share one object."""
    first, second, third = read(good(name="a"), good(name="b"), good(name="c", cron="0 0 * * *"))
    assert first.expression is second.expression
    assert third.expression is not first.expression


def test_text_that_means_the_same_but_differs_stays_itself() -> None:
    """SPEC 5.1: comparison is by cron text, so the text is kept as declared."""
    assert [
        each.expression.text for each in read(good(name="a", cron=" 0  0 * * *"), good(name="b", cron="0 0 * * *"))
    ] == [
        " 0  0 * * *",
        "0 0 * * *",
    ]


class Word(StrEnum):
    """A str that is more than a str."""

    NIGHTLY = "0 3 * * *"


def test_a_member_of_a_string_enumeration_is_its_text() -> None:
    """SPEC 1.2: name and cron are `str`; what is stored and compared is the plain text."""
    (registration,) = read(good(name=Word.NIGHTLY, cron=Word.NIGHTLY))
    assert type(registration.name) is str
    assert registration.name == "0 3 * * *"
    assert type(registration.expression.text) is str


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.timedeltas() | st.just(on_the_loop),
    lambda inner: (
        st.lists(inner, max_size=5) | st.tuples(inner, inner, inner, inner) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=20,
)


@given(json_like)
def test_whatever_is_handed_over_is_registered_or_refused_with_a_registration_error(received: Any) -> None:
    """SPEC 1.4: there is no third way."""
    try:
        found = list(finish(read_registrations(snapshot(received))).singles())
    except RegistrationError:
        return
    assert [each.name for each in found] == [item[0] for item in received]


# --- where a callback runs -------------------------------------------------------------------------------------------


class Worker:
    """Callbacks as methods."""

    async def run(self) -> None:
        """On the loop."""

    def block(self) -> None:
        """In a thread."""

    @classmethod
    async def of_class(cls) -> None:
        """On the loop."""

    @staticmethod
    async def static() -> None:
        """On the loop."""


class AsyncCallable:
    """An object with an asynchronous call, and no hash."""

    __hash__ = None  # type: ignore[assignment]

    async def __call__(self) -> None:
        """On the loop."""


class BlockingCallable:
    """An object with a blocking call."""

    def __call__(self) -> None:
        """In a thread."""


class InheritedAsyncCallable(AsyncCallable):
    """The call is inherited."""


async def takes_two(first: object, second: object) -> None:
    """On the loop."""


def hands_back_an_awaitable() -> object:
    """A plain function: in a thread, and what it returns is awaited on the loop."""
    return on_the_loop()


def wraps(function: Callable[[], object]) -> Callable[[], object]:
    """A decorator that hides the coroutine function behind a plain one."""

    def wrapper() -> object:
        return function()

    return wrapper


MARKED: list[Callable[[], object]] = []
if sys.version_info >= (3, 12):  # the standard way to say that a plain function makes a coroutine
    MARKED.append(inspect.markcoroutinefunction(wraps(on_the_loop)))


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        *((callback, RunsOn.LOOP) for callback in MARKED),
        (on_the_loop, RunsOn.LOOP),
        (partial(takes_two, 1, 2), RunsOn.LOOP),
        (partial(partial(takes_two, 1), 2), RunsOn.LOOP),
        (Worker().run, RunsOn.LOOP),
        (partial(Worker().run), RunsOn.LOOP),
        (Worker.of_class, RunsOn.LOOP),
        (Worker.static, RunsOn.LOOP),
        (AsyncCallable(), RunsOn.LOOP),
        (InheritedAsyncCallable(), RunsOn.LOOP),
        (partial(AsyncCallable()), RunsOn.LOOP),
        (AsyncMock(), RunsOn.LOOP),
        (AsyncMock(spec=on_the_loop), RunsOn.LOOP),
        (Mock(spec=in_a_thread), RunsOn.THREAD),
        (Mock(spec=partial(in_a_thread)), RunsOn.THREAD),
        (in_a_thread, RunsOn.THREAD),
        (lambda: None, RunsOn.THREAD),
        (partial(in_a_thread), RunsOn.THREAD),
        (Worker().block, RunsOn.THREAD),
        (BlockingCallable(), RunsOn.THREAD),
        (AsyncCallable, RunsOn.THREAD),  # the class: calling it makes an object, not a coroutine
        (print, RunsOn.THREAD),
        (hands_back_an_awaitable, RunsOn.THREAD),
        (wraps(on_the_loop), RunsOn.THREAD),
    ],
)
def test_coroutine_functions_run_on_the_loop_and_all_else_in_a_thread(
    callback: Callable[[], object], expected: RunsOn
) -> None:
    """SPEC 1.3: seen through partials, bound methods and objects with `async __call__`."""
    assert where_it_runs(callback) is expected
    assert read(good(callback=callback))[0].runs_on is expected


def test_many_tasks_may_share_one_callback() -> None:
    """SPEC 1.2: only names are unique."""
    shared = AsyncCallable()
    assert {each.runs_on for each in read(good(name="a", callback=shared), good(name="b", callback=shared))} == {
        RunsOn.LOOP
    }
