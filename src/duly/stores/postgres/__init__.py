"""The shared store: one schema of a PostgreSQL database, any number of hosts.

store       `PostgresStore`: what a scheduler is given
functions   the five functions that hosts call, and the two that read; what a host is made of
connection  one connection: messages that are transactions, limits, reconnecting
entries     batches and log entries as JSON, and back
install     creates the schema, once
check       what a host would object to
reader      answers questions without changing anything; what commands and dashboards ask
rows        rows as JSON, long answers through a cursor
transfer    rows that leave for an embedded store, or arrive from one
url         how a store is named, with a password and without
faults      PostgreSQL's errors in duly's words
script      schema.sql, the tables and functions, as one text

psycopg, which `duly[postgres]` brings, is imported here and nowhere else.
"""

from typing import TYPE_CHECKING

from duly import lazy

if TYPE_CHECKING:
    from duly.stores.postgres.reader import PostgresReader

__all__ = ["PostgresReader"]

# That a text is a URL, and what it means, is known without psycopg.
__getattr__, __dir__ = lazy.attributes(__name__, {"reader": ("PostgresReader",)})
