"""The application: its routes, the frame of every page, and what becomes of a request that fails."""

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from duly.clock import Clock, SystemClock
from duly.core.moments import Instant
from duly.errors import DulyError, StoreUnusedError, TaskTryDeserializeError
from duly.stores.place import StorePlace, place_of, reader_of
from duly.stores.port import Reader
from duly.stores.postgres.url import DEFAULT_SCHEMA, StoreUrl
from duly.stores.sqlite.reader import IN_MEMORY, in_memory
from duly.text import plain
from duly.web import about, api, calendar, expression, metrics, overview, runs, task, tasks, verify, whatif
from duly.web.child import NotAnsweredError
from duly.web.display import ASSET_PATHS, ASSETS
from duly.web.forms import Form, ParameterError
from duly.web.frame import Frame, NotThereError, Page, Settings
from duly.web.guard import Guard, is_of_api
from duly.web.live import Live
from duly.web.openapi import OPENAPI
from duly.web.source import THREADS, StoreSource

_LOG: Final = logging.getLogger("duly.web")
_COMPRESSED_BYTES_MIN: Final = 800
_REFRESH_SECONDS: Final = (5, 3600)
_PAGE_STATEMENT_SECONDS_MAX: Final = 1.0
"""The longest that one statement of a page may take on a server: a page that needs more is no page."""

_SAMPLE_STATEMENT_SECONDS_MAX: Final = 10.0
"""The longest for one that concerns all tasks: they are counted within this time, or not at all."""

_MEDIA_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def dashboard(
    store: str | os.PathLike[str] | StoreUrl,
    *,
    schema: str = DEFAULT_SCHEMA,
    token: str | None = None,
    allowed_hosts: Collection[str] = (),
    show_errors: bool = True,
    title: str | None = None,
    refresh: float = 1.0,
) -> ASGIApp:
    """A dashboard of a store, to be mounted in an ASGI application or served by itself.

    It only reads, and opens the store when the first page is asked for: a store that does not exist yet is a page that
    says so.

    Parameters:
        store: the path of the store, or its `postgresql://` URL.
        schema: that of a store on PostgreSQL.
        token: every request must show it, as a bearer token or as the password of any user; without one, every request
            is answered.
        allowed_hosts: the host names that requests may carry; by default any, which is right behind an application that
            checks them itself.
        show_errors: False hides texts of errors and tracebacks.
        title: stands in the head of each page.
        refresh: seconds between two looks for changes.

    Raises:
        TypeError: `allowed_hosts` is one text, or `store` neither a path nor a URL.
        ValueError: `token` is empty, or `refresh` is not positive.
        StoreError: the URL cannot be read, or the store is one in memory, which only its own process sees.
    """
    if token is not None and not token:
        raise ValueError("token is empty: leave it out, or name one that cannot be guessed")
    if isinstance(allowed_hosts, str):
        raise TypeError("allowed_hosts is a list of host names, not one text")
    if not refresh > 0:
        raise ValueError(f"refresh is a number of seconds greater than zero, got {refresh!r}")
    return application(
        _source(_place(store, schema), SystemClock(), refresh),
        Settings(title, show_errors),
        token=token,
        allowed_hosts=allowed_hosts,
    )


def _place(store: str | os.PathLike[str] | StoreUrl, schema: str) -> StorePlace:
    if not isinstance(store, StoreUrl):
        store = os.fspath(store)
        if not isinstance(store, str):
            raise TypeError(f"store is a path or a URL, got {store!r}")
    if store == IN_MEMORY:
        raise in_memory()
    return place_of(store, schema)


def _source(place: StorePlace, clock: Clock, refresh: float) -> StoreSource:
    def reader(connections: int, statement_seconds_max: float) -> Reader:
        return reader_of(place, clock.now, connections_kept=connections, statement_seconds_max=statement_seconds_max)

    return StoreSource(
        place,
        reader(THREADS, _PAGE_STATEMENT_SECONDS_MAX),
        clock,
        refresh,
        sampling_reader=reader(1, _SAMPLE_STATEMENT_SECONDS_MAX),
    )


def application(
    source: StoreSource, settings: Settings, *, token: str | None = None, allowed_hosts: Collection[str] = ()
) -> ASGIApp:
    """The guarded application over a source."""
    pages: dict[str, Page] = {
        "/": overview.page,
        "/tasks": tasks.page,
        "/task": task.page,
        "/runs": runs.page,
        "/calendar": calendar.page,
        "/next": expression.page,
        "/about": about.page,
    }
    # These wait for a child process, and must not keep the threads that make other pages.
    waiting: dict[str, Page] = {"/verify": verify.page, "/whatif": whatif.page}
    live = Live(source)
    site = Site(source, settings, live)
    routes = [
        Route(path, site.answering(page, waits=path in waiting), methods=["GET"])
        for path, page in {**pages, **waiting}.items()
    ]
    routes += [
        Route(path, site.answering_in_json(endpoint), methods=["GET"]) for path, endpoint in api.ENDPOINTS.items()
    ]
    routes.append(Route("/api/openapi.json", _openapi, methods=["GET"]))
    routes.append(Route("/metrics", site.metrics, methods=["GET"]))
    routes.append(Route("/live", live.endpoint, methods=["GET"]))
    routes.append(Route("/static/{hash}/{name}", _static, methods=["GET"]))
    inner = Starlette(
        routes=routes,
        middleware=[Middleware(GZipMiddleware, minimum_size=_COMPRESSED_BYTES_MIN)],
        exception_handlers={HTTPException: site.not_found, Exception: site.defect},
    )
    inner.router.redirect_slashes = False  # an address that is no page gets its page; a redirect would name the scheme
    return Guard(inner, token, allowed_hosts)


