"""The durable trace: rows of the same transaction as the state they describe, in segments, bounded.

A line is stored as it is exchanged (`duly.formal.trace`). A segment begins with a header that holds all registers and
the hash of the segment before, so it can be checked alone, and a cut or edited one is noticed. When one is full, the
monitor is run over it to find the registers for the next; the oldest are dropped.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from duly.formal.monitor import Monitor
from duly.formal.registers import Snapshot
from duly.formal.trace import Header, Seal, Writer, encode_header, encode_seal
from duly.stores.port import TraceRow

SEGMENT_EVENTS_MIN: Final = 50_000
SEGMENTS_KEPT: Final = 10


class Tracing:
    """Appends rows to the trace of a store."""

    def __init__(self, *, segment_events: int = SEGMENT_EVENTS_MIN, segments_kept: int = SEGMENTS_KEPT) -> None:
        self._segment_events = segment_events
        self._segments_kept = segments_kept

    def begin(self, connection: sqlite3.Connection, scheduler: str, snapshot: Snapshot) -> None:
        """A traced scheduler has arrived. If the trace does not reach up to now, it begins anew, from the snapshot."""
        open_ = connection.execute("SELECT value FROM meta WHERE key = 'traced'").fetchone()
        if open_ is not None and open_[0] == 1:
            return
        connection.execute("DELETE FROM trace")
        connection.execute("DELETE FROM segments")
        registers = snapshot.as_json() if snapshot.tasks else None
        self._put_header(connection, Header(scheduler=scheduler, registers=registers))
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('traced', 1)")

    def interrupt(self, connection: sqlite3.Connection) -> None:
        """A scheduler that leaves no trace has arrived: what there is ends here."""
        connection.execute("UPDATE meta SET value = 0 WHERE key = 'traced'")

    def append(self, connection: sqlite3.Connection, rows: Sequence[TraceRow]) -> None:
        """Number rows and add them; begin a new segment if this one is full."""
        if not rows:
            return
        segment, first = connection.execute("SELECT segment, first FROM segments ORDER BY segment DESC").fetchone()
        last = connection.execute("SELECT max(seq) FROM trace").fetchone()[0]
        seq = first if last is None or last < first else last + 1
        dumps = _ENCODE
        connection.executemany(
            "INSERT INTO trace VALUES (?, ?)",
            ((number, dumps([row[0], number, *row[1:]])) for number, row in enumerate(rows, seq)),
        )
        count = seq + len(rows) - first
        if count >= self._segment_events:
            tasks = connection.execute("SELECT count(*) FROM states").fetchone()[0]
            if count >= 4 * tasks:  # a header costs as much as there are tasks
                self._rotate(connection, segment)

    def _rotate(self, connection: sqlite3.Connection, segment: int) -> None:
        header = _header(connection, segment)
        snapshot = None if header.registers is None else Snapshot.from_json(header.registers)
        monitor = Monitor(snapshot)
        lines = _lines(connection, header.first, None)
        digest, count = _hash_lines(header, lines, monitor)
        connection.execute("UPDATE segments SET hash = ? WHERE segment = ?", (digest, segment))
        registers = monitor.snapshot().as_json()
        following = Header(header.scheduler, segment + 1, digest, header.first + count, registers)
        self._put_header(connection, following)
        oldest = connection.execute(
            "SELECT first FROM segments WHERE segment > ? ORDER BY segment", (segment + 1 - self._segments_kept,)
        ).fetchone()
        connection.execute("DELETE FROM trace WHERE seq < ?", oldest)
        connection.execute("DELETE FROM segments WHERE first < ?", oldest)

    def _put_header(self, connection: sqlite3.Connection, header: Header) -> None:
        line = encode_header(header).decode("ascii").rstrip("\n")
        connection.execute("INSERT INTO segments VALUES (?, ?, ?, NULL)", (header.segment, header.first, line))


def export(connection: sqlite3.Connection, *, clean: bool) -> Iterator[bytes]:
    """The lines of a store's trace, segment by segment; the last one is sealed as clean or open. In one snapshot."""
    begun_here = not connection.in_transaction  # a caller may look at more than the trace in the same snapshot
    if begun_here:
        connection.execute("BEGIN")
    try:
        segments = connection.execute("SELECT segment, first, hash FROM segments ORDER BY segment").fetchall()
        for index, (segment, first, _) in enumerate(segments):
            is_last = index == len(segments) - 1
            end = None if is_last else segments[index + 1][1]
            lines: list[bytes] = []
            writer = Writer(lines.append, _header(connection, segment))
            yield lines.pop()
            for line in _lines(connection, first, end):
                writer.put(line)
                yield lines.pop()
            yield encode_seal(Seal(clean and is_last, writer.count, writer.hash))
    finally:
        if begun_here:
            connection.execute("ROLLBACK")


_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


def _lines(connection: sqlite3.Connection, first: int, end: int | None) -> Iterator[bytes]:
    upper = "" if end is None else f" AND seq < {int(end)}"
    for (line,) in connection.execute(f"SELECT line FROM trace WHERE seq >= ?{upper} ORDER BY seq", (first,)):
        yield line.encode("ascii") + b"\n"


def _header(connection: sqlite3.Connection, segment: int) -> Header:
    (line,) = connection.execute("SELECT header FROM segments WHERE segment = ?", (segment,)).fetchone()
    value = json.loads(line)
    return Header(value["scheduler"], value["segment"], value["previous"], value["first"], value["registers"])


def _hash_lines(header: Header, lines: Iterator[bytes], monitor: Monitor) -> tuple[str, int]:
    """The hash and count of a segment's lines, and the monitor fed with them."""
    writer = Writer(lambda _: None, header)

    def rows() -> Iterator[Any]:
        for line in lines:
            writer.put(line)
            yield json.loads(line)

    monitor.feed(rows())
    return writer.hash, writer.count
