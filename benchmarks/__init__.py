"""Measures duly beside its peers: `make bench`, or `python -m benchmarks`.

plan                    what is measured, how often, with how many tasks: full, quick, tiny
children, child         each measurement in a process of its own, ours and the peers' in turn
workload, witness, clocks   the tasks, the callback that notices, and a clock that leaps over dull seconds
watching, noting_store  watchers beside a measurement, and a store that notes what it was given to write
asgi, pages             the dashboard, asked in this process; its pages, by what they show
ours/                   what is measured of duly
peers/                  the same of others, each set up as its documentation says
figures                 medians, spreads, ratios and slopes of what the rounds measured
judging, targets        what was promised, row by row, and whether it is met
machine, source         the facts: the machine, and the code that is measured
report, plots           the tables, and the curves
published, since        the runs that pages have quoted; which rows are worse than in an earlier one

Also programs of their own:

cluster/                hosts that share one PostgreSQL, and their peers: `make bench-cluster`
compare, burst          old code beside new code; the burst that it measures
read_side, import_cost  the commands that read a large store; `import duly` beside `import asyncio`
layouts                 states as rows beside states as spans, without a scheduler
"""
