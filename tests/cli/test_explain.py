"""`duly explain`: why a task ran, did not run, or ran late at a minute."""

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly import parse_cron
from duly.cli.commands.explain import gathered
from duly.cli.evidence import Answer, Evidence, Verdict
from duly.cli.explaining import explain
from duly.cli.reading import read_store
from duly.core.moments import Delay, Instant, Minute, as_datetime, instant_of
from duly.stores.port import Declaration, RunRecord
from duly.testing import SimulatedHost
from tests.cli.program import ROOT, duly, fingerprint

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text).replace(tzinfo=BERLIN))


def declared(
    cron: str = "30 2 * * *", since: str = "2024-03-01T00:00", until: str | None = None, generation: int = 1
) -> Declaration:
    return Declaration(generation, "backup", cron, Delay(600_000), at(since), None if until is None else at(until))


def ran(
    start: str,
    end: str | None = None,
    outcome: str = "success",
    cause: str = "cron",
    scheduled: str | None = None,
    number: int = 0,
    generation: int = 1,
) -> RunRecord:
    ended = None if end is None else at(end)
    started = at(start)
    due = at(scheduled) if scheduled else Instant(started - started % 60_000_000)
    return RunRecord(
        number,
        "backup",
        generation,
        "30 2 * * *",
        cause,
        due,
        started,
        ended,
        outcome,
        "OSError: x" if outcome == "failure" else None,
    )


def ask(when: str, runs: Sequence[RunRecord] = (), *, fold: int = 0, **known: Any) -> Answer:
    """What is said about a minute, given these runs and whatever else is known."""
    numbered = [run._replace(run_id=run.run_id or number) for number, run in enumerate(runs, 1)]
    evidence = Evidence(
        **{
            "task": "backup",
            "zone": BERLIN,
            "now": at("2024-06-01T00:00"),
            "declarations": [declared()],
            "runs": numbered,
            **known,
        }
    )
    return explain(evidence, datetime.fromisoformat(when).replace(tzinfo=BERLIN, fold=fold))


def codes(answer: Answer) -> list[str]:
    return [reason.code for reason in answer.reasons]


def texts(answer: Answer) -> str:
    return "\n".join(reason.text for reason in answer.reasons)


# --- the reasons, as a table: what is known, the verdict, the codes --------------------------------------------------

EVE = ran("2024-05-01T02:30:00", "2024-05-01T02:31:00")
ON_TIME = ran("2024-05-02T02:30:00", "2024-05-02T02:31:00")
FAILED = ran("2024-05-02T02:30:00", "2024-05-02T02:31:00", "failure")
RETRIED = ran("2024-05-02T02:41:00", "2024-05-02T02:42:00", cause="retry", scheduled="2024-05-02T02:41:00")
CUT_SHORT = ran("2024-05-02T02:30:00", None, "interrupted")
RESTARTED = ran("2024-05-02T02:35:10", "2024-05-02T02:36:00", cause="interrupted", scheduled="2024-05-02T02:30:00")
CUT_SHORT_AGAIN = RESTARTED._replace(ended_at=None, outcome="interrupted")
RESTED = ran("2024-05-02T02:45:10", "2024-05-02T02:46:00", cause="interrupted", scheduled="2024-05-02T02:35:10")
A_LITTLE_LATE = ran("2024-05-02T02:30:50", "2024-05-02T02:32:00", scheduled="2024-05-02T02:30:00")
UNDER_WAY = ran("2024-05-02T02:30:00", None, "running")
DAYS_BEFORE = ran("2024-04-29T02:30:00", "2024-04-29T02:31:00")
AFTER_DOWNTIME = ran("2024-05-02T08:00:00", "2024-05-02T08:01:00", scheduled="2024-05-02T02:30:00")
LONG = ran("2024-05-01T02:30:00", "2024-05-02T04:00:00")
AFTER_LONG = ran("2024-05-02T04:00:00", "2024-05-02T04:01:00", scheduled="2024-05-02T02:30:00")
DOWN: dict[str, Any] = {
    "arrivals": [at("2024-03-01T00:00"), at("2024-05-02T08:00")],
    "signs_of_life": [at("2024-04-30T12:00")],
}
OVERRIDDEN = [declared(until="2024-05-02T06:00"), declared("0 9 * * *", "2024-05-02T06:00", generation=2)]
GONE = [declared(until="2024-05-02T06:00")]


