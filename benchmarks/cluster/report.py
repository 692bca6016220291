"""The report of a run: cluster.json with every sample, cluster.md for people, and the page that quotes it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT, Outcomes
from benchmarks.cluster.plan import FULL, QUICK, measurements
from benchmarks.cluster.targets import beside, verdicts
from benchmarks.figures import Figures
from benchmarks.judging import Verdict
from benchmarks.report import (
    RESULTS,
    figure_tables,
    header,
    quoted,
    read,
    replace_file,
    section_table,
    shortfalls,
    verdict_table,
)

NAME = "cluster"
PAGE = ROOT / "docs" / "performance.md"
NOT_YET = "Not measured yet on a quiet machine: `make bench-cluster`.\n"


def path_in(folder: Path) -> Path:
    """The file with every sample."""
    return folder / f"{NAME}.json"


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row are its heads."""
    head, *others = rows
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in others)]) + "\n"


def write(folder: Path, about: dict[str, Any], outcomes: Outcomes) -> list[Verdict]:
    """The JSON file and the Markdown file, each replaced as a whole; the rows of the targets."""
    folder.mkdir(parents=True, exist_ok=True)
    size = FULL if about["size"] == FULL.name else QUICK
    figures = Figures(outcomes)
    rows = verdicts(figures, size)
    document = {
        "about": about,
        "samples": outcomes.samples,
        "ran": {key: asdict(ran) for key, ran in outcomes.ran.items()},
        "absent": outcomes.absent,
        "broken": outcomes.broken,
    }
    replace_file(path_in(folder), json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    sections: dict[str, list[str]] = {}
    for measurement in measurements(size):
        sections.setdefault(measurement.group, []).append(measurement.key)
    replace_file(
        folder / f"{NAME}.md",
        f"# Many hosts on one PostgreSQL\n\n{header(about)}\n"
        f"## Beside others\n\n{table(beside(figures, size))}\n"
        f"## Targets\n\n{verdict_table(rows, when=True)}\n"
        f"## Targets that were missed\n\n{shortfalls(rows)}\n"
        f"## How long each section took\n\n{section_table(sections, outcomes)}\n"
        f"## Every figure\n\n{figure_tables(figures, outcomes)}",
    )
    return rows


def quotations(folder: Path = RESULTS) -> dict[str, str]:
    """The parts of the last run that the page quotes, by the name in its comments."""
    path = path_in(folder)
    if not path.exists():
        return dict.fromkeys(("cluster-beside", "cluster-targets", "cluster-shortfalls"), NOT_YET)
    about, outcomes = read(path)
    size = FULL if about["size"] == FULL.name else QUICK
    figures = Figures(outcomes)
    rows = verdicts(figures, size)
    return {
        "cluster-beside": f"{header(about)}\n{table(beside(figures, size))}",
        "cluster-targets": verdict_table(rows, when=True),
        "cluster-shortfalls": shortfalls(rows),
    }


def publish(folder: Path = RESULTS) -> bool:
    """Bring the page up to date; whether it changed."""
    before = PAGE.read_text(encoding="utf-8")
    after = quoted(before, quotations(folder))
    if after != before:
        PAGE.write_text(after, encoding="utf-8")
    return after != before
