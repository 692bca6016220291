"""Times, durations and zones as people write them at the command line."""

import os
import time as time_module
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import click

from duly.cli.output import fail, note
from duly.clock import SystemClock
from duly.core.moments import Instant, instant_of
from duly.insight import moment_text
from duly.insight.moment_text import parse_duration, parse_moment
from duly.text import meant


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


def existing(when: datetime) -> datetime:
    """A moment that exists: in place of one that clocks skip, the instant at which they go forward, with a note."""
    moment, text = moment_text.existing(when)
    if text is not None:
        note(text)
    return moment


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
