"""Measures hosts that share one PostgreSQL: `make bench-cluster`, or `python -m benchmarks.cluster`.

plan                what is measured, with how many tasks, and when which fault comes: full, quick
server, processor   a private PostgreSQL, and the processor time of its processes
work, witness       the tasks of a host, and the callback that notes each of its steps
host, trio          one process of a scheduler, and three of them that share a database
adapters/           duly and those we stand beside, each set up as its documentation says
faults, idle, due   what becomes of a trio: paused, killed, down, its database restarted; at rest; all due at once
judge               the facts, from the steps of callbacks alone
ours/               what is measured of duly alone, each in a process of its own
targets, report     what was promised, row by row; the tables
"""
