"""The page about reliability is written by the runs, and says so when one of them failed."""

import json
import re
from pathlib import Path

import pytest

from tests.system.record import record
from tests.system.report import BEGIN, END, KINDS, SUITES, generated, into_page, kinds_of, missing, suites_of

ROOT = Path(__file__).parents[2]
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.system.test_kill" name="test_a" time="1.5"/>
<testcase classname="tests.system.test_kill" name="test_b" time="0.5"><failure message="no"/></testcase>
<testcase classname="tests.regressions.test_c" name="test_c" time="0"><skipped/></testcase>
</testsuite></testsuites>"""


def test_counts_are_added_up_by_kind_and_the_largest_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of several tests and processes become one line of the table."""
    file = tmp_path / "counts"
    monkeypatch.setenv("DULY_RELIABILITY", str(file))
    record("time, SIGSTOP", processes=3, longest_clock_hours=6)
    record("kill", cycles=500)
    record("time, SIGSTOP", processes=2, longest_clock_hours=1.5)
    kinds = kinds_of(file.read_text().splitlines())
    assert list(kinds) == ["kill", "time, SIGSTOP"]
    assert kinds["time, SIGSTOP"].counts == {"processes": 5, "longest_clock_hours": 6}
    assert len(kinds["time, SIGSTOP"].tests) == 1
    assert json.loads(file.read_text().splitlines()[0])["test"].endswith(
        "test_counts_are_added_up_by_kind_and_the_largest_stands"
    )


def test_a_failed_test_is_on_the_page(tmp_path: Path) -> None:
    """A report that could only praise would prove nothing."""
    junit = tmp_path / "junit.xml"
    junit.write_text(JUNIT)
    suites, failed = suites_of(junit)
    assert failed == ["tests.system.test_kill.test_b"]
    assert (suites["tests/system"].passed, suites["tests/system"].failed) == (1, 1)
    assert suites["tests/regressions"].skipped == 1
    text = generated({}, suites, failed)
    assert "- `tests.system.test_kill.test_b`" in text
    assert "No test failed" not in text
    assert "No test failed" in generated({}, suites, [])


def test_a_run_of_a_part_is_no_report() -> None:
    """A test that was not run would look as if nothing had been found."""
    assert missing(KINDS, SUITES) == []
    assert missing([f"{name}, in detail" for name in KINDS], SUITES) == []
    assert missing(KINDS[1:], SUITES[1:]) == [SUITES[0], KINDS[0]]


def test_only_the_generated_part_is_replaced() -> None:
    """Text that people wrote around it stays."""
    page = f"# Title\n\n{BEGIN}\n\nold\n{END}\n\nafter\n"
    once = into_page(page, "new\n")
    assert once == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nafter\n"
    assert into_page(once, "new\n") == once
    with pytest.raises(SystemExit):
        into_page("# no markers", "new")


def test_the_page_has_its_markers() -> None:
    """`make reliability-report` finds where to write."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert page.count(BEGIN) == page.count(END) == 1


def test_the_page_has_a_row_for_each_suite_of_today() -> None:
    """The names of two folders were replaced by one in the text that a run had written."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert re.findall(r"^\| `(tests/[a-z/]+)` \|", page, re.MULTILINE) == sorted(SUITES)
