"""A scheduler's options: a wrong one is named when the scheduler is made, with its type or its value."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.clock import SystemClock
from duly.engine.options import Options
from duly.events import Event
from duly.stores import SqliteStore
from duly.stores.sqlite.lock import read_holder
from tests.stores.helpers import stored_tasks


async def noop() -> None:
    """Work that is done at once."""


# --- what is accepted ------------------------------------------------------------------------------------------------


class TickingClock:
    """A clock of the application's own: the four methods, and no base class."""

    def now(self) -> int:
        return 1_714_557_600_000_000

    def elapsed(self) -> float:
        return 0.0

    def zone(self) -> tzinfo:
        return UTC

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        await wake.wait()


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event.name)

    def hear(self, event: Event) -> None:
        self.heard.append(event.name)

    def hear_as(self, prefix: str, event: Event) -> None:
        self.heard.append(prefix + event.name)


def ignore(event: Event) -> None:
    """A listener that does not care."""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_concurrency": None},
        {"max_concurrency": 1},
        {"max_concurrency": 1_000_000},
        {"run_timeout": None},
        {"run_timeout": timedelta(microseconds=1)},
        {"run_timeout": timedelta.max},
        {"interrupted": "restart"},
        {"interrupted": "wait"},
        {"on_mismatch": "override"},
        {"on_mismatch": "refuse"},
        {"history": 0},
        {"history": 1},
        {"history": sys.maxsize},
        {"on_event": None},
        {"on_event": ignore},
        {"on_event": lambda event: None},
        {"on_event": Listener()},
        {"on_event": Listener().hear},
        {"on_event": partial(Listener().hear_as, "")},
        {"on_event": [].append},
        {"clock": None},
        {"clock": SystemClock()},
        {"clock": TickingClock()},
    ],
    ids=lambda options: repr(options).split(" at ")[0],
)
async def test_every_documented_value_works(store: Path, options: dict[str, Any]) -> None:
    """Documented options are accepted, and a scheduler with it declares tasks and stops."""
    scheduler = duly.Scheduler(store, **options)
    await scheduler.initialize([("task", "0 0 1 1 *", noop, timedelta(0))])
    await scheduler.stop()
    assert stored_tasks(store) == {"task": ("0 0 1 1 *", 0)}
    assert not read_holder(str(store)).alive


@pytest.mark.parametrize("make", [str, Path, SqliteStore], ids=["str", "Path", "Store"])
async def test_a_store_is_a_path_or_a_store(tmp_path: Path, make: Callable[[str], Any]) -> None:
    """`store` is a path (`str` or `Path`), `":memory:"`, or a `Store`."""
    path = tmp_path / "state.db"
    scheduler = duly.Scheduler(make(str(path)))
    await scheduler.initialize([])
    await scheduler.stop()
    assert path.exists()


def start_and_stop(*arguments: Any) -> None:
    async def life() -> None:
        scheduler = duly.Scheduler(*arguments)
        await scheduler.initialize([])
        await scheduler.stop()

    asyncio.run(life())


