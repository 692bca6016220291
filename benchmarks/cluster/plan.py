"""The plan of measurements: sections, numbers of tasks, and the timetable of the faults."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.plan import Measurement

SCHEDULERS = {
    "duly": ("duly", "psycopg"),
    "APScheduler 4": ("apscheduler4", "apscheduler"),
    "PgQueuer": ("pgqueuer", "pgqueuer"),
    "Procrastinate": ("procrastinate", "procrastinate"),
    "oban": ("oban", "oban"),
}
"""By the name that tables show: the adapter, and the package that it needs."""

LEASE_SECONDS = 30
"""duly's default."""

SERVED_WITHIN = 10.0
"""Seconds after which a minute counts as not served, in ordinary minutes and after the restart."""

COMMIT_SECONDS = 0.005
"""The least time of a commit where commits are slow: about that of a database with a standby in another zone."""

TASKS_OF_A_HOST = 50
HOSTS_OF_A_PROCESS = 10
"""Where commits are slow: each host is a scheduler with its own connections and beats."""


@dataclass(frozen=True)
class Timetable:
    """When which fault comes, in seconds after a minute began; minutes of tasks begin at multiples of 60."""

    long_s: float  # what a long run takes
    pause_at: float  # the host that runs `long` is paused; the minutes before are ordinary ones
    resume_at: float
    resumed_until: float  # its run is watched until here
    once_at: float  # the only minute in which `once` is due, which is long as well
    kill_at: float  # the host that runs `once` is killed
    again_at: float  # a supervisor has started it again
    killed_until: float
    down_at: float  # all hosts are killed
    up_at: float  # and started again
    made_up_until: float
    restart_at: float  # of PostgreSQL
    end_at: float

    @property
    def ordinary(self) -> list[float]:
        """The minutes before the first fault."""
        return [60.0 * minute for minute in range(int(self.pause_at // 60) + 1)]

    @property
    def missed(self) -> list[float]:
        """The minutes that begin while all hosts are down."""
        return [60.0 * minute for minute in range(100) if self.down_at < 60.0 * minute < self.up_at]

    @property
    def after_restart(self) -> list[float]:
        """The minutes that begin after the restart of PostgreSQL, each with time to be served in."""
        minutes = (60.0 * minute for minute in range(100))
        return [minute for minute in minutes if self.restart_at < minute <= self.end_at - SERVED_WITHIN]


@dataclass(frozen=True)
class Size:
    """The size of a run."""

    name: str
    rounds: int  # of what is measured of duly alone, but for what is measured once
    timetable: Timetable
    minutely: int  # tasks of each trio that are due each minute, and return at once
    ordinary: int  # tasks of duly's undisturbed trio that are due each minute
    idle_s: float  # for which idle hosts are watched
    settle_s: float  # before that
    due: tuple[int, ...]  # tasks that are due at once
    due_patience_s: float  # with the last start of them
    rolling_s: float  # from the start of one host to the next, as in a rolling deploy
    many: int  # tasks of duly alone
    most: int
    writes_s: float
    crowd: int  # hosts where commits are slow
    steps: int
    start_s: float = 25  # for the processes of all schedulers to start, beyond the pauses between them
    patience_s: float = 600  # with one child
    budget_s: float = float("inf")

    @property
    def is_full(self) -> bool:
        """Whether its numbers are the ones in the targets."""
        return self.name == "full"


FULL = Size(
    name="full",
    rounds=3,
    timetable=Timetable(
        long_s=45,
        pause_at=70,
        resume_at=145,
        resumed_until=240,
        once_at=240,
        kill_at=250,
        again_at=260,
        killed_until=385,
        down_at=390,
        up_at=490,
        made_up_until=538,
        restart_at=570,
        end_at=670,
    ),
    minutely=10,
    ordinary=60,
    idle_s=120,
    settle_s=20,
    due=(2_000, 10_000),
    due_patience_s=50,
    rolling_s=4,
    many=100_000,
    most=1_000_000,
    writes_s=5,
    crowd=50,
    steps=200_000,
)
QUICK = Size(
    name="quick",
    rounds=1,
    timetable=Timetable(
        long_s=20,
        pause_at=6,
        resume_at=14,
        resumed_until=58,
        once_at=60,
        kill_at=66,
        again_at=70,
        killed_until=85,
        down_at=90,
        up_at=125,
        made_up_until=150,
        restart_at=155,
        end_at=195,
    ),
    minutely=3,
    ordinary=12,
    idle_s=20,
    settle_s=5,
    due=(50,),
    due_patience_s=15,
    rolling_s=1,
    many=2_000,
    most=5_000,
    writes_s=1,
    crowd=20,
    steps=2_000,
    patience_s=90,
)


def measurements(size: Size, url: str = "") -> list[Measurement]:
    """Everything: what is measured of duly alone runs on the server with this address, each in its own process."""
    return [*_beside_others(size), *ours(size, url)]


def ours(size: Size, url: str = "") -> list[Measurement]:
    """The measurements of duly alone."""
    return list(_ours(size, {"url": url}))


def key_due(tasks: int, name: str) -> str:
    """The key of a scheduler's tasks that are due at once."""
    return f"due {tasks} {name}"


ORDINARY = "ordinary minutes"
SLOW_COMMITS = {"slow commits": "distinct", "slow commits, one expression": "together"}
"""The sets of expressions, by the key of the measurement."""


def _beside_others(size: Size) -> Iterator[Measurement]:
    """Once, and without a child that measures: three processes of each scheduler, watched from outside."""
    for name in SCHEDULERS:
        yield Measurement(f"faults {name}", "faults", "", once=True)
    yield Measurement(ORDINARY, "faults", "", once=True)
    for name in SCHEDULERS:
        yield Measurement(f"idle {name}", "idle", "", once=True)
    for tasks in size.due:
        for name in SCHEDULERS:
            yield Measurement(key_due(tasks, name), "due", "", once=True)


def _ours(size: Size, server: dict[str, Any]) -> Iterator[Measurement]:
    many = {"tasks": size.many, **server}
    yield Measurement("store", "store", "cluster.ours.store", many)
    yield Measurement("three hosts", "hosts", "cluster.ours.hosts", {**many, "hosts": 3})
    yield Measurement("three hosts, one expression", "hosts", "cluster.ours.hosts",
                      {**many, "hosts": 3, "expressions": "together"})  # fmt: skip
    yield Measurement("one host", "one-host", "cluster.ours.one_host", many)
    yield Measurement("one host, SQLite", "one-host", "ours.tick", {"tasks": size.many})
    for hosts in (3, 20):
        arguments = {"hosts": hosts, "seconds": size.writes_s, **server}
        yield Measurement(f"mutex, {hosts} hosts", "mutex", "cluster.ours.mutex", arguments)
    crowd = {"tasks": size.crowd * TASKS_OF_A_HOST, "hosts": size.crowd, "together": HOSTS_OF_A_PROCESS}
    for key, expressions in SLOW_COMMITS.items():
        yield Measurement(key, "slow-commits", "cluster.ours.hosts",
                          {**crowd, "expressions": expressions, "commit_s": COMMIT_SECONDS, **server})  # fmt: skip
    yield Measurement("fence", "fence", "cluster.ours.fence", {"steps": size.steps})
    yield Measurement("most", "most", "cluster.ours.most", {"tasks": size.most, **server}, once=True)


def sections(size: Size) -> list[str]:
    """The names that --only takes, in the order in which they are measured."""
    return list(dict.fromkeys(measurement.group for measurement in measurements(size)))
