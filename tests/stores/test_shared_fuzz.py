"""Seeded sequences of all functions of a shared store on the pure object and on PostgreSQL, which must not differ.

After each call the answers, or the errors, are compared, and all tables; at the end the traces, line by line.
"""

import contextlib
import dataclasses
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duly.core.moments import Instant, Minute
from duly.core.news import Changes, Moved, Position, Replaced, spans_of
from duly.core.record import EqualRows
from duly.core.task import Cause, Obligation
from duly.errors import StoreError
from duly.formal import check
from duly.stores.postgres.script import installation
from duly.stores.shared import Act, EditionAnswer, HostIdentity, InForce, News, WriteAnswer
from tests.counts import share
from tests.postgres_server import bundled_binaries, debian_binaries, newest_binaries, oldest_binaries, server_of
from tests.stores.shared_hosts import HOUR, LEASE, MINUTE, TaskSet, TestHost, generations
from tests.stores.shared_stores import MemoryStoreUnderTest, PostgresStoreUnderTest

SEQUENCES = list(share(range(2_000), quick=200))
PARTS = 10
CALLS = 25

SETS: list[TaskSet] = [
    {"a": ("* * * * *", 1_000), "b": ("*/5 * * * *".replace("*/5", "0,30"), 0), "c": ("0 3 * * *", 60_000)},
    {"a": ("* * * * *", 1_000), "b": ("15 * * * *", 0), "d": ("0 4 * * *", 5_000)},
    {"a": ("1 * * * *", 1_000), "c": ("0 3 * * *", 60_000)},
    {"a": ("* * * * *", 1_000)},
    {"x": ("* * * * *", 1_000), 'y\'s \\ "name"\n€': ("0 0 1 1 *", 7)},
    {},
]


MODES = ("restart", "restart", "restart", "wait")


class Pair:
    """Both stores as one: each call goes to PostgreSQL first, whose nonce the other one then takes."""

    def __init__(self, postgres: PostgresStoreUnderTest) -> None:
        self.postgres = postgres
        self.memory = MemoryStoreUnderTest()
        self.seen: set[str] = set()
        """The effects of calls, in words."""
        postgres.empty()

    @property
    def now(self) -> Instant:
        return self.memory.now

    @now.setter
    def now(self, instant: Instant) -> None:
        self.memory.now = instant
        self.postgres.now = instant

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        return self.memory.tables()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def both(*arguments: Any, **keywords: Any) -> Any:
            theirs = _answer(getattr(self.postgres, name), arguments, keywords)
            tables = self.postgres.tables()
            self.memory.next_nonce = tables["log"][-1]["nonce"] if tables["log"] else None
            ours = _answer(getattr(self.memory, name), arguments, keywords)
            assert theirs == ours, name
            expected = self.memory.tables()
            for table, rows in expected.items():
                assert tables[table] == rows, (name, table)
            self.seen |= set(_described(ours))
            if isinstance(ours, tuple) and ours[0] == "error":
                raise Refused(ours)
            return ours

        return both


class Refused(Exception):  # noqa: N818  # what both stores answered alike
    """Both stores raised the same error."""


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    try:
        answer = function(*arguments, **keywords)
    except StoreError as error:
        details = {name: value for name, value in error.details.items() if name not in ("store", "hint", "cause")}
        return "error", type(error).__name__, details
    return _loaded_by_row(answer) if function.__name__ == "load" else answer


def _described(answer: Any) -> Iterator[str]:
    match answer:
        case ("error", kind, details):
            yield f"{kind} {details['how']}" if "how" in details else kind
        case EditionAnswer(verdict=verdict):
            yield verdict.value
        case WriteAnswer(refused=refused, fenced=fenced, corrected=corrected):
            yield from (
                word for word, met in (("refused", refused), ("fenced", fenced), ("corrected", corrected)) if met
            )
        case News(entries=entries, behind=behind):
            yield from ["behind"] if behind else []
            for entry in entries:
                if isinstance(entry.content, Replaced):
                    yield from ["blocked"] if entry.content.blocked else []
                    yield from ["reinstated"] if entry.content.reinstated else []
                    yield from ["renumbered"] if entry.content.renumbered else []
        case _:
            pass


