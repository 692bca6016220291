"""One host of a shared store, from its joining to its end: its place in the log, its lease, its beats.

A host that was buried and goes on is another one, with another membership: nothing that belongs to the old one reaches
the new one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from duly.clock import Clock
from duly.core.changes import Batch
from duly.core.moments import MICROSECONDS
from duly.core.news import Position
from duly.core.request import changes_of, storable, storable_notes
from duly.core.watch import Seen, Watch
from duly.engine.host import Host
from duly.engine.lease import BeatLease
from duly.engine.shared_clock import SharedClock
from duly.errors import HostGoneError, StoreError, StoreRewoundError
from duly.formal.trace import Event, row_of
from duly.stores.port import Outcome, TraceRow
from duly.stores.shared import BeatAnswer, HostIdentity, LivingHost, News, SharedFunctions, SharedStore, outcome_of
from duly.threads import Threads

T = TypeVar("T")

BEATS_OF_A_LEASE: Final = 6
STEP_SECONDS: Final = 1.0
"""A wall clock that moved this much against the steady clock: the machine may have been paused (SPEC 9.4)."""

VERDICT_SECONDS: Final = 0.01
"""A look that may bury a host comes this much later, so that it does not come too early by a rounding error."""

QUIET_SECONDS: Final = 300.0
"""A connection for writes that was not used for so long is released: a database has a limited number of them."""

SKEW_MAX: Final = 2 * MICROSECONDS
"""A wall clock that differs by more than this from that of the store is reported (SPEC 9.11)."""

LEAVING_SECONDS_MAX: Final = 30.0
"""How long a stop() tries to leave (SPEC 9.19)."""

LEAVING_AGAIN_SECONDS: Final = 0.5
HAS_LEFT: Final = "has left"
"""`how` of the `HostGoneError` about a host that was not buried."""

BURIAL_SECONDS_MAX: Final = 2.0
"""How long a host that is torn down waits for its own burial (SPEC 9.19)."""


@dataclass(frozen=True, slots=True)
class Connections:
    """The parts that all hosts of one scheduler use, one after the other."""

    shared: SharedStore
    functions: SharedFunctions
    """For writes and for loading, in the thread of `worker`."""

    worker: Threads
    clock: SharedClock
    host: Host

    @property
    def steady(self) -> Clock:
        """The clock of this host itself."""
        return self.clock.steady


class Listener(Protocol):
    """The reports of a membership, on the event loop."""

    def heard(self, answer: BeatAnswer) -> None:
        """A beat was answered."""

    def suspended(self, seconds: float) -> None:
        """The lease is not trusted any more; the beat that was answered last was sent so many seconds ago."""

    def resumed(self, seconds: float) -> None:
        """The lease is trusted again, after this number of seconds."""

    def lost(self, error: StoreError) -> None:
        """This host was buried, or the store was set back."""

    def buried(self, key: int, seq: int) -> None:
        """This host has buried another; that is entry `seq` of the log."""

    def deserted(self) -> None:
        """No running host declares the edition in force any more."""

    def unanswered_beat(self, fault: StoreError, retry_in_seconds: float) -> None:
        """A beat failed, after one that was answered."""

    def answered_again(self, beats: int) -> None:
        """A beat was answered, after others that failed; with it, it took this many."""

    def stumbled(self, fault: Exception) -> None:
        """A beat met a defect of duly itself; the next one follows."""

    def skewed(self, microseconds: int) -> None:
        """The wall clock of this host is ahead of that of the store, or behind it."""


Report = Callable[[Listener], None]
"""A call of one method of a listener."""


class Membership:
    """The recorder of one host."""

    def __init__(
        self, connections: Connections, me: HostIdentity, position: Position, *, sent: float, edition_in_force: int
    ) -> None:
        host, shared = connections.host, connections.shared
        self.me = me
        self.position = position
        """How far this host knows the log: what it has applied."""
        self.end_of_log = position.seq
        """The last entry that this host has heard of."""
        self.must_load = False
        """Whether the log alone does not tell what is true now."""
        self.edition_in_force = edition_in_force
        self.listener: Listener | None = None
        self._untold: list[Report] = []
        """Reports of beats from before there was a listener."""
        self.latency = 0.0
        """Seconds that the last write took."""
        self.lease = BeatLease(shared.lease.total_seconds(), host.boottime, sent=sent)
        self._connections = connections
        self._functions = connections.functions
        self._worker = connections.worker
        self._loop = asyncio.get_running_loop()
        self._beats = shared.connect_for_beats()
        self._watch = Watch(me.key, self.lease.seconds)
        self._ticker = host.new_ticker()
        self._drift: float | None = None
        self._suspended_at: float | None = None
        self._is_skewed = False
        self._unburied = 0
        """The host whose burial failed last."""
        self._failures = 0
        """Beats in a row that were not answered."""
        self._on_record = 0
        """Runs of this host that have started and not ended, by what the store has answered."""
        self._last_notes: list[TraceRow] = []
        self._lasting: dict[str, str] = {}
        """Faults that do not pass by themselves, by the request that met each last; beats tell observers of them."""
        self._asked_at = sent
        """When the connection for writes was used last, in steady seconds."""
        self._resting: asyncio.Future[None] | None = None
        self._leaving = False
        self._ended = False

    # --- what a scheduler asks ---------------------------------------------------------------------------------------

    async def write(self, batch: Batch, number: int, trace: Iterable[TraceRow] = ()) -> Outcome:
        """Have a batch recorded; starts are granted by what this host knew when it decided them.

        Between a decision and this call the position moves only past entries of this host's own: news are applied under
        the lock that the loop holds from the decision to the answer.
        """
        changes, seen, me = changes_of(batch, trace, self._on_record), self.position, self.me
        sent = self._connections.host.boottime()
        answer = await self._ask(lambda: self._functions.write(me, number, seen, changes), "write")
        self.latency = self._connections.host.boottime() - sent
        started = sum(len(block.generations) for block in changes.starts) - len(answer.refused)
        self._on_record = changes.running + started
        if answer.seq == self.position.seq + 1:
            self.position = answer.position
        self.hear_of(answer.seq)
        # What a correction made of each record, and what took the place of a run, stands in the store alone.
        self.must_load |= answer.corrected is not None or bool(answer.fenced)
        return outcome_of(changes, answer)

    async def news(self) -> News:
        """The entries after this host's position."""
        seen = self.position
        return await self._ask(lambda: self._functions.news(seen), "news")

    @property
    def behind(self) -> bool:
        """Whether others have written something that this host has not applied."""
        return self.must_load or self.end_of_log > self.position.seq

    def hear_of(self, seq: int) -> None:
        """The log goes at least as far as this."""
        self.end_of_log = max(self.end_of_log, seq)

    def note(self, event: Event) -> None:
        """Have an event in the trace when this host leaves: the end of a call."""
        self._last_notes.append(row_of(event))

    def touch(self) -> None:
        """Beats tell observers more."""

    async def close(self) -> None:
        """Leave, so that the others go on at once; a host that cannot is buried by them."""
        me, clock, notes = self.me, self._connections.steady, storable_notes(self._last_notes)
        deadline = clock.elapsed() + LEAVING_SECONDS_MAX
        self._leaving = True
        try:
            while not self._ended:
                try:
                    await self._ask(lambda: self._functions.leave(me, notes), "leave")
                    return
                except (HostGoneError, StoreRewoundError):
                    raise
                except StoreError:
                    if clock.elapsed() >= deadline:
                        raise
                again = clock.now() + int(LEAVING_AGAIN_SECONDS * MICROSECONDS)
                await clock.sleep_until(again, asyncio.Event())
        finally:
            self.vanish()

    def abandon(self) -> None:
        """Bury itself: the event loop is going away, and the others need not wait for a lease."""
        if not self._ended:
            self.vanish()
            me, functions = self.me, self._functions
            if not self.lease.lost:
                self._worker.close(lambda: _bury_itself(functions, me), seconds=BURIAL_SECONDS_MAX)

    def vanish(self) -> None:
        """Beat no more, and say nothing."""
        self._ended = True
        self._ticker.stop()

    async def _ask(self, call: Callable[[], T], request: str) -> T:
        self._asked_at = self._connections.host.boottime()
        self._resting = None
        try:
            answer = await self._worker.run(call)
        except (HostGoneError, StoreRewoundError) as gone:
            self.lose(gone)
            raise
        except StoreError as fault:
            if fault.details.get("permanent"):
                self._lasting[request] = storable(str(fault))
            raise
        self._lasting.pop(request, None)
        return answer

    def _rest_after(self, quiet_since: float) -> None:
        """Release the connection for writes if it was not used since then; the next request makes another."""
        if self._asked_at <= quiet_since and self._resting is None and not self._ended:
            self._resting = asyncio.ensure_future(self._worker.run(self._functions.close))

    # --- beats: in a thread of their own -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Beat from now on; what comes of it waits for a listener."""
        self._ticker.start(self.beat, self.lease.seconds / BEATS_OF_A_LEASE, self._beats.close)

    def listen(self, listener: Listener) -> None:
        """Tell this listener what comes of beats, and what has come of them so far, when the caller has returned."""
        self._loop.call_soon(self._attach, listener)

    def _attach(self, listener: Listener) -> None:
        self.listener = listener
        untold, self._untold = self._untold, []
        for report in untold:
            report(listener)

    def hurry(self) -> None:
        """Beat at once: the clock of the store is not what this host took it for."""
        self._ticker.hurry()

    def beat(self) -> float | None:
        """Renew the lease, look at the others, and bury those that have not beaten for too long.

        Returns the seconds after which the next look may bury a host, if that is before the next beat.
        """
        if self._ended or self.lease.lost:
            return None
        try:
            return self._beat()
        except Exception as defect:  # one of ours must not end the beats: nothing else renews the lease
            fault = defect
        self._tell(lambda listener: listener.stumbled(fault))
        return None

    def _beat(self) -> float | None:
        host = self._connections.host
        sent, wall, asked = host.boottime(), host.wall(), self._connections.steady.elapsed()
        self._suspect_a_pause(sent, wall)
        if not self.lease.trusted() and self._suspended_at is None:
            self._suspended_at = sent
            unanswered = sent - self.lease.answered_at
            self._tell(lambda listener: listener.suspended(unanswered))
        try:
            held = int(self.lease.untrusted_for(sent) * MICROSECONDS)
            fault = next(iter(list(self._lasting.values())), None)  # a copy: the event loop changes it meanwhile
            answer = self._beats.beat(self.me, self.position, held, fault)
        except (HostGoneError, StoreRewoundError) as gone:
            self.lose(gone)
            return None
        except StoreError as fault:
            self._falter(fault)
            return None  # the next beat follows; until then the lease runs on
        self._recover()
        received = host.boottime()
        self._connections.clock.hear(answer.clock, asked)
        self.lease.renew(sent)
        if self._suspended_at is not None and self.lease.trusted():
            suspended_at, self._suspended_at = self._suspended_at, None
            self._tell(lambda listener: listener.resumed(received - suspended_at))
        self._tell(lambda listener: listener.heard(answer))
        self._tell(lambda _: self._rest_after(received - QUIET_SECONDS))
        self._compare_clocks(wall, answer.clock, host.wall())
        self._watch_others(sent, received, answer.living)
        return self._seconds_to_the_next_verdict(sent)

    def _falter(self, fault: StoreError) -> None:
        """Tell the first fault of several in a row."""
        self._failures += 1
        if self._failures == 1:
            again = self.lease.seconds / BEATS_OF_A_LEASE
            self._tell(lambda listener: listener.unanswered_beat(fault, again))

    def _recover(self) -> None:
        if self._failures:
            beats, self._failures = self._failures + 1, 0
            self._tell(lambda listener: listener.answered_again(beats))

    def _suspect_a_pause(self, now: float, wall: int) -> None:
        """Trust nothing before the next answer if the wall clock moved by itself: the machine may have been paused."""
        drift = wall / MICROSECONDS - now
        if self._drift is not None and abs(drift - self._drift) > STEP_SECONDS:
            self.lease.distrust()
        self._drift = drift

    def _compare_clocks(self, before: int, store: int, after: int) -> None:
        """Say once that this host's clock is wrong; it showed `before` and `after` around the store's reading."""
        skew = before - store if before > store else min(0, after - store)
        is_skewed = abs(skew) > SKEW_MAX
        if is_skewed and not self._is_skewed:
            self._tell(lambda listener: listener.skewed(skew))
        self._is_skewed = is_skewed

    def _watch_others(self, sent: float, received: float, living: Iterable[LivingHost]) -> None:
        running = [Seen(each.key, each.beat, each.edition, each.lease / MICROSECONDS) for each in living]
        # The next look finds again who is not buried now. After a fault the others wait for that look: each burial may
        # take as long as this host may wait with its next beat.
        dead = self._watch.look(sent, received, running)
        for each in sorted(dead, key=lambda host: host.key <= self._unburied):  # it is the last one now
            try:
                seq = self._beats.bury(self.me, each.key, each.beat)
            except StoreError:
                self._unburied = each.key
                break
            if seq is not None:
                self._tell(partial(_report_burial, each.key, seq))
        if self._watch.is_deserted(self.edition_in_force, sent, received, running):
            self._tell(lambda listener: listener.deserted())

    def _seconds_to_the_next_verdict(self, sent: float) -> float | None:
        verdict_at = self._watch.next_verdict(after=sent)
        if verdict_at is None:
            return None
        seconds = verdict_at - self._connections.host.boottime() + VERDICT_SECONDS
        return max(seconds, 0.0) if seconds < self.lease.seconds / BEATS_OF_A_LEASE else None

    def lose(self, gone: StoreError) -> None:
        """The store has answered that this host is gone; from any thread."""
        if self._leaving and gone.details.get("how") == HAS_LEFT:
            return  # a beat heard so before the answer to that arrived
        if not self.lease.lost and not self._ended:
            self.lease.lose()
            self._ticker.stop()
            self._tell(lambda listener: listener.lost(gone))

    def _tell(self, report: Report) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._pass_on, report)

    def _pass_on(self, report: Report) -> None:
        if self.listener is None:
            self._untold.append(report)
        else:
            report(self.listener)


def _report_burial(key: int, seq: int, listener: Listener) -> None:
    listener.buried(key, seq)


def _bury_itself(functions: SharedFunctions, me: HostIdentity) -> None:
    with contextlib.suppress(StoreError):
        functions.bury(me, me.key, None)
    functions.close()
