"""The shared store on real servers: installing, rights, settings, faults, and connections that break."""

import contextlib
import itertools
import json
import os
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly.core.news import Changes
from duly.errors import HostGoneError, StoreError, StoreRewoundError, StoreSchemaError, StoreVersionError
from duly.stores.postgres import functions
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.entries import json_of
from duly.stores.postgres.faults import fault_of, is_transient
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.postgres.install import install
from duly.stores.postgres.script import grants, installation, quoted, script
from duly.stores.postgres.url import StoreUrl, read_url
from duly.stores.shared import Act, EditionVerdict
from tests.counts import count
from tests.postgres_server import (
    PostgresServer,
    bundled_binaries,
    debian_binaries,
    newest_binaries,
    oldest_binaries,
    server_of,
)
from tests.stores.shared_hosts import TaskSet, TestHost
from tests.stores.shared_stores import PostgresStoreUnderTest

_schemas = itertools.count(1)
OTHERS = (debian_binaries, oldest_binaries, newest_binaries)

TASKS: TaskSet = {"backup": ("0 3 * * *", 1_000), "report": ("* * * * *", 0)}


@pytest.fixture(
    scope="module",
    params=[bundled_binaries, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)],
    ids=["bundled", "debian", "oldest", "newest"],
)
def server(request: pytest.FixtureRequest) -> PostgresServer:
    return server_of(request.param())


@pytest.fixture(scope="module")
def database(server: PostgresServer) -> Iterator[str]:
    """A database that may get settings, roles and schemas."""
    server.execute("drop database if exists hostile", "create database hostile")
    server.execute(
        "create schema evil",
        "create function evil.max(bigint) returns bigint language sql as 'select 0::bigint'",
        "create table evil.log (seq int)",
        "create table evil.hosts (key int)",
        database="hostile",
    )
    yield "hostile"
    server.execute("drop database hostile with (force)")


@pytest.fixture
def url(server: PostgresServer, database: str) -> StoreUrl:
    """A schema of its own there, which nobody has created."""
    return read_url(server.url(database), f"duly {next(_schemas)}")


@pytest.fixture
def connection(url: StoreUrl) -> Iterator[Connection]:
    opened = Connection(url)
    yield opened
    opened.close()


@pytest.fixture
def store(server: PostgresServer) -> Iterator[PostgresStoreUnderTest]:
    """A schema of its own in the server's first database."""
    made = PostgresStoreUnderTest(server)
    yield made
    made.connection.close()


def role(server: PostgresServer, url: StoreUrl, *rights: str) -> StoreUrl:
    """The store as a role sees it that has no right but those."""
    database = url.parameters["dbname"]
    if server.execute("select 1 from pg_roles where rolname = 'app'"):
        server.execute("drop owned by app cascade", database=database)
    server.execute("drop role if exists app", "create role app login", *rights, database=database)
    return read_url(server.url(database, user="app"), url.schema)


# --- installing ------------------------------------------------------------------------------------------------------


def test_the_first_host_creates_the_schema_and_the_next_finds_it(connection: Connection, url: StoreUrl) -> None:
    """SPEC 9.22."""
    assert install(connection, url)
    assert not install(connection, url)
    assert PostgresFunctions(connection).load().in_force == (0, 0)


def test_twelve_first_installs_at_once_create_one_schema(url: StoreUrl) -> None:
    """SPEC 9.22: in one transaction under an advisory lock."""
    together = threading.Barrier(12)

    def begin(_: int) -> bool:
        connection = Connection(url)
        connection.send("select 1", limit_seconds=30)
        together.wait(60)
        try:
            return install(connection, url)
        finally:
            connection.close()

    with ThreadPoolExecutor(12) as pool:
        assert sorted(pool.map(begin, range(12))) == [False] * 11 + [True]


@pytest.mark.parametrize("schema", ['a "quoted" name', "it's", "Größe\\n"])
def test_a_schema_may_have_any_name(server: PostgresServer, database: str, schema: str) -> None:
    """SPEC 9.22: schema names are quoted."""
    there = read_url(server.url(database), schema)
    connection = Connection(there)
    install(connection, there)
    assert PostgresFunctions(connection).load().in_force == (0, 0)
    found = server.execute("select nspname from pg_namespace", database=database)
    assert (schema,) in found
    connection.close()


def test_a_role_without_the_right_to_create_is_told_the_command(server: PostgresServer, url: StoreUrl) -> None:
    """SPEC 9.22: `StoreSchemaError`, whose hint is the command."""
    there = role(server, url)
    connection = Connection(there)
    with pytest.raises(StoreSchemaError, match=r"may not create them: .* duly store install --schema 'duly \d+' postg"):
        install(connection, there)
    connection.close()


