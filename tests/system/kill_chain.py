"""One program that is killed again and again, and what its witness, store and trace must show after each kill."""

import asyncio
import contextlib
import copy
import io
import json
import math
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol

from duly.formal.checking import Report, check
from duly.stores.sqlite.trace import export
from tests.compute import NotInTimeError
from tests.programs import ROOT, environment
from tests.system.clocks import AcceleratedClock
from tests.system.fold import Fold, Found, compare, look_into
from tests.system.kill_program import MAX_CONCURRENCY, SPEED

NOON = 1_718_452_800_000_000  # 2024-06-15T12:00:00Z
PATIENCE_SECONDS = 120.0
POLLS_MIN = 60
"""After this many polls of the last process, everything that was owed when it started must have begun."""


class Starter(Protocol):
    """Starts and ends programs, and reports how they ended."""

    def order(self, verb: str, /, *arguments: Any) -> Any:
        """Have something done, and hear what came of it."""
        ...


class ForkServer:
    """A process that has imported everything, and forks programs from there."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.system.kill_program"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.started: list[int] = []
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def order(self, verb: str, /, *arguments: Any) -> Any:
        """Have it done by that process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([verb, *arguments]).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if verb == "start":
            self.started.append(answer)
        return answer

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE_SECONDS)
        self._process.stdout.close()


class Chain:
    """One program, from its first process to its last."""

    def __init__(self, starter: Starter, folder: Path, seed: int, *, forgetful: bool = False) -> None:
        folder.mkdir()
        self._forgetful = forgetful
        self._starter = starter
        self._random = random.Random(seed)
        self.store, self._witness_file = folder / "state.db", folder / "witness"
        self._wall = NOON + self._random.randrange(86_400) * 1_000_000
        self._origin = time.monotonic()
        self._boot = 0
        self._trace: list[list[Any]] = []
        self._history: dict[int, str] = {}
        self.fold = Fold()
        self.witness = Witness(self._witness_file)
        self.counts: Counter[str] = Counter()

    async def run(self, cycles: int, *, until: float = math.inf) -> None:
        """Be killed `cycles` times, or as often as there is time for; be started once more, and stopped."""
        for cycle in range(cycles):
            if cycle and time.monotonic() > until:
                break
            status = await self._end_of(await self._start_to_be_killed())
            assert status == -signal.SIGKILL, self._complaints(status)
            self.counts["cycles"] += 1
            self.examine()
            # The clock goes on between two processes: mostly not at all, sometimes for minutes, hours or days.
            away = self._random.choice([0, 0, 0, self._random.uniform(60, 900), self._random.uniform(3_600, 259_200)])
            self._wall += int(away * 1_000_000)
        await self._finish()

    async def _start_to_be_killed(self) -> int:
        """Start a process that will be killed in a moment: during initialize(), or some time after it."""
        child = self._start()
        longest = self._random.choice([None, 0.2, 0.8])
        if longest is not None:
            await self._initialised(child)
        self._starter.order("kill in", child, self._random.uniform(0, longest or 0.08))
        return child

    async def _initialised(self, child: int) -> None:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while self.witness.read().boot != self._boot:
            if time.monotonic() > give_up_at:
                raise NotInTimeError(f"process {child} does not begin: {self._complaints('nothing')}")
            await asyncio.sleep(0.01)

    def _start(self) -> int:
        self._boot += 1
        place, when = (str(self.store), str(self._witness_file)), (self._boot, self._wall, self._origin)
        return int(self._starter.order("start", *place, *when, self._forgetful))

    async def _end_of(self, child: int) -> int:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while (status := self._starter.order("wait", child)) is None:
            if time.monotonic() > give_up_at:
                raise NotInTimeError(f"process {child} does not end")
            await asyncio.sleep(0.01)
        return int(status)

    def _complaints(self, status: object) -> str:
        return f"it ended by itself with {status}: {Path(f'{self._witness_file}.errors').read_text()}"

    async def _finish(self) -> None:
        """Start it a last time, until all that was owed at its start has begun; then stop it cleanly."""
        child = self._start()
        owed = self._owed_at_the_start()
        await self._initialised(child)
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while owed - self.witness.read().begun_in(self._boot):
            if time.monotonic() > give_up_at:
                await self._give_up(child, owed - self.witness.begun_in(self._boot))
            await asyncio.sleep(0.05)
        self._starter.order("terminate", child)
        status = await self._end_of(child)
        assert status == 0, self._complaints(status)
        self.examine()
        fold = self.fold
        assert not fold.alive
        assert not fold.running()
        # Once more as a whole: nothing that was durable changed later.
        assert look_into(self.store).trace == self._trace
        assert judge(self.store, clean=True).ended
        self.counts["owed at the last start"] += len(owed)
        self.counts["starts"] += len(fold.starts)
        self.counts["interrupted"] += list(fold.outcomes.values()).count("interrupted")
        self.counts["resumed"] += fold.resumed
        self.counts["stretches"] += fold.stretches

    async def _give_up(self, child: int, missing: set[str]) -> NoReturn:
        """Kill a process in which something that was owed has not begun, and decide whether that is a wrong fact."""
        self._starter.order("kill in", child, 0)
        await self._end_of(child)
        self.examine()
        polls = sum(row[0] == "WK" for row in self._trace[self._trace.index(self._last_boot()) :])
        assert polls < POLLS_MIN, f"lost: {missing}, in {polls} polls"
        raise NotInTimeError(f"{missing} has not begun, in {polls} polls")

    def _last_boot(self) -> list[Any]:
        return [row for row in self._trace if row[0] == "BT"][-1]

    def _owed_at_the_start(self) -> set[str]:
        now = AcceleratedClock(self._wall, SPEED, origin=self._origin).now()
        ahead = copy.deepcopy(self.fold)
        for task in ahead.tasks.values():
            task.interrupted = task.run is not None
        return set(ahead.owing(now))

    def examine(self) -> None:
        """Compare witness, store, trace and checker, while no process is running."""
        self.witness.read()
        if not self.store.exists() or not self.store.stat().st_size:
            assert self.witness.boot == 0
            self.counts["killed before initialize() took effect"] += 1
            return
        found = look_into(self.store, after=len(self._trace))
        # What was durable once stays so.
        assert self._history.items() <= found.history.items()
        self.counts["killed before initialize() took effect"] += not found.trace
        self._trace += found.trace
        self._history = found.history
        compare(found, self.fold)
        if self._trace:
            self._confront(found)
            report = judge(self.store, clean=False)
            assert report.events == len(self._trace)
            assert report.crashes == self.fold.crashes

    def _confront(self, found: Found) -> None:
        fold, seen = self.fold, self.witness.seen
        # A start is durable before its callback begins (SPEC 3.9), and each begins at most once.
        for run, (task, at) in seen["begin"].items():
            assert run in fold.starts, f"run {run} of {task!r} began, and no start of it is on record"
            assert fold.starts[run][0] == task
            assert fold.starts[run][1] <= at
        never_begun = fold.starts.keys() - seen["begin"].keys()
        assert not never_begun & fold.ends.keys(), "an end of a run that never began"
        # An end is durable only if its callback is over, and then with its outcome.
        for run, (task, ok) in fold.ends.items():
            assert seen["end" if ok else "raise"].get(run, ("", 0))[0] == task, (
                f"run {run} of {task!r} has not ended so"
            )
        # What was told is durable, and in history.
        for what, outcome in (("completed", "success"), ("failed", "failure")):
            for run, (task, _) in seen[what].items():
                assert fold.ends.get(run) == (task, outcome == "success"), (
                    f"run {run} {what}, and that is not on record"
                )
                assert found.history[run] == outcome
        for run, (task, _) in seen["started"].items():
            assert fold.starts.get(run, ("", 0))[0] == task, f"run {run} started, and that is not on record"
        # Whatever began or was committed and has no end was cut short: its task owes it again.
        open_runs = {task.run for task in fold.tasks.values() if task.run is not None}
        cut_short = {run for run, outcome in fold.outcomes.items() if outcome == "interrupted"}
        assert fold.starts.keys() - fold.ends.keys() == open_runs | cut_short
        self.counts["starts without a callback"] = len(never_begun)
        self.counts["ends that were lost"] = len((seen["end"].keys() | seen["raise"].keys()) - fold.ends.keys())


