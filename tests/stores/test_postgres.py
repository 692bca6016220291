"""The shared store on real servers: installing, rights, settings, faults, and connections that break."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from duly.core.news import Changes
from duly.errors import HostGoneError, StoreError, StoreRewoundError, StoreSchemaError, StoreVersionError
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.faults import fault_of, is_transient
from duly.stores.postgres.functions import PostgresFunctions
from duly.stores.postgres.install import install
from duly.stores.postgres.script import grants, installation, quoted, script
from duly.stores.postgres.url import StoreUrl, read_url
from duly.stores.shared import Act, EditionVerdict
from tests.counts import count
from tests.postgres_server import PostgresServer, bundled_binaries, debian_binaries, server_of
from tests.stores.shared_hosts import TaskSet, TestHost
from tests.stores.shared_stores import PostgresStoreUnderTest

_schemas = itertools.count(1)

TASKS: TaskSet = {"backup": ("0 3 * * *", 1_000), "report": ("* * * * *", 0)}


@pytest.fixture(
    scope="module",
    params=[bundled_binaries, pytest.param(debian_binaries, marks=pytest.mark.slow)],
    ids=["bundled", "debian"],
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

    Backends are killed in the middle of a write, and some requests are dropped, so that the server applies them and
    nobody hears of it.
    """
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
    over, killed = threading.Event(), 0

    def kill() -> None:
        nonlocal killed
        with psycopg.connect(server.url(), autocommit=True) as killer:
            while not over.is_set():
                rows = killer.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where query like '%write_1%' "
                    "and wait_event = 'PgSleep' and pid <> pg_backend_pid() and random() < 0.02"
                ).fetchall()
                killed += len(rows)

    thread = threading.Thread(target=kill)
    thread.start()
    victims = Connection(store.url)
    patient, hasty = PostgresFunctions(victims), PostgresFunctions(victims, limit_seconds=0.003)
    answers: list[int] = []
    dropped = 0
    try:
        for number in range(101, 101 + count(full=1_000, quick=60)):
            for attempt in itertools.count():
                functions = hasty if attempt == 0 and number % 3 == 0 else patient
                try:
                    answers.append(functions.write(host.me, number, host.seen, Changes()).seq)
                    break
                except StoreError as fault:
                    if fault.details["permanent"]:
                        raise
                    dropped += functions is hasty
    finally:
        over.set()
        thread.join(60)
        victims.close()
    log = [(each["number"], each["seq"]) for each in store.tables()["log"] if each["number"] > 100]
    assert log == [(101 + n, seq) for n, seq in enumerate(answers)], "every number once, in order, as it was answered"
    assert killed > 0
    assert dropped > 0


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
def test_no_write_scans_a_table_of_a_hundred_thousand_tasks(store: PostgresStoreUnderTest) -> None:
    """Writes of few tasks and of many, beats and news take their rows by key, whatever the number of tasks."""
    host = TestHost(store, "a" * 32)
    host.join({f"task {n}": ("* * * * *", 0) for n in range(100_000)})
    for table in ("states", "tasks", "runs", "log"):
        store.connection.send(f"analyze {store.connection.schema}.{table}", limit_seconds=60)
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


def _scans(store: PostgresStoreUnderTest) -> dict[str, int]:
    """How often each of the large tables was read from end to end; the server counts with a delay of its own."""
    store.connection.close()  # a backend reports what it has counted when it ends
    store.now = store.now
    seen: dict[str, int] = {}
    for _ in range(100):
        rows = store.connection.read(
            "select relname, seq_scan from pg_stat_user_tables where relid in ('states'::regclass, 'tasks'::regclass)",
            within_schema=True,
            limit_seconds=15,
        )[0]
        now = {name or "": int(scans or 0) for name, scans in rows}
        if now == seen:
            return now
        seen = now
        store.connection.send("select pg_sleep(0.3)", limit_seconds=15)
    raise TimeoutError("the server still counts")
