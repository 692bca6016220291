"""Three processes of one scheduler that share a database, and what is done to them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.cluster import judge
from benchmarks.cluster.witness import READY, Reader, Step
from benchmarks.cluster.work import Work, to_text

HOSTS = ("h0", "h1", "h2")
PREPARE_SECONDS_MAX = 60.0


class Trio:
    """Hosts by name; each may be started again after it ended."""

    def __init__(
        self,
        adapter: str,
        url: str,
        folder: Path,
        work: Work,
        *,
        hosts: tuple[str, ...] = HOSTS,
        python: str = sys.executable,
    ) -> None:
        self.hosts = hosts
        self.exits: list[tuple[float, str, int]] = []
        """Hosts that ended by themselves: when, which, and with what code."""
        self._program = [python, "-m", "benchmarks.cluster.host", adapter]
        self._url = url
        self._folder = folder
        self._work = to_text(work)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self._reader = Reader(folder)

    # --- hosts -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create what the scheduler needs in its database."""
        with open(self._folder / "prepare.log", "wb") as log:
            told = subprocess.run(
                self._command("prepare"),
                cwd=ROOT,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=PREPARE_SECONDS_MAX,
                check=False,
            )
        if told.returncode:
            raise RuntimeError(f"the database was not prepared: {_last_line(self._folder / 'prepare.log')}")

    def start(self, *hosts: str) -> None:
        """Start some hosts; all of them if none is named."""
        for host in hosts or self.hosts:
            with open(self._folder / f"{host}.log", "ab") as log:
                self._processes[host] = subprocess.Popen(
                    self._command(host, self._work),
                    cwd=ROOT,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def living(self) -> list[str]:
        """Hosts whose process has not ended; notes those that ended since the last time."""
        for host, process in list(self._processes.items()):
            if (code := process.poll()) is not None:
                self.exits.append((time.time(), host, code))
                del self._processes[host]
        return list(self._processes)

    def wait_until_ready(self, until: float) -> bool:
        """Whether all hosts were ready before this instant."""
        while not self.is_ready():
            if time.time() >= until or len(self.living()) < len(self.hosts):
                return False
            time.sleep(0.1)
        return True

    def is_ready(self) -> bool:
        """Whether every host has a process that waits for due minutes."""
        ready = {step.run for step in self.steps() if step.what == READY}
        return len(self.living()) == len(self.hosts) and {str(each.pid) for each in self._processes.values()} <= ready

    # --- faults ------------------------------------------------------------------------------------------------------

    def pause(self, host: str) -> None:
        """SIGSTOP."""
        self._processes[host].send_signal(signal.SIGSTOP)
        self._paused.add(host)

    def resume(self, host: str) -> None:
        """SIGCONT."""
        if host in self._processes:
            self._processes[host].send_signal(signal.SIGCONT)
        self._paused.discard(host)

    def kill(self, *hosts: str) -> None:
        """SIGKILL, for some hosts; all of them if none is named."""
        for host in hosts or tuple(self._processes):
            if (process := self._processes.pop(host, None)) is not None:
                process.kill()
                process.wait()

    # --- what its callbacks noted ------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """All steps so far."""
        self._reader.read()
        return self._reader.steps

    def news(self) -> list[Step]:
        """Steps that have been noted since somebody last asked for any."""
        return self._reader.read()

    def runs_now(self, task: str, within_s: float) -> str | None:
        """The living host with a run of a task that has taken a step within the last seconds, and has not ended."""
        living, since = self.living(), time.time() - within_s
        runs = judge.runs_of(step for step in self.steps() if step.task == task)
        going_on = [run for run in runs if run.outcome is None and run.last >= since and run.host in living]
        return going_on[-1].host if going_on else None

    def last_words(self, host: str) -> str:
        """The last line that a host wrote about itself."""
        return _last_line(self._folder / f"{host}.log")

    def _command(self, *more: str) -> list[str]:
        return [*self._program, self._url, str(self._folder), *more]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TZ": "UTC"}


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1].strip() if lines else "it said nothing"
