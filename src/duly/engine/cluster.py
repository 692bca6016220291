"""Joining a shared store, declaring there, and joining again after a burial: what differs when others are running.

A first initialize() loads, compares and joins; a later one declares anew. Both send what they compared with, and if
another set has come in force meanwhile, the store says so and they compare again. What is in force is then loaded: the
store, and not this host, has given the new declarations their states.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from itertools import count

from duly.core.agenda import Agenda
from duly.core.moments import MICROSECONDS, Instant, minute_of, zone_name
from duly.core.news import RUNS_OF_A_HOST, Moved, Statement, spans_of
from duly.core.record import read_equal
from duly.core.registration import Registrations, RunsOn
from duly.core.resolution import Resolution, difference, resolve
from duly.core.steps import STEP_TASKS, Steps
from duly.core.task import Task, corrected
from duly.core.zones import is_zone
from duly.engine.calls import Calls
from duly.engine.colleagues import Declared, Member, present_state, restarts_interrupted
from duly.engine.declare import Effect, Initialization
from duly.engine.engine import Engine
from duly.engine.membership import Connections, Membership
from duly.engine.options import Options
from duly.engine.pacing import paced
from duly.engine.setup import Setup
from duly.engine.shared_clock import SharedClock
from duly.engine.shared_monitor import SharedMonitor
from duly.engine.shutdown import abandon
from duly.engine.trace import NotesOfAHost, check_texts, name_of_a_zone
from duly.errors import (
    ClusterZoneError,
    ForeignSetError,
    HostGoneError,
    ScheduleTaskError,
    StoreError,
    StoreRewoundError,
    TaskListMismatchError,
)
from duly.events import EditionReinstated, Event, SchedulerInitializationStarted, SchedulerReinitializationStarted
from duly.formal.trace import digest
from duly.stores.port import Persisted
from duly.stores.shared import (
    Act,
    Arrival,
    EditionAnswer,
    EditionRequest,
    EditionVerdict,
    HostIdentity,
    SharedContent,
    SharedStore,
    arrivals_digest,
    set_digest,
)

FIRST_NUMBER = 1
"""The number of a host's first request: its joining."""


@dataclass(frozen=True, slots=True)
class DeclarationResult:
    """The verdict on a declared set, and its effect."""

    answer: EditionAnswer
    content: SharedContent
    """The content that was loaded before."""

    resolution: Resolution
    zone: tzinfo
    sent: float
    """When the request was sent, in steady seconds."""

    may_change_more: bool
    """Whether joining may have changed what was loaded: states ahead of the clock, or the options that count."""


