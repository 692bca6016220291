"""SPEC 10.1: what the code of a run knows of it, and the key that all attempts for one obligation share."""

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import duly
from duly import CurrentRun
from duly.run_context import entered
from duly.testing import SimulatedHost
from tests.cli.program import duly as command
from tests.spec.helpers import HOUR, MINUTE, CallbackError

BERLIN = ZoneInfo("Europe/Berlin")
NOON = "0 12 * * *"
KEY = "task/1/2024-06-01T10:00:00.000000Z"


def at(time: str) -> datetime:
    """A moment of 1 June 2024 in the zone of these tests."""
    return datetime.fromisoformat(f"2024-06-01T{time}").replace(tzinfo=BERLIN)


class Diary:
    """A callback that notes what it learns of each run, and ends each as the script says; the last goes on."""

    def __init__(self, host: SimulatedHost, *script: str) -> None:
        self.runs: list[CurrentRun] = []
        self._host = host
        self._script = script

    async def __call__(self) -> None:
        run = duly.current_run()
        assert run is not None
        self.runs.append(run)
        step = self._script[min(len(self.runs), len(self._script)) - 1]
        if step == "hangs":
            await self._host.sleep(100_000)
        if step == "fails":
            raise CallbackError("not this time")

    def seen(self, *names: str) -> list[tuple[Any, ...]]:
        """Some fields of each run."""
        return [tuple(getattr(run, name) for name in names) for run in self.runs]


async def test_outside_of_a_run_there_is_none() -> None:
    """SPEC 10.1: `None` outside a run; beside a running scheduler, too."""
    assert duly.current_run() is None
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin") as host:
        diary = Diary(host, "hangs")
        await host.scheduler().initialize([("task", NOON, diary, HOUR)])
        await host.advance(seconds=1)
        assert len(diary.runs) == 1
        assert duly.current_run() is None
        await host.crash()


async def test_a_run_knows_its_task_its_times_its_cause_and_its_key() -> None:
    """SPEC 10.1: the fields, and their types; times are in the host's zone."""
    async with SimulatedHost("2024-06-01T11:59:30", "Europe/Berlin") as host:
        diary = Diary(host, "succeeds")
        await host.scheduler().initialize([("task", NOON, diary, HOUR)])
        await host.advance(minutes=1)
    assert diary.runs == [
        CurrentRun(
            task="task",
            run_id=1,
            started_at=at("12:00"),
            scheduled_time=at("12:00"),
            cause="cron",
            attempt=1,
            key=KEY,
        )
    ]
    assert diary.runs[0].started_at.tzinfo == BERLIN


@pytest.mark.parametrize("seed", [0, 7])
async def test_a_retry_repeats_the_obligation(tmp_path: Path, seed: int) -> None:
    """SPEC 10.1: `scheduled_time` and `key` stay the same, `attempt` grows; the next due minute begins another one."""
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin", tmp_path / "state.db", seed=seed) as host:
        diary = Diary(host, "fails", "fails", "succeeds")
        await host.scheduler().initialize([("task", NOON, diary, MINUTE)])
        await host.advance(days=1, minutes=5)
        await host.crash()
    assert diary.seen("cause", "attempt", "scheduled_time") == [
        ("cron", 1, at("12:00")),
        ("retry", 2, at("12:00")),
        ("retry", 3, at("12:00")),
        ("cron", 1, at("12:00") + timedelta(days=1)),
    ]
    assert [run.started_at for run in diary.runs[:3]] == [at("12:00"), at("12:01"), at("12:02")]
    first, second, third, next_day = (run.key for run in diary.runs)
    assert first == second == third == KEY
    assert next_day == "task/1/2024-06-02T10:00:00.000000Z"
    assert [run.run_id for run in diary.runs] == [1, 2, 3, 4]


