"""The duties of docstrings of public names: every parameter, every field, every error that the code raises.

A docstring has sections, which docs/site/conf.py turns into lists:

    Parameters:
        name: what it is.

    Raises:
        ValueError: when.

The parameters of a constructor stand in the docstring of its class. A field of a value is explained where it is
declared, after `#:` or in a text below it. Which errors a function raises is read from its source: its own `raise`
statements, and those of the functions of its module that it calls.
"""

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import duly.errors
from docs.site.assemble import inherited_from, is_error, public_names

_SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises):$")
_ENTRY = re.compile(r"^    (\*{0,2}\w+):(?: |$)")
_FIELD = re.compile(r"#: *\S")


class Documented(NamedTuple):
    """A public class, function or method, with the text that describes it."""

    name: str
    value: Any
    text: str
    owner: type | None = None
    """The class of a method."""

    @property
    def parameters(self) -> list[str]:
        """The parameters that a caller gives."""
        called = self.value.__init__ if inspect.isclass(self.value) else self.value
        found = inspect.signature(called).parameters.values()
        kinds = inspect.Parameter
        stars: dict[Any, str] = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
        return [stars.get(each.kind, "") + each.name for each in found if each.name not in ("self", "cls")]

    @property
    def is_called(self) -> bool:
        """Whether it has parameters of its own: a constructor that is inherited is explained where it is written."""
        return not inspect.isclass(self.value) or "__init__" in _written(self.value)

    def section(self, heading: str) -> list[str]:
        """The names that a section of the text explains."""
        return sections(self.text).get(heading, [])


def sections(text: str) -> dict[str, list[str]]:
    """The sections of a docstring, each with the names that it explains."""
    found: dict[str, list[str]] = {}
    heading = None
    for line in text.splitlines():
        if match := _SECTION.match(line):
            heading = found.setdefault(match[1], [])
        elif line and not line.startswith(" "):
            heading = None
        elif heading is not None and (entry := _ENTRY.match(line)):
            heading.append(entry[1])
    return found


def documented(module_name: str) -> Iterator[Documented]:
    """The public classes and functions of a module, and the public methods of those classes."""
    module = import_module(module_name)
    for name in public_names(module):
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        yield Documented(f"{module_name}.{name}", value, inspect.getdoc(value) or "")
        if inspect.isclass(value):
            for owner in (value, *inherited_from(value)):
                for each, member in vars(owner).items():
                    method = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                    if not each.startswith("_") and inspect.isfunction(method):
                        text = inspect.getdoc(getattr(owner, each)) or ""
                        yield Documented(f"{module_name}.{name}.{each}", method, text, owner)


# --- fields ----------------------------------------------------------------------------------------------------------


def _written(kind: type) -> set[str]:
    """The names that the source of a class defines."""
    return {each.name for each in class_node(kind).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def fields_of(kind: type) -> list[str]:
    """The public fields that a class declares itself; none if it is not a value."""
    if is_error(kind) or not (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields")):
        return []
    return [name for name, _ in _declared(kind) if not name.startswith("_")]


def unexplained_fields(kind: type) -> list[str]:
    """The fields of a class that nothing explains where they are declared."""
    return [name for name, explained in _declared(kind) if not explained and not name.startswith("_")]


def _declared(kind: type) -> Iterator[tuple[str, bool]]:
    """The annotated names of a class, each with whether it is explained; constants of the class are left out."""
    lines = source_of(kind.__module__).lines
    body = class_node(kind).body
    for position, each in enumerate(body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            if "ClassVar" in ast.unparse(each.annotation):
                continue
            after = body[position + 1] if position + 1 < len(body) else None
            beside = any(_FIELD.search(line) for line in lines[each.lineno - 1 : each.end_lineno])
            above = lines[each.lineno - 2].strip().startswith("#: ")
            yield each.target.id, beside or above or _is_text(after)


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# --- errors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A module as text and as a tree."""

    lines: list[str]
    tree: ast.Module

    def find(self, *path: str) -> ast.AST | None:
        """A class, function or method by its name."""
        node: ast.AST = self.tree
        for name in path:
            kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            inner = (each for each in ast.iter_child_nodes(node) if isinstance(each, kinds) and each.name == name)
            if (found := next(inner, None)) is None:
                return None
            node = found
        return node


@cache
def source_of(module_name: str) -> Source:
    """The source of a module."""
    path = sys.modules[module_name].__file__
    assert path is not None
    text = Path(path).read_text(encoding="utf-8")
    return Source(text.splitlines(), ast.parse(text))


def class_node(kind: type) -> ast.ClassDef:
    """The definition of a class in its source."""
    node = source_of(kind.__module__).find(*kind.__qualname__.split("."))
    assert isinstance(node, ast.ClassDef)
    return node


def raised(entry: Documented) -> set[str]:
    """The names of the errors that a function, method or constructor raises, as far as its own module shows."""
    value = inspect.unwrap(entry.value)
    kind = value if inspect.isclass(value) else entry.owner
    path = value.__qualname__.split(".")
    if inspect.isclass(value):
        path.append("__init__" if "__init__" in _written(value) else "__post_init__")
    source = source_of(value.__module__)
    node = source.find(*path)
    return set() if node is None else _raised(source, node, None if kind is None else kind.__qualname__, set())


def _raised(source: Source, node: ast.AST, owner: str | None, seen: set[ast.AST]) -> set[str]:
    if node in seen:
        return set()
    seen.add(node)
    found: set[str] = set()
    for each in _own(node):
        if isinstance(each, ast.Raise) and each.exc is not None:
            found |= _named(source, each.exc, owner)
        elif isinstance(each, ast.Call) and (callee := _callee(source, each.func, owner)) is not None:
            found |= _raised(source, callee, owner, seen)
    # A failed assertion is a defect of duly, and not for a caller to expect.
    return {name for name in found if not name.startswith("_") and name != "AssertionError"}


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The statements and expressions of a function, without those of functions inside of it."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield each
            yield from _own(each)


def _named(source: Source, raised_value: ast.expr, owner: str | None) -> set[str]:
    """The class of what is raised: it is named, or a function of the module returns it."""
    called = raised_value.func if isinstance(raised_value, ast.Call) else raised_value
    if isinstance(called, ast.Name) and error_named(called.id) is not None:
        return {called.id}
    maker = _callee(source, called, owner)
    if isinstance(maker, ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(maker.returns, ast.Name):
        return {maker.returns.id}
    return set()


def _callee(source: Source, called: ast.expr, owner: str | None) -> ast.AST | None:
    """The function of the module, or the method of the class, that a call names."""
    if isinstance(called, ast.Name):
        functions = (each for each in source.tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
        return next((each for each in functions if each.name == called.id), None)
    if (
        owner is not None
        and isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id == "self"
    ):
        return source.find(*owner.split("."), called.attr)
    return None


def error_named(name: str) -> type[BaseException] | None:
    """The class of errors with a name: one of duly's or of Python's."""
    value = getattr(duly.errors, name, None) or getattr(builtins, name, None)
    return value if is_error(value) else None