class Cluster:
    """One scheduler on a shared store: what it keeps from one host to the next."""

    def __init__(self, setup: Setup) -> None:
        shared, clock = setup.store, setup.clock
        assert isinstance(shared, SharedStore)
        assert isinstance(clock, SharedClock)
        self.declared = Registrations()
        """The registrations in force here, for a host that joins again."""
        self.rejoins = False
        """Whether its host was buried, and no other has taken its place yet."""
        self.held_here: Counter[str] = Counter()
        """Tasks of which runs of a buried host have not ended in this process (SPEC 9.7)."""
        self._setup = setup
        self._clock = clock
        self._connections = Connections(shared, shared.connect(), setup.host.new_worker(), clock, setup.host)
        self._monitor = SharedMonitor(setup, shared) if setup.options.monitor else None

    async def install(self) -> None:
        """Create the tables, or raise them to this version, if the role may."""
        shared = self._connections.shared
        await self._connections.worker.run(shared.install)

    @property
    def lease_seconds(self) -> float:
        """The lease of its hosts."""
        return self._connections.shared.lease.total_seconds()

    def announce(self, event: Event) -> None:
        """Emit an event of the cluster."""
        self._setup.outbox.emit(event)

    def close(self) -> None:
        """Release the connection for writes, and its thread; those of the monitor, too."""
        self._connections.worker.close(self._connections.functions.close)
        if self._monitor is not None:
            self._monitor.close()

    async def finish_judging(self) -> None:
        """Let the monitor judge what is left, if there is one."""
        if self._monitor is not None:
            await self._monitor.finish()

    # --- hosts -------------------------------------------------------------------------------------------------------

    async def join(
        self, registrations: Registrations, act: Act, calls: Calls, call: int
    ) -> tuple[Engine, DeclarationResult]:
        """Become a host, and load what is in force; the caller has the loop begin.

        `call` is the number under which the trace has the declaration.
        """
        setup, clock = self._setup, self._clock
        identifier = setup.host.new_identifier()
        if self._monitor is not None:
            name_of_a_zone(clock.zone())
        declaration = await self._declare(registrations, act, HostIdentity(0, identifier), FIRST_NUMBER, call)
        answer, content, zone = declaration.answer, declaration.content, declaration.zone
        assert answer.key is not None and answer.edition is not None
        me = HostIdentity(answer.key, identifier)
        setup.outbox.host = me.key
        membership = Membership(
            self._connections, me, content.position, sent=declaration.sent, edition_in_force=answer.edition
        )
        # Before the load: with many tasks it may take longer than the others wait for a beat.
        membership.begin()
        engine: Engine | None = None
        try:
            declared = Declared(registrations, FIRST_NUMBER, answer.edition)
            await paced(clock, declared.prepare())
            persisted = Persisted(
                records=(),
                identifiers={**{each.key: each.identifier for each in content.hosts}, me.key: identifier},
                scheduler_key=me.key,
                zone=content.zone,
                marks=content.marks,
                next_generation=0,
                next_run=me.key * RUNS_OF_A_HOST + 1,
                next_number=FIRST_NUMBER + 1,
            )
            member = Member(self._connections, membership, declared, self.held_here, NotesOfAHost(), self._monitor)
            agenda = Agenda(zone, me.key)
            engine = Engine(setup, agenda, persisted, count(), member.notes, calls.open_stops, membership, member)
            engine.loop.wall.accept(Instant(clock.now()), zone, polled=False)
            await self._take_in(engine, declaration)
        except BaseException:
            membership.vanish()  # the others bury it
            if engine is not None:
                abandon(engine)
            raise
        self.declared, self.rejoins = registrations, False
        calls.engine_begins(engine.journal)
        assert engine.colleagues is not None
        engine.colleagues.on_declared = self._declared
        membership.listen(engine.colleagues)
        if self._monitor is not None:
            judging = self._monitor.run(answer.seq or 0, engine.gate)
            engine.helpers.append(asyncio.get_running_loop().create_task(judging, name="duly-monitor"))
        return engine, declaration

    def _declared(self, registrations: Registrations) -> None:
        self.declared = registrations

    async def redeclare(self, engine: Engine, registrations: Registrations, act: Act, call: int) -> DeclarationResult:
        """Declare another set for a host that runs; with the loop and the journal held."""
        colleagues, member = engine.colleagues, engine.member
        assert colleagues is not None and member is not None
        number = engine.journal.next_number()
        # A commit can succeed and still report a fault, or its caller is cancelled: then the log tells.
        colleagues.unanswered = number, registrations
        declaration = await self._declare(registrations, act, member.membership.me, number, call)
        colleagues.unanswered = None
        assert declaration.answer.edition is not None
        declared = Declared(registrations, number, declaration.answer.edition)
        await paced(self._clock, declared.prepare())
        colleagues.declared, self.declared = declared, registrations
        agenda, zone = engine.agenda, declaration.zone
        if zone_name(zone) != zone_name(agenda.zone):
            await paced(self._clock, agenda.rebuild(Instant(self._clock.now()), zone=zone))
        await self._take_in(engine, declaration)
        return declaration

    async def _take_in(self, engine: Engine, declaration: DeclarationResult) -> None:
        """Make the agenda what is in force now."""
        colleagues, member = engine.colleagues, engine.member
        assert colleagues is not None and member is not None
        if declaration.answer.verdict is EditionVerdict.JOINED and not declaration.may_change_more:
            await colleagues.load(declaration.content)
            member.membership.hear_of(declaration.answer.seq or 0)  # its own joining, and what came between
            return
        member.membership.must_load = True
        with contextlib.suppress(StoreError):  # the loop loads as soon as the store answers
            await colleagues.load()

    # --- declaring ---------------------------------------------------------------------------------------------------

    async def _declare(
        self, registrations: Registrations, act: Act, me: HostIdentity, number: int, call: int
    ) -> DeclarationResult:
        while True:
            content = await self._load()
            declaration = await self._compare_and_send(content, registrations, act, me, number, call)
            if declaration.answer.verdict is not EditionVerdict.AGAIN:
                return declaration

    async def _load(self) -> SharedContent:
        asked = self._clock.elapsed()
        content = await self._connections.worker.run(self._connections.functions.load)
        self._clock.hear(content.clock, asked)
        return content

    async def _compare_and_send(
        self,
        content: SharedContent,
        registrations: Registrations,
        act: Act,
        me: HostIdentity,
        number: int,
        call: int,
    ) -> DeclarationResult:
        setup, clock = self._setup, self._clock
        options, zone, now = setup.options, clock.zone(), Instant(clock.now())
        reading = Reading(content, now, zone, restart=restarts_interrupted(content, options))
        stored = await paced(clock, reading.tasks())
        resolution = await paced(
            clock,
            resolve(
                registrations,
                stored,
                now=now,
                zone=zone,
                new_generations=count(content.in_force.generation + 1).__next__,
                marks=content.marks,
            ),
        )
        is_asked = act in (Act.JOIN, Act.REDECLARE)  # by the application, and not by what became of other hosts
        if options.on_mismatch == "refuse" and is_asked and stored:
            interrupted = _differing_interrupted(content, options)
            if resolution.changes_tasks or interrupted is not None:
                raise TaskListMismatchError(**difference(resolution), interrupted=interrupted)
        arrived = sorted([*resolution.added, *(each.new for each in resolution.overridden)], key=_generation)
        arrivals = [Arrival(task.name, task.expression.text, task.delay) for task in arrived]
        gone = [each.task for each in resolution.orphaned] + [each.old for each in resolution.overridden]
        named = zip(registrations.names, registrations.expressions, registrations.delays, strict=True)
        moved = await paced(clock, _moved(resolution, arrived, content.in_threads))
        in_force = [*resolution.preserved.tasks, *arrived] if options.trace or content.traced else []
        if in_force:
            check_texts(resolution)
        make = partial(
            EditionRequest,
            identifier=me.identifier,
            key=me.key or None,
            number=number,
            seen=content.position,
            act=act,
            compared_with=content.in_force,
            shares_names=resolution.preserved.count + len(resolution.overridden) > 0,
            removed=tuple(task.generation for task in gone),
            arrivals=len(arrivals),
            zone=_zone_text(zone, content.zone, now),
            zone_seen=content.zone,
            lease=_microseconds(self._connections.shared),
            label=self._connections.shared.label,
            moved=moved,
            history=options.history,
            traced=options.trace,
            correct=reading.too_far_ahead,
        )
        mono = int(clock.elapsed() * MICROSECONDS)

        def send() -> tuple[EditionAnswer, float]:
            tasks = ((name, expression.text, delay) for name, expression, delay in named)
            of_the_set = set_digest(tasks, interrupted=options.interrupted)
            said = Statement(
                call=call,
                declared=registrations.count,
                digest=trace_digest(in_force) if in_force else "",
                interrupted=options.interrupted,
                max_concurrency=options.max_concurrency,
                threads=setup.threads,
                mono=mono,
            )
            request = make(digest=of_the_set, arrivals_digest=arrivals_digest(arrivals), said=said)
            return self._send(request, arrivals)

        try:
            answer, sent = await self._connections.worker.run(send)
        except (ClusterZoneError, ForeignSetError, HostGoneError, StoreRewoundError):
            raise
        except StoreError as cause:
            first = resolution.first_changed()
            if first is None:
                raise
            raise ScheduleTaskError(*first, cause) from cause
        differs = (options.history, options.trace) != (content.history, content.traced)
        return DeclarationResult(answer, content, resolution, zone, sent, reading.too_far_ahead or differs)

    def _send(self, request: EditionRequest, arrivals: Sequence[Arrival]) -> tuple[EditionAnswer, float]:
        """In the thread of writes. A commit can succeed and still report a fault; a number takes effect once."""
        functions = self._connections.functions
        if arrivals or request.key is not None:  # a host may have sent others before, with a request that got lost
            functions.arrive(request.identifier, arrivals)
        sent = self._setup.host.boottime()
        try:
            return functions.replace(request), sent
        except (ClusterZoneError, ForeignSetError, HostGoneError, StoreRewoundError):
            raise
        except StoreError:
            return functions.replace(request), sent


