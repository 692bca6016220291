"""`--html FILE`: the result of a command as a page that stands alone, for people and for CI."""

import os
from collections.abc import Callable, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Any, TypeVar

import click

from duly.cli.output import Exit, fail, reason_of, say
from duly.cli.output_file import check_output_file, replacing
from duly.core.moments import Instant
from duly.text import plain

F = TypeVar("F", bound=Callable[..., Any])


def html_option(command: F) -> F:
    """`--html FILE`; the parameter is `html`."""
    return click.option(
        "--html",
        type=click.Path(readable=False, path_type=Path),
        metavar="FILE",
        help="Also write the result to FILE, a page that stands alone.",
    )(command)


def check_html(file: Path | None) -> None:
    """Fail before the work begins if the page could not be made or written."""
    if file is None:
        return
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
    except ModuleNotFoundError as missing:
        fail(f"--html needs the package {missing.name}", 'pip install "duly[web]"')
    check_output_file(Path(os.path.realpath(file)))


def write_html(
    file: Path | None, template: str, title: str, zone: tzinfo, at: Instant, values: Mapping[str, Any]
) -> None:
    """Write the page, which takes the place of FILE when it is complete."""
    if file is None:
        return
    from duly.web.report import report

    text = report(template, title, zone, at, values)
    try:
        with replacing(Path(os.path.realpath(file))) as output:
            output.write(text.encode("utf-8", "surrogatepass"))
    except OSError as fault:
        fail(f"--html: {plain(file)} cannot be written: {reason_of(fault)}", None, Exit.STORE)


def say_written(file: Path | None) -> None:
    """Say that the page is there."""
    if file is not None:
        say(f"written: {plain(file)}")
