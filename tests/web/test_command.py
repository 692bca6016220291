"""`duly web` and `duly run --web` as programs: addresses, tokens, host names, and clients that are slow or many."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.cli.app import duly
from duly.cli.output import Failure
from duly.cli.service.dashboard import parse_address
from duly.clock import SystemClock
from duly.core.moments import MICROSECONDS
from duly.stores import SqliteReader
from duly.stores.port import RunSelection
from duly.web.server import hosts_for, is_local
from tests.compute import NotInTimeError
from tests.stores.made import Row, make_store
from tests.web.browser import free_port

TASKS = """
from datetime import timedelta

async def work() -> None: ...

registrations = [(f"task-{n:03}", "* * * * *", work, timedelta(minutes=1)) for n in range(200)]
"""


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A command in a process of its own; killed at the end, if it has not ended. Its log is thrown away."""
    command = [sys.executable, "-m", "duly", *arguments]
    errors = subprocess.PIPE if arguments[0] == "run" else subprocess.DEVNULL
    output = subprocess.DEVNULL if arguments[0] == "run" else subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=errors, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def address_in(process: "subprocess.Popen[str]") -> str:
    """The address that a command prints when it listens."""
    for line in process.stdout or process.stderr or ():
        if "dashboard at " in line:
            return line.partition("dashboard at ")[2].strip()
    raise AssertionError("the command ended without an address")


