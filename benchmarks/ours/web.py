"""The dashboard of a store with N tasks: processor time of each page, of the first and of counting; bytes, memory."""

import asyncio
import contextlib
import json
import re
import resource
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from starlette.types import ASGIApp

from benchmarks.asgi import ask
from benchmarks.cluster.processor import of_process
from benchmarks.pages import PAGES
from benchmarks.watching import percentile
from duly.clock import SystemClock
from duly.stores import SqliteReader
from duly.web import dashboard
from duly.web.sampler import Sampler

COUNTED_WITHIN_SECONDS = 300.0

# A process of its own: what making the store takes is not memory of the dashboard.
MAKE = """
import sys
from pathlib import Path
from benchmarks import read_side
expressions = getattr(read_side, sys.argv[4])()
read_side.make_store(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), expressions)
"""

# A process of its own, as `duly web` is: interpreter, imports and the first page, whose counts follow.
COLD = """
import asyncio, json, sys, time
from benchmarks.asgi import ask
from duly.web import dashboard
status, body = asyncio.run(ask(dashboard(sys.argv[1]), "/"))
print(json.dumps([status, time.process_time() * 1000]))
"""


async def measure(folder: Path, tasks: int, history: int, rounds: int = 20) -> dict[str, float]:
    """Ask for every page, one after the other, again and again."""
    store = folder / "store.db"
    make_store(store, tasks, history)
    add_troubles(store)
    add_minutely(store)
    cold_ms = _cold_ms(store)
    command_ms = _command_ms(store)
    share = _sampler_share(store)
    app = dashboard(store)
    begun, used = time.monotonic(), time.process_time()
    await until_counted(app)
    figures = {
        "tasks": float(tasks),
        "cold_ms": cold_ms,
        "command_ms": command_ms,
        "sampler_percent": share,
        "counted_s": time.monotonic() - begun,
        "counted_cpu_s": time.process_time() - used,
    }
    for what, place in PAGES.items():
        took = []
        for _ in range(rounds + 1):
            used = time.process_time()
            status, _ = await ask(app, place)
            took.append(1000 * (time.process_time() - used))
            if status != status_of(place):
                raise RuntimeError(f"{place} was answered with {status}")
        figures[f"{what}: p95_ms"] = percentile(took[1:], 95)
    figures["first_load_kb"] = await _first_load_kb(app)
    figures["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def status_of(place: str) -> int:
    """The status that a page is answered with."""
    return 404 if place.endswith("name=nobody") else 200


def make_store(store: Path, tasks: int, history: int, expressions: str = "daily_expressions") -> None:
    """A store that is made in a process of its own; its expressions are those of a function of `read_side`."""
    subprocess.run([sys.executable, "-c", MAKE, str(store), str(tasks), str(history), expressions], check=True)


def add_troubles(store: Path) -> None:
    """Let one task in a thousand wait for its retry."""
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE states SET failures = 1 + generation % 3, last_failure_at = last_success_at + 1000000, "
            "pending_retry_until = last_success_at + 86400000000, first_started_at = last_attempt_at, "
            "first_scheduled = last_attempt_at, attempt = 1 WHERE generation % 1000 = 1"
        )


def add_minutely(store: Path) -> None:
    """One more task, which is due in every minute and has run in each of the last fourteen days."""
    now = time.time_ns() // 1000
    runs = 14 * 24 * 60
    first = (now // 60_000_000 - runs) * 60_000_000
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        generation, seq = connection.execute(
            "SELECT 1 + max(generation), (SELECT max(seq) FROM runs) FROM tasks"
        ).fetchone()
        connection.execute(
            "INSERT INTO tasks VALUES (?, 'minutely', '* * * * *', 60000, ?, NULL)", (generation, first - 60_000_000)
        )
        connection.execute(
            "INSERT INTO states (generation, served_through, last_attempt_at, last_success_at, failures, "
            "interruptions, written_by) VALUES (?, ?, ?, ?, 0, 0, 1)",
            (generation, now // 60_000_000 * 60, now - 1_000_000, now - 500_000),
        )
        connection.executemany(
            "INSERT INTO runs (seq, run, generation, cause, scheduled, started_at, ended_at, outcome, error) "
            "VALUES (?, ?, ?, 'cron', ?, ?, ?, ?, ?)",
            (
                (
                    *(seq + 1 + number, seq + 1 + number, generation),
                    *(due := first + number * 60_000_000, due + 3_000, due + 3_000 + number % 40 * 1_000_000),
                    *(("success", None) if number % 50 else ("failure", "ValueError: no such file")),
                )
                for number in range(runs)
            ),
        )
        connection.executemany(
            "UPDATE meta SET value = ? WHERE key = ?", [(seq + runs, "run"), (generation, "generation")]
        )


def _cold_ms(store: Path) -> float:
    """The second process: an installed package has its bytecode, a checkout may not have it before the first."""
    command = [sys.executable, "-c", COLD, str(store)]
    subprocess.run(command, capture_output=True, check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    status, cpu_ms = json.loads(done.stdout)
    if status != 200:
        raise RuntimeError(f"the first page was answered with {status}")
    return float(cpu_ms)


def _command_ms(store: Path) -> float:
    """Processor time of a new `duly web` until its first page is there; the second one, as above."""
    command = [sys.executable, "-m", "duly", "web", "--store", str(store), "--port", "0"]
    used = 0.0
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = process.stdout.readline().rpartition(" ")[2].strip()
            with urllib.request.urlopen(f"{address}/", timeout=60) as answer:
                answer.read()
            used = 1000 * (of_process(process.pid) or 0.0)
            process.terminate()
    return used


def _sampler_share(store: Path) -> float:
    """Percent of a core that the sampler takes if the store never rests: one look, and the rest after it."""
    clock = SystemClock()
    sampler = Sampler(SqliteReader(store, clock.now), clock, 1.0)
    begun, used = time.monotonic(), time.thread_time()
    rest = sampler.sample_if_changed()
    return 100 * (time.thread_time() - used) / (time.monotonic() - begun + rest)


async def until_counted(app: ASGIApp) -> None:
    """Wait for the first sample."""
    until = time.monotonic() + COUNTED_WITHIN_SECONDS
    while b"duly_tasks{" not in (await ask(app, "/metrics", compressed=False))[1]:
        if time.monotonic() > until:
            raise RuntimeError(f"the tasks were not counted within {COUNTED_WITHIN_SECONDS:.0f} s")
        await asyncio.sleep(0.05)


async def _first_load_kb(app: ASGIApp) -> float:
    """Page and assets, as they are transferred."""
    _, page = await ask(app, "/")
    text = (await ask(app, "/", compressed=False))[1].decode()
    assets = re.findall(r'(?:href|src)="(/static/[^"]*)"', text)
    return sum(len(body) for _, body in [(0, page), *[await ask(app, asset) for asset in assets]]) / 1000
