"""`duly store check`: the objections of a host to a shared store, before one is started."""

from collections.abc import Iterator
from itertools import count

import pytest

from duly.errors import StoreVersionError
from duly.stores.postgres.check import Finding, StoreCheck, Weight, _about_the_server, _about_transactions, examine
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.install import install
from duly.stores.postgres.script import grants, quoted
from duly.stores.postgres.url import StoreUrl, read_url
from tests.postgres_server import PostgresServer, bundled_binaries, server_of

_schemas = count(1)
ROLE = "examiner"
FINE = {
    "server": (Weight.FINE, "takes writes"),
    "isolation level": (Weight.FINE, "hosts ask for read committed"),
    "encoding": (Weight.FINE, "UTF8"),
    "sessions": (Weight.NOTE, "transactions of other roles cannot be seen, and may have been open for long"),
}


@pytest.fixture
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture
def url(server: PostgresServer) -> StoreUrl:
    """A schema of its own that is not there yet, as a role sees it that has no rights."""
    if server.execute(f"select 1 from pg_roles where rolname = '{ROLE}'"):
        server.execute(f"drop owned by {ROLE} cascade", f"drop role {ROLE}")
    server.execute(f"create role {ROLE} login")
    return read_url(server.url(user=ROLE), f"examined {next(_schemas)}")


@pytest.fixture
def installed(server: PostgresServer, url: StoreUrl) -> StoreUrl:
    """Installed by the superuser."""
    connection = Connection(read_url(server.url(), url.schema))
    install(connection, url)
    connection.close()
    return url


@pytest.fixture
def connection(url: StoreUrl) -> Iterator[Connection]:
    opened = Connection(url)
    yield opened
    opened.close()


def found(check: StoreCheck) -> dict[str, tuple[Weight, str]]:
    assert len({each.subject for each in check.findings}) == len(check.findings)
    return {each.subject: (each.weight, each.text) for each in check.findings}


def hint(check: StoreCheck, subject: str) -> str | None:
    (text,) = (each.hint for each in check.findings if each.subject == subject)
    return text


def test_a_store_that_is_installed_and_granted_is_fine(
    server: PostgresServer, connection: Connection, installed: StoreUrl
) -> None:
    server.execute(grants(installed.schema, ROLE))
    check = examine(connection, installed)
    rights = (Weight.FINE, f"role {ROLE} has those of a host")
    assert found(check) == {**FINE, "schema": (Weight.FINE, "version 1"), "rights": rights}
    assert check.usable
    assert (check.store, check.schema_version, check.server_version) == (
        installed.name,
        1,
        connection.server_version,
    )
    assert check.server_version >= 130_000


def test_a_schema_that_is_not_there_can_be_created_by_a_role_that_may(
    server: PostgresServer, connection: Connection, url: StoreUrl
) -> None:
    """SPEC 9.22: the first host creates it; who may not is told the command."""
    check = examine(connection, url)
    assert found(check)["schema"] == (Weight.OBJECTION, f"is not installed yet; role {ROLE} may not create it")
    assert (hint(check, "schema") or "").startswith("duly store install --schema ")
    assert (check.usable, check.schema_version) == (False, 0)
    server.execute(f"grant create on database postgres to {ROLE}")
    check = examine(connection, url)
    server.execute(f"revoke create on database postgres from {ROLE}")
    assert found(check)["schema"] == (Weight.NOTE, "is not installed yet; the first host creates it")
    assert hint(check, "schema") is None
    assert check.usable


def test_a_schema_that_is_empty_can_be_filled_by_a_role_that_may(
    server: PostgresServer, connection: Connection, url: StoreUrl
) -> None:
    """The right to create schemas does not help where the schema is there, and is not needed either."""
    server.execute(f"create schema {quoted(url.schema)}", f"grant create on database postgres to {ROLE}")
    check = examine(connection, url)
    server.execute(f"revoke create on database postgres from {ROLE}")
    assert found(check)["schema"][0] is Weight.OBJECTION
    server.execute(f"alter schema {quoted(url.schema)} owner to {ROLE}")
    assert found(examine(connection, url))["schema"][0] is Weight.NOTE


