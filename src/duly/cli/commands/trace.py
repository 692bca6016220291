"""`duly trace export`: the trace of a store, in the form in which traces are exchanged."""

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import BinaryIO

import click

from duly.cli.output import Exit, fail, json_option, note, print_json, reason_of, say
from duly.cli.store import StorePath
from duly.cli.trace_input import STANDARD_STREAM, copy_trace, unwritable
from duly.insight.json_form import json_form
from duly.stores.port import StoredTrace
from duly.stores.sqlite.file import is_database, kind
from duly.text import plain


@click.group(name="trace", no_args_is_help=False)
def trace() -> None:
    """Export the formal trace that `duly run --trace` keeps.

    \b
    Example:
      duly trace export state.db -o trace.jsonl
      duly trace export state.db | duly verify -
    """


@trace.command()
@click.argument("store", type=StorePath(readable=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(readable=False, path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write to FILE; - is standard output, the default.",
)
@json_option
def export(store: Path, output: Path | None, as_json: bool) -> int:
    """Write the trace of STORE as JSON Lines (docs/formal.md).

    The store is read in one transaction, even while a scheduler runs on it, and does not change. FILE appears when it
    is complete. The last segment is sealed as clean if a stop has completed, otherwise as open.

    \b
    Example:
      duly trace export state.db -o trace.jsonl
      duly trace export state.db | duly verify -
    """
    if output is None or str(output) == STANDARD_STREAM:
        if as_json:
            fail("standard output has the trace, and --json describes it", "give -o FILE, too")
        return _to_standard_output(store)
    output = Path(os.path.realpath(output))
    _check_place(output)
    try:
        with _replacing(output) as file:
            stored = copy_trace(store, file)
            size = file.tell()
    except OSError as fault:
        raise unwritable(plain(output), fault) from fault
    _note_if_not_current(stored)
    if as_json:
        print_json("trace export", {"store": str(store), "file": str(output), "bytes": size, **json_form(stored, UTC)})
    else:
        segments = "1 segment" if stored.segments == 1 else f"{stored.segments} segments"
        say(f"{plain(output.name)}: {stored.events:,} events in {segments}, sealed {stored.seal}")
    return Exit.OK


def _to_standard_output(store: Path) -> int:
    with tempfile.TemporaryFile(prefix="duly-trace-") as file:
        stored = copy_trace(store, file)
        _note_if_not_current(stored)
        file.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
        sys.stdout.buffer.flush()
    return Exit.OK


def _check_place(output: Path) -> None:
    folder = output.parent
    try:
        found, beside, taken = kind(output), kind(folder), is_database(output)
    except OSError as fault:
        hint = "a store would be lost there: name another file"
        fail(f"{output} cannot be looked at: {reason_of(fault)}", hint, Exit.STORE)
    if found == stat.S_IFDIR:
        fail(f"{output} is a folder", "name the file to write")
    if taken:
        fail(f"{output} is a store: it would be lost", "name another file")
    if beside != stat.S_IFDIR:
        fail(f"the folder {folder} does not exist")
    if not os.access(folder, os.W_OK):
        fail(f"{folder} cannot be written to: permission denied")


@contextlib.contextmanager
def _replacing(output: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `output` when it is complete; a device or a pipe is written last."""
    if kind(output) not in (0, stat.S_IFREG):
        with tempfile.TemporaryFile(prefix="duly-trace-") as copy, output.open("wb") as device:
            yield copy
            copy.seek(0)
            shutil.copyfileobj(copy, device, 1 << 20)
        return
    handle, name = tempfile.mkstemp(prefix=f".{output.name[:100]}.", dir=output.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, output)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _note_if_not_current(stored: StoredTrace) -> None:
    if not stored.current:
        note("a scheduler that kept no trace has used the store since; the trace ends before it")
