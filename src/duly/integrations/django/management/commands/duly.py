"""`manage.py duly COMMAND ...`: the command line of duly, with the target and the store of the settings."""

import argparse
import os
from collections.abc import Sequence
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from duly.__main__ import main
from duly.integrations.django.configuration import ProjectConfiguration, configuration

TARGET: Final = "duly.integrations.django.tasks:registrations"
_WITH_TARGET: Final = frozenset({"run", "plan", "simulate"})
_WITH_TARGET_OR_EXPRESSION: Final = frozenset({"next", "check"})
_WITH_VALUES: Final = frozenset({"-n", "--from", "--tz"})
"""Options of `next` whose value is not an expression."""


class Command(BaseCommand):
    """Hands all arguments to `duly`; exits with its code."""

    help = "Run, plan and look at scheduled tasks: run, plan, status, history, explain, next, check, simulate, verify."
    requires_system_checks: Sequence[str] = []  # of those that only look, none needs the whole project in order

    def add_arguments(self, parser: Any) -> None:
        """Everything after `duly` is its own."""
        parser.add_argument("command", help="A command of duly; `manage.py duly COMMAND --help` explains it.")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Its arguments; store and TARGET are set.")

    def handle(self, *_: Any, **options: Any) -> None:
        """Called by Django, which has been set up."""
        try:
            configured = configuration()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        command, rest = options["command"], list(options["arguments"])
        if command == "run":
            self.check()
        os.environ["DULY_STORE"] = configured.store  # where every command looks; --store takes its place
        if configured.schema is not None:
            os.environ["DULY_SCHEMA"] = configured.schema
        main(arguments_for(command, rest, configured))


def arguments_for(command: str, rest: Sequence[str], configured: ProjectConfiguration) -> list[str]:
    """The arguments of `duly`."""
    arguments = [command, *rest]
    if "--help" in rest or "-h" in rest:
        return arguments
    if command == "run" and configured.standby and not any(each.startswith("--once") for each in rest):
        arguments.append("--standby")
    if command in _WITH_TARGET or (command in _WITH_TARGET_OR_EXPRESSION and not _has_positional(rest)):
        arguments.append(TARGET)
    return arguments


def _has_positional(rest: Sequence[str]) -> bool:
    options = [each in _WITH_VALUES for each in rest]
    return any(not each.startswith("-") and not (place and options[place - 1]) for place, each in enumerate(rest))
