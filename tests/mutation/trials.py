"""A mutant on trial: a forked process that has the wrong version, runs tests on it, and tells by its exit code."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, NoReturn

import pytest

from tests.mutation.covering import ROOT
from tests.mutation.mutants import Mutant

QUIETLY: Final = ("-q", "-p", "no:sugar", "-p", "no:cacheprovider", "--no-header")
WAITING_SECONDS_MAX: Final = 600.0
"""For mutants that wait for ever. SIGPROF ends mutants that compute for ever, on a busy machine not earlier."""


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    UNCOVERED = "not run by any test"


class Trial:
    """A mutant before its judges: `judge`, called in a process of its own, returns as pytest does."""

    def __init__(self, mutant: Mutant, judge: Callable[[], int]) -> None:
        self.mutant = mutant
        self._until = time.monotonic() + WAITING_SECONDS_MAX
        self._child = os.fork()
        if not self._child:
            in_this_child(judge)

    def verdict(self) -> Verdict | None:
        """What the judges say; None while they think."""
        ended, status = os.waitpid(self._child, os.WNOHANG)
        if ended:
            match os.waitstatus_to_exitcode(status):
                case 0:
                    return Verdict.SURVIVED
                case pytest.ExitCode.NO_TESTS_COLLECTED:  # the tests that the coverage knows have gone since
                    return Verdict.UNCOVERED
                case code:
                    return Verdict.TIMED_OUT if code == -signal.SIGPROF else Verdict.KILLED
        if time.monotonic() < self._until:
            return None
        self.end()
        return Verdict.TIMED_OUT

    def end(self) -> None:
        """Whatever they are doing."""
        os.killpg(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)


def tried(trials: Iterable[Trial], *, jobs: int) -> Iterator[tuple[Mutant, Verdict]]:
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
                if (verdict := trial.verdict()) is not None:
                    open_trials.remove(trial)
                    yield trial.mutant, verdict
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
