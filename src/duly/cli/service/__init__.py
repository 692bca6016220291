"""`duly run`: the scheduler as a program of its own.

program      loads TARGET, runs the scheduler, takes signals, reloads, stops
events_log   the log: events as lines for people, or as JSON lines
event_lines  an event as a line for people
once         one task, without a scheduler and without a store
dashboard    `--web`: the dashboard beside the scheduler; also what `duly web` is made of
systemd      readiness, status and watchdog, for the service manager
"""
