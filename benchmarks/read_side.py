"""The cost of the commands that read a large store: `python -m benchmarks.read_side`.

Makes stores with very many tasks and runs, calls each command as a process of its own, and holds its processor time,
beyond that of `duly --version`, and its peak memory against a budget. Exits with 1 if a budget is exceeded.
"""

import argparse
import contextlib
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Final

from benchmarks.child import scratch_folder
from duly.core.moments import MICROSECONDS
from duly.stores.sqlite import schema

ROOT: Final = Path(__file__).parent.parent
MEMORY_MB: Final = 100
DAY: Final = 86_400 * MICROSECONDS


@dataclass(frozen=True)
class Size:
    """How much there is to read."""

    tasks: int = 1_000_000
    runs: int = 1_000_000
    listed: int = 100_000
    """Tasks of the store and of the TARGET that are listed one by one."""


@dataclass(frozen=True)
class Command:
    """A command, what it reads, and the processor time it may take beyond `duly --version`."""

    reads: str
    arguments: Sequence[str]
    budget_s: float
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """As one would type it, or press the tabulator key."""
        completed = self.environment.get("COMP_WORDS")
        return f"{completed}⇥" if completed else shlex.join(["duly", *self.arguments])


@dataclass(frozen=True)
class Cost:
    """The time and memory of a process."""

    cpu_s: float
    memory_mb: float


# --- stores ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _new_store(path: Path) -> Iterator[sqlite3.Connection]:
    """An embedded store, filled faster than a scheduler would; it is closed, so it has no WAL."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        schema.create(connection)
        connection.execute("INSERT INTO schedulers VALUES (1, 'benchmark', ?)", (_now() - 2 * DAY,))
        connection.execute("UPDATE meta SET value = 'UTC' WHERE key = 'zone'")
        yield connection
        schema.complete(connection)
        connection.execute("COMMIT")


def make_store(path: Path, tasks: int, runs: int, expressions: Sequence[str]) -> None:
    """A store whose tasks last ran an hour ago and whose runs began a day ago; each task has one expression in turn.

    As a scheduler declares them, tasks of one expression have generations one after the other, while names do not
    follow expressions. One run in a hundred has failed.
    """
    each = -(-tasks // len(expressions))
    started = _now() // (60 * MICROSECONDS) * 60 * MICROSECONDS - 3600 * MICROSECONDS
    with _new_store(path) as connection:
        connection.execute("CREATE TEMP TABLE expressions (number INTEGER PRIMARY KEY, cron TEXT)")
        connection.executemany("INSERT INTO expressions VALUES (?, ?)", enumerate(expressions))
        connection.execute(
            f"{_counting(':tasks')} INSERT INTO tasks SELECT n + 1, 'task-' || ((n % :each) * :kinds + n / :each), "
            "(SELECT cron FROM expressions WHERE number = n / :each), 300000, :since, NULL FROM counting",
            {"tasks": tasks, "each": each, "kinds": len(expressions), "since": _now() - 2 * DAY},
        )
        connection.execute(
            "INSERT INTO states (generation, served_through, last_attempt_at, last_success_at, failures, "
            "interruptions, written_by) SELECT generation, :mark, :started + generation, "
            ":started + 2000000 + generation % 1009, 0, 0, 1 FROM tasks",
            {"mark": started // MICROSECONDS, "started": started},
        )
        connection.execute(
            f"{_counting(':runs')} INSERT INTO runs (seq, run, generation, cause, scheduled, started_at, "
            "ended_at, outcome, error) SELECT n + 1, n + 1, 1 + n % :tasks, 'cron', :since + n * :apart, "
            ":since + n * :apart + 1234, :since + n * :apart + 5000 + n % 977 * 1000, "
            "iif(n % 100, 'success', 'failure'), iif(n % 100, NULL, 'ValueError: no such file') FROM counting",
            {"runs": runs, "tasks": tasks, "since": _now() - DAY, "apart": DAY // (runs + 1)},
        )
        counters = [("run", runs), ("generation", tasks)]
        connection.executemany("UPDATE meta SET value = ? WHERE key = ?", [(value, key) for key, value in counters])


def _counting(number: str) -> str:
    return f"WITH RECURSIVE counting (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counting WHERE n + 1 < {number})"


def _now() -> int:
    return time.time_ns() // 1000


def daily_expressions() -> list[str]:
    """One for each minute of the day."""
    return [f"{minute} {hour} * * *" for hour in range(24) for minute in range(60)]


def twice_an_hour() -> list[str]:
    """As many as the dashboard counts at most, each due in two minutes of every hour or of those of working days."""
    pairs = list(combinations(range(60), 2))
    every = [f"{first},{second} * * * *" for first, second in pairs]
    return [*every, *(f"{first},{second} * * * 1-5" for first, second in pairs)][:2_000]


def make_target(path: Path, tasks: int, *, distinct: bool = False) -> None:
    """A TARGET with this many tasks, which share the minutes of a day or have distinct minutes of a year."""
    expressions = '[f"{minute} {hour} * * *" for hour in range(24) for minute in range(60)]'
    if distinct:
        minutes = "(n % 60, n // 60 % 24, n // 1440 % 28 + 1, n // 40320 % 12 + 1)"
        expressions = f'["%d %d %d %d *" % {minutes} for n in range({min(tasks, 12 * 28 * 1440)})]'
    path.write_text(
        f"""from datetime import timedelta

