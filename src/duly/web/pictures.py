"""Pictures, as SVG made on the server: runs by hour, starts to come, the days of a task, durations.

No styles inside, because the content security policy allows none: classes of duly.css give the colours. Each picture is
one image to assistive technology, with a sentence that has its numbers, and each page has a table with what it shows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from duly.core.moments import EPOCH, MICROSECONDS, Instant, Minute, as_datetime, begin, instant_of
from duly.insight.words import counted, stretch
from duly.insight.zone_changes import LocalTime, ZoneChange

OUTCOMES: Final = ("success", "failure", "interrupted", "running")
DAYS: Final = 14
_HATCH: Final = (
    '<defs><pattern id="hatch-{0}" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path class="hatch" d="M0 0V6"/></pattern></defs>'
)
_DAY: Final = timedelta(days=1)
_EPOCH_DAY: Final = EPOCH.date()


def _picture(width: float, height: float, label: str, parts: Iterable[str], kind: str = "") -> Markup:
    """An image of some size; the parts are markup already."""
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


_LABELS_WIDTH: Final = 72.0
_ROWS_WIDTH: Final = 1104.0
"""Widths of a picture with rows and of their labels; duly.css has them, too."""


def _labelled(labels: Iterable[tuple[float, str]], height: float, layers: Markup) -> Markup:
    """A picture beside the labels of its rows, each with its place: they stay in sight while it is scrolled.

    To assistive technology the picture is one image, whose sentence says what the rows are.
    """
    texts = "".join(_text(0, y, text, "start") for y, text in labels)
    size = f"0 0 {_LABELS_WIDTH:g} {height:g}"
    column = f'<svg class="labels" viewBox="{size}" aria-hidden="true">{texts}</svg>'
    return Markup(f'<div class="rows">{column}<div class="layers">{layers}</div></div>')


def _brief(number: int) -> str:
    """A number that fits into a cell: 4,321, 54k, 13.4M."""
    if number < 10_000:
        return f"{number:,}"
    return f"{number / 1e3:.0f}k" if number < 999_500 else f"{number / 1e6:.1f}M"


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
    most = max((hour.total for hour in hours), default=0)
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
    if most:
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


# --- a simulated time ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """The simulated starts of a stretch of time, by outcome."""

    begin: Instant
    end: Instant
    starts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All starts of the stretch."""
        return sum(self.starts.values())


def simulated(
    intervals: Sequence[Interval],
    down: Iterable[tuple[Instant, Instant]],
    crashes: Iterable[Instant],
    zone: tzinfo,
) -> Markup:
    """Stacked bars, one for each interval; times without a scheduler behind them, a line for each crash."""
    width, height, base = 1160.0, 150.0, 130.0
    first, last = intervals[0].begin, intervals[-1].end
    step = width / len(intervals)
    most = max((each.total for each in intervals), default=0) or 1

    def place(instant: Instant) -> float:
        return (instant - first) / (last - first) * width

    parts = []
    outages = 0
    for since, until in down:
        outages += 1
        left, right = place(since), place(until)
        parts.append(_bar("down", left, 14, max(right - left, 1.5), base - 14))
    for number, each in enumerate(intervals):
        y = base
        for outcome in OUTCOMES:
            if starts := each.starts.get(outcome, 0):
                size = max(starts / most * (base - 18), 0.5 if outcome in {"success", "running"} else 2.5)
                y -= size
                parts.append(_bar(outcome, number * step, y, max(step - 1.5, 0.8), size))
    marked = list(crashes)
    parts += [f'<path class="crash" d="M{place(crash):.1f} 14V{base:g}"/>' for crash in marked]
    for instant, text in _round_steps(first, last, zone):
        parts.append(_text(min(max(place(instant), 22), width - 22), height - 4, text))
    parts.append(f'<path class="ax" d="M0 {base + 0.5:g}H{width:g}"/>')
    if any(each.total for each in intervals):
        each_takes = stretch((last - first) / len(intervals) / 1e6)
        parts.append(_text(0, 9, f"at most {counted(most, 'start')} in {each_takes}", "start"))
    total = Counter[str]()
    for each in intervals:
        total.update(each.starts)
    said = ", ".join(f"{total[outcome]:,} {outcome}" for outcome in OUTCOMES if total[outcome]) or "no starts"
    label = f"The simulated time: {said}."
    if outages:
        label += f" {counted(outages, 'time')} without a scheduler."
    if marked:
        label += f" {'1 crash' if len(marked) == 1 else f'{len(marked)} crashes'}."
    return _picture(width, height, label, parts, "wide")


