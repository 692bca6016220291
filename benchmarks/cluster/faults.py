"""The fate of hosts that are paused, killed, all down, and whose PostgreSQL restarts: in real minutes.

All schedulers go through the same minutes side by side, each in a database of its own. They hardly do anything in
between, and what is judged here are seconds.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.children import Sample
from benchmarks.cluster import judge
from benchmarks.cluster.plan import ORDINARY, SCHEDULERS, SERVED_WITHIN, Size, Timetable
from benchmarks.cluster.server import Server
from benchmarks.cluster.trio import HOSTS, Trio
from benchmarks.cluster.work import EACH_MINUTE, Tasks, at_minute

QUICK, LONG, ONCE = "quick", "long", "once"

RUNS_WITHIN_SECONDS = 1.5
"""A run that has taken a step within this time, and has not ended, goes on."""

RUNS_AGAIN_SECONDS = 3.0
"""How long a run is waited for where none goes on."""


@dataclass
class Patient:
    """A trio that faults are done to, and what was done."""

    trio: Trio
    paused: str | None = None
    paused_at: float = 0.0
    resumed_at: float = 0.0
    killed: str | None = None
    killed_at: float = 0.0
    up_at: float = 0.0
    hosts_before_restart: int = 0
    hosts_after_restart: int = 0
    troubles: list[str] = field(default_factory=list)
    """The faults that could not be made."""


@dataclass(frozen=True)
class Ordinary:
    """duly's hosts that nothing is done to."""

    trio: Trio
    database: str


