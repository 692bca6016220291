"""The command line: operate duly from the shell.

app         the command `duly`: finds commands, turns failures into one message and an exit code
output      where output goes, in which form; the exit codes; tables: also on narrow terminals
completion  what a shell completes: tasks, zones, files
time_text   times, durations and zones, as people write them
signals     the event loop of the commands, which every signal wakes
target      TARGET: from `module:attribute` or a file to checked registrations
reading     a store, read without changing it, also while a scheduler runs on it; holding: its lock file

commands/   one module per command; health, traces, dialects serve them
service/    `duly run`: the scheduler as a program, its log, what it says to systemd
importers/  `duly import`: crontab, APScheduler, Celery

Each command is loaded when it is used. Commands that read open the store read-only.
"""