@pytest.mark.parametrize(
    ("when", "runs", "known", "verdict", "expected"),
    [
        pytest.param("2024-05-02T02:30", [EVE, ON_TIME], {}, Verdict.RAN, ["onTime", "succeeded"], id="on time"),
        pytest.param("2024-05-02T03:00", [ON_TIME], {}, Verdict.NOT_DUE, ["notDue", "nearest"], id="not due"),
        pytest.param("2024-05-02T02:30", [EVE, A_LITTLE_LATE], {}, Verdict.RAN_LATE, ["late", "succeeded"], id="late"),
        pytest.param("2024-05-02T02:30", [EVE, UNDER_WAY], {}, Verdict.RAN, ["onTime", "running"], id="under way"),
        pytest.param(
            "2024-05-02T02:30", [], {"declarations": []}, Verdict.NOT_RUN, ["unknownTask"], id="never declared"
        ),
        pytest.param(
            "2024-05-02T02:45",
            [CUT_SHORT, CUT_SHORT_AGAIN, RESTED],
            {"arrivals": [at("2024-05-02T02:35:05"), at("2024-05-02T02:36:00")]},
            Verdict.RAN,
            ["interruptedAndRestarted", "schedulerStopped", "crashLoopDelay", "succeeded"],
            id="crash loop",
        ),
        pytest.param("2024-05-02T02:30", [EVE, FAILED], {}, Verdict.RAN, ["onTime", "failed"], id="failed"),
        pytest.param(
            "2024-05-02T02:35", [FAILED], {}, Verdict.NOT_DUE, ["notDue", "nearest", "waitingForRetry"], id="waiting"
        ),
        pytest.param("2024-05-02T02:41", [FAILED, RETRIED], {}, Verdict.RAN, ["retry", "succeeded"], id="retry"),
        pytest.param(
            "2024-05-02T02:30", [EVE, CUT_SHORT, RESTARTED], {}, Verdict.RAN, ["onTime", "interrupted"], id="cut short"
        ),
        pytest.param(
            "2024-05-02T02:35",
            [CUT_SHORT, RESTARTED],
            {"arrivals": [at("2024-05-02T02:35:10")], "signs_of_life": [at("2024-05-02T02:30")]},
            Verdict.RAN,
            ["interruptedAndRestarted", "schedulerStopped", "succeeded"],
            id="restarted",
        ),
        pytest.param(
            "2024-05-02T08:00",
            [DAYS_BEFORE, AFTER_DOWNTIME],
            DOWN,
            Verdict.RAN_LATE,
            ["schedulerStopped", "servedOnceForMany", "succeeded"],
            id="late after downtime",
        ),
        pytest.param(
            "2024-05-01T02:30",
            [DAYS_BEFORE, AFTER_DOWNTIME],
            DOWN,
            Verdict.SERVED_LATER,
            ["schedulerStopped", "servedOnceForMany"],
            id="missed in downtime",
        ),
        pytest.param(
            "2024-05-02T02:30", [LONG, AFTER_LONG], {}, Verdict.SERVED_LATER, ["stillRunning"], id="still running"
        ),
        pytest.param(
            "2024-05-02T04:00", [LONG, AFTER_LONG], {}, Verdict.RAN_LATE, ["stillRunning", "succeeded"], id="after it"
        ),
        pytest.param(
            "2024-05-02T08:00",
            [DAYS_BEFORE, AFTER_DOWNTIME],
            {},
            Verdict.RAN_LATE,
            ["servedOnceForMany", "noDowntimeOnRecord", "succeeded"],
            id="late for no known reason",
        ),
        pytest.param("2024-02-01T02:30", [], {}, Verdict.NOT_RUN, ["knownOnlySince"], id="known only since"),
        pytest.param(
            "2024-05-02T02:30",
            [],
            {"declarations": OVERRIDDEN, "alive": True},
            Verdict.NOT_RUN,
            ["overridden"],
            id="overridden",
        ),
        pytest.param("2024-05-02T02:30", [], {"declarations": GONE}, Verdict.NOT_RUN, ["orphaned"], id="orphaned"),
        pytest.param("2024-05-03T02:30", [], {"declarations": GONE}, Verdict.NOT_RUN, ["orphaned"], id="no longer"),
        pytest.param(
            "2024-05-31T02:30",
            [],
            {"last_poll": at("2024-05-30T00:00")},
            Verdict.OWED,
            ["schedulerStopped"],
            id="stopped",
        ),
        pytest.param("2024-05-31T02:30", [], {"alive": True}, Verdict.OWED, ["noDowntimeOnRecord"], id="owed"),
        pytest.param(
            "2024-05-31T02:30",
            [],
            {"served_through": Minute(at("2024-05-31T02:30") // 1_000_000)},
            Verdict.UNKNOWN,
            ["noRecord"],
            id="served, not on record",
        ),
        pytest.param(
            "2024-05-02T02:30",
            [],
            {"history_complete_since": at("2024-05-10T00:00")},
            Verdict.UNKNOWN,
            ["historyTrimmed"],
            id="history no longer reaches back",
        ),
        pytest.param("2024-06-02T02:30", [], {}, Verdict.NOT_YET, ["notYet", "due"], id="still to come"),
        pytest.param("2024-06-02T02:31", [], {}, Verdict.NOT_YET, ["notYet", "nearest"], id="to come, not due"),
    ],
)
def test_a_situation_and_its_explanation(
    when: str, runs: list[RunRecord], known: dict[str, Any], verdict: Verdict, expected: list[str]
) -> None:
    """The reasons `explain` knows, each from durable state, history and cron algebra."""
    answer = ask(when, runs, **known)
    assert (answer.verdict, codes(answer)) == (verdict, expected)


def test_a_minute_that_daylight_saving_skips() -> None:
    """SPEC 2.2: it does not exist, and is not missed."""
    answer = ask("2024-03-31T02:30")
    assert answer.verdict is Verdict.NOT_RUN
    assert codes(answer) == ["skippedByDst", "nearest"]
    assert "before it 2024-03-30 02:30, after it 2024-04-01 02:30" in texts(answer)
    assert ask("2024-03-31T02:31").verdict is Verdict.NOT_DUE


def test_a_minute_that_occurs_twice() -> None:
    """SPEC 2.3: due the first time only; the second copy names the run that served it."""
    first = RunRecord(
        1,
        "backup",
        1,
        "30 2 * * *",
        "cron",
        at("2024-10-27T02:30"),
        at("2024-10-27T02:30"),
        at("2024-10-27T02:31"),
        "success",
    )
    known: dict[str, Any] = {"now": at("2024-11-01T00:00"), "declarations": [declared(since="2024-10-26T12:00")]}
    assert codes(ask("2024-10-27T02:30", [first], **known)) == ["onTime", "succeeded", "repeatedByDst"]
    again = ask("2024-10-27T02:30", [first], fold=1, **known)
    assert again.verdict is Verdict.NOT_RUN
    assert codes(again) == ["repeatedByDst", "alreadyServed"]


def test_a_due_minute_that_took_the_place_of_a_retry() -> None:
    """SPEC 3.5: told as such, with the time of the retry that was not needed."""
    failed = ran("2024-05-02T02:28:00", "2024-05-02T02:29:00", "failure", "interrupted", "2024-05-02T02:20:00")
    answer = ask("2024-05-02T02:30", [failed, ON_TIME])
    assert codes(answer) == ["onTime", "retryPreempted", "succeeded"]
    assert "02:39" in texts(answer)


def test_a_clock_that_was_set_back_finds_its_minutes_served() -> None:
    """SPEC 2.5: a minute once served is not served again while its mark lies ahead."""
    before, since = (
        ran("2024-05-03T02:30:00", "2024-05-03T02:31:00"),
        ran("2024-05-01T23:50:00", "2024-05-01T23:51:00", cause="retry"),
    )
    answer = ask("2024-05-02T02:30", [before, since])
    assert codes(answer) == ["alreadyServed"]
    assert answer.run is not None
    assert answer.run.run_id == 1


def test_how_many_occurrences_one_start_served() -> None:
    """SPEC 3.2: one start serves them all, and the explanation counts them."""
    answer = ask("2024-05-02T08:00", [DAYS_BEFORE, AFTER_DOWNTIME], **DOWN)
    assert "one start serves 3 occurrences, from 2024-04-30 02:30 to 02:30" in texts(answer)
    assert "last seen at 2024-04-30 12:00, there again at 08:00" in texts(answer)


# --- on stores that the real scheduler wrote -------------------------------------------------------------------------


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
        ("backup", "2024-03-30T02:40", "ran", ["retry", "succeeded"]),
        ("backup", "2024-03-31T02:30", "didNotRun", ["skippedByDst", "nearest"]),
        ("backup", "2024-04-01T02:30", "servedLater", ["schedulerStopped"]),
        ("hourly", "2024-04-01T05:00", "ranLate", ["schedulerStopped", "servedOnceForMany", "succeeded"]),
        ("backup", "2024-04-02T02:32", "ran", ["interruptedAndRestarted", "schedulerStopped", "succeeded"]),
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
    snapshot = read_store(story)
    for task in ("backup", "hourly"):
        evidence = gathered(snapshot, task, BERLIN)
        starts = [run.started_at for run in evidence.runs]
        first, last = evidence.declarations[0].known_since, max(starts)
        for begins in range(
            at("2024-03-29T00:00"), at("2024-04-02T18:00"), 60_000_000 if task == "backup" else 300_000_000
        ):
            when = as_datetime(begins, BERLIN)
            answer = explain(evidence, when)
            started = any(begins <= start < begins + 60_000_000 for start in starts)
            assert (answer.verdict in (Verdict.RAN, Verdict.RAN_LATE)) is started, when
            assert "noDowntimeOnRecord" not in codes(answer), when
            if started or not first <= begins <= last:
                continue
            in_force = [each for each in evidence.declarations if each.known_since < begins + 60_000_000][-1]
            assert (answer.verdict is Verdict.NOT_DUE) is not parse_cron(in_force.expression).matches(when), when
            if answer.verdict is Verdict.SERVED_LATER:
                assert answer.run is not None
                assert answer.run.started_at == min(start for start in starts if start > begins)


def test_for_people(story: Path) -> None:
    """A headline, and the reasons under it."""
    done = duly("explain", "hourly", "--at", "2024-04-01T05:00", "--store", story, folder=story.parent)
    assert done.out.splitlines() == [
        "hourly at Mon 2024-04-01 05:00: ran, late by 1 d 7 h",
        "  - the scheduler was down: last seen at 2024-03-30 20:00:40, there again at 05:00:30",
        "  - one start serves 32 occurrences, from 2024-03-30 21:00 to 05:00",
        "  - it succeeded at 05:01:10, after 40 s",
    ]


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
        (["backup"], 2, "--at"),
    ],
)
def test_wrong_usage(story: Path, arguments: list[str], code: int, message: str) -> None:
    """Unknown task with a suggestion; one clear message, the documented exit code."""
    done = duly("explain", *arguments, "--store", story, folder=story.parent)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_every_reason_is_documented_and_every_documented_one_is_tested() -> None:
    """Codes are for programs: the table in the reference has all of them, and each is expected in a test above."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    table = page.split("| `reasons[].code` | |")[1].split("\n\n")[0]
    documented = {code for row in table.splitlines() if row for code in re.findall(r"`(\w+)`", row.split("|")[1])}
    source = "".join((ROOT / "src/duly/cli" / name).read_text() for name in ("explaining.py", "evidence.py"))
    used = set(re.findall(r"Reason\(\s*\"(\w+)\"", source))
    assert used <= documented
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [code for code in sorted(documented) if f'"{code}"' not in tests] == []
