"""One run as people see it."""

from datetime import UTC

import pytest

from duly.core.moments import Instant
from duly.insight.json_form import json_form
from duly.insight.run import run_report
from duly.stores.port import RunRecord


def record(
    started_at: int = 60_250_900,
    ended_at: int | None = 61_000_000,
    cause: str = "cron",
    outcome: str = "success",
    error: str | None = None,
) -> RunRecord:
    ended = None if ended_at is None else Instant(ended_at)
    return RunRecord(
        7, "backup", 1, "* * * * *", cause, Instant(60_000_000), Instant(started_at), ended, outcome, error
    )


def test_a_run_says_how_late_it_was_and_how_long_it_took() -> None:
    """Lateness in whole milliseconds, as the events have it; the duration with its fraction."""
    assert json_form(run_report(record(outcome="failure", error="OSError: x")), UTC) == {
        "runId": 7,
        "task": "backup",
        "expression": "* * * * *",
        "cause": "cron",
        "scheduledTime": "1970-01-01T00:01:00+00:00",
        "startedAt": "1970-01-01T00:01:00.250900+00:00",
        "endedAt": "1970-01-01T00:01:01+00:00",
        "latenessMs": 250,
        "durationMs": 749.1,
        "outcome": "failure",
        "error": "OSError: x",
        "attempt": None,
        "key": None,
        "traceback": None,
        "host": None,
    }


def test_a_run_has_its_attempt_and_the_key_of_its_obligation() -> None:
    """SPEC 10.1: made of the name, the generation and the first start."""
    run = run_report(record(cause="retry")._replace(attempt=3, first_started_at=Instant(59_000_001)))
    assert (run.attempt, run.key) == (3, "backup/1/1970-01-01T00:00:59.000001Z")


@pytest.mark.parametrize(
    ("given", "lateness_ms", "duration_ms"),
    [
        pytest.param(record(ended_at=None, outcome="running"), 250, None, id="still under way"),
        pytest.param(record(cause="interrupted"), None, 749.1, id="repeats an interrupted run, so nothing was due"),
        pytest.param(record(started_at=59_000_000, ended_at=58_000_000), 0, 0, id="clock set back"),
    ],
)
def test_what_is_not_known_of_a_run_is_none(
    given: RunRecord, lateness_ms: int | None, duration_ms: float | None
) -> None:
    run = run_report(given)
    assert (run.lateness_ms, run.duration_ms) == (lateness_ms, duration_ms)