_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2 * 1440, 7 * 1440, 14 * 1440, 28 * 1440, 56 * 1440)
"""Minutes between two labels of an axis."""

_LABELS_MAX: Final = 9


def _round_steps(first: Instant, last: Instant, zone: tzinfo) -> Iterator[tuple[Instant, str]]:
    """The labels of an axis: at whole minutes, hours or days of the wall clock, at most nine."""
    minutes = (last - first) / (60 * MICROSECONDS)
    step = next((each for each in _STEPS if minutes / each <= _LABELS_MAX), _STEPS[-1])
    begin_of_day = as_datetime(first, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if step > 1440:
        begin_of_day += _DAY  # the first whole day
    for number in range(int(minutes / step) + 1 + 1440 // min(step, 1440)):
        # By the wall clock: after a change of the zone, labels are still at whole hours.
        instant = instant_of((begin_of_day + timedelta(minutes=step * number)).replace(tzinfo=zone))
        if first <= instant <= last:
            yield instant, format(as_datetime(instant, zone), "%H:%M" if step < 1440 else "%a %d %b")


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

_LEFT: Final = 8.0
_RIGHT: Final = 10.0
_WIDTH: Final = _ROWS_WIDTH - _LEFT - _RIGHT
_ROW: Final = 15.0
_PITCH: Final = 20.0
_THINNEST: Final = 1.2
_THINNEST_TIME: Final = int(_THINNEST * 86_400 / _WIDTH * MICROSECONDS)
_GAP_MIN: Final = 0.3
"""Marks that are less apart become one."""

_GAP: Final = int((_GAP_MIN - 0.02) * 86_400 / _WIDTH * MICROSECONDS)
"""A time that is surely drawn as less than that."""

_TARGET_WIDTH_MIN: Final = 5.0


class Span(NamedTuple):
    """A stretch of time in the picture of days: a run, a time without a scheduler, or one before history."""

    kind: str
    begin: Instant
    end: Instant


@dataclass(slots=True)
class _Mark:
    """Runs that are drawn as one."""

    begin: Instant
    end: Instant
    last: Instant
    """The start of the last one: however short it is, it is drawn with some width."""

    joins_until: int
    """A run that starts before this instant touches the mark."""

    steady_until: int
    """Up to this instant a second is as wide as before, and in the same row."""

    def spans(self, kind: str) -> Iterator[Span]:
        yield Span(kind, self.begin, self.end)
        if self.last != self.begin:
            yield Span(kind, self.last, self.end)


@dataclass(frozen=True, slots=True)
class TimelineLink:
    """A stretch of the picture of days that leads to a page."""

    begin: Instant
    end: Instant
    address: str
    title: str


class Days:
    """A row for each of the last days, from 00 to 24 by the wall clock."""

    def __init__(self, at: Instant, zone: tzinfo) -> None:
        self._at = at
        today = as_datetime(at, zone).date()
        self.dates = [today - _DAY * back for back in range(DAYS - 1, -1, -1)]
        self._row_of = {day: row for row, day in enumerate(self.dates)}
        self.begin = instant_of(datetime.combine(self.dates[0], time(), zone))
        self.clock = LocalTime(zone, self.begin, Instant(at + 86_400 * MICROSECONDS))
        self._first_day = (self.dates[0] - _EPOCH_DAY).days

    def merged(self, runs: Iterable[tuple[str, Instant, Instant]]) -> Iterator[Span]:
        """Runs in the order of their starts, as spans; those of one kind that will touch are joined.

        A task of every minute has 20,000 of them and a few hundred marks.
        """
        marks: dict[str, _Mark] = {}
        for kind, since, until in runs:
            mark = marks.get(kind)
            if mark is not None:
                if since < mark.joins_until and until < mark.steady_until:
                    mark.last = since
                    if until > mark.end:
                        mark.end = until
                    # As far as it is drawn, and the gap; a longer one before it may reach further.
                    mark.joins_until = min(max(since + _THINNEST_TIME, mark.end) + _GAP, mark.steady_until)
                    continue
                yield from mark.spans(kind)
            steady = self.clock.steady_until(max(since, self.begin))
            reach = min(max(until, since + _THINNEST_TIME) + _GAP, steady)
            # What goes on into the next day is drawn by itself.
            marks[kind] = _Mark(since, until, since, reach if since <= until < steady else since, steady)
        for kind, mark in marks.items():
            yield from mark.spans(kind)

    def picture(
        self,
        runs: Mapping[str, int],
        spans: Iterable[Span],
        unserved: Iterable[Minute],
        changes: Iterable[ZoneChange],
        cut: int | None = None,
    ) -> Markup:
        """The rows with all that is known about them; `runs` says how many had which outcome.

        If there were more runs than are drawn, `cut` is the number of the latest ones, which are.
        """
        height = DAYS * _PITCH
        parts = [_HATCH.format("days")]
        for hour in range(0, 25, 3):
            x = _LEFT + hour * _WIDTH / 24
            parts.append(f'<path class="ax" d="M{x:g} 0V{height:g}"/>{_text(x, height + 13, f"{hour:02}")}')
        marks: dict[str, list[list[tuple[float, float]]]] = {}
        outages = 0
        for kind, since, until in spans:
            outages += kind == "down"
            rows = marks.get(kind) or marks.setdefault(kind, [[] for _ in self.dates])
            for row, left, right in self._pieces(since, until):
                rows[row].append((left, max(right, left + _THINNEST)))
        for kind in ("unknown", "down", *OUTCOMES):
            fill = 'fill="url(#hatch-days)"' if kind == "unknown" else f'class="f-{kind}"'
            for row, pieces in enumerate(marks.get(kind, ())):
                if outline := _outline(pieces, row * _PITCH):
                    parts.append(f'<path {fill} d="{outline}"/>')
        parts.append(self._hollow(unserved))
        parts += self._notches(changes)
        said = ", ".join(f"{runs[outcome]:,} {outcome}" for outcome in OUTCOMES if runs.get(outcome)) or "no runs"
        label = f"The last {DAYS} days, a row each: {said}"
        label += "." if cut is None else f", the latest {cut:,} runs alone."
        if outages:
            label += f" {counted(outages, 'time')} without a scheduler."
        return _picture(_ROWS_WIDTH, height + 18, label, parts, "wide")

    def labelled(self, layers: Markup) -> Markup:
        """The picture, and what lies over it, beside the names of the days."""
        labels = ((row * _PITCH + 11.5, f"{day:%a %d %b}") for row, day in enumerate(self.dates))
        return _labelled(labels, DAYS * _PITCH + 18, layers)

    def targets(self, targets: Iterable[TimelineLink]) -> Markup:
        """Links for the pointer, over the picture. Assistive technology has the table of runs instead."""
        links = []
        for target in targets:
            for row, left, right in self._pieces(target.begin, target.end):
                width = max(right - left, _TARGET_WIDTH_MIN)
                x = min(left - (width - (right - left)) / 2, _LEFT + _WIDTH - width)
                place = f'x="{x:.1f}" y="{row * _PITCH:g}" width="{width:.1f}" height="{_ROW:g}"'
                address, title = escape(target.address), escape(target.title)
                links.append(f'<a href="{address}" tabindex="-1"><title>{title}</title><rect {place}/></a>')
        size = f"0 0 {_ROWS_WIDTH:g} {DAYS * _PITCH + 18:g}"
        return Markup(f'<svg class="wide over" viewBox="{size}" aria-hidden="true">{"".join(links)}</svg>')

    def _pieces(self, since: Instant, until: Instant) -> list[tuple[int, float, float]]:
        """The parts of a time, day by day: row, left and right."""
        since = max(since, self.begin)
        until = min(max(until, since), self._at)
        first_row, first_second = self._place(since)
        last_row, last_second = self._place(until)
        left, right = _LEFT + first_second * _WIDTH / 86_400, _LEFT + last_second * _WIDTH / 86_400
        if first_row == last_row < DAYS:
            return [(first_row, left, right)]  # nearly always
        end = _LEFT + _WIDTH
        return [
            (row, left if row == first_row else _LEFT, right if row == last_row else end)
            for row in range(first_row, min(last_row + 1, DAYS))
        ]

    def _place(self, instant: Instant) -> tuple[int, int]:
        """The row of an instant, and the second of its day."""
        day, second = divmod(self.clock.shown(instant), 86_400)
        return day - self._first_day, second

    def _hollow(self, minutes: Iterable[Minute]) -> str:
        """Due minutes in which nothing started: small outlines, which leave an outage beneath them visible."""
        outlines = []
        for minute in minutes:
            row, second = self._place(begin(minute))
            if 0 <= row < DAYS:
                x = _LEFT + second * _WIDTH / 86_400
                outlines.append(f"M{x:.1f} {row * _PITCH + _ROW - 5:g}h1.5v5h-1.5z")
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
        if merged and left - merged[-1][1] < _GAP_MIN:
            merged[-1] = (merged[-1][0], max(right, merged[-1][1]))
        else:
            merged.append((left, right))
    return "".join(f"M{left:.1f} {y:g}h{right - left:.1f}v{_ROW:g}h-{right - left:.1f}z" for left, right in merged)


# --- a day by the minute ---------------------------------------------------------------------------------------------


def day_by_minute(minutes: Mapping[Minute, int], first: Minute, zone: tzinfo) -> Markup:
    """A thin bar for each minute of the 24 hours from a minute on, all of them one path."""
    width, height, base = 1160.0, 132.0, 112.0
    count = 24 * 60
    most = max(minutes.values(), default=0)
    bars, parts = [], []
    for place in range(count):
        minute = Minute(first + 60 * place)
        x = place * width / count
        if starts := minutes.get(minute, 0):
            size = max(starts / most * (base - 16), 1)
            bars.append(f"M{x:.1f} {base:g}v-{size:.1f}h{width / count:.1f}v{size:.1f}z")
        when = as_datetime(begin(minute), zone)
        if when.minute == 0 and when.hour % 3 == 0:
            parts.append(_text(min(max(x, 16), width - 16), height - 4, f"{when:%H:%M}"))
    parts.append(f'<path class="f-running" d="{"".join(bars)}"/><path class="ax" d="M0 {base + 0.5:g}H{width:g}"/>')
    if most:
        parts.append(_text(0, 9, f"at most {most:,} a minute", "start"))
    total = counted(sum(minutes.values()), "start")
    label = f"{total} in 24 hours, at most {most:,} in one minute." if most else "No starts in 24 hours."
    return _picture(width, height, label, parts, "wide")


# --- the week --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """An hour of the week: its starts, those of its busiest minute, and how busy that is, from 1 to 4."""

    starts: int
    peak: int
    heat: int


def week(days: Mapping[date, Sequence[Cell]]) -> Markup:
    """A row for each day, a cell for each hour: the number of starts, and the busiest minute as colour."""
    cell, pitch = _ROWS_WIDTH / 24, 30.0
    parts = []
    for row, hours in enumerate(days.values()):
        y = row * pitch
        for hour, found in enumerate(hours):
            x = hour * cell
            heat = min(found.heat, 4) if found.starts else 0
            size = f'width="{cell - 3:g}" height="{pitch - 4:g}" rx="3"'
            parts.append(f'<rect class="h{heat}" x="{x:g}" y="{y:g}" {size}/>')
            if found.starts:
                text = _brief(found.starts)
                place = f'x="{x + cell / 2 - 1.5:g}" y="{y + 17:g}" text-anchor="middle"'
                parts.append(f'<text class="on{heat}" {place}>{text}</text>')
    height = len(days) * pitch
    parts += [_text(hour * cell + cell / 2, height + 12, f"{hour:02}") for hour in range(0, 24, 2)]
    total = sum(found.starts for hours in days.values() for found in hours)
    most = max((found.peak for hours in days.values() for found in hours), default=0)
    label = f"{counted(total, 'start')} in {len(days)} days, at most {most:,} in one minute."
    labels = ((row * pitch + 17, f"{day:%a %d %b}") for row, day in enumerate(days))
    return _labelled(labels, height + 18, _picture(_ROWS_WIDTH, height + 18, label, parts, "wide"))


_HEAT_WORDS: Final = {
    1: "the quieter half of the hours",
    2: "up to 80 of 100 hours",
    3: "up to 95 of 100 hours",
    4: "the busiest hours",
}


def heat_legend(days: Mapping[date, Sequence[Cell]]) -> list[tuple[int, str]]:
    """The colours that a week has, each with its words: which hours have it, and how busy their busiest minutes are."""
    peaks: dict[int, int] = {}
    for found in (found for hours in days.values() for found in hours if found.starts):
        heat = min(found.heat, 4)
        peaks[heat] = max(peaks.get(heat, 0), found.peak)
    if len(peaks) == 1:
        ((heat, peak),) = peaks.items()
        return [(heat, f"every hour: up to {counted(peak, 'start')} in a minute")]
    return [
        (heat, f"{_HEAT_WORDS[heat]}: up to {counted(peak, 'start')} in a minute")
        for heat, peak in sorted(peaks.items())
    ]
