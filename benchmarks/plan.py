"""The plan of measurements: each once a round, ours and the peers' in turn."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER_PYTHONS = tuple(version for version in ("3.11", "3.12", "3.13", "3.14", "3.15") if version != THIS_PYTHON)
"""Measured as well where they are installed."""


@dataclass(frozen=True)
class Size:
    """The size of a run: numbers of tasks, and of repetitions."""

    name: str
    rounds: int
    compared: tuple[int, ...]  # ours beside the peers; the last is the one that counts, the others are for the curves
    slow: int  # the same for peers that would need minutes for it
    slowest: int  # the same for peers that would need the rest of the hour
    rest_s: float  # before the boundary, where peers rest as well
    pairs: int  # of schedule and duly, in turn, in each round: both take a tenth of a second, so one pair says little
    growing: tuple[int, ...]  # ours alone, for the curves; the last is the large one
    large: int
    overhead: int
    growth_tasks: int
    growth_runs: int
    hard: int  # for what is compared with the plain tick of as many
    hard_large: int
    changed: int
    blocking: int
    minutes: int  # boundaries that one child watches, of a clock that leaps from one to the next
    hour: int  # the same of the child that watches for an hour
    real_minutes: int  # boundaries that pass in real time
    system_clock: bool  # whether they do; a clock that leaps tries out everything else
    minutely: int  # tasks that are due at each of them
    history: int  # run records of the store in which one task is due
    imports: int  # processes of each kind
    layout_tasks: int
    cron_repeats: int
    events: int  # of the trace that the checker reads
    shown: tuple[int, ...]  # tasks of the stores that the dashboard shows
    shown_runs: int  # run records of each of them
    beside: int  # tasks that are due in each minute beside a busy dashboard
    patience_s: float  # with one child
    peer_patience_s: float  # with the last start of a peer; what it had not started by then is said
    budget_s: float = float("inf")  # no further round begins that would not end within this, and no child after it

    @property
    def is_full(self) -> bool:
        """Whether its numbers of tasks are the ones in the targets."""
        return self.name == "full"


FULL = Size(
    name="full",
    rounds=3,
    compared=(1_000, 10_000),
    slow=5_000,
    slowest=500,
    rest_s=2.0,
    pairs=3,
    growing=(10_000, 100_000, 1_000_000),
    large=1_000_000,
    overhead=200_000,
    growth_tasks=2_000,
    growth_runs=1_000_000,
    hard=100_000,
    hard_large=1_000_000,
    changed=100_000,
    blocking=10_000,
    minutes=10,
    hour=60,
    real_minutes=10,
    system_clock=True,
    minutely=200_000,
    history=1_000_000,
    imports=40,
    layout_tasks=100_000,
    cron_repeats=10,
    events=2_000_000,
    shown=(100_000, 1_000_000),
    shown_runs=100_000,
    beside=20_000,
    patience_s=600,
    peer_patience_s=90,
)
QUICK = Size(
    name="quick",
    rounds=3,
    compared=(50,),
    slow=50,
    slowest=50,
    rest_s=0.3,
    pairs=1,
    growing=(1_000, 10_000),
    large=10_000,
    overhead=10_000,
    growth_tasks=100,
    growth_runs=2_000,
    hard=2_000,
    hard_large=10_000,
    changed=1_000,
    blocking=200,
    minutes=2,
    hour=4,
    real_minutes=2,
    system_clock=False,
    minutely=1_000,
    history=10_000,
    imports=3,
    layout_tasks=10_000,
    cron_repeats=3,
    events=100_000,
    shown=(1_000, 10_000),
    shown_runs=10_000,
    beside=1_000,
    patience_s=60,
    peer_patience_s=6,
    budget_s=105,
)
TINY = Size(
    name="tiny",
    rounds=1,
    compared=(5,),
    slow=5,
    slowest=5,
    rest_s=0.3,
    pairs=1,
    growing=(10, 100),
    large=100,
    overhead=100,
    growth_tasks=20,
    growth_runs=40,
    hard=100,
    hard_large=100,
    changed=10,
    blocking=5,
    minutes=1,
    hour=1,
    real_minutes=2,
    system_clock=False,
    minutely=50,
    history=1_000,
    imports=1,
    layout_tasks=100,
    cron_repeats=1,
    events=5_000,
    shown=(100,),
    shown_runs=100,
    beside=20,
    patience_s=60,
    peer_patience_s=6,
)


SIZES = {size.name: size for size in (FULL, QUICK, TINY)}


@dataclass(frozen=True)
class Measurement:
    """One child process, once a round."""

    key: str
    group: str  # what --only names
    module: str  # below benchmarks
    arguments: dict[str, Any] = field(default_factory=dict)
    python: str = ""  # another interpreter than the one that runs this: a version, or an environment
    needs: str = ""  # a package that the interpreter must have
    once: bool = False  # in the first round only: bytes that do not vary, a point of a curve, or real minutes
    real_seconds: float = 0.0  # that it waits for, beyond the patience with a child


def measurements(size: Size) -> list[Measurement]:
    """In the order in which a round goes through them; the measurements of a section stand together."""
    return [
        *_compared(size),
        *_beside_schedule(size),
        *_growing(size),
        *_quiet(size),
        *_costs(size),
        *_hard_cases(size),
        *_threads(size),
        *_layouts(size),
        *_dashboard(size),
        *_real_minutes(size),
    ]


def groups(size: Size) -> list[str]:
    """The names that --only takes."""
    return sorted({measurement.group for measurement in measurements(size)})


PEERS: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    # name, module, arguments, environment, package
    ("APScheduler 3, SQLite", "apscheduler3", {"store": "sqlite"}, "", "sqlalchemy"),
    ("APScheduler 3, SQLite tuned to WAL", "apscheduler3", {"store": "wal"}, "", "sqlalchemy"),
    ("APScheduler 4, SQLite", "apscheduler4", {"store": "sqlite"}, "apscheduler4", "apscheduler"),
    ("APScheduler 3, memory", "apscheduler3", {"store": "memory"}, "", "apscheduler"),
    ("APScheduler 4, memory", "apscheduler4", {"store": "memory"}, "apscheduler4", "apscheduler"),
    ("aiocron", "aiocron", {}, "", "aiocron"),
    ("taskiq", "taskiq", {}, "", "taskiq"),
    ("arq", "arq", {}, "", "arq"),
    ("Celery beat", "celery", {}, "", "celery"),
    ("schedule", "schedule", {}, "", "schedule"),
)


SLOW = {"APScheduler 4, memory", "arq"}
SLOWEST = {"APScheduler 4, SQLite"}
"""Peers that are compared with fewer tasks: at 10,000 they would take half of each round."""

PATIENCE = {"celery": 0.125, "apscheduler3": 1.0, "apscheduler4": 1.0}
"""Peers that are watched for a limited time only, as a share of the patience with a peer."""


def compared_with(name: str, size: Size) -> int:
    """How many tasks a peer is compared with."""
    return size.slowest if name in SLOWEST else size.slow if name in SLOW else size.compared[-1]


def _compared(size: Size) -> Iterator[Measurement]:
    largest = size.compared[-1]
    for tasks in sorted({*size.compared, size.slow, size.slowest}):
        counts = tasks in (largest, size.slow, size.slowest)
        yield Measurement(f"duly {tasks}", "compare", "ours.tick", _beside_peers(tasks, size), once=not counts)
        if tasks == largest:
            yield Measurement(f"duly initialize {tasks}", "compare", "ours.initialize", {"tasks": tasks})
        for name, module, others, python, needs in PEERS:
            counts = tasks == compared_with(name, size)
            if counts or (tasks in size.compared and tasks < compared_with(name, size)):
                patience = {"patience_s": PATIENCE[module] * size.peer_patience_s} if module in PATIENCE else {}
                arguments = {"tasks": tasks, **others, **patience}
                key = f"{name} {tasks}"
                yield Measurement(key, "compare", f"peers.{module}", arguments, python, needs, once=not counts)


def _beside_peers(tasks: int, size: Size) -> dict[str, Any]:
    """The tick that stands beside a peer's: one expression for all, and seconds of rest before it, as peers have."""
    return {"tasks": tasks, "expressions": "together", "lead_seconds": size.rest_s}


