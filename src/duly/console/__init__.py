"""The command line: operate duly from the shell.

app         the command `duly`: finds commands, turns failures into one message and an exit code
output      where output goes, in which form; the exit codes; tables: also on narrow terminals
completion  what a shell completes: tasks, zones, files
moments     times and durations, as people write and read them
awake       the event loop of the commands, which every signal wakes
targets     TARGET: from `module:attribute` or a file to checked registrations
reading     a store, read without changing it, also while a scheduler runs on it; holding: its lock file

run         duly run: the scheduler as a program; in service, with events_log, watching, notify
plan        duly plan: what initialize() would do
status      duly status: what is going on, and whether that is healthy; judged in health
history     duly history: what has run
next        duly next: coming starts; with words, and shifts: where a zone's clock leaps
check       duly check: right or wrong, and where; with dialects: cron as it is written elsewhere
explain     duly explain: why it did (not) run; reasoned in explaining, from evidence
simulate    duly simulate: days and years in seconds; with simulation, plotting
trace       duly trace export: the trace of a store; verify: duly verify; traces: where traces come from
import_     duly import: from crontabs, from_celery, from_apscheduler; importing: the file that results

Each command lives in the module of its name and is loaded when it is used. Commands that read open the store read-only.
"""
