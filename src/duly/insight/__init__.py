"""What a store means to people, as values that the command line and a dashboard show.

json_form     the one JSON form of every value, derived from its fields
health        the situation of each task, what is owed, and whether that is healthy
history       what has run, and how long the runs of each task took
coming        the coming starts of an expression
explanation   why a task ran, did not run, or ran late at a minute; evidence: what that rests on
plan          what initialize() would do with a store
run           one run: how late, how long, what became of it
zone          the zone that a store is used in
zone_changes  where a zone changes its offset, and the minutes of an expression that it skips or repeats
cron_check    whether a text is POSIX cron, what it says, and what to write instead
cron_words    a cron expression in words
words         times, durations and lists in words

Everything here is pure: values in, values out, `now` and the zone always arguments. Nothing here opens a file, parses
arguments or prints.
"""
