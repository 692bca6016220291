"""docs/specification.md agrees with the code, and every clause in force has a test that cites it.

Its tables of errors and events are pages of docs/reference, which have tests of their own.
"""

import re
from pathlib import Path

from duly.core.record import FIELDS
from duly.formal.properties import PROPERTIES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
CLAUSES = re.findall(r"^### (\d+\.\d+)$", PAGE, re.MULTILINE)


def test_the_clauses_are_numbered_without_gaps() -> None:
    """A clause keeps its number: tests cite it."""
    numbers = [tuple(map(int, clause.split("."))) for clause in CLAUSES]
    assert numbers == [
        (section, clause)
        for section, last in ((1, 5), (2, 5), (3, 11), (4, 6), (5, 7), (6, 4), (7, 6), (9, 22), (10, 4))
        for clause in range(1, last + 1)
    ]


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


def test_every_clause_in_force_is_cited_by_a_test() -> None:
    """Appendix F: each clause that is not marked as a whole has at least one test that names it."""
    paths = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name != Path(__file__).name]
    tests = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    in_force = [each for each in CLAUSES if f"### {each}\n\n> **Not in force yet" not in PAGE]
    assert [
        clause
        for clause in in_force
        if not re.search(rf"SPEC (?:\d+\.\d+(?:, | and ))*{re.escape(clause)}(?!\d)", tests)
    ] == []
