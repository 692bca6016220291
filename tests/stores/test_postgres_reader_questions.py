"""Questions to the reader of a shared store: which are asked again, on which connection, and which faults are told."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from duly.core.moments import Instant
from duly.errors import StoreCorruptedError, StoreError, TaskInvalidStructureError, TaskTryDeserializeError, TraceError
from duly.stores import PostgresReader, View
from duly.stores.port import RunSelection, StoredHost
from duly.stores.postgres.reader import _arrivals, _expression, unstorable
from tests.postgres_server import bundled_binaries, server_of
from tests.stores.shared_hosts import NOON, TestHost
from tests.stores.shared_stores import PostgresStoreUnderTest, lines_of_view

RECOVERY_CONFLICT = "40001"
CANCELLED = "57014"


@pytest.fixture(scope="module")
def store() -> Iterator[PostgresStoreUnderTest]:
    made = PostgresStoreUnderTest(server_of(bundled_binaries()))
    TestHost(made, "a" * 32).join({"report": ("* * * * *", 0)})
    yield made
    made.connection.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, store: PostgresStoreUnderTest) -> list[psycopg.Connection[Any]]:
    """The connections that readers open meanwhile."""
    found: list[psycopg.Connection[Any]] = []
    connect = psycopg.Connection.connect

    def noted(**parameters: Any) -> psycopg.Connection[Any]:
        found.append(connect(**parameters))
        return found[-1]

    monkeypatch.setattr(psycopg.Connection, "connect", noted)
    return found


def failing(times: int, code: str, *, permanent: bool = False) -> Callable[[View], int]:
    """A question that fails so often, and is then answered with the number of times that it was asked."""
    asked = 0

    def question(view: View) -> int:
        nonlocal asked
        asked += 1
        if asked <= times:
            raise StoreError(f"time {asked}", store="the store", code=code, permanent=permanent)
        return asked

    return question


def ask_at_once(reader: PostgresReader, many: int) -> None:
    """Ask so many questions that none of them has a connection that another one has used."""
    reader.read(lambda view: ask_at_once(reader, many - 1) if many > 1 else None)


def break_off(store: PostgresStoreUnderTest, connections: list[psycopg.Connection[Any]]) -> None:
    """End these connections, as a restart of the server does."""
    for connection in connections:
        store.connection.send(f"select pg_terminate_backend({connection.info.backend_pid}, 30000)", limit_seconds=60)


def test_a_snapshot_that_a_standby_had_to_end_is_taken_again(
    store: PostgresStoreUnderTest, opened: list[psycopg.Connection[Any]]
) -> None:
    reader = PostgresReader(store.url)
    assert reader.read(failing(2, RECOVERY_CONFLICT)) == 3
    with pytest.raises(StoreError, match="time 3"):
        reader.read(failing(9, RECOVERY_CONFLICT))
    assert [each.closed for each in opened] == [True] * 6


def test_a_fault_on_a_connection_of_its_own_is_told_at_once(store: PostgresStoreUnderTest) -> None:
    reader = PostgresReader(store.url)
    with pytest.raises(StoreError, match="time 1"):
        reader.read(failing(1, "57P01"))


def test_a_fault_that_stays_is_told_at_once_whatever_the_connection(
    store: PostgresStoreUnderTest, opened: list[psycopg.Connection[Any]]
) -> None:
    reader = PostgresReader(store.url, connections_kept=1)
    reader.version()
    with pytest.raises(StoreError, match="time 1"):
        reader.read(failing(1, "42501", permanent=True))
    assert [each.closed for each in opened] == [True]
    reader.version()
    assert reader.read(failing(1, "57P01")) == 2, "a connection that was kept may have broken"
    reader.close()


def test_only_the_limit_of_the_reader_is_told_as_such(store: PostgresStoreUnderTest) -> None:
    """A statement may also be cancelled by hand, which is told as PostgreSQL tells it."""
    with pytest.raises(StoreError, match=r"did not answer a question within 2\.5 s") as limited:
        PostgresReader(store.url, statement_seconds_max=2.5).read(failing(1, CANCELLED))
    found = {name: limited.value.details[name] for name in ("operation", "code", "permanent")}
    assert found == {"operation": "read", "code": CANCELLED, "permanent": False}
    with pytest.raises(StoreError, match="time 1"):
        PostgresReader(store.url).read(failing(1, CANCELLED))
    with pytest.raises(StoreError, match="time 1"):
        PostgresReader(store.url, statement_seconds_max=2.5).read(failing(1, "57P01"))


def test_no_more_connections_are_kept_than_were_asked_for(
    store: PostgresStoreUnderTest, opened: list[psycopg.Connection[Any]]
) -> None:
    reader = PostgresReader(store.url, connections_kept=2)
    ask_at_once(reader, 3)
    assert sorted(each.closed for each in opened) == [False, False, True]
    ask_at_once(reader, 2)
    assert len(opened) == 3
    reader.close()
    assert all(each.closed for each in opened)


def test_by_default_no_connection_is_kept(store: PostgresStoreUnderTest, opened: list[psycopg.Connection[Any]]) -> None:
    reader = PostgresReader(store.url)
    assert reader.read(lambda view: view.count_tasks()) == 1
    assert reader.version() is not None
    assert [each.closed for each in opened] == [True, True]


def test_a_reader_that_is_gone_leaves_no_connection(
    store: PostgresStoreUnderTest, opened: list[psycopg.Connection[Any]]
) -> None:
    reader = PostgresReader(store.url, connections_kept=1)
    reader.version()
    assert [each.closed for each in opened] == [False]
    del reader
    assert [each.closed for each in opened] == [True]


@pytest.mark.parametrize("kept", [1, 4])
def test_a_restart_of_the_server_is_nothing_to_report_however_many_connections_are_kept(
    store: PostgresStoreUnderTest, opened: list[psycopg.Connection[Any]], kept: int
) -> None:
    """Three that had broken, one after the other, made a question fail, although the server was there again."""
    reader = PostgresReader(store.url, connections_kept=kept)
    for ask in (lambda: reader.read(lambda view: view.count_tasks()), reader.version):
        ask_at_once(reader, kept)
        before = ask()
        break_off(store, [each for each in opened if not each.closed])
        assert ask() == before
    reader.close()


def test_a_store_that_cannot_be_read_has_no_version(store: PostgresStoreUnderTest) -> None:
    store.connection.read("alter table cluster rename to others", within_schema=True, limit_seconds=15)
    assert PostgresReader(store.url).version() is None
    store.connection.read("alter table others rename to cluster", within_schema=True, limit_seconds=15)
    reader = PostgresReader(store.url)
    assert reader.version() == reader.version() is not None
    assert repr(reader) == f"PostgresReader('{reader.name}')"
    assert reader.name == store.url.name


def test_a_fault_that_says_nothing_of_its_kind_stays(store: PostgresStoreUnderTest) -> None:
    """Such as that of a question that found the store unused."""
    reader, asked = PostgresReader(store.url, connections_kept=1), []
    reader.version()

    def question(view: View) -> None:
        asked.append(view)
        raise StoreError("no", store="the store")

    with pytest.raises(StoreError, match="no"):
        reader.read(question)
    assert len(asked) == 1
    reader.close()


def test_a_server_that_is_not_there_is_told_as_it_is() -> None:
    gone = PostgresReader("postgresql://app@127.0.0.1:1/shop")
    with pytest.raises(StoreError, match="cannot be reached") as fault:
        gone.read(lambda view: view.count_tasks())
    assert fault.value.details["permanent"] is False
    assert gone.version() is None


# --- what is not as duly wrote it ------------------------------------------------------------------------------------


@pytest.fixture
def damaged() -> Iterator[PostgresStoreUnderTest]:
    """A store of its own that is changed by hand."""
    made = PostgresStoreUnderTest(server_of(bundled_binaries()))
    TestHost(made, "a" * 32).join({"report": ("* * * * *", 0), "backup": ("0 3 * * *", 0)})
    yield made
    made.connection.close()


def by_hand(store: PostgresStoreUnderTest, *statements: str) -> PostgresReader:
    store.connection.read(*statements, within_schema=True, limit_seconds=15)
    return PostgresReader(store.url)


def test_a_store_without_its_only_row_is_damaged(damaged: PostgresStoreUnderTest) -> None:
    reader = by_hand(damaged, "truncate cluster")
    with pytest.raises(StoreCorruptedError, match="its table `cluster` is empty: restore a backup"):
        reader.read(lambda view: view.count_tasks())
    assert reader.version() is None


def test_a_schema_of_something_else_is_a_fault_that_stays(damaged: PostgresStoreUnderTest) -> None:
    reader = by_hand(damaged, "alter table cluster rename column edition to issue")
    with pytest.raises(StoreError, match="schema of something else") as fault:
        reader.read(lambda view: view.count_tasks())
    assert fault.value.details["permanent"] is True


def test_a_store_that_was_filled_by_a_copy_is_in_use_before_a_host_came(damaged: PostgresStoreUnderTest) -> None:
    """It has generations, and no edition yet."""
    reader = by_hand(damaged, "update cluster set edition = 0", "delete from editions", "delete from log")
    snapshot = reader.read(lambda view: view.snapshot())
    assert snapshot.cluster is not None
    assert (snapshot.cluster.edition, snapshot.cluster.in_force_since, snapshot.cluster.position) == (0, 0, 0)


def test_an_edition_is_in_force_since_it_was_put_in_force_as_far_as_the_log_says(
    damaged: PostgresStoreUnderTest,
) -> None:
    def since(*statements: str) -> int:
        snapshot = by_hand(damaged, *statements).read(lambda view: view.snapshot())
        assert snapshot.cluster is not None
        return snapshot.cluster.in_force_since

    assert since(f"update log set at = {NOON + 7}") == NOON + 7
    assert since("delete from log") == NOON


@pytest.mark.parametrize("question", ["count_tasks", "tasks", "cohorts"])
def test_a_task_without_a_state_is_told(damaged: PostgresStoreUnderTest, question: str) -> None:
    reader = by_hand(damaged, "delete from states where generation = 1")
    ask: dict[str, Callable[[View], object]] = {
        "count_tasks": lambda view: view.count_tasks(),
        "tasks": lambda view: view.tasks(),
        "cohorts": lambda view: list(view.cohorts(NOON)),
    }
    with pytest.raises(TaskInvalidStructureError, match="1 states for 2 tasks"):
        reader.read(ask[question])


def test_a_state_of_another_declaration_is_told(damaged: PostgresStoreUnderTest) -> None:
    reader = by_hand(damaged, "update states set generation = 99 where generation = 1")
    with pytest.raises(TaskInvalidStructureError, match="1 tasks with a state of their own, of 2"):
        reader.read(lambda view: list(view.cohorts(NOON)))


def test_an_expression_that_duly_did_not_write_is_told_by_its_record(damaged: PostgresStoreUnderTest) -> None:
    reader = by_hand(damaged, "update tasks set cron = 'daily' where generation = 1")
    with pytest.raises(TaskTryDeserializeError, match="Invalid value for field 'cron'"):
        reader.read(lambda view: list(view.cohorts(NOON)))


def test_the_size_of_a_store_is_that_of_its_tables(store: PostgresStoreUnderTest) -> None:
    size = PostgresReader(store.url).read(lambda view: view.size())
    assert size is not None
    assert size > 8_192


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, False) for text in ("", "plain", "€ 😀", "\ud7ff", "\ue000")),
        *((text, True) for text in ("\0", "a\0b", "\ud800", "\udfff", "a \udcff b")),
    ],
)
def test_texts_that_postgresql_cannot_hold_are_known(text: str, expected: bool) -> None:
    assert unstorable(text) is expected


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [
        ("", "^$"),
        ("ab", "^ab$"),
        ("a*b?", "^a.*b.$"),
        ("[ab]c", "^[ab]c$"),
        ("[^ab]c", "^[^ab]c$"),
        ("[]a]b", "^[\\]a]b$"),
        ("[^]a]b", "^[^\\]a]b$"),
        ("[a-c]x", "^[a-c]x$"),
        ("[a-cx-z]", "^[a-cx-z]$"),
        ("[a-]", "^[a\\-]$"),
        ("[-a]", "^[\\-a]$"),
        ("[a-a]", "^[a-a]$"),
        ("[c-a]", "$a"),
        ("[^c-a]b", "^.b$"),
        ("[c-ax]", "^[x]$"),
        ("[ab", "$a"),
        ("[", "$a"),
        ("[]", "$a"),
        ("a.b", "^a\\.b$"),
        ("é_1", "^é\\_1$"),
    ],
)
def test_a_pattern_of_names_is_written_as_a_regular_expression(pattern: str, expression: str) -> None:
    """As SQLite's GLOB reads it; the contract of readers compares what is found."""
    assert _expression(pattern) == expression


