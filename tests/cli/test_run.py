"""`duly run` in real processes: its log, its signals, its reloads, and its reports to a service manager."""

import json
import re
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from duly.cli.commands.run import run
from duly.cli.output import Exit
from tests.cli.program import PATIENCE_SECONDS, ROOT, Service, Terminal, duly, write_target
from tests.compute import NotInTimeError
from tests.conftest import require

ENDLESS = '[("backup", "* * * * *", endless, timedelta(seconds=5))]'
QUICK = '[("quick", "* * * * *", quick, timedelta(seconds=5))]'


def runs(store: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return connection.execute(
            "SELECT name, outcome FROM runs JOIN tasks USING (generation) ORDER BY seq"
        ).fetchall()
    finally:
        connection.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look again and again, as long as a test waits for a program."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise NotInTimeError("what the program should have done by now")
        time.sleep(0.01)


# --- on a terminal ---------------------------------------------------------------------------------------------------


def test_ctrl_c_stops_gracefully_and_says_what_it_waits_for(tmp_path: Path) -> None:
    """Events are readable lines on a terminal; a run that was under way ends, and its end is recorded (SPEC 4.3)."""
    (tmp_path / "tasks.py").write_text(
        "import asyncio, os\nfrom datetime import timedelta\n"
        "async def slow() -> None:\n"
        "    while not os.path.exists('enough'):\n        await asyncio.sleep(0.01)\n"
        'registrations = [("slow", "* * * * *", slow, timedelta(seconds=5))]\n'
    )
    with Terminal("run", "tasks.py", "--store", "state.db", folder=tmp_path) as terminal:
        terminal.expect("1 task, zone Africa/Lagos (+01:00")
        terminal.expect("slow")
        terminal.expect("due ")
        terminal.press("\x03")
        terminal.expect("SIGINT: stopping, waiting for slow; a second signal abandons it")
        (tmp_path / "enough").touch()
        terminal.expect("stopped: every run has ended, every end is recorded")
        assert terminal.end() == 0
    assert "\x1b[" in terminal.shown  # in colour
    assert "Traceback" not in terminal.shown
    assert runs(tmp_path / "state.db") == [("slow", "success")]


def test_a_second_ctrl_c_abandons_the_runs_and_exits_with_its_own_code(tmp_path: Path) -> None:
    """They are interrupted runs at the next start (SPEC 3.7)."""
    write_target(tmp_path, ENDLESS)
    with Terminal("run", "tasks.py", "--store", "state.db", folder=tmp_path) as terminal:
        terminal.expect("due ")
        terminal.press("\x03")
        terminal.expect("waiting for backup")
        terminal.press_until("\x03", "duly       abandoned backup: interrupted runs at the next start")
        assert terminal.end() == 6
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        assert service.expect("TaskInterrupted")["taskName"] == "backup"
        assert service.expect("TaskRunStarted")["cause"] == "interrupted"


def test_a_closed_terminal_stops_gracefully(tmp_path: Path) -> None:
    """SIGHUP means reload, unless it comes because the terminal was closed: then it means stop."""
    write_target(tmp_path, QUICK)
    with Terminal("run", "tasks.py", "--store", "state.db", folder=tmp_path) as terminal:
        terminal.expect("due ")
        terminal.expect("after ")
        terminal.hang_up()
        assert terminal.wait() == 0
    assert set(runs(tmp_path / "state.db")) == {("quick", "success")}  # two, if a minute began meanwhile


def test_a_failure_is_shown_with_the_lines_of_the_callback_only(tmp_path: Path) -> None:
    """The log has the error, the time of the next start, and the place in the user's own file."""
    write_target(tmp_path, '[("broken", "* * * * *", broken, timedelta(hours=5))]')
    with Terminal("run", "tasks.py", "--store", "state.db", folder=tmp_path, NO_COLOR="1") as terminal:
        terminal.expect("ConnectionError: the upstream service is asleep; again at ")
        terminal.expect(", when it is due")
        terminal.expect('tasks.py", line ')
        terminal.press("\x03")
        assert terminal.end() == 0
    assert "src/duly" not in terminal.shown
    assert "\x1b[" not in terminal.shown  # NO_COLOR


@pytest.mark.parametrize(("options", "listed", "counted"), [([], 20, True), (["-v"], 25, False)])
def test_a_first_start_of_many_tasks_is_summarised(
    tmp_path: Path, options: list[str], listed: int, counted: bool
) -> None:
    """Some new tasks have a line each; the others are counted, unless all is asked for."""
    write_target(tmp_path, '[(f"task-{n:02}", "0 0 1 1 *", quick, timedelta(0)) for n in range(25)]')
    with Terminal("run", "tasks.py", "--store", "state.db", *options, folder=tmp_path, NO_COLOR="1") as terminal:
        terminal.expect("tasks.py on state.db: 25 tasks")
        terminal.press("\x03")
        assert terminal.end() == 0
    assert terminal.shown.count("  new        task-") == listed
    assert ("new        … and 5 more tasks (-v lists all)" in terminal.shown) is counted


@pytest.mark.parametrize(("options", "listed", "counted"), [([], 20, True), (["-v"], 25, False)])
def test_a_start_that_changes_and_removes_many_tasks_is_summarised(
    tmp_path: Path, options: list[str], listed: int, counted: bool
) -> None:
    """As new ones are: of each kind some have a line each, and the others are counted."""
    write_target(tmp_path, '[(f"task-{n:02}", "0 0 1 1 *", quick, timedelta(0)) for n in range(50)]')
    with Terminal("run", "tasks.py", "--store", "state.db", folder=tmp_path, NO_COLOR="1") as terminal:
        terminal.expect("tasks.py on state.db: 50 tasks")
        terminal.press("\x03")
        assert terminal.end() == 0
    write_target(tmp_path, '[(f"task-{n:02}", "0 0 2 1 *", quick, timedelta(0)) for n in range(25, 50)]')
    with Terminal("run", "tasks.py", "--store", "state.db", *options, folder=tmp_path, NO_COLOR="1") as terminal:
        terminal.expect("tasks.py on state.db: 25 tasks")
        terminal.press("\x03")
        assert terminal.end() == 0
    for label in ("orphaned", "changed"):
        assert terminal.shown.count(f"  {label:<11}task-") == listed
        assert (f"{label:<11}… and 5 more tasks (-v lists all)" in terminal.shown) is counted


# --- in a pipe -------------------------------------------------------------------------------------------------------


def test_events_are_json_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    """Each line is an object with time, level and event; so is what the application logs."""
    write_target(tmp_path, '[("broken", "* * * * *", broken, timedelta(hours=5))]')
    with (tmp_path / "tasks.py").open("a") as file:
        file.write('logging.getLogger("shop").info("not yet")\n')
        file.write("def registrations_now():\n")
        file.write("    async def job() -> None: logging.getLogger('shop').info('sold %d', 3)\n")
        file.write("    return [*registrations, ('job', '* * * * *', job, timedelta(0))]\n")
    with Service("tasks.py:registrations_now", "--store", "state.db", folder=tmp_path) as service:
        ready = service.expect("ProgramReady")
        service.expect("LogRecord", logger="shop", message="sold 3")
        failed = service.expect("TaskRunFailed")
        service.expect("TaskRunCompleted") if "TaskRunCompleted" not in service.events else None
        service.send(signal.SIGTERM)
        service.expect("ProgramStopping", reason="SIGTERM", waitingFor=[])
        ended = service.end()
    assert (ready["totalTasks"], ready["pid"], ready["zone"]) == (2, service.pid, "Africa/Lagos")
    assert failed["level"] == "warning"
    assert "in broken" in failed["traceback"]
    assert all({"time", "level", "event"} <= set(line) for line in service.lines)
    assert (ended.code, ended.err) == (0, "")


def test_text_and_verbose_are_a_choice(tmp_path: Path) -> None:
    """`--log-format text` in a pipe has dates and no colour; `--json` on a terminal has JSON; `-v` shows polls."""
    write_target(tmp_path, "[]")
    with Terminal("run", "tasks.py", "--store", "state.db", "--json", "-v", folder=tmp_path) as terminal:
        terminal.expect('"event": "ProgramReady"')
        terminal.press("\x03")
        assert terminal.end() == 0
    lines = [json.loads(line) for line in terminal.shown.replace("^C", "").splitlines() if line]
    assert "SchedulerInitializationCompleted" in [line["event"] for line in lines]


def test_a_callback_that_blocks_the_event_loop_cannot_keep_a_second_signal_away(tmp_path: Path) -> None:
    """Signals are not left to the event loop: it may be what hangs."""
    (tmp_path / "tasks.py").write_text(
        "import os\nfrom datetime import timedelta\n"
        "async def spin() -> None:\n    open('spinning', 'w').close()\n    while True: pass\n"
        'registrations = [("spin", "* * * * *", spin, timedelta(0))]\n'
    )
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted") if sys.version_info < (3, 12) else service.expect("ProgramReady")
        wait_until((tmp_path / "spinning").exists)
        service.send(signal.SIGTERM)
        service.send_until_it_ends(signal.SIGINT)
        ended = service.end()
    assert ended.code == 6
    assert service.events[-1] == "ProgramAbandoned"


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("kind", ["async def", "def"], ids=["coroutine", "blocking"])
def test_a_keyboard_interrupt_of_a_callback_is_given_as_the_reason_of_the_end(
    kind: str, form: str, tmp_path: Path
) -> None:
    """SPEC 3.11: it goes out of the event loop, and with that the program ends; other callbacks are abandoned."""
    (tmp_path / "tasks.py").write_text(
        "import asyncio\nfrom datetime import timedelta\n"
        "async def endless() -> None:\n    await asyncio.Event().wait()\n"
        f"{kind} interrupt() -> None:\n    raise KeyboardInterrupt\n"
        'registrations = [(name, "* * * * *", call, timedelta(0)) for name, call in\n'
        '                 (("endless", endless), ("interrupt", interrupt))]\n'
    )
    ended = duly("run", "tasks.py", "--store", "state.db", "--log-format", form, folder=tmp_path)
    assert (ended.code, ended.err) == (130, "")
    last = ended.out.splitlines()[-1]
    if form == "json":
        line = json.loads(last)
        del line["time"]
        assert line == {
            "level": "error", "event": "ProgramInterrupted", "taskName": "interrupt", "waitingFor": ["endless"]
        }  # fmt: skip
    else:
        assert last.split("  duly       ")[1] == (
            "interrupt raised KeyboardInterrupt: ended; abandoned endless: interrupted runs at the next start"
        )
    assert "never retrieved" not in ended.out
    assert runs(tmp_path / "state.db") == [("interrupt", "failure")]


def test_a_keyboard_interrupt_of_another_part_of_the_target_is_not_blamed_on_a_task(tmp_path: Path) -> None:
    """A task of asyncio that a callback has started belongs to no run."""
    (tmp_path / "tasks.py").write_text(
        "import asyncio\nfrom datetime import timedelta\n"
        "async def interrupt() -> None:\n    raise KeyboardInterrupt\n"
        "async def spawn() -> None:\n    await asyncio.gather(interrupt())\n"
        'registrations = [("spawn", "* * * * *", spawn, timedelta(0))]\n'
    )
    ended = duly("run", "tasks.py", "--store", "state.db", "--log-format", "text", folder=tmp_path)
    assert ended.code == 130
    assert ended.out.splitlines()[-1].endswith(
        "  tasks.py raised KeyboardInterrupt: ended; abandoned spawn: interrupted runs at the next start"
    )


def test_scheduling_goes_on_when_the_log_is_closed(tmp_path: Path) -> None:
    """A closed log neither stops the scheduler nor makes it end with an error."""
    write_target(tmp_path, '[("again", "* * * * *", broken, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunFailed")
        before = len(runs(tmp_path / "state.db"))
        service.stop_reading()
        wait_until(lambda: len(runs(tmp_path / "state.db")) >= before + 2)  # retried every second
        service.send(signal.SIGTERM)
        assert service.wait() == (0, "")


def test_ctrl_c_while_the_target_is_being_loaded_ends_at_once(tmp_path: Path) -> None:
    """Nothing has started yet, so there is nothing to wait for."""
    (tmp_path / "tasks.py").write_text(
        "import asyncio\nasync def registrations():\n"
        "    print('loading', flush=True)\n    await asyncio.Event().wait()\n"
    )
    with Terminal("run", "tasks.py", "--store", "state.db", folder=tmp_path) as terminal:
        terminal.expect("loading")
        terminal.press("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.py"]


def test_flags_reach_the_scheduler(tmp_path: Path) -> None:
    """--run-timeout cancels a run, --history 0 keeps none of it, --max-concurrency starts one after the other."""
    write_target(tmp_path, '[(name, "* * * * *", endless, timedelta(hours=1)) for name in "ab"]')
    options = ["--run-timeout", "200ms", "--history", "0", "--max-concurrency", "1"]
    with Service("tasks.py", "--store", "state.db", *options, folder=tmp_path) as service:
        first = service.expect("TaskRunFailed")
        second = service.expect("TaskRunFailed")
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    assert {first["taskName"], second["taskName"]} == {"a", "b"}
    assert "the run took longer than run_timeout, 0.2 s" in first["error"]
    order = [line["event"] for line in service.lines if line["event"] in {"TaskRunStarted", "TaskRunFailed"}]
    assert order == ["TaskRunStarted", "TaskRunFailed"] * (len(order) // 2)  # more, if a minute began meanwhile
    assert runs(tmp_path / "state.db") == []


def test_on_mismatch_refuse_names_the_difference_and_starts_nothing(tmp_path: Path) -> None:
    """SPEC 5.6, with the words of the command line."""
    write_target(tmp_path, '[("a", "0 0 1 1 *", quick, timedelta(0)), ("b", "0 0 1 1 *", quick, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        service.send(signal.SIGTERM)
        service.end()
    write_target(tmp_path, '[("a", "0 0 2 1 *", quick, timedelta(0)), ("c", "0 0 1 1 *", quick, timedelta(0))]')
    refused = duly("run", "tasks.py", "--store", "state.db", "--on-mismatch", "refuse", folder=tmp_path)
    assert refused.code == 1
    for line in ("1 added, 1 removed, 1 changed", "added: c", "removed: b", "changed: a", "--on-mismatch override"):
        assert line in refused.err
    assert "Traceback" not in refused.err


def test_a_second_scheduler_on_a_store_is_told_who_has_it(tmp_path: Path) -> None:
    """SPEC 5.7: exit code 5, and one message that names the holder."""
    write_target(tmp_path, "[]")
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        second = duly("run", "tasks.py", "--store", "state.db", folder=tmp_path)
    assert second.code == 5
    assert second.err.count("error:") == 1
    assert f"in use by process {service.pid} on" in second.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run"], 2, "Missing argument 'TARGET'"),
        (["run", "tasks.py"], 2, "Missing option '--store'"),
        (["run", "tasks.py", "--store", "s.db", "--max-concurrency", "0"], 2, "--max-concurrency"),
        (["run", "tasks.py", "--store", "s.db", "--run-timeout", "soon"], 2, "'soon' is not a duration such as 90s"),
        (["run", "tasks.py", "--store", "s.db", "--run-timeout", "0s"], 2, "must be greater than zero"),
        (["run", "tasks.py", "--store", "s.db", "--interrupted", "never"], 2, "'never' is not one of"),
        (["run", "task.py", "--store", "s.db"], 3, "no such file: task.py"),
        (["run", "tasks.py", "--store", "nowhere/s.db"], 4, "does not exist"),
        (["run", "tasks.py", "--store", "."], 4, "is a folder"),
    ],
)
def test_wrong_usage_is_one_message_and_a_code(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    """No traceback, nothing started, nothing created."""
    write_target(tmp_path, QUICK)
    ended = duly(*arguments, folder=tmp_path)
    assert ended.code == code
    assert message in ended.err
    assert ended.err.count("error:") == 1
    assert "Traceback" not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.py"]


def test_what_the_monitor_finds_is_told_at_once_and_in_the_exit_code(tmp_path: Path) -> None:
    """`--monitor`. The scheduler goes on; a stop is graceful, says what was violated, and exits with 1."""
    target = write_target(tmp_path, QUICK)
    # A checker whose calendar knows no occurrence takes every start for one that is not owed.
    target.write_text(
        f"from duly.formal import calendar\ncalendar.Schedule.after = lambda *_: calendar.NEVER\n{target.read_text()}"
    )
    with Service("tasks.py", "--store", "state.db", "--monitor", folder=tmp_path) as service:
        violated = service.expect("PropertyViolated", property="S2")
        assert violated["level"] == "error"
        service.expect("TaskRunCompleted")
        service.send(signal.SIGTERM)
        ended = service.end()
    assert ended.code == 1
    assert service.lines[-1]["event"] == "ProgramStopped"
    assert service.lines[-1]["violations"]["S2"] >= 1
    with Terminal("run", "tasks.py", "--store", "other.db", "--monitor", folder=tmp_path) as terminal:
        terminal.expect("S2: starts although nothing is owed")
        terminal.press("\x03")
        terminal.expect("but the monitor found violated: S2 ")
        assert terminal.end() == 1


def test_a_monitored_run_without_violations_ends_with_zero(tmp_path: Path) -> None:
    """And says nothing about it."""
    write_target(tmp_path, QUICK)
    with Service("tasks.py", "--store", "state.db", "--monitor", folder=tmp_path) as service:
        service.expect("TaskRunCompleted")
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    assert "violations" not in service.lines[-1]


def test_uvloop_is_a_choice(tmp_path: Path) -> None:
    """--uvloop runs the same program on another event loop; signals and reloads included."""
    require("uvloop", 'pip install "duly[uvloop]"')
    (tmp_path / "tasks.py").write_text(
        "import asyncio\nfrom datetime import timedelta\n"
        "async def which() -> None: raise RuntimeError(type(asyncio.get_running_loop()).__module__)\n"
        'registrations = [("which", "* * * * *", which, timedelta(hours=1))]\n'
    )
    with Service("tasks.py", "--store", "state.db", "--uvloop", folder=tmp_path) as service:
        assert service.expect("TaskRunFailed")["error"] == "RuntimeError: uvloop"
        service.send(signal.SIGHUP)
        service.expect("ProgramReloaded")
        service.send(signal.SIGTERM)
        assert service.end().code == 0


def test_many_tasks_are_left_alone_by_the_collector(tmp_path: Path) -> None:
    """After a large initialize() what it built is frozen."""
    write_target(
        tmp_path,
        '[("ask", "* * * * *", ask, timedelta(0))] + '
        '[(str(n), "0 0 1 1 *", quick, timedelta(0)) for n in range(10_000)]\n',
    )
    frozen = "gc.get_freeze_count() > 10_000"
    ask = f"import asyncio, gc\nasync def ask():\n    await asyncio.sleep(0.5)\n    raise RuntimeError({frozen})\n"
    (tmp_path / "tasks.py").write_text(ask + (tmp_path / "tasks.py").read_text())
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        assert service.expect("TaskRunFailed")["error"] == "RuntimeError: True"


# --- reloading -------------------------------------------------------------------------------------------------------


def test_sighup_loads_the_target_again_and_a_failure_leaves_the_old_in_force(tmp_path: Path) -> None:
    """So does a change of a module in its folder; after an error, which is shown with its place, nothing stops."""
    (tmp_path / "jobs.py").write_text('CRON = "0 0 1 1 *"\nasync def job() -> None: ...\n')
    (tmp_path / "tasks.py").write_text(
        "from datetime import timedelta\nimport jobs\n"
        'registrations = [("job", jobs.CRON, jobs.job, timedelta(seconds=5))]\n'
    )
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        (tmp_path / "jobs.py").write_text("CRON = 1 / 0\n")
        service.send(signal.SIGHUP)
        failed = service.expect("ProgramFailed")
        (tmp_path / "jobs.py").write_text('CRON = "0 0 31 2 *"\nasync def job() -> None: ...\n')
        service.send(signal.SIGHUP)
        refused = service.expect("ProgramFailed")
        (tmp_path / "jobs.py").write_text('CRON = "* * * * *"\nasync def job() -> None: ...\n')
        service.send(signal.SIGHUP)
        assert service.expect("ProgramReloaded")["changedTasks"] == 1
        service.expect("TaskRunCompleted", taskName="job")
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    assert "ZeroDivisionError: division by zero" in failed["error"]
    assert "jobs.py" in failed["excerpt"]
    assert failed["hint"] == "the old registrations go on"
    assert "registration 0 (job): Invalid cron expression" in refused["error"]


def test_a_failed_reload_stands_in_the_text_log_with_its_time(tmp_path: Path) -> None:
    """It stood on standard error alone, without a time, so the log did not say why nothing had changed."""
    write_target(tmp_path, QUICK)
    arguments = ("tasks.py", "--store", "state.db", "--log-format", "text")
    with Service(*arguments, folder=tmp_path) as service:
        service.expect_text("tasks.py on state.db: 1 task")
        write_target(tmp_path, "1 / 0")
        service.send(signal.SIGHUP)
        line = service.expect_text("ZeroDivisionError")
        assert re.match(
            r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  error      tasks.py cannot be imported: ZeroDivisionError", line
        )
        assert line.endswith("(the old registrations go on)")
        assert "tasks.py" in service.expect_text("File ")
        service.send(signal.SIGTERM)
        code, errors = service.wait()
    assert (code, errors) == (0, "")


def test_watch_reloads_when_a_file_changes(tmp_path: Path) -> None:
    """--watch does what SIGHUP does, for the file and for what it imports from its folder."""
    (tmp_path / "jobs.py").write_text('NAME = "first"\n')
    write_target(tmp_path, '[(jobs.NAME, "0 0 1 1 *", quick, timedelta(0))]')
    (tmp_path / "tasks.py").write_text("import jobs\n" + (tmp_path / "tasks.py").read_text())
    with Service("tasks.py", "--store", "state.db", "--watch", folder=tmp_path) as service:
        service.expect("ProgramReady")
        new = tmp_path / "new.py"
        new.write_text('NAME = "second"\n')
        new.rename(tmp_path / "jobs.py")  # as editors do
        assert service.expect("ProgramReloading")["reason"] == "jobs.py has changed"
        assert service.expect("TaskAdded")["taskName"] == "second"
        service.expect("ProgramReloaded")
        service.send(signal.SIGTERM)
        assert service.end().code == 0


# --- under a service manager -----------------------------------------------------------------------------------------


class Manager:
    """The end of the notification socket where systemd would listen."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE_SECONDS)
        self._heard: list[list[str]] = []

    def __enter__(self) -> "Manager":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def received(self, line: str, since: int = 0) -> int:
        """Wait for a datagram with this line; returns how many have come up to it."""
        number = since
        while True:
            while number == len(self._heard):
                self._heard.append(self._socket.recv(4096).decode().splitlines())
            number += 1
            if line in self._heard[number - 1]:
                return number

    def lines(self, number: int) -> list[str]:
        """The lines of a datagram."""
        return self._heard[number - 1]


@pytest.mark.real_time
def test_the_service_manager_hears_what_happens(tmp_path: Path) -> None:
    """sd_notify: ready, the running tasks, signs of life, reloading, ready again, stopping and what it waits for."""
    write_target(tmp_path, ENDLESS)
    variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with (
        Manager(tmp_path / "notify") as manager,
        Service("tasks.py", "--store", "state.db", folder=tmp_path, **variables) as service,
    ):
        ready = manager.received("READY=1")
        assert f"MAINPID={service.pid}" in manager.lines(ready)
        manager.received("STATUS=1 task, running backup")
        # Twice in the time that the manager allows, and not more often.
        sign = manager.received("WATCHDOG=1")
        begun = time.monotonic()
        for _ in range(4):
            sign = manager.received("WATCHDOG=1", since=sign)
        if time.monotonic() - begun <= 0.2:
            raise NotInTimeError("four signs of life at once: too many, or read too late")
        service.send(signal.SIGHUP)
        reloading = manager.received("RELOADING=1")
        assert any(line.startswith("MONOTONIC_USEC=") for line in manager.lines(reloading))
        manager.received("READY=1", since=reloading)
        service.send(signal.SIGTERM)
        stopping = manager.lines(manager.received("STOPPING=1"))
        assert "STATUS=stopping, waiting for backup; a second signal abandons it" in stopping
        service.send_until_it_ends(signal.SIGTERM)
        assert service.end().code == 6


# --- standby ---------------------------------------------------------------------------------------------------------


@pytest.mark.real_time
def test_a_second_program_stands_by_and_takes_over_when_the_first_one_is_killed(tmp_path: Path) -> None:
    """SPEC 10.2: ready for systemd while it waits; a target that changes meanwhile is the one that is taken over."""
    write_target(tmp_path, ENDLESS)
    variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    arguments = ("tasks.py", "--store", "state.db", "--standby")
    write_target(tmp_path, QUICK, "other.py")
    with Manager(tmp_path / "notify") as manager, Service(*arguments, folder=tmp_path) as first:
        first.expect("ProgramReady")  # before the second one begins, which could be faster
        first.expect("TaskRunStarted")
        with Service("other.py", *arguments[1:], folder=tmp_path, **variables) as second:
            waits = second.expect("StandbyStarted")
            assert waits["level"] == "info"
            assert waits["holder"]["pid"] == first.pid
            ready = manager.lines(manager.received("READY=1"))
            assert {"READY=1", f"MAINPID={second.pid}"} < set(ready)
            assert f"STATUS=standing by, held by process {first.pid} on {socket.gethostname()}" in ready
            manager.received("WATCHDOG=1")
            write_target(tmp_path, f"{QUICK[:-1]}, {ENDLESS[1:]}", "other.py")
            second.send(signal.SIGHUP)
            assert second.expect("ProgramReloaded")["totalTasks"] == 2
            first.send(signal.SIGKILL)
            first.end()
            assert second.expect("StandbyEnded")["holding"] is True
            assert second.expect("ProgramReady")["totalTasks"] == 2
            second.expect("TaskRunStarted", taskName="backup", cause="interrupted")
            assert not {"error", "warning"} & {
                line["level"] for line in second.lines if line["event"] not in ("TaskInterrupted", "TaskOrphaned")
            }
            second.send(signal.SIGKILL)


def test_a_program_that_stands_by_stops_when_it_is_told_to_and_leaves_the_holder_alone(tmp_path: Path) -> None:
    """Exit code 0, and the log says that it never had the store."""
    write_target(tmp_path, ENDLESS)
    arguments = ("tasks.py", "--store", "state.db")
    with Service(*arguments, folder=tmp_path) as first:
        first.expect("ProgramReady")
        with Service(*arguments, "--standby", folder=tmp_path) as second:
            second.expect("StandbyStarted")
            second.send(signal.SIGTERM)
            assert second.expect("StandbyEnded")["holding"] is False
            assert second.end().code == 0
        assert duly("run", *arguments, folder=tmp_path).code == Exit.LOCKED
        first.send(signal.SIGKILL)


def test_a_standby_that_cannot_take_over_ends_as_a_start_does(tmp_path: Path) -> None:
    """A wrong target is found when the program starts, one that does not match the store when the store is free."""
    write_target(tmp_path, ENDLESS)
    other = write_target(tmp_path, QUICK, "other.py")
    arguments = ("--store", "state.db", "--standby", "--on-mismatch", "refuse")
    with Service("tasks.py", *arguments, folder=tmp_path) as first:
        first.expect("TaskRunStarted")
        with Service(other.name, *arguments, folder=tmp_path) as second:
            second.expect("StandbyStarted")
            first.send(signal.SIGKILL)
            first.end()
            outcome = second.end()
            assert outcome.code == Exit.NO
            assert "Declared tasks do not match the stored ones" in outcome.err
            assert "StandbyFailed" in second.events


def test_the_text_log_says_who_is_waited_for(tmp_path: Path) -> None:
    """In words, for people."""
    write_target(tmp_path, QUICK)
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as first:
        first.expect("ProgramReady")
        with Terminal("run", "tasks.py", "--store", "state.db", "--standby", folder=tmp_path) as second:
            second.expect(f"the store is held by process {first.pid} on ")
            second.expect("; waiting until it is free")
            first.send(signal.SIGTERM)
            second.expect("the store was free: taken over")
            second.expect("tasks.py on state.db: 1 task")
            second.press("\x03")
            assert second.end() == 0


def test_nothing_is_sent_where_no_manager_listens(tmp_path: Path) -> None:
    """A stale socket, or a watchdog meant for another process, is not a fault."""
    write_target(tmp_path, QUICK)
    variables = {"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    with Service("tasks.py", "--store", "state.db", folder=tmp_path, **variables) as service:
        service.expect("TaskRunCompleted")
        service.send(signal.SIGTERM)
        assert service.end().code == 0


def test_the_example_unit_calls_a_program_that_exists(tmp_path: Path) -> None:
    """Every option of its command line is one of `duly run`, and every exit code in it is a documented one."""
    unit = (ROOT / "examples" / "duly.service").read_text()
    start = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert " run " in start
    options = [word for word in start.split() if word.startswith("--")]
    known = {option for parameter in run.params for option in parameter.opts}
    assert options
    assert set(options) <= known
    codes = next(line for line in unit.splitlines() if line.startswith("RestartPreventExitStatus="))
    assert {int(code) for code in codes.partition("=")[2].split()} == {Exit.USAGE, Exit.TARGET, Exit.ZONE}
