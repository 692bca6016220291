"""`duly copy`: from a file to a database that hosts share, or back."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from duly.cli.output import Exit, Failure, fail, failure_of, json_option, print_json, reason_of, say
from duly.cli.progress import progress
from duly.cli.store import StoreText, reader_of, schema_option
from duly.clock import SystemClock
from duly.core.moments import Instant
from duly.errors import TraceError
from duly.insight.cluster import host_text
from duly.insight.words import counted, listed
from duly.stores import Reader, View
from duly.stores.place import StorePlace, name_of, place_of
from duly.stores.port import Snapshot, StoredTrace
from duly.stores.sqlite import transfer as files
from duly.stores.trace_copy import copy_trace
from duly.text import plain

_LONG_ROWS = 20_000
"""From this number of rows on a terminal shows how far the copy is."""


@click.command(
    epilog="Exit code 4 if FROM cannot be read or TO is not empty, 5 if a scheduler or a host uses FROM, 7 if the "
    "trace of FROM is damaged."
)
@click.argument("from_", metavar="FROM", type=StoreText(readable=False, path_type=Path))
@click.argument("to", metavar="TO", type=StoreText(readable=False, path_type=Path))
@schema_option
@click.option(
    "--trace-file",
    type=click.Path(readable=False, path_type=Path),
    metavar="FILE",
    help="Write the trace of FROM here; the default is beside the file, with .trace.jsonl added to its name.",
)
@click.option("--no-trace", is_flag=True, help="Leave the trace of FROM where it is.")
@json_option
def copy(from_: Path | str, to: Path | str, schema: str, trace_file: Path | None, no_trace: bool, as_json: bool) -> int:
    """Copy a store from a file to PostgreSQL, or back.

    One of FROM and TO is a file, the other a postgresql:// URL. Declarations, states and history are copied in one
    transaction; what was owed is owed there, and what was served is not served again. FROM does not change. Stop its
    scheduler or its hosts first: while one lives, or if TO is not empty, the copy is refused.

    A trace is not copied into another kind of store: it is sealed in a file, which `duly verify` reads.

    \b
    Example:
      duly copy state.db postgresql://app@db/shop
      duly copy postgresql://app@db/shop state.db --schema shop
    """
    origin, target = place_of(from_, schema), place_of(to, schema)
    file = _file_of(origin, target)
    at = Instant(SystemClock().now())
    reader = reader_of(origin)
    before = reader.version()
    snapshot, trace = reader.read(_look)
    _check_unused(snapshot)
    _check_free(target)
    sealed = None
    if trace is not None and not no_trace:
        sealed = trace_file or file.with_name(f"{file.name}.trace.jsonl")
    with contextlib.ExitStack() as stack:
        if sealed is not None:
            trace = stack.enter_context(_sealed(reader, sealed, origin))
        copied = _copy(origin, target, reader, before, at)
    _report(copied, origin, target, trace if sealed is not None else None, sealed, as_json=as_json)
    return Exit.OK


class _Copied(NamedTuple):
    """How much was copied."""

    tasks: int
    declarations: int
    runs: int


def _file_of(origin: StorePlace, target: StorePlace) -> Path:
    """The one of two stores that is a file."""
    found = [each for each in (origin, target) if isinstance(each, Path)]
    if len(found) == 2:
        fail("FROM and TO are both files", "one of them is a URL; docs/operations.md says how a file is backed up")
    if not found:
        fail("FROM and TO are both on PostgreSQL", "one of them is a file; pg_dump --schema copies a schema")
    return found[0]


def _look(view: View) -> tuple[Snapshot, StoredTrace | None]:
    """The store as a whole; every record is read, so that none is copied that duly did not write."""
    for _ in view.tasks():
        pass
    return view.snapshot(), view.trace()


def _check_unused(snapshot: Snapshot) -> None:
    """Refuse to copy what may change meanwhile, and what two schedulers would then go on with."""
    holder = snapshot.holder
    if snapshot.cluster is not None:
        living = [each.name for each in snapshot.cluster.hosts if each.is_living(snapshot.at)]
        if living:
            hosts = listed([host_text(each) for each in living])
            fail(f"{snapshot.store} is in use by {hosts}", "stop them first: each would go on by itself", Exit.LOCKED)
    elif holder.alive:
        held = f"process {holder.pid or '?'} on {plain(holder.host or '?')}"
        fail(
            f"{snapshot.store} is in use by {held}", "stop it first: both stores would go on by themselves", Exit.LOCKED
        )


def _check_free(target: StorePlace) -> None:
    if isinstance(target, Path):
        files.check_free(target)
        return
    from duly.stores.postgres import transfer as schemas

    schemas.check_free(target)


@contextlib.contextmanager
def _sealed(reader: Reader, file: Path, origin: StorePlace) -> Iterator[StoredTrace | None]:
    """Write the trace into a file that does not exist yet; it goes again if the copy fails."""

    def question(view: View) -> StoredTrace | None:
        return copy_trace(view, target)

    try:
        with file.open("xb") as target:
            try:
                stored = reader.read(question)
            except BaseException:
                file.unlink()
                raise
    except FileExistsError:
        fail(f"{plain(file)} exists already", "name another file for the trace with --trace-file", Exit.STORE)
    except TraceError as error:
        failure = failure_of(error)
        failure.message = f"the trace of {plain(name_of(origin))} is damaged: {error.details['reason']}"
        failure.hint = "--no-trace copies all but the trace"
        raise failure from error
    except OSError as fault:
        raise Failure(f"{plain(file)} cannot be written: {reason_of(fault)}", None, Exit.STORE) from fault
    try:
        yield stored
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _copy(origin: StorePlace, target: StorePlace, reader: Reader, before: object, at: Instant) -> _Copied:
    from duly.stores.postgres import transfer as schemas

    def check() -> None:
        if reader.version() != before:
            fail(f"{plain(name_of(origin))} changed while it was copied", "stop what runs on it first", Exit.LOCKED)

    leaving = files.leaving(origin) if isinstance(origin, Path) else schemas.leaving(origin)
    with leaving as content, progress("copying", content.extent.rows, shown=content.extent.rows >= _LONG_ROWS) as done:
        if isinstance(target, Path):
            files.arrive(target, content, done, check, at=at)
        else:
            schemas.arrive(target, content, done, check)
        extent = content.extent
    return _Copied(extent.states, extent.declarations, extent.runs)


def _report(
    copied: _Copied,
    origin: StorePlace,
    target: StorePlace,
    trace: StoredTrace | None,
    sealed: Path | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            "copy",
            {
                "from": name_of(origin),
                "to": name_of(target),
                "tasks": copied.tasks,
                "declarations": copied.declarations,
                "runs": copied.runs,
                "traceFile": None if sealed is None else os.fspath(sealed),
                "traceEvents": None if trace is None else trace.events,
            },
        )
        return
    runs = f"{counted(copied.runs, 'run')} of history"
    say(f"{plain(name_of(target))}: {counted(copied.tasks, 'task')}, {runs}, from {plain(name_of(origin))}")
    if trace is not None and sealed is not None:
        say(f"{plain(sealed)}: the trace, {counted(trace.events or 0, 'event')}, sealed {trace.seal}")
