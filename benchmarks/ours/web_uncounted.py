"""The dashboard of N tasks that are due twice an hour: processor time of pages whose load was not counted before."""

import time
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.asgi import ask
from benchmarks.ours.web import make_store, until_counted
from benchmarks.pages import UNCOUNTED
from benchmarks.watching import percentile
from duly.web import dashboard


async def measure(folder: Path, tasks: int, history: int, rounds: int = 20) -> dict[str, float]:
    """Ask for each page from another day on in each round: none finds anything that another has counted."""
    store = folder / "store.db"
    make_store(store, tasks, history, "twice_an_hour")
    app = dashboard(store)
    await until_counted(app)
    figures = {"tasks": float(tasks)}
    moment = datetime.now()
    for what, place in UNCOUNTED.items():
        took = []
        for _ in range(rounds + 1):
            moment += timedelta(days=1)
            asked = place.format(moment=f"{moment:%Y-%m-%dT%H:%M}")
            used = time.process_time()
            status, _ = await ask(app, asked)
            took.append(1000 * (time.process_time() - used))
            if status != 200:
                raise RuntimeError(f"{asked} was answered with {status}")
        figures[f"{what}: p95_ms"] = percentile(took[1:], 95)
    return figures
