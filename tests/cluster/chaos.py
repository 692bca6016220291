"""Real processes that share a real PostgreSQL, and faults: what the steps of their callbacks, and the store, show.

A cluster has places: each is a way to the database, with a lease and perhaps a clock that can be wrong, and in each
lives one process, which is replaced when it is dead. Faults strike at chance moments, drawn from a seed. The verdict
never asks how fast the machine is: what has to come is waited for.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from duly.stores.postgres.connection import SNAPSHOT, Connection
from duly.stores.postgres.entries import entry_of
from duly.stores.postgres.install import install
from duly.stores.postgres.url import read_url
from tests.cluster.chaos_program import BROKE, SPEED, Life
from tests.cluster.guards import change, take_out_of_a_schema
from tests.cluster.judged_trace import judge
from tests.cluster.pgbouncer import PgBouncer
from tests.cluster.replay import Replay
from tests.compute import NotInTimeError
from tests.networks import Network, inside
from tests.postgres_server import PostgresServer
from tests.programs import ROOT, environment
from tests.system.kill_faketime import library

LEASE: Final = 3.0
MINUTE: Final = 60_000_000
QUIET_SECONDS_MAX: Final = 180.0
"""How long the cluster may take to serve what is due once the faults are over, on however busy a machine."""


@dataclass(frozen=True)
class Place:
    """Where a host lives."""

    name: str
    lease: float = LEASE
    cable: int | None = None
    """Its place in the network of the server; None: it uses the socket."""
    pooled: bool = False
    """Whether it goes through the pooler."""
    own_clock: bool = False
    """Whether its wall clock can be wrong."""


def application(place: Place) -> str:
    """The name by which the server knows the connections of a place."""
    return f"duly {place.name}"


THREE: Final = (Place("one"), Place("two"), Place("three"))


class Step(NamedTuple):
    """One step of a callback, and who took it."""

    at: int
    task: str
    run: int
    fence: int
    what: str
    thread: int
    process: int


class Freeze(NamedTuple):
    """A process that stood still, in nanoseconds of the clock that steps bear."""

    process: int
    since: int
    until: int


class Overlap(NamedTuple):
    """A step of a run that came after the first one of a later run of the task."""

    task: str
    run: int
    later_run: int
    seconds: float


@dataclass
class Verdict:
    """The findings."""

    runs: int
    steps: int
    overlaps: list[Overlap]
    wrongs: list[str]
    """Faults in the log."""
    served_twice: list[str]
    unstarted: list[int]
    """Runs whose callback was called, and whose start is not on record."""
    unserved: list[str]
    """Tasks of which nothing was started and ended after the faults were over."""
    trace: list[str]
    """Properties that the merged trace violates."""
    broken: list[str]
    """Complaints of hosts that duly itself did not expect."""
    hosts: int
    burials: int
    refused: int
    traced: int
    """Events of the merged trace."""
    faults: Counter[str]
    events: Counter[str]

    @property
    def violations(self) -> list[object]:
        """Everything that must not be."""
        return [
            *self.overlaps,
            *self.wrongs,
            *self.served_twice,
            *(f"run {run} was never started" for run in self.unstarted),
            *(f"{task} is not served" for task in self.unserved),
            *self.trace,
            *self.broken,
        ]

    def __str__(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))

        return (
            f"{self.faults.total()} faults ({listed(self.faults)}); {self.runs} runs, {self.steps} steps, "
            f"{self.hosts} hosts, {self.burials} burials, {self.refused} starts refused, {self.traced} events in the "
            f"trace; told: {listed(self.events)}; {len(self.overlaps)} overlaps, {len(self.served_twice)} minutes "
            f"served twice, {len(self.wrongs)} wrong entries, {len(self.trace)} violations of the trace, "
            f"{len(self.unserved)} tasks unserved"
        )


@dataclass
class Chaos:
    """A cluster of processes and what is done to it."""

    server: PostgresServer
    folder: Path
    schema: str
    places: Sequence[Place] = THREE
    seed: int = 1
    without: Sequence[str] = ()
    pooler: PgBouncer | None = None
    standby: PostgresServer | None = None
    """A second server, which hosts know by its address."""
    faults: Counter[str] = field(default_factory=Counter)
    freezes: list[Freeze] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._origin = time.monotonic()
        self._begins = int(time.time()) * 1_000_000 // MINUTE * MINUTE
        self._processes: dict[Place, subprocess.Popen[bytes]] = {}
        self._frozen: dict[Place, tuple[float, int]] = {}
        """Until when, and since when in nanoseconds."""
        self._cut: dict[Place, float] = {}
        self._slow_until: float | None = None
        self._wrong_clocks: dict[Place, str] = {}
        url = read_url(self.server.url(), self.schema)
        connection = Connection(url)
        install(connection, url)
        self._prepare(connection)
        take_out_of_a_schema(self.without, connection)
        connection.close()

    def _prepare(self, connection: Connection) -> None:
        """Let the clock of the store run as fast as those of the hosts, keep the log, and let requests be slow."""
        ((now,),) = connection.send(f"select ({_SERVER_NOW})::bigint", limit_seconds=15)[0]
        ahead = int((time.monotonic() - self._origin) * SPEED * 1_000_000)
        connection.read(
            "create or replace function clock_1() returns bigint language sql volatile as $$ "
            f"select {self._begins} + (({_SERVER_NOW} - {now}) * {SPEED})::bigint + {ahead} $$",
            "create table kept (like log)",
            "create function keep() returns trigger language plpgsql "
            "as $$ begin insert into kept values (new.*); return null; end $$",
            "create trigger keep after insert on log for each row execute function keep()",
            "create table slowness (place text primary key, beats float not null, others float not null)",
            *(f"insert into slowness values ('{application(place)}', 0, 0)" for place in self.places),
            "create function nap(kind text) returns void language sql volatile as $$ "
            "select pg_sleep(case kind when 'beats' then beats else others end * (0.5 + 0.5 * random())) from slowness "
            "where place = current_setting('application_name') and (beats > 0 or others > 0) $$",
            within_schema=True,
            limit_seconds=15,
        )
        # Before the mutex is taken: no host is held up by the request of another.
        change(connection, "enter_1", "perform pg_advisory", "perform nap('others'); perform pg_advisory")
        change(connection, "beat_1", "-- First: a", "perform nap('beats'); -- First: a")

    def slow_down(self, *places: Place, beats: float = 0.0, others: float = 0.0) -> None:
        """Let requests of these places, or of all, take so many seconds longer, or half of that."""
        chosen = ", ".join(f"'{application(place)}'" for place in places or self.places)
        self.server.execute(
            f"update {self.here}.slowness set beats = {beats}, others = {others} where place in ({chosen})"
        )

    @property
    def here(self) -> str:
        """The schema, quoted."""
        return '"' + self.schema + '"'

    # --- hosts -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A process in each place that has none."""
        for place in self.places:
            process = self._processes.get(place)
            if process is not None and process.poll() is None:
                continue
            if process is not None and process.returncode == BROKE:
                raise AssertionError("\n".join([f"the host at {place.name} has ended", *self.complaints()[-30:]]))
            self._frozen.pop(place, None)
            self._processes[place] = self._start_at(place)

    def _start_at(self, place: Place) -> subprocess.Popen[bytes]:
        url = self.server.url()
        if self.standby is not None:
            url = f"{url},{self.standby.folder}"
        if place.pooled:
            assert self.pooler is not None
            url = self.pooler.url()
        before: Sequence[str] = ()
        if place.cable is not None:
            network, cable = self._cable_of(place)
            url = f"postgresql://duly@{network.address}/postgres?connect_timeout=2"
            before = inside(network.place(cable))
        life = Life(
            url=f"{url}&application_name={quote(application(place))}",
            schema=self.schema,
            folder=str(self.folder),
            label=place.name,
            lease=place.lease,
            origin=self._origin,
            begins=self._begins,
            without=tuple(self.without),
        )
        with (self.folder / "complaints").open("ab") as complaints:
            return subprocess.Popen(
                [*before, *life.command()],
                cwd=ROOT,
                env=self._environment(place),
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
            )

    def _cable_of(self, place: Place) -> tuple[Network, int]:
        assert self.server.network is not None
        assert place.cable is not None
        return self.server.network, place.cable

    def _environment(self, place: Place) -> dict[str, str]:
        if not place.own_clock:
            return environment()
        if place not in self._wrong_clocks:
            self._set_clock(place, "+3600")
        # The wall clock alone: leases and waits count elapsed time, which no administrator can set.
        return environment(
            LD_PRELOAD=str(library()),
            FAKETIME_TIMESTAMP_FILE=str(self._clock_file(place)),
            FAKETIME_NO_CACHE="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
        )

    def _clock_file(self, place: Place) -> Path:
        return self.folder / f"clock of {place.name}"

    def _set_clock(self, place: Place, offset: str) -> None:
        self._wrong_clocks[place] = offset
        fresh = self.folder / "clock"
        fresh.write_text(f"{offset}\n")
        fresh.rename(self._clock_file(place))  # it is read at every look at the clock

    def processes(self) -> list[int]:
        """The processes that are hosts now."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def _awake(self) -> list[Place]:
        """Places whose process runs."""
        return [
            place for place, process in self._processes.items() if place not in self._frozen and process.poll() is None
        ]

    # --- faults ------------------------------------------------------------------------------------------------------

    def rage(
        self,
        seconds: float,
        kinds: Mapping[str, int],
        *,
        pause: tuple[float, float] = (0.5, 1.7),
        leases: tuple[float, float] = (0.3, 3.0),
        is_enough: Callable[[], object] = lambda: False,
    ) -> None:
        """Do harm for so long; what is frozen or cut comes back after some `leases`.

        Kinds come as cards of a pack that holds each as often as its number says, and is shuffled when it is empty.
        Moments are planned: a fault that takes long is followed by the next one at once.
        """
        self._leases = leases
        now = time.monotonic()
        until, next_at = now + seconds, now
        pack: list[str] = []
        while (now := time.monotonic()) < until and not is_enough():
            self._heal(now)
            self.start()
            if now >= next_at:
                next_at += self._chance.uniform(*pause)
                if not pack:
                    pack = [kind for kind, number in kinds.items() for _ in range(number)]
                    self._chance.shuffle(pack)
                kind = next((kind for kind in pack if self._strike(kind)), None)
                if kind is not None:
                    pack.remove(kind)
                    self.faults[kind] += 1
                continue
            ends = [*(at for at, _ in self._frozen.values()), *self._cut.values()]
            time.sleep(max(0.0, min(next_at, until, *ends, now + 0.25) - now))

    def strike(self, kind: str) -> None:
        """One fault."""
        assert self._strike(kind)
        self.faults[kind] += 1

    def _strike(self, kind: str) -> bool:
        """Do one harm; False if there is nobody to do it to."""
        match kind.split():
            case ["kill" | "terminate" | "freeze"]:
                return self._signal(kind, self._awake())
            case ["freeze", *name]:
                chosen = [place for place in self._awake() if place.name == " ".join(name)]
                return self._signal("freeze", [place for place in chosen if self._works(place)])
            case ["cut", what]:
                return self._cut_cable(requests=what != "answers", answers=what != "requests")
            case ["restart", "pooler"]:
                assert self.pooler is not None
                self.pooler.stop()
                self.pooler.start()
            case ["restart", mode]:
                self.server.stop(mode)
                self.server.start()
            case ["terminate", "backends"]:
                self.server.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    f"where application_name like 'duly %' and random() < {self._chance.uniform(0.3, 1)}"
                )
            case ["step", "clock"]:
                return self._step_clock()
            case ["slow", "store"]:
                self.slow_down(beats=0.2, others=0.8)
                self._slow_until = time.monotonic() + self._chance.uniform(1, 4)
            case _:
                raise ValueError(kind)
        return True

    def _signal(self, kind: str, places: Sequence[Place]) -> bool:
        if not places:
            return False
        place = self._chance.choice(places)
        process = self._processes[place]
        if kind == "freeze":
            # Others must be able to take over, else nothing would show.
            if len(self._frozen) + len(self._cut) >= len(self.places) - 1:
                return False
            process.send_signal(signal.SIGSTOP)
            until = time.monotonic() + self._chance.uniform(*self._leases) * place.lease
            self._frozen[place] = until, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        else:
            process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            if kind == "kill":
                process.wait(30)
        return True

    def _works(self, place: Place) -> bool:
        """Whether a place runs callbacks that take a while, by what is on record."""
        ((runs,),) = self.server.execute(
            f"select count(*) from {self.here}.states s join {self.here}.tasks t using (generation) "
            f"join {self.here}.hosts h on h.key = s.run / 1000000000000 and h.gone is null "
            f"where h.label = '{place.name}' and t.name ~ 'medium|long|spawning'"
        )
        return int(str(runs)) >= 2

    def _cut_cable(self, *, requests: bool, answers: bool) -> bool:
        whole = [place for place in self.places if place.cable is not None and place not in self._cut]
        if not whole or len(self._frozen) + len(self._cut) >= len(self.places) - 1:
            return False
        place = self._chance.choice(whole)
        network, cable = self._cable_of(place)
        network.cut(cable, requests=requests, answers=answers)
        self._cut[place] = time.monotonic() + self._chance.uniform(*self._leases) * place.lease
        return True

    def _step_clock(self) -> bool:
        stepping = [place for place in self.places if place.own_clock]
        place = self._chance.choice(stepping)
        others = [each for each in ("-3600", "+0", "+3600") if each != self._wrong_clocks.get(place)]
        self._set_clock(place, self._chance.choice(others))
        return True

    def _heal(self, now: float) -> None:
        """Bring back what has been frozen, cut or slow for long enough."""
        for place, (until, since) in list(self._frozen.items()):
            if now >= until:
                process = self._processes[place]
                self.freezes.append(Freeze(process.pid, since, time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                del self._frozen[place]
        for place, until in list(self._cut.items()):
            if now >= until:
                network, cable = self._cable_of(place)
                network.mend(cable)
                del self._cut[place]
        if self._slow_until is not None and now >= self._slow_until:
            self._slow_until = None
            self.slow_down()

    def end(self) -> None:
        """No process is left, and no cable is cut."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(30)
        self._processes.clear()
        self._frozen.clear()
        self._heal(float("inf"))

    # --- what came of it ---------------------------------------------------------------------------------------------

    def wait_for_work(self) -> None:
        """Return when the cluster has begun to work: a run of each place is on record."""
        asked = f"select count(distinct host) from {self.here}.runs"
        self._wait(lambda: int(str(self.server.execute(asked)[0][0])) >= len(self.places), "not all hosts work")

    def wait_for_runs(self, task: str) -> None:
        """Return when runs of tasks that are called so are under way."""
        asked = (
            f"select count(*) from {self.here}.states s join {self.here}.tasks t using (generation) "
            f"where s.run is not null and t.name like '{task} %'"
        )
        self._wait(lambda: int(str(self.server.execute(asked)[0][0])) >= 2, f"{task} does not run")

    def wait_for_event(self, name: str) -> None:
        """Return when a host has noted an event."""
        self._wait(
            lambda: any(line.startswith(name) for lines in self.events().values() for line in lines), f"no {name}"
        )

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + QUIET_SECONDS_MAX
        while not condition():
            self.start()
            if time.monotonic() >= deadline:
                raise NotInTimeError(f"{otherwise}: {self.complaints()[:3]}")
            time.sleep(0.1)

    def quiet(self) -> list[str]:
        """Let the cluster alone until everything is served; returns the tasks that are not, however long it takes."""
        self._heal(float("inf"))
        self.start()
        ((since,),) = self.server.execute(f"select {self.here}.clock_1()")
        deadline = time.monotonic() + QUIET_SECONDS_MAX
        asked = (
            f"select t.name from {self.here}.tasks t where not exists (select from {self.here}.runs r "
            f"where r.generation = t.generation and r.started_at > {since} and r.ended_at is not null) order by 1"
        )
        while (unserved := self.server.execute(asked)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return [str(name) for (name,) in unserved]

    def steps(self) -> list[Step]:
        """All steps of all hosts so far, in order."""
        return sorted(step for path in self.folder.glob("*.jsonl") for step in _steps(path))

    def events(self) -> dict[int, list[str]]:
        """The events of each process that count, with what they say."""
        return {int(path.name.split("-")[0]): path.read_text().splitlines() for path in self.folder.glob("*.events")}

    def overlaps(self) -> list[Overlap]:
        """Steps so far that should not have been taken."""
        return overlaps(self.steps(), self.freezes)

    def replay(self) -> Replay:
        """The log so far."""
        connection = Connection(read_url(self.server.url(), self.schema))
        try:
            rows = connection.read(_KEPT, begin=SNAPSHOT, within_schema=True, limit_seconds=120)[0]
        finally:
            connection.close()
        return Replay.of(entry_of(json.loads(text or "")) for (text,) in rows)

    def judge(self, unserved: Sequence[str] = ()) -> Verdict:
        """Go through all steps, the whole log and the merged trace."""
        steps, replay = self.steps(), self.replay()
        # How late starts are says something about the machine; that everything is served is waited for.
        report = judge(self.server.url(), self.schema, bounded=False)
        events = Counter(line.partition("\t")[0] for lines in self.events().values() for line in lines)
        ((hosts,),) = self.server.execute(f"select count(*) from {self.here}.hosts")
        called = {step.run for step in steps}
        return Verdict(
            runs=len(called),
            steps=len(steps),
            overlaps=overlaps(steps, self.freezes),
            wrongs=replay.wrongs,
            served_twice=replay.served_twice,
            unstarted=sorted(called - replay.runs),
            unserved=list(unserved),
            trace=[str(violation) for violation in report.violations],
            broken=self.complaints(),
            hosts=int(str(hosts)),
            burials=replay.burials,
            refused=replay.refused,
            traced=report.events,
            faults=self.faults,
            events=events,
        )

    def complaints(self) -> list[str]:
        """Lines of hosts that duly itself did not expect."""
        path = self.folder / "complaints"
        return path.read_text().splitlines() if path.exists() else []


_SERVER_NOW: Final = "extract(epoch from clock_timestamp()) * 1000000"
_KEPT: Final = """
select json_build_object('seq', seq, 'host', host, 'number', number, 'nonce', nonce, 'at', at, 'kind', kind,
  'entry', entry, 'refused', refused::text)
from kept order by seq
"""


def _steps(path: Path) -> list[Step]:
    process = int(path.name.split("-")[0])
    found = []
    for line in path.read_text().splitlines():
        try:
            at, task, run, fence, what, thread = json.loads(line)
        except ValueError:
            continue  # the last line of a process that was killed
        found.append(Step(at, task, run, fence, what, thread, process))
    return found


def overlaps(steps: Sequence[Step], freezes: Sequence[Freeze] = ()) -> list[Overlap]:
    """Steps of a run after the first one of a later run of the task; in the order of steps.

    The rest of a step that was under way when its process froze cannot be held (SPEC 9.7): of each thread of a process,
    the first step after a freeze is not counted. Of blocking callbacks only the beginning is a step.
    """
    under_way = _under_way(steps, freezes)
    first: dict[str, Step] = {}
    """The first step of the latest run of each task."""
    found = []
    for step in steps:
        latest = first.get(step.task)
        if latest is None or latest.fence < step.fence:
            first[step.task] = step
        elif latest.run != step.run and step not in under_way:
            found.append(Overlap(step.task, step.run, latest.run, (step.at - latest.at) / 1e9))
    return found


def _under_way(steps: Sequence[Step], freezes: Sequence[Freeze]) -> set[Step]:
    """The first step of each thread after each freeze of its process."""
    by_process: dict[int, list[Step]] = {}
    for step in steps:
        by_process.setdefault(step.process, []).append(step)
    found: set[Step] = set()
    for freeze in freezes:
        threads: set[int] = set()
        for step in by_process.get(freeze.process, ()):
            if step.at >= freeze.until and step.thread not in threads:
                threads.add(step.thread)
                found.add(step)
    return found
