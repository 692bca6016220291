"""The wall clock stepped under a running process, by a second up to a year, in a clock seam and by libfaketime."""

import time
from functools import partial
from pathlib import Path

import pytest

from tests.compute import NotInTimeError
from tests.conftest import require
from tests.system.record import record
from tests.system.time_judging import HOUR, MINUTE, Daily, Judgement, at, judge, side_by_side
from tests.system.time_program import PATIENCE_SECONDS, Job, Process, Setup

NOON = at("2025-06-02T12:00:00")
TENS = Daily((0, 10, 20, 30, 40, 50))
MINUTES = Daily(tuple(range(60)))
SMALL_BACK_MAX = 3 * 3600
YEAR = 365 * 24 * 3600
BORDERLINE = 3 * 3600 + 60
"""A step is noticed at the next minute's boundary, when the clock has come nearer to the mark again by up to a minute
and the mark was up to a minute old: whether it is then still more than three hours ahead, only the trace can tell."""

STEPS = [59 * 60, 2 * 3600 + 59 * 60, BORDERLINE, 4 * 3600, 5 * 24 * 3600, YEAR]


def _setup(folder: Path, name: str, jobs: list[Job], *, factor: int = 3600) -> Setup:
    store, witness = str(folder / f"{name}.db"), str(folder / f"{name}.witness")
    return Setup(store, witness, jobs, begins=NOON, factor=factor, zone="Europe/Berlin")


def _stepped(folder: Path, seconds: int) -> Judgement:
    """Some hours, a step, some hours: what must happen, and what must not, as far as the size of the step says."""
    # The mark is the minute of the last start: where a minute decides, the task is due every minute.
    pattern = MINUTES if abs(seconds) <= 4 * 3600 else TENS
    jobs = [Job("cron", pattern.cron), Job("failing", "0 * * * *", "failing", delay_seconds=7 * 60)]
    setup = _setup(folder, f"step{seconds:+}", jobs)
    with Process(setup) as process:
        process.wait_until(NOON + HOUR + 30 * MINUTE)
        process.wait_for_start("failing", lambda at: at > NOON + HOUR)
        process.wait_for_start("cron", lambda at: at > NOON + HOUR)
        before = len(process.trace())
        after_step = process.step(seconds)
        old = after_step - seconds * 1_000_000
        noticed = process.wait_for_step(seconds, after=before)
        if seconds > 0:
            # What was jumped over is missed, and served once; the judge and the next assertion see to that.
            process.wait_for_start("cron", lambda at: at >= after_step, after=noticed)
        elif seconds == -BORDERLINE:
            process.wait_for_start("cron", lambda at: at >= after_step, after=noticed, count=3)
        elif -seconds <= SMALL_BACK_MAX:
            # Silent until the clock passes the mark, then on again.
            process.wait_for_start("cron", lambda at: at > old, after=noticed)
        else:
            # Set right: both go on, on a clock that shows a time long before their marks.
            for name in ("cron", "failing"):
                fits = partial(_is_between, after_step, old)
                process.wait_for_start(name, fits, after=noticed, count=3, until=old + HOUR)
        process.stop()
        judged = judge(setup.store, process)
    assert ["event", "ClockJumped"] in [fact[:2] for fact in judged.testimony], (
        "it is in the trace, and was not reported"
    )
    _assert_marks(judged, pattern, seconds, old, after_step)
    return judged


def _is_between(first: int, last: int, at: int) -> bool:
    return first <= at < last


