"""Serves a dashboard with uvicorn, on a socket that is bound before anything else happens."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Collection, Iterator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from duly.web.live import ENDING

PORT: Final = 8347
_GRACE_SECONDS: Final = 1
"""How long open streams are waited for when the server ends."""

_CONNECTIONS_MAX: Final = 256
"""Each takes a file descriptor of the process, which has 1,024 as a rule, and may be a scheduler's."""

_SILENCE_SECONDS_MAX: Final = 10.0
"""How long a client may take for the head of a request, or take nothing of an answer; uvicorn would wait for ever."""

_HEADER_BYTES_MAX: Final = 32 * 1024
_KEEP_ALIVE_SECONDS: Final = 5
_BACKLOG: Final = 128


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; raises OSError if that is in use, or is not this machine's."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_for(host: str, allowed: Collection[str]) -> list[str]:
    """The host names that requests to a server of our own may carry."""
    return ["localhost", "127.0.0.1", "::1", host, *allowed] if is_local(host) else ["localhost", host, *allowed]


def address_of(listener: socket.socket) -> str:
    """The address of a listening socket, for a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a message says more than that clients were cut off, as they are when a server ends."""
    cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and not record.getMessage().startswith("Cancel ")


class BoundedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed if there are too many of them, or if its client neither asks nor reads."""

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS_MAX:
            transport.abort()
        else:
            self._look_again(None, 0)

    def _look_again(self, idle_since: object, unsent_bytes: int) -> None:
        self.loop.call_later(_SILENCE_SECONDS_MAX, self._look, idle_since, unsent_bytes)

    def _look(self, idle_since: object, unsent_bytes_before: int) -> None:
        """Close it if no request has begun since the last look, and none was under way then.

        Abort it if an answer was being sent at the last look, and its client has taken none of it since.
        """
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes and unsent_bytes == unsent_bytes_before:
            self.transport.abort()  # close() would wait until the client has read the rest
            return
        latest = self.cycle
        is_idle = latest is None or latest.response_complete
        if is_idle and latest is idle_since:
            self.transport.close()
        if unsent_bytes or not self.transport.is_closing():
            self._look_again(latest if is_idle else self, unsent_bytes)


class Server(uvicorn.Server):
    """Serves until told to; signals are left to the program, which may be a scheduler as well."""

    def __init__(self, app: ASGIApp) -> None:
        self._ending = asyncio.Event()

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            scope[ENDING] = self._ending
            await app(scope, receive, send)

        super().__init__(
            uvicorn.Config(
                told,
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                http=BoundedConnection,
                backlog=_BACKLOG,  # also how many connections are accepted in one round of the event loop
                h11_max_incomplete_event_size=_HEADER_BYTES_MAX,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                proxy_headers=False,
                ws="none",
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and then whatever has not ended by itself after a while, without a word."""
        self._ending.set()
        logger = logging.getLogger("uvicorn.error")
        logger.addFilter(_is_news)
        try:
            await super().shutdown(sockets)
            await asyncio.gather(*self.server_state.tasks, return_exceptions=True)
        finally:
            logger.removeFilter(_is_news)

    def end(self) -> None:
        """Finish what is under way, and return from serve(); from any thread."""
        self.should_exit = True
