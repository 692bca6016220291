"""SPEC 1: the surface. Two coroutines, registrations and their checks, kinds of callables, what errors carry."""

import asyncio
import copy
import enum
import inspect
import pickle
import threading
import traceback
from collections import UserList, namedtuple
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial, partialmethod, wraps
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.events import (
    Event,
    SchedulerInitializationFailed,
    SchedulerReinitializationFailed,
    TaskAdded,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from duly.testing import SimulatedHost
from tests.spec.helpers import Ear
from tests.stores.helpers import constrain_tasks

MILLISECOND = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = "* * * * *"
PATIENCE_SECONDS = 30.0


async def noop() -> None:
    """Work that is done at once."""


def registration(
    name: Any = "task", cron: Any = EVERY_MINUTE, callback: Any = noop, delay: Any = MINUTE
) -> tuple[Any, Any, Any, Any]:
    return (name, cron, callback, delay)


async def refused(registrations: Any, store: Any = ":memory:") -> duly.DulyError:
    """The error that initialize() answers with."""
    with pytest.raises(duly.DulyError) as caught:
        await duly.Scheduler(store).initialize(registrations)
    return caught.value


async def accepted(registrations: Any) -> None:
    """Check that initialize() declares each registration."""
    ear = Ear()
    scheduler = duly.Scheduler(":memory:", on_event=ear)
    await scheduler.initialize(registrations)
    await scheduler.stop()
    added = [(event.task_name, event.cron_expression, event.retry_delay_ms) for event in ear.of(TaskAdded)]
    assert added == [
        (name, cron, delay // MILLISECOND + bool(delay % MILLISECOND)) for name, cron, _, delay in registrations
    ]


# --- 1.1 two coroutines ----------------------------------------------------------------------------------------------


def test_a_scheduler_has_two_public_methods_and_nothing_else(tmp_path: Path) -> None:
    """SPEC 1.1: exactly two public methods; everything else stands beside it, never on it."""
    scheduler = duly.Scheduler(tmp_path / "duly.db")
    assert [name for name in dir(scheduler) if not name.startswith("_")] == ["initialize", "stop"]


@pytest.mark.parametrize("method", ["initialize", "stop"])
def test_both_methods_are_coroutines(method: str) -> None:
    """SPEC 1.1: both coroutines."""
    assert inspect.iscoroutinefunction(getattr(duly.Scheduler, method))


def test_initialize_takes_the_registrations_and_stop_nothing() -> None:
    """SPEC 1.1: `initialize(registrations)` and `stop()`."""
    assert list(inspect.signature(duly.Scheduler.initialize).parameters) == ["self", "registrations"]
    assert list(inspect.signature(duly.Scheduler.stop).parameters) == ["self"]


async def test_initialize_and_stop_return_nothing() -> None:
    """SPEC 1.1: both return None."""
    scheduler = duly.Scheduler(":memory:")
    calls: list[Awaitable[object]] = [scheduler.initialize([]), scheduler.stop()]
    assert [await call for call in calls] == [None, None]


# --- 1.2 registrations -----------------------------------------------------------------------------------------------

Row = namedtuple("Row", "name cron callback delay")


class Delay(timedelta):
    """A duration of another library."""


@pytest.mark.parametrize(
    "registrations",
    [
        pytest.param([], id="empty list"),
        pytest.param((), id="empty tuple"),
        pytest.param([registration()], id="list of tuples"),
        pytest.param((registration(),), id="tuple of tuples"),
        pytest.param([list(registration())], id="list of lists"),
        pytest.param([registration("a"), list(registration("b"))], id="both"),
        pytest.param([Row(*registration())], id="named tuple"),
        pytest.param([registration(delay=Delay(minutes=1))], id="subclass of timedelta"),
        pytest.param([registration(delay=timedelta(0))], id="no delay"),
    ],
)
async def test_a_list_or_tuple_of_four_is_what_is_asked_for(registrations: Any) -> None:
    """SPEC 1.2: a 4-tuple or 4-item list; the outer collection a list or tuple."""
    await accepted(registrations)


@pytest.mark.parametrize(
    "registrations",
    [
        pytest.param(None, id="None"),
        pytest.param("", id="empty str"),
        pytest.param("abcd", id="str"),
        pytest.param(b"abcd", id="bytes"),
        pytest.param({}, id="dict"),
        pytest.param({"task": registration()}, id="dict of registrations"),
        pytest.param(set(), id="set"),
        pytest.param((each for each in [registration()]), id="generator"),
        pytest.param(iter([registration()]), id="iterator"),
        pytest.param(UserList([registration()]), id="UserList"),
        pytest.param(range(0), id="range"),
        pytest.param(0, id="int"),
        pytest.param(True, id="bool"),
        pytest.param(registration, id="function"),
    ],
)
async def test_any_other_collection_is_not_an_array(registrations: Any) -> None:
    """SPEC 1.2: a `str`, `dict`, `None`, generator … is `RegistrationsNotArrayError`, with 000's message."""
    error = await refused(registrations)
    assert type(error) is duly.RegistrationsNotArrayError
    assert error.message == "Registrations must be an array"
    assert set(error.details) <= {"hint"}


class Text(str):
    """Text of another library."""

    __slots__ = ()


class Names(str, enum.Enum):  # noqa: UP042  (its str() is not its text, which is the point)
    """Names as an application declares them."""

    BACKUP = "backup"


async def test_a_text_of_another_class_counts_as_its_text() -> None:
    """SPEC 1.2: name `str`, cron `str`; a subclass is one, and two that spell the same name are duplicates."""
    await accepted([(Names.BACKUP, Text(EVERY_MINUTE), noop, MINUTE)])
    error = await refused([registration(Names.BACKUP), registration("backup")])
    assert isinstance(error, duly.ScheduleDuplicateTaskError)
    assert error.details["taskName"] == "backup"


# --- 1.3 callables ---------------------------------------------------------------------------------------------------


class Witness:
    """Notes each call and its thread: callables of every kind that all report here."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.threads: list[int] = []
        self.arguments: list[object] = []
        self._loop = asyncio.get_running_loop()

    def report(self) -> None:
        self.threads.append(threading.get_ident())
        self._loop.call_soon_threadsafe(self.called.set)

    async def on_the_loop(self) -> None:
        asyncio.get_running_loop()
        self.report()

    async def with_argument(self, argument: object) -> None:
        self.arguments.append(argument)
        self.report()

    bound_in_advance = partialmethod(with_argument, "given")

    def blocking(self) -> None:
        self.report()

    def blocking_with_argument(self, argument: object) -> None:
        self.arguments.append(argument)
        self.report()

    @property
    def in_async_call(self) -> "AsyncCall":
        return AsyncCall(self)

    @property
    def in_blocking_call(self) -> "BlockingCall":
        return BlockingCall(self)

    @property
    def as_class(self) -> Callable[[], object]:
        report = self.report

        class Constructed:
            def __init__(self) -> None:
                report()

        return Constructed


class AsyncCall:
    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    async def __call__(self) -> None:
        asyncio.get_running_loop()
        self._witness.report()


class BlockingCall:
    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def __call__(self) -> None:
        self._witness.report()


class UnhashableCall(AsyncCall):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnhashableCall)

    __hash__ = None  # type: ignore[assignment]


@asynccontextmanager
async def running(*callbacks: Callable[[], object], **options: Any) -> AsyncIterator[list[Event]]:
    """A real scheduler, with real threads, on which each callback is due at once."""
    told: list[Event] = []
    scheduler = duly.Scheduler(":memory:", on_event=told.append, **options)
    await scheduler.initialize([registration(f"task {n}", callback=callback) for n, callback in enumerate(callbacks)])
    try:
        yield told
    finally:
        await scheduler.stop()


def locally(witness: Witness) -> Callable[[], Awaitable[None]]:
    async def closure() -> None:
        witness.report()

    return closure


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(locally, id="coroutine function"),
        pytest.param(lambda w: w.on_the_loop, id="bound method"),
        pytest.param(lambda w: partial(w.on_the_loop), id="partial"),
        pytest.param(lambda w: partial(partial(w.with_argument), "given"), id="partial of a partial"),
        pytest.param(lambda w: w.bound_in_advance, id="partialmethod"),
        pytest.param(lambda w: w.in_async_call, id="async __call__"),
        pytest.param(lambda w: partial(w.in_async_call), id="partial of async __call__"),
        pytest.param(lambda w: w.in_async_call.__call__, id="bound async __call__"),
        pytest.param(UnhashableCall, id="unhashable object"),
    ],
)
async def test_a_coroutine_function_runs_on_the_event_loop(kind: Callable[[Witness], Callable[[], object]]) -> None:
    """SPEC 1.3: a coroutine function, and a `partial`, bound method or object with `async __call__` of one."""
    witness = Witness()
    async with running(kind(witness)), asyncio.timeout(PATIENCE_SECONDS):
        await witness.called.wait()
    assert set(witness.threads) == {threading.get_ident()}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(lambda w: w.blocking, id="bound method"),
        pytest.param(lambda w: lambda: [w.report()], id="lambda"),
        pytest.param(lambda w: partial(w.blocking_with_argument, "given"), id="partial"),
        pytest.param(lambda w: w.in_blocking_call, id="__call__"),
        pytest.param(lambda w: partial(w.in_blocking_call), id="partial of __call__"),
        pytest.param(lambda w: w.as_class, id="class"),
    ],
)
async def test_any_other_callable_runs_in_a_worker_thread(kind: Callable[[Witness], Callable[[], object]]) -> None:
    """SPEC 1.3: any other callable runs in a worker thread."""
    witness = Witness()
    async with running(kind(witness)), asyncio.timeout(PATIENCE_SECONDS):
        await witness.called.wait()
    assert threading.get_ident() not in witness.threads


async def test_blocking_code_does_not_stall_the_scheduler() -> None:
    """SPEC 1.3: while one callback blocks its thread, the loop runs another to its end."""
    released = threading.Event()
    other = asyncio.Event()
    outcomes: list[bool] = []

    def blocking() -> None:
        outcomes.append(released.wait(PATIENCE_SECONDS))

    async def meanwhile() -> None:
        other.set()

    async with running(blocking, meanwhile), asyncio.timeout(PATIENCE_SECONDS):
        await other.wait()
        assert outcomes == []
        released.set()
    assert outcomes[0] is True


class Handed:
    """An awaitable that is not a coroutine."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def __await__(self) -> Generator[Any, None, None]:
        self._witness.report()
        return asyncio.sleep(0).__await__()


def decorated(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    @wraps(function)
    def wrapper() -> Awaitable[None]:
        return function()

    return wrapper


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(lambda w: lambda: w.with_argument("given"), id="lambda"),
        pytest.param(lambda w: decorated(w.on_the_loop), id="undiscerning decorator"),
        pytest.param(lambda w: lambda: Handed(w), id="object with __await__"),
    ],
)
async def test_an_awaitable_that_a_plain_callable_returns_is_awaited_on_the_loop(
    kind: Callable[[Witness], Callable[[], object]],
) -> None:
    """SPEC 1.3: an awaitable it returns is awaited on the loop."""
    witness = Witness()
    async with running(kind(witness)) as told, asyncio.timeout(PATIENCE_SECONDS):
        await witness.called.wait()
    assert set(witness.threads) == {threading.get_ident()}
    assert any(isinstance(each, TaskRunCompleted) for each in told)


async def test_a_returned_awaitable_belongs_to_its_run() -> None:
    """SPEC 1.3: awaited, so the run lasts as long as it does, and fails when it does."""

    async def later(host: SimulatedHost) -> None:
        await host.sleep(7)
        raise LookupError("too late")

    async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([registration(callback=lambda: later(host))])
        await host.advance(seconds=6)
        assert not [each for each in host.events if isinstance(each, TaskRunFailed)]
        await host.advance(seconds=2)
        (failed,) = (each for each in host.events if isinstance(each, TaskRunFailed))
        assert failed.duration == 7000
        assert failed.error == "LookupError: too late"


@pytest.mark.parametrize("value", [False, 0, "failed", ValueError("returned, not raised"), object()])
@pytest.mark.parametrize("blocking", [False, True], ids=["on the loop", "in a thread"])
async def test_what_a_callback_returns_is_ignored(value: object, blocking: bool) -> None:
    """SPEC 1.3: return values are ignored."""

    async def on_the_loop() -> object:
        return value

    async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
        await host.scheduler().initialize([registration(callback=(lambda: value) if blocking else on_the_loop)])
        await host.advance()
        assert [type(each) for each in host.events if "Run" in each.name] == [TaskRunStarted, TaskRunCompleted]


async def test_one_callback_may_serve_many_tasks() -> None:
    """SPEC 1.2: names are unique, callbacks need not be."""
    calls: list[int] = []
    async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
        await host.scheduler().initialize([registration(str(n), callback=lambda: calls.append(1)) for n in range(3)])
        await host.advance()
    assert len(calls) == 3


# --- 1.4 checks ------------------------------------------------------------------------------------------------------

WRONG_SHAPE = "Invalid registration shape: expected [string, string, function, Duration]"


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(None, id="None"),
        pytest.param("abcd", id="str of four"),
        pytest.param(b"abcd", id="bytes of four"),
        pytest.param({1: 1, 2: 2, 3: 3, 4: 4}, id="dict of four"),
        pytest.param({1, 2, 3, 4}, id="set of four"),
        pytest.param(UserList(registration()), id="UserList"),
        pytest.param((), id="nothing"),
        pytest.param(registration()[:3], id="three"),
        pytest.param((*registration(), None), id="five"),
        pytest.param(registration(name=None), id="name None"),
        pytest.param(registration(name=1), id="name int"),
        pytest.param(registration(name=b"task"), id="name bytes"),
        pytest.param(registration(cron=None), id="cron None"),
        pytest.param(registration(cron=5), id="cron int"),
        pytest.param(registration(cron=duly.parse_cron(EVERY_MINUTE)), id="cron parsed"),
        pytest.param(registration(callback=None), id="callback None"),
        pytest.param(registration(callback="noop"), id="callback str"),
        pytest.param(registration(callback=()), id="callback tuple"),
        pytest.param(registration(delay=None), id="delay None"),
        pytest.param(registration(delay=60), id="delay int"),
        pytest.param(registration(delay=60.0), id="delay float"),
        pytest.param(registration(delay=True), id="delay bool"),
        pytest.param(registration(delay="PT1M"), id="delay str"),
    ],
)
async def test_an_item_of_another_shape_is_refused(item: Any) -> None:
    """SPEC 1.4: shape and types of all four; `bool` is not a number, `str` is not a sequence."""
    error = await refused([registration("fine"), item])
    assert type(error) is duly.RegistrationShapeError
    assert error.message == WRONG_SHAPE
    assert error.details["registrationIndex"] == 1
    assert error.details["received"] is item