async def test_failures_and_interruptions_both_count_across_restarts_and_crashes(tmp_path: Path) -> None:
    """SPEC 10.1: stopped while a retry is pending, crashed inside two runs: still the same obligation."""
    store = tmp_path / "state.db"
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin", store) as host:
        diary = Diary(host, "fails", "hangs", "hangs", "fails", "succeeds")
        registrations = [("task", NOON, diary, MINUTE)]
        scheduler = host.scheduler()
        await scheduler.initialize(registrations)
        await host.advance(seconds=10)
        await scheduler.stop()  # a retry is pending
        for _ in range(2):
            await host.scheduler().initialize(registrations)
            await host.advance(minutes=2)
            await host.crash()
        await host.scheduler().initialize(registrations)
        await host.advance(minutes=10)
        await host.crash()
    assert diary.seen("cause", "attempt") == [
        ("cron", 1),
        ("retry", 2),
        ("interrupted", 3),
        ("interrupted", 4),
        ("retry", 5),
    ]
    assert set(diary.seen("key", "scheduled_time")) == {(KEY, at("12:00"))}

    told = command("history", "--store", store, "--json", folder=tmp_path).json["runs"]
    assert [(run["attempt"], run["key"]) for run in told] == [(number, KEY) for number in range(1, 6)]
    shown = command("history", "--store", store, folder=tmp_path).out
    assert "interrupted #4" in shown
    explained = command("explain", "task", "--at", "2024-06-01T12:05", "--store", store, "--json", folder=tmp_path).json
    assert (explained["run"]["attempt"], explained["run"]["key"]) == (5, KEY)


async def test_cron_that_preempts_a_retry_begins_an_obligation() -> None:
    """SPEC 10.1: an obligation begins with a start of cause cron, even one that pre-empts a retry."""
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin") as host:
        diary = Diary(host, "fails", "fails", "succeeds")
        await host.scheduler().initialize([("task", "0,5 12 * * *", diary, 8 * MINUTE)])
        await host.advance(minutes=30)
    assert diary.seen("cause", "attempt", "scheduled_time") == [
        ("cron", 1, at("12:00")),
        ("cron", 1, at("12:05")),
        ("retry", 2, at("12:05")),
    ]
    assert len({run.key for run in diary.runs}) == 2
    assert diary.runs[1].key == diary.runs[2].key


async def test_a_minute_that_is_served_late_is_the_scheduled_time(tmp_path: Path) -> None:
    """SPEC 10.1: the due minute that the first start served, also when several were missed."""
    async with SimulatedHost("2024-06-01T11:59", "Europe/Berlin", tmp_path / "state.db") as host:
        diary = Diary(host, "fails", "succeeds")
        registrations = [("task", "0,10 12 * * *", diary, MINUTE)]
        await host.scheduler().initialize(registrations)
        await host.crash()
        await host.advance_to("2024-06-01T12:34:05")
        await host.scheduler().initialize(registrations)
        await host.advance(minutes=2)
        await host.crash()
    assert diary.seen("started_at", "scheduled_time", "attempt") == [
        (at("12:34:05"), at("12:10"), 1),
        (at("12:35:05"), at("12:10"), 2),
    ]


async def test_an_interrupted_run_that_waits_leaves_its_obligation_to_the_next_due_minute(tmp_path: Path) -> None:
    """SPEC 10.1, 3.7: with `interrupted="wait"` nothing repeats it, and a start of cause cron begins another one."""
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin", tmp_path / "state.db") as host:
        diary = Diary(host, "hangs", "succeeds")
        registrations = [("task", "0,30 12 * * *", diary, MINUTE)]
        for _ in range(2):
            await host.scheduler(interrupted="wait").initialize(registrations)
            await host.advance(minutes=20)
            await host.crash()
    assert diary.seen("cause", "attempt") == [("cron", 1), ("cron", 1)]
    assert diary.runs[0].key != diary.runs[1].key


async def test_an_overriding_declaration_has_keys_of_its_own() -> None:
    """SPEC 10.1: the generation is part of the key; the run in flight keeps what it was told."""
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin") as host:
        diary = Diary(host, "fails", "succeeds")
        scheduler = host.scheduler()
        await scheduler.initialize([("task", NOON, diary, HOUR)])
        await host.advance(seconds=5)
        await scheduler.initialize([("task", "1 12 * * *", diary, HOUR)])
        await host.advance(minutes=2)
    assert diary.seen("key", "attempt") == [(KEY, 1), ("task/2/2024-06-01T10:01:00.000000Z", 1)]


