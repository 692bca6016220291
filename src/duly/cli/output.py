"""Where the command line's output goes, in which form, and with which exit code it ends.

Results go to standard output: for people as text, coloured only on a terminal and never when NO_COLOR is set, or with
`--json` as one JSON document. Everything that went wrong is one message on standard error, and one of these codes:

| code | name        | means                                                                                     |
|------|-------------|-------------------------------------------------------------------------------------------|
| 0    | OK          | done; healthy; valid                                                                      |
| 1    | NO          | the answer is no: unhealthy, an invalid expression, a violated property, a refused change |
| 2    | USAGE       | wrong usage; or `plan --check` found what would be lost                                   |
| 3    | TARGET      | TARGET cannot be loaded, or a registration in it is wrong                                 |
| 4    | STORE       | the store is missing, unreadable, foreign, damaged, of a newer version, or cannot be used |
| 5    | LOCKED      | another scheduler holds the store                                                         |
| 6    | ABANDONED   | `run` was told twice to stop: running callbacks were left, and are interrupted runs now    |
| 7    | TRACE       | there is no trace to judge, or it is not whole: malformed, cut, edited, reordered, mixed   |
| 70   | DEFECT      | a defect of duly itself; the traceback shows where                                        |
| 130  | INTERRUPTED | Ctrl-C, in any command but `run`, where it means a graceful stop                          |
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, Final, NoReturn, TypeVar

import click
from rich.console import Console, RenderableType
from rich.text import Text

from duly.errors import (
    CronError,
    DulyError,
    LifecycleError,
    RegistrationError,
    StoreError,
    StoreLockedError,
    TaskTryDeserializeError,
    TraceError,
)
from duly.text import plain

JSON_FORMAT: Final = 1
"""The version of all JSON shapes; it grows when a field changes its meaning or goes, not when one is added."""

_PIPE_WIDTH: Final = 1_000
"""Columns where there is no terminal: tables are as wide as what they hold, and nothing is folded for a program."""

F = TypeVar("F", bound=Callable[..., Any])


class Exit(IntEnum):
    """The exit codes, as the table above explains them."""

    OK = 0
    NO = 1
    USAGE = 2
    TARGET = 3
    STORE = 4
    LOCKED = 5
    ABANDONED = 6
    TRACE = 7
    DEFECT = 70
    INTERRUPTED = 130


class Failure(Exception):  # noqa: N818  # it is shown to people, who fail to do something; it is no defect
    """Ends the command with one message, optionally what to do, and what stands between the two."""

    def __init__(self, message: str, hint: str | None = None, code: Exit = Exit.USAGE, excerpt: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.excerpt = excerpt
        """Lines that belong to the message, such as a shortened traceback; shown as they are."""


def fail(message: str, hint: str | None = None, code: Exit = Exit.USAGE, excerpt: str = "") -> NoReturn:
    """End the command."""
    raise Failure(message, hint, code, excerpt)


def failure_of(error: DulyError, *, about: str = "") -> Failure:
    """One of duly's own errors as the end of a command; `about` says where it belongs."""
    hint = error.details.get("hint")
    text = f"{about}: {error.message}" if about else error.message
    task = error.details.get("taskName")
    if isinstance(error, TaskTryDeserializeError):
        text = f"{text} (task {plain(task)!r})" if task else text
        hint = "the store holds a record that duly did not write; restore a backup"
    return Failure(text, hint, _code_of(error))


def _code_of(error: DulyError) -> Exit:
    if isinstance(error, StoreLockedError):
        return Exit.LOCKED
    if isinstance(error, StoreError | TaskTryDeserializeError | LifecycleError):
        return Exit.STORE
    if isinstance(error, RegistrationError | CronError):
        return Exit.TARGET
    if isinstance(error, TraceError):
        return Exit.TRACE
    return Exit.NO


def reason_of(fault: OSError) -> str:
    """Why the system refused something, as the end of a message."""
    return (fault.strerror or str(fault)).lower()


# --- where it goes ---------------------------------------------------------------------------------------------------


@cache
def console() -> Console:
    """Standard output."""
    return _console(stderr=False)


@cache
def error_console() -> Console:
    """Standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # No markup and no highlighting: what is printed holds names that others chose.
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(
        stderr=stderr,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if terminal else _PIPE_WIDTH,
        # NO_COLOR asks for no colour; what is left of a style without it (bold, dim) would still be escape codes.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def say(text: str | Text = "", style: str | None = None) -> None:
    """A line on standard output."""
    console().print(text, style=style, soft_wrap=True)


def show(*parts: RenderableType) -> None:
    """Tables and the like on standard output; where it is no terminal, without the blanks that fill their lines."""
    if console().is_terminal:
        console().print(*parts)
        return
    with console().capture() as capture:
        console().print(*parts)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def note(text: str, label: str = "note", style: str = "bold") -> None:
    """A line on standard error, beside the result."""
    error_console().print(Text.assemble((f"{label}: ", style), text), soft_wrap=True)


def show_failure(failure: Failure) -> None:
    """The one message on standard error."""
    note(plain(failure.message, lines=True), "error", "bold red")
    if failure.excerpt:
        error_console().print(plain(failure.excerpt, lines=True), soft_wrap=True, style="dim")
    if failure.hint:
        note(plain(failure.hint, lines=True), "hint", "bold cyan")


def first_line(text: str, longest: int = 120) -> str:
    """The beginning of a text that may be long, on one line."""
    line = plain(text.strip().split("\n", 1)[0])
    return line if len(line) <= longest else line[: longest - 1] + "…"


# --- JSON ------------------------------------------------------------------------------------------------------------


def json_option(command: F) -> F:
    """`--json`, which every command has; the parameter is `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document, of a documented shape.")(
        command
    )


def print_json(command: str, document: Mapping[str, Any]) -> None:
    """The result of a command as one JSON document, headed by the command and the version of the shapes."""
    stream = sys.stdout
    ascii_only = (stream.encoding or "ascii").lower().replace("-", "") != "utf8"
    text = json.dumps({"command": command, "format": JSON_FORMAT, **document}, ensure_ascii=ascii_only, indent=2)
    stream.write(text + "\n")
