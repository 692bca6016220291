"""Network namespaces for tests: a database behind a router, places around it, and cables that can be cut.

Each place is a namespace of its own with one cable to the router; so is the database. Nothing of the machine's own
network is touched, and no packet leaves the namespaces. A cut is a blackhole rule in the router: packets vanish there
and neither side is told, as behind a switch that has lost its power.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from tests.conftest import missing

IP: Final = "ip"
_networks = count(1)


class Network:
    """A router, a database and some places."""

    def __init__(self, places: int) -> None:
        prefix = f"duly-{os.getpid()}-{next(_networks)}"
        self._router = f"{prefix}-router"
        self._names = [f"{prefix}-database", *(f"{prefix}-place-{number}" for number in range(places))]
        self._rules: set[tuple[int, str]] = set()
        _require_namespaces(f"{prefix}-trial")
        _remove_stale()
        try:
            self._build()
        except BaseException:
            self.remove()
            raise

    def _build(self) -> None:
        _ip("netns", "add", self._router)
        for number, name in enumerate(self._names):
            cable = f"cable{number}"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("link", "add", cable, "netns", self._router, "type", "veth", "peer", "name", cable, "netns", name)
            for namespace, address in ((self._router, _gateway(number)), (name, _address(number))):
                _ip("-n", namespace, "address", "add", f"{address}/30", "dev", cable)
                _ip("-n", namespace, "link", "set", cable, "up")
            _ip("-n", name, "route", "add", "default", "via", _gateway(number))
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        subprocess.run([*inside(self._router), "sh", "-c", forward], check=True)

    # --- who is where ------------------------------------------------------------------------------------------------

    @property
    def database(self) -> str:
        """The namespace of the database."""
        return self._names[0]

    @property
    def address(self) -> str:
        """The address of the database."""
        return _address(0)

    @property
    def addresses(self) -> str:
        """All addresses of the network, as pg_hba.conf writes them."""
        return "10.231.0.0/16"

    def place(self, number: int) -> str:
        """The namespace of a place; they are numbered from 0."""
        return self._names[1 + number]

    # --- cuts --------------------------------------------------------------------------------------------------------

    def cut(self, place: int, *, requests: bool, answers: bool) -> None:
        """Let what a place sends vanish, or what it would receive, or both."""
        for wanted, direction in ((requests, "from"), (answers, "to")):
            if wanted and (place, direction) not in self._rules:
                self._rules.add((place, direction))
                self._rule("add", place, direction)

    def mend(self, place: int) -> None:
        """Let everything through again."""
        for direction in ("from", "to"):
            if (place, direction) in self._rules:
                self._rules.discard((place, direction))
                self._rule("del", place, direction)

    def _rule(self, verb: str, place: int, direction: str) -> None:
        _ip("-n", self._router, "rule", verb, direction, _address(1 + place), "priority", "100", "blackhole")

    def remove(self) -> None:
        """Nothing is left of it; processes inside have to be ended first."""
        for name in (*self._names, self._router):
            subprocess.run([IP, "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def inside(namespace: str) -> Sequence[str]:
    """The prefix of a command that runs in a namespace; it becomes the command, under its process number."""
    return (IP, "netns", "exec", namespace)


def _address(number: int) -> str:
    return f"10.231.{number}.2"


def _gateway(number: int) -> str:
    return f"10.231.{number}.1"


def _ip(*arguments: str) -> None:
    done = subprocess.run([IP, *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _require_namespaces(trial: str) -> None:
    if shutil.which(IP) is None:
        missing("ip", "apt-get install iproute2")
    try:
        _ip("netns", "add", trial)
    except OSError as error:
        missing("network namespaces", f"run as root on Linux, in a container with CAP_NET_ADMIN ({error})")
    _ip("netns", "delete", trial)


def _remove_stale() -> None:
    """Remove the namespaces of test processes that were killed."""
    listed = subprocess.run([IP, "netns", "list"], check=True, capture_output=True, text=True).stdout
    for name in re.findall(r"^duly-[0-9]+-\S+", listed, re.MULTILINE):
        if not Path("/proc", name.split("-")[1]).exists():
            subprocess.run([IP, "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)
