"""Two hosts of a shared store in a small world: the real core and the pure store, one step at a time.

Nothing of the scheduler is modelled. Agenda, decision, `Learner`, requests and states are those of `duly.core`, the
store is `SharedMemory`, and what it has written is judged by the checker of `duly.formal`. The world around is small:
requests wait on their way until the search lets them arrive, and arrive twice; callbacks end when the search says so;
a host freezes or dies, and is buried by the other one.
"""

import io
import itertools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any, Final, NamedTuple

from duly.core.agenda import Agenda, Decision, Slots, decide
from duly.core.changes import Batch, Starts
from duly.core.cron import CronExpression, parse_cron
from duly.core.learning import Learner
from duly.core.moments import Delay, Instant, minute_of
from duly.core.news import (
    BEGINNING,
    NOT_MOVED,
    RUNS_OF_A_HOST,
    Buried,
    Changes,
    LogEntry,
    Position,
    Started,
    Statement,
    Written,
)
from duly.core.record import read_equal
from duly.core.registration import RunsOn
from duly.core.request import changes_of
from duly.core.steps import finish
from duly.core.task import (
    AwaitingRetry,
    AwaitingRun,
    End,
    Grounds,
    Interrupted,
    Running,
    Task,
    fail,
    newly_declared,
    succeed,
)
from duly.engine.colleagues import present_state
from duly.errors import HostGoneError
from duly.formal.monitor import Monitor
from duly.stores.shared import (
    Act,
    Arrival,
    EditionRequest,
    HostIdentity,
    WriteAnswer,
    arrivals_digest,
    outcome_of,
    set_digest,
)
from duly.stores.shared_trace import Expansion
from duly.testing.shared import BaseRow, SharedMemory
from formal.state_graph import Broken, StateGraph, Verdict
from formal.state_graph import Move as GraphMove

NOON: Final = Instant(1_704_110_400_000_000)
HOUR: Final = 3_600_000_000
DELAY: Final = Delay(60_000)
CRON: Final = "0 * * * *"


class Move(NamedTuple):
    """A step of one host, or of the world."""

    what: str
    host: int = 0


class Wrong(Exception):  # noqa: N818  no fault of the search, but what it looks for
    """A property does not hold."""


@dataclass(frozen=True)
class Instance:
    """How much may happen."""

    tasks: str = "x"
    hours: int = 1
    faults: int = 1
    """Hosts that freeze or die."""

    repeats: int = 1
    """Requests that arrive twice."""

    failures: int = 1
    """Callbacks that fail."""

    without: str = ""
    """A guard that is taken out."""


@dataclass
class Request:
    """A batch on its way to the store, or its answer on the way back."""

    number: int
    seen: Position
    changes: Changes
    decision: Decision | None
    answer: WriteAnswer | None = None


@dataclass
class Host:
    """One host: what it knows, what it has asked, and what it runs."""

    key: int
    position: Position
    agenda: Agenda
    learner: Learner
    tasks: dict[int, Task]
    number: int = 1
    next_run: int = 0
    on_record: int = 0
    heard_of: int = 0
    """The last entry that it has heard of."""
    request: Request | None = None
    runs: dict[int, tuple[int, Any]] = field(default_factory=dict)
    """Callbacks under way, by generation: the run and its grounds."""
    how: str = "up"
    """`up`, `frozen`, `dead`, or `lost`: it was told that it was buried."""

    @property
    def identity(self) -> HostIdentity:
        return HostIdentity(self.key, f"{self.key:032x}")


class _Unconditional(SharedMemory):
    """Grants a start whatever has happened to its task since the decision."""

    def _start(self, block: Started, generation: int, run: int, me: int, seq: int, seen: int) -> bool:
        return super()._start(block, generation, run, me, seq, self.last_seq())


class _Overlapping(_Unconditional):
    """Grants a start even while another host runs the task."""

    def _is_living(self, key: int) -> bool:
        return False


