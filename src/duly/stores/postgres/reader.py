"""Reads a shared store without changing it, while any number of hosts run on it.

A view is one transaction, repeatable read and read only, so all its statements see one moment; it takes no lock that a
host waits for. It calls none of the store's functions: a role that may SELECT is enough, and a standby will do. Rows
of long answers come through a cursor, so no answer takes memory that grows with the number of tasks or runs.
"""

import contextlib
import json
import re
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from duly.core.cron import parse_cron
from duly.core.moments import Instant, Minute
from duly.core.news import RUNS_OF_A_HOST, LogEntry
from duly.core.record import FIELDS, read_records
from duly.core.resolution import Mark
from duly.errors import (
    InvalidCronExpressionError,
    StoreCorruptedError,
    StoreError,
    StoreSchemaError,
    StoreUnusedError,
    StoreVersionError,
    TaskInvalidStructureError,
    TraceError,
)
from duly.stores.port import (
    ClusterRecord,
    Cohort,
    Declaration,
    Edition,
    HistoryExtent,
    Hold,
    Holder,
    HostName,
    Interruption,
    KnownTask,
    RunMarks,
    RunRecord,
    RunSelection,
    Snapshot,
    StoredHost,
    StoredTrace,
    TaskCounts,
    TaskPhase,
    TaskRuns,
    TaskSelection,
    View,
)
from duly.stores.postgres.connection import SNAPSHOT, Connection
from duly.stores.postgres.entries import array, entry_of
from duly.stores.postgres.install import FORBIDDEN
from duly.stores.postgres.rows import READ_SECONDS_MAX, JsonRows, snapshot_of
from duly.stores.postgres.script import VERSION, quoted
from duly.stores.postgres.url import DEFAULT_SCHEMA, StoreUrl, read_url
from duly.stores.shared_trace import (
    HINT,
    Base,
    BaseHost,
    BaseMark,
    BaseStray,
    BaseTask,
    LoggedTrace,
    NamedDeclaration,
    lines_of,
)

T = TypeVar("T")
PartOfABase = TypeVar("PartOfABase", BaseTask, BaseHost, BaseStray, BaseMark)

_ATTEMPTS: Final = 3
_HOSTS_KEPT: Final = 1_000
"""Hosts that are gone, and editions, of which a snapshot tells."""

_HIGHEST: Final = "\U0010ffff" * 4
"""Follows every name that begins with what stands before it."""

_UNKNOWN: Final = "?"
"""The name and the expression of a run whose declaration is gone."""

_ABSENT: Final = frozenset({"42P01", "3F000"})  # no such table, no such schema
_OTHER_TABLES: Final = frozenset({"42703", "42883", "42804"})  # no such column, or another type
_ENDED_BY_SERVER: Final = "57014"  # a statement that took longer than its limit, or that somebody cancelled
_RECOVERY_CONFLICT: Final = "40001"  # a standby had to remove what the snapshot needs

_OF_TASKS: Final = frozenset(FIELDS[:5])
_ROW: Final = ", ".join(f"{'t' if name in _OF_TASKS else 's'}.{name}" for name in FIELDS)
_KNOWN_SINCE, _LAST_FAILURE_AT, _RUN_CAUSE, _RUN_SCHEDULED = map(
    FIELDS.index, ("known_since", "last_failure_at", "run_cause", "run_scheduled")
)
_INSTANT: Final = "(extract(epoch from {}) * 1000000)::bigint"
_IN_FORCE: Final = "t.retired_at is null"
_ENDED: Final = "greatest(coalesce(s.last_success_at, 0), coalesce(s.last_failure_at, 0))"
_RIPE: Final = (
    f"case when s.run is null and s.pending_retry_until is not null then greatest(s.pending_retry_until, {_ENDED}) end"
)
_ORDERS: Final = {"name": "0", "expression": "w.rank", "failure": "-s.last_failure_at", "failures": "-s.failures"}
"""The column that tasks are ordered by before their names, ascending."""

_RUN: Final = (
    "seq, run, generation, host, cause, scheduled, started_at, ended_at, outcome, error, attempt, first_started_at, "
    "called_at"
)
_TOOK: Final = "case when ended_at is not null then greatest(0, ended_at - coalesce(called_at, started_at)) end"
_LIKE_LETTERS: Final = re.compile(r"[%_\\]")
"""Letters that mean something else than themselves in a pattern of LIKE."""


class PostgresReader:
    """Reads the store that a URL names; for any number of threads.

    Parameters:
        url: a `postgresql://` URL as libpq reads it.
        schema: the schema of the store.
        now: the clock that its answers are stamped with; that of the database by default.
        connections_kept: how many connections stay open for the next questions; by default, each question has its own.
        statement_seconds_max: the server ends a statement that takes longer; by default none.

    Raises:
        StoreError: the URL cannot be read, or psycopg is not installed.
    """

    def __init__(
        self,
        url: str | StoreUrl,
        *,
        schema: str = DEFAULT_SCHEMA,
        now: Callable[[], int] | None = None,
        connections_kept: int = 0,
        statement_seconds_max: float | None = None,
    ) -> None:
        self._url = url if isinstance(url, StoreUrl) else read_url(url, schema)
        self._statement_seconds_max = statement_seconds_max
        self._now = now
        self._connections_kept = connections_kept
        self._idle: deque[Connection] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def __repr__(self) -> str:
        return f"PostgresReader({self._url.name!r})"

    @property
    def name(self) -> str:
        """The store as messages name it, without a password."""
        return self._url.name

    def read(self, question: Callable[[View], T]) -> T:
        """Ask about one moment; asked again if a kept connection had broken, or a standby had to end the snapshot.

        Parameters:
            question: given the store at that moment; it returns what is wanted.

        Raises:
            StoreError: the store cannot be read; a `StoreUnusedError` if there is none yet.
            TaskTryDeserializeError: a record is not what duly writes.
        """
        for attempt in range(_ATTEMPTS):
            connection, kept = self._connection()
            try:
                answer = self._answer(connection, question)
            except StoreError as error:
                connection.close()
                if error.details.get("code") == _ENDED_BY_SERVER and self._statement_seconds_max is not None:
                    raise self._too_long() from error
                broken = kept and not error.details.get("permanent", True)
                if attempt == _ATTEMPTS - 1 or not (broken or error.details.get("code") == _RECOVERY_CONFLICT):
                    raise
                if broken:
                    self.close()  # a restart of the server has broken all of them: the next attempt opens its own
                continue
            except BaseException:
                connection.close()
                raise
            self._keep(connection)
            return answer
        raise AssertionError("the last attempt returns or raises")

    def version(self) -> Hashable:
        """The schema's version, the end of the log, the hosts that are gone, and the minute of the latest beat.

        None if it cannot be read.
        """
        here = quoted(self._url.schema)
        last = f"(select json_build_array(seq, nonce) from {here}.log order by seq desc limit 1)"
        minute = f"{_INSTANT.format('max(renewed_at)')} / 60000000"
        hosts = f"(select json_build_array(count(gone), {minute}) from {here}.hosts)"
        for _ in range(_ATTEMPTS):
            connection, kept = self._connection()
            try:
                rows = connection.read(
                    f"select json_build_array(version, {last}, {hosts}) from {here}.cluster",
                    begin=SNAPSHOT,
                    limit_seconds=15.0,
                )[0]
            except StoreError:
                connection.close()
                if not kept:
                    return None
                self.close()
                continue
            self._keep(connection)
            return rows[0][0] if rows else None
        return None

    def close(self) -> None:
        """Close the connections that are kept."""
        _close_all(self._idle)

    def _connection(self) -> tuple[Connection, bool]:
        """A connection, and whether it has been used before."""
        try:
            return self._idle.pop(), True
        except IndexError:
            return Connection(self._url), False

    def _keep(self, connection: Connection) -> None:
        if len(self._idle) < self._connections_kept:
            self._idle.append(connection)
        else:
            connection.close()

    def _answer(self, connection: Connection, question: Callable[[View], T]) -> T:
        answer = question(PostgresView(connection, self._url, self._now, self._statement_seconds_max))
        connection.send("rollback", limit_seconds=15.0)
        return answer

    def _too_long(self) -> StoreError:
        return StoreError(
            f"Store {self.name} did not answer a question within {self._statement_seconds_max:g} s",
            store=self.name,
            hint="the server is busy, or its tables want `analyze`; ask again, or for less",
            operation="read",
            code=_ENDED_BY_SERVER,
            permanent=False,
        )


def _close_all(connections: deque[Connection]) -> None:
    with contextlib.suppress(IndexError):  # another thread may take the last one meanwhile
        while True:
            connections.pop().close()


class PostgresView:
    """A shared store in one read transaction."""

    def __init__(
        self,
        connection: Connection,
        url: StoreUrl,
        now: Callable[[], int] | None = None,
        statement_seconds_max: float | None = None,
    ) -> None:
        self._connection = connection
        self._store = url.name
        self._rows = JsonRows(connection)
        self._counted: int | None = None
        self._generations_of: dict[str, Sequence[int]] = {}
        self._snapshot: Snapshot | None = None
        self._signs_of_life: dict[Instant, Instant | None] = {}
        """The latest sign of life before an instant, for those that were asked for and for all arrivals."""
        known = self._begin(url, statement_seconds_max)
        self._known = known
        self._at = Instant(known["clock"] if now is None else now())
        living = array(known["living"])
        self._cut_short = f"(not (s.run / {RUNS_OF_A_HOST} = any ('{living}'::bigint[])))"
        """Whether the host of a run is gone; the state still names the run until the task starts again."""
        self._phase = (
            "case when s.run is null then case when s.pending_retry_until is null then 'waiting' else 'retrying' end "
            f"when {self._cut_short} then 'interrupted' else 'running' end"
        )

    def _begin(self, url: StoreUrl, statement_seconds_max: float | None) -> dict[str, Any]:
        """Begin the transaction, and read what every answer needs."""
        here = quoted(url.schema)
        # The table is named in full: of a schema that may not be used, a search path says that it is not there.
        asked = (
            "select json_build_object('version', c.version, 'zone', c.zone, 'edition', c.edition, "
            "'generation', c.generation, 'traced', c.traced, "
            "'trace_last', c.trace_last, "
            f"'clock', {_INSTANT.format('clock_timestamp()')}, "
            f"'living', (select coalesce(json_agg(key order by key), '[]') from {here}.hosts where gone is null)) "
            f"from {here}.cluster c"
        )
        try:
            beginning = snapshot_of(url.schema, statement_seconds_max)
            rows = self._connection.send(f"{beginning}; {asked}", limit_seconds=READ_SECONDS_MAX)[-1]
        except StoreError as error:
            code = error.details.get("code")
            if code in _ABSENT:
                raise _unused(url, "the first host creates it, or `duly store install`") from error
            if code == FORBIDDEN:
                grant = f"grant usage on schema {here} to ROLE; grant select on all tables in schema {here} to ROLE"
                raise StoreSchemaError(url.name, "may not be read by the role", grant) from error
            if code in _OTHER_TABLES:
                raise StoreError(
                    f"Store {url.name} is a schema of something else",
                    store=url.name,
                    hint="give duly a schema of its own",
                    permanent=True,
                ) from error
            raise
        if not rows:
            raise _damaged(self._store, "its table `cluster` is empty")
        known: dict[str, Any] = json.loads(rows[0][0] or "")
        if known["version"] > VERSION:
            raise StoreVersionError(url.name, known["version"], VERSION)
        if not (known["edition"] or known["generation"]):
            raise _unused(url, "a host that declares tasks is the first")
        return known

    # --- the store as a whole ----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The store as a whole, at one moment."""
        if self._snapshot is None:
            cluster = self._cluster()
            in_force = [each for each in cluster.hosts if each.is_living(self._at) and each.edition == cluster.edition]
            beats = [each.beat_at for each in cluster.hosts]
            since = min((each.since for each in in_force), default=None)
            self._snapshot = Snapshot(
                store=self._store,
                at=self._at,
                schema_version=self._known["version"],
                zone=self._known["zone"],
                holder=Holder(bool(in_force), None, None, since, max(beats, default=None)),
                arrivals=_arrivals(cluster.hosts),
                cluster=cluster,
            )
        return self._snapshot

    def _cluster(self) -> ClusterRecord:
        hosts = self._rows.few(
            "key, replace(identifier::text, '-', ''), label, since, "
            f"{_INSTANT.format('lease')}, edition, {_INSTANT.format('renewed_at')}, "
            "case gone when 'l' then 'left' when 'b' then 'buried' end, fault",
            f"from (select * from hosts where gone is null union all (select * from hosts where gone is not null "
            f"order by key desc limit {_HOSTS_KEPT})) h order by key",
        )
        editions = self._rows.few(
            f"edition, digest, {_INSTANT.format('since')}",
            f"from (select * from editions order by edition desc limit {_HOSTS_KEPT}) e order by edition",
        )
        ((position, replaced_at, open_since),) = self._rows.few(
            "(select coalesce(max(seq), 0) from log), (select max(at) from log where kind = 'replaced'), "
            f"(select {_INSTANT.format('min(xact_start)')} from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid())",
        )
        known = {edition: Edition(digest, since) for edition, digest, since in editions}
        edition = self._known["edition"]
        first_seen = known[edition].since if edition in known else 0
        return ClusterRecord(
            hosts=[StoredHost(*each) for each in hosts],
            edition=edition,
            in_force_since=Instant(max(first_seen, replaced_at or 0)),
            editions=known,
            position=position,
            oldest_transaction_at=open_since,
        )

    def size(self) -> int | None:
        """The bytes of its tables and their indexes."""
        ((size,),) = self._rows.few(
            "sum(pg_total_relation_size(c.oid))",
            "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = current_schema() and c.relkind = 'r'",
        )
        return None if size is None else int(size)

    def engine(self) -> str:
        """PostgreSQL and the version of the server."""
        ((version,),) = self._rows.few("current_setting('server_version')")
        return f"PostgreSQL {version}"

    def runs_by_host(self) -> Mapping[int, int]:
        """How many runs of each host are under way, by its key; those of withdrawn declarations included."""
        rows = self._rows.few(
            "host, count(*)",
            f"from (select run / {RUNS_OF_A_HOST} as host from states s where run is not null "
            f"and not {self._cut_short} union all select host from strays) r group by host",
        )
        return {int(host): int(runs) for host, runs in rows}

    # --- tasks -------------------------------------------------------------------------------------------------------

    def count_tasks(self) -> int:
        """How many tasks are in force; raises if there is not one state for each."""
        if self._counted is None:
            ((tasks, states),) = self._rows.few(
                "(select count(*) from tasks where retired_at is null), (select count(*) from states)"
            )
            if states != tasks:
                raise TaskInvalidStructureError(states, f"{states} states for {tasks} tasks")
            self._counted = int(tasks)
        return self._counted

    def cohorts(self, bound: Instant) -> Iterator[Cohort]:
        """All tasks in force, by cohort."""
        tasks = self.count_tasks()
        found = 0
        rows = self._rows.many(
            "cron, served_through, phase, started_at, delay, interruptions, count(*), min(generation), "
            "max(generation), min(ended), max(ended), "
            f"count(*) filter (where ended < {bound}), "
            f"count(*) filter (where pending <= {self._at}), min(ripe), count(*) filter (where ripe < {bound})",
            f"from (select t.cron, s.served_through, {self._phase} as phase, s.generation, {_ENDED} as ended, "
            f"case when s.run is null then s.pending_retry_until end as pending, {_RIPE} as ripe, "
            f"{self._of_interrupted('s.last_attempt_at')} as started_at, "
            f"{self._of_interrupted('t.delay_ms')} as delay, "
            f"{self._of_interrupted('s.interruptions')} as interruptions "
            f"from states s join tasks t on t.generation = s.generation where {_IN_FORCE}) each "
            "group by cron, served_through, phase, started_at, delay, interruptions",
        )
        for cron, mark, phase, started_at, delay, interruptions, *rest in rows:
            number, lowest, highest, first_end, last_end, before, ripe, first_ripe, ripe_before = rest
            cut_short = Interruption(started_at, delay, interruptions) if phase == TaskPhase.INTERRUPTED.value else None
            found += number
            try:
                expression = parse_cron(cron)
            except InvalidCronExpressionError as fault:
                self._find_bad_record()
                raise _damaged(self._store, fault.message) from fault
            yield Cohort(
                expression,
                Minute(mark),
                TaskPhase(phase),
                cut_short,
                number,
                (lowest, highest),
                first_end,
                last_end,
                before,
                ripe,
                first_ripe,
                ripe_before,
            )
        if found != tasks:
            raise TaskInvalidStructureError(found, f"{found} tasks with a state of their own, of {tasks}")

    def _of_interrupted(self, value: str, otherwise: str = "null") -> str:
        return f"case when s.run is not null and {self._cut_short} then {value} else {otherwise} end"

    def _find_bad_record(self) -> None:
        """Raise the error of the first record that duly did not write, by reading all of them."""
        for _ in self.tasks():
            pass

    def tasks(
        self, *, after: str | None = None, limit: int | None = None, phase: TaskPhase | None = None
    ) -> Iterator[KnownTask]:
        """Tasks in force by name."""
        self.count_tasks()
        tests = [_IN_FORCE]
        if after is not None:
            tests.append(f"t.name > {self._text(after)}")
        if phase is not None:
            tests.append(self._in_phase(phase))
        return self._known_tasks(
            f"from tasks t left join states s on s.generation = t.generation where {' and '.join(tests)} "
            f"order by t.name {_limit(limit)}"
        )

    def page(self, which: TaskSelection, limit: int) -> Sequence[KnownTask]:
        """Up to `limit` tasks in their order; by name, the index is walked and left when the page is full."""
        place = which.after or which.before
        tests = [_IN_FORCE]
        value = _ORDERS[which.order]
        if which.containing:
            # In the collation of names, ILIKE knows the case of ASCII letters alone.
            part = self._text(f"%{_LIKE_LETTERS.sub(_escaped, which.containing)}%")
            tests.append(f"t.name ilike {part} escape E'\\\\'")
        if which.which != "all":
            tests.append(self._filter(which))
        if which.order in {"failure", "failures"}:
            tests.append("s.last_failure_at is not null" if which.order == "failure" else "s.failures > 0")
        if place is not None:
            relation = ">" if which.after is not None else "<"
            name = self._text(place.name)
            later = f"({value}, t.name) {relation} ({place.value}, {name})"
            tests.append(f"t.name {relation} {name}" if which.order == "name" else later)
        direction = "asc" if place is None or which.after is not None else "desc"
        order = f"{value} {direction}, t.name {direction}" if which.order != "name" else f"t.name {direction}"
        ranked = ""
        if which.order == "expression":
            ranks = self._connection.literal(dict(which.ranks or {}))
            ranked = (
                f"join (select key as cron, value::bigint as rank from jsonb_each_text({ranks})) w on w.cron = t.cron"
            )
        found = list(
            self._known_tasks(
                f"from tasks t join states s on s.generation = t.generation {ranked} "
                f"where {' and '.join(tests)} order by {order} {_limit(limit)}"
            )
        )
        return found if direction == "asc" else found[::-1]

    def _in_phase(self, phase: TaskPhase) -> str:
        return {
            TaskPhase.WAITING: "s.run is null and s.pending_retry_until is null",
            TaskPhase.RETRYING: "s.run is null and s.pending_retry_until is not null",
            TaskPhase.RUNNING: f"s.run is not null and not {self._cut_short}",
            TaskPhase.INTERRUPTED: f"s.run is not null and {self._cut_short}",
        }[phase]

    def _filter(self, which: TaskSelection) -> str:
        match which.which:
            case "failing":
                return "s.failures > 0"
            case "never":
                return "s.last_attempt_at is null"
            case "owed":
                # Not a join: the planner guesses that a set made of JSON has a hundred rows.
                latest_due = f"({self._connection.literal(dict(which.latest_due or {}))}::jsonb ->> t.cron)::bigint"
                return f"s.run is null and (s.pending_retry_until <= {self._at} or s.served_through < {latest_due})"
            case phase:
                return self._in_phase(TaskPhase(phase))

    def tally(self) -> TaskCounts:
        """Numbers about all tasks in force; each has one state."""
        ((failing, never_ran),) = self._rows.few(
            "count(*) filter (where failures > 0), count(*) filter (where last_attempt_at is null)", "from states"
        )
        return TaskCounts(failing, never_ran)

    def declared(self) -> Hashable:
        """The edition in force, the highest number of a declaration, and how many are in force."""
        return self._known["edition"], self._known["generation"], self.count_tasks()

    def expressions(self, limit: int) -> Sequence[tuple[str, int]]:
        """The expressions that most tasks have."""
        rows = self._rows.few(
            "cron, number",
            f"from (select t.cron, count(*) as number from tasks t where {_IN_FORCE} group by t.cron) each "
            f'order by number desc, cron collate "C" {_limit(limit)}',
        )
        return [(cron, number) for cron, number in rows]

    def marks(self) -> Mapping[str, Mark]:
        """The marks of withdrawn declarations, by name."""
        rows = self._rows.many("name, served_through, retired_at", "from marks")
        return {name: Mark(Minute(served_through), Instant(retired_at)) for name, served_through, retired_at in rows}

    def task(self, name: str) -> KnownTask | None:
        """The task in force that has this name."""
        found = self._known_tasks(
            "from tasks t left join states s on s.generation = t.generation "
            f"where {_IN_FORCE} and t.name = {self._text(name)}"
        )
        return next(found, None)

    def longest_owed(self, owed: Sequence[tuple[Cohort, Instant]], limit: int) -> Sequence[KnownTask]:
        """Tasks of some cohorts, those first that could have been started earliest."""
        if not owed or limit <= 0:
            return []
        wanted = self._connection.literal(
            [
                [
                    cohort.expression.text,
                    cohort.served_through,
                    cohort.phase.value,
                    *(cohort.interruption or (0, 0, 0)),
                    since,
                ]
                for cohort, since in owed
            ]
        )
        columns = ", ".join(
            f"(each ->> {index})::{kind} as {name}"
            for index, (name, kind) in enumerate(
                (
                    ("cron", "text"),
                    ("mark", "bigint"),
                    ("phase", "text"),
                    ("started_at", "bigint"),
                    ("delay", "bigint"),
                    ("interruptions", "bigint"),
                    ("since", "bigint"),
                )
            )
        )
        lowest = min(cohort.generations[0] for cohort, _ in owed)
        highest = max(cohort.generations[1] for cohort, _ in owed)
        rows = self._known_tasks(
            f"from states s join tasks t on t.generation = s.generation and {_IN_FORCE} "
            f"join (select {columns} from jsonb_array_elements({wanted}) as a(each)) w "
            f"on w.mark = s.served_through and w.cron = t.cron and w.phase = {self._phase} "
            f"and w.started_at = {self._of_interrupted('s.last_attempt_at', '0')} "
            f"and w.delay = {self._of_interrupted('t.delay_ms', '0')} "
            f"and w.interruptions = {self._of_interrupted('s.interruptions', '0')} "
            f"where s.generation between {lowest} and {highest} "
            f"order by least(greatest(w.since, {_ENDED}), {_RIPE}), t.name {_limit(limit)}"
        )
        return list(rows)

    def _known_tasks(self, source: str) -> Iterator[KnownTask]:
        for chunk in self._rows.chunks(f"{_ROW}, {self._phase}", source):
            failed = [row[0] for row in chunk if row[_LAST_FAILURE_AT] is not None]
            errors = self._errors(failed) if failed else {}
            for row, stored in zip(chunk, read_records(row[:-1] for row in chunk), strict=True):
                yield KnownTask(
                    stored,
                    row[_KNOWN_SINCE],
                    row[_RUN_CAUSE],
                    row[_RUN_SCHEDULED],
                    TaskPhase(row[-1]),
                    errors.get(stored.generation),
                )

    def _errors(self, generations: Sequence[int]) -> dict[int, str | None]:
        """The errors of the latest failures that history has, along its index."""
        rows = self._rows.few(
            "f.generation, (select r.error from runs r where r.generation = f.generation and r.outcome = 'failure' "
            "order by r.seq desc limit 1)",
            f"from unnest('{array(generations)}'::bigint[]) as f(generation)",
        )
        return {int(generation): error for generation, error in rows}

    # --- names -------------------------------------------------------------------------------------------------------

    def declarations(self, name: str) -> Sequence[Declaration]:
        """The declarations of a name that the store still has, earliest first."""
        columns = "select * from tasks where name ="
        text = self._text(name)
        rows = self._rows.few(
            "generation, name, cron, delay_ms, known_since, retired_at",
            f"from ({columns} {text} and retired_at is null union all {columns} {text} and retired_at is not null) d "
            "order by generation",
        )
        return [Declaration(*row) for row in rows]

    def declaration(self, generation: int) -> Declaration | None:
        """The declaration that has this number."""
        rows = self._rows.few(
            "generation, name, cron, delay_ms, known_since, retired_at",
            f"from tasks where generation = {int(generation)}",
        )
        return Declaration(*rows[0]) if rows else None

    def names(self, *, prefix: str = "", after: str | None = None, limit: int) -> Sequence[str]:
        """Names of tasks in force or in history that begin with a prefix, in order."""
        tests = [f"name >= {self._text(prefix)} and name < {self._text(prefix + _HIGHEST)}"]
        if after is not None:
            tests.append(f"name > {self._text(after)}")
        return self._names(" and ".join(tests), "order by name", limit)

    def names_before(self, name: str, *, limit: int) -> Sequence[str]:
        """The last names before one, nearest first."""
        return self._names(f"name < {self._text(name)}", "order by name desc", limit)

    def _names(self, which: str, order: str, limit: int) -> Sequence[str]:
        bound = _limit(limit)
        rows = self._rows.few(
            "name",
            f"from ((select name from tasks where retired_at is null and {which} {order} {bound}) union "
            f"(select distinct name from tasks where retired_at is not null and {which} {order} {bound})) each "
            f"{order} {bound}",
        )
        return [name for (name,) in rows]

    def has_name_like(self, pattern: str) -> bool:
        """Whether a pattern matches a name."""
        ((found,),) = self._rows.few(f"exists (select from tasks where name ~ {self._text(_expression(pattern))})")
        return bool(found)

    def count_names(self) -> int:
        """How many names `names` would hand out in all."""
        ((gone,),) = self._rows.few(
            "count(distinct name)",
            "from tasks r where retired_at is not null "
            "and not exists (select from tasks f where f.name = r.name and f.retired_at is null)",
        )
        return self.count_tasks() + int(gone)

    # --- runs --------------------------------------------------------------------------------------------------------

    def runs(
        self, which: RunSelection, *, limit: int | None = None, oldest_first: bool = False, tracebacks: bool = False
    ) -> Iterator[RunRecord]:
        """Runs, ended or under way, in the order of their starts."""
        order = "order by {0}started_at, {0}run" if oldest_first else "order by {0}started_at desc, {0}run desc"
        rows = self._rows.many(
            f"r.run, coalesce(t.name, '{_UNKNOWN}'), r.generation, coalesce(t.cron, '{_UNKNOWN}'), r.cause, "
            "r.scheduled, r.started_at, r.ended_at, r.outcome, r.error, "
            # A run of cause cron is the first attempt for its obligation, which its row does not say again.
            "case when r.cause = 'cron' then 1 else r.attempt end, "
            "case when r.cause = 'cron' then r.started_at else r.first_started_at end, r.called_at, "
            f"{'(select traceback from runs f where f.seq = r.seq)' if tracebacks else 'null'}, r.host, h.label",
            # Names are looked up for those runs alone that are within the limit.
            f"from (select {_RUN} from {self._found(which)} {order.format('')} {_limit(limit)}) r "
            "left join tasks t on t.generation = r.generation left join hosts h on h.key = r.host "
            f"{order.format('r.')}",
        )
        for *record, key, label in rows:
            yield RunRecord._make([*record, HostName(key, label) if key else None])

    def run_marks(self, which: RunSelection, limit: int) -> RunMarks:
        """Runs, ended or under way, the latest first."""
        names = {key: HostName(key, label) for key, label in self._rows.few("key, label", "from hosts")}
        # A text for each column: one for each row would take three times as long to read.
        columns = ["started_at", "ended_at", "outcome", "late", "host"]
        ((starts, ends, outcomes, lateness, keys),) = self._rows.few(
            ", ".join(f"coalesce(json_agg({column}), '[]')" for column in columns),
            "from (select started_at, ended_at, outcome, case when cause = 'cron' then started_at - scheduled end "
            f"as late, host from {self._found(which)} order by started_at desc, run desc {_limit(limit)}) each",
        )
        hosts = [names.get(key) or HostName(key, None) if key else None for key in keys]
        return RunMarks(starts, ends, outcomes, lateness, hosts)

    def count_runs(self, which: RunSelection) -> int:
        """How many runs there are."""
        ((number,),) = self._rows.few("count(*)", f"from {self._found(which)}")
        return int(number)

    def runs_by_time(self, since: Instant, width: int) -> Mapping[tuple[int, str], int]:
        """How many runs have started since an instant, by interval and outcome."""
        rows = self._rows.few(
            "place, outcome, count(*)",
            f"from (select (started_at - {since}) / {width} as place, outcome "
            f"from {self._found(RunSelection(since=since))}) r group by place, outcome",
        )
        return {(interval, outcome): number for interval, outcome, number in rows}

    def runs_by_task(self, which: RunSelection, *, limit: int, latest: int) -> tuple[int, Sequence[TaskRuns]]:
        """How many tasks have such runs, and what those of the first ones are like."""
        if which.task is not None:
            found = self._runs_of(which.task, which, latest)
            return (1, [found]) if found.runs else (0, [])
        named = (
            f"(select distinct on (1) coalesce(t.name, '{_UNKNOWN}') as name, r.started_at, r.run "
            f"from {self._found(which)} left join tasks t on t.generation = r.generation order by 1, 2, 3) first"
        )
        first = self._rows.few("name, count(*) over ()", f"from {named} order by started_at, run {_limit(limit)}")
        tasks = first[0][1] if first else 0
        return tasks, [
            self._runs_of(name, replace(which, task=name, names=(), patterns=()), latest) for name, _ in first
        ]

    def _runs_of(self, name: str, which: RunSelection, latest: int) -> TaskRuns:
        found = self._found(which)
        ((runs, failures, interruptions, longest, median),) = self._rows.few(
            "count(*), count(*) filter (where outcome = 'failure'), count(*) filter (where outcome = 'interrupted'), "
            f"max({_TOOK}), percentile_cont(0.5) within group (order by {_TOOK}) filter (where ended_at is not null)",
            f"from {found}",
        )
        durations = self._rows.few(
            "took",
            f"from (select {_TOOK} as took, started_at, run from {found} where ended_at is not null "
            f"order by started_at desc, run desc {_limit(latest)}) r order by started_at, run",
        )
        median = None if median is None else float(median)
        return TaskRuns(name, runs, failures, interruptions, longest, median, [took for (took,) in durations])

    def holds(self, host: int, since: Instant, until: Instant) -> Sequence[Hold]:
        """The times in which a host held the steps of its callbacks, earliest first."""
        where = f"where host = {host} and until > {since} and since < {until} order by since"
        rows = self._rows.few("since, until", f"from holds {where}")
        return [Hold(Instant(began), Instant(ended)) for began, ended in rows]

    def history_begins(self) -> Instant | None:
        """The start of the earliest run on record."""
        ((begins,),) = self._rows.few("min(started_at)", f"from {self._found(RunSelection())}")
        return None if begins is None else Instant(begins)

    def extent(self) -> HistoryExtent:
        """How much history there is; records are numbered one after the other."""
        found = self._found(RunSelection())
        ((runs, ended, highest),) = self._rows.few("count(*), count(seq), max(seq)", f"from {found}")
        oldest = self._rows.few(
            "coalesce(ended_at, started_at)",
            f"from {found} where outcome <> 'running' order by started_at, run limit 1",
        )
        ever = (highest or 0) + runs - ended
        return HistoryExtent(runs, ever, Instant(oldest[0][0]) if oldest else None)

    def has_started(self) -> bool:
        """Whether a task in force has ever been started."""
        ((started,),) = self._rows.few("exists (select from states where last_attempt_at is not null)")
        return bool(started)

    def last_sign_of_life(self, before: Instant) -> Instant | None:
        """The latest start, end, declaration, arrival or beat that is on record from before an instant."""
        if before not in self._signs_of_life:
            self._find_signs_of_life(sorted({before, *self.snapshot().arrivals}))
        return self._signs_of_life[before]

    def _find_signs_of_life(self, bounds: Sequence[Instant]) -> None:
        """Look for the latest ones before several instants in one scan; of all arrivals, whichever is asked for."""
        beat = _INSTANT.format("renewed_at")
        sources = (
            (self._found(RunSelection()), ("started_at", "ended_at")),
            ("tasks", ("known_since", "retired_at")),
            ("hosts", ("since", beat)),
        )
        moments = " union all ".join(
            f"select {column} as moment from {source}" for source, columns in sources for column in columns
        )
        rows = self._rows.few(
            "place, max(moment)",
            f"from (select width_bucket(moment, '{array(bounds)}'::bigint[]) as place, moment from ({moments}) m "
            "where moment is not null) each group by place",
        )
        latest_in = {int(place): Instant(latest) for place, latest in rows}
        latest: Instant | None = None
        for place, bound in enumerate(bounds):  # the moments in place 0 lie before the first bound
            here = latest_in.get(place)
            latest = here if latest is None or (here is not None and here > latest) else latest
            self._signs_of_life[bound] = latest

    def _found(self, which: RunSelection) -> str:
        """Runs that pass a filter, as a table expression called `r`."""
        tests = []
        if which.task is not None:
            tests.append(f"generation = any ('{array(self._generations(which.task))}'::bigint[])")
        if which.names or which.patterns:
            chosen = [f"name ~ {self._text(_expression(pattern))}" for pattern in which.patterns]
            if which.names:
                chosen.append(f"name in ({', '.join(map(self._text, which.names))})")
            tests.append(f"generation in (select generation from tasks where {' or '.join(chosen)})")
        if which.since is not None:
            tests.append(f"started_at >= {which.since}")
        if which.until is not None:
            tests.append(f"started_at < {which.until}")
        if which.outcomes:
            tests.append(f"outcome in ({', '.join(map(self._text, which.outcomes))})")
        if which.causes:
            tests.append(f"cause in ({', '.join(map(self._text, which.causes))})")
        if which.before is not None:
            started_at, run = which.before
            tests.append(f"(started_at, run) < ({started_at}, {run})")
        where = f" where {' and '.join(tests)}" if tests else ""
        tables = ["runs", f"({self._under_way()}) u"]
        return f"({' union all '.join(f'select {_RUN} from {table}{where}' for table in tables)}) r"

    def _under_way(self) -> str:
        """Runs that go on, and those that were cut short and are not in history, because none is kept."""
        return (
            f"select null::bigint as seq, s.run, s.generation, (s.run / {RUNS_OF_A_HOST})::int as host, "
            "s.run_cause as cause, s.run_scheduled as scheduled, s.last_attempt_at as started_at, "
            f"null::bigint as ended_at, case when {self._cut_short} then 'interrupted' else 'running' end as outcome, "
            "null::text as error, s.attempt, s.first_started_at, null::bigint as called_at "
            f"from states s where s.run is not null and not ({self._cut_short} "
            "and exists (select from runs h where h.generation = s.generation and h.run = s.run))"
        )

    def _generations(self, name: str) -> Sequence[int]:
        if name not in self._generations_of:
            self._generations_of[name] = [int(each.generation) for each in self.declarations(name)]
        return self._generations_of[name]

    # --- the trace ---------------------------------------------------------------------------------------------------

    def trace(self) -> StoredTrace | None:
        """The merged trace of all hosts as a whole; None if the store holds none.

        Its events are not counted: the log holds them in another form.
        """
        base = self._base()
        if base is None:
            return None
        last = self._known["trace_last"]
        ((scheduler, position, kind),) = self._rows.few(
            "(select replace(identifier::text, '-', '') from hosts order by key limit 1), l.seq, l.kind",
            f"from (select 1) one left join (select seq, kind from log where seq >= {base.first} "
            f"{'' if last is None else f'and seq <= {last}'} order by seq desc limit 1) l on true",
        )
        ended = kind == "left" and last is None and not self._known["living"]
        return StoredTrace(
            scheduler=str(scheduler),
            segments=1,
            first_segment=base.segment,
            events=None,
            first_seq=1,
            seal="clean" if ended else "open",
            current=bool(self._known["traced"]),
            position=position or 0,
        )

    def trace_lines(self, stored: StoredTrace) -> Iterator[bytes]:
        """The trace in its exchange format: one segment, made of the log."""
        base = self._base(whole=True)
        assert base is not None, "the view has a trace, and nothing changes in its transaction"
        last = self._known["trace_last"]
        if last is None:
            ((last,),) = self._rows.few("greatest((select max(seq) from log), (select max(seen) from hosts))")
        ((generation,),) = self._rows.few("min(generation)", "from bases")
        yield from lines_of(
            LoggedTrace(
                scheduler=stored.scheduler,
                base=base,
                identifiers=dict(self._rows.many("key, replace(identifier::text, '-', '')", "from hosts")),
                declarations={
                    number: NamedDeclaration(*declared)
                    for number, *declared in self._rows.many(
                        "generation, name, cron, delay_ms", f"from tasks where generation > {generation}"
                    )
                },
                entries=self._entries(base.first, last),
                last=last,
                clean=stored.seal == "clean",
            )
        )

    def _base(self, *, whole: bool = False) -> Base | None:
        """The content of the store when its trace began, with every task or without."""
        rows = self._rows.few("segment, first, at, edition, interrupted, zone", "from bases order by segment limit 1")
        if not rows:
            return None
        segment, first, at, edition, interrupted, zone = rows[0]

        def part(kind: type[PartOfABase], table: str, order: str) -> list[PartOfABase]:
            columns, source = ", ".join(kind._fields), f"from {table} where segment = {segment} order by {order}"
            return [kind(*row) for row in self._rows.many(columns, source)] if whole else []

        return Base(
            segment=segment,
            first=first,
            at=Instant(at),
            edition=edition,
            interrupted=interrupted,
            zone=zone,
            tasks=part(BaseTask, "base_tasks", "generation"),
            hosts=part(BaseHost, "base_hosts", "key"),
            strays=part(BaseStray, "base_strays", "name"),
            marks=part(BaseMark, "base_marks", "name"),
        )

    def _entries(self, first: int, last: int) -> Iterator[LogEntry]:
        names = ("seq", "host", "number", "nonce", "at", "kind", "entry", "refused")
        for row in self._rows.many(
            "seq, host, number, nonce, at, kind, entry, refused::text",
            f"from log where seq between {first} and {last} order by seq",
        ):
            try:
                yield entry_of(dict(zip(names, row, strict=True)))
            except (LookupError, TypeError, ValueError, AttributeError) as fault:
                reason = f"entry {row[0]} of the log is not what duly wrote: {fault!r}"
                raise TraceError("malformed", 1, reason, hint=HINT) from fault

    # --- statements --------------------------------------------------------------------------------------------------

    def _text(self, value: str) -> str:
        """A text as it stands in a statement; null, which equals nothing, for one that PostgreSQL cannot hold."""
        return "null" if unstorable(value) else self._connection.literal(value)


def _arrivals(hosts: Sequence[StoredHost]) -> list[Instant]:
    """When a host joined while no other was there, earliest first."""
    found: list[Instant] = []
    last_beat = Instant(-1)
    for host in sorted(hosts, key=lambda each: each.since):
        if host.since > last_beat:
            found.append(host.since)
        last_beat = max(last_beat, host.beat_at)
    return found


def _limit(limit: int | None) -> str:
    return "" if limit is None else f"limit {int(limit)}"


def _escaped(letter: re.Match[str]) -> str:
    return f"\\{letter[0]}"


def unstorable(text: str) -> bool:
    """Whether PostgreSQL cannot hold a text: it has a NUL or a lone surrogate."""
    return "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text)


_NOTHING: Final = "$a"
"""Matches no text: a letter after the end."""


def _expression(pattern: str) -> str:
    """A pattern of names, as SQLite's GLOB has it, as a regular expression of PostgreSQL."""
    parts = ["^"]
    place = 0
    while place < len(pattern):
        letter = pattern[place]
        place += 1
        if letter == "*":
            parts.append(".*")
        elif letter == "?":
            parts.append(".")
        elif letter == "[":
            negated = pattern.startswith("^", place)
            end = pattern.find("]", place + negated + 1)  # as the first letter of a set, ] is one of its letters
            if end < 0:
                return _NOTHING
            letters = _letters(pattern[place + negated : end])
            if not letters and not negated:
                return _NOTHING
            parts.append(f"[{'^' if negated else ''}{letters}]" if letters else ".")
            place = end + 1
        else:
            parts.append(_itself(letter))
    return "".join([*parts, "$"])


def _letters(inside: str) -> str:
    """The letters and ranges of a set; a range that goes backwards has no letters."""
    parts = []
    place = 0
    while place < len(inside):
        first, last = inside[place], inside[place + 2 : place + 3]
        if inside[place + 1 : place + 2] == "-" and last:
            parts.append(f"{_itself(first)}-{_itself(last)}" if first <= last else "")
            place += 3
        else:
            parts.append(_itself(first))
            place += 1
    return "".join(parts)


def _itself(letter: str) -> str:
    """A letter that means itself in a regular expression."""
    return letter if letter.isalnum() or not letter.isascii() else f"\\{letter}"


def _unused(url: StoreUrl, hint: str) -> StoreUnusedError:
    return StoreUnusedError(f"no host has used this store yet: {url.name}", store=url.name, hint=hint)


def _damaged(store: str, reason: str) -> StoreCorruptedError:
    return StoreCorruptedError(f"Store {store} is damaged: {reason}", store=store, hint="restore a backup")
