"""A scheduler beside a busy dashboard: later than beside another process that is as busy? Does the log grow?

Three times as many minutes of N tasks that are all due in each: alone; beside a dashboard of their store with ten
clients that ask without pause; and beside a dashboard of another store with ten such clients, which takes as much
processor time and never touches the store of the scheduler. The difference between the last two is what reading costs
the writer; the rest is the price of a busy machine.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.asgi import ask
from benchmarks.read_side import daily_expressions, make_store
from duly.web import dashboard

CLIENTS = 10
PLACES = ("/", "/tasks", "/tasks?state=running", "/runs", "/task?name=task-7", "/calendar", "/tasks?q=99")
READY_WITHIN_SECONDS = 120.0


def measure(folder: Path, tasks: int, minutes: int) -> dict[str, float]:
    """All three, one after the other; each scheduler begins with a new store."""
    figures = {"tasks": float(tasks), "minutes": float(minutes)}
    other = folder / "other.db"
    make_store(other, tasks, 2 * tasks, daily_expressions())
    for name in ("alone", "dashboard", "other"):
        place = folder / name
        place.mkdir()
        scheduler = _child("ours.minutely", {"tasks": tasks, "minutes": minutes}, place)
        store = place / "store.db"
        clients = None if name == "alone" else _clients(store if name == "dashboard" else other, store)
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


async def _ask_without_pause(store: str) -> tuple[int, int]:
    app = dashboard(store)
    counts = [0, 0]
    ended = asyncio.Event()

    async def client(number: int) -> None:
        while not ended.is_set():
            status, _ = await ask(app, PLACES[(number + counts[0]) % len(PLACES)])
            counts[0] += 1
            counts[1] += status not in {200, 404, 503}  # the task is not declared yet, nor the store made

    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return counts[0], counts[1]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_ask_without_pause(sys.argv[1]))))
