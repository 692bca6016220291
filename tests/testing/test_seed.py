"""A simulated host with a seed: other orders that could have happened just as well, the same each time (FORMAL D3)."""

import contextlib
import io
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from duly.formal import check
from duly.stores.sqlite.trace import export
from duly.testing import SimulatedHost
from duly.testing.sim_threads import Dice


async def witnessed(seed: int, store: Path) -> tuple[list[str], bytes]:
    """Six tasks that sleep until the same moments, blocking ones among them: who went when, and the trace."""
    order: list[str] = []
    async with SimulatedHost("2024-01-01T00:00", "UTC", store, seed=seed) as host:

        def sleeper(name: str) -> object:
            async def run() -> None:
                await host.sleep(5)
                order.append(name)
                await host.sleep(5)
                order.append(name)

            return run

        def blocker(name: str) -> object:
            def run() -> None:
                order.append(name)

            return run

        scheduler = host.scheduler(trace=True)
        callbacks = [(name, sleeper(name)) for name in "abcd"] + [(name, blocker(name)) for name in "xy"]
        await scheduler.initialize([(name, "* * * * *", each, timedelta(seconds=1)) for name, each in callbacks])
        await host.advance(minutes=2, seconds=30)
        await scheduler.stop()
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return order, b"".join(export(connection, clean=True))


async def test_a_seed_is_an_order_and_the_same_each_time(tmp_path: Path) -> None:
    """Same seed, same bytes; other seeds, other orders."""
    found = {}
    for seed in range(6):
        first = await witnessed(seed, tmp_path / f"{seed}.db")
        assert first == await witnessed(seed, tmp_path / f"{seed} again.db")
        found[seed] = first
    assert len({tuple(order) for order, _ in found.values()}) == 6
    assert len({trace for _, trace in found.values()}) > 1


async def test_seed_zero_is_the_plain_order(tmp_path: Path) -> None:
    """It is the default, and everything happens as it came."""
    order, _ = await witnessed(0, tmp_path / "0.db")
    assert order[:10] == ["x", "y", "a", "b", "c", "d", "a", "b", "c", "d"]


async def test_every_order_keeps_the_promises(tmp_path: Path) -> None:
    """SPEC 7: whatever comes first of what could have, no property is violated."""
    for seed in range(20):
        _, trace = await witnessed(seed, tmp_path / f"{seed}.db")
        assert not check(io.BytesIO(trace)).violated


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None, True])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    """Anything else is refused, with what was given."""
    with pytest.raises(ValueError, match="a seed is a whole number that is not negative"):
        SimulatedHost("2024-01-01T00:00", "UTC", seed=seed)  # type: ignore[arg-type]


def test_the_dice_are_the_same_for_ever() -> None:
    """A seed that somebody wrote down must mean the same under every Python, and in the next release."""
    dice = Dice(42)
    assert [dice.below(1000) for _ in range(8)] == [741, 159, 278, 344, 38, 868, 218, 800]


def test_the_dice_are_fair_enough() -> None:
    """Every face comes, about equally often."""
    dice = Dice(7)
    thrown = [dice.below(6) for _ in range(6000)]
    assert all(900 < thrown.count(face) < 1100 for face in range(6))
