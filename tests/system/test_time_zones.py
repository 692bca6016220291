"""Both transitions of a year in five zones, awake and frozen across them, and a host that moves to another zone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.compute import NotInTimeError
from tests.system.record import record
from tests.system.time_judging import HOUR, MINUTE, Daily, at, judge, served_once, side_by_side
from tests.system.time_program import Job, Process, Setup

ZONES = ("Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Pacific/Chatham")
"""At one, at two, at midnight, by half an hour, and off the quarter of UTC."""

YEAR = 2025
PATTERNS = {
    "half past two": Daily((30,), (2,)),
    "two": Daily((0,), (2,)),
    "midnight": Daily((0,), (0,)),
    "quarters": Daily((0, 15, 30, 45)),
    "every hour": Daily((5,)),
    "nightly window": Daily((10, 50), (0, 1, 2, 3, 23)),
}


def transitions(zone: str) -> list[int]:
    """The instants in a year at which a zone's offset changes, found by looking at every minute of such a day."""
    found = []
    there = ZoneInfo(zone)
    day = datetime(YEAR, 1, 1, tzinfo=UTC)
    while day.year == YEAR:
        if day.astimezone(there).utcoffset() != (day + timedelta(days=1)).astimezone(there).utcoffset():
            minute = day
            while minute.astimezone(there).utcoffset() == day.astimezone(there).utcoffset():
                minute += timedelta(minutes=1)
            found.append(int(minute.timestamp()) * 1_000_000)
        day += timedelta(days=1)
    return found


def _through(folder: Path, zone: str, turn: int, *, frozen: bool) -> tuple[int, int]:
    """From three hours before a transition to three hours after it, at 3,600x; or frozen for those six hours."""
    begins = turn - (4 if frozen else 3) * HOUR
    name = f"{zone.replace('/', '-')}-{turn}-{frozen}"
    jobs = [Job(name, pattern.cron) for name, pattern in PATTERNS.items()]
    setup = Setup(str(folder / f"{name}.db"), str(folder / f"{name}.witness"), jobs, begins=begins, zone=zone)
    with Process(setup) as process:
        stretch = (0, 0)
        if frozen:
            process.wait_until(turn - 3 * HOUR)
            stretch = process.freeze(6 * 3600)
            process.wait_until(turn + 4 * HOUR)
        else:
            process.wait_until(turn + 3 * HOUR)
        seen = process.now()
        last = {name: pattern.occurrences(zone, begins, seen) for name, pattern in PATTERNS.items()}
        for name, occurrences in last.items():
            if occurrences:
                process.wait_for_start(name, lambda at, due=occurrences[-1]: at >= due)  # type: ignore[misc]
        stopped_at = process.stop()
        judged = judge(setup.store, process)
    served_in_all = 0
    for name, pattern in PATTERNS.items():
        starts = judged.starts.get(name, [])
        until = max(starts[-1].at if starts else begins, seen)
        assert until <= stopped_at
        served = served_once(starts, pattern.occurrences(zone, begins, until))
        inside = {index for due, index in served.items() if stretch[0] < due <= stretch[1]}
        assert len(inside) <= 1, f"{name}: one start serves all that fell due in the freeze"
        served_in_all += len(served)
    return len(judged.report.verdicts), served_in_all


@pytest.mark.real_time
@pytest.mark.parametrize("frozen", [False, True], ids=["awake", "frozen for six hours"])
def test_both_transitions_of_a_year_in_five_zones(tmp_path: Path, frozen: bool) -> None:
    """SPEC 2.2, 2.3, 3.2: skipped minutes do not exist, repeated ones are served once, even by one start for many."""
    turns = [(zone, turn) for zone in ZONES for turn in transitions(zone)]
    assert len(turns) == 2 * len(ZONES)
    scenarios: list[Callable[[], tuple[int, int]]] = [
        partial(_through, tmp_path, zone, turn, frozen=frozen) for zone, turn in turns
    ]
    counted = side_by_side(scenarios)
    record(
        "time, daylight saving",
        processes=len(turns),
        occurrences=sum(served for _, served in counted),
        frozen_hours=6 * len(turns) if frozen else 0,
    )


@pytest.mark.real_time
def test_a_host_that_moves_between_starts_goes_on_in_the_new_zone(tmp_path: Path) -> None:
    """SPEC 2.1: HostZoneChanged is reported, and noon is the new zone's noon: Berlin, New York, Tokyo, Berlin."""
    noon, hourly = Daily((0,), (12,)), Daily((30,))
    lives = [
        ("Europe/Berlin", at("2025-06-02T09:50:00"), at("2025-06-02T10:00:00")),
        ("America/New_York", at("2025-06-02T15:50:00"), at("2025-06-02T16:00:00")),
        ("Asia/Tokyo", at("2025-06-03T02:50:00"), at("2025-06-03T03:00:00")),
        ("Asia/Tokyo", at("2025-06-04T02:50:00"), at("2025-06-04T03:00:00")),
        ("Europe/Berlin", at("2025-06-04T09:50:00"), at("2025-06-04T10:00:00")),
    ]
    store, witness = str(tmp_path / "store.db"), str(tmp_path / "witness")
    jobs = [Job("noon", noon.cron), Job("hourly", hourly.cron)]
    judged = None
    stopped_at = 0
    for zone, begins, due in lives:
        if stopped_at >= begins:
            raise NotInTimeError("a life lasted into the next one: its process came too late for its own noon")
        with Process(Setup(store, witness, jobs, begins=begins, zone=zone)) as process:
            process.wait_for_start("noon", lambda at, due=due: at >= due)  # type: ignore[misc]
            stopped_at = process.stop()
            judged = judge(store, process)
    assert judged is not None
    moves = [
        (fact[3]["oldZone"], fact[3]["newZone"])
        for fact in judged.testimony
        if fact[:2] == ["event", "HostZoneChanged"]
    ]
    zones = [zone for zone, _, _ in lives]
    assert moves == [(old, new) for old, new in pairwise(zones) if old != new]
    noons = [start.at // MINUTE * MINUTE for start in judged.starts["noon"]]
    assert len(noons) == len(lives), "once in each life: what is noon elsewhere is not owed"
    assert all(due <= minute for minute, (_, _, due) in zip(noons, lives, strict=True))
    record("time, zone changed between starts", starts=len(lives), changes=len(moves))
