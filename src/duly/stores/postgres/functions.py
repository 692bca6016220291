"""The functions of a shared store on PostgreSQL, as Python calls.

`SharedMemory` in duly.testing has their rules in readable form; a test compares the two, call by call.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from duly.core.moments import Instant, Minute
from duly.core.news import BEGINNING, Changes, Note, Position
from duly.core.record import FIELDS, EqualRows
from duly.core.request import storable
from duly.core.resolution import Mark
from duly.errors import ClusterZoneError
from duly.stores.postgres.connection import SNAPSHOT, Connection
from duly.stores.postgres.entries import array, corrected_of, entry_of, json_of, news_of, numbers, said_form, spans_form
from duly.stores.postgres.faults import emptied
from duly.stores.shared import (
    NEWS_BYTES_MAX,
    NEWS_MAX,
    Arrival,
    BeatAnswer,
    EditionAnswer,
    EditionRequest,
    EditionVerdict,
    HostIdentity,
    HostRecord,
    InForce,
    LivingHost,
    News,
    SharedContent,
    WriteAnswer,
)
from duly.stores.shared_trace import (
    Base,
    BaseHost,
    BaseMark,
    BaseStray,
    BaseTask,
    NamedDeclaration,
    TracePart,
    TraceStart,
)

WRITE_SECONDS_MAX: Final = 15.0
LOAD_SECONDS_MAX: Final = 120.0
"""Limits of a request, after which its connection is dropped (SPEC 9.20)."""

ARRIVALS_TOGETHER_MAX: Final = 20_000
"""Declarations that one message sends."""

_INSTANT: Final = "(extract(epoch from {}) * 1000000)::bigint"

_CLUSTER: Final = f"""
select json_build_object('seq', l.seq, 'nonce', l.nonce, 'edition', c.edition, 'generation', c.generation,
  'digest', e.digest, 'alone_since', {_INSTANT.format("c.edition_alone_since")},
  'interrupted', c.interrupted, 'zone', c.zone, 'history', c.history, 'traced', c.traced)
from cluster c left join editions e on e.edition = c.edition
  left join (select seq, nonce from log order by seq desc limit 1) l on true
"""

_HOSTS: Final = f"""
select json_build_object('key', key, 'identifier', identifier, 'label', label, 'since', since,
  'lease', {_INSTANT.format("lease")}, 'edition', edition, 'declaration', declaration, 'beat', beat,
  'renewed_at', {_INSTANT.format("renewed_at")}, 'seen', seen,
  'gone', case gone when 'l' then 'left' when 'b' then 'buried' end)
from hosts order by key
"""

_OF_TASKS: Final = frozenset(FIELDS[:5])
_ALIKE: Final = ", ".join(f"{'t' if name in _OF_TASKS else 's'}.{name}" for name in FIELDS[2:])
_COLUMNS: Final = ", ".join(FIELDS[2:])
# Tasks in one situation are one row: a million of them are then few, but for their names. They are collected by hash,
# in the order of the key: to sort rows by all that they may differ in takes six times as long.
_BY_HASH: Final = "set local enable_sort = off"
_RECORDS: Final = f"""
select json_agg(generation), json_agg(name), json_build_array({_COLUMNS})
from (select t.generation, t.name, {_ALIKE} from tasks t left join states s on s.generation = t.generation
  where t.retired_at is null order by t.generation) as in_force
group by {_COLUMNS} order by min(generation)
"""

_BLOCKED: Final = "select generation, blocked_by from states where blocked_by is not null order by generation"
_IN_THREADS: Final = "select array_agg(generation) from tasks where thread and retired_at is null"
_MARKS: Final = "select name, served_through, retired_at from marks order by name"
_ENTRY: Final = """json_build_object('seq', seq, 'host', host, 'number', number, 'nonce', nonce, 'at', at,
  'kind', kind, 'entry', entry, 'refused', refused::text)"""
_NEWS: Final = f"""
select {_ENTRY}
from (select *, sum(pg_column_size(entry)) over (order by seq) - pg_column_size(entry) as bytes_before
  from log where seq > {{seen}} order by seq limit {{limit}}) later
