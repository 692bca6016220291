"""Programs whose writes are recorded: on the simulated host through apsw, and as a process under strace."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from duly.events import Event, TaskRunCompleted, TaskRunFailed, TaskRunStarted
from duly.stores.sqlite import SqliteStore
from duly.stores.sqlite import store as embedded
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.programs import ROOT, environment
from tests.system.clocks import AcceleratedClock
from tests.system.kill_chain import NOON
from tests.system.kill_program import SPEED, live
from tests.system.power_apsw import WatchedVFS, no_fault, stand_in
from tests.system.power_disk import Acknowledge, Create, Step, Sync, SyncFolder, Truncate, Unlink, Write

CHECKPOINT_PAGES = 40
"""Instead of thousands: a short recording sees several checkpoints."""

MINUTES = 5


def acknowledged(event: Event) -> Acknowledge | None:
    """The promise of an event, if it makes one."""
    if isinstance(event, TaskRunStarted):
        return Acknowledge("started", event.task_name, event.run_id)
    if isinstance(event, TaskRunCompleted):
        return Acknowledge("completed", event.task_name, event.run_id)
    if isinstance(event, TaskRunFailed):
        return Acknowledge("failed", event.task_name, event.run_id)
    return None


async def record_simulated(folder: Path, synchronous: str, patch: pytest.MonkeyPatch) -> list[Step]:
    """Some minutes of a scheduler on the simulated host, its store on apsw; then a stop."""
    recording: list[Step] = []
    kinds = {"write": Write, "truncate": Truncate, "sync": Sync, "create": Create, "unlink": Unlink}

    def told(what: str, *facts: Any) -> None:
        recording.append(SyncFolder() if what == "sync folder" else kinds[what](*facts))

    def hear(event: Event) -> None:
        if (said := acknowledged(event)) is not None:
            recording.append(said)

    async def work() -> None:
        await host.sleep(20)

    async def fail() -> None:
        raise RuntimeError("as it should")

    name = f"duly-{folder.name}-{synchronous}"
    vfs = WatchedVFS(name, told, no_fault)
    patch.setattr(embedded, "sqlite3", stand_in(name))
    patch.setattr(embedded, "CHECKPOINT_PAGES", CHECKPOINT_PAGES)
    store = SqliteStore(folder / "state.db", worker=Inline(), synchronous=synchronous)
    async with SimulatedHost("2024-06-15T12:00:30", tz="UTC") as host:
        scheduler = host.scheduler(store, on_event=hear, trace=True)
        await scheduler.initialize(
            [
                ("quick", "* * * * *", _nothing, timedelta(minutes=1)),
                ("longer", "* * * * *", work, timedelta(minutes=1)),
                ("failing", "* * * * *", fail, timedelta(seconds=25)),
            ]
        )
        recording.append(Acknowledge("initialised"))
        await host.advance(minutes=MINUTES)
        await scheduler.stop()
        recording.append(Acknowledge("stopped"))
    vfs.unregister()
    assert apsw.vfs_names()
    return recording


async def _nothing() -> None:
    pass


# --- the real program ------------------------------------------------------------------------------------------------

_CALLS = "write,pwrite64,fdatasync,fsync,ftruncate,unlink,unlinkat,openat,rename,renameat,renameat2"
_LINE = re.compile(r"^(\d+) +(.*)$")
_FINISHED = re.compile(r"^(\w+)\((.*)\) += (-?\d+)")
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_TEXT = re.compile(r'(?:\\x[0-9a-f]{2})+|(?<=")(?=")')


def record_process(folder: Path, synchronous: str, seconds: float) -> list[Step]:
    """The dozen tasks of the killed program, under strace, for `seconds`; then a stop."""
    log, witness = folder / "strace", folder / "witness"
    store = folder / "state.db"
    command = ["strace", "-f", "-y", "-xx", "-s", "70000", "--seccomp-bpf", "-e", f"trace={_CALLS}", "-o", str(log)]
    program = [sys.executable, "-m", "tests.system.power_program", str(store), str(witness), synchronous, str(seconds)]
    finished = subprocess.run(
        [*command, *program], cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert finished.returncode == 0, finished.stderr.decode()
    recording = list(_steps(log, folder, store.name, witness.name))
    log.unlink()
    return recording


def _steps(log: Path, folder: Path, store: str, witness: str) -> Iterator[Step]:
    """The system calls by strace, where they took effect: writes when they began, synchronisation when it was over."""
    unfinished: dict[str, str] = {}
    for line in log.read_text().splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        thread, rest = match.groups()
        if rest.endswith("<unfinished ...>"):
            unfinished[thread] = begun = rest.removesuffix("<unfinished ...>").rstrip()
            if not begun.startswith(("fsync", "fdatasync")):
                yield from _step(f"{begun}) = 0" if not begun.endswith(")") else begun, folder, store, witness)
            continue
        if (resumed := _RESUMED.match(rest)) is not None:
            begun = unfinished.pop(thread, "")
            if not begun.startswith(("fsync", "fdatasync")):
                continue
            rest = begun + resumed.group(2)
        yield from _step(rest, folder, store, witness)


def _step(call: str, folder: Path, store: str, witness: str) -> Iterator[Step]:
    match = _FINISHED.match(call)
    if match is None or match.group(3).startswith("-"):
        return
    verb, arguments = match.group(1), match.group(2)
    texts = [bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(arguments)]
    path = texts[-1] if verb in {"unlink", "unlinkat", "openat"} else texts[0] if texts else b""
    file = Path(os.fsdecode(path))
    assert not verb.startswith("rename") or folder not in file.parents, "the store renames nothing"
    if verb in {"fsync", "fdatasync"} and file == folder:
        yield SyncFolder()
    if file.parent != folder:
        return
    if file.name == witness:
        if verb == "write":
            what, _, _, task, run = json.loads(texts[1])
            yield Acknowledge(what, task, run)
    elif file.name.startswith(store) and not file.name.endswith((".lock", "-shm")):
        yield from _store_step(verb, file.name, texts, arguments)


def _store_step(verb: str, name: str, texts: list[bytes], arguments: str) -> Iterator[Step]:
    if verb == "openat":
        if "O_CREAT" in arguments:
            yield Create(name)
    elif verb in {"unlink", "unlinkat"}:
        yield Unlink(name)
    elif verb == "pwrite64":
        yield Write(name, int(arguments.rsplit(", ", 1)[1]), texts[1])
    elif verb == "ftruncate":
        yield Truncate(name, int(arguments.rsplit(", ", 1)[1]))
    elif verb in {"fsync", "fdatasync"}:
        yield Sync(name)
    else:
        raise AssertionError(f"{verb} of {name} is not modelled")


async def _live_for(store: str, witness: str, synchronous: str, seconds: float) -> None:
    asyncio.get_running_loop().call_later(seconds, os.kill, os.getpid(), signal.SIGTERM)
    place = SqliteStore(store, synchronous=synchronous)
    await live(place, witness, 1, AcceleratedClock(NOON, SPEED, zone=UTC), SPEED)


if __name__ == "__main__":
    embedded.CHECKPOINT_PAGES = CHECKPOINT_PAGES  # type: ignore[misc]
    _store, _witness, _synchronous, _seconds = sys.argv[1:]
    asyncio.run(_live_for(_store, _witness, _synchronous, float(_seconds)))
