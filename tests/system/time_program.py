"""A scheduler as a process of its own, on a clock that runs fast, with a witness of what its callbacks really did.

Run as a module this is that program: `python -m tests.system.time_program SETUP`, where SETUP is the JSON of a `Setup`.
`Process` starts it, freezes it, steps its clock and stops it. The witness is a file that callbacks append to, line by
line and without any of duly's code: it knows what the trace cannot.

When a test waits for a start, it waits for the durable record of one, and asks for the instant that the scheduler has
stamped it with. A callback's own reading of the clock is later than that, at 3,600x by minutes if the machine is busy,
and says nothing about what the start has served.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import duly
from duly.clock import Clock, SystemClock
from duly.events import ClockJumped, Event, HostZoneChanged, PropertyViolated, StoreFault, TaskInterrupted
from tests.compute import NotInTimeError
from tests.programs import ROOT, environment
from tests.system.clocks import AcceleratedClock

PATIENCE_SECONDS: Final = 90.0
"""How long a test waits before it calls that a failure; only a hang comes near it, or a machine without compute."""

POLLS_MIN: Final = 3
"""A scheduler that woke up this often at instants at which a start was owed, and has none on record, has lost it."""

_REPORTED = (ClockJumped, HostZoneChanged, PropertyViolated, StoreFault, TaskInterrupted)


@dataclasses.dataclass(frozen=True)
class Job:
    """A task: what it is called, when it is due, what its callback does."""

    name: str
    cron: str
    kind: str = "quick"
    """quick; slow (a coroutine that sleeps); blocking (a thread that sleeps); failing."""

    seconds: float = 0.0
    """How long it sleeps, by the scheduler's clock."""

    delay_seconds: float = 420.0
    step_seconds: float = 0.0
    """By how much it steps the clock, right at its start."""

    steps: int = 0
    """How often it does."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """One process: where it keeps what, its clock, its tasks."""

    store: str
    witness: str
    jobs: list[Job]
    begins: int = 0
    """Its wall clock at the start, in microseconds."""

    factor: int = 3600
    """How much faster than the world its clock runs; 0 is the system's clock."""

    zone: str = "UTC"
    run_timeout_seconds: float | None = None
    max_concurrency: int | None = None


# --- the program -----------------------------------------------------------------------------------------------------


