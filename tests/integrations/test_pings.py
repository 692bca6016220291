"""Pings: what is sent, to a real server on this host; and what a bad one can do."""

import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from duly.events import PollCompleted, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from duly.integrations import pings as module
from duly.integrations.pings import WAITING_MAX, Pings
from duly.testing import SimulatedHost
from tests.compute import NotInTimeError
from tests.programs import environment
from tests.system.children import PATIENCE_SECONDS

PATIENCE = timedelta(seconds=PATIENCE_SECONDS)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Received(NamedTuple):
    """A request as the server got it."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: bytes


class Service:
    """A service that notes pings, and answers with statuses that a test can choose."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.statuses: list[int] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                url = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                service.received.append(Received(self.command, url.path, parse_qs(url.query), body))
                status = service.statuses.pop(0) if service.statuses else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(b"OK")

            do_GET = do_POST = answer  # noqa: N815 - the names are http.server's

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/uuid"

    @property
    def paths(self) -> list[str]:
        return [each.path for each in self.received]


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)


def started(run: int = 1, task: str = "backup") -> TaskRunStarted:
    return TaskRunStarted(task, NOON, NOON, "cron", run)


async def test_a_run_is_announced_and_its_end_reported(service: Service) -> None:
    """Start, success; start, failure with the error; one `rid` for each run, and tasks without a URL are silent."""
    pings = Pings({"backup": service.url}, alive=f"{service.url}-alive")
    outcomes = iter([None, ValueError("no space left")])

    def backup() -> None:
        if (error := next(outcomes)) is not None:
            raise error

    async with SimulatedHost("2026-11-16T11:59:30", "UTC") as host:
        await host.scheduler(on_event=pings).initialize(
            [("backup", "0,1 12 * * *", backup, timedelta(hours=1)), ("other", "* * * * *", print, timedelta(hours=1))]
        )
        await host.advance(minutes=2)
    assert pings.flush(PATIENCE)
    of_task = [each for each in service.received if each.path.startswith("/uuid") and "alive" not in each.path]
    assert [each.path for each in of_task] == ["/uuid/start", "/uuid", "/uuid/start", "/uuid/fail"]
    assert of_task[3].body == b"ValueError: no space left"
    assert [each.method for each in of_task] == ["GET", "GET", "GET", "POST"]
    runs = [UUID(each.query["rid"][0]) for each in of_task]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    assert service.paths.count("/uuid-alive") == 3  # at the start, 12:00 and 12:01
    assert pings.dropped == 0


def test_alive_is_pinged_once_a_minute_however_often_there_are_polls(service: Service) -> None:
    """A retry or an end makes a poll of its own."""
    pings = Pings(alive=service.url)
    for second in (0, 1, 30, 60, 90, 120):
        pings(PollCompleted(NOON + timedelta(seconds=second), 1, 0, 0.1))
    assert pings.flush(PATIENCE)
    assert service.paths == ["/uuid"] * 3


def test_an_address_keeps_its_query_and_may_end_in_a_slash(service: Service) -> None:
    pings = Pings({"backup": f"{service.url}/?create=1"})
    pings(started())
    assert pings.flush(PATIENCE)
    assert service.received[0].path == "/uuid/start"
    assert service.received[0].query["create"] == ["1"]


def test_a_long_error_is_cut(service: Service) -> None:
    """And one that UTF-8 cannot write is sent all the same."""
    pings = Pings({"backup": service.url})
    pings(TaskRunFailed("backup", 1.0, "\ud800" + "ä" * 50_000, 1))
    assert pings.flush(PATIENCE)
    assert len(service.received[0].body) == 10_000


def test_a_ping_is_tried_three_times(service: Service) -> None:
    """A service that fails twice; and one that says that there is no such check, which will not change."""
    pings = Pings({"backup": service.url})
    service.statuses = [500, 503]
    pings(started())
    assert pings.flush(PATIENCE)
    assert (len(service.received), pings.dropped) == (3, 0)
    service.statuses = [500, 500, 500]
    pings(started())
    assert pings.flush(PATIENCE)
    assert (len(service.received), pings.dropped) == (6, 1)
    service.statuses = [404]
    pings(started())
    assert pings.flush(PATIENCE)
    assert (len(service.received), pings.dropped) == (7, 2)


def test_a_redirect_is_not_followed(service: Service) -> None:
    """Pings go where you said."""
    pings = Pings({"backup": service.url})
    service.statuses = [302]
    pings(started())
    assert pings.flush(PATIENCE)
    assert service.paths == ["/uuid/start"]
    assert pings.dropped == 1


