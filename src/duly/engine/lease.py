"""A host's right to act on a shared store, and the fence that no step of a callback passes without it.

A host trusts its lease for a while after each beat that was answered, counted from before the beat was sent. Another
host that saw no beat for longer than that buries it, and starts its tasks again. So a host that cannot trust its lease
takes no step of its callbacks: they are held, and go on when a beat is answered. If the answer is that the host was
buried, they are cancelled.
"""

import asyncio
import contextlib
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from duly.errors import LeaseLostError

T = TypeVar("T")

CLEAN_UP: Final = 1 / 3
"""The part of a lease that cancelled callbacks have to clean up, before they are cancelled at every step."""


class Lease(Protocol):
    """The questions of an engine's parts to a lease."""

    lost: bool
    """The host was buried: nothing that it does is recorded any more."""

    def trusted(self) -> bool:
        """Whether no other host can have taken over yet."""
        ...

    def check(self) -> None:
        """Raise a `LeaseLostError` unless the lease is trusted; from any thread."""
        ...

    def check_lost(self) -> None:
        """Raise a `LeaseLostError` if the lease is lost."""
        ...

    def hold(self) -> "asyncio.Future[None]":
        """A future that is done when the lease is trusted again, or lost."""
        ...

    def may_clean_up(self) -> bool:
        """Whether callbacks that know of the loss may still take steps."""
        ...


class Always:
    """The lease of an embedded store: its lock is the scheduler's as long as the process lives."""

    lost = False

    def trusted(self) -> bool:
        """Whether no other host can have taken over yet."""
        return True

    def check(self) -> None:
        """Nothing to raise: no other host can take over."""

    def check_lost(self) -> None:
        """Nothing to raise: it is never lost."""

    def hold(self) -> "asyncio.Future[None]":
        """Nothing is ever held."""
        raise AssertionError("a lease that is always trusted holds nothing")

    def may_clean_up(self) -> bool:
        """There is no loss to clean up after."""
        return True


ALWAYS: Final = Always()


class BeatLease:
    """The lease of a host that beats: made on the event loop, renewed from the thread of the beats."""

    def __init__(self, seconds: float, elapsed: Callable[[], float], *, sent: float) -> None:
        self.seconds = seconds
        self.lost = False
        self._elapsed = elapsed  # counts suspended time, from any thread
        self._trusted_until = sent + seconds
        self.answered_at = sent
        """When the beat was sent that was answered last, in elapsed seconds."""
        self._lost_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._held: list[asyncio.Future[None]] = []

    def trusted(self) -> bool:
        """Whether no other host can have taken over yet; from any thread."""
        return not self.lost and self._elapsed() < self._trusted_until

    def check(self) -> None:
        """Raise a `LeaseLostError` unless the lease is trusted; from any thread."""
        if not self.trusted():
            raise LeaseLostError

    def check_lost(self) -> None:
        """Raise a `LeaseLostError` if the lease is lost."""
        if self.lost:
            raise LeaseLostError

    def hold(self) -> "asyncio.Future[None]":
        """A future that is done when the lease is trusted again, or lost."""
        future = self._loop.create_future()
        if self.lost or self.trusted():
            future.set_result(None)
        else:
            self._held.append(future)
        return future

    def may_clean_up(self) -> bool:
        """Whether callbacks that know of the loss may still take steps."""
        return self._elapsed() < self._lost_at + CLEAN_UP * self.seconds

    # --- from the thread of the beats --------------------------------------------------------------------------------

    def renew(self, sent: float) -> None:
        """A beat was answered that had been sent at this elapsed second."""
        self.answered_at = sent
        self._trusted_until = sent + self.seconds
        self._tell()

    def distrust(self) -> None:
        """Trust nothing until the next answered beat: the machine may have been paused without its clock noticing."""
        self._trusted_until = min(self._trusted_until, self._elapsed())

    def untrusted_for(self, now: float) -> float:
        """For how many seconds it has not been trusted, at this elapsed second; 0 if it is."""
        return max(0.0, now - self._trusted_until)

    def lose(self) -> None:
        """The host was buried, once and for all."""
        if not self.lost:
            self._lost_at = self._elapsed()
            self.lost = True
            self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed, and nothing is held on it
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        if self.lost or self.trusted():
            held, self._held = self._held, []
            for future in held:
                if not future.done():
                    future.set_result(None)


@types.coroutine
def stepping(
    work: Coroutine[Any, Any, T],
    lease: Lease,
    tearing_down: Callable[[], bool],
    tell: Callable[[], None] = lambda: None,
) -> Generator[Any, Any, T]:
    """Await a coroutine, and take none of its steps while the lease is not trusted.

    An exception that arrives while it is held, such as the cancellation of a time limit, is delivered when steps go on.
    One that arrives while the event loop is being torn down is delivered at once, or the process would never end. After
    the loss of the lease it is cancelled once, with a `LeaseLostError`, which `tell` is called for; if it still takes
    steps when the time for clean-up is over, at every step.
    """
    value: Any = None
    error: BaseException | None = None
    told = False
    while True:
        while not (lease.trusted() or lease.lost or _passes(error, tearing_down)):
            try:
                yield from lease.hold()
            except BaseException as raised:
                value, error = None, raised
        if lease.lost and not (told and lease.may_clean_up()) and not _passes(error, tearing_down):
            value, error, told = None, LeaseLostError(), True
            tell()
        try:
            awaited = work.send(value) if error is None else work.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        value = error = None
        try:
            value = yield awaited
        except BaseException as raised:
            error = raised


def _passes(error: BaseException | None, tearing_down: Callable[[], bool]) -> bool:
    """Whether what arrived must be delivered although steps are held."""
    return isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and tearing_down())
