"""The events that `duly run` adds to its log are those of docs/reference/events.md."""

import ast
import json
import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from duly import events
from duly.cli.output import Failure
from duly.cli.service.events_log import EventsLog
from tests.reference import ROOT, code, rows, sections

DOCUMENTED = {
    code(name)[0]: (level, set(code(fields)), set(re.findall(r"\[`(\w+)`\]", fields)))
    for name, level, fields, _ in rows(sections("events.md")["Events of duly run"])
}
"""By name: the level, all fields, and those that are optional."""

WRITTEN_BY_METHODS = {"ProgramFailed", "LogRecord"}
"""Events whose fields are chosen in `EventsLog` itself."""


def said() -> dict[str, list[tuple[str, set[str]]]]:
    """Level and fields of every event that the program logs, read from the calls in the source."""
    found: dict[str, list[tuple[str, set[str]]]] = {}
    for path in sorted((ROOT / "src" / "duly" / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if node.func.attr in ("say", "say_from_signal_handler") and isinstance(node.args[0], ast.Constant):
                given = {each.arg: each.value for each in node.keywords if each.arg is not None}
                level = given.pop("level", None)
                shown = "INFO" if node.func.attr == "say" else "WARNING"
                shown = level.attr if isinstance(level, ast.Attribute) else shown
                found.setdefault(str(node.args[0].value), []).append((shown, set(given)))
    return found


def test_every_event_of_the_program_is_documented_and_no_other() -> None:
    """The names, in both directions."""
    assert set(DOCUMENTED) == set(said()) | WRITTEN_BY_METHODS


@pytest.mark.parametrize("name", sorted(set(DOCUMENTED) - WRITTEN_BY_METHODS))
def test_an_event_of_the_program_has_the_documented_level_and_fields(name: str) -> None:
    """A field that is not in every line of an event is documented as optional."""
    level, fields, optional = DOCUMENTED[name]
    lines = said()[name]
    assert level in {shown for shown, _ in lines}
    assert set().union(*(given for _, given in lines)) == fields
    assert fields.difference(*(fields - given for _, given in lines)) == fields - optional


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_failed_reload_has_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """ProgramFailed: hint and excerpt are there if the failure has them."""
    log = EventsLog("json", verbose=False)
    log.failure(Failure("why", "do", excerpt="where"))
    log.failure(Failure("why"))
    _compare("ProgramFailed", lines_of(capsys))


def test_a_log_record_of_the_application_has_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """LogRecord: with a traceback if there is an exception, and with its run if it was made inside of one."""
    log = EventsLog("json", verbose=False)
    place = str(Path(__file__))
    full = logging.LogRecord("app", logging.INFO, place, 1, "done", (), (ValueError, ValueError("why"), None))
    full.duly_task, full.duly_run_id = "backup", 7
    log.record(full)
    log.record(logging.LogRecord("app", logging.INFO, place, 1, "done", (), None))
    _compare("LogRecord", lines_of(capsys))


def test_a_label_never_touches_the_name_of_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    """`interrupted` is the longest label; it stood directly before the name."""
    at = datetime(2026, 11, 18, 15, 11, 6, tzinfo=UTC)
    EventsLog("text", verbose=False).event(events.TaskInterrupted("backup", at, 1, at), lambda name: None)
    shown = capsys.readouterr().out
    assert shown.endswith("  interrupted backup  its run of 2026-11-18 15:11:06 was cut short\n")


def _compare(name: str, lines: list[dict[str, Any]]) -> None:
    _, fields, optional = DOCUMENTED[name]
    every = {"time", "level", "event"}
    full, scanty = lines
    assert full["event"] == name
    assert set(full) - every == fields
    assert set(scanty) - every == fields - optional