async def nothing() -> None: ...

expressions = {expressions}
registrations = [
    (f"task-{{n}}", expressions[n % len(expressions)], nothing, timedelta(minutes=5)) for n in range({tasks})
]
"""
    )


def commands(folder: Path, size: Size) -> list[Command]:
    """Make what is read, and say with which commands."""
    tasks, alike, runs, listed = (str(folder / f"{name}.db") for name in ("tasks", "alike", "runs", "listed"))
    make_store(Path(tasks), size.tasks, size.runs, daily_expressions())
    make_store(Path(alike), size.tasks, 1, ["* * * * *"])
    make_store(Path(runs), 10, size.runs, daily_expressions()[:10])
    make_store(Path(listed), size.listed, 1, daily_expressions())
    make_target(folder / "listed.py", size.listed)
    make_target(folder / "distinct.py", size.listed, distinct=True)
    both = f"{size.tasks:,} tasks, {size.runs:,} runs"
    completing = {
        "_DULY_COMPLETE": "bash_complete",
        "COMP_WORDS": f"duly history --store {tasks} task-1",
        "COMP_CWORD": "4",
    }
    return [
        Command(both, ["status", "--store", tasks], 2),
        Command(f"{size.tasks:,} tasks of one expression, all owed", ["status", "--store", alike], 2),
        Command(both, ["history", "task-7", "--store", tasks, "--limit", "5"], 1),
        Command(both, ["history", "task-1*", "--store", tasks, "--limit", "5"], 3),
        Command(f"10 tasks, {size.runs:,} runs", ["history", "task-7", "--store", runs, "--limit", "5"], 1),
        Command(both, ["explain", "task-7", "--at", "2h", "--store", tasks], 1),
        Command(f"10 tasks, {size.runs:,} runs", ["explain", "task-7", "--at", "2h", "--store", runs], 1),
        Command(both, [], 1, completing),
        Command(f"{size.listed:,} tasks", ["status", "--limit", "0", "--store", listed], 10),
        Command(f"{size.listed:,} tasks", ["status", "--json", "--store", listed], 10),
        Command(f"{size.listed:,} tasks", ["next", str(folder / "listed.py")], 10),
        Command(f"{size.listed:,} tasks, each with its own expression", ["next", str(folder / "distinct.py")], 10),
    ]


# --- measuring -------------------------------------------------------------------------------------------------------


# Started by a small process of its own: Linux counts what the parent has in memory at the fork as the child's.
LAUNCHER: Final = """
import json, os, sys
figures, *command = sys.argv[1:]
_, status, used = os.wait4(os.posix_spawn(command[0], command, os.environ), 0)
with open(figures, "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024], file)
"""


def measure(arguments: Sequence[str], environment: dict[str, str], output: Path) -> Cost:
    """Run `duly` to its end; what it prints goes into a file."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DULY_STORE", "FORCE_COLOR")}
    figures = output.with_name(output.name + ".cost")
    with output.open("wb") as file:
        launched = subprocess.run(
            [sys.executable, "-c", LAUNCHER, str(figures), sys.executable, "-m", "duly", *arguments],
            env={**kept, "PYTHONPATH": str(ROOT / "src"), **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
    code, cpu_s, memory_mb = json.loads(figures.read_text())
    if code not in (0, 1) or "Traceback" in launched.stderr:
        raise RuntimeError(f"{shlex.join(arguments)} ended with {code}: {launched.stderr}")
    return Cost(cpu_s, memory_mb)


def least(arguments: Sequence[str], environment: dict[str, str], output: Path, rounds: int) -> Cost:
    """The cheapest of several rounds, because disturbance only adds to the cost."""
    return min((measure(arguments, environment, output) for _ in range(rounds)), key=lambda cost: cost.cpu_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether every budget was kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read_side", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=Size.tasks, help="tasks of the large store")
    parser.add_argument("--runs", type=int, default=Size.runs, help="runs in its history")
    parser.add_argument("--listed", type=int, default=Size.listed, help="tasks that are listed one by one")
    parser.add_argument("--rounds", type=int, default=3, help="how often each command is called; the least counts")
    options = parser.parse_args(arguments)
    exceeded = 0
    with scratch_folder() as folder:
        called = commands(folder, Size(options.tasks, options.runs, options.listed))
        base = least(["--version"], {}, folder / "output", max(3, options.rounds))
        print(f"`duly --version`: {base.cpu_s:.2f} s of processor time, {base.memory_mb:.0f} MB\n")
        print("| command | reads | processor time | budget | peak memory | budget |")
        print("|---|---|---|---|---|---|")
        for command in called:
            cost = least(command.arguments, command.environment, folder / "output", options.rounds)
            beyond = max(0.0, cost.cpu_s - base.cpu_s)
            over = beyond > command.budget_s or cost.memory_mb > MEMORY_MB
            exceeded += over
            shown = command.shown.replace(f"{folder}{os.sep}", "")
            figures = f"{beyond:.2f} s | {command.budget_s:g} s | {cost.memory_mb:.0f} MB | {MEMORY_MB} MB"
            print(f"| `{shown}` | {command.reads} | {figures} |{' **exceeded**' if over else ''}", flush=True)
    if exceeded:
        print(f"\n{exceeded} of {len(called)} budgets are exceeded")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