def test_only_a_host_that_came_after_the_last_beat_of_all_others_took_the_store_over() -> None:
    def host(since: int, beat_at: int) -> StoredHost:
        return StoredHost(1, "a" * 32, None, Instant(since), 30_000_000, 1, Instant(beat_at), None)

    assert _arrivals([]) == []
    assert _arrivals([host(0, 9)]) == [0]
    assert _arrivals([host(10, 20), host(0, 9)]) == [0, 10]
    assert _arrivals([host(0, 9), host(9, 20)]) == [0], "it may have met the other one"
    assert _arrivals([host(0, 30), host(5, 6), host(20, 40)]) == [0]


# --- answers ---------------------------------------------------------------------------------------------------------


def test_runs_are_found_by_their_causes(damaged: PostgresStoreUnderTest) -> None:
    host = TestHost(damaged, "b" * 32)
    host.join({"report": ("* * * * *", 0), "backup": ("0 3 * * *", 0)})
    host.start(1, 2)
    reader = by_hand(damaged, "update states set run_cause = 'retry' where generation = 2")

    def found(*causes: str) -> set[int]:
        return reader.read(lambda view: {run.generation for run in view.runs(RunSelection(causes=causes))})

    assert [found("cron"), found("retry"), found("cron", "retry"), found("interrupted"), found()] == [
        {1},
        {2},
        {1, 2},
        set(),
        {1, 2},
    ]