def test_a_failing_check_is_logged_once_without_its_address(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """Until it succeeds; the address is a secret."""
    pings = Pings({"backup": service.url})
    with caplog.at_level(logging.WARNING):
        service.statuses = [404, 404, 200, 404]
        for run in range(4):
            pings(started(run))
            assert pings.flush(PATIENCE)
    assert [record.getMessage() for record in caplog.records] == [
        "pings (task 'backup') are dropped: the answer was 404"
    ] * 2


# --- hostile servers -------------------------------------------------------------------------------------------------


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats each connection as it likes; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()
        server.settimeout(0.02)

        def accept() -> None:
            connections = []
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()
            for connection in connections:
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}/uuid"
        finally:
            over.set()
            thread.join()


def says_nothing(_: socket.socket) -> None:
    """Accepts, and is silent for ever."""


def hangs_up(connection: socket.socket) -> None:
    connection.close()


def drips(connection: socket.socket) -> None:
    """A byte every few milliseconds: no single read is late."""
    pause = threading.Event()
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not pause.wait(0.02):
            connection.sendall(b"a")
    except OSError:
        pass


def talks_nonsense(connection: socket.socket) -> None:
    try:
        connection.recv(1000)
        connection.sendall(b"\x00\xff garbage \r\n\r\n")
    except OSError:  # the client was faster to give up
        pass
    connection.close()


def floods(connection: socket.socket) -> None:
    """Headers without end."""
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X: " + b"y" * 60_000 + b"\r\n")
    except OSError:
        pass


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("serve", [says_nothing, hangs_up, drips, talks_nonsense, floods])
def test_a_hostile_server_costs_a_ping_and_nothing_else(
    serve: Callable[[socket.socket], None], scheme: str, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try ends by its time limit; the next ping, to another server, arrives."""
    with listening(serve) as address:
        pings = Pings({"bad": f"{scheme}://{address}", "good": service.url}, time_limit=timedelta(milliseconds=200))
        pings(started(task="bad"))
        pings(started(task="good"))
        assert pings.flush(PATIENCE)
    if (service.paths, pings.dropped) != (["/uuid/start"], 1):  # the time limit is the good server's, too
        raise NotInTimeError(f"{pings.dropped} pings were dropped, and these arrived: {service.paths}")
    assert caplog.messages[0].startswith("pings (task 'bad') are dropped: ")


def test_a_server_that_is_slow_holds_up_no_event_and_the_oldest_pings_are_dropped() -> None:
    """Nothing is sent here; on_event returns at once, and memory is bounded."""
    with listening(says_nothing) as address:
        pings = Pings({"backup": f"http://{address}"}, time_limit=PATIENCE)
        for run in range(WAITING_MAX + 500):
            pings(started(run))
        assert not pings.flush(timedelta(milliseconds=1))
        assert pings.dropped in {499, 500}  # one of them is being sent


def test_a_host_that_does_not_answer_at_all_is_dropped() -> None:
    """Nothing listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pings = Pings({"backup": f"http://127.0.0.1:{port}/uuid"})
    pings(TaskRunCompleted("backup", 1.0, 1))
    assert pings.flush(PATIENCE)
    assert pings.dropped == 1


def test_the_last_ping_is_sent_before_the_process_ends(service: Service) -> None:
    """A program that ends right after its last run."""
    code = """
import sys
from datetime import timedelta
from duly.events import TaskRunCompleted
from duly.integrations.pings import Pings
pings = Pings({"backup": sys.argv[1]}, time_limit=timedelta(seconds=1))
pings(TaskRunCompleted("backup", 1.0, 1))
"""
    subprocess.run([sys.executable, "-c", code, service.url], env=environment(), check=True)
    assert service.paths == ["/uuid"]


@pytest.mark.parametrize(
    "address", ["hc.example/uuid", "ftp://hc.example/x", "file:///etc/passwd", "http://", "http://a\nb"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """When the object is made; the message names the task."""
    with pytest.raises(ValueError, match="the URL of 'backup' must be an address that begins with http:// or https://"):
        Pings({"backup": address})
    with pytest.raises(ValueError, match="the URL for alive must be an address"):
        Pings(alive=address)


def test_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match="checks must be a mapping from task names to URLs, got list"):
        Pings(["https://hc.example"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the URL of 'backup' must be text, got int"):
        Pings({"backup": 7})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="time_limit must be a timedelta, got int"):
        Pings(time_limit=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="time_limit must be positive"):
        Pings(time_limit=timedelta(0))
