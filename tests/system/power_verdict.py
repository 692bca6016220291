"""The worth of a store after a power failure: opened by duly itself, then held against what had been acknowledged."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import duly
from duly.core.moments import Instant
from duly.core.record import read_equal
from duly.stores.sqlite import SqliteStore
from duly.threads import Inline
from tests.system.fold import Fold, compare, look_into
from tests.system.kill_chain import judge
from tests.system.power_disk import Acknowledge, Cut, Step, cuts

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def verdict(folder: Path, acknowledged: Sequence[Acknowledge]) -> str:
    """`whole`, or what is wrong: something acknowledged is `lost`, or the store is `corrupt` or `refused`."""
    store = folder / "state.db"
    try:
        asyncio.run(_open(store))
    except duly.DulyError as error:
        return f"refused: {error}"
    if not store.exists() or (not store.stat().st_size and not Path(f"{store}-wal").exists()):
        return "lost: the file" if acknowledged else "whole"
    try:
        found = look_into(store)
        fold = compare(found)
        if found.trace:
            judge(store, clean=False)
    except (AssertionError, sqlite3.Error) as error:
        return f"corrupt: {error}"
    for each in acknowledged:
        if not _is_kept(fold, each):
            return f"lost: {each}"
    return "whole"


async def _open(store: Path) -> None:
    embedded = SqliteStore(store, worker=Inline())
    persisted = await embedded.open("after the power came back", Instant(0))
    for _ in read_equal(persisted.records):
        pass
    await embedded.close()


def _is_kept(fold: Fold, said: Acknowledge) -> bool:
    if said.what in {"started", "begin"}:
        return fold.starts.get(said.run, ("", 0))[0] == said.task
    if said.what in {"completed", "failed"}:
        return fold.ends.get(said.run) == (said.task, said.what == "completed")
    if said.what == "initialised":
        return bool(fold.tasks)
    if said.what == "stopped":
        return not fold.alive
    return True  # an end that the callback saw may be lost, and is repeated (SPEC 3.9)


def tally(recording: Sequence[Step], seed: int, *, subsets: int = 1, every: int = 1) -> Counter[str]:
    """Judge every cut, or every n-th: how often each verdict, and `first: ...` for the first bad one of its kind."""
    acknowledged = [step for step in recording if isinstance(step, Acknowledge)]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="duly-power-") as place:
        chosen: Iterable[Cut] = (cut for n, cut in enumerate(cuts(recording, seed, subsets)) if n % every == 0)
        for number, cut in enumerate(chosen):
            folder = Path(place) / str(number)
            folder.mkdir()
            for name, content in cut.files.items():
                (folder / name).write_bytes(content)
            said = verdict(folder, acknowledged[: cut.acknowledged])
            word = said.split(":")[0]
            if word != "whole" and not counts[word]:
                counts[f"first: at step {cut.position}, {cut.kind}: {said}"] = 1
            counts[word] += 1
            counts["cuts"] += 1
            shutil.rmtree(folder)
    return counts
