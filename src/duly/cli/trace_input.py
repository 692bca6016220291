"""A trace from a store, a file or standard input, as a file that can be read twice.

The trace of a store is copied in one read transaction, which does not disturb a scheduler that runs on it. Standard
input is copied as well, unless it is a file: finding the smallest sub-trace of a violation needs a second reading.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from duly.cli.output import Exit, Failure, fail, failure_of, reason_of
from duly.cli.store import reader_of
from duly.errors import TraceError
from duly.stores import View, trace_copy
from duly.stores.place import StorePlace, name_of
from duly.stores.place import place_of as store_at
from duly.stores.port import StoredTrace
from duly.stores.postgres.url import is_url
from duly.stores.sqlite.file import is_database
from duly.text import meant, plain

STANDARD_STREAM: Final = "-"


class Input(NamedTuple):
    """A trace, or a part of one, that is ready to be read."""

    name: str
    file: BinaryIO
    size: int
    stored: StoredTrace | None


def open_input(source: str, schema: str, stack: contextlib.ExitStack) -> Input:
    """Open a source that was named on the command line; the stack closes it. `schema` is that of a URL."""
    if source == STANDARD_STREAM:
        return _standard_input(stack)
    if is_url(source):
        return _stored(store_at(source, schema), stack)
    path = Path(source)
    try:
        if not is_database(path):
            return _file(source, path, stack)
    except OSError as fault:
        raise _unreadable(path, fault) from fault
    return _stored(path, stack)


def _stored(store: StorePlace, stack: contextlib.ExitStack) -> Input:
    copy = _temporary(stack)
    stored = copy_trace(store, copy)
    return Input(name_of(store), copy, copy.tell(), stored)


def _file(source: str, path: Path, stack: contextlib.ExitStack) -> Input:
    file: BinaryIO = stack.enter_context(path.open("rb"))
    size = os.fstat(file.fileno()).st_size
    if not file.seekable():  # a named pipe, a process substitution
        file, size = _copied(file, stack)
    return Input(source, file, size, None)


def _standard_input(stack: contextlib.ExitStack) -> Input:
    stream = sys.stdin.buffer
    if stream.isatty():
        fail("standard input is a terminal, not a trace", "duly trace export STORE | duly verify -")
    if stream.seekable():
        return Input("standard input", stream, os.fstat(stream.fileno()).st_size, None)
    return Input("standard input", *_copied(stream, stack), None)


def _copied(stream: BinaryIO, stack: contextlib.ExitStack) -> tuple[BinaryIO, int]:
    copy = _temporary(stack)
    try:
        shutil.copyfileobj(stream, copy, 1 << 20)
        copy.flush()
    except OSError as fault:
        raise unwritable("a copy of the trace", fault) from fault
    return copy, copy.tell()


def unwritable(what: str, fault: OSError) -> Failure:
    """The failure after a full disk, or in a folder that may not be written to."""
    hint = "free some space; copies are kept in the folder that TMPDIR names"
    return Failure(f"{what} cannot be written: {reason_of(fault)}", hint, Exit.STORE)


def _temporary(stack: contextlib.ExitStack) -> BinaryIO:
    return stack.enter_context(tempfile.TemporaryFile(prefix="duly-trace-"))


def _unreadable(path: Path, fault: OSError) -> Failure:
    if isinstance(fault, FileNotFoundError):
        hint = None
        with contextlib.suppress(OSError):
            close = meant(path.name, [each.name for each in path.parent.iterdir() if each.exists()])
            hint = f"did you mean {path.with_name(close)}?" if close else None
        return Failure(f"no such store or file: {path}", hint, Exit.STORE)
    if isinstance(fault, IsADirectoryError):
        return Failure(f"{path} is a folder", "name a store, or files that hold a trace", Exit.STORE)
    return Failure(f"{path} cannot be read: {reason_of(fault)}", None, Exit.STORE)


def copy_trace(store: StorePlace, file: BinaryIO) -> StoredTrace:
    """Write the trace of a store into a file; the store may be in use, and does not change.

    A trace that is not what was written is a failure that names the store.
    """

    def question(view: View) -> StoredTrace:
        stored = trace_copy.copy_trace(view, file)
        if stored is None:
            hint = "a trace is kept by `duly run --trace`, or Scheduler(..., trace=True)"
            fail(f"{name_of(store)} holds no trace: no scheduler on it was asked to keep one", hint, Exit.TRACE)
        return stored

    try:
        return reader_of(store).read(question)
    except TraceError as error:
        failure = failure_of(error)
        failure.message = f"{place_of(name_of(store), error, stored=True)}: {error.details['reason']}"
        raise failure from error
    except OSError as fault:
        raise unwritable("the trace", fault) from fault


def place_of(source: object, error: TraceError, *, stored: bool) -> str:
    """Where a trace is broken, as the beginning of a message."""
    return f"{plain(str(source))}, line {error.details['line']}{' of its trace' if stored else ''}"
