"""Server-sent events: `changed` whenever the store, its scheduler or the sample has changed.

A stream carries no data but a number; the page asks for itself again. All streams share one look at the files per
interval, which takes some ten microseconds.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from duly.web.source import StoreSource

STREAMS_MAX: Final = 100
_HEARTBEAT_SECONDS: Final = 15.0
"""A proxy closes a connection that says nothing, and a client that is gone shows only when something is sent."""


class Live:
    """The streams of one dashboard."""

    def __init__(self, source: StoreSource) -> None:
        self._source = source
        self._streams = 0
        self._looked_at = float("-inf")
        self._seen: Hashable = None
        self._number = 0

    async def endpoint(self, request: Request) -> Response:
        """Open a stream, unless there are too many."""
        if self._streams >= STREAMS_MAX:
            return PlainTextResponse("Too many pages are open; this one goes on without live updates.\n", 503)
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep events back
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(self._events(request), media_type="text/event-stream", headers=headers)

    async def _events(self, request: Request) -> AsyncIterator[str]:
        self._streams += 1
        try:
            seen = self._look()
            silent = 0.0
            yield "retry: 3000\n\n"
            while not await request.is_disconnected():
                await asyncio.sleep(self._source.refresh_seconds)
                silent += self._source.refresh_seconds
                if (number := self._look()) != seen:
                    seen, silent = number, 0.0
                    yield f"event: changed\ndata: {number}\n\n"
                elif silent >= _HEARTBEAT_SECONDS:
                    silent = 0.0
                    yield ": nothing new\n\n"
        finally:
            self._streams -= 1

    def _look(self) -> int:
        """The number of changes seen so far; looks once per interval, whatever the number of streams."""
        now = self._source.clock.elapsed()
        if now - self._looked_at >= self._source.refresh_seconds / 2 or self._seen is None:
            self._looked_at = now
            if (version := self._source.version()) != self._seen:
                self._seen = version
                self._number += 1
        return self._number