def _beside_schedule(size: Size) -> Iterator[Measurement]:
    """On every Python, several times a round: the two are closer to each other than to any other peer."""
    tasks = size.compared[-1]
    for version in (THIS_PYTHON, *OTHER_PYTHONS):
        python = "" if version == THIS_PYTHON else version
        for _ in range(size.pairs):
            yield Measurement(
                f"duly beside schedule on {version}", "schedule", "ours.tick", _beside_peers(tasks, size), python
            )
            yield Measurement(
                f"schedule on {version}", "schedule", "peers.schedule", {"tasks": tasks}, python, "schedule"
            )


def _growing(size: Size) -> Iterator[Measurement]:
    for tasks in size.growing:
        yield Measurement(f"tick {tasks}", "tick", "ours.tick", {"tasks": tasks})
        is_point = tasks != size.large
        for version in OTHER_PYTHONS:
            key = f"tick {tasks} on {version}"
            yield Measurement(key, "tick", "ours.tick", {"tasks": tasks}, version, once=is_point)
    frozen = {"tasks": size.large, "freeze": True}
    yield Measurement(f"tick {size.large} frozen", "tick", "ours.tick", frozen, once=True)
    for tasks in size.growing:
        yield Measurement(f"initialize {tasks}", "initialize", "ours.initialize", {"tasks": tasks, "plain": True})