def test_a_role_that_was_granted_its_rights_works_without_owning_anything(
    server: PostgresServer, url: StoreUrl, database: str
) -> None:
    """SPEC 9.22: USAGE on the schema, EXECUTE on its functions, and the four verbs on its tables."""
    server.execute(script(url.schema), database=database)
    there = role(server, url)
    connection = Connection(there)
    with pytest.raises(StoreSchemaError, match="duly store sql --grant ROLE"):
        install(connection, there)
    server.execute(grants(url.schema, "app"), database=database)
    assert not install(connection, there)
    functions = PostgresFunctions(connection)
    host = TestHost(functions, "a" * 32)  # type: ignore[arg-type]
    assert host.join(TASKS).verdict is EditionVerdict.APPLIED
    assert functions.write(host.me, 9, host.seen, Changes()).refused == ()
    assert functions.beat(host.me, host.seen).living[0].beat == 1
    assert functions.leave(host.me) is not None
    connection.close()


def test_a_schema_that_a_database_administrator_created_needs_no_right_on_the_database(
    server: PostgresServer, url: StoreUrl
) -> None:
    there = role(server, url)
    server.execute(f"create schema {quoted(url.schema)} authorization app", database=url.parameters["dbname"])
    connection = Connection(there)
    assert install(connection, there)
    connection.close()


def test_functions_are_not_for_the_public(connection: Connection, url: StoreUrl) -> None:
    """SPEC 9.22: they run with the rights of their caller, and execute is revoked."""
    install(connection, url)
    asked = (
        "select count(*), count(*) filter (where prosecdef or has_function_privilege('public', oid, 'execute')) "
        f"from pg_proc where pronamespace = '{quoted(url.schema)}'::regnamespace"
    )
    ((every, public),) = connection.send(asked, limit_seconds=15)[0]
    assert (int(every or 0) > 15, public) == (True, "0")


def test_a_newer_schema_is_refused(connection: Connection, url: StoreUrl) -> None:
    """SPEC 9.22."""
    install(connection, url)
    connection.read("update cluster set version = 99", within_schema=True, limit_seconds=15)
    with pytest.raises(StoreVersionError, match="schema version 99"):
        install(connection, url)


def test_an_older_schema_is_raised_and_keeps_what_it_holds(
    connection: Connection, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 9.22: a release only adds."""
    install(connection, url)
    host = TestHost(PostgresFunctions(connection), "a" * 32)  # type: ignore[arg-type]
    host.join(TASKS, label="lone \udcff surrogate")
    monkeypatch.setattr("duly.stores.postgres.install.VERSION", 2)
    monkeypatch.setattr(
        "duly.stores.postgres.install.MIGRATIONS", {1: "alter table hosts add column colour text default 'red';"}
    )
    assert install(connection, url)
    rows = connection.read("select version, colour from cluster, hosts", within_schema=True, limit_seconds=15)[0]
    assert rows == [("2", "red")]
    assert not install(connection, url)


def test_tables_of_another_program_are_not_touched(connection: Connection, url: StoreUrl) -> None:
    here = quoted(url.schema)
    connection.send(f"create schema {here}; create table {here}.cluster (name text)", limit_seconds=15)
    with pytest.raises(StoreError, match="schema of something else"):
        install(connection, url)


def test_an_installation_that_fails_leaves_nothing(
    connection: Connection, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 9.22: one transaction."""
    monkeypatch.setattr("duly.stores.postgres.install.installation", lambda s: installation(s) + "select 1/0;")
    with pytest.raises(StoreError, match="division by zero"):
        install(connection, url)
    asked = f"select 1 from pg_namespace where nspname = '{url.schema}'"
    assert connection.send(asked, limit_seconds=15) == [[]]


def test_a_database_that_is_not_utf8_is_refused(server: PostgresServer) -> None:
    """SPEC 9.20: it could not keep every text."""
    server.execute(
        "drop database if exists latin", "create database latin encoding 'LATIN1' template template0 locale 'C'"
    )
    with pytest.raises(StoreError, match="keeps text as LATIN1: create the database with encoding UTF8") as refused:
        Connection(read_url(server.url("latin"))).send("select 1", limit_seconds=15)
    assert refused.value.details["permanent"]
    server.execute("drop database latin")


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_isolation = 'repeatable read'",
        "statement_timeout = '300ms'",
        "idle_in_transaction_session_timeout = '1ms'",
        "search_path = 'evil'",
        "lock_timeout = '300ms'",
        "synchronous_commit = off",
        "standard_conforming_strings = off",
        "DateStyle = 'German, DMY'",
        "IntervalStyle = 'iso_8601'",
        "TimeZone = 'Asia/Kolkata'",
        "bytea_output = 'escape'",
    ],
)
def test_hostile_settings_of_role_and_database_change_nothing(
    server: PostgresServer, database: str, url: StoreUrl, setting: str
) -> None:
    """SPEC 9.9, 9.22: whatever a database administrator has set, starts are granted once."""
    if setting.startswith("standard") and str(server.execute("show server_version_num")[0][0]) >= "190000":
        pytest.skip("this server has no such setting any more")
    server.execute(f"alter database {database} set {setting}")
    connection = Connection(url)
    assert install(connection, url)
    functions = PostgresFunctions(connection)
    one, other = TestHost(functions, "a" * 32), TestHost(functions, "b" * 32)  # type: ignore[arg-type]
    for host in (one, other):
        host.join({**TASKS, "it's a \\ name": ("* * * * *", 0)})
        host.read()
    functions.__dict__["now"] = functions.load().clock
    with psycopg.connect(server.url(database), options="-c idle_in_transaction_session_timeout=0") as blocker:
        # The mutex is waited for, whatever lock_timeout and statement_timeout say.
        blocker.execute(f"select pg_advisory_xact_lock('{quoted(url.schema)}.cluster'::regclass::oid::int, 0)".encode())
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(one.start, 1, 2, read=False)
            for _ in range(200):
                (waiting,) = server.execute("select count(*) from pg_locks where locktype = 'advisory' and not granted")
                if waiting[0]:
                    break
            if "timeout" in setting:
                server.execute("select pg_sleep(0.4)")
            blocker.rollback()
            assert asked.result(60).refused == ()
    assert other.start(1, read=False).refused == (1,)
    assert len(functions.beat(other.me, other.seen).living) == 2
    connection.close()
    server.execute(f"alter database {database} reset all")


