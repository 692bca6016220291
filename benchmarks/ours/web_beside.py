"""A scheduler beside a busy dashboard: later than beside another process that is as busy? Does the log grow?

Four times as many minutes of N tasks that are all due in each: alone; beside a dashboard of their store with ten
clients that ask without pause; beside a dashboard of another store with ten such clients, which takes as much
processor time and never touches the store of the scheduler; and with ten such clients of a dashboard that the process
of the scheduler itself serves, as `duly run --web` does. The difference between the second and the third is what
reading costs the writer; the rest is the price of a busy machine. The last has the price of one interpreter for both.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from benchmarks.asgi import ask
from benchmarks.ours.minutely_web import ADDRESS
from benchmarks.read_side import daily_expressions, make_store
from duly.web import dashboard

CLIENTS = 10
PLACES = ("/", "/tasks", "/tasks?state=running", "/runs", "/task?name=task-7", "/calendar", "/tasks?q=99")
READY_WITHIN_SECONDS = 120.0


def measure(folder: Path, tasks: int, minutes: int) -> dict[str, float]:
    """All four, one after the other; each scheduler begins with a new store."""
    figures = {"tasks": float(tasks), "minutes": float(minutes)}
    other = folder / "other.db"
    make_store(other, tasks, 2 * tasks, daily_expressions())
    for name in ("alone", "dashboard", "other", "within"):
        place = folder / name
        place.mkdir()
        module = "ours.minutely_web" if name == "within" else "ours.minutely"
        scheduler = _child(module, {"tasks": tasks, "minutes": minutes}, place)
        store = place / "store.db"
        shown = {"dashboard": store, "other": other, "within": place / ADDRESS}
        clients = None if name == "alone" else _clients(shown[name], store)
        found = _figures(scheduler)
        pages = 0.0 if clients is None else _ended(clients)
        figures |= {f"{name}: {key}": found[key] for key in ("late_p99_ms", "late_max_ms", "wal_max_mb")}
        figures[f"{name}: pages"] = pages
        shutil.rmtree(place)
    return figures


def _child(module: str, arguments: dict[str, int], folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.child", module, json.dumps(arguments), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _clients(shown: Path, store: Path) -> "subprocess.Popen[str]":
    """A process that asks until it is ended, once the scheduler has made its store."""
    until = time.monotonic() + READY_WITHIN_SECONDS
    while not store.exists():
        if time.monotonic() > until:
            raise RuntimeError("the scheduler has made no store")
        time.sleep(0.01)
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ours.web_beside", str(shown)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _figures(child: "subprocess.Popen[str]") -> dict[str, float]:
    output, _ = child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"{child.args!r} ended with {child.returncode}")
    answer: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return answer


def _ended(clients: "subprocess.Popen[str]") -> float:
    """How many pages were answered; one that was not, but for a store that is not there yet, is an error."""
    output, _ = clients.communicate("end\n")
    if clients.returncode != 0:
        raise RuntimeError("the clients failed")
    pages, faults = json.loads(output)
    if faults:
        raise RuntimeError(f"{faults} of {pages} pages were not answered")
    return float(pages)


def _asking(shown: Path) -> Callable[[str], Awaitable[int]]:
    """How to ask a dashboard of this process for a page, or the one that a file has the address of."""
    if shown.name == ADDRESS:
        return partial(_ask_there, shown.read_text())
    return partial(_ask_here, dashboard(shown))


async def _ask_without_pause(asking: Callable[[str], Awaitable[int]]) -> tuple[int, int]:
    counts = [0, 0]
    ended = asyncio.Event()

    async def client(number: int) -> None:
        while not ended.is_set():
            try:
                status = await asking(PLACES[(number + counts[0]) % len(PLACES)])
            except ConnectionError:  # the scheduler has ended, and its dashboard with it
                await asyncio.wait_for(ended.wait(), READY_WITHIN_SECONDS)
                return
            counts[0] += 1
            counts[1] += status not in {200, 404, 503}  # the task is not declared yet, nor the store made

    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return counts[0], counts[1]


async def _ask_here(app: ASGIApp, place: str) -> int:
    return (await ask(app, place))[0]


async def _ask_there(address: str, place: str) -> int:
    """The status of an answer that came as a whole; raises a ConnectionError if none did."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        head = f"GET {place} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.read(-1)
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError
    return int(answer.split(maxsplit=2)[1])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_ask_without_pause(_asking(Path(sys.argv[1]))))))
