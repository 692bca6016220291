"""The command line: operate duly from the shell.

app          the command `duly`: finds commands, turns failures into one message and an exit code
commands/    one module per command: parses its arguments, asks, and shows the answer
service/     `duly run`: the scheduler as a program, its log, its reports to systemd
importers/   `duly import`: drafts from crontab, APScheduler and Celery, and the Python file made of them

output       where output goes, in which form, and the exit codes
output_file  a file that a command writes: checked before the work, replaced as a whole after it
html_file    `--html FILE`: the result of a command as a page that stands alone
streams      the three standard streams, and errors that say which of them failed
tables       tables that stay readable on a narrow terminal
progress     a progress bar, on a terminal
caret        a text, and a caret under the place of an error
quoting      an expression that came as several arguments, because it was not quoted
completion   the script of a shell, and what it completes: tasks, zones, files
time_text    times, durations and zones, as people write them
target       TARGET: from `module:attribute` or a file to checked registrations
store        --store, its reader, and suggestions for names of tasks
trace_input  a trace from a store, a file or standard input
file_trust   warns of files that other users can change
file_watch   watches source files for changes
mcp_server   the tools of `duly mcp`
signals      the event loop of the commands, which every signal wakes

What the commands show is computed in `duly.insight`, `duly.simulation` and `duly.formal`. A command is imported when it
is used. Commands that read a store do not change it.
"""