def test_a_commit_is_durable_although_the_database_says_off(connection: Connection, url: StoreUrl) -> None:
    """SPEC 9.9: `synchronous_commit` is raised for the transaction, and not only inside the function."""
    install(connection, url)
    connection.send("set synchronous_commit = off", limit_seconds=15)
    rows = connection.read("select enter_1()", "show synchronous_commit", within_schema=True, limit_seconds=15)
    assert rows[1] == [("on",)]


# --- loading ---------------------------------------------------------------------------------------------------------


def test_the_clock_that_a_load_tells_was_read_when_all_the_rest_had_been(
    server: PostgresServer, store: PostgresStoreUnderTest
) -> None:
    """SPEC 9.11: loading a million tasks takes seconds, and the host would lag behind the database by them."""
    store.connection.send(
        f"create or replace function {store.connection.schema}.clock_1() returns bigint language sql volatile as "
        "$$ select (extract(epoch from clock_timestamp()) * 1000000)::bigint $$",
        limit_seconds=15,
    )
    with psycopg.connect(server.url()) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute(f"lock table {store.connection.schema}.marks in access exclusive mode".encode())
        loading = pool.submit(store.load)
        waiting = "select count(*) from pg_locks where not granted and relation = %s::regclass"
        while server.execute(waiting.replace("%s", f"'{store.connection.schema}.marks'"))[0] == (0,):
            assert not loading.done()
        ((late,),) = server.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
        blocker.rollback()
        assert loading.result(60).clock >= int(str(late))


