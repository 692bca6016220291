"""The scheduler as a program: from the first load of TARGET through reloads to the end of the last run.

Signals are taken by Python's own handlers, not by those of the event loop: a callback that blocks the loop must not be
able to keep a second Ctrl-C from ending the program.
"""

import asyncio
import contextlib
import gc
import os
import platform
import signal
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from duly import events
from duly.cli.file_watch import Signature, pause, signature, watch
from duly.cli.output import Exit, Failure, failure_of
from duly.cli.service.dashboard import Dashboard, DashboardThread
from duly.cli.service.event_lines import holder_text
from duly.cli.service.events_log import ApplicationLog, EventsLog
from duly.cli.service.systemd import Notifier
from duly.cli.target import Loaded, Target, TargetFailure, load
from duly.clock import SystemClock
from duly.core.cron import CronExpression
from duly.core.moments import MICROSECONDS, zone_name
from duly.engine.host import system_host
from duly.engine.options import Options
from duly.errors import DulyError, TaskListMismatchError
from duly.events import Event
from duly.insight.words import counted, names, offset
from duly.scheduler import Scheduler, scheduler_of
from duly.standby import Standby
from duly.stores import SharedStore
from duly.stores.place import StorePlace, name_of
from duly.text import plain
from duly.wiring import lifecycle_on

T = TypeVar("T")

MANY_TASKS: Final = 10_000
"""From this many tasks on, the garbage collector leaves what initialize() built alone: visiting it costs too much."""

_POLL_OVERDUE_SECONDS: Final = 180.0
"""A scheduler that has not polled for this long is not reported alive to the watchdog."""

_ONE_SIGNAL_SECONDS: Final = 0.5
"""Signals to stop that are this close together are one: `timeout` and terminals signal a process and its group."""

_DEBUG_EVENTS: Final = frozenset(
    kind for name in events.__all__ if (kind := getattr(events, name)).level == events.DEBUG and kind is not Event
)
_NEEDED_EVENTS: Final = frozenset({events.PollStarted, events.PollCompleted, events.SchedulerReinitializationCompleted})
"""Events that the program itself needs, logged or not; the two of a poll are built together, or not at all."""


_NODE_MAX: Final = 100
"""Characters of this machine's name in a label."""


def _opened(store: StorePlace) -> Path | SharedStore:
    """The store of a scheduler: the path of a file, or a store that hosts share, where this process has a label."""
    if isinstance(store, Path):
        return store
    from duly.stores.postgres.store import PostgresStore  # it needs psycopg, which is an extra

    return PostgresStore(store, label=f"{platform.node()[:_NODE_MAX]} {os.getpid()}")


