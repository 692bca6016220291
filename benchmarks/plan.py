"""What is measured: each measurement once a round, ours and the peers' in turn."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

OTHER_PYTHONS = tuple(v for v in ("3.11", "3.12", "3.13") if v != f"{sys.version_info[0]}.{sys.version_info[1]}")


@dataclass(frozen=True)
class Size:
    """The size of a run: numbers of tasks, and of repetitions."""

    name: str
    rounds: int
    compared: tuple[int, ...]  # ours beside the peers; the last is the one that counts, the others are for the curves
    hopeless: int  # the same for peers that would need the rest of the hour
    growing: tuple[int, ...]  # ours alone, for the curves; the last is the large one
    large: int
    overhead: int
    growth_tasks: int
    growth_runs: int
    hard: int  # for what is compared with the plain tick of as many
    hard_large: int
    changed: int
    blocking: int
    minutes: int  # boundaries that one child watches
    system_clock: bool  # wait for real minutes where that is short enough
    cron_repeats: int
    events: int  # of the trace that the checker reads
    patience_s: float  # with one child
    budget_s: float = float("inf")  # no further round begins that would not end within this, and no child after it

    @property
    def is_full(self) -> bool:
        """Whether its numbers of tasks are the ones in the targets."""
        return self.name == "full"


FULL = Size(
    name="full",
    rounds=3,
    compared=(1_000, 10_000),
    hopeless=2_000,
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
    system_clock=True,
    cron_repeats=10,
    events=2_000_000,
    patience_s=900,
)
QUICK = Size(
    name="quick",
    rounds=3,
    compared=(50,),
    hopeless=50,
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
    system_clock=False,
    cron_repeats=3,
    events=100_000,
    patience_s=60,
    budget_s=105,
)
TINY = Size(
    name="tiny",
    rounds=1,
    compared=(5,),
    hopeless=5,
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
    system_clock=False,
    cron_repeats=1,
    events=5_000,
    patience_s=60,
)


@dataclass(frozen=True)
class Measurement:
    """One child process, once a round."""

    key: str
    group: str  # what --only names
    module: str  # below benchmarks
    arguments: dict[str, Any] = field(default_factory=dict)
    python: str = ""  # another interpreter than the one that runs this: a version, or an environment
    needs: str = ""  # a package that the interpreter must have
    once: bool = False  # in the first round only: a count that does not vary, or a point of a curve


def measurements(size: Size) -> list[Measurement]:
    """In the order in which a round goes through them."""
    return [
        *_compared(size),
        *_growing(size),
        *_quiet(size),
        *_costs(size),
        *_hard_cases(size),
    ]


def groups(size: Size) -> list[str]:
    """What --only may name."""
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


HOPELESS = {"APScheduler 4, SQLite"}
"""Peers that are compared with fewer tasks: at 10,000 one tick takes longer than everything else in a round."""

IMPATIENTLY = {"celery": 0.05, "apscheduler3": 0.1, "apscheduler4": 0.1}
"""Peers that are watched for a limited time only, as a share of the patience with one child."""


def compared_with(name: str, size: Size) -> int:
    """How many tasks a peer is compared with."""
    return size.hopeless if name in HOPELESS else size.compared[-1]


def _compared(size: Size) -> Iterator[Measurement]:
    largest = size.compared[-1]
    for tasks in sorted({*size.compared, size.hopeless}):
        is_point = tasks not in (largest, size.hopeless)
        # Real minutes only for the comparison that counts: the others wait for the same, a leap later.
        ours = {"tasks": tasks, "expressions": "together", "system_clock": size.system_clock and tasks == largest}
        yield Measurement(f"duly {tasks}", "compare", "ours.tick", ours, once=is_point)
        if tasks == largest:
            yield Measurement(f"duly initialize {tasks}", "compare", "ours.initialize", {"tasks": tasks})
        for name, module, others, python, needs in PEERS:
            counts = tasks == compared_with(name, size)
            if counts or (tasks in size.compared and tasks < compared_with(name, size)):
                patience = {"patience_s": IMPATIENTLY[module] * size.patience_s} if module in IMPATIENTLY else {}
                arguments = {"tasks": tasks, **others, **patience}
                key = f"{name} {tasks}"
                yield Measurement(key, "compare", f"peers.{module}", arguments, python, needs, once=not counts)


def _growing(size: Size) -> Iterator[Measurement]:
    for tasks in size.growing:
        yield Measurement(f"tick {tasks}", "tick", "ours.tick", {"tasks": tasks})
        for version in OTHER_PYTHONS:
            yield Measurement(f"tick {tasks} on {version}", "tick", "ours.tick", {"tasks": tasks}, version)
    yield Measurement(f"tick {size.large} frozen", "tick", "ours.tick", {"tasks": size.large, "freeze": True})
    for tasks in size.growing:
        yield Measurement(f"initialize {tasks}", "initialize", "ours.initialize", {"tasks": tasks})


def _quiet(size: Size) -> Iterator[Measurement]:
    yield Measurement("idle", "idle", "ours.idle", {"tasks": size.large, "minutes": size.minutes})
    for key, tasks in (("one due, few", 1_000), ("one due", size.large)):
        yield Measurement(key, "one-due", "ours.one_due", {"tasks": tasks, "minutes": size.minutes})


def _costs(size: Size) -> Iterator[Measurement]:
    yield Measurement("overhead", "overhead", "ours.overhead", {"tasks": size.overhead})
    uncollected = {"tasks": size.overhead // 2, "collector": False}
    yield Measurement("overhead uncollected", "overhead", "ours.overhead", uncollected)
    yield Measurement("memory", "memory", "ours.memory", {"tasks": size.large}, once=True)
    growth = {"tasks": size.growth_tasks, "runs": size.growth_runs}
    if not size.is_full:
        growth["warm_up_runs"] = 2 * size.growth_tasks
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
