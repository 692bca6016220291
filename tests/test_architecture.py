"""The shape of the package, held by tests: who imports whom, who may wait or roll dice, what is public.

The rules are the tables at the top. The checks are functions from a source text to violations, so that the
last part can show each of them failing on a few lines that break its rule.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "duly"

# --- the rules ----------------------------------------------------------------------------------------------

# A layer may import itself and what stands here. cli -> testing -> engine -> stores -> core -> words;
# formal reads core, and everything that acts may carry its trace. insight knows of stores no more than their port.
LAYERS: dict[str, set[str]] = {
    "words": set(),  # errors and events do not even import each other
    "threads": set(),  # below stores and engine, which both run blocking calls in them
    "core": {"core", "words"},
    "formal": {"formal", "core", "words"},
    "port": {"port", "formal", "core", "words"},
    "stores": {"stores", "threads", "port", "formal", "core", "words"},
    "engine": {"engine", "stores", "threads", "port", "formal", "core", "words"},
    "insight": {"insight", "port", "core", "words"},
    "testing": {"testing", "engine", "stores", "threads", "port", "formal", "core", "words"},
    "cli": {"cli", "insight", "testing", "engine", "stores", "port", "formal", "core", "words"},
}

# The checker derives what is due by itself: with the scheduler's arithmetic it would confirm its mistakes.
FORBIDDEN_BETWEEN = {("formal", "duly.core.occurrences")}

PURE_LAYERS = {"core", "formal", "insight"}
FORBIDDEN_IN_PURE_LAYERS = {
    "asyncio", "logging", "os", "random", "socket", "sqlite3", "subprocess", "threading", "time", "uuid",
}  # fmt: skip

# The packages of the command line: what it shows is computed without them.
FOR_THE_TERMINAL = {"click", "rich"}

# What the outside world can vary reaches duly through few doors; these names lead through them.
DOORS = {
    "time": {
        "time", "asyncio.sleep", "asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for",
        "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "datetime.date.today",
    },
    "chance": {"random", "secrets", "uuid"},
    "threads": {"threading", "_thread", "concurrent.futures", "multiprocessing", "asyncio.to_thread"},
}  # fmt: skip
# The same doors as methods of an object whose type the syntax does not tell.
DOOR_METHODS = {"call_later": "time", "call_at": "time", "run_in_executor": "threads"}
LOOP_GETTERS = {"get_running_loop", "get_event_loop", "new_event_loop"}

# Who may go through a door, and why.
DOORKEEPERS: dict[tuple[str, str], str] = {
    ("clock.py", "time"): "it is the clock: everybody else asks it",
    ("engine/host.py", "chance"): "it draws the identifier of a scheduler; the simulated host counts instead",
    ("stores/sqlite/lock.py", "threads"): "the loop, the writer thread and forks take turns at its descriptor",
    ("threads.py", "threads"): "daemon threads of our own: callbacks run in a few, a store writes in one",
}

PUBLIC_NAMES = {"Scheduler", "parse_cron", "CronExpression", "Clock", "errors", "events", "stores"}
# Names that applications catch; the rest of the family may grow, these may not go.
FIXED_ERRORS = {
    "DulyError", "CronCalculationError", "CronExpressionInvalidError", "FieldParseError",
    "InvalidCronExpressionError", "InvalidRegistrationError", "NegativeRetryDelayError",
    "RegistrationShapeError", "RegistrationsNotArrayError", "ScheduleDuplicateTaskError",
    "ScheduleTaskError", "SchedulerStoppingError", "StopSchedulerError", "StoreCorruptedError",
    "StoreError", "StoreLockedError", "StoreVersionError", "TaskInvalidStructureError",
    "TaskInvalidTypeError", "TaskInvalidValueError", "TaskListMismatchError", "TaskMissingFieldError",
    "TaskTryDeserializeError",
}  # fmt: skip

# --- what is looked at --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """One source file of the package, or a few lines that pretend to be one."""

    path: str  # below src/duly
    text: str

    @property
    def name(self) -> str:
        parts = ["duly", *Path(self.path).with_suffix("").parts]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def violation(self, line: int, message: str) -> str:
        return f"src/duly/{self.path}:{line}: {message}"


MODULES = [
    Module(file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8"))
    for file in sorted(PACKAGE.rglob("*.py"))
]
MODULE_NAMES = {module.name for module in MODULES}

each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)


def layer(module_name: str) -> str:
    """The layer of a module of ours, by its dotted name."""
    match module_name.split("."):
        case ["duly", "errors" | "events"]:
            return "words"
        case ["duly", "threads"]:
            return "threads"
        case ["duly", "stores", "port"]:
            return "port"
        case ["duly", "core" | "formal" | "stores" | "insight" | "testing" | "cli" | "engine" as folder, *_]:
            return folder
        case ["duly", "__main__"]:
            return "cli"
        case ["duly"] | ["duly", _]:
            return "engine"
        case _:
            raise ValueError(f"{module_name} belongs to no layer: add its folder to LAYERS and to layer()")


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that is imported: anywhere in the file, also for type checkers only."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            for alias in node.names:
                submodule = f"{origin}.{alias.name}"
                yield node.lineno, submodule if submodule in MODULE_NAMES else origin


def _origin(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parents = module.package.split(".")
    base = parents[: len(parents) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def is_within(name: str, door: str) -> bool:
    return name == door or name.startswith(door + ".")


# --- the checks ---------------------------------------------------------------------------------------------


def impure_imports(module: Module) -> list[str]:
    if layer(module.name) not in PURE_LAYERS:
        return []
    return [
        module.violation(line, f"{name} is imported, but {layer(module.name)} is pure")
        for line, name in imports(module)
        if name.split(".")[0] in FORBIDDEN_IN_PURE_LAYERS
    ]


def imports_for_the_terminal(module: Module) -> list[str]:
    if layer(module.name) == "cli":
        return []
    return [
        module.violation(line, f"{name} is imported, but only the command line writes to a terminal")
        for line, name in imports(module)
        if name.split(".")[0] in FOR_THE_TERMINAL
    ]


def imports_against_the_direction(module: Module) -> list[str]:
    here = layer(module.name)
    return [
        module.violation(line, f"{here} must not import {name}")
        for line, name in imports(module)
        if is_within(name, "duly")
        and (
            layer(name) not in LAYERS[here]
            or any(here == who and is_within(name, what) for who, what in FORBIDDEN_BETWEEN)
        )
    ]


def doors_used(module: Module) -> Iterator[tuple[int, str, str]]:
    """Line, door and name, wherever a module reads a clock, waits, rolls dice or makes threads."""
    known = _names_bound_by_imports(module)
    for line, name in imports(module):
        yield from ((line, door, name) for door in DOORS if any(is_within(name, n) for n in DOORS[door]))
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=func, keywords=keywords) if _dotted(func, known) == "asyncio.wait":
                if any(keyword.arg == "timeout" for keyword in keywords):
                    yield node.lineno, "time", "asyncio.wait(timeout=...)"
            case ast.Attribute(attr=method) if method in DOOR_METHODS:
                yield node.lineno, DOOR_METHODS[method], method
            case ast.Attribute(value=value, attr="time") if _is_loop(value):
                yield node.lineno, "time", "loop.time"
            case ast.Attribute() | ast.Name():
                used = _dotted(node, known)
                yield from ((node.lineno, door, used) for door in DOORS if used in DOORS[door])
            case _:
                pass


def _names_bound_by_imports(module: Module) -> dict[str, str]:
    known: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return known


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """`dt.datetime.now` to `datetime.datetime.now`, given `import datetime as dt`; empty if not imported."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value, known)):
        return f"{base}.{node.attr}"
    return ""