class Faults:
    """One passage through the timetable."""

    def __init__(self, server: Server, size: Size, folder: Path, tell: Callable[[str], None]) -> None:
        self._server = server
        self._size = size
        self._folder = folder
        self._tell = tell
        self._begin = 0.0  # the first second of the first minute
        self.patients: dict[str, Patient] = {}
        self.ordinary: Ordinary | None = None
        self._ordinary_starts = 0
        self._ordinary_refused = 0
        self.broken: dict[str, str] = {}

    def run(self, names: list[str], before_restart: Callable[[], None]) -> None:
        """Go through it; `before_restart` returns when nobody else needs the server any more."""
        try:
            self._start(names)
            self._go_through(self._size.timetable, before_restart)
        finally:
            for trio in self._trios():
                trio.kill()

    def _trios(self) -> list[Trio]:
        return [patient.trio for patient in self.patients.values()] + ([self.ordinary.trio] if self.ordinary else [])

    def _start(self, names: list[str]) -> None:
        size, timetable = self._size, self._size.timetable
        needed = size.start_s + (len(HOSTS) - 1) * size.rolling_s
        self._begin = (time.time() + needed) // 60 * 60 + 60
        for name in names:
            adapter = SCHEDULERS[name][0]
            work = [
                Tasks(QUICK, EACH_MINUTE, number=size.minutely),
                Tasks(LONG, EACH_MINUTE, timetable.long_s),
                Tasks(ONCE, at_minute(self._begin + timetable.once_at), timetable.long_s),
            ]
            self.patients[name] = Patient(self._trio(adapter, f"faults_{adapter}", work))
        if "duly" in names:
            work = [Tasks(QUICK, EACH_MINUTE, number=size.ordinary)]
            self.ordinary = Ordinary(self._trio("duly", "ordinary", work), "ordinary")
        self._prepare()
        rolling(self._trios(), size.rolling_s)
        for name, patient in self.patients.items():
            if not patient.trio.wait_until_ready(self._begin - 1):
                self._note_broken(name, patient.trio)
        if self.ordinary is not None and not self.ordinary.trio.wait_until_ready(self._begin - 1):
            self._note_broken(ORDINARY, self.ordinary.trio)

    def _trio(self, adapter: str, database: str, work: list[Tasks]) -> Trio:
        return Trio(adapter, self._server.create(database), self._folder / database, work)

    def _prepare(self) -> None:
        for name, patient in list(self.patients.items()):
            try:
                patient.trio.prepare()
            except RuntimeError as error:
                self.broken[name] = str(error)
                del self.patients[name]
        if self.ordinary is not None:
            self.ordinary.trio.prepare()

    def _note_broken(self, name: str, trio: Trio) -> None:
        said = "; ".join(f"{host}: {trio.last_words(host)}" for host in trio.hosts)
        self.broken[name] = f"not all hosts were ready when the first minute began ({said})"

    # --- the timetable -----------------------------------------------------------------------------------------------

    def _go_through(self, timetable: Timetable, before_restart: Callable[[], None]) -> None:
        everybody = self.patients.values()
        self._until(timetable.pause_at, f"ordinary minutes, {len(self.patients)} schedulers")
        for patient in everybody:
            self._pause(patient)
        self._until(timetable.resume_at, "the host that runs `long` is paused")
        for patient in everybody:
            if patient.paused is not None:
                patient.trio.resume(patient.paused)
                patient.resumed_at = time.time()
        self._until(timetable.kill_at, "it goes on")
        for patient in everybody:
            self._kill(patient)
        self._until(timetable.again_at, "the host that runs `once` is killed")
        for patient in everybody:
            if patient.killed is not None:
                patient.trio.start(patient.killed)
        self._until(timetable.down_at, "it was started again")
        for patient in everybody:
            patient.trio.kill()
        self._until(timetable.up_at, "all hosts are down")
        for patient in everybody:
            patient.trio.start()
            patient.up_at = time.time()
        self._until(timetable.restart_at, "all hosts were started again")
        before_restart()
        self._keep_ordinary()
        for patient in everybody:
            patient.hosts_before_restart = len(patient.trio.living())
        self._server.restart()
        self._until(timetable.end_at, "PostgreSQL was restarted")
        for patient in everybody:
            patient.hosts_after_restart = len(patient.trio.living())

    def _until(self, second: float, what: str) -> None:
        """Wait, and notice meanwhile which hosts end."""
        self._tell(f"faults: until {int(second) // 60}:{int(second) % 60:02}: {what}")
        while (left := self._begin + second - time.time()) > 0:
            time.sleep(min(left, 0.25))
            for trio in self._trios():
                trio.living()

    def _pause(self, patient: Patient) -> None:
        patient.paused = self._host_that_runs(patient, LONG)
        if patient.paused is not None:
            patient.trio.pause(patient.paused)
            patient.paused_at = time.time()

    def _kill(self, patient: Patient) -> None:
        patient.killed = self._host_that_runs(patient, ONCE)
        if patient.killed is not None:
            patient.trio.kill(patient.killed)
            patient.killed_at = time.time()

    @staticmethod
    def _host_that_runs(patient: Patient, task: str) -> str | None:
        """A run may just have ended: the next one is waited for."""
        until = time.time() + RUNS_AGAIN_SECONDS
        while (host := patient.trio.runs_now(task, RUNS_WITHIN_SECONDS)) is None:
            if time.time() >= until:
                patient.troubles.append(f"no host ran `{task}`")
                return None
            time.sleep(0.1)
        return host

    def _keep_ordinary(self) -> None:
        """Ask how many starts were refused before the log is no longer that of ordinary minutes alone."""
        if self.ordinary is not None and ORDINARY not in self.broken:
            statement = "select coalesce(sum(cardinality(refused)), 0) from duly.log"
            self._ordinary_refused = int(self._server.rows(statement, self.ordinary.database)[0][0])
            self._ordinary_starts = len(judge.runs_of(self.ordinary.trio.steps()))

    # --- what came of it ---------------------------------------------------------------------------------------------

    def samples(self) -> Mapping[str, Sample]:
        """By the key of each measurement."""
        found = {f"faults {name}": self._facts(patient) for name, patient in self.patients.items()
                 if name not in self.broken}  # fmt: skip
        if self.ordinary is not None and ORDINARY not in self.broken:
            starts, refused = self._ordinary_starts, self._ordinary_refused
            found[ORDINARY] = {
                "starts": float(starts),
                "refused": float(refused),
                "refused_percent": 100.0 * refused / max(1, starts + refused),
            }
        return found

    def _facts(self, patient: Patient) -> Sample:
        timetable, begin = self._size.timetable, self._begin
        runs = judge.runs_of(patient.trio.steps())
        quick = list(Tasks(QUICK, EACH_MINUTE, number=self._size.minutely).names)
        facts: dict[str, float | None] = {}
        each = judge.starts_a_minute(runs, quick, [begin + minute for minute in timetable.ordinary])
        facts["runs_least"], facts["runs_most"] = each
        facts["late_s"] = judge.lateness(runs, quick, begin + timetable.ordinary[-1], SERVED_WITHIN)
        if patient.paused is not None:
            facts |= _of_pause(runs, patient, begin + timetable.resumed_until)
        if patient.killed is not None:
            facts["killed"] = 1.0
            facts["resumed_s"] = judge.first_start(runs, ONCE, patient.killed_at, begin + timetable.killed_until)
        made_up = judge.made_up(runs, quick, patient.up_at, begin + timetable.made_up_until)
        facts["made_up_least"], facts["made_up_most"] = made_up
        facts["missed"] = float(len(timetable.missed))
        late = [judge.lateness(runs, quick, begin + minute, SERVED_WITHIN) for minute in timetable.after_restart]
        facts["hosts_before_restart"] = float(patient.hosts_before_restart)
        facts["hosts_after_restart"] = float(patient.hosts_after_restart)
        facts["minutes_after_restart"] = float(len(late))
        facts["served_after_restart"] = float(sum(each is not None for each in late))
        served = [each for each in late if each is not None]
        facts["late_after_restart_s"] = max(served) if served else None
        return {name: float(value) for name, value in facts.items() if value is not None}


def _of_pause(runs: list[judge.Run], patient: Patient, until: float) -> dict[str, float | None]:
    assert patient.paused is not None
    known = [run for run in runs if run.began < until]
    paused = judge.run_at(known, LONG, patient.paused, patient.paused_at)
    if paused is None:
        return {}
    elsewhere = [run for run in known if run.task == LONG and run.host != patient.paused]
    return {
        "paused_s": patient.resumed_at - patient.paused_at,
        "overlap_s": judge.overlap_seconds(known, paused, patient.resumed_at),
        "overlap_steps": float(judge.steps_beside(known, paused, patient.resumed_at)),
        "elsewhere_s": judge.first_start(elsewhere, LONG, patient.paused_at, until),
    }


def rolling(trios: list[Trio], pause_s: float) -> None:
    """Start the first host of each, then the second of each, …, as a rolling deploy does."""
    for place, host in enumerate(HOSTS):
        if place:
            time.sleep(pause_s)
        for trio in trios:
            trio.start(host)
