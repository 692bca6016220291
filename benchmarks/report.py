"""The report of a run: results.json with every sample, results.md for people, and the pages that quote it."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import published
from benchmarks.children import ROOT, Outcomes, Ran
from benchmarks.figures import Figures, number
from benchmarks.judging import Verdict
from benchmarks.plan import SIZES
from benchmarks.source import Source
from benchmarks.targets import INDEXES, verdicts

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
    code = str(Source(about.get("commit", ""), about.get("source", "")))
    how = f"`{about['command']}`{f' ({code})' if code else ''}, {rounds} in {number(about['seconds'] / 60)} minutes"
    return (
        f"Measured on {about['date']} with {how}; medians, with the range over the rounds in brackets.{judged}"
        f"\n\n{machine}.\n"
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
    rows = list(rows)
    missed = [row for row in rows if row.met is False]
    if all(row.met is None for row in rows):
        return "No target was judged in this run.\n"
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
        code = str(Source(ran.commit, ran.source)) if ran else ""
        when = f", measured at {ran.at}{f' ({code})' if code else ''}, {number(ran.seconds)} s in all" if ran else ""
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
    replace_file(folder / "results.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    images = "\n".join(f"![{plot.stem}]({plot.name})" for plot in plots)
    replace_file(
        folder / "results.md",
        f"# Benchmark results\n\n{header(about)}\n{verdict_table(rows, when=True)}\n{images}\n\n"
        f"## Targets that were missed\n\n{shortfalls(rows).replace('](decisions/', '](../../docs/decisions/')}\n"
        f"## How long each section took\n\n{section_table(sections, outcomes)}\n"
        f"## Every figure\n\n{figure_tables(figures, outcomes)}",
    )


def _shown(row: Verdict) -> dict[str, Any]:
    """A row as a table shows it; its figure follows from the samples."""
    return {name: value for name, value in asdict(row).items() if name not in ("figure", "more_is_better")}


def replace_file(path: Path, text: str) -> None:
    """An interruption leaves the file as it was before or as it is afterwards."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def read(path: Path) -> tuple[dict[str, Any], Outcomes]:
    """The head of a results.json, and its samples."""
    document = json.loads(path.read_text(encoding="utf-8"))
    broken = document["broken"]
    return document["about"], Outcomes(
        samples=document["samples"],
        absent=document["absent"],
        broken=broken if isinstance(broken, dict) else {},
        ran={key: Ran(**ran) for key, ran in document.get("ran", {}).items()},
    )


def merged(
    path: Path, about: dict[str, Any], planned: set[str], only: Sequence[str] | None
) -> tuple[dict[str, Any], Outcomes]:
    """The content of a file, to be replaced measurement by measurement; and the statement about the whole."""
    if not path.exists():
        return about, Outcomes()
    before, outcomes = read(path)
    same_size = before["size"] == about["size"]
    same_machine = all(before["machine"].get(fact) == about["machine"][fact] for fact in ("processor", "memory"))
    same_program = outcomes.samples.keys() <= outcomes.ran.keys()  # earlier ones did not say when they measured
    reasons = {
        "by an earlier version of this program": same_program,
        f"as {before['size']}": same_size,
        f"on another machine ({before['machine']['processor']})": same_machine,
    }
    for reason, fits in reasons.items():
        if fits:
            continue
        if only and path.parent == RESULTS:
            raise OSError(
                f"the results in {path.parent} were measured {reason}, so one section cannot be measured again: "
                "measure everything, or name another folder with --results"
            )
        return about, Outcomes()
    for key in {*outcomes.samples, *outcomes.absent, *outcomes.broken, *outcomes.ran} - planned:
        outcomes.forget(key)  # of an earlier version of this program
    if not only:
        return about, outcomes
    now = datetime.now().strftime("%Y-%m-%d %H:%M")
    if code := str(Source(about.get("commit", ""), about.get("source", ""))):
        now += f", {code}"
    return {**before, "repeated": {**before.get("repeated", {}), **dict.fromkeys(only, now)}}, outcomes


def quotations(folder: Path) -> dict[str, str]:
    """The parts of the last run that pages quote, by the name in their comments."""
    document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    rows = [Verdict(**row) for row in document["verdicts"]]
    about = header(document["about"])
    return {
        "table": f"{about}\n{verdict_table(rows, when=any(row.when for row in rows))}",
        "summary": f"{verdict_table(row for row in rows if row.headline)}\n{about}",
        "shortfalls": shortfalls(rows),
        "worse": published.worse(folder),
        "indexes": next((row.measured for row in rows if row.what.startswith(INDEXES)), "not measured in this run"),
    }


def quoted(text: str, quotations: dict[str, str]) -> str:
    """A page with its quotations brought up to date: `<!-- benchmarks:table -->` … `<!-- end -->`.

    A quotation between two comments in one line is a part of its sentence.
    """
    for name, quotation in quotations.items():
        text = re.sub(rf"(<!-- benchmarks:{name} -->)[^\n]*?(<!-- end -->)", rf"\g<1>{quotation}\g<2>", text)
        text = re.sub(
            rf"(<!-- benchmarks:{name} -->\n).*?(<!-- end -->)",
            lambda match, quotation=quotation: f"{match[1]}\n{quotation}\n{match[2]}",  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    return text


def publish(folder: Path) -> list[Path]:
    """Bring the pages up to date, and keep the rows for comparisons; returns the pages that changed."""
    changed = []
    about, outcomes = read(folder / "results.json")
    published.keep(folder, about, verdicts(Figures(outcomes), SIZES[about["size"]]))
    texts = quotations(folder)
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = quoted(before, texts)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed
