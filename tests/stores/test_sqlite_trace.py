"""The end of a store's trace: what was cut or changed in the open segment is refused, whatever happens to the store."""

import contextlib
import hashlib
import io
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from duly.core.changes import Batch
from duly.core.resolution import Resolution
from duly.errors import StoreError, TraceError
from duly.formal import Report, check
from duly.formal.registers import RegisterSnapshot
from duly.stores import Replacement, SqliteStore
from duly.stores.port import TraceRow, TraceRows
from duly.stores.sqlite.schema import create
from duly.stores.sqlite.trace import Tracing, export
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.stores.contract import AT_NOON, NOON, Life, at, living, start, task
from tests.stores.helpers import everything

LAST = "(SELECT max(seq) FROM trace)"
CUT = f"DELETE FROM trace WHERE seq = {LAST}"
EDIT = f"UPDATE trace SET line = replace(line, 'RE', 'RS') WHERE seq < {LAST}"


async def quick() -> None:
    """A callback."""


def change(path: Path, *statements: str) -> None:
    """As somebody with sqlite3 would."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def judged(path: Path) -> Report:
    """The verdict on a store's trace; it was not stopped, as far as this knows."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return check(io.BytesIO(b"".join(export(connection, clean=False))))


async def live(path: Path, host: SimulatedHost, *, minutes: int, trace: bool = True, segment_events: int = 100) -> None:
    """A scheduler comes, and goes."""
    store = SqliteStore(path, worker=Inline(), synchronous="OFF")
    store.tracing = Tracing(segment_events=segment_events, segments_kept=3)
    scheduler = host.scheduler(store, trace=trace)
    await scheduler.initialize([("a", "* * * * *", quick, timedelta(0))])
    await host.advance(minutes=minutes)
    await scheduler.stop()


@pytest.mark.parametrize("damage", [CUT, EDIT])
async def test_what_was_cut_or_changed_stays_so_when_the_next_scheduler_goes_on(tmp_path: Path, damage: str) -> None:
    """Neither its rows nor a new segment make it good; a trace that begins anew is whole again."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        await live(path, host, minutes=10)
        assert not judged(path).violated
        change(path, damage)
        await live(path, host, minutes=5)
        with pytest.raises(TraceError, match=r"the trace was (cut: event \d+ is missing|changed in segment 1)"):
            judged(path)
        await live(path, host, minutes=120)  # the segment is full, and is not followed by another
        with pytest.raises(TraceError, match=r"the trace was (cut: event \d+ is missing|changed in segment 1)"):
            judged(path)
        await live(path, host, minutes=120)
        anew = judged(path)
        assert not anew.violated
        assert anew.events > 50


async def test_the_end_is_taken_up_again_after_a_crash_and_in_each_new_segment(tmp_path: Path) -> None:
    """It is the hash of the seal: of the header, and the lines in the order of their numbers."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        for _ in range(3):
            scheduler = host.scheduler(path, trace=True)
            await scheduler.initialize([("a", "* * * * *", quick, timedelta(0))])
            await host.advance(minutes=7)
            await host.crash()
        await live(path, host, minutes=200)
    assert judged(path).segments > 2
    with contextlib.closing(sqlite3.connect(path)) as connection:
        segment, first, header = connection.execute(
            "SELECT segment, first, header FROM segments ORDER BY segment DESC"
        ).fetchone()
        rows = connection.execute("SELECT line FROM trace WHERE seq >= ? ORDER BY seq", (first,))
        lines = [header, *(line for (line,) in rows)]
        digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
        (kept,) = connection.execute("SELECT value FROM meta WHERE key = 'trace_end'").fetchone()
    assert kept == f"{segment} {first + len(lines) - 2} {digest}"


async def test_the_last_segment_is_missed_even_if_nothing_is_in_it_yet(tmp_path: Path) -> None:
    """Its header is part of its end."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        await live(path, host, minutes=60)
    last = "(SELECT max(segment) FROM segments)"
    change(
        path,
        f"DELETE FROM trace WHERE seq >= (SELECT first FROM segments WHERE segment = {last})",
        f"DELETE FROM segments WHERE segment = {last}",
    )
    with pytest.raises(TraceError, match="the trace was cut"):
        judged(path)
    connection = sqlite3.connect(":memory:")
    with contextlib.closing(connection):
        create(connection)
        tracing = Tracing(segment_events=2)
        tracing.begin(connection, "a test", RegisterSnapshot({}))
        tracing.append(connection, [("WK", 1, 1), ("WK", 2, 2)])
        assert b"".join(export(connection, clean=False)).count(b'"seal":"open"') == 2
        connection.execute("DELETE FROM segments WHERE segment = 2")
        with pytest.raises(TraceError, match="the trace was changed in segment 1, events 1 to 2"):
            list(export(connection, clean=False))


def test_rows_of_a_transaction_that_came_to_nothing_are_no_part_of_the_end() -> None:
    """The next one goes on from what is stored; also where there is more than is written at a time."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection)
        tracing = Tracing()
        tracing.begin(connection, "a test", RegisterSnapshot({}))
        for number in range(4):
            connection.execute("BEGIN")
            tracing.append(connection, [("WK", number, each) for each in range(6_000)])
            connection.execute("ROLLBACK" if number % 2 else "COMMIT")
        assert b"".join(export(connection, clean=False)).count(b"WK") == 12_000
        tracing.append(connection, [("WK", 4, 0)])
        exported = list(export(connection, clean=False))
        assert exported[-2].startswith(b'["WK",12001,')
        connection.execute("UPDATE trace SET line = replace(line, '0]', '1]') WHERE seq = 12001")
        with pytest.raises(TraceError, match="events 1 to 12001"):
            list(export(connection, clean=False))


