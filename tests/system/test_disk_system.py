"""A real process whose system calls fail, are slow, or find no room (SPEC 4.5, 4.6).

strace makes calls of the store's thread fail or wait; the kernel itself refuses what lies beyond a limit or a mount.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.events import StoreFault, StoreRecovered
from duly.testing import SimulatedHost
from tests.conftest import require
from tests.spec.workload import Workload
from tests.stores.helpers import contents, everything, files_in, history, stored_tasks
from tests.system.children import Child
from tests.system.disk_program import run, words
from tests.system.fold import compare, look_into
from tests.system.kill_chain import judge
from tests.system.record import record


def injecting(*faults: str) -> list[str]:
    """A command that lets system calls of a program fail."""
    require("strace", "apt-get install strace")
    calls = ",".join(fault.split(":")[0] for fault in faults)
    options = [part for fault in faults for part in ("-e", f"inject={fault}")]
    return ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}", *options]


INJECTED = {
    "a write fails once while it starts": "pwrite64:error=EIO:when=20",
    "a write fails once while it runs": "pwrite64:error=EIO:when=60",
    "writes fail for a while": "pwrite64:error=EIO:when=60..75",
    "a synchronisation fails once while it starts": "fdatasync:error=EIO:when=3",
    "a synchronisation fails once while it runs": "fdatasync:error=EIO:when=9",
    "synchronisation fails for a while": "fdatasync:error=EIO:when=9..14",
    "there is no room for a while": "pwrite64:error=ENOSPC:when=50..80",
    "a quota is used up for a while": "pwrite64:error=EDQUOT:when=50..80",
    "the file system is remounted read-only for a while": "pwrite64:error=EROFS:when=60..70",
}


@pytest.mark.system
@pytest.mark.parametrize("fault", INJECTED)
def test_a_system_call_that_fails_is_reported_and_retried_and_nothing_is_lost(store: Path, fault: str) -> None:
    """SPEC 4.5, 4.6: the loop lives, each run is recorded once, and store, trace and checker agree afterwards."""
    said = run(store, 5, 60, *injecting(INJECTED[fault]))
    heard = words(said)
    assert heard[-2:] == ["stopped", "longest pause"]
    assert "StoreFault" in heard or "refused" in heard or "while it starts" in fault
    assert heard.count("StoreFault") == heard.count("StoreRecovered")
    fold = compare(look_into(store))
    assert len(fold.starts) == heard.count("begin") >= 4
    assert len(fold.ends) == len(fold.starts)
    judge(store, clean=True)
    record("disk, injected errors", runs=len(fold.starts), faults=heard.count("StoreFault"))


@pytest.mark.system
def test_a_disk_as_slow_as_a_bad_network_delays_starts_and_stops_nobody(store: Path) -> None:
    """SPEC 4.6, 3.9: a third of a second for each synchronisation; the event loop does not wait for it."""
    said = run(store, 4, 60, *injecting("fdatasync:delay_enter=300000"))
    heard = words(said)
    assert heard[-2:] == ["stopped", "longest pause"]
    assert heard.count("StoreFault") == 0
    fold = compare(look_into(store))
    assert len(fold.starts) == heard.count("begin") >= 4
    judge(store, clean=True)
    record("disk, slow", runs=len(fold.starts), longest_pause_ms=round(1000 * said[-1][1]))


@pytest.mark.system
@pytest.mark.parametrize("room", [0, 4096, 40_000, 60_000, 90_000])
def test_a_process_with_a_file_size_limit_refuses_or_reports_and_leaves_a_sound_store(store: Path, room: int) -> None:
    """RLIMIT_FSIZE at the start (little room) and in the middle (some): SPEC 4.5, 4.6; the kernel refuses."""
    limited = [sys.executable, "-c", _LIMIT, str(room)]
    said = run(store, 8, 3, *limited)
    heard = words(said)
    if "initialised" not in heard:
        assert heard == ["refused"] * 5 + ["longest pause"]
        assert contents(store) == {}
        assert files_in(store.parent) <= {f"{store.name}.lock"}
        return
    assert heard[-1] == "longest pause"
    assert "StoreFault" in heard or "stopped" in heard
    fold = compare(look_into(store))
    assert fold.starts.keys() >= {fact[2] for fact in said if fact[0] == "TaskRunStarted"}
    assert fold.ends.keys() >= {fact[2] for fact in said if fact[0] in {"TaskRunCompleted", "TaskRunFailed"}}


_LIMIT = (
    "import os, resource, signal, sys; room = int(sys.argv[1]); signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)); os.execv(sys.argv[2], sys.argv[2:])"
)


# --- a small disk, and a read-only one -------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of half a megabyte; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=False)
    if made.returncode:
        pytest.skip("mounting needs root and its capabilities")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """No room left, to the last byte."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    ballast.unlink()