def _is_loop(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_").endswith("loop")
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in LOOP_GETTERS
        case _:
            return False


def doors_without_a_keeper(module: Module) -> list[str]:
    return [
        module.violation(line, f"{name} is used, but DOORKEEPERS does not let this module use {door}")
        for line, door, name in sorted(set(doors_used(module)))
        if (module.path, door) not in DOORKEEPERS
    ]


def docstring_faults(module: Module) -> list[str]:
    docstring = ast.get_docstring(module.tree)
    if not docstring:
        return [module.violation(1, "the module does not introduce itself")]
    first, *rest = docstring.splitlines()
    if not first.endswith("."):
        return [module.violation(1, f"the first line is no sentence: {first!r}")]
    if re.search(r"[.!?]\s+[A-Z]", first):
        return [module.violation(1, f"the first line is more than one sentence: {first!r}")]
    if rest and rest[0]:
        return [module.violation(2, "the first sentence goes on after its line")]
    return []


# --- the tests ----------------------------------------------------------------------------------------------


def expect_none(violations: Sequence[str]) -> None:
    if violations:
        pytest.fail("\n".join(violations), pytrace=False)


def test_the_checks_see_the_package() -> None:
    assert {"duly", "duly.errors", "duly.events", "duly.core"} <= MODULE_NAMES


@each_module
def test_the_core_imports_nothing_that_waits_or_writes(module: Module) -> None:
    expect_none(impure_imports(module))


@each_module
def test_imports_point_one_way(module: Module) -> None:
    expect_none(imports_against_the_direction(module))


@each_module
def test_only_the_command_line_writes_to_a_terminal(module: Module) -> None:
    expect_none(imports_for_the_terminal(module))


@each_module
def test_time_chance_and_threads_come_through_their_doors(module: Module) -> None:
    expect_none(doors_without_a_keeper(module))


@pytest.mark.parametrize(("path", "door"), DOORKEEPERS)
def test_no_doorkeeper_outlives_its_reason(path: str, door: str) -> None:
    used = {door for module in MODULES if module.path == path for _, door, _ in doors_used(module)}
    assert door in used, f"src/duly/{path} does not use {door}: remove its entry from DOORKEEPERS"


@each_module
def test_a_module_introduces_itself_in_one_sentence(module: Module) -> None:
    expect_none(docstring_faults(module))


def test_the_public_names_are_these_and_no_others() -> None:
    """SPEC 1.1: everything else stands beside the scheduler."""
    import duly
    from duly import errors

    family = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, errors.DulyError)
    }
    assert family >= FIXED_ERRORS
    assert set(duly.__all__) == PUBLIC_NAMES | family
    assert all(hasattr(duly, name) for name in duly.__all__)