async def test_a_change_within_a_closed_segment_is_refused_by_the_export_itself(tmp_path: Path) -> None:
    """At the line at which that segment begins."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        await live(path, host, minutes=60)
    first = "(SELECT min(seq) FROM trace)"
    change(path, f"UPDATE trace SET line = replace(line, 'T', 't') WHERE seq = {first}")
    with pytest.raises(TraceError, match="Line 1: the trace was changed in segment 1"):
        judged(path)


async def test_a_trace_from_before_the_end_was_kept_is_accepted_and_has_one_from_its_next_segment_on(
    tmp_path: Path,
) -> None:
    """The layout has the same version as before, so older traces are still read."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        await live(path, host, minutes=10)
        change(path, "DELETE FROM meta WHERE key = 'trace_end'")
        assert not judged(path).violated
        await live(path, host, minutes=10)
        assert not judged(path).violated
        await live(path, host, minutes=60)
        assert not judged(path).violated
    change(path, CUT)
    with pytest.raises(TraceError, match="the trace was cut"):
        judged(path)


async def test_a_trace_that_was_deleted_as_a_whole_begins_anew(tmp_path: Path) -> None:
    """And the scheduler, whose store it is, does not mind."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        await live(path, host, minutes=10)
        change(path, "DELETE FROM trace", "DELETE FROM segments")
        await live(path, host, minutes=10)
    report = judged(path)
    assert not report.violated
    assert report.events > 20


async def test_an_interrupted_trace_is_still_held_to_its_end(tmp_path: Path) -> None:
    """A scheduler that keeps none adds nothing, and takes nothing away."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        await live(path, host, minutes=10)
        await live(path, host, minutes=10, trace=False)
        assert not judged(path).violated
        change(path, CUT)
        with pytest.raises(TraceError, match="the trace was cut"):
            judged(path)


@pytest.mark.parametrize("value", ["", "1 2", "a b c", "1 2 3 4"])
async def test_an_end_that_cannot_be_read_is_no_end(tmp_path: Path, value: str) -> None:
    """Overwriting it does not let a cut or changed trace pass."""
    path = tmp_path / "state.db"
    async with SimulatedHost("2024-05-01T12:30", "UTC") as host:
        await live(path, host, minutes=3)
    assert judged(path).events > 0
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'trace_end'", (value,))
    with pytest.raises(TraceError, match="the trace was changed in segment 1"):
        judged(path)


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_a_cut_names_the_line_that_is_missing(segments: int) -> None:
    """As a reader of the exported file would count: a header, its events and a seal for each segment."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection)
        tracing = Tracing(segment_events=3)
        tracing.begin(connection, "a test", RegisterSnapshot({}))
        for number in range(segments - 1):
            tracing.append(connection, [("WK", number, each) for each in range(3)])
        tracing._segment_events = 100
        tracing.append(connection, [("WK", 9, each) for each in range(5)])
        lines = b"".join(export(connection, clean=False)).splitlines()
        assert [line[:6] for line in lines].count(b'{"seal') == segments
        missing = next(number for number, line in enumerate(lines, 1) if line.endswith(b",9,2]"))
        connection.execute("DELETE FROM trace WHERE line LIKE '%,9,2]'")
        with pytest.raises(TraceError) as caught:
            list(export(connection, clean=False))
        assert (caught.value.details["fault"], caught.value.details["line"]) == ("truncated", missing)


@contextlib.contextmanager
def traced(segment_events: int = 100, segments_kept: int = 10) -> Iterator[tuple[sqlite3.Connection, Tracing]]:
    """A store in memory whose trace begins."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection)
        tracing = Tracing(segment_events=segment_events, segments_kept=segments_kept)
        tracing.begin(connection, "a test", RegisterSnapshot({}))
        yield connection, tracing


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [seq for (seq,) in connection.execute("SELECT seq FROM trace ORDER BY seq")]


def wakes(count: int) -> list[TraceRow]:
    return [("WK", each, each) for each in range(count)]


