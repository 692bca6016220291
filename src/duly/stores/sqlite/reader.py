"""Reads an embedded store without changing it, even while a scheduler runs on it.

Nothing is created or changed beside an existing `-shm` file, which every reader of a live SQLite file shares. A view is
consistent: one read transaction, or a file that stood still meanwhile. Filters and limits are part of the statements,
and what concerns all tasks is counted by SQLite: no answer takes memory that grows with the number of tasks or runs,
but for sixteen bytes a run where the last sign of life is asked for again and again.
"""

import contextlib
import json
import os
import re
import sqlite3
import stat
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from duly.core.cron import parse_cron
from duly.core.moments import LAST_INSTANT, MICROSECONDS, Instant, Minute
from duly.core.record import FIELDS, read_records
from duly.core.resolution import Mark
from duly.errors import (
    DulyError,
    InvalidCronExpressionError,
    StoreCorruptedError,
    StoreError,
    StoreUnusedError,
    TaskInvalidStructureError,
    TraceError,
)
from duly.stores.port import (
    Cohort,
    Declaration,
    HistoryExtent,
    Hold,
    Holder,
    Interruption,
    KnownTask,
    RunMarks,
    RunRecord,
    RunSelection,
    Snapshot,
    StoredTrace,
    TaskCounts,
    TaskPhase,
    TaskRuns,
    TaskSelection,
    View,
)
from duly.stores.postgres.url import check_path
from duly.stores.sqlite import schema
from duly.stores.sqlite.damage import check_indexes, check_whole, has_few_tasks
from duly.stores.sqlite.faults import naming_faults
from duly.stores.sqlite.file import Stamp, exists, kind, opened, restless, stamp
from duly.stores.sqlite.load import ROW, check_count
from duly.stores.sqlite.lock import read_holder
from duly.stores.sqlite.trace import export
from duly.text import meant, plain

T = TypeVar("T")

IN_MEMORY: Final = ":memory:"
"""The path that means a store in memory, as SQLite has it."""

_ATTEMPTS: Final = 5
_CHUNK_ROWS: Final = 1_000
"""Records that are checked and converted at a time."""

_NEAR: Final = 5_000
"""Tasks next to a place that are looked through by name, before all of them are: of many owed ones they fill a page."""

_HIGHEST: Final = "\U0010ffff" * 4
"""Follows every name that begins with what stands before it."""

_UNKNOWN: Final = "?"
"""The name and the expression of a run whose declaration is gone."""

_KNOWN_SINCE, _LAST_FAILURE_AT, _RUN_CAUSE, _RUN_SCHEDULED = map(
    FIELDS.index, ("known_since", "last_failure_at", "run_cause", "run_scheduled")
)

# Whether no scheduler runs what is marked as running. A scheduler that arrives writes the runs of the one before
# it into history; the states still name them until they start again.
_CUT_SHORT: Final = (
    "(NOT :alive OR s.written_by IS NOT :newest OR s.run IN (SELECT run FROM runs WHERE outcome = 'interrupted'))"
)
_PHASE: Final = (
    "CASE WHEN s.run IS NULL THEN iif(s.pending_retry_until IS NULL, 'waiting', 'retrying') "
    f"ELSE iif({_CUT_SHORT}, 'interrupted', 'running') END"
)
# Of one task only its own runs are looked at: as many as there are tasks may be interrupted.
_PHASE_OF_ONE: Final = _PHASE.replace("= 'interrupted')", "= 'interrupted' AND generation = s.generation)")
_IN_PHASE: Final = {
    TaskPhase.RETRYING: "s.run IS NULL AND s.pending_retry_until IS NOT NULL",
    TaskPhase.RUNNING: f"s.run IS NOT NULL AND NOT {_CUT_SHORT}",
    TaskPhase.INTERRUPTED: f"s.run IS NOT NULL AND {_CUT_SHORT}",
}
_FILTERS: Final = {
    "running": _IN_PHASE[TaskPhase.RUNNING],
    "interrupted": _IN_PHASE[TaskPhase.INTERRUPTED],
    "retrying": _IN_PHASE[TaskPhase.RETRYING],
    "failing": "s.failures > 0",
    "never": "s.last_attempt_at IS NULL",
    "owed": "s.run IS NULL AND (s.pending_retry_until <= :at "
    "OR s.served_through < (SELECT minute FROM latest_due WHERE cron = t.cron))",
}
_ORDERS: Final = {"name": "0", "expression": "w.rank", "failure": "-s.last_failure_at", "failures": "-s.failures"}
"""The column that tasks are ordered by before their names, ascending."""

_LIKE_LETTERS: Final = re.compile(r"[%_\\]")
"""Letters that mean something else than themselves in a pattern of LIKE."""

_IN_FORCE: Final = "t.retired_at IS NULL"
_ENDED: Final = "max(ifnull(s.last_success_at, 0), ifnull(s.last_failure_at, 0))"
_COUNTED: Final = (
    "count(*), min(s.generation), max(s.generation), "
    f"min({_ENDED}), max(s.last_success_at), max(s.last_failure_at), "
    # Tasks that did not end before the bound: `total` leaves out the NULL of a task that never ended.
    "total(s.last_success_at >= :bound OR s.last_failure_at >= :bound)"
)
_EARLIEST: Final = 0
_LATEST: Final = LAST_INSTANT + 60 * MICROSECONDS
"""Moments that duly writes lie between 1970 and the end of the calendar."""

_RUN: Final = (
    "seq, run, generation, cause, scheduled, started_at, ended_at, outcome, error, attempt, first_started_at, called_at"
)
_UNDER_WAY: Final = (
    "SELECT NULL AS seq, s.run AS run, s.generation AS generation, s.run_cause AS cause, "
    "s.run_scheduled AS scheduled, s.last_attempt_at AS started_at, NULL AS ended_at, "
    # Not `_CUT_SHORT`: runs that history has already are left out of the tables that this fills.
    "iif(NOT :alive OR s.written_by IS NOT :newest, 'interrupted', 'running') AS outcome, NULL AS error, "
    "s.attempt AS attempt, s.first_started_at AS first_started_at, NULL AS called_at "
    "FROM states AS s WHERE s.run IS NOT NULL"
)
_SIGNS_OF_LIFE: Final = (
    ("runs", ("started_at", "ended_at")),
    ("states WHERE run IS NOT NULL", ("last_attempt_at",)),  # under way, or cut short and not in history yet
)
"""Where moments at which a scheduler lived are on record, and their columns."""

_TOOK: Final = "max(0, ended_at - ifnull(called_at, started_at))"