MINUTELY = "* * * * *"


@pytest.mark.parametrize("existing", [False, True], ids=["first start-up", "a store that is there"])
async def test_no_room_at_the_start_is_refused_and_the_store_stays_as_it_is(
    small_disk: Path, host: SimulatedHost, work: Workload, existing: bool
) -> None:
    """SPEC 4.5, 5.2: a full file system, as the kernel has it; with room again the same scheduler starts."""
    store = small_disk / "state.db"
    scheduler = host.scheduler(store)
    if existing:
        await scheduler.initialize([work.task("old", MINUTELY)])
        await scheduler.stop()
    before = contents(store)
    many = [work.task(f"new {index}", MINUTELY) for index in range(300)]
    with filled(small_disk):
        with pytest.raises(duly.ScheduleTaskError) as caught:
            await scheduler.initialize(many)
        assert isinstance(caught.value.__cause__, duly.StoreError)
        assert contents(store) == before
    await scheduler.initialize(many)
    assert len(stored_tasks(store)) == 300
    await scheduler.stop()


async def test_a_disk_that_fills_up_in_the_middle_and_has_room_again_loses_nothing(
    small_disk: Path, host: SimulatedHost, work: Workload
) -> None:
    """SPEC 4.6: one report of the fault, one of its end; every run on record once."""
    store = small_disk / "state.db"
    scheduler = host.scheduler(store, trace=True)
    await scheduler.initialize([work.task("quick"), work.task("failing", fails=True, delay=timedelta(seconds=90))])
    await host.advance(minutes=2)
    with filled(small_disk):
        await host.advance(minutes=30)
        (fault,) = [event for event in host.events if isinstance(event, StoreFault)]
        assert "full" in fault.error
    await host.advance(minutes=5)
    assert sum(isinstance(event, StoreRecovered) for event in host.events) == 1
    await scheduler.stop()
    fold = compare(look_into(store))
    assert len(fold.starts) == len(fold.ends) == len(history(store)) == len(work.begun)


@pytest.mark.parametrize("in_time", [True, False], ids=["room in time", "no room to the end"])
async def test_no_room_at_the_stop_is_waited_for_and_then_said(
    small_disk: Path, host: SimulatedHost, work: Workload, in_time: bool
) -> None:
    """SPEC 4.3: thirty seconds of patience; then all is released, and the runs are interrupted at the next start."""
    store = small_disk / "state.db"
    scheduler = host.scheduler(store, trace=True)
    await scheduler.initialize([work.task("long", takes=40)])
    await host.advance(seconds=35)
    with filled(small_disk):
        stopping = asyncio.ensure_future(scheduler.stop())
        await host.advance(seconds=20 if in_time else 90)
        assert stopping.done() is not in_time
    if in_time:
        await host.advance(seconds=30)
        await stopping
        assert not compare(look_into(store)).tasks["long"].interrupted
    else:
        with pytest.raises(duly.StopSchedulerError):
            await stopping
        await scheduler.initialize([work.task("long", takes=1)])
        assert "TaskInterrupted" in [event.name for event in host.events]
        await host.advance(minutes=1)
        await scheduler.stop()