class _Unfenced(SharedMemory):
    """Lets a buried host write."""

    def _check_host(self, me: HostIdentity) -> None:
        pass


STORES: Final[dict[str, type[SharedMemory]]] = {
    "the premise of a start": _Unconditional,
    "the premise, and that no other host runs the task": _Overlapping,
    "the fence": _Unfenced,
}
"""The store without a guard."""

HOSTS: Final = (
    "a number takes effect once",
    "the position belongs to the decision",
    "entries are read in order",
    "refused starts are not learnt",
    "burials are learnt",
)
"""Guards of a host."""


class World:
    """Two hosts that have joined, their store, and what may still happen."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.now = NOON
        self.left = {"hours": instance.hours, "faults": instance.faults, "repeats": instance.repeats}
        self.left["failures"] = instance.failures
        self.memory = STORES.get(instance.without, SharedMemory)(self.clock, self.nonce)
        self.hosts = {key: self._joined(key) for key in (1, 2)}
        for host in self.hosts.values():
            self._learn(host)
        self.judged = 0

    def clock(self) -> Instant:
        return self.now

    def nonce(self) -> str:
        return f"{self.memory.last_seq() + 1:032x}"

    def _joined(self, key: int) -> Host:
        names, memory = list(self.instance.tasks), self.memory
        loaded = memory.load()
        arrivals = [] if loaded.records else [Arrival(name, CRON, DELAY) for name in names]
        memory.arrive(f"{key:032x}", arrivals)
        answer = memory.replace(
            EditionRequest(
                identifier=f"{key:032x}",
                key=None,
                number=1,
                seen=loaded.position,
                act=Act.JOIN,
                digest=set_digest([(name, CRON, DELAY) for name in names], interrupted="restart"),
                compared_with=loaded.in_force,
                shares_names=True,
                removed=(),
                arrivals=len(arrivals),
                arrivals_digest=arrivals_digest(arrivals),
                zone="UTC",
                zone_seen=loaded.zone,
                lease=30_000_000,
                said=Statement(1, len(names), "", "restart", None, None, 0),
                moved=NOT_MOVED,
                traced=True,
            )
        )
        assert answer.key == key
        minute = minute_of(self.now, UTC)
        tasks = {
            number: Task(number, name, parse_cron(CRON), DELAY, newly_declared(minute), _callback, RunsOn.LOOP)
            for number, name in enumerate(names, 1)
        }
        agenda = Agenda(UTC, key)
        agenda.marks = {}  # the empty one of the core cannot be pickled
        finish(agenda.enter(tasks.values(), self.now))
        learner = Learner(agenda, key)
        finish(learner.know(tasks.values(), {}, {}, restart=True))
        position = memory.log[memory.last_seq()].position if memory.log else BEGINNING
        return Host(key, position, agenda, learner, tasks, next_run=key * RUNS_OF_A_HOST + 1)

    # --- moves -------------------------------------------------------------------------------------------------------

    def moves(self) -> Iterator[Move]:
        """All that may happen next."""
        for host in self.hosts.values():
            if host.request is not None and host.request.answer is None:
                yield Move("arrives", host.key)  # even if its host is frozen or dead by now
            if host.request is not None and host.request.answer is not None and self.left["repeats"]:
                yield Move("arrives again", host.key)
            if host.how == "up":
                yield from self._steps(host)
            other = self.hosts[3 - host.key]
            if host.how == "up" and other.how in ("frozen", "dead") and self.memory.hosts[other.key].gone is None:
                yield Move("buries", host.key)
            if host.how == "frozen":
                yield Move("thaws", host.key)
            if host.how == "up" and self.left["faults"] and other.how == "up":
                yield Move("freezes", host.key)
                yield Move("dies", host.key)
        if self.left["hours"]:
            yield Move("an hour begins")

    def _steps(self, host: Host) -> Iterator[Move]:
        if host.request is None:
            if host.position.seq < self.memory.last_seq():
                yield Move("learns", host.key)
            # A host that knows that others have written learns first.
            if host.position.seq >= host.heard_of and self._decision(host) is not None:
                yield Move("decides", host.key)
            for _ in host.runs:
                yield Move("returns", host.key)
                if self.left["failures"]:
                    yield Move("fails", host.key)
                break
        elif host.request.answer is not None:
            yield Move("is answered", host.key)

    def make(self, move: Move) -> None:
        """Take a step, and judge what it has written. Raises Wrong."""
        host = self.hosts.get(move.host)
        match move.what:
            case "an hour begins":
                self.left["hours"] -= 1
                self.now = Instant(self.now + HOUR)
            case "learns":
                assert host is not None
                self._learn(host)
            case "decides":
                assert host is not None
                self._decide(host)
            case "arrives" | "arrives again":
                assert host is not None
                if move.what == "arrives again":
                    self.left["repeats"] -= 1
                self._arrive(host)
            case "is answered":
                assert host is not None
                self._hear(host)
            case "returns" | "fails":
                assert host is not None
                self._end(host, failed=move.what == "fails")
            case "buries":
                assert host is not None
                self._bury(host, self.hosts[3 - host.key])
            case _:
                assert host is not None
                self._change(host, move.what)
        self.judge()

    def _change(self, host: Host, what: str) -> None:
        if what == "thaws":
            host.how = "up"
            return
        self.left["faults"] -= 1
        host.how = "dead" if what == "dies" else "frozen"

    def _learn(self, host: Host) -> None:
        for entry in self.memory.news(host.position).entries:
            self._apply(host, entry)
            host.position = entry.position
        self.compare(host)

    def _apply(self, host: Host, entry: LogEntry) -> None:
        if entry.host == host.key and not isinstance(entry.content, Buried):
            return  # it has applied what it wrote; a burial it has only asked for
        match self.instance.without:
            case "refused starts are not learnt" if isinstance(entry.content, Written):
                entry = replace(entry, content=replace(entry.content, refused=()))
            case "burials are learnt" if not isinstance(entry.content, Written):
                return
        if not finish(host.learner.learn(entry, self.now)):
            raise Wrong("a host must load anew, although no set has changed")

    def _decision(self, host: Host) -> Decision | None:
        """The decision of the host; it looks at its agenda and changes nothing but its queues."""
        finish(host.agenda.queue_due(self.now))
        decision = decide(host.agenda, self.now, Slots(), limit=10, first_run=host.next_run)
        return decision if decision.starts.count else None

    def _decide(self, host: Host) -> None:
        decision = self._decision(host)
        assert decision is not None
        host.next_run += decision.starts.count
        host.number += 1
        changes = changes_of(Batch(list(decision.starts.blocks)), (), host.on_record)
        host.request = Request(host.number, host.position, changes, decision)

    def _arrive(self, host: Host) -> None:
        request = host.request
        assert request is not None
        seen = request.seen
        if self.instance.without == "the position belongs to the decision":
            seen = self.memory.log[self.memory.last_seq()].position
        number = request.number
        if self.instance.without == "a number takes effect once" and request.answer is not None:
            number += 1_000
        try:
            request.answer = self.memory.write(host.identity, number, seen, request.changes)
        except HostGoneError:
            self._lose(host)

    def _hear(self, host: Host) -> None:
        request, host.request = host.request, None
        assert request is not None
        assert request.answer is not None
        assert request.decision is not None
        answer, decision = request.answer, request.decision
        outcome = outcome_of(request.changes, answer)
        granted = Starts(each for each in decision.starts.singles() if each.run not in outcome.refused)
        self._move_on(host, answer)
        host.on_record = request.changes.running + granted.count
        host.agenda.apply(decision, granted)
        for task, run, grounds in granted.singles():
            host.runs[task.generation] = run, grounds
        for start in decision.starts.singles():
            if start.run in outcome.refused:
                host.agenda.review(start.task, self.now)
        self.compare(host)

    def _move_on(self, host: Host, answer: WriteAnswer) -> None:
        host.heard_of = max(host.heard_of, answer.seq)
        in_order = answer.seq == host.position.seq + 1
        if in_order or self.instance.without == "entries are read in order":
            host.position = answer.position

    def _end(self, host: Host, *, failed: bool) -> None:
        if failed:
            self.left["failures"] -= 1
        generation, (run, grounds) = next(iter(host.runs.items()))
        task, begun = host.tasks[generation], grounds.after
        after = fail(begun, self.now, DELAY) if failed else succeed(begun, self.now)
        retry = getattr(after, "pending_retry_until", None)
        end = End(task, run, grounds, self.now, "it broke" if failed else None, retry, getattr(after, "failures", 0))
        host.number += 1
        changes = changes_of(Batch([end]), (), host.on_record)
        try:
            answer = self.memory.write(host.identity, host.number, host.position, changes)
        except HostGoneError:
            self._lose(host)
            return
        del host.runs[generation]
        if answer.fenced:
            raise Wrong("the end of a run on a host that lives is fenced off")
        host.on_record = changes.running
        self._move_on(host, answer)
        task.state = after
        host.agenda.review(task, self.now)
        self.compare(host)

    def _bury(self, host: Host, other: Host) -> None:
        beat = self.memory.hosts[other.key].beat
        assert self.memory.bury(host.identity, other.key, beat) is not None

    def _lose(self, host: Host) -> None:
        host.how, host.request = "lost", None
        host.runs.clear()

    # --- what must hold ----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Everything that was written meets every property of the checker; callbacks of hosts on record are apart."""
        under_way = [
            generation
            for host in self.hosts.values()
            if host.how in ("up", "frozen") and self.memory.hosts[host.key].gone is None
            for generation in host.runs
        ]
        if len(set(under_way)) < len(under_way):
            raise Wrong("a task runs on two hosts, neither of which is gone")
        last = self.memory.last_seq()
        if self.judged == last:
            return
        self.judged = last
        for violation in self.monitor().violations:
            raise Wrong(f"{violation.property}: {violation.sentence}")

    def monitor(self) -> Monitor:
        """The checker, at the end of the trace."""
        trace = self.memory.trace()
        assert trace is not None
        expansion, monitor = Expansion(trace.base), Monitor(shared=True, bounded=False)
        expansion.learn(trace.identifiers, trace.declarations)
        rows = [each for entry in trace.entries for each in expansion.rows(entry)]
        monitor.feed([[row[0], seq, *row[1:]] for seq, (_, row) in enumerate(rows, 1)], [host for host, _ in rows])
        return monitor

    def compare(self, host: Host) -> None:
        """A host on record that has read all of the log knows what it would load."""
        if host.position.seq < self.memory.last_seq() or self.memory.hosts[host.key].gone is not None:
            return
        living = {each.key for each in self.memory.living()}
        for stored in read_equal(self.memory.load().records):
            state = present_state(stored, living, self.now, restart=True)
            for generation in stored.generations:
                if host.tasks[generation].state != state:
                    raise Wrong(f"host {host.key} takes a task for {host.tasks[generation].state}, and it is {state}")

    def check_rest(self) -> None:
        """Where only time and faults go on, nothing is owed that a host could start."""
        if any(host.how == "up" for host in self.hosts.values()):
            monitor = self.monitor()
            owed = [name for name in self.instance.tasks if monitor.obliged(name, self.now)]
            if owed:
                raise Wrong(f"{owed[0]} is owed, and no host is about to start it")

    # --- for the search ----------------------------------------------------------------------------------------------

    def key(self) -> bytes:
        """Equal for worlds that cannot be told apart from here on."""
        memory = self.memory
        read = min((host.position.seq for host in self.hosts.values() if host.how != "dead"), default=0)
        state = (
            self.now,
            sorted(self.left.items()),
            [repr(row) for _, row in sorted(memory.states.items())],
            [row.gone for _, row in sorted(memory.hosts.items())],
            memory.last_seq(),
            [repr(memory.log[seq].content) for seq in range(read + 1, memory.last_seq() + 1)],
            [
                (
                    host.how,
                    host.position.seq,
                    host.heard_of,
                    [repr(task.state) for _, task in sorted(host.tasks.items())],
                    self._queued(host),
                    sorted((generation, run) for generation, (run, _) in host.runs.items()),
                    None
                    if host.request is None
                    else (host.request.seen.seq, repr(host.request.changes), repr(host.request.answer)),
                )
                for host in self.hosts.values()
            ],
        )
        return repr(state).encode()

    def _queued(self, host: Host) -> list[str]:
        return sorted(
            f"{since} {[task.name for task in due.tasks[due.position :]]}"
            for since, _, due in host.agenda.due_lists(RunsOn.LOOP)
        )