class Site:
    """Answers requests for pages, and turns failures into pages."""

    def __init__(self, source: StoreSource, settings: Settings, live: Live) -> None:
        self._source = source
        self._settings = settings
        self._live = live

    def answering(self, page: Page, *, waits: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a page."""

        async def endpoint(request: Request) -> Response:
            def work() -> Response:
                return self._answer(request, page)

            return await self._source.run(work, waits=waits)

        return endpoint

    def answering_in_json(self, endpoint: api.Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of an address of the API."""

        async def answer(request: Request) -> Response:
            return await self._source.run(lambda: self._answer_in_json(request, endpoint), waits=endpoint.waits)

        return answer

    async def metrics(self, request: Request) -> Response:
        """The figures of the store, for Prometheus."""
        text = await self._source.run(lambda: metrics.exposition(self._source), waits=True)
        return Response(text, media_type=metrics.MEDIA_TYPE)

    def _answer_in_json(self, request: Request, endpoint: api.Endpoint) -> Response:
        try:
            form = Form(request.query_params)
            for parameter in endpoint.parameters:
                if parameter.required and not form.text(parameter.name):
                    raise ParameterError(f"{parameter.name} is missing: {parameter.meaning}")
            answer = endpoint.answer(self._source, form)
            if not self._settings.show_errors:
                answer = api.Reply(api.without_errors(answer.document), answer.status)
            return _json(answer)
        except ParameterError as fault:
            return _json(api.failure(str(fault), None, 400))
        except NotThereError as fault:
            hint = fault.hint if fault.suggestion is None else f"did you mean {fault.suggestion[0]}?"
            return _json(api.failure(fault.text, hint, 404))
        except NotAnsweredError as fault:
            return _json(api.failure(fault.text, fault.hint, fault.status))
        except DulyError as fault:
            return _json(api.failure(fault.message, fault.details.get("hint"), 503))

    def _answer(self, request: Request, page: Page) -> Response:
        form = Form(request.query_params)
        frame = self._frame(request)
        try:
            frame = replace(frame, refresh=form.number("refresh", *_REFRESH_SECONDS), notes=form.notes)
            return HTMLResponse(page(frame, form))
        except ParameterError as fault:
            return self._failure(frame, 400, "This address means nothing", str(fault))
        except NotThereError as fault:
            return self._failure(frame, 404, "Not found", fault.text, suggestion=fault.suggestion)
        except NotAnsweredError as fault:
            headline = "Busy" if fault.status == 429 else "Not known"
            return self._failure(frame, fault.status, headline, fault.text, hint=fault.hint)
        except StoreUnusedError as fault:
            text = f"{fault.message}. This page shows the store as soon as a scheduler has used it."
            return self._failure(frame, 503, "Nothing here yet", text, hint=fault.details.get("hint"))
        except TaskTryDeserializeError as fault:
            hint = "it holds a record that duly did not write: restore a backup"
            return self._failure(frame, 503, "The store is damaged", fault.message, hint=hint)
        except DulyError as fault:
            return self._failure(frame, 503, "The store cannot be read", fault.message, hint=fault.details.get("hint"))

    def _frame(self, request: Request) -> Frame:
        return Frame(self._source, self._settings, base_of(request), None, self._live.number)

    def _failure(
        self,
        frame: Frame,
        status: int,
        headline: str,
        text: str,
        *,
        hint: str | None = None,
        suggestion: tuple[str, str] | None = None,
    ) -> Response:
        clock = self._source.clock
        display = frame.display(clock.zone(), Instant(clock.now()))
        values = {"headline": headline, "text": plain(text, longest=1000), "hint": hint, "suggestion": suggestion}
        # A store that cannot be read now may be readable soon, and the page shows it then, also without JavaScript.
        waiting = {"refresh": frame.refresh or (30 if status == 503 else None)}
        return HTMLResponse(frame.rendered("failure.html", display, "", headline, **values, **waiting), status)

    async def not_found(self, request: Request, fault: Exception) -> Response:
        """The answer to an address that is no page."""
        status = fault.status_code if isinstance(fault, HTTPException) else 404
        if is_of_api(request.scope):
            return _json(api.failure("The API has no address of this name.", "/api/openapi.json lists them", status))
        return self._failure(self._frame(request), status, "Not found", "The dashboard has no page of this address.")

    async def defect(self, request: Request, fault: Exception) -> Response:
        """The answer if making a page failed; the server logs the traceback, and the page does not show it."""
        _LOG.error("a page could not be made: %s", type(fault).__name__)
        text = "This is a defect of duly. The log of the dashboard has the traceback."
        if is_of_api(request.scope):
            return _json(api.failure(text, None, 500))
        return self._failure(self._frame(request), 500, "This page could not be made", text)


def base_of(request: Request) -> str:
    """The path that the dashboard is mounted at, with a slash at its end."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/") + "/"


def _json(answer: api.Reply) -> Response:
    return Response(answer.text(), answer.status, media_type="application/json")


async def _openapi(request: Request) -> Response:
    return Response(OPENAPI.read_bytes(), media_type="application/json")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    # Under another hash it is another file, which must not be kept as this one.
    if ASSET_PATHS.get(name) != f"static/{request.path_params['hash']}/{name}":
        raise HTTPException(404)
    headers: Mapping[str, str] = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(ASSETS[name], headers=headers, media_type=_MEDIA_TYPES[Path(name).suffix])


def over(
    place: StorePlace, reader: Reader, clock: Clock, settings: Settings, refresh: float = 1.0, name: str | None = None
) -> ASGIApp:
    """An unguarded dashboard over a reader and a clock: for a moment that is not now."""
    return application(StoreSource(place, reader, clock, refresh, name=name), settings)
