"""Measures duly beside its peers: `make bench`, or `python -m benchmarks`.

plan                    what is measured, how often, with how many tasks: full, quick, tiny
children, child         each measurement in a process of its own, ours and the peers' in turn
workload, witness, clocks   the tasks, the callback that notices, and a clock that leaps over dull seconds
ours/                   what is measured of duly
peers/                  the same of others, each set up as its documentation says
layouts                 states as rows beside states as spans, without a scheduler
judging, targets        what was promised, row by row, and whether it is met
machine, report, plots  the facts, the tables, the curves
"""
