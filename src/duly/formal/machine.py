"""All registers, and what each event does to them: first the checks, which read what was before, then the effect.

This is the table of registers of `properties` a second time, as recurrences. One method per event, named by its
letters, takes its fields. A crash costs nothing: it raises a number, and a run counts only if it started under the
present one.
"""

from collections.abc import Callable
from typing import Any, Final

from duly.core.moments import Instant
from duly.formal.calendar import MINUTE, NEVER, Schedule, zone_of
from duly.formal.promptness import GAP, Promptness
from duly.formal.properties import PROPERTIES
from duly.formal.registers import TaskRegisters
from duly.formal.trace import NEW, ORPHANED, PRESERVED, RESTART, THREAD, digest_of_one, digest_text
from duly.formal.verdicts import Violation

KEPT_VIOLATIONS_MAX: Final = 100
"""Violations that are kept whole; all are counted."""

OVERLAPPED_MAX: Final = 10_000


class Machine:
    """The registers of a scheduler and its tasks, and the checks that read them."""

    def __init__(self, *, bounded: bool) -> None:
        self.seq = 0
        self.clock = Instant(0)  # the latest instant since the clock was last set back
        self.latest = Instant(0)  # the latest instant ever: nothing is marked later
        self.epoch = 0  # crashes so far
        self.active = False
        self.quiet = False
        self.crashed = False  # and no IE since
        self.active_since = Instant(0)
        self.compute_since = Instant(0)
        self.stops: dict[int, tuple[int, Instant]] = {}  # open calls: where, and since when
        self.inits: dict[int, tuple[int, Instant]] = {}
        self.tasks: dict[str, TaskRegisters] = {}
        self.overlapped: set[tuple[str, int, int]] = set()  # runs that go on although another one has started
        self.declared = 0
        self.running = 0
        self.violations: list[Violation] = []
        self.counts: dict[str, int] = {each.id: 0 for each in PROPERTIES}
        self.first: dict[str, Violation] = {}
        self._booted = False
        self._boot = ""
        self._boot_at = Instant(0)
        self._stepped_to: Instant = NEVER  # the lowest the clock has been set to since the boot
        self._restart = True
        self._limit: int = NEVER
        self._pool: int = NEVER
        self._threads_running = 0
        self._free_total_since = Instant(0)
        self._free_threads_since = Instant(0)
        self._digest = 0
        self._zone = zone_of("UTC")
        self._schedules: dict[str, Schedule] = {}
        self._minute: Instant = NEVER  # that of the last start; NEVER if it is not known in the present zone
        self._event, self._at = "", Instant(0)  # set before anything is reported
        self._found: list[Violation] = []
        self._promptness = Promptness(self) if bounded else None
        self._alarm: Instant = NEVER
        self._on: dict[str, Callable[..., None]] = {
            letters.upper(): getattr(self, f"_{letters}")
            for letters in ("bt", "is", "rg", "ie", "if", "ss", "se", "sf", "rs", "re", "ck", "wk")
        }

    # --- what is owed ------------------------------------------------------------------------------------------------

    def owed_since(self, task: TaskRegisters) -> tuple[Instant, str]:
        """When what a task owes, or will owe, came or comes, and why; the task does not run."""
        if self._restart and task.was_interrupted(self.epoch):  # a retry that was pending is merged into it
            resume_at = task.resume_at(self._boot_at, self._stepped_to)
            return (resume_at, "interrupted") if resume_at <= task.next_due else (task.next_due, "due")
        return (task.next_due, "due") if task.next_due <= task.retry_at else (task.retry_at, "retry")

    def free_since(self, *, thread: bool) -> Instant:
        """Since when there are free slots for a callback; NEVER if there are none."""
        if self.running >= self._limit or (thread and self._threads_running >= self._pool):
            return NEVER
        return max(self._free_total_since, self._free_threads_since) if thread else self._free_total_since

    def report(self, property_id: str, task: TaskRegisters | None, sentence: str, **more: object) -> None:
        """Note a violation at this position."""
        registers = {"Active": self.active, "Quiet": self.quiet, "openStops": len(self.stops), **more}
        if task is not None:
            registers.update(self._describe(task))
        found = Violation(
            property_id, self.seq, self._at, self._event, None if task is None else task.name, sentence, registers
        )
        self.counts[property_id] += 1
        self.first.setdefault(property_id, found)
        if len(self.violations) < KEPT_VIOLATIONS_MAX:
            self.violations.append(found)
        self._found.append(found)

    def _describe(self, task: TaskRegisters) -> dict[str, Any]:
        running = task.run is not None and task.epoch == self.epoch
        interrupted = self._restart and task.was_interrupted(self.epoch)
        resume_at = task.resume_at(self._boot_at, self._stepped_to) if interrupted else NEVER
        instants = {"mark": task.mark, "nextDue": task.next_due, "retryAt": task.retry_at, "resumeAt": resume_at}
        return {
            "Registered": task.declared,
            "Running": running,
            "Pending": task.next_due <= self._at,
            "RetryPending": not running and not interrupted and task.retry_at <= self._at,
            "InterruptedPending": resume_at <= self._at,
            "generation": task.generation,
            "run": task.run,
            **{name: None if at == NEVER else at for name, at in instants.items()},
        }

    # --- starts and ends: nearly all of a trace, so these two are written for speed ----------------------------------

    def _rs(
        self, letters: str, seq: int, at: Instant, name: str, generation: int, run: int, _cause: str, _slots: int
    ) -> None:
        self.seq = seq
        if at > self.clock:
            if at >= self._alarm or at - self.clock > GAP:
                self._pass(letters, at)
            self.clock = at
        task = self.tasks.get(name) or self._stranger(name)
        due = owed = task.next_due <= at
        running = interrupted = False
        if task.run is not None:
            running = task.epoch == self.epoch
            interrupted = not running and task.run_generation == task.generation
        if not (owed or running):
            owed = (self.owed_since(task)[0] if interrupted else task.retry_at) <= at
        if running or not (owed and self.active) or generation != task.generation or at < task.floor:
            self._event, self._at = letters, at
            self._judge_start(task, generation, running=running, owed=owed)
        if interrupted:
            task.resume(merged=self._restart)
        if due:
            task.due_since_success = True
        task.fresh = task.due_since_success
        minute = self._minute
        if not minute <= at < minute + MINUTE:
            minute = self._minute = self._zone.minute(at)
        if minute > task.mark:
            task.raise_mark(minute)
        task.run = run
        task.run_generation = generation
        task.epoch = self.epoch
        task.started = task.floor = at
        task.unstarted = False
        if not running:
            self.running += 1
            task.run_on_thread = task.thread
            if task.thread:
                self._threads_running += 1

    def _judge_start(self, task: TaskRegisters, generation: int, *, running: bool, owed: bool) -> None:
        stale = generation != task.generation
        if running:
            if task.run is not None and len(self.overlapped) < OVERLAPPED_MAX:
                self.overlapped.add((task.name, task.run, task.run_generation))
            self.report("S1", task, f"starts while run {task.run} has not ended")
        if self._at < task.floor:
            self.report("EW", task, "starts earlier than its last start, and the clock was not set back")
        if not self.active:
            self.report("S2", task, "starts while the scheduler is not active")
        elif not task.declared:
            self.report("S2", task, "starts although it is not declared")
        elif stale:
            self.report("S2", task, f"starts as declaration {generation}, but {task.generation} is in force")
        elif not owed:
            self.report("S2", task, "starts although nothing is owed: no due minute, no ripe retry, no interrupted run")
        if self.quiet:
            self.report("S4", task, "starts after a completed stop")
        if self.crashed:
            self.report("S6a", task, "starts after a crash, before an initialize has taken effect")

    def _re(self, letters: str, seq: int, at: Instant, name: str, generation: int, run: int, ok: bool) -> None:
        self.seq = seq
        if at > self.clock:
            if at >= self._alarm or at - self.clock > GAP:
                self._pass(letters, at)
            self.clock = at
        task = self.tasks.get(name) or self._stranger(name)
        alive = task.run is not None and task.epoch == self.epoch
        if not alive or run != task.run or generation != task.run_generation or self.quiet:
            self._event, self._at = letters, at
            self._judge_end(task, run, generation, alive=alive)
            if (name, run, generation) in self.overlapped:
                self.overlapped.remove((name, run, generation))
                return  # the run that overlapped it goes on
        if generation == task.generation:
            if ok:
                if not task.fresh and alive:
                    self._event, self._at = letters, at
                    self.report("S3", task, "a second start succeeds within one due period")
                task.retry_at = NEVER
                task.due_since_success = task.next_due <= at
            else:
                task.fail(at)
            task.streak = 0
        if alive:
            self._release(task, at)
        elif not task.declared:
            del self.tasks[name]

    def _judge_end(self, task: TaskRegisters, run: int, generation: int, *, alive: bool) -> None:
        if (task.name, run, generation) in self.overlapped:
            pass
        elif not alive:
            why = "a crash had cut it short" if run == task.run else "nothing was running"
            self.report("E2", task, f"run {run} ends, but {why}")
        elif run != task.run or generation != task.run_generation:
            going_on = f"run {task.run} of declaration {task.run_generation}"
            self.report("E2", task, f"run {run} of declaration {generation} ends, but {going_on} was going on")
        if self.quiet:
            self.report("S5", task, "ends after a completed stop")
        if self.epoch and task.epoch != self.epoch:
            self.report("S6b", task, "ends after a crash, and has not started since")

    def _release(self, task: TaskRegisters, at: Instant) -> None:
        if self.running >= self._limit:
            self._free_total_since = at
        if task.run_on_thread:
            if self._threads_running >= self._pool:
                self._free_threads_since = at
            self._threads_running -= 1
        self.running -= 1
        task.run = None
        task.ended = at
        if not task.declared:
            del self.tasks[task.name]
        if self._promptness is not None:
            self._promptness.watch(task)
            self._watch_stop()

    # --- time --------------------------------------------------------------------------------------------------------

    def _pass(self, letters: str, at: Instant) -> None:
        """Time passes: after a silence it is not known what the process could do; deadlines may have come."""
        if at - self.clock > GAP:
            self.compute_since = at
        self._event, self._at = letters, at
        self.clock = at
        if self._promptness is not None and at >= self._alarm:
            self._promptness.ring(at)
            self._alarm = self._promptness.alarm()

    def _begin(self, letters: str, seq: int, at: Instant) -> None:
        """What every event but starts and ends begins with."""
        self.seq = seq
        if at > self.clock:
            self._pass(letters, at)
        self._event, self._at = letters, at

    def _set_clock(self, at: Instant) -> None:
        self.latest = max(self.latest, self.clock)
        self.clock = self.compute_since = at
        if at < self.latest:
            self._stepped_to = min(self._stepped_to, at)
            # What came to be at a moment that is still to come now has been so ever since: no bound waits for that.
            self.active_since = min(self.active_since, at)
            self._free_total_since = min(self._free_total_since, at)
            self._free_threads_since = min(self._free_threads_since, at)
            minute = self._zone.minute(at)
            for task in self.tasks.values():
                task.correct(at, minute)
        self._look_anew()

    def _look_anew(self) -> None:
        if self._promptness is not None:
            self._promptness.rebuild()
            self._alarm = self._promptness.alarm()

    def _ck(self, letters: str, seq: int, at: Instant, _old: Instant) -> None:
        self.seq = seq
        self._event, self._at = letters, at
        self._set_clock(at)

    def _wk(self, letters: str, seq: int, at: Instant, _mono: int) -> None:
        self._begin(letters, seq, at)

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    def _bt(self, letters: str, seq: int, at: Instant, boot: str, _mono: int) -> None:
        self.seq = seq
        self._event, self._at = letters, at
        if self._booted and not self.quiet:
            self._crash()
        if boot == self._boot:
            self.report("EW", None, f"boot {boot!r} comes twice")
        self._booted, self._boot, self._boot_at, self._stepped_to = True, boot, at, NEVER
        self._set_clock(at)
        self._stepped_to = NEVER  # what this boot finds is no step within it

    def _crash(self) -> None:
        self.epoch += 1
        self.crashed = True
        self.active = False
        self.stops.clear()
        self.inits.clear()
        self.overlapped.clear()
        self.running = self._threads_running = 0

    def _is(self, letters: str, seq: int, at: Instant, call: int) -> None:
        self._begin(letters, seq, at)
        if call in self.inits:
            self.report("EW", None, f"initialize {call} is called twice")
        self.inits[call] = (seq, at)

    def _rg(
        self, letters: str, seq: int, at: Instant, name: str, generation: int, change: str, cron: str, delay_ms: int,
        zone: str, known_since: Instant, place: str,
    ) -> None:  # fmt: skip
        self._begin(letters, seq, at)
        task = self.tasks.get(name)
        declared = task is not None and task.declared
        if not self.inits:
            self.report("EW", task, f"{name!r} is registered outside of an initialize")
        same = task is not None and task.generation == generation
        if declared == (change == NEW) or (declared and same != (change in (ORPHANED, PRESERVED))):
            self.report("EW", task, f"{name!r} is registered as {change}, which does not follow from before")
        if zone != self._zone.name:
            self._move_to(zone)
        if task is None:
            task = self.tasks[name] = TaskRegisters(name)
        if change == PRESERVED:
            task.thread = place == THREAD
            return
        self._forget(task)
        if change == ORPHANED:
            task.withdraw()
            if task.run is None or task.epoch != self.epoch:
                del self.tasks[name]
        else:
            self.declared += 1
            self._digest ^= digest_of_one(name, generation, cron, delay_ms)
            before = Instant(self._zone.minute(known_since) - MINUTE)
            mark = before if change == NEW else max(before, task.mark)
            task.declare(generation, self._schedule(cron), delay_ms, thread=place == THREAD, mark=mark)

    def _forget(self, task: TaskRegisters) -> None:
        if task.declared and task.schedule is not None:
            self.declared -= 1
            self._digest ^= digest_of_one(task.name, task.generation, task.schedule.text, task.delay_ms)

    def _ie(
        self, letters: str, seq: int, at: Instant, call: int, declared: int, digest: str, interrupted: str,
        max_concurrency: int | None, threads: int | None, zone: str,
    ) -> None:  # fmt: skip
        self._begin(letters, seq, at)
        called = self._returns(self.inits, call, "initialize")
        if called is not None and any(stopped < called[0] for stopped, _ in self.stops.values()):
            self.report("EW", None, f"initialize {call} takes effect before a stop that was called before it")
        if declared != self.declared and declared >= 0:  # negative: a trace that is reduced to one task
            self.report("EW", None, f"{declared} tasks are declared, but {self.declared} are registered")
        elif digest and digest != digest_text(self._digest):
            self.report("EW", None, "the digest of what is declared differs from that of what is registered")
        if zone != self._zone.name:
            self._move_to(zone)
        self._restart = interrupted == RESTART
        self._limit = NEVER if max_concurrency is None else max_concurrency
        self._pool = NEVER if threads is None else threads
        self.quiet = self.crashed = False
        if not self.stops:
            self.active = True
        self.active_since = at
        if len(self._schedules) > 2 * self.declared + 1_000:  # most of them belong to declarations that are gone
            self._schedules = {task.schedule.text: task.schedule for task in self.tasks.values() if task.schedule}
        self._look_anew()

    def _if(self, letters: str, seq: int, at: Instant, call: int, _error: str) -> None:
        self._begin(letters, seq, at)
        self._returns(self.inits, call, "initialize")

    def _ss(self, letters: str, seq: int, at: Instant, call: int) -> None:
        self._begin(letters, seq, at)
        if call in self.stops:
            self.report("EW", None, f"stop {call} is called twice")
        self.stops[call] = (seq, at)
        self.active = False
        self._watch_stop()

    def _se(self, letters: str, seq: int, at: Instant, call: int) -> None:
        self._begin(letters, seq, at)
        self._returns(self.stops, call, "stop")
        if self.running:
            running = next(each for each in self.tasks.values() if each.run is not None and each.epoch == self.epoch)
            self.report("S5⁺", running, f"a stop completes while run {running.run} goes on", running=self.running)
        self.quiet = True
        self.active = False
        self._watch_stop()

    def _sf(self, letters: str, seq: int, at: Instant, call: int, _error: str) -> None:
        self._begin(letters, seq, at)
        self.stops.pop(call, None)  # none: it was refused before it had any effect
        self._watch_stop()

    def _returns(self, calls: dict[int, tuple[int, Instant]], call: int, method: str) -> tuple[int, Instant] | None:
        called = calls.pop(call, None)
        if called is None:
            self.report("EW", None, f"{method} {call} returns, but is not open")
        return called

    def _watch_stop(self) -> None:
        if self._promptness is not None:
            self._promptness.watch_stop()
            self._alarm = self._promptness.alarm()

    # --- zones -------------------------------------------------------------------------------------------------------

    def _move_to(self, zone: str) -> None:
        """The host is in another zone: what is due is computed anew, what was served stays served."""
        self._zone = zone_of(zone)
        self._schedules.clear()
        self._minute = NEVER
        for task in self.tasks.values():
            if task.schedule is not None and task.declared:
                task.schedule = self._schedule(task.schedule.text)
                task.next_due = task.schedule.after(task.mark)

    def _schedule(self, cron: str) -> Schedule:
        schedule = self._schedules.get(cron)
        if schedule is None:
            schedule = self._schedules[cron] = Schedule(cron, self._zone)
        return schedule

    def _stranger(self, name: str) -> TaskRegisters:
        """A task that was never registered; whatever it does is wrong, and goes on record like the rest."""
        task = self.tasks[name] = TaskRegisters(name)
        return task