async def test_a_read_only_file_system_is_refused_and_a_writable_one_is_taken_again(
    small_disk: Path, host: SimulatedHost, work: Workload
) -> None:
    """SPEC 4.5: a remount between a stop and a start; the error says what is wrong, and nothing has changed."""
    store = small_disk / "state.db"
    scheduler = host.scheduler(store)
    await scheduler.initialize([work.task("a")])
    await scheduler.stop()
    before = contents(store), everything(store)
    _mount("remount,ro", small_disk)
    with pytest.raises(duly.StoreError, match=r"not writable|[Rr]ead-only") as caught:
        await scheduler.initialize([work.task("a"), work.task("b")])
    assert caught.value.details["hint"]
    _mount("remount,rw", small_disk)
    assert (contents(store), everything(store)) == before
    await scheduler.initialize([work.task("a"), work.task("b")])
    assert set(stored_tasks(store)) == {"a", "b"}
    await scheduler.stop()


def _mount(how: str, folder: Path) -> None:
    subprocess.run(["mount", "-o", how, str(folder)], check=True)


# --- other processes -------------------------------------------------------------------------------------------------

_HOLD = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE'); "
    "print('held', flush=True); import signal; signal.pause()"
)


@pytest.mark.slow
async def test_a_foreign_process_that_holds_the_database_at_start_in_the_middle_and_at_stop(
    store: Path, host: SimulatedHost, work: Workload
) -> None:
    """SPEC 4.5, 4.6: refused at a start, waited for afterwards; a foreigner that dies with its lock frees it."""
    scheduler = host.scheduler(store, trace=True)
    await scheduler.initialize([work.task("a")])
    await scheduler.stop()
    before = everything(store)
    with _holding(store):
        with pytest.raises(duly.DulyError, match="locked by another program"):
            await scheduler.initialize([work.task("a"), work.task("b")])
        assert everything(store) == before
    await scheduler.initialize([work.task("a", takes=5)])
    await host.advance_to("2024-01-01T12:01:02")
    with _holding(store):
        await host.advance(seconds=4)
        assert [event.name for event in host.events].count("StoreFault") == 1
    await host.advance(seconds=20)
    assert [event.name for event in host.events].count("StoreRecovered") == 1
    with _holding(store) as foreigner:
        stopping = asyncio.ensure_future(scheduler.stop())
        await host.advance(seconds=3)
        assert not stopping.done()
        foreigner.send_signal(signal.SIGKILL)
        foreigner.wait()
        await host.advance(seconds=5)
    await stopping
    assert len(compare(look_into(store)).ends) == len(work.ended)


@contextlib.contextmanager
def _holding(store: Path) -> Iterator[subprocess.Popen[bytes]]:
    foreigner = subprocess.Popen([sys.executable, "-c", _HOLD, str(store)], stdout=subprocess.PIPE)
    assert foreigner.stdout is not None
    try:
        assert foreigner.stdout.readline() == b"held\n"
        yield foreigner
    finally:
        foreigner.terminate()
        foreigner.wait()
        foreigner.stdout.close()


@pytest.mark.system
def test_a_dead_holders_store_is_free_although_its_process_number_lives_again(store: Path) -> None:
    """SPEC 5.7: the same number, given to another process, does not hold the store; a live holder does."""
    with Child("hold", store) as holder:
        number = holder.hear("holding")
        with Child("attempt", store) as second:
            second.tell()
            assert second.hear("refused")["type"] == "StoreLockedError"
        holder.kill()
    stranger = _reborn(number)
    try:
        assert str(number) in Path(f"{store}.lock").read_text()
        with Child("attempt", store) as next_one:
            next_one.tell()
            assert next_one.hear_one_of("accepted", "refused")[0] == "accepted"
    finally:
        stranger.kill()
        stranger.wait()


def _reborn(number: int) -> subprocess.Popen[bytes]:
    """A process with a number of our choice, which only root can ask for."""
    for _ in range(50):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
        except OSError:
            pytest.skip("choosing a process number needs root")
        stranger = subprocess.Popen(["sleep", "1000"])
        if stranger.pid == number:
            return stranger
        stranger.kill()
        stranger.wait()
    pytest.skip("other processes are born faster than we can choose")
