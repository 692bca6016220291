"""The load to come: a week by the hour, and its busiest minutes."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from duly.core.moments import EPOCH, MICROSECONDS, Instant, Minute, as_datetime, begin, minute_of
from duly.insight.load import ComingLoad
from duly.insight.zone_changes import LocalTime
from duly.web.display import Display
from duly.web.forms import Form
from duly.web.frame import Frame
from duly.web.load import load_from
from duly.web.pictures import Cell, day_by_minute, heat_legend, week
from duly.web.sampler import HOUR, Sample

_DAYS: Final = 7
_MINUTE: Final = 60 * MICROSECONDS
_DAY: Final = 24 * HOUR
_WEEK: Final = _DAYS * _DAY
_BUSIEST: Final = 12
_EPOCH_DAY: Final = EPOCH.date()
_QUANTILES: Final = (0.5, 0.8, 0.95)


@dataclass(frozen=True, slots=True)
class DueHour:
    """An hour: its starts, and those of its busiest minute."""

    begin: Instant
    starts: int
    peak: int


@dataclass(frozen=True, slots=True)
class Week:
    """The hours of a week, day by day, and how busy each of them is."""

    load: ComingLoad
    days: dict[date, list[Cell]]
    first_minute: Minute
    first_day: Counter[Minute]
    """The minutes of the first 24 hours in which tasks are due."""

    hours: list[DueHour]
    """These hours, one by one."""


def page(frame: Frame, form: Form) -> str:
    """Show the week that begins at a moment, by default now."""
    sample = frame.source.sample()
    clock = frame.source.clock
    if sample is None:
        display = frame.display(clock.zone(), Instant(clock.now()))
        since_text = form.text("from")
        return frame.rendered(
            "calendar.html", display, "Calendar", "Calendar", shown=None, sample=None, counting=True, since=since_text
        )
    since = form.near_moment("from", sample.zone, sample.at) or sample.at
    shown = _week(sample, -(-since // _MINUTE))
    display = frame.display(sample.zone, sample.at)
    return frame.rendered(
        "calendar.html",
        display,
        "Calendar",
        "Calendar",
        shown=shown,
        sample=sample,
        since=form.text("from"),
        begins=since,
        picture=week(shown.days),
        legend=heat_legend(shown.days),
        minutes_picture=day_by_minute(shown.first_day, shown.first_minute, sample.zone),
        earlier=_link(display, Instant(since - _WEEK)) if since - _WEEK > sample.at else None,
        later=_link(display, Instant(since + _WEEK)),
    )


def _link(display: Display, since: Instant) -> str:
    return display.link("calendar", **{"from": f"{as_datetime(since, display.zone):%Y-%m-%d}"})


def _week(sample: Sample, minute: int) -> Week:
    """The week from the beginning of a minute on, counted from the epoch."""
    since = Instant(minute * _MINUTE)
    until = Instant(since + _WEEK)
    load = load_from(sample, since, 24 * _DAYS, busiest=_BUSIEST)
    clock = LocalTime(sample.zone, since, until)
    starts: Counter[int] = Counter()
    peaks: Counter[int] = Counter()
    for due, tasks in load.minutes.items():
        hour = clock.shown(begin(due)) // 3600
        starts[hour] += tasks
        if tasks > peaks[hour]:
            peaks[hour] = tasks
    # By the busiest minute of an hour, and by its rank among all hours: an even load stays pale.
    ordered = sorted(peaks.values())
    bounds = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in _QUANTILES] if ordered else []
    first, last = clock.shown(since) // 86_400, clock.shown(until) // 86_400
    days = {
        _EPOCH_DAY + timedelta(days=day): [
            Cell(starts[hour], peaks[hour], 1 + bisect_left(bounds, peaks[hour]))
            for hour in range(24 * day, 24 * day + 24)
        ]
        for day in range(first, last + 1)
    }
    first_minute = minute_of(since, sample.zone)
    first_day = Counter({due: tasks for due, tasks in load.minutes.items() if begin(due) < since + _DAY})
    return Week(load, days, first_minute, first_day, _hours(first_day, since))


def _hours(minutes: Counter[Minute], since: Instant) -> list[DueHour]:
    due: list[list[int]] = [[] for _ in range(24)]
    for minute, tasks in minutes.items():
        due[(begin(minute) - since) // HOUR].append(tasks)
    return [
        DueHour(Instant(since + number * HOUR), sum(tasks), max(tasks, default=0)) for number, tasks in enumerate(due)
    ]
