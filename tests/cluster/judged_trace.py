"""The trace of a shared store, judged by the checker: every property, and the whole of it must be readable."""

import io
import tempfile
from collections.abc import Iterable

from duly.formal import Report, check
from duly.stores.postgres import PostgresReader
from duly.stores.trace_copy import copy_trace
from duly.testing.shared import SharedMemory


def judge(url: str, schema: str, *, bounded: bool = True) -> Report:
    """Export the trace of a schema of PostgreSQL, and check all properties.

    Raises a TraceError if the trace is not whole, and an AssertionError if the store holds none. `bounded=False` leaves
    out R1, R2 and L2ᵇ: on a machine that is short of compute they say something about that machine.
    """
    with tempfile.TemporaryFile() as file:
        stored = PostgresReader(url, schema=schema).read(lambda view: copy_trace(view, file))
        assert stored is not None, f"{schema} holds no trace"
        file.seek(0)
        return check(file, bounded=bounded)


def judge_memory(memory: SharedMemory, *, bounded: bool = True) -> Report:
    """Check all properties of the trace that a `SharedMemory` holds."""
    return judge_lines(memory.trace_lines(), bounded=bounded)


def judge_lines(lines: Iterable[bytes], *, bounded: bool = True) -> Report:
    """Check all properties of a trace, line by line."""
    return check(io.BytesIO(b"".join(lines)), bounded=bounded)
