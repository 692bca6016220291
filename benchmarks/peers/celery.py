"""Celery beat: ticks until every entry that is due has been handed on, without a broker.

Beat hands on one entry per tick, and each tick compares the whole schedule with the one before: that is the due
computation which is measured. All ticks cost the same, so the time for all of them follows from those of the first
`patience_s` seconds. Handing on is replaced by a count, so neither a broker nor workers are counted.
"""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab


class Beat(Scheduler):
    """Counts instead of sending."""

    handed_on = 0

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Beat's treatment of a due entry."""
        self.handed_on += 1

    @property
    def producer(self) -> None:
        """No broker."""


def measure(folder: Path, tasks: int, patience_s: float = 900) -> dict[str, float]:
    """Entries that came due a minute ago, because they last ran an hour ago."""
    app = Celery("benchmark", broker="memory://")
    app.conf.update(enable_utc=True, timezone="UTC")
    begun = time.perf_counter()
    now = app.now()
    due = now - timedelta(minutes=1)
    app.conf.beat_schedule = {
        f"task-{index}": {"task": "task", "schedule": crontab(minute=str(due.minute), hour=str(due.hour))}
        for index in range(tasks)
    }
    beat = Beat(app)
    beat.data.pop("celery.backend_cleanup", None)
    for entry in beat.schedule.values():
        entry.last_run_at = now - timedelta(hours=1)
    took = time.perf_counter() - begun
    used, ticked_at = time.process_time(), time.perf_counter()
    while beat.handed_on < tasks and time.perf_counter() - ticked_at < patience_s:
        if beat.tick() > 0:
            raise RuntimeError(f"{tasks} entries were due, {beat.handed_on} were handed on")
    watched, share = time.perf_counter() - ticked_at, tasks / beat.handed_on
    return {
        "tasks": float(tasks),
        "initialize_s": took,
        "last_start_s": watched * share,
        "cpu_until_last_start_s": (time.process_time() - used) * share,
        "started": float(beat.handed_on),
    }
