"""The functions of a shared store on PostgreSQL, as Python calls.

`SharedMemory` in duly.testing has their rules in readable form; a test compares the two, call by call.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from duly.core.moments import Instant, Minute
from duly.core.news import BEGINNING, Changes, Position
from duly.core.record import FIELDS, EqualRows
from duly.core.resolution import Mark
from duly.errors import ClusterZoneError
from duly.stores.postgres.connection import SNAPSHOT, Connection
from duly.stores.postgres.entries import array, corrected_of, entry_of, json_of, numbers, storable
from duly.stores.shared import (
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
    TraceLines,
    WriteAnswer,
)

WRITE_SECONDS_MAX: Final = 15.0
LOAD_SECONDS_MAX: Final = 120.0
"""Limits of a request, after which its connection is dropped (SPEC 9.20)."""

ARRIVALS_TOGETHER_MAX: Final = 20_000
"""Declarations that one message sends."""

_INSTANT: Final = "(extract(epoch from {}) * 1000000)::bigint"

_CLUSTER: Final = f"""
select json_build_object('seq', l.seq, 'nonce', l.nonce, 'clock', clock_1(), 'edition', c.edition,
  'generation', c.generation, 'digest', e.digest, 'alone_since', {_INSTANT.format("c.edition_alone_since")},
  'zone', c.zone, 'history', c.history, 'traced', c.traced)
from cluster c left join editions e on e.edition = c.edition
  left join (select seq, nonce from log order by seq desc limit 1) l on true
"""

_HOSTS: Final = f"""
select json_build_object('key', key, 'identifier', identifier, 'label', label, 'since', since,
  'lease', {_INSTANT.format("lease")}, 'edition', edition, 'beat', beat, 'renewed_at', {_INSTANT.format("renewed_at")},
  'seen', seen, 'gone', case gone when 'l' then 'left' when 'b' then 'buried' end)
from hosts order by key
"""

_OF_TASKS: Final = frozenset(FIELDS[:5])
_ALIKE: Final = ", ".join(f"{'t' if name in _OF_TASKS else 's'}.{name}" for name in FIELDS[2:])
# Tasks in one situation are one row: a million of them are then few, but for their names.
_RECORDS: Final = f"""
select json_agg(t.generation order by t.generation), json_agg(t.name order by t.generation), json_build_array({_ALIKE})
from tasks t left join states s on s.generation = t.generation
where t.retired_at is null group by {_ALIKE} order by min(t.generation)
"""

_BLOCKED: Final = "select generation, blocked_by from states where blocked_by is not null order by generation"
_MARKS: Final = "select name, served_through, retired_at from marks order by name"
_NEWS: Final = """
select json_build_object('seq', seq, 'host', host, 'number', number, 'nonce', nonce, 'at', at, 'kind', kind,
  'entry', entry, 'refused', refused::text)
from log where seq > {seen} order by seq limit {limit}
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

    def write(
        self, me: HostIdentity, number: int, seen: Position, changes: Changes, trace: TraceLines = ()
    ) -> WriteAnswer:
        """Record ends, and grant or refuse starts, by what the host had seen when it decided."""
        answer = self._call("write_1", *me, number, *seen, json_of(changes), _lines(trace))
        refused, fenced = numbers(answer["refused"]), numbers(answer["fenced"])
        return WriteAnswer(answer["seq"], refused, fenced, corrected_of(answer["corrected"]))

    def beat(self, me: HostIdentity, seen: Position) -> BeatAnswer:
        """Renew the lease."""
        answer = self._call("beat_1", *me, *seen)
        living = tuple(LivingHost(*each) for each in answer["living"])
        return BeatAnswer(Instant(answer["clock"]), answer["seq"], living)

    def bury(self, me: HostIdentity, who: int, beat: int | None, trace: TraceLines = ()) -> int | None:
        """Declare a host dead; None: it has beaten since `beat`, or is gone."""
        seq: int | None = self._call("bury_1", *me, who, beat, _lines(trace))["seq"]
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

    def replace(self, request: EditionRequest, trace: TraceLines = ()) -> EditionAnswer:
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
        }
        try:
            answer = self._call("replace_1", ask, _lines(trace), limit_seconds=LOAD_SECONDS_MAX)
        except ClusterZoneError as error:
            # The function knows the zone in force only.
            raise ClusterZoneError(error.details["store"], request.zone, error.details["zoneInForce"]) from error
        return EditionAnswer(EditionVerdict(answer.pop("verdict")), **answer)

    def leave(self, me: HostIdentity, trace: TraceLines = ()) -> int | None:
        """Leave after a stop."""
        seq: int | None = self._call("leave_1", *me, _lines(trace))["seq"]
        return seq

    def news(self, seen: Position, limit: int = NEWS_MAX) -> News:
        """What was written after a position, in order."""
        check = f"select check_position_1({seen.seq}, {self._connection.literal(seen.nonce)})"
        ((pruned,),), _, rows = self._connection.read(
            "select pruned from cluster",
            check,
            _NEWS.format(seen=seen.seq, limit=limit),
            limit_seconds=self._limit_seconds,
            begin=SNAPSHOT,
            within_schema=True,
        )
        if seen.seq < int(pruned or 0):
            return News((), behind=True)
        return News(tuple(entry_of(json.loads(entry or "")) for (entry,) in rows))

    def load(self) -> SharedContent:
        """All that a host needs to begin, from one snapshot."""
        ((cluster,),), hosts, records, blocked, marks = self._connection.read(
            _CLUSTER,
            _HOSTS,
            _RECORDS,
            _BLOCKED,
            _MARKS,
            limit_seconds=LOAD_SECONDS_MAX,
            begin=SNAPSHOT,
            within_schema=True,
        )
        known = json.loads(cluster or "")
        position = BEGINNING if known["seq"] is None else Position(known["seq"], _hex(known["nonce"]))
        return SharedContent(
            position=position,
            clock=known["clock"],
            in_force=InForce(known["edition"], known["generation"]),
            digest=known["digest"],
            alone_since=known["alone_since"],
            zone=known["zone"],
            history=known["history"],
            traced=known["traced"],
            hosts=tuple(_host(json.loads(each or "")) for (each,) in hosts),
            records=[EqualRows(*(json.loads(each or "") for each in row)) for row in records],
            blocked={int(generation or 0): int(run or 0) for generation, run in blocked},
            marks={
                name or "": Mark(Minute(int(served or 0)), Instant(int(retired or 0)))
                for name, served, retired in marks
            },
        )

    def _call(self, function: str, *arguments: Any, limit_seconds: float | None = None) -> Any:
        limit = self._limit_seconds if limit_seconds is None else limit_seconds
        return self._connection.call(function, *arguments, limit_seconds=limit)


def _lines(trace: TraceLines) -> list[list[str | None]]:
    return [[None if run is None else str(run), line] for run, line in trace]


def _host(row: dict[str, Any]) -> HostRecord:
    return HostRecord(**{**row, "identifier": _hex(row["identifier"])})


def _hex(uuid: str) -> str:
    """An identifier as `uuid4().hex` writes it."""
    return uuid.replace("-", "")
