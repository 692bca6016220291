"""Finds the callback that keeps the event loop from turning, from a thread beside it.

A coroutine that blocks (`time.sleep`, a slow parser, a driver that is not asynchronous) stops everything on the event
loop, the scheduler included, and nothing on the loop can see that. The thread looks at the stack of the loop's thread a
few times per second while callbacks are under way, and never otherwise. If it finds a callback there it asks the loop
for an answer; if the same callback is still there until the answer comes, it has blocked the loop since the question,
and perhaps since the look before. A run costs nothing by that: what is looked at is the stack that is there anyway.

A call that does not even release the interpreter's lock stops this thread as well, and is not found.
"""

import asyncio
import contextlib
import sys
import threading
import time
from collections import deque
from itertools import accumulate, chain, islice, repeat
from operator import methodcaller
from types import FrameType
from typing import Final

from duly.core.moments import Instant
from duly.engine.runner import Run, run_on_stack
from duly.engine.setup import Setup
from duly.engine.traffic import Traffic
from duly.events import EventLoopBlocked
from duly.stores.port import Blockage, EmbeddedStore

BLOCKED_SECONDS: Final = 1.0
"""An event loop that does not turn for this long is reported as blocked.

A callback that is found may have been there since the look before, so that time counts as well. No blockage of this
length is missed while looks come in time, and some are reported that are shorter by up to `LOOK_SECONDS`, or by up to
`_UNSEEN_SECONDS_MAX` if a look was late. The milliseconds of a report leave that time out: they are a lower bound.
"""

LOOK_SECONDS: Final = 0.2
ENDING_SECONDS_MAX: Final = 5.0
"""How long an event loop that is going away waits for the end of the thread."""

_UNSEEN_SECONDS_MAX: Final = 1.5 * LOOK_SECONDS
"""The most that counts of the time before a callback was found: a process may be stopped between two looks."""

_LOOKS_MIN: Final = 3
"""Looks that must find the same callback: a process that was stopped and goes on has blocked nothing.

A blockage of `BLOCKED_SECONDS` has them, however late it is found: one look asks, and three or four follow.
"""


class LoopWatchdog:
    """Watches the event loop that it is made on."""

    def __init__(self, setup: Setup, traffic: Traffic) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._setup = setup
        self._traffic = traffic
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()
        self._closed = threading.Event()

    def watch(self) -> None:
        """Callbacks are under way; the thread finds out by itself when none are any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="duly-watchdog", daemon=True)
            self._thread.start()
        if not self._wanted.is_set():
            self._wanted.set()

    def close(self, *, wait: bool) -> None:
        """End the thread; without `wait` only for a limited time, although it ends at once where it has compute."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(None if wait else ENDING_SECONDS_MAX)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set() and not self._loop.is_closed():
            self._wanted.wait()
            self._wanted.clear()  # before the question: what is asked for from here on is not lost
            while self._traffic.under_way and self._may_look():
                looked = time.monotonic()
                self._closed.wait(LOOK_SECONDS)
                # Again without a wait: the next callback may be blocking since the last look at this one.
                while self._may_look() and (run := self._running_now()) is not None:
                    looked = self._await_answer(run, looked)

    def _may_look(self) -> bool:
        return not self._closed.is_set() and not self._loop.is_closed()

    def _running_now(self) -> Run | None:
        """The run whose callback the event loop's thread is executing at this moment."""
        return run_on_stack(stack_of(self._loop_thread))

    def _await_answer(self, run: Run, looked: float) -> float:
        """Look until a run that was found has let the event loop turn.

        Parameters:
            run: the run.
            looked: when the look before did not find it, by `time.monotonic()`.

        Returns:
            When the last look was that found it: what blocks the event loop from now on began later.
        """
        question = _Question(run, looked, time.monotonic())
        looked = question.asked
        try:
            self._loop.call_soon_threadsafe(self._answer, question)
        except RuntimeError:  # the event loop is closed
            return looked
        reported = False
        while not self._closed.wait(LOOK_SECONDS) and not question.answered:
            if self._running_now() is not run:
                question.run = None  # others are running, or it has gone on and come again: the loop turns
                break
            looked = time.monotonic()
            question.looks += 1
            if not reported and question.has_blocked():
                reported = True
                self._note(run, question.seconds())  # from here: the loop may never turn again
        return looked

    # --- on the event loop -------------------------------------------------------------------------------------------

    def _answer(self, question: "_Question") -> None:
        question.answered = True
        run = question.run  # read once: the thread may take it back meanwhile
        if run is not None and question.has_blocked():
            seconds = question.seconds()
            self._note(run, seconds)
            self._setup.outbox.emit(EventLoopBlocked(run.task.name, run.number, int(seconds * 1000)))

    # --- in either ---------------------------------------------------------------------------------------------------

    def _note(self, run: Run, seconds: float) -> None:
        """Have the store show it to observers, if it can."""
        if isinstance(self._setup.store, EmbeddedStore):
            at = Instant(self._setup.clock.now())
            self._setup.store.note_blockage(Blockage(run.task.name, at, int(seconds * 1000)))


def stack_of(thread: int) -> list[FrameType]:
    """The frames of a running thread, innermost first.

    Python switches between threads only from one instruction of Python code to the next. If the other one goes on while
    its frames are being followed, they are no stack any more, and in 3.11 `f_back` has then led to an object that was
    no frame. So all of it is one instruction: the call of `extend`, which draws from iterators that are written in C.
    """
    innermost = map(methodcaller("get", thread), iter(sys._current_frames, None))
    found: deque[FrameType | None] = deque()
    with contextlib.suppress(AttributeError):  # the outermost one has no frame behind it
        found.extend(accumulate(chain(islice(innermost, 1), repeat("f_back")), getattr))
    return [frame for frame in found if isinstance(frame, FrameType)]


class _Question:
    """Asked of the event loop while it executes a callback, and answered when it turns."""

    def __init__(self, run: Run, looked: float, asked: float) -> None:
        self.run: Run | None = run
        """None: the loop was not kept by this run alone."""
        self.looks = 0
        """How many looks have found the same callback since."""
        self.answered = False
        self.asked = asked
        self._unseen = min(asked - looked, _UNSEEN_SECONDS_MAX)

    def has_blocked(self) -> bool:
        """Whether the callback may have kept the event loop long enough to be reported."""
        return self.looks >= _LOOKS_MIN and self.seconds() + self._unseen >= BLOCKED_SECONDS

    def seconds(self) -> float:
        """Since it was asked."""
        return time.monotonic() - self.asked
