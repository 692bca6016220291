"""The shape of the package: which module imports which, which may wait or roll dice, what is public.

The rules are the tables at the top. The checks are functions from a source text to violations, so that the
last part can show each of them failing on a few lines that break its rule.
"""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "duly"

# --- the rules ----------------------------------------------------------------------------------------------

# A layer may import itself and what stands here; docs/architecture.md has the picture. insight knows of stores no more
# than their port, web does not know the command line, and integrations use public names only, as an application does.
LAYERS: dict[str, set[str]] = {
    "leaves": set(),
    "words": {"leaves"},  # errors and events do not even import each other
    "threads": set(),  # below stores and engine, which both run blocking calls in them
    "core": {"words", "leaves"},
    "clock": {"core", "words", "leaves"},
    "formal": {"core", "words", "leaves"},
    "port": {"formal", "core", "words", "leaves"},
    "stores": {"port", "threads", "formal", "core", "words", "leaves"},
    "engine": {"port", "threads", "clock", "formal", "core", "words", "leaves"},
    "scheduler": {"engine", "stores", "port", "threads", "clock", "formal", "core", "words", "leaves"},
    "testing": {"scheduler", "engine", "stores", "port", "threads", "clock", "formal", "core", "words", "leaves"},
    "insight": {"port", "core", "words", "leaves"},
    "simulation": {"insight", "testing", "scheduler", "core", "words", "leaves"},
    "web": {"simulation", "insight", "scheduler", "stores", "port", "clock", "formal", "core", "words", "leaves"},
    "cli": {
        "web", "simulation", "insight", "testing", "scheduler", "engine", "stores", "port", "clock", "formal", "core",
        "words", "leaves",
    },
    "integrations": set(),
}  # fmt: skip
FOLDERS = {"core", "formal", "stores", "engine", "testing", "insight", "simulation", "web", "cli", "integrations"}
# What integrations may import.
PUBLIC_MODULES = {
    "duly", "duly.__main__", "duly.errors", "duly.events", "duly.formal", "duly.insight", "duly.stores", "duly.testing",
}  # fmt: skip

# The checker derives what is due by itself: with the scheduler's arithmetic it would confirm its mistakes.
FORBIDDEN_BETWEEN = {("formal", "duly.core.occurrences"), ("formal", "duly.core.due")}

PURE_LAYERS = {"core", "formal", "insight"}
FORBIDDEN_IN_PURE_LAYERS = {
    "asyncio", "logging", "os", "random", "socket", "sqlite3", "subprocess", "threading", "time", "uuid",
}  # fmt: skip

# The packages of the command line: what it shows is computed without them.
FOR_THE_TERMINAL = {"click", "rich"}

# Packages that one folder alone may import; all others do without them.
KEPT_TO_A_FOLDER = {"psycopg": "stores/postgres/"}

# What the outside world can vary reaches duly through few doors; these names lead through them.
DOORS = {
    "time": {
        "time", "asyncio.sleep", "anyio.sleep", "asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for",
        "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "datetime.date.today",
    },
    "chance": {"random", "secrets", "uuid"},
    "threads": {
        "threading", "_thread", "concurrent.futures", "multiprocessing", "asyncio.to_thread", "anyio.to_thread",
    },
}  # fmt: skip
# Doors that are methods of an object whose type the syntax does not show.
DOOR_METHODS = {"call_later": "time", "call_at": "time", "run_in_executor": "threads"}
LOOP_GETTERS = {"get_running_loop", "get_event_loop", "new_event_loop"}

