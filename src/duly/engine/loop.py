"""Poll: read the clock, decide what starts, commit it, launch it, and sleep until there is something to do.

The one order that survives a crash: a start is durable before its callback begins, an end is durable before the task
may start again, and the agenda changes only after the commit.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from duly.core.agenda import Agenda, Decision, decide
from duly.core.changes import Starts
from duly.core.moments import MICROSECONDS, Instant, Minute, as_datetime
from duly.core.steps import Steps
from duly.core.task import Correction, Task
from duly.engine import announce
from duly.engine.company import ALONE, Company
from duly.engine.gate import Gate
from duly.engine.journal import Journal
from duly.engine.lease import ALWAYS, Lease
from duly.engine.pacing import breathe, give_way, paced
from duly.engine.runner import Runner
from duly.engine.setup import Setup
from duly.engine.traffic import Traffic
from duly.events import ClockJumped, PollCompleted, PollingStarted, PollingStopped, PollStarted
from duly.formal.trace import CK, WK
from duly.stores.port import StoreWriter

FIRST_CHUNK_STARTS: Final = 625
"""The first commit of a poll is small so that the first callbacks start early; each later chunk doubles."""

CHUNK_STARTS_MAX: Final = 5_000
"""Starts of one commit. It bounds how many are durable but not yet called when the process dies."""

LARGE_CHUNK: Final = 500
"""Yield to the event loop after asking this many tasks."""

REFUSED_MICROSECONDS: Final = 1 * MICROSECONDS
"""Ask tasks whose starts were refused again after this time: a store that says no does not keep the loop busy."""

STEP_MICROSECONDS: Final = 1 * MICROSECONDS
"""A wall clock that moved this much more, or less, than time passed has been stepped."""


class WallClock:
    """The last reading of the wall clock, and whether it has been stepped since."""

    def __init__(self, setup: Setup, journal: Journal) -> None:
        self._clock = setup.clock
        self._outbox = setup.outbox
        self._journal = journal
        self.seen = Instant(self._clock.now())
        """The reading."""
        self._seen_elapsed = self._clock.elapsed()

    def expected(self) -> Instant:
        """The time that it would show now if it had not been stepped since it was last seen."""
        return Instant(self.seen + int((self._clock.elapsed() - self._seen_elapsed) * MICROSECONDS))

    def see(self, now: Instant, zone: tzinfo, *, went_back: bool = False) -> None:
        """Remember what the clock shows; announce a step since the last time, and note it in the trace."""
        expected = self.expected()
        self.seen, self._seen_elapsed = now, self._clock.elapsed()
        stepped = abs(now - expected) >= STEP_MICROSECONDS
        if stepped and self._outbox.wants(ClockJumped):
            old, new = as_datetime(expected, zone), as_datetime(now, zone)
            self._outbox.emit(ClockJumped(old, new, (now - expected) // 1000))
        if stepped or went_back:
            self._journal.note(CK(0, now, expected))

    def accept(self, now: Instant, zone: tzinfo, *, polled: bool) -> None:
        """Tasks enter the agenda by this sample of the clock; if it shows less at the next poll, it has gone back."""
        if not polled:
            self.seen = max(self.seen, now)
        elif now >= self.seen:
            self.see(now, zone)


@dataclass(slots=True)
class Tally:
    """The figures of one poll, for its event."""

    evaluated: int = 0
    started: int = 0


class Loop:
    """The polling half of an engine."""

    def __init__(
        self,
        setup: Setup,
        agenda: Agenda,
        journal: Journal,
        runner: Runner,
        gate: Gate,
        traffic: Traffic,
        recorder: StoreWriter,
        *,
        first_run: int,
        lease: Lease = ALWAYS,
        company: Company = ALONE,
    ) -> None:
        self.lock = asyncio.Lock()
        """Held while starts are being decided and committed, or the agenda is being changed."""
        self.polling = False
        """There are tasks to poll for, and it was announced."""
        self.parked = False
        """Asleep until the next poll: nothing is ready, and nothing is being decided."""
        self.wall = WallClock(setup, journal)
        self.active_since = self.wall.seen
        self._setup = setup
        self._clock = setup.clock
        self._outbox = setup.outbox
        self._agenda = agenda
        self._journal = journal
        self._runner = runner
        self._gate = gate
        self._traffic = traffic
        self._recorder = recorder
        self._lease = lease
        self._company = company
        self._next_run = first_run
        self._queued_until = self.wall.seen
        """The instant up to which all that is due has been queued."""
        self._minute: Minute | None = None  # of the last poll
        self._refused: list[Task] = []
        """Tasks whose starts the store refused, until they are asked again what they owe."""
        self._ask_again_at = Instant(0)
        self._learning_failed = False
        """Whether the store did not say what other hosts wrote."""

    # --- poll after poll ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Poll until a stop() has waited for the last callback; the first poll follows at once (SPEC 3.8)."""
        self.active_since = Instant(self._clock.now())
        while not self._is_over():
            try:
                await self.poll()
                if not self._is_over():
                    await self._sleep()
            except Exception as fault:
                # Nothing is lost: what is owed follows from durable state. Poll again soon.
                self._outbox.unexpected(fault)
                self._gate.wake.clear()
                await self._clock.sleep_until(self._clock.now() + MICROSECONDS, self._gate.wake)

    async def poll(self) -> None:
        """One pass: follow the clock, find runs that are overdue, start all that is owed and has a slot."""
        await self._follow_clock()
        now, begun = Instant(self._clock.now()), self._clock.elapsed()
        self._announce_polling()
        if (minute := self._agenda.minute(now)) != self._minute:
            self._minute = minute
            if self._lease.trusted():  # a host that may do nothing shows nothing by being awake
                self._journal.note(WK(0, now, int(self._clock.elapsed() * MICROSECONDS)))
            await paced(self._clock, self._announce_overdue_runs(now))
        if self._is_behind() and self._gate.open and self._lease.trusted():
            # A host without tasks learns, too: another set may come in force.
            async with self.lock:
                await self._learn()
        if not self.polling or self._gate.stopping:
            return
        self._recorder.touch()
        wanted = self._outbox.wants(PollStarted)
        if wanted:
            self._outbox.emit(PollStarted(as_datetime(now, self._agenda.zone), self._agenda.size))
        tally = await self._start_owed()
        if wanted:
            at, milliseconds = as_datetime(now, self._agenda.zone), (self._clock.elapsed() - begun) * 1000
            self._outbox.emit(PollCompleted(at, tally.evaluated, tally.started, milliseconds))

    def _is_over(self) -> bool:
        return self._gate.closing and self._runner.all_returned.is_set()

    async def _sleep(self) -> None:
        self.parked = True
        try:
            await self._clock.sleep_until(self._next_poll(), self._gate.wake)
        finally:
            self.parked = False
        self._gate.wake.clear()

    def _next_poll(self) -> Instant:
        now = Instant(self._clock.now())
        # Launching takes time: a minute that ended meanwhile is polled now, and not a minute later.
        decides = self.polling and self._gate.open and self._lease.trusted()
        since = min(now, self._queued_until) if decides and not self._learning_failed else now
        next_poll = self._agenda.minute_ends(since)
        if self._gate.stopping or not self._lease.trusted():
            return max(now, next_poll)  # nothing is decided before it is woken
        if self._learning_failed:
            return max(now, self._ask_again_at)
        if (timer := self._agenda.next_timer()) is not None:
            next_poll = min(next_poll, timer)
        if self._refused or self._is_behind():
            next_poll = min(next_poll, self._ask_again_at)
        return max(now, next_poll)

    def _announce_polling(self) -> None:
        if bool(self._agenda.size) != self.polling:
            self.polling = bool(self._agenda.size)
            self._outbox.emit(PollingStarted() if self.polling else PollingStopped())

    def _announce_overdue_runs(self, now: Instant) -> Steps[None]:
        """Announce each run, once, that outlives its task's next due minute."""
        for run in list(self._runner.runs.values()):
            if not run.overdue and (due := self._agenda.due_since(run.task, now)) is not None:
                run.overdue = True
                announce.overdue(self._outbox, run.task.name, run.started_at, due, self._agenda.zone)
            yield

    # --- starts ------------------------------------------------------------------------------------------------------

    async def _start_owed(self) -> Tally:
        tally = Tally()
        async with contextlib.aclosing(self._committed_chunks(tally)) as chunks:
            async for chunk in chunks:  # the next chunk is being committed while this one is launched
                await self._runner.launch(chunk)
        return tally

    async def _committed_chunks(self, tally: Tally) -> AsyncGenerator[Starts, None]:
        """Yield all that is owed and has a slot, as durable starts, chunk by chunk.

        A chunk is yielded when the commit of the next one is under way. Durable starts are launched whatever happens
        here: a fault is raised after the last of them.
        """
        durable = Starts()  # and not launched yet
        limit = FIRST_CHUNK_STARTS
        fault: Exception | None = None
        try:
            while self._gate.open:
                async with self.lock:
                    decision = await self._decide(limit)
                    if decision is None:
                        break
                    commit = self._journal.commit(decision.starts) if decision.starts.count else None
                    self._traffic.starts_follow = decision.starts.count >= limit
                    limit = min(2 * limit, CHUNK_STARTS_MAX)
                    if durable.count:
                        if commit is not None:
                            # The store's thread begins to write before this one has callbacks to call.
                            await breathe()
                            if self._traffic.at_the_store:
                                give_way()
                        yield durable
                        durable = Starts()
                    granted = await commit if commit is not None else Starts()
                    if granted is None:
                        break  # a stop() overtook the commit
                    self._agenda.apply(decision, granted)
                    self._runner.admit(granted, self._agenda.zone)
                    durable = granted
                    if granted.count < decision.starts.count:
                        self._keep_refused(decision, granted)
                        limit = FIRST_CHUNK_STARTS
                tally.evaluated += decision.evaluated
                tally.started += granted.count
                announce.starts(self._outbox, granted, self._agenda, self.active_since)
                if decision.evaluated >= LARGE_CHUNK:
                    await breathe()  # a large chunk held the event loop for milliseconds: let others run first
        except Exception as raised:
            fault = raised
        finally:
            self._traffic.starts_follow = False
        if durable.count:
            yield durable
        if fault is not None:
            raise fault

    async def _decide(self, limit: int) -> Decision | None:
        """Decide what starts next, with the lock held; None when this poll has nothing more to start."""
        agenda, wall = self._agenda, self.wall
        while self._gate.open and self._lease.trusted():  # a stop() may have been called while the lock was awaited
            now = Instant(self._clock.now())
            # Before it takes what others left, a host looks whether they really did.
            if self._is_behind() or agenda.has_ripe_share(now):
                if not await self._learn():
                    return None
                now = Instant(self._clock.now())
            if now < wall.seen:
                self._gate.wake.set()  # the clock went back; the next poll, which follows at once, deals with that
                return None
            wall.see(now, agenda.zone)
            self._review_refused(now)
            await paced(self._clock, agenda.queue_due(now), steps_between_clock_reads=8)
            self._queued_until = now
            if not agenda.waiting or not self._gate.open:
                return None
            # Ends may have settled meanwhile: what they set free starts after them.
            queued_at, now = now, Instant(self._clock.now())
            if now < queued_at or agenda.minute(now) != agenda.minute(queued_at):
                continue
            wall.see(now, agenda.zone)
            slots = self._runner.free_slots()
            decision = decide(agenda, now, slots, limit=limit, first_run=self._next_run)
            if self._setup.host.audit is not None:
                self._setup.host.audit(agenda, decision, slots)
            self._next_run += decision.starts.count
            return decision if decision.evaluated else None
        return None

    def _is_behind(self) -> bool:
        return self._company.behind or self._learning_failed

    async def _learn(self) -> bool:
        """Apply what other hosts wrote, with the lock held; False: that failed, and is tried again in a second."""
        learnt = await self._company.learn()
        self._learning_failed = not learnt
        self._ask_again_at = Instant(0 if learnt else self._clock.now() + REFUSED_MICROSECONDS)
        return learnt

    def _keep_refused(self, decision: Decision, granted: Starts) -> None:
        """Remember tasks whose starts were refused: nothing else would ask them before their next due minute."""
        made = {start.run for start in granted.singles()}
        self._refused += [start.task for start in decision.starts.singles() if start.run not in made]
        self._ask_again_at = Instant(self._clock.now() + REFUSED_MICROSECONDS)
        self._company.refused(decision.starts.count - granted.count)

    def _review_refused(self, now: Instant) -> None:
        if self._refused and now >= self._ask_again_at:
            refused, self._refused = self._refused, []
            for task in refused:
                self._agenda.review(task, now)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock, so that nothing is decided meanwhile; raises the store's fault if the store fails.

        The loop holds the lock while its write is retried; an initialize() does not wait for that.
        """
        async with self._journal.holding(self.lock):
            yield

    # --- the clock ---------------------------------------------------------------------------------------------------

    async def _follow_clock(self) -> None:
        """See whether the wall clock was stepped; correct what a step back left too far ahead (SPEC 2.5)."""
        now = Instant(self._clock.now())
        went_back = now < self.wall.seen or self._traffic.end_lies_ahead
        self.wall.see(now, self._agenda.zone, went_back=went_back)
        if went_back:
            self._traffic.end_lies_ahead = False
            async with self.lock:
                if await paced(self._clock, self._agenda.too_far_ahead(now)):
                    await self._journal.commit(Correction(now, self._agenda.minute(now)))
                    # To ends as well that came meanwhile: in the store they are corrected already.
                    await paced(self._clock, self._agenda.correct(now))
                await paced(self._clock, self._agenda.rebuild(now))
