"""A schedule of another scheduler, on its way to a registration."""

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from duly.core.dialects import posix_set
from duly.core.fields import FIELDS


@dataclass(slots=True)
class Draft:
    """One task of the other scheduler, while it is read."""

    source: str
    """How it is written there, for people."""

    name: str
    """A name from what it is called or what it does there; `finish` makes it unique."""

    posix: str | None = None
    """The expression, once there is one."""

    call: str | None = None
    """The callback as Python source, once there is one."""

    zone: str | None = None
    """The zone that its times are meant in there; None for the host's, and for intervals, which have none."""

    zone_origin: str = ""
    """Where the other scheduler has the zone from, for people."""

    notes: list[str] = field(default_factory=list)
    """Differences under duly."""

    obstacles: list[str] = field(default_factory=list)
    """Why it cannot be imported."""

    def set_fields(self, values: dict[str, set[int]]) -> None:
        """Take the expression from the values of its five fields, which all have to match."""
        full = {name: values[name] == set(range(each.low, each.high + 1)) for name, each in FIELDS.items()}
        if not full["day"] and not full["weekday"]:
            self.obstacles.append(
                "day of month and weekday both have to match there; in POSIX cron either is enough: use one of them, "
                "and let the callback return unless the other one matches"
            )
        self.posix = " ".join("*" if full[name] else posix_set(values[name]) for name in FIELDS)

    def set_interval(self, every: timedelta) -> None:
        """Take the expression from an interval, if that divides an hour, a day or a week.

        It has no zone: an interval counts from some start, at whatever time of day that was.
        """
        seconds = every.total_seconds()
        minutes = int(seconds // 60)
        if seconds <= 0 or seconds % 60:
            self.obstacles.append(f"every {every} is not a whole number of minutes, the smallest unit of cron")
            return
        hours, days = minutes // 60, minutes // 1440
        if minutes < 60 and 60 % minutes == 0:
            self.posix = f"{posix_set(range(0, 60, minutes)) if minutes > 1 else '*'} * * * *"
        elif minutes % 60 == 0 and hours < 24 and 24 % hours == 0:
            self.posix = f"0 {posix_set(range(0, 24, hours)) if hours > 1 else '*'} * * *"
        elif minutes == 1440:
            self.posix = "0 0 * * *"
        elif minutes == 7 * 1440:
            self.posix = "0 0 * * 0"
        else:
            shown = f"{days} days" if days and minutes % 1440 == 0 else f"{minutes} minutes"
            self.obstacles.append(
                f"every {shown} is an interval that cron cannot express: it divides neither an hour nor a day nor a "
                "week; choose an expression, or a shorter interval and a check in the callback"
            )
            return
        self.notes.append(f"an interval of {every} counted from the last start; cron counts by the wall clock")


@dataclass(frozen=True, slots=True)
class Drafts:
    """All that was found in one place."""

    origin: str
    drafts: Sequence[Draft]
    differences: Sequence[str]
    """Differences under duly that concern all of them."""

    imports: Sequence[str]
    """Lines of Python that the calls need."""

    helpers: str = ""
    """Functions that the calls need, as Python source."""


def literal(value: Any) -> str | None:
    """A value as Python source; None if its source does not give an equal value again."""
    text = repr(value)
    try:
        equal = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return text if equal else None


def task_name(text: str) -> str:
    """A name for a task, from what its schedule is called elsewhere."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:60]


def digest(text: str) -> str:
    """A few characters that follow from a text, to tell names apart."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
