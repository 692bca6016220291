"""A minute that began while callbacks were being called was served a minute late. Found by reading."""

from datetime import timedelta

from duly.testing import SimulatedHost
from tests.spec.helpers import starts, succeed

DELAY = timedelta(minutes=5)


async def test_a_minute_that_begins_while_callbacks_are_called_is_looked_at_at_once() -> None:
    """SPEC 2.4: the next poll was planned from the clock after the calls, and so for the end of the wrong minute."""
    async with SimulatedHost("2024-06-01T11:59:30", "UTC") as host:

        async def busy() -> None:
            host._clock.pass_by(62_000_000)  # it keeps the event loop to itself for more than a minute

        # Enough tasks that the first are under way while the last are being called.
        many = [(f"t{index}", "0 12 * * *", succeed, DELAY) for index in range(500)]
        await host.scheduler().initialize(
            [("busy", "0 12 * * *", busy, DELAY), *many, ("next", "1 12 * * *", succeed, DELAY)],
        )
        await host.advance(seconds=30)
        assert starts(host, "busy") == ["12:00:00"]
        assert starts(host, "next") == ["12:01:02"]
