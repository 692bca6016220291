"""Screenshots of every page, in light, dark and phone width, for a designer's eye; `make shots` writes them.

Stores: `forty` with sixteen days of work and a scheduler, `one` with a single task, `none` that is not there yet,
`hostile` with names that try to break out, and, with `--million`, one of a million tasks.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from duly.core.moments import MICROSECONDS, Instant
from duly.stores import SqliteReader
from duly.stores.sqlite.lock import LockFile
from duly.web.app import over
from duly.web.frame import Settings
from tests.programs import ROOT
from tests.stores.made import make_store, random_rows
from tests.web.browser import WIDTHS, browser, served
from tests.web.hostile import NAMES
from tests.web.stage import FORTY, ZONE, FixedClock, past

SHOTS = ROOT / "build" / "shots"
PAGES = {
    "forty": {
        "overview": "/",
        "tasks": "/tasks",
        "tasks-failing": "/tasks?state=failing&sort=failure",
        "tasks-nothing": "/tasks?q=bakup%2Ffull",
        "task-often": "/task?name=stock/sync-warehouse",
        "task-failing": "/task?name=partners/sync-acme-mirror",
        "task-minutely": "/task?name=heartbeat",
        "task-daily": "/task?name=search/reindex",
        "runs": "/runs",
        "runs-failed": "/runs?outcome=failure",
        "calendar": "/calendar",
        "next": "/next?cron=30+2+*+*+*&from=2027-03-27",
        "next-wrong": "/next?cron=*/5+*+*+*+*",
        "about": "/about",
        "unknown": "/task?name=stock/sync-warehous",
    },
    "one": {"overview": "/", "tasks": "/tasks", "task": "/task?name=backup", "runs": "/runs"},
    "none": {"overview": "/"},
    "hostile": {"overview": "/", "tasks": "/tasks", "task": "/task?generation=11", "runs": "/runs"},
    "million": {
        "overview": "/",
        "tasks": "/tasks",
        "tasks-next": "/tasks?sort=next",
        "tasks-owed": "/tasks?state=owed",
    },
}


def make_stores(folder: Path, *, million: bool) -> dict[str, FixedClock]:
    """Make the stores; returns the clock of each."""
    logging.getLogger("duly").setLevel(logging.CRITICAL)
    clocks = {"forty": asyncio.run(past(folder / "forty.db", FORTY, days=16))}
    one = [("backup", "30 2 * * *", 30, 840.0, 0.0)]
    clocks["one"] = asyncio.run(past(folder / "one.db", one, days=0.3))
    clocks["none"] = clocks["one"]
    entries = [(name, "0,20,40 * * * *", 1, 4.0, 0.6) for name in NAMES]
    clocks["hostile"] = asyncio.run(past(folder / "hostile.db", entries, days=1))
    if million:
        at = Instant(clocks["one"].now())
        rows = random_rows(random.Random(3), at, 1_000_000)
        make_store(folder / "million.db", rows, schedulers=(0, at - 3600 * MICROSECONDS), zone=ZONE)
        clocks["million"] = FixedClock(at, ZoneInfo(ZONE))
    return clocks


@contextlib.contextmanager
def held(path: Path, clock: FixedClock) -> Iterator[None]:
    """Let a scheduler seem to run on a store."""
    if not path.exists():
        yield
        return
    lock = LockFile(str(path))
    lock.acquire(datetime.fromtimestamp(clock.now() / MICROSECONDS - 7200, UTC))
    polled = clock.now() / MICROSECONDS - 13.9
    os.utime(f"{path}.lock", (polled, polled))
    try:
        yield
    finally:
        lock.release()


def main() -> None:
    """Write the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--only", help="stores to look at, separated by commas")
    arguments = parser.parse_args()
    shutil.rmtree(SHOTS, ignore_errors=True)
    SHOTS.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-shots-")))
        clocks = make_stores(folder, million=arguments.million)
        opened = stack.enter_context(browser())
        for store, clock in clocks.items():
            if arguments.only and store not in arguments.only.split(","):
                continue
            path = folder / f"{store}.db"
            app = over(SqliteReader(path, clock.now), f"/srv/app/{store}.db", clock, Settings())
            with served(app) as address, held(path, clock):
                for scheme in ("light", "dark"):
                    for width, (wide, high) in WIDTHS.items():
                        if (scheme, width) == ("dark", "phone"):
                            continue
                        context = opened.new_context(
                            viewport={"width": wide, "height": high}, color_scheme=scheme, reduced_motion="reduce"
                        )
                        page = context.new_page()
                        for title, place in PAGES[store].items():
                            page.goto(address + place)
                            with contextlib.suppress(Exception):
                                page.wait_for_selector("text=Counting", state="detached", timeout=20_000)
                            file = SHOTS / f"{store}-{title}-{scheme if width == 'desktop' else width}.png"
                            page.screenshot(path=file, full_page=True)
                            sideways = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                            sys.stdout.write(f"{file.name}{'' if sideways <= 0 else f'  SIDEWAYS {sideways}'}\n")
                        context.close()


if __name__ == "__main__":
    main()
