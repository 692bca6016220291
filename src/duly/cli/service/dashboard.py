"""The dashboard that a command serves: its address, its token, and who may reach it.

`duly web` serves it in its own event loop. `duly run --web` does so in a thread with another event loop than the
scheduler's, so that a client which is slow, or asks without end, holds up none of its starts.
"""

import asyncio
import socket
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from duly.cli.output import Exit, fail, note, reason_of
from duly.errors import DulyError
from duly.stores.place import StorePlace
from duly.text import plain

if TYPE_CHECKING:
    from duly.web.server import Server

_TOKEN_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """The protection of a dashboard; `prefix` is what the options of the command begin with."""

    token_file: Path | None
    allowed_hosts: Sequence[str]
    insecure: bool
    prefix: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard that listens already, and is not served yet."""

    server: "Server"
    listener: socket.socket
    address: str

    async def serve(self) -> None:
        """Serve it until told to end."""
        await self.server.serve(sockets=[self.listener])


def open_dashboard(
    store: StorePlace, host: str, port: int, access: Access, *, show_errors: bool = True, title: str | None = None
) -> Dashboard:
    """Bind the address, so that all that can be wrong with it is said before anything else begins."""
    try:
        from duly.web import dashboard, server
    except ModuleNotFoundError as missing:
        fail(f"the dashboard needs the package {missing.name}", 'pip install "duly[web]"')
    token = None if access.token_file is None else _token(access.token_file)
    if token is None and not access.insecure and not server.is_local(host):
        fail(
            f"{host} can be reached by others, and there is no token",
            f"name a file with one: {access.prefix}token-file; or listen at 127.0.0.1, behind a server of yours",
        )
    try:
        app = dashboard(
            store,
            token=token,
            allowed_hosts=server.hosts_for(host, access.allowed_hosts),
            show_errors=show_errors,
            title=title,
        )
    except DulyError as error:
        fail(error.message, error.details.get("hint"), Exit.STORE)
    try:
        listener = server.bound(host, port)
    except (OSError, UnicodeError) as fault:
        _refuse(host, port, fault)
    return Dashboard(server.Server(app), listener, server.address_of(listener))


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8347`, `[::1]:8347` or a port alone, which is one of 127.0.0.1; raises ValueError."""
    host, separator, port = text.rpartition(":")
    if not separator:
        host = "127.0.0.1"
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address such as 127.0.0.1:8347")
    return host, int(port)


def _refuse(host: str, port: int, fault: Exception) -> NoReturn:
    if isinstance(fault, socket.gaierror | UnicodeError):
        fail(f"no such address: {plain(host)}", "name an address of this machine, such as 127.0.0.1 or 0.0.0.0")
    assert isinstance(fault, OSError)
    fail(f"cannot listen at {plain(host)}, port {port}: {reason_of(fault)}", "choose another port")


def _token(path: Path) -> str:
    """The token in a file: its text without blanks around it."""
    try:
        with path.open("rb") as file:
            token = file.read(_TOKEN_BYTES_MAX + 1).decode().strip()
            mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as fault:
        fail(f"the token cannot be read from {plain(path)}: {reason_of(fault)}")
    except UnicodeDecodeError:
        fail(f"{plain(path)} holds no text", "write a token into it: openssl rand -hex 32")
    if not token or len(token) > _TOKEN_BYTES_MAX or not token.isprintable():
        fail(f"{plain(path)} holds no token", "write one line into it, such as: openssl rand -hex 32")
    if mode & stat.S_IROTH:
        note(f"{plain(path)} can be read by every user (mode {mode:04o})", "warning", "bold yellow")
    return token


class DashboardThread:
    """Serves a dashboard in a thread of its own; a defect there ends the thread, and not the scheduler."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._thread = threading.Thread(target=self._run, name="duly-web", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def end(self) -> None:
        """Stop serving; the thread is not waited for, because nothing depends on what it still sends."""
        self._dashboard.server.end()

    def _run(self) -> None:
        try:
            asyncio.run(self._dashboard.serve())
        except Exception as fault:
            note(f"the dashboard has ended: {type(fault).__name__}: {plain(fault)}", "warning", "bold yellow")
        finally:
            self._dashboard.listener.close()
