"""The shared store: one schema of a PostgreSQL database, any number of hosts.

functions   the five functions that hosts call, and the two that read; what a host is made of
connection  one connection: messages that are transactions, limits, reconnecting
entries     batches and log entries as JSON, and back
install     creates the schema, once
check       what a host would object to
url         how a store is named, with a password and without
faults      PostgreSQL's errors in duly's words
script      schema.sql, the tables and functions, as one text

psycopg, which `duly[postgres]` brings, is imported here and nowhere else.
"""
