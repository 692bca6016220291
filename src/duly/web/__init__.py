"""The dashboard: an ASGI application that shows what a store holds, and changes nothing.

app         routes, and what becomes of a failed one
guard       host names, token, methods, headers: everything that is checked before a page is made
mount       the path that the dashboard has in another application
source      the store behind the pages: questions in few threads, and the latest sample
sampler     what concerns all tasks, looked up in the background
load        the load to come, counted once an hour
child       questions that a child process answers, one at a time, within limits of time and memory
worker      that process; verdict judges a trace in it, forecast simulates
forms       query parameters, parsed to values
display     names, times and states as markup; the templates
pictures    SVG made on the server
overview, tasks, task, runs, calendar, expression, whatif, verify, about       the pages
frame       what every page has around it: head, navigation, settings
missing     the answer about a task that a store does not have
api         the documents of `--json`, a page at a time; openapi describes them
live        server-sent events: something has changed
metrics     the figures of a store for Prometheus
report      a page that stands alone in a file: `--html` of `duly plan`, `duly verify` and `duly simulate`
server      uvicorn on a socket that is already bound

docs/dashboard.md says how to start and to protect it. Needs the extra `web`; nothing else of duly imports Starlette.
"""

from typing import TYPE_CHECKING

from duly import lazy

if TYPE_CHECKING:
    from duly.web.app import dashboard

__all__ = ["dashboard"]

__getattr__, __dir__ = lazy.attributes(__name__, {"app": ("dashboard",)})
