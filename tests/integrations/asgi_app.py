"""One application in three frameworks, for the tests of `duly.integrations.asgi`; FRAMEWORK chooses.

What its workers do stands in the file WITNESS, as in tests/system/standby_app.py. `/` answers with the process and
whether the tasks run in it.
"""

import logging
import os
from datetime import timedelta
from typing import Any

from duly.integrations.asgi import lifespan
from tests.system.standby_app import Witness, job, note

logging.getLogger("duly").setLevel(logging.INFO)
logging.getLogger("duly").addHandler(Witness())


def event_noted(event: Any) -> None:
    """Note which process runs the tasks."""
    if event.name == "SchedulerInitializationCompleted":
        note("holds")


def declared() -> list[Any]:
    """Called when a worker starts."""
    note("up")
    return [("job", "* * * * *", job, timedelta(minutes=5))]


tasks = lifespan(
    os.environ.get("STORE_URL", os.environ["STORE"]),
    declared,
    look_every=timedelta(milliseconds=200),
    on_event=event_noted,
)


def answer(app: Any) -> dict[str, Any]:
    return {"process": os.getpid(), "holding": app.state.duly.holding}


def starlette_app() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def show(request: Request) -> JSONResponse:
        return JSONResponse(answer(request.app))

    return Starlette(routes=[Route("/", show)], lifespan=tasks)


def fastapi_app() -> Any:
    from fastapi import FastAPI, Request

    app = FastAPI(lifespan=tasks)

    @app.get("/")
    async def show(request: Request) -> dict[str, Any]:
        return answer(request.app)

    return app


def litestar_app() -> Any:
    from litestar import Litestar, Request, get

    @get("/")
    async def show(request: Request[Any, Any, Any]) -> dict[str, Any]:
        return answer(request.app)

    return Litestar([show], lifespan=[tasks])


app = {"starlette": starlette_app, "fastapi": fastapi_app, "litestar": litestar_app}[os.environ["FRAMEWORK"]]()
