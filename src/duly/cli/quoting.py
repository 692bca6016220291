"""A cron expression that came as several arguments, because it was not quoted."""

from collections.abc import Sequence

from duly.cli.output import fail
from duly.text import plain

_FIELDS_MIN, _FIELDS_MAX = 5, 7


def refuse_unquoted(command: str, arguments: Sequence[str]) -> None:
    """End the command if its arguments look like the fields of one expression, as the shell splits or replaces them."""
    if len(arguments) < _FIELDS_MIN or any(" " in each or "\t" in each for each in arguments):
        return
    if len(arguments) <= _FIELDS_MAX:
        hint = f"quote it: duly {command} '{plain(' '.join(arguments))}'"
        fail(f"got {len(arguments)} arguments that each look like one field", hint)
    fail(
        f"got {len(arguments)} arguments, none with five fields",
        "quote each expression: the shell replaces * with the names of files",
    )
