"""The part of JSON Schema (2020-12) that the schemas of this kit use; a complete validator agrees with it.

A schema with a word that is not understood here is refused, so that no rule is silently left out.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN: Final = frozenset(
    {
        "$schema", "$id", "$defs", "$ref", "$comment", "title", "description", "type", "enum", "const", "pattern",
        "properties", "required", "additionalProperties", "items", "minItems", "uniqueItems", "minimum", "oneOf",
    }
)  # fmt: skip


def faults(value: object, root: dict[str, Any]) -> list[str]:
    """The faults of a value by a schema: a path and a reason each; empty if nothing is."""
    return list(_faults(value, root, root, "$"))


def _faults(value: object, part: Any, root: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(part, bool):
        yield from () if part else (f"{path} is not allowed here",)
        return
    if unknown := set(part) - _KNOWN:
        raise ValueError(f"the schema uses {sorted(unknown)}, which is not supported here")
    if "type" in part and not _has_type(value, part["type"]):
        yield f"{path} is not of type {part['type']}"
        return
    if "$ref" in part:
        yield from _faults(value, _referred(part["$ref"], root), root, path)
    if "oneOf" in part:
        fitting = sum(not any(_faults(value, each, root, path)) for each in part["oneOf"])
        if fitting != 1:
            yield f"{path} fits {fitting} of {len(part['oneOf'])} alternatives, and must fit one"
    yield from _value_faults(value, part, path)
    if isinstance(value, list):
        yield from _array_faults(value, part, root, path)
    if isinstance(value, dict):
        yield from _object_faults(value, part, root, path)


def _value_faults(value: object, part: dict[str, Any], path: str) -> Iterator[str]:
    if "const" in part and value != part["const"]:
        yield f"{path} is not {part['const']!r}"
    if "enum" in part and value not in part["enum"]:
        yield f"{path} is none of {part['enum']}"
    if isinstance(value, str) and "pattern" in part and not re.search(part["pattern"], value):
        yield f"{path} does not match {part['pattern']!r}"
    if isinstance(value, int | float) and not isinstance(value, bool) and value < part.get("minimum", value):
        yield f"{path} is less than {part['minimum']}"


def _array_faults(value: list[Any], part: dict[str, Any], root: dict[str, Any], path: str) -> Iterator[str]:
    if len(value) < part.get("minItems", 0):
        yield f"{path} has {len(value)} items, and needs {part['minItems']}"
    if part.get("uniqueItems") and any(item in value[:index] for index, item in enumerate(value)):
        yield f"{path} has an item twice"
    for index, item in enumerate(value):
        yield from _faults(item, part.get("items", True), root, f"{path}[{index}]")


def _object_faults(value: dict[str, Any], part: dict[str, Any], root: dict[str, Any], path: str) -> Iterator[str]:
    properties = part.get("properties", {})
    yield from (f"{path} lacks {name!r}" for name in part.get("required", ()) if name not in value)
    for name, item in value.items():
        yield from _faults(item, properties.get(name, part.get("additionalProperties", True)), root, f"{path}.{name}")


def _has_type(value: object, names: str | list[str]) -> bool:
    for name in [names] if isinstance(names, str) else names:
        if isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)):
            return True
    return False


def _referred(reference: str, root: dict[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found