class SqliteReader:
    """Reads the store at a path.

    Parameters:
        path: the path of the file.
        now: the clock that its answers are stamped with, in microseconds since the epoch.

    Raises:
        StoreError: the path is a URL.
    """

    path: Path

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], int]) -> None:
        self.path = Path(path)
        check_path(self.path)
        self._now = now
        self._indexes_checked = False  # once per reader: `status --watch` and dashboards ask again and again

    def __repr__(self) -> str:
        return f"SqliteReader({os.fspath(self.path)!r})"

    def read(self, question: Callable[[View], T]) -> T:
        """Ask about one moment; the question is asked again if a scheduler arrived or left meanwhile.

        Parameters:
            question: given the store at that moment; it returns what is wanted.

        Raises:
            StoreError: the store cannot be read; a `StoreUnusedError` if there is none yet.
            TaskTryDeserializeError: a record is not what duly writes.
        """
        real = os.path.realpath(self.path)
        try:
            with naming_faults(real, "read"):
                _check_place(self.path, real)
                return self._retrying(real, question)
        except _QuestionFailed as failed:
            raise failed.fault from None

    def version(self) -> Hashable:
        """The stamps of the files that a scheduler writes; a file that cannot be looked at counts as not there."""
        real = os.path.realpath(self.path)
        return _stamp_if_any(real), _stamp_if_any(f"{real}-wal"), _stamp_if_any(f"{real}.lock")

    def _retrying(self, path: str, question: Callable[[View], T]) -> T:
        fault: StoreError | None = None
        for _ in range(_ATTEMPTS):
            before = _standing(path)
            try:
                with naming_faults(path, "read"), opened(path, beside=False) as connection:
                    answer = self._answer(path, connection, question)
            except DulyError as error:
                # Damaged, or changed while it was read. If it stood still, it is damaged.
                if _standing(path) == before:
                    raise
                fault = error if isinstance(error, StoreError) else None
                continue
            live, _file = before
            if live or _standing(path) == before:
                return answer
        raise fault or restless(path)

    def _answer(self, path: str, connection: sqlite3.Connection, question: Callable[[View], T]) -> T:
        connection.execute("BEGIN")
        check_whole(connection, path)
        version = schema.recognise(connection, path)
        if version == 0:
            raise _unused(path)
        if not self._indexes_checked:
            if has_few_tasks(connection):
                check_indexes(connection, path)
            self._indexes_checked = True
        with contextlib.ExitStack() as stack:
            if version < schema.VERSION:
                connection.execute("ROLLBACK")  # a backup reads in a transaction of its own
                connection = stack.enter_context(contextlib.closing(schema.migrated_copy(connection)))
                connection.execute("BEGIN")
            view = SqliteView(connection, path, version, Instant(self._now()), read_holder(path))
            try:
                return question(view)
            except OSError as fault:
                raise _QuestionFailed(fault) from fault
            finally:
                if connection.in_transaction:  # some faults end it
                    connection.execute("ROLLBACK")


class _QuestionFailed(Exception):  # noqa: N818  # never seen outside of this module
    """A question met a fault of its own, such as a full disk, which is not the store's."""

    def __init__(self, fault: OSError) -> None:
        super().__init__()
        self.fault = fault


def _standing(path: str) -> tuple[bool, Stamp | None]:
    """Whether there is a WAL, and what shows that the file itself has not changed.

    A WAL that cannot be looked at raises: without it the store would be read as it was some time ago.
    """
    file = stamp(path)
    return file is not None and exists(path + "-wal"), file


def _before(moments: Sequence[int], bound: Instant) -> int | None:
    """The latest of some moments, which are in order, that lies before an instant."""
    place = bisect_left(moments, bound)
    return moments[place - 1] if place else None


def _escaped(letter: re.Match[str]) -> str:
    return f"\\{letter[0]}"


def _stamp_if_any(path: str) -> Stamp | None:
    try:
        return stamp(path)
    except OSError:
        return None


def _check_place(path: Path, real: str) -> None:
    """Raise if there is nothing to read, or if that cannot be told: such a store is not an unused one."""
    store = os.fspath(path)
    if store == IN_MEMORY:
        raise in_memory()
    found = kind(real)
    if found == stat.S_IFDIR:
        raise StoreError(f"{path} is a folder", store=store, hint="name the store itself, a file")
    if not found:
        folder = os.path.dirname(real)
        if kind(folder) != stat.S_IFDIR:
            hint = f"the folder {path.parent} does not exist"
            raise StoreError(f"no such store: {path}", store=store, hint=hint)
        close = meant(path.name, _stores_in(folder))
        hint = f"did you mean {path.with_name(close)}?" if close else "the first `duly run` on it creates it"
        raise StoreUnusedError(f"no such store: {path}", store=store, hint=hint)
    if not os.access(real, os.R_OK):
        raise StoreError(f"{path} cannot be read: permission denied", store=store, hint="check its owner and mode")
    if os.path.getsize(real) == 0 and not exists(real + "-wal"):
        raise _unused(store)


def in_memory() -> StoreUnusedError:
    """The error of reading a store in memory: it has no file by which another process could find it."""
    return StoreUnusedError(
        f"A store of the kind {IN_MEMORY} cannot be read",
        store=IN_MEMORY,
        hint="name the SQLite file of a scheduler; only its own process sees a store in memory",
    )


def _unused(store: str) -> StoreUnusedError:
    return StoreUnusedError(f"no scheduler has used this store yet: {store}", store=store)


def _stores_in(folder: str) -> list[str]:
    """The names of the stores in a folder; none where they may not be listed, for they are only suggested."""
    try:
        names = [name.removesuffix(".lock") for name in os.listdir(folder) if name.endswith(".lock")]
        return [name for name in names if exists(os.path.join(folder, name))]  # a lock file outlives its store
    except OSError:
        return []


