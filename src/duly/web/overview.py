"""The overview: whether all is well, how many tasks are in which state, what fails, what runs, what comes."""

from typing import Any

from duly.core.moments import Instant, Minute, begin, minute_of
from duly.web.display import Display
from duly.web.forms import Form
from duly.web.frame import Frame
from duly.web.pictures import OUTCOMES, Hour, runs_by_hour, starts_by_minute
from duly.web.sampler import HOUR, HOURS, Sample

_STALE = 5_000_000
"""Microseconds after which a page says of which moment its numbers are."""

_MINUTES = 60


def page(frame: Frame, form: Form) -> str:
    """Show the latest sample; before there is one, say that counting goes on."""
    sample = frame.source.sample()
    clock = frame.source.clock
    now = Instant(clock.now())
    if sample is None:
        display = frame.display(clock.zone(), now)
        return frame.rendered("overview.html", display, "Overview", "Overview", sample=None, **_nothing())
    display = frame.display(sample.zone, now)
    hours = _hours(sample)
    first = minute_of(sample.at, sample.zone)
    first = Minute(first if begin(first) == sample.at else first + 60)
    minutes = [Minute(first + 60 * place) for place in range(_MINUTES)]
    return frame.rendered(
        "overview.html",
        display,
        "Overview",
        "Overview",
        sample=sample,
        health=sample.health,
        holder=held_by(sample, display),
        as_of=sample.at if now - sample.at > _STALE else None,
        tiles=_tiles(sample),
        hours=hours,
        outcomes=OUTCOMES,
        hours_picture=runs_by_hour(hours, sample.zone),
        minutes=[(begin(each), sample.next_hour.minutes.get(each, 0)) for each in minutes],
        minutes_picture=starts_by_minute(sample.next_hour.minutes, first, _MINUTES, sample.zone),
    )


def _nothing() -> dict[str, Any]:
    labels = ("tasks", "running", "owed", "failing", "waiting for a retry", "never ran")
    return {
        "health": None,
        "holder": None,
        "as_of": None,
        "tiles": [(None, label, "", "waiting") for label in labels],
        "hours": (),
        "outcomes": OUTCOMES,
        "hours_picture": None,
        "minutes": (),
        "minutes_picture": None,
    }


def _tiles(sample: Sample) -> list[tuple[int, str, str, str]]:
    """Number, label, state that the list is filtered by, and the colour where the number is not 0."""
    counts, tally = sample.health.counts, sample.tally
    tiles = [
        (sample.health.tasks, "tasks", "", "waiting"),
        (counts["running"], "running", "running", "running"),
        (counts["owed"], "owed", "owed", "owed"),
        (tally.failing, "failing", "failing", "failure"),
        (counts["retrying"], "waiting for a retry", "retrying", "owed"),
        (tally.never_ran, "never ran", "never", "waiting"),
    ]
    if counts["interrupted"]:
        tiles[3:3] = [(counts["interrupted"], "interrupted", "interrupted", "interrupted")]
    return tiles


def _hours(sample: Sample) -> list[Hour]:
    begins = sample.history_begins
    hours = []
    for place in range(HOURS):
        hour_begin = Instant(sample.hours_begin + place * HOUR)
        runs = {outcome: count for (number, outcome), count in sample.hours.items() if number == place}
        known = begins is not None and begins < hour_begin + HOUR
        hours.append(Hour(hour_begin, runs, known))
    return hours


def held_by(sample: Sample, display: Display) -> str:
    """Which scheduler holds the store, in words."""
    holder = sample.health.holder
    if holder.alive:
        held = f"held by process {holder.pid or '?'} on {holder.host or '?'}"
    elif holder.pid is not None:
        held = f"held by no scheduler; process {holder.pid} ended without stopping"
    else:
        held = "held by no scheduler"
    if holder.last_poll_at is not None:
        held += f", last poll {display.ago(holder.last_poll_at)} ago"
    return held
