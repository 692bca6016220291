"""The durable trace: rows of the same transaction as the state they describe, in segments, bounded.

A line is stored as it is exchanged (`duly.formal.trace`). A segment begins with a header that holds all registers and
the hash of the segment before, so it can be checked alone, and a cut or edited one is noticed. When one is full, the
monitor is run over it to find the registers for the next; the oldest are dropped.

No header follows the last segment, which is still open, so `meta` says how that one ends: the number of its last event
and the hash that its seal would have, written with them. An export compares, and refuses what was cut or changed.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from duly.errors import TraceError
from duly.formal.trace import Header, Writer, encode_header, encode_row
from duly.stores.port import TraceRow

if TYPE_CHECKING:
    from duly.formal.monitor import Monitor
    from duly.formal.registers import RegisterSnapshot

SEGMENT_EVENTS_MIN: Final = 50_000
SEGMENTS_KEPT: Final = 10
_CHUNK_ROWS: Final = 5_000


class _End(NamedTuple):
    """How the open segment ends, as `meta` keeps it."""

    segment: int
    last: int
    hash: str

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "_End | None":
        """None for a segment that was begun before duly kept this: it stays as it is, the next one has an end."""
        found = connection.execute("SELECT value FROM meta WHERE key = 'trace_end'").fetchone()
        if found is None:
            return None
        try:
            segment, last, digest = str(found[0]).split()
            return cls(int(segment), int(last), digest)
        except ValueError:
            return cls(0, 0, "")  # it was changed: no segment ends like this

    def write(self, connection: sqlite3.Connection) -> None:
        """In the transaction of what it ends with."""
        value = f"{self.segment} {self.last} {self.hash}"
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('trace_end', ?)", (value,))


class Tracing:
    """Appends rows to the trace of a store."""

    def __init__(self, *, segment_events: int = SEGMENT_EVENTS_MIN, segments_kept: int = SEGMENTS_KEPT) -> None:
        self._segment_events = segment_events
        self._segments_kept = segments_kept
        # A hash goes on from its state, which cannot be stored: it is kept here, for the last two ends, since the last
        # transaction may come to nothing; a new process reads the segment once. Hashing line by line, each with the
        # hash before it, would need no state, but cost the writer of a large tick a third more.
        self._hashes: dict[_End, hashlib._Hash] = {}

    def begin(self, connection: sqlite3.Connection, scheduler: str, snapshot: "RegisterSnapshot") -> None:
        """A traced scheduler has arrived. If the trace does not reach up to now, it begins anew, from the snapshot."""
        if _is_kept(connection):
            return
        connection.execute("DELETE FROM trace")
        connection.execute("DELETE FROM segments")
        registers = snapshot.as_json() if snapshot.tasks else None
        self._put_header(connection, Header(scheduler=scheduler, registers=registers))
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('traced', 1)")

    def interrupt(self, connection: sqlite3.Connection) -> None:
        """A scheduler that leaves no trace has arrived: what there is ends here."""
        connection.execute("UPDATE meta SET value = 0 WHERE key = 'traced'")

    def append(self, connection: sqlite3.Connection, rows: Iterable[TraceRow]) -> None:
        """Number rows and add them; begin a new segment if this one is full."""
        rows = iter(rows)
        chunk = list(islice(rows, _CHUNK_ROWS))
        if not chunk:
            return
        if not _is_kept(connection):
            return  # it was found changed, see `_rotate`
        segment, first = connection.execute(
            "SELECT segment, first FROM segments ORDER BY segment DESC LIMIT 1"
        ).fetchone()
        end = _End.read(connection)
        last = connection.execute("SELECT max(seq) FROM trace").fetchone()[0]
        # Numbers that were given once are not given again, even if the rows were deleted.
        seq = max(first, 1 + (last or 0), 1 + (end.last if end else 0))
        hashed = None if end is None else self._taken_up(connection, end, segment, first)
        while chunk:  # a first initialize() has as many rows as there are tasks
            lines = [encode_row(number, row) for number, row in enumerate(chunk, seq)]
            connection.executemany("INSERT INTO trace VALUES (?, ?)", enumerate(lines, seq))
            if hashed is not None:
                hashed.update("\n".join([*lines, ""]).encode())
            seq += len(chunk)
            chunk = list(islice(rows, _CHUNK_ROWS))
        if hashed is not None:
            end = self._put_end(connection, segment, seq - 1, hashed)
        count = seq - first
        if count >= self._segment_events:
            tasks = connection.execute("SELECT count(*) FROM states").fetchone()[0]
            if count >= 4 * tasks:  # a header costs as much as there are tasks
                self._rotate(connection, segment, first, end)

    def _rotate(self, connection: sqlite3.Connection, segment: int, first: int, end: _End | None) -> None:
        if end is not None and _hash_of_rows(connection, segment, first).hexdigest() != end.hash:
            # Registers that follow from changed lines would make the change good. The segment stays as it is, so that
            # an export refuses it, and nothing is added; the next scheduler that keeps a trace begins a new one.
            self.interrupt(connection)
            return
        from duly.formal.monitor import Monitor
        from duly.formal.registers import RegisterSnapshot

        header = _header(connection, segment)
        known = header.registers
        snapshot = None if known is None else RegisterSnapshot.from_json(known, header.version)
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
        self._put_end(connection, header.segment, header.first - 1, hashlib.sha256(line.encode() + b"\n"))

    def _put_end(self, connection: sqlite3.Connection, segment: int, last: int, hashed: "hashlib._Hash") -> _End:
        end = _End(segment, last, hashed.hexdigest())
        end.write(connection)
        self._hashes[end] = hashed
        if len(self._hashes) > 2:
            del self._hashes[next(iter(self._hashes))]
        return end

    def _taken_up(self, connection: sqlite3.Connection, end: _End, segment: int, first: int) -> "hashlib._Hash":
        """The state of the hash at this end, to go on from."""
        if end in self._hashes:
            return self._hashes[end].copy()
        hashed = _hash_of_rows(connection, segment, first)
        if (end.segment, end.hash) != (segment, hashed.hexdigest()):
            return hashlib.sha256(b"changed")  # and so it stays: from here on, no lines have the hash that is kept
        return hashed


def export(connection: sqlite3.Connection, *, clean: bool) -> Iterator[bytes]:
    """The lines of a store's trace, segment by segment; the last one is sealed as clean or open. In one snapshot.

    Raises a TraceError, at the latest instead of the last seal, if a segment is not what was written.
    """
    begun_here = not connection.in_transaction  # a caller may look at more than the trace in the same snapshot
    if begun_here:
        connection.execute("BEGIN")
    try:
        segments = connection.execute("SELECT segment, first, hash FROM segments ORDER BY segment").fetchall()
        line_of_header = 1
        for index, (segment, first, digest) in enumerate(segments):
            is_last = index == len(segments) - 1
            end = None if is_last else segments[index + 1][1]
            lines: list[bytes] = []
            writer = Writer(lines.append, _header(connection, segment))
            yield lines.pop()
            for line in _lines(connection, first, end):
                writer.put(line)
                yield lines.pop()
            if is_last:
                found = _End(segment, first + writer.count - 1, writer.hash)
                _compare_end(connection, found, first, line_of_header)
            elif digest != writer.hash:
                raise _changed(segment, first, first + writer.count - 1, line_of_header)
            line_of_header += writer.count + 2
            writer.seal(clean=clean and is_last)
            yield lines.pop()
    finally:
        if begun_here:
            connection.execute("ROLLBACK")


def _is_kept(connection: sqlite3.Connection) -> bool:
    """Whether there is a trace that reaches up to now."""
    found = connection.execute(
        "SELECT value FROM meta WHERE key = 'traced' AND EXISTS (SELECT 1 FROM segments)"
    ).fetchone()
    return found is not None and found[0] == 1


def _hash_of_rows(connection: sqlite3.Connection, segment: int, first: int) -> "hashlib._Hash":
    """The hash of the last segment, from what is there."""
    header = connection.execute("SELECT CAST(header AS BLOB) FROM segments WHERE segment = ?", (segment,)).fetchone()
    hashed = hashlib.sha256(header[0] + b"\n")
    for line in _lines(connection, first, None):
        hashed.update(line)
    return hashed


def _compare_end(connection: sqlite3.Connection, found: _End, first: int, line: int) -> None:
    """Raise a TraceError if the last segment, whose header is this line, does not end as it was written."""
    kept = _End.read(connection)
    if kept is None or found == kept:
        return
    numbers = connection.execute("SELECT seq FROM trace WHERE seq >= ? ORDER BY seq", (first,))
    missing = next((number for number, (seq,) in enumerate(numbers, first) if seq != number), found.last + 1)
    if missing <= kept.last:
        reason = f"the trace was cut: event {missing} is missing, and event {kept.last} was the last one written"
        raise TraceError("truncated", line + 1 + missing - first, reason, hint=_HINT)
    raise _changed(found.segment, first, found.last, line)


def _changed(segment: int, first: int, last: int, line: int) -> TraceError:
    reason = f"the trace was changed in segment {segment}, events {first} to {last}: its hash differs from the one kept"
    return TraceError("hash", line, reason, hint=_HINT)


_HINT: Final = "restore a backup; a trace begins anew once a scheduler without one has used the store"


def _lines(connection: sqlite3.Connection, first: int, end: int | None) -> Iterator[bytes]:
    # As bytes: a changed value need not be text, and is refused for what it is.
    upper = "" if end is None else f" AND seq < {int(end)}"
    rows = f"SELECT CAST(line AS BLOB) FROM trace WHERE seq >= ?{upper} ORDER BY seq"
    for (line,) in connection.execute(rows, (first,)):
        yield line + b"\n"


def _header(connection: sqlite3.Connection, segment: int) -> Header:
    (line,) = connection.execute("SELECT header FROM segments WHERE segment = ?", (segment,)).fetchone()
    value = json.loads(line)
    return Header(*(value[field] for field in Header.__dataclass_fields__))


def _hash_lines(header: Header, lines: Iterator[bytes], monitor: "Monitor") -> tuple[str, int]:
    """The hash and count of a segment's lines, and the monitor fed with them."""
    writer = Writer(lambda _: None, header)

    def rows() -> Iterator[Any]:
        for line in lines:
            writer.put(line)
            yield json.loads(line)

    monitor.feed(rows())
    return writer.hash, writer.count
