"""A mutant on trial: a forked process that has the wrong version, runs tests on it, and tells by its exit code."""

import contextlib
import math
import mmap
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar

import pytest

from tests.mutation.covering import MEMORY, ROOT, Judges

T = TypeVar("T")
"""A mutant, or None where the source as it is stands before the judges."""

# Without the plug-in of duly itself: it imports duly before a wrong version can take the place of a module.
# pytest warns of that import as well, where judges are called in a process that has it.
QUIETLY: Final = (
    *("-q", "-p", "no:sugar", "-p", "no:cacheprovider", "--no-header", "--tb=native"),
    *("-p", "no:duly", "-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"),
)
PATIENCE: Final = 5
"""A test did not end if it took this many times longer than on the source as it is, and a number of seconds more."""

CPU_SECONDS_MIN: Final = 4.0
"""For tests that compute for ever: time of the processor, after which SIGPROF ends them."""

ASLEEP_SECONDS_MIN: Final = 6.0
"""For tests that wait for what never comes: none of their processes runs, or waits for a processor or a disk."""

ASLEEP_SHARE_MAX: Final = 0.02
"""A process that waits in a loop is awake for a moment now and then."""

OWN_SECONDS_MIN: Final = 60.0
"""For tests that do neither: time by the clock, without the time for which they waited for a processor."""


class Verdict(Enum):
    """The verdict on a mutant."""

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


