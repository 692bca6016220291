"""Programs that tests run as processes of their own, and `Child`, which starts, reads and ends them.

Run as a module, this is such a program: `python -m tests.system.children NAME STORE`. It speaks in lines: a word,
then JSON. What it hears on standard input tells it to go on.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import duly
from duly.events import Event
from tests.compute import NotInTimeError
from tests.programs import ROOT, environment
from tests.system.clocks import LongMinute

PATIENCE_SECONDS = 60.0
"""How long a test waits for a line; only a hang comes near it, or a machine without compute."""

MINUTELY = "* * * * *"
NEVER_TODAY = "0 0 1 1 *"
DELAY = timedelta(minutes=5)


def scheduler_on(store: object, **options: Any) -> duly.Scheduler:
    """A scheduler on real time, in a minute that has just begun and does not end."""
    assert isinstance(store, str | Path | duly.stores.Store)
    return duly.Scheduler(store, clock=LongMinute(), **options)


class Child:
    """A program under way: what it says, line by line, and how it ends."""

    def __init__(self, program: str, *arguments: object) -> None:
        self.program = program
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.system.children", program, *map(str, arguments)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.pid = self._process.pid
        self._heard = b""

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def hear(self, word: str) -> Any:
        """Wait for a line that begins with this word, and return what it says."""
        return self.hear_one_of(word)[1]

    def hear_one_of(self, *words: str) -> tuple[str, Any]:
        """Wait for a line that begins with one of these words, and return the word and what it says."""
        until = time.monotonic() + PATIENCE_SECONDS
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in self._heard:
                    line, self._heard = self._heard.split(b"\n", 1)
                    said, _, rest = line.decode().partition(" ")
                    if said in words:
                        return said, json.loads(rest or "null")
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise NotInTimeError(f"{self.program} did not say {words} in {PATIENCE_SECONDS:.0f} s")
                piece = os.read(self._process.stdout.fileno(), 65536)
                if not piece:
                    assert self._process.stderr is not None
                    raise AssertionError(
                        f"{self.program} ended without saying {words}: {self._process.stderr.read().decode()}"
                    )
                self._heard += piece

    def tell(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: no chance to clean up."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def exit_code(self) -> int:
        """Wait for its end."""
        return self._process.wait(timeout=PATIENCE_SECONDS)

    def complaints(self) -> str:
        """Its standard error."""
        assert self._process.stderr is not None
        return self._process.stderr.read().decode()


# --- programs --------------------------------------------------------------------------------------------------------


def say(word: str, what: object = None) -> None:
    """One line to the test."""
    print(word, json.dumps(what), flush=True)


async def told() -> None:
    """Wait until the test says go on."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def nothing() -> None:
    """Work that is done at once."""


def _repeat_events(event: Event) -> None:
    say(event.name, event.fields)


def _described(error: duly.DulyError) -> dict[str, Any]:
    details = {key: value for key, value in error.details.items() if not isinstance(value, BaseException)}
    return {"type": type(error).__name__, "message": str(error), "details": details}


async def attempt(store: str) -> None:
    """Try to have the store, say how that went, and keep it until told."""
    scheduler = duly.Scheduler(store)
    say("loaded")
    await told()
    try:
        await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])
    except duly.DulyError as error:
        say("refused", _described(error))
        return
    say("accepted", os.getpid())
    await told()
    await scheduler.stop()
    say("stopped")


async def declare_many(store: str, count: str) -> None:
    """A long initialize(), to be killed in."""
    say("loaded")
    await told()
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([(f"task {index}", NEVER_TODAY, nothing, DELAY) for index in range(int(count))])
    say("declared")
    await told()


async def hold(store: str) -> None:
    """Have the store until told, or killed."""
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])
    say("holding", os.getpid())
    await told()
    await scheduler.stop()
    say("stopped")


def _wait_for_the_end() -> None:
    """The life of a forked process: live on, until the test ends it."""
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        signal.pause()


def _fork() -> int:
    child = os.fork()
    if not child:
        _wait_for_the_end()
    return child


def _spawn() -> int:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(["sleep", "1000"], stdin=nowhere, stdout=nowhere, stderr=nowhere).pid


def _multiprocess() -> int:
    process = multiprocessing.get_context("fork").Process(target=_wait_for_the_end)
    process.start()
    assert process.pid is not None
    return process.pid


FORKS: dict[str, Callable[[], int]] = {"fork": _fork, "subprocess": _spawn, "multiprocessing": _multiprocess}


async def hold_and_fork(store: str, how: str, where: str) -> None:
    """Have the store, make another process in some way, from the application or from a callback, and wait."""
    scheduler = scheduler_on(store)
    made = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    async def on_the_loop() -> None:
        made.set_result(FORKS[how]())

    def in_a_thread() -> None:
        loop.call_soon_threadsafe(made.set_result, FORKS[how]())

    callback: Callable[[], Awaitable[None] | None] = {"coroutine": on_the_loop, "thread": in_a_thread}.get(
        where, nothing
    )
    await scheduler.initialize([("forking", MINUTELY, callback, DELAY)])
    if where == "application":
        await on_the_loop()
    say("forked", await made)
    await told()
    await scheduler.stop()
    say("stopped")