def _loaded_by_row(loaded: Any) -> Any:
    """The loaded content, with its records row by row: PostgreSQL groups them."""
    rows = sorted((tuple(row) for block in loaded.records for row in block.rows()), key=lambda row: row[0])
    return dataclasses.replace(loaded, records=[EqualRows.single(row) for row in rows])


class Player:
    """Draws calls that hosts might make: sensible ones mostly, late, repeated and wrong ones too."""

    def __init__(self, seed: int, store: Any) -> None:
        self.chance = random.Random(seed)
        self.store = store
        self.hosts: list[TestHost] = []
        self.identifiers = 0

    def play(self) -> None:
        moves: list[tuple[int, Callable[[], object]]] = [
            (6, self.pass_time),
            (5, self.join),
            (12, self.start),
            (10, self.end),
            (4, self.beat),
            (3, self.bury),
            (2, self.leave),
            (3, self.redeclare),
            (2, self.reinstate),
            (2, self.roll_back),
            (5, self.repeat),
            (3, self.read),
            (1, self.prune),
            (1, self.rotate),
            (2, self.stranger),
            (1, self.correct),
        ]
        for _ in range(CALLS):
            (move,) = self.chance.choices([each for _, each in moves], [weight for weight, _ in moves])
            with contextlib.suppress(Refused):
                (move if self.hosts else self.join)()

    def host(self) -> TestHost:
        living = [each for each in self.hosts if each.key and self.store.memory.hosts[each.key].gone is None]
        pool = living if living and self.chance.random() < 0.9 else self.hosts
        return self.chance.choice(pool or self.hosts)

    def pass_time(self) -> None:
        step = self.chance.choice([1, 1_000_000, 20_000_000, MINUTE, 7 * MINUTE, HOUR, 25 * HOUR, -MINUTE, -5 * HOUR])
        self.store.now = Instant(self.store.now + step)

    def join(self) -> None:
        self.identifiers += 1
        host = TestHost(self.store, f"{self.identifiers:032x}")
        self.declare(host, self.chance.choice([Act.JOIN, Act.JOIN, Act.REJOIN]))
        if host.key is not None:
            self.hosts.append(host)

    def declare(self, host: TestHost, act: Act, tasks: TaskSet | None = None) -> None:
        if tasks is None:
            tasks, host.interrupted = self.chance.choice(SETS), self.chance.choice(MODES)
        changes: dict[str, Any] = {"history": self.chance.choice([0, 3, 100_000]), "lease": LEASE}
        changes["correct"] = self.chance.random() < 0.3
        changes["traced"] = self.chance.random() < 0.8
        if self.chance.random() < 0.2:
            known = sorted(generations(self.store).values())
            some = self.chance.sample(known, len(known) // 2)
            changes["moved"] = Moved(spans_of(some), spans_of({*known, 77} - {*some}))
        match self.chance.randrange(16):
            case 0:
                changes["compared_with"] = InForce(self.chance.randrange(3), self.chance.randrange(5))
            case 1:
                changes["arrivals_digest"] = "another"
            case 2:
                changes["zone"] = self.chance.choice(["Europe/Berlin", "UTC"])
            case 3:
                changes["seen"] = Position(self.chance.randrange(9), "f" * 32)
            case _:
                pass
        request, arrivals = host.request(tasks, act, **changes)
        self.store.arrive(host.identifier, arrivals)
        host.send(request)

    def redeclare(self) -> None:
        self.declare(self.host(), Act.REDECLARE)

    def reinstate(self) -> None:
        host = self.host()
        self.declare(host, Act.REINSTATE, host.tasks)

    def roll_back(self) -> None:
        """A newer set comes and goes, and an older one is put in force again."""
        old, new = self.host(), self.host()
        self.declare(new, Act.REDECLARE)
        self.pass_time()
        new.leave()
        self.pass_time()
        self.declare(old, Act.REINSTATE, old.tasks)

    def start(self) -> None:
        host = self.host()
        known = [*sorted(generations(self.store).values()), 99]
        some = tuple(self.chance.sample(known, self.chance.randint(1, min(3, len(known)))))
        changes: dict[str, Any] = {}
        if self.chance.random() < 0.15:
            changes["at"] = Instant(self.store.now + self.chance.choice([1, -HOUR]))
        if self.chance.random() < 0.2:
            changes["served_through"] = Minute((self.store.now + 4 * HOUR) // MINUTE * 60)
        if self.chance.random() < 0.3:
            now = self.store.now
            changes |= {
                "cause": self.chance.choice([Cause.RETRY, Cause.INTERRUPTED]),
                "obligation": Obligation(Instant(now - MINUTE), Instant(now - MINUTE), 2),
                "interruptions": 1,
            }
        host.start(*some, read=self.chance.random() < 0.8, **changes)

    def end(self) -> None:
        host = self.host()
        running = [(each.generation, each.run) for each in self.store.memory.states.values() if each.run is not None]
        running += [(each.generation, each.run) for each in self.store.memory.strays.values()]
        running += [(1, 1_000_000_000_077)] if self.chance.random() < 0.2 else []
        if not running:
            return
        some = self.chance.sample(running, self.chance.randint(1, min(3, len(running))))
        if self.chance.random() < 0.3:
            generation, run = some[0]
            cause = self.chance.choice([Cause.CRON, Cause.RETRY])
            host.end(generation, run, "it's \\ broken", cause=cause, called_at=None)
        else:
            gens, runs = zip(*some, strict=True)
            ends = host.ended(gens, runs)
            starts = (host.starts(*generations(self.store).values()),) if self.chance.random() < 0.2 else ()
            notes = (("WK", self.store.now, 7), ("IS", self.store.now, 3))[: self.chance.randrange(3)]
            host.write(Changes((ends,), starts, self.chance.random() < 0.1, notes, self.chance.randrange(4)))

    def beat(self) -> None:
        host = self.host()
        if self.chance.random() < 0.1:
            host.store.beat(host.me, Position(host.seen.seq + self.chance.randint(0, 2), "e" * 32))
        else:
            fault = self.chance.choice([None, None, "permission denied for 'runs' \\ "])
            host.beat(self.chance.choice([0, 0, MINUTE, HOUR]), fault)

    def bury(self) -> None:
        host, other = self.host(), self.host()
        host.bury(other, None if self.chance.random() < 0.8 else 999)

    def leave(self) -> None:
        host = self.host()
        host.calls[:] = [host.leave]
        host.leave()

    def repeat(self) -> None:
        host = self.host()
        if host.calls:
            host.again()

    def read(self) -> None:
        host = self.host()
        self.store.news(host.seen, 1)
        host.read()

    def prune(self) -> None:
        kept, rows_max = self.chance.choice([0, 5, 100]), self.chance.choice([2, 5_000])
        self.store.prune(kept, self.chance.choice([0, HOUR]), rows_max, sweeps=self.chance.random() < 0.5)

    def rotate(self) -> None:
        self.store.rotate_trace(self.chance.choice([5, 20]))

    def stranger(self) -> None:
        self.store.write(HostIdentity(self.chance.choice([1, 77]), "d" * 32), 1, Position(0, None), Changes())

    def correct(self) -> None:
        self.host().write(Changes(correct=True))


EVERYTHING = {
    *("joined", "applied", "outdated", "again", "reinstated", "renumbered", "blocked", "behind"),
    *("refused", "fenced", "corrected", "StoreRewoundError", "ForeignSetError", "ClusterZoneError"),
    *("HostGoneError was buried", "HostGoneError has left", "traced", "followed"),
}
"""The effects that a few hundred sequences must have, or they test too little."""

GUARDS = {
    "the premise": "and s.changed <= seen_",
    "blocking": "and s.blocked_by is null",
    "vacancy": "and (s.run is null or not is_living_1(s.run / 1000000000000))",
    "the named run": "and s.run = e.run",
    "the stamp": "(block ->> 'at')::bigint <= now_",
    "the named beat": "and (beat = beat_ or key = me_key)",
    "the fence": "  perform check_host_1(me_key, me_identifier);\n",
    "the position": "  perform check_position_1(seen_, nonce_);\n",
    "numbers": "where host = me_key and number = number_",
    "the identifier": "h.identifier is distinct from me_identifier",
    "strays of the gone": "  delete from strays where host = who;\n",
    "strays by name": "left join strays y on y.name = a.name",
    "marks by name": "greatest(fresh, m.served_through)",
    "the wait of a reinstatement": "then least(now_, (extract(epoch from c.edition_alone_since) * 1000000)::bigint) ",
    "the highest edition": "edition_ > coalesce(highest, 0)",
    "hosts of the same set": "theirs.digest = mine.digest",
    "what was decided by another option": "      update states set changed = seq_ where run is not null and not "
    "is_living_1(run / 1000000000000);\n",
    "the set compared with": "(c.edition, c.generation) <> ((ask ->> 'edition')::bigint, "
    "(ask ->> 'generation')::bigint)",
}
WITHOUT = {
    "the stamp": "true",
    "numbers": "where false",
    "the identifier": "h.key is null",
    "strays by name": "left join strays y on false",
    "marks by name": "fresh",
    "the wait of a reinstatement": "then now_ ",
    "the highest edition": "true",
    "hosts of the same set": "false",
    "what was decided by another option": "      null;\n",
    "the set compared with": "false",
}
"""The text in the place of a guard that is taken out; nothing for the others."""


@pytest.fixture(scope="module")
def bundled() -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server_of(bundled_binaries()))
    yield store
    store.connection.close()


def play(seed: int, postgres: PostgresStoreUnderTest) -> set[str]:
    pair = Pair(postgres)
    try:
        Player(seed, pair).play()
        lines = list(pair.postgres.trace_lines())
        assert lines == list(pair.memory.trace_lines())
        if lines:
            pair.seen.add("traced")
            check(io.BytesIO(b"".join(lines)))  # it can be read, whatever these hosts did
            follow(pair, random.Random(seed))
    except BaseException as error:
        error.add_note(f"in sequence {seed}")
        raise
    return pair.seen


def follow(pair: Pair, chance: random.Random) -> None:
    """Read the trace as one that follows it: from its newest base, from any entry, and from an entry that is none."""
    start = pair.trace_start()
    positions = [Position(entry["seq"], entry["nonce"]) for entry in pair.tables()["log"]]
    if start is not None:
        pair.seen.add("followed")
        positions.append(start.position)
    for seen in (*chance.sample(positions, min(3, len(positions))), Position(2, "e" * 32), Position(999, None)):
        pair.trace_after(seen, chance.choice((0, 3)), chance.choice((0, 2, 200)))


@pytest.mark.parametrize("part", range(PARTS))
def test_the_pure_object_and_postgresql_answer_alike(bundled: PostgresStoreUnderTest, part: int) -> None:
    """SPEC 9.9, 9.10, 9.13 to 9.17, 9.21: one meaning of every function, whatever the order of calls."""
    for seed in SEQUENCES[part::PARTS]:
        play(seed, bundled)


@pytest.mark.slow
@pytest.mark.parametrize("binaries", [debian_binaries, oldest_binaries, newest_binaries], ids=["debian", "13", "18"])
def test_another_version_of_postgresql_answers_alike(binaries: Callable[[], Path]) -> None:
    """That of the distribution, the oldest and the newest that are supported; a tenth of the sequences each."""
    store = PostgresStoreUnderTest(server_of(binaries()))
    for seed in SEQUENCES[::10]:
        play(seed, store)
    store.connection.close()


@pytest.mark.slow
def test_the_sequences_lead_everywhere() -> None:
    store = PostgresStoreUnderTest(server_of(bundled_binaries()))
    seen: set[str] = set()
    for seed in range(200):
        seen |= play(seed, store)
        if seen >= EVERYTHING:
            break
    store.connection.close()
    assert seen >= EVERYTHING


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_is_taken_out_is_noticed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: without any one of its guards, PostgreSQL answers otherwise."""
    whole = installation

    def without(schema: str) -> str:
        text = whole(schema)
        assert GUARDS[guard] in text
        return text.replace(GUARDS[guard], WITHOUT.get(guard, ""))

    monkeypatch.setattr("duly.stores.postgres.install.installation", without)
    store = PostgresStoreUnderTest(server_of(bundled_binaries()))
    noticed = any(_differs(seed, store) for seed in range(300))
    store.connection.close()
    assert noticed


def _differs(seed: int, store: PostgresStoreUnderTest) -> bool:
    try:
        play(seed, store)
    except (AssertionError, StoreError):
        return True
    return False
