"""docs/reference/errors.md is what the code raises: every class, message and key of `details`, and nothing else."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from duly import errors
from duly.errors import DulyError
from tests.reference import ROOT, code, rows, sections

PAGE = sections("errors.md")
FAMILY = {name: each for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, DulyError)}
RAISED = {name for name in FAMILY if name in PAGE and "\nMessage: " in PAGE[name]}
"""The classes that are raised themselves; the others are there to catch by."""

FAULT = OSError("no space left")
CRON = errors.InvalidCronExpressionError("0 24 * * *", "hour", "value 24 is out of range 0-23")
CRON_HINT = errors.InvalidCronExpressionError("*/5 * * * *", "minute", "contains step syntax '/'", hint="list them")
SAMPLES: list[DulyError] = [
    errors.DulyError("why"),
    errors.DulyError("why", hint="do"),
    errors.RegistrationsNotArrayError(None),
    errors.RegistrationShapeError(3, "abc", "why"),
    errors.InvalidRegistrationError(3, "name", "", "must not be empty"),
    errors.ScheduleDuplicateTaskError(3, "backup"),
    errors.CronExpressionInvalidError(3, "backup", CRON),
    errors.CronExpressionInvalidError(3, "backup", CRON_HINT),
    errors.NegativeRetryDelayError(3, "backup", -5),
    errors.ScheduleTaskError("backup", "0 3 * * *", FAULT),
    errors.ScheduleTaskError("backup", "0 3 * * *", errors.StoreError("why", store="state.db", hint="do")),
    errors.StopSchedulerError(FAULT),
    errors.StopSchedulerError(FAULT, hint="why"),
    errors.SchedulerStoppingError("backup"),
    CRON,
    CRON_HINT,
    errors.FieldParseError("hour", "24", "value 24 is out of range 0-23"),
    errors.CronCalculationError("0 3 * * *", "9999-12-31T03:00:00", OverflowError("the calendar ends")),
    errors.TaskMissingFieldError("cron"),
    errors.TaskMissingFieldError("cron", task="backup"),
    errors.TaskInvalidTypeError("cron", 5, "str"),
    errors.TaskInvalidTypeError("cron", 5, "str", task="backup"),
    errors.TaskInvalidValueError("failures", -1, "is too small"),
    errors.TaskInvalidValueError("failures", -1, "is too small", task="backup"),
    errors.TaskInvalidStructureError([], "empty"),
    errors.TaskInvalidStructureError([], "empty", task="backup"),
    errors.TaskListMismatchError(expected=["a"], actual=["b"], added=["b"], removed=["a"], changed={}),
    errors.TaskListMismatchError(
        expected=["a"],
        actual=["a"],
        added=[],
        removed=[],
        changed={},
        interrupted={"stored": "restart", "declared": "wait"},
    ),
    errors.StoreError("why", store="state.db"),
    errors.StoreError(
        "why",
        store="state.db",
        hint="do",
        cause=FAULT,
        operation="write",
        code="FULL",
        applicationId=1,
        found="x",
        permanent=True,
    ),
    errors.StoreLockedError("state.db", {"pid": 1, "host": "vm", "since": "noon"}),
    errors.StoreCorruptedError("why", store="state.db"),
    errors.StoreCorruptedError(
        "why", store="state.db", hint="do", cause=FAULT, operation="load", bytes=4095, expectedBytes=4096
    ),
    errors.StoreVersionError("state.db", 9, 2),
    errors.StoreSchemaError("postgresql://x (schema duly)", "may not be used by the role", "duly store sql"),
    errors.StoreSchemaError(
        "postgresql://x (schema duly)",
        "lacks tables of this version, and the role may not create them",
        "duly store sql",
        cause=FAULT,
    ),
    errors.StoreRewoundError("postgresql://x (schema duly)", "host 1"),
    errors.HostGoneError("postgresql://x (schema duly)", 1, "was buried"),
    errors.ForeignSetError("postgresql://x (schema duly)"),
    errors.ClusterZoneError("postgresql://x (schema duly)", "UTC", "Europe/Berlin"),
    errors.StoreUnusedError("why", store="state.db"),
    errors.StoreUnusedError("why", store="state.db", hint="do"),
    errors.HostZoneError("why"),
    errors.HostZoneError("why", cause=FAULT),
    errors.TraceError("hash", 7, "why"),
    errors.TraceError("hash", 7, "why", hint="do"),
    errors.UnsupportedPlatformError("Windows"),
]
"""Each class that is raised, with and without what is optional."""

TYPES: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "integer": int,
    "boolean": bool,
    "exception": BaseException,
    "object": Mapping,
    "list of text": list,
    "any": object,
    "null": type(None),
}


def documented(name: str) -> tuple[dict[str, str], set[str]]:
    """The keys of an error's details with their types, and those of them that are optional."""
    found = {code(key)[0]: kind for key, kind, _ in rows(PAGE[name])}
    return {key: kind.removesuffix(", optional") for key, kind in found.items()}, {
        key for key, kind in found.items() if kind.endswith(", optional")
    }