async def test_what_a_run_spawned_is_inside_it_until_the_run_has_ended() -> None:
    """SPEC 10.1, 4.3: asyncio tasks that it spawned included; inside means in a run that has not ended."""
    noted: list[tuple[str, CurrentRun | None]] = []
    async with SimulatedHost("2024-06-01T12:00", "Europe/Berlin") as host:
        left_over: list[asyncio.Task[None]] = []

        async def spawned(name: str, seconds: float) -> None:
            await host.sleep(seconds)
            noted.append((name, duly.current_run()))

        async def parent() -> None:
            left_over.append(asyncio.create_task(spawned("after it", 20)))
            await asyncio.create_task(spawned("in it", 1))
            noted.append(("itself", duly.current_run()))

        await host.scheduler().initialize([("task", NOON, parent, HOUR)])
        await host.advance(minutes=1)
        await asyncio.gather(*left_over)
    assert [name for name, _ in noted] == ["in it", "itself", "after it"]
    (_, inside), (_, itself), (_, after) = noted
    assert inside is itself is not None
    assert after is None


async def test_blocking_callbacks_are_inside_their_runs_in_their_own_threads(tmp_path: Path) -> None:
    """SPEC 10.1: the worker thread, with real threads; two that run at once do not see each other."""
    both = threading.Barrier(2, timeout=60)
    noted: dict[str, tuple[CurrentRun | None, str]] = {}
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        both.wait()
        run = duly.current_run()
        assert run is not None
        noted[run.task] = (duly.current_run(), threading.current_thread().name)
        if len(noted) == 2:
            loop.call_soon_threadsafe(done.set)

    scheduler = duly.Scheduler(tmp_path / "state.db")
    await scheduler.initialize([(name, "* * * * *", work, HOUR) for name in ("a", "b")])
    await asyncio.wait_for(done.wait(), 60)
    await scheduler.stop()
    assert {name: run.task for name, (run, _) in noted.items() if run is not None} == {"a": "a", "b": "b"}
    assert len({thread for _, thread in noted.values()} - {threading.current_thread().name}) == 2
    assert duly.current_run() is None


PROGRAM = """
    import asyncio, json, os, signal, sys
    from datetime import timedelta
    import duly

    async def work():
        run = duly.current_run()
        with open("diary", "a") as diary:
            print(json.dumps([run.cause, run.attempt, run.key, str(run.scheduled_time)]), file=diary, flush=True)
        if run.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        done = asyncio.Event()
        scheduler = duly.Scheduler(
            "state.db", on_event=lambda event: done.set() if event.name == "TaskRunCompleted" else None
        )
        await scheduler.initialize([("task", "* * * * *", work, timedelta(seconds=1))])
        await done.wait()
        await scheduler.stop()

    asyncio.run(main())
"""


@pytest.mark.real_time
def test_the_obligation_survives_kill_9(tmp_path: Path) -> None:
    """SPEC 10.1: durable before the callback begins, so the next process repeats it under the same key."""
    program = textwrap.dedent(PROGRAM)
    killed, done = (
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60, check=False).returncode
        for _ in range(2)
    )
    assert (killed, done) == (-signal.SIGKILL, 0)
    first, second, *_ = (json.loads(line) for line in (tmp_path / "diary").read_text().splitlines())
    assert (first[:2], second[:2]) == (["cron", 1], ["interrupted", 2])
    assert first[2:] == second[2:]


def test_a_retry_that_was_pending_in_an_older_store_has_a_key_from_its_first_start_on(tmp_path: Path) -> None:
    """SPEC 10.1: version 0.1.0 has not kept the first start; the key is the same for all attempts of this version."""
    fixture = Path(__file__).parent.parent / "fixtures" / "v0.1.0" / "retrying.db"
    (tmp_path / "state.db").write_bytes(fixture.read_bytes())
    told = command("history", "--store", "state.db", "--json", folder=tmp_path).json["runs"]
    assert {(run["cause"], run["attempt"] is None, run["key"] is None) for run in told} <= {
        ("cron", False, False),
        ("retry", True, True),
    }


def test_code_can_be_made_a_run_that_no_scheduler_started() -> None:
    """SPEC 10.1: for a program that calls a callback by itself."""
    run = CurrentRun("task", 0, at("12:00"), at("12:00"), "manual", 1, "task/manual")
    with entered(run):
        assert duly.current_run() is run
    assert duly.current_run() is None
