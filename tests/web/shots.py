"""Screenshots of every page, in light, dark and phone width, for a designer's eye; `make shots` writes them.

Stores: `forty` with sixteen days of work and a scheduler, `one` with a single task, `none` that is not there yet,
`hostile` with names that try to break out, `traced` with a trace, `shared` by three hosts on a server, and, with
`--million`, one of a million tasks, which is kept for the next time. Beside them the files that `--html` writes.
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
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from starlette.types import ASGIApp

from duly.core.moments import MICROSECONDS, Instant
from duly.stores import SqliteReader
from duly.stores.sqlite.lock import LockFile
from duly.web.app import over
from duly.web.frame import Settings
from tests.cli.program import duly, write_target
from tests.postgres_server import bundled_binaries, server_of
from tests.programs import ROOT
from tests.stores.made import make_store, random_rows
from tests.web.browser import WIDTHS, browser, served
from tests.web.hostile import NAMES
from tests.web.shared_stage import SharedPast
from tests.web.stage import FORTY, ZONE, FixedClock, past

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SHOTS = ROOT / "build" / "shots"
MILLION = ROOT / "build" / "million.db"
_PATIENCE_MS = 180_000
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
        "whatif": "/whatif",
        "whatif-outage": "/whatif?from=2026-10-27&to=2026-10-28T12:00&down=2026-10-27T01:00..2026-10-27T07:00"
        "&crash=2026-10-27T14:02",
        "whatif-too-much": "/whatif?from=2026-10-27&to=2027-10-27",
        "verify-no-trace": "/verify",
        "about": "/about",
        "unknown": "/task?name=stock/sync-warehous",
    },
    "one": {
        "overview": "/",
        "tasks": "/tasks",
        "task": "/task?name=backup",
        "runs": "/runs",
        "calendar": "/calendar",
        "whatif": "/whatif?from=now",
    },
    "none": {"overview": "/"},
    "hostile": {
        "overview": "/",
        "tasks": "/tasks",
        "task": "/task?generation=11",
        "runs": "/runs",
        "whatif": "/whatif?from=now",
    },
    "traced": {"verify": "/verify"},
    "shared": {
        "overview": "/",
        "tasks": "/tasks",
        "task": "/task?name=partners/sync-acme-mirror",
        "task-minutely": "/task?name=heartbeat",
        "runs": "/runs",
        "verify-no-trace": "/verify",
        "about": "/about",
    },
    "million": {
        "overview": "/",
        "tasks": "/tasks",
        "tasks-next": "/tasks?sort=next",
        "tasks-owed": "/tasks?state=owed",
        "runs": "/runs",
        "calendar": "/calendar",
        "about": "/about",
        "unknown": "/task?name=task-000-nobody",
        "whatif": "/whatif?from=now",
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
    clocks["shared"] = clocks["forty"]
    clocks["traced"] = asyncio.run(past(folder / "traced.db", days=2, trace=True))
    if million:
        at = Instant(clocks["one"].now())
        if not MILLION.exists():
            rows = random_rows(random.Random(3), at, 1_000_000)
            made = make_store(folder / "million.db", rows, schedulers=(0, at - 3600 * MICROSECONDS), zone=ZONE)
            shutil.move(made, MILLION)
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


def write_files(folder: Path) -> list[Path]:
    """The pages that commands write with --html."""
    declared = ", ".join(
        f"({name!r}, {cron!r}, quick, timedelta(minutes={delay}))" for name, cron, delay, *_ in FORTY[3:]
    )
    target = write_target(folder, f'[("orders/new", "5 4 * * *", quick, timedelta(minutes=5)), {declared}]')
    times = ("--from", "2027-03-27T22:00", "--to", "2027-03-29T06:00", "--tz", ZONE)
    trouble = ("--down", "2027-03-28T01:15..2027-03-28T05:10", "--crash-at", "2027-03-28T14:00:10", "--fail", "*=5%")
    commands: dict[str, tuple[str | Path, ...]] = {
        "plan": ("plan", target, "--store", "forty.db"),
        "plan-first": ("plan", target, "--store", "new.db"),
        "verify": ("verify", "traced.db"),
        "verify-violated": ("verify", ROOT / "examples" / "traces" / "overlap-after-a-pause.jsonl"),
        "simulate": ("simulate", target, *times, *trouble, "--duration", "*=40"),
    }
    for name, command in commands.items():
        done = duly(*command, "--html", f"{name}.html", folder=folder)
        assert done.code in {0, 1}, done.err
    return [folder / f"{name}.html" for name in commands]


def looks(opened: "Browser") -> Iterator[tuple[str, "Page"]]:
    """Light, dark and phone."""
    for scheme in ("light", "dark"):
        for width, (wide, high) in WIDTHS.items():
            if (scheme, width) == ("dark", "phone"):
                continue
            context = opened.new_context(
                viewport={"width": wide, "height": high},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            context.set_default_timeout(_PATIENCE_MS)
            yield scheme if width == "desktop" else width, context.new_page()
            context.close()


def application(folder: Path, store: str, clock: FixedClock) -> ASGIApp:
    """The dashboard of one of the stores."""
    if store == "shared":
        server = server_of(bundled_binaries())
        shared = SharedPast(server, "duly", folder / "forty.db", clock)
        return over(
            shared.url, shared.reader(), clock, Settings(), name="postgresql://app@db.example.net/shop (schema duly)"
        )
    path = MILLION if store == "million" else folder / f"{store}.db"
    return over(path, SqliteReader(path, clock.now), clock, Settings(), name=f"/srv/app/{store}.db")


def shoot(page: "Page", address: str, file: Path) -> None:
    """Write the picture of a page, as long as it is, and say if it scrolls sideways."""
    for _ in range(120):
        page.goto(address)
        if not page.locator("text=Counting").count():
            break
        page.wait_for_timeout(500)  # the clock stands still, so the page does not notice by itself
    page.screenshot(path=file, full_page=True)
    sideways = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    sys.stdout.write(f"{file.name}{'' if sideways <= 0 else f'  SIDEWAYS {sideways}'}\n")


def main() -> None:
    """Write the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--only", help="stores to look at, separated by commas")
    arguments = parser.parse_args()
    if not arguments.only:
        shutil.rmtree(SHOTS, ignore_errors=True)
    SHOTS.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-shots-")))
        clocks = make_stores(folder, million=arguments.million)
        opened = stack.enter_context(browser())
        for store, clock in clocks.items():
            if arguments.only and store not in arguments.only.split(","):
                continue
            path = MILLION if store == "million" else folder / f"{store}.db"
            with served(application(folder, store, clock)) as address, held(path, clock):
                for look, page in looks(opened):
                    for title, place in PAGES[store].items():
                        shoot(page, address + place, SHOTS / f"{store}-{title}-{look}.png")
        if not arguments.only or "files" in arguments.only.split(","):
            for file in write_files(folder):
                for look, page in looks(opened):
                    shoot(page, file.as_uri(), SHOTS / f"file-{file.stem}-{look}.png")


if __name__ == "__main__":
    main()
