"""The runs that pages have quoted: the rows of the latest one, and of those before it.

published.json beside the results keeps medians and ranges alone. The page says which rows are worse than they were.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import Figure
from benchmarks.judging import Verdict, is_worse

RUNS_MAX = 3
"""The latest run, and two before it: the one before, and the one from which that had come."""


class Row(NamedTuple):
    """One row of a published table."""

    section: str
    what: str
    measured: str
    figure: Figure
    more_is_better: bool


def keep(folder: Path, about: dict[str, Any], rows: Iterable[Verdict]) -> None:
    """Add a run, or replace it if only some of its sections were measured again."""
    runs = _runs(folder)
    run = {
        "about": {name: about[name] for name in ("date", "command", "commit", "source", "machine") if name in about},
        "seconds": about["seconds"],
        "rows": [
            {
                "section": row.section,
                "what": row.what,
                "measured": row.measured,
                "median": row.figure.median,
                "low": row.figure.low,
                "high": row.figure.high,
                "more_is_better": row.more_is_better,
            }
            for row in rows
            if row.figure is not None
        ],
    }
    if runs and (runs[-1]["about"], runs[-1]["seconds"]) == (run["about"], run["seconds"]):
        runs.pop()
    text = json.dumps([*runs, run][-RUNS_MAX:], indent=1, ensure_ascii=False) + "\n"
    (folder / "published.json").write_text(text, encoding="utf-8")


def worse(folder: Path) -> str:
    """Which rows of the latest run are worse than in each earlier one, beyond the range of its rounds."""
    runs = _runs(folder)
    if len(runs) < 2:
        return "No earlier run is on record.\n"
    *earlier, now = runs
    return "\n".join(_compared(run, now) for run in reversed(earlier))


def _compared(before: dict[str, Any], now: dict[str, Any]) -> str:
    old = {(row.section, row.what): row for row in _rows(before)}
    both = [(old[row.section, row.what], row) for row in _rows(now) if (row.section, row.what) in old]
    found = [
        f"- *{row.section}*: {row.what}: {row.measured}, was {was.measured}"
        for was, row in both
        if is_worse(row.figure, was.figure, more_is_better=row.more_is_better)
    ]
    machine = before["about"]["machine"]
    head = (
        f"Since the run of {before['about']['date']} ({machine['system']}, load before it {machine['load before']}), "
        f"of {len(both)} rows that both have, "
    )
    if not found:
        return f"{head}none is worse.\n"
    return f"{head}{len(found)} {'is' if len(found) == 1 else 'are'} worse:\n\n" + "\n".join(found) + "\n"


def _rows(run: dict[str, Any]) -> Iterator[Row]:
    for row in run["rows"]:
        figure = Figure(row["median"], row["low"], row["high"])
        yield Row(row["section"], row["what"], row["measured"], figure, row["more_is_better"])


def _runs(folder: Path) -> list[dict[str, Any]]:
    path = folder / "published.json"
    if not path.exists():
        return []
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return runs