def test_tasks_that_are_alike_are_collected_without_sorting_them(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To sort a million tasks by all columns that they may differ in takes the database seconds."""
    TestHost(store, "a" * 32).join({f"task-{n:04}": (f"{n % 7} 3 * * *", 0) for n in range(3_000)})
    plans: list[list[str]] = []
    send = Connection.send

    def explained(self: Connection, message: str, **named: Any) -> list[list[tuple[str | None, ...]]]:
        before, select, records = message.partition("select json_agg(generation)")
        if select:
            asked = records.partition(";")[0]
            found = send(self, f"{before}explain {select}{asked}; commit", **named)
            plans.append([str(line) for (line,) in found[-2]])
        return send(self, message, **named)

    monkeypatch.setattr(Connection, "send", explained)
    content = store.load()
    (plan,) = plans
    assert [line for line in plan if "HashAggregate" in line]
    assert len([line for line in plan if "Sort Key" in line]) == 1  # of the seven rows
    assert len(content.records) == 7
    for block in content.records:
        assert list(block.generations) == sorted(block.generations)
        assert all(
            name.endswith(f"{generation - 1:04}")
            for generation, name in zip(block.generations, block.names, strict=True)
        )


@pytest.mark.parametrize("tasks", [6, 7, 20])
def test_the_tasks_of_a_base_are_read_some_at_a_time(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """A monitor begins with the base: a million tasks would be one message of hundreds of megabytes."""
    monkeypatch.setattr(functions, "TASKS_OF_A_BASE_TOGETHER", 7)
    TestHost(store, "a" * 32).join({f"task-{n}": ("0 3 * * *", 0) for n in range(tasks)}, traced=True)
    store.rotate_trace(1)
    assert (start := store.trace_start()) is not None
    assert [task.generation for task in start.base.tasks] == list(range(1, tasks + 1))


def test_a_base_that_is_forgotten_while_it_is_read_is_left_for_the_next(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = TestHost(store, "a" * 32)
    host.join({"a": ("* * * * *", 0)}, traced=True)
    read = Connection.read
    met: list[tuple[str, ...]] = []

    def rotates(self: Connection, *statements: str, **named: Any) -> list[list[tuple[str | None, ...]]]:
        if "base_tasks" in statements[0] and not met:
            met.append(statements)
            for _ in range(2):
                host.write(Changes(notes=(("WK", 1, 1),) * 4))
                store.rotate_trace(1)
        return read(self, *statements, **named)

    monkeypatch.setattr(Connection, "read", rotates)
    start = store.trace_start()
    assert start is not None
    assert (start.base.segment, [task.name for task in start.base.tasks], len(met)) == (3, ["a"], 1)


def test_rows_come_in_the_order_of_generations_whatever_the_aggregate_does(
    store: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    TestHost(store, "a" * 32).join({f"task-{n}": ("0 3 * * *", 0) for n in range(5)})
    read = Connection.read

    def scrambled(self: Connection, *statements: str, **named: Any) -> list[list[tuple[str | None, ...]]]:
        turned = [
            each.replace("order by t.generation)", "order by t.generation % 2, t.name desc)") for each in statements
        ]
        return read(self, *turned, **named)

    monkeypatch.setattr(Connection, "read", scrambled)
    (block,) = store.load().records
    assert block.generations == [1, 2, 3, 4, 5]
    assert block.names == [f"task-{n}" for n in range(5)]


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        *(
            (code, True)
            for code in ("", "08006", "40001", "40P01", "53300", "53100", "55P03", "57P01", "57014", "58030")
        ),
        ("25006", True),
        *((code, False) for code in ("22P02", "22P05", "23505", "25001", "28P01", "3D000", "42501", "42P01", "XX000")),
    ],
)
def test_faults_that_pass_are_told_from_those_that_stay(code: str, transient: bool) -> None:
    """SPEC 9.20."""
    assert is_transient(code) is transient


def test_a_server_that_is_not_there_is_a_fault_that_passes(server: PostgresServer) -> None:
    """SPEC 9.20; 9.22: the password of the URL is in no message."""
    gone = Connection(read_url("postgresql://app:s3cret@127.0.0.1:1/shop"))
    with pytest.raises(StoreError, match="cannot be reached") as fault:
        gone.send("select 1", limit_seconds=5)
    assert fault.value.details["permanent"] is False
    assert "s3cret" not in f"{fault.value!r} {fault.value} {fault.value.__cause__} {fault.value.details}"


@contextlib.contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """This process can open this many files and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("left", [0, 1])
def test_a_process_without_descriptors_meets_a_fault_that_passes(server: PostgresServer, left: int) -> None:
    """SPEC 9.20: libpq needs one for the connection, and psycopg another one to wait for it."""
    connection = Connection(read_url(server.url()))
    with contextlib.closing(connection):
        connection.send("select 1", limit_seconds=5)
        connection.close()
        with descriptors_left(left), pytest.raises(StoreError, match="cannot be reached") as fault:
            connection.send("select 1", limit_seconds=5)
        assert fault.value.details["permanent"] is False
        assert connection.send("select 1", limit_seconds=5) == [[("1",)]]


def test_what_the_functions_refuse_is_told_by_its_class() -> None:
    """SPEC 9.5, 9.21: DU001 and DU004."""

    class Refusal(psycopg.Error):
        def __init__(self, code: str, detail: str) -> None:
            self.said = {"sqlstate": code, "message_detail": detail, "message_primary": "no"}

        @property
        def diag(self) -> object:  # type: ignore[override]
            return type("Diagnostic", (), self.said)

    assert isinstance(fault_of(Refusal("DU001", "buried 3"), "store", "write"), HostGoneError)
    assert isinstance(fault_of(Refusal("DU001", "missing 3"), "store", "write"), StoreRewoundError)
    assert "entry 7" in str(fault_of(Refusal("DU004", "7"), "store", "write"))
    other = fault_of(Refusal("22012", ""), "store", "write")
    assert (other.details["code"], other.details["permanent"]) == ("22012", True)


def test_a_wrong_isolation_level_is_refused_by_the_functions_themselves(store: PostgresStoreUnderTest) -> None:
    with pytest.raises(StoreError, match="read committed"):
        store.connection.read("select enter_1()", begin="begin isolation level serializable", within_schema=True,
                              limit_seconds=15)  # fmt: skip


def test_a_lock_by_hand_is_a_fault_that_is_told_and_nothing_is_applied(store: PostgresStoreUnderTest) -> None:
    """SPEC 9.20: `lock_timeout` makes it a fault; the number is repeated."""
    host = TestHost(store, "a" * 32)
    host.join(TASKS)
    store.connection.send(
        f"alter function {store.connection.schema}.write_1 set lock_timeout = '50ms'", limit_seconds=15
    )
    by_hand = Connection(store.url)
    by_hand.send(f"begin; lock table {by_hand.schema}.states", limit_seconds=15)
    with pytest.raises(StoreError, match="locked by hand") as fault:
        host.start(1)
    assert fault.value.details["permanent"] is False
    by_hand.send("rollback", limit_seconds=15)
    assert host.again().refused == ()
    by_hand.close()


def test_a_request_without_an_answer_is_dropped_and_not_cancelled(store: PostgresStoreUnderTest) -> None:
    """SPEC 9.20: the server goes on, and the repetition under its number finds what it did."""
    host = TestHost(store, "a" * 32)
    host.join(TASKS)
    host.read()
    holder = Connection(store.url)
    holder.send(
        f"begin; select pg_advisory_xact_lock('{holder.schema}.cluster'::regclass::oid::int, 0)", limit_seconds=15
    )
    impatient = Connection(store.url)
    impatient.send(f"set duly.now = {store.now}", limit_seconds=15)
    functions = PostgresFunctions(impatient, limit_seconds=0.2)
    functions.__dict__["now"] = store.now
    hasty = TestHost(functions, host.identifier, host.key, 5, host.seen)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"did not answer within 0\.2 s") as fault:
        hasty.start(1, read=False)
    assert fault.value.details["permanent"] is False
    holder.send("rollback", limit_seconds=15)
    holder.close()
    # Applied meanwhile or not: the number has one entry, and its answer is the same for both.
    assert hasty.again().refused == ()
    assert [each["number"] for each in store.tables()["log"]].count(6) == 1
    impatient.close()


