"""A shared store's reader adds hosts, editions, runs with their hosts, rights, connections, the trace."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from duly.core.moments import Instant
from duly.core.news import RUNS_OF_A_HOST
from duly.errors import StoreError, StoreSchemaError, StoreUnusedError, StoreVersionError, TraceError
from duly.formal import check
from duly.formal.trace import SHARED_VERSION
from duly.stores import PostgresReader, Reader, View
from duly.stores.port import HostName, RunSelection, TaskPhase
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.install import install
from duly.stores.postgres.reader import PostgresView
from duly.stores.postgres.url import StoreUrl, read_url
from duly.stores.shared import Act
from duly.stores.trace_copy import copy_trace
from tests.postgres_server import PostgresServer, bundled_binaries, server_of
from tests.stores.made import Row
from tests.stores.shared_hosts import HOUR, LEASE, MINUTE, NOON, TaskSet, TestHost, generations
from tests.stores.shared_stores import PostgresStoreUnderTest
from tests.stores.shelves import PostgresShelf

TASKS: TaskSet = {"backup": ("0 3 * * *", 1_000), "report": ("* * * * *", 0)}
NEWER: TaskSet = {**TASKS, "mail": ("* * * * *", 0)}


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture(scope="module")
def made(server: PostgresServer) -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server)
    yield store
    store.connection.close()


@pytest.fixture
def store(made: PostgresStoreUnderTest) -> PostgresStoreUnderTest:
    made.empty()
    return made


@pytest.fixture
def reader(store: PostgresStoreUnderTest) -> Reader:
    return PostgresReader(store.url, now=lambda: store.now)


def joined(store: PostgresStoreUnderTest, letter: str, tasks: TaskSet = TASKS, **changes: object) -> TestHost:
    host = TestHost(store, letter * 32)
    host.join(tasks, **changes)
    host.read()
    return host


# --- hosts and editions ----------------------------------------------------------------------------------------------


def test_a_snapshot_has_the_hosts_with_their_beats_and_editions(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """SPEC 9.2, 9.13: key, identifier, label, lease; one left, one was buried, two live."""
    first, second, third = joined(store, "a"), joined(store, "b"), joined(store, "c")
    store.now = Instant(NOON + 5_000_000)
    fourth = joined(store, "d", NEWER, label="d", lease=2 * LEASE)
    fourth.beat(fault="refuses the role a right")
    third.leave()
    fourth.bury(second)
    snapshot = reader.read(lambda view: view.snapshot())
    cluster = snapshot.cluster
    assert cluster is not None
    assert [(each.key, each.gone, each.edition) for each in cluster.hosts] == [
        (1, None, 1),
        (2, "buried", 1),
        (3, "left", 1),
        (4, None, 2),
    ]
    last = cluster.hosts[-1]
    assert (last.identifier, last.label, last.lease) == ("d" * 32, "d", 2 * LEASE)
    assert [each.fault for each in cluster.hosts] == [None, None, None, "refuses the role a right"]
    assert (last.since, last.beat_at) == (NOON + 5_000_000, NOON + 5_000_000)
    assert (cluster.edition, cluster.in_force_since) == (2, NOON + 5_000_000)
    assert {number: each.since for number, each in cluster.editions.items()} == {1: NOON, 2: NOON + 5_000_000}
    assert cluster.position == store.load().position.seq
    assert first.key == 1
    assert (snapshot.holder.alive, snapshot.holder.since, snapshot.holder.last_poll_at) == (
        True,
        NOON + 5_000_000,
        NOON + 5_000_000,
    )
    assert (snapshot.zone, snapshot.schema_version, snapshot.store) == ("UTC", 1, store.url.name)


def test_a_host_is_silent_once_others_would_bury_it(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """SPEC 9.5: lease and a third; nobody lives then, and the store is held by nobody."""
    joined(store, "a")
    store.now = Instant(NOON + LEASE * 4 // 3)
    assert reader.read(lambda view: view.snapshot()).holder.alive
    store.now = Instant(NOON + LEASE * 4 // 3 + 1)
    snapshot = reader.read(lambda view: view.snapshot())
    assert snapshot.cluster is not None
    assert [each.is_silent(snapshot.at) for each in snapshot.cluster.hosts] == [True]
    assert not snapshot.holder.alive


def test_the_times_in_which_a_host_held_its_callbacks_can_be_asked_for(
    store: PostgresStoreUnderTest, reader: Reader
) -> None:
    """SPEC 9.6: the holds that overlap with a time, such as that of a run."""
    first, second = joined(store, "a"), joined(store, "b")
    for minutes in (1, 2, 3):
        store.now = Instant(NOON + minutes * MINUTE)
        first.beat(held=10_000_000)
    second.beat(held=20_000_000)

    def holds(host: int, since: int, until: int) -> list[tuple[int, int]]:
        between = Instant(NOON + since), Instant(NOON + until)
        found = reader.read(lambda view: view.holds(host, *between))
        return [(each.since - NOON, each.until - NOON) for each in found]

    assert holds(1, 0, HOUR) == [(end - 10_000_000, end) for end in (MINUTE, 2 * MINUTE, 3 * MINUTE)]
    assert holds(1, MINUTE, 3 * MINUTE - 10_000_000) == [(2 * MINUTE - 10_000_000, 2 * MINUTE)]
    assert holds(1, MINUTE - 1, MINUTE) == [(MINUTE - 10_000_000, MINUTE)]
    assert holds(2, 0, HOUR) == [(3 * MINUTE - 20_000_000, 3 * MINUTE)]
    assert holds(3, 0, HOUR) == []


def test_only_a_host_that_joins_nobody_takes_the_store_over(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """A second host is no sign that there was none before; a host after a gap is."""
    first = joined(store, "a")
    store.now = Instant(NOON + MINUTE)
    first.beat()
    second = joined(store, "b")
    store.now = Instant(NOON + 2 * MINUTE)
    first.leave()
    second.leave()
    store.now = Instant(NOON + HOUR)
    joined(store, "c")
    assert reader.read(lambda view: view.snapshot()).arrivals == [NOON, NOON + HOUR]


def test_runs_name_their_host_and_hosts_count_their_runs(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """Runs under way, ended, cut short by a burial, and of a withdrawn declaration."""
    first, second = joined(store, "a"), joined(store, "b")
    names = generations(store)
    backup, report = names["backup"], names["report"]
    first.start(backup)
    first.end(backup, 10**12 + 1)
    store.now = Instant(NOON + MINUTE)
    second.start(report)

    def runs(view: View) -> list[tuple[str, str, HostName | None]]:
        return [(run.task, run.outcome, run.host) for run in view.runs(RunSelection(), oldest_first=True)]

    here, there = HostName(1, "host aa"), HostName(2, "host bb")
    assert reader.read(runs) == [("backup", "success", here), ("report", "running", there)]
    assert reader.read(lambda view: view.runs_by_host()) == {2: 1}
    first.read()
    first.bury(second)
    assert reader.read(runs) == [("backup", "success", here), ("report", "interrupted", there)]
    assert reader.read(lambda view: view.runs_by_host()) == {}
    interrupted = reader.read(lambda view: view.task("report"))
    assert interrupted is not None
    assert interrupted.phase is TaskPhase.INTERRUPTED
    store.now = Instant(NOON + 2 * MINUTE)
    first.start(report)
    assert reader.read(runs)[-1] == ("report", "running", here)
    first.join({"backup": TASKS["backup"]}, act=Act.REDECLARE)
    assert reader.read(lambda view: view.runs_by_host()) == {1: 1}  # its declaration is withdrawn, and it goes on


def test_history_that_was_dropped_shows_although_numbers_are_those_of_hosts(
    store: PostgresStoreUnderTest, reader: Reader
) -> None:
    """Records are numbered one after the other, whichever host wrote them."""
    host = joined(store, "a", history=2)
    backup = generations(store)["backup"]
    extent = reader.read(lambda view: view.extent())
    assert (extent.runs, extent.runs_ever, extent.oldest_end) == (0, 0, None)
    for number in range(1, 5):
        store.now = Instant(NOON + number * HOUR)
        host.start(backup)
        host.end(backup, 10**12 + number)
        extent = reader.read(lambda view: view.extent())
        assert (extent.runs, extent.runs_ever) == (min(2, number), number)
    assert extent.oldest_end == NOON + 3 * HOUR
    host.start(backup)
    extent = reader.read(lambda view: view.extent())
    assert (extent.runs, extent.runs_ever) == (3, 5)


def test_an_old_transaction_elsewhere_is_seen(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """It keeps old versions of rows that every beat updates."""
    joined(store, "a")
    other = Connection(store.url)
    other.send("begin; select 1", limit_seconds=15)
    try:
        cluster = reader.read(lambda view: view.snapshot()).cluster
    finally:
        other.close()
    assert cluster is not None
    assert cluster.oldest_transaction_at is not None


def test_the_clock_is_that_of_the_database(store: PostgresStoreUnderTest) -> None:
    """SPEC 9.11."""
    joined(store, "a")
    at = PostgresReader(store.url).read(lambda view: view.snapshot()).at
    ((now,),) = store.connection.send("select (extract(epoch from now()) * 1000000)::bigint", limit_seconds=15)[0]
    assert 0 <= int(now or 0) - at < HOUR


# --- one moment, and little of it at a time --------------------------------------------------------------------------


def test_a_view_sees_one_moment_whatever_hosts_write(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """And no host waits for it."""
    host = joined(store, "a")
    report = generations(store)["report"]

    def question(view: View) -> tuple[int, int]:
        before = view.count_runs(RunSelection())
        host.start(report)
        return before, view.count_runs(RunSelection())

    assert reader.read(question) == (0, 0)
    assert reader.read(lambda view: view.count_runs(RunSelection())) == 1


@pytest.fixture(scope="module")
def many(server: PostgresServer) -> Iterator[PostgresShelf]:
    """Twenty thousand tasks, and a run of each."""
    shelf = PostgresShelf(server)
    rows = [Row(f"task-{number:05}") for number in range(20_000)]
    shelf.put(rows, [(n, n, "cron", n, n, n, "success", None) for n in range(1, 20_001)])
    yield shelf
    shelf.close()


def test_a_long_answer_comes_in_pieces(many: PostgresShelf) -> None:
    """Thousands of tasks and of runs, and no message with more than a thousand rows."""
    reader = PostgresReader(many.url)
    sizes: list[int] = []
    send = Connection.send

    def noted(self: Connection, message: str, **named: Any) -> list[list[tuple[str | None, ...]]]:
        found = send(self, message, **named)
        sizes.append(max(map(len, found)))
        return found

    patch = pytest.MonkeyPatch()
    patch.setattr(Connection, "send", noted)
    try:
        assert reader.read(lambda view: sum(1 for _ in view.tasks())) == 20_000
        assert reader.read(lambda view: sum(1 for _ in view.runs(RunSelection()))) == 20_000
    finally:
        patch.undo()
    assert max(sizes) == 1_000


@pytest.mark.parametrize(
    "question",
    [
        lambda view: list(view.tasks(after="task-00500", limit=10)),
        lambda view: view.task("task-00700"),
        lambda view: view.names(prefix="task-005", limit=10),
        lambda view: view.names_before("task-00500", limit=10),
        lambda view: view.declarations("task-00500"),
        lambda view: list(view.runs(RunSelection(task="task-00500"), limit=5)),
    ],
    ids=["page", "task", "names", "names before", "declarations", "runs of a task"],
)
def test_few_of_many_are_found_by_an_index(many: PostgresShelf, question: Callable[[View], object]) -> None:
    """No statement of the question goes through all tasks or all history."""
    plans: list[str] = []
    send = Connection.send

    def explained(self: Connection, message: str, **named: Any) -> list[list[tuple[str | None, ...]]]:
        statement = message.partition("; fetch")[0].rpartition("cursor for ")[2]
        if statement.startswith("select json_build_array("):
            found = send(self, f"explain {statement}", **named)
            plans.extend(str(line) for (line,) in found[-1])
        return send(self, message, **named)

    connection = Connection(many.url)
    patch = pytest.MonkeyPatch()
    try:
        view = PostgresView(connection, many.url)
        view.count_tasks()  # counted once, and not part of the question
        patch.setattr(Connection, "send", explained)
        question(view)
    finally:
        patch.undo()
        connection.close()
    assert plans
    assert not [line for line in plans if "Seq Scan on tasks" in line or "Seq Scan on runs" in line]


NAMED = ("arriving", "base_marks", "base_strays", "base_tasks", "marks", "strays", "tasks")


def test_names_sort_by_their_code_points_in_every_database(server: PostgresServer) -> None:
    """The locale of the database decides nothing: each column of names has its collation."""
    shelf = PostgresShelf(server)
    found = shelf.connection.send(
        "select c.relname, l.collname from pg_attribute a join pg_class c on c.oid = a.attrelid "
        "join pg_collation l on l.oid = a.attcollation join pg_namespace n on n.oid = c.relnamespace "
        f"where a.attname = 'name' and c.relkind = 'r' and n.nspname = '{shelf.url.schema}' order by 1",
        limit_seconds=15,
    )[0]
    shelf.close()
    assert found == [(table, "C") for table in NAMED]


def test_a_text_that_no_name_can_be_is_found_nowhere(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """SPEC 1.4: a name has neither NUL nor a lone surrogate, which PostgreSQL cannot hold; to ask is no fault."""
    joined(store, "a")

    def question(view: View) -> list[object]:
        return [
            found
            for text in ("backup\0", "backup\ud800")
            for found in (
                view.task(text),
                view.declarations(text),
                view.names(prefix=text, limit=3),
                view.has_name_like(text),
            )
        ]

    assert reader.read(question) == [None, [], [], False] * 2


# --- rights, and what is no store ------------------------------------------------------------------------------------


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    server.execute("drop database if exists reading", "create database reading")
    yield "reading"
    server.execute("drop database reading with (force)", "drop role if exists looker")


def test_a_role_that_may_select_is_enough(server: PostgresServer, database: str) -> None:
    """SPEC 9.22: it changes nothing, and calls no function of the store."""
    there = read_url(server.url(database), "duly")
    connection = Connection(there)
    install(connection, there)
    connection.close()
    server.execute("create role looker login", database=database)
    looker = PostgresReader(server.url(database, user="looker"))
    with pytest.raises(StoreSchemaError, match="may not be read by the role") as caught:
        looker.read(lambda view: view.snapshot())
    assert "grant select on all tables" in caught.value.details["hint"]
    server.execute(
        "grant usage on schema duly to looker",
        "grant select on all tables in schema duly to looker",
        "update duly.cluster set generation = 1",
        "alter role looker set default_transaction_isolation = 'serializable'",
        "alter role looker set search_path = 'nowhere'",
        database=database,
    )
    assert looker.read(lambda view: (view.count_tasks(), list(view.cohorts(NOON)), view.trace())) == (0, [], None)


def test_what_is_no_store_is_named(server: PostgresServer, database: str) -> None:
    """Nothing there, nothing in it, another program's, a newer duly's."""
    url = server.url(database)
    with pytest.raises(StoreUnusedError, match="no host has used this store yet"):
        PostgresReader(url).read(lambda view: view.snapshot())
    there = read_url(url, "duly")
    connection = Connection(there)
    install(connection, there)
    connection.close()
    with pytest.raises(StoreUnusedError):
        PostgresReader(there).read(lambda view: view.snapshot())
    server.execute("update duly.cluster set version = 9", database=database)
    with pytest.raises(StoreVersionError):
        PostgresReader(there).read(lambda view: view.snapshot())
    server.execute("create schema theirs", "create table theirs.cluster (id int)", database=database)
    with pytest.raises(StoreError, match="is a schema of something else"):
        PostgresReader(url, schema="theirs").read(lambda view: view.snapshot())


def test_a_question_that_fails_leaves_no_transaction_open(store: PostgresStoreUnderTest) -> None:
    """Its snapshot would keep old rows."""
    joined(store, "a")
    reader = PostgresReader(store.url, connections_kept=1)

    def fail(view: View) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        reader.read(fail)
    assert reader.read(lambda view: view.count_tasks()) == 2
    found = store.connection.send(
        "select count(*) from pg_stat_activity where state like 'idle in transaction%'", limit_seconds=15
    )
    reader.close()
    assert found[-1] == [("0",)]


def test_a_kept_connection_that_broke_is_replaced(store: PostgresStoreUnderTest) -> None:
    """A restart of the server between two questions is nothing to report."""
    joined(store, "a")
    reader = PostgresReader(store.url, connections_kept=1)
    for ask in (lambda: reader.read(lambda view: view.count_tasks()), reader.version):
        before = ask()
        store.connection.send(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'duly' "
            "and pid <> pg_backend_pid()",
            limit_seconds=15,
        )
        assert ask() == before
    reader.close()


def test_the_version_changes_with_the_log_with_hosts_and_with_the_minute_of_a_beat(
    store: PostgresStoreUnderTest, reader: Reader
) -> None:
    """Not with every beat: a page that shows the store would be made anew every few seconds."""
    seen = [PostgresReader(replace_schema(store.url, "nowhere")).version()]
    host = joined(store, "a")
    seen.append(reader.version())
    host.beat()
    assert reader.version() == seen[-1]
    host.start(generations(store)["report"])
    seen.append(reader.version())
    store.now = Instant(NOON + MINUTE)
    host.beat()
    seen.append(reader.version())
    host.leave()
    seen.append(reader.version())
    assert seen[0] is None
    assert len(set(seen)) == 5


def replace_schema(url: StoreUrl, schema: str) -> StoreUrl:
    return replace(url, schema=schema)


# --- the trace -------------------------------------------------------------------------------------------------------


def traced(store: PostgresStoreUnderTest) -> TestHost:
    """A host that has begun a trace, started a task, ended it, and left."""
    host = TestHost(store, "a" * 32)
    host.join(TASKS, traced=True)
    report = generations(store)["report"]
    host.start(report)
    host.end(report, host.key_or_zero * RUNS_OF_A_HOST + 1)
    host.leave()
    return host


def exported(reader: Reader) -> list[bytes]:
    def question(view: View) -> list[bytes]:
        stored = view.trace()
        assert stored is not None
        return list(view.trace_lines(stored))

    return reader.read(question)


def test_the_log_is_exported_as_one_sealed_segment(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """SPEC 7.6, 9.19: positions are those of the commits; the last leaving seals it."""
    host = traced(store)
    stored = reader.read(lambda view: view.trace())
    assert stored is not None
    assert (stored.events, stored.first_seq, stored.seal, stored.scheduler) == (None, 1, "clean", host.identifier)
    assert (stored.current, stored.position) == (True, 4)
    lines = exported(reader)
    header, *events, seal = map(json.loads, lines)
    assert (header["version"], header["scheduler"], header["registers"]) == (SHARED_VERSION, host.identifier, None)
    letters = ["BT", "IS", *["RG"] * len(TASKS), "IE", "RS", "RE", "SS", "SE"]
    assert [(event[0], event[1], event[3]) for event in events] == [
        (letter, seq, 1) for seq, letter in enumerate(letters, 1)
    ]
    assert (seal["seal"], seal["count"]) == ("clean", len(events))
    report = check(io.BytesIO(b"".join(lines)))
    assert (report.ended, report.events) == (True, len(events))


def test_a_trace_is_copied_and_its_events_are_counted(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """A file says how long it is; a store that has no trace writes nothing."""
    file = io.BytesIO(b"before")
    joined(store, "b", {"other": ("* * * * *", 0)}).leave()
    assert reader.read(lambda view: copy_trace(view, file)) is None
    assert file.getvalue() == b"before"
    traced(store)
    stored = reader.read(lambda view: copy_trace(view, file))
    assert stored is not None
    assert stored.events == len(file.getvalue().splitlines()) - 2


def test_a_trace_is_open_while_a_host_lives(store: PostgresStoreUnderTest, reader: Reader) -> None:
    """The next event may come at any moment."""
    traced(store)
    joined(store, "b", traced=True)
    stored = reader.read(lambda view: view.trace())
    assert stored is not None
    assert stored.seal == "open"


@pytest.mark.parametrize(
    ("damage", "fault", "words"),
    [
        ("delete from log where seq = 2", "truncated", "entry 2 is missing, and entry 3 follows"),
        ("delete from log where seq = 1", "truncated", "entry 1 is missing, and entry 2 follows"),
        ("delete from log where seq = 4; update hosts set seen = 4", "truncated", "entry 4 is missing"),
        ("update log set kind = 'merged' where seq = 2", "malformed", "a 'merged', which this version"),
        ("update log set entry = '{}' where seq = 2", "malformed", "entry 2 of the log is not what duly wrote"),
        ("delete from tasks", "malformed", "entry 1 of the log names what is not on record"),
    ],
)
def test_a_log_that_was_cut_is_refused(
    store: PostgresStoreUnderTest, reader: Reader, damage: str, fault: str, words: str
) -> None:
    """Its numbers have no gaps, and hosts have read up to their own."""
    traced(store)
    store.connection.read(*damage.split("; "), within_schema=True, limit_seconds=15)
    with pytest.raises(TraceError) as caught:
        exported(reader)
    assert caught.value.details["fault"] == fault
    assert words in caught.value.details["reason"]