def _callback() -> None:
    """Never called: callbacks end when the search says so."""


_IMMUTABLE: Final = (
    LogEntry, AwaitingRun, AwaitingRetry, Running, Interrupted, Grounds, CronExpression, Instance, BaseRow, Changes,
)  # fmt: skip
_shared: dict[int, object] = {}


class _Freezer(pickle.Pickler):
    """Leaves out what never changes: all worlds share it, and the search takes a third of the time."""

    def persistent_id(self, found: object) -> int | None:
        if not isinstance(found, _IMMUTABLE):
            return None
        _shared[id(found)] = found
        return id(found)

    def reducer_override(self, found: object) -> Any:
        """A counter by what it shows: itertools has no pickles from Python 3.14 on."""
        if type(found) is itertools.count:
            return itertools.count, (int(repr(found).removeprefix("count(").removesuffix(")")),)
        return NotImplemented


class _Thawer(pickle.Unpickler):
    def persistent_load(self, number: int) -> object:
        return _shared[number]


def frozen(world: World) -> bytes:
    """A world as bytes, from which it can be made again in this process."""
    file = io.BytesIO()
    _Freezer(file, pickle.HIGHEST_PROTOCOL).dump(world)
    return file.getvalue()


def thawed(kept: bytes) -> World:
    """A world from its bytes."""
    world: World = _Thawer(io.BytesIO(kept)).load()
    return world