async def test_a_coroutine_in_place_of_its_function_is_refused() -> None:
    """SPEC 1.4: `backup()` where `backup` is meant is not callable."""
    coroutine = noop()
    error = await refused([registration(callback=coroutine)])
    coroutine.close()
    assert type(error) is duly.RegistrationShapeError


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("a\0b", id="NUL"),
        pytest.param("\0", id="NUL alone"),
        pytest.param("\ud800", id="high surrogate"),
        pytest.param("backup\udcff", id="low surrogate"),
        pytest.param("\ud83d\ude00", id="a pair, as two"),
    ],
)
async def test_a_name_that_cannot_be_stored_is_refused(name: str) -> None:
    """SPEC 1.4: name not empty and storable, i.e. no NUL and no lone surrogate; 000's details."""
    error = await refused([registration("fine"), registration(name)])
    assert type(error) is duly.InvalidRegistrationError
    assert error.details["field"] == "name"
    assert error.details["value"] == name
    assert error.details["reason"] in str(error)
    assert str(error).isprintable()


STRANGE_NAMES = [
    "task",
    "Task",
    "TASK",
    " task",
    "task ",
    "ta sk",
    " ",
    "  ",
    "\t",
    "\n",
    "task\n",
    "\x1b[31mred",
    "\u202eksat",
    "\u00e9",
    "e\u0301",
    "\u017f",
    "s",
    "ß",
    "ss",
    "\U0001f600",
    "\uffff",
    "\ufeff",
    "'; DROP TABLE tasks; --",
    '"',
    "%s",
    "n" * 100_000,
]


