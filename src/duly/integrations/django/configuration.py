"""The setting DULY of a Django project, checked."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

KEYS: Final = ("STORE", "SCHEMA", "TASKS", "STANDBY", "WEB")


@dataclass(frozen=True, slots=True)
class ProjectConfiguration:
    """The setting of a project for its scheduler."""

    store: str
    """The path of the store, or its URL, which may hold a password."""

    schema: str | None
    """The schema of a store on PostgreSQL; None: the one that every command has by default."""

    module: str
    attribute: str
    """Where the registrations are: a list, or a function that returns one."""

    standby: bool
    """Whether `manage.py duly run` waits while another scheduler holds the store."""

    web: str | None
    """The address of the dashboard, for a link in the admin."""


def configuration() -> ProjectConfiguration:
    """Read the setting; raises an ImproperlyConfigured that says what is wrong with it."""
    given = getattr(settings, "DULY", None)
    if given is None:
        raise ImproperlyConfigured(
            "the setting DULY is missing: write "
            'DULY = {"STORE": BASE_DIR / "state.db", "TASKS": "shop.tasks.registrations"}'
        )
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"the setting DULY must be a dict, got {type(given).__name__}")
    if unknown := [str(key) for key in given if key not in KEYS]:
        raise ImproperlyConfigured(f"DULY has no key {', '.join(unknown)}: it takes {', '.join(KEYS)}")
    module, attribute = _tasks(_required(given, "TASKS", "the dotted path of the registrations"))
    standby = given.get("STANDBY", False)
    if not isinstance(standby, bool):
        raise ImproperlyConfigured(f'DULY["STANDBY"] must be True or False, got {type(standby).__name__}')
    web = given.get("WEB")
    if web is not None and not (isinstance(web, str) and web.startswith(("/", "http://", "https://"))):
        raise ImproperlyConfigured(
            f'DULY["WEB"] must be the address of the dashboard, beginning with /, http:// or https://, got {web!r}'
        )
    store = os.fspath(_required(given, "STORE", "the path or the URL of the store"))
    schema = _required(given, "SCHEMA", "the name of a schema") if "SCHEMA" in given else None
    return ProjectConfiguration(store, schema, module, attribute, standby, web)


def _required(given: Mapping[Any, Any], key: str, what: str) -> Any:
    value = given.get(key)
    if key == "STORE" and isinstance(value, os.PathLike):
        return value
    if not isinstance(value, str) or not value:
        raise ImproperlyConfigured(f'DULY["{key}"] must be {what}, got {value!r}')
    return value


def _tasks(path: str) -> tuple[str, str]:
    """The module and the attribute of `shop.tasks.registrations` or `shop.tasks:registrations`."""
    module, _, attribute = path.rpartition(":" if ":" in path else ".")
    if not module or not attribute.isidentifier():
        raise ImproperlyConfigured(
            f'DULY["TASKS"] must be a dotted path, such as shop.tasks.registrations, got {path!r}'
        )
    return module, attribute