# Which module may go through a door, and why.
DOORKEEPERS: dict[tuple[str, str], str] = {
    ("clock.py", "time"): "it is the clock: everybody else asks it",
    ("cli/streams.py", "threads"): "callbacks in threads print at the same time",
    ("cli/time_text.py", "time"): "it sets the zone of the process, and reads no time",
    ("engine/pacing.py", "time"): "it lets others run: it sleeps for no time, or for the shortest there is",
    ("engine/host.py", "chance"): "it draws identifiers and pauses; the simulated host counts, and has a seed",
    ("engine/watchdog.py", "threads"): "it sees from beside the event loop whether that turns",
    ("engine/watchdog.py", "time"): "it measures how long the interpreter was kept, whatever clock the scheduler has",
    ("integrations/opentelemetry.py", "threads"): "it reads a store without blocking the event loop",
    ("integrations/opentelemetry.py", "time"): "it measures runs and reads stores from outside, as an application does",
    ("integrations/pings.py", "chance"): "it names runs for a service that knows many schedulers",
    ("integrations/pings.py", "threads"): "a slow service must not hold up the event loop",
    ("integrations/pings.py", "time"): "it pauses between two tries",
    ("integrations/prometheus.py", "threads"): "scrapes come from threads of the web server that answers them",
    ("integrations/prometheus.py", "time"): "it reads a store from outside, as an application does, and rests after it",
    ("stores/sqlite/lock.py", "threads"): "the loop, the writer thread and forks take turns at its descriptor",
    ("stores/postgres/connection.py", "time"): "a request to a server has a limit, whatever clock the scheduler has",
    ("testing/cluster.py", "time"): "a stop() there may wait for something real, which simulated time does not bring",
    ("testing/host.py", "time"): "a stop() there may wait for something real, which simulated time does not bring",
    (
        "cli/service/dashboard.py",
        "threads",
    ): "`duly run --web` serves beside the event loop of the scheduler",
    ("web/child.py", "threads"): "one child process at a time, whichever thread asks for it",
    ("web/guard.py", "time"): "a wrong token waits a second for its answer",
    ("web/server.py", "time"): "a client that asks for nothing is cut off after a while",
    ("web/live.py", "time"): "a stream looks for changes once per interval; it is no part of scheduling",
    ("web/sampler.py", "threads"): "one daemon thread looks at all tasks, so that no page waits for that",
    ("web/sampler.py", "time"): "it rests for twenty times as long as a look has taken, whatever clock is shown",
    ("web/source.py", "threads"): "pages read files in two threads, and not on the event loop of the application",
    ("threads.py", "threads"): "daemon threads of our own: callbacks run in a few, a store writes in one",
}

# Attributes with an underscore that may be read from an object other than `self`, and why.
READABLE_PRIVATES: dict[tuple[str, str], str] = {
    ("cli/importers/apscheduler.py", "_time"): "APScheduler has no public name for the time of day of a trigger",
    ("cli/service/program.py", "_exit"): "os._exit is documented",
    ("engine/first_step.py", "_enter_task"): "asyncio documents it for makers of other tasks",
    ("engine/first_step.py", "_leave_task"): "asyncio documents it for makers of other tasks",
    ("engine/watchdog.py", "_current_frames"): "sys._current_frames is documented",
    ("scheduler.py", "_lifecycle"): "the module of the class makes a scheduler around a lifecycle of another host",
    ("stores/sqlite/trace.py", "_Hash"): "typeshed's name for the type of hashlib's hashes, read by type checkers only",
}
NAMED_TUPLE_METHODS = {"_asdict", "_fields", "_make", "_replace"}  # public: the underscore keeps field names free

PUBLIC_NAMES = {
    "Scheduler", "Standby", "standby", "CurrentRun", "current_run", "parse_cron", "CronExpression", "Clock",
    "errors", "events", "stores",
}  # fmt: skip
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

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def violation(self, line: int, message: str) -> str:
        return f"src/duly/{self.path}:{line}: {message}"


