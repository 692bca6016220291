"""Forty tasks and thirty days, with the clock change of 25 October, a crash and an outage of nine hours.

WEB 9, test 1: the numbers on the pages are those of `--json`.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import ASGIApp

from duly.core.moments import as_datetime
from tests.web.conftest import Stage, made_stage
from tests.web.stage import FORTY
from tests.web.test_api import asked, printed
from tests.web.test_pages import page_of, rows_of, said, tiles_of

pytestmark = pytest.mark.slow

DAYS = 30


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return made_stage(tmp_path_factory.mktemp("thirty"), list(FORTY), days=DAYS)


def history(stage: Stage, *arguments: str) -> dict[str, Any]:
    """The runs of `duly history --json`, whatever the limit."""
    return printed("history", *arguments, "--store", str(stage.path), "--limit", "0")


async def every_run(app: ASGIApp, place: str) -> list[str]:
    """The rows of all pages of a list of runs, the latest first."""
    rows: list[str] = []
    while place:
        page = await page_of(app, place)
        rows += rows_of(page)[1:]
        following = re.search(r'href="([^"]*)" rel="next"', page)
        place = following[1].replace("&amp;", "&") if following else ""
    return rows


async def test_the_overview_has_the_numbers_of_status_and_history(thirty: Stage) -> None:
    app = thirty.dashboard()
    status = await asked(app, "/api/v1/status?limit=1000")
    page = await page_of(app, "/")
    states = Counter(task["state"] for task in status["tasks"])
    tiles = {label: int(number.replace(",", "")) for label, number in tiles_of(page).items()}
    assert tiles["tasks"] == len(status["tasks"]) == len(FORTY)
    assert (tiles["running"], tiles["owed, not interrupted"]) == (states["running"], states["owed"])
    assert tiles["interrupted"] == states["interrupted"] > 0
    assert tiles["failing"] == sum(task["failures"] > 0 for task in status["tasks"])
    assert tiles["never ran"] == sum(task["lastAttemptAt"] is None for task in status["tasks"])
    since = as_datetime(thirty.clock.now(), thirty.clock.zone()).replace(minute=0, second=0, microsecond=0)
    runs = history(thirty, "--since", since.isoformat())["runs"]
    hours = [row for row in rows_of(page) if row.startswith(f"{since:%H:%M} ")]
    counted = Counter(run["outcome"] for run in runs)
    numbers = [counted[outcome] for outcome in ("success", "failure", "interrupted", "running")]
    assert [int(number) for number in hours[0].split()[1:]] == numbers


@pytest.mark.parametrize("outcome", ["interrupted", "failure"])
async def test_lists_of_runs_have_every_run_of_history(thirty: Stage, outcome: str) -> None:
    """Page after page; a crash has interrupted what was running."""
    rows = await every_run(thirty.dashboard(), f"/runs?outcome={outcome}")
    document = history(thirty, "--outcome", outcome)
    assert len(rows) == document["matching"] == len(document["runs"]) > 0
    numbers = [run["runId"] for run in document["runs"]]
    assert [int(row.split()[1]) for row in rows] == numbers[::-1]


async def test_each_task_has_the_runs_and_the_state_that_the_documents_have(thirty: Stage) -> None:
    """All forty: the marks of the last fourteen days, and the state beside them."""
    app = thirty.dashboard()
    status = {task["task"]: task for task in (await asked(app, "/api/v1/status?limit=1000"))["tasks"]}
    now = as_datetime(thirty.clock.now(), thirty.clock.zone())
    since = now.replace(day=now.day - 13, hour=0, minute=0, second=0, microsecond=0)
    for name, *_ in FORTY:
        page = await page_of(app, f"/task?name={quote(name, safe='')}")
        found = re.search(r'aria-label="The last 14 days, a row each: (.*?)\.', page)
        assert found is not None
        runs = history(thirty, name, "--since", since.isoformat())["runs"]
        counted = Counter(run["outcome"] for run in runs)
        said_counts = [
            f"{counted[outcome]:,} {outcome}"
            for outcome in ("success", "failure", "interrupted", "running")
            if counted[outcome]
        ]
        assert found[1] == (", ".join(said_counts) or "no runs"), name
        assert f"failures in a row {status[name]['failures']}" in said(page), name


async def test_the_clock_change_and_the_outage_are_explained(thirty: Stage) -> None:
    app = thirty.dashboard()
    place = "/task?name=search/reindex&at=2026-10-25T02:30"
    assert "02:30 occurs twice on 2026-10-25" in said(await page_of(app, place))
    explained = said(await page_of(app, "/task?name=cache/warm&at=2026-10-14T20:01"))  # five hours into the outage
    assert "ran 5 h" in explained
    assert "the scheduler was down: last seen at " in explained


def test_the_past_is_as_long_as_it_says(thirty: Stage) -> None:
    """Thirty days of forty tasks; history keeps a hundred thousand runs."""
    document = history(thirty, "heartbeat")
    assert document["matching"] > 20 * 24 * 60
    assert Path(document["store"]) == thirty.path