def _assert_marks(judged: Judgement, pattern: Daily, seconds: int, old: int, after_step: int) -> None:
    """No minute is served twice; only a mark more than three hours ahead may be lowered, once (SPEC 2.5)."""
    mark = 0
    lowered = False
    grain = (60 // len(pattern.minutes)) * MINUTE  # Berlin lies whole hours from UTC
    for start in judged.starts["cron"]:
        due = start.at // grain * grain
        if due <= mark:
            assert not lowered, "a mark is lowered once"
            assert -seconds > SMALL_BACK_MAX, f"{start} serves a minute that was served before"
            assert after_step <= start.at < old
            lowered = True
        mark = start.at // MINUTE * MINUTE
    if seconds != -BORDERLINE:
        assert lowered == (-seconds > SMALL_BACK_MAX)
    if seconds > 0:
        assert not [start for start in judged.starts["cron"] if old + MINUTE < start.at < after_step]


@pytest.mark.real_time
def test_steps_from_an_hour_to_a_year_forward_and_back(tmp_path: Path) -> None:
    """SPEC 2.5: 59 min, 2 h 59, 3 h 01, 4 h, 5 days, 1 year, each way, in a process each, at 3,600x."""
    steps = [sign * seconds for seconds in STEPS for sign in (1, -1)]
    judged = side_by_side([partial(_stepped, tmp_path, seconds) for seconds in steps])
    record("time, clock steps", steps=len(steps), starts=sum(len(each.starts["cron"]) for each in judged))


def _jittering(folder: Path, seconds: int) -> int:
    """The clock is stepped by a second at each of the first twenty starts: a time server that cannot decide."""
    jobs = [Job("minutely", MINUTES.cron, step_seconds=seconds, steps=20), Job("other", MINUTES.cron)]
    setup = _setup(folder, f"jitter{seconds:+}", jobs, factor=120)
    with Process(setup) as process:
        process.wait_for_start("minutely", lambda _: True, count=22)
        process.stop()
        judged = judge(setup.store, process)
    for name in ("minutely", "other"):
        minutes = [start.at // MINUTE for start in judged.starts[name]]
        assert minutes == sorted(set(minutes)), "a second back does not serve a minute twice, nor one forward"
    assert sum(fact[0] == "step" for fact in judged.testimony) == 20
    return len(judged.starts["minutely"])


@pytest.mark.real_time
def test_a_second_back_or_forward_at_the_boundary_serves_no_minute_twice(tmp_path: Path) -> None:
    """SPEC 2.5: twenty steps of -1 s and of +1 s, each right after the start that a minute's boundary caused."""
    starts = side_by_side([partial(_jittering, tmp_path, seconds) for seconds in (1, -1)])
    assert all(count >= 20 for count in starts)
    record("time, clock steps", steps=40, starts=sum(starts))


@pytest.mark.real_time
def test_a_step_of_the_real_wall_clock_under_the_system_clock(tmp_path: Path) -> None:
    """SPEC 2.5 with libfaketime, under duly's own clock: two hours back are silent, four forward are served once."""
    require("faketime", "apt-get install faketime")
    library = next(Path("/usr/lib").rglob("libfaketimeMT.so.1"))
    wall = tmp_path / "wall"
    wall.write_text("@2025-06-02 11:59:54\n")
    setup = Setup(str(tmp_path / "store.db"), str(tmp_path / "witness"), [Job("minutely", MINUTES.cron)], factor=0)
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(wall),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    with Process(setup, extra=environment) as process:
        # The first start serves 11:59. A few seconds later the loop wakes for noon, and the clock says otherwise.
        process.wait_for_start("minutely", lambda _: True)
        wall.write_text("@2025-06-02 09:59:54\n")
        _wait_for_jump(process, count=1)
        wall.write_text("@2025-06-02 13:59:54\n")
        process.wait_for_start("minutely", lambda instant: instant >= at("2025-06-02T13:59:00"))
        process.stop()
        judged = judge(setup.store, process)
        back = next(row[1] for row in process.trace() if row[0] == "CK" and row[2] < row[3])
    first, *others = judged.starts["minutely"]
    if first.at >= NOON or any(start.seq < back for start in others):
        raise NotInTimeError("noon had come before the clock was set back")
    assert first.at // MINUTE * MINUTE == at("2025-06-02T11:59:00")
    assert all(start.at >= at("2025-06-02T13:59:00") for start in others), "silent while the clock was back"
    record("time, clock steps", steps=2, starts=1 + len(others))


def _wait_for_jump(process: Process, *, count: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while sum(fact[:2] == ["event", "ClockJumped"] for fact in process.testimony()) < count:
        if time.monotonic() > until:
            raise NotInTimeError("the step was not noticed within a minute (SPEC 2.4)")
        time.sleep(0.05)