def test_a_frozen_client_does_not_hold_the_lock_of_all_writers(store: PostgresStoreUnderTest) -> None:
    """SPEC 9.9: one message is one transaction; a client that never reads its answer stops nobody."""
    host = TestHost(store, "a" * 32)
    host.join(TASKS)
    frozen = Connection(store.url)
    frozen.send("select 1", limit_seconds=15)
    identity = f"{host.key}, '{host.identifier}'"
    message = (
        "begin isolation level read committed; "
        f"select {frozen.schema}.write_1({identity}, 77, 0, null, '{{\"ends\": [], \"starts\": []}}', '[]'); commit"
    )
    inner = frozen._connection
    assert inner is not None
    inner.pgconn.send_query(message.encode())
    while inner.pgconn.flush():
        pass
    assert store.write(host.me, 78, host.seen, Changes()).seq in (2, 3)
    frozen.close()


def test_every_number_is_applied_once_although_backends_are_killed(
    store: PostgresStoreUnderTest, server: PostgresServer
) -> None:
    """0003, SPEC 9.20: a write that failed is repeated under its number until it is answered.

    Backends are killed in the middle of a write until 1,000 writes have failed by it, and some requests are dropped, so
    that the server applies them and nobody hears of it.
    """
    kills = count(full=1_000, quick=25) if server.binaries == bundled_binaries() else 100
    host = TestHost(store, "a" * 32)
    host.join(TASKS)
    host.read()
    store.connection.read(
        "create function nap() returns trigger language plpgsql "
        "as $$ begin perform pg_sleep(0.001); return null; end $$",
        "create trigger nap before insert on log for each statement execute function nap()",
        "create trigger nap_again after insert on log for each statement execute function nap()",
        within_schema=True,
        limit_seconds=15,
    )
    over = threading.Event()

    def kill() -> None:
        with psycopg.connect(server.url(), autocommit=True) as killer:
            while not over.is_set():
                killer.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where query like '%write_1%' "
                    "and wait_event = 'PgSleep' and pid <> pg_backend_pid() and random() < 0.2"
                )

    thread = threading.Thread(target=kill)
    thread.start()
    victims = Connection(store.url)
    patient, hasty = PostgresFunctions(victims), PostgresFunctions(victims, limit_seconds=0.003)
    answers: list[int] = []
    killed = dropped = 0
    try:
        for number in itertools.count(101):
            if killed >= kills and dropped:
                break
            assert number < 100 * kills, f"{killed} kills hit, {dropped} requests dropped"
            for attempt in itertools.count():
                functions = hasty if attempt == 0 and number % 3 == 0 else patient
                try:
                    answers.append(functions.write(host.me, number, host.seen, Changes()).seq)
                    break
                except StoreError as fault:
                    if fault.details["permanent"]:
                        raise
                    dropped += functions is hasty
                    killed += functions is patient  # which waits for its answer: it lost its backend
    finally:
        over.set()
        thread.join(60)
        victims.close()
    log = [(each["number"], each["seq"]) for each in store.tables()["log"] if each["number"] > 100]
    assert log == [(101 + n, seq) for n, seq in enumerate(answers)], "every number once, in order, as it was answered"


# --- the guard of the application's own transactions -----------------------------------------------------------------


