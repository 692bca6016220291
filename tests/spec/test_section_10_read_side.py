"""SPEC 10.4: the read side is one set of values with one JSON form each, and the commands show exactly these values."""

import runpy
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly import insight, parse_cron
from duly.core.moments import instant_of
from duly.insight.json_form import json_form
from duly.stores import RunSelection, SqliteReader, View
from tests.cli.json_forms import COMMANDS, ZONE, documents, stage
from tests.cli.program import fingerprint
from tests.reference import code, rows, sections

BERLIN = ZoneInfo(ZONE)


def reader(store: str, document: dict[str, Any]) -> SqliteReader:
    """A reader of a store of the stage, at the moment at which a command has read it."""
    at = instant_of(datetime.fromisoformat(document["at"]))
    return SqliteReader(Path(stage().name) / store, lambda: at)


def on_files(form: str, *without: str) -> list[str]:
    """Commands on a store in a file; tests/stores/test_reader_contract.py compares files with databases."""
    return [each for each in COMMANDS[form] if not any(part in each for part in ("postgresql://", *without))]


def without_head(document: dict[str, Any], *head: str) -> dict[str, Any]:
    """A document without what the command adds: its name, the format, and what it was asked for."""
    return {key: value for key, value in document.items() if key not in ("command", "format", *head)}


def shown(form: str, command: str) -> tuple[list[str], dict[str, Any]]:
    """The arguments of a command, and the document that it prints."""
    if form not in documents():
        pytest.skip("this Python has no PostgreSQL server, which some commands of this form need")
    return shlex.split(command), documents()[form][COMMANDS[form].index(command)]


@pytest.mark.parametrize("command", on_files("status", "held.db"))
def test_status_shows_the_health_and_the_status_of_each_task(command: str) -> None:
    """SPEC 10.4: health."""
    arguments, document = shown("status", command)

    def question(view: View) -> dict[str, Any]:
        examination = insight.Examination(view, BERLIN)
        tasks = [json_form(each, examination.zone) for each in examination.all_tasks()]
        return {**json_form(examination.health, examination.zone), "tasks": tasks}

    assert reader(arguments[-1], document).read(question) == without_head(document)


@pytest.mark.parametrize("command", on_files("history"))
def test_history_shows_the_report_of_each_run(command: str) -> None:
    """SPEC 10.4: history."""
    arguments, document = shown("history", command)

    def question(view: View) -> dict[str, Any]:
        found = insight.runs_of(view, RunSelection(), None, tracebacks="--verbose" in arguments)
        runs = [json_form(each, BERLIN) for each in found]
        return {**json_form(insight.history_of(view, RunSelection()), BERLIN), "runs": runs}

    assert reader(arguments[2], document).read(question) == without_head(document)


@pytest.mark.parametrize("command", on_files("explain"))
def test_explain_shows_the_explanation(command: str) -> None:
    """SPEC 10.4: explain."""
    arguments, document = shown("explain", command)
    asked = datetime.fromisoformat(arguments[3]).replace(tzinfo=BERLIN)
    explanation = reader(arguments[-1], document).read(lambda view: insight.explain(view, arguments[1], asked))
    assert json_form(explanation, BERLIN) == without_head(document)


@pytest.mark.parametrize("command", on_files("plan", "new.db"))
def test_plan_shows_the_plan(command: str) -> None:
    """SPEC 10.4: plan."""
    arguments, document = shown("plan", command)
    registrations = runpy.run_path(str(Path(stage().name) / arguments[1]))["registrations"]
    interrupted: Any = "wait" if "wait" in arguments else "restart"
    plan = reader(arguments[3], document).read(
        lambda view: insight.plan_for(view, registrations, zone=BERLIN, interrupted=interrupted)
    )
    head = "target", "store", "storeExists", "held", "usedZone", "edition"
    assert json_form(plan, BERLIN) == without_head(document, *head)


def test_next_shows_the_coming_starts() -> None:
    """SPEC 10.4: coming starts."""
    (_, expression, *_), document = shown("next", COMMANDS["next"][0])
    calendar = insight.Calendar(datetime(2027, 3, 27, tzinfo=BERLIN), 2)
    assert [json_form(calendar.coming(None, parse_cron(expression)), BERLIN)] == document["tasks"]


@pytest.mark.parametrize(
    "question",
    [
        lambda view: insight.Examination(view, BERLIN).health,
        lambda view: list(insight.runs_of(view, RunSelection(), None)),
        lambda view: insight.explain(view, "backup", datetime(2025, 10, 24, 2, 30, tzinfo=BERLIN)),
        lambda view: insight.plan_for(view, [], zone=BERLIN),
    ],
    ids=["health", "history", "explanation", "plan"],
)
def test_it_only_reads(question: Callable[[View], object]) -> None:
    """SPEC 10.4: no file is changed, created or removed."""
    folder = Path(stage().name)
    before = fingerprint(folder)
    SqliteReader(folder / "killed.db", lambda: instant_of(datetime(2026, 1, 1, tzinfo=BERLIN))).read(question)
    assert fingerprint(folder) == before


def test_a_moment_without_a_zone_is_refused() -> None:
    """Due minutes depend on the zone; the host's may be another one than the store's."""
    with pytest.raises(ValueError, match="needs a zone"):
        SqliteReader(Path(stage().name) / "killed.db", lambda: 0).read(
            lambda view: insight.explain(view, "backup", datetime(2025, 10, 24, 2, 30))
        )


def test_every_public_name_stands_on_the_page_and_no_other() -> None:
    """docs/reference/insight.md: the functions and values of `duly.insight.__all__`."""
    page = sections("insight.md")
    functions = {code(name)[0].split("(")[0] for name, _ in rows(page["Functions"])} - {"json_form.json_form"}
    values = {each for names, _ in rows(page["Values"]) for each in code(names)}
    assert functions | values == set(insight.__all__)
    assert not functions & values
