"""Where the output of a command goes, in which form, and the exit code.

Results go to standard output: for people as text, coloured only on a terminal and never when NO_COLOR is set, or with
`--json` as one JSON document. A failure is one message on standard error, and an exit code.
docs/reference/exit-codes.md says what each code means, command by command; a test compares it with the commands.
"""

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from typing import IO, Any, Final, NoReturn, TypeVar

import click
from rich.console import COLOR_SYSTEMS, Console, RenderableType
from rich.style import Style
from rich.text import Text

from duly.errors import (
    CronError,
    DulyError,
    HostZoneError,
    LifecycleError,
    RegistrationError,
    StoreError,
    StoreLockedError,
    TaskTryDeserializeError,
    TraceError,
)
from duly.insight.json_form import JSON_FORMAT
from duly.text import plain

_SPOOL_BYTES: Final = 1 << 22
"""Output that is kept in memory until it is complete; more goes to a temporary file."""

_SECRETS: Final = re.compile(
    r"((?:\b[a-z][a-z0-9+.-]*:|\bpostgres(?:ql)?)/+[^\s:/@'\"]*):[^\s'\"]*@|(password=)[^\s&'\"]+", re.IGNORECASE
)
"""The password of a URL, before the last @ that may end it, or in its query part; `Path` makes one slash of two."""

_PIPE_WIDTH: Final = 1_000
"""Columns where there is no terminal: tables are as wide as their content, and nothing is folded for a program."""

F = TypeVar("F", bound=Callable[..., Any])


class Exit(IntEnum):
    """The exit codes; docs/reference/exit-codes.md explains them."""

    OK = 0
    NO = 1
    USAGE = 2
    TARGET = 3
    STORE = 4
    LOCKED = 5
    ABANDONED = 6
    TRACE = 7
    ZONE = 8
    DEFECT = 70
    OUTPUT = 74
    INTERRUPTED = 130
    READER_GONE = 141


class Failure(Exception):  # noqa: N818  # not a defect: the command could not do what was asked
    """Ends the command with one message, lines that belong to it, and a hint."""

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
    """The failure of a command after one of duly's errors; `about` names what it is about."""
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
    if isinstance(error, HostZoneError):
        return Exit.ZONE
    return Exit.NO


def reason_of(fault: OSError) -> str:
    """Why the system refused something, as the end of a message."""
    return (fault.strerror or str(fault)).lower()


# --- standard output and standard error ------------------------------------------------------------------------------


@cache
def console() -> Console:
    """Standard output."""
    return _console(stderr=False)


