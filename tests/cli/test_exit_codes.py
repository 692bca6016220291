"""docs/reference/exit-codes.md is what the commands exit with: every code of every command, produced by running it."""

import asyncio
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from duly.cli.app import COMMANDS, main
from duly.cli.output import Exit
from duly.testing import SimulatedHost
from tests.cli.program import (
    PATIENCE_SECONDS,
    Service,
    duly,
    duly_into,
    environment,
    nothing,
    started,
    write_target,
)
from tests.postgres_server import bundled_binaries, server_of
from tests.reference import ROOT, code, rows, sections
from tests.stores.helpers import change

PAGE = sections("exit-codes.md")
ABOUT = {"trace": ["trace export"], "store": ["store sql", "store install", "store check"]}
"""Groups of commands, each of which has a section."""

NAMES = [name for command in COMMANDS for name in ABOUT.get(command, [command])]
NOWHERE = "postgresql://127.0.0.1:1/shop"
HOUR = timedelta(hours=1)
KEPT = '[("kept", "0 0 1 1 *", quick, timedelta(hours=1))]'
_A_DEFECT = """
import duly.cli.app as app
def fail(**_): raise AssertionError("a defect")
app.duly.main = fail
app.main(["check", "* * * * *"])
"""

_SLOW = """
import asyncio, pathlib
async def registrations():
    pathlib.Path("begun").touch()
    await asyncio.Event().wait()
"""

_INTERRUPTS = """
from datetime import timedelta
def interrupt(): raise KeyboardInterrupt
registrations = [("interrupt", "* * * * *", interrupt, timedelta(hours=1))]
"""


