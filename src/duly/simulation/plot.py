"""A simulation as a picture: which task starts when, and how many callbacks are under way.

Needs matplotlib, which the extra `duly[plot]` installs.
"""

from collections import defaultdict
from datetime import tzinfo
from typing import Any, BinaryIO, Final, NamedTuple

from duly.core.moments import MICROSECONDS, Instant, as_datetime
from duly.simulation.result import Simulation

FORMATS: Final = (".svg", ".png", ".pdf")
_COLOURS: Final = {"success": "#2a9d5c", "failure": "#d1495b", "interrupted": "#8e5bb5", "running": "#808080"}
_NAMED_TASKS_MAX: Final = 60


def draw(simulation: Simulation, zone: tzinfo, file: BinaryIO, ending: str) -> None:
    """Draw the timeline of starts above, the load per minute below; the ending, such as `.svg`, chooses the format."""
    from matplotlib import dates
    from matplotlib.figure import Figure

    rows = max(1, len(simulation.tasks))
    figure = Figure(figsize=(14, min(30.0, 3.5 + 0.25 * rows)), layout="constrained")
    # Datetimes are units that matplotlib converts, and its annotations do not know.
    timeline: Any
    load: Any
    timeline, load = figure.subplots(2, 1, sharex=True, height_ratios=[max(2.0, 0.2 * rows), 1.2])
    _draw_timeline(timeline, simulation, zone)
    _draw_load(load, simulation, zone)
    untyped: Any = dates
    locator = untyped.AutoDateLocator(tz=zone)
    load.xaxis.set_major_locator(locator)
    load.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator, tz=zone))
    load.set_xlim(as_datetime(simulation.from_, zone), as_datetime(simulation.to, zone))
    load.set_xlabel(simulation.zone)
    figure.savefig(file, format=ending.removeprefix("."))


def _draw_timeline(axes: Any, simulation: Simulation, zone: tzinfo) -> None:
    places = {each.task: row for row, each in enumerate(simulation.tasks)}
    by_outcome: dict[str, list[Any]] = defaultdict(list)
    for start in simulation.starts:
        by_outcome[start.outcome].append((as_datetime(start.at, zone), places[start.task]))
    size = 18 if len(simulation.starts) < 5_000 else 3
    for name, colour in _COLOURS.items():
        if points := by_outcome.get(name):
            axes.scatter(*zip(*points, strict=True), s=size, color=colour, label=name, marker="|", linewidths=1.2)
    _shade(axes, simulation, zone)
    if 0 < len(places) <= _NAMED_TASKS_MAX:
        axes.set_yticks(range(len(places)), list(places))
    else:
        axes.set_ylabel(f"{len(places)} tasks")
    axes.set_ylim(len(places) - 0.5, -0.5)  # the first declared is at the top
    axes.set_title(f"{len(simulation.starts)} starts")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.grid(axis="x", alpha=0.3)


def _draw_load(axes: Any, simulation: Simulation, zone: tzinfo) -> None:
    load = load_per_minute(simulation)
    minutes = [as_datetime(each.minute, zone) for each in load]
    if any(each.under_way for each in load):
        under_way = [each.under_way for each in load]
        axes.vlines(minutes, 0, under_way, color="#e0a030", linewidth=2.0, label="callbacks under way, at most")
    axes.vlines(minutes, 0, [each.starts for each in load], color="#2f6690", linewidth=0.8, label="starts")
    _shade(axes, simulation, zone)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("per minute")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.grid(axis="x", alpha=0.3)


def _shade(axes: Any, simulation: Simulation, zone: tzinfo) -> None:
    for downtime in simulation.down:
        axes.axvspan(as_datetime(downtime.from_, zone), as_datetime(downtime.to, zone), color="#000000", alpha=0.08)
    for crash in simulation.crashes:
        axes.axvline(as_datetime(crash, zone), color="#8e5bb5", linewidth=0.8, linestyle="--")


class Load(NamedTuple):
    """The events of one minute."""

    minute: Instant
    starts: int
    under_way: int
    """The most callbacks under way at once."""


def load_per_minute(simulation: Simulation) -> list[Load]:
    """The minutes in which anything starts or ends, in order."""
    changes: list[tuple[Instant, int]] = []
    starts: dict[Instant, int] = defaultdict(int)
    for start in simulation.starts:
        starts[_minute(start.at)] += 1
        if start.duration_ms:
            changes += [(start.at, 1), (Instant(start.at + start.duration_ms * 1000), -1)]
    changes.sort()
    under_way, most = 0, dict[Instant, int]()
    for when, change in changes:
        minute = _minute(when)
        most[minute] = max(most.get(minute, under_way), under_way + change)
        under_way += change
    return [Load(minute, starts.get(minute, 0), most.get(minute, 0)) for minute in sorted(starts.keys() | most.keys())]


def _minute(instant: Instant) -> Instant:
    return Instant(instant - instant % (60 * MICROSECONDS))