def test_a_store_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`":memory:"` is no file of that name."""
    monkeypatch.chdir(tmp_path)
    start_and_stop(":memory:")
    assert list(tmp_path.iterdir()) == []


def test_the_default_store_is_duly_db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Scheduler()` keeps its state in `duly.db`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    start_and_stop()
    assert (tmp_path / "duly.db").exists()


# --- what is refused -------------------------------------------------------------------------------------------------


class Awaiting:
    async def __call__(self, event: Event) -> None:
        """A listener that would have to be awaited."""

    async def hear(self, event: Event) -> None:
        """A coroutine method."""

    async def hear_as(self, prefix: str, event: Event) -> None:
        """A coroutine method with an argument to bind."""


async def awaiting(event: Event) -> None:
    """A coroutine function."""


class ClockWithoutZone:
    def now(self) -> int:
        return 0

    def elapsed(self) -> float:
        return 0.0

    async def sleep_until(self, instant: int, wake: asyncio.Event) -> None:
        await wake.wait()


class HalfAStore:
    async def open(self, identifier: str, at: int) -> None:
        """The first of several verbs."""


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"duly.db"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("store", None),
        ("store", 5),
        ("store", True),
        ("store", b"duly.db"),
        ("store", BytesPath()),
        ("store", ["duly.db"]),
        ("store", object()),
        ("store", HalfAStore()),
        ("store", SqliteStore),
        ("max_concurrency", True),
        ("max_concurrency", 1.0),
        ("max_concurrency", "4"),
        ("max_concurrency", [4]),
        ("run_timeout", 30),
        ("run_timeout", 30.0),
        ("run_timeout", "30"),
        ("run_timeout", True),
        ("interrupted", None),
        ("interrupted", True),
        ("interrupted", ("restart",)),
        ("on_mismatch", None),
        ("on_mismatch", False),
        ("history", None),
        ("history", True),
        ("history", 1.5),
        ("history", "100"),
        ("trace", None),
        ("trace", 1),
        ("monitor", "yes"),
        ("monitor", 0),
        ("on_event", 5),
        ("on_event", "print"),
        ("on_event", [ignore]),
        ("on_event", awaiting),
        ("on_event", partial(awaiting)),
        ("on_event", partial(partial(awaiting))),
        ("on_event", Awaiting()),
        ("on_event", Awaiting().hear),
        ("on_event", partial(Awaiting())),
        ("on_event", partial(Awaiting().hear_as, "")),
        ("clock", 5),
        ("clock", object()),
        ("clock", ClockWithoutZone()),
        ("clock", SystemClock),
        ("clock", TickingClock),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value).split(" at ")[0],
)
def test_an_option_of_another_type_is_named_at_construction(option: str, value: Any) -> None:
    """Wrong arguments get a clear `TypeError` at construction: it names the option."""
    with pytest.raises(TypeError) as caught:
        duly.Scheduler(**{option: value})
    assert option in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("store", ""),
        ("store", "a\0b"),
        ("max_concurrency", 0),
        ("max_concurrency", -1),
        ("run_timeout", timedelta(0)),
        ("run_timeout", timedelta(microseconds=-1)),
        ("interrupted", "Restart"),
        ("interrupted", "resume"),
        ("interrupted", ""),
        ("on_mismatch", "ignore"),
        ("on_mismatch", "override "),
        ("history", -1),
        ("history", 2**63),
    ],
)
def test_an_option_of_another_value_is_named_at_construction(option: str, value: Any) -> None:
    """Wrong arguments get a clear `ValueError` at construction: it names the option and the value."""
    with pytest.raises(ValueError) as caught:
        duly.Scheduler(**{option: value})
    assert option in str(caught.value)
    assert (str(value) if not isinstance(value, str) else repr(value)) in str(caught.value)


@pytest.mark.parametrize("option", ["interrupted", "on_mismatch"])
def test_a_wrong_choice_is_told_what_there_is_to_choose(option: str) -> None:
    """A clear error says what would be right."""
    choices = {"interrupted": ("restart", "wait"), "on_mismatch": ("override", "refuse")}[option]
    for wrong in ("x", 5):
        with pytest.raises((TypeError, ValueError)) as caught:
            duly.Scheduler(**{option: wrong})  # type: ignore[arg-type]
        assert all(choice in str(caught.value) for choice in choices)


def test_a_listener_that_would_have_to_be_awaited_is_told_why() -> None:
    """`on_event` is a plain callable; a coroutine function is a `TypeError` that says so."""
    with pytest.raises(TypeError, match="coroutine function"):
        duly.Scheduler(on_event=awaiting)


def test_a_clock_is_told_what_it_lacks() -> None:
    """`clock` is a `duly.Clock`: now, elapsed, zone, sleep_until."""
    with pytest.raises(TypeError, match="now, elapsed, zone and sleep_until"):
        duly.Scheduler(clock=ClockWithoutZone())  # type: ignore[arg-type]


def test_options_are_named_and_only_those_there_are() -> None:
    """Everything but the store is keyword-only; a misspelt option is no option."""
    with pytest.raises(TypeError):
        duly.Scheduler("duly.db", 5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="max_concurency"):
        duly.Scheduler(max_concurency=5)  # type: ignore[call-arg]


def test_a_refused_option_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that was never made has touched nothing."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError):
        duly.Scheduler(history=-1)
    assert list(tmp_path.iterdir()) == []


def test_a_stores_own_path_is_checked_at_construction() -> None:
    """`SqliteStore(path)`: the same, one step earlier."""
    for wrong, kind in ((None, TypeError), (5, TypeError), (b"duly.db", TypeError), ("", ValueError)):
        with pytest.raises(kind, match="path"):
            SqliteStore(wrong)  # type: ignore[arg-type]


# --- platforms -------------------------------------------------------------------------------------------------------


def test_on_windows_construction_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """duly runs on Linux and macOS; elsewhere a scheduler says so when it is made."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(duly.UnsupportedPlatformError, match="Windows") as caught:
        duly.Scheduler(":memory:")
    assert isinstance(caught.value, duly.DulyError)
    assert "Linux" in caught.value.details["hint"]


def test_on_windows_everything_else_can_be_imported() -> None:
    """An application that runs there too, without its scheduler, can import duly and use what needs no store."""
    program = """if True:
        import asyncio, hypothesis, multiprocessing, socket, sqlite3, subprocess, sys, tzlocal, uuid
        sys.modules["fcntl"] = None  # there is none
        sys.platform = "win32"
        import duly
        print(duly.parse_cron("0 3 * * *").hours)
        try:
            duly.Scheduler(":memory:")
        except duly.UnsupportedPlatformError as error:
            print(error.message)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["(3,)", "duly does not run on Windows"]


def test_nothing_is_traced_or_monitored_unless_it_is_asked_for() -> None:
    """Each costs something for every start and end."""
    assert not Options().observed
    assert Options(trace=True).observed
    assert Options(monitor=True).observed
