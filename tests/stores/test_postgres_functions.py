"""Calls of a shared store on PostgreSQL: what is sent in chunks, what is forgotten, and what a call answers."""

from collections.abc import Iterator

import psycopg
import pytest

from duly.core.moments import Delay, Instant, Minute
from duly.core.news import BEGINNING, Changes
from duly.core.resolution import Mark
from duly.errors import ClusterZoneError, StoreError
from duly.stores.postgres import functions as module
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.shared import Arrival, EditionVerdict
from tests.postgres_server import PostgresServer, bundled_binaries, server_of
from tests.stores.shared_hosts import NOON, TaskSet, TestHost
from tests.stores.shared_stores import PostgresStoreUnderTest

TASKS: TaskSet = {f"task {n}": (f"{n} 3 * * *", n) for n in range(5)}


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture
def store(server: PostgresServer) -> Iterator[PostgresStoreUnderTest]:
    made = PostgresStoreUnderTest(server)
    yield made
    made.connection.close()


def joined(store: PostgresStoreUnderTest, letter: str, **changes: object) -> TestHost:
    host = TestHost(store, letter * 32)
    host.join(TASKS, **changes)
    return host


@pytest.mark.parametrize("together", [1, 2, 4, 5, 6])
def test_declarations_are_sent_in_chunks_and_keep_their_order(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """SPEC 9.13: the digest of all of them is compared when they are put in force."""
    monkeypatch.setattr(module, "ARRIVALS_TOGETHER_MAX", together)
    assert TestHost(store, "a" * 32).declare(TASKS).verdict is EditionVerdict.APPLIED
    found = {name: generation for block in store.load().records for generation, name, *_ in block.rows()}
    assert found == {f"task {n}": n + 1 for n in range(5)}


def test_what_was_sent_before_is_forgotten(store: PostgresStoreUnderTest) -> None:
    """A host whose comparison was out of date sends anew; another host's are its own."""
    for letter, names in (("a", "xyz"), ("b", "uv"), ("a", "w")):
        store.arrive(letter * 32, [Arrival(name, "* * * * *", Delay(7)) for name in names])
    found = [(each["host"][:1], each["place"], each["name"]) for each in store.tables()["arriving"]]
    assert found == [("a", 1, "w"), ("b", 1, "u"), ("b", 2, "v")]
    store.arrive("b" * 32, [])
    assert [each["name"] for each in store.tables()["arriving"]] == ["w"]


def test_a_host_in_another_zone_is_told_both(store: PostgresStoreUnderTest) -> None:
    """SPEC 9.12: the function of the database knows the zone in force alone."""
    joined(store, "a")
    with pytest.raises(ClusterZoneError) as refused:
        joined(store, "b", zone="Asia/Tokyo")
    assert (refused.value.details["zone"], refused.value.details["zoneInForce"]) == ("Asia/Tokyo", "UTC")


def test_labels_are_kept_and_none_is_none(store: PostgresStoreUnderTest) -> None:
    joined(store, "a", label="pod 7")
    joined(store, "b", label=None)
    joined(store, "c", label="lone \udcff surrogate")
    content = store.load()
    assert [each.label for each in content.hosts] == ["pod 7", None, "lone \\udcff surrogate"]
    assert [each.identifier for each in content.hosts] == ["a" * 32, "b" * 32, "c" * 32]


def test_the_position_of_a_store_that_nobody_has_written_to_is_the_beginning(store: PostgresStoreUnderTest) -> None:
    content = store.load()
    assert (content.position, content.clock, content.records, content.digest) == (BEGINNING, NOON, [], None)
    host = joined(store, "a")
    answer = store.write(host.me, 7, BEGINNING, Changes())
    assert store.load().position == answer.position
    assert store.news(BEGINNING).entries[-1].position == answer.position


def test_a_host_that_has_read_all_that_was_pruned_goes_on(store: PostgresStoreUnderTest) -> None:
    """SPEC 9.11: only who misses an entry loads anew."""
    host = joined(store, "a")
    host.read()
    before = host.seen
    for number in (20, 21, 22):
        store.write(host.me, number, host.seen, Changes())
    host.read()
    after = host.seen
    store.connection.read(
        f"update cluster set pruned = {after.seq}", f"delete from log where seq < {after.seq}", within_schema=True,
        limit_seconds=15,
    )  # fmt: skip
    assert not store.news(after).behind
    assert store.news(after).entries == ()
    store.connection.read(f"delete from log where seq <= {before.seq}", within_schema=True, limit_seconds=15)
    assert store.news(before._replace(nonce=None)).behind


def test_one_reading_of_news_is_bounded_by_bytes(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 9.20: entries with long texts come in several answers, one entry at least in each, and none is left out."""
    host = joined(store, "a")
    host.read()
    before = host.seen
    for number in (20, 21, 22):
        store.write(host.me, number, host.seen, Changes())
    assert len(store.news(before).entries) == 3
    monkeypatch.setattr(module, "NEWS_BYTES_MAX", 1)
    read = []
    while entries := store.news(before).entries:
        assert len(entries) == 1
        read.append(entries[0].number)
        before = entries[0].position
    assert read == [20, 21, 22]


def test_each_call_but_long_ones_has_the_limit_of_its_connection(
    server: PostgresServer, store: PostgresStoreUnderTest
) -> None:
    """SPEC 9.20: a million tasks take longer to load and to declare than a beat may."""
    host = joined(store, "a")
    hasty = PostgresFunctions(store.connection, limit_seconds=0.25)
    with psycopg.connect(server.url()) as by_hand:
        by_hand.execute(f"lock table {store.connection.schema}.hosts".encode())
        with pytest.raises(StoreError, match=r"did not answer within 0\.25 s"):
            hasty.beat(host.me, host.seen)
    with psycopg.connect(server.url()) as by_hand:
        by_hand.execute(f"lock table {store.connection.schema}.log".encode())
        with pytest.raises(StoreError, match=r"did not answer within 0\.25 s"):
            hasty.news(host.seen)
    assert hasty.load().in_force == store.load().in_force


def test_marks_and_blocked_tasks_are_loaded_as_they_are(store: PostgresStoreUnderTest) -> None:
    """SPEC 5.1, 5.3."""
    joined(store, "a")
    store.connection.read(
        f"insert into marks (name, served_through, retired_at) values ('gone', 59, {NOON}), ('', 0, {NOON + 1})",
        "update states set blocked_by = 1000000000007 where generation = 2",
        within_schema=True,
        limit_seconds=15,
    )
    content = store.load()
    assert content.marks == {
        "gone": Mark(Minute(59), NOON),
        "": Mark(Minute(0), Instant(NOON + 1)),
    }
    assert content.blocked == {2: 1_000_000_000_007}


@pytest.mark.parametrize("together", [1, 2, 5, 6])
def test_the_tasks_of_a_base_are_read_in_chunks(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    joined(store, "a")
    assert store.trace_start() is None
    TestHost(store, "b" * 32).join({**TASKS, "other": ("* * * * *", 0)}, traced=True)
    monkeypatch.setattr(module, "TASKS_OF_A_BASE_TOGETHER", together)
    start = store.trace_start()
    assert start is not None
    assert [(each.generation, each.name) for each in start.base.tasks] == [(n + 1, f"task {n}") for n in range(5)]
    part = store.trace_after(start.position, start.generation, 100)
    assert part is not None
    assert part.entries[0].seq == start.base.first
    first = part.entries[0].position
    assert store.trace_after(first, start.generation, 100) is not None
    # An entry from before the newest base continues what was read, as long as the whole trace reaches back to it.
    store.connection.read(f"update bases set first = {first.seq + 1}", within_schema=True, limit_seconds=15)
    assert store.trace_after(first, start.generation, 100) is not None
    store.connection.read(f"update bases set first = {first.seq + 2}", within_schema=True, limit_seconds=15)
    assert store.trace_after(first, start.generation, 100) is None


def test_a_base_that_is_forgotten_while_it_is_read_is_read_anew(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined(store, "a", traced=True)
    read, asked = PostgresFunctions._tasks_of_a_base, []

    def gone(self: PostgresFunctions, segment: int) -> object:
        asked.append(segment)
        return read(self, segment + 7 if len(asked) == 1 else segment)

    monkeypatch.setattr(PostgresFunctions, "_tasks_of_a_base", gone)
    assert store.trace_start() is not None
    assert len(asked) == 2
