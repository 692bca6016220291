"""The dashboard of N tasks on PostgreSQL: processor time of each page, of this process and of the server."""

import time
from pathlib import Path

from benchmarks.asgi import ask
from benchmarks.cluster.processor import of_server
from benchmarks.cluster.server import Server
from benchmarks.ours.web import add_minutely, add_troubles, make_store, status_of, until_counted
from benchmarks.pages import PAGES
from benchmarks.watching import percentile
from duly.stores.postgres import transfer as schemas
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.url import read_url
from duly.stores.sqlite import transfer as files
from duly.web import dashboard

LIVING = "now() + interval '1 hour'"
HOST_COLUMNS = "key, identifier, label, since, lease, edition, beat, renewed_at, seen"
# A host that lives for as long as this takes, because a store without one has other pages.
HOST = (
    "delete from hosts",
    f"insert into hosts ({HOST_COLUMNS}) values (1, md5('1')::uuid, 'bench', 1, '30 s', 1, 9, {LIVING}, 9)",
    "insert into editions values (1, 'a', now())",
    "update cluster set edition = 1",
    "analyze",
)


async def measure(folder: Path, tasks: int, history: int, rounds: int = 20) -> dict[str, float]:
    """Ask for every page, one after the other, again and again."""
    path = folder / "store.db"
    make_store(path, tasks, history)
    add_troubles(path)
    add_minutely(path)
    server = Server()
    try:
        url = read_url(server.url(), "duly")
        with files.leaving(path) as content:
            schemas.arrive(url, content, lambda _: None, lambda: None)
        connection = Connection(url)
        connection.read(*HOST, within_schema=True, limit_seconds=120)
        connection.close()
        app = dashboard(server.url())
        await until_counted(app)
        figures = {"tasks": float(tasks)}
        for what, place in PAGES.items():
            took = []
            for _ in range(rounds + 1):
                used = time.process_time() + (of_server(server.postmaster) or 0.0)
                status, _ = await ask(app, place)
                took.append(1000 * (time.process_time() + (of_server(server.postmaster) or 0.0) - used))
                if status != status_of(place):
                    raise RuntimeError(f"{place} was answered with {status}")
            figures[f"{what}: p95_ms"] = percentile(took[1:], 95)
        return figures
    finally:
        server.discard()
