"""`duly run` went on naming a run of a buried host as running after it had ended."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly import events
from duly.cli.service.events_log import EventsLog
from duly.cli.service.program import Program
from duly.cli.target import parse_target


@pytest.mark.parametrize(
    "end",
    [
        events.TaskRunFenced("report", 1),
        events.TaskRunCompleted("report", 5.0, 1),
        events.TaskRunFailed("report", 5.0, "ValueError: no", 1, exception=ValueError("no")),
    ],
    ids=lambda end: type(end).__name__,
)
async def test_a_run_that_has_ended_is_waited_for_no_longer(
    end: events.Event, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SPEC 9.5: a fenced run is over for this process, too."""
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    (tasks := tmp_path / "tasks.py").touch()
    log = EventsLog("json", verbose=False)
    target = parse_target(str(tasks))
    program = Program(target, tmp_path / "state.db", {}, log, watching=False, standby=False, verbose=False)
    program._on_event(events.TaskRunStarted("report", noon, noon, "cron", 1))
    program._on_event(events.TaskRunStarted("backup", noon, noon, "cron", 2))
    assert program._running() == ["backup", "report"]
    program._on_event(end)
    assert program._running() == ["backup"]
    assert type(end).__name__ in capsys.readouterr().out