async def test_names_differ_by_case_blanks_and_every_character(tmp_path: Path) -> None:
    """SPEC 1.4: names are case- and blank-sensitive; what is storable is stored as it is."""
    path = tmp_path / "duly.db"
    async with SimulatedHost("2024-05-01T10:00", "UTC", store=path) as host:
        await host.scheduler().initialize([registration(name, delay=MINUTE) for name in STRANGE_NAMES])
        await host.advance()
        started = [each.task_name for each in host.events if isinstance(each, TaskRunStarted)]
        assert sorted(started) == sorted(STRANGE_NAMES)
        await host.crash()
        host.events.clear()
        await host.scheduler().initialize([registration(name, delay=MINUTE) for name in reversed(STRANGE_NAMES)])
        names = [each.name for each in host.events]
        assert names.count("TaskPreserved") == len(STRANGE_NAMES)
        assert "TaskAdded" not in names
        assert "TaskOrphaned" not in names


async def test_a_name_that_comes_twice_is_refused() -> None:
    """SPEC 1.4: duplicate; 000's message and details."""
    error = await refused([registration("a"), registration("b"), registration("a", "0 0 * * *")])
    assert type(error) is duly.ScheduleDuplicateTaskError
    assert error.message == 'Task with name "a" is already scheduled'
    assert error.details["taskName"] == "a"
    assert error.details["registrationIndex"] == 2