def test_a_number_that_was_given_once_is_not_given_again() -> None:
    """Even if its row was deleted: what is added later would otherwise stand in for it."""
    with traced() as (connection, tracing):
        tracing.append(connection, wakes(3))
        connection.execute("DELETE FROM trace WHERE seq > 1")
        tracing.append(connection, wakes(2))
        assert numbers(connection) == [1, 4, 5]


def test_a_segment_without_an_end_or_rows_begins_with_its_first_number() -> None:
    """An older version kept no end."""
    with traced() as (connection, tracing):
        connection.execute("DELETE FROM meta WHERE key = 'trace_end'")
        tracing.append(connection, wakes(2))
        assert numbers(connection) == [1, 2]


def test_rows_of_segments_that_are_no_longer_kept_are_gone() -> None:
    """The trace of a scheduler that runs for years has a bound."""
    with traced(segment_events=3, segments_kept=2) as (connection, tracing):
        for _ in range(5):
            tracing.append(connection, wakes(3))
        tracing.append(connection, wakes(1))
        segments = connection.execute("SELECT segment, first FROM segments ORDER BY segment").fetchall()
        assert segments == [(5, 13), (6, 16)]
        assert numbers(connection) == [13, 14, 15, 16]


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_a_change_names_the_segment_its_events_and_its_line(segment: int) -> None:
    """A reader of the exported file finds the header of the segment at that line."""
    with traced(segment_events=3) as (connection, tracing):
        for _ in range(3):
            tracing.append(connection, wakes(3))
        lines = b"".join(export(connection, clean=False)).splitlines()
        header = [number for number, line in enumerate(lines, 1) if b'"segment":' in line][segment - 1]
        connection.execute("UPDATE trace SET line = replace(line, 'WK', 'wk') WHERE seq = ?", (3 * segment - 1,))
        with pytest.raises(TraceError) as caught:
            list(export(connection, clean=False))
        assert caught.value.details["line"] == header
        assert f"in segment {segment}, events {3 * segment - 2} to {3 * segment}" in caught.value.message


def test_an_export_ends_the_transaction_that_it_began_and_no_other() -> None:
    """A reader that holds one for ever keeps SQLite from ever folding the WAL into the file."""
    with traced() as (connection, _):
        list(export(connection, clean=False))
        assert not connection.in_transaction
        connection.execute("BEGIN")
        list(export(connection, clean=False))
        assert connection.in_transaction
        connection.execute("ROLLBACK")


# --- one transaction -------------------------------------------------------------------------------------------------

POSSIBLE: TraceRow = ("IS", AT_NOON, 2)
IMPOSSIBLE: TraceRow = ("IS", AT_NOON, object())  # cannot be written as JSON


async def declare(life: Life, name: str, rows: list[TraceRow], registers: RegisterSnapshot | None = None) -> None:
    """An initialize() that adds a task and leaves a trace."""
    added = [task(life.number, name)]
    replacement = Replacement(Resolution(life.now, added=added), None, "UTC", life.now, TraceRows(rows, registers))
    await life.store.replace(replacement, life.take_number())


async def test_an_initialize_and_its_trace_are_on_record_together_or_neither_is(tmp_path: Path) -> None:
    """SPEC 7.6: the trace is the durable log: one transaction, for a scheduler that was running before as well."""
    path = tmp_path / "state.db"
    async with living(SqliteStore(path)) as life:
        await declare(life, "first", [("IS", AT_NOON, 1)], RegisterSnapshot({}))
        before = everything(path)
        with pytest.raises(TypeError, match="not JSON serializable"):
            await declare(life, "second", [POSSIBLE, IMPOSSIBLE])
        assert everything(path) == before
        with pytest.raises(StoreError):
            await declare(life, "first", [POSSIBLE])  # a second task of that name
        assert everything(path) == before
        await declare(life, "second", [POSSIBLE])
        after = everything(path)
    assert len(after["tasks"]) == len(before["tasks"]) + 1
    assert len(after["trace"]) == len(before["trace"]) + 1


async def test_a_start_and_its_trace_are_on_record_together_or_neither_is(tmp_path: Path) -> None:
    """SPEC 7.6, 3.9: a batch of starts and ends is one transaction, its trace included."""
    path, one = tmp_path / "state.db", task(1)
    async with living(SqliteStore(path)) as life:
        trace = TraceRows([POSSIBLE], RegisterSnapshot({}))
        await life.store.replace(Replacement(Resolution(life.now, added=[one]), None, "UTC", life.now, trace), 1)
        before = everything(path)
        batch = Batch.of([start(one, 1, at(NOON + 60, 1))])
        with pytest.raises(TypeError, match="not JSON serializable"):
            await life.store.write(batch, 2, [IMPOSSIBLE])
        assert everything(path) == before
        await life.store.write(batch, 2, [POSSIBLE])
        assert len(everything(path)["trace"]) == len(before["trace"]) + 1
