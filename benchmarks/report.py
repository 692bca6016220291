"""The report of a run: results.json with every sample, results.md for people, and the pages that quote it."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT, Outcomes, Ran
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
    if not about.get("complete", True):
        judged += " **The run was not completed:** rows that it did not reach are of an earlier one, or missing."
    if about.get("repeated"):
        sections = ", ".join(f"{section} ({when})" for section, when in sorted(about["repeated"].items()))
        judged += f" Measured again since then: {sections}."
    return (
        f"Measured on {about['date']} with `{about['command']}`, {rounds} in {number(about['seconds'] / 60)} minutes; "
        f"medians, with the range over the rounds in brackets.{judged}\n\n{machine}.\n"
    )


def verdict_table(rows: Iterable[Verdict], *, when: bool = False) -> str:
    """Target, measured, met, and on request the time at which each row was measured."""
    lines = ["| | target | measured | met? |", "|---|---|---|---|"]
    if when:
        lines = [f"{lines[0]} measured at |", f"{lines[1]}---|"]
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(f"| **{section}** | | | |{' |' if when else ''}")
        lines.append(f"| {row.what} | {row.target} | {row.measured} | {row.mark} |{f' {row.when} |' if when else ''}")
    return "\n".join(lines) + "\n"


def shortfalls(rows: Iterable[Verdict]) -> str:
    """The targets that were missed, each with its reason where that is known."""
    missed = [row for row in rows if row.met is False]
    if not missed:
        return "Every target was met in this run.\n"
    lines = []
    for (section, why), alike in groupby(missed, lambda row: (row.section, row.why)):
        facts = "; ".join(f"{row.what}: {row.measured} instead of {row.target}" for row in alike)
        lines.append(f"- *{section}*: {facts}.{f' The reason: {why}.' if why else ''}")
    return "\n".join(lines) + "\n"


def figure_tables(figures: Figures, outcomes: Outcomes) -> str:
    """Every figure of every measurement."""
    lines: list[str] = []
    for key, samples in outcomes.samples.items():
        ran = outcomes.ran.get(key)
        when = f", measured at {ran.at}, {number(ran.seconds)} s in all" if ran else ""
        lines += ["", f"**{key}**{when}", "", "| | |", "|---|---|"]
        for name in samples[0]:
            figure = figures.of(key, name)
            shown = name.replace("|", ", ")
            lines.append(f"| {shown} | {figure.text() if figure else '–'} |")
    absent = [f"- {key}: {reason}" for key, reason in outcomes.absent.items()]
    if absent:
        lines += ["", "Not measured:", "", *absent]
    broken = [f"- {key}, {text}" for key, texts in outcomes.broken.items() for text in texts]
    if broken:
        lines += ["", "**Broken:**", "", *broken]
    return "\n".join(lines).strip() + "\n"


def section_table(sections: dict[str, list[str]], outcomes: Outcomes) -> str:
    """How long each section took, all rounds together."""
    lines = ["| section | minutes |", "|---|---|"]
    for section, keys in sections.items():
        seconds = sum(outcomes.ran[key].seconds for key in keys if key in outcomes.ran)
        if seconds:
            lines.append(f"| `{section}` | {seconds / 60:.1f} |")
    return "\n".join(lines) + "\n"


def write(
    folder: Path,
    about: dict[str, Any],
    rows: list[Verdict],
    figures: Figures,
    outcomes: Outcomes,
    plots: list[Path],
    sections: dict[str, list[str]],
) -> None:
    """The JSON file and the Markdown file, each replaced as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "about": about,
        "verdicts": [_shown(row) for row in rows],
        "samples": outcomes.samples,
        "ran": {key: asdict(ran) for key, ran in outcomes.ran.items()},
        "absent": outcomes.absent,
        "broken": outcomes.broken,
    }
    _replace(folder / "results.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    images = "\n".join(f"![{plot.stem}]({plot.name})" for plot in plots)
    _replace(
        folder / "results.md",
        f"# Benchmark results\n\n{header(about)}\n{verdict_table(rows, when=True)}\n{images}\n\n"
        f"## Targets that were missed\n\n{shortfalls(rows).replace('](decisions/', '](../../docs/decisions/')}\n"
        f"## How long each section took\n\n{section_table(sections, outcomes)}\n"
        f"## Every figure\n\n{figure_tables(figures, outcomes)}",
    )


def _shown(row: Verdict) -> dict[str, Any]:
    """What a table shows of a row; its figure follows from the samples."""
    return {name: value for name, value in asdict(row).items() if name not in ("figure", "more_is_better")}


def _replace(path: Path, text: str) -> None:
    """An interruption leaves the file as it was before or as it is afterwards."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def read(path: Path) -> tuple[dict[str, Any], Outcomes]:
    """What a results.json says about its run, and its samples."""
    document = json.loads(path.read_text(encoding="utf-8"))
    broken = document["broken"]
    return document["about"], Outcomes(
        samples=document["samples"],
        absent=document["absent"],
        broken=broken if isinstance(broken, dict) else {},
        ran={key: Ran(**ran) for key, ran in document.get("ran", {}).items()},
    )


def quotations(folder: Path) -> dict[str, str]:
    """What pages quote of the last run, by the name in their comments."""
    document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    rows = [Verdict(**row) for row in document["verdicts"]]
    about = header(document["about"])
    return {
        "table": f"{about}\n{verdict_table(rows, when=any(row.when for row in rows))}",
        "summary": f"{verdict_table(row for row in rows if row.headline)}\n{about}",
        "shortfalls": shortfalls(rows),
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
