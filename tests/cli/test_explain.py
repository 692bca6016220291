"""`duly explain`, on stores that the real scheduler wrote."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly import parse_cron
from duly.core.moments import Instant, as_datetime, instant_of
from duly.insight.evidence import evidence_of
from duly.insight.explanation import Answer, explanation_of, minute_to_explain
from duly.stores import View
from duly.testing import SimulatedHost
from tests.cli.program import duly, fingerprint
from tests.stores.helpers import read

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text).replace(tzinfo=BERLIN))


async def write_story(store: Path, history: int = 100_000) -> None:
    """A failure with its retry, downtime over a change of the clocks, a crash, an override."""
    async with SimulatedHost("2024-03-29T12:00", BERLIN, store=store) as host:
        fails = False

        async def backup() -> None:
            await host.sleep(40)
            if fails:
                raise OSError("disk full")

        def tasks(cron: str = "30 2 * * *") -> list[tuple[Any, ...]]:
            return [
                ("backup", cron, backup, timedelta(minutes=10)),
                ("hourly", "0 * * * *", backup, timedelta(hours=9)),
            ]

        first = host.scheduler(history=history)
        await first.initialize(tasks())
        await host.advance_to("2024-03-30T02:29")
        fails = True
        await host.advance_to("2024-03-30T02:35")
        fails = False
        await host.advance_to("2024-03-30T20:30")
        await first.stop()
        await host.advance_to("2024-04-01T05:00:30")
        await host.scheduler(history=history).initialize(tasks())
        await host.advance_to("2024-04-02T02:30:10")
        await host.crash()
        await host.advance(minutes=2)
        last = host.scheduler(history=history)
        await last.initialize(tasks())
        await host.advance_to("2024-04-02T12:00")
        await last.initialize(tasks("0 15 * * *"))
        await host.advance_to("2024-04-02T16:30")
        await last.stop()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("story") / "state.db"
    asyncio.run(write_story(store))
    return store


@pytest.mark.parametrize(
    ("task", "when", "verdict", "expected"),
    [
        ("backup", "2024-03-30T02:30", "ran", ["onTime", "failed"]),
        ("backup", "2024-03-30T02:40", "ran", ["retry", "repetition", "succeeded"]),
        ("backup", "2024-03-31T02:30", "didNotRun", ["skippedByDst", "nearest"]),
        ("backup", "2024-04-01T02:30", "servedLater", ["schedulerStopped"]),
        ("hourly", "2024-04-01T05:00", "ranLate", ["schedulerStopped", "servedOnceForMany", "succeeded"]),
        (
            "backup",
            "2024-04-02T02:32",
            "ran",
            ["interruptedAndRestarted", "schedulerStopped", "repetition", "succeeded"],
        ),
        ("backup", "2024-04-02T15:00", "ran", ["onTime", "succeeded"]),
        ("backup", "2024-03-29T02:30", "didNotRun", ["knownOnlySince"]),
    ],
)
def test_on_a_store_that_a_scheduler_wrote(
    story: Path, task: str, when: str, verdict: str, expected: list[str]
) -> None:
    """From durable state and history; nothing beside the store is created or changed."""
    before = fingerprint(story.parent)
    done = duly("explain", task, "--at", when, "--store", story, "--json", folder=story.parent, TZ="UTC")
    assert done.code == 0, done.err
    assert done.json["zone"] == "Europe/Berlin"
    assert (done.json["verdict"], [each["code"] for each in done.json["reasons"]]) == (verdict, expected)
    assert fingerprint(story.parent) == before


def test_every_minute_of_the_story_is_explained_in_agreement_with_its_runs(story: Path) -> None:
    """Ran exactly where a run started, not due exactly where the expression is not, and no lateness without a cause."""

    def agreement(view: View) -> None:
        for task in ("backup", "hourly"):
            evidence = evidence_of(view, task, at("2024-03-31T12:00"), BERLIN)
            starts = [run.started_at for run in evidence.runs]
            first, last = evidence.declarations[0].known_since, max(starts)
            for begins in range(
                at("2024-03-29T00:00"), at("2024-04-02T18:00"), 60_000_000 if task == "backup" else 300_000_000
            ):
                when = as_datetime(begins, BERLIN)
                answer = explanation_of(evidence, when)
                started = any(begins <= start < begins + 60_000_000 for start in starts)
                assert (answer.verdict in (Answer.RAN, Answer.RAN_LATE)) is started, when
                assert "noDowntimeOnRecord" not in [reason.code for reason in answer.reasons], when
                if started or not first <= begins <= last:
                    continue
                in_force = [each for each in evidence.declarations if each.known_since < begins + 60_000_000][-1]
                assert (answer.verdict is Answer.NOT_DUE) is not parse_cron(in_force.expression).matches(when), when
                if answer.verdict is Answer.SERVED_LATER:
                    assert answer.run is not None
                    assert answer.run.started_at == min(start for start in starts if start > begins)

    read(story, agreement)


def test_for_people(story: Path) -> None:
    """A headline, and the reasons under it."""
    done = duly("explain", "hourly", "--at", "2024-04-01T05:00", "--store", story, folder=story.parent)
    assert done.out.splitlines() == [
        "hourly at Mon 2024-04-01 05:00: ran, late by 30 s",
        "  - the scheduler was down: last seen at 2024-03-30 20:00:40, back at 05:00:30",
        "  - one start serves 32 occurrences, from 2024-03-30 21:00 to 05:00",
        "  - it succeeded at 05:01:10, after 40 s",
    ]


def test_without_a_time_the_latest_due_minute_is_explained(story: Path) -> None:
    """Of a task that is still declared, the latest up to now; of one that is not, the latest while it was."""

    def minutes(view: View) -> list[datetime]:
        declarations = view.declarations("hourly")
        withdrawn = declarations[-1]._replace(retired_at=at("2024-04-01T12:30"))
        fresh = declarations[-1]._replace(known_since=at("2024-04-01T12:30"))
        return [
            minute_to_explain(declarations, at("2024-04-02T09:59"), BERLIN),
            minute_to_explain([withdrawn], at("2024-04-02T09:59"), BERLIN),
            minute_to_explain([fresh], at("2024-04-01T12:45:10"), BERLIN),
        ]

    assert [f"{each:%d. %H:%M}" for each in read(story, minutes)] == ["02. 09:00", "01. 12:00", "01. 12:45"]
    done = duly("explain", "hourly", "--store", story, "--json", folder=story.parent)
    assert (done.code, done.json["at"][14:16]) == (0, "00")


def test_a_short_history_says_that_it_no_longer_reaches_back(tmp_path: Path) -> None:
    """It says when the history no longer reaches back."""
    store = tmp_path / "state.db"
    asyncio.run(write_story(store, history=5))
    done = duly("explain", "backup", "--at", "2024-03-30T02:30", "--store", store, "--json", folder=tmp_path)
    assert done.json["verdict"] == "unknown"
    assert "historyTrimmed" in [each["code"] for each in done.json["reasons"]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bakup", "--at", "now"], 2, "did you mean backup?"),
        (["backup", "--at", "noon"], 2, "--at: 'noon' is not a moment"),
    ],
)
def test_wrong_usage(story: Path, arguments: list[str], code: int, message: str) -> None:
    """Unknown task with a suggestion; one clear message, the documented exit code."""
    done = duly("explain", *arguments, "--store", story, folder=story.parent)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err
