"""The surroundings of a scheduler on a real computer."""

import asyncio
import threading
from functools import partial
from pathlib import Path

import duly
from duly.engine.host import system_host
from tests.engine.helpers import registration
from tests.spec.helpers import ManualClock


async def test_a_store_writes_in_one_thread_of_its_own() -> None:
    """SPEC 3.9: writes reach the disk in their order, and none overlaps another."""
    worker = system_host().new_worker()
    go_on = threading.Event()
    done: list[tuple[str, int]] = []

    def work(name: str) -> None:
        if name == "first":
            go_on.wait(30)
        done.append((name, threading.get_ident()))

    calls = [asyncio.ensure_future(worker.run(partial(work, name))) for name in ("first", "second")]
    await asyncio.sleep(0.02)
    assert done == []
    go_on.set()
    await asyncio.gather(*calls)
    worker.close()
    assert [name for name, _ in done] == ["first", "second"]
    assert len({thread for _, thread in done}) == 1
    assert threading.get_ident() not in {thread for _, thread in done}


async def test_beats_come_from_one_thread_of_their_own() -> None:
    """SPEC 9.4: a callback that blocks the event loop costs no lease."""
    event_loop, ticker = asyncio.get_running_loop(), system_host().new_ticker()
    called: asyncio.Future[int] = event_loop.create_future()
    over = asyncio.Event()

    def beat() -> None:
        event_loop.call_soon_threadsafe(called.set_result, threading.get_ident())

    ticker.start(beat, 3_600.0, lambda: event_loop.call_soon_threadsafe(over.set))
    thread = await asyncio.wait_for(called, 30)
    ticker.stop()
    await asyncio.wait_for(over.wait(), 30)
    assert thread != threading.get_ident()


async def test_a_beat_that_wants_the_next_one_sooner_has_it() -> None:
    """SPEC 9.5: a host is buried as soon as it may be, however long a beat is away."""
    event_loop, ticker = asyncio.get_running_loop(), system_host().new_ticker()
    wishes, over = [0.0, 0.01, None], asyncio.Event()

    def beat() -> float | None:
        wish = wishes.pop(0)
        if wish is None:
            event_loop.call_soon_threadsafe(over.set)
        return wish

    ticker.start(beat, 3_600.0, lambda: None)
    await asyncio.wait_for(over.wait(), 30)
    ticker.stop()
    assert wishes == []


async def test_the_event_loop_of_a_real_computer_is_watched_while_callbacks_run(store: Path) -> None:
    """A callback that blocks the event loop is named; `tests/system` shows it in real time."""
    before = set(threading.enumerate())
    watching: asyncio.Future[list[threading.Thread]] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        new = set(threading.enumerate()) - before
        watching.set_result([thread for thread in new if thread.name == "duly-watchdog"])

    scheduler = duly.Scheduler(store, clock=ManualClock())
    await scheduler.initialize([registration(callback=work)])
    (thread,) = await asyncio.wait_for(watching, 30)
    assert thread.is_alive()
    await scheduler.stop()
    assert not thread.is_alive()
