"""`duly status`: the table, the judgement, and a screen that refreshes in place."""

import asyncio
import os
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.program import (
    Service,
    Terminal,
    ago,
    duly,
    failing,
    fingerprint,
    forever,
    nothing,
    simulated,
    write_target,
)

HOUR = timedelta(hours=1)
YEARLY = "0 0 1 1 *"


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A store whose scheduler has just gone, with a task in every situation that needs no living scheduler."""
    path = tmp_path / "state.db"
    async with simulated(path, ago(minutes=10)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize(
            [
                ("calm", YEARLY, nothing, HOUR),
                ("failed", "* * * * *", failing, timedelta(days=1)),
                ("minutely", "* * * * *", nothing, HOUR),
            ]
        )
        await host.advance(minutes=7)
        await scheduler.stop()
    return path


def test_a_running_scheduler_is_healthy(tmp_path: Path) -> None:
    """Exit code 0; who holds the store, since when, zone and offset; a run under way and a failure with its error."""
    write_target(
        tmp_path,
        '[("backup", "* * * * *", endless, timedelta(0)), ("broken", "* * * * *", broken, timedelta(hours=1)),'
        ' ("calm", "0 0 1 1 *", quick, timedelta(0))]',
    )
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunFailed")
        with service.frozen():
            before = fingerprint(tmp_path)
            shown = duly("status", "--store", "state.db", folder=tmp_path)
            told = duly("status", "--store", "state.db", "--json", folder=tmp_path)
            assert fingerprint(tmp_path) == before
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == str(tmp_path / "state.db")
    assert f"held by process {service.pid} on " in lines[1]
    assert "last poll " in lines[1]
    assert lines[2].startswith("zone Africa/Lagos (+01:00")
    backup, broken, calm = lines[5:8]
    assert backup.split()[:2] == ["backup", "running"]
    assert broken.split()[1] in {"retrying", "waiting", "owed"}  # the last, if a minute began while it was frozen
    assert broken.rstrip().endswith("ConnectionError: the upstream service is asleep")
    assert calm.split()[:2] == ["calm", "waiting"]
    assert "00:00" in calm
    assert lines[-1] == "healthy"
    assert "\x1b" not in shown.out
    assert told.json["healthy"] is True
    assert told.json["holder"]["pid"] == service.pid
    assert told.json["holder"]["alive"] is True


def test_a_killed_scheduler_with_runs_marked_running_is_unhealthy(tmp_path: Path) -> None:
    """The health check: holder gone. Exit code 1, and the reason."""
    write_target(tmp_path, '[("backup", "* * * * *", endless, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted")
        service.send(signal.SIGKILL)
        service.end()
    before = fingerprint(tmp_path)
    told = duly("status", "--store", "state.db", "--json", folder=tmp_path)
    assert fingerprint(tmp_path) == before
    assert told.code == 1
    assert [problem["code"] for problem in told.json["problems"]] == ["holder-gone"]
    assert f"process {service.pid}, which held the store, is gone, and left backup marked running" in told.out
    assert told.json["tasks"][0]["state"] == "interrupted"


def test_tasks_overdue_beyond_a_minute_are_unhealthy(store: Path) -> None:
    """Owed since, how late, and the exit code; a task that is not due is waiting."""
    told = duly("status", "--store", store, "--json", folder=store.parent)
    assert told.code == 1
    assert [problem["code"] for problem in told.json["problems"]] == ["overdue"]
    assert "failed, minutely overdue, by " in told.out
    calm, failed, minutely = told.json["tasks"]
    assert (calm["state"], calm["owedSince"], calm["lateMs"], calm["nextIs"]) == ("waiting", None, 0, "cron")
    assert (minutely["state"], failed["state"]) == ("owed", "owed")
    assert 120_000 <= minutely["lateMs"] < 240_000
    assert minutely["nextAt"] == minutely["owedSince"]
    assert failed["lastError"] == "ConnectionError: the upstream service is asleep"
    assert failed["failures"] == 8
    assert set(calm) == {
        "task", "expression", "retryDelayMs", "state", "knownSince", "lastAttemptAt", "lastSuccessAt", "lastFailureAt",
        "lastError", "failures", "pendingRetryUntil", "nextAt", "nextIs", "owedSince", "lateMs", "runId", "host",
    }  # fmt: skip
    assert set(told.json) == {
        "command", "format", "store", "at", "healthy", "problems", "warnings", "zone", "hostZone", "holder", "cluster",
        "tasks",
    }  # fmt: skip


async def test_a_last_poll_too_long_ago_is_unhealthy(tmp_path: Path) -> None:
    """Nothing is due, nobody has looked for two minutes: a scheduler that hangs, or is gone."""
    async with simulated(tmp_path / "state.db", ago(minutes=1)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("calm", YEARLY, nothing, HOUR)])
        await host.advance(seconds=30)
        await scheduler.stop()
    lock = tmp_path / "state.db.lock"
    assert duly("status", "--store", "state.db", folder=tmp_path).code == 0
    seen = lock.stat().st_mtime - 200
    os.utime(lock, (seen, seen))
    late = duly("status", "--store", "state.db", folder=tmp_path)
    assert late.code == 1
    assert re.search(r"unhealthy: the last poll was \d+ min (\d+ s )?ago", late.out)
    lock.unlink()
    never = duly("status", "--store", "state.db", "--json", folder=tmp_path)
    assert [problem["code"] for problem in never.json["problems"]] == ["never-polled"]


async def test_an_empty_set_of_tasks_is_healthy(tmp_path: Path) -> None:
    """With no task there is no polling (SPEC 4.4), so nobody is late."""
    async with simulated(tmp_path / "state.db", ago(hours=5)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([])
        await scheduler.stop()
    os.utime(tmp_path / "state.db.lock", (0, 0))
    shown = duly("status", "--store", "state.db", folder=tmp_path)
    assert shown.code == 0
    assert "no tasks" in shown.out


def test_the_zone_in_use_is_the_schedulers(store: Path) -> None:
    """Times are shown in the zone the store was used in, and a host in another zone says so."""
    told = duly("status", "--store", store, folder=store.parent, TZ="Asia/Tokyo")
    assert "zone Africa/Lagos (+01:00" in told.out
    assert "this host's zone is Asia/Tokyo" in told.out


async def test_with_many_tasks_those_that_need_attention_come_first(tmp_path: Path) -> None:
    """--limit bounds the table; what is left out is counted."""
    async with simulated(tmp_path / "state.db", ago(minutes=5)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize(
            [(f"calm-{n:03}", YEARLY, nothing, HOUR) for n in range(60)] + [("zebra", "* * * * *", nothing, HOUR)]
        )
        await host.advance(minutes=1)
        await scheduler.stop()
    shown = duly("status", "--store", "state.db", "--limit", "5", folder=tmp_path)
    assert shown.out.splitlines()[5].startswith("zebra")
    assert "… and 56 more tasks" in shown.out
    everything = duly("status", "--store", "state.db", "--limit", "0", folder=tmp_path)
    assert everything.out.count("calm-") == 60


async def test_names_cannot_control_the_terminal(tmp_path: Path) -> None:
    """A task is called what somebody called it; unprintable characters are written out."""
    async with simulated(tmp_path / "state.db", ago(minutes=1)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("\x1b[2J[bold]x[/bold]\nfake", YEARLY, nothing, HOUR)])
        await scheduler.stop()
    with Terminal("status", "--store", "state.db", folder=tmp_path, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    assert "\\x1b[2J[bold]x[/bold]\\nfake" in terminal.shown
    assert "\x1b[2J" not in terminal.shown


# --- narrow terminals ------------------------------------------------------------------------------------------------

LONG_NAME = "copy-the-warehouse-to-the-other-site"


@pytest.fixture
async def busy(tmp_path: Path) -> Path:
    """A store with long names, an interrupted run and a failure, such as 80 columns have no room for."""
    async with simulated(tmp_path / "state.db", ago(days=2)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize(
            [
                (LONG_NAME, "0,10,20,30,40,50 * * * *", failing, timedelta(minutes=3)),
                ("rotate-logs", YEARLY, nothing, HOUR),
                ("sync-mirror", "* * * * *", forever, HOUR),
            ]
        )
        await host.advance(hours=1)
        await host.crash()
    return tmp_path


def test_on_80_columns_names_states_and_errors_are_whole(busy: Path) -> None:
    """Important columns stay, the error stands beneath its row, and columns without room are named."""
    with Terminal("status", "--store", "state.db", folder=busy, columns=80, NO_COLOR="1") as terminal:
        assert terminal.end() == 1
    lines = [line.rstrip() for line in terminal.shown.splitlines()]
    assert max(map(len, lines)) <= 80
    assert "…" not in terminal.shown
    begin = next(number for number, line in enumerate(lines) if line.startswith("task "))
    assert lines[begin].split()[:2] == ["task", "state"]
    assert "next" in lines[begin].split()
    copy, failure, rotate, sync, left_out = lines[begin + 1 : begin + 6]
    assert copy.split()[:2] == [LONG_NAME, "owed"]
    assert failure.startswith("  last failure: ")
    assert failure.endswith(" ConnectionError: the upstream service is asleep")
    assert rotate.split()[:2] == ["rotate-logs", "waiting"]
    assert sync.split()[:2] == ["sync-mirror", "interrupted"]
    assert "now" in sync.split()
    assert left_out.startswith("too narrow for: cron, ")


def test_a_terminal_with_room_and_a_pipe_show_the_same(busy: Path) -> None:
    """All columns, one line for each task."""
    with Terminal("status", "--store", "state.db", folder=busy, columns=240, NO_COLOR="1") as terminal:
        assert terminal.end() == 1
    piped = duly("status", "--store", "state.db", folder=busy).out
    rows = (
        r"task +state +cron +last start +last success +next +owed since +late +last failure",
        rf"{LONG_NAME}  owed  .* ConnectionError: the upstream service is asleep",
        r"rotate-logs +waiting  .*",
        r"sync-mirror +interrupted  .*",
    )
    for text in (terminal.shown, piped):
        assert re.search(r" *\r?\n".join(rows), text)
        assert "too narrow" not in text


async def test_a_name_longer_than_the_terminal_is_folded(tmp_path: Path) -> None:
    """No letter of it is lost, and the state beside it is whole."""
    name = "".join(f"{number:03}/" for number in range(40))
    async with simulated(tmp_path / "state.db", ago(minutes=1)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([(name, YEARLY, nothing, HOUR)])
        await scheduler.stop()
    with Terminal("status", "--store", "state.db", folder=tmp_path, columns=80, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    lines = terminal.shown.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("000/"))
    assert lines[begin].split()[1] == "waiting"
    assert "".join(line.split()[0] for line in lines[begin : begin + 4] if "/" in line) == name


# --- --watch ---------------------------------------------------------------------------------------------------------


async def test_watch_refreshes_in_place_until_ctrl_c(tmp_path: Path) -> None:
    """On a real terminal: the picture follows what happens, and the exit code is that of the last picture."""
    path = tmp_path / "state.db"
    async with simulated(path, ago(minutes=2)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("first", YEARLY, nothing, HOUR)])
        await host.advance(seconds=1)
        with Terminal("status", "--store", "state.db", "--watch", "--interval", "100ms", folder=tmp_path) as terminal:
            await asyncio.to_thread(terminal.expect, "\x1b[?1049h")  # a screen of its own
            await asyncio.to_thread(terminal.expect, "first")
            await scheduler.initialize([("second", "* * * * *", forever, HOUR)])
            await host.advance(seconds=1)
            await asyncio.to_thread(terminal.expect, "second")
            await asyncio.to_thread(terminal.expect, "running")
            terminal.press("\x03")
            code = await asyncio.to_thread(terminal.end)
    assert code == 0
    first_picture = terminal.shown.split("\x1b[?1049h")[1]
    assert first_picture.index("healthy") < first_picture.index("first")  # a short screen still shows it
    assert "\x1b[?1049l" in terminal.shown  # the screen is given back ...
    assert "second" in terminal.shown.split("\x1b[?1049l")[-1]  # ... and the last picture stays readable
    assert "Traceback" not in terminal.shown


def test_watch_needs_a_terminal(store: Path) -> None:
    """In a pipe there is nothing to refresh in place."""
    refused = duly("status", "--store", store, "--watch", folder=store.parent)
    assert (refused.code, refused.out) == (2, "")
    assert "--watch needs a terminal" in refused.err