def _quiet(size: Size) -> Iterator[Measurement]:
    yield Measurement("idle", "idle", "ours.idle", {"tasks": size.large, "minutes": size.minutes})
    yield Measurement("one due, few", "one-due", "ours.one_due", {"tasks": 1_000, "minutes": size.minutes})
    among = {"tasks": size.large, "minutes": size.hour, "history": size.history}
    yield Measurement("one due", "one-due", "ours.one_due", among)


def _costs(size: Size) -> Iterator[Measurement]:
    yield Measurement("overhead", "overhead", "ours.overhead", {"tasks": size.overhead})
    uncollected = {"tasks": size.overhead // 2, "collector": False}
    yield Measurement("overhead uncollected", "overhead", "ours.overhead", uncollected)
    yield Measurement("import", "import", "ours.imports", {"processes": size.imports})
    yield Measurement("memory", "memory", "ours.memory", {"tasks": size.large})
    growth = {"tasks": size.growth_tasks, "runs": size.growth_runs}
    if not size.is_full:
        growth["warm_up_runs"] = 2 * size.growth_tasks
    # What Python holds does not depend on the machine's load, and a million runs under tracemalloc take five minutes.
    yield Measurement("growth", "memory", "ours.memory", growth, once=True)
    yield Measurement("canary", "canary", "ours.canary", {"tasks": size.large})
    yield Measurement("canary frozen", "canary", "ours.canary", {"tasks": size.large, "freeze": True})
    yield Measurement("cron", "cron", "ours.cron", {"repeats": size.cron_repeats})
    # With orjson, as `duly verify` has it: it comes with `duly[cli]`, and the promise is about that command.
    yield Measurement("checker", "checker", "ours.checker", {"events": size.events}, needs="orjson")


def _hard_cases(size: Size) -> Iterator[Measurement]:
    yield Measurement("failures", "hard", "ours.failures", {"tasks": size.hard_large})
    yield Measurement("changes", "hard", "ours.changes", {"tasks": size.hard_large, "changed": size.changed})
    plain = {"tasks": size.hard}
    yield Measurement("plain", "hard", "ours.tick", plain)
    yield Measurement("limited", "hard", "ours.tick", {**plain, "max_concurrency": 100})
    yield Measurement("on_event", "hard", "ours.tick", {**plain, "listen": True})
    yield Measurement("INFO logging", "hard", "ours.tick", {**plain, "log": True})
    yield Measurement("trace", "hard", "ours.tick", {**plain, "trace": True})
    yield Measurement("monitor", "hard", "ours.tick", {**plain, "monitor": True})
    yield Measurement("blocking", "hard", "ours.tick", {"tasks": size.blocking, "blocking": True})


THREADS = (8, 32, 200)


def _threads(size: Size) -> Iterator[Measurement]:
    for threads in THREADS:
        ours = {"tasks": size.blocking, "blocking": True, "expressions": "together", "max_concurrency": threads}
        yield Measurement(f"threads {threads}", "threads", "ours.tick", {**ours, "lead_seconds": size.rest_s})
        peer = {"tasks": size.blocking, "threads": threads, "patience_s": size.peer_patience_s}
        yield Measurement(
            f"APScheduler 3, {threads} threads", "threads", "peers.apscheduler3_threads", peer, needs="apscheduler"
        )


def _layouts(size: Size) -> Iterator[Measurement]:
    yield Measurement("layouts", "layouts", "layouts", {"tasks": size.layout_tasks})


def _dashboard(size: Size) -> Iterator[Measurement]:
    for tasks in size.shown:
        arguments = {"tasks": tasks, "history": size.shown_runs}
        yield Measurement(f"web {tasks}", "web", "ours.web", arguments, needs="starlette")
    uncounted = {"tasks": size.shown[0], "history": size.shown_runs}
    yield Measurement("web uncounted", "web", "ours.web_uncounted", uncounted, needs="starlette")
    shared = {"tasks": size.shown[0], "history": size.shown_runs}
    yield Measurement("web shared", "web", "ours.web_shared", shared, needs="psycopg")
    beside = {"tasks": size.beside, "minutes": min(size.minutes, 5)}
    yield Measurement("web beside", "web", "ours.web_beside", beside, needs="starlette")


def _real_minutes(size: Size) -> Iterator[Measurement]:
    arguments = {
        "tasks": size.minutely,
        "others": size.large,
        "history": size.history,
        "minutes": size.real_minutes,
        "system_clock": size.system_clock,
    }
    lasts = 60.0 * (size.real_minutes + 2) if size.system_clock else 0.0
    yield Measurement("real minutes", "minutes", "ours.real_minutes", arguments, once=True, real_seconds=lasts)
