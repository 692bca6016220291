"""Query parameters, parsed to values; each that cannot be is answered with a sentence."""

import contextlib
from collections.abc import Collection, Mapping
from datetime import tzinfo
from typing import Final

from starlette.datastructures import QueryParams

from duly.core.moments import MICROSECONDS, Instant, instant_of
from duly.core.zones import zone_of_name
from duly.insight.moment_text import existing, parse_moment
from duly.stores.port import TaskPlace
from duly.text import plain

_CENTURY: Final = 100 * 366 * 86_400 * MICROSECONDS


class ParameterError(ValueError):
    """A parameter means nothing: the request is answered with 400 and this sentence."""


class Form:
    """The parameters of one request."""

    def __init__(self, parameters: QueryParams | Mapping[str, str]) -> None:
        self._parameters = parameters
        self.notes: list[str] = []
        """Sentences about moments that do not exist, and what was taken instead."""

    def text(self, name: str) -> str:
        """A text, empty if there is none; one that no store can hold is refused."""
        value = self._parameters.get(name, "")
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ParameterError(f"{name} holds a character that no text has")
        return value

    def choice(self, name: str, choices: Collection[str]) -> str:
        """One of a few words, or nothing."""
        value = self.text(name)
        if value and value not in choices:
            known = ", ".join(sorted(filter(None, choices)))
            raise ParameterError(f"{name} is {_shown(value)}, and must be one of {known}")
        return value

    def number(self, name: str, lowest: int, highest: int) -> int | None:
        """A whole number within bounds, or None."""
        value = self.text(name)
        if not value:
            return None
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else -1
        if not lowest <= number <= highest:
            raise ParameterError(f"{name} is {_shown(value)}, and must be a number from {lowest:,} to {highest:,}")
        return number

    def moment(self, name: str, zone: tzinfo, at: Instant) -> Instant | None:
        """A moment as people write it, in a zone, or None."""
        value = self.text(name)
        return self.moment_of(name, value, zone, at) if value else None

    def moment_of(self, name: str, value: str, zone: tzinfo, at: Instant) -> Instant:
        """A moment that is part of a parameter's text."""
        try:
            moment, note = existing(parse_moment(value, zone, at))
            found = instant_of(moment)
        except (ValueError, OverflowError) as fault:
            raise ParameterError(f"{name}: {plain(fault, longest=200)}") from None
        if note is not None:
            self.notes.append(note)
        return found

    def near_moment(self, name: str, zone: tzinfo, at: Instant) -> Instant | None:
        """A moment within a century of now: what is computed from it then lies within the calendar."""
        moment = self.moment(name, zone, at)
        if moment is not None and abs(moment - at) > _CENTURY:
            raise ParameterError(f"{name} is more than a century away")
        return moment

    def zone(self, name: str, default: tzinfo) -> tzinfo:
        """A zone by its name."""
        value = self.text(name)
        if not value:
            return default
        found = None
        with contextlib.suppress(ValueError, OSError):
            found = zone_of_name(value)
        if found is None:
            raise ParameterError(f"{name} is {_shown(value)}, and must be a zone such as Europe/Berlin or UTC")
        return found

    def place(self, name: str) -> TaskPlace | None:
        """A place in an ordered list of tasks, as `place_text` writes it, or None."""
        value = self.text(name)
        if not value:
            return None
        number, separator, task = value.partition("~")
        digits = number.removeprefix("-")
        if not separator or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            raise ParameterError(f"{name} is {_shown(value)}, and must be what a link of this page has")
        return TaskPlace(task, int(number))

    def run_place(self, name: str) -> tuple[Instant, int] | None:
        """A place among runs, as `run_place_text` writes it, or None."""
        value = self.text(name)
        if not value:
            return None
        parts = value.split("-")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            raise ParameterError(f"{name} is {_shown(value)}, and must be what a link of this page has")
        return Instant(int(parts[0])), int(parts[1])


def place_text(place: TaskPlace) -> str:
    """A place in an ordered list of tasks, for a link."""
    return f"{place.value}~{place.name}"


def run_place_text(started_at: Instant, run_id: int) -> str:
    """A place among runs, for a link."""
    return f"{started_at}-{run_id}"


def _shown(value: str) -> str:
    return repr(plain(value, longest=60))
