"""Hosts made of the pure core alone, over a shared store in memory: each knows what it would load, nothing overlaps.

Every host decides by what it has read of the log, and the store grants or refuses. Seeded: minutes pass, callbacks
return or fail after a while, hosts read late, die, are buried, join.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC

import pytest

from duly.core.agenda import Agenda, Slots, decide
from duly.core.changes import Batch, Ends, Starts
from duly.core.learning import Learner
from duly.core.moments import Instant
from duly.core.news import RUNS_OF_A_HOST, Buried, LogEntry, Replaced, host_of
from duly.core.record import read_equal
from duly.core.registration import RunsOn
from duly.core.request import changes_of
from duly.core.steps import finish
from duly.core.task import End, Running, Start, Task, TaskState, fail, interrupt, succeed
from duly.errors import HostGoneError
from tests.counts import share
from tests.stores.shared_hosts import MINUTE, TaskSet, TestHost
from tests.stores.shared_stores import MemoryStoreUnderTest

TASKS: TaskSet = {
    "minutely": ("* * * * *", 1_000),
    "also minutely": ("* * * * *", 30_000),
    "even": ("0,2,4,6,8,10,12,14,16,18,20 * * * *", 0),
    "rare": ("7 * * * *", 90_000),
}


async def nothing() -> None:
    """A callback that is never called here."""


@dataclass
class CoreHost:
    """A host without an engine: agenda, learner, and the runs that it has started."""

    store: MemoryStoreUnderTest
    asks: TestHost
    agenda: Agenda = field(init=False)
    learner: Learner = field(init=False)
    running: dict[int, Start] = field(default_factory=dict)
    """Its own runs, by number."""

    def __post_init__(self) -> None:
        self.asks.join(TASKS)
        self.load()

    @property
    def key(self) -> int:
        return self.asks.me.key

    def load(self) -> None:
        """Know what a snapshot says."""
        self.agenda = Agenda(UTC, self.key)
        self.learner = Learner(self.agenda, self.key)
        content = self.store.load()
        self.asks.seen = content.position
        states, runs = known_from_a_snapshot(self.store)
        tasks = [
            Task(generations[0], names[0], expression, delay, states[generations[0]], nothing, RunsOn.LOOP, written_by)
            for generations, names, expression, delay, _, _, written_by in read_equal(content.records)
        ]
        finish(self.agenda.enter(tasks, self.store.now))
        finish(self.learner.know(tasks, runs, content.blocked, restart=True))
        self.tasks = {task.generation: task for task in tasks}

    def read(self) -> None:
        """Learn what others wrote."""
        for entry in self.asks.read():
            if entry.host != self.key or isinstance(entry.content, Buried):
                assert finish(self.learner.learn(entry, self.store.now))

    def poll(self) -> Counter[str]:
        """Decide by what is known, ask the store, and carry out what it grants."""
        now = self.store.now
        finish(self.agenda.queue_due(now))
        first = self.key * RUNS_OF_A_HOST + self.asks.runs + 1
        decision = decide(self.agenda, now, Slots(), limit=100, first_run=first)
        self.asks.runs += decision.starts.count
        if not decision.starts.count:
            return Counter()
        answer = self.asks.write(changes_of(Batch(decision.starts.blocks)))
        refused = set(answer.refused)
        granted = [each for each in decision.starts.singles() if each.task.generation not in refused]
        self.agenda.apply(decision, Starts(granted))
        for start in decision.starts.singles():
            if start.task.generation in refused:
                self.agenda.review(start.task, now)
            else:
                self.running[start.run] = start
        return Counter(granted=len(granted), refused=len(refused))

    def end(self, run: int, error: str | None) -> None:
        """A callback of this host is over."""
        start, now = self.running.pop(run), self.store.now
        task = start.task
        state = task.state
        assert isinstance(state, Running)
        after = succeed(state, now) if error is None else fail(state, now, task.delay)
        retry, failures = getattr(after, "pending_retry_until", None), getattr(after, "failures", 0)
        ends = Ends()
        ends.add(End(task, run, start.grounds, now, error, retry, failures))
        answer = self.asks.write(changes_of(Batch(ends.blocks)))
        assert not answer.fenced, "a host that is not gone ends what it started"
        task.state = after
        self.agenda.review(task, now)


def known_from_a_snapshot(store: MemoryStoreUnderTest) -> tuple[dict[int, TaskState], dict[int, int]]:
    """The state of each task, and the runs that hosts which live are executing, as loading has it."""
    content = store.load()
    gone = {host.key for host in content.hosts if host.gone is not None}
    states: dict[int, TaskState] = {}
    runs: dict[int, int] = {}
    for generations, _, _, delay, state, run, _ in read_equal(content.records):
        if run is not None and host_of(run) in gone:
            assert isinstance(state, Running)
            state = interrupt(state, store.now, delay, restart=True)
        elif run is not None:
            runs[generations[0]] = run
        states[generations[0]] = state
    return states, runs


class World:
    """Some hosts, and chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryStoreUnderTest()
        self.hosts: list[CoreHost] = []
        self.seen: Counter[str] = Counter()
        self.join()

    def join(self) -> None:
        number = len(self.store.hosts) + 1
        self.hosts.append(CoreHost(self.store, TestHost(self.store, f"{number:032x}")))

    def step(self) -> None:
        """Something happens; then every host that has read everything knows what it would load."""
        host = self.chance.choice(self.hosts)
        match self.chance.choice(["time", "time", "poll", "poll", "poll", "read", "end", "end", "end", "die", "join"]):
            case "time":
                self.store.now = Instant(self.store.now + self.chance.choice([0, 1_000, 999_000, MINUTE // 2, MINUTE]))
            case "poll":
                if self.chance.random() < 0.7:
                    host.read()
                self.seen += host.poll()
            case "read":
                host.read()
            case "end" if host.running:
                failed = self.chance.random() < 0.3
                host.end(self.chance.choice(sorted(host.running)), "it failed" if failed else None)
                self.seen["failed" if failed else "succeeded"] += 1
            case "die" if len(self.hosts) > 1 and self.chance.random() < 0.2:
                self.hosts.remove(host)
                self.chance.choice(self.hosts).asks.bury(host.asks)
                with pytest.raises(HostGoneError):
                    host.asks.beat()
                self.seen["buried with runs" if host.running else "buried"] += 1
            case "join" if len(self.hosts) < 4 and self.chance.random() < 0.3:
                self.join()
        self.check()

    def check(self) -> None:
        running = [(start.task.name, run) for host in self.hosts for run, start in host.running.items()]
        assert len({name for name, _ in running}) == len(running), "no task overlaps (002 S1)"
        loaded, _ = known_from_a_snapshot(self.store)
        for host in self.hosts:
            if host.asks.seen.seq == self.store.last_seq() or self.chance.random() < 0.05:
                host.read()
                assert {number: task.state for number, task in host.tasks.items()} == loaded


def test_what_a_host_has_learnt_is_what_it_would_load_and_nothing_overlaps() -> None:
    """SPEC 9.9: starts are granted to a host that knows the task as it is; 9.5: burial interrupts; 002 S1, S3."""
    seen: Counter[str] = Counter()
    for seed in share(range(400), quick=40):
        world = World(seed)
        try:
            for _ in range(150):
                world.step()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        seen += world.seen
    assert min(seen[kind] for kind in ("granted", "refused", "failed", "succeeded", "buried with runs")) > 10, seen


def test_another_set_in_force_must_be_loaded() -> None:
    """SPEC 9.16: generations that a host has never seen cannot be learnt from numbers alone."""
    world = World(1)
    world.store.now = Instant(world.store.now + 1)
    other = TestHost(world.store, "f" * 32)
    other.join({**TASKS, "new": ("5 5 * * *", 0)})
    (host,) = world.hosts
    entries = [entry for entry in host.asks.read() if entry.host != host.key]
    assert isinstance(entries[-1].content, Replaced)
    assert not finish(host.learner.learn(entries[-1], world.store.now))


def test_a_declaration_that_waits_for_a_run_of_an_earlier_one_starts_when_that_is_over_or_its_host_is_buried() -> None:
    """SPEC 5.3, 9.16: whichever host runs it."""
    for way in ("ends", "buried"):
        world = World(2)
        (runner,) = world.hosts
        assert runner.poll()["granted"] == 3
        changed = {**TASKS, "minutely": ("* * * * *", 5_000)}
        other = TestHost(world.store, "e" * 32)
        other.join(changed)
        late = CoreHost.__new__(CoreHost)
        late.store, late.asks, late.running = world.store, other, {}
        late.load()
        (waiting,) = [task for task in late.tasks.values() if task.name == "minutely"]
        assert waiting.predecessor_runs
        world.store.now = Instant(world.store.now + MINUTE)
        (old,) = [start for start in runner.running.values() if start.task.name == "minutely"]
        if way == "ends":
            runner.end(old.run, None)
        else:
            other.bury(runner.asks)
        late.read()
        assert not waiting.predecessor_runs
        late.poll()
        assert "minutely" in {start.task.name for start in late.running.values()}


def test_entries_of_this_host_itself_are_not_learnt() -> None:
    """They were applied when they were answered; the log has them all the same."""
    world = World(3)
    (host,) = world.hosts
    assert host.poll()["granted"] == 3
    own: tuple[LogEntry, ...] = host.asks.read()
    assert {entry.host for entry in own} == {host.key}
    world.check()