def test_a_scheduler_has_two_public_methods_both_coroutines() -> None:
    """SPEC 1.1: `initialize` and `stop`, and no third."""
    import duly

    public = {name for name in dir(duly.Scheduler) if not name.startswith("_")}
    assert public == {"initialize", "stop"}
    assert all(inspect.iscoroutinefunction(getattr(duly.Scheduler, name)) for name in public)


# --- the checks, checked: one that cannot fail holds nothing ------------------------------------------------


def lines_of(violations: Sequence[str]) -> list[int]:
    return [int(violation.split(":")[1]) for violation in violations]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/cron.py", "import asyncio"),
        ("core/cron.py", "import os.path"),
        ("core/cron.py", "from time import monotonic"),
        ("core/cron.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sqlite3"),
        ("formal/trace.py", "def f() -> None:\n    import logging"),
        ("insight/health.py", "import sqlite3"),
    ],
)
def test_an_impure_import_is_noticed(path: str, text: str) -> None:
    assert lines_of(impure_imports(Module(path, text))) == [len(text.splitlines())]


@pytest.mark.parametrize("text", ["import click", "from rich.text import Text"])
def test_an_import_for_the_terminal_is_noticed(text: str) -> None:
    assert lines_of(imports_for_the_terminal(Module("insight/health.py", text))) == [1]
    assert not imports_for_the_terminal(Module("cli/output.py", text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("errors.py", "from duly import events"),
        ("events.py", "from duly.core.moments import Instant"),
        ("core/agenda.py", "import duly.stores"),
        ("core/agenda.py", "from duly import Scheduler"),
        ("core/agenda.py", "from ..clock import Clock"),
        ("core/__init__.py", "from .. import clock"),
        ("core/agenda.py", "from duly.formal.trace import Trace"),
        ("formal/monitor.py", "from duly.core import occurrences"),
        ("formal/monitor.py", "from duly.core.occurrences import next_after"),
        ("stores/sqlite/write.py", "from duly.engine.journal import Journal"),
        ("scheduler.py", "from duly.testing import SimulatedHost"),
        ("testing/host.py", "import duly.cli.main"),
        ("insight/health.py", "from duly.stores.sqlite import SqliteStore"),
        ("insight/health.py", "from duly.cli.output import plain"),
        ("scheduler.py", "from duly.insight.words import iso"),
    ],
)
def test_an_import_against_the_direction_is_noticed(path: str, text: str) -> None:
    assert lines_of(imports_against_the_direction(Module(path, text))) == [1]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("core/agenda.py", "from duly import errors, events\nfrom .moments import Instant"),
        ("formal/monitor.py", "from duly.core.moments import Minute\nfrom duly.formal.trace import Trace"),
        ("stores/sqlite/write.py", "from duly.stores import Store\nfrom duly.formal import trace"),
        ("insight/health.py", "from duly.stores.port import Store\nfrom duly.core import task"),
        ("__main__.py", "from duly.cli.main import main"),
        ("__init__.py", "from duly.scheduler import Scheduler\nfrom duly import stores"),
    ],
)
def test_an_import_in_the_right_direction_passes(path: str, text: str) -> None:
    expect_none(imports_against_the_direction(Module(path, text)))


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import time as t",
        "from time import monotonic",
        "import datetime as dt\ndt.datetime.now()",
        "from datetime import datetime\nnow = datetime.now",
        "from datetime import date\ndate.today()",
        "import asyncio\nasyncio.sleep(0)",
        "from asyncio import sleep as nap\nnap(0)",
        "import asyncio\nasyncio.timeout(1)",
        "from asyncio import wait_for\nwait_for(f(), 1)",
        "import asyncio\nasyncio.wait(tasks, timeout=1)",
        "loop = get()\nloop.call_later(1, f)",
        "class A:\n    def f(self): return self._loop.time()",
        "import asyncio\nasyncio.get_running_loop().time()",
        "import uuid",
        "from random import choice",
        "import threading",
        "from concurrent.futures import ThreadPoolExecutor",
        "import asyncio\nasyncio.to_thread(f)",
    ],
)
def test_a_door_used_without_leave_is_noticed(text: str) -> None:
    assert len(text.splitlines()) in lines_of(doors_without_a_keeper(Module("loop.py", text)))


@pytest.mark.parametrize(
    "text",
    [
        "def f(when): return when.time()",
        "from datetime import time\nmidnight = time(0)",
        "def f(clock): return clock.now()",
        "import asyncio\nasyncio.wait(tasks)",
        "def f(host): return host.sleep(1)",
    ],
)
def test_what_only_resembles_a_door_passes(text: str) -> None:
    expect_none(doors_without_a_keeper(Module("loop.py", text)))


def test_leave_holds_for_one_module_and_one_door() -> None:
    assert not doors_without_a_keeper(Module("clock.py", "import time"))
    assert doors_without_a_keeper(Module("clock.py", "import uuid"))
    assert doors_without_a_keeper(Module("stores/clock.py", "import time"))


@pytest.mark.parametrize(
    "text",
    [
        "x = 1",
        '""""""',
        '"""A heading without an end"""',
        '"""One sentence. And another."""',
        '"""A sentence that wraps.\nOver two lines."""',
    ],
)
def test_a_module_that_does_not_introduce_itself_is_noticed(text: str) -> None:
    assert docstring_faults(Module("loop.py", text))
