"""`python -m tests.tools.figures`: how tightly the parts of the engine are tied, in figures that can be counted again.

    python -m tests.tools.figures                         this checkout
    python -m tests.tools.figures --src ../old/src src    two trees side by side
    python -m tests.tools.figures --list                  with the name and the place of everything counted

What is counted, in the modules of the engine (`engine/` and `scheduler.py`; before there was such a folder, the modules
that are in it now):

- injected callables: parameters of constructors and public methods, and fields of dataclasses, whose type is callable.
  Left out is what the parts do not talk to each other through: the application's own `on_event`, what a thread is given
  to run (`call`, `callback`), and the factories of `host.py`, which name the outside world;
- events: attributes that hold an `asyncio.Event`;
- flags: attributes that are set to `True` or `False`, and fields of dataclasses that are not frozen and hold a `bool`;

and in the whole package:

- foreign privates: reads and writes of `x._name` where x is not an object of a class of the same module;
- one occurrence: what a task that is due once is called through (`tests.tools.occurrence`);
- lines of each package.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.programs import ROOT

SHELL: Final = frozenset(
    {
        "execution",
        "host",
        "initialization",
        "journal",
        "life",
        "loop",
        "observing",
        "options",
        "reports",
        "runs",
        "sink",
    }
)
"""The engine's modules in a tree that has no folder for them."""

NOT_TALK: Final = frozenset({"on_event", "call", "callback"})
OUTSIDE: Final = "host.py"
NAMED_TUPLE: Final = frozenset({"_asdict", "_fields", "_field_defaults", "_make", "_replace"})
"""Public, whatever they look like."""

Sources = Mapping[str, str]
"""The modules of a package: path below it, such as `engine/loop.py`, to source."""


class Place(NamedTuple):
    """Something that was counted, and where it is."""

    module: str
    line: int
    name: str


def read(src: Path) -> dict[str, str]:
    """The modules of `duly` below a folder of sources."""
    package = src / "duly"
    found = {str(file.relative_to(package)): file.read_text() for file in sorted(package.rglob("*.py"))}
    if not found:
        raise SystemExit(f"{package} holds no modules; --src names a folder such as src, in which duly is")
    return found


def of_engine(sources: Sources) -> dict[str, str]:
    """The modules of the engine."""
    has_folder = any(path.startswith("engine/") for path in sources)
    return {
        path: text
        for path, text in sources.items()
        if path == "scheduler.py" or (path.startswith("engine/") if has_folder else path.removesuffix(".py") in SHELL)
    }


# --- callables, events, flags ----------------------------------------------------------------------------------------


def injected_callables(sources: Sources) -> list[Place]:
    """Parameters of constructors and public methods, and fields of dataclasses, whose type is a callable."""
    callables = _callable_types(sources)
    found = []
    for module, class_ in _classes(of_engine(sources)):
        if module.endswith(OUTSIDE):
            continue
        taken: list[tuple[str, ast.expr | None]] = []
        for node in class_.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_called_by_others(node.name):
                arguments = node.args
                taken += [
                    (each.arg, each.annotation)
                    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                ]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_dataclass(class_):
                taken.append((node.target.id, node.annotation))
        found += [
            Place(module, annotation.lineno, f"{class_.name}({name})")
            for name, annotation in taken
            if annotation is not None and name not in NOT_TALK and _names_in(annotation) & callables
        ]
    return found


def _is_called_by_others(method: str) -> bool:
    return method == "__init__" or not method.startswith("_")


def _callable_types(sources: Sources) -> set[str]:
    """`Callable`, its aliases, and protocols that are called."""
    names = {"Callable"}
    for text in sources.values():
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and _names_in(node.value) & {"Callable"} and not _is_call(node.value):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.ClassDef) and any(_names_in(base) & {"Protocol"} for base in node.bases):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                names |= {node.name} if "__call__" in methods else set()
    return names


def events(sources: Sources) -> list[Place]:
    """Attributes that hold an `asyncio.Event`."""
    return [
        Place(module, line, f"{class_}.{name}")
        for module, class_, line, name, value in _attributes(of_engine(sources))
        if value is not None and "asyncio.Event" in ast.unparse(value)
    ]


def flags(sources: Sources) -> list[Place]:
    """Attributes that are set to `True` or `False`."""
    found: dict[tuple[str, str], Place] = {}
    for module, class_, line, name, value in _attributes(of_engine(sources)):
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            found.setdefault((class_, name), Place(module, line, f"{class_}.{name}"))
    return sorted(found.values())


def _attributes(sources: Sources) -> Iterator[tuple[str, str, int, str, ast.expr | None]]:
    """The attributes of instances: module, class, line, name, value."""
    for module, class_ in _classes(sources):
        if _is_dataclass(class_) and not _is_frozen(class_):
            for field in class_.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    is_flag = ast.unparse(field.annotation) == "bool"
                    value = field.value or (ast.Constant(False) if is_flag else None)
                    yield module, class_.name, field.lineno, field.target.id, value
        for node in ast.walk(class_):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and _is_self(target.value):
                    assert isinstance(node, ast.Assign | ast.AnnAssign)
                    yield module, class_.name, node.lineno, target.attr, node.value


