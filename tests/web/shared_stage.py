"""A store that hosts share, on a real server, with the past of a simulated scheduler: for pages to show."""

from pathlib import Path

from starlette.types import ASGIApp

from duly.core.moments import Instant
from duly.core.news import RUNS_OF_A_HOST
from duly.stores import PostgresReader
from duly.stores.postgres import transfer as schemas
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.script import quoted
from duly.stores.postgres.url import StoreUrl, read_url
from duly.stores.sqlite import transfer as files
from duly.web.app import over
from duly.web.frame import Settings
from tests.postgres_server import PostgresServer
from tests.web.stage import FixedClock

LABELS = ("web-1", "web-2", "<b>worker</b> \u202e3")
"""Labels of hosts; one of them is hostile."""

SECOND = 1_000_000


class SharedPast:
    """The past of an embedded store as three hosts would have left it.

    Host 1 lives, host 2 was buried half an hour ago, host 3 lives and declares an older edition. Each of them started a
    third of the runs, and host 1 runs what the last crash cut short.
    """

    def __init__(self, server: PostgresServer, schema: str, path: Path, clock: FixedClock) -> None:
        self.server = server
        self.clock = clock
        self.url: StoreUrl = read_url(server.url(), schema)
        server.execute(f"drop schema if exists {quoted(schema)} cascade")
        with files.leaving(path) as content:
            schemas.arrive(self.url, content, lambda _: None, lambda: None)
        self._divide()

    def _divide(self) -> None:
        at = self.clock.now()
        hosts = [
            # key, label, since, edition, last beat, gone
            (1, LABELS[0], at - 3 * 86_400 * SECOND, 2, at - 3 * SECOND, "null"),
            (2, LABELS[1], at - 2 * 86_400 * SECOND, 2, at - 1800 * SECOND, "'b'"),
            (3, LABELS[2], at - 86_400 * SECOND, 1, at - 4 * SECOND, "null"),
        ]
        moment = "timestamptz 'epoch' + {} * interval '1 microsecond'"
        self.change(
            "delete from hosts",
            *(
                "insert into hosts (key, identifier, label, since, lease, edition, beat, renewed_at, seen, gone) "
                f"values ({key}, md5('{key}')::uuid, '{label}', {since}, '30 s', {edition}, 9, "
                f'{moment.format(beat)}, 9, {gone}::"char")'
                for key, label, since, edition, beat, gone in hosts
            ),
            f"insert into editions values (1, 'a', {moment.format(at - 3 * 86_400 * SECOND)})",
            f"insert into editions values (2, 'b', {moment.format(at - 7200 * SECOND)})",
            "update cluster set edition = 2",
            "delete from runs where outcome = 'interrupted' and exists "
            "(select from states s where s.generation = runs.generation and s.run = runs.run)",
            f"update runs set host = 1 + seq % 3, run = (1 + seq % 3) * {RUNS_OF_A_HOST} + seq",
            f"update states set run = {RUNS_OF_A_HOST} + run where run is not null",
            "analyze",
        )

    def change(self, *statements: str) -> None:
        """Change what is there, as nothing but a careless hand would."""
        connection = Connection(self.url)
        connection.read(*statements, within_schema=True, limit_seconds=60)
        connection.close()

    def reader(self, **options: float) -> PostgresReader:
        """A reader whose clock stands still."""
        return PostgresReader(self.url, now=lambda: Instant(self.clock.now()), connections_kept=2, **options)  # type: ignore[arg-type]

    def dashboard(self, settings: Settings | None = None) -> ASGIApp:
        return over(self.url, self.reader(), self.clock, settings or Settings())

    @property
    def options(self) -> list[str]:
        """The options that name the store to a command."""
        return ["--store", self.server.url(), "--schema", self.url.schema]
