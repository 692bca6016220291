"""What one running scheduler does: waits, commits, runs callbacks.

declare     one initialize(): load, resolve, replace, put in force
loop        poll: clock, decide, commit, launch
journal     group commit
runner      runs callbacks on the event loop or in threads
shutdown    how the loop ends
announce    durable facts as events; sink hands them to logging and on_event
trace       durable facts as rows of the trace, and the monitor
options, host    what the user chose; clock, chance and threads of the machine
"""
