"""`duly web` and `duly run --web` as programs: addresses, tokens, host names, and clients that are slow or many."""

import contextlib
import http.client
import json
import resource
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
from typing import Any

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
from tests.postgres_server import PostgresServer
from tests.stores.made import Row, make_store
from tests.web.browser import free_port
from tests.web.shared_stage import SharedPast

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


def open_stream(address: str) -> socket.socket:
    """A page that waits for changes: what a browser tab has open."""
    host, _, port = address.removeprefix("http://").partition(":")
    stream = socket.create_connection((host, int(port)), timeout=60)
    stream.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = b""
    while b"retry:" not in received:
        received += stream.recv(4096)
    return stream


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_without_a_word_while_pages_are_open(tmp_path: Path, sent: signal.Signals) -> None:
    """One of them reads, the other one never does; neither is an error of the dashboard."""
    make_store(tmp_path / "state.db", [Row("first")])
    command = [sys.executable, "-m", "duly", "web", "--store", "state.db", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = address_in(process)
        host, _, port = address.removeprefix("http://").partition(":")
        with open_stream(address) as stream, socket.create_connection((host, int(port))) as silent:
            silent.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            process.send_signal(sent)
            output, errors = process.communicate(timeout=60)
            assert stream.recv(4096).endswith(b"0\r\n\r\n")  # the stream has ended, and was not cut off
    assert (process.returncode, output, errors) == (0, "", "")


def test_a_scheduler_ends_without_a_word_about_open_pages(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    command = [sys.executable, "-m", "duly", "run", "tasks.py", "--store", "state.db", "--web", "127.0.0.1:0"]
    with (
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process,
        open_stream(address_in(process)),
    ):
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "ASGI" not in errors


def test_the_command_serves_a_store_that_hosts_share(tmp_path: Path, shared: SharedPast) -> None:
    """Its URL may hold a password, which no page shows; the verdict is that of a child process."""
    url = shared.server.url(password="s3cret")
    options = ("--store", url, "--schema", shared.url.schema, "--port", "0")
    with running(tmp_path, "web", *options) as process:
        address = address_in(process)
        for place in ("/", "/tasks", "/runs", "/about", "/verify", "/whatif?from=now", "/metrics", "/api/v1/runs"):
            status, page = get(f"{address}{place}")
            assert status == 200, page
            assert "s3cret" not in page
        assert "web-1" in get(f"{address}/runs")[1]
        assert get(f"{address}/task?name=nobody")[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_server_that_does_not_answer_yet_is_a_page_that_says_so(tmp_path: Path) -> None:
    """The dashboard starts before its database; the URL is not quoted, because it may hold a password."""
    nowhere = f"postgresql://duly:s3cret@/shop?host={tmp_path}"
    with running(tmp_path, "web", "--store", nowhere, "--port", "0") as process:
        status, page = get(f"{address_in(process)}/tasks")
        assert (status, "s3cret" in page) == (503, False)
        assert "is the server running, and the URL right?" in page


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


def test_without_the_extra_it_is_not_listed_and_says_what_to_install(tmp_path: Path) -> None:
    """One message, exit code 2; and so it is with `duly run --web`."""
    program = (
        "import importlib.util as util, sys\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'starlette' else find(name, *rest)\n"
        "sys.modules['starlette'] = None\n"
        "from duly.cli.app import main; main(sys.argv[1:])"
    )
    (tmp_path / "tasks.py").write_text(TASKS)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert "  web " not in run("--help").stdout
    for arguments in (("web", "--store", "s.db"), ("run", "tasks.py", "--store", "s.db", "--web", "127.0.0.1:0")):
        refusal = run(*arguments)
        assert refusal.returncode == 2, refusal
        assert 'pip install "duly[web]"' in refusal.stderr


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


def test_a_scheduler_keeps_the_token_file_and_the_allowed_hosts(tmp_path: Path) -> None:
    """Whoever does not know the token, or comes by another name, is served nothing."""
    (tmp_path / "tasks.py").write_text(TASKS)
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    options = ("--web", "127.0.0.1:0", "--web-token-file", "token", "--web-allowed-host", "cron.example.net")
    with running(tmp_path, "run", "tasks.py", "--store", "state.db", *options) as process:
        address = address_in(process)
        shown = {"Authorization": "Bearer secret"}
        deadline = time.monotonic() + 60
        while get(f"{address}/api/v1/task?name=task-001", **shown)[0] != 200:  # until the scheduler has begun
            assert time.monotonic() < deadline
        for place in ("/tasks", "/api/v1/tasks?limit=1"):
            assert get(f"{address}{place}")[0] == 401
            assert get(f"{address}{place}", Authorization="Bearer wrong")[0] == 401
            assert get(f"{address}{place}", **shown)[0] == 200
            assert get(f"{address}{place}", **shown, Host="cron.example.net")[0] == 200
            assert get(f"{address}{place}", **shown, Host="evil.example")[0] == 421


class Hostile:
    """Clients that ask without pause, that never finish a request, and that never read an answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._host, _, port = address.removeprefix("http://").partition(":")
        self._port = int(port)
        self._ended = threading.Event()
        self._sockets: list[socket.socket] = []
        self.answers = 0

    def connect(self) -> None:
        """The clients that never finish a request, and those that never read an answer or a stream."""
        for _ in range(60):
            self._sockets.append(socket.create_connection((self._host, self._port)))
            self._sockets[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")  # and never goes on
        for _ in range(40):
            deaf = socket.create_connection((self._host, self._port))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            with contextlib.suppress(OSError):
                deaf.sendall(b"GET /runs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
            self._sockets.append(deaf)
        for _ in range(20):
            self._sockets.append(socket.create_connection((self._host, self._port)))
            self._sockets[-1].sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def ask(self) -> None:
        """Six clients that ask without pause."""
        for number in range(6):
            place = ("/", "/tasks", "/task?name=task-001", "/runs", "/api/v1/status", "/tasks?sort=next")[number]
            threading.Thread(target=self._ask, args=(place,), daemon=True).start()

    def _ask(self, place: str) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):  # the last answer may be cut off
                get(self._address + place)
                self.answers += 1

    def end(self) -> None:
        self._ended.set()
        for each in self._sockets:
            each.close()


LATER_MAX = {"silent": 10, "busy": 30}
"""Silent clients take next to no processor time; busy ones keep up to eight threads busy beside the scheduler's two."""


@pytest.mark.long
@pytest.mark.real_time
@pytest.mark.system
def test_clients_that_are_slow_deaf_or_many_are_waited_for_by_no_start(tmp_path: Path) -> None:
    """200 tasks of every minute, by the durable stamps: alone, beside silent clients, and beside busy ones too.

    Silent are those that never finish a request, and those that never read: a start that waited for one of them would
    come after it has gone, or never. Busy ones take processor time, so starts come later; but not by more than shares
    of it explain, whatever a machine makes of the first minute.
    """
    (tmp_path / "tasks.py").write_text(TASKS)
    port = free_port()
    with running(tmp_path, "run", "tasks.py", "--store", "state.db", "--web", f"127.0.0.1:{port}") as process:
        hostile = Hostile(address_in(process))
        first = (time.time() // 60 + 1) * 60
        time.sleep(first + 10 - time.time())
        hostile.connect()
        time.sleep(first + 75 - time.time())
        hostile.ask()
        time.sleep(first + 135 - time.time())
        answers = hostile.answers
        hostile.end()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert answers > 20  # it was under load, and answered
    reader = SqliteReader(tmp_path / "state.db", SystemClock().now)
    runs = reader.read(lambda view: list(view.runs(RunSelection())))
    late = {
        clients: [run.started_at - run.scheduled_time for run in runs if run.scheduled_time == minute * MICROSECONDS]
        for clients, minute in (("no", first), ("silent", first + 60), ("busy", first + 120))
    }
    assert [len(each) for each in late.values()] == [200, 200, 200]
    latest = {clients: max(each) / MICROSECONDS for clients, each in late.items()}
    if any(latest[clients] > times * max(latest["no"], 0.02) for clients, times in LATER_MAX.items()):
        raise NotInTimeError(f"seconds until the last of 200 tasks started, beside clients: {latest}")


@pytest.mark.system
def test_clients_that_never_read_hold_up_nobody_else(tmp_path: Path) -> None:
    """Nor do those that never finish their request; the dashboard ends when it is told to, whoever is connected."""
    make_store(tmp_path / "state.db", [Row(f"task-{number:03}") for number in range(200)])
    with running(tmp_path, "web", "--store", "state.db", "--port", "0") as process:
        address = address_in(process)
        hostile = Hostile(address)
        hostile.connect()
        for place in ("/", "/tasks", "/runs", "/api/v1/status", "/metrics"):
            assert get(f"{address}{place}")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        hostile.end()


@pytest.mark.system
def test_idle_connections_leave_the_scheduler_its_file_descriptors(tmp_path: Path) -> None:
    """A process has 1,024 as a rule; without any left, every callback that opens a file fails."""
    (tmp_path / "tasks.py").write_text(TASKS)
    idle = 1_100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        arguments = ("run", "tasks.py", "--store", "state.db", "--web", "127.0.0.1:0")
        process = opened.enter_context(running(tmp_path, *arguments))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1_024, 1_024))
        address = address_in(process)
        assert process.stderr is not None
        log = list[str]()
        reading = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
        reading.start()
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, idle + 500), hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        host, _, port = address.removeprefix("http://").partition(":")
        for _ in range(idle):
            opened.enter_context(socket.create_connection((host, int(port)), timeout=60))
        assert len(list((Path("/proc") / str(process.pid) / "fd").iterdir())) < 600
        deadline = time.monotonic() + 60
        while True:  # until those that have not asked for ten seconds are closed
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert get(f"{address}/api/v1/task?name=task-001")[0] == 200
                break
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        reading.join(60)
    assert len(log) < 100
    assert not [line for line in log if "socket.accept" in line]


@pytest.mark.long
@pytest.mark.system
def test_ten_thousand_requests_leave_nothing_behind(tmp_path: Path) -> None:
    """Neither memory nor open files grow with them."""
    make_store(tmp_path / "state.db", [Row(f"task-{number:03}") for number in range(200)])
    places = [f"/task?name=task-{number:03}" for number in range(0, 200, 20)]
    places += ["/tasks", "/runs", "/nowhere"] + ["/next?cron=30+2+*+*+*", "/api/v1/task?name=task-007"] * 44
    with running(tmp_path, "web", "--store", "state.db", "--port", "0") as process:
        host, _, port = address_in(process).removeprefix("http://").partition(":")
        seen: list[tuple[int, int]] = []
        for _ in range(10):
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            for number in range(1_000):
                connection.request("GET", places[number % len(places)])
                answer = connection.getresponse()
                answer.read()
                assert answer.status in {200, 404}, answer.status
            connection.close()
            resident = int((Path("/proc") / str(process.pid) / "statm").read_text().split()[1]) * 4096
            seen.append((resident, len(list((Path("/proc") / str(process.pid) / "fd").iterdir()))))
    (early, files_early), (late, files_late) = seen[2], seen[-1]
    assert late < early + 16_000_000
    assert files_late <= files_early + 4


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


@pytest.mark.system
def test_a_host_of_a_shared_store_serves_the_dashboard_of_all(tmp_path: Path, server: PostgresServer) -> None:
    """`duly run --web` on a URL: the page lists every host, of which this process is one."""
    (tmp_path / "tasks.py").write_text(TASKS)
    server.execute("drop schema if exists web_run cascade")
    arguments = ("run", "tasks.py", "--store", server.url(password="s3cret"), "--schema", "web_run")
    with running(tmp_path, *arguments, "--web", "127.0.0.1:0") as process, running(tmp_path, *arguments) as other:
        address = address_in(process)
        deadline = time.monotonic() + 60
        hosts: list[dict[str, Any]] = []
        while len(hosts) < 2:
            assert time.monotonic() < deadline
            status, text = get(f"{address}/api/v1/status?limit=1")
            hosts = json.loads(text)["cluster"]["hosts"] if status == 200 else []
        assert {each["label"].split()[-1] for each in hosts} == {str(process.pid), str(other.pid)}
        status, page = get(f"{address}/")
        assert (status, "2 living hosts" in page, "s3cret" in page) == (200, True, False)
        for each in (process, other):
            each.send_signal(signal.SIGTERM)
            assert each.wait(60) == 0
    server.execute("drop schema web_run cascade")
