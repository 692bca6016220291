"""Task names that someone meant ill with, all the way: API, store, trace, log, and every command that shows them."""

import io
import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import duly
from duly.cli.target import looks_like_target
from duly.formal.checking import check
from duly.stores.sqlite.trace import export
from duly.testing import SimulatedHost
from tests.cli.program import duly as run_duly
from tests.stores.helpers import history, integrity, query, stored_tasks
from tests.system.load_program import DELAY
from tests.system.record import record

NAMES = {
    "line breaks": "first\nTaskRunCompleted taskName=forged\r\nlast",
    "terminal escapes": "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\x1b[?1049h",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9b31m",
    "right to left": "report\u202egnp.exe\u2066\u2069 \u05d0\u05d1\u05d2",
    "emoji": "🦆👩‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "combining": "z" + "\u0335\u0321\u0489" * 200,
    "SQL": "x'); DROP TABLE tasks; --",
    "more SQL": "\"; ATTACH DATABASE '/tmp/evil' AS evil; --%_\\",
    "formats": "%s %n {0.__class__} ${HOME} `id` $(id) \\x1b",
    "markup": "[bold red]x[/] [link=http://example.invalid]y[/link] :smile: <script>alert(1)</script>",
    "JSON": '","task":"forged","x":"',
    "paths": "../../etc/passwd",
    "blanks": "  \t ",
    "options": "--help",
    "BOM and no-break": "\ufeff\u00a0\u200b\u2028\u2029",
}
MEGABYTE = "ä" * 500_000 + "\n"
FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
"""Characters that reach neither terminal nor log: controls, escapes, changes of direction, hidden line ends."""


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """duly's log, as a plain formatter writes it."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger, ear = logging.getLogger("duly"), Ear()
    level = logger.level
    logger.addHandler(ear)
    logger.setLevel(logging.DEBUG)
    yield heard
    logger.removeHandler(ear)
    logger.setLevel(level)


async def _a_life(store: Path, names: list[str]) -> None:
    """Runs that succeed and fail, an interrupted one, a re-initialisation: everything that mentions a name."""

    async def succeed() -> None:
        pass

    async def fail() -> None:
        raise ValueError(names[0])

    async with SimulatedHost("2025-06-02T11:59:30", "UTC") as host:

        async def long() -> None:
            await host.sleep(600)

        callbacks = (succeed, fail, long)
        tasks = [(name, "* * * * *", callbacks[index % 3], DELAY) for index, name in enumerate(names)]
        await host.scheduler(store, trace=True).initialize(tasks)
        await host.advance(minutes=3)
        await host.crash()
        scheduler = host.scheduler(store, trace=True)
        await scheduler.initialize(tasks)
        await host.advance(minutes=12)
        await scheduler.initialize([(name, "0 * * * *", succeed, DELAY) for name in names])
        await host.advance(minutes=11)
        await scheduler.stop()


async def test_hostile_names_change_nothing_but_what_the_task_is_called(tmp_path: Path, lines: list[str]) -> None:
    """Stored as they are, logged on one line without effect, read back equal, judged by the checker."""
    store = tmp_path / "store.db"
    names = list(NAMES.values())
    await _a_life(store, names)
    assert set(stored_tasks(store)) == set(names)
    assert {name for name, _, _ in history(store)} == set(names)
    tables = {name for (name,) in query(store, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"meta", "schedulers", "tasks", "states", "runs", "marks", "trace", "segments"}
    assert integrity(store) == "ok"
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as connection:
        trace = b"".join(export(connection, clean=True))
    assert trace.isascii()
    assert not FORBIDDEN.search(trace.decode().replace("\n", ""))
    assert not check(io.BytesIO(trace)).violated
    assert lines
    assert not [line for line in lines if FORBIDDEN.search(line) or "\n" in line]
    record("hostile, task names", names=len(names), log_lines=len(lines))


async def test_a_name_of_a_megabyte_is_a_name(tmp_path: Path, lines: list[str]) -> None:
    """Declared, started, ended, interrupted and found again; in the store and on its line of the log, whole."""
    store = tmp_path / "store.db"

    async def nothing() -> None:
        pass

    async with SimulatedHost("2025-06-02T12:00:00", "UTC") as host:
        await host.scheduler(store, trace=True).initialize([(MEGABYTE, "* * * * *", nothing, DELAY)])
        await host.crash()
        scheduler = host.scheduler(store, trace=True)
        await scheduler.initialize([(MEGABYTE, "* * * * *", nothing, DELAY)])
        await host.advance(seconds=1)
        await scheduler.stop()
    assert {name for name, _, _ in history(store)} == {MEGABYTE} == set(stored_tasks(store))
    assert not [line for line in lines if "\n" in line]
    record("hostile, task names", names=1, longest_bytes=len(MEGABYTE.encode()))


def _shown(folder: Path, commands: list[list[str]]) -> None:
    """Each of these commands does its work, and nothing it shows can act on a terminal."""
    for command in commands:
        outcome = run_duly(*command, folder=folder)
        asked = " ".join(command)[:100]
        # 0 and 1 are answers; all else would mean that the command was not even understood.
        assert outcome.code in (0, 1), (asked, outcome.err[-2000:])
        assert outcome.out, asked
        assert "Traceback" not in outcome.err, outcome.err[-2000:]
        for text in (outcome.out, outcome.err):
            assert not FORBIDDEN.search(text), (asked, FORBIDDEN.findall(text)[:10])


def _target(folder: Path, names: list[str]) -> str:
    """A file that declares them, in one more way than the store has them."""
    tasks = "".join(f"    ({name!r}, '5 * * * *', nothing, timedelta(0)),\n" for name in names)
    begin = "from datetime import timedelta\nasync def nothing(): ...\n"
    (folder / "tasks.py").write_text(f"{begin}registrations = [\n{tasks}]\n", encoding="utf-8")
    return "tasks.py"


async def test_every_command_shows_hostile_names_without_being_moved_by_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing reaches the terminal that could act on it; as JSON they are equal to what was declared."""
    monkeypatch.chdir(tmp_path)  # where the commands look for files, too
    store, names = str(tmp_path / "store.db"), list(NAMES.values())
    await _a_life(Path(store), names)
    target = _target(tmp_path, names)
    day = ["--from", "2025-06-02", "--to", "2025-06-03"]
    expressions = [name for name in names if not looks_like_target(name)]
    commands = [
        *(["status", "--store", store], ["history", "--store", store], ["verify", store], ["trace", "export", store]),
        *(["explain", "--store", store, "--at", "2025-06-02T12:01", "--", name] for name in names[:3]),
        *(["plan", target, "--store", store], ["next", target], ["next", "--merged", target]),
        *(["simulate", target, *day], ["simulate", target, *day, "--fail", "*=30%"], ["check", "--", *expressions]),
    ]
    _shown(tmp_path, commands)
    for name in set(names) - set(expressions):  # with a colon it may be module:attribute
        outcome = run_duly("check", "--", name, folder=tmp_path)
        assert (outcome.code, FORBIDDEN.search(outcome.err)) == (3, None), outcome
    told = run_duly("status", "--json", "--store", store, folder=tmp_path).json
    assert {task["task"] for task in told["tasks"]} == set(names)
    record("hostile, task names", names=len(names), commands=len(commands) + 1)


