"""The registrations of a Django project, as `manage.py duly run` takes them.

A thread that runs callbacks lives as long as the scheduler, and Django closes a connection that is broken or too old
only at the beginning and the end of a request. So it is done here around every blocking callback.
"""

import inspect
from functools import wraps
from importlib import import_module
from typing import Any

from django.db import close_old_connections

from duly.integrations.django.configuration import configuration
from duly.integrations.wrapping import Callback, runs_on_loop, wrapped


async def registrations() -> Any:
    """The registrations that DULY["TASKS"] names; a function there is called, and may be async."""
    configured = configuration()
    declared = getattr(import_module(configured.module), configured.attribute)
    if callable(declared):
        declared = declared()
        if inspect.isawaitable(declared):
            declared = await declared
    return with_connections(declared)


def with_connections(declared: Any) -> Any:
    """Registrations whose blocking callbacks leave no broken or outdated connection behind."""
    return wrapped(declared, _with_connections)


def _with_connections(_: str, __: str, callback: Callback) -> Callback:
    if runs_on_loop(callback):
        return callback  # the asynchronous ORM of Django has threads of its own

    @wraps(callback, updated=())
    def with_fresh_connections() -> Any:
        close_old_connections()
        try:
            return callback()
        finally:
            close_old_connections()

    return with_fresh_connections
