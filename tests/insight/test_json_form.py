"""The one JSON form of a value: its fields, under their names in JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from duly import CronExpression, parse_cron
from duly.core.moments import Instant, Minute, instant_of, minute_of
from duly.insight.json_form import json_form

BERLIN = ZoneInfo("Europe/Berlin")
NOON = instant_of(datetime(2024, 7, 1, 10, 0, 0, 250_000, tzinfo=UTC))


class Colour(Enum):
    """An enumeration."""

    DARK_RED = "darkRed"


@dataclass(frozen=True, slots=True)
class Part:
    """A value inside another."""

    started_at: Instant
    ended_at: Instant | None = None


class Pair(NamedTuple):
    """A value that is a NamedTuple."""

    first_at: Instant
    failures: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A value with a field of every type that has a JSON form."""

    task: str
    from_: Instant
    due: Minute
    local: datetime
    lateness_ms: int
    share: float
    healthy: bool
    colour: Colour
    expression: CronExpression
    store: Path
    part: Part
    parts: Sequence[Part]
    pairs: tuple[Pair, ...]
    instants: tuple[Instant, ...]
    by_name: Mapping[str, Instant]
    facts: dict[str, Any]
    nothing: Part | None = None
    hidden: object = field(default=None, repr=False)


def whole() -> Whole:
    return Whole(
        task="backup",
        from_=NOON,
        due=minute_of(NOON, BERLIN),
        local=datetime(2024, 3, 31, 2, 30),
        lateness_ms=250,
        share=0.5,
        healthy=True,
        colour=Colour.DARK_RED,
        expression=parse_cron("0 12 * * *"),
        store=Path("state.db"),
        part=Part(NOON),
        parts=[Part(NOON, NOON)],
        pairs=(Pair(NOON, 1),),
        instants=(NOON,),
        by_name={"last_start": NOON},
        facts={"run_id": 7, "at": datetime(2024, 7, 1, tzinfo=UTC), "colours": [Colour.DARK_RED], "none": None},
        hidden=object(),
    )


def test_a_value_is_written_field_by_field() -> None:
    """In the order of the fields; keys of a mapping are data and stay as they are."""
    noon = "2024-07-01T12:00:00.250000+02:00"
    form = json_form(whole(), BERLIN)
    assert form == {
        "task": "backup",
        "from": noon,
        "due": "2024-07-01T12:00:00+02:00",
        "local": "2024-03-31T02:30:00",
        "latenessMs": 250,
        "share": 0.5,
        "healthy": True,
        "colour": "darkRed",
        "expression": "0 12 * * *",
        "store": "state.db",
        "part": {"startedAt": noon, "endedAt": None},
        "parts": [{"startedAt": noon, "endedAt": noon}],
        "pairs": [{"firstAt": noon, "failures": 1}],
        "instants": [noon],
        "byName": {"last_start": noon},
        "facts": {"run_id": 7, "at": "2024-07-01T00:00:00+00:00", "colours": ["darkRed"], "none": None},
        "nothing": None,
    }
    assert list(form)[:3] == ["task", "from", "due"]


def test_instants_are_written_in_the_zone_of_the_document() -> None:
    assert json_form(Part(NOON), UTC)["startedAt"] == "2024-07-01T10:00:00.250000+00:00"


@dataclass(frozen=True, slots=True)
class Strange:
    """A value with a field that has no JSON form."""

    thing: object


@pytest.mark.parametrize("value", [object(), Strange(object()), Strange({1, 2})])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    """At once, and not when the document is printed."""
    with pytest.raises(TypeError, match="has no JSON form"):
        json_form(value, UTC)
