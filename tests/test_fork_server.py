"""A forked process is what a started one would be: `tests/fork_server.py`."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Service, Terminal, duly, environment, started, write_target
from tests.fork_server import ForkedProcess, can_be_forked

SHOWING = """
import os, sys, threading, time
from datetime import timedelta

print(os.getcwd(), sys.path[0], sys.argv[1:], time.tzname, sorted(os.environ))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.fileno(), stream.isatty(), stream.encoding, stream.errors, stream.line_buffering, type(stream.buffer))
print(sorted(int(name) for name in os.listdir("/dev/fd"))[:3], threading.active_count(), __name__)
registrations = []
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_program_finds_what_it_would_find_if_it_had_been_started(unbuffered: str, tmp_path: Path) -> None:
    """Folder, path, arguments, zone, environment, streams; a target shows them while it is imported."""
    (tmp_path / "showing.py").write_text(SHOWING)
    arguments = ("plan", "showing.py", "--store", "state.db")
    variables = {"TZ": "Asia/Kathmandu", "SOMETHING": "else", "PYTHONUNBUFFERED": unbuffered}
    forked = duly(*arguments, folder=tmp_path, **variables)
    assert forked == started(*arguments, folder=tmp_path, **variables)
    assert "SOMETHING" in forked.err
    assert str(tmp_path) in forked.err


def test_streams_on_a_terminal_are_a_terminals(tmp_path: Path) -> None:
    """And it is the terminal of the process: keys such as Ctrl-C reach it."""
    (tmp_path / "asking.py").write_text("import os; print(os.isatty(0), os.getsid(0) == os.getpid(), os.ctermid())")
    with Terminal("check", "asking.py", folder=tmp_path) as terminal:
        terminal.expect("True True /dev/tty")
        terminal.end()


def state_of(process: int) -> str:
    """The state of a process in one letter: `T` of one that is stopped. A small system has no `ps`."""
    of_linux = Path(f"/proc/{process}/stat")
    if of_linux.exists():
        return of_linux.read_text().rpartition(")")[2].split()[0]
    command = ["ps", "-o", "state=", "-p", str(process)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout[0]


def test_a_process_can_be_frozen_and_ended(tmp_path: Path) -> None:
    """Its exit code says by which signal; nobody hears of it before."""
    write_target(tmp_path, "[]")
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        with service.frozen():
            assert state_of(service.pid) == "T"
        service.send(signal.SIGKILL)
        assert service.end().code == -signal.SIGKILL


def test_a_process_that_does_not_end_is_not_waited_for_longer_than_that(tmp_path: Path) -> None:
    """As with `subprocess`."""
    write_target(tmp_path, "[]")
    process = ForkedProcess(["run", "tasks.py", "--store", "state.db"], tmp_path, environment())
    try:
        assert process.poll() is None
        for wait in (process.wait, process.communicate):
            with pytest.raises(subprocess.TimeoutExpired):
                wait(0.01)
    finally:
        process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_what_an_interpreter_reads_when_it_starts_is_not_for_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another path, another language, a measurement of coverage."""
    assert can_be_forked(environment(TZ="UTC", COLUMNS="80"))
    assert not can_be_forked(environment(PYTHONPATH="elsewhere"))
    assert not can_be_forked(environment(PYTHONIOENCODING="latin-1"))
    assert not can_be_forked(environment(LC_ALL="C"))
    monkeypatch.setenv("COVERAGE_PROCESS_START", os.devnull)
    assert not can_be_forked(environment())