# --- foreign privates ------------------------------------------------------------------------------------------------


def foreign_privates(sources: Sources) -> list[Place]:
    """`x._name`, where x is not known to be an object of a class of the same module."""
    found = []
    for module, text in sources.items():
        tree = ast.parse(text)
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        elsewhere = _imported_from_elsewhere(tree)
        for function, node in _private_attributes(tree):
            root = ast.unparse(node.value)
            if _is_self(node.value) or root == "super()" or root in own | elsewhere or node.attr in NAMED_TUPLE:
                continue
            if isinstance(node.value, ast.Name) and _is_of(own, node.value.id, function):
                continue
            found.append(Place(module, node.lineno, f"{root}.{node.attr}"))
    return sorted(found)


def _private_attributes(tree: ast.Module) -> Iterator[tuple[ast.AST | None, ast.Attribute]]:
    """Each, and the innermost function it stands in."""

    def walk(node: ast.AST, function: ast.AST | None) -> Iterator[tuple[ast.AST | None, ast.Attribute]]:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield function, node
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else function
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    return walk(tree, None)


def _is_of(classes: set[str], name: str, function: ast.AST | None) -> bool:
    """Whether a variable holds an object of one of these classes, by its annotation or, without one, by its name."""
    annotated = _type_of(name, function)
    return annotated in classes if annotated else any(each.lower().endswith(name.lower()) for each in classes)


def _type_of(name: str, function: ast.AST | None) -> str:
    """The annotation of a parameter."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.arg == name and each.annotation is not None:
            return ast.unparse(each.annotation).strip("'\"")
    return ""


def _imported_from_elsewhere(tree: ast.Module) -> set[str]:
    """Names of modules that are not duly's: `os._exit` is the system's business."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.partition(".")[0] != "duly"
    }


# --- lines -----------------------------------------------------------------------------------------------------------


def lines(sources: Sources) -> dict[str, int]:
    """Lines of each package, and of the modules beside them."""
    counted: Counter[str] = Counter()
    engine = of_engine(sources)
    for path, text in sources.items():
        package = path.partition("/")[0] if "/" in path else ""
        if path in engine and path != "scheduler.py":
            package = "engine"
        counted[package or "duly"] += text.count("\n")
    return dict(sorted(counted.items()))


# --- small questions about syntax ------------------------------------------------------------------------------------


def _classes(sources: Sources) -> Iterator[tuple[str, ast.ClassDef]]:
    for module, text in sources.items():
        yield from ((module, node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))


def _names_in(node: ast.expr) -> set[str]:
    """The names in a type, in a text of one as well."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    tree: ast.AST = ast.parse(text) if text is not None else node
    found = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def _is_dataclass(class_: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in class_.decorator_list)


def _is_frozen(class_: ast.ClassDef) -> bool:
    return any("frozen=True" in ast.unparse(each) for each in class_.decorator_list)


# --- the table -------------------------------------------------------------------------------------------------------

COUNTED: Final = {
    "injected callables": injected_callables,
    "asyncio.Event attributes": events,
    "flags": flags,
    "foreign privates": foreign_privates,
}


def occurrence(src: Path) -> dict[str, int]:
    """The calls of one occurrence, counted in a process that has this tree's `duly`."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.tools.occurrence"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(src.resolve()), str(ROOT)])},
        stdout=subprocess.PIPE,
        check=True,
    )
    counted: dict[str, int] = json.loads(told.stdout)
    return counted


def figures(src: Path) -> dict[str, int]:
    """All of them, of one tree."""
    sources = read(src)
    table = {name: len(count(sources)) for name, count in COUNTED.items()}
    table |= {f"one occurrence: {name}": count for name, count in occurrence(src).items()}
    per_package = lines(sources)
    table |= {f"lines of {package}": count for package, count in per_package.items()}
    return {**table, "lines of all": sum(per_package.values())}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.figures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--src", nargs="+", type=Path, default=[ROOT / "src"], metavar="DIR", help="folders of sources")
    parser.add_argument("--list", action="store_true", help="name everything that is counted in the first of them")
    options = parser.parse_args(arguments)
    if options.list:
        sources = read(options.src[0])
        for name, count in COUNTED.items():
            print(f"\n{name}:")
            for place in count(sources):
                print(f"  {place.module}:{place.line}: {place.name}")
        return
    columns = [figures(src) for src in options.src]
    names = list(dict.fromkeys(name for column in columns for name in column))
    heads = [os.path.relpath(src) for src in options.src]
    widths = [max(8, len(head)) for head in heads]
    print(" " * 46, *(head.rjust(width) for head, width in zip(heads, widths, strict=True)))
    for name in names:
        cells = (f"{column[name]:,}" if name in column else "–" for column in columns)
        print(name.ljust(46), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))


if __name__ == "__main__":
    main()