MODULES = [
    Module(file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8"))
    for file in sorted(PACKAGE.rglob("*.py"))
]
MODULE_NAMES = {module.name for module in MODULES}


def layer(module_name: str) -> str:
    """The layer of a module of ours, by its dotted name."""
    match module_name.split("."):
        case ["duly", "errors" | "events"]:
            return "words"
        case ["duly", "lazy" | "log_filter" | "run_context" | "text"]:
            return "leaves"
        case ["duly", "threads" | "clock" as module]:
            return module
        case ["duly", "stores", "port" | "shared" | "shared_trace"]:
            return "port"
        case ["duly", "__main__"]:
            return "cli"
        case ["duly"] | ["duly", "scheduler" | "standby" | "wiring"]:
            return "scheduler"
        case ["duly", folder, *_] if folder in FOLDERS:
            return folder
        case _:
            raise ValueError(f"{module_name} belongs to no layer: add it to LAYERS and to layer()")


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


def imports_kept_to_another_folder(module: Module) -> list[str]:
    return [
        module.violation(line, f"{name} is imported, but only {KEPT_TO_A_FOLDER[package]} may do so")
        for line, name in imports(module)
        if (package := name.split(".")[0]) in KEPT_TO_A_FOLDER and not module.path.startswith(KEPT_TO_A_FOLDER[package])
    ]


def imports_against_the_direction(module: Module) -> list[str]:
    here = layer(module.name)
    return [
        module.violation(line, f"{here} must not import {name}")
        for line, name in imports(module)
        if is_within(name, "duly") and not may_import(here, name)
    ]


def may_import(here: str, name: str) -> bool:
    if any(here == who and is_within(name, what) for who, what in FORBIDDEN_BETWEEN):
        return False
    if here == "integrations" and name in PUBLIC_MODULES:
        return True
    return layer(name) == here != "words" or layer(name) in LAYERS[here]


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


_ENTRY = re.compile(r"^([a-z_]\w*/?(?:, \w+/?)*) {2,}(.+(?:\n +.+)*)", re.MULTILINE)


def missing_in_map(docstring: str, names: set[str]) -> set[str]:
    """The modules that a package's docstring has no entry for; none if it is not a map.

    An entry begins a line, and may name a lesser module behind a comma or a semicolon: `setup: what it is given`.
    """
    entries = _ENTRY.findall(docstring)
    named = {word.rstrip("/") for left, _ in entries for word in left.split(", ")}
    named |= {word for _, right in entries for word in re.findall(r"[;,] (\w+)\b", right)}
    return names - named if entries else set()


def docstring_faults(module: Module) -> list[str]:
    docstring = ast.get_docstring(module.tree)
    if not docstring:
        return [module.violation(1, "the module does not introduce itself")]
    first, *rest = docstring.splitlines()
    if not first.endswith("."):
        return [module.violation(1, f"the first line is not a sentence: {first!r}")]
    if re.search(r"[.!?]\s+[A-Z]", first):
        return [module.violation(1, f"the first line is more than one sentence: {first!r}")]
    if rest and rest[0]:
        return [module.violation(2, "the first sentence is longer than its line")]
    return []


def private_reads(module: Module) -> list[str]:
    """Attributes and names with an underscore that belong to another object or another module."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if _is_private(name) and name not in NAMED_TUPLE_METHODS:
                found.append((node.lineno, name))
            case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[ast.Name(id="self" | "cls"), *_]):
                pass
            case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found += [(node.lineno, name)] if _is_private(name) else []
            case ast.ImportFrom(names=names):
                found += [(node.lineno, each.name) for each in names if _is_private(each.name)]
            case _:
                pass
    return [
        module.violation(line, f"{name} is another's private: pass a value, or let its owner answer")
        for line, name in found
        if (module.path, name) not in READABLE_PRIVATES
    ]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@dataclass(frozen=True)
class Class:
    """A class of the package, and its bases by their dotted names, as far as imports tell them."""

    module: Module
    line: int
    name: str
    bases: tuple[str, ...]

    @property
    def dotted(self) -> str:
        return f"{self.module.name}.{self.name}"


def classes(modules: Sequence[Module]) -> list[Class]:
    found = []
    for module in modules:
        known = _names_bound_by_imports(module)
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
                dotted = (_dotted(base, known) or f"{module.name}.{ast.unparse(base)}" for base in bases)
                found.append(Class(module, node.lineno, node.name, tuple(dotted)))
    return found


def bases_cut_off(modules: Sequence[Module]) -> list[str]:
    """Classes whose base stands in a sibling module and has no other subclass: one class, cut in two.

    A base of which objects are made is whole by itself.
    """
    all_classes = {each.dotted: each for each in classes(modules)}
    made = {name for module in modules for name in _called_names(module)}
    subclasses = Counter(base for each in all_classes.values() for base in each.bases)
    return [
        each.module.violation(each.line, f"{each.name} is the only subclass of {base}, cut off into a sibling module")
        for each in all_classes.values()
        for base in each.bases
        if base in all_classes
        and all_classes[base].module.name != each.module.name
        and all_classes[base].module.package == each.module.package
        and subclasses[base] == 1
        and all_classes[base].name not in made
        and not _is_meant_for_subclasses(all_classes[base], all_classes)
    ]


def _called_names(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _is_meant_for_subclasses(base: Class, all_classes: Mapping[str, Class]) -> bool:
    """Whether a base is a protocol, which is written to be fulfilled, or an error, which is written to be caught."""
    names = {each.rpartition(".")[2] for each in base.bases}
    return (
        bool(names & {"Protocol", "ABC"})
        or any(name.endswith(("Error", "Exception")) for name in {base.name, *names})
        or any(_is_meant_for_subclasses(all_classes[each], all_classes) for each in base.bases if each in all_classes)
    )


def names_with_several_meanings(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Public classes of one name, in different modules."""
    found: dict[str, list[str]] = {}
    for each in classes(modules):
        if not _is_private(each.name):
            found.setdefault(each.name, []).append(each.module.violation(each.line, f"class {each.name}"))
    return {name: places for name, places in found.items() if len(places) > 1}


# --- the tests ----------------------------------------------------------------------------------------------


def expect_none(violations: Sequence[str]) -> None:
    if violations:
        pytest.fail("\n".join(violations), pytrace=False)


def in_every_module(check: Callable[[Module], list[str]]) -> list[str]:
    return [violation for module in MODULES for violation in check(module)]


def test_the_checks_see_the_package() -> None:
    assert {"duly", "duly.errors", "duly.events", "duly.core"} <= MODULE_NAMES


def test_the_core_imports_nothing_that_waits_or_writes() -> None:
    expect_none(in_every_module(impure_imports))


def test_imports_point_one_way() -> None:
    expect_none(in_every_module(imports_against_the_direction))


def test_no_private_attribute_of_another_object_is_read() -> None:
    """Code that reaches into another object is one with it, or wants a value that could be passed."""
    expect_none(in_every_module(private_reads))


@pytest.mark.parametrize(("path", "name"), READABLE_PRIVATES)
def test_no_readable_private_outlives_its_reason(path: str, name: str) -> None:
    text = next(module.text for module in MODULES if module.path == path)
    assert re.search(rf"(\.|import .*){name}\b", text), (
        f"src/duly/{path} does not read {name}: remove its entry from READABLE_PRIVATES"
    )


def test_no_class_is_cut_in_two_by_inheritance() -> None:
    """A base class for one subclass in a sibling module makes the file shorter and the class longer."""
    expect_none(bases_cut_off(MODULES))


def test_a_public_class_name_has_one_meaning() -> None:
    found = names_with_several_meanings(MODULES)
    expect_none([place for places in found.values() for place in places])


def test_only_the_command_line_writes_to_a_terminal() -> None:
    expect_none(in_every_module(imports_for_the_terminal))


def test_a_package_of_an_extra_stays_in_its_folder() -> None:
    expect_none(in_every_module(imports_kept_to_another_folder))


def test_time_chance_and_threads_come_through_their_doors() -> None:
    expect_none(in_every_module(doors_without_a_keeper))


@pytest.mark.parametrize(("path", "door"), DOORKEEPERS)
def test_no_doorkeeper_outlives_its_reason(path: str, door: str) -> None:
    used = {door for module in MODULES if module.path == path for _, door, _ in doors_used(module)}
    assert door in used, f"src/duly/{path} does not use {door}: remove its entry from DOORKEEPERS"


def test_a_module_introduces_itself_in_one_sentence() -> None:
    expect_none(in_every_module(docstring_faults))


def test_the_map_of_a_package_has_every_module() -> None:
    """Where its docstring is one, and it mostly is; a package of commands has a table in the documentation."""
    lacking = {}
    maps = 0
    for init in sorted(PACKAGE.rglob("__init__.py")):
        folder = init.parent
        names = {file.stem for file in folder.glob("*.py")} - {"__init__", "__main__"}
        names |= {inner.parent.name for inner in folder.glob("*/__init__.py")}
        docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        maps += bool(_ENTRY.search(docstring))
        if missing := missing_in_map(docstring, names):
            lacking[folder.relative_to(PACKAGE).as_posix()] = missing
    assert lacking == {}
    assert maps >= 15


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


def test_a_package_outside_of_its_folder_is_noticed() -> None:
    assert lines_of(imports_kept_to_another_folder(Module("stores/port.py", "from psycopg import pq"))) == [1]
    assert not imports_kept_to_another_folder(Module("stores/postgres/faults.py", "import psycopg"))


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
        ("formal/monitor.py", "from duly.core.occurrences import following"),
        ("formal/monitor.py", "from duly.core.due import next_due"),
        ("stores/sqlite/write.py", "from duly.engine.journal import Journal"),
        ("scheduler.py", "from duly.testing import SimulatedHost"),
        ("testing/host.py", "import duly.cli.main"),
        ("engine/loop.py", "from duly.stores.sqlite import SqliteStore"),
        ("engine/loop.py", "from duly.scheduler import Scheduler"),
        ("testing/host.py", "from duly.simulation import Scenario"),
        ("insight/health.py", "from duly.stores.sqlite.reader import SqliteReader"),
        ("insight/health.py", "from duly.engine.host import Host"),
        ("insight/health.py", "from duly.formal.monitor import Monitor"),
        ("simulation/scenario.py", "from duly.cli.output import note"),
        ("web/app.py", "from duly.cli.output import note"),
        ("cli/app.py", "from duly.integrations.prometheus import metrics"),
        ("integrations/prometheus.py", "from duly.engine.loop import Loop"),
        ("integrations/prometheus.py", "from duly.stores.sqlite.reader import SqliteReader"),
        ("insight/health.py", "from duly.stores.sqlite import SqliteStore"),
        ("insight/health.py", "from duly.cli.output import plain"),
        ("scheduler.py", "from duly.insight.words import iso"),
        ("simulation/simulate.py", "from duly.engine.loop import Loop"),
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
        ("insight/health.py", "from duly.stores.port import Reader\nfrom duly.core.groups import Group"),
        ("simulation/scenario.py", "from duly.testing import SimulatedHost\nfrom duly.insight import words"),
        ("web/app.py", "from duly.insight import health\nfrom duly.stores.sqlite import reader"),
        ("cli/app.py", "from duly.web.app import app\nfrom duly.simulation.scenario import Scenario"),
        ("integrations/django/apps.py", "import duly\nfrom duly.stores import Reader\nfrom duly import insight"),
        ("__init__.py", "from duly.scheduler import Scheduler\nfrom duly import stores"),
    ],
)
def test_an_import_in_the_right_direction_passes(path: str, text: str) -> None:
    expect_none(imports_against_the_direction(Module(path, text)))


