"""Names, times and states as markup, and the templates that use them.

Whatever comes from a store is hostile: names, expressions, errors, host names. Everything is escaped by the templates,
or here where markup is made; characters that cannot be printed, and those that change the direction of a line, are
written as escapes.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from duly.core.moments import MICROSECONDS, Instant, as_datetime
from duly.insight.cron_words import shortened
from duly.insight.words import between, stretch
from duly.text import plain

NAME_LETTERS_MAX: Final = 120
ENCODED_NAME_MAX: Final = 2048
"""A name whose encoded form is longer is linked by the number of its declaration: the query would be too long."""

GLYPHS: Final = {
    "success": "●",
    "healthy": "●",
    "running": "▶",
    "owed": "◔",
    "retrying": "↻",
    "failure": "✕",
    "failing": "✕",
    "unhealthy": "✕",
    "interrupted": "⌁",
    "waiting": "○",
    "unknown": "…",
    "gone": "○",
}
"""The glyph of each state; with its word and its colour, so that none of them stands alone."""

_FOLDER: Final = Path(__file__).parent
ASSETS: Final = {name: (_FOLDER / "static" / name).read_bytes() for name in ("duly.css", "duly.js")}
ASSET_PATHS: Final = {
    name: f"static/{hashlib.sha256(content).hexdigest()[:12]}/{name}" for name, content in ASSETS.items()
}

NAVIGATION: Final = (
    ("o", "Overview", ""),
    ("t", "Tasks", "tasks"),
    ("r", "Runs", "runs"),
    ("c", "Calendar", "calendar"),
    ("n", "Next", "next"),
    ("a", "About", "about"),
)
"""The key after `g`, the word, and the path of each page in the head."""


def shown_name(name: str) -> str:
    """A name as people see it: one line, not too long; in quotation marks where blanks would not be seen."""
    text = plain(name, longest=NAME_LETTERS_MAX)
    return text if text == text.strip() and text else f'"{text}"'


def first_line(text: str, longest: int = 160) -> str:
    """The beginning of a text that may be long, on one line."""
    return plain(text.strip().split("\n", 1)[0], longest=longest)


@dataclass(frozen=True, slots=True)
class Display:
    """What a page needs to show values: where it is mounted, its zone, and its moment."""

    base: str
    """The path that the dashboard is mounted at, with a slash at its end."""

    zone: tzinfo
    at: Instant
    show_errors: bool = True

    def link(self, page: str, **parameters: object) -> str:
        """The address of a page; parameters that are empty or None are left out."""
        given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
        return f"{self.base}{page}" + (f"?{urlencode(given, quote_via=quote, safe='')}" if given else "")

    def task_link(self, name: str, generation: int | None = None, **parameters: object) -> str:
        """The address of a task."""
        if generation is not None and len(quote(name, safe="")) > ENCODED_NAME_MAX:
            return self.link("task", generation=generation, **parameters)
        return self.link("task", name=name, **parameters)

    def name(self, name: str) -> Markup:
        """A name, with the whole of it as its title if it was cut."""
        text = shown_name(name)
        if len(name) <= NAME_LETTERS_MAX:
            return escape(text)
        return Markup('<span title="{}">{}</span>').format(plain(name, longest=2000), text)

    def task(self, name: str, generation: int | None = None) -> Markup:
        """A link to a task."""
        return Markup('<a href="{}">{}</a>').format(self.task_link(name, generation), self.name(name))

    def time(self, instant: Instant | None, missing: str = "–") -> Markup:
        """A moment: today the time, this week the day and the time, else the date; with its offset as title."""
        if instant is None:
            return escape(missing)
        when = as_datetime(instant, self.zone)
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            when.isoformat(), when.isoformat(sep=" ", timespec="seconds"), self.clock(instant)
        )

    def clock(self, instant: Instant) -> str:
        """A moment as text."""
        when, today = as_datetime(instant, self.zone), as_datetime(self.at, self.zone).date()
        if when.date() == today:
            return f"{when:%H:%M:%S}" if when.second else f"{when:%H:%M}"
        return f"{when:%a %H:%M}" if abs(when.date() - today) < timedelta(7) else f"{when:%Y-%m-%d %H:%M}"

    def ago(self, instant: Instant) -> str:
        """The time from an instant up to now."""
        return between(instant, self.at)

    def until(self, instant: Instant) -> str:
        """The time from now to an instant."""
        return "now" if instant <= self.at else f"in {between(self.at, instant)}"

    def badge(self, state: str, label: str | None = None) -> Markup:
        """A state: glyph, word and colour."""
        return Markup('<span class="s {}"><i aria-hidden="true">{}</i>{}</span>').format(
            state, GLYPHS.get(state, "○"), label or state
        )

    def error(self, text: str | None) -> Markup:
        """The first line of an error, unless errors are hidden here."""
        if text is None:
            return Markup()
        if not self.show_errors:
            return Markup('<span class="mute">hidden</span>')
        return Markup('<span class="err" title="{}">{}</span>').format(plain(text, longest=1000), first_line(text))


def took(duration_ms: float | None) -> str:
    """How long a run took."""
    return "–" if duration_ms is None else stretch(duration_ms / 1000)


def number(value: int | None) -> str:
    """A number with separators; an ellipsis while it is not known."""
    return "…" if value is None else f"{value:,}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(
        plain=plain, number=number, took=took, stretch=lambda ms: stretch(ms / 1000), cron=shortened, line=first_line
    )
    environment.globals.update(assets=ASSET_PATHS, navigation=NAVIGATION, second=MICROSECONDS)
    return environment


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """The text of a page."""
    return _environment().get_template(template).render(values)
