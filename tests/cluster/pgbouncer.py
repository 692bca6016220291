"""A private PgBouncer in front of a private PostgreSQL, in transaction mode."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.conftest import missing
from tests.postgres_server import PostgresServer

PORT = 6432
SETTINGS = """
[databases]
postgres = host={server} user=duly dbname=postgres

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
server_login_retry = 1
logfile = {folder}/log
pidfile = {folder}/pid
"""


@dataclass
class PgBouncer:
    """A pooler that was started for tests."""

    server: PostgresServer
    folder: Path = field(init=False)
    _process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/sbin")
        if program is None:
            missing("pgbouncer", "apt-get install pgbouncer")
        self._program = str(program)
        self.folder = Path(tempfile.mkdtemp(prefix="duly-pool-"))
        self.folder.chmod(0o755)
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        settings = SETTINGS.format(server=self.server.folder, folder=self.folder, port=PORT)
        (self.folder / "ini").write_text(settings)
        self.start()

    def url(self) -> str:
        """The URL of the database behind it."""
        return f"postgresql://duly@/postgres?host={self.folder}&port={PORT}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        who = self._user
        self._process = subprocess.Popen(
            [self._program, "-q", str(self.folder / "ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=None if who is None else who.pw_uid,
            group=None if who is None else who.pw_gid,
            extra_groups=None if who is None else [],
        )
        for _ in range(200):
            try:
                psycopg.connect(self.url(), autocommit=True).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise TimeoutError((self.folder / "log").read_text())

    def stop(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def discard(self) -> None:
        """End it, and remove its files."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