where bytes_before < {{bytes}} order by seq
"""

TASKS_OF_A_BASE_TOGETHER: Final = 20_000
"""Tasks of a base that one message reads; a base does not change, so it need not be read at one moment."""

_BASE: Final = """
select json_build_array(segment, first, at, edition, interrupted, zone, generation) from bases
where (select traced from cluster) order by segment desc limit 1
"""
_PART_OF_A_BASE: Final = """
select json_build_array({columns}) from base_{table} where segment = (select max(segment) from bases) order by {order}
"""
_BASE_HOSTS: Final = _PART_OF_A_BASE.format(columns=", ".join(BaseHost._fields), table="hosts", order="key")
_BASE_STRAYS: Final = _PART_OF_A_BASE.format(columns=", ".join(BaseStray._fields), table="strays", order="name")
_BASE_MARKS: Final = _PART_OF_A_BASE.format(columns=", ".join(BaseMark._fields), table="marks", order="name")
_BASE_TASKS: Final = f"""
select json_build_array({", ".join(BaseTask._fields)}) from base_tasks
where segment = {{segment}} and generation > {{after}} order by generation limit {{limit}}
"""
_TRACE: Final = """
select json_build_object('first', (select min(first) from bases), 'segment', (select max(segment) from bases),
  'begins', exists (select from bases where first = {seen} + 1), 'nonce', (select nonce from log where seq = {seen}))
"""
_IN_TRACE: Final = "seq > {seen} and seq <= coalesce((select trace_last from cluster), 9223372036854775807)"
_ENTRIES: Final = f"select {_ENTRY} from log where {_IN_TRACE} order by seq limit {{limit}}"
_DECLARING: Final = f"""
select json_build_array(key, replace(identifier::text, '-', '')) from hosts where key in (
  select host from (select host, kind from log where {_IN_TRACE} order by seq limit {{limit}}) part
  where kind in ('joined', 'replaced')) order by key
