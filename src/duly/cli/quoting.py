"""A cron expression that came as several arguments, because it was not quoted."""

import re
from collections.abc import Sequence
from typing import Final

from duly.cli.output import fail
from duly.core.fields import MONTHS, WEEKDAYS
from duly.text import plain

_FIELDS_MIN, _FIELDS_MAX = 5, 7
_PARTS: Final = re.compile(r"[\d*?,/#-]+|[A-Za-z]+")
_LETTERS: Final = ("L", "W", "LW", "C", "H", "R")
"""Letters that stand for themselves in some dialect."""
_NAME_LETTERS_MIN = 3


def refuse_unquoted(command: str, arguments: Sequence[str]) -> None:
    """End the command if its arguments look like the fields of one expression, as the shell splits or replaces them."""
    if len(arguments) < _FIELDS_MIN or any(" " in each or "\t" in each for each in arguments):
        return
    if len(arguments) <= _FIELDS_MAX and all(map(_may_be_a_field, arguments)):
        hint = f"quote it: duly {command} '{plain(' '.join(arguments))}'"
        fail(f"got {len(arguments)} arguments that each look like one field", hint)
    fail(
        f"got {len(arguments)} arguments, none with five fields",
        f"quote the expression, as in duly {command} '0 3 * * *': the shell replaces * with the names of files",
    )


def _may_be_a_field(argument: str) -> bool:
    """Whether an argument can be a field of an expression in any dialect; names of files hardly can."""
    parts = _PARTS.findall(argument)
    return "".join(parts) == argument and all(map(_is_known, filter(str.isalpha, parts)))


def _is_known(word: str) -> bool:
    names = any(name.upper().startswith(word.upper()) for name in (*MONTHS, *WEEKDAYS))
    return word.upper() in _LETTERS or (names and len(word) >= _NAME_LETTERS_MIN)
