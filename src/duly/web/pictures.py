"""Pictures, as SVG made on the server: runs by hour, starts to come, the days of a task, durations.

No styles inside, because the content security policy allows none: classes of duly.css give the colours. Each picture is
one image to assistive technology, with a sentence that has its numbers, and each page has a table with what it shows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

from markupsafe import Markup, escape

from duly.core.moments import Instant, Minute, as_datetime, begin, instant_of
from duly.insight.words import counted, stretch
from duly.insight.zone_changes import ZoneChange

OUTCOMES: Final = ("success", "failure", "interrupted", "running")
DAYS: Final = 14
_HATCH: Final = (
    '<defs><pattern id="hatch-{0}" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="hatch" d="M0 0V6"/></pattern></defs>'
)
_DAY: Final = timedelta(days=1)


def _picture(width: float, height: float, label: str, parts: Iterable[str], kind: str = "") -> Markup:
    """An image of some size; the parts are markup already."""
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _bar(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="f-{kind}" x="{x:g}" y="{y:.1f}" width="{width:g}" height="{height:.1f}"/>'


# --- runs by hour ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hour:
    """The runs of one hour, by outcome."""

    begin: Instant
    runs: Mapping[str, int]
    known: bool
    """False: history does not reach back to this hour."""

    @property
    def total(self) -> int:
        """All runs that started in the hour."""
        return sum(self.runs.values())


def runs_by_hour(hours: Sequence[Hour], zone: tzinfo) -> Markup:
    """Stacked bars, one for each hour; hours before history begins are hatched, because nothing is known of them."""
    width, height, step = 560.0, 132.0, 560 / len(hours)
    most = max((hour.total for hour in hours), default=0) or 1
    parts = [_HATCH.format("hours")]
    for place, hour in enumerate(hours):
        x, y = place * step + 1, height - 20
        if not hour.known:
            parts.append(f'<rect fill="url(#hatch-hours)" x="{x:g}" y="14" width="{step - 3:g}" height="{y - 14:g}"/>')
            continue
        for outcome in OUTCOMES:
            if runs := hour.runs.get(outcome, 0):
                # A failure among thousands of runs must not be too thin to be seen.
                size = max(runs / most * (height - 36), 0.5 if outcome in {"success", "running"} else 2.5)
                y -= size
                parts.append(_bar(outcome, x, y, step - 3, size))
        if as_datetime(hour.begin, zone).hour % 4 == 0:
            label_x = min(x + step / 2 - 1, width - 16)
            parts.append(_text(label_x, height - 4, f"{as_datetime(hour.begin, zone):%H:%M}"))
    parts.append(f'<path class="ax" d="M0 {height - 19.5}H{width:g}"/>')
    parts.append(_text(0, 9, f"at most {most:,} an hour", "start"))
    total = Counter[str]()
    for hour in hours:
        total.update(hour.runs)
    said = ", ".join(f"{total[outcome]:,} {outcome}" for outcome in OUTCOMES if total[outcome]) or "no runs"
    return _picture(width, height, f"Runs of the last {len(hours)} hours: {said}.", parts)


# --- starts to come --------------------------------------------------------------------------------------------------


def starts_by_minute(minutes: Mapping[Minute, int], first: Minute, count: int, zone: tzinfo) -> Markup:
    """A bar for each minute to come."""
    width, height, step = 560.0, 132.0, 560 / count
    most = max(minutes.values(), default=0)
    parts = []
    for place in range(count):
        minute = Minute(first + 60 * place)
        x = place * step
        if starts := minutes.get(minute, 0):
            size = max(starts / most * (height - 36), 1)
            parts.append(_bar("running", x, height - 20 - size, step - 1.5, size))
        when = as_datetime(begin(minute), zone)
        if when.minute % 15 == 0:
            parts.append(_text(min(max(x + step / 2, 16), width - 16), height - 4, f"{when:%H:%M}"))
    parts.append(f'<path class="ax" d="M0 {height - 19.5}H{width:g}"/>')
    if most:
        parts.append(_text(0, 9, f"at most {most:,} a minute", "start"))
    total = counted(sum(minutes.values()), "start")
    label = f"{total} in the next {count} minutes, at most {most:,} in one minute." if most else "No starts to come."
    return _picture(width, height, label, parts)


# --- durations -------------------------------------------------------------------------------------------------------


def durations(runs: Sequence[tuple[str, float]], median_ms: float) -> Markup:
    """A bar for each run, given with its outcome and its milliseconds; a line at the median."""
    width, height = 640.0, 128.0
    step = min(width / max(len(runs), 1), 24)
    longest = max((took for _, took in runs), default=0) or 1
    parts = []
    for place, (outcome, took) in enumerate(runs):
        size = max(took / longest * (height - 28), 1)
        parts.append(_bar(outcome, place * step, height - size - 2, max(step - 1.5, 1), size))
    y = height - 2 - median_ms / longest * (height - 28)
    parts.append(f'<path class="guide" d="M0 {y:.1f}H{width:g}"/>')
    parts.append(_text(width, 9, f"median {stretch(median_ms / 1000)}", "end"))
    failed = sum(outcome != "success" for outcome, _ in runs)
    label = f"How long the last {counted(len(runs), 'run')} took: median {stretch(median_ms / 1000)}, "
    label += f"longest {stretch(longest / 1000)}, {failed:,} without success."
    return _picture(width, height, label, parts)


# --- the days of a task ----------------------------------------------------------------------------------------------

_LEFT: Final = 78.0
_WIDTH: Final = 1080.0
_ROW: Final = 15.0
_PITCH: Final = 20.0
_THINNEST: Final = 1.2


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in the picture of days: a run, a time without a scheduler, or one before history."""

    kind: str
    begin: Instant
    end: Instant


