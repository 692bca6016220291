"""What if: the real scheduler on a simulated host, with stand-ins for the callbacks.

scenario    what is simulated: tasks, a stretch of time, downtime, crashes, failure rates
simulate    lets the stretch pass
result      what came of it: every start, and a summary of each task
plot        the result as a picture

`duly simulate` shows it. Nothing here prints, and no callback of the application is called.
"""
