"""The tables of docs/specification.md are those of the code, and every clause in force has a test that cites it."""

import inspect
import logging
import re
from pathlib import Path

import pytest

from duly import errors, events
from duly.core.record import FIELDS
from duly.formal.properties import PROPERTIES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
CLAUSES = re.findall(r"^### (\d+\.\d+)$", PAGE, re.MULTILINE)
TESTED_SECTIONS = range(1, 8)
"""Section 8 defines words, 9 and 10 are not in force yet."""


def rows_below(heading: str) -> list[list[str]]:
    """The cells of all tables between a heading and the next heading."""
    section = re.split(r"^#+ ", PAGE.split(f"# {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if "|" in line]
    return [row for row in rows if row[0].startswith("`")]


def code(cell: str) -> list[str]:
    """The words of a cell that are set as code."""
    return re.findall(r"`([^`]*)`", cell)


def test_the_clauses_are_numbered_without_gaps() -> None:
    """A clause keeps its number: tests cite it."""
    numbers = [tuple(map(int, clause.split("."))) for clause in CLAUSES]
    assert numbers == [
        (section, clause)
        for section, last in ((1, 5), (2, 5), (3, 11), (4, 6), (5, 7), (6, 4), (7, 6), (10, 4))
        for clause in range(1, last + 1)
    ]


def test_every_event_stands_in_the_specification_with_its_level_and_fields() -> None:
    """003 Stable Log Events: appendix D names each event of `duly.events`, and no other."""
    documented = {}
    for name, level, fields, *_ in rows_below("D. Events") + rows_below("Events that duly adds"):
        required = {field for field in code(fields) if f"[`{field}`]" not in fields}
        documented[code(name)[0]] = level, required, set(code(fields)) - required
    table = re.findall(r"^\| (\w+) +\| ([A-Z]+) +\| (.*?) *\|$", events.__doc__ or "", re.MULTILINE)
    expected = {}
    for name, level, fields in table:
        named = [field for field in fields.split(", ") if field]
        optional = {field.strip("[]") for field in named if field.startswith("[")}
        expected[name] = level, {field for field in named if not field.startswith("[")}, optional
    assert documented == expected
    assert all(level in logging.getLevelNamesMapping() for level, _, _ in documented.values())


def test_every_error_stands_in_the_specification() -> None:
    """SPEC 1.5: appendix C names each class of `duly.errors`, in the table or as a base class."""
    family = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, errors.DulyError)
    }
    rows = {code(row[0])[0] for row in rows_below("C. Errors")}
    bases = {"DulyError", "RegistrationError", "LifecycleError", "CronError"}
    assert rows | bases == family
    assert all(f"`{base}`" in PAGE for base in bases)


FAULT = OSError("no space left")
BAD_CRON = errors.InvalidCronExpressionError("0 24 * * *", "hour", "value 24 is out of range 0-23", hint="why")
SAMPLES: list[errors.DulyError] = [
    errors.RegistrationsNotArrayError(None),
    errors.RegistrationShapeError(3, "abc", "why"),
    errors.InvalidRegistrationError(3, "name", "", "must not be empty"),
    errors.ScheduleDuplicateTaskError(3, "backup"),
    errors.CronExpressionInvalidError(3, "backup", BAD_CRON),
    errors.NegativeRetryDelayError(3, "backup", -5),
    errors.ScheduleTaskError("backup", "0 3 * * *", FAULT),
    errors.StopSchedulerError(FAULT, hint="why"),
    errors.SchedulerStoppingError("backup"),
    BAD_CRON,
    errors.FieldParseError("hour", "24", "value 24 is out of range 0-23"),
    errors.CronCalculationError("0 3 * * *", "9999-12-31T03:00:00", OverflowError("the calendar ends")),
    errors.TaskMissingFieldError("cron"),
    errors.TaskInvalidTypeError("cron", 5, "str"),
    errors.TaskInvalidValueError("failures", -1, "is too small"),
    errors.TaskInvalidStructureError([], "empty"),
    errors.TaskListMismatchError(expected=["a"], actual=["b"], added=["b"], removed=["a"], changed={}),
    errors.StoreLockedError("state.db", {"pid": 1, "host": "vm", "since": "noon"}),
    errors.StoreVersionError("state.db", 9, 2),
    errors.TraceError("cut", 7, "why", hint="why"),
    errors.UnsupportedPlatformError("Windows"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_messages_and_details_are_those_of_the_specification(error: errors.DulyError) -> None:
    """SPEC 1.5: the exact texts and key names of appendix C."""
    ((_, _, message, details),) = [row for row in rows_below("C. Errors") if code(row[0]) == [type(error).__name__]]
    pattern = re.sub(r"<[^>]*>", ".+", re.escape(code(message)[0]).replace(r"\<", "<").replace(r"\>", ">"))
    assert re.fullmatch(pattern, error.message)
    assert set(error.details) == set(code(details))


def test_the_sources_of_every_adopted_property_are_told() -> None:
    """SPEC 7.1: appendix G says which property of 000, 001 or 002 became which adopted one."""
    adopted = {each.id for each in PROPERTIES} - {"S5⁺", "EW", "L2ᵇ"}  # these three are in none of the documents
    appendix = PAGE.split("## G. The formal model")[1].split("### FORMAL A1")[0]
    last_cells = [line.strip("|").split(" | ")[-1] for line in appendix.splitlines() if "</a>" in line]
    assert {name for cell in last_cells for name in re.findall(r"\b[A-Z]{1,2}\d[ab]?\b", cell)} >= adopted


def test_what_is_kept_per_task_is_what_the_store_keeps() -> None:
    """SPEC 3: `knownSince` and `served_through`, the times and the counts of a record."""
    assert {"known_since", "served_through", "last_attempt_at", "last_success_at", "last_failure_at"} <= set(FIELDS)
    assert {"pending_retry_until", "run", "interruptions", "written_by"} <= set(FIELDS)


@pytest.mark.parametrize("clause", [each for each in CLAUSES if int(each.split(".")[0]) in TESTED_SECTIONS])
def test_every_clause_in_force_is_cited_by_a_test(clause: str) -> None:
    """Appendix F: each clause of the sections 1 to 7 has at least one test that names it."""
    cited = re.compile(rf"SPEC (?:\d+\.\d+(?:, | and ))*{re.escape(clause)}(?!\d)")
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name != Path(__file__).name]
    assert any(cited.search(path.read_text(encoding="utf-8")) for path in tests)