def get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def refused(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the message of a command that does not start; in this process."""
    with contextlib.chdir(folder), pytest.raises(Failure) as failure:
        duly.main(list(arguments), standalone_mode=False)
    return int(failure.value.code), f"{failure.value.message}: {failure.value.hint}"


# --- duly web --------------------------------------------------------------------------------------------------------


def test_the_command_serves_the_store_and_ends_with_a_signal(tmp_path: Path) -> None:
    make_store(tmp_path / "state.db", [Row("first")])
    with running(tmp_path, "web", "--store", "state.db", "--port", "0", "--title", "shop") as process:
        address = address_in(process)
        assert address.startswith("http://127.0.0.1:")
        status, page = get(f"{address}/tasks")
        assert status == 200
        assert "first" in page
        assert "shop" in page
        assert get(f"{address}/", Host="evil.example")[0] == 421
        assert get(address.replace("127.0.0.1", "localhost"))[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_the_token_file_and_the_allowed_hosts_are_kept(tmp_path: Path) -> None:
    make_store(tmp_path / "state.db", [Row("first")])
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    options = ("--port", "0", "--token-file", "token", "--allowed-host", "cron.example.net")
    with running(tmp_path, "web", "--store", "state.db", *options) as process:
        address = address_in(process)
        assert get(f"{address}/")[0] == 401
        allowed = {"Authorization": "Bearer secret", "Host": "cron.example.net"}
        assert get(f"{address}/", **allowed)[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "cron.example.net"])
def test_an_address_that_others_can_reach_needs_a_token(tmp_path: Path, host: str) -> None:
    code, message = refused(tmp_path, "web", "--store", "state.db", "--host", host)
    assert code == 2
    assert "can be reached by others, and there is no token" in message
    assert "--token-file" in message


def test_insecure_listens_where_others_can_reach_it(tmp_path: Path) -> None:
    arguments = ("web", "--store", "state.db", "--host", "0.0.0.0", "--port", "0", "--insecure")
    with running(tmp_path, *arguments) as process:
        port = address_in(process).rpartition(":")[2]
        assert get(f"http://127.0.0.1:{port}/")[0] == 421  # not a name of its own
        assert get(f"http://127.0.0.1:{port}/", Host="localhost")[0] == 503  # the store is not there yet


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, message = refused(tmp_path, "web", "--store", "state.db", "--port", str(port))
    assert code == 2
    assert f"cannot listen at 127.0.0.1, port {port}: address already in use" in message


@pytest.mark.parametrize("content", [None, b"", b"  \n", b"\xff\xfe", b"two\nlines"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    code, message = refused(tmp_path, "web", "--store", "state.db", "--token-file", "token")
    assert code == 2
    assert "token" in message


def test_names_that_only_this_machine_has_are_local() -> None:
    assert [is_local(host) for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8")] == [True] * 4
    assert [is_local(host) for host in ("0.0.0.0", "::", "example.net", "")] == [False] * 4
    assert "127.0.0.1" not in hosts_for("0.0.0.0", ())


# --- duly run --web --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8347", ("127.0.0.1", 8347)),
        ("[::1]:80", ("::1", 80)),
        ("9000", ("127.0.0.1", 9000)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port_or_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "localhost", ":80", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:٣"]
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address such as 127\.0\.0\.1:8347"):
        parse_address(text)


def test_the_options_of_the_dashboard_need_the_dashboard(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    code, message = refused(tmp_path, "run", "tasks.py", "--store", "s.db", "--web-allowed-host", "x")
    assert code == 2
    assert "add --web" in message
    code, message = refused(tmp_path, "run", "tasks.py", "--store", "s.db", "--web", "0.0.0.0:8347")
    assert code == 2
    assert "--web-token-file" in message


class Hostile:
    """Clients that ask without pause, that never finish a request, and that never read an answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._port = int(port)
        self._ended = threading.Event()
        self._sockets: list[socket.socket] = []
        self.answers = 0

    def begin(self) -> None:
        for _ in range(60):
            self._sockets.append(socket.create_connection((self._host, self._port)))
            self._sockets[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")  # and never goes on
        for _ in range(40):
            deaf = socket.create_connection((self._host, self._port))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            with contextlib.suppress(OSError):
                deaf.sendall(b"GET /runs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
            self._sockets.append(deaf)
        for number in range(6):
            place = ("/", "/tasks", "/task?name=task-001", "/runs", "/api/v1/status", "/tasks?sort=next")[number]
            threading.Thread(target=self._ask, args=(place,), daemon=True).start()

    def _ask(self, place: str) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                get(self._address + place)
                self.answers += 1

    def end(self) -> None:
        self._ended.set()
        for each in self._sockets:
            each.close()


@pytest.mark.real_time
@pytest.mark.system
def test_clients_that_are_slow_deaf_or_many_delay_no_start(tmp_path: Path) -> None:
    """200 tasks of every minute beside a dashboard under load; judged by the durable stamps of two minutes."""
    (tmp_path / "tasks.py").write_text(TASKS)
    port = free_port()
    with running(tmp_path, "run", "tasks.py", "--store", "state.db", "--web", f"127.0.0.1:{port}") as process:
        hostile = Hostile(address_in(process))
        hostile.begin()
        first = (time.time() // 60 + 1) * 60
        time.sleep(first + 75 - time.time())
        answers = hostile.answers
        hostile.end()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert answers > 20  # it was under load, and answered
    reader = SqliteReader(tmp_path / "state.db", SystemClock().now)
    runs = reader.read(lambda view: list(view.runs(RunSelection())))
    due = [run for run in runs if run.scheduled_time in {first * MICROSECONDS, (first + 60) * MICROSECONDS}]
    assert len(due) == 400
    latest = max(run.started_at - run.scheduled_time for run in due) / MICROSECONDS
    if latest > 10:
        raise NotInTimeError(f"a start was {latest:.1f} s late")


@pytest.mark.system
def test_the_dashboard_is_served_while_the_scheduler_runs_and_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    arguments = ("run", "tasks.py", "--store", "state.db", "--web", "127.0.0.1:0")
    with running(tmp_path, *arguments) as process:
        address = address_in(process)
        deadline = time.monotonic() + 60
        while get(f"{address}/api/v1/task?name=task-001")[0] != 200:
            assert time.monotonic() < deadline
        health = json.loads(get(f"{address}/api/v1/status?limit=1")[1])
        assert health["holder"]["pid"] == process.pid
        assert health["holder"]["alive"] is True
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