async def prefork(store: str, count: str) -> None:
    """One scheduler object, made before the workers are forked, as in a pre-forking web server; each one tries it."""
    scheduler = duly.Scheduler(store)
    reader, writer = os.pipe()
    workers = []
    for _ in range(int(count)):
        worker = os.fork()
        if not worker:
            os._exit(_worker(scheduler, writer))
        workers.append(worker)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answers = [pipe.readline().strip() for _ in workers]
        say("answers", answers)
    _end(workers)


def _end(workers: list[int]) -> None:
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
        os.waitpid(worker, 0)


def _worker(scheduler: duly.Scheduler, writer: int) -> int:
    async def serve() -> None:
        try:
            await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])
        except duly.StoreLockedError:
            os.write(writer, b"locked\n")
        else:
            os.write(writer, b"accepted\n")
        await asyncio.Event().wait()

    # A new event loop: the parent's is the parent's.
    asyncio.set_event_loop(None)
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    loop.run_until_complete(serve())
    return 0


async def work(store: str) -> None:
    """Run a task that takes until told, and repeat every event."""
    scheduler = scheduler_on(store, on_event=_repeat_events)
    go_on = asyncio.Event()

    async def long() -> None:
        say("begun")
        await go_on.wait()
        say("ended")

    await scheduler.initialize([("long", MINUTELY, long, DELAY)])
    say("initialised")
    await told()
    go_on.set()
    await told()
    await scheduler.stop()
    say("stopped")


async def serve_until_terminated(store: str) -> None:
    """An application as the documentation has it: SIGTERM sets an event, and stop() does the rest."""
    scheduler = scheduler_on(store)
    terminated = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, terminated.set)

    async def gracious() -> None:
        say("begun")
        await terminated.wait()  # the signal finds it at work, and it takes its time
        await asyncio.sleep(0.05)
        say("ended")

    def blocking() -> None:
        say("blocking")
        while not terminated.is_set():
            time.sleep(0.01)
        say("unblocked")

    await scheduler.initialize([("gracious", MINUTELY, gracious, DELAY), ("blocking", MINUTELY, blocking, DELAY)])
    await terminated.wait()
    await scheduler.stop()
    say("stopped", [thread.name for thread in threading.enumerate() if thread.name.startswith("duly")])


async def leave_without_stop(store: str) -> None:
    """Forget to stop: the event loop is torn down around a run on the loop and one in a thread."""
    scheduler = scheduler_on(store)
    both = [asyncio.Event(), asyncio.Event()]
    loop = asyncio.get_running_loop()

    async def on_the_loop() -> None:
        both[0].set()
        await asyncio.Event().wait()

    def in_a_thread() -> None:
        loop.call_soon_threadsafe(both[1].set)
        threading.Event().wait()

    await scheduler.initialize([("loop", MINUTELY, on_the_loop, DELAY), ("thread", MINUTELY, in_a_thread, DELAY)])
    for each in both:
        await each.wait()
    say("leaving")


async def report(store: str, *names: str) -> None:
    """Say what a restart with these tasks finds: every event, until told to stop."""
    scheduler = scheduler_on(store, on_event=_repeat_events)
    await scheduler.initialize([(name, MINUTELY, nothing, DELAY) for name in names])
    await told()
    await scheduler.stop()
    say("stopped")


async def fork_in_callbacks(store: str) -> None:
    """Callbacks that fork short-lived processes, on the loop and in threads, again and again; then a clean stop."""
    scheduler = scheduler_on(store)
    done: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def fork_once(how: str) -> int:
        if how == "fork":
            child = os.fork()
            if not child:
                os._exit(7)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(7,))
        process.start()
        process.join()
        return process.exitcode or 0

    async def on_the_loop() -> None:
        done.put_nowait(fork_once("fork"))

    def in_a_thread() -> None:
        code = fork_once("fork")
        loop.call_soon_threadsafe(done.put_nowait, code)

    def with_multiprocessing() -> None:
        code = fork_once("multiprocessing")
        loop.call_soon_threadsafe(done.put_nowait, code)

    await scheduler.initialize(
        [
            ("loop", MINUTELY, on_the_loop, DELAY),
            ("thread", MINUTELY, in_a_thread, DELAY),
            ("multiprocessing", MINUTELY, with_multiprocessing, DELAY),
        ]
    )
    say("codes", [await done.get() for _ in range(3)])
    await scheduler.stop()
    say("stopped")


PROGRAMS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        attempt,
        declare_many,
        hold,
        hold_and_fork,
        prefork,
        work,
        serve_until_terminated,
        leave_without_stop,
        report,
        fork_in_callbacks,
    )
}


if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
