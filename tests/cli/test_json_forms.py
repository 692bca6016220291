"""docs/reference/json.md has every field of every JSON document that a command prints, with its type, and no other."""

import ast
import json
import re

import pytest

from duly.cli.app import COMMANDS as COMMAND_LINE
from tests.cli.json_forms import COMMANDS, documents, example_text, examples, printable, shape, shortened, union
from tests.postgres_server import bundled_binaries
from tests.reference import ROOT, code, rows, sections

PAGE = sections("json.md")
UNSEEN = {
    ("status", "tasks[].nextIs", "null"),  # after the last due minute of the year 9999
    ("verify", "properties[].first.subTrace", "null"),  # a violation that rests on the registers of a header
    ("history", "runs[].attempt", "null"),  # a retry that duly 0.1.0 recorded
    ("history", "runs[].key", "null"),
    ("explain", "run.attempt", "null"),
    ("explain", "run.key", "null"),
}
"""Types that the page names and that no command prints on the stage."""


def documented(form: str) -> dict[str, set[str]]:
    """The fields of a form with their types, as its table has them."""
    return {code(path)[0]: set(kind.split(" or ")) for path, kind, _ in rows(PAGE[f"duly {form}"])}


def test_every_command_that_prints_json_has_its_section() -> None:
    """One section for each command but `run`, `mcp`, `web` and `completion`; and each has an example."""
    groups = {"trace": {"trace export"}, "store": {"store sql", "store install", "store check"}}
    without = {"run", "mcp", "web", "completion"}
    forms = {form for command in COMMAND_LINE for form in groups.get(command, {command})} - without
    assert set(COMMANDS) == forms
    assert {heading.removeprefix("duly ") for heading in PAGE if heading.startswith("duly ")} == forms
    assert set(examples()) == forms


@pytest.mark.parametrize("form", COMMANDS)
def test_an_example_shows_no_path_of_the_machine_that_wrote_it(form: str) -> None:
    """Paths of the stage and of this project stand in /srv/app."""
    shown = re.findall(r"(?<![\w.])/(?:[\w.-]+/)+[\w.-]*", "\n".join(examples()[form]))
    assert [path for path in shown if not path.startswith(("/srv/app", "/usr/local/bin/"))] == []


@pytest.mark.parametrize("form", COMMANDS)
def test_the_table_of_a_form_has_every_field_with_its_type_and_no_other(form: str) -> None:
    """Compared with what the command prints on a stage that leads to every field; in both directions."""
    if form not in printable():
        bundled_binaries()
    printed = union([shape(document) for document in documents()[form]])
    assert printed.pop("command") == {"text"}
    assert printed.pop("format") == {"integer"}
    written = documented(form)
    missing = [f"`{path}` | {' or '.join(sorted(kinds))}" for path, kinds in printed.items() if path not in written]
    assert missing == [], f"docs/reference/json.md, section duly {form}, lacks these rows"
    assert [path for path in written if path not in printed] == [], "these rows are not printed any more"
    unseen = {path: {kind for name, at, kind in UNSEEN if (name, at) == (form, path)} for path in written}
    assert {path: kinds - unseen[path] for path, kinds in written.items()} == printed


@pytest.mark.parametrize("form", COMMANDS)
def test_an_example_has_the_shape_of_what_its_command_prints(form: str) -> None:
    """Keys and types, nested. `python -m tests.cli.json_forms` writes new examples into the page."""
    if form not in printable():
        bundled_binaries()
    example = examples()[form]
    assert example.command == COMMANDS[form][0]
    assert shape(json.loads(example.text)) == shape(documents()[form][0])


def test_what_an_explanation_says_is_listed_with_its_facts() -> None:
    """`reasons[].code`: every code that the source gives, with the keys of its facts."""
    written: dict[str, set[str]] = {}
    for codes, facts, _ in rows(PAGE["Reasons"]):
        written |= {each: set(code(facts)) for each in code(codes)}
    assert written == _reasons()


def _reasons() -> dict[str, set[str]]:
    """The codes of reasons with the keys of their facts, read from the source."""
    tree = ast.parse((ROOT / "src" / "duly" / "insight" / "explanation.py").read_text(encoding="utf-8"))
    of_a_run = {"runId", "startedAt", "endedAt"}
    found: dict[str, set[str]] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called not in ("Reason", "_due_at") or not isinstance(call.args[0], ast.Constant):
            continue
        keys: set[str] = set()
        if called == "Reason" and len(call.args) > 2:
            facts = call.args[2]
            literal = facts if isinstance(facts, ast.Dict) else _assigned(tree, call, facts)
            keys = {str(ast.literal_eval(key)) for key in literal.keys if key} if literal else of_a_run
        found.setdefault(str(call.args[0].value), set()).update(keys)
    return found


def _assigned(tree: ast.Module, call: ast.Call, name: ast.expr) -> ast.Dict | None:
    """The dict that a local variable of the function around a call holds; None if it is that of a run."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if any(each is call for each in ast.walk(function)) and isinstance(name, ast.Name):
            for each in ast.walk(function):
                if isinstance(each, ast.Assign) and isinstance(each.value, ast.Dict):
                    if getattr(each.targets[0], "id", "") == name.id:
                        return each.value
    return None


# --- the comparison can fail -----------------------------------------------------------------------------------------


def test_a_shape_tells_types_and_nesting_apart() -> None:
    """Each kind of difference is one."""
    assert shape({"a": 1}) == {"a": {"integer"}}
    assert shape({"a": 1.5, "b": True, "c": None}) == {"a": {"number"}, "b": {"boolean"}, "c": {"null"}}
    assert shape({"a": "2025-10-26T02:30:00+01:00", "b": "2025-10-26T02:30:00", "c": "x"}) == {
        "a": {"time"},
        "b": {"wall-clock time"},
        "c": {"text"},
    }
    assert shape({"a": [{"b": 1}, {"b": None}]}) == {"a": {"list of objects"}, "a[].b": {"integer", "null"}}
    assert union([shape({"a": []}), shape({"a": ["x"]})]) == {"a": {"list of text"}}


def test_a_shortened_document_keeps_its_shape() -> None:
    """Elements that add nothing go, and no others."""
    document = {"a": [{"b": 1}, {"b": 2}, {"b": None, "c": [1, 2]}], "d": ["x", "y"]}
    assert shortened(document) == {"a": [{"b": 1}, {"b": None, "c": [1]}], "d": ["x"]}
    assert shape(shortened(document)) == shape(document)
    assert json.loads(example_text(document)) == shortened(document)
