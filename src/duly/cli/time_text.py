"""Times, durations and zones as people write them at the command line."""

import os
import re
import time as time_module
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import click

from duly.cli.output import fail, note
from duly.clock import SystemClock
from duly.core.moments import Instant, as_datetime, instant_of, zone_name
from duly.insight.zone_changes import zone_change_around
from duly.text import meant

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|min|[smhdw]))+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|min|[smhdw])")

MOMENT_FORMS: Final = "2024-03-31T01:50, 2024-03-31, 01:50 (today), 2h (ago), now"
DURATION_FORMS: Final = "90s, 5m, 1h30m, 2d"


def now() -> Instant:
    """The time of the host's clock."""
    return Instant(SystemClock().now())


def host_zone() -> tzinfo:
    """The host's zone."""
    return SystemClock().zone()


def zone_named(name: str) -> tzinfo:
    """A zone by its name, or the end of the command with a suggestion."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        names = available_timezones()
        lower = {each.lower(): each for each in names} | {each.rsplit("/", 1)[-1].lower(): each for each in names}
        close = meant(name.lower().replace(" ", "_"), lower)
        hint = f"did you mean {lower[close]}?" if close else "use a name such as Europe/Berlin, or UTC"
        fail(f"no such time zone: {name}", hint)


def set_host_zone(name: str) -> None:
    """Make a zone the one of this process, as if it had been started with TZ set; its children inherit it."""
    zone_named(name)
    os.environ["TZ"] = name
    time_module.tzset()


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
    text = text.strip()
    here = as_datetime(at, zone)
    if _DURATION.fullmatch(back := text.removesuffix(" ago").removeprefix("-")):
        text = back
    if text == "now":
        return here
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
        return datetime.combine(here.date(), time.fromisoformat(text.zfill(len(text) + (text[1] == ":"))), zone)
    if _DURATION.fullmatch(text):
        try:
            return (here.astimezone(UTC) - parse_duration(text)).astimezone(zone)
        except OverflowError:
            raise ValueError(f"{text!r} ago was before the calendar begins") from None
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.combine(date.fromisoformat(text), time(), zone)
        when = datetime.fromisoformat(text)
    except ValueError as cause:
        # What is wrong with a number helps, as in 2024-13-01; that a text is not in ISO format says nothing more.
        why = "" if "isoformat" in str(cause) else f" ({cause})"
        raise ValueError(f"{text!r} is not a moment such as {MOMENT_FORMS}{why}") from None
    return when.replace(tzinfo=zone) if when.tzinfo is None else when.astimezone(zone)


def existing(when: datetime) -> datetime:
    """A moment that exists: in place of one that clocks skip, the instant at which they go forward, with a note."""
    zone = when.tzinfo
    assert zone is not None
    change = zone_change_around(zone, when.replace(tzinfo=None, fold=0))
    if change is None or not change.skips:
        return when
    before, after = change.clock_before, change.clock_after
    form = "%H:%M" if before.date() == after.date() == when.date() else "%Y-%m-%d %H:%M"
    clocks = f"clocks go forward from {before:{form}} to {after:{form}}"
    note(f"{when:%Y-%m-%d %H:%M} does not exist in {zone_name(zone)}: {clocks}, and {after:{form}} is taken instead")
    return change.at.astimezone(zone)


def moment_argument(text: str) -> Instant:
    """The `type` of an option that takes a moment in the host's zone; beside `--tz`, use `parse_moment` instead."""
    try:
        return instant_of(existing(parse_moment(text, host_zone(), now())))
    except (ValueError, OverflowError) as fault:
        raise click.BadParameter(str(fault)) from None


def duration_argument(text: str) -> timedelta:
    """The `type` of an option that takes a duration."""
    try:
        return parse_duration(text)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from None