@pytest.mark.parametrize(
    "text",
    [
        "def f(other): return other._x",
        "class A:\n    def f(self): return self.scheduler._loop",
        "class A:\n    def f(self, other):\n        other._x = 1",
        "def f(): return make()._x",
        "class A:\n    def __eq__(self, other): return self._x == other._x",
        "import duly\nduly.Scheduler._patched = None",
        "def f(other): return getattr(other, '_x')",
        "def f(other): return setattr(other, '_x', 1)",
        "from duly.core.cron import _tokens",
        "import os\nos._exit(1)",
    ],
)
def test_a_private_attribute_of_another_is_noticed(text: str) -> None:
    assert lines_of(private_reads(Module("engine/loop.py", text))) == [len(text.splitlines())]


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def f(self): return self._x",
        "class A:\n    @classmethod\n    def f(cls): return cls._x",
        "class A:\n    def f(self): return self.__class__",
        "class A:\n    def f(self): return getattr(self, '_x')",
        "def f(event): return event._replace(at=1)",
        "from __future__ import annotations",
        "_x = 1\ndef f(): return _x",
    ],
)
def test_a_private_attribute_of_ones_own_passes(text: str) -> None:
    expect_none(private_reads(Module("engine/loop.py", text)))


def test_a_readable_private_is_readable_in_one_module() -> None:
    assert not private_reads(Module("cli/service/program.py", "import os\nos._exit(1)"))
    assert private_reads(Module("cli/service/program.py", "import sys\nsys._getframe()"))