@cache
def error_console() -> Console:
    """Standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # No markup and no highlighting: names of tasks may contain anything.
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(
        stderr=stderr,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if terminal else _PIPE_WIDTH,
        # With NO_COLOR, rich would still write escape codes for bold and dim.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def say(text: str | Text = "", style: str | None = None) -> None:
    """Print a line on standard output."""
    console().print(text, style=style, soft_wrap=True)


def styled(text: str, style: str) -> str:
    """Text in a style, for `sys.stdout.write`: `say` is too slow for very long output."""
    system = console().color_system
    return _style(style).render(text, color_system=COLOR_SYSTEMS[system]) if style and system else text


@cache
def _style(style: str) -> Style:
    return Style.parse(style)


def show(*parts: RenderableType) -> None:
    """Print tables and the like on standard output; in a pipe, without the blanks at the ends of lines."""
    if console().is_terminal:
        console().print(*parts)
        return
    with console().capture() as capture:
        console().print(*parts)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def note(text: str, label: str = "note", style: str = "bold") -> None:
    """Print a line on standard error, beside the result."""
    error_console().print(Text.assemble((f"{label}: ", style), text), soft_wrap=True)


def show_failure(failure: Failure) -> None:
    """Print the message of a failure on standard error."""
    note(_shown(failure.message), "error", "bold red")
    if failure.excerpt:
        error_console().print(_shown(failure.excerpt), soft_wrap=True, style="dim")
    if failure.hint:
        note(_shown(failure.hint), "hint", "bold cyan")


def _shown(text: str) -> str:
    return plain(masked(text), lines=True)


def masked(text: str) -> str:
    """A text about what was given. A URL where none belongs may be quoted in it, without its password."""
    return _SECRETS.sub(lambda found: f"{found[1]}:…@" if found[1] else f"{found[2]}…", text)


def first_line(text: str, longest: int = 120) -> str:
    """The beginning of a text that may be long, on one line."""
    line = plain(text.strip().split("\n", 1)[0])
    return line if len(line) <= longest else line[: longest - 1] + "…"


# --- JSON ------------------------------------------------------------------------------------------------------------


def json_option(command: F) -> F:
    """`--json`, which every command has; the parameter is `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document (docs/reference/json.md).")(
        command
    )


def print_json(command: str, document: Mapping[str, Any]) -> None:
    """Print the result of a command as one JSON document, headed by the command and the version of the shapes.

    A member may be an iterator, for a list of any length: its elements are written one by one.
    """
    for text in json_text(command, document):
        sys.stdout.write(text)


def json_text(command: str, document: Mapping[str, Any]) -> Iterator[str]:
    """The text that `print_json` writes, piece by piece."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    encode = _Encoder(ascii_only=encoding != "utf8")
    separator = "{\n  "
    for key, value in {"command": command, "format": JSON_FORMAT, **document}.items():
        yield f"{separator}{encode(key)}: "
        separator = ",\n  "
        if not isinstance(value, Iterator):
            yield encode(value, 1)
            continue
        inner = "[\n    "
        for element in value:
            yield inner + encode(element, 2)
            inner = ",\n    "
        yield "[]" if inner[0] == "[" else "\n  ]"
    yield "\n}\n"


class _Encoder:
    """Writes JSON as `json.dumps(indent=2)` does, and several times as fast: the C code of `json` does not indent."""

    def __init__(self, *, ascii_only: bool) -> None:
        self._ascii_only = ascii_only
        self._encoders: dict[int, Callable[[Any], str]] = {}

    def __call__(self, value: Any, depth: int = 0) -> str:
        """The text of a value inside `depth` others; keys of objects are text."""
        if not value or not isinstance(value, dict | list | tuple):
            return self._on_lines(0)(value)
        inner = depth + 1
        begin, end = f"\n{'  ' * inner}", f"\n{'  ' * depth}"
        members = value.values() if isinstance(value, dict) else value
        if not any(isinstance(each, dict | list | tuple) and each for each in members):
            text = self._on_lines(inner)(value)
            return f"{text[0]}{begin}{text[1:-1]}{end}{text[-1]}"
        if isinstance(value, dict):
            parts = [f"{self._on_lines(0)(key)}: {self(each, inner)}" for key, each in value.items()]
            return f"{{{begin}{f',{begin}'.join(parts)}{end}}}"
        return f"[{begin}{f',{begin}'.join(self(each, inner) for each in value)}{end}]"

    def _on_lines(self, depth: int) -> Callable[[Any], str]:
        """An encoder of values that hold no others but empty ones, each member on a line of its own."""
        if depth not in self._encoders:
            separators = f",\n{'  ' * depth}", ": "
            self._encoders[depth] = json.JSONEncoder(ensure_ascii=self._ascii_only, separators=separators).encode
        return self._encoders[depth]


@contextlib.contextmanager
def spooled() -> Iterator[IO[str]]:
    """A file whose content goes to standard output when it is complete; nothing does if that fails."""
    with tempfile.SpooledTemporaryFile(
        _SPOOL_BYTES, "w+", encoding="utf-8", errors="surrogatepass", newline="\n", prefix="duly-output-"
    ) as file:
        yield file
        file.seek(0)
        shutil.copyfileobj(file, sys.stdout)
