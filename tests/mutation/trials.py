"""A mutant on trial: a forked process that has the wrong version, runs tests on it, and tells by its exit code."""

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import pytest

from tests.mutation.covering import ROOT
from tests.mutation.mutants import Mutant

QUIETLY: Final = ("-q", "-p", "no:sugar", "-p", "no:cacheprovider", "--no-header")
WAITING_SECONDS_MAX: Final = 600.0
"""For mutants that go on for ever. SIGPROF ends mutants that compute for ever, on a busy machine not earlier."""

ASLEEP_SECONDS_MAX: Final = 6.0
"""For mutants that wait for what never comes: none of their processes runs, or waits for a processor, for this long."""

ASLEEP_SHARE_MAX: Final = 0.02
"""A process that waits in a loop is awake for a moment now and then."""


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    UNCOVERED = "not run by any test"


class Outcome(NamedTuple):
    """A verdict, and the test that failed or did not end."""

    verdict: Verdict
    test: str | None = None


Announce = Callable[[int], None]
"""Called before each test, with its number."""


class Trial:
    """A mutant before its judges: `judge`, called in a process of its own, returns as pytest does."""

    def __init__(
        self,
        mutant: Mutant,
        tests: Sequence[str],
        judge: Callable[[Announce], int],
        seconds_max: float = WAITING_SECONDS_MAX,
    ) -> None:
        self.mutant = mutant
        self._tests = tests
        self._until = time.monotonic() + seconds_max
        self._at = mmap.mmap(-1, 4)  # shared with the child: the number of the present test
        self._child = os.fork()
        if not self._child:
            in_this_child(lambda: judge(self._announce))
        self._sleep = _Sleep(self._child)

    def _announce(self, number: int) -> None:
        self._at[:] = number.to_bytes(4, "little")

    def outcome(self) -> Outcome | None:
        """What the judges say; None while they think."""
        ended, status = os.waitpid(self._child, os.WNOHANG)
        if ended:
            match os.waitstatus_to_exitcode(status):
                case 0:
                    return Outcome(Verdict.SURVIVED)
                case pytest.ExitCode.NO_TESTS_COLLECTED:  # the tests that the coverage knows have gone since
                    return Outcome(Verdict.UNCOVERED)
                case code:
                    verdict = Verdict.TIMED_OUT if code == -signal.SIGPROF else Verdict.KILLED
                    return Outcome(verdict, self._test())
        if time.monotonic() < self._until and not self._sleep.is_too_long():
            return None
        self.end()
        return Outcome(Verdict.TIMED_OUT, self._test())

    def _test(self) -> str | None:
        number = int.from_bytes(self._at[:], "little")
        return self._tests[number] if number < len(self._tests) else None

    def end(self) -> None:
        """Whatever they are doing."""
        with contextlib.suppress(ProcessLookupError):  # it has not called setsid() yet
            os.killpg(self._child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)


class _Sleep:
    """How long all processes of a session have been asleep, as far as Linux tells.

    Not by the clock: on a busy machine a process that waits for a processor is as slow as one that hangs.
    """

    PERIOD_SECONDS: Final = 1.0

    def __init__(self, session: int) -> None:
        self._session = session
        self._looked = self._since = time.monotonic()
        self._awake = 0

    def is_too_long(self) -> bool:
        """Whether none of them has been awake for ASLEEP_SECONDS_MAX."""
        now = time.monotonic()
        passed = now - self._looked
        if passed < self.PERIOD_SECONDS:
            return False
        awake = _awake_nanoseconds(self._session)
        if awake is None or abs(awake - self._awake) > ASLEEP_SHARE_MAX * passed * 1e9:
            self._since = now
        self._looked, self._awake = now, awake or 0
        return now - self._since > ASLEEP_SECONDS_MAX


def _awake_nanoseconds(session: int) -> int | None:
    """How long the processes of a session have run, or waited for a processor; None where that is not known."""
    total = 0
    found = False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it has ended since
            of_session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
            if of_session != session:
                continue
            for thread in (process / "task").iterdir():
                ran, waited, _ = (thread / "schedstat").read_text().split()
                total += int(ran) + int(waited)
                found = True
    return total if found else None


def selected(items: Iterable[pytest.Item], tests: Iterable[str]) -> list[pytest.Item]:
    """Of the items that were collected, those that are named, in the order of the names; a file names all of its."""
    by_name: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_name.setdefault(item.nodeid, []).append(item)
        by_name.setdefault(item.nodeid.partition("::")[0], []).append(item)
    return list(dict.fromkeys(item for test in tests for item in by_name.get(test, ())))


def tried(trials: Iterable[Trial], *, jobs: int) -> Iterator[tuple[Mutant, Outcome]]:
    """Wait for verdicts; a trial begins when it is taken from `trials`, and `jobs` of them go on at once."""
    waiting = iter(trials)
    open_trials: list[Trial] = []
    try:
        while True:
            while len(open_trials) < jobs and (trial := next(waiting, None)) is not None:
                open_trials.append(trial)
            if not open_trials:
                return
            time.sleep(0.005)
            for trial in list(open_trials):
                if (outcome := trial.outcome()) is not None:
                    open_trials.remove(trial)
                    yield trial.mutant, outcome
    finally:
        for trial in open_trials:
            trial.end()


def in_this_child(work: Callable[[], int]) -> NoReturn:
    """Do something in a forked process, ignored, and end it with what comes out."""
    code = 99
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        os.chdir(ROOT)
        code = work()
    except BaseException:
        code = 98
    finally:
        os._exit(code)
