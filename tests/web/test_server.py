"""The server of `duly web`: what connections may take of its process, whoever opens them."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from uvicorn.server import ServerState

from duly.web import dashboard, server
from duly.web.openapi import OPENAPI
from duly.web.sampler import SampleTaker
from tests.stores.helpers import change
from tests.stores.made import Row, make_store
from tests.web.browser import served

PATIENCE_SECONDS = 30.0
CONNECTIONS = 6
HEAD = b"GET /tasks HTTP/1.1\r\nHost: localhost\r\n"
DOCUMENT = b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
ANSWERS_BYTES = 32_000_000


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server that allows few connections, and has little patience with the silent ones."""
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", CONNECTIONS)
    monkeypatch.setattr(server, "_SILENCE_SECONDS_MAX", 0.2)
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.05)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


def connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=PATIENCE_SECONDS)


def is_closed(client: socket.socket) -> bool:
    """Wait until the server says something, or closes the connection."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_more_connections_than_that_are_closed_at_once_and_silent_ones_after_a_while(address: tuple[str, int]) -> None:
    """Each takes a file descriptor of the process, which may be a scheduler's."""
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(connected(address)) for _ in range(CONNECTIONS + 4)]
        clients[0].sendall(HEAD)  # and never goes on
        assert all(is_closed(client) for client in reversed(clients))
    with urlopen(f"http://{address[0]}:{address[1]}/tasks", timeout=PATIENCE_SECONDS) as answer:
        assert answer.status == 200


def test_a_second_request_that_never_ends_is_silence_too(address: tuple[str, int]) -> None:
    with connected(address) as client:
        client.sendall(HEAD + b"\r\n")
        received = b""
        while b"</html>" not in received and b"\r\n0\r\n" not in received:
            received += client.recv(65_536)
        client.sendall(HEAD)
        while client.recv(65_536):
            pass


def deaf(address: tuple[str, int]) -> socket.socket:
    """A client that asks for more than any buffer of the system holds, and reads nothing of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)  # before it connects: a window cannot be withdrawn
    client.settimeout(PATIENCE_SECONDS)
    client.connect(address)
    client.sendall(DOCUMENT * (ANSWERS_BYTES // len(OPENAPI.read_bytes())))
    return client


def test_clients_that_never_read_lock_nobody_out(address: tuple[str, int]) -> None:
    """They stay, and have all the connections that there are, until nothing more can be sent to them."""
    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS):
            opened.enter_context(deaf(address))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with contextlib.suppress(OSError, HTTPException):  # no connection is left yet
                with urlopen(f"http://{address[0]}:{address[1]}/next", timeout=PATIENCE_SECONDS) as answer:
                    assert answer.status == 200
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)


class Sending:
    """A transport with an answer that its client has not read yet."""

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.ended: str | None = None

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.ended is not None

    def abort(self) -> None:
        self.ended = "aborted"

    def close(self) -> None:
        self.ended = self.ended or "closed"


class Looks:
    """The time of a connection; the test says when it looks."""

    def __init__(self) -> None:
        self._next: list[Callable[[], None]] = []

    def call_later(self, delay: float, look: Callable[..., None], *arguments: object) -> None:
        self._next.append(lambda: look(*arguments))

    def look(self) -> bool:
        """Look, if that was asked for; whether it will again."""
        for each in [self._next.pop() for _ in self._next[:]]:
            each()
        return bool(self._next)


@pytest.fixture
def sending(tmp_path: Path) -> tuple[Sending, Looks, server.BoundedConnection]:
    """A connection to a client that has asked, and whose answer is under way."""
    looks, transport = Looks(), Sending()
    config = server.Server(dashboard(tmp_path / "state.db")).config
    config.load()
    connection = server.BoundedConnection(config, ServerState(), {}, looks)
    connection.connection_made(transport)
    connection.cycle = SimpleNamespace(response_complete=False)
    return transport, looks, connection


def test_a_client_that_reads_slowly_is_sent_the_rest(
    sending: tuple[Sending, Looks, server.BoundedConnection],
) -> None:
    """However little of it at a time; and once it has everything, as a stream between two events, it may wait."""
    transport, looks, _ = sending
    for transport.unsent_bytes in (0, 0, 90_000, 89_999, 60_000, 89_999, 1, 0, 0, 0, 7, 0):
        assert looks.look()
    assert transport.ended is None
    transport.unsent_bytes = 20_000
    assert looks.look()
    assert transport.ended is None
    assert not looks.look()
    assert transport.ended == "aborted"


def test_a_connection_that_was_closed_before_its_client_had_everything_is_watched_to_its_end(
    sending: tuple[Sending, Looks, server.BoundedConnection],
) -> None:
    """A closed transport still sends what it has; one whose client reads no more is aborted."""
    transport, looks, connection = sending
    connection.cycle.response_complete = True
    transport.unsent_bytes = 500
    transport.close()
    assert looks.look()
    transport.unsent_bytes = 400
    assert looks.look()
    assert transport.ended == "closed"
    assert not looks.look()
    assert transport.ended == "aborted"


def test_an_open_stream_is_not_silence(address: tuple[str, int], tmp_path: Path) -> None:
    """A client that has asked may wait for as long as its answer takes."""
    with connected(address) as stream:
        stream.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b"retry:" not in received:
            received += stream.recv(65_536)
        with connected(address) as silent:
            assert is_closed(silent)  # the server has looked at both meanwhile
        with connected(address) as silent:
            assert is_closed(silent)
        change(tmp_path / "state.db", "UPDATE tasks SET name = 'second'")
        while b"event: changed" not in received:
            more = stream.recv(65_536)
            assert more
            received += more


def test_probes_that_wait_for_counts_hold_up_no_page(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a large store takes seconds, during which its health is not known."""
    counted = threading.Event()
    take = SampleTaker.take

    def slow(self: SampleTaker, *arguments: object) -> object:
        assert counted.wait(PATIENCE_SECONDS)
        return take(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SampleTaker, "take", slow)
    probes = [connected(address) for _ in range(3)]
    for probe in probes:
        probe.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with urlopen(f"http://{address[0]}:{address[1]}/next?cron=0+3+*+*+*", timeout=PATIENCE_SECONDS) as answer:
        assert answer.status == 200
    for probe in probes:
        probe.setblocking(False)
        with pytest.raises(BlockingIOError):
            probe.recv(1)  # they still wait
    counted.set()
    for probe in probes:
        probe.close()