# --- the model of formal/state_graph.py ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class State:
    """A world that is kept; worlds that cannot be told apart are one state."""

    key: bytes
    world: bytes

    @classmethod
    def of(cls, world: World) -> "State":
        return cls(world.key(), frozen(world))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


IDLE: Final = frozenset({"an hour begins", "freezes", "dies", "thaws", "arrives again"})
"""Moves that no host makes by itself."""


class TwoHosts:
    """Every interleaving of two hosts."""

    def __init__(self, instance: Instance) -> None:
        self.start = State.of(World(instance))

    def moves(self, state: State) -> Iterator[GraphMove[State]]:
        """All that can happen next; raises Broken, with the move that leads there."""
        world = thawed(state.world)
        moves = list(world.moves())
        try:
            if all(move.what in IDLE for move in moves):
                world.check_rest()
        except Wrong as wrong:
            raise Broken(str(wrong)) from wrong
        for move in moves:
            after = thawed(state.world)
            label = f"host {move.host} {move.what}" if move.host else move.what
            try:
                after.make(move)
            except Wrong as wrong:
                raise Broken(f"{wrong}, when {label}") from wrong
            yield GraphMove(str(move.host), label, State.of(after))

    def compact(self, state: State) -> State:
        """Nothing to share."""
        return state


def explore(instance: Instance) -> Verdict:
    """Search all of an instance, breadth first."""
    graph = StateGraph(TwoHosts(instance))
    if graph.broken is None:
        return Verdict(len(graph), graph.transitions)
    number, why = graph.broken
    return Verdict(len(graph), graph.transitions, (*graph.way_to(number), why))
