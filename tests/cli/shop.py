"""A shared store on a real server, as two hosts have left it some minutes ago, for commands that are given its URL."""

import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from duly.cli.app import main
from duly.core.moments import Instant
from duly.core.task import Cause
from tests.cli.program import PATIENCE_SECONDS, ROOT, environment
from tests.postgres_server import PostgresServer
from tests.stores.shared_hosts import HOUR, MINUTE, TaskSet, TestHost, generations
from tests.stores.shared_stores import PostgresStoreUnderTest

RARELY: TaskSet = {"backup": ("0 3 1 1 *", 1_000), "report": ("0 4 1 1 *", 0)}
"""Tasks that are not due while a test runs, unless it runs in a certain night of the year."""

TARGET = """from datetime import timedelta

registrations = [
    ("backup", "0 3 1 1 *", print, timedelta(seconds=1)),
    ("report", "0 4 1 1 *", print, timedelta(0)),
    ("mail", "0 5 1 1 *", print, timedelta(0)),
]
"""


class SharedStage:
    """A store in a schema of its own. Its lease is an hour: no host dies of a machine that is busy."""

    def __init__(self, server: PostgresServer, schema: str | None = None) -> None:
        self.server = server
        self.store = PostgresStoreUnderTest(server, schema)
        self.schema = self.store.url.schema
        self.began = Instant(time.time_ns() // 1000 - 10 * MINUTE)

    def fill(self) -> None:
        """Two hosts join; one is buried in the middle of a run, and the other repeats it."""
        store = self.store
        store.empty()
        store.now = self.began
        self.first, self.second = TestHost(store, "a" * 32), TestHost(store, "b" * 32)
        for host, label in ((self.first, "web-1"), (self.second, "web-2")):
            host.join(RARELY, lease=HOUR, label=label, zone="Africa/Lagos")
            host.read()
        names = generations(store)
        self.passes(MINUTE)
        self.first.start(names["report"])
        self.first.end(names["report"], 10**12 + 1)
        self.passes(MINUTE)
        started = store.now
        self.second.start(names["backup"])
        self.passes(MINUTE)
        self.first.read()
        self.first.bury(self.second)
        self.passes(MINUTE)
        self.first.start(names["backup"], cause=Cause.INTERRUPTED, scheduled=started, interruptions=1)
        self.passes(6 * MINUTE)
        self.first.beat()

    def join_newer(self) -> None:
        """A third host, without a label, declares one task more: the first one is outdated."""
        host = TestHost(self.store, "c" * 32)
        host.join({**RARELY, "mail": ("0 5 1 1 *", 0)}, lease=HOUR, label=None, zone="Africa/Lagos")
        host.start(generations(self.store)["mail"])
        host.beat()

    def moment(self, minutes: int) -> str:
        """Some minutes after the first host joined."""
        return datetime.fromtimestamp((self.began + minutes * MINUTE) / 1_000_000, UTC).isoformat()

    def passes(self, microseconds: int) -> None:
        self.store.now = Instant(self.store.now + microseconds)

    @property
    def url(self) -> str:
        return self.server.url()

    @property
    def options(self) -> list[str]:
        """The options that name the store."""
        return ["--store", self.url, "--schema", self.schema]

    def close(self) -> None:
        self.store.connection.close()


class Printed(NamedTuple):
    """The output of a command."""

    code: int
    out: str
    err: str


def in_process(*arguments: str) -> Printed:
    """Run a command in this process: starting the interpreter takes longer than most of them."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    return Printed(code, out.getvalue(), err.getvalue())


_ALL = """
import json, sys
from tests.cli.shop import in_process
for arguments in json.load(sys.stdin):
    print(json.dumps(in_process(*arguments)), flush=True)
"""


def in_another_process(commands: Sequence[Sequence[str]], folder: Path, **extra: str) -> list[Printed]:
    """Run commands, one after the other, in one other process, where their environment is."""
    settings = environment(**extra)
    settings["PYTHONPATH"] = f"{settings['PYTHONPATH']}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", _ALL],
        input=json.dumps([list(each) for each in commands]),
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    printed = [Printed(*json.loads(line)) for line in lines if line.startswith("[")]
    # What a library writes without asking Python, or a scheduler logs, counts as well.
    rest = "\n".join(line for line in lines if not line.startswith("["))
    return [*printed, Printed(0, rest, done.stderr)]