async def test_a_wrong_cron_text_is_refused() -> None:
    """SPEC 1.4: cron; 000's message and details."""
    error = await refused([registration("a"), registration("b", "0 24 * * *")])
    assert type(error) is duly.CronExpressionInvalidError
    assert error.details["expression"] == "0 24 * * *"
    assert error.details["field"] == "hour"
    assert error.message == f'Invalid cron expression "0 24 * * *": hour field {error.details["reason"]}'
    assert str(error) == f"{error.message}: registration 1 ('b')"
    assert error.details["registrationIndex"] == 1


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        (timedelta(milliseconds=-1), -1),
        (timedelta(microseconds=-1), -1),
        (timedelta(microseconds=-999), -1),
        (timedelta(microseconds=-1000), -1),
        (timedelta(microseconds=-1001), -2),
        (timedelta(minutes=-5), -300_000),
        (timedelta.min, -999_999_999 * 86_400_000),
    ],
)
async def test_a_negative_delay_is_refused(delay: timedelta, milliseconds: int) -> None:
    """SPEC 1.4, 1.5: `retryDelayMs` of a negative delay is rounded away from zero; 000's message."""
    error = await refused([registration(delay=delay)])
    assert type(error) is duly.NegativeRetryDelayError
    assert error.message == "Retry delay must be non-negative"
    assert error.details["retryDelayMs"] == milliseconds


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(microseconds=1), timedelta.max])
async def test_every_other_delay_is_accepted(delay: timedelta) -> None:
    """SPEC 1.4 with 3.6: zero is legal, and so is a delay that outlasts the calendar."""
    await accepted([registration(delay=delay)])


