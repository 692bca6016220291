"""Names, times and states as markup, and the templates that use them.

Whatever comes from a store is hostile: names, expressions, errors, host names. Everything is escaped by the templates,
or here where markup is made; characters that cannot be printed, and those that change the direction of a line, are
written as escapes.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from duly.core.moments import MICROSECONDS, Instant, as_datetime, instant_of
from duly.insight.cluster import HostStatus
from duly.insight.cron_words import shortened, shortened_pair
from duly.insight.words import between, stretch, visible
from duly.stores.port import HostName, View
from duly.text import plain

NAME_LETTERS_MAX: Final = 120
NAME_LETTERS_UNTITLED_MAX: Final = 40
"""A longer name is its own title: a narrow column cuts it after three lines."""

HOST_LETTERS_MAX: Final = 40
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
    "living": "●",
    "silent": "✕",
    "outdated": "◔",
    "left": "○",
    "buried": "⌁",
    "gone": "○",
    "violated": "✕",
    "pending": "◔",
    "holding": "●",
    "satisfied": "●",
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
    ("w", "What if", "whatif"),
    ("v", "Verify", "verify"),
    ("a", "About", "about"),
)
"""The key after `g`, the word, and the path of each page in the head."""


def release() -> str:
    """The version of duly; `unknown` where it runs without having been installed, such as from its sources."""
    try:
        return version("duly")
    except PackageNotFoundError:
        return "unknown"


def shown_name(name: str) -> str:
    """A name as people see it: one line, not too long."""
    return visible(name, longest=NAME_LETTERS_MAX)


def first_line(text: str, longest: int = 160) -> str:
    """The beginning of a text that may be long, on one line."""
    return plain(text.strip().split("\n", 1)[0], longest=longest)


def is_long(name: str) -> bool:
    """Whether a name is too long for an address."""
    return len(name) * 12 > ENCODED_NAME_MAX and len(quote(name, safe="")) > ENCODED_NAME_MAX


def long_names(view: View, names: Iterable[str]) -> dict[str, int]:
    """The numbers of the latest declarations of those names that are too long for an address."""
    found = {name: view.declarations(name) for name in set(names) if is_long(name)}
    return {name: declarations[-1].generation for name, declarations in found.items() if declarations}


@dataclass(frozen=True, slots=True)
class Display:
    """The display of values on a page: where it is mounted, its zone, and its moment."""

    base: str
    """The path that the dashboard is mounted at, with a slash at its end."""

    zone: tzinfo
    at: Instant
    show_errors: bool = True
    linked: bool = True
    """False on a page that stands alone in a file: it has no other pages to link to."""

    generations: Mapping[str, int] = field(default_factory=dict)
    """The numbers of declarations whose names are too long for an address, as `long_names` finds them."""

    def knowing(self, generations: Mapping[str, int]) -> "Display":
        """A display that links these names by the numbers of their declarations."""
        return replace(self, generations={**self.generations, **generations}) if generations else self

    def link(self, page: str, **parameters: object) -> str:
        """The address of a page; parameters that are empty or None are left out."""
        given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
        return f"{self.base}{page}" + (f"?{urlencode(given, quote_via=quote, safe='')}" if given else "")

    def task_link(self, name: str, generation: int | None = None, **parameters: object) -> str:
        """The address of a task."""
        if is_long(name) and (number := self.generations.get(name, generation)) is not None:
            return self.link("task", generation=number, **parameters)
        return self.link("task", name=name, **parameters)

    def runs_link(self, name: str, generation: int | None = None, **parameters: object) -> str:
        """The address of the list of a task's runs."""
        if is_long(name) and (number := self.generations.get(name, generation)) is not None:
            return self.link("runs", generation=number, **parameters)
        return self.link("runs", task=name, **parameters)

    def name(self, name: str) -> Markup:
        """A name, with the whole of it as its title if it may be cut; where a column is narrow it breaks at a slash."""
        text = escape(shown_name(name)).replace("/", Markup("/<wbr>"))
        if len(name) <= NAME_LETTERS_UNTITLED_MAX:
            return text
        return Markup('<span title="{}">{}</span>').format(plain(name, longest=2000), text)

    def task(self, name: str, generation: int | None = None) -> Markup:
        """A link to a task."""
        if not self.linked or (is_long(name) and generation is None and name not in self.generations):
            return self.name(name)  # an address with the whole name would be refused
        return Markup('<a href="{}">{}</a>').format(self.task_link(name, generation), self.name(name))

    def time(self, instant: Instant | None, missing: str = "–") -> Markup:
        """A moment: today the time, this week the day and the time, else the date; with its offset as title."""
        if instant is None:
            return escape(missing)
        when = as_datetime(instant, self.zone)
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            when.isoformat(), when.isoformat(sep=" ", timespec="seconds"), self.clock(instant)
        )

    def moment(self, text: str | None, missing: str = "–") -> Markup:
        """A moment as a JSON document has it."""
        return self.time(None if text is None else instant_of(datetime.fromisoformat(text)), missing)

    def clock(self, instant: Instant) -> str:
        """A moment as text."""
        when, today = as_datetime(instant, self.zone), as_datetime(self.at, self.zone).date()
        if when.date() == today:
            return f"{when:%H:%M:%S}" if when.second else f"{when:%H:%M}"
        return f"{when:%a %H:%M}" if abs(when.date() - today) < timedelta(7) else f"{when:%Y-%m-%d %H:%M}"

    def share_of_day(self, instant: Instant) -> str:
        """The place of a moment in its day, from 0 to 1 by the wall clock: where a picture of days shows it."""
        when = as_datetime(instant, self.zone)
        return f"{(60 * when.hour + when.minute) / 1440:.3f}"

    def ago(self, instant: Instant) -> str:
        """The time from an instant up to now."""
        return between(instant, self.at)

    def until(self, instant: Instant) -> str:
        """The time from now to an instant."""
        return "now" if instant <= self.at else f"in {between(self.at, instant)}"

    def badge(self, state: str, label: str | None = None, more: str | None = None) -> Markup:
        """A state: glyph, word and colour; `more` is left out where there is little room."""
        added = Markup("") if more is None else Markup('<span class="spare">{}</span>').format(more)
        return Markup('<span class="s {}"><i aria-hidden="true">{}</i>{}{}</span>').format(
            state, GLYPHS.get(state, "○"), label or state, added
        )

    def host(self, host: HostName | HostStatus | None) -> Markup:
        """A host of a shared store: its key, and its label if it has one."""
        if host is None:
            return Markup("–")
        if host.label is None:
            return Markup("host {}").format(host.key)
        label = plain(host.label, longest=HOST_LETTERS_MAX)
        return Markup('<span title="{}"><span class="mute">{}</span> {}</span>').format(
            f"host {host.key} ({plain(host.label, longest=1000)})", host.key, label
        )

    def error(self, text: str | None) -> Markup:
        """The first line of an error, unless errors are hidden here."""
        if text is None:
            return Markup()
        if not self.show_errors:
            return Markup('<span class="mute">hidden</span>')
        return Markup('<span class="err" title="{}">{}</span>').format(plain(text, longest=1000), first_line(text))


def marked(text: str, longest: int = 1000) -> Markup:
    """A sentence of duly in which commands stand between backticks, with these as code."""
    parts = plain(text, longest=longest).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


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
        plain=plain,
        marked=marked,
        number=number,
        took=took,
        stretch=lambda ms: stretch(ms / 1000),
        cron=shortened,
        line=first_line,
    )
    environment.globals.update(assets=ASSET_PATHS, navigation=NAVIGATION, second=MICROSECONDS, cron_pair=shortened_pair)
    return environment


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """The text of a page."""
    return _environment().get_template(template).render(values)
