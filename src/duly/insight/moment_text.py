"""Moments and durations as people write them: `2024-03-31T01:50`, `01:50`, `2h` ago; `90s`, `1h30m`."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from duly.core.moments import Instant, as_datetime, zone_name
from duly.insight.zone_changes import zone_change_around

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|min|[smhdw]))+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|min|[smhdw])")

MOMENT_FORMS: Final = "2024-03-31T01:50, 2024-03-31, 01:50 (today), 2h (ago), now"
DURATION_FORMS: Final = "90s, 5m, 1h30m, 2d"


_EARLIEST: Final = date(1, 1, 3)
_LATEST: Final = date(9999, 12, 29)
"""Up to these days every zone can show a moment and the minutes around it: offsets are shorter than a day."""


def parse_duration(text: str) -> timedelta:
    """`90s`, `5m`, `1h30m`, `2d`; raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as {DURATION_FORMS}")
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than the calendar") from None


def parse_moment(text: str, zone: tzinfo, at: Instant) -> datetime:
    """A moment as people write it, in a zone; `at` is now. Raises ValueError.

    A local time that occurs twice means its first occurrence. One that does not exist is returned as it was written:
    `explain` answers about that; others pass it to `existing`. An offset (`2024-10-27T02:30+01:00`) says exactly which
    is meant.
    """
    text, here = text.strip(), as_datetime(at, zone)
    if text == "now":
        return here
    try:
        moment = _moment(text, zone, here)
    except OverflowError:
        moment = None
    if moment is None or not _EARLIEST <= moment.date() <= _LATEST:
        raise ValueError(f"{text!r} is outside of the calendar, which goes from {_EARLIEST} to {_LATEST}")
    return moment


def existing(when: datetime) -> tuple[datetime, str | None]:
    """A moment that exists: in place of one that clocks skip, the instant at which they do, and a sentence about it."""
    zone = when.tzinfo
    assert zone is not None
    change = zone_change_around(zone, when.replace(tzinfo=None, fold=0))
    if change is None or not change.skips:
        return when, None
    before, after = change.clock_before, change.clock_after
    form = "%H:%M" if before.date() == after.date() == when.date() else "%Y-%m-%d %H:%M"
    clocks = f"clocks go forward from {before:{form}} to {after:{form}}"
    text = f"{when:%Y-%m-%d %H:%M} does not exist in {zone_name(zone)}: {clocks}, and {after:{form}} is taken instead"
    return change.at.astimezone(zone), text


def _moment(text: str, zone: tzinfo, here: datetime) -> datetime:
    if _DURATION.fullmatch(back := text.removesuffix(" ago").removeprefix("-")):
        text = back
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
        return datetime.combine(here.date(), time.fromisoformat(text.zfill(len(text) + (text[1] == ":"))), zone)
    if _DURATION.fullmatch(text):
        return (here.astimezone(UTC) - parse_duration(text)).astimezone(zone)
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.combine(date.fromisoformat(text), time(), zone)
        when = datetime.fromisoformat(text)
    except ValueError as cause:
        # What is wrong with a number helps, as in 2024-13-01; that a text is not in ISO format says nothing more.
        why = "" if "isoformat" in str(cause) else f" ({cause})"
        raise ValueError(f"{text!r} is not a moment such as {MOMENT_FORMS}{why}") from None
    return when.replace(tzinfo=zone) if when.tzinfo is None else when.astimezone(zone)