class _Program:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._clock: Clock = AcceleratedClock(setup.begins, setup.factor) if setup.factor else SystemClock()
        self._factor = setup.factor or 1
        self._witness = os.open(setup.witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._numbers: dict[str, int] = {}
        self._steps: dict[str, int] = {}

    def testify(self, *facts: object) -> None:
        os.write(self._witness, (json.dumps(facts) + "\n").encode())

    def heard(self, event: Event) -> None:
        if isinstance(event, _REPORTED):
            fields = {key: str(value) for key, value in event.fields.items()}
            self.testify("event", event.name, self._clock.now(), fields)

    def callback(self, job: Job) -> Callable[[], Any]:
        def begin() -> int:
            number = self._numbers[job.name] = self._numbers.get(job.name, 0) + 1
            self.testify("begin", job.name, number, self._clock.now())
            if self._steps.get(job.name, 0) < job.steps:
                self._steps[job.name] = self._steps.get(job.name, 0) + 1
                self.step(job.step_seconds)
            return number

        def end(number: int, outcome: str) -> None:
            self.testify("end", job.name, number, self._clock.now(), outcome)

        async def on_the_loop() -> None:
            number = begin()
            try:
                await asyncio.sleep(job.seconds / self._factor)
            except asyncio.CancelledError:
                end(number, "cancelled")
                raise
            if job.kind == "failing":
                end(number, "failed")
                raise ValueError("as it was told")
            end(number, "returned")

        def in_a_thread() -> None:
            number = begin()
            time.sleep(job.seconds / self._factor)
            end(number, "returned")

        return in_a_thread if job.kind == "blocking" else on_the_loop

    def step(self, seconds: float) -> None:
        assert isinstance(self._clock, AcceleratedClock)
        before = self._clock.now()
        self._clock.step(seconds)
        self.testify("step", seconds, before, self._clock.now())

    async def live(self) -> None:
        limit = self._setup.run_timeout_seconds
        scheduler = duly.Scheduler(
            self._setup.store,
            clock=self._clock if self._setup.factor else None,
            trace=True,
            on_event=self.heard,
            max_concurrency=self._setup.max_concurrency,
            run_timeout=None if limit is None else timedelta(seconds=limit),
        )
        await scheduler.initialize(
            [(job.name, job.cron, self.callback(job), timedelta(seconds=job.delay_seconds)) for job in self._setup.jobs]
        )
        origin = self._clock.origin if isinstance(self._clock, AcceleratedClock) else 0.0
        print("ready", origin, flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            word, _, rest = line.strip().partition(" ")
            if word == "stop":
                if isinstance(self._clock, AcceleratedClock):
                    self._clock.slow_down()
                await scheduler.stop()
                print("stopped", self._clock.now(), flush=True)
                return
            self.step(float(rest))
            print("stepped", self._clock.now(), flush=True)


# --- the hand that holds it ------------------------------------------------------------------------------------------


class Process:
    """That program, under way: a context manager that never leaves it behind."""

    def __init__(self, setup: Setup, *, extra: dict[str, str] | None = None) -> None:
        self.setup = setup
        self._stepped = 0.0
        self._heard = b""
        self._errors = Path(f"{setup.witness}.errors")
        # Not a pipe: it is not read meanwhile, and a process that has filled it stands still.
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "tests.system.time_program", json.dumps(dataclasses.asdict(setup))],
                cwd=ROOT,
                env=environment(**{"TZ": setup.zone, **(extra or {})}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def __enter__(self) -> "Process":
        try:
            self._origin = float(self._hear("ready"))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()  # also ends one that is stopped
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _hear(self, word: str) -> str:
        until = time.monotonic() + PATIENCE_SECONDS
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._process.stdout.fileno(), 4096) if ready else b""
            if not ready:
                raise NotInTimeError(f"waited for {word!r}; the process is silent")
            if not piece:
                raise AssertionError(f"waited for {word!r}; the process ended: {self._complaint()}")
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        said, _, rest = line.decode().partition(" ")
        assert said == word, line
        return rest

    def _complaint(self) -> str:
        return self._errors.read_text()[-4000:]

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def now(self) -> int:
        """The time on its wall clock, even while it is frozen; without steps that its callbacks made."""
        passed = (time.monotonic() - self._origin) * self.setup.factor
        return self.setup.begins + int((passed + self._stepped) * 1_000_000)

    def wait_until(self, instant: int) -> None:
        """Let the world go on until its wall clock shows an instant."""
        while (left := instant - self.now()) > 0:
            time.sleep(left / 1_000_000 / self.setup.factor + 0.001)

    def step(self, seconds: float) -> int:
        """Step its wall clock; returns what that shows then."""
        self._tell(f"step {seconds}")
        self._stepped += seconds
        return int(self._hear("stepped"))

    @contextlib.contextmanager
    def frozen(self) -> Any:
        """Stopped by SIGSTOP, and known to be, until the end of the block."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def freeze(self, clock_seconds: float) -> tuple[int, int]:
        """Freeze it for a stretch of its own time; returns between which readings of its clock it was surely frozen."""
        with self.frozen():
            first = self.now()
            self.wait_until(first + int(clock_seconds * 1_000_000))
            return first, self.now()

    def testimony(self) -> list[Any]:
        """Its witness file so far."""
        with contextlib.suppress(FileNotFoundError):
            text = Path(self.setup.witness).read_bytes()
            return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
        return []

    def trace(self) -> list[list[Any]]:
        """The rows of its trace that are durable so far, each with its letters, number and instant."""
        with (
            contextlib.suppress(sqlite3.OperationalError),  # there is no store yet
            closing(sqlite3.connect(f"file:{self.setup.store}?mode=ro", uri=True)) as connection,
        ):
            return [json.loads(line) for (line,) in connection.execute("SELECT line FROM trace ORDER BY seq")]
        return []

    def wait_for_begin(self, name: str) -> None:
        """Wait until a callback of a task has begun, whatever the clock shows: a start may be durable long before."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not any(fact[:2] == ["begin", name] for fact in self.testimony()):
            if time.monotonic() > give_up_at:
                raise NotInTimeError(f"no callback of {name!r} has begun")
            time.sleep(0.01)

    def wait_for_start(
        self, name: str, where: Callable[[int], bool], *, after: int = 0, count: int = 1, until: int | None = None
    ) -> None:
        """Wait until `count` starts of a task are durable whose instants fit, with numbers in the trace above `after`.

        `until` is the reading of its clock from which on there can be no more of them.
        """
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            is_over = time.monotonic() > give_up_at or (until is not None and self.now() > until)
            rows = [row for row in self.trace() if row[1] > after]
            started = sum(row[0] == "RS" and row[3] == name and where(row[2]) for row in rows)
            if started >= count:
                return
            if self._process.poll() is not None:
                raise AssertionError(f"the process ended: {self._complaint()}")
            if is_over:
                break
            time.sleep(0.02)
        testimony = self.testimony()
        under_way = no_overlap(testimony)
        polls = sum(row[0] == "WK" and where(row[2]) for row in rows)
        what = f"{started} of {count} starts of {name!r} that were waited for; {polls} polls at such instants"
        # A wrong fact is one on a busy machine as well: it was awake, nothing was in the way, and it did not start.
        assert started or polls < POLLS_MIN or name in under_way, f"lost: {what}"
        raise NotInTimeError(f"{what}; the witness ends with {testimony[-5:]}")

    def wait_for_step(self, seconds: float, *, after: int) -> int:
        """Wait until it has noticed a step of about `seconds`; returns the number of that row in the trace.

        The readings of two clocks lie a moment apart, which a fast clock stretches: a fifth of the step is allowed.
        """
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            for row in self.trace():
                if row[0] == "CK" and row[1] > after and abs(row[2] - row[3] - 1e6 * seconds) < 0.2e6 * abs(seconds):
                    return int(row[1])
            time.sleep(0.02)
        noticed = [(row[2] - row[3]) / 1e6 for row in self.trace() if row[0] == "CK" and row[1] > after]
        raise NotInTimeError(f"a step of {seconds} s; it noticed {noticed}")

    def stop(self) -> int:
        """Stop its scheduler, and see it end well; returns what its clock showed."""
        self._tell("stop")
        stopped_at = int(self._hear("stopped"))
        assert self._process.wait(PATIENCE_SECONDS) == 0, self._complaint()
        return stopped_at


def no_overlap(testimony: Sequence[Any]) -> dict[str, int]:
    """Check that each task's callbacks begin and end in turn; returns the runs that have not ended, by task."""
    under_way: dict[str, int] = {}
    for word, *facts in testimony:
        if word == "begin":
            name, number, _ = facts
            assert name not in under_way, f"{name} began run {number} while run {under_way[name]} went on"
            under_way[name] = number
        elif word == "end":
            assert under_way.pop(facts[0]) == facts[1]
    return under_way


def run(main: Coroutine[Any, Any, None]) -> None:
    """The program's event loop."""
    asyncio.run(main)


if __name__ == "__main__":
    described = json.loads(sys.argv[1])
    described["jobs"] = [Job(**job) for job in described["jobs"]]
    run(_Program(Setup(**described)).live())
