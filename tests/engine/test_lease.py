"""The lease of a host of a shared store, and the fence around the steps of its callbacks, in a time that tests move."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from duly.engine.lease import ALWAYS, BeatLease, stepping
from duly.errors import LeaseLostError

LEASE = 30.0


class Elapsed:
    """Elapsed seconds, suspended time included."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def elapsed() -> Elapsed:
    """It is second 100."""
    return Elapsed()


@pytest.fixture
async def lease(elapsed: Elapsed) -> BeatLease:
    """A beat that was sent at second 100 has been answered."""
    return BeatLease(LEASE, elapsed, sent=100.0)


async def turn() -> None:
    """Let everything that is ready have its turn."""
    for _ in range(10):
        await asyncio.sleep(0)


def fenced(work: Coroutine[Any, Any, Any], lease: BeatLease, *, tearing_down: bool = False) -> "asyncio.Task[Any]":
    async def run() -> Any:
        return await stepping(work, lease, lambda: tearing_down)

    return asyncio.get_running_loop().create_task(run())


class Steps:
    """A callback that notes every step, waits for the next one to be let go, and can be cancelled."""

    def __init__(self) -> None:
        self.taken: list[object] = []
        self.next = asyncio.Event()

    async def __call__(self, steps: int = 3) -> str:
        for number in range(steps):
            self.taken.append(number)
            self.next.clear()
            try:
                await self.next.wait()
            except BaseException as raised:
                self.taken.append(type(raised).__name__)
                raise
        return "done"


# --- trust -----------------------------------------------------------------------------------------------------------