class Witness:
    """By the word of callbacks alone, in real order: no overlap (S1), and no more at once than allowed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._alive: dict[str, int] = {}
        self.boot = 0
        self.seen: dict[str, dict[int, tuple[str, int]]] = {
            what: {} for what in ("initialised", "begin", "end", "raise", "started", "completed", "failed", "stopped")
        }
        self._begun: dict[int, set[str]] = {}

    def begun_in(self, boot: int) -> set[str]:
        """The tasks of which a callback began in one life."""
        return self._begun.get(boot, set())

    def read(self) -> "Witness":
        """Take in what is new; a last line without an end is being written."""
        if self._path.exists():
            with open(self._path, "rb") as file:
                file.seek(self._read)
                lines = file.read().split(b"\n")[:-1]
            self._read += sum(map(len, lines)) + len(lines)
            for line in lines:
                self._take(*json.loads(line))
        return self

    def _take(self, what: str, boot: int, at: int, task: str, run: int) -> None:
        if boot != self.boot:
            assert boot > self.boot, "a dead process writes"
            self.boot, self._alive = boot, {}
        if what == "begin":
            assert task not in self._alive, f"run {run} of {task!r} overlaps run {self._alive[task]}"
            self._alive[task] = run
            assert len(self._alive) <= MAX_CONCURRENCY, f"{len(self._alive)} at once"
            self._begun.setdefault(boot, set()).add(task)
        elif what in {"end", "raise"}:
            assert self._alive.pop(task) == run
        if run:
            assert run not in self.seen[what], f"{what} of run {run} twice"
            self.seen[what][run] = (task, at)


def judge(store: Path, *, clean: bool) -> Report:
    """The verdict of duly's own checker; without bounds in seconds, which time the machine when the clock is fast."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as connection:
        lines = b"".join(export(connection, clean=clean))
    report = check(io.BytesIO(lines), bounded=False)
    assert not report.violated, report.violations
    return report
