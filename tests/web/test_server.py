"""The server of `duly web`: what connections may take of its process, whoever opens them."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from duly.web import dashboard, server
from duly.web.sampler import SampleTaker
from tests.stores.helpers import change
from tests.stores.made import Row, make_store
from tests.web.browser import served

PATIENCE_SECONDS = 30.0
CONNECTIONS = 6
HEAD = b"GET /tasks HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server that allows few connections, and little time for the head of a request."""
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", CONNECTIONS)
    monkeypatch.setattr(server, "_HEADER_SECONDS", 0.2)
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
