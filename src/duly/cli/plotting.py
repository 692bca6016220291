"""A simulation as a picture: who starts when, and how many callbacks are under way; needs the extra `duly[plot]`."""

import stat
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from duly.cli.output import fail, reason_of
from duly.cli.simulation import Outcome
from duly.core.moments import zone_name
from duly.stores.sqlite.file import kind

FORMATS: Final = (".svg", ".png", ".pdf")
_COLOURS: Final = {"success": "#2a9d5c", "failure": "#d1495b", "interrupted": "#8e5bb5", "running": "#808080"}
_NAMED_TASKS_MAX: Final = 60


def check_plotting(file: Path) -> None:
    """Before an hour of simulation: can the picture be drawn, and written?"""
    if file.suffix.lower() not in FORMATS:
        fail(f"--plot: {file} ends neither in .svg nor in .png", "the ending chooses the format")
    folder = file.absolute().parent
    try:
        found = kind(folder)
    except OSError as fault:
        fail(f"--plot: the folder {folder} cannot be looked at: {reason_of(fault)}")
    if found != stat.S_IFDIR:
        fail(f"--plot: the folder {folder} does not exist")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        fail("--plot needs the package matplotlib", 'pip install "duly[plot]"')


def draw(outcome: Outcome, file: Path) -> None:
    """Draw the timeline of starts above, the load per minute below."""
    from matplotlib import dates
    from matplotlib.figure import Figure

    scenario = outcome.scenario
    rows = max(1, len(scenario.registrations))
    figure = Figure(figsize=(14, min(30.0, 3.5 + 0.25 * rows)), layout="constrained")
    # Datetimes are units that matplotlib converts, and its annotations do not know.
    timeline: Any
    load: Any
    timeline, load = figure.subplots(2, 1, sharex=True, height_ratios=[max(2.0, 0.2 * rows), 1.2])
    _draw_timeline(timeline, outcome)
    _draw_load(load, outcome)
    untyped: Any = dates
    locator = untyped.AutoDateLocator(tz=scenario.zone)
    load.xaxis.set_major_locator(locator)
    load.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator, tz=scenario.zone))
    load.set_xlim(scenario.begin, scenario.end)
    load.set_xlabel(zone_name(scenario.zone))
    try:
        figure.savefig(file)
    except OSError as fault:
        fail(f"--plot: {file} cannot be written: {reason_of(fault)}")


def _draw_timeline(axes: Any, outcome: Outcome) -> None:
    places = {each.name: row for row, each in enumerate(outcome.scenario.registrations)}
    by_outcome: dict[str, list[Any]] = defaultdict(list)
    for run in outcome.runs:
        by_outcome[run.outcome].append((run.at, places[run.task]))
    size = 18 if len(outcome.runs) < 5_000 else 3
    for name, colour in _COLOURS.items():
        if points := by_outcome.get(name):
            axes.scatter(*zip(*points, strict=True), s=size, color=colour, label=name, marker="|", linewidths=1.2)
    _shade(axes, outcome)
    if 0 < len(places) <= _NAMED_TASKS_MAX:
        axes.set_yticks(range(len(places)), list(places))
    else:
        axes.set_ylabel(f"{len(places)} tasks")
    axes.set_ylim(len(places) - 0.5, -0.5)  # the first declared is at the top
    axes.set_title(f"{len(outcome.runs)} starts")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.grid(axis="x", alpha=0.3)


def _draw_load(axes: Any, outcome: Outcome) -> None:
    minutes, starts, under_way = load_per_minute(outcome)
    if any(under_way):
        axes.vlines(minutes, 0, under_way, color="#e0a030", linewidth=2.0, label="callbacks under way, at most")
    axes.vlines(minutes, 0, starts, color="#2f6690", linewidth=0.8, label="starts")
    _shade(axes, outcome)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("per minute")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.grid(axis="x", alpha=0.3)


def _shade(axes: Any, outcome: Outcome) -> None:
    for begin, end in outcome.scenario.down:
        axes.axvspan(begin, end, color="#000000", alpha=0.08)
    for crash in outcome.scenario.crashes:
        axes.axvline(crash, color="#8e5bb5", linewidth=0.8, linestyle="--")


def load_per_minute(outcome: Outcome) -> tuple[list[datetime], list[int], list[int]]:
    """Minutes in which anything starts or ends, how many starts each has, and the most callbacks under way in it."""
    changes: list[tuple[datetime, int]] = []
    starts: dict[datetime, int] = defaultdict(int)
    for run in outcome.runs:
        starts[_minute(run.at)] += 1
        if run.duration:
            changes += [(run.at, 1), (run.at + timedelta(seconds=run.duration), -1)]
    changes.sort()
    now_under_way, most = 0, dict[datetime, int]()
    for when, change in changes:
        minute = _minute(when)
        most[minute] = max(most.get(minute, now_under_way), now_under_way + change)
        now_under_way += change
    minutes = sorted(starts.keys() | most.keys())
    return minutes, [starts.get(minute, 0) for minute in minutes], [most.get(minute, 0) for minute in minutes]


def _minute(when: datetime) -> datetime:
    return when.replace(second=0, microsecond=0)
