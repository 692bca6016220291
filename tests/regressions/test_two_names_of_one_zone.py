"""A store that was used under `Etc/UTC` was reported to have moved to another zone when `TZ` said `UTC`."""

from datetime import timedelta
from pathlib import Path

import pytest

from duly.events import HostZoneChanged
from duly.testing import SimulatedHost
from tests.cli.program import duly, nothing, write_target
from tests.stores.helpers import query

PAIRS = [("Etc/UTC", "UTC", "Europe/London"), ("Asia/Kolkata", "Asia/Calcutta", "Asia/Kathmandu")]


async def used_in(store: Path, zone: str) -> list[HostZoneChanged]:
    """Let a scheduler use a store in a zone; the changes that it reports."""
    async with SimulatedHost("2026-11-16T10:00+00:00", zone, store=store) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("a", "0 3 * * *", nothing, timedelta(minutes=5))])
        await scheduler.initialize([("a", "0 3 * * *", nothing, timedelta(minutes=5))])
        await scheduler.stop()
        return [event for event in host.events if isinstance(event, HostZoneChanged)]


@pytest.mark.parametrize(("zone", "link", "other"), PAIRS)
async def test_another_name_of_the_zone_is_not_reported_as_a_change(
    tmp_path: Path, zone: str, link: str, other: str
) -> None:
    """SPEC 2.1: the rules are compared; the store keeps the newest name."""
    store = tmp_path / "state.db"
    assert await used_in(store, zone) == []
    assert await used_in(store, link) == []
    assert query(store, "SELECT value FROM meta WHERE key = 'zone'") == [(link,)]
    assert await used_in(store, other) == [HostZoneChanged(link, other)]


@pytest.mark.parametrize(("zone", "link", "other"), PAIRS)
async def test_plan_status_and_explain_speak_of_another_zone_only_if_its_rules_differ(
    tmp_path: Path, zone: str, link: str, other: str
) -> None:
    """A container with TZ=UTC, and a shell without."""
    store = tmp_path / "state.db"
    await used_in(store, zone)
    write_target(tmp_path, "[('a', '0 3 * * *', quick, timedelta(minutes=5))]")
    for here, differs in ((link, False), (other, True)):
        planned = duly("plan", "tasks.py", "--store", store, folder=tmp_path, TZ=here)
        assert ("the host's zone" in planned.out) is differs, planned
        status = duly("status", "--store", store, folder=tmp_path, TZ=here)
        assert ("this host's zone is" in status.out) is differs, status
        asked = duly(
            "explain", "a", "--at", "2026-11-16T12:00", "--tz", here, "--store", store, folder=tmp_path, TZ=zone
        )
        assert ("the store is used in" in asked.err) is differs, asked
