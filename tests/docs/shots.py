"""Screenshots of the dashboard for the pages: `python -m tests.docs.shots`, or `make shots`; written into docs/images.

The store, its clock and the process that seems to hold it are the same each time. What remains is the browser and its
fonts: with the same ones, the files are the same.
"""

import asyncio
import contextlib
import io
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

from PIL import Image

from duly.core.moments import MICROSECONDS
from duly.stores import SqliteReader
from duly.web.app import over
from duly.web.frame import Settings
from tests.programs import ROOT
from tests.web import stage
from tests.web.browser import browser, served
from tests.web.shots import held
from tests.web.stage import FORTY, FixedClock, past

IMAGES = ROOT / "docs" / "images"
BYTES_MAX = 200_000
SHOTS = {
    "overview": "/",
    "task": "/task?name=stock/sync-warehouse",
    "calendar": "/calendar",
}
_SIZE = (1320, 920)
_COLOURS = 96


def main() -> None:
    """Write them."""
    logging.getLogger("duly").setLevel(logging.CRITICAL)
    IMAGES.mkdir(parents=True, exist_ok=True)
    plain = [each for each in stage.ERRORS if each.isprintable()]  # without those that try to break out of the page
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(stage, "ERRORS", plain))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-shots-")))
        path = folder / "state.db"
        clock = asyncio.run(past(path, FORTY, days=16))
        app = over(path, SqliteReader(path, clock.now), clock, Settings(), name="/srv/app/state.db")
        opened = stack.enter_context(browser())
        address = stack.enter_context(served(app))
        stack.enter_context(held(path, clock))
        name_the_holder(path, clock)
        page = opened.new_page(
            viewport={"width": _SIZE[0], "height": _SIZE[1]}, color_scheme="light", reduced_motion="reduce"
        )
        for name, place in SHOTS.items():
            for _ in range(60):
                page.goto(address + place)
                if page.get_by_text("Counting").count() == 0:  # what concerns all tasks is looked up in the background
                    break
                page.wait_for_timeout(1000)
            file = IMAGES / f"dashboard-{name}.png"
            file.write_bytes(small(page.screenshot()))
            sys.stdout.write(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes\n")
            assert file.stat().st_size <= BYTES_MAX
        page.close()  # before the server ends, which waits for its stream of changes


def name_the_holder(store: Path, clock: FixedClock) -> None:
    """Write another process and another machine into the lock, which is held."""
    lock = Path(f"{store}.lock")
    holder = json.loads(lock.read_text()) | {"pid": 30816, "host": "vm"}
    lock.write_text(json.dumps(holder))
    polled = clock.now() / MICROSECONDS - 13.9
    os.utime(lock, (polled, polled))


def small(picture: bytes) -> bytes:
    """A picture with few colours, as pages have few."""
    written = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return written.getvalue()


if __name__ == "__main__":
    main()