def test_a_run_does_not_pass_the_guard_after_a_later_one(store: PostgresStoreUnderTest, server: PostgresServer) -> None:
    """SPEC 9.7: what its transaction has written is undone; other tasks have fences of their own."""
    store.connection.read("create table effects (run int)", within_schema=True, limit_seconds=15)
    here = store.connection.schema

    def act(task: str, fence: int, run: int) -> None:
        with psycopg.connect(server.url()) as connection:
            connection.execute(f"insert into {here}.effects values ({run})".encode())
            connection.execute(f"select {here}.guard(%s, %s)".encode(), (task, fence))

    act("report", 5, 1)
    act("report", 5, 2)  # it may act more than once
    act("report", 7, 3)
    with pytest.raises(psycopg.Error, match="a later run of task report") as raised:
        act("report", 5, 4)
    assert raised.value.sqlstate == "DU008"
    act("backup", 6, 5)
    assert server.execute(f"select array_agg(run order by run) from {here}.effects") == [([1, 2, 3, 5],)]


def test_two_runs_at_the_guard_act_one_after_the_other_and_hosts_wait_for_neither(
    store: PostgresStoreUnderTest, server: PostgresServer
) -> None:
    """SPEC 9.7: a long transaction of the application holds up no start, no beat and no burial."""
    host, other = TestHost(store, "a" * 32), TestHost(store, "b" * 32)
    host.join(TASKS)
    other.join(TASKS)
    passing = f"select {store.connection.schema}.guard('report', %s)".encode()
    with (
        psycopg.connect(server.url()) as earlier,
        psycopg.connect(server.url()) as later,
        ThreadPoolExecutor(1) as pool,
    ):
        earlier.execute(passing, (3,))
        waiting = pool.submit(later.execute, passing, (4,))
        assert host.start(1, 2).refused == ()
        assert len(host.beat().living) == 2
        assert host.bury(other) is not None
        assert not waiting.done()
        earlier.commit()
        waiting.result(60)
        later.commit()
        with pytest.raises(psycopg.Error, match="later run"):
            earlier.execute(passing, (3,))
    assert server.execute(f"select * from {store.connection.schema}.fences") == [("report", 4)]


# --- surgery ---------------------------------------------------------------------------------------------------------


def test_surgery_by_hand_is_told_and_never_endless(store: PostgresStoreUnderTest) -> None:
    """SPEC 9.10, 9.21: a task that was freed by hand, a log that was emptied, tables that were emptied."""
    host = TestHost(store, "a" * 32)
    host.join(TASKS)
    host.start(1)
    by_hand = store.connection
    by_hand.read(
        "update states set run = null, run_cause = null, run_scheduled = null", within_schema=True, limit_seconds=15
    )
    assert host.end(1, 1_000_000_000_001).fenced == (1_000_000_000_001,)
    host.read()
    by_hand.read("delete from log", within_schema=True, limit_seconds=15)
    with pytest.raises(StoreRewoundError, match="entry 3 of the log"):
        host.start(2, read=False)
    by_hand.read("truncate hosts, states", within_schema=True, limit_seconds=15)
    with pytest.raises(StoreRewoundError, match="host 1"):
        host.beat()
    again = TestHost(store, "b" * 32)
    assert again.declare(TASKS, Act.REJOIN).verdict is EditionVerdict.JOINED


def test_a_store_whose_only_row_was_deleted_says_so(store: PostgresStoreUnderTest) -> None:
    """`truncate cluster`: every question gets an error that names the table, and what to do."""
    host = TestHost(store, "a" * 32)
    host.join(TASKS)
    store.connection.read("truncate cluster", within_schema=True, limit_seconds=15)
    for ask in (store.load, host.read, lambda: install(store.connection, store.url)):
        with pytest.raises(StoreError, match="table cluster is empty") as raised:
            ask()
        assert raised.value.details["permanent"]
        assert "backup" in raised.value.details["hint"]


def test_updates_of_starts_and_ends_are_hot_and_use_the_key(store: PostgresStoreUnderTest) -> None:
    """No index on what changes: nine of ten updates rewrite no index."""
    many = {f"task {n}": ("* * * * *", 0) for n in range(400)}
    host = TestHost(store, "a" * 32)
    host.join(many)
    for _ in range(3):
        first = host.key_or_zero * 10**12 + host.runs + 1
        host.start(*range(1, 401))
        runs = tuple(range(first, first + 400))
        host.read()
        host.write(Changes(ends=(host.ended(tuple(range(1, 401)), runs),)))
    asked = "select n_tup_hot_upd, n_tup_upd from pg_stat_user_tables where relid = 'states'::regclass"
    hot = every = 0
    for _ in range(200):  # the server counts with a delay of its own
        ((hot_text, every_text),) = store.connection.read(asked, within_schema=True, limit_seconds=15)[0]
        hot, every = int(hot_text or 0), int(every_text or 0)
        if every >= 2_400:
            break
        store.connection.send("select pg_sleep(0.1)", limit_seconds=15)
    assert every >= 2_400
    assert hot >= 0.85 * every


