"""Small wrong versions of a module: each differs from the source in one place that a reader could get wrong.

A mutant is a replacement of text, so everything else in the module stays where it is. What is changed: comparisons,
`and`/`or`/`not`, arithmetic and bit operators, whole numbers, `True`/`False`, conditions, returned values, `min`/`max`
and `any`/`all`, `break`/`continue`; calls, assignments and raises that stand alone are left out. What is not: texts
(the tests of messages compare them in full), annotations, docstrings, `assert` (it states what is known), decorators.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
OPERATORS: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Scope(NamedTuple):
    """The outermost function around a place, or the whole module where there is none."""

    name: str
    begin: int
    indent: int
    source: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one module."""

    path: str
    line: int
    lines: tuple[int, ...]
    """The lines of the statement that it stands in: a test that runs any of them may notice it."""

    begin: int
    end: int
    before: str
    after: str
    context: str
    """The source line it is in, without blanks around it."""

    scope: "Scope"
    """The function that it stands in."""

    copy: int = 0
    """How many mutants before it in the module read the same."""

    @property
    def fingerprint(self) -> str:
        """A name that stays as long as the source of its function does, whatever is edited elsewhere."""
        place = f"{self.begin - self.scope.begin}|{self.end - self.scope.begin}"
        text = f"{self.path}|{self.scope.name}|{self.scope.source}|{place}|{self.after}"
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def key(self) -> str:
        """A name that stays when lines are added elsewhere: of the file, its line's text, and the change."""
        text = f"{self.path}|{self.context}|{self.before}|{self.after}" + f"|{self.copy}" * bool(self.copy)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def module(self) -> str:
        """The name under which it is imported."""
        return self.path.removeprefix("src/").removesuffix(".py").replace("/", ".")

    def compiles(self) -> bool:
        """Whether the wrong version is Python; only its function is compiled, which takes a twentieth of the time."""
        scope = self.scope
        begin, end = self.begin - scope.begin, self.end - scope.begin
        text = scope.source[:begin] + self.after + scope.source[end:]
        try:
            compile(f"class _:\n{' ' * scope.indent}{text}" if scope.indent else text, self.path, "exec")
        except SyntaxError:
            return False
        return True

    def applied_to(self, source: str) -> str:
        """The wrong version."""
        return source[: self.begin] + self.after + source[self.end :]

    def __str__(self) -> str:
        before = " ".join(self.before.split())
        after = " ".join(self.after.split())
        return f"{self.path}:{self.line}: {_short(before)} -> {_short(after)}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of the source; each of them compiles."""
    found = []
    seen = set()
    for mutant in _Finder(path, source).find():
        identity = (mutant.begin, mutant.end, mutant.after)
        if identity in seen:
            continue
        seen.add(identity)
        if mutant.compiles():
            found.append(mutant)
    return _numbered(sorted(found, key=lambda mutant: (mutant.begin, mutant.end, mutant.after)))


def _numbered(mutants: list[Mutant]) -> list[Mutant]:
    """Tell those apart that read the same."""
    seen: Counter[tuple[str, str, str]] = Counter()
    numbered = []
    for mutant in mutants:
        reading = (mutant.context, mutant.before, mutant.after)
        numbered.append(replace(mutant, copy=seen[reading]))
        seen[reading] += 1
    return numbered