# Each registration fails one check and every later one; what wins is the check, not how wrong the rest is.
FAILS_FROM_SHAPE = ("", "nonsense", None, timedelta(-1))
FAILS_FROM_NAME = ("", "nonsense", noop, timedelta(-1))
FAILS_FROM_DUPLICATE = ("fine", "nonsense", noop, timedelta(-1))
FAILS_FROM_CRON = ("other", "nonsense", noop, timedelta(-1))
FAILS_FROM_DELAY = ("other", EVERY_MINUTE, noop, timedelta(-1))
FAILURES: list[tuple[tuple[Any, ...], type[duly.DulyError]]] = [
    (FAILS_FROM_SHAPE, duly.RegistrationShapeError),
    (FAILS_FROM_NAME, duly.InvalidRegistrationError),
    (FAILS_FROM_DUPLICATE, duly.ScheduleDuplicateTaskError),
    (FAILS_FROM_CRON, duly.CronExpressionInvalidError),
    (FAILS_FROM_DELAY, duly.NegativeRetryDelayError),
]


@pytest.mark.parametrize(("item", "kind"), FAILURES)
async def test_the_first_failing_check_of_an_item_wins(item: tuple[Any, ...], kind: type[duly.DulyError]) -> None:
    """SPEC 1.4: shape → name → duplicate → cron → delay, first failure wins."""
    assert type(await refused([registration("fine"), item])) is kind


@pytest.mark.parametrize(("second", "_"), FAILURES)
@pytest.mark.parametrize(("first", "kind"), FAILURES)
async def test_the_leftmost_failing_item_wins(
    first: tuple[Any, ...], kind: type[duly.DulyError], second: tuple[Any, ...], _: object
) -> None:
    """SPEC 1.4: items left to right, each completely before the next."""
    error = await refused([registration("fine"), first, second])
    assert type(error) is kind


async def test_a_wrong_name_that_comes_twice_is_a_wrong_name() -> None:
    """SPEC 1.4: the second empty name is never reached."""
    error = await refused([registration(""), registration("")])
    assert type(error) is duly.InvalidRegistrationError


# --- 1.4 nothing is touched ------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()}


REFUSED: list[Any] = [None, *([registration("fine"), item] for item, _ in FAILURES)]


@pytest.mark.parametrize("registrations", REFUSED)
async def test_refused_registrations_create_no_file(tmp_path: Path, registrations: Any) -> None:
    """SPEC 1.4: nothing is touched before all checks pass."""
    await refused(registrations, tmp_path / "duly.db")
    assert contents(tmp_path) == {}


def test_a_new_scheduler_creates_no_file(tmp_path: Path) -> None:
    """SPEC 1.4: only an initialize() that passed its checks touches the store."""
    duly.Scheduler(tmp_path / "duly.db")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("registrations", REFUSED)
async def test_refused_registrations_leave_a_store_as_it_was(tmp_path: Path, registrations: Any) -> None:
    """SPEC 1.4: no store is opened, for reading or writing, before all checks pass."""
    scheduler = duly.Scheduler(tmp_path / "duly.db")
    await scheduler.initialize([registration()])
    await scheduler.stop()
    before = contents(tmp_path)
    await refused(registrations, tmp_path / "duly.db")
    with pytest.raises(duly.DulyError):
        await scheduler.initialize(registrations)
    assert contents(tmp_path) == before


async def test_registrations_are_checked_before_the_store_is_looked_at(tmp_path: Path) -> None:
    """SPEC 1.4: with both wrong, the registrations are what is reported."""
    nowhere = tmp_path / "missing" / "duly.db"
    assert isinstance(await refused([registration("")], nowhere), duly.InvalidRegistrationError)
    assert isinstance(await refused([registration()], nowhere), duly.StoreError)


@pytest.mark.parametrize("registrations", REFUSED)
async def test_refused_registrations_leave_a_running_scheduler_running(registrations: Any) -> None:
    """SPEC 1.4: nothing is touched; the old registrations run on, and nothing of theirs is reset."""
    calls: list[str] = []
    async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([registration("old", callback=lambda: calls.append("old"))])
        await host.advance()
        host.events.clear()
        with pytest.raises(duly.RegistrationError) as caught:
            await scheduler.initialize(registrations)
        assert host.events == [SchedulerReinitializationFailed(type(caught.value).__name__, str(caught.value))]
        await host.advance(minutes=2)
    assert calls == ["old"] * 3


