"""Every system call that a short life makes on its store's files, and that life again with one of them hurt by strace.

The life is that of `disk_program`: it starts, runs three times, and stops. It begins with no store, or with one that a
killed process left, whose last transactions are in its log alone.
"""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.conftest import require
from tests.stores.helpers import contents, everything
from tests.system.disk_program import lived, run, words
from tests.system.fold import Fold, compare, look_into
from tests.system.kill_chain import judge

SIDE_BY_SIDE: Final = 2
RUNS: Final = 3
ERRORS: Final = {"mmap": "ENOMEM"}  # what a call can really answer; all others: EIO
NEVER_FAIL: Final = {"close"}  # one that strace lets fail does not close, and no kernel does that


class Point(NamedTuple):
    """The k-th call of a name, of any thread, on any of the store's files."""

    call: str
    number: int


@dataclass(frozen=True)
class Ground:
    """Where lives begin: a folder that is copied for each, and the calls that a whole life makes from there."""

    folder: Path
    template: Path
    calls: dict[str, int]

    def points(self) -> list[Point]:
        """All of them."""
        return [Point(call, number) for call, count in sorted(self.calls.items()) for number in range(1, count + 1)]

    def middle(self) -> list[Point]:
        """Of each call one, half-way."""
        return [Point(call, (count + 1) // 2) for call, count in sorted(self.calls.items())]

    def store_for(self, name: str) -> Path:
        """A copy of the template for one life."""
        folder = self.folder / name
        shutil.copytree(self.template, folder)
        return folder / "state.db"


def prepare(folder: Path, *, used: bool) -> Ground:
    """A template, and one undisturbed run on it, to see which calls it makes."""
    require("strace", "apt-get install strace")
    template = folder / "template"
    template.mkdir()
    if used:
        assert killed(template / "state.db", Point("fdatasync", 12), runs=10 * RUNS)
        assert (template / "state.db-wal").stat().st_size, "nothing is in its log"
    ground = Ground(folder, template, {})
    store = ground.store_for("undisturbed")
    log = folder / "calls"
    said = run(store, RUNS, 60, *_strace(store, log))
    assert words(said)[-2:] == ["stopped", "longest pause"]
    seen: Counter[tuple[str, str]] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        thread, call = line.split("(", 1)[0].split()[:2]
        if call.isidentifier():  # and not the second half of one, or a signal
            seen[thread, call] += 1
    for (_, call), count in seen.items():
        ground.calls[call] = max(count, ground.calls.get(call, 0))  # strace counts for each thread
    assert len(ground.calls) >= 8, ground.calls
    return ground


def _strace(store: Path, log: Path | None, *options: str) -> list[str]:
    files = [store.parent, *(f"{store}{suffix}" for suffix in ("", "-wal", "-shm", "-journal", ".lock"))]
    paths = [part for file in files for part in ("-P", str(file))]
    return ["strace", "-f", "-qq", "-o", str(log or os.devnull), *paths, *options]


def _hurting(store: Path, call: str, how: str) -> list[str]:
    return _strace(store, None, "-e", f"trace={call}", "-e", f"inject={call}:{how}")


def killed(store: Path, point: Point, runs: int = RUNS) -> bool:
    """A life that is killed there; whether it came so far."""
    died = lived(store, runs, 60, *_hurting(store, point.call, f"signal=KILL:when={point.number}"))
    assert died.returncode in {0, -signal.SIGKILL}, died.stderr.decode()
    return died.returncode != 0


def killed_and_begun_again(ground: Ground, point: Point) -> Counter[str]:
    """SPEC 3.9, 4.5: what it left is sound, and the next life begins on it, ends, and leaves nothing wrong."""
    store = ground.store_for(f"killed {point.call} {point.number}")
    before = _starts(store)
    died = killed(store, point)
    if store.exists() and store.stat().st_size:
        compare(look_into(store))
        assert before <= _starts(store)
    _lives_on(store)
    assert before <= _starts(store)
    shutil.rmtree(store.parent)
    return Counter(points=1, killed=died)


def failed(ground: Ground, point: Point, *, lasting: bool) -> Counter[str]:
    """SPEC 4.3, 4.5, 4.6: refused in our words, or reported and retried; nothing is lost, and the next life begins."""
    store = ground.store_for(f"failed {point.call} {point.number} {lasting}")
    before, rows = _starts(store), everything(store) if store.exists() else None
    how = f"error={ERRORS.get(point.call, 'EIO')}:when={point.number}{'+' if lasting else ''}"
    # Where it lasts there may be nothing to wait for.
    said = run(store, RUNS, 1.5 if lasting else 60, *_hurting(store, point.call, how))
    heard = words(said)
    assert heard[-1] == "longest pause", heard
    if "initialised" not in heard:
        assert heard == ["refused"] * 5 + ["longest pause"]
        if rows is not None:
            assert everything(store) == rows, "refused, and changed"
        elif point.call != "unlink":
            assert not any(contents(store).values()), "refused, and left behind"
        _lives_on(store)
    else:
        _judge(store, heard, said, before)
    assert before <= _starts(store), "lost"
    shutil.rmtree(store.parent)
    return Counter(points=1, refused=heard.count("refused"), faults=heard.count("StoreFault"))


def _judge(store: Path, heard: Sequence[str], said: Sequence[Sequence[Any]], before: set[int]) -> None:
    fold = compare(look_into(store))
    assert fold.starts.keys() >= {facts[1] for word, *facts in said if word == "TaskRunStarted"}
    assert fold.ends.keys() >= {facts[1] for word, *facts in said if word in {"TaskRunCompleted", "TaskRunFailed"}}
    if "stopped" in heard:
        assert heard.count("StoreFault") == heard.count("StoreRecovered")
        assert len(fold.starts.keys() - before) == heard.count("begin")
        assert not fold.running()
        judge(store, clean=True)
    else:
        assert "gave up" in heard
        assert len(fold.starts.keys() - before) >= heard.count("begin")
        _lives_on(store)


def _lives_on(store: Path) -> None:
    assert words(run(store, 1, 60))[-2:] == ["stopped", "longest pause"]
    compare(look_into(store))
    judge(store, clean=True)


def _starts(store: Path) -> set[int]:
    fold: Fold = compare(look_into(store)) if store.exists() and store.stat().st_size else Fold()
    return set(fold.starts)


def tried(points: Iterable[Point], attempt: Callable[[Point], Counter[str]]) -> Iterator[Counter[str]]:
    """The result of each, two at a time: lives mostly wait."""

    def one(point: Point) -> Counter[str]:
        try:
            return attempt(point)
        except BaseException as error:
            error.add_note(f"{point}")
            raise

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield from pool.map(one, points)
