"""After a failure the log named the time of the retry: without its date, and even if a due minute came before it.

A minutely task with a retry delay of two days was said to start again "at 15:55:16", the time at which it had failed.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly import parse_cron
from duly.cli.service.event_lines import event_line
from duly.core.moments import Delay, Instant, Minute, instant_of
from duly.events import TaskRunFailed
from duly.insight.evidence import Evidence
from duly.insight.explanation import explanation_of
from duly.stores.port import Declaration, RunRecord

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 16, 15, 55, 16, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("cron", "delay", "duration", "again"),
    [
        ("* * * * *", timedelta(days=2), timedelta(seconds=1), "again at 15:56, when it is due"),
        ("0 3 * * *", timedelta(days=2), timedelta(seconds=1), "again at 2026-11-17 03:00, when it is due"),
        ("0 3 * * *", timedelta(hours=10), timedelta(seconds=1), "retry at 2026-11-17 01:55:16"),
        ("0 3 * * *", timedelta(minutes=1), timedelta(seconds=1), "retry at 15:56:16"),
        ("* * * * *", timedelta(seconds=5), timedelta(seconds=1), "retry at 15:55:21"),
        ("* * * * *", timedelta(seconds=5), timedelta(minutes=3), "again now, due since 15:53"),
    ],
)
def test_the_log_names_the_next_start_with_its_date(
    cron: str, delay: timedelta, duration: timedelta, again: str
) -> None:
    """SPEC 3.4, 3.5: a due minute takes the place of a retry that comes later."""
    event = TaskRunFailed("x", duration / timedelta(milliseconds=1), "ValueError: x", 1, NOW + delay)
    assert event_line(event, NOW, lambda _: parse_cron(cron)).text.endswith(f": ValueError: x; {again}")


def test_a_task_that_is_no_longer_declared_starts_at_no_due_minute() -> None:
    """The name of a withdrawn task has no expression any more."""
    event = TaskRunFailed("x", 1, "ValueError: x", 1, NOW + timedelta(days=2))
    assert event_line(event, NOW, lambda _: None).text.endswith("; retry at 2026-11-18 15:55:16")


def test_an_explanation_names_the_due_minute_that_comes_before_the_retry() -> None:
    """Asked about a minute between the failure and both of them."""

    def at(text: str) -> Instant:
        return instant_of(datetime.fromisoformat(text).replace(tzinfo=BERLIN))

    failed = RunRecord(
        1, "x", 1, "0 3 * * *", "cron", at("2026-11-16T03:00"), at("2026-11-16T03:00"), at("2026-11-16T03:01"),
        "failure", "ValueError: x",
    )  # fmt: skip
    declared = Declaration(1, "x", "0 3 * * *", Delay(172_800_000), at("2026-11-01"), None)
    evidence = Evidence(
        "x", BERLIN, at("2026-11-16T12:00"), [declared], [failed],
        Minute(at("2026-11-16T03:00") // 1_000_000), at("2026-11-18T03:01"), alive=True,
    )  # fmt: skip
    for asked in ("2026-11-16T10:00", "2026-11-16T20:00"):
        answer = explanation_of(evidence, datetime.fromisoformat(asked).replace(tzinfo=BERLIN))
        [waiting] = [each for each in answer.reasons if each.code == "waitingForRetry"]
        assert waiting.text.endswith(
            "waiting for its next due minute, 2026-11-17 03:00, which comes before its retry at 2026-11-18 03:01"
        )