class Trial(Generic[T]):
    """A mutant before its judges: `judge`, called in a process of its own, returns as pytest does."""

    def __init__(
        self, mutant: T, tests: Sequence[str], judge: Callable[[Announce], int], judges: Judges | None = None
    ) -> None:
        self.mutant = mutant
        self._tests = tests
        self._judges = judges
        self._until = math.inf if judges is None else time.monotonic() + judges.seconds_max
        self._at = mmap.mmap(-1, 4)  # shared with the child: the number of the present test, from 1
        self._folder = tempfile.mkdtemp(prefix="duly-mutant-", dir=MEMORY)
        os.chmod(self._folder, 0o755)  # some tests are another user for a moment
        self._child = os.fork()
        if not self._child:
            os.environ["TMPDIR"] = tempfile.tempdir = self._folder
            in_this_child(lambda: judge(self._announce))
        self._watch = _Watch(self._child)

    def _announce(self, number: int) -> None:
        self._at[:] = (number + 1).to_bytes(4, "little")

    def outcome(self) -> Outcome | None:
        """The verdict of the judges; None while they think."""
        ended, status = os.waitpid(self._child, os.WNOHANG)
        if ended:
            self._clear()
            match os.waitstatus_to_exitcode(status):
                case 0:
                    return Outcome(Verdict.SURVIVED)
                case pytest.ExitCode.NO_TESTS_COLLECTED:  # the tests that the coverage knows have gone since
                    return Outcome(Verdict.UNCOVERED)
                case code:
                    verdict = Verdict.TIMED_OUT if code == -signal.SIGPROF else Verdict.KILLED
                    return Outcome(verdict, self._test())
        test = self._test()
        usual = 0.0 if self._judges is None or test is None else self._judges.seconds(test)
        if self._watch.is_too_long(int.from_bytes(self._at[:], "little"), PATIENCE * usual):
            self.end()
            return Outcome(Verdict.TIMED_OUT, test)
        if time.monotonic() > self._until:  # no test has noticed it, whatever it is doing
            self.end()
            return Outcome(Verdict.SURVIVED)
        return None

    def _test(self) -> str | None:
        number = int.from_bytes(self._at[:], "little")
        return self._tests[number - 1] if 0 < number <= len(self._tests) else None

    def end(self) -> None:
        """Whatever they are doing."""
        with contextlib.suppress(ProcessLookupError):  # it has not called setsid() yet
            os.killpg(self._child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        self._clear()

    def _clear(self) -> None:
        _end_servers(Path(self._folder))
        shutil.rmtree(self._folder, ignore_errors=True)


def _end_servers(folder: Path) -> None:
    """End the PostgreSQL servers that tests have started there: nobody else does, however the tests ended."""
    for file in folder.glob("duly-pg-*/data/postmaster.pid"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            os.kill(int(file.read_text().split()[0]), signal.SIGQUIT)  # at once, as for `pg_ctl stop -m immediate`


class _Watch:
    """How long the present test of a process takes, and how much of that all of its processes have been asleep.

    As far as Linux tells, not by the clock: on a busy machine a process that waits for a processor is as slow as one
    that hangs.
    """

    PERIOD_SECONDS: Final = 1.0

    def __init__(self, process: int) -> None:
        self._process = process
        self._test = 0
        self._looked = self._asleep_since = time.monotonic()
        self._own_seconds = 0.0
        self._before = _Spent(0, 0, False)

    def is_too_long(self, test: int, allowance: float) -> bool:
        """Whether a test takes too long, if `allowance` is added to what each test may take."""
        now = time.monotonic()
        passed = now - self._looked
        if passed < self.PERIOD_SECONDS:
            return False
        spent = _spent(self._process)
        before, self._before, self._looked = self._before, spent or _Spent(0, 0, False), now
        if test != self._test or spent is None:
            self._test, self._asleep_since, self._own_seconds = test, now, 0.0
            return False
        waited = max(0, spent.waited_ns - before.waited_ns) / 1e9
        awake = abs(spent.ran_ns + spent.waited_ns - before.ran_ns - before.waited_ns) / 1e9
        if awake > ASLEEP_SHARE_MAX * passed or spent.is_at_disk:
            self._asleep_since = now
        self._own_seconds += max(0.0, passed - waited)
        return (
            now - self._asleep_since > ASLEEP_SECONDS_MIN + allowance or self._own_seconds > OWN_SECONDS_MIN + allowance
        )


class _Spent(NamedTuple):
    """How long the threads of some processes have run, and waited for a processor; and if one waits for a disk."""

    ran_ns: int
    waited_ns: int
    is_at_disk: bool


def _spent(ancestor: int) -> _Spent | None:
    """Of a process, of those that it has started, and of those in its session; None where that is not known."""
    parents: dict[int, int] = {}
    family = {ancestor}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it has ended since
            _, parent, _, session, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            parents[int(process.name)] = int(parent)
            if int(session) == ancestor:
                family.add(int(process.name))
    while new := {child for child, parent in parents.items() if parent in family} - family:
        family |= new
    ran = waited = 0
    is_at_disk = found = False
    for process in (Path(f"/proc/{number}") for number in family):
        with contextlib.suppress(OSError, ValueError):
            for thread in (process / "task").iterdir():
                of_thread = (thread / "schedstat").read_text().split()
                ran, waited, found = ran + int(of_thread[0]), waited + int(of_thread[1]), True
                is_at_disk |= (thread / "stat").read_text().rpartition(")")[2].split()[0] == "D"
    return _Spent(ran, waited, is_at_disk) if found else None


def by_name(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """The items that were collected, by their names and by those of their files."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(item.nodeid, []).append(item)
        found.setdefault(item.nodeid.partition("::")[0], []).append(item)
    return found


def selected(items: Mapping[str, Sequence[pytest.Item]], tests: Iterable[str]) -> list[pytest.Item]:
    """The items that are named, in the order of the names; a file names all of its."""
    return list(dict.fromkeys(item for test in tests for item in items.get(test, ())))


def without_shrinking() -> list[str]:
    """Arguments for pytest: hypothesis is content with the first example that fails, and looks for no smaller one."""
    from hypothesis import Phase, settings  # not above: pytest wants to be the first to import it

    settings.register_profile(
        "judging",
        derandomize=True,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
    )
    return ["--hypothesis-profile=judging"]


def limit_computing(usual_seconds: float) -> None:
    """End this process by SIGPROF if it computes for much longer than a test usually takes."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MIN + PATIENCE * usual_seconds)


def tried(trials: Iterable[Trial[T]], *, jobs: int) -> Iterator[tuple[T, Outcome]]:
    """Wait for verdicts; a trial begins when it is taken from `trials`, and `jobs` of them go on at once."""
    waiting = iter(trials)
    open_trials: list[Trial[T]] = []
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