async def test_what_the_caller_does_to_its_list_later_changes_nothing() -> None:
    """SPEC 1.4: what is checked is what was handed over, even while initialize() is under way."""
    for rounds in range(6):
        async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
            registrations = [registration("a"), registration("b")]
            call = asyncio.ensure_future(host.scheduler().initialize(registrations))
            for _ in range(1 + rounds):
                await asyncio.sleep(0)
            registrations[:] = [registration("other")]
            await call
            await host.advance()
            started = [each.task_name for each in host.events if isinstance(each, TaskRunStarted)]
            assert sorted(started) == ["a", "b"], f"after {1 + rounds} rounds"


# --- 1.5 errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("registrations", REFUSED)
async def test_errors_are_raised_when_the_coroutine_is_awaited(registrations: Any) -> None:
    """SPEC 1.5: calling makes a coroutine, awaiting it raises."""
    told: list[Event] = []
    coroutine = duly.Scheduler(":memory:", on_event=told.append).initialize(registrations)
    assert inspect.iscoroutine(coroutine)
    assert told == []
    with pytest.raises(duly.RegistrationError) as caught:
        await coroutine
    assert told == [SchedulerInitializationFailed(type(caught.value).__name__, str(caught.value))]


async def test_a_scheduler_can_be_initialised_after_a_refusal() -> None:
    """SPEC 1.5: raised before any side effect, so the next attempt succeeds."""
    async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
        scheduler = host.scheduler()
        for registrations in REFUSED:
            with pytest.raises(duly.RegistrationError):
                await scheduler.initialize(registrations)
        await scheduler.initialize([registration()])
        await host.advance()
        assert [each for each in host.events if isinstance(each, TaskRunCompleted)]


FAULT = OSError("no space left")
BAD_FIELD = duly.FieldParseError("hour", "24", "value 24 is out of range 0-23")
BAD_CRON = duly.InvalidCronExpressionError("0 24 * * *", "hour", "value 24 is out of range 0-23")

# One of each class of 000's error model, its message, and the keys of its details.
ERRORS: list[tuple[duly.DulyError, str, set[str]]] = [
    (duly.RegistrationsNotArrayError(None), "Registrations must be an array", set()),
    (duly.RegistrationShapeError(3, "abc", "why"), WRONG_SHAPE, {"registrationIndex", "received"}),
    (
        duly.InvalidRegistrationError(3, "name", "", "must not be empty"),
        "Invalid registration name: must not be empty",
        {"field", "value", "reason"},
    ),
    (duly.ScheduleDuplicateTaskError(3, "backup"), 'Task with name "backup" is already scheduled', {"taskName"}),
    (
        duly.CronExpressionInvalidError(3, "backup", BAD_CRON),
        'Invalid cron expression "0 24 * * *": hour field value 24 is out of range 0-23',
        {"expression", "field", "reason", "cause"},
    ),
    (duly.NegativeRetryDelayError(3, "backup", -5), "Retry delay must be non-negative", {"retryDelayMs"}),
    (
        duly.ScheduleTaskError("backup", "0 3 * * *", FAULT),
        "Failed to schedule task 'backup': no space left",
        {"name", "cronExpression", "cause"},
    ),
    (duly.StopSchedulerError(FAULT), "Failed to stop scheduler: no space left", {"cause"}),
    (
        BAD_CRON,
        'Invalid cron expression "0 24 * * *": hour field value 24 is out of range 0-23',
        {"expression", "field", "reason"},
    ),
    (BAD_FIELD, "hour field value 24 is out of range 0-23", {"fieldValue", "fieldName"}),
    (
        duly.CronCalculationError("0 3 * * *", "9999-12-31T03:00:00", OverflowError("the calendar ends")),
        "Failed to calculate next occurrence: the calendar ends",
        {"expression", "currentTime", "cause"},
    ),
    (duly.TaskMissingFieldError("cron"), "Missing required field: cron", {"field"}),
    (
        duly.TaskInvalidTypeError("cron", 5, "str"),
        "Invalid type for field 'cron': expected str, got int",
        {"field", "value", "expectedType", "actualType"},
    ),
    (
        duly.TaskInvalidValueError("failures", -1, "is too small"),
        "Invalid value for field 'failures': is too small",
        {"field", "value", "reason"},
    ),
    (duly.TaskInvalidStructureError([], "empty"), "Invalid task structure: empty", {"value"}),
    (
        duly.TaskListMismatchError(expected=["a"], actual=["b"], added=["b"], removed=["a"], changed={}),
        "Declared tasks do not match the stored ones: 1 added, 1 removed, 0 changed",
        {"expected", "actual"},
    ),
]
BY_CLASS = pytest.mark.parametrize(
    ("error", "message", "keys"), [pytest.param(*row, id=type(row[0]).__name__) for row in ERRORS]
)


