"""A host among others: it applies what they wrote, loads anew when that is not enough, and shares the work."""

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final

from duly.core.agenda import Agenda
from duly.core.learning import Learner
from duly.core.moments import MICROSECONDS, Instant, as_datetime
from duly.core.news import Buried, Joined, Left, LogEntry, Replaced, host_of
from duly.core.record import EqualTasks, read_equal
from duly.core.registration import Registrations
from duly.core.share import COURTESY_MIN, Share
from duly.core.steps import STEP_TASKS, Steps
from duly.core.task import Running, Task, TaskState, interrupt
from duly.engine import announce
from duly.engine.gate import Gate
from duly.engine.journal import Journal
from duly.engine.membership import Connections, Listener, Membership
from duly.engine.options import Options
from duly.engine.pacing import paced
from duly.engine.settle import ReplacedRuns
from duly.engine.setup import Setup
from duly.engine.shared_monitor import SharedMonitor
from duly.engine.trace import NotesOfAHost
from duly.errors import DulyError, StoreError
from duly.events import (
    DeclarationSuperseded,
    HostClockSkewed,
    HostJoined,
    HostLeft,
    HostLost,
    HostLostElsewhere,
    HostOptionOverruled,
    LeaseResumed,
    LeaseSuspended,
    StartsRefused,
    StoreRecovered,
)
from duly.formal.trace import LR, RESTART
from duly.stores.shared import BeatAnswer, SharedContent

UNEXPLAINED_MAX: Final = 3
"""Refusals in a row without news after which a host loads anew: somebody may have changed the tables by hand."""


class Declared:
    """The registrations of this host, by name."""

    def __init__(self, registrations: Registrations, number: int, edition: int) -> None:
        self.registrations = registrations
        self.number = number
        """The number of the request that declared them."""
        self.edition = edition
        """Another one when the set came back by the call of another host (SPEC 9.15)."""
        self._indices: dict[str, int] = {}

    def prepare(self) -> Steps[None]:
        """Go through the names once."""
        for index, name in enumerate(self.registrations.names):
            self._indices[name] = index
            if index % STEP_TASKS == 0:
                yield

    def find(self, name: str, stored: EqualTasks) -> int | None:
        """The index of the registration that declares a stored task unchanged, or None."""
        index, declared = self._indices.get(name), self.registrations
        if (
            index is None
            or declared.expressions[index].text != stored.expression.text
            or declared.delays[index] != stored.delay
        ):
            return None
        return index


@dataclass(frozen=True, slots=True)
class Member:
    """A host that has joined: its connections, its membership, and what it declares."""

    connections: Connections
    membership: Membership
    declared: Declared
    held_here: Counter[str]
    """Tasks of which runs of a buried host have not ended in this process, with their number (SPEC 9.7)."""

    notes: NotesOfAHost
    monitor: SharedMonitor | None = None

    def meet(self, setup: Setup, agenda: Agenda, journal: Journal, gate: Gate, replaced: ReplacedRuns) -> "Colleagues":
        """The other hosts, for the engine of this one."""
        return Colleagues(setup, self, agenda, journal, gate, replaced)