def test_an_older_schema_is_raised_by_a_role_that_may(
    server: PostgresServer, connection: Connection, installed: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(grants(installed.schema, ROLE))
    monkeypatch.setattr("duly.stores.postgres.check.VERSION", 2)
    monkeypatch.setattr("duly.stores.postgres.install.VERSION", 2)
    check = examine(connection, installed)
    text = f"has version 1, and hosts raise it to 2; role {ROLE} may not create it"
    assert found(check) == {**FINE, "schema": (Weight.OBJECTION, text)}
    assert check.schema_version == 1


def test_a_newer_schema_is_refused(server: PostgresServer, connection: Connection, installed: StoreUrl) -> None:
    server.execute(grants(installed.schema, ROLE), f"update {quoted(installed.schema)}.cluster set version = 2")
    with pytest.raises(StoreVersionError):
        examine(connection, installed)


def test_missing_rights_are_counted(server: PostgresServer, connection: Connection, installed: StoreUrl) -> None:
    """SPEC 9.22: USAGE on the schema, EXECUTE on its functions, and the four verbs on its tables."""
    check = examine(connection, installed)
    assert found(check)["rights"] == (Weight.OBJECTION, f"role {ROLE} may not use the schema")
    assert (check.usable, check.schema_version) == (False, 0)
    assert "duly store sql --grant ROLE" in (hint(check, "rights") or "")
    here = quoted(installed.schema)
    server.execute(grants(installed.schema, ROLE))
    for taken, back, text in (
        (f"update on {here}.log", "grant update", "1 tables and 0 functions"),
        (f"execute on function {here}.clock_1()", "grant execute", "0 tables and 1 functions"),
    ):
        server.execute(f"revoke {taken} from {ROLE}")
        check = examine(connection, installed)
        assert found(check)["rights"] == (Weight.OBJECTION, f"role {ROLE} lacks rights on {text}")
        assert hint(check, "rights") == f"run what `duly store sql --grant {ROLE}` prints at its end"
        assert not check.usable
        server.execute(f"{back} {taken.partition(' ')[2]} to {ROLE}")
    assert examine(connection, installed).usable


def test_a_pooler_is_noted(
    server: PostgresServer, connection: Connection, installed: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler names a process of its own when it is connected to."""
    server.execute(grants(installed.schema, ROLE))
    assert "pooler" not in found(examine(connection, installed))
    monkeypatch.setattr(Connection, "backend_pid", 1)
    check = examine(connection, installed)
    assert found(check)["pooler"] == (Weight.NOTE, "the connection goes through a pooler")
    assert "pool_mode=transaction" in (hint(check, "pooler") or "")
    assert check.usable


@pytest.mark.parametrize(
    ("settings", "subject", "weight", "text"),
    [
        (("t", "off", "read committed", "on"), "server", Weight.OBJECTION, "is a standby"),
        (("f", "on", "read committed", "on"), "server", Weight.OBJECTION, "makes every transaction read-only"),
        (("f", "off", "read committed", "on"), "server", Weight.FINE, "takes writes"),
        (
            ("f", "off", "serializable", "on"),
            "isolation level",
            Weight.FINE,
            "hosts ask for read committed (the default here is serializable)",
        ),
        (
            ("f", "off", "read committed", "off"),
            "durability",
            Weight.NOTE,
            "synchronous_commit is off; hosts raise it for their commits",
        ),
        (
            ("f", "off", "read committed", "local"),
            "durability",
            Weight.NOTE,
            "synchronous_commit is local; hosts raise it for their commits",
        ),
    ],
)
def test_settings_of_the_server_are_weighed(
    settings: tuple[str, str, str, str], subject: str, weight: Weight, text: str
) -> None:
    findings = {each.subject: each for each in _about_the_server(*settings)}
    assert (findings[subject].weight, findings[subject].text) == (weight, text)
    assert set(findings) == {"server", "isolation level", "encoding", subject}


def test_transactions_that_stay_open_are_noted() -> None:
    """They keep old versions of rows that every beat updates."""
    (finding,) = _about_transactions("app", 2, sees_all=True)
    assert finding == Finding(
        "transactions",
        Weight.NOTE,
        "2 open for more than an hour",
        "end them: they keep old versions of rows that beats update",
    )


def test_a_role_that_may_not_see_other_sessions_is_told(
    server: PostgresServer, connection: Connection, installed: StoreUrl
) -> None:
    """An unknown answer is not shown as fine."""
    (note,) = (each for each in examine(connection, installed).findings if each.subject == "sessions")
    assert (note.weight, note.hint) == (Weight.NOTE, f"to see them: grant pg_read_all_stats to {ROLE}")
    server.execute(f"grant pg_read_all_stats to {ROLE}")
    assert "sessions" not in found(examine(connection, installed))


def test_a_transaction_counts_once_it_is_old_enough(
    server: PostgresServer, connection: Connection, installed: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only one that the role may see is that of the question itself."""
    server.execute(grants(installed.schema, ROLE))
    assert "transactions" not in found(examine(connection, installed))
    monkeypatch.setattr("duly.stores.postgres.check.OLD_SNAPSHOT_SECONDS", 0)
    assert found(examine(connection, installed))["transactions"] == (Weight.NOTE, "1 open for more than an hour")
