"""Frozen by SIGSTOP for minutes and hours of its own time, with runs in flight and time limits (SPEC 3.2, 3.10)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.compute import NotInTimeError
from tests.system.record import record
from tests.system.time_judging import HOUR, MINUTE, Daily, at, judge, served_once, side_by_side
from tests.system.time_program import Job, Process, Setup

NOON = at("2025-06-02T12:00:00")
EVERY_MINUTE = Daily(tuple(range(60)))
TENS = Daily((0, 10, 20, 30, 40, 50))


def _setup(folder: Path, name: str, **options: object) -> Setup:
    defaults: dict[str, object] = {"store": str(folder / f"{name}.db"), "witness": str(folder / f"{name}.witness")}
    return Setup(**{**defaults, **options})  # type: ignore[arg-type]


def _frozen_between_runs(folder: Path, factor: int, seconds: float) -> int:
    """Nothing under way at the freeze: what fell due in it is served by one start."""
    pattern = EVERY_MINUTE if factor == 60 else TENS
    setup = _setup(folder, f"idle-{factor}-{seconds}", begins=NOON, factor=factor, jobs=[Job("quick", pattern.cron)])
    with Process(setup) as process:
        process.wait_for_start("quick", lambda at: at >= NOON)
        first, last = process.freeze(seconds)
        last_due = pattern.occurrences("UTC", NOON, last)[-1]
        process.wait_for_start("quick", lambda at: at >= last_due)
        process.stop()
        judged = judge(setup.store, process)
    starts = judged.starts["quick"]
    served = served_once(starts, pattern.occurrences("UTC", NOON, starts[-1].at))
    inside = {index for due, index in served.items() if first < due <= last}
    assert len(inside) == 1, "one start serves all that fell due in the freeze"
    return sum(first < due <= last for due in served)


def _frozen_in_runs(folder: Path, factor: int, seconds: float, limit: float) -> int:
    """A coroutine, a thread and a failing task under way at the freeze, which outlasts the time limit."""
    jobs = [
        Job("slow", EVERY_MINUTE.cron, "slow", seconds=seconds + limit),
        Job("blocking", EVERY_MINUTE.cron, "blocking", seconds=seconds + limit),
        Job("failing", EVERY_MINUTE.cron, "failing", delay_seconds=90),
        Job("idle", "0 0 1 1 *"),
    ]
    setup = _setup(folder, f"runs-{factor}-{seconds}", begins=NOON, factor=factor, jobs=jobs, run_timeout_seconds=limit)
    with Process(setup) as process:
        for name in ("slow", "blocking", "failing"):
            process.wait_for_begin(name)
        first, last = process.freeze(seconds)
        for name in ("slow", "blocking", "failing"):
            process.wait_for_start(name, lambda at: at > last)
        process.stop()
        judged = judge(setup.store, process)
    if judged.ends["slow"][0].at < first:
        raise NotInTimeError("the time of the run was up before the process was frozen")
    outcomes = {(fact[1], fact[2]): fact[4] for fact in judged.testimony if fact[0] == "end"}
    assert outcomes["slow", 1] == "cancelled", "its time was up while it was frozen"
    assert not judged.ends["slow"][0].ok
    assert outcomes["blocking", 1] == "returned", "a thread cannot be cancelled ..."
    assert not judged.ends["blocking"][0].ok, "... and has failed all the same (SPEC 3.10)"
    assert "idle" not in judged.starts
    return sum(map(len, judged.starts.values()))


@pytest.mark.real_time
def test_what_falls_due_in_a_freeze_is_served_once_and_time_limits_hold(tmp_path: Path) -> None:
    """SPEC 2.4, 3.2, 3.3, 3.10: SIGSTOP for 2 to 5 minutes at 60x, for 1 to 6 hours at 3,600x; nothing overlaps."""
    idle = [(60, 120), (60, 300), (3600, 3600), (3600, 3 * 3600), (3600, 6 * 3600)]
    runs = [(60, 150, 60), (60, 300, 120), (3600, 2 * 3600, 1800), (3600, 6 * 3600, 3600)]
    scenarios: list[Callable[[], int]] = [
        *(partial(_frozen_between_runs, tmp_path, factor, seconds) for factor, seconds in idle),
        *(partial(_frozen_in_runs, tmp_path, factor, seconds, limit) for factor, seconds, limit in runs),
    ]
    counted = side_by_side(scenarios)
    assert all(counted)
    record("time, SIGSTOP", processes=len(scenarios), longest_clock_hours=6, missed_minutes_or_runs=sum(counted))


@pytest.mark.real_time
def test_freezes_in_quick_succession_at_chance_moments(tmp_path: Path) -> None:
    """SPEC 2.4, 3.2: twelve freezes of 1 to 90 minutes in one life; every stretch is served once."""
    setup = _setup(tmp_path, "often", begins=NOON, jobs=[Job("tens", TENS.cron), Job("slow", TENS.cron, "slow", 900)])
    lengths = [60 * (1 + 37 * number % 90) for number in range(12)]
    with Process(setup) as process:
        frozen = []
        for number, seconds in enumerate(lengths):
            process.wait_until(process.now() + (3 + 7 * number % 25) * MINUTE)
            frozen.append(process.freeze(seconds))
        end = process.now() // HOUR * HOUR
        process.wait_for_start("tens", lambda at: at > end)
        process.stop()
        judged = judge(setup.store, process)
    starts = judged.starts["tens"]
    served = served_once(starts, TENS.occurrences("UTC", NOON, starts[-1].at))
    for first, last in frozen:
        assert len({index for due, index in served.items() if first < due <= last}) <= 1
    record("time, SIGSTOP", processes=1, freezes=len(frozen), longest_clock_hours=1.5)
