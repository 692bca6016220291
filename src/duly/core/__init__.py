"""The pure core: values in, values out, `now` always an argument.

moments        instants, minutes and delays: integers with names, and the conversions
cron           strict POSIX text to five bit sets
occurrences    matches, next and previous of an expression in a zone
registration   raw tuples to registrations, or the first error
task           states, transitions, and `obligation()`: why a task must start
batch          starts and ends by the thousand
record         persisted form to state, or a typed error
resolution     declared against stored: new, preserved, overridden, orphaned, interrupted
group          tasks of one expression, and what is due of it
agenda         all tasks indexed by when they need attention; `decide()`
"""