LIFE = Module("engine/life.py", "class Life:\n    pass")
CUT = Module("engine/loop.py", "from duly.engine.life import Life\nclass Loop(Life):\n    pass")


@pytest.mark.parametrize(
    "cut",
    [
        CUT,
        Module("engine/loop.py", "from duly.engine import life\nclass Loop(life.Life):\n    pass"),
        Module("engine/loop.py", "import duly.engine.life\nclass Loop(duly.engine.life.Life):\n    pass"),
    ],
)
def test_a_base_class_cut_off_into_a_sibling_module_is_noticed(cut: Module) -> None:
    assert lines_of(bases_cut_off([LIFE, cut])) == [2]


@pytest.mark.parametrize(
    "others",
    [
        [LIFE, CUT, Module("engine/c.py", "from duly.engine.life import Life\nlife = Life()")],
        [LIFE, CUT, Module("engine/b.py", "from duly.engine.life import Life\nclass B(Life):\n    pass")],
        [Module("engine/loop.py", "class Life:\n    pass\nclass Loop(Life):\n    pass")],
        [LIFE, Module("cli/loop.py", "from duly.engine.life import Life\nclass Loop(Life):\n    pass")],
        [CUT, Module("engine/life.py", "from typing import Protocol\nclass Life(Protocol):\n    pass")],
        [
            Module("engine/faults.py", "class Fault(Exception):\n    pass"),
            Module("engine/loop.py", "from duly.engine.faults import Fault\nclass Lost(Fault):\n    pass"),
        ],
    ],
)
def test_a_base_class_with_a_reason_passes(others: list[Module]) -> None:
    expect_none(bases_cut_off(others))


def test_a_public_class_name_with_two_meanings_is_noticed() -> None:
    one, other = Module("core/a.py", "class Kind:\n    pass"), Module("formal/b.py", "x = 1\nclass Kind:\n    pass")
    assert lines_of(names_with_several_meanings([one, other])["Kind"]) == [1, 2]
    private = Module("formal/b.py", "class _Kind:\n    pass")
    assert not names_with_several_meanings([one, private, private])


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


def test_a_module_that_a_map_lacks_is_found() -> None:
    """A word in the explanation of another module is no entry."""
    docstring = "A package.\n\nurl      how a store is named; names: its parts\ncore/    decisions\na, b     two"
    assert missing_in_map(docstring, {"url", "names", "core", "a", "b"}) == set()
    assert missing_in_map(docstring, {"url", "store"}) == {"store"}
    assert missing_in_map("Commands, one module each.", {"run"}) == set()
