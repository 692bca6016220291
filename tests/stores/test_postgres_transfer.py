"""Rows that arrive in a schema: their number, hosts and dropped history, and a schema that is not empty."""

from collections.abc import Iterator
from typing import Any

import pytest

from duly.core.moments import Instant
from duly.core.record import FIELDS
from duly.errors import StoreError
from duly.stores.postgres import transfer as module
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.install import schema_version
from duly.stores.postgres.transfer import PostgresContent, arrive, check_free, leaving
from duly.stores.postgres.url import read_url
from duly.stores.transfer import STATE, Extent, Row
from tests.postgres_server import PostgresServer, bundled_binaries, server_of
from tests.stores.shared_hosts import HOUR, MINUTE, NOON
from tests.stores.shared_stores import PostgresStoreUnderTest


def state(generation: int, run: int | None = None) -> Row:
    """The state of a task that waits, or whose run was cut short."""
    known: dict[str, Any] = {"served_through": 60, "interruptions": 0, "failures": 0, "written_by": 1}
    if run is not None:
        known |= {"run": run, "run_cause": "cron", "run_scheduled": NOON, "last_attempt_at": NOON, "attempt": 1}
        known |= {"first_started_at": NOON}
    return [generation if column == "generation" else known.get(column) for column in STATE]


def past(run: int, started_at: int = NOON) -> Row:
    """A success in history."""
    return [run, run, 1, "cron", started_at, started_at, started_at + 5, "success", None, None, started_at, 1, None]


class Moving:
    """The content of a store, as the test makes it up."""

    def __init__(self, *, runs: list[Row], states: list[Row], interrupted: int, highest_run: int) -> None:
        self.zone: str | None = "Europe/Berlin"
        self.highest_generation = 9
        self.highest_run = highest_run
        self.last_sign: Instant | None = Instant(NOON + HOUR)
        self.interrupted = interrupted
        self._runs, self._states = runs, states
        self.hosts: list[Row] = [[1, "a" * 32, NOON], [2, "an odd \0 name", NOON + MINUTE]]
        self.extent = Extent(3, len(states), 1, len(runs))

    def schedulers(self) -> Iterator[Row]:
        return iter(self.hosts)

    def declarations(self) -> Iterator[Row]:
        return iter([[n, f"task {n}", "* * * * *", 0, NOON, None] for n in (1, 2, 3)])

    def states(self) -> Iterator[Row]:
        return iter(self._states)

    def marks(self) -> Iterator[Row]:
        return iter([["gone", 59, NOON]])

    def runs(self) -> Iterator[Row]:
        return iter(self._runs)


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture(scope="module")
def made(server: PostgresServer) -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server)
    yield store
    store.connection.close()


@pytest.fixture
def schema(made: PostgresStoreUnderTest) -> PostgresStoreUnderTest:
    """An empty schema."""
    made.empty()
    return made


def nothing(*_: object) -> None:
    """Neither progress nor an objection."""


def waiting(highest_run: int = 20) -> Moving:
    """Three tasks that wait, and four runs in history."""
    runs = [past(n, NOON + n) for n in (17, 18, 19, 20)]
    return Moving(runs=runs, states=[state(n) for n in (1, 2, 3)], interrupted=0, highest_run=highest_run)


