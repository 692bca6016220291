"""Server-sent events: `changed` whenever the store, its scheduler or the sample has changed.

A stream carries no data but a number; the page asks for itself again. All streams share one look at the store per
interval, in a thread: a file takes some ten microseconds, a server that does not answer seconds.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from duly.web.forms import Form, ParameterError
from duly.web.source import StoreSource

ENDING: Final = "duly.ending"
"""The event in the scope of a request that is set when its server ends: a server of our own provides it."""

STREAMS_MAX: Final = 100
_MEDIA_TYPE: Final = "text/event-stream"
_NUMBER_MAX: Final = 10**15
_HEARTBEAT_SECONDS: Final = 15.0
"""A proxy closes a connection that says nothing, and a client that is gone shows only when something is sent."""


class Live:
    """The streams of one dashboard."""

    def __init__(self, source: StoreSource) -> None:
        self._source = source
        self._streams = 0
        self._looked_at = float("-inf")
        self._looking = False
        self._seen: Hashable = None
        self.number = 0
        """How many changes were seen; the first look finds one."""

    async def endpoint(self, request: Request) -> Response:
        """Open a stream, unless there are too many."""
        if self._streams >= STREAMS_MAX:
            return PlainTextResponse("Too many pages are open; this one goes on without live updates.\n", 503)
        try:
            seen = Form(request.query_params).number("seen", 0, _NUMBER_MAX)
        except ParameterError as fault:
            return PlainTextResponse(f"{fault}\n", 400)
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep events back
        if request.method == "HEAD":
            return Response(media_type=_MEDIA_TYPE, headers=headers)
        return _Stream(self, self._events(request, seen), headers)

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """A stream is open."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _events(self, request: Request, seen: int | None) -> AsyncIterator[str]:
        """Changes since `seen`, the number that the page was made with; None: from now on."""
        number, silent = await self._look(), 0.0
        yield "retry: 3000\n\n"
        if seen not in (None, number):
            yield f"event: changed\ndata: {number}\n\n"
        seen = number
        while not await request.is_disconnected():
            if await self._is_ending(request):
                return
            silent += self._source.refresh_seconds
            if (number := await self._look()) != seen:
                seen, silent = number, 0.0
                yield f"event: changed\ndata: {number}\n\n"
            elif silent >= _HEARTBEAT_SECONDS:
                silent = 0.0
                yield ": nothing new\n\n"

    async def _is_ending(self, request: Request) -> bool:
        """Wait until the next look, or for the end of the server; it would cancel a stream that does not end itself."""
        ending: asyncio.Event | None = request.scope.get(ENDING)
        if ending is None:
            await asyncio.sleep(self._source.refresh_seconds)
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), self._source.refresh_seconds)
        return ending.is_set()

    async def _look(self) -> int:
        """The number of changes seen so far; looks once per interval, whatever the number of streams."""
        now = self._source.clock.elapsed()
        if not self._looking and (now - self._looked_at >= self._source.refresh_seconds / 2 or self._seen is None):
            self._looked_at, self._looking = now, True
            try:
                version = await self._source.run(self._source.version, waits=True)
            finally:
                self._looking = False
            if version != self._seen:
                self.number += 1
                self._seen = version
        return self.number


class _Stream(StreamingResponse):
    """A stream that counts from its answer on, not from its first event: many may be asked for at once."""

    def __init__(self, live: Live, events: AsyncIterator[str], headers: Mapping[str, str]) -> None:
        super().__init__(events, media_type=_MEDIA_TYPE, headers=headers)
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._live.one_more():
            await super().__call__(scope, receive, send)