def test_a_declaration_is_found_by_its_number(store: PostgresStoreUnderTest) -> None:
    reader = PostgresReader(store.url)
    found = reader.read(lambda view: view.declaration(1))
    assert found is not None
    assert (found.generation, found.task, found.expression) == (1, "report", "* * * * *")
    assert reader.read(lambda view: view.declaration(2)) is None


def test_the_last_sign_of_life_outlives_hours_without_any(damaged: PostgresStoreUnderTest) -> None:
    """The host of the first hour has left; another one came in the second."""
    half, hour = Instant(NOON + 1_800_000_000), Instant(NOON + 3_600_000_000)
    damaged.connection.read("update hosts set gone = 'l'", within_schema=True, limit_seconds=15)
    damaged.now = hour
    TestHost(damaged, "b" * 32).join({"report": ("* * * * *", 0), "backup": ("0 3 * * *", 0)})
    reader = PostgresReader(damaged.url)
    assert reader.read(lambda view: view.snapshot().arrivals) == [NOON, hour]
    signs = reader.read(lambda view: [view.last_sign_of_life(at) for at in (NOON, half, hour, Instant(hour + 1))])
    assert signs == [None, NOON, NOON, hour]


def test_a_trace_without_an_entry_has_no_position(damaged: PostgresStoreUnderTest) -> None:
    TestHost(damaged, "b" * 32).join({"other": ("* * * * *", 0), "report": ("* * * * *", 0)}, traced=True)
    before = PostgresReader(damaged.url).read(lambda view: view.trace())
    after = by_hand(damaged, "delete from log").read(lambda view: view.trace())
    assert before is not None
    assert after is not None
    assert (before.position > 0, after.position) == (True, 0)
    assert (after.segments, after.first_seq, after.seal) == (1, 1, "open")


