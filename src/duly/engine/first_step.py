"""Takes the first step of a coroutine at once, without a round through the event loop.

Most callbacks of a burst return in their first step. Such a callback needs no place in the event loop's queue; only one
that waits goes on as a task. Either way it finds a context of its own and a current task that can be cancelled.

Since Python 3.12 that is an eager task. On 3.11 a stand-in is the current task while callbacks take their first steps:
the first that waits keeps it as its own, and the next ones get another. What tells that a stand-in was used before is
its `id` and its name; one that was cancelled, or that anything still refers to, is not used again.
"""

import asyncio
import sys
import weakref
from asyncio.tasks import _enter_task, _leave_task  # "Extending asyncio" documents them for makers of other tasks
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any, Protocol

Work = Coroutine[Any, Any, None]


class FirstSteps(Protocol):
    """A context manager around the first steps of coroutines, one after the other, with no wait between them.

    It can be entered again and again by the task that made it.
    """

    def __enter__(self) -> "FirstSteps": ...

    def __exit__(self, *_: object) -> None: ...

    def begin(self, work: Work) -> "asyncio.Task[None] | None":
        """Take the first step; returns the task in which the coroutine goes on, or None when it is over."""
        ...


def first_steps() -> FirstSteps:
    """For the running event loop and the current task."""
    return EagerTasks() if sys.version_info >= (3, 12) else StandIns()


class EagerTasks:
    """A task for each coroutine; one that is over after its first step never meets the event loop."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> "EagerTasks":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, work: Work) -> "asyncio.Task[None] | None":
        """Take the first step; returns the task in which the coroutine goes on, or None when it is over."""
        # mypy knows the oldest Python that is supported; this argument is new in 3.12.
        task: asyncio.Task[None] = asyncio.Task(work, loop=self._loop, eager_start=True)  # type: ignore[call-arg]
        return None if task.done() else task


class StandIns:
    """One task for all coroutines that do not wait; a third of the cost of a task for each."""

    __slots__ = ("_caller", "_loop", "_references", "_rest", "_task", "_weak_references")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        caller = asyncio.current_task(self._loop)
        assert caller is not None
        self._caller = caller
        self._make()

    def __enter__(self) -> "StandIns":
        if self._task.done():  # the event loop has turned since
            self._make()
        _leave_task(self._loop, self._caller)
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        _leave_task(self._loop, self._task)
        _enter_task(self._loop, self._caller)

    def begin(self, work: Work) -> "asyncio.Task[None] | None":
        """Take the first step; returns the task in which the coroutine goes on, or None when it is over."""
        context = copy_context()
        try:
            awaited = context.run(work.send, None)
        except StopIteration:
            if self._is_known():
                self._change()
            return None
        task = self._task
        self._rest.take(work, context, awaited)
        self._change()
        return task

    def _change(self) -> None:
        _leave_task(self._loop, self._task)
        self._make()
        self._enter()

    def _make(self) -> None:
        self._rest = RestOfSteps()
        # Not made by the event loop's factory: an eager one would take the first step now.
        self._task: asyncio.Task[None] = asyncio.Task(self._rest, loop=self._loop)

    def _enter(self) -> None:
        _enter_task(self._loop, self._task)
        self._references = sys.getrefcount(self._task)
        self._weak_references = weakref.getweakrefcount(self._task)

    def _is_known(self) -> bool:
        """Whether the coroutine that is over has left something with its task: a cancellation, or a reference to it."""
        return (
            self._task.cancelling() > 0
            or sys.getrefcount(self._task) != self._references
            or weakref.getweakrefcount(self._task) != self._weak_references
        )


class RestOfSteps(Coroutine[Any, Any, None]):
    """The coroutine of a stand-in: nothing, or the further steps of a coroutine whose first step was taken before."""

    __slots__ = ("__weakref__", "_awaited", "_context", "_work")

    def __init__(self) -> None:
        self._work: Work | None = None
        self._context: Context | None = None
        self._awaited: Any = None
        """The awaitable that the first step waits for; the event loop has not heard of it yet."""

    def take(self, work: Work, context: Context, awaited: Any) -> None:
        """Go on with this coroutine, which waits for something since its first step."""
        self._work, self._context, self._awaited = work, context, awaited

    def send(self, value: Any) -> Any:
        """The next step; at first, hand over what the first step waits for."""
        if self._work is None or self._context is None:
            raise StopIteration
        if self._awaited is not None:
            awaited, self._awaited = self._awaited, None
            return awaited
        return self._context.run(self._work.send, value)

    def throw(self, *raised: Any) -> Any:
        """The next step, with an exception: the task was cancelled, or what it waited for has failed."""
        error = raised[0] if len(raised) == 1 else raised[1]
        if self._work is None or self._context is None:
            raise error
        awaited, self._awaited = self._awaited, None
        if awaited is not None and isinstance(error, asyncio.CancelledError) and awaited.cancel(*error.args[:1]):
            return awaited  # cancelled before its second step: as a task does, cancel first what it waits for
        return self._context.run(self._work.throw, error)

    def close(self) -> None:
        """No further step is taken."""
        if self._work is not None:
            self._work.close()

    @property
    def cr_frame(self) -> Any:
        """Where the coroutine is, for `Task.get_stack`."""
        return getattr(self._work, "cr_frame", None)

    def __await__(self) -> Any:
        raise TypeError("only the task that it was made for takes these steps")