def documented(section: str) -> set[int]:
    """The codes of a section, in its table."""
    return {int(row[0]) for row in rows(PAGE[section])}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with targets and stores: traced and stopped long ago, not traced, empty, damaged."""
    folder = tmp_path_factory.mktemp("stage")
    write_target(folder, KEPT)
    write_target(folder, '[("other", "0 0 1 1 *", quick, timedelta(hours=1))]', "other.py")
    (folder / "broken.py").write_text("import reqests\n")
    (folder / "crontab").write_text("0 3 * * * backup\n")
    (folder / "reboot").write_text("@reboot warm-up\n0 3 * * * backup\n")
    (folder / "damaged.db").write_bytes(b"no database" * 1000)
    shutil.copytree(ROOT / "examples" / "traces", folder / "traces")

    async def live(store: str, tasks: list[tuple[object, ...]], *, trace: bool) -> None:
        async with SimulatedHost("2024-05-01T12:00", "UTC", store=folder / store) as host:
            scheduler = host.scheduler(trace=trace)
            await scheduler.initialize(tasks)
            await host.advance(minutes=2)
            await scheduler.stop()

    asyncio.run(live("state.db", [("kept", "0 0 1 1 *", nothing, HOUR)], trace=True))
    shutil.copy2(folder / "state.db", folder / "torn.db")
    change(folder / "torn.db", "DELETE FROM trace WHERE seq = 2")
    asyncio.run(live("untraced.db", [("kept", "0 0 1 1 *", nothing, HOUR)], trace=False))
    asyncio.run(live("empty.db", [], trace=False))
    return folder


def _stopped(folder: Path) -> int:
    with Service("tasks.py", "--store", "stopped.db", folder=folder) as service:
        service.expect("ProgramReady")
        service.send(signal.SIGTERM)
        return service.end().code


def _abandoned(folder: Path) -> int:
    write_target(folder, '[("endless", "* * * * *", endless, timedelta(0))]', "endless.py")
    with Service("endless.py", "--store", "abandoned.db", folder=folder) as service:
        service.expect("TaskRunStarted")
        service.send_until_it_ends(signal.SIGTERM)
        return service.end().code


def _interrupted(folder: Path) -> int:
    (folder / "interrupts.py").write_text(_INTERRUPTS)
    with Service("interrupts.py", "--store", "interrupted.db", folder=folder) as service:
        return service.end().code


def _beside_another(folder: Path) -> int:
    with Service("tasks.py", "--store", "held.db", folder=folder) as service:
        service.expect("ProgramReady")
        return duly("run", "tasks.py", "--store", "held.db", folder=folder).code


def _on_a_server(*arguments: str) -> "Callable[[Path], int]":
    """A command about a database of a server, in which a role may not do anything."""

    def run(folder: Path) -> int:
        server = server_of(bundled_binaries())
        if not server.execute("select 1 from pg_database where datname = 'codes'"):
            server.execute("create database codes", "create role stranger login")
        return duly("store", *arguments, folder=folder, PGHOST=str(server.folder)).code

    return run


def _copied(store: str, *arguments: str) -> "Callable[[Path], int]":
    """A copy to a schema of its own on a server."""

    def run(folder: Path) -> int:
        url = server_of(bundled_binaries()).url()
        return duly("copy", store, url, "--schema", f"copy of {store}", *arguments, folder=folder).code

    return run


def _copied_while_held(folder: Path) -> int:
    with Service("tasks.py", "--store", "used.db", folder=folder) as service:
        service.expect("ProgramReady")
        return _copied("used.db")(folder)


_SIMULATED = ("simulate", "tasks.py", "--from", "2024-05-01T12:00", "--to", "2024-05-01T13:00")

Case = tuple[str, ...] | Callable[[Path], int]


def _web_stopped(folder: Path) -> int:
    """SIGTERM, once the address is printed."""
    command = [sys.executable, "-m", "duly", "web", "--store", "state.db", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("dashboard at http://127.0.0.1:")
        process.terminate()
        return process.wait()


CASES: dict[tuple[str, int], Case] = {
    ("run", 0): _stopped,
    ("run", 1): ("run", "other.py", "--store", "state.db", "--on-mismatch", "refuse"),
    ("run", 3): ("run", "broken.py", "--store", "new.db"),
    ("run", 4): ("run", "tasks.py", "--store", "damaged.db"),
    ("run", 5): _beside_another,
    ("run", 6): _abandoned,
    ("run", 130): _interrupted,
    ("plan", 0): ("plan", "tasks.py", "--store", "state.db"),
    ("plan", 2): ("plan", "other.py", "--store", "state.db", "--check"),
    ("plan", 3): ("plan", "broken.py", "--store", "state.db"),
    ("plan", 4): ("plan", "tasks.py", "--store", "damaged.db"),
    ("status", 0): ("status", "--store", "empty.db"),
    ("status", 1): ("status", "--store", "state.db"),
    ("status", 4): ("status", "--store", "missing.db"),
    ("history", 0): ("history", "--store", "state.db"),
    ("history", 4): ("history", "--store", "damaged.db"),
    ("next", 0): ("next", "tasks.py"),
    ("next", 2): ("next", "*/5 * * * *"),
    ("next", 3): ("next", "broken.py"),
    ("check", 0): ("check", "0 3 * * *"),
    ("check", 1): ("check", "0 3 * * *", "0 25 * * *"),
    ("check", 3): ("check", "broken.py"),
    ("explain", 0): ("explain", "kept", "--at", "2024-05-01T12:00", "--store", "state.db"),
    ("explain", 4): ("explain", "kept", "--at", "2024-05-01T12:00", "--store", "damaged.db"),
    ("simulate", 0): _SIMULATED,
    ("simulate", 3): ("simulate", "broken.py", "--from", "2024-05-01T12:00", "--to", "2024-05-01T13:00"),
    ("simulate", 4): (*_SIMULATED, "--html", "nowhere/page.html"),
    ("trace export", 0): ("trace", "export", "state.db", "-o", "trace.jsonl"),
    ("trace export", 4): ("trace", "export", "missing.db", "-o", "trace.jsonl"),
    ("trace export", 7): ("trace", "export", "untraced.db", "-o", "trace.jsonl"),
    ("verify", 0): ("verify", "state.db"),
    ("verify", 1): ("verify", "traces/overlap-after-a-pause.jsonl"),
    ("verify", 4): ("verify", "missing.db"),
    ("verify", 7): ("verify", "untraced.db"),
    ("web", 0): _web_stopped,
    ("web", 4): ("web", "--store", ":memory:"),
    ("import", 0): ("import", "crontab", "crontab"),
    ("import", 1): ("import", "crontab", "reboot"),
    ("import", 3): ("import", "celery", "broken.py:app"),
    ("store sql", 0): ("store", "sql"),
    ("store sql", 4): ("store", "sql", "--schema", "public"),
    ("store install", 0): _on_a_server("install", "postgresql://duly@/codes"),
    ("store install", 4): ("store", "install", NOWHERE),
    ("store check", 0): _on_a_server("check", "postgresql://duly@/codes"),
    ("store check", 1): _on_a_server("check", "postgresql://stranger@/codes"),
    ("store check", 4): ("store", "check", NOWHERE),
    ("copy", 0): _copied("state.db", "--trace-file", "copied.jsonl"),
    ("copy", 2): ("copy", "state.db", "other.db"),
    ("copy", 4): ("copy", "state.db", NOWHERE),
    ("copy", 5): _copied_while_held,
    ("copy", 7): _copied("torn.db"),
    ("mcp", 0): ("mcp", "--store", "state.db"),
    ("mcp", 3): ("mcp", "--store", "state.db", "broken.py"),
    ("mcp", 4): ("mcp", "--store", "damaged.db"),
    ("completion", 0): ("completion", "bash"),
}
"""By command and code: arguments that lead there, or a function that does it and returns the code."""


ANSWERS = {("plan", 2), ("status", 1), ("check", 1), ("verify", 1), ("import", 1), ("store check", 1)}
"""Codes that belong to an answer on standard output: there is no error message."""


def test_every_code_is_explained_with_its_name() -> None:
    """The first table has the members of `Exit`, and no other."""
    assert [(int(number), name) for number, name, _ in rows(PAGE["Exit codes"])] == [(each, each.name) for each in Exit]


def test_every_command_has_a_section_and_every_code_of_it_a_case() -> None:
    """Nothing is documented that no test produces, and nothing is produced that is not documented."""
    sections_of_commands = {heading for heading in PAGE if heading.startswith("duly ")}
    assert sections_of_commands == {f"duly {name}" for name in NAMES}
    assert {(name, each) for name in NAMES for each in documented(f"duly {name}")} == set(CASES)
    used = {each for _, each in CASES} | documented("Every command")
    assert used == {int(each) for each in Exit}


@pytest.mark.parametrize(("name", "expected"), [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in CASES])
def test_a_command_exits_with_the_documented_code(name: str, expected: int, stage: Path) -> None:
    """Each code of each command, in a real process; where it is 0, an interpreter is started for it."""
    case = CASES[name, expected]
    if callable(case):
        assert case(stage) == expected
        return
    done = duly(*case, folder=stage) if expected else started(*case, folder=stage)
    assert done.code == expected, done
    assert ("error: " in done.err) == (expected != Exit.OK and (name, expected) not in ANSWERS)


def test_the_page_lists_the_answers_that_have_no_error_message() -> None:
    """Code 1 of some commands, and code 2 of `plan --check`."""
    ones, twos = PAGE["Exit codes"].split("no such message: code 1 of ")[1].split(". ")[0].split(", and code 2 of ")
    assert {(name, 1) for name in code(ones)} | {(name.split()[0], 2) for name in code(twos)} == ANSWERS


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_failed_run_once_is_reported_by_its_log_alone(form: str, stage: Path) -> None:
    """Exit code 1, and nothing on standard error."""
    write_target(stage, '[("kept", "0 0 1 1 *", broken, timedelta(hours=1))]', "fails.py")
    done = duly("run", "--once", "kept", "fails.py", "--log-format", form, folder=stage)
    assert (done.code, done.err) == (1, "")
    assert "the upstream service is asleep" in done.out


def test_wrong_usage_of_any_command_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    """The section about every command."""
    assert documented("Every command") == {2, 8, 70, 74, 130, 141}
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--nonsense"])
        assert ended.value.code == Exit.USAGE
        assert "--nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["nowhere/out.svg", "folder.svg", "full.svg"])
@pytest.mark.parametrize(
    "command",
    [
        (*_SIMULATED, "--plot"),
        (*_SIMULATED, "--html"),
        ("plan", "tasks.py", "--store", "state.db", "--html"),
        ("verify", "state.db", "--html"),
        ("trace", "export", "state.db", "-o"),
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_written_is_4(command: tuple[str, ...], file: str, stage: Path) -> None:
    """A missing folder, a folder in its place, a full disk; before or after the work, of any command."""
    (stage / "folder.svg").mkdir(exist_ok=True)
    if not (stage / "full.svg").is_symlink():
        (stage / "full.svg").symlink_to("/dev/full")
    done = duly(*command, file, folder=stage)
    assert (done.code, done.err.count("error: ")) == (Exit.STORE, 1), done


def test_a_defect_is_70(stage: Path) -> None:
    """An exception that no part of duly expects."""
    done = subprocess.run(
        [sys.executable, "-c", _A_DEFECT], cwd=stage, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.DEFECT
    assert "AssertionError: a defect" in done.stderr


def test_an_unknown_zone_is_8(stage: Path) -> None:
    """`TZ=CET-1CEST` is legal POSIX, but not the name of a zone."""
    write_target(stage, KEPT)
    for command in (
        ["run", "tasks.py", "--store", "zone.db"],
        ["plan", "tasks.py", "--store", "state.db"],
        ["status", "--store", "state.db"],
        ["next", "0 3 * * *"],
    ):
        done = duly(*command, folder=stage, TZ="CET-1CEST")
        assert (done.code, done.out) == (Exit.ZONE, ""), done
        (error, hint) = done.err.splitlines()
        assert error.startswith("error: The host's time zone cannot be determined: ")
        assert "CET-1CEST" in error
        assert hint == "hint: set TZ to a zone name such as Europe/Berlin, or fix the system's setting"


def test_a_full_disk_is_74(stage: Path) -> None:
    """Output that fits into a buffer, and output that does not; of any command, in text and in JSON."""
    for arguments in (
        "status --store state.db",
        "status --store state.db --json",
        "next '* * * * *' -n 10000",
        "next '* * * * *' -n 10000 --json",
        "check '* * * * *'",
        "verify state.db",
        "trace export state.db",
        "simulate tasks.py --from 2024-05-01 --to 2024-05-02",
        "plan tasks.py --store state.db",
        "import crontab crontab",
        "run --help",
        "--version",
    ):
        with open("/dev/full", "wb") as full:
            done = duly_into(full.fileno(), *shlex.split(arguments), folder=stage)
        assert done.code == Exit.OUTPUT, (arguments, done)
        assert done.err == (
            "error: standard output cannot be written: no space left on device\nhint: make room, or write elsewhere\n"
        )


def test_a_reader_that_has_enough_is_141(stage: Path) -> None:
    """As a shell has it, and without a message; 1 would mean that a property is violated."""
    for arguments in ("next '* * * * *' -n 10000", "next '* * * * *' -n 10000 --json", "verify -v state.db"):
        done = _in_a_shell(f"{arguments} | true; echo ${{PIPESTATUS[0]}}", stage)
        assert (done.stdout, done.stderr) == (f"{Exit.READER_GONE}\n", ""), (arguments, done)


@pytest.mark.slow
def test_a_closed_output_is_discarded_and_the_code_is_the_answer(stage: Path) -> None:
    """Standard streams that the caller has closed, in any combination."""
    for closed in (">&-", "<&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        for arguments, answer in (
            ("check '0 3 * * *'", 0),
            ("check '0 25 * * *'", 1),
            ("status --store empty.db --json", 0),
            ("status --store missing.db", 4),
            ("verify -", 7),
            ("--help", 0),
        ):
            done = _in_a_shell(f"{arguments} {closed} < /dev/null" if "<" not in closed else arguments + closed, stage)
            assert done.returncode == answer, (arguments, closed, done)
            assert "Traceback" not in done.stderr


def _in_a_shell(arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run `duly` with the redirections of a shell."""
    return subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m duly {arguments}"],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_ctrl_c_is_130(stage: Path) -> None:
    """While `plan` waits for a target that takes its time."""
    begun = stage / "begun"
    (stage / "slow.py").write_text(_SLOW)
    with subprocess.Popen(
        [sys.executable, "-m", "duly", "plan", "slow.py", "--store", "new.db"],
        cwd=stage,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        patience = time.monotonic() + PATIENCE_SECONDS
        while not begun.exists() and process.poll() is None and time.monotonic() < patience:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(PATIENCE_SECONDS) == Exit.INTERRUPTED
        finally:
            process.kill()


def test_the_page_names_the_codes_of_the_operations_page() -> None:
    """docs/operations.md links to the section of `duly run`, and speaks of codes that it has."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split("## Exit codes\n")[1].split("\n## ")[0]
    assert code(text) == ["duly run"]
    assert documented("duly run") >= {3, 5, 6}