class Colleagues(Listener):
    """The other hosts of a shared store, as one engine knows them."""

    def __init__(
        self,
        setup: Setup,
        member: Member,
        agenda: Agenda,
        journal: Journal,
        gate: Gate,
        replaced: ReplacedRuns,
    ) -> None:
        self.declared = member.declared
        self.labels: dict[int, str | None] = {}
        self.on_lost: Callable[[StoreError], None] = lambda _: None
        """Called on the event loop when this host was buried."""
        self.unanswered: tuple[int, Registrations] | None = None
        """Number and set of a declaration that was sent and not answered: the log will tell what became of it."""
        self.on_declared: Callable[[Registrations], None] = lambda _: None
        """Called when the log tells that a declaration without an answer has taken effect."""
        self.on_deserted: Callable[[], None] = lambda: None
        """Called on the event loop when the edition in force has lost its last host."""
        self._setup = setup
        self._outbox = setup.outbox
        self._clock = setup.clock
        self._connections = member.connections
        self._membership = member.membership
        self._agenda = agenda
        self._journal = journal
        self._gate = gate
        self._replaced = replaced
        self._held_here = member.held_here
        self._burials: set[int] = set()
        """Hosts that this one has buried, and told so."""
        self._notes = member.notes
        self._monitor = member.monitor
        self._me = member.membership.me.key
        self._learner = Learner(agenda, self._me)
        self._running: dict[int, int] = {}
        """The editions of running hosts, by key."""
        self._known = {self._me}
        """Hosts whose joining was announced, or that were there before this one."""
        self._since = Instant(0)
        self._failures = 0
        self._unrecorded: set[str] = set()
        """Tasks of which a run goes on here that somebody wrote off in the store (SPEC 9.10)."""
        self._over: set[str] = set()
        """Tasks whose run has ended and was not on record, until the next load says what is true."""
        self._unexplained = 0
        """Refusals in a row that nothing in the log explains."""
        self._overruled: set[str] = set()
        """Options of this host that differ from those in force, and of which it has said so."""

    @property
    def behind(self) -> bool:
        """Whether others have written something that this host has not applied."""
        return self._membership.behind

    # --- learning ----------------------------------------------------------------------------------------------------

    async def learn(self) -> bool:
        """Apply what others wrote; False if that failed, and nothing may be decided."""
        try:
            # No write of this host is under way meanwhile: what it answers, and what others did after it, would arrive
            # in the wrong order.
            async with self._journal.still:
                await self._catch_up()
        except DulyError as fault:  # of the store, or a record in it that cannot be read
            if self._membership.lease.lost:
                return False  # which is announced elsewhere
            if self._failures == 0:
                announce.store_fault(self._outbox, "news", fault, 1000)
            self._failures += 1
            return False
        if self._failures:
            self._outbox.emit(StoreRecovered("news", self._failures + 1))
            self._failures = 0
            self._journal.note(LR(0, Instant(self._clock.now())))
        return True

    async def _catch_up(self) -> None:
        membership = self._membership
        while not membership.must_load:
            heard_of = membership.end_of_log
            news = await membership.news()
            if news.behind:
                membership.must_load = True
                break
            if not news.entries:
                if membership.end_of_log == heard_of:
                    membership.end_of_log = membership.position.seq
                return
            for entry in news.entries:
                await self._take_in(entry)
                if membership.must_load:
                    break
        await self.load()

    async def _take_in(self, entry: LogEntry) -> None:
        membership = self._membership
        self._connections.clock.passed(entry.at)
        runs = self._learner.runs_of(entry.content.host) if isinstance(entry.content, Buried) else 0
        # What this host wrote it has applied already; a burial it has only asked for.
        if entry.host != self._me or isinstance(entry.content, Buried):
            learns = self._learner.learn(entry, Instant(self._clock.now()))
            membership.must_load = not await paced(self._clock, learns)
        elif isinstance(entry.content, Joined | Replaced) and self.unanswered is not None:
            if entry.number == self.unanswered[0]:
                await self._hear_answer(entry.content.edition)
                membership.must_load = True
        if not membership.must_load:
            membership.position = entry.position
        self._note(entry, runs)

    async def _hear_answer(self, edition: int) -> None:
        """A declaration that was not answered is on record: its set is what this host serves."""
        assert self.unanswered is not None
        (number, registrations), self.unanswered = self.unanswered, None
        declared = Declared(registrations, number, edition)
        await paced(self._clock, declared.prepare())
        self.declared = declared
        self.on_declared(registrations)

    def _note(self, entry: LogEntry, runs: int) -> None:
        """Learn which hosts run, and which set is in force; `runs` of a host that was buried were under way."""
        match entry.content:
            case Joined(edition=edition, label=label) | Replaced(edition=edition, label=label):
                self._running[entry.host] = edition
                if entry.host not in self._known:
                    self._known.add(entry.host)
                    self.labels[entry.host] = label
                    self._outbox.emit(HostJoined(entry.host, label))
            case Left():
                self._running.pop(entry.host, None)
                self._outbox.emit(HostLeft(entry.host))
            case Buried(host):
                self._running.pop(host, None)
                self._since = Instant(self._clock.now())
                if entry.host == self._me != host:
                    self._tell_of_a_burial(host, runs)  # the answer to it may have been lost
                elif host != self._me:  # its own loss it tells elsewhere
                    self._outbox.emit(HostLostElsewhere(host, self.labels.get(host), runs))
            case _:
                return
        self._divide()

    def refused(self, starts: int) -> None:
        """The store refused starts: others were faster, or the clock of the store is not what it was taken for."""
        self._outbox.emit(StartsRefused(starts))
        if self._membership.behind:
            self._unexplained = 0  # the log says why
            return
        self._membership.hurry()
        self._unexplained += 1
        if self._unexplained >= UNEXPLAINED_MAX:
            self._unexplained = 0
            self._membership.must_load = True

    # --- loading -----------------------------------------------------------------------------------------------------

    async def load(self, content: SharedContent | None = None) -> None:
        """Make the agenda what the store says; runs of this host go on. With the loop and the journal held."""
        if content is None:
            content = await self._connections.worker.run(self._connections.functions.load)
        # First: what is released while the agenda is being changed asks for another load.
        self._membership.must_load = False
        try:
            await self._put_in_force(content)
        except BaseException:
            self._membership.must_load = True
            raise
        self._gate.wake.set()

    async def _put_in_force(self, content: SharedContent) -> None:
        membership, now = self._membership, Instant(self._clock.now())
        mine = next((host for host in content.hosts if host.key == self._me), None)
        if mine is not None and self.unanswered is not None and mine.declaration == self.unanswered[0]:
            await self._hear_answer(mine.edition)
        if mine is not None and mine.declaration == self.declared.number:  # else it was loaded before the declaration
            self.declared.edition = mine.edition
        living = {host.key for host in content.hosts if host.gone is None}
        known = {task.generation: task for task in self._agenda.tasks()}
        kept, arrived, runs = await paced(self._clock, self._compare(content, known, living))
        tasks, gone = sorted([*kept, *arrived], key=_generation), list(known.values())
        self._meet(content, living, now)
        self._notes.kept = content.traced
        self._follow_edition(content, len(tasks))
        self._compare_options(content)
        self._divide()
        self._replaced.withdraw([task for task in gone if not self._learner.is_elsewhere(task)])
        await paced(self._clock, self._agenda.leave(gone), steps_between_clock_reads=STEP_TASKS)
        self._replaced.adopt(arrived)
        self._agenda.marks = content.marks
        restart = restarts_interrupted(content, self._setup.options)
        await paced(self._clock, self._agenda.refill(tasks, now))
        await paced(self._clock, self._learner.know(tasks, runs, content.blocked, restart=restart))
        self._over.clear()
        membership.position = content.position
        membership.hear_of(content.position.seq)  # a beat may have told of more meanwhile

    def _meet(self, content: SharedContent, living: set[int], now: Instant) -> None:
        """Know which hosts there are."""
        self.labels = {host.key: host.label for host in content.hosts}
        self._known.update(self.labels)
        self._running = {host.key: host.edition for host in content.hosts if host.key in living}
        self._running[self._me] = self.declared.edition
        self._since = now

    def _compare(
        self, content: SharedContent, known: dict[int, Task], living: set[int]
    ) -> Steps[tuple[list[Task], list[Task], dict[int, int]]]:
        """Tasks in force that this host declares: those it knew, those it did not, and runs under way.

        `known` keeps the tasks that are not in force any more.
        """
        kept: list[Task] = []
        arrived: list[Task] = []
        runs: dict[int, int] = {}
        declared, restart = self.declared.registrations, restarts_interrupted(content, self._setup.options)
        for stored in read_equal(content.records):
            state = present_state(stored, living, Instant(self._clock.now()), restart=restart)
            for place, (generation, name) in enumerate(zip(stored.generations, stored.names, strict=True)):
                if place % STEP_TASKS == 0:
                    yield
                if (index := self.declared.find(name, stored)) is None:
                    continue
                callback, runs_on = declared.callbacks[index], declared.runs_on[index]
                task = known.pop(generation, None)
                if task is None:
                    task = Task(generation, name, stored.expression, stored.delay, state, callback, runs_on)
                    arrived.append(task)
                else:
                    if name not in self._over and self._is_written_off(task, stored):
                        self._unrecorded.add(name)
                    task.state, task.callback, task.runs_on = state, callback, runs_on
                    kept.append(task)
                task.written_by = stored.written_by
                goes_on_here = self._held_here[name] > 0 or name in self._unrecorded
                task.predecessor_runs = goes_on_here or generation in content.blocked
                if stored.run is not None and isinstance(state, Running):
                    runs[generation] = stored.run
        return kept, arrived, runs

    def _is_written_off(self, task: Task, stored: EqualTasks) -> bool:
        """Whether this host runs a task, and the store does not know of it."""
        return (
            isinstance(task.state, Running)
            and not self._learner.is_elsewhere(task)
            and (stored.run is None or host_of(stored.run) != self._me)
        )

    def _follow_edition(self, content: SharedContent, served: int) -> None:
        """Say once that a newer set is in force, if one is."""
        membership, mine = self._membership, self.declared
        before, in_force = membership.edition_in_force, content.in_force.edition
        membership.edition_in_force = in_force
        if in_force != mine.edition and before != in_force:
            total = sum(len(block.generations) for block in content.records)
            withdrawn, unknown = mine.registrations.count - served, total - served
            self._outbox.emit(DeclarationSuperseded(mine.edition, in_force, withdrawn, unknown))

    def _compare_options(self, content: SharedContent) -> None:
        """Say once if `history` or `trace` of this host is not what counts, or its monitor has no trace (SPEC 9.3)."""
        options = self._setup.options
        for name, mine, in_force in (
            ("history", options.history, content.history),
            ("trace", options.trace, content.traced),
            ("monitor", options.monitor, options.monitor and content.traced),
        ):
            if mine == in_force:
                self._overruled.discard(name)
            elif name not in self._overruled:
                self._overruled.add(name)
                self._outbox.emit(HostOptionOverruled(name, mine, in_force))

    def own_runs(self) -> list[str]:
        """The names of tasks that this host runs, by what is on record."""
        running = [
            task.name
            for task in self._agenda.tasks()
            if isinstance(task.state, Running) and not self._learner.is_elsewhere(task)
        ]
        return [*running, *self._replaced.by_name, *self._unrecorded]

    def fenced(self, name: str) -> None:
        """A run is over that is not on record: if it was written off by hand, its task may start here again."""
        self._unrecorded.discard(name)
        self._over.add(name)
        self.released()

    def released(self) -> None:
        """Runs of a buried host have ended in this process: their tasks may start here, if no other host runs them."""
        self._membership.must_load = True
        self._gate.wake.set()

    # --- sharing -----------------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        """Share with the hosts that declare the edition in force."""
        in_force = self._membership.edition_in_force
        keys = tuple(sorted(key for key, edition in self._running.items() if edition == in_force))
        courtesy = max(COURTESY_MIN, int(2 * self._membership.latency * MICROSECONDS))
        share = Share(keys, self._me, courtesy, self._since)
        if share != self._agenda.share:
            self._agenda.share = share

    # --- what beats tell ---------------------------------------------------------------------------------------------

    def heard(self, answer: BeatAnswer) -> None:
        """A beat was answered: who runs, and whether others have written."""
        self._running = {host.key: host.edition for host in answer.living}
        self._divide()
        self._membership.hear_of(answer.seq)
        if self._membership.behind:
            self._gate.wake.set()
        if self._monitor is not None:
            self._monitor.hear_of(answer.seq)

    def suspended(self, seconds: float) -> None:
        """The lease is not trusted any more."""
        since = Instant(self._clock.now() - int(seconds * MICROSECONDS))
        self._outbox.emit(LeaseSuspended(as_datetime(since, self._agenda.zone)))

    def resumed(self, seconds: float) -> None:
        """The lease is trusted again."""
        self._since = Instant(self._clock.now())
        self._divide()
        self._outbox.emit(LeaseResumed(int(seconds * 1000)))
        self._journal.note(LR(0, self._since))
        self._gate.wake.set()

    def lost(self, error: StoreError) -> None:
        """This host was buried, or the store was set back."""
        self.on_lost(error)

    def buried(self, key: int, seq: int) -> None:
        """This host has buried another."""
        self._tell_of_a_burial(key, self._learner.runs_of(key))
        self._membership.hear_of(seq)
        self._gate.wake.set()

    def _tell_of_a_burial(self, key: int, runs: int) -> None:
        """Tell once that this host has buried another, with this number of runs under way."""
        if key not in self._burials:
            self._burials.add(key)
            self._outbox.emit(HostLost(key, self.labels.get(key), runs))

    def unanswered_beat(self, fault: StoreError, retry_in_seconds: float) -> None:
        """A beat failed, after one that was answered."""
        announce.store_fault(self._outbox, "beat", fault, int(retry_in_seconds * 1000))

    def answered_again(self, beats: int) -> None:
        """A beat was answered, after others that failed."""
        self._outbox.emit(StoreRecovered("beat", beats))

    def stumbled(self, fault: Exception) -> None:
        """A beat met a defect of duly itself."""
        self._outbox.unexpected(fault)

    def skewed(self, microseconds: int) -> None:
        """The wall clock of this host is ahead of that of the store, or behind it."""
        self._outbox.emit(HostClockSkewed(microseconds // 1000))

    def deserted(self) -> None:
        """No running host declares the edition in force any more; a host of the highest one that is left acts."""
        if self.declared.edition == max(self._running.values(), default=0):
            self.on_deserted()


def restarts_interrupted(content: SharedContent, options: Options) -> bool:
    """Whether interrupted runs start again: by the set in force, whatever this host declares (SPEC 9.3)."""
    return options.restarts_interrupted if content.interrupted is None else content.interrupted == RESTART


def present_state(stored: EqualTasks, living: Container[int], now: Instant, *, restart: bool) -> TaskState:
    """The state of stored tasks; a run of a host that is gone was interrupted."""
    state = stored.state
    if isinstance(state, Running) and stored.run is not None and host_of(stored.run) not in living:
        return interrupt(state, now, stored.delay, restart=restart)
    return state


def _generation(task: Task) -> int:
    return task.generation