@pytest.mark.slow
def test_no_write_scans_a_table_that_grows(store: PostgresStoreUnderTest) -> None:
    """Writes of few tasks and of many, beats, news, joining and leaving take their rows by key.

    Whatever the number of tasks, of runs in history, of entries in the log, and of names of long ago.
    """
    host = TestHost(store, "a" * 32)
    host.join({f"task {n}": ("* * * * *", 0) for n in range(100_000)})
    _grow_old(store)
    before = _scans(store)
    host.read()
    # Of a chunk that is a twentieth of all tasks, reading all of them once is the faster way, and the planner knows.
    for many in (1, 1, 1, 1, 1, 1, 1, 500, 1):
        first = host.key_or_zero * 10**12 + host.runs + 1
        some = tuple(range(1, many + 1))
        assert host.start(*some).refused == ()
        host.read()
        host.write(Changes(ends=(host.ended(some, tuple(range(first, first + many))),)))
        host.beat()
    assert _scans(store) == before
    # Another host joins: the request itself, after it has loaded everything.
    other = TestHost(store, "b" * 32)
    request, _ = other.request(host.tasks)
    before = _scans(store)
    assert other.send(request).verdict is EditionVerdict.JOINED
    assert _scans(store) == before
    # A burial looks for the runs of its host, once; so does a leaving.
    assert host.bury(other, beat=0) is not None
    assert _scans(store) == {**before, "states": before["states"] + 1}
    assert host.leave() is not None
    assert _scans(store) == {**before, "states": before["states"] + 2}


GROWING = ("log", "marks", "runs", "states", "tasks")
"""Tables with a row for each task, name, run or entry.

Not `hosts`, which has one for each time that a host has joined, and which each beat reads from end to end.
"""


def _grow_old(store: PostgresStoreUnderTest) -> None:
    """A store as it is after years: history, log, and names that are gone. The numbers are below all others."""
    here = store.connection.schema
    log = f"insert into {here}.log (seq, host, number, at, kind, entry) "
    runs = f"insert into {here}.runs (seq, run, generation, host, cause, scheduled, started_at, outcome) "
    for statement in (
        f"{log} select -n, 0, -n, 0, 'left', '{{}}' from generate_series(0, 50000) n",
        f"{runs} select -n, n, n, 0, 'cron', 0, 0, 'success' from generate_series(1, 50000) n",
        f"insert into {here}.marks select 'gone ' || n, 0, 0 from generate_series(1, 20000) n",
        *(f"analyze {here}.{table}" for table in GROWING),
    ):
        store.connection.send(statement, limit_seconds=60)


@pytest.mark.soak
def test_a_snapshot_that_stays_open_elsewhere_makes_writes_dearer_by_half_at_most(
    store: PostgresStoreUnderTest, server: PostgresServer
) -> None:
    """A dump or a forgotten session keeps every old version of every row; in processor time of the server.

    It measures the machine as well, and takes minutes, so only `make soak` runs it; the next test counts pages.
    """
    host = TestHost(store, "a" * 32)
    host.join({f"task {n}": ("* * * * *", 0) for n in range(SNAPSHOT_TASKS)}, history=100)
    host.read()
    _start_and_end(store, host, 2_000)  # the server has made its plans
    before = _processor_time(store, host)
    with psycopg.connect(server.url()) as forgotten:
        forgotten.execute("set transaction isolation level repeatable read")
        forgotten.execute("select 1 from pg_class")
        is_bundled = server is server_of(bundled_binaries())  # one server makes as many as CLUSTER names
        _start_and_end(store, host, 200_000 if is_bundled else 20_000)
        after = _processor_time(store, host)
    assert after <= 1.5 * before


def test_a_write_passes_over_nothing_that_a_snapshot_elsewhere_keeps_but_versions_of_its_own_rows(
    server: PostgresServer,
) -> None:
    """The share of the test above that needs no long history, in pages that the server looks at.

    PostgreSQL 18 looks at more of them than earlier versions do: why is not known, so its bound is one of its own.
    """
    store = PostgresStoreUnderTest(server)
    host = TestHost(store, "a" * 32)
    host.join({f"task {n}": ("* * * * *", 0) for n in range(SNAPSHOT_TASKS)}, history=100)
    host.read()
    _start_and_end(store, host, 2_000)
    before = _pages(store, host)
    with psycopg.connect(server.url()) as forgotten:
        forgotten.execute("set transaction isolation level repeatable read")
        forgotten.execute("select 1 from pg_class")
        _start_and_end(store, host, 3_000)
        after = _pages(store, host)
        is_newest = forgotten.info.server_version >= 180_000
    store.connection.close()
    print(f"{after} pages instead of {before}")
    assert after <= (1.75 if is_newest else 1.5) * before


SNAPSHOT_TASKS = 500

