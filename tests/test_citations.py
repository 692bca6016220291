"""Every citation can be followed, and the checks of docs/site/citations.py can fail."""

import re

import pytest

from docs.site.citations import (
    CITATIONS,
    ROOT,
    Text,
    faults,
    repository,
    slug,
)

# --- the tests -------------------------------------------------------------------------------------------------------


def test_every_citation_can_be_followed() -> None:
    """A clause, property, chapter, file, decision or heading that is cited exists."""
    if found := [fault for text in repository() for fault in faults(text)]:
        pytest.fail("\n".join(found), pytrace=False)


def test_the_citations_are_found() -> None:
    """The patterns that find them still find them: there are hundreds."""
    counts = {pattern: sum(len(pattern.findall(text.text)) for text in repository()) for pattern in CITATIONS}
    assert counts[CITATIONS[0]] > 500
    assert min(counts.values()) >= 10


def test_every_promise_names_its_clauses_by_links() -> None:
    """docs/guarantees.md: each row of a promise has its clauses, and each of them can be clicked on."""
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| (.*?) \| `test_.+\|$", page, re.MULTILINE)
    assert len(rows) > 20
    for clauses in rows:
        assert re.fullmatch(r"(?:(?:, |–)?\[(\d+\.\d+)\]\(specification\.md#\d+\))*", clauses), clauses
        for number, anchor in re.findall(r"\[(\d+\.\d+)\]\(specification\.md#(\d+)\)", clauses):
            assert anchor == slug(number)


# --- the checks, checked: one that cannot fail holds nothing ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cited", "complaint"),
    [
        ("tests/test_x.py", '"""SPEC 3.12: no such clause."""', "no clause 3.12"),
        ("tests/test_x.py", '"""SPEC 3.1, 3.99: the second is wrong."""', "no clause 3.99"),
        ("tests/test_x.py", '"""SPEC 11."""', "no clause 11"),
        ("src/duly/x.py", 'raise ValueError("see SPEC 4.9")', "no clause 4.9"),
        ("tests/test_x.py", '"""002 S9."""', "no property 002 S9"),
        ("src/duly/x.py", "x = 1  # 000 R7 says so", "no property 000 R7"),
        ("tests/test_x.py", '"""003 Logging Promises: none."""', "no chapter 'Logging Promises' of 003"),
        ("tests/test_x.py", '"""001 Logging Guarantees: 003 has them, 001 does not."""', "no chapter"),
        ("tests/test_x.py", '"""FORMAL Z3."""', "no FORMAL Z3"),
        ("tests/test_x.py", '"""FORMAL A5, P99."""', "no FORMAL P99"),
        ("src/duly/x.py", "# docs/nowhere.md says why", "no docs/nowhere.md"),
        ("docs/x.md", "As `tests/nowhere/test_y.py` shows.", "no tests/nowhere/test_y.py"),
        ("src/duly/x.py", "# as core/nowhere.py does", "no core/nowhere.py"),
        ("src/duly/x.py", "# decisions/9999", "no decision 9999"),
        ("docs/x.md", "[a page](nowhere.md)", "no file"),
        ("docs/x.md", "[a part](specification.md#nowhere)", "no heading"),
        ("docs/x.md", "# Here\n\n[a part](#there)", "no file"),
        ("docs/x.md", "As SPEC 3.9 says.", "not a link"),
        ("docs/x.md", "As [SPEC 3.9](specification.md#31) says.", "not a link"),
    ],
)
def test_a_citation_that_leads_nowhere_is_found(name: str, cited: str, complaint: str) -> None:
    """Each kind of citation, wrong in one place."""
    (fault,) = faults(Text(ROOT / name, cited))
    assert complaint in fault
    assert fault.startswith(f"{name}:")


@pytest.mark.parametrize(
    ("name", "cited"),
    [
        ("tests/test_x.py", '"""SPEC 3.1, 3.2 and 3.10; SPEC 7; 002 S1, 000 R1, 001 L3; FORMAL A2, B3."""'),
        ("tests/test_x.py", '"""000: No Make-Up Execution Policy; 003 TaskOrphaned; 003 with SPEC 3.4."""'),
        ("tests/test_x.py", 'TIMES = ["2024-01-01T10:00:00", "10,000 tasks", "001"]  # at 12:00, 1,000 of 000\'s'),
        ("docs/x.md", "As [SPEC 3.9](specification.md#39) says, and `SPEC 3.9` as code."),
        ("docs/x.md", "[here](specification.md#002-s1), [there](https://example.org/#nowhere)"),
        ("src/duly/x.py", "# docs/decisions/0007-bursts.md, decisions/0007, tests/core/*.py, core/task.py, docs/."),
    ],
)
def test_a_citation_that_can_be_followed_passes(name: str, cited: str) -> None:
    """Citations are found, and text that only looks like one is not."""
    assert faults(Text(ROOT / name, cited)) == []


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("3.10", "310"),
        ("H. Rationale", "h-rationale"),
        ("`duly run`", "duly-run"),
        ("What is *not* promised?", "what-is-not-promised"),
        ("FORMAL A5", "formal-a5"),
        ("[A link](x.md) in it", "a-link-in-it"),
    ],
)
def test_anchors_are_those_of_the_rendered_page(heading: str, anchor: str) -> None:
    """As GitHub makes them: lower case, without punctuation, blanks as hyphens."""
    assert slug(heading) == anchor
