"""Replays the sessions that the pages show; `python -m tests.cli.pages` writes new output into the pages.

A page shows a session in a block marked `console`: commands after `$`, and what they print. Each block is replayed in a
folder of its own, on a stage that fits its first command: a folder with targets alone, a scheduler that is running, one
that was killed, or a store with the past of a week. What depends on the moment (times, lengths of time, numbers of
processes) is compared by its form only; a line `…` stands for any lines.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from duly.testing import SimulatedHost
from tests.cli.program import PATIENCE_SECONDS, ROOT, Service, Terminal, environment
from tests.compute import NotInTimeError
from tests.fork_server import ForkedProcess, can_be_forked
from tests.postgres_server import bundled_binaries, server_of

ZONE = "Europe/Berlin"
PAGES = (ROOT / "README.md", ROOT / "docs" / "commands.md", ROOT / "docs" / "formal.md")
_AS_ON_A_TERMINAL = {"PYTHONUNBUFFERED": "1"}
"""Lines come in the order in which they are printed, whether to standard output or to standard error."""
_NEEDS_NO_SHELL = re.compile(r"""duly(?: +(?:'[^']*'|"[^"$`\\\n]*"|[\w./:=,+@-]+))*""")
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_TASKS = """import asyncio
import logging
from datetime import timedelta

attempts = 0


async def heartbeat() -> None:
    logging.getLogger("tasks").info("still here")


async def sync_mirror() -> None:
    global attempts
    attempts += 1
    await asyncio.sleep(0.2)
    if attempts == 1:
        raise ConnectionError("the mirror does not answer")
    await {then}


def rotate_logs() -> None: ...


registrations = [
    ("heartbeat", "* * * * *", heartbeat, timedelta(seconds=10)),
    ("sync-mirror", "* * * * *", sync_mirror, timedelta(seconds={delay})),
    ("rotate-logs", "30 4 * * *", rotate_logs, timedelta(minutes=1)),
]
"""
_CHANGED = """from datetime import timedelta


async def nothing() -> None: ...


registrations = [
    ("heartbeat", "* * * * *", nothing, timedelta(seconds=10)),
    ("sync-mirror", "0,10,20,30,40,50 * * * *", nothing, timedelta(seconds=30)),
    ("nightly-report", "30 5 * * *", nothing, timedelta(minutes=1)),
]
"""
_WEEK = """from datetime import timedelta


async def nothing() -> None: ...


registrations = [
    ("backup", "30 2 * * *", nothing, timedelta(minutes=10)),
    ("rotate-logs", "0,15,30,45 * * * *", nothing, timedelta(seconds=30)),
    ("report", "0 9 * * 1-5", nothing, timedelta(minutes=5)),
]
"""
_BACKUP = """import asyncio
from datetime import timedelta
from pathlib import Path


async def backup() -> None:
    begun = Path("begun")
    takes = 0.1 if begun.exists() else 3600
    begun.touch()
    await asyncio.sleep(takes)


registrations = [("backup", "* * * * *", backup, timedelta(minutes=5))]
"""
_CRONTAB = """MAILTO=root
*/15 * * * *     /usr/local/bin/poll --fast
30 2 * * mon-fri cd /srv/app && ./backup.sh
@reboot          /usr/local/bin/warm-up
"""


# --- stages ----------------------------------------------------------------------------------------------------------


def _write(folder: Path, then: str, delay: int = 1) -> None:
    (folder / "tasks.py").write_text(_TASKS.format(then=then, delay=delay))
    (folder / "changed.py").write_text(_CHANGED)
    (folder / "broken.py").write_text("import os\n\nimport reqests\n")


@contextlib.contextmanager
def targets_alone(folder: Path) -> Iterator[None]:
    """Nothing has run yet."""
    _write(folder, "asyncio.sleep(0.8)")
    yield


@contextlib.contextmanager
def a_mirror_that_failed(folder: Path) -> Iterator[None]:
    """A scheduler is running, and a retry is pending."""
    _write(folder, "asyncio.sleep(0)", delay=300)
    with Service("tasks.py", "--store", "state.db", folder=folder, TZ=ZONE) as service:
        service.expect("TaskRunFailed", taskName="sync-mirror")
        yield


@contextlib.contextmanager
def a_mirror_that_runs(folder: Path) -> Iterator[None]:
    """A scheduler is running, and so is a task of it."""
    _write(folder, "asyncio.Event().wait()")
    with Service("tasks.py", "--store", "state.db", "--trace", folder=folder, TZ=ZONE) as service:
        service.expect("TaskRunStarted", taskName="sync-mirror")
        second = service.expect("TaskRunStarted", taskName="sync-mirror")
        assert second["cause"] == "retry", "a minute began, and its start took the place of the retry"
        yield


@contextlib.contextmanager
def a_scheduler_that_was_killed(folder: Path) -> Iterator[None]:
    """In the middle of a run."""
    with a_mirror_that_runs(folder):
        pass
    yield


@contextlib.contextmanager
def a_backup_to_be_killed(folder: Path) -> Iterator[None]:
    """A task whose first run does not end in time, and whose second one does."""
    (folder / "tasks.py").write_text(_BACKUP)
    yield


@contextlib.contextmanager
def a_database(folder: Path) -> Iterator[None]:
    """A PostgreSQL server with an empty database, its owner, and a role that may only connect."""
    server = server_of(bundled_binaries())
    server.execute("drop database if exists shop", "drop role if exists admin", "drop role if exists app")
    server.execute("create role admin login", "create role app login", "create database shop owner admin")
    before = os.environ.get("PGHOST")
    os.environ["PGHOST"] = str(server.folder)
    try:
        yield
    finally:
        del os.environ["PGHOST"]
        if before is not None:
            os.environ["PGHOST"] = before


@contextlib.contextmanager
def a_week_and_a_database(folder: Path) -> Iterator[None]:
    """A store with the past of a week, and a server with an empty database."""
    with a_week_long_ago(folder), a_database(folder):
        yield


@contextlib.contextmanager
def a_week_long_ago(folder: Path) -> Iterator[None]:
    """Write a store with the same past every time: failures, a repeated hour, a night without a scheduler; traced."""
    (folder / "tasks.py").write_text(_WEEK)
    (folder / "crontab.txt").write_text(_CRONTAB)
    (folder / "examples").symlink_to(ROOT / "examples")
    for path in Path(_week().name).iterdir():
        shutil.copy2(path, folder)
    yield


@functools.cache
def _week() -> "tempfile.TemporaryDirectory[str]":
    """A folder with that store; made once."""
    folder = tempfile.TemporaryDirectory(prefix="duly-week-")
    logger = logging.getLogger("duly")
    disabled, logger.disabled = logger.disabled, True  # it is about failures, and they are expected
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as apart:  # whether an event loop is running here, or not
            apart.submit(asyncio.run, _live_through_it(Path(folder.name) / "state.db")).result()
    finally:
        logger.disabled = disabled
    return folder


async def _live_through_it(store: Path) -> None:
    async with SimulatedHost("2025-10-23T12:00", ZONE, store=store) as host:
        numbers = {"sync-mirror": 0, "backup": 0}

        async def sync_mirror() -> None:
            numbers["sync-mirror"] += 1
            number = numbers["sync-mirror"]
            await host.sleep(1 + number * 7 % 5 + number % 3 / 10)
            if number % 11 in (7, 8):
                raise ConnectionError("the mirror does not answer")

        async def backup() -> None:
            numbers["backup"] += 1
            await host.sleep(75)
            if numbers["backup"] == 5:
                raise OSError("no space left on device")

        tasks = [
            ("backup", "30 2 * * *", backup, timedelta(minutes=10)),
            ("sync-mirror", "0,10,20,30,40,50 * * * *", sync_mirror, timedelta(seconds=30)),
        ]
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize(tasks)
        await host.advance(days=5, hours=12, seconds=5)
        await scheduler.stop()
        await host.jump(hours=8, minutes=15, seconds=15)
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize(tasks)
        await host.advance(hours=6)
        await scheduler.stop()


Stage = Callable[[Path], AbstractContextManager[None]]
_STAGES: dict[str, Stage] = {
    "run": targets_alone,
    "plan": a_mirror_that_failed,
    "status": a_mirror_that_runs,
    "store": a_database,
    "copy": a_week_and_a_database,
}


def stage_of(block: str) -> Stage:
    """The stage that a block is replayed on: chosen by its first command, and by what it shows."""
    if "kill -9" in block:
        return a_backup_to_be_killed
    if "ended without stopping" in block:
        return a_scheduler_that_was_killed
    found = re.search(r"duly (\w+)", block)
    return _STAGES.get(found[1] if found else "", a_week_long_ago)


# --- sessions --------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A command as it was typed, and what it printed."""

    command: str
    shown: str


class Block(NamedTuple):
    """A session that a page shows."""

    page: Path
    number: int
    text: str

    @property
    def steps(self) -> list[Step]:
        """Its commands, with what each of them printed."""
        parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", self.text, flags=re.MULTILINE)
        return [Step(*pair) for pair in zip(parts[1::2], parts[2::2], strict=True)]


def blocks() -> list[Block]:
    """Every session of every page."""
    return [
        Block(page, number, text)
        for page in PAGES
        for number, text in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")), 1)
    ]


def replay(block: Block, folder: Path) -> list[Step]:
    """Run the commands of a session again; the steps with what they print now."""
    code = 0
    steps: list[Step] = []
    background: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(stage_of(block.text)(folder))
        for command, _ in block.steps:
            if command.endswith("&"):
                word = "TaskRunCompleted" if background else "TaskRunStarted"  # the first one is there to be killed
                background.append(stack.enter_context(in_background(command, folder, word)))
                code, output = 0, ""
            elif command.startswith("kill -9 %1"):
                background[0].kill()
                background[0].wait()
                code, output = 0, ""
            elif command.startswith("duly run"):
                code, output = _until_ctrl_c(command, folder)
            else:
                code, output = run_command(command, code, folder)
            steps.append(Step(command, as_elsewhere(output, folder)))
    return steps


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return environment(TZ=ZONE, PATH=path, PYTHONIOENCODING="utf-8", **_AS_ON_A_TERMINAL)


def run_command(command: str, before: int, folder: Path) -> tuple[int, str]:
    """Run a command to its end, after one with this exit code; its own exit code, and what it prints."""
    line = command.replace("\\\n", " ")
    if _NEEDS_NO_SHELL.fullmatch(line) and can_be_forked(environment()):
        return _run_without_a_shell(shlex.split(line)[1:], folder)
    done = subprocess.run(
        ["/bin/sh", "-c", f"(exit {before})\n{command}"],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def _run_without_a_shell(arguments: Sequence[str], folder: Path) -> tuple[int, str]:
    with tempfile.TemporaryFile() as printed:
        variables = environment(TZ=ZONE, **_AS_ON_A_TERMINAL)
        process = ForkedProcess(arguments, folder, variables, stdout=printed.fileno(), stderr=printed.fileno())
        try:
            code = process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
        printed.seek(0)
        return code, printed.read().decode()


def _until_ctrl_c(command: str, folder: Path) -> tuple[int, str]:
    with Terminal(*command.split()[1:], folder=folder, columns=200, TZ=ZONE, NO_COLOR="1") as terminal:
        terminal.expect("sync-mirror  retry")
        terminal.press("\x03")
        code = terminal.end()
    return code, terminal.shown.replace("\r\n", "\n")


@contextlib.contextmanager
def in_background(command: str, folder: Path, event: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`duly run ... > FILE &`: wait until its log tells of an event; then it goes on until the session ends."""
    log = folder / command.split(">")[1].strip(" &")
    log.unlink(missing_ok=True)
    with subprocess.Popen(["/bin/sh", "-c", f"exec {command[:-1]}"], cwd=folder, env=_environment()) as process:
        try:
            patience = time.monotonic() + PATIENCE_SECONDS
            while not log.exists() or event not in log.read_text():
                assert process.poll() is None
                if time.monotonic() > patience:
                    raise NotInTimeError(f"{command}: no {event}")
                time.sleep(0.02)
            yield process
        finally:
            process.terminate()


def as_elsewhere(output: str, folder: Path) -> str:
    """Output as it would be on the machine of the pages."""
    output = output.replace(str(folder.resolve()), "/srv/app").replace(str(folder), "/srv/app")
    return output.replace(f" on {platform.node()} ", " on vm ")


# --- comparing -------------------------------------------------------------------------------------------------------

_WEEKDAY = r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_FORMS = (
    (r"\^C(?=\d)", "^C "),  # the echo of Ctrl-C, right before the time that a line begins with
    (r"[0-9a-f]{32}|[0-9a-f]{64}", "ID"),
    (rf"({_WEEKDAY} )?\b\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?([+-]\d\d:\d\d|Z)?", "TIME"),
    (rf"({_WEEKDAY} |\b\d{{4}}-\d\d-\d\d )?\b\d\d:\d\d(:\d\d)?\b", "TIME"),
    (r"\bnow\b", "TIME"),
    (r"\b\d{4}-\d\d-\d\d\b", "DATE"),
    (r"\(\+0[12]:00\)", "(OFFSET)"),
    (r"\b\d+(\.\d+)? (ms|s|min|h|d)( \d+ (ms|s|min|h))?\b", "LONG"),
    (r", LONG ago", ""),
    (r"[▁█](?=  1 run,)", "BAR"),  # one that took less than a millisecond has the lowest bar
    (r"\bin \d+\.\d+s$", "in LONG"),  # the last line of pytest
    (r"\b[\d,]+ events\b", "N events"),
    (r"PostgreSQL \d+\.\d+", "PostgreSQL N"),
    (r"(process|\"pid\":|\"runId\":) \d+", r"\1 N"),
    (r"\b\d{9,}\b", "N"),
    (r"(?<=[-\w] ) +| +$", ""),
)


def form(text: str) -> str:
    """A text without the parts that depend on the moment."""
    for pattern, sign in _FORMS:
        text = re.sub(pattern, sign, text, flags=re.MULTILINE)
    return text


def matches(shown: Step, now: Step) -> bool:
    """Whether a page shows what is printed now. A `duly run`, which lasts until it is stopped, may print more."""
    wanted, found = form(shown.shown).splitlines(), form(now.shown).splitlines()
    if shown.command.startswith("duly run"):
        rest = iter(found)
        return all(line in rest for line in wanted)
    pattern = "".join(r"(?:.*\n)*" if line == "…" else re.escape(line) + r"\n" for line in wanted)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in found)) is not None


def session(steps: list[Step]) -> str:
    """A session as a page shows it."""
    return "".join(
        f"$ {command}\n{output}" + ("" if output.endswith("\n") or not output else "\n") for command, output in steps
    )


def main() -> None:
    """Write what the commands print now into the pages, where that differs; a block with `…` stays as it is."""
    for block in blocks():
        if "\n…\n" in block.text:
            continue
        folder = Path(tempfile.mkdtemp(prefix="duly-page-"))
        try:
            steps = replay(block, folder)
        finally:
            shutil.rmtree(folder)
        if not all(map(matches, block.steps, steps)):
            page = block.page.read_text(encoding="utf-8")
            written = page.replace(f"```console\n{block.text}```", f"```console\n{session(steps)}```")
            block.page.write_text(written, "utf-8")
            print(f"{block.page.name}, block {block.number}: written")


if __name__ == "__main__":
    main()