class SqliteView:
    """A store in one read transaction."""

    def __init__(self, connection: sqlite3.Connection, path: str, version: int, at: Instant, holder: Holder) -> None:
        self._connection = connection
        self._path = path
        self._version = version
        self._at = at
        self._holder = holder
        self._counted: int | None = None
        self._under_way: bool | None = None
        self._runs_asked_for: dict[str, bool] = {}
        """Names whose runs were asked for, and whether these are in the table `runs_of`."""
        self._under_way_of: set[str] = set()
        """The names whose runs under way are in the table `under_way_of`."""
        self._generations_of: dict[str, Sequence[int]] = {}
        self._chosen: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        """The names and patterns whose declarations are in the table `chosen`."""
        self._latest_failures: tuple[array[int], array[int]] | None = None
        self._signs_of_life: list[array[int]] | None = None
        """The moments of runs, in order; None before they are asked for, empty before that is worth their memory."""
        self._declared_at: list[int] | None = None
        (newest,) = connection.execute("SELECT max(key) FROM schedulers").fetchone()
        self._alive = {"alive": holder.alive, "newest": newest}

    def snapshot(self) -> Snapshot:
        """The store as a whole, at one moment."""
        zone = self._connection.execute("SELECT value FROM meta WHERE key = 'zone'").fetchone()
        arrivals = [since for (since,) in self._connection.execute("SELECT since FROM schedulers ORDER BY since")]
        self._check_moments(arrivals, "a scheduler")
        return Snapshot(
            store=self._path,
            at=self._at,
            schema_version=self._version,
            zone=zone[0] if zone is not None and isinstance(zone[0], str) else None,
            holder=self._holder,
            arrivals=arrivals,
        )

    def size(self) -> int | None:
        """The bytes of its file."""
        try:
            return os.path.getsize(self._path)
        except OSError:
            return None

    def engine(self) -> str:
        """SQLite and its version."""
        return f"SQLite {sqlite3.sqlite_version}"

    # --- tasks -------------------------------------------------------------------------------------------------------

    def count_tasks(self) -> int:
        """How many tasks are in force; raises if there is not one state for each."""
        if self._counted is None:
            (tasks,) = self._connection.execute("SELECT count(*) FROM tasks WHERE retired_at IS NULL").fetchone()
            check_count(self._connection, tasks)
            self._counted = int(tasks)
        return self._counted

    def cohorts(self, bound: Instant) -> Iterator[Cohort]:
        """All tasks in force, by cohort."""
        tasks = self.count_tasks()
        found = 0
        for cohort in self._waiting_cohorts(bound):
            found += cohort.tasks
            yield cohort
        for cohort in self._other_cohorts(bound):
            found += cohort.tasks
            yield cohort
        if found != tasks:
            raise TaskInvalidStructureError(found, f"{found} tasks with a state of their own, of {tasks}")

    def _waiting_cohorts(self, bound: Instant) -> Iterator[Cohort]:
        # Most tasks wait. Grouping them by two columns takes SQLite half as long as by all those of `_other_cohorts`.
        rows = self._connection.execute(
            f"SELECT t.cron, s.served_through, {_COUNTED} "
            "FROM tasks AS t NOT INDEXED CROSS JOIN states AS s ON s.generation = t.generation "
            f"WHERE {_IN_FORCE} AND s.run IS NULL AND s.pending_retry_until IS NULL GROUP BY 1, 2",
            {"bound": bound},
        )
        for cron, mark, *counted in rows:
            yield self._cohort(cron, mark, TaskPhase.WAITING, None, counted, (0, None, 0))

    def _other_cohorts(self, bound: Instant) -> Iterator[Cohort]:
        of_interrupted = f"iif(s.run IS NOT NULL AND {_CUT_SHORT}, %s, NULL)"
        ripe = f"iif(s.run IS NULL, max(s.pending_retry_until, {_ENDED}), NULL)"
        rows = self._connection.execute(
            f"SELECT t.cron, s.served_through, {_PHASE}, {of_interrupted % 's.last_attempt_at'}, "
            f"{of_interrupted % 't.delay_ms'}, {of_interrupted % 's.interruptions'}, {_COUNTED}, "
            f"total(s.run IS NULL AND s.pending_retry_until <= :at), min({ripe}), total({ripe} < :bound) "
            "FROM states AS s CROSS JOIN tasks AS t ON t.generation = s.generation "
            f"WHERE (s.run IS NOT NULL OR s.pending_retry_until IS NOT NULL) AND {_IN_FORCE} "
            "GROUP BY 1, 2, 3, 4, 5, 6",
            {"bound": bound, "at": self._at, **self._alive},
        )
        for cron, mark, phase, started_at, delay, interruptions, *rest in rows:
            cut_short = Interruption(started_at, delay, interruptions) if phase == TaskPhase.INTERRUPTED.value else None
            yield self._cohort(cron, mark, TaskPhase(phase), cut_short, rest[:7], rest[7:])

    def _cohort(
        self,
        cron: Any,
        mark: Any,
        phase: TaskPhase,
        interruption: Interruption | None,
        counted: Sequence[Any],
        ripe: Sequence[Any],
    ) -> Cohort:
        tasks, lowest, highest, first_end, success, failure, not_before = counted
        ripe_now, first_ripe, ripe_before = ripe
        known = [each for each in (mark, first_end, success, failure, first_ripe) if each is not None]
        known += interruption or ()
        try:
            expression = parse_cron(cron)
            if not {int}.issuperset(map(type, known)):  # text sorts after numbers, so the largest shows it
                raise TypeError("an instant is not a number")
        except (InvalidCronExpressionError, TypeError) as fault:
            self._find_bad_record()
            raise StoreCorruptedError(f"Store {self._path} is damaged", store=self._path, cause=fault) from fault
        return Cohort(
            expression,
            Minute(mark),
            phase,
            interruption,
            tasks,
            (lowest, highest),
            first_end,
            Instant(max(success or 0, failure or 0)),
            tasks - int(not_before),
            int(ripe_now),
            first_ripe,
            int(ripe_before),
        )

    def _find_bad_record(self) -> None:
        """Raise the error of the first record that duly did not write, by reading all of them."""
        for _ in self.tasks():
            pass

    def tasks(
        self, *, after: str | None = None, limit: int | None = None, phase: TaskPhase | None = None
    ) -> Iterator[KnownTask]:
        """Tasks in force by name."""
        self.count_tasks()
        bounds = {"after": after, "limit": -1 if limit is None else limit, **self._alive}
        later = "" if after is None else "AND t.name > :after "
        if phase is None or phase is TaskPhase.WAITING:
            which = "AND s.run IS NULL AND s.pending_retry_until IS NULL " if phase is not None else ""
            source = f"FROM tasks AS t LEFT JOIN states AS s ON s.generation = t.generation WHERE {_IN_FORCE} {which}"
        else:
            # These are few among many: it is faster to find their states and to sort what is found.
            source = (
                f"FROM states AS s CROSS JOIN tasks AS t ON t.generation = s.generation "
                f"WHERE {_IN_FORCE} AND {_IN_PHASE[phase]} "
            )
        rows = self._connection.execute(f"SELECT {ROW}, {_PHASE} {source}{later}ORDER BY t.name LIMIT :limit", bounds)
        return self._known(rows, many=limit is None or limit > _CHUNK_ROWS)

    def page(self, which: TaskSelection, limit: int) -> Sequence[KnownTask]:
        """Up to `limit` tasks in their order.

        By name, the index is walked and left when the page is full: 0.1 ms anywhere among a million tasks. Otherwise
        the narrow table of states leads, and what it finds is sorted.
        """
        if which.which != "owed":
            return self._page(which, limit, self._source(which))
        with self._making_tables():
            self._connection.execute(
                "CREATE TEMP TABLE IF NOT EXISTS latest_due (cron TEXT PRIMARY KEY, minute INTEGER) WITHOUT ROWID"
            )
            self._connection.execute("DELETE FROM latest_due")
            self._connection.executemany("INSERT INTO latest_due VALUES (?, ?)", (which.latest_due or {}).items())
        if which.order == "name":
            found = self._page(which, limit, self._near(which))
            if len(found) == limit:
                return found
        return self._page(which, limit, self._source(which))

    def _page(self, which: TaskSelection, limit: int, source: str) -> Sequence[KnownTask]:
        place = which.after or which.before
        bounds: dict[str, Any] = {"limit": limit, "at": self._at, **self._alive}
        tests = [_IN_FORCE]
        value = _ORDERS[which.order]
        if which.containing:
            tests.append("t.name LIKE :containing ESCAPE '\\'")
            bounds["containing"] = f"%{_LIKE_LETTERS.sub(_escaped, which.containing)}%"
        if which.which != "all":
            tests.append(_FILTERS[which.which])
        if which.order in {"failure", "failures"}:
            tests.append("s.last_failure_at IS NOT NULL" if which.order == "failure" else "s.failures > 0")
        if place is not None:
            relation = ">" if which.after is not None else "<"
            bounds.update(place_name=place.name, place_value=place.value)
            later = f"({value}, t.name) {relation} (:place_value, :place_name)"
            tests.append(f"t.name {relation} :place_name" if which.order == "name" else later)
        direction = "ASC" if place is None or which.after is not None else "DESC"
        order = f"{value} {direction}, t.name {direction}" if which.order != "name" else f"t.name {direction}"
        rows = self._connection.execute(
            f"SELECT {ROW}, {_PHASE} FROM {source} WHERE {' AND '.join(tests)} ORDER BY {order} LIMIT :limit",
            bounds,
        )
        found = list(self._known(rows, many=False))
        return found if direction == "ASC" else found[::-1]

    def _source(self, which: TaskSelection) -> str:
        """The tables of a page, in the order in which SQLite is to go through them."""
        if which.order == "expression":
            with self._making_tables():
                self._connection.execute("CREATE TEMP TABLE IF NOT EXISTS ranks (cron TEXT PRIMARY KEY, rank INTEGER)")
                self._connection.execute("DELETE FROM ranks")
                self._connection.executemany("INSERT INTO ranks VALUES (?, ?)", (which.ranks or {}).items())
            return (
                "tasks AS t NOT INDEXED CROSS JOIN ranks AS w ON w.cron = t.cron "
                "CROSS JOIN states AS s ON s.generation = t.generation"
            )
        if which.which == "all" and which.order == "name":
            return "tasks AS t CROSS JOIN states AS s ON s.generation = t.generation"
        return "states AS s CROSS JOIN tasks AS t ON t.generation = s.generation"

    def _near(self, which: TaskSelection) -> str:
        """The tasks next to the place of a page by name, as a table expression in place of all of them."""
        later, direction = "", "ASC"
        if which.after is not None:
            later = "AND t.name > :place_name"
        elif which.before is not None:
            later, direction = "AND t.name < :place_name", "DESC"
        walked = f"SELECT * FROM tasks AS t WHERE {_IN_FORCE} {later} ORDER BY t.name {direction} LIMIT {_NEAR}"
        return f"({walked}) AS t CROSS JOIN states AS s ON s.generation = t.generation"

    def tally(self) -> TaskCounts:
        """Numbers about all tasks in force; each has one state."""
        failing, never_ran = self._connection.execute(
            "SELECT total(failures > 0), total(last_attempt_at IS NULL) FROM states"
        ).fetchone()
        return TaskCounts(int(failing), int(never_ran))

    def declared(self) -> Hashable:
        """The newest scheduler, and the number of its latest declaration."""
        replaced = self._connection.execute("SELECT value FROM meta WHERE key = 'replaced'").fetchone()
        return self._alive["newest"], replaced

    def expressions(self, limit: int) -> Sequence[tuple[str, int]]:
        """The expressions that most tasks have. With the index that SQLite would choose it takes five times as long."""
        return self._connection.execute(
            f"SELECT t.cron, count(*) FROM tasks AS t NOT INDEXED WHERE {_IN_FORCE} "
            "GROUP BY t.cron ORDER BY 2 DESC, 1 LIMIT ?",
            (limit,),
        ).fetchall()

    def marks(self) -> Mapping[str, Mark]:
        """The marks of withdrawn declarations, by name."""
        rows = self._connection.execute("SELECT name, served_through, retired_at FROM marks")
        return {name: Mark(served_through, retired_at) for name, served_through, retired_at in rows}

    def task(self, name: str) -> KnownTask | None:
        """The task in force that has this name."""
        rows = self._connection.execute(
            f"SELECT {ROW}, {_PHASE_OF_ONE} FROM tasks AS t LEFT JOIN states AS s ON s.generation = t.generation "
            f"WHERE {_IN_FORCE} AND t.name = :name",
            {"name": name, **self._alive},
        )
        return next(self._known(rows, many=False), None)

    def longest_owed(self, owed: Sequence[tuple[Cohort, Instant]], limit: int) -> Sequence[KnownTask]:
        """Tasks of some cohorts, those first that could have been started earliest."""
        if not owed or limit <= 0:
            return []
        with self._making_tables():
            self._connection.execute(
                "CREATE TEMP TABLE IF NOT EXISTS wanted (cron TEXT, mark INTEGER, phase TEXT, started_at INTEGER, "
                "delay INTEGER, interruptions INTEGER, since INTEGER, "
                "PRIMARY KEY (mark, cron, phase, started_at, delay, interruptions)) WITHOUT ROWID"
            )
            self._connection.execute("DELETE FROM wanted")
            self._connection.executemany(
                "INSERT INTO wanted VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        cohort.expression.text,
                        cohort.served_through,
                        cohort.phase.value,
                        *(cohort.interruption or (0, 0, 0)),
                        since,
                    )
                    for cohort, since in owed
                ),
            )
        cut_short = f"s.run IS NOT NULL AND {_CUT_SHORT}"
        by_calendar = f"max(w.since, {_ENDED})"
        by_retry = f"iif(s.run IS NULL, max(s.pending_retry_until, {_ENDED}), NULL)"
        rows = self._connection.execute(
            f"SELECT {ROW}, {_PHASE} FROM states AS s "
            f"CROSS JOIN tasks AS t ON t.generation = s.generation AND {_IN_FORCE} "
            f"CROSS JOIN wanted AS w ON w.mark = s.served_through AND w.cron = t.cron AND w.phase = {_PHASE} "
            f"AND (w.started_at, w.delay, w.interruptions) = (iif({cut_short}, s.last_attempt_at, 0), "
            f"iif({cut_short}, t.delay_ms, 0), iif({cut_short}, s.interruptions, 0)) "
            "WHERE s.generation BETWEEN :lowest AND :highest "
            f"ORDER BY ifnull(min({by_calendar}, {by_retry}), {by_calendar}), t.name LIMIT :limit",
            {
                "lowest": min(cohort.generations[0] for cohort, _ in owed),
                "highest": max(cohort.generations[1] for cohort, _ in owed),
                "limit": limit,
                **self._alive,
            },
        )
        return list(self._known(rows, many=limit > _CHUNK_ROWS))

    def _known(self, rows: sqlite3.Cursor, *, many: bool) -> Iterator[KnownTask]:
        while chunk := rows.fetchmany(_CHUNK_ROWS):
            failed = [row[0] for row in chunk if row[_LAST_FAILURE_AT] is not None]
            errors = self._errors(failed, many=many) if failed else {}
            self._check({str, type(None)}.issuperset(map(type, errors.values())), "a run", "an error that is no text")
            for row, stored in zip(chunk, read_records(row[:-1] for row in chunk), strict=True):
                yield KnownTask(
                    stored,
                    row[_KNOWN_SINCE],
                    row[_RUN_CAUSE],
                    row[_RUN_SCHEDULED],
                    TaskPhase(row[-1]),
                    errors.get(stored.generation),
                )

    def _errors(self, generations: Sequence[int], *, many: bool) -> dict[int, str | None]:
        """The errors of the latest failures that history has; `many`: more will be asked for."""
        if not many:
            return {
                generation: error
                for generation, _, error in self._connection.execute(
                    "SELECT generation, max(seq), error FROM runs WHERE outcome = 'failure' "
                    "AND generation IN (SELECT value FROM json_each(?)) GROUP BY generation",
                    (json.dumps(generations),),
                )
            }
        if self._latest_failures is None:
            self._latest_failures = array("q"), array("q")
            for generation, seq in self._connection.execute(
                "SELECT generation, max(seq) FROM runs WHERE outcome = 'failure' GROUP BY generation ORDER BY 1"
            ):
                self._latest_failures[0].append(generation)
                self._latest_failures[1].append(seq)
        known, places = self._latest_failures
        errors: dict[int, str | None] = {}
        for generation in generations:
            index = bisect_left(known, generation)
            if index < len(known) and known[index] == generation:
                found = self._connection.execute("SELECT error FROM runs WHERE seq = ?", (places[index],))
                (errors[generation],) = found.fetchone()
        return errors

    # --- names -------------------------------------------------------------------------------------------------------

    def declarations(self, name: str) -> Sequence[Declaration]:
        """The declarations of a name that the store still has, earliest first."""
        columns = "SELECT generation, name, cron, delay_ms, known_since, retired_at FROM tasks"
        rows = self._connection.execute(
            f"{columns} WHERE name = :name AND retired_at IS NULL "
            f"UNION ALL {columns} WHERE name = :name AND retired_at IS NOT NULL ORDER BY generation",
            {"name": name},
        )
        found = [self._declaration(row) for row in rows]
        if not found and self._has_unindexed(name):
            check_indexes(self._connection, self._path)
        return found

    def _has_unindexed(self, name: str) -> bool:
        """Whether the table has a name that its index has lost. Of many tasks the indexes have not been checked.

        Reading the table takes a seventh of the time that comparing all of it with its indexes does.
        """
        rows = self._connection.execute("SELECT EXISTS (SELECT 1 FROM tasks NOT INDEXED WHERE name = ?)", (name,))
        return bool(rows.fetchone()[0])

    def declaration(self, generation: int) -> Declaration | None:
        """The declaration that has this number."""
        row = self._connection.execute(
            "SELECT generation, name, cron, delay_ms, known_since, retired_at FROM tasks WHERE generation = ?",
            (generation,),
        ).fetchone()
        return None if row is None else self._declaration(row)

    def _declaration(self, row: Sequence[Any]) -> Declaration:
        declaration = Declaration(*row)
        what = f"declaration {declaration.generation}"
        texts = {str}.issuperset(map(type, (declaration.task, declaration.expression)))
        self._check(texts and type(declaration.retry_delay_ms) is int, what, "a value that duly did not write")
        since, until = declaration.known_since, declaration.retired_at
        self._check_moments([since] if until is None else [since, until], what)
        return declaration

    def names(self, *, prefix: str = "", after: str | None = None, limit: int) -> Sequence[str]:
        """Names of tasks in force or in history that begin with a prefix, in order."""
        return self._names(
            "name >= :prefix AND name < :end AND (:after IS NULL OR name > :after)",
            "ORDER BY name",
            {"prefix": prefix, "end": prefix + _HIGHEST, "after": after, "limit": limit},
        )

    def names_before(self, name: str, *, limit: int) -> Sequence[str]:
        """The last names before one, nearest first."""
        return self._names("name < :name", "ORDER BY name DESC", {"name": name, "limit": limit})

    def _names(self, which: str, order: str, bounds: dict[str, Any]) -> Sequence[str]:
        rows = self._connection.execute(
            f"SELECT name FROM (SELECT name FROM tasks WHERE retired_at IS NULL AND {which} {order} LIMIT :limit) "
            f"UNION SELECT name FROM (SELECT DISTINCT name FROM tasks WHERE retired_at IS NOT NULL AND {which} {order} "
            f"LIMIT :limit) {order} LIMIT :limit",
            bounds,
        )
        return [name for (name,) in rows]

    def has_name_like(self, pattern: str) -> bool:
        """Whether a pattern matches a name."""
        found = self._connection.execute("SELECT EXISTS (SELECT 1 FROM tasks WHERE name GLOB ?)", (pattern,))
        return bool(found.fetchone()[0])

    def count_names(self) -> int:
        """How many names `names` would hand out in all."""
        (gone,) = self._connection.execute(
            "SELECT count(DISTINCT name) FROM tasks AS r WHERE retired_at IS NOT NULL "
            "AND NOT EXISTS (SELECT 1 FROM tasks AS f WHERE f.name = r.name AND f.retired_at IS NULL)"
        ).fetchone()
        return self.count_tasks() + int(gone)

    # --- runs --------------------------------------------------------------------------------------------------------

    def runs(
        self, which: RunSelection, *, limit: int | None = None, oldest_first: bool = False, tracebacks: bool = False
    ) -> Iterator[RunRecord]:
        """Runs, ended or under way, in the order of their starts."""
        tables, where, bounds = self._tables(which)
        order = "ORDER BY started_at, run" if oldest_first else "ORDER BY started_at DESC, run DESC"
        # A limit for each table: of their union SQLite would sort every row, and not only keep the first ones.
        each = f"SELECT {_RUN} FROM {{}}{where}"
        ended = each.format("runs")
        if limit is not None:
            each = f"SELECT * FROM ({each} {order} LIMIT :limit)"
            # Nearly in order, and with nothing but their numbers, they are sorted in a quarter of the time.
            walk = "ORDER BY seq LIMIT -1" if oldest_first else "ORDER BY seq DESC LIMIT -1"
            walked = f"(SELECT seq, started_at, run FROM {self._walked_table(which.task)}{where} {walk})"
            ended = f"SELECT {_RUN} FROM runs WHERE seq IN (SELECT seq FROM {walked} {order} LIMIT :limit)"
        first = " UNION ALL ".join([ended, *(each.format(table) for table in tables if table != "runs")])
        rows = self._connection.execute(
            # Names are looked up for those runs alone that are within the limit.
            "SELECT r.run, ifnull(t.name, :unknown), r.generation, ifnull(t.cron, :unknown), r.cause, r.scheduled, "
            "r.started_at, r.ended_at, r.outcome, r.error, "
            # A run of cause cron is the first attempt for its obligation, which its row does not say again.
            "iif(r.cause = 'cron', 1, r.attempt), iif(r.cause = 'cron', r.started_at, r.first_started_at), "
            "r.called_at, "
            f"{'(SELECT traceback FROM runs WHERE seq = r.seq)' if tracebacks else 'NULL'}, NULL "
            f"FROM (SELECT {_RUN} FROM ({first}) {order} LIMIT :limit) AS r "
            f"LEFT JOIN tasks AS t ON t.generation = r.generation {order.replace('started_at', 'r.started_at')}",
            {"limit": -1 if limit is None else limit, "unknown": _UNKNOWN, **bounds},
        )
        if limit is not None:
            # Read at once: a table that a later question makes is undone with the transaction, and then a statement
            # that has not been read to its end is aborted.
            return map(self._run, rows.fetchall())
        return map(self._run, rows)

    def _run(self, row: Sequence[Any]) -> RunRecord:
        run = RunRecord._make(row)
        self._check_moments((run.scheduled_time, run.started_at), f"run {run.run_id}")
        perhaps = (run.ended_at, run.called_at, run.first_started_at)
        self._check_moments([each for each in perhaps if each is not None], f"run {run.run_id}")
        numbers = type(run.run_id) is int and type(run.attempt) in (int, type(None))
        texts = {str, type(None)}.issuperset(map(type, (run.error, run.traceback)))
        self._check(numbers and texts, f"run {run.run_id}", "a number or an error that duly did not write")
        return run

    def _check_moments(self, moments: Collection[Any], what: str) -> None:
        """Raise if a column does not hold moments of the calendar; SQLite keeps whatever it is given."""
        if moments:
            are_moments = {int}.issuperset(map(type, moments)) and _EARLIEST <= min(moments) <= max(moments) <= _LATEST
            self._check(are_moments, what, "a time that is none")

    def _check(self, is_well: bool, what: str, has: str) -> None:
        """Raise unless a record holds values that duly may have written."""
        if not is_well:
            raise StoreCorruptedError(
                f"Store {self._path} is damaged: {plain(what, longest=80)} has {has}",
                store=self._path,
                hint="restore a backup of the store",
            )

    def _walked_table(self, task: str | None) -> str:
        """A table to find ended runs in, by what `RunSelection` names; it may be one that has only those of some tasks.

        The page of a task asks six times about one: the second scan of history is the last.
        """
        if task is None:
            return "runs"
        asked_before = self._runs_asked_for.get(task)
        if asked_before is None:
            self._runs_asked_for[task] = False
            return "runs"
        if not asked_before:
            columns = "run, generation, cause, started_at, outcome"
            with self._making_tables():
                self._connection.execute(
                    f"CREATE TEMP TABLE IF NOT EXISTS runs_of (seq INTEGER PRIMARY KEY, {columns})"
                )
                self._connection.execute(
                    f"INSERT OR IGNORE INTO runs_of SELECT seq, {columns} FROM runs "
                    f"WHERE generation IN ({self._generations_text(task)})"
                )
            self._runs_asked_for[task] = True
        return "runs_of"

    def run_marks(self, which: RunSelection, limit: int) -> RunMarks:
        """Runs, ended or under way, the latest first."""
        tables, where, bounds = self._tables(which)
        late = "iif(cause = 'cron', started_at - scheduled, NULL) AS late"
        found = " UNION ALL ".join(
            f"SELECT run, started_at, ended_at, outcome, {late} FROM {table}{where}" for table in tables
        )
        # As texts, because a row each would take three times as long.
        columns = ", ".join(f"json_group_array({column})" for column in ("started_at", "ended_at", "outcome", "late"))

        def ask(order: str, most: int) -> list[list[Any]]:
            source = f"(SELECT * FROM ({found}) {order} LIMIT :limit)"
            row = self._connection.execute(f"SELECT {columns} FROM {source}", {"limit": most, **bounds}).fetchone()
            return [json.loads(column) for column in row]

        # Python sorts what is nearly in order; SQLite would take as long to sort it as to find it.
        starts, *others = ask("", limit + 1)
        if len(starts) > limit:
            starts, *others = ask("ORDER BY started_at DESC, run DESC", limit)
        self._check_moments(starts, "a run")
        self._check_moments([end for end in others[0] if end is not None], "a run")
        places = sorted(range(len(starts)), key=starts.__getitem__, reverse=True)
        return RunMarks(*([column[place] for place in places] for column in (starts, *others)))

    def count_runs(self, which: RunSelection) -> int:
        """How many runs there are."""
        found, bounds = self._found(which)
        (count,) = self._connection.execute(f"SELECT count(*) FROM {found}", bounds).fetchone()
        return int(count)

    def runs_by_time(self, since: Instant, width: int) -> Mapping[tuple[int, str], int]:
        """How many runs have started since an instant, by interval and outcome."""
        tables, where, bounds = self._tables(RunSelection(since=since))
        counts: Counter[tuple[int, str]] = Counter()
        for table in tables:
            for interval, outcome, count in self._connection.execute(
                f"SELECT (started_at - :since) / :width, outcome, count(*) FROM {table}{where} GROUP BY 1, 2",
                {"width": width, **bounds},
            ):
                counts[interval, outcome] += count
        return counts

    def runs_by_task(self, which: RunSelection, *, limit: int, latest: int) -> tuple[int, Sequence[TaskRuns]]:
        """How many tasks have such runs, and what those of the first ones are like."""
        if which.task is not None:
            found = self._runs_of(which.task, which, latest)
            return (1, [found]) if found.runs else (0, [])
        first = self._first_tasks(which, limit)
        tasks = len(first) if len(first) < limit else self._count_names(which)
        return tasks, [self._runs_of(name, replace(which, task=name, names=(), patterns=()), latest) for name in first]

    def _first_tasks(self, which: RunSelection, limit: int) -> Sequence[str]:
        """The names of those tasks whose runs started first."""
        found, bounds = self._found(which)
        names: dict[str, None] = {}
        generations: set[int] = set()
        for (generation,) in self._connection.execute(
            f"SELECT generation FROM {found} ORDER BY started_at, run", bounds
        ):
            if generation not in generations:
                generations.add(generation)
                names[self._name(generation)] = None
                if len(names) == limit:
                    break
        return list(names)

    def _name(self, generation: int) -> str:
        row = self._connection.execute("SELECT name FROM tasks WHERE generation = ?", (generation,)).fetchone()
        return _UNKNOWN if row is None else str(row[0])

    def _count_names(self, which: RunSelection) -> int:
        found, bounds = self._found(which)
        generations = f"(SELECT DISTINCT generation FROM {found})"
        (retired,) = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM tasks WHERE retired_at IS NOT NULL)"
        ).fetchone()
        counted = f"SELECT count(*) FROM {generations}"
        if retired:  # several declarations may have one name
            counted = f"SELECT count(DISTINCT name) FROM {generations} JOIN tasks USING (generation)"
        return int(self._connection.execute(counted, bounds).fetchone()[0])

    def _runs_of(self, name: str, which: RunSelection, latest: int) -> TaskRuns:
        found, bounds = self._found(which)
        runs, ended, failures, interruptions, longest = self._connection.execute(
            "SELECT count(*), count(ended_at), total(outcome = 'failure'), total(outcome = 'interrupted'), "
            f"max({_TOOK}) FROM {found}",
            bounds,
        ).fetchone()
        took = f"SELECT {_TOOK} AS took FROM {found} WHERE ended_at IS NOT NULL ORDER BY "
        rows = self._connection.execute(f"{took}started_at DESC, run DESC LIMIT :latest", {"latest": latest, **bounds})
        durations = [each for (each,) in rows][::-1]
        median = None
        if ended:
            # Not LIMIT and OFFSET: SQLite then keeps the sorted rows in a tree, which takes four times as long.
            by_length = self._connection.execute(f"{took}took", bounds)
            middle = [each for (each,) in islice(by_length, (ended - 1) // 2, ended // 2 + 1)]
            by_length.close()
            median = float(sum(middle)) / len(middle)
        return TaskRuns(name, runs, int(failures), int(interruptions), longest, median, durations)

    def runs_by_host(self) -> Mapping[int, int]:
        """Nothing: an embedded store has no hosts."""
        return {}

    def holds(self, host: int, since: Instant, until: Instant) -> Sequence[Hold]:
        """Nothing: an embedded store has no hosts."""
        return ()

    def history_begins(self) -> Instant | None:
        """The start of the earliest run on record."""
        tables, where, _ = self._tables(RunSelection())
        earliest = " UNION ALL ".join(f"SELECT min(started_at) AS begins FROM {table}{where}" for table in tables)
        (begins,) = self._connection.execute(f"SELECT min(begins) FROM ({earliest})").fetchone()
        return None if begins is None else Instant(begins)

    def extent(self) -> HistoryExtent:
        """How much history there is."""
        tables, _, _ = self._tables(RunSelection())
        counted = " UNION ALL ".join(f"SELECT count(*) AS runs, max(run) AS highest FROM {table}" for table in tables)
        runs, highest = self._connection.execute(f"SELECT total(runs), max(highest) FROM ({counted})").fetchone()
        first = " UNION ALL ".join(
            "SELECT * FROM (SELECT started_at, run, ifnull(ended_at, started_at) AS ended_at "
            f"FROM {table} WHERE outcome != 'running' ORDER BY started_at, run LIMIT 1)"
            for table in tables
        )
        oldest = self._connection.execute(f"SELECT ended_at FROM ({first}) ORDER BY started_at, run LIMIT 1").fetchone()
        self._check(isinstance(highest, int | None), f"run {highest}", "a number that duly did not write")
        return HistoryExtent(int(runs), highest or 0, None if oldest is None else Instant(oldest[0]))

    def has_started(self) -> bool:
        """Whether a task in force has ever been started."""
        started = "SELECT EXISTS (SELECT 1 FROM states WHERE last_attempt_at IS NOT NULL)"
        return bool(self._connection.execute(started).fetchone()[0])

    def last_sign_of_life(self, before: Instant) -> Instant | None:
        """The latest start, end, declaration or arrival that is on record from before an instant."""
        if self._signs_of_life is None:
            self._signs_of_life = []
            latest = [self._latest_before(before, *source) for source in _SIGNS_OF_LIFE]
        else:
            # The page of a task asks about one arrival after another: the second scan of history is the last.
            self._signs_of_life = self._signs_of_life or [self._moments(*source) for source in _SIGNS_OF_LIFE]
            latest = [_before(moments, before) for moments in self._signs_of_life]
        if self._declared_at is None:
            self._declared_at = sorted(self._find_declared_at())
        known = [each for each in (*latest, _before(self._declared_at, before)) if each is not None]
        return Instant(max(known)) if known else None

    def _latest_before(self, before: Instant, table: str, columns: Sequence[str]) -> int | None:
        latest = ", ".join(f"max(iif({column} < :before, {column}, NULL))" for column in columns)
        found = self._connection.execute(f"SELECT {latest} FROM {table}", {"before": before}).fetchone()
        return max((each for each in found if each is not None), default=None)

    def _moments(self, table: str, columns: Sequence[str]) -> "array[int]":
        """The moments in a table, in order; as one text, because a row each would take three times as long."""
        arrays = ", ".join(f"json_group_array({column})" for column in columns)
        found = self._connection.execute(f"SELECT {arrays} FROM {table}").fetchone()
        return array("q", sorted(each for column in found for each in json.loads(column) if type(each) is int))

    def _find_declared_at(self) -> Iterator[int]:
        """When tasks were declared and withdrawn, and schedulers arrived: one initialize() does it for very many."""
        for column, table in (("known_since", "tasks NOT INDEXED"), ("retired_at", "tasks"), ("since", "schedulers")):
            rows = self._connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")
            yield from (moment for (moment,) in rows if type(moment) is int)

    def _found(self, which: RunSelection) -> tuple[str, dict[str, Any]]:
        """Runs that pass a filter, as a table expression, and the values of its parameters."""
        tables, where, bounds = self._tables(which)
        return f"({' UNION ALL '.join(f'SELECT {_RUN} FROM {table}{where}' for table in tables)})", bounds

    def _tables(self, which: RunSelection) -> tuple[Sequence[str], str, dict[str, Any]]:
        """The tables that have runs, the condition that those of a filter meet, and the values of its parameters."""
        tests = []
        bounds: dict[str, Any] = {}
        if which.task is not None:
            tests.append(f"generation IN ({self._generations_text(which.task)})")
        if which.names or which.patterns:
            self._choose(which.names, which.patterns)
            tests.append("generation IN (SELECT generation FROM chosen)")
        if which.since is not None:
            tests.append("started_at >= :since")
            bounds["since"] = which.since
        if which.until is not None:
            tests.append("started_at < :until")
            bounds["until"] = which.until
        if which.outcomes:
            tests.append("outcome IN (SELECT value FROM json_each(:outcomes))")
            bounds["outcomes"] = json.dumps(list(which.outcomes))
        if which.causes:
            tests.append("cause IN (SELECT value FROM json_each(:causes))")
            bounds["causes"] = json.dumps(list(which.causes))
        if which.before is not None:
            tests.append("(started_at, run) < (:before_start, :before_run)")
            bounds["before_start"], bounds["before_run"] = which.before
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        if which.task is not None:
            return ["runs", self._table_under_way_of(which.task)], where, bounds
        return ["runs", "under_way"] if self._are_under_way() else ["runs"], where, bounds

    def _choose(self, names: tuple[str, ...], patterns: tuple[str, ...]) -> None:
        """Put the declarations of these names into the table `chosen`, unless it has them already."""
        if self._chosen == (names, patterns):
            return
        with self._making_tables():
            self._connection.execute("CREATE TEMP TABLE IF NOT EXISTS chosen (generation INTEGER PRIMARY KEY)")
            self._connection.execute("DELETE FROM chosen")
            self._connection.execute(
                "INSERT OR IGNORE INTO chosen "
                "SELECT generation FROM tasks WHERE name IN (SELECT value FROM json_each(?))",
                (json.dumps(names),),
            )
            for pattern in patterns:
                self._connection.execute(
                    "INSERT OR IGNORE INTO chosen SELECT generation FROM tasks WHERE name GLOB ?", (pattern,)
                )
        self._chosen = names, patterns

    def _generations(self, name: str) -> Sequence[int]:
        if name not in self._generations_of:
            self._generations_of[name] = [int(each.generation) for each in self.declarations(name)]
        return self._generations_of[name]

    def _generations_text(self, name: str) -> str:
        return ", ".join(map(str, self._generations(name)))

    def _table_under_way_of(self, name: str) -> str:
        """A table with what is under way of a task, and perhaps of others: all together may be very many."""
        if self._under_way:
            return "under_way"
        if name not in self._under_way_of:
            generations = self._generations_text(name)
            with self._making_tables():
                self._connection.execute(
                    f"CREATE TEMP TABLE IF NOT EXISTS under_way_of AS {_UNDER_WAY} LIMIT 0", self._alive
                )
                self._connection.execute(
                    f"INSERT INTO under_way_of {_UNDER_WAY} AND s.generation IN ({generations}) "
                    f"AND s.run NOT IN (SELECT run FROM runs WHERE generation IN ({generations}))",
                    self._alive,
                )
            self._under_way_of.add(name)
        return "under_way_of"

    def _are_under_way(self) -> bool:
        """Whether runs are under way, or were cut short and are not in history yet; puts them into a table."""
        if self._under_way is None:
            with self._making_tables():
                self._connection.execute(f"CREATE TEMP TABLE under_way AS {_UNDER_WAY}", self._alive)
                (count,) = self._connection.execute("SELECT count(*) FROM under_way").fetchone()
                if count:
                    told = "SELECT run FROM runs WHERE run IN (SELECT run FROM under_way)"
                    self._connection.execute(f"DELETE FROM under_way WHERE run IN ({told})")
            self._under_way = count > 0
        return self._under_way

    @contextlib.contextmanager
    def _making_tables(self) -> Iterator[None]:
        """Allow writing for as long as a temporary table is made: `query_only` forbids these, too."""
        self._connection.execute("PRAGMA query_only = OFF")
        try:
            yield
        finally:
            self._connection.execute("PRAGMA query_only = ON")

    # --- the trace ---------------------------------------------------------------------------------------------------

    def trace(self) -> StoredTrace | None:
        """The trace as a whole; None if the store holds none."""
        segments = self._connection.execute(
            "SELECT segment, first, json_extract(header, '$.scheduler') FROM segments ORDER BY segment"
        ).fetchall()
        if not segments:
            return None
        first_segment, first, scheduler = segments[0]
        last = self._connection.execute("SELECT seq, line FROM trace ORDER BY seq DESC LIMIT 1").fetchone()
        traced = self._connection.execute("SELECT value FROM meta WHERE key = 'traced'").fetchone()
        stopped = last is not None and str(last[1]).startswith('["SE"')
        return StoredTrace(
            scheduler=str(scheduler),
            segments=len(segments),
            first_segment=first_segment,
            events=0 if last is None else last[0] - first + 1,
            first_seq=first,
            seal="clean" if stopped and not self._holder.alive else "open",
            current=traced is not None and traced[0] == 1,
            position=0 if last is None else last[0],
        )

    def trace_lines(self, stored: StoredTrace) -> Iterator[bytes]:
        """The trace in its exchange format."""
        try:
            yield from export(self._connection, clean=stored.seal == "clean")
        except (ValueError, KeyError, TypeError) as fault:
            reason = f"the trace in {self._path} is not what duly wrote"
            raise TraceError("malformed", 1, reason, hint="restore a backup") from fault
