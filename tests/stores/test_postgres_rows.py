"""Rows of a shared store inside an open transaction: their types, long answers, and the limit of a statement."""

from collections.abc import Iterator

import pytest

from duly.errors import StoreError
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.rows import ROWS_TOGETHER, JsonRows, snapshot_of
from duly.stores.postgres.url import read_url
from tests.postgres_server import bundled_binaries, server_of


@pytest.fixture
def connection() -> Iterator[Connection]:
    opened = Connection(read_url(server_of(bundled_binaries()).url()))
    yield opened
    opened.close()


@pytest.fixture
def rows(connection: Connection) -> JsonRows:
    connection.send(snapshot_of("duly"), limit_seconds=15)
    return JsonRows(connection)


def test_rows_keep_their_types(rows: JsonRows) -> None:
    assert rows.few("1, 'a', null, true") == [[1, "a", None, True]]
    assert rows.few("n", "from generate_series(1, 3) n") == [[1], [2], [3]]
    assert rows.few("1", "where false") == []


@pytest.mark.parametrize("many", [0, 1, ROWS_TOGETHER, ROWS_TOGETHER + 1, 2 * ROWS_TOGETHER, 2 * ROWS_TOGETHER + 1])
def test_a_long_answer_is_fetched_in_chunks(rows: JsonRows, many: int) -> None:
    source = f"from generate_series(1, {many}) n order by n"
    assert [n for (n,) in rows.many("n", source)] == list(range(1, many + 1))
    assert [len(chunk) for chunk in rows.chunks("n", source)] == [
        min(ROWS_TOGETHER, many - first) for first in range(0, many, ROWS_TOGETHER)
    ]


def test_two_long_answers_may_be_open_at_once(rows: JsonRows) -> None:
    asked = [rows.many("n", f"from generate_series({first}, 5000) n order by n") for first in (1, 2)]
    assert [[one, other] for (one,), (other,) in zip(*asked, strict=False)][-1] == [4_999, 5_000]


@pytest.mark.parametrize(("seconds", "milliseconds"), [(None, 0), (0.0001, 1), (0.25, 250), (20, 20_000)])
def test_a_limit_is_at_least_a_millisecond(seconds: float | None, milliseconds: int) -> None:
    """0 would be no limit at all, for PostgreSQL."""
    assert f"set local statement_timeout = {milliseconds};" in snapshot_of("duly", seconds)


def test_the_server_ends_a_statement_that_takes_too_long(connection: Connection) -> None:
    connection.send(snapshot_of("duly", 0.05), limit_seconds=15)
    with pytest.raises(StoreError) as ended:
        JsonRows(connection).few("pg_sleep(60)::text")
    assert ended.value.details["code"] == "57014"