class Reading:
    """Tasks that are in force in a shared store, to be compared with what is declared."""

    def __init__(self, content: SharedContent, now: Instant, zone: tzinfo, *, restart: bool) -> None:
        self.too_far_ahead = False
        """Whether a record lies too far ahead of the clock of the store, which was set back."""
        self._content = content
        self._living = {host.key for host in content.hosts if host.gone is None}
        self._now = now
        self._minute = minute_of(now, zone)
        self._restart = restart

    def tasks(self) -> Steps[dict[str, Task]]:
        """All of them, by name."""
        found: dict[str, Task] = {}
        for stored in read_equal(self._content.records):
            state = present_state(stored, self._living, self._now, restart=self._restart)
            self.too_far_ahead |= corrected(state, self._now, self._minute, stored.delay) is not state
            for index, (generation, name) in enumerate(zip(stored.generations, stored.names, strict=True)):
                found[name] = Task(
                    generation, name, stored.expression, stored.delay, state, _nothing, RunsOn.LOOP, stored.written_by
                )
                if index % STEP_TASKS == 0:
                    yield
        return found


class SharedInitialization(Initialization):
    """One call of initialize() on a shared store."""

    def __init__(
        self,
        setup: Setup,
        calls: Calls,
        call: int,
        argument: object,
        *,
        standing_by: bool = False,
        cluster: Callable[[], Cluster],
    ) -> None:
        super().__init__(setup, calls, call, argument, standing_by=standing_by)
        self._cluster_of = cluster

    async def take_effect(self, engine: Engine | None, identifier: str) -> Effect:
        """Make the declared tasks the ones that this host declares; nothing has changed if this raises.

        If the host was buried, another one joins with them: it is a later call all the same (SPEC 9.15).
        """
        total, cluster = self._declared.count, self._cluster_of()
        first = engine is None and not cluster.rejoins
        if not self.committing:  # it was announced before the host proved to be buried
            started = SchedulerInitializationStarted if first else SchedulerReinitializationStarted
            self._outbox.emit(started(total))
        if engine is None:
            call = self._calls.goes_first(self._call)
            await cluster.install()
            self.committing = True
            act = Act.JOIN if first else Act.REDECLARE
            engine, declaration = await cluster.join(self._declared, act, self._calls, call)
        else:
            async with held(engine, self._declared, flush=True):
                self.committing = True
                declaration = await cluster.redeclare(engine, self._declared, Act.REDECLARE, self._call)
                self._calls.took_effect(self._call)
        return Effect(engine, _in_effect(declaration), declaration.zone, declaration.content.zone, first)


