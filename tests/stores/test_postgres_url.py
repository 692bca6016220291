"""URLs of shared stores: what is read, what is refused, and that no password is ever shown."""

import sys

import pytest

from duly.errors import StoreError
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.url import check_path, check_schema, is_url, read_url

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://app@db.example:5433/shop", "postgresql://app@db.example:5433/shop (schema duly)"),
        ("postgres://app:s3cret@db/shop?sslmode=require", "postgresql://app@db/shop (schema duly)"),
        ("postgresql://db/shop?user=app&password=s3cret", "postgresql://app@db/shop (schema duly)"),
        ("postgresql://app:s3cret@[::1]:5432/shop", "postgresql://app@[::1]:5432/shop (schema duly)"),
        ("postgresql://a:s3cret@one:1,two:2/shop", "postgresql://a@one:1,two:2/shop (schema duly)"),
        ("postgresql://one,two/shop?port=5433", "postgresql://one:5433,two:5433/shop (schema duly)"),
        ("postgresql://one:1,two/shop", "postgresql://one:1,two/shop (schema duly)"),
        ("postgresql://one/shop?port=1,2", "postgresql://one:1/shop (schema duly)"),  # libpq refuses to connect
        ("postgresql:///shop?host=/run/pg", "postgresql://%2Frun%2Fpg/shop (schema duly)"),
        ("postgresql://?service=shop", "postgresql:// (service shop, schema duly)"),
        ("postgresql://", "postgresql:// (schema duly)"),
        ("POSTGRESQL://app:s3cret@db/Shop", "postgresql://app@db/Shop (schema duly)"),
        ("Postgres://app:s3cret@db/shop", "postgresql://app@db/shop (schema duly)"),
        ("postgresql://a%40b:s3%40cret@db/x%20y", "postgresql://a%40b@db/x%20y (schema duly)"),
    ],
)
def test_a_store_is_named_without_password_and_query_part(url: str, name: str) -> None:
    """SPEC 9.22."""
    assert read_url(url).name == name
    assert SECRET not in repr(read_url(url)) + repr(Connection(read_url(url)))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://app:s3cret@db/shop", "is SQLAlchemy's: write postgresql:// instead"),
        ("postgres+asyncpg://app:s3cret@db/shop", "is SQLAlchemy's: write postgres:// instead"),
        ("postgresql://app:s3cret@pass@db/shop", "more than one @"),
        ("postgresql://app:s3cret/word@db/shop", "cannot be read"),
        ("postgresql://app:s3cret/word@db:77/shop", "cannot be read"),
        ("postgresql://app:5/s3cret@db", "an @ after the first /"),
        ("postgresql://db:s3cret/shop", "port is not a number"),
        ("postgresql://one:5432,two:s3cret/shop", "port is not a number"),
        ("postgresql://db/shop?nonsense=s3cret", "libpq cannot read it"),
        ("postgresql://db/shop?pass%zzs3cret", "libpq cannot read it"),
        ("mysql://app:s3cret@db/shop", "begins with postgresql://, not with mysql://"),
        ("s3cret", "a URL that begins with postgresql://"),
        ("Postgresql+psycopg://app:s3cret@db/shop", "write postgresql:// instead"),
        ("postgresql+psycopg:app:s3cret@db/shop", "a URL that begins with postgresql://"),
        ("postgresql://app@db/shop?password=s3cret'", "ends with a quote or a blank: leave out quotes and blanks"),
        ("postgresql://app:s3cret@db/shop\n", "ends with a quote or a blank: leave out quotes and blanks"),
        (" postgresql://app:s3cret@db/shop", "leave out quotes and blanks"),
        ('"postgresql://app:s3cret@db/shop"', "leave out quotes and blanks"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_quoting_it(url: str, message: str) -> None:
    """SPEC 9.22: libpq's own message would quote a part of the password."""
    with pytest.raises(StoreError, match=message) as refused:
        read_url(url)
    assert SECRET not in f"{refused.value} {refused.value.details} {refused.value.__cause__}"


@pytest.mark.parametrize("schema", ["", "a\0b", "a\nb", "x" * 64, "ü" * 32, "pg_duly", "public"])
def test_a_schema_that_cannot_be_dulys_own_is_refused(schema: str) -> None:
    with pytest.raises(StoreError, match="The schema's name"):
        read_url("postgresql://db/shop", schema)


def test_names_that_are_postgresqls_own_are_said_to_be_taken() -> None:
    with pytest.raises(StoreError, match="is taken: public, information_schema and all names that begin with pg_"):
        check_schema("pg_catalog")


def test_a_schema_may_have_as_many_bytes_as_a_name_in_postgresql() -> None:
    assert read_url("postgresql://db/shop", "x" * 63).schema == "x" * 63


def test_psycopg_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match="psycopg is not installed") as refused:
        read_url("postgresql://app:s3cret@db/shop")
    assert refused.value.details["hint"] == 'pip install "duly[postgres]"'
    assert SECRET not in f"{refused.value} {refused.value.details}"


def test_of_several_hosts_the_primary_is_wanted() -> None:
    """SPEC 9.22: libpq's several hosts work; a standby must not be taken for the primary."""
    assert read_url("postgresql://one,two/shop").parameters["target_session_attrs"] == "read-write"
    chosen = read_url("postgresql://one,two/shop?target_session_attrs=any")
    assert chosen.parameters["target_session_attrs"] == "any"
    assert "target_session_attrs" not in read_url("postgresql://one/shop").parameters


@pytest.mark.parametrize("text", ["postgresql://db", "postgres://db", "postgresql+psycopg://db", "postgresql:/db"])
def test_a_url_is_not_taken_for_a_file(text: str) -> None:
    assert is_url(text)
    assert not is_url("duly.db")
    assert not is_url("./postgresql.db")


@pytest.mark.parametrize(
    "path",
    [
        "/srv//duly/state.db",
        "./a:b.db",
        "a:b.db",
        "C:/duly/state.db",
        ":memory:",
        "postgres.db",
        "postgresql/state.db",
        "backup@home/state.db",
        "./12:00@home.db",
        "../12:00@home.db",
        "/backup/12:00@home/state.db",
        " state.db",
        '"state.db"',
    ],
)
def test_a_path_is_not_taken_for_a_url(path: str) -> None:
    assert not is_url(path)
    check_path(path)