STARTS_AND_ENDS = """
do $$
declare
  me int := {key}; number_ bigint := {number}; run_ bigint := {run}; seen_ bigint := {seen}; nonce_ uuid := '{nonce}';
  answer jsonb; g text; r text;
begin
  for n in 1..{many} / 2 loop
    g := (n % {tasks} + 1)::text; r := (run_ + n)::text;
    answer := {schema}.write_1(me, '{identifier}', number_ + 2 * n - 1, seen_, nonce_,
      replace(replace('{start}', '4711', g), '9011', r)::jsonb);
    if answer ->> 'refused' <> '{{}}' then raise exception 'refused: %', answer; end if;
    commit;
    answer := {schema}.write_1(me, '{identifier}', number_ + 2 * n, (answer ->> 'seq')::bigint,
      (answer ->> 'nonce')::uuid, replace(replace('{end}', '4711', g), '9011', r)::jsonb);
    if answer ->> 'fenced' <> '{{}}' then raise exception 'fenced: %', answer; end if;
    seen_ := (answer ->> 'seq')::bigint; nonce_ := (answer ->> 'nonce')::uuid;
    commit;
    if n % 10 = 0 then
      perform {schema}.beat_1(me, '{identifier}', seen_, nonce_);
      commit;
    end if;
  end loop;
end $$
"""
"""As a host would ask for them, one transaction each, without the way from here to the server and back."""


def _start_and_end(store: PostgresStoreUnderTest, host: TestHost, many: int) -> None:
    """Let tasks start and end in turn, until there were so many writes, with a beat after every twentieth."""
    start, end = (
        json.dumps(json_of(changes))
        for changes in (
            Changes(starts=(replace(host.starts(4711), first_run=9011),)),
            Changes(ends=(host.ended((4711,), (9011,)),)),
        )
    )
    store.connection.send(
        STARTS_AND_ENDS.format(
            schema=store.connection.schema, key=host.key, identifier=host.identifier, number=host.number, many=many,
            run=host.key_or_zero * 10**12 + host.runs, seen=host.seen.seq, nonce=host.seen.nonce,
            tasks=SNAPSHOT_TASKS, start=start, end=end,
        ),
        limit_seconds=1_800,
    )  # fmt: skip
    host.number += many
    host.runs += many // 2
    host.seen = store.load().position


def _processor_time(store: PostgresStoreUnderTest, host: TestHost) -> int:
    """Nanoseconds that the server spends on 600 writes of a host that reads the log after each."""
    backend = Path(f"/proc/{store.connection.backend_pid}/schedstat")
    before = int(backend.read_text().split()[0])
    for generation in range(1, 301):
        assert host.start(generation, read=False).refused == ()
        host.read()
        assert host.end(generation, host.key_or_zero * 10**12 + host.runs).fenced == ()
        host.read()
    return int(backend.read_text().split()[0]) - before


def _pages(store: PostgresStoreUnderTest, host: TestHost) -> int:
    """Pages that the server looks at for the start and the end of a task."""
    explain, schema, pages = "explain (analyze, buffers, format json) select", store.connection.schema, 0
    run = host.key_or_zero * 10**12 + host.runs + 1
    for changes in (Changes(starts=(host.starts(7),)), Changes(ends=(host.ended((7,), (run,)),))):
        host.number += 1
        asked = (*host.me, host.number, *host.seen, json_of(changes))
        given = ", ".join(map(store.connection.literal, asked))
        ((plan,),) = store.connection.read(f"{explain} {schema}.write_1({given})", limit_seconds=15)[0]
        host.read()
        (top,) = json.loads(plan or "")
        pages += top["Plan"]["Shared Hit Blocks"] + top["Plan"]["Shared Read Blocks"]
    return pages


def _scans(store: PostgresStoreUnderTest) -> dict[str, int]:
    """How often each table that grows was read from end to end; the server counts with a delay of its own."""
    backend = store.connection.backend_pid
    store.connection.close()  # a backend reports what it has counted when it ends
    store.now = store.now
    for _ in range(100):
        gone = f"select count(*) from pg_stat_activity where pid = {backend}"
        if store.connection.read(gone, within_schema=True, limit_seconds=15)[0] == [("0",)]:
            break
        store.connection.send("select pg_sleep(0.3)", limit_seconds=15)
    seen: dict[str, int] = {}
    for _ in range(100):
        rows = store.connection.read(
            f"select relname, seq_scan from pg_stat_user_tables "
            f"where relname = any ('{{{','.join(GROWING)}}}') and schemaname = current_schema()",
            within_schema=True,
            limit_seconds=15,
        )[0]
        now = {name or "": int(scans or 0) for name, scans in rows}
        if now == seen:
            return now
        seen = now
        store.connection.send("select pg_sleep(0.7)", limit_seconds=15)  # up to 14, it tells what was true 0.5 s ago
    raise TimeoutError("the server still counts")