class Program:
    """One `duly run`."""

    def __init__(
        self,
        target: Target,
        store: StorePlace,
        options: dict[str, Any],
        log: EventsLog,
        *,
        watching: bool,
        standby: bool,
        verbose: bool,
        dashboard: Dashboard | None = None,
    ) -> None:
        self._target = target
        self._store = store
        self._log = log
        self._watching = watching
        self._stands_by = standby
        self._dashboard = None if dashboard is None else DashboardThread(dashboard)
        self._clock = SystemClock()
        self._systemd = Notifier()
        ignored = frozenset() if verbose else _DEBUG_EVENTS - _NEEDED_EVENTS
        settings = Options(on_event=self._on_event, **options)
        lifecycle = lifecycle_on(system_host(), _opened(store), settings, ignored=ignored)
        self._scheduler: Scheduler = scheduler_of(lifecycle)
        self._loaded: Loaded | None = None
        self._expressions: dict[str, CronExpression] = {}
        """Of the registrations in force, made when the first one of them is asked for."""
        self._standby: Standby | None = None
        """The wait for a store that another scheduler holds, until it is over."""
        self._waiting: asyncio.Task[None] | None = None
        """The work of that wait."""
        self._failed: dict[Path, Signature | None] = {}
        """The files of the last reload, if it failed: a change to one of them may fix it."""
        self._runs: dict[int, str] = {}
        self._interrupter: str | None = None
        """The task whose callback has raised KeyboardInterrupt, which goes out of the event loop."""
        self._violations: Counter[str] = Counter()
        self._last_poll = 0.0
        self._changed_tasks = 0
        self._on_terminal = os.isatty(1)
        self._takes_signals = False
        self._stopped_since: float | None = None
        """When the first signal to stop arrived."""
        self._stop_reason = ""
        self._reload_reason: str | None = None
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()

    async def serve(self) -> Exit:
        """Run until told to stop."""
        self._loaded = loaded = await load(self._target)
        ApplicationLog(self._log).install()
        self._take_signals(asyncio.get_running_loop())
        helpers: list[asyncio.Task[None]] = []
        if self._dashboard is not None:
            self._dashboard.start()
        if self._stands_by:
            self._stand_by(loaded)
        else:
            try:
                await self._unless_stopped(self._scheduler.initialize(loaded.declared))
            except DulyError as error:
                raise _start_failure(error) from error
            if self._stop.is_set():
                await self._scheduler.stop()
                return Exit.OK
            self._report_ready(len(loaded.registrations))
        helpers.append(asyncio.create_task(self._feed_watchdog()))
        if self._watching:
            helpers.append(asyncio.create_task(watch(self._clock, self._files, self._file_changed)))
        try:
            while not self._stop.is_set():
                await self._wake.wait()
                self._wake.clear()
                self._follow_standby()
                reason, self._reload_reason = self._reload_reason, None
                if reason is not None and not self._stop.is_set():
                    await self._reload(reason)
            await self._stop_gracefully()
        finally:
            for helper in helpers:
                helper.cancel()
            if self._dashboard is not None:
                self._dashboard.end()
        return Exit.NO if self._violations else Exit.OK

    # --- standing by -------------------------------------------------------------------------------------------------

    def _stand_by(self, loaded: Loaded) -> None:
        """Begin to wait for the store; the program is woken when that is over."""
        self._standby = Standby(self._scheduler, loaded.declared)
        self._waiting = asyncio.create_task(self._standby.run())
        self._waiting.add_done_callback(lambda _: self._wake.set())

    def _follow_standby(self) -> None:
        """If the wait for the store is over, say that the scheduler runs here, or fail as a start does."""
        if self._standby is None:
            return
        if isinstance(self._standby.failure, DulyError):
            raise _start_failure(self._standby.failure) from self._standby.failure
        if self._standby.failure is not None:
            raise self._standby.failure
        if self._standby.holding and self._loaded is not None:
            self._standby = None
            self._report_ready(len(self._loaded.registrations))

    def _report_ready(self, tasks: int) -> None:
        if tasks >= MANY_TASKS:
            gc.collect()
            gc.freeze()
        self._last_poll = self._clock.elapsed()
        zone = self._clock.zone()
        name, pid = zone_name(zone), os.getpid()
        self._log.say(
            "ProgramReady",
            f"{self._target.text} on {plain(name_of(self._store))}: {counted(tasks, 'task')}, "
            f"zone {name} ({offset(self._clock.now(), zone)}), process {pid}",
            target=self._target.text,
            store=name_of(self._store),
            totalTasks=tasks,
            zone=name,
            pid=pid,
        )
        self._systemd.send(READY=1, MAINPID=pid, STATUS=counted(tasks, "task"))

    # --- events of the scheduler -------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if isinstance(event, events.TaskRunStarted):
            self._runs[event.run_id] = event.task_name
        elif isinstance(event, events.TaskRunCompleted | events.TaskRunFailed | events.TaskRunFenced):
            self._runs.pop(event.run_id, None)
            if isinstance(event, events.TaskRunFailed) and isinstance(event.exception, KeyboardInterrupt):
                self._interrupter = event.task_name
            if self._stop.is_set() and self._runs:
                self._systemd.send(STATUS=f"stopping, waiting for {names(self._running())}")
        elif isinstance(event, events.PollCompleted):
            self._last_poll = self._clock.elapsed()
            if self._systemd.listens and not self._stop.is_set():
                self._send_status()
        elif isinstance(event, events.SchedulerReinitializationCompleted):
            self._changed_tasks = event.scheduled_count
        elif isinstance(event, events.StandbyStarted):
            self._systemd.send(READY=1, MAINPID=os.getpid(), STATUS=f"standing by, held by {holder_text(event.holder)}")
        elif isinstance(event, events.PropertyViolated):
            self._violations[event.property] += 1
        self._log.event(event, self._expression_of)

    def _expression_of(self, task: str) -> CronExpression | None:
        if not self._expressions and self._loaded is not None:
            self._expressions = {each.name: each.expression for each in self._loaded.registrations}
        return self._expressions.get(task)

    def _send_status(self) -> None:
        """Send one line for `systemctl status`, at most once per poll."""
        tasks = len(self._loaded.registrations) if self._loaded is not None else 0
        running = f", running {names(running)}" if (running := self._running()) else ""
        self._systemd.send(STATUS=f"{counted(tasks, 'task')}{running}")

    def _running(self) -> list[str]:
        return sorted(set(self._runs.values()))

    async def _feed_watchdog(self) -> None:
        """Report to the service manager that event loop and scheduler are alive, if it has a watchdog."""
        period = self._systemd.watchdog_microseconds
        while period is not None:
            if self._is_polling():
                self._systemd.send(WATCHDOG=1)
            await pause(self._clock, period // 2)

    def _is_polling(self) -> bool:
        """Whether the scheduler has polled lately; without tasks, or while stopping, it need not."""
        if self._stop.is_set() or self._standby is not None or self._loaded is None or not self._loaded.registrations:
            return True
        return self._clock.elapsed() - self._last_poll < _POLL_OVERDUE_SECONDS

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something that may take long; a stop cancels it."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                return None
            return task.result()
        finally:
            stop.cancel()

    # --- signals -----------------------------------------------------------------------------------------------------

    def _take_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        def on_stop(number: int, frame: FrameType | None) -> None:
            now = self._clock.elapsed()
            if self._stopped_since is not None:
                if now - self._stopped_since < _ONE_SIGNAL_SECONDS:
                    return
                self._abandon()
            self._stopped_since = now
            self._stop_reason = signal.Signals(number).name
            loop.call_soon_threadsafe(self._request_stop)

        def on_hangup(number: int, frame: FrameType | None) -> None:
            if self._on_terminal and not os.isatty(1):
                on_stop(number, frame)  # the terminal was closed: no Ctrl-C can come from it any more
            else:
                loop.call_soon_threadsafe(self._request_reload, "SIGHUP")

        signal.signal(signal.SIGINT, on_stop)
        signal.signal(signal.SIGTERM, on_stop)
        signal.signal(signal.SIGHUP, on_hangup)
        self._takes_signals = True

    def _request_stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def _request_reload(self, reason: str) -> None:
        self._reload_reason = reason
        self._wake.set()

    def _abandon(self) -> None:
        """End at once, as a crash would: what is durable stays, and running callbacks become interrupted runs."""
        running = self._running()
        text = f"abandoned {names(running)}: interrupted runs at the next start" if running else "gone"
        self._log.say_from_signal_handler("ProgramAbandoned", text, waitingFor=running)
        os._exit(Exit.ABANDONED)

    def report_interrupt(self) -> None:
        """Say which KeyboardInterrupt has ended the event loop; not if it was Ctrl-C before signals were taken."""
        if not self._takes_signals:
            return
        by = self._target.text if self._interrupter is None else names([self._interrupter])
        text, running = f"{by} raised KeyboardInterrupt: ended", self._running()
        if running:
            text += f"; abandoned {names(running)}: interrupted runs at the next start"
        self._log.say("ProgramInterrupted", text, level=events.ERROR, taskName=self._interrupter, waitingFor=running)

    # --- reloading ---------------------------------------------------------------------------------------------------

    def _files(self) -> dict[Path, Signature | None]:
        return {**self._failed, **(self._loaded.files if self._loaded is not None else {})}

    def _file_changed(self, path: Path) -> None:
        self._request_reload(f"{path.name} has changed")

    async def _reload(self, reason: str) -> None:
        target = self._target.text
        # The service manager pairs this with READY=1 by the clock that is never set.
        self._systemd.send(RELOADING=1, MONOTONIC_USEC=int(self._clock.elapsed() * MICROSECONDS))
        self._log.say("ProgramReloading", f"loading {target} again: {reason}", target=target, reason=reason)
        try:
            tasks = await self._unless_stopped(self._load_again())
        except Failure as failure:
            if isinstance(failure, TargetFailure):
                self._failed = {path: signature(path) for path in failure.files}
            failure.hint = "the old registrations go on" + (f"; {failure.hint}" if failure.hint else "")
            self._log.failure(failure)
            self._systemd.send(READY=1, STATUS=f"reload failed: {failure.message}")
            return
        if tasks is not None:
            text = f"{counted(tasks, 'task')} in force, {self._changed_tasks} of them new or changed"
            if self._standby is not None:
                text = f"{counted(tasks, 'task')}, in force as soon as the store is free"
            self._log.say("ProgramReloaded", text, target=target, totalTasks=tasks, changedTasks=self._changed_tasks)
            self._systemd.send(READY=1, STATUS=text)

    async def _load_again(self) -> int:
        loaded = await load(self._target, self._loaded)
        if self._standby is not None:
            self._standby.registrations = loaded.declared
            if not self._standby.holding:
                self._loaded = loaded
                return len(loaded.registrations)
        try:
            await self._scheduler.initialize(loaded.declared)
        except DulyError as error:
            raise _start_failure(error) from error
        self._loaded, self._expressions = loaded, {}
        return len(loaded.registrations)

    # --- stopping ----------------------------------------------------------------------------------------------------

    async def _stop_gracefully(self) -> None:
        running = self._running()
        waiting = f"waiting for {names(running)}; a second signal abandons {'it' if len(running) == 1 else 'them'}"
        self._log.say(
            "ProgramStopping",
            f"{self._stop_reason}: stopping" + (f", {waiting}" if running else ""),
            reason=self._stop_reason,
            waitingFor=running,
        )
        self._systemd.send(STOPPING=1, STATUS=f"stopping, {waiting}" if running else "stopping")
        if self._waiting is not None:  # before the stop, or it could still take over afterwards
            self._waiting.cancel()
            await asyncio.wait([self._waiting])
        await self._scheduler.stop()
        text = "stopped: every run has ended, every end is recorded"
        if self._violations:
            found = ", ".join(f"{name} {count:,} ×" for name, count in self._violations.items())
            text = f"{text}; but the monitor found violated: {found}"
            self._log.say("ProgramStopped", text, level=events.ERROR, violations=dict(self._violations))
        else:
            self._log.say("ProgramStopped", text)


def _start_failure(error: DulyError) -> Failure:
    """The failure of an initialize(), with the words of the command line."""
    failure = failure_of(error)
    if isinstance(error, TaskListMismatchError):
        failure.code = Exit.NO
        failure.hint = "`duly plan` shows the difference; --on-mismatch override lets the declaration win"
        kinds = ("added", "removed", "changed")
        failure.excerpt = "\n".join(
            f"  {kind}: {names(sorted(error.details[kind]))}" for kind in kinds if error.details[kind]
        )
    return failure
