"""Live updates: a change of the store reaches every open page, and a limited number of pages at once."""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from duly.clock import SystemClock
from duly.stores import SqliteReader
from duly.web import dashboard
from duly.web.live import STREAMS_MAX, Live
from duly.web.sampler import Sampler
from tests.cli.program import PATIENCE_SECONDS
from tests.stores.helpers import change
from tests.stores.made import Row, make_store
from tests.web.conftest import Stage, client

T = TypeVar("T")


class Stream:
    """A client of `/live` that takes what it is sent, as a server would give it."""

    def __init__(self, app: Any, query: str = "") -> None:
        self._app = app
        self._query = query.encode()
        self.status: int | None = None
        self.text = ""
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async def receive() -> dict[str, Any]:
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            self.status = message.get("status", self.status)
            self.text += message.get("body", b"").decode()
            self._news.set()

        scope = {
            "type": "http", "method": "GET", "path": "/live", "raw_path": b"/live", "query_string": self._query,
            "headers": [],
            "root_path": "", "http_version": "1.1", "scheme": "http", "asgi": {"version": "3.0"},
        }  # fmt: skip
        await self._app(scope, receive, send)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await self._news.wait()
                self._news.clear()

    async def leave(self) -> None:
        self._gone.set()
        async with asyncio.timeout(20):
            await self._task


async def test_a_change_of_the_store_is_sent_to_every_stream(store: Path) -> None:
    make_store(store, [Row("one")])
    app = dashboard(store, refresh=0.02)
    streams = [Stream(app) for _ in range(3)]
    for stream in streams:
        await stream.until(lambda stream=stream: "retry:" in stream.text)  # type: ignore[misc]
    before = [stream.text.count("event: changed") for stream in streams]
    change(store, "UPDATE states SET failures = 2")
    for stream, count in zip(streams, before, strict=True):
        await stream.until(lambda stream=stream, count=count: stream.text.count("event: changed") > count)  # type: ignore[misc]
        await stream.leave()


async def test_a_change_after_a_page_was_made_and_before_its_stream_is_sent_at_once(store: Path) -> None:
    """A page that counted when it was made went on saying so until something else changed."""
    make_store(store, [Row("one")])
    app = dashboard(store, refresh=0.02)
    made_before = Stream(app, "seen=0")
    await made_before.until(lambda: "event: changed" in made_before.text)
    await made_before.leave()
    async with client(app) as opened:
        page = (await opened.get("/about")).text
    (seen,) = re.findall(r'data-seen="([0-9]+)"', page)
    change(store, "UPDATE states SET failures = 2")
    stream = Stream(app, f"seen={seen}")
    await stream.until(lambda: f"event: changed\ndata: {int(seen) + 1}" in stream.text)
    await stream.leave()


async def test_a_stream_from_a_number_that_is_none_is_refused(store: Path) -> None:
    make_store(store, [Row("one")])
    async with client(dashboard(store)) as opened:
        answer = await opened.get("/live?seen=-1")
    assert (answer.status_code, answer.text.partition(",")[0]) == (400, "seen is '-1'")


async def test_more_streams_than_that_are_refused_and_a_closed_one_makes_room(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.web.live.STREAMS_MAX", 2)
    app = dashboard(stage.path, refresh=0.02)
    streams = [Stream(app) for _ in range(2)]
    for stream in streams:
        await stream.until(lambda stream=stream: "retry:" in stream.text)  # type: ignore[misc]
    async with client(app) as opened:
        assert (await opened.get("/live")).status_code == 503
    await streams[0].leave()
    third = Stream(app)
    await third.until(lambda: third.status == 200)
    await third.leave()
    await streams[1].leave()
    assert STREAMS_MAX == 100


async def test_streams_that_are_asked_for_at_once_are_counted_one_by_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the server every open page comes back in the same moment."""
    monkeypatch.setattr("duly.web.live.STREAMS_MAX", 2)
    app = dashboard(stage.path, refresh=0.02)
    streams = [Stream(app) for _ in range(5)]
    for stream in streams:
        await stream.until(lambda stream=stream: stream.status is not None)  # type: ignore[misc]
    assert sorted(stream.status or 0 for stream in streams) == [200, 200, 503, 503, 503]
    for stream in streams:
        await stream.leave()


async def test_all_streams_share_one_look_and_none_of_them_is_on_the_event_loop(stage: Stage) -> None:
    """A hundred pages cost no more than one, and a server that does not answer holds up no other request."""

    class Counting:
        def __init__(self) -> None:
            self.clock = stage.clock
            self.refresh_seconds = 1.0
            self.looks = 0
            self.answer = threading.Event()

        async def run(self, work: Callable[[], T], *, waits: bool) -> T:
            assert waits  # not in the threads that make pages
            return await asyncio.to_thread(work)

        def version(self) -> tuple[int]:
            self.looks += 1
            assert self.answer.wait(PATIENCE_SECONDS)
            return (0,)

    source = Counting()
    live = Live(source)  # type: ignore[arg-type]
    looks = [asyncio.create_task(live._look()) for _ in range(100)]
    await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)
    assert sum(each.done() for each in looks) == 99
    source.answer.set()
    assert await asyncio.gather(*looks) == [1] + [0] * 99
    assert source.looks == 1


# --- the sampler -----------------------------------------------------------------------------------------------------


def test_the_sampler_ends_when_nobody_asks_and_starts_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle dashboard costs nothing; and an old sample is not shown as the present one."""
    monkeypatch.setattr("duly.web.sampler._IDLE_SECONDS", 0.0)
    sampler = Sampler(stage.reader, stage.clock, 0.001)
    assert sampler.latest(20) is not None
    deadline = time.monotonic() + 20
    while sampler.number and time.monotonic() < deadline:
        time.sleep(0.001)
    assert sampler.number == 0
    assert sampler.latest(20) is not None


def test_a_store_that_cannot_be_read_is_looked_at_again(store: Path) -> None:
    from duly.errors import StoreError

    clock = SystemClock()
    sampler = Sampler(SqliteReader(store, clock.now), clock, 0.001)
    with pytest.raises(StoreError):
        sampler.latest(20)
    make_store(store, [Row("one")])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            sample = sampler.latest(20)
        except StoreError:
            continue
        assert sample is not None
        assert sample.health.tasks == 1
        return
    pytest.fail("the store was not noticed")


def test_nothing_is_looked_up_while_nothing_changes(stage: Stage) -> None:
    sampler = Sampler(stage.reader, stage.clock, 0.001)
    sampler.latest(20)
    time.sleep(0.05)
    assert sampler.number == 1
