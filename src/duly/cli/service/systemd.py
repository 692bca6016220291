"""Reports to systemd, or another service manager, over its notification socket, if there is one."""

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """The protocol of sd_notify(3): lines of NAME=value in one datagram; without NOTIFY_SOCKET nothing is sent."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # "@" stands for the NUL that begins a name without a file.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_microseconds = _watchdog(environment)
        """How often a sign of life is expected, or None."""

    @property
    def listens(self) -> bool:
        """Whether a service manager listens."""
        return bool(self._address)

    def send(self, **state: object) -> None:
        """Send a state such as READY=1 or STATUS=text; a service manager that is gone is not a fault."""
        if not self._address:
            return
        lines = "\n".join(f"{name}={' '.join(str(value).splitlines())}" for name, value in state.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.setblocking(False)
            datagrams.sendto(lines.encode("utf-8", "replace"), self._address)


def _watchdog(environment: Mapping[str, str]) -> int | None:
    text, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
    if not text.isdecimal() or int(text) == 0 or (pid is not None and pid != str(os.getpid())):
        return None
    return int(text)
