"""The dashboard: an ASGI application that shows what a store holds, and changes nothing.

app         routes, and what becomes of a failed one
guard       host names, token, methods, headers: everything that is checked before a page is made
source      the store behind the pages: questions in few threads, and the latest sample
sampler     what concerns all tasks, looked up in the background
forms       query parameters, parsed to values
display     names, times and states as markup; the templates
pictures    SVG made on the server
overview, tasks, task, runs, calendar, expression, about       the pages
server      uvicorn on a socket that is already bound

docs/dashboard.md says how to start and to protect it. Needs the extra `web`; nothing else of duly imports Starlette.
"""

from typing import TYPE_CHECKING

from duly import lazy

if TYPE_CHECKING:
    from duly.web.app import dashboard

__all__ = ["dashboard"]

__getattr__, __dir__ = lazy.attributes(__name__, {"app": ("dashboard",)})
