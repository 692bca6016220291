"""A URL with a slip in it was taken for the path of a file, and messages, logs and pages showed its password."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duly import Scheduler
from duly.cli.output import Failure, show_failure
from duly.errors import StoreError
from duly.integrations.asgi import lifespan
from duly.integrations.opentelemetry import traced
from duly.integrations.prometheus import Metrics, StoreCollector
from duly.stores import SqliteReader, SqliteStore, label_of, reader_of
from duly.web import dashboard
from tests.cli.shop import TARGET, in_another_process

SECRET = "s3cret"

SPELLINGS = [
    f'"postgresql://u:{SECRET}@127.0.0.1:1/x"',
    f"'postgresql://u:{SECRET}@127.0.0.1:1/x'",
    f" postgresql://u:{SECRET}@127.0.0.1:1/x",
    f"postgresql://u:{SECRET}@127.0.0.1:1/x ",
    f"jdbc:postgresql://u:{SECRET}@127.0.0.1:1/x",
    f"postgresql//u:{SECRET}@127.0.0.1:1/x",
    f"PostgreSQL:/u:{SECRET}@127.0.0.1:1/x",
    f"mysql://u:{SECRET}@127.0.0.1:1/x",
    f"mysql:/u:{SECRET}@127.0.0.1:1/x",
    f"u:{SECRET}@127.0.0.1:1/x",
    f"/data/postgresql://u:{SECRET}@127.0.0.1:1/x",
    f"host=127.0.0.1 port=1 password={SECRET}",
    f"Postgresql+psycopg://u:{SECRET}@127.0.0.1:1/x",
]
"""Texts that are neither a URL of a store nor meant as the path of a file."""

USERS: dict[str, Callable[[str], object]] = {
    "Scheduler": Scheduler,
    "dashboard": dashboard,
    "reader_of": lambda text: reader_of(text, lambda: 0),
    "label_of": label_of,
    "StoreCollector": lambda text: StoreCollector(text, registry=None, name="x"),
    "Metrics": lambda text: Metrics(text, registry=None),
    "traced": lambda text: traced([], store=text),
}
"""Public names that a program gives the name of a store."""


def refusal(call: Callable[[], Any]) -> str:
    """All that the error of a call says."""
    with pytest.raises(StoreError) as refused:
        call()
    return f"{refused.value!r} {refused.value} {refused.value.details} {refused.value.__cause__!r}"


@pytest.mark.parametrize("text", SPELLINGS)
@pytest.mark.parametrize("user", USERS)
def test_a_misspelt_url_is_refused_without_being_quoted(user: str, text: str) -> None:
    """SPEC 9.22; it says what to do."""
    said = refusal(lambda: USERS[user](text))
    assert SECRET not in said
    assert "postgresql://" in said


@pytest.mark.parametrize("text", SPELLINGS)
async def test_an_application_is_not_started_with_a_misspelt_url(text: str) -> None:
    """SPEC 9.22: neither by `lifespan`, whose error a server logs."""
    with pytest.raises(StoreError) as refused:
        async with lifespan(text, [])(None):
            pass
    assert SECRET not in f"{refused.value} {refused.value.details}"


@pytest.mark.parametrize("kind", [SqliteStore, lambda path: SqliteReader(path, lambda: 0), Scheduler, label_of])
@pytest.mark.parametrize("scheme", ["postgresql", "Postgres", "mysql"])
def test_a_url_that_was_made_a_path_is_refused(kind: Callable[[Path], object], scheme: str) -> None:
    """`Path` makes one slash of two."""
    assert SECRET not in refusal(lambda: kind(Path(f"{scheme}://u:{SECRET}@127.0.0.1:1/x")))


def test_no_command_shows_the_password_of_a_misspelt_url(tmp_path: Path) -> None:
    """SPEC 9.22: neither as an error nor in its log, by option or by DULY_STORE."""
    (tmp_path / "tasks.py").write_text(TARGET)
    commands = []
    for text in SPELLINGS:
        commands += [
            ["status", "--store", text],
            ["run", "tasks.py", "--store", text],
            ["run", "tasks.py", "--json", "--store", text],
            ["plan", "tasks.py", "--json", "--store", text],
            ["history", "--store", text],
            ["explain", "backup", "--store", text],
            ["web", "--port", "0", "--store", text],
            ["mcp", "--store", text],
            ["copy", text, "copied.db"],
            ["copy", "state.db", text],
            ["trace", "export", text],
            ["verify", text],
            ["store", "check", text],
        ]
    done = in_another_process(commands, tmp_path)
    for command, printed in zip([*commands, ["the rest"]], done, strict=True):
        assert SECRET not in printed.out + printed.err, command
        assert "Traceback" not in printed.err, (command, printed.err)
    assert {printed.code for printed in done[:-1]} == {4}
    for text in SPELLINGS:
        named, _ = in_another_process([["status"]], tmp_path, DULY_STORE=text)
        assert (named.code, SECRET in named.out + named.err) == (4, False)
    assert [each.name for each in tmp_path.iterdir() if each.name not in ("tasks.py", "__pycache__")] == []


@pytest.mark.parametrize(
    "text",
    [
        f"no such store: POSTGRESQL://u:{SECRET}@h/x",
        f'no such store: "postgresql:/u:{SECRET}@h/x"',
        f"no such store: postgresql/u:{SECRET}@h/x",
        f"no such store: postgresql//u:{SECRET}@h/x",
        f"no such store: jdbc:postgresql://u:{SECRET}@h/x",
        f"no such store: mysql:/u:{SECRET}@h/x",
        f"no such store: Mysql+x://u:{SECRET}@h/x",
        f"no such store: postgresql:/h/x?Password={SECRET}&sslpassword={SECRET}",
    ],
)
def test_a_url_that_is_quoted_somewhere_has_no_password_on_standard_error(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second protection, for messages that quote what they were given."""
    show_failure(Failure(text, hint=text, excerpt=text))
    shown = capsys.readouterr().err
    assert "no such store" in shown
    assert SECRET not in shown
