"""The pages of the dashboard that are measured, by what they show."""

MINUTELY = "a task of every minute, with 14 days of runs"

PAGES = {
    "overview": "/",
    "tasks": "/tasks",
    "tasks, a page in the middle": "/tasks?after=0~task-5",
    "a search that finds little": "/tasks?q=k-99",
    "a search that finds nothing": "/tasks?q=nobody",
    "tasks that fail": "/tasks?state=failing&sort=failure",
    "tasks that are owed": "/tasks?state=owed",
    "tasks by their next minute": "/tasks?sort=next",
    "a task": "/task?name=task-7",
    MINUTELY: "/task?name=minutely",
    "a task that is not there": "/task?name=nobody",
    "runs": "/runs",
    "runs that failed": "/runs?outcome=failure",
    "calendar": "/calendar",
    "an expression": "/next?cron=30+2+*+*+*",
    "the form of a simulation": "/whatif",
    "a store without a trace": "/verify",
    "about": "/about",
    "metrics": "/metrics",
}

UNCOUNTED = {
    "calendar of a week that nobody asked for yet": "/calendar?from={moment}",
    "load of eight days that nobody asked for yet": "/api/v1/load?hours=192&from={moment}",
}
"""Pages for which the due minutes of all expressions are counted, if each is asked for from another moment on."""