@pytest.mark.slow
async def test_every_command_copes_with_a_name_of_a_megabyte(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Shown whole or cut short, but shown; as JSON it is the name that was declared."""
    caplog.set_level(logging.CRITICAL, logger="duly")  # of no use by the megabyte
    store, names = str(tmp_path / "store.db"), [MEGABYTE, "small", "other"]
    await _a_life(Path(store), names)
    target = _target(tmp_path, names)
    commands = [
        *(["status", "--store", store], ["history", "--store", store, "--limit", "3"], ["verify", store]),
        *(["explain", "--store", store, "--at", "2025-06-02T12:01", "small"], ["plan", target, "--store", store]),
        *(["next", target, "-n", "1"], ["simulate", target, "--from", "2025-06-02T00:00", "--to", "2025-06-02T01:00"]),
    ]
    _shown(tmp_path, commands)
    told = run_duly("status", "--json", "--store", store, folder=tmp_path).json
    assert {task["task"] for task in told["tasks"]} == set(names)
    record("hostile, task names", names=1, longest_bytes=len(MEGABYTE.encode()), commands=len(commands) + 1)


@pytest.mark.parametrize("name", ["", "nul\0", "lone \ud800 surrogate"])
async def test_a_name_that_cannot_be_stored_is_refused_before_anything_is_touched(tmp_path: Path, name: str) -> None:
    """SPEC 1.4: empty, NUL, lone surrogates; the error itself is safe to show."""

    async def nothing() -> None:
        pass

    scheduler = duly.Scheduler(tmp_path / "store.db")
    with pytest.raises(duly.InvalidRegistrationError) as refused:
        await scheduler.initialize([(name, "* * * * *", nothing, DELAY)])
    assert not FORBIDDEN.search(str(refused.value))
    str(refused.value).encode()
    assert os.listdir(tmp_path) == []
