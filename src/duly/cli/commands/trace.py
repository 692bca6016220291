"""`duly trace export`: the trace of a store, in the form in which traces are exchanged."""

import os
import shutil
import sys
import tempfile
from datetime import UTC
from pathlib import Path

import click

from duly.cli.output import Exit, fail, json_option, note, print_json, say
from duly.cli.output_file import check_output_file, replacing
from duly.cli.store import StoreText, located, schema_option
from duly.cli.trace_input import STANDARD_STREAM, copy_trace, unwritable
from duly.insight.json_form import json_form
from duly.stores.place import StorePlace, name_of
from duly.stores.port import StoredTrace
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
@click.argument("store", type=StoreText(readable=False, path_type=Path))
@schema_option
@click.option(
    "-o",
    "--output",
    type=click.Path(readable=False, path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write to FILE; - is standard output, the default.",
)
@json_option
@located
def export(store: StorePlace, output: Path | None, as_json: bool) -> int:
    """Write the trace of STORE as JSON Lines (docs/formal.md).

    STORE is a file or a postgresql:// URL, whose trace is that of all hosts. It is read in one transaction, even while
    schedulers run on it, and does not change. FILE appears when it is complete. The last segment is sealed as clean if
    a stop has completed, otherwise as open.

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
    check_output_file(output)
    try:
        with replacing(output) as file:
            stored = copy_trace(store, file)
            size = file.tell()
    except OSError as fault:
        raise unwritable(plain(output), fault) from fault
    _note_if_not_current(stored)
    if as_json:
        print_json(
            "trace export", {"store": name_of(store), "file": str(output), "bytes": size, **json_form(stored, UTC)}
        )
    else:
        segments = "1 segment" if stored.segments == 1 else f"{stored.segments} segments"
        say(f"{plain(output.name)}: {stored.events:,} events in {segments}, sealed {stored.seal}")
    return Exit.OK


def _to_standard_output(store: StorePlace) -> int:
    with tempfile.TemporaryFile(prefix="duly-trace-") as file:
        stored = copy_trace(store, file)
        _note_if_not_current(stored)
        file.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
        sys.stdout.buffer.flush()
    return Exit.OK


def _note_if_not_current(stored: StoredTrace) -> None:
    if not stored.current:
        note("a scheduler that kept no trace has used the store since; the trace ends before it")
