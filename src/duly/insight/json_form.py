"""The JSON form of a value, derived from the names and types of its fields.

A value is a frozen dataclass, or a NamedTuple. Its JSON form is an object with one member per field, in their order:
`last_poll_at` becomes `lastPollAt`, and `from_`, which Python cannot call `from`, becomes `from`. A field declared with
`repr=False` is left out.

| type of a field               | in JSON                                                                   |
|-------------------------------|---------------------------------------------------------------------------|
| `str`, `int`, `float`, `bool` | as it is; a duration is a number of milliseconds in a field named `…_ms`   |
| `Instant`                     | ISO 8601, with the offset of the document's zone                          |
| `Minute`                      | the instant at which it begins                                            |
| `datetime`                    | ISO 8601, in the zone that it has; without an offset if it has none       |
| `CronExpression`, `Path`      | its text                                                                  |
| an enumeration                | the value of the member                                                   |
| a dataclass, a NamedTuple     | an object                                                                 |
| a sequence, a mapping         | a list, an object with the same keys                                      |

Instants are integers when the program runs, so the types are read from the annotations, once for each class.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, tzinfo
from enum import Enum
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from duly.core.cron import CronExpression
from duly.core.moments import Instant, Minute, begin
from duly.insight.words import iso
from duly.text import wire_name

JSON_FORMAT: Final = 1
"""The version of all JSON shapes; it grows when a field changes its meaning or goes, not when one is added."""

_Convert = Callable[[Any, tzinfo], Any]


class _Member(NamedTuple):
    """A field of a class, and what becomes of it."""

    key: str
    attribute: str
    convert: _Convert


def json_form(value: object, zone: tzinfo) -> dict[str, Any]:
    """The JSON form of a value; its instants are written with the offsets of a zone."""
    return {member.key: member.convert(getattr(value, member.attribute), zone) for member in _members_of(type(value))}


_known: dict[type, tuple[_Member, ...]] = {}


def _members_of(kind: type) -> tuple[_Member, ...]:
    if (members := _known.get(kind)) is None:
        hints = get_type_hints(kind)
        members = _known[kind] = tuple(
            _Member(wire_name(name), name, _conversion(hints[name])) for name in _fields_of(kind)
        )
    return members


def _fields_of(kind: type) -> Sequence[str]:
    if is_dataclass(kind):
        return [each.name for each in fields(kind) if each.repr]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names: tuple[str, ...] = kind._fields
        return names
    raise TypeError(f"{kind.__name__} has no JSON form: it is neither a dataclass nor a NamedTuple")


def _conversion(hint: Any) -> _Convert:
    """How values of an annotated type are written."""
    if hint is Instant:
        return iso
    if hint is Minute:
        return _minute
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        present = [each for each in arguments if each is not NoneType]
        return _optional(_conversion(present[0])) if len(present) == 1 else _by_value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_of(_conversion(arguments[1]))
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _sequence_of(_conversion(arguments[0]))
    return _by_value


def _minute(value: Minute, zone: tzinfo) -> str:
    return iso(begin(value), zone)


def _optional(convert: _Convert) -> _Convert:
    return lambda value, zone: None if value is None else convert(value, zone)


def _mapping_of(convert: _Convert) -> _Convert:
    return lambda values, zone: {key: convert(value, zone) for key, value in values.items()}


def _sequence_of(convert: _Convert) -> _Convert:
    return lambda values, zone: [convert(value, zone) for value in values]


def _by_value(value: Any, zone: tzinfo) -> Any:
    """Write a value whose type says by itself what it is."""
    match value:
        case Enum():
            return value.value
        case None | str() | int() | float():
            return value
        case datetime():
            return value.isoformat()
        case CronExpression():
            return value.text
        case PurePath():
            return str(value)
        case tuple() if hasattr(value, "_fields"):
            return json_form(value, zone)
        case Mapping():
            return {key: _by_value(each, zone) for key, each in value.items()}
        case Sequence():
            return [_by_value(each, zone) for each in value]
        case _:
            return json_form(value, zone)