class _Finder:
    """Walks a module's tree, and turns places in it into replacements of text."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source
        self._text = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._text:
            self._starts.append(self._starts[-1] + len(line))
        self._statement: ast.stmt | None = None
        self._scope = Scope("", 0, 0, source)
        self._classes: list[str] = []

    def find(self) -> Iterator[Mutant]:
        yield from self._body(ast.parse(self._source).body)

    # --- places ------------------------------------------------------------------------------------------------------

    def _offset(self, line: int, column: int) -> int:
        """Columns of the tree count bytes, those of a text characters."""
        return self._starts[line - 1] + len(self._text[line - 1].encode()[:column].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _mutant(self, begin: int, end: int, after: str) -> Mutant:
        statement = self._statement
        assert statement is not None
        line = self._source.count("\n", 0, begin) + 1
        last = statement.end_lineno or statement.lineno
        if isinstance(body := getattr(statement, "body", None), list) and body and isinstance(body[0], ast.stmt):
            last = max(statement.lineno, body[0].lineno - 1)
        return Mutant(
            path=self._path,
            line=line,
            lines=tuple(range(min(line, statement.lineno), max(last, line) + 1)),
            begin=begin,
            end=end,
            before=self._source[begin:end],
            after=after,
            context=self._text[line - 1].strip(),
            scope=self._scope,
        )

    def _replaced(self, node: ast.expr | ast.stmt, after: str) -> Mutant:
        return self._mutant(*self._span(node), after)

    def _between(self, left: ast.expr, right: ast.expr, before: str, after: str) -> Iterator[Mutant]:
        """Replace an operator: the one place between two operands where its text stands."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self._source[begin:end]
        code = "".join("#" * len(part) if part.startswith("#") else part for part in _with_comments_apart(gap))
        if code.count(before) == 1:
            at = begin + code.index(before)
            yield self._mutant(at, at + len(before), after)

    # --- statements --------------------------------------------------------------------------------------------------

    def _body(self, statements: list[ast.stmt]) -> Iterator[Mutant]:
        for index, statement in enumerate(statements):
            if index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            yield from self._of_statement(statement)

    def _of_statement(self, statement: ast.stmt) -> Iterator[Mutant]:
        outer, self._statement = self._statement, statement
        outer_scope, self._scope = self._scope, self._scope_of(statement)
        if isinstance(statement, ast.ClassDef):
            self._classes.append(statement.name)
        yield from self._whole(statement)
        for name, value in ast.iter_fields(statement):
            if name in ("body", "orelse", "finalbody"):
                yield from self._body(value)
            elif name in ("handlers", "cases"):
                for part in value:
                    yield from self._body(part.body)
            for node in _parts(name, value):
                yield from self._expression(node)
        if isinstance(statement, ast.ClassDef):
            self._classes.pop()
        self._statement, self._scope = outer, outer_scope

    def _scope_of(self, statement: ast.stmt) -> Scope:
        if self._scope.name or not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return self._scope
        begin, end = self._span(statement)
        return Scope(".".join([*self._classes, statement.name]), begin, statement.col_offset, self._source[begin:end])

    def _whole(self, statement: ast.stmt) -> Iterator[Mutant]:
        match statement:
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
                yield self._replaced(statement, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                yield self._replaced(statement, "pass")
            case ast.Return(value=value) if value is not None and not _is_none(value):
                yield self._replaced(statement, "return None")
            case ast.Break():
                yield self._replaced(statement, "continue")
            case ast.Continue():
                yield self._replaced(statement, "break")
            case ast.If(test=test) | ast.While(test=test) if not _is_type_checking(test):
                yield self._negated(test)
            case ast.Assert():
                return
            case _:
                return

    def _negated(self, test: ast.expr) -> Mutant:
        begin, end = self._span(test)
        return self._mutant(begin, end, f"not ({self._source[begin:end]})")

    # --- expressions -------------------------------------------------------------------------------------------------

    def _expression(self, root: ast.expr) -> Iterator[Mutant]:
        if isinstance(self._statement, ast.Assert):
            return
        for node in ast.walk(root):
            match node:
                case ast.Compare():
                    operands = [node.left, *node.comparators]
                    for operator, left, right in zip(node.ops, operands, node.comparators, strict=False):
                        yield from self._between(left, right, *COMPARISONS[type(operator)])
                case ast.BoolOp():
                    pair = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                    for left, right in pairwise(node.values):
                        yield from self._between(left, right, *pair)
                case ast.BinOp() if type(node.op) in OPERATORS:
                    yield from self._between(node.left, node.right, *OPERATORS[type(node.op)])
                case ast.UnaryOp(op=ast.Not(), operand=operand):
                    yield self._replaced(node, f"({self._source[slice(*self._span(operand))]})")
                case ast.IfExp(test=test):
                    yield self._negated(test)
                case ast.comprehension(ifs=conditions):
                    yield from map(self._negated, conditions)
                case ast.Constant() | ast.Name():
                    yield from self._word(node)
                case _:
                    pass

    def _word(self, node: ast.Constant | ast.Name) -> Iterator[Mutant]:
        match node:
            case ast.Constant(value=bool() as value):
                yield self._replaced(node, repr(not value))
            case ast.Constant(value=int() as number):
                yield self._replaced(node, f"({number + 1})")
            case ast.Name(id=name) if name in NAMES:
                yield self._replaced(node, NAMES[name])
            case _:
                pass


def _parts(name: str, value: Any) -> Iterator[ast.expr]:
    """The expressions in a field of a statement that may be changed."""
    match name:
        case "annotation" | "returns" | "decorator_list" | "bases" | "keywords" | "type_params" | "targets" | "target":
            return
        case "cases":
            yield from (case.guard for case in value if case.guard is not None)
        case "args":
            yield from (*value.defaults, *(each for each in value.kw_defaults if each is not None))
        case "items":
            yield from (item.context_expr for item in value)
        case _:
            nodes = value if isinstance(value, list) else [value]
            yield from (node for node in nodes if isinstance(node, ast.expr))


def _with_comments_apart(text: str) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        at = line.find("#")
        if at < 0:
            yield line
        else:
            yield line[:at]
            yield "#" + line[at + 1 :].rstrip("\n")
            if line.endswith("\n"):
                yield "\n"


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
