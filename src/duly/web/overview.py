"""The overview: whether all is well, how many tasks are in which state, what fails, what runs, what comes."""

from collections import Counter
from typing import Any, Final

from duly.core.moments import Instant, Minute, begin, minute_of
from duly.insight.cluster import HostStatus
from duly.insight.health import Health
from duly.insight.words import counted, listed
from duly.web.display import Display
from duly.web.forms import Form
from duly.web.frame import Frame
from duly.web.pictures import OUTCOMES, Hour, runs_by_hour, starts_by_minute
from duly.web.sampler import HOUR, HOURS, STALE, Sample

_MINUTES: Final = 60
_ON_RECORD: Final = ("living", "silent")
_HOSTS_SHOWN: Final = 50


def page(frame: Frame, form: Form) -> str:
    """Show the latest sample; before there is one, say that counting goes on."""
    sample = frame.source.sample()
    now = frame.source.now()
    if sample is None:
        display = frame.display(frame.source.clock.zone(), now)
        return frame.rendered(
            "overview.html", display, "Overview", "Overview", sample=None, counting=True, **_nothing()
        )
    display = frame.display(sample.zone, now).knowing(sample.long_names)
    hours = _hours(sample)
    health = frame.source.health(sample)
    hosts = _hosts(health)
    first = minute_of(sample.at, sample.zone)
    first = Minute(first if begin(first) == sample.at else first + 60)
    minutes = [Minute(first + 60 * place) for place in range(_MINUTES)]
    return frame.rendered(
        "overview.html",
        display,
        "Overview",
        "Overview",
        sample=sample,
        health=health,
        holder=held_by(health, display),
        as_of=sample.at if now - sample.at > STALE else None,
        tiles=_tiles(sample),
        hosts=hosts[:_HOSTS_SHOWN],
        hosts_more=len(hosts[_HOSTS_SHOWN:]),
        gone=_gone(health),
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
        "hosts": (),
        "hosts_more": 0,
        "gone": "",
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
        (sample.health.tasks, "task" if sample.health.tasks == 1 else "tasks", "", "waiting"),
        (counts["running"], "running", "running", "running"),
        (counts["owed"], "owed", "owed", "owed"),
        (tally.failing, "failing", "failing", "failure"),
        (counts["retrying"], "waiting for a retry", "retrying", "owed"),
        (tally.never_ran, "never ran", "never", "waiting"),
    ]
    if counts["interrupted"]:
        # They are owed a start, too (SPEC 8); `status` gives them a state of their own, and so does the list.
        tiles[2] = (counts["owed"], "owed, not interrupted", "owed", "owed")
        tiles[3:3] = [(counts["interrupted"], "interrupted", "interrupted", "interrupted")]
    return tiles


def _hosts(health: Health) -> list[HostStatus]:
    """The hosts of a shared store that have not left."""
    cluster = health.cluster
    return [] if cluster is None else [host for host in cluster.hosts if host.state in _ON_RECORD]


def _gone(health: Health) -> str:
    """How many hosts went within the last hour, and how."""
    cluster = health.cluster
    found = Counter(() if cluster is None else (host.state for host in cluster.hosts if host.state not in _ON_RECORD))
    return listed([f"{number:,} {state}" for state, number in sorted(found.items())]) if found else ""


def _hours(sample: Sample) -> list[Hour]:
    begins = sample.history_begins
    hours = []
    for place in range(HOURS):
        hour_begin = Instant(sample.hours_begin + place * HOUR)
        runs = {outcome: count for (number, outcome), count in sample.hours.items() if number == place}
        known = begins is not None and begins < hour_begin + HOUR
        hours.append(Hour(hour_begin, runs, known))
    return hours


def held_by(health: Health, display: Display) -> str:
    """Which scheduler holds the store, or how many hosts share it, in words."""
    holder = health.holder
    if (cluster := health.cluster) is not None:
        living = sum(host.state == "living" for host in cluster.hosts)
        last = "" if holder.last_poll_at is None else f", last beat {display.ago(holder.last_poll_at)} ago"
        return f"{counted(living, 'living host') if living else 'no living host'}{last}"
    if holder.alive:
        held = f"held by process {holder.pid or '?'} on {holder.host or '?'}"
    elif holder.pid is not None:
        held = f"held by no scheduler; process {holder.pid} ended without stopping"
    else:
        held = "held by no scheduler"
    if holder.last_poll_at is not None:
        held += f", last poll {display.ago(holder.last_poll_at)} ago"
    return held
