"""The trace of a store, written into a file that is then read as often as need be."""

from dataclasses import replace
from typing import BinaryIO

from duly.stores.port import StoredTrace, View


class LongTraceError(Exception):
    """A trace has more events than were asked for."""


def copy_trace(view: View, file: BinaryIO, *, events_max: int | None = None) -> StoredTrace | None:
    """Replace the content of a file by the trace of a store; None, and nothing written, if the store holds none.

    Raises a LongTraceError if it has more events than `events_max`: as soon as that is known, which may be before
    anything is written.
    """
    stored = view.trace()
    if stored is None:
        return None
    if events_max is not None and stored.events is not None and stored.events > events_max:
        raise LongTraceError
    lines_max = None if events_max is None else events_max + 2 * stored.segments
    file.seek(0)
    file.truncate()
    lines = 0
    for line in view.trace_lines(stored):
        file.write(line)
        lines += 1
        if lines_max is not None and lines > lines_max:
            raise LongTraceError
    file.flush()
    return replace(stored, events=lines - 2 * stored.segments)  # each segment has a header and a seal
