"""The OpenAPI document of the JSON API, made from its table; `python -m duly.web.openapi` writes it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from http import HTTPStatus
from pathlib import Path, PurePath
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from duly.core.cron import CronExpression
from duly.core.moments import Instant, Minute
from duly.insight.json_form import JSON_FORMAT
from duly.text import wire_name
from duly.web.api import ENDPOINTS, Endpoint

OPENAPI: Final = Path(__file__).with_name("openapi.json")
_TIME: Final = {"type": "string", "format": "date-time"}
_SCALARS: Final[Mapping[type, Mapping[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    datetime: _TIME,
    CronExpression: {"type": "string"},
}

_FAILURE: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "duly",
            "version": str(JSON_FORMAT),
            "description": "What a duly store holds. Everything here only reads. "
            "docs/reference/json.md says what each field means.",
        },
        "paths": {path: {"get": _operation(path, endpoint)} for path, endpoint in ENDPOINTS.items()},
        "components": {
            "schemas": {
                "Failure": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {
                        "format": {"type": "integer"},
                        "error": {"type": "string"},
                        "hint": {"type": ["string", "null"]},
                    },
                }
            }
        },
    }


def _operation(path: str, endpoint: Endpoint) -> dict[str, Any]:
    return {
        "summary": endpoint.summary,
        "operationId": path.rpartition("/")[2],
        "parameters": [
            {
                "name": each.name,
                "in": "query",
                "required": each.required,
                "description": each.meaning,
                "schema": dict(each.schema),
            }
            for each in endpoint.parameters
        ],
        "responses": {
            **{str(status): _response(status, endpoint) for status in endpoint.statuses},
            "default": {"description": "A refusal, for want of the token for example", "content": _FAILURE},
        },
    }


def _response(status: int, endpoint: Endpoint) -> dict[str, Any]:
    is_whole = status in endpoint.whole
    content = {"application/json": {"schema": _answer_schema(endpoint)}} if is_whole else _FAILURE
    return {"description": HTTPStatus(status).phrase, "content": content}


def _answer_schema(endpoint: Endpoint) -> dict[str, Any]:
    properties: dict[str, Any] = {"command": {"type": "string"}, "format": {"type": "integer"}}
    value = resolve_name(endpoint.value) if isinstance(endpoint.value, str) else endpoint.value
    if value is not NoneType:
        properties |= _properties(value)
    properties |= endpoint.more
    properties |= {name: {"type": "array", "items": _schema(kind)} for name, kind in endpoint.members.items()}
    return {"type": "object", "required": ["command", "format"], "properties": properties}


def _properties(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind) if each.repr] if is_dataclass(kind) else list(kind._fields)  # type: ignore[attr-defined]
    return {wire_name(name): _schema(hints[name]) for name in names}


def _schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type, as `json_form` writes its values."""
    if hint in (Instant, Minute):
        return dict(_TIME)
    hint = getattr(hint, "__supertype__", hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        options = [_schema(each) for each in arguments if each is not NoneType]
        return {"anyOf": [*options, {"type": "null"}]} if NoneType in arguments else {"anyOf": options}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    kind = origin or hint
    if isinstance(kind, type):
        if issubclass(kind, Enum):
            return {"type": "string", "enum": [each.value for each in kind]}
        if kind in _SCALARS:
            return dict(_SCALARS[kind])
        if issubclass(kind, Mapping):
            return {"type": "object"}
        if issubclass(kind, PurePath):
            return {"type": "string"}
        if issubclass(kind, Sequence) and not hasattr(kind, "_fields"):
            return {"type": "array", "items": _schema(arguments[0])}
        if is_dataclass(kind) or hasattr(kind, "_fields"):
            return {"type": "object", "properties": _properties(kind)}
    return {}


def text() -> str:
    """The document as it is checked in."""
    return json.dumps(document(), indent=2) + "\n"


if __name__ == "__main__":
    OPENAPI.write_text(text())