class Days:
    """A row for each of the last days, from 00 to 24 by the wall clock."""

    def __init__(self, at: Instant, zone: tzinfo) -> None:
        self._at = at
        self._zone = zone
        today = as_datetime(at, zone).date()
        self.dates = [today - _DAY * back for back in range(DAYS - 1, -1, -1)]
        self._row_of = {day: row for row, day in enumerate(self.dates)}
        self.begin = instant_of(datetime.combine(self.dates[0], time(), zone))

    def picture(self, spans: Iterable[Span], unserved: Iterable[Minute], changes: Iterable[ZoneChange]) -> Markup:
        """The rows with all that is known about them."""
        height = DAYS * _PITCH
        parts = [_HATCH.format("days")]
        for hour in range(0, 25, 3):
            x = _LEFT + hour * _WIDTH / 24
            parts.append(f'<path class="ax" d="M{x:g} 0V{height:g}"/>{_text(x, height + 13, f"{hour:02}")}')
        for row, day in enumerate(self.dates):
            parts.append(_text(0, row * _PITCH + 11.5, f"{day:%a %d %b}", "start"))
        marks: dict[str, list[list[tuple[float, float]]]] = {}
        counts: Counter[str] = Counter()
        for span in spans:
            counts[span.kind] += 1
            for row, left, right in self._pieces(span.begin, span.end):
                rows = marks.setdefault(span.kind, [[] for _ in self.dates])
                rows[row].append((left, max(right, left + _THINNEST)))
        for kind in ("unknown", "down", *OUTCOMES):
            fill = 'fill="url(#hatch-days)"' if kind == "unknown" else f'class="f-{kind}"'
            for row, pieces in enumerate(marks.get(kind, ())):
                if outline := _outline(pieces, row * _PITCH):
                    parts.append(f'<path {fill} d="{outline}"/>')
        parts.append(self._hollow(unserved))
        parts += self._notches(changes)
        said = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES if counts[outcome]) or "no runs"
        label = f"The last {DAYS} days, a row each: {said}."
        if counts["down"]:
            label += f" {counted(counts['down'], 'time')} without a scheduler."
        return _picture(_LEFT + _WIDTH + 10, height + 18, label, parts, "wide")

    def _pieces(self, since: Instant, until: Instant) -> Iterator[tuple[int, float, float]]:
        """The parts of a time, day by day: row, left and right."""
        since = Instant(max(since, self.begin))
        until = Instant(min(max(until, since), self._at))
        day = as_datetime(since, self._zone).date()
        last = as_datetime(until, self._zone).date()
        while day <= last and day in self._row_of:
            left = self._x(since) if day == as_datetime(since, self._zone).date() else _LEFT
            right = self._x(until) if day == last else _LEFT + _WIDTH
            yield self._row_of[day], left, right
            day += _DAY

    def _x(self, instant: Instant) -> float:
        when = as_datetime(instant, self._zone)
        return _LEFT + (when.hour * 3600 + when.minute * 60 + when.second) * _WIDTH / 86_400

    def _hollow(self, minutes: Iterable[Minute]) -> str:
        """Due minutes in which nothing started: small outlines, which leave an outage beneath them visible."""
        outlines = []
        for minute in minutes:
            row = self._row_of.get(as_datetime(begin(minute), self._zone).date())
            if row is not None:
                outlines.append(f"M{self._x(begin(minute)):.1f} {row * _PITCH + _ROW - 5:g}h1.5v5h-1.5z")
        return f'<path class="hollow" d="{"".join(outlines)}"/>' if outlines else ""

    def _notches(self, changes: Iterable[ZoneChange]) -> Iterator[str]:
        """Hours that the wall clock skipped or repeated: a line above the row."""
        for change in changes:
            first, last = sorted((change.clock_before, change.clock_after))
            row = self._row_of.get(first.date())
            if row is None:
                continue
            left = _LEFT + (first.hour * 60 + first.minute) * _WIDTH / 1440
            right = min(left + (last - first).total_seconds() / 86_400 * _WIDTH, _LEFT + _WIDTH)
            y = row * _PITCH - 2
            yield f'<path class="notch" d="M{left:.1f} {y + 3:g}v-3H{right:.1f}v3"/>'


