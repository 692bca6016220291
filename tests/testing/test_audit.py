"""The host holds every decision against the monitor's obligation, and every event against the properties."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from duly.core.agenda import Slots, decide
from duly.testing import SimulatedHost
from tests.engine.helpers import engine_of
from tests.spec.helpers import succeed

MINUTE = timedelta(minutes=1)
AT = "2024-06-01T12:00"


def blocking() -> None:
    """Work for a thread."""


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that believes that no slot is free."""

    def decide_nothing(agenda: Any, now: Any, slots: Slots, **options: Any) -> Any:
        return decide(agenda, now, Slots(0, 0), **options)

    monkeypatch.setattr("duly.engine.loop.decide", decide_nothing)


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("options", [{}, {"max_concurrency": 50}], ids=["without a limit", "with slots to spare"])
@pytest.mark.parametrize("callback", [succeed, blocking], ids=["on the loop", "on a thread"])
async def test_a_start_that_is_left_out_although_there_is_room_fails_the_test(
    options: dict[str, Any], callback: Callable[[], object]
) -> None:
    """SPEC 7: in every simulated step the decision equals the monitor's obligation."""
    async with SimulatedHost(AT, "UTC") as host:
        await host.scheduler(**options).initialize([("task", "* * * * *", callback, MINUTE)])
        with pytest.raises(AssertionError, match=r"the monitor obliges it to \['task'\]"):
            await host.advance(minutes=1)


@pytest.mark.parametrize("callback", [succeed, blocking], ids=["on the loop", "on a thread"])
async def test_those_that_wait_for_a_slot_are_no_reason_to_complain(callback: Callable[[], object]) -> None:
    """SPEC 3.10: a start is committed only when a slot of its kind is free; the rest wait, still owed."""
    tasks = [(f"t{index}", "* * * * *", callback, MINUTE) for index in range(20)]
    async with SimulatedHost(AT, "UTC") as host:
        await host.scheduler(max_concurrency=3).initialize(tasks)
        await host.advance(minutes=2)
        assert len({event.fields["taskName"] for event in host.events if event.name == "TaskRunStarted"}) == 20


async def test_what_is_found_after_time_has_passed_for_the_last_time_fails_the_test_too() -> None:
    """A stop that does not wait for its runs, as the last thing that a test does."""

    async def careless() -> None:
        async with SimulatedHost(AT, "UTC") as host:

            async def work() -> None:
                await host.sleep(30)

            scheduler = host.scheduler()
            await scheduler.initialize([("task", "* * * * *", work, MINUTE)])
            await host.advance(seconds=1)
            engine_of(scheduler).runner.all_returned.set()  # it believes that every callback has returned
            await scheduler.stop()

    with pytest.raises(AssertionError, match="S5"):
        await careless()


async def test_an_error_of_the_test_itself_is_not_replaced() -> None:
    """The author of a test wants to see what it raised."""

    async def failing() -> None:
        async with SimulatedHost(AT, "UTC") as host:
            host._faults.append("something else")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