def test_tracebacks_come_with_runs_if_they_are_asked_for(damaged: PostgresStoreUnderTest) -> None:
    reader = by_hand(
        damaged,
        "insert into runs (seq, run, generation, host, cause, scheduled, started_at, ended_at, outcome, error, "
        f"traceback, first_started_at, attempt) values (1, 1000000000001, 1, 1, 'cron', {NOON}, {NOON}, {NOON + 5}, "
        f"'failure', 'it broke', 'line 7', {NOON}, 1)",
    )

    def found(tracebacks: bool) -> list[tuple[str | None, str | None]]:
        return reader.read(
            lambda view: [(run.error, run.traceback) for run in view.runs(RunSelection(), tracebacks=tracebacks)]
        )

    assert found(True) == [("it broke", "line 7")]
    assert found(False) == [("it broke", None)]
    assert reader.read(lambda view: [run.traceback for run in view.runs(RunSelection())]) == [None]


def test_the_latest_runs_come_first_unless_the_oldest_are_asked_for(damaged: PostgresStoreUnderTest) -> None:
    host = TestHost(damaged, "b" * 32)
    host.join({"report": ("* * * * *", 0), "backup": ("0 3 * * *", 0)})
    host.start(2, 1)
    reader = PostgresReader(damaged.url)
    latest_first = reader.read(lambda view: [run.generation for run in view.runs(RunSelection())])
    oldest_first = reader.read(lambda view: [run.generation for run in view.runs(RunSelection(), oldest_first=True)])
    assert (latest_first, oldest_first) == ([1, 2], [2, 1])


