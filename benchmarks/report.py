"""The report of a run: results.json with every sample, results.md for people, and the pages that quote it."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT, Outcomes
from benchmarks.figures import Figures, number
from benchmarks.targets import Verdict

RESULTS = Path(__file__).parent / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
"""Where the tables of the last run may be quoted, between two comments each."""


def header(about: dict[str, Any]) -> str:
    """When, how and where it was measured."""
    machine = "; ".join(f"{name}: {fact}" for name, fact in about["machine"].items())
    rounds = "1 round" if about["rounds"] == 1 else f"{about['rounds']} rounds"
    judged = "" if about["judged"] else " Fewer tasks or rounds than the targets ask for: nothing is judged."
    return (
        f"Measured on {about['date']} with `{about['command']}`, {rounds} in {number(about['seconds'] / 60)} minutes; "
        f"medians, with the range over the rounds in brackets.{judged}\n\n{machine}.\n"
    )


def verdict_table(rows: Iterable[Verdict]) -> str:
    """Target, measured, met."""
    lines = ["| | target | measured | met? |", "|---|---|---|---|"]
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(f"| **{section}** | | | |")
        lines.append(f"| {row.what} | {row.target} | {row.measured} | {row.mark} |")
    return "\n".join(lines) + "\n"


def figure_tables(figures: Figures, outcomes: Outcomes) -> str:
    """Every figure of every measurement."""
    lines: list[str] = []
    for key, samples in outcomes.samples.items():
        lines += ["", f"**{key}**", "", "| | |", "|---|---|"]
        for name in samples[0]:
            figure = figures.of(key, name)
            shown = name.replace("|", ", ")
            lines.append(f"| {shown} | {figure.text() if figure else '–'} |")
    absent = [f"- {key}: {reason}" for key, reason in outcomes.absent.items()]
    if absent:
        lines += ["", "Not measured:", "", *absent]
    broken = [f"- {text}" for text in outcomes.broken]
    if broken:
        lines += ["", "**Broken:**", "", *broken]
    return "\n".join(lines).strip() + "\n"


def write(
    folder: Path,
    about: dict[str, Any],
    rows: list[Verdict],
    figures: Figures,
    outcomes: Outcomes,
    plots: list[Path],
) -> None:
    """The JSON file and the Markdown file."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "about": about,
        "verdicts": [
            {"section": row.section, "what": row.what, "target": row.target, "measured": row.measured, "met": row.met,
             "headline": row.headline}
            for row in rows
        ],
        "samples": outcomes.samples,
        "absent": outcomes.absent,
        "broken": outcomes.broken,
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    images = "\n".join(f"![{plot.stem}]({plot.name})" for plot in plots)
    (folder / "results.md").write_text(
        f"# Benchmark results\n\n{header(about)}\n{verdict_table(rows)}\n{images}\n\n"
        f"## Every figure\n\n{figure_tables(figures, outcomes)}",
        encoding="utf-8",
    )


def quotations(folder: Path) -> dict[str, str]:
    """What pages quote of the last run, by the name in their comments."""
    document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    rows = [Verdict(**row) for row in document["verdicts"]]
    about = header(document["about"])
    return {
        "table": f"{about}\n{verdict_table(rows)}",
        "summary": f"{verdict_table(row for row in rows if row.headline)}\n{about}",
    }


def quoted(text: str, quotations: dict[str, str]) -> str:
    """A page with its quotations brought up to date: `<!-- benchmarks:table -->` … `<!-- end -->`."""
    for name, quotation in quotations.items():
        text = re.sub(
            rf"(<!-- benchmarks:{name} -->\n).*?(<!-- end -->)",
            lambda match, quotation=quotation: f"{match[1]}\n{quotation}\n{match[2]}",  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    return text


def publish(folder: Path) -> list[Path]:
    """Bring the pages up to date; returns the pages that changed."""
    changed = []
    texts = quotations(folder)
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = quoted(before, texts)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed
