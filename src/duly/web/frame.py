"""The frame of every page: its source and settings, where it is mounted, and how its template is filled in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from duly.core.moments import Instant
from duly.web.display import Display, rendered
from duly.web.forms import Form
from duly.web.source import StoreSource


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a dashboard, whatever its store."""

    title: str | None = None
    show_errors: bool = True


class NotThereError(Exception):
    """The thing asked for is not there: 404, with a sentence and perhaps something close."""

    def __init__(self, text: str, suggestion: tuple[str, str] | None = None, *, hint: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.suggestion = suggestion
        """A name, and the address of its page."""
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Frame:
    """The surroundings of a page: its source and settings, where it is mounted, and the address that was asked for."""

    source: StoreSource
    settings: Settings
    base: str
    refresh: int | None
    seen: int
    """The number of changes of the store that were seen before the page read anything; `/live` goes on from there."""

    notes: Sequence[str] = field(default_factory=list)
    """Sentences about what was asked for, above the page."""

    def display(self, zone: tzinfo, at: Instant) -> Display:
        """How a page shows values."""
        return Display(self.base, zone, at, self.settings.show_errors)

    def rendered(self, template: str, display: Display, here: str, title: str, **values: Any) -> str:
        """The text of a page."""
        return rendered(
            template,
            {
                "layout": "base.html",
                "d": display,
                "base": self.base,
                "here": here,
                "title": title,
                "site": self.settings.title,
                "store": self.source.name,
                "refresh": self.refresh,
                "seen": self.seen,
                "counting": False,
                "notes": self.notes,
                **values,
            },
        )


Page = Callable[[Frame, Form], str]
"""Makes a page, in a thread: it may read the store."""
