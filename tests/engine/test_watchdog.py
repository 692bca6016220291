"""The watchdog of the event loop: which callback it names, from when on, and what it is not deceived by.

What the thread does is done here by the test itself, on a clock that moves when it waits; `tests/system` has the real
thread beside a real event loop.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import duly
from duly.core.moments import Instant
from duly.engine import watchdog as module
from duly.engine.runner import Run
from duly.engine.setup import Setup
from duly.engine.traffic import Traffic
from duly.engine.watchdog import LoopWatchdog, stack_of
from duly.events import EventLoopBlocked
from duly.stores import SqliteStore
from duly.stores.port import Blockage
from duly.testing import SimulatedHost
from tests.spec.helpers import ManualClock

NOW = Instant(1_700_000_000_000_000)


def run_of(name: str, number: int) -> Run:
    return cast(Run, SimpleNamespace(task=SimpleNamespace(name=name), number=number))


RUN, OTHER = run_of("import", 7), run_of("export", 8)


class Scene:
    """A watchdog with scripted waits: how long each takes, and what is on the stack of the event loop afterwards."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: object) -> None:
        self.now = 100.0
        self.events: list[object] = []
        self.noted: list[Blockage] = []
        self.asked: list[Callable[[], None]] = []
        """Calls that the event loop was asked for and has not made yet."""
        self._waits: Iterator[tuple[float, Run | None]] = iter(())
        self._on_stack: Run | None = None
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(module, "run_on_stack", lambda frame: self._on_stack)
        outbox = SimpleNamespace(emit=self.events.append)
        clock = SimpleNamespace(now=lambda: NOW)
        setup = cast(Setup, SimpleNamespace(store=store, outbox=outbox, clock=clock))
        self.watchdog = LoopWatchdog(setup, Traffic(under_way=1))
        monkeypatch.setattr(self.watchdog, "_loop", SimpleNamespace(call_soon_threadsafe=self._ask))
        monkeypatch.setattr(self.watchdog, "_closed", SimpleNamespace(wait=self._wait))

    def _ask(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.asked.append(lambda: callback(*arguments))

    def _wait(self, seconds: float) -> bool:
        assert 0 < seconds < 1
        step = next(self._waits, None)
        if step is None:
            return True  # it is closed
        passed, self._on_stack = step
        self.now += passed
        return False

    def look(self, *waits: tuple[float, Run | None], unseen: float = 0.0) -> None:
        """A look has found `RUN`, some seconds after one that did not; what it finds from now on."""
        self._waits = iter(waits)
        self.watchdog._await_answer(RUN, self.now - unseen)

    def turn(self, after: float = 0.0) -> None:
        """The event loop turns again, after some seconds."""
        self.now += after
        for callback in self.asked:
            callback()
        self.asked.clear()


class Embedded(SqliteStore):
    """An embedded store that only remembers what it is asked to note."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.noted: list[Blockage] = []

    def note_blockage(self, blockage: Blockage) -> None:
        self.noted.append(blockage)


@pytest.fixture
def embedded(store: Path) -> Embedded:
    return Embedded(store)


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch, embedded: Embedded) -> Scene:
    return Scene(monkeypatch, embedded)


async def test_a_callback_that_blocks_for_a_second_is_noted_while_it_does_and_reported_when_it_ends(
    scene: Scene, embedded: Embedded
) -> None:
    """The event loop may never turn again: observers learn of it from the store, at once and once."""
    scene.look(*[(0.25, RUN)] * 8)
    assert embedded.noted == [Blockage("import", NOW, 1_000)]
    assert scene.events == []
    scene.turn(after=0.5)
    assert embedded.noted[1:] == [Blockage("import", NOW, 2_500)]
    assert scene.events == [EventLoopBlocked("import", 7, 2_500)]


async def test_a_callback_that_blocks_for_exactly_a_second_is_reported(scene: Scene, embedded: Embedded) -> None:
    """Blocked means for a second or longer."""
    scene.look(*[(0.25, RUN)] * 4)
    scene.turn()
    assert embedded.noted == [Blockage("import", NOW, 1_000)] * 2
    assert scene.events == [EventLoopBlocked("import", 7, 1_000)]


async def test_a_callback_that_blocks_for_less_is_not_reported(scene: Scene, embedded: Embedded) -> None:
    """Everything takes a moment."""
    scene.look(*[(0.24, RUN)] * 4)
    scene.turn()
    assert (embedded.noted, scene.events) == ([], [])


@pytest.mark.parametrize(("unseen", "blocked"), [(0.2, True), (0.19, False), (0.3, True)])
async def test_the_time_since_the_look_before_counts_and_is_not_reported(
    scene: Scene, embedded: Embedded, unseen: float, blocked: bool
) -> None:
    """The callback may have begun right after that look; the milliseconds are a lower bound."""
    scene.look(*[(0.2, RUN)] * 4, unseen=unseen)
    scene.turn()
    assert embedded.noted == [Blockage("import", NOW, 800)] * (2 if blocked else 0)
    assert scene.events == [EventLoopBlocked("import", 7, 800)] * blocked


async def test_of_the_time_before_a_late_look_only_a_part_counts(scene: Scene, embedded: Embedded) -> None:
    """A process that was stopped for an hour goes on, and a callback then takes more than half a second."""
    scene.look(*[(0.23, RUN)] * 3, unseen=3_600.0)
    scene.turn()
    assert (embedded.noted, scene.events) == ([], [])


@pytest.mark.parametrize("looks", [2, 3])
async def test_a_process_that_was_stopped_and_goes_on_has_blocked_nothing(
    scene: Scene, embedded: Embedded, looks: int
) -> None:
    """The clock has moved by hours, but few looks have found the callback since."""
    scene.look(*[(3_600.0, RUN)] * looks)
    scene.turn()
    blocked = looks == 3
    assert len(scene.events) == (1 if blocked else 0)
    assert len(embedded.noted) == (2 if blocked else 0)


async def test_a_callback_that_gives_way_to_another_has_not_blocked(scene: Scene, embedded: Embedded) -> None:
    """The event loop turned in between, even if the answer comes late."""
    scene.look((0.25, RUN), (0.25, RUN), (0.25, RUN), (0.1, OTHER), (9.0, RUN))
    scene.turn(after=9.0)
    scene.look((0.25, RUN), (0.25, RUN), (0.25, RUN), (0.1, None), (9.0, RUN))
    scene.turn(after=9.0)
    assert (embedded.noted, scene.events) == ([], [])


async def test_an_answer_ends_the_looks(scene: Scene, embedded: Embedded) -> None:
    """A callback that is on the stack again has been called again, and has not blocked all the time."""
    looks = 0

    def on_stack(frame: object) -> Run:
        nonlocal looks
        looks += 1
        if looks == 2:
            scene.turn()
        return RUN

    scene._waits = iter([(0.25, RUN)] * 20)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "run_on_stack", on_stack)
        scene.watchdog._await_answer(RUN, scene.now)
    assert looks == 2
    assert (embedded.noted, scene.events) == ([], [])


async def test_an_event_loop_that_is_closed_is_not_asked(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went away under a scheduler, and its thread must not die of that."""

    def refuse(*arguments: object) -> None:
        raise RuntimeError("Event loop is closed")

    monkeypatch.setattr(scene.watchdog, "_loop", SimpleNamespace(call_soon_threadsafe=refuse))
    scene.look((5.0, RUN), (5.0, RUN), (5.0, RUN))
    assert next(scene._waits) == (5.0, RUN)  # no look was taken


async def test_a_store_that_has_no_place_for_it_is_not_asked_to_note_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is all there is then."""
    scene = Scene(monkeypatch, object())
    scene.look(*[(0.5, RUN)] * 3)
    scene.turn()
    assert scene.events == [EventLoopBlocked("import", 7, 1_500)]


# --- all looks -------------------------------------------------------------------------------------------------------

LATE = 0.0002
"""Seconds that a wait takes more than was asked for."""


class Timeline:
    """A watchdog that looks at an event loop which callbacks block at known times."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch, *blocks: tuple[float, float, Run]) -> None:
        self._scene = scene
        self._blocks = blocks
        """Beginning, end and run of each."""
        self._end = blocks[-1][1] + 1
        self.questions = 0
        scene.now = 0.0
        loop = SimpleNamespace(is_closed=lambda: False, call_soon_threadsafe=self._ask)
        monkeypatch.setattr(scene.watchdog, "_loop", loop)
        closed = SimpleNamespace(wait=self._wait, is_set=lambda: scene.now > self._end)
        monkeypatch.setattr(scene.watchdog, "_closed", closed)
        scene.watchdog._wanted.set()
        scene.watchdog._run()

    def _ask(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.questions += 1
        self._scene._ask(callback, *arguments)

    def _wait(self, seconds: float) -> bool:
        scene, until = self._scene, self._scene.now + seconds + LATE
        for _, end, _ in self._blocks:
            if scene.now < end <= until:
                scene.now = end
                scene.turn()
        scene.now = until
        scene._on_stack = next((run for begin, end, run in self._blocks if begin <= until < end), None)
        return until > self._end


PHASES = [n / 1000 for n in range(0, 205, 5)]
"""When a callback begins to block, between two looks."""


async def test_a_callback_that_blocks_for_a_second_is_reported_whenever_it_begins(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment is right after a look: the next one finds it 0.2 s later, and up to 1.2 s were missed."""
    for begin in PHASES:
        scene.events.clear()
        Timeline(scene, monkeypatch, (begin, begin + 1.000001, RUN))
        (event,) = scene.events
        assert isinstance(event, EventLoopBlocked)
        assert 799 <= event.blocked_ms <= 1_000


async def test_a_callback_that_blocks_for_less_than_four_fifths_of_a_second_is_not_reported(
    scene: Scene, embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it begins."""
    for begin in PHASES:
        Timeline(scene, monkeypatch, (begin, begin + 0.79, RUN))
    assert (embedded.noted, scene.events) == ([], [])


async def test_a_callback_that_blocks_right_after_another_one_is_reported(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may begin while the thread still waits for the answer about the one before."""
    for length in PHASES[1:]:
        scene.events.clear()
        first_end = 0.1 + length
        Timeline(scene, monkeypatch, (0.1, first_end, OTHER), (first_end, first_end + 1.000001, RUN))
        (event,) = scene.events
        assert isinstance(event, EventLoopBlocked)
        assert event.task_name == "import"


async def test_an_event_loop_that_answers_is_asked_once_per_look(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of short callbacks pays for five questions per second, not for one per callback."""
    steps = [(n / 100, (n + 1) / 100, RUN) for n in range(100)]
    assert 4 <= Timeline(scene, monkeypatch, *steps).questions <= 5
    assert scene.events == []


# --- the thread ------------------------------------------------------------------------------------------------------


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "duly-watchdog"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the state of a thread is no event
            await asyncio.sleep(0.001)


def watchdog_of(traffic: Traffic) -> LoopWatchdog:
    return LoopWatchdog(cast(Setup, SimpleNamespace()), traffic)


@pytest.mark.parametrize("under_way", [0, 1])
@pytest.mark.parametrize("wait", [False, True])
async def test_one_thread_watches_from_the_first_start_to_the_end(under_way: int, wait: bool) -> None:
    """However many runs there are; a process ends without waiting for it."""
    watchdog = watchdog_of(Traffic(under_way=under_way))
    watchdog.close(wait=wait)
    watchdog = watchdog_of(Traffic(under_way=under_way))
    assert watchers() == []
    for _ in range(3):
        watchdog.watch()
    (thread,) = watchers()
    assert thread.daemon
    watchdog.close(wait=wait)
    assert watchers() == []


async def test_the_thread_sleeps_while_nothing_runs_and_wakes_for_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler with nothing to do costs no compute."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    traffic = Traffic(under_way=1)
    watchdog = watchdog_of(traffic)
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(watchdog, "_running_now", look)
    for _ in range(2):
        traffic.under_way = 1
        watchdog.watch()
        before = looks
        await until(lambda before=before: looks > before)  # type: ignore[misc]
        traffic.under_way = 0
        await until(lambda: not watchdog._wanted.is_set())
        await until(lambda: _waits_for(watchdog._wanted))
    watchdog.close(wait=True)


def _waits_for(event: threading.Event) -> bool:
    return len(cast(Any, event)._cond._waiters) == 1


async def test_the_thread_finds_a_callback_that_keeps_the_event_loop_from_turning(
    monkeypatch: pytest.MonkeyPatch, embedded: Embedded
) -> None:
    """It notes the blockage while it lasts, and the event loop reports it when it turns again."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(module, "BLOCKED_SECONDS", 0.01)
    monkeypatch.setattr(module, "run_on_stack", lambda frame: RUN)
    events: list[EventLoopBlocked] = []
    outbox, clock = SimpleNamespace(emit=events.append), SimpleNamespace(now=lambda: NOW)
    watchdog = LoopWatchdog(
        cast(Setup, SimpleNamespace(store=embedded, outbox=outbox, clock=clock)), Traffic(under_way=1)
    )
    watchdog.watch()
    deadline = time.monotonic() + 20
    while not embedded.noted and time.monotonic() < deadline:
        time.sleep(0.001)  # noqa: ASYNC251  # this is what blocks
    assert embedded.noted[0].task == "import"
    assert events == []
    await until(lambda: bool(events))
    watchdog.close(wait=True)
    assert events[0].task_name == "import"


async def test_an_event_loop_that_is_going_away_waits_for_the_thread_no_longer_than_it_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop() waits until it has ended; a teardown must not hang on a thread that gets no compute."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(module, "ENDING_SECONDS_MAX", 0.001)
    watchdog = watchdog_of(Traffic(under_way=1))
    looking, go_on = threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        go_on.wait(20)

    monkeypatch.setattr(watchdog, "_running_now", look)
    watchdog.watch()
    await asyncio.to_thread(looking.wait, 20)
    watchdog.close(wait=False)
    assert len(watchers()) == 1
    go_on.set()
    watchdog.close(wait=True)
    assert watchers() == []


def test_the_thread_ends_when_its_event_loop_has_gone() -> None:
    """SPEC 3.11: without a stop(), nothing else ends it."""
    kept: list[LoopWatchdog] = []

    async def leave() -> None:
        kept.append(watchdog_of(Traffic(under_way=1)))
        kept[0].watch()

    asyncio.run(leave())
    deadline = time.monotonic() + 60
    while watchers() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert watchers() == []


async def test_a_real_event_loop_is_watched_while_a_callback_runs_and_a_simulated_one_never(store: Path) -> None:
    """In a simulation no time passes inside a callback."""
    seen: list[int] = []
    begun = asyncio.Event()

    async def work() -> None:
        seen.append(len(watchers()))
        begun.set()

    tasks = [("task", "* * * * *", work, timedelta(hours=1))]
    scheduler = duly.Scheduler(store, clock=ManualClock())
    await scheduler.initialize(tasks)
    await asyncio.wait_for(begun.wait(), 60)
    await scheduler.stop()
    async with SimulatedHost("2024-01-01T12:00:30", "UTC") as host:
        await host.scheduler().initialize(tasks)
        await host.advance(minutes=1)
    assert seen[0] == 1
    assert seen[1:]
    assert not any(seen[1:])
    assert watchers() == []


def test_the_stack_of_a_thread_that_goes_on_is_whole() -> None:
    """Followed frame by frame it ended at generators that had been left meanwhile, or, in 3.11, at no frame at all."""

    def deep(levels: int) -> Iterator[None]:
        if levels:
            yield from deep(levels - 1)
        for _ in range(20):
            yield

    def work() -> None:
        while not over.is_set():
            for _ in deep(100):
                pass

    over, before = threading.Event(), sys.getswitchinterval()
    worker = threading.Thread(target=work)
    worker.start()
    sys.setswitchinterval(1e-5)
    try:
        assert worker.ident is not None
        outermost = {stack_of(worker.ident)[-1].f_code.co_name for _ in range(10_000)}
    finally:
        sys.setswitchinterval(before)
        over.set()
        worker.join()
    assert outermost == {"_bootstrap"}


def test_a_thread_that_is_gone_has_no_stack() -> None:
    gone = threading.Thread(target=print)
    gone.start()
    gone.join()
    assert gone.ident is not None
    assert stack_of(gone.ident) == []


# --- both at once ----------------------------------------------------------------------------------------------------


async def test_a_question_that_the_thread_takes_back_while_it_is_answered_is_no_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread may find other runs between two instructions of the answer; it raised on the event loop."""
    question = module._Question(RUN, scene.now - 2, scene.now - 2)
    question.looks = 10
    blocked = partial(module._Question.has_blocked, question)

    def has_blocked(_: object) -> bool:
        question.run = None
        return blocked()

    monkeypatch.setattr(module._Question, "has_blocked", has_blocked)
    scene.watchdog._answer(question)
    (event,) = scene.events
    assert isinstance(event, EventLoopBlocked)
    assert event.task_name == "import"
