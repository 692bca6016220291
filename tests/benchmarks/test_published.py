"""Published runs are kept, and the page says which rows have become worse."""

import json
from pathlib import Path
from typing import Any

from benchmarks import published, report
from benchmarks.figures import Figure
from benchmarks.judging import Verdict


def about(day: int) -> dict[str, Any]:
    """The head of the run of some day."""
    machine = {"system": "Linux", "load before": "0.1"}
    return {"date": f"2030-01-{day:02}", "command": "make bench", "machine": machine, "seconds": 60.0 * day}


def row(what: str, median: float, *, more_is_better: bool = False) -> Verdict:
    """A row of three rounds, 0.1 apart."""
    figure = Figure(median, median - 0.1, median + 0.1)
    return Verdict("s", what, "stated", figure.text("s"), None, figure=figure, more_is_better=more_is_better)


def test_rows_that_are_worse_than_before_are_listed_with_both_figures(tmp_path: Path) -> None:
    """In either direction, beyond the range of the earlier rounds; rows that one of the two has not are left out."""
    assert published.worse(tmp_path) == "No earlier run is on record.\n"
    published.keep(tmp_path, about(1), [row("a", 1.0), row("b", 1.0), row("c", 5.0, more_is_better=True), row("d", 1)])
    assert published.worse(tmp_path) == "No earlier run is on record.\n"
    published.keep(tmp_path, about(2), [row("a", 1.2), row("b", 1.1), row("c", 4.8, more_is_better=True), row("e", 9)])
    head, *lines = published.worse(tmp_path).strip().splitlines()
    assert head == ("Since the run of 2030-01-01 (Linux, load before it 0.1), of 3 rows that both have, 2 are worse:")
    assert lines == [
        "",
        "- *s*: a: 1.20 s (1.10–1.30), was 1.00 s (0.900–1.10)",
        "- *s*: c: 4.80 s (4.70–4.90), was 5.00 s (4.90–5.10)",
    ]


def test_a_run_is_compared_with_the_two_before_it(tmp_path: Path) -> None:
    """So that a small step each time does not go unseen."""
    for day, median in ((1, 1.0), (2, 1.1), (3, 1.2), (4, 1.3)):
        published.keep(tmp_path, about(day), [row("a", median)])
    told = published.worse(tmp_path)
    assert [line for line in told.splitlines() if line.startswith("Since")] == [
        "Since the run of 2030-01-03 (Linux, load before it 0.1), of 1 rows that both have, none is worse.",
        "Since the run of 2030-01-02 (Linux, load before it 0.1), of 1 rows that both have, 1 is worse:",
    ]


def test_a_section_that_was_measured_again_belongs_to_its_run(tmp_path: Path) -> None:
    """The run before stays the one to compare with, however often the page is published."""
    published.keep(tmp_path, about(1), [row("a", 1.0)])
    for median in (2.0, 1.0):
        published.keep(tmp_path, {**about(2), "repeated": {"web": "later"}}, [row("a", median)])
    assert "2030-01-01" in published.worse(tmp_path)
    assert "none is worse" in published.worse(tmp_path)


def test_the_latest_published_run_is_the_committed_one() -> None:
    """`make bench ARGS=--publish` keeps it."""
    committed, _ = report.read(report.RESULTS / "results.json")
    runs = json.loads((report.RESULTS / "published.json").read_text(encoding="utf-8"))
    assert len(runs) > 1
    assert (runs[-1]["about"]["date"], runs[-1]["seconds"]) == (committed["date"], committed["seconds"])
