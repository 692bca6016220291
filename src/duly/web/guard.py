"""Everything that is checked before a page is made, and the headers that every response carries.

In this order: the name of the host (DNS rebinding), the token, the method, the length of the query. A page of another
site can make a browser send a request here; it cannot choose the host name that the browser then sends.
"""

import asyncio
import base64
import binascii
import hmac
from collections.abc import Collection, Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly.web import mount
from duly.web.api import failure

QUERY_BYTES_MAX: Final = 4096
_DELAY_SECONDS: Final = 1.0
"""How long a wrong token waits for its answer, so that guessing takes time."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Carried by every response; one that says nothing about caching is not to be stored."""


class Guard:
    """Lets requests through to the dashboard that may see it.

    Without `allowed_hosts` any host name will do: the application that the dashboard is mounted in knows its own names.
    """

    def __init__(self, app: ASGIApp, token: str | None, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(map(bare_host, allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000, "reason": "the dashboard has no web socket"})
            return
        scope = mount.named(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        if refusal.status_code == 401:
            await asyncio.sleep(_DELAY_SECONDS)
        await refusal(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._hosts and bare_host(headers.get("host", "")) not in self._hosts:
            return _refused(
                scope,
                "This host name is not one of the dashboard's. Name it with --allowed-host, or allowed_hosts=.",
                421,
            )
        if self._token is not None and not self._shows_token(headers.get("authorization", "")):
            return _refused(
                scope,
                "A token is needed: as a bearer token, or as the password of any user.",
                401,
                {"WWW-Authenticate": 'Basic realm="duly", charset="UTF-8"'},
            )
        if scope["method"] not in {"GET", "HEAD"}:
            return _refused(scope, "The dashboard only shows; it changes nothing.", 405, {"Allow": "GET, HEAD"})
        if len(scope["query_string"]) > QUERY_BYTES_MAX:
            return _refused(scope, f"The query is longer than {QUERY_BYTES_MAX} bytes.", 414)
        return None

    def _shows_token(self, authorization: str) -> bool:
        assert self._token is not None
        scheme, _, credentials = authorization.partition(" ")
        credentials = credentials.strip()
        if scheme.lower() == "bearer":
            return hmac.compare_digest(credentials.encode("latin-1"), self._token)  # as headers are decoded
        if scheme.lower() != "basic":
            return False
        try:
            _, _, password = base64.b64decode(credentials, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(password, self._token)


def is_of_api(scope: Scope) -> bool:
    """Whether a program has asked, and reads JSON."""
    path: str = scope["path"]
    return f"{path.removeprefix(scope.get('root_path', ''))}/".startswith("/api/")


def _refused(scope: Scope, text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    if is_of_api(scope):
        return Response(failure(text, None, status).text(), status, headers, media_type="application/json")
    return PlainTextResponse(f"{text}\n", status, headers)


def bare_host(host: str) -> str:
    """The name in a Host header, without its port: `cron.example.net`, `127.0.0.1`, `::1`."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return host.rstrip(".")