def test_a_store_is_held_since_the_first_of_its_living_hosts_came(damaged: PostgresStoreUnderTest) -> None:
    damaged.now = Instant(NOON + 5)
    TestHost(damaged, "b" * 32).join({"report": ("* * * * *", 0), "backup": ("0 3 * * *", 0)})
    holder = PostgresReader(damaged.url, now=lambda: damaged.now).read(lambda view: view.snapshot().holder)
    assert (holder.alive, holder.since, holder.last_poll_at) == (True, NOON, NOON + 5)


@pytest.mark.parametrize(
    ("kind", "ended", "living", "seal"),
    [
        ("left", False, False, "clean"),
        ("left", False, True, "open"),
        ("left", True, False, "open"),  # an edition that keeps no trace was put in force after it
        ("buried", False, False, "open"),
        ("written", False, True, "open"),
    ],
)
def test_a_trace_is_over_when_the_last_host_has_left(
    damaged: PostgresStoreUnderTest, kind: str, ended: bool, living: bool, seal: str
) -> None:
    """SPEC 9.19."""
    TestHost(damaged, "b" * 32).join({"other": ("* * * * *", 0), "report": ("* * * * *", 0)}, traced=True)
    reader = by_hand(
        damaged,
        f"update hosts set gone = {'null' if living else repr('l')}",
        f"update log set kind = '{kind}' where seq = (select max(seq) from log)",
        f"update cluster set trace_last = {'(select max(seq) from log)' if ended else 'null'}",
    )
    stored = reader.read(lambda view: view.trace())
    assert stored is not None
    assert stored.seal == seal


def test_tasks_with_runs_are_counted(damaged: PostgresStoreUnderTest) -> None:
    """None, one, or more than are asked for; one of them by its name."""
    reader = PostgresReader(damaged.url)

    def counted(which: RunSelection) -> tuple[int, list[str]]:
        tasks, found = reader.read(lambda view: view.runs_by_task(which, limit=1, latest=3))
        return tasks, [each.task for each in found]

    assert counted(RunSelection()) == (0, [])
    assert counted(RunSelection(task="report")) == (0, [])
    host = TestHost(damaged, "b" * 32)
    host.join({"report": ("* * * * *", 0), "backup": ("0 3 * * *", 0)})
    host.start(1)
    assert counted(RunSelection()) == (1, ["report"])
    host.start(2)
    assert counted(RunSelection()) == (2, ["report"])
    assert counted(RunSelection(task="backup")) == (1, ["backup"])


def test_an_entry_that_duly_did_not_write_is_no_line_of_the_trace(damaged: PostgresStoreUnderTest) -> None:
    """No line can be named but the first one, because the log has none."""
    TestHost(damaged, "b" * 32).join({"other": ("* * * * *", 0), "report": ("* * * * *", 0)}, traced=True)
    reader = by_hand(damaged, "update log set entry = '{}' where seq = (select max(seq) from log)")
    with pytest.raises(TraceError) as caught:
        reader.read(lines_of_view)
    assert (caught.value.details["fault"], caught.value.details["line"]) == ("malformed", 1)
    assert "of the log is not what duly wrote: KeyError('" in caught.value.details["reason"]
