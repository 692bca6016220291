"""docs/reference/store.md has every table and column of a store's file, and every table of a shared store."""

import re
import sqlite3
from contextlib import closing
from importlib.resources import files

from duly.stores.postgres import script
from duly.stores.sqlite import schema
from tests.reference import code, rows, sections

PAGE = sections("store.md")


def tables_of_a_file() -> dict[str, list[str]]:
    """The tables of an empty store, with their columns."""
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.create(connection)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}


def test_the_page_has_every_table_and_column_of_a_file() -> None:
    """In the order of the columns, with the version of the schema."""
    tables = tables_of_a_file()
    assert len(tables) == 8
    shown = {name: [code(row[0])[0] for row in rows(PAGE[name])] for name in tables}
    assert shown == tables
    assert f"A file: schema version {schema.VERSION}" in PAGE


def test_the_page_has_every_table_of_a_shared_store() -> None:
    """With the version of its schema."""
    text = (files("duly.stores.postgres") / "schema.sql").read_text(encoding="utf-8")
    heading = f"A database that hosts share: schema version {script.VERSION}"
    named = [name for row in rows(PAGE[heading]) for name in code(row[0])]
    assert sorted(named) == sorted(re.findall(r"^create table (\w+)", text, re.MULTILINE))
