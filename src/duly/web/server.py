"""Serves a dashboard with uvicorn, on a socket that is bound before anything else happens."""

import contextlib
import ipaddress
import socket
from collections.abc import Collection, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

PORT: Final = 8347
_GRACE_SECONDS: Final = 1
"""How long open streams are waited for when the server ends."""

_CONNECTIONS_MAX: Final = 1_000
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


class Server(uvicorn.Server):
    """Serves until told to; signals are left to the program, which may be a scheduler as well."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=_CONNECTIONS_MAX,
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

    def end(self) -> None:
        """Finish what is under way, and return from serve(); from any thread."""
        self.should_exit = True
