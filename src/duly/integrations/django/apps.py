"""The app for INSTALLED_APPS: it checks the setting DULY, and links the dashboard in the admin."""

from collections.abc import Callable
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import Error, register
from django.core.exceptions import ImproperlyConfigured

from duly.integrations.django.configuration import configuration


class DulyConfig(AppConfig):
    """`duly.integrations.django` in INSTALLED_APPS. There are no models: the store belongs to the scheduler."""

    name = "duly.integrations.django"
    label = "duly"
    verbose_name = "Scheduler"

    def ready(self) -> None:
        """Called by Django when all apps are loaded."""
        register(_check, "duly")
        if apps.is_installed("django.contrib.admin"):
            _link_dashboard()


def _check(**_: Any) -> list[Error]:
    """The objections of `manage.py check` to the setting."""
    try:
        configuration()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="duly.E001")]
    return []


def _link_dashboard() -> None:
    """Let the list of apps of the admin end with the dashboard, if DULY["WEB"] says where it is.

    An entry of the list, and not a template: it does not depend on the order of INSTALLED_APPS, and whatever templates
    a project has for its admin, they show the list.
    """
    from django.contrib import admin

    own: Callable[..., list[Any]] = admin.site.get_app_list

    def with_dashboard(request: Any, app_label: str | None = None) -> list[Any]:
        found = own(request, app_label)
        if app_label is None and (web := _dashboard()) is not None:
            entry = {
                "model": None,
                "name": "Dashboard",
                "object_name": "Dashboard",
                "perms": {"add": False, "change": False, "delete": False, "view": True},
                "admin_url": web,
                "add_url": None,
                "view_only": True,
            }
            found.append(
                {"name": "Scheduler", "app_label": "duly", "app_url": web, "has_module_perms": True, "models": [entry]}
            )
        return found

    admin.site.get_app_list = with_dashboard


def _dashboard() -> str | None:
    try:
        return configuration().web
    except ImproperlyConfigured:
        return None  # `manage.py check` says what is wrong
