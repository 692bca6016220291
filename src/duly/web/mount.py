"""Where a dashboard is mounted, for an application that does not say so in the words of ASGI.

FastAPI and Starlette leave the path of a request whole, and name the mount in `root_path`. Litestar cuts the mount off
the path, puts a slash at its end, and leaves `root_path` as it was; what it has cut off is known from the path that the
server received, which it does not change.
"""

import re
from typing import Final
from urllib.parse import unquote

from starlette.types import Scope

_SLASHES: Final = re.compile("/{2,}")


def named(scope: Scope) -> Scope:
    """A request as FastAPI and Starlette pass it on; left as it is, unless it is Litestar that has passed it on."""
    received: bytes | None = scope.get("raw_path")
    litestar = scope.get("litestar_app")
    # An application that is mounted in Litestar, and has the dashboard mounted in itself, names its own part.
    if litestar is None or scope.get("app") is not litestar or not received:
        return scope
    root = scope.get("root_path", "").rstrip("/")
    below = _plain(scope["path"])
    # Without a query, which a server leaves out, but not Litestar's test client.
    whole = _plain(unquote(received.partition(b"?")[0].decode("ascii", "replace"))).removeprefix(root)
    if not whole.endswith(below):
        return scope
    root += whole.removesuffix(below)
    return {**scope, "root_path": root, "path": root + (below or "/")}


def _plain(path: str) -> str:
    """A path as Litestar compares it: a slash at its beginning, none at its end, and none twice."""
    return _SLASHES.sub("/", f"/{path.strip('/')}").rstrip("/")
