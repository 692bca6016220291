"""The effect of each event on the registers: first the checks, which read what was before, then the change.

This is the table of registers of `properties` a second time, as recurrences. One method per event, named by its
letters, takes its fields. It acts on the registers of the host whose turn it is: an embedded store has one, and in the
trace of a shared store `turn_to` says whose events follow.
"""

from collections.abc import Callable
from typing import Final

from duly.core.moments import Instant
from duly.formal.calendar import MINUTE, NEVER
from duly.formal.promptness import GAP, Promptness
from duly.formal.registers import HostRegisters, Registers, TaskRegisters
from duly.formal.trace import ALONE, LETTERS, NEW, ORPHANED, PRESERVED, RESTART, THREAD, digest_text
from duly.formal.verdicts import Findings, Violation

OVERLAPPED_MAX: Final = 10_000
SLOTS: Final = "slots in use"
"""The words by which a violation about `slots` is recognised: it is about all tasks that run."""


class Machine:
    """The checks and effects of all events, on one set of registers. Without `bounded`, lateness is not checked."""

    def __init__(self, registers: Registers, *, bounded: bool) -> None:
        self.registers = registers
        self.host = HostRegisters(0, 0) if registers.shared else registers.hosts[ALONE]
        """The host whose event comes next; in a shared store nobody, until `turn_to` says who."""
        self.findings = Findings()
        self.promptness = Promptness(registers, self._report) if bounded else None
        self.alarm: Instant = NEVER  # the first deadline; before it, nothing can be late
        self.on: dict[str, Callable[..., None]] = {letters: getattr(self, f"_{letters.lower()}") for letters in LETTERS}
        """The method for each event, by its letters: called with the letters and the fields."""
        self._event, self._at = "", Instant(0)  # set before anything is reported
        self._compute_deadlines(*registers.hosts.values())

    def turn_to(self, key: int) -> None:
        """The events that follow are those of this host of a shared store."""
        self.host = self.registers.host(key)

    def _report(self, property_id: str, task: TaskRegisters | None, sentence: str, **more: object) -> None:
        """Note a violation at this position."""
        registers, host = self.registers, self.host
        known: dict[str, object] = {"host": host.key} if registers.shared else {}
        known.update(Active=host.active, Quiet=host.quiet, openStops=len(host.stops), **more)
        name = None
        if task is not None:
            known.update(registers.described(task, self._at))
            name = task.name
        self.findings.add(Violation(property_id, registers.seq, self._at, self._event, name, sentence, known))

    def _actor(self) -> str:
        """Whose event it is, in words."""
        return f"host {self.host.key}" if self.registers.shared else "the scheduler"

    # --- starts and ends ---------------------------------------------------------------------------------------------

    def _rs(
        self, letters: str, seq: int, at: Instant, name: str, generation: int, run: int, _cause: str, slots: int
    ) -> None:
        registers, host = self._begin(letters, seq, at), self.host
        task = registers.tasks.get(name) or self._stranger(name)
        if slots != host.running and slots >= 0:  # negative: a trace that is reduced to one task
            self._judge_slots(name, slots)
        due = owed = task.next_due <= at
        running = interrupted = False
        if task.run is not None:
            running = task.epoch in registers.lives
            interrupted = not running and task.run_generation == task.generation
        if not (owed or running):
            owed = (registers.owed_since(task)[0] if interrupted else task.retry_at) <= at
        if running or not (owed and host.active) or generation != task.generation or at < task.floor:
            self._judge_start(task, generation, running=running, owed=owed)
        if interrupted:
            task.resume(merged=registers.restart)
        if due:
            task.due_since_success = True
        task.fresh = task.due_since_success
        minute = registers.minute
        if not minute <= at < minute + MINUTE:
            minute = registers.minute = registers.zone.minute(at)
        if minute > task.served_through:
            task.serve_through(minute)
        if running and task.epoch != host.epoch:  # an overlap of two hosts: each has a run of its own
            registers.lives[task.epoch].count_end(at, thread=task.run_on_thread)
            running = False
        task.run = run
        task.run_generation = generation
        task.epoch = host.epoch
        task.started = task.floor = at
        task.unstarted = False
        if not running:
            task.run_on_thread = task.thread
            if host.epoch in registers.lives:  # what a buried host starts never goes on
                host.count_start(thread=task.thread)

    def _judge_slots(self, name: str, slots: int) -> None:
        running = self.host.running
        overlapped = sum(life == self.host.epoch for life in self.registers.overlapped.values())
        if not running <= slots <= running + overlapped:
            self._report("EW", None, f"{name!r} starts with {slots} {SLOTS}, but {running} runs go on", running=running)

    def _judge_start(self, task: TaskRegisters, generation: int, *, running: bool, owed: bool) -> None:
        registers, host = self.registers, self.host
        stale = generation != task.generation
        if running:
            if task.run is not None and len(registers.overlapped) < OVERLAPPED_MAX:
                registers.overlapped[task.name, task.run, task.run_generation] = task.epoch
            where = f" on host {task.epoch}" if registers.shared else ""
            self._report("S1", task, f"starts while run {task.run}{where} has not ended")
        if self._at < task.floor:
            self._report("EW", task, "starts earlier than its last start, and the clock was not set back")
        if not host.active:
            self._report("S2", task, f"starts while {self._actor()} is not active")
        elif not task.declared:
            self._report("S2", task, "starts although it is not declared")
        elif stale:
            self._report("S2", task, f"starts as declaration {generation}, but {task.generation} is in force")
        elif not owed:
            self._report(
                "S2", task, "starts although nothing is owed: no due minute, no ripe retry, no interrupted run"
            )
        if host.quiet:
            self._report("S4", task, "starts after a completed stop")
        if host.crashed:
            why = (
                f"{self._actor()} was buried" if registers.shared else "a crash, before an initialize has taken effect"
            )
            self._report("S6a", task, f"starts after {why}")

    def _re(self, letters: str, seq: int, at: Instant, name: str, generation: int, run: int, ok: bool) -> None:
        registers = self._begin(letters, seq, at)
        task = registers.tasks.get(name) or self._stranger(name)
        host = self.host
        alive = registers.is_running(task)
        if (
            not alive
            or task.epoch != host.epoch
            or run != task.run
            or generation != task.run_generation
            or host.quiet
            or host.crashed
        ):
            overlapped = registers.overlapped.get((name, run, generation)) == host.epoch
            self._judge_end(task, run, generation, alive=alive, overlapped=overlapped)
            if overlapped:
                del registers.overlapped[name, run, generation]
                return  # the run that overlapped it has not ended
        if generation == task.generation:
            if ok:
                if not task.fresh and alive:
                    self._report("S3", task, "a second start succeeds within one due period")
                task.retry_at = NEVER
                task.due_since_success = task.next_due <= at
            else:
                task.fail(at)
            task.streak = 0
        if alive:
            self._release(task, at)
        else:
            registers.forget_if_gone(task)

    def _judge_end(self, task: TaskRegisters, run: int, generation: int, *, alive: bool, overlapped: bool) -> None:
        registers, host = self.registers, self.host
        if overlapped:
            pass
        elif not alive:
            why = "a crash had cut it short" if run == task.run else "nothing was running"
            self._report("E2", task, f"run {run} ends, but {why}")
        elif run != task.run or generation != task.run_generation:
            going_on = f"run {task.run} of declaration {task.run_generation}"
            self._report("E2", task, f"run {run} of declaration {generation} ends, but {going_on} was going on")
        elif task.epoch != host.epoch:
            self._report("E2", task, f"run {run} ends on host {host.key}, but was going on on host {task.epoch}")
        if host.quiet:
            self._report("S5", task, "ends after a completed stop")
        if registers.shared:
            if host.crashed:
                self._report("S6b", task, f"ends after host {host.key} was buried")
        elif host.epoch and task.epoch != host.epoch:
            self._report("S6b", task, "ends after a crash, and has not started since")

    def _release(self, task: TaskRegisters, at: Instant) -> None:
        host = self.registers.lives[task.epoch]
        host.count_end(at, thread=task.run_on_thread)
        task.run = None
        task.ended = self._known_since(at)
        self.registers.forget_if_gone(task)
        if self.promptness is not None:
            self.promptness.watch(task)
            self._watch_stop(host)

    def _known_since(self, at: Instant) -> Instant:
        """When others could know of what the current host did at an instant.

        A host that was cut off writes its ends when it reaches the store again. Until then its runs go on for all
        others, and what they did not start meanwhile is not late: the end counts from the LR before it.
        """
        return max(at, self.host.clock) if self.registers.shared else at

    def _stranger(self, name: str) -> TaskRegisters:
        """A task that was never registered: what it does is wrong, and is remembered like the rest."""
        task = self.registers.tasks[name] = TaskRegisters(name)
        return task

    # --- time --------------------------------------------------------------------------------------------------------

    def _begin(self, letters: str, seq: int, at: Instant) -> Registers:
        """Let time pass, as every event does unless it sets the clock; deadlines may have come."""
        registers, host = self.registers, self.host
        registers.seq = seq
        self._event, self._at = letters, at
        if registers.shared:
            self._judge_presence()
        if at > host.clock:
            if at - host.clock > GAP:  # a silence: what the process could do meanwhile is not known
                host.compute_since = at
            host.clock = at
            if self.promptness is not None and at >= self.alarm:
                self.promptness.ring(host, at)
                self.alarm = self.promptness.alarm()
        return registers

    def _judge_presence(self) -> None:
        """Only a host that has joined a shared store, and is not gone, writes."""
        host = self.host
        host.seen = True
        if not host.is_living:
            self._report("EW", None, f"host {host.key} writes, but {_absence(host)}")

    def _set_clock(self, at: Instant) -> None:
        registers = self.registers
        registers.latest = max(registers.latest, registers.clock)
        for host in registers.hosts.values():
            host.clock = host.compute_since = at
        if at < registers.latest:
            registers.stepped_to = min(registers.stepped_to, at)
            # What came to be at a moment that is still to come now has been so ever since: no bound waits for that.
            registers.buried_at = min(registers.buried_at, at)
            registers.in_force_since = min(registers.in_force_since, at)
            for host in registers.hosts.values():
                host.active_since = min(host.active_since, at)
                host.free_total_since = min(host.free_total_since, at)
                host.free_threads_since = min(host.free_threads_since, at)
                if host.cut_at != NEVER:
                    host.cut_at = min(host.cut_at, at)
            minute = registers.zone.minute(at)
            for task in registers.tasks.values():
                task.correct(at, minute)
        self._compute_deadlines(*registers.hosts.values())

    def _compute_deadlines(self, *hosts: HostRegisters) -> None:
        """Compute the deadlines of all tasks, and those of stops of these hosts."""
        if self.promptness is not None:
            self.promptness.rebuild()
            for host in hosts:
                self.promptness.watch_stop(host)
            self.alarm = self.promptness.alarm()

    def _ck(self, letters: str, seq: int, at: Instant, _old: Instant) -> None:
        self.registers.seq = seq
        self._event, self._at = letters, at
        if self.registers.shared:
            self._judge_presence()
        self._set_clock(at)

    def _wk(self, letters: str, seq: int, at: Instant, _mono: int) -> None:
        self._begin(letters, seq, at)

    def _lr(self, letters: str, seq: int, at: Instant) -> None:
        self.host.compute_since = max(self.host.compute_since, at)
        self._begin(letters, seq, at)

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    def _bt(self, letters: str, seq: int, at: Instant, boot: str, _mono: int) -> None:
        registers, host = self.registers, self.host
        registers.seq = seq
        self._event, self._at = letters, at
        if registers.shared:
            self._join(boot)
            return
        if host.booted and not host.quiet:
            registers.cut(host, at)
        if boot == host.boot:
            self._report("EW", None, f"boot {boot!r} comes twice")
        host.booted, host.boot, host.boot_at, host.boot_seq = True, boot, at, seq
        registers.stepped_to = NEVER
        self._set_clock(at)
        registers.stepped_to = NEVER  # what this boot finds is not a step within it

    def _join(self, boot: str) -> None:
        """A host joins a shared store: once, and before it does anything else. It means nothing for other hosts."""
        registers, host, at = self.registers, self.host, self._at
        if host.booted or host.cut_at != NEVER:
            self._report("EW", None, f"host {host.key} joins, but {_absence(host)}")
        elif host.seen:
            self._report("EW", None, f"host {host.key} joins, but has written before")
        if any(other.boot == boot for other in registers.hosts.values() if other is not host):
            self._report("EW", None, f"boot {boot!r} comes twice")
        host.seen = host.booted = True
        host.boot, host.boot_at, host.boot_seq = boot, at, registers.seq
        host.clock = max(host.clock, at)
        host.compute_since = at

    def _by(self, letters: str, seq: int, at: Instant, who: int) -> None:
        registers = self._begin(letters, seq, at)
        found = registers.hosts.get(who)
        if found is None:
            self._report("EW", None, f"host {who} is buried, but has not joined")
            found = registers.host(who)
        elif not found.is_living:
            self._report("EW", None, f"host {who} is buried, but {_absence(found)}")
        if found.cut_at == NEVER:
            registers.cut(found, at)
        registers.ended_by_stop = False
        self._compute_deadlines(found)

    def _rn(self, letters: str, seq: int, at: Instant, who: int) -> None:
        registers = self._begin(letters, seq, at)
        found = registers.hosts.get(who)
        if found is None or not found.is_living:
            why = "has not joined" if found is None else _absence(found)
            self._report("EW", None, f"host {who} declares the set in force, but {why}")
        else:
            found.edition = registers.edition
            self._compute_deadlines(found)

    def _is(self, letters: str, seq: int, at: Instant, call: int) -> None:
        self._begin(letters, seq, at)
        if self._is_open(self.host.inits.get(call)):
            self._report("EW", None, f"initialize {call} is called twice")
        self.host.inits[call] = (seq, at)

    def _rg(
        self, letters: str, seq: int, at: Instant, name: str, generation: int, change: str, cron: str, delay_ms: int,
        zone: str, known_since: Instant, place: str,
    ) -> None:  # fmt: skip
        registers = self._begin(letters, seq, at)
        task = registers.tasks.get(name)
        declared = task is not None and task.declared
        if not self.host.inits:
            self._report("EW", task, f"{name!r} is registered outside of an initialize")
        same = task is not None and task.generation == generation
        if declared == (change == NEW) or (declared and same != (change in (ORPHANED, PRESERVED))):
            self._report("EW", task, f"{name!r} is registered as {change}, which does not follow from before")
        if zone != registers.zone.name:
            registers.move_to(zone)
        if task is None:
            task = registers.tasks[name] = TaskRegisters(name)
        if change == PRESERVED:
            task.thread = place == THREAD
            return
        registers.count(task, -1)
        if change == ORPHANED:
            task.withdraw()
            registers.forget_if_gone(task)
        else:
            schedule, known = registers.schedule(cron), registers.zone.minute(known_since)
            task.declare(generation, schedule, delay_ms, thread=place == THREAD, known=known)
            registers.count(task, +1)

    def _ie(
        self, letters: str, seq: int, at: Instant, call: int, declared: int, digest: str, interrupted: str,
        max_concurrency: int | None, threads: int | None, zone: str, edition: int | None = None,
        outdated: bool | None = None,
    ) -> None:  # fmt: skip
        registers, host = self._begin(letters, seq, at), self.host
        called = self._returns(host.inits, call, "initialize")
        if called is not None and any(stopped < called[0] for stopped, _ in host.stops.values()):
            self._report("EW", None, f"initialize {call} takes effect before a stop that was called before it")
        if edition is not None:
            self._declare_edition(edition, outdated=bool(outdated))
        if not outdated:
            self._judge_declared(declared, digest)
            if zone != registers.zone.name:
                registers.move_to(zone)
            registers.restart = interrupted == RESTART
        host.limit = NEVER if max_concurrency is None else max_concurrency
        host.pool = NEVER if threads is None else threads
        host.quiet = False
        host.crashed = host.crashed and registers.shared  # a buried host stays buried
        if not host.stops and not host.crashed:
            host.active = True
        host.active_since = at
        registers.forget_marks(at)
        if len(registers.schedules) > 2 * registers.declared + 1_000:  # most belong to declarations that are gone
            in_use = (task.schedule for task in registers.tasks.values() if task.schedule)
            registers.schedules = {schedule.text: schedule for schedule in in_use}
        self._compute_deadlines(host)

    def _declare_edition(self, edition: int, *, outdated: bool) -> None:
        """A host of a shared store declares a set: it is in force from here on, unless another one stays so."""
        registers = self.registers
        self.host.edition = edition
        if not outdated:
            if edition != registers.edition:
                registers.in_force_since = self._at
            registers.edition = edition
        elif registers.edition in (0, edition):
            why = "no other one is in force" if not registers.edition else "is in force"
            self._report("EW", None, f"edition {edition} is called outdated, but {why}")

    def _judge_declared(self, declared: int, digest: str) -> None:
        registers = self.registers
        if declared != registers.declared and declared >= 0:  # negative: a trace that is reduced to one task
            self._report("EW", None, f"{declared} tasks are declared, but {registers.declared} are registered")
        elif digest and digest != digest_text(registers.digest):
            self._report("EW", None, "the digest of what is declared differs from that of what is registered")

    def _if(self, letters: str, seq: int, at: Instant, call: int, _error: str) -> None:
        self._begin(letters, seq, at)
        self._returns(self.host.inits, call, "initialize")

    def _ss(self, letters: str, seq: int, at: Instant, call: int) -> None:
        self._begin(letters, seq, at)
        host = self.host
        if self._is_open(host.stops.get(call)):
            self._report("EW", None, f"stop {call} is called twice")
        host.stops[call] = (seq, at)
        host.active = False
        self._watch_stop(host)

    def _se(self, letters: str, seq: int, at: Instant, call: int) -> None:
        registers, host = self._begin(letters, seq, at), self.host
        self._returns(host.stops, call, "stop")
        if host.running:
            running = next(
                task for task in registers.tasks.values() if task.epoch == host.epoch and task.run is not None
            )
            self._report("S5⁺", running, f"a stop completes while run {running.run} goes on", running=host.running)
        host.quiet = True
        host.active = False
        if registers.shared and not host.stops:
            host.left = registers.ended_by_stop = True
        self._watch_stop(host)

    def _sf(self, letters: str, seq: int, at: Instant, call: int, _error: str) -> None:
        self._begin(letters, seq, at)
        if call in self.host.stops:  # if not, it was refused before it had any effect
            self._returns(self.host.stops, call, "stop")
        self._watch_stop(self.host)

    def _returns(self, calls: dict[int, tuple[int, Instant]], call: int, method: str) -> tuple[int, Instant] | None:
        called = calls.pop(call, None)
        if called is None:
            self._report("EW", None, f"{method} {call} returns, but is not open")
        elif not self._is_open(called):
            self._report("EW", None, f"{method} {call} returns, but was called before the last boot")
        return called

    def _is_open(self, called: tuple[int, Instant] | None) -> bool:
        """Whether a call that has not returned was made since the last boot: no other process can return from it."""
        return called is not None and called[0] > self.host.boot_seq

    def _watch_stop(self, host: HostRegisters) -> None:
        if self.promptness is not None:
            self.promptness.watch_stop(host)
            self.alarm = self.promptness.alarm()


def _absence(host: HostRegisters) -> str:
    """Why a host of a shared store cannot write, be buried or join."""
    if host.cut_at != NEVER:
        return "was buried"
    if host.left:
        return "has left"
    return "has joined already" if host.booted else "has not joined"