@contextlib.asynccontextmanager
async def held(engine: Engine, declared: Registrations, *, flush: bool = False) -> AsyncIterator[None]:
    """Nothing is decided or written meanwhile; an error of the store names the first task that is declared.

    `flush`: the call itself is in the trace before.
    """
    try:
        if flush:
            await engine.journal.flush_notes()
        async with engine.loop.held(), engine.journal.holding(engine.journal.still):
            yield
    except (ClusterZoneError, ForeignSetError, HostGoneError, StoreRewoundError):
        raise
    except StoreError as cause:
        if not declared.count:
            raise
        raise ScheduleTaskError(declared.names[0], declared.expressions[0].text, cause) from cause


async def reinstate(cluster: Cluster, engine: Engine, call: int) -> None:
    """Put this host's set in force again: the last host with a newer one is gone (SPEC 9.17).

    The trace has it like an initialize(), under a number of its own.
    """
    async with held(engine, cluster.declared):
        declaration = await cluster.redeclare(engine, cluster.declared, Act.REINSTATE, call)
    if declaration.answer.verdict is EditionVerdict.APPLIED and declaration.answer.edition is not None:
        cluster.announce(EditionReinstated(declaration.answer.edition))


def _in_effect(declaration: DeclarationResult) -> Resolution:
    """The changes: none, unless the set was put in force."""
    resolution = declaration.resolution
    if declaration.answer.verdict is EditionVerdict.APPLIED:
        return resolution
    return Resolution(resolution.now, resolution.preserved)


def _differing_interrupted(content: SharedContent, options: Options) -> dict[str, str] | None:
    """The option `interrupted` in force and here, if they differ: it belongs to the declared set (SPEC 9.13)."""
    if content.interrupted is None or content.interrupted == options.interrupted:
        return None
    return {"stored": content.interrupted, "declared": options.interrupted}


def _moved(resolution: Resolution, arrived: Sequence[Task], in_threads: frozenset[int]) -> Steps[Moved]:
    """Tasks whose callbacks run elsewhere than the store knows; a new one runs on the event loop unless it is told."""
    to_threads = [task.generation for task in arrived if task.runs_on is RunsOn.THREAD]
    to_loop: list[int] = []
    for index, (task, registration) in enumerate(resolution.preserved.pairs()):
        on_thread = registration.runs_on is RunsOn.THREAD
        if on_thread != (task.generation in in_threads):
            (to_threads if on_thread else to_loop).append(task.generation)
        if index % STEP_TASKS == 0:
            yield
    return Moved(spans_of(to_threads), spans_of(to_loop))


def trace_digest(tasks: Iterable[Task]) -> str:
    """The digest of tasks in force, as the trace has it in an IE."""
    return digest((task.name, task.generation, task.expression.text, int(task.delay)) for task in tasks)


def _zone_text(zone: tzinfo, in_force: str | None, now: Instant) -> str:
    """The zone that is declared; the name in force if that has the same rules (SPEC 9.12)."""
    return in_force if in_force is not None and is_zone(zone, in_force, now) else zone_name(zone)


def _microseconds(shared: SharedStore) -> int:
    return int(shared.lease.total_seconds() * 1_000_000)


def _generation(task: Task) -> int:
    return task.generation


def _nothing() -> None:
    """The callback of a stored task; it is only compared."""
