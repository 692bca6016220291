"""What each event of a trace does to the registers: first the checks, which read what was before, then the effect.

This is the table of registers of `properties` a second time, as recurrences. One method per event, named by its
letters, takes its fields. A crash costs nothing: it raises a number, and a run counts only if it started under the
present one.
"""

from collections.abc import Callable
from typing import Final

from duly.core.moments import Instant
from duly.formal.calendar import MINUTE, NEVER
from duly.formal.promptness import GAP, Promptness
from duly.formal.registers import Registers, TaskRegisters
from duly.formal.trace import LETTERS, NEW, ORPHANED, PRESERVED, RESTART, THREAD, digest_text
from duly.formal.verdicts import Findings, Violation

OVERLAPPED_MAX: Final = 10_000
SLOTS: Final = "slots in use"
"""The words by which a violation about `slots` is recognised: it is about all tasks that run."""


class Machine:
    """The checks and effects of all events, on one set of registers. Without `bounded`, lateness is not checked."""

    def __init__(self, registers: Registers, *, bounded: bool) -> None:
        self.registers = registers
        self.findings = Findings()
        self.promptness = Promptness(registers, self._report) if bounded else None
        self.alarm: Instant = NEVER  # the first deadline; before it, nothing can be late
        self.on: dict[str, Callable[..., None]] = {letters: getattr(self, f"_{letters.lower()}") for letters in LETTERS}
        """What takes an event, by its letters: called with the letters and the fields."""
        self._event, self._at = "", Instant(0)  # set before anything is reported
        self._compute_deadlines()

    def _report(self, property_id: str, task: TaskRegisters | None, sentence: str, **more: object) -> None:
        """Note a violation at this position."""
        registers = self.registers
        known = {"Active": registers.active, "Quiet": registers.quiet, "openStops": len(registers.stops), **more}
        name = None
        if task is not None:
            known.update(registers.described(task, self._at))
            name = task.name
        self.findings.add(Violation(property_id, registers.seq, self._at, self._event, name, sentence, known))

    # --- starts and ends ---------------------------------------------------------------------------------------------

    def _rs(
        self, letters: str, seq: int, at: Instant, name: str, generation: int, run: int, _cause: str, slots: int
    ) -> None:
        registers = self._begin(letters, seq, at)
        task = registers.tasks.get(name) or self._stranger(name)
        if slots != registers.running and slots >= 0:  # negative: a trace that is reduced to one task
            self._judge_slots(name, slots)
        due = owed = task.next_due <= at
        running = interrupted = False
        if task.run is not None:
            running = task.epoch == registers.epoch
            interrupted = not running and task.run_generation == task.generation
        if not (owed or running):
            owed = (registers.owed_since(task)[0] if interrupted else task.retry_at) <= at
        if running or not (owed and registers.active) or generation != task.generation or at < task.floor:
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
        task.run = run
        task.run_generation = generation
        task.epoch = registers.epoch
        task.started = task.floor = at
        task.unstarted = False
        if not running:
            registers.running += 1
            task.run_on_thread = task.thread
            if task.thread:
                registers.threads_running += 1

    def _judge_slots(self, name: str, slots: int) -> None:
        running = self.registers.running
        if not running <= slots <= running + len(self.registers.overlapped):
            self._report("EW", None, f"{name!r} starts with {slots} {SLOTS}, but {running} runs go on", running=running)

    def _judge_start(self, task: TaskRegisters, generation: int, *, running: bool, owed: bool) -> None:
        registers = self.registers
        stale = generation != task.generation
        if running:
            if task.run is not None and len(registers.overlapped) < OVERLAPPED_MAX:
                registers.overlapped.add((task.name, task.run, task.run_generation))
            self._report("S1", task, f"starts while run {task.run} has not ended")
        if self._at < task.floor:
            self._report("EW", task, "starts earlier than its last start, and the clock was not set back")
        if not registers.active:
            self._report("S2", task, "starts while the scheduler is not active")
        elif not task.declared:
            self._report("S2", task, "starts although it is not declared")
        elif stale:
            self._report("S2", task, f"starts as declaration {generation}, but {task.generation} is in force")
        elif not owed:
            self._report(
                "S2", task, "starts although nothing is owed: no due minute, no ripe retry, no interrupted run"
            )
        if registers.quiet:
            self._report("S4", task, "starts after a completed stop")
        if registers.crashed:
            self._report("S6a", task, "starts after a crash, before an initialize has taken effect")

    def _re(self, letters: str, seq: int, at: Instant, name: str, generation: int, run: int, ok: bool) -> None:
        registers = self._begin(letters, seq, at)
        task = registers.tasks.get(name) or self._stranger(name)
        alive = registers.is_running(task)
        if not alive or run != task.run or generation != task.run_generation or registers.quiet:
            self._judge_end(task, run, generation, alive=alive)
            if (name, run, generation) in registers.overlapped:
                registers.overlapped.remove((name, run, generation))
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

    def _judge_end(self, task: TaskRegisters, run: int, generation: int, *, alive: bool) -> None:
        registers = self.registers
        if (task.name, run, generation) in registers.overlapped:
            pass
        elif not alive:
            why = "a crash had cut it short" if run == task.run else "nothing was running"
            self._report("E2", task, f"run {run} ends, but {why}")
        elif run != task.run or generation != task.run_generation:
            going_on = f"run {task.run} of declaration {task.run_generation}"
            self._report("E2", task, f"run {run} of declaration {generation} ends, but {going_on} was going on")
        if registers.quiet:
            self._report("S5", task, "ends after a completed stop")
        if registers.epoch and task.epoch != registers.epoch:
            self._report("S6b", task, "ends after a crash, and has not started since")

    def _release(self, task: TaskRegisters, at: Instant) -> None:
        registers = self.registers
        if registers.running >= registers.limit:
            registers.free_total_since = at
        if task.run_on_thread:
            if registers.threads_running >= registers.pool:
                registers.free_threads_since = at
            registers.threads_running -= 1
        registers.running -= 1
        task.run = None
        task.ended = at
        registers.forget_if_gone(task)
        if self.promptness is not None:
            self.promptness.watch(task)
            self._watch_stop()

    def _stranger(self, name: str) -> TaskRegisters:
        """A task that was never registered: what it does is wrong, and is remembered like the rest."""
        task = self.registers.tasks[name] = TaskRegisters(name)
        return task

    # --- time --------------------------------------------------------------------------------------------------------

    def _begin(self, letters: str, seq: int, at: Instant) -> Registers:
        """What every event begins with, unless it sets the clock: time passes, and deadlines may have come."""
        registers = self.registers
        registers.seq = seq
        self._event, self._at = letters, at
        if at > registers.clock:
            if at - registers.clock > GAP:  # a silence: what the process could do meanwhile is not known
                registers.compute_since = at
            registers.clock = at
            if self.promptness is not None and at >= self.alarm:
                self.promptness.ring(at)
                self.alarm = self.promptness.alarm()
        return registers

    def _set_clock(self, at: Instant) -> None:
        registers = self.registers
        registers.latest = max(registers.latest, registers.clock)
        registers.clock = registers.compute_since = at
        if at < registers.latest:
            registers.stepped_to = min(registers.stepped_to, at)
            # What came to be at a moment that is still to come now has been so ever since: no bound waits for that.
            registers.active_since = min(registers.active_since, at)
            registers.free_total_since = min(registers.free_total_since, at)
            registers.free_threads_since = min(registers.free_threads_since, at)
            minute = registers.zone.minute(at)
            for task in registers.tasks.values():
                task.correct(at, minute)
        self._compute_deadlines()

    def _compute_deadlines(self) -> None:
        if self.promptness is not None:
            self.promptness.rebuild()
            self.alarm = self.promptness.alarm()

    def _ck(self, letters: str, seq: int, at: Instant, _old: Instant) -> None:
        self.registers.seq = seq
        self._event, self._at = letters, at
        self._set_clock(at)

    def _wk(self, letters: str, seq: int, at: Instant, _mono: int) -> None:
        self._begin(letters, seq, at)

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    def _bt(self, letters: str, seq: int, at: Instant, boot: str, _mono: int) -> None:
        registers = self.registers
        registers.seq = seq
        self._event, self._at = letters, at
        if registers.booted and not registers.quiet:
            self._crash()
        if boot == registers.boot:
            self._report("EW", None, f"boot {boot!r} comes twice")
        registers.booted, registers.boot, registers.boot_at, registers.boot_seq = True, boot, at, seq
        registers.stepped_to = NEVER
        self._set_clock(at)
        registers.stepped_to = NEVER  # what this boot finds is not a step within it

    def _crash(self) -> None:
        registers = self.registers
        registers.epoch += 1
        registers.crashed = True
        registers.active = False
        registers.stops.clear()
        registers.inits.clear()
        registers.overlapped.clear()
        registers.running = registers.threads_running = 0

    def _is(self, letters: str, seq: int, at: Instant, call: int) -> None:
        registers = self._begin(letters, seq, at)
        if self._is_open(registers.inits.get(call)):
            self._report("EW", None, f"initialize {call} is called twice")
        registers.inits[call] = (seq, at)

    def _rg(
        self, letters: str, seq: int, at: Instant, name: str, generation: int, change: str, cron: str, delay_ms: int,
        zone: str, known_since: Instant, place: str,
    ) -> None:  # fmt: skip
        registers = self._begin(letters, seq, at)
        task = registers.tasks.get(name)
        declared = task is not None and task.declared
        if not registers.inits:
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
        max_concurrency: int | None, threads: int | None, zone: str,
    ) -> None:  # fmt: skip
        registers = self._begin(letters, seq, at)
        called = self._returns(registers.inits, call, "initialize")
        if called is not None and any(stopped < called[0] for stopped, _ in registers.stops.values()):
            self._report("EW", None, f"initialize {call} takes effect before a stop that was called before it")
        if declared != registers.declared and declared >= 0:  # negative: a trace that is reduced to one task
            self._report("EW", None, f"{declared} tasks are declared, but {registers.declared} are registered")
        elif digest and digest != digest_text(registers.digest):
            self._report("EW", None, "the digest of what is declared differs from that of what is registered")
        if zone != registers.zone.name:
            registers.move_to(zone)
        registers.restart = interrupted == RESTART
        registers.limit = NEVER if max_concurrency is None else max_concurrency
        registers.pool = NEVER if threads is None else threads
        registers.quiet = registers.crashed = False
        if not registers.stops:
            registers.active = True
        registers.active_since = at
        registers.forget_marks(at)
        if len(registers.schedules) > 2 * registers.declared + 1_000:  # most belong to declarations that are gone
            in_use = (task.schedule for task in registers.tasks.values() if task.schedule)
            registers.schedules = {schedule.text: schedule for schedule in in_use}
        self._compute_deadlines()

    def _if(self, letters: str, seq: int, at: Instant, call: int, _error: str) -> None:
        registers = self._begin(letters, seq, at)
        self._returns(registers.inits, call, "initialize")

    def _ss(self, letters: str, seq: int, at: Instant, call: int) -> None:
        registers = self._begin(letters, seq, at)
        if self._is_open(registers.stops.get(call)):
            self._report("EW", None, f"stop {call} is called twice")
        registers.stops[call] = (seq, at)
        registers.active = False
        self._watch_stop()

    def _se(self, letters: str, seq: int, at: Instant, call: int) -> None:
        registers = self._begin(letters, seq, at)
        self._returns(registers.stops, call, "stop")
        if registers.running:
            running = next(filter(registers.is_running, registers.tasks.values()))
            self._report("S5⁺", running, f"a stop completes while run {running.run} goes on", running=registers.running)
        registers.quiet = True
        registers.active = False
        self._watch_stop()

    def _sf(self, letters: str, seq: int, at: Instant, call: int, _error: str) -> None:
        registers = self._begin(letters, seq, at)
        if call in registers.stops:  # if not, it was refused before it had any effect
            self._returns(registers.stops, call, "stop")
        self._watch_stop()

    def _returns(self, calls: dict[int, tuple[int, Instant]], call: int, method: str) -> tuple[int, Instant] | None:
        called = calls.pop(call, None)
        if called is None:
            self._report("EW", None, f"{method} {call} returns, but is not open")
        elif not self._is_open(called):
            self._report("EW", None, f"{method} {call} returns, but was called before the last boot")
        return called

    def _is_open(self, called: tuple[int, Instant] | None) -> bool:
        """Whether a call that has not returned was made since the last boot: no other process can return from it."""
        return called is not None and called[0] > self.registers.boot_seq

    def _watch_stop(self) -> None:
        if self.promptness is not None:
            self.promptness.watch_stop()
            self.alarm = self.promptness.alarm()
