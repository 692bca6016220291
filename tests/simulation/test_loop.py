"""The loop that drives the simulation: virtual time, one order for each seed, and no waiting for what cannot come."""

import asyncio

import pytest

from tests.simulation.loop import Deadlock, SeededLoop, run


async def order_of(workers: int, rounds: int) -> list[tuple[int, int]]:
    """The order in which several callbacks that are always ready had their turns."""
    seen: list[tuple[int, int]] = []

    async def work(worker: int) -> None:
        for turn in range(rounds):
            seen.append((turn, worker))
            await asyncio.sleep(0)

    await asyncio.gather(*(work(worker) for worker in range(workers)))
    return seen


def test_seed_zero_is_the_plain_order() -> None:
    """FORMAL D3: FIFO, so shrinking towards 0 is shrinking towards what every event loop does."""
    assert run(order_of(5, 3), seed=0) == [(turn, worker) for turn in range(3) for worker in range(5)]
    assert run(order_of(5, 3), seed=0) == asyncio.run(order_of(5, 3))


def test_a_seed_is_an_order_and_another_seed_another() -> None:
    """FORMAL D3: the seed picks among what is ready."""
    orders = {seed: run(order_of(6, 2), seed=seed) for seed in range(1, 9)}
    assert all(run(order_of(6, 2), seed=seed) == order for seed, order in orders.items())
    assert len({tuple(order) for order in orders.values()}) == len(orders)


def test_nobody_waits_for_ever_in_any_order() -> None:
    """Callbacks that are ready when a round begins run in that round: every order is fair."""
    for seed in range(50):
        turns = [turn for turn, _ in run(order_of(4, 5), seed=seed)]
        assert turns == sorted(turns)


def test_an_hour_of_sleep_takes_no_time() -> None:
    """Time passes when nothing is ready, and exactly as far as somebody sleeps."""

    async def sleep() -> list[float]:
        seen = []
        for seconds in (3600, 0.25, 86_400):
            await asyncio.sleep(seconds)
            seen.append(asyncio.get_running_loop().time())
        return seen

    assert run(sleep()) == [3600, 3600.25, 90_000.25]


def test_a_deadlock_is_an_error_at_once() -> None:
    """FORMAL D3: `select(None)` means that nothing can ever happen again."""

    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="never come"):
        run(wait())


def test_a_loop_that_never_rests_is_an_error() -> None:
    """Something that spins without any time passing would otherwise hang the suite."""

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - that is the fault
            await asyncio.sleep(0)

    with pytest.raises(Deadlock, match="on and on"):
        run(spin())


def test_rest_comes_when_nothing_else_is_ready_and_before_time_passes() -> None:
    """Ready callbacks, however long the chain, come first; sleepers go on sleeping."""

    async def chain() -> tuple[list[int], float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        seen: list[int] = []

        async def work() -> None:
            for step in range(40):
                seen.append(step)
                await asyncio.sleep(0)
            await asyncio.sleep(10)
            seen.append(-1)

        working = asyncio.ensure_future(work())
        await loop.rest()
        answer = list(seen), loop.time()
        await working
        return answer

    for seed in (0, 1, 2):
        assert run(chain(), seed=seed) == (list(range(40)), 0.0)


def test_what_is_left_is_cancelled() -> None:
    """As `asyncio.run` does; nothing of one history reaches into the next."""
    ended: list[str] = []
    left: list[asyncio.Task[None]] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("cancelled")

    async def leave() -> None:
        left.append(asyncio.ensure_future(linger()))
        await asyncio.sleep(0)

    run(leave())
    assert ended == ["cancelled"]