"""
_DECLARATIONS: Final = """
select json_build_array(generation, name, cron, delay_ms) from tasks where generation > {generation} order by generation
"""


class PostgresFunctions:
    """`SharedFunctions` on one connection, for one thread at a time.

    `limit_seconds` bounds each request but `load` and `arrive`, which may have a million tasks to move.
    """

    def __init__(self, connection: Connection, *, limit_seconds: float = WRITE_SECONDS_MAX) -> None:
        self._connection = connection
        self._limit_seconds = limit_seconds

    def __repr__(self) -> str:
        return f"<PostgresFunctions on {self._connection!r}>"

    def write(self, me: HostIdentity, number: int, seen: Position, changes: Changes) -> WriteAnswer:
        """Record ends, and grant or refuse starts, by what the host had seen when it decided."""
        answer = self._call("write_1", *me, number, *seen, json_of(changes))
        refused, fenced = numbers(answer["refused"]), numbers(answer["fenced"])
        corrected, nonce = corrected_of(answer["corrected"]), _hex(answer["nonce"])
        return WriteAnswer(answer["seq"], refused, fenced, corrected, nonce)

    def beat(self, me: HostIdentity, seen: Position, held: int = 0, fault: str | None = None) -> BeatAnswer:
        """Renew the lease; `held`: microseconds without a trusted one; `fault`: why this host cannot write."""
        answer = self._call("beat_1", *me, *seen, held, fault)
        living = tuple(LivingHost(*each) for each in answer["living"])
        return BeatAnswer(Instant(answer["clock"]), answer["seq"], living)

    def bury(self, me: HostIdentity, who: int, beat: int | None) -> int | None:
        """Declare a host dead; None: it has beaten since `beat`, or is gone."""
        seq: int | None = self._call("bury_1", *me, who, beat)["seq"]
        return seq

    def arrive(self, identifier: str, arrivals: Sequence[Arrival]) -> None:
        """Send the new declarations of the next `replace`; what was sent before is forgotten.

        Chunk by chunk, each in a message of its own: nothing is locked meanwhile, and each has its limit.
        """
        host = self._connection.literal(identifier)
        forget = f"delete from arriving where host = {host}"
        self._connection.read(forget, limit_seconds=LOAD_SECONDS_MAX, within_schema=True)
        for first in range(0, len(arrivals), ARRIVALS_TOGETHER_MAX):
            chunk = self._connection.literal(arrivals[first : first + ARRIVALS_TOGETHER_MAX])
            self._connection.read(
                f"insert into arriving select {host}, moment_1(clock_1()), {first} + n, each ->> 0, each ->> 1, "
                f"(each ->> 2)::bigint from jsonb_array_elements({chunk}) with ordinality as a(each, n)",
                limit_seconds=LOAD_SECONDS_MAX,
                within_schema=True,
            )

    def replace(self, request: EditionRequest) -> EditionAnswer:
        """Join, or declare another set."""
        ask = {
            "identifier": request.identifier,
            "key": request.key,
            "number": request.number,
            "seen": request.seen.seq,
            "nonce": request.seen.nonce,
            "act": request.act.value,
            "label": None if request.label is None else storable(request.label),
            "lease": request.lease,
            "digest": request.digest,
            "edition": request.compared_with.edition,
            "generation": request.compared_with.generation,
            "shares_names": request.shares_names,
            "removed": array(request.removed),
            "arrivals": request.arrivals,
            "arrivals_digest": request.arrivals_digest,
            "zone": request.zone,
            "zone_seen": request.zone_seen,
            "history": request.history,
            "traced": request.traced,
            "correct": request.correct,
            "said": said_form(request.said),
            "to_threads": spans_form(request.moved.to_threads),
            "to_loop": spans_form(request.moved.to_loop),
        }
        try:
            answer = self._call("replace_1", ask, limit_seconds=LOAD_SECONDS_MAX)
        except ClusterZoneError as error:
            # The function knows the zone in force only.
            raise ClusterZoneError(error.details["store"], request.zone, error.details["zoneInForce"]) from error
        return EditionAnswer(EditionVerdict(answer.pop("verdict")), **answer)

    def leave(self, me: HostIdentity, notes: Sequence[Note] = ()) -> int | None:
        """Leave after a stop."""
        seq: int | None = self._call("leave_1", *me, list(notes))["seq"]
        return seq

    def news(self, seen: Position, limit: int = NEWS_MAX) -> News:
        """The entries after a position, in order."""
        check = f"select check_position_1({seen.seq}, {self._connection.literal(seen.nonce)})"
        cluster, _, rows = self._connection.read(
            "select pruned from cluster order by pruned desc limit 1",  # as cluster_1 finds it
            check,
            _NEWS.format(seen=seen.seq, limit=limit, bytes=NEWS_BYTES_MAX),
            limit_seconds=self._limit_seconds,
            begin=SNAPSHOT,
            within_schema=True,
        )
        if not cluster:
            raise emptied(self._connection.name, "cluster")
        if seen.seq < int(cluster[0][0] or 0):
            return News((), behind=True)
        return News(tuple(news_of(json.loads(entry or "")) for (entry,) in rows))

    def load(self) -> SharedContent:
        """All that a host needs to begin, from one snapshot."""
        cluster, hosts, _, records, blocked, marks, ((in_threads,),), ((clock,),) = self._connection.read(
            _CLUSTER,
            _HOSTS,
            _BY_HASH,
            _RECORDS,
            _BLOCKED,
            _MARKS,
            _IN_THREADS,
            "select clock_1()",  # last: a million tasks take seconds, and the host's clock would lag behind by them
            limit_seconds=LOAD_SECONDS_MAX,
            begin=SNAPSHOT,
            within_schema=True,
        )
        if not cluster:
            raise emptied(self._connection.name, "cluster")
        known = json.loads(cluster[0][0] or "")
        position = BEGINNING if known["seq"] is None else Position(known["seq"], _hex(known["nonce"]))
        return SharedContent(
            position=position,
            clock=Instant(int(clock or 0)),
            in_force=InForce(known["edition"], known["generation"]),
            digest=known["digest"],
            alone_since=known["alone_since"],
            interrupted=known["interrupted"],
            zone=known["zone"],
            history=known["history"],
            traced=known["traced"],
            hosts=tuple(_host(json.loads(each or "")) for (each,) in hosts),
            records=[_equal_rows(*(json.loads(each or "") for each in row)) for row in records],
            blocked={int(generation or 0): int(run or 0) for generation, run in blocked},
            marks={
                name or "": Mark(Minute(int(served or 0)), Instant(int(retired or 0)))
                for name, served, retired in marks
            },
            in_threads=frozenset(numbers(in_threads)),
        )

    def trace_start(self) -> TraceStart | None:
        """The newest base of the trace; None: no trace is kept."""
        while True:
            found, hosts, strays, marks = self._read_json(_BASE, _BASE_HOSTS, _BASE_STRAYS, _BASE_MARKS)
            if not found:
                return None
            segment, first, at, edition, interrupted, zone, generation = found[0]
            tasks = self._tasks_of_a_base(segment)
            if tasks is None:
                continue  # the trace has gone on so far meanwhile that the base is forgotten
            base = Base(
                segment=segment,
                first=first,
                at=Instant(at),
                edition=edition,
                interrupted=interrupted,
                zone=zone,
                tasks=tasks,
                hosts=[BaseHost(*row) for row in hosts],
                strays=[BaseStray(*row) for row in strays],
                marks=[BaseMark(*row) for row in marks],
            )
            return TraceStart(base, generation)

    def _tasks_of_a_base(self, segment: int) -> list[BaseTask] | None:
        """All of them, some thousands at a time; None if the base is there no more."""
        tasks: list[BaseTask] = []
        while True:
            after = tasks[-1].generation if tasks else 0
            rows, is_there = self._read_json(
                _BASE_TASKS.format(segment=segment, after=after, limit=TASKS_OF_A_BASE_TOGETHER),
                f"select to_json(segment) from bases where segment = {segment}",
            )
            if not is_there:
                return None
            tasks += [BaseTask(*row) for row in rows]
            if len(rows) < TASKS_OF_A_BASE_TOGETHER:
                return tasks

    def trace_after(self, seen: Position, generation: int, limit: int) -> TracePart | None:
        """The entries of the trace after a position; None: they do not continue what was read."""
        (known,), entries, declaring, declarations = self._read_json(
            _TRACE.format(seen=seen.seq),
            _ENTRIES.format(seen=seen.seq, limit=limit),
            _DECLARING.format(seen=seen.seq, limit=limit),
            _DECLARATIONS.format(generation=generation),
        )
        first = known["first"]
        if seen.nonce is None:
            continues = known["begins"]
        else:
            continues = _hex(known["nonce"] or "") == seen.nonce and first is not None and seen.seq + 1 >= first
        if not continues:
            return None
        return TracePart(
            entries=tuple(entry_of(entry) for entry in entries),
            identifiers=dict(declaring),
            declarations={number: NamedDeclaration(*declared) for number, *declared in declarations},
            segment=known["segment"],
        )

    def _read_json(self, *statements: str) -> list[list[Any]]:
        """The answers to statements at one moment, each row of which is one JSON value."""
        answers = self._connection.read(
            *statements, limit_seconds=LOAD_SECONDS_MAX, begin=SNAPSHOT, within_schema=True, operation="trace"
        )
        return [[json.loads(value or "null") for (value,) in rows] for rows in answers]

    def close(self) -> None:
        """Release the connection; the next call makes another."""
        self._connection.close()

    def _call(self, function: str, *arguments: Any, limit_seconds: float | None = None) -> Any:
        limit = self._limit_seconds if limit_seconds is None else limit_seconds
        return self._connection.call(function, *arguments, limit_seconds=limit)


def _equal_rows(generations: list[int], names: list[str], values: list[Any]) -> EqualRows:
    """Rows that are alike, in the order of generations, which aggregates of PostgreSQL keep but do not promise."""
    if generations != sorted(generations):
        ordered = sorted(zip(generations, names, strict=True))
        generations, names = [each for each, _ in ordered], [each for _, each in ordered]
    return EqualRows(generations, names, values)


def _host(row: dict[str, Any]) -> HostRecord:
    return HostRecord(**{**row, "identifier": _hex(row["identifier"])})


def _hex(uuid: str) -> str:
    """An identifier as `uuid4().hex` writes it."""
    return uuid.replace("-", "")