async def test_a_lease_is_trusted_from_before_the_beat_was_sent(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.4: however late the answer comes."""
    elapsed.seconds = 129.9
    assert lease.trusted()
    elapsed.seconds = 130.0
    assert not lease.trusted()
    lease.renew(sent=125.0)
    assert lease.trusted()
    elapsed.seconds = 155.0
    assert not lease.trusted()


async def test_an_answer_that_was_long_under_way_renews_nothing(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.4: the process was frozen between sending and hearing."""
    elapsed.seconds = 200.0
    lease.renew(sent=105.0)
    assert not lease.trusted()


async def test_a_lease_that_is_distrusted_waits_for_the_next_answer(lease: BeatLease) -> None:
    """SPEC 9.4: the wall clock moved against the steady one: a virtual machine was paused."""
    lease.distrust()
    assert not lease.trusted()
    lease.renew(sent=100.0)
    assert lease.trusted()


async def test_a_lease_knows_for_how_long_it_has_not_been_trusted(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.6: from its end, or from the moment at which it was distrusted."""
    assert lease.untrusted_for(130.0) == 0.0
    assert lease.untrusted_for(142.5) == 12.5
    elapsed.seconds = 110.0
    lease.distrust()
    assert lease.untrusted_for(142.5) == 32.5
    elapsed.seconds = 120.0
    lease.distrust()
    assert lease.untrusted_for(142.5) == 32.5
    lease.renew(sent=142.5)
    assert lease.untrusted_for(142.5) == 0.0


async def test_a_lost_lease_is_lost_for_good(lease: BeatLease) -> None:
    """SPEC 9.5: burial is one-way."""
    lease.lose()
    lease.renew(sent=100.0)
    assert lease.lost
    assert not lease.trusted()


async def test_a_callback_that_asks_is_told_as_soon_as_the_trust_has_ended(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.7: `current_run().check()` before an effect; the trust may still come back."""
    elapsed.seconds = 129.9
    lease.check()
    elapsed.seconds = 130.0
    with pytest.raises(LeaseLostError):
        lease.check()
    lease.check_lost()
    lease.renew(sent=130.0)
    lease.check()


async def test_a_lost_lease_refuses_what_was_waiting_for_its_trust(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.6: a blocking callback that was held does not begin."""
    elapsed.seconds = 131.0
    lease.lose()
    with pytest.raises(LeaseLostError):
        lease.check_lost()


@pytest.mark.parametrize("lost", [False, True])
async def test_nothing_waits_for_a_lease_that_is_trusted_again_or_lost(
    lease: BeatLease, elapsed: Elapsed, lost: bool
) -> None:
    """SPEC 9.6: the thread of the beats may have had its answer between the question and the wait."""
    elapsed.seconds = 131.0
    if lost:
        lease.lose()
    else:
        lease.renew(sent=131.0)
    await turn()  # those that were held have gone on
    await asyncio.wait_for(lease.hold(), 30)


def test_an_embedded_store_is_always_trusted() -> None:
    """SPEC 5.7: its lock is the scheduler's as long as the process lives."""
    assert ALWAYS.trusted()
    assert not ALWAYS.lost


async def test_a_beat_answered_in_its_thread_lets_go_what_is_held(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.4: beats come from a thread."""
    elapsed.seconds = 131.0
    held = lease.hold()
    assert not held.done()
    beats = threading.Thread(target=lease.renew, args=(131.0,))
    beats.start()
    await asyncio.wait_for(held, 30)
    beats.join()


def test_an_answer_after_the_event_loop_was_closed_disturbs_nothing(elapsed: Elapsed) -> None:
    """SPEC 9.4: the thread of the beats may outlive the loop by one answer."""

    async def main() -> BeatLease:
        return BeatLease(LEASE, elapsed, sent=100.0)

    lease = asyncio.run(main())
    lease.renew(sent=110.0)
    lease.lose()
    assert lease.lost


# --- the fence -------------------------------------------------------------------------------------------------------


async def test_steps_are_taken_while_the_lease_is_trusted(lease: BeatLease) -> None:
    """And the result, and what the coroutine raises, arrive as without a fence."""
    steps = Steps()
    work = fenced(steps(), lease)
    for _ in range(3):
        await turn()
        steps.next.set()
    assert await work == "done"

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        await fenced(fails(), lease)


async def test_no_step_is_taken_while_the_lease_is_not_trusted(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.6: held, and when a beat is answered it goes on, once."""
    steps = Steps()
    work = fenced(steps(), lease)
    await turn()
    elapsed.seconds = 131.0
    steps.next.set()  # what it waits for has come
    await turn()
    assert steps.taken == [0]
    lease.renew(sent=131.0)
    await turn()
    assert steps.taken == [0, 1]
    work.cancel()


async def test_a_callback_does_not_begin_without_trust(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.6: an answer that arrives after the lease was lost launches nothing."""
    steps = Steps()
    elapsed.seconds = 131.0
    work = fenced(steps(), lease)
    await turn()
    assert steps.taken == []
    lease.lose()
    with pytest.raises(LeaseLostError):
        await work
    assert steps.taken == []


async def test_a_cancellation_that_comes_while_held_is_delivered_when_steps_go_on(
    lease: BeatLease, elapsed: Elapsed
) -> None:
    """SPEC 9.6, 3.10: the time limit of a run, for example."""
    steps = Steps()
    work = fenced(steps(), lease)
    await turn()
    elapsed.seconds = 131.0
    steps.next.set()
    await turn()
    work.cancel()
    await turn()
    assert steps.taken == [0]
    assert not work.done()
    lease.renew(sent=131.0)
    with pytest.raises(asyncio.CancelledError):
        await work
    assert steps.taken == [0, "CancelledError"]


async def test_a_cancellation_passes_when_the_event_loop_is_being_torn_down(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 3.11: otherwise the process would never end."""
    steps = Steps()
    work = fenced(steps(), lease, tearing_down=True)
    await turn()
    elapsed.seconds = 131.0
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert steps.taken == [0, "CancelledError"]


def test_a_held_coroutine_can_be_closed(elapsed: Elapsed) -> None:
    """A task that is destroyed closes its coroutine, whose clean-up runs."""
    cleaned_up: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append("cleaned up")

    async def main() -> None:
        lease = BeatLease(LEASE, elapsed, sent=100.0)
        steps = stepping(waits(), lease, lambda: False)
        next(steps)
        elapsed.seconds = 131.0
        steps.close()

    asyncio.run(main())
    assert cleaned_up == ["cleaned up"]


async def test_after_the_loss_a_callback_is_cancelled_once_and_may_clean_up(lease: BeatLease, elapsed: Elapsed) -> None:
    """SPEC 9.6: for a third of the lease; then at every step."""
    caught: list[str] = []
    release = asyncio.Event()

    async def stubborn() -> None:
        while caught.count("lost") < 3:
            release.clear()
            try:
                await release.wait()
                caught.append("a step")
            except LeaseLostError:
                caught.append("lost")

    work = fenced(stubborn(), lease)
    await turn()
    lease.lose()
    work.cancel()  # as the runner does, so that the loss arrives at once
    await turn()
    assert caught == ["lost"]
    release.set()
    await turn()
    assert caught == ["lost", "a step"], "clean-up takes steps"
    elapsed.seconds += LEASE / 3 - 0.1
    release.set()
    await turn()
    assert caught == ["lost", "a step", "a step"], "to the end of its time"
    elapsed.seconds += 0.1
    for _ in range(2):
        release.set()
        await turn()
    assert caught == ["lost", "a step", "a step", "lost", "lost"], "and then each one raises"
    await work


async def test_the_loss_is_no_exception_that_callbacks_swallow_by_accident(lease: BeatLease) -> None:
    """SPEC 9.6: `except Exception` lets it pass, `except asyncio.CancelledError` and `finally` see it."""
    seen: list[str] = []

    async def careless() -> None:
        try:
            with contextlib.suppress(Exception):
                await asyncio.Event().wait()
            seen.append("swallowed")
        finally:
            seen.append("cleaned up")

    work = fenced(careless(), lease)
    await turn()
    lease.lose()
    work.cancel()
    with pytest.raises(asyncio.CancelledError, match="another host may be running the task"):
        await work
    assert seen == ["cleaned up"]
