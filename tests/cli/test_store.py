"""`duly store` against a real server: what it installs, what it objects to, and that it shows no password."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Outcome, duly
from tests.postgres_server import PostgresServer, bundled_binaries, server_of

SECRET = "s3cret"


class Shop:
    """A database with its owner, and a role that may only connect."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        server.execute("drop database if exists shop", "drop role if exists admin", "drop role if exists app")
        server.execute("create role admin login", "create role app login", "create database shop owner admin")

    def store(self, *arguments: str, **environment: str) -> Outcome:
        return duly("store", *arguments, folder=self.folder, PGHOST=str(self.server.folder), **environment)

    def found(self, user: str = "app", *arguments: str) -> dict[str, tuple[str, str]]:
        """The findings of `check`, by subject: weight and text."""
        done = self.store("check", f"postgresql://{user}@/shop", "--json", *arguments)
        assert done.err == ""
        return {each["subject"]: (each["weight"], each["text"]) for each in json.loads(done.out)["findings"]}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(server_of(bundled_binaries()), tmp_path)
    yield made
    made.server.execute("drop database shop with (force)", "drop role app", "drop role admin")


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return server_of(bundled_binaries())


def test_what_sql_prints_installs_a_store_that_a_role_can_use(shop: Shop) -> None:
    """SPEC 9.22: for migration tools; `--grant` adds the rights of a host."""
    script = shop.store("sql", "--schema", 'shop "1"', "--grant", "app").out
    shop.server.execute(script, database="shop")
    done = shop.store("check", "postgresql://app@/shop", "--schema", 'shop "1"')
    assert (done.code, done.err) == (0, "")
    assert "rights: role app has those of a host" in done.out


def test_install_creates_the_schema_once(shop: Shop) -> None:
    """SPEC 9.22."""
    first = shop.store("install", "postgresql://admin@/shop")
    assert first.out == "postgresql://admin@/shop (schema duly): version 1 installed\n"
    again = shop.store("install", "postgresql://admin@/shop", "--json")
    assert json.loads(again.out)["installed"] is False


def test_a_role_that_may_not_install_is_told_the_command(shop: Shop) -> None:
    """SPEC 9.22: `StoreSchemaError`, whose hint is the command."""
    done = shop.store("install", "postgresql://app@/shop")
    assert done.code == 4
    assert "the role may not create them" in done.err
    assert "duly store install postgresql://app@/shop" in done.err


def test_check_objects_to_what_would_stop_a_host(shop: Shop) -> None:
    """SPEC 9.22: version, rights, a read-only server."""
    assert shop.found("admin")["schema"] == ("note", "is not installed yet; the first host creates it")
    assert shop.found("app")["schema"] == ("objection", "is not installed yet; role app may not create it")
    shop.store("install", "postgresql://admin@/shop")
    assert shop.found("admin")["rights"] == ("fine", "role admin has those of a host")
    assert shop.found("app")["rights"] == ("objection", "role app may not use the schema")
    shop.server.execute("grant usage on schema duly to app", "grant select on duly.cluster to app", database="shop")
    assert shop.found("app")["rights"][1].startswith("role app lacks rights on ")
    shop.server.execute("alter database shop set default_transaction_read_only = on")
    assert shop.found("admin")["server"] == ("objection", "makes every transaction read-only")
    assert shop.store("check", "postgresql://admin@/shop").code == 1


def test_check_notes_what_hosts_work_around(shop: Shop) -> None:
    """SPEC 9.22: isolation level, durability."""
    shop.server.execute(
        "alter database shop set default_transaction_isolation = 'serializable'",
        "alter database shop set synchronous_commit = off",
    )
    found = shop.found("admin")
    assert found["isolation level"] == ("fine", "hosts ask for read committed (the default here is serializable)")
    assert found["durability"][0] == "note"


def test_a_newer_schema_is_refused(shop: Shop) -> None:
    """SPEC 9.22."""
    shop.store("install", "postgresql://admin@/shop")
    shop.server.execute("update duly.cluster set version = 99", database="shop")
    for command in ("check", "install"):
        done = shop.store(command, "postgresql://admin@/shop")
        assert (done.code, "schema version 99" in done.err) == (4, True)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://duly:{SECRET}@/postgres",
        f"postgresql://duly@/postgres?password={SECRET}",
        f"postgresql://admin:{SECRET}@127.0.0.1:1/shop",
        f"postgresql://admin:{SECRET}/x@127.0.0.1:1/shop",
        f"postgresql+psycopg://admin:{SECRET}@/shop",
        f"postgresql://admin:{SECRET}@/nothing",
        f"postgresql://{SECRET}%zz@/shop",
    ],
)
def test_no_password_is_ever_shown(server: PostgresServer, tmp_path: Path, url: str) -> None:
    """SPEC 9.22: neither in output nor in errors."""
    for arguments in (["check", url], ["install", url, "--schema", "shown", "--json"]):
        done = duly("store", *arguments, folder=tmp_path, PGHOST=str(server.folder))
        assert SECRET not in done.out + done.err
        assert "Traceback" not in done.err


def test_a_password_from_the_environment_and_a_service_work(shop: Shop) -> None:
    """SPEC 9.22: libpq's own ways."""
    (shop.folder / "services").write_text("[shop]\ndbname=shop\nuser=admin\n")
    done = shop.store(
        "install", "postgresql://?service=shop", PGSERVICEFILE=str(shop.folder / "services"), PGPASSWORD=SECRET
    )
    assert done.out == "postgresql:// (service shop, schema duly): version 1 installed\n"


def test_without_psycopg_the_extra_is_named(tmp_path: Path) -> None:
    """`sql` needs no driver at all."""
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    path = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"}
    done = duly("store", "check", "postgresql://app@/shop", folder=tmp_path, **path)
    assert done.code == 4
    assert 'pip install "duly[postgres]"' in done.err
    assert duly("store", "sql", folder=tmp_path, **path).code == 0