def test_rows_are_sent_in_chunks_and_counted(schema: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three declarations, three states, a mark and four runs; hosts are not among them."""
    monkeypatch.setattr(module, "_ROWS_TOGETHER", 2)
    counted: list[int] = []
    arrive(schema.url, waiting(), counted.append, nothing)
    assert counted == [2, 3, 5, 6, 7, 9, 11]
    tables = schema.tables()
    assert [len(tables[name]) for name in ("tasks", "states", "marks", "runs", "hosts")] == [3, 3, 1, 4, 2]
    assert (tables["cluster"][0]["generation"], tables["cluster"][0]["zone"]) == (9, "Europe/Berlin")
    assert {(each["changed"], each["served_through"]) for each in tables["states"]} == {(0, 60)}


def test_the_schedulers_of_a_file_are_hosts_that_have_left(schema: PostgresStoreUnderTest) -> None:
    """The last one gave the last sign of life; an identifier that is none becomes one."""
    moving = waiting()
    arrive(schema.url, moving, nothing, nothing)
    first, second = schema.tables()["hosts"]
    assert (first["key"], first["identifier"], first["gone"]) == (1, "a" * 32, "l")
    assert (first["since"], first["renewed_at"]) == (NOON, NOON)
    assert (second["key"], second["gone"], len(second["identifier"])) == (2, "l", 32)
    assert (second["since"], second["renewed_at"]) == (NOON + MINUTE, NOON + HOUR)


@pytest.mark.parametrize("sign", [None, NOON])
def test_a_scheduler_lived_when_it_arrived_if_it_gave_no_later_sign(
    schema: PostgresStoreUnderTest, sign: Instant | None
) -> None:
    moving = waiting()
    moving.last_sign = sign
    arrive(schema.url, moving, nothing, nothing)
    assert [each["renewed_at"] for each in schema.tables()["hosts"]] == [NOON, NOON + MINUTE]


def test_instants_before_the_epoch_are_none_of_a_scheduler_without_a_sign(schema: PostgresStoreUnderTest) -> None:
    moving = waiting()
    moving.last_sign, moving.hosts = None, [[1, "a" * 32, 0]]
    arrive(schema.url, moving, nothing, nothing)
    assert [each["renewed_at"] for each in schema.tables()["hosts"]] == [0]


@pytest.mark.parametrize(("highest_run", "first"), [(20, 17), (4, 1), (3, 1), (5, 2)])
def test_history_that_was_dropped_shows_as_missing(
    schema: PostgresStoreUnderTest, highest_run: int, first: int
) -> None:
    arrive(schema.url, waiting(highest_run), nothing, nothing)
    assert [each["seq"] for each in schema.tables()["runs"]] == [first, first + 1, first + 2, first + 3]


@pytest.mark.parametrize(("highest_run", "first"), [(5, 1), (7, 3)])
def test_runs_that_were_cut_short_become_history(schema: PostgresStoreUnderTest, highest_run: int, first: int) -> None:
    """As a burial records them, after all the others; they count as runs that are not missing."""
    runs = [past(n, NOON + n) for n in (1, 2, 3)]
    states = [state(1, 5), state(2, 4), state(3)]
    arrive(schema.url, Moving(runs=runs, states=states, interrupted=2, highest_run=highest_run), nothing, nothing)
    found = [(each["seq"], each["run"], each["outcome"]) for each in schema.tables()["runs"]]
    assert found == [
        *((first + n, n + 1, "success") for n in range(3)),
        (first + 3, 4, "interrupted"),
        (first + 4, 5, "interrupted"),
    ]


def test_a_run_that_was_cut_short_is_numbered_after_what_was_dropped(schema: PostgresStoreUnderTest) -> None:
    """History is empty: the last 6 runs were dropped from it."""
    arrive(schema.url, Moving(runs=[], states=[state(1, 7)], interrupted=1, highest_run=7), nothing, nothing)
    assert [(each["seq"], each["run"]) for each in schema.tables()["runs"]] == [(7, 7)]


def test_texts_that_postgresql_cannot_hold_are_written_out(schema: PostgresStoreUnderTest) -> None:
    moving = waiting()
    moving._runs = [[*past(20)[:7], "failure", "a\0b \udcff", "€", *past(20)[10:]]]
    arrive(schema.url, moving, nothing, nothing)
    (run,) = schema.tables()["runs"]
    assert (run["error"], run["traceback"]) == ("a\\x00b \\udcff", "€")


def test_a_schema_that_is_in_use_is_left_alone(schema: PostgresStoreUnderTest) -> None:
    check_free(schema.url)
    arrive(schema.url, waiting(), nothing, nothing)
    before = schema.tables()
    with pytest.raises(StoreError, match="is not empty: name another schema with --schema") as refused:
        check_free(schema.url)
    assert refused.value.details["permanent"] is True
    with pytest.raises(StoreError, match="is not empty"):
        arrive(schema.url, waiting(), nothing, nothing)
    assert schema.tables() == before


@pytest.mark.parametrize("how", ["check", "arrive"])
def test_a_schema_that_is_not_there_is_created(server: PostgresServer, how: str) -> None:
    url = read_url(server.url(), f"new by {how}")
    connection = Connection(url)
    assert schema_version(connection, url) == 0
    if how == "check":
        check_free(url)
    else:
        arrive(url, waiting(), nothing, nothing)
    assert schema_version(connection, url) == 1
    connection.close()


def test_what_leaves_is_from_one_moment(schema: PostgresStoreUnderTest) -> None:
    """Whatever is written meanwhile."""
    arrive(schema.url, waiting(), nothing, nothing)
    with leaving(schema.url) as content:
        schema.connection.read("delete from runs", "delete from marks", within_schema=True, limit_seconds=15)
        assert (len(list(content.runs())), len(list(content.marks()))) == (4, 1)
        assert content.extent == Extent(3, 3, 1, 4)
        assert content.extent.rows == 11
        assert (content.highest_generation, content.zone, content.interrupted) == (9, "Europe/Berlin", 0)
        assert (content.highest_run, content.last_sign) == (20, NOON + HOUR)
        assert [len(row) for row in content.states()] == [len(FIELDS[5:]) + 1] * 3


def test_an_empty_schema_has_no_run(schema: PostgresStoreUnderTest) -> None:
    with leaving(schema.url) as content:
        assert isinstance(content, PostgresContent)
        assert (content.highest_run, content.last_sign, content.extent) == (0, None, Extent(0, 0, 0, 0))
        assert list(content.schedulers()) == []
