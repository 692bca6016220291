"""The pure core: values in, values out, `now` always an argument.

moments        instants, minutes and delays: integers with names, and the conversions
zones          two names of one zone
steps          long work in short steps that returns its result
names          a set of names that grows in short steps
fields         the five fields of cron: names and ranges
occurrences    when an expression occurs in a zone: the search on the wall clock
dialects       cron as written elsewhere, and what it means in POSIX cron
cron           strict POSIX text to an expression, or an error with a hint
local_days     the days of a zone with the instants of their minutes, for any number of expressions
due            due minutes of an expression, as integers
registration   raw tuples to registrations, or the first error
task           states, transitions, and `obligation()`: why a task must start
changes        starts and ends by the thousand, in blocks
news           what hosts of a shared store wrote: the content of its log
request        a batch as a host asks a shared store to write it
watch          when a host may bury another
share          which part of what is due a host takes at once
record         persisted rows to states, or a typed error
stored_order   registrations in the order in which their tasks are stored
resolution     declared against stored: new, preserved, overridden, orphaned, interrupted
groups         tasks of one expression, its due minutes, and due lists
agenda         all tasks in force, indexed by when they need attention; `decide()`
learning       the tasks of one host as the log of a shared store says they are

Each module imports only modules above it.
"""