def _outline(pieces: Sequence[tuple[float, float]], y: float) -> str:
    """One path around all marks of a row; marks that touch become one."""
    merged: list[tuple[float, float]] = []
    for left, right in sorted(pieces):
        if merged and left - merged[-1][1] < 0.3:
            merged[-1] = (merged[-1][0], max(right, merged[-1][1]))
        else:
            merged.append((left, right))
    return "".join(f"M{left:.1f} {y:g}h{right - left:.1f}v{_ROW:g}h-{right - left:.1f}z" for left, right in merged)


# --- the week --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """An hour of the week: its starts, those of its busiest minute, and how busy that is, from 1 to 4."""

    starts: int
    peak: int
    heat: int


def week(days: Mapping[date, Sequence[Cell]]) -> Markup:
    """A row for each day, a cell for each hour: the number of starts, and the busiest minute as colour."""
    left, cell, pitch = 80.0, 46.0, 30.0
    parts = []
    for row, (day, hours) in enumerate(days.items()):
        y = row * pitch
        parts.append(_text(0, y + 17, f"{day:%a %d %b}", "start"))
        for hour, found in enumerate(hours):
            x = left + hour * cell
            heat = min(found.heat, 4) if found.starts else 0
            size = f'width="{cell - 3:g}" height="{pitch - 4:g}" rx="3"'
            parts.append(f'<rect class="h{heat}" x="{x:g}" y="{y:g}" {size}/>')
            if found.starts:
                text = f"{found.starts:,}" if found.starts < 100_000 else f"{found.starts // 1000:,}k"
                place = f'x="{x + cell / 2 - 1.5:g}" y="{y + 17:g}" text-anchor="middle"'
                parts.append(f'<text class="on{heat}" {place}>{text}</text>')
    height = len(days) * pitch
    parts += [_text(left + hour * cell + cell / 2, height + 12, f"{hour:02}") for hour in range(0, 24, 2)]
    total = sum(found.starts for hours in days.values() for found in hours)
    most = max((found.peak for hours in days.values() for found in hours), default=0)
    label = f"{counted(total, 'start')} in {len(days)} days, at most {most:,} in one minute."
    return _picture(left + 24 * cell, height + 18, label, parts, "wide")