def test_every_class_has_its_section_and_no_section_is_about_another() -> None:
    """SPEC 1.5: the page names each class of `duly.errors`."""
    assert {heading for heading in PAGE if heading.endswith("Error")} == set(FAMILY)
    assert {type(each).__name__ for each in SAMPLES} == RAISED


@pytest.mark.parametrize("name", sorted(FAMILY))
def test_a_section_says_when_it_is_raised_and_what_to_do(name: str) -> None:
    """A base class says what it is the base of; an error that is raised, when, and what to do about it."""
    section = PAGE[name].strip()
    if name not in RAISED:
        assert section.startswith("Base class of the errors of this section")
        assert not rows(section)
        return
    assert section.startswith(("Raised ", "Base class"))
    assert "Raised " in section
    assert "\nWhat to do: " in section or issubclass(FAMILY[name], errors.TaskTryDeserializeError)


@pytest.mark.parametrize("name", sorted(RAISED))
def test_messages_and_details_are_those_of_the_page(name: str) -> None:
    """SPEC 1.5: the exact texts, and every key of `details` with its type."""
    samples = [each for each in SAMPLES if type(each).__name__ == name]
    keys, optional = documented(name)
    assert set().union(*(each.details for each in samples)) == set(keys)
    assert set(keys).difference(*(set(keys) - set(each.details) for each in samples)) == set(keys) - optional
    (message,) = re.findall(r"^Message: (.+)$", PAGE[name], re.MULTILINE)
    if message != "the reason":
        escaped = re.escape(code(message)[0]).replace(r"\<", "<").replace(r"\>", ">")
        pattern = re.sub(r"<[^>]*>", ".+", escaped)
        assert all(re.fullmatch(pattern, each.message) for each in samples)
    for key, kinds in keys.items():
        values = [each.details[key] for each in samples if key in each.details]
        kinds_allowed = tuple(TYPES[kind] for kind in kinds.split(" or "))
        assert all(isinstance(value, kinds_allowed) for value in values), (key, kinds)
        for kind in kinds.split(" or "):
            assert any(isinstance(value, TYPES[kind]) for value in values), (key, kind)


# --- what the source raises ------------------------------------------------------------------------------------------


def raised() -> Iterator[tuple[str, str, ast.Call]]:
    """Every construction of an error in the package: where, its class, and the call."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        if path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FAMILY:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.func.id, node


OPEN = {"DulyError", "StoreError", "StoreCorruptedError", "StoreUnusedError"}
"""Classes whose constructors take any details."""


def test_every_detail_that_the_source_gives_is_documented() -> None:
    """Constructors that take any keyword: each keyword of each call stands in the section of its class."""
    found: dict[str, set[str]] = {name: set() for name in OPEN}
    for where, name, call in raised():
        if name in OPEN:
            given = {each.arg for each in call.keywords if each.arg is not None}
            assert given <= set(documented(name)[0]), where
            found[name] |= given
    for name in OPEN:
        assert found[name] == set(documented(name)[0]), name


def test_every_fault_of_a_trace_is_documented() -> None:
    """`details["fault"]` of a TraceError is one of the words of the page, and each of them occurs."""
    ((words,),) = [[meaning for key, _, meaning in rows(PAGE["TraceError"]) if key == "`fault`"]]
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(ROOT / "src").rglob("*.py"))
    given = re.findall(r"(?:TraceError|_broken)\(\s*\"(\w+)\"", source)
    assert set(given) == set(code(words))
