"""Where a store is: what a path and a URL are taken for, and how stores are named for people, commands and metrics."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly.stores import PostgresReader, PostgresStore, SqliteReader, label_of, reader_of
from duly.stores.place import name_of, options_of, place_of
from duly.stores.postgres.url import StoreUrl, read_url
from tests.postgres_server import bundled_binaries, server_of

URL = "postgresql://app:s3cret@db:5433/shop"


@pytest.mark.parametrize("given", ["state.db", Path("state.db"), Path("postgresql:") / "db"])
def test_a_path_is_a_file_whatever_it_looks_like(given: str | Path) -> None:
    assert place_of(given) == Path(given)


def test_a_url_is_a_schema_of_a_database() -> None:
    assert place_of(URL) == read_url(URL, "duly")
    assert place_of(URL, "jobs") == read_url(URL, "jobs")
    read = read_url(URL, "jobs")
    assert place_of(read, "another") is read


@pytest.mark.parametrize(
    ("place", "name", "options"),
    [
        (Path("some/state.db"), "some/state.db", ["--store", str(Path("some/state.db").absolute())]),
        (read_url(URL), "postgresql://app@db:5433/shop (schema duly)", ["--store", "postgresql://app@db:5433/shop"]),
        (
            read_url(URL, "jobs"),
            "postgresql://app@db:5433/shop (schema jobs)",
            ["--store", "postgresql://app@db:5433/shop", "--schema", "jobs"],
        ),
    ],
)
def test_people_and_commands_name_a_store_without_its_password(
    place: Path | StoreUrl, name: str, options: list[str]
) -> None:
    """SPEC 9.22."""
    assert name_of(place) == name
    assert options_of(place) == options


@pytest.mark.parametrize(
    ("store", "label"),
    [
        ("some/state.db", "state.db"),
        (Path("/var/lib/state.db"), "state.db"),
        (URL, "shop.jobs"),
        ("postgresql://?service=mart", "mart.jobs"),
        ("postgresql://db/shop?service=mart", "shop.jobs"),
        ("postgresql://", "jobs"),
    ],
)
def test_the_label_of_a_store_is_short(store: str | Path, label: str) -> None:
    """The name of its file, or database and schema, as far as the URL tells the database."""
    assert label_of(store, schema="jobs") == label


def test_the_reader_of_a_place_is_the_one_for_its_kind(tmp_path: Path) -> None:
    assert isinstance(reader_of(tmp_path / "state.db", lambda: 0), SqliteReader)
    there = reader_of(URL, lambda: 0, schema="jobs")
    assert isinstance(there, PostgresReader)
    assert repr(there) == "PostgresReader('postgresql://app@db:5433/shop (schema jobs)')"


def test_a_reader_keeps_as_many_connections_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default each question has its own."""
    url = server_of(bundled_binaries()).url()
    PostgresStore(url, schema="a place").install()
    opened: list[psycopg.Connection[Any]] = []
    connect = psycopg.Connection.connect

    def noted(**parameters: Any) -> psycopg.Connection[Any]:
        opened.append(connect(**parameters))
        return opened[-1]

    monkeypatch.setattr(psycopg.Connection, "connect", noted)
    reader = reader_of(url, lambda: 0, schema="a place")
    assert reader.version() is not None
    assert [each.closed for each in opened] == [True]
    keeping = reader_of(url, lambda: 0, schema="a place", connections_kept=1)
    assert keeping.version() == keeping.version()
    assert [each.closed for each in opened] == [True, False]
    assert isinstance(keeping, PostgresReader)
    keeping.close()
    assert [each.closed for each in opened] == [True, True]