@BY_CLASS
def test_errors_have_the_messages_and_details_of_the_error_model(
    error: duly.DulyError, message: str, keys: set[str]
) -> None:
    """SPEC 1.5: 000's message texts exactly, its key names in `details`."""
    assert error.message == message
    assert keys <= set(error.details)
    assert isinstance(error, duly.DulyError)


def test_every_error_of_the_error_model_is_importable_and_of_one_family() -> None:
    """SPEC 1.5: every error class of the source documents, by its name, from `duly` and `duly.errors`."""
    names = {type(error).__name__ for error, _, _ in ERRORS} | {"TaskTryDeserializeError", "SchedulerStoppingError"}
    for name in names:
        assert getattr(duly, name) is getattr(duly.errors, name)
        assert name in duly.__all__
        assert issubclass(getattr(duly, name), duly.DulyError)
    for kind in (duly.StoreLockedError, duly.StoreCorruptedError, duly.StoreVersionError):
        assert issubclass(kind, duly.StoreError)


@pytest.mark.parametrize(
    "kind",
    [
        duly.TaskMissingFieldError,
        duly.TaskInvalidTypeError,
        duly.TaskInvalidValueError,
        duly.TaskInvalidStructureError,
    ],
)
def test_errors_about_stored_records_have_one_base(kind: type[duly.DulyError]) -> None:
    """SPEC 1.5 with 000: `TaskTryDeserializeError` is their base class."""
    assert issubclass(kind, duly.TaskTryDeserializeError)


@BY_CLASS
def test_the_text_of_an_error_is_its_message_and_its_hint(error: duly.DulyError, message: str, keys: set[str]) -> None:
    """SPEC 1.5: the hint stands in `details["hint"]` and in the text, not in the message, and no note repeats it."""
    hint = error.details.get("hint")
    assert str(error) == (message if hint is None else f"{message}: {hint}")
    assert hint is None or hint not in message
    assert not hasattr(error, "__notes__")
    assert "".join(traceback.format_exception_only(error)).count(hint or message) == 1


async def test_a_hint_says_what_to_do() -> None:
    """SPEC 1.5: a person who reads the traceback reads the hint."""
    error = await refused([registration(cron="*/15 * * * *")])
    assert str(error).endswith(f": {error.details['hint']}")
    assert "0,15,30,45" in error.details["hint"]


@BY_CLASS
def test_a_wrapped_error_is_the_cause(error: duly.DulyError, message: str, keys: set[str]) -> None:
    """SPEC 1.5: wrapped errors keep the original as `details["cause"]` and `__cause__`."""
    if "cause" in keys:
        assert isinstance(error.details["cause"], Exception)
        assert error.__cause__ is error.details["cause"]
    else:
        assert "cause" not in error.details


async def test_an_invalid_expression_keeps_the_parsers_error_as_its_cause() -> None:
    """SPEC 1.5: the original as `details["cause"]` and `__cause__`."""
    error = await refused([registration(cron="* * * * 7")])
    assert isinstance(error.__cause__, duly.InvalidCronExpressionError)
    assert error.details["cause"] is error.__cause__
    assert error.message == error.__cause__.message
    assert error.details["hint"] == f"registration 0 ('task'): {error.__cause__.details['hint']}"


async def test_a_stop_from_inside_keeps_its_reason_as_its_cause() -> None:
    """SPEC 1.5: the original as `details["cause"]` and `__cause__`; the hint of 4.3."""
    caught: list[duly.StopSchedulerError] = []
    async with SimulatedHost("2024-05-01T10:00", "UTC") as host:
        scheduler = host.scheduler()

        async def stopping() -> None:
            try:
                await scheduler.stop()
            except duly.StopSchedulerError as error:
                caught.append(error)

        await scheduler.initialize([registration(callback=stopping)])
        await host.advance()
    (error,) = caught
    assert error.details["cause"] is error.__cause__
    assert isinstance(error.__cause__, Exception)
    assert error.message == f"Failed to stop scheduler: {error.__cause__}"
    assert "event" in error.details["hint"]


@pytest.fixture
async def stubborn(tmp_path: Path) -> Path:
    """A store with the tasks `kept`, `changed` and `removed`, which refuses whatever alters its table of tasks."""
    path = tmp_path / "duly.db"
    scheduler = duly.Scheduler(path)
    await scheduler.initialize([registration("kept"), registration("changed"), registration("removed")])
    await scheduler.stop()
    constrain_tasks(path, "retired_at IS NULL AND generation <= 3")
    return path


KEPT = registration("kept")
NEW = registration("new", "1 1 * * *")
CHANGED = registration("changed", "2 2 * * *")
REMOVED = registration("removed")


