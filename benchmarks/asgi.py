"""Asks an ASGI application for a page, in this process: what a server adds is not measured."""

from typing import Any

from starlette.types import ASGIApp, Message


async def ask(app: ASGIApp, place: str, *, compressed: bool = True) -> tuple[int, bytes]:
    """The status and the body, compressed as a browser would get it."""
    path, _, query = place.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"accept-encoding", b"gzip" if compressed else b"identity")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    status = 0
    body = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))

    await app(scope, receive, send)
    return status, bytes(body)
