"""A real browser, and dashboards that it can reach."""

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from duly.web.server import Server, address_of, bound
from tests.conftest import missing, require
from tests.programs import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
AXE_VERSION = "4.14.0"
AXE = Path(os.environ.get("DULY_AXE", ROOT / "build/axe/node_modules/axe-core/axe.min.js"))
WIDTHS = {"desktop": (1320, 1000), "phone": (390, 844)}


@contextlib.contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """A dashboard at an address of its own, served from a thread; the address has no slash at its end."""
    listener = bound("127.0.0.1", 0)
    server = Server(app)

    def serve() -> None:
        import asyncio

        asyncio.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield address_of(listener)
    finally:
        server.end()
        thread.join(10)
        with contextlib.suppress(OSError):
            listener.close()


def chromium() -> str:
    """The path of the browser; the calling test is skipped, or fails, without it."""
    require("playwright", "pip install playwright")
    found = shutil.which("chromium")
    if found is None:
        missing("chromium", "apt-get install chromium")
    return found


def axe_source() -> str:
    """The text of axe-core; the calling test is skipped, or fails, without it."""
    if not AXE.is_file():
        missing("axe-core", f"npm install --prefix build/axe axe-core@{AXE_VERSION}")
    return AXE.read_text()


@contextlib.contextmanager
def browser() -> Iterator["Browser"]:
    """The browser, without a window."""
    program = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield opened
        finally:
            opened.close()


def free_port() -> int:
    """A port that nobody listened at a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