@pytest.mark.parametrize(
    ("registrations", "first"),
    [
        pytest.param([KEPT, CHANGED, NEW], CHANGED, id="changed before new"),
        pytest.param([KEPT, NEW, CHANGED], NEW, id="new before changed"),
        pytest.param([NEW, KEPT, registration("changed"), REMOVED], NEW, id="new alone"),
        pytest.param([KEPT, registration("changed"), REMOVED, NEW, registration("newer", "0 0 * * *")], NEW, id="two"),
        pytest.param([registration("changed"), KEPT], REMOVED, id="removed alone"),
        pytest.param([CHANGED], CHANGED, id="changed before removed"),
    ],
)
async def test_a_failed_transaction_names_the_first_task_that_would_have_changed(
    stubborn: Path, registrations: list[Any], first: tuple[Any, ...]
) -> None:
    """SPEC 1.5: a `ScheduleTaskError` for a whole transaction names the first task that would have changed."""
    error = await refused(registrations, stubborn)
    assert type(error) is duly.ScheduleTaskError
    assert error.details["name"] == first[0]
    assert error.details["cronExpression"] == first[1]
    assert isinstance(error.details["cause"], duly.StoreError)
    assert error.__cause__ is error.details["cause"]
    assert str(error) == f"Failed to schedule task '{first[0]}': {error.__cause__}"


@BY_CLASS
@pytest.mark.parametrize(
    "travel",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deep"],
)
def test_errors_travel_between_processes(
    error: duly.DulyError, message: str, keys: set[str], travel: Callable[[duly.DulyError], duly.DulyError]
) -> None:
    """SPEC 1.5: a pickled or copied error has the same message, details, cause and notes."""
    arrived = travel(error)
    assert type(arrived) is type(error)
    assert (arrived.message, str(arrived)) == (message, str(error))
    assert repr(arrived) == repr(error)
    assert set(arrived.details) == set(error.details)
    for key in set(error.details) - {"cause"}:
        assert arrived.details[key] == error.details[key]
    assert getattr(arrived, "__notes__", []) == getattr(error, "__notes__", [])
    if "cause" in keys:
        assert repr(arrived.details["cause"]) == repr(error.details["cause"])
        assert arrived.__cause__ is arrived.details["cause"]


def test_notes_that_were_added_travel_too() -> None:
    """SPEC 1.5: notes are part of what an error says."""
    error = duly.RegistrationsNotArrayError(None)
    error.add_note("while reading settings.toml")
    arrived = pickle.loads(pickle.dumps(error))
    assert arrived.__notes__ == ["while reading settings.toml"]


def test_a_store_error_travels_too() -> None:
    """SPEC 1.5: errors of stores as well."""
    for error in (
        duly.StoreLockedError("duly.db", {"pid": 7, "host": "here", "since": "2024-05-01T10:00:00+00:00"}),
        duly.StoreVersionError("duly.db", 9, 1),
        duly.StoreCorruptedError("duly.db is damaged", store="duly.db", hint="restore a backup"),
        duly.SchedulerStoppingError("backup"),
        duly.UnsupportedPlatformError("Windows"),
    ):
        arrived = pickle.loads(pickle.dumps(error))
        assert (type(arrived), str(arrived), arrived.details) == (type(error), str(error), error.details)


@pytest.mark.parametrize(
    ("received", "sentence"),
    [
        ([registration(delay=60)], "the retry delay must be a timedelta, got int: write timedelta(seconds=60)"),
        ([registration(delay=0.5)], "the retry delay must be a timedelta, got float: write timedelta(seconds=0.5)"),
        ([registration(delay=True)], "the retry delay must be a timedelta, got bool"),
        ([registration(delay="1m")], "the retry delay must be a timedelta, got str"),
        (registration(), "this is one registration, not a list of them: write [(name, cron, callback, retry delay)]"),
        (list(registration()), "this is one registration, not a list of them"),
        ([registration()[:3]], "expected four items, got 3: write (name, cron, callback, retry delay)"),
        (iter(()), "pass a list or tuple of (name, cron, callback, retry delay), not tuple_iterator"),
        ((each for each in "abc"), "not generator; list(...) makes one of it"),
        ({"a": 1}, "pass a list or tuple of (name, cron, callback, retry delay), not dict"),
    ],
)
async def test_the_text_says_in_words_of_python_what_is_wrong_and_what_to_write(received: Any, sentence: str) -> None:
    """SPEC 1.5: log lines and reports of errors show the text, and often nothing else."""
    assert sentence in str(await refused(received))


@pytest.mark.parametrize("hostile", ["a\nb", "\x1b[31m", "\u202eab", "x" * 100_000])
async def test_messages_stay_on_their_line_whatever_they_quote(hostile: str) -> None:
    """SPEC 1.5 with 003 (sanitize): control characters in names are escaped; `details` have them in full."""
    for registrations, key in (
        ([registration(hostile), registration(hostile)], "taskName"),
        ([registration(cron=hostile)], "expression"),
    ):
        error = await refused(registrations)
        assert str(error).isprintable()
        assert len(str(error)) < 1000
        assert error.details[key] == hostile
