"""Why a task ran, did not run, or ran late at a minute: the reasons, from what is known."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly.core.moments import Delay, Instant, Minute, instant_of
from duly.insight.evidence import Evidence
from duly.insight.explanation import Answer, Explanation, explanation_of
from duly.insight.json_form import json_form
from duly.stores.port import ClusterRecord, Declaration, Hold, HostName, RunRecord, StoredHost
from tests.reference import code, rows, sections

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


def ask(when: str, runs: Sequence[RunRecord] = (), *, fold: int = 0, **known: Any) -> Explanation:
    """The explanation of a minute, from these runs and the other evidence."""
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
    return explanation_of(evidence, datetime.fromisoformat(when).replace(tzinfo=BERLIN, fold=fold))


def codes(answer: Explanation) -> list[str]:
    return [reason.code for reason in answer.reasons]


def texts(answer: Explanation) -> str:
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
AT_ONCE_AFTER_DOWNTIME = ran("2024-05-02T02:30:01", "2024-05-02T02:31:00", scheduled="2024-05-02T02:30:00")
LONG = ran("2024-05-01T02:30:00", "2024-05-02T04:00:00")
AFTER_LONG = ran("2024-05-02T04:00:00", "2024-05-02T04:01:00", scheduled="2024-05-02T02:30:00")
DOWN: dict[str, Any] = {
    "arrivals": [at("2024-03-01T00:00"), at("2024-05-02T08:00")],
    "last_sign_of_life": lambda _: at("2024-04-30T12:00"),
}
OVERRIDDEN = [declared(until="2024-05-02T06:00"), declared("0 9 * * *", "2024-05-02T06:00", generation=2)]
GONE = [declared(until="2024-05-02T06:00")]


@pytest.mark.parametrize(
    ("when", "runs", "known", "verdict", "expected"),
    [
        pytest.param("2024-05-02T02:30", [EVE, ON_TIME], {}, Answer.RAN, ["onTime", "succeeded"], id="on time"),
        pytest.param("2024-05-02T03:00", [ON_TIME], {}, Answer.NOT_DUE, ["notDue", "nearest"], id="not due"),
        pytest.param("2024-05-02T02:30", [EVE, A_LITTLE_LATE], {}, Answer.RAN_LATE, ["late", "succeeded"], id="late"),
        pytest.param("2024-05-02T02:30", [EVE, UNDER_WAY], {}, Answer.RAN, ["onTime", "running"], id="under way"),
        pytest.param(
            "2024-05-02T02:30", [], {"declarations": []}, Answer.NOT_RUN, ["unknownTask"], id="never declared"
        ),
        pytest.param(
            "2024-05-02T02:45",
            [CUT_SHORT, CUT_SHORT_AGAIN, RESTED],
            {"arrivals": [at("2024-05-02T02:35:05"), at("2024-05-02T02:36:00")]},
            Answer.RAN,
            ["interruptedAndRestarted", "schedulerStopped", "crashLoopDelay", "succeeded"],
            id="crash loop",
        ),
        pytest.param("2024-05-02T02:30", [EVE, FAILED], {}, Answer.RAN, ["onTime", "failed"], id="failed"),
        pytest.param(
            "2024-05-02T02:35", [FAILED], {}, Answer.NOT_DUE, ["notDue", "nearest", "waitingForRetry"], id="waiting"
        ),
        pytest.param("2024-05-02T02:41", [FAILED, RETRIED], {}, Answer.RAN, ["retry", "succeeded"], id="retry"),
        pytest.param(
            "2024-05-02T02:41",
            [FAILED, RETRIED._replace(attempt=2, first_started_at=FAILED.started_at)],
            {},
            Answer.RAN,
            ["retry", "repetition", "succeeded"],
            id="retry with its attempt on record",
        ),
        pytest.param(
            "2024-05-02T02:30", [EVE, CUT_SHORT, RESTARTED], {}, Answer.RAN, ["onTime", "interrupted"], id="cut short"
        ),
        pytest.param(
            "2024-05-02T02:35",
            [CUT_SHORT, RESTARTED],
            {"arrivals": [at("2024-05-02T02:35:10")], "last_sign_of_life": lambda _: at("2024-05-02T02:30")},
            Answer.RAN,
            ["interruptedAndRestarted", "schedulerStopped", "succeeded"],
            id="restarted",
        ),
        pytest.param(
            "2024-05-02T08:00",
            [DAYS_BEFORE, AFTER_DOWNTIME],
            DOWN,
            Answer.RAN_LATE,
            ["schedulerStopped", "servedOnceForMany", "succeeded"],
            id="late after downtime",
        ),
        pytest.param(
            "2024-05-01T02:30",
            [DAYS_BEFORE, AFTER_DOWNTIME],
            DOWN,
            Answer.SERVED_LATER,
            ["schedulerStopped", "servedOnceForMany"],
            id="missed in downtime",
        ),
        pytest.param(
            "2024-05-02T02:30", [LONG, AFTER_LONG], {}, Answer.SERVED_LATER, ["stillRunning"], id="still running"
        ),
        pytest.param(
            "2024-05-02T04:00", [LONG, AFTER_LONG], {}, Answer.RAN_LATE, ["stillRunning", "succeeded"], id="after it"
        ),
        pytest.param(
            "2024-05-02T08:00",
            [DAYS_BEFORE, AFTER_DOWNTIME],
            {},
            Answer.RAN_LATE,
            ["servedOnceForMany", "noDowntimeOnRecord", "succeeded"],
            id="late for no known reason",
        ),
        pytest.param("2024-02-01T02:30", [], {}, Answer.NOT_RUN, ["knownOnlySince"], id="known only since"),
        pytest.param(
            "2024-05-02T02:30",
            [],
            {"declarations": OVERRIDDEN, "alive": True},
            Answer.NOT_RUN,
            ["overridden"],
            id="overridden",
        ),
        pytest.param("2024-05-02T02:30", [], {"declarations": GONE}, Answer.NOT_RUN, ["orphaned"], id="orphaned"),
        pytest.param("2024-05-03T02:30", [], {"declarations": GONE}, Answer.NOT_RUN, ["orphaned"], id="no longer"),
        pytest.param(
            "2024-05-31T02:30",
            [],
            {"last_poll": at("2024-05-30T00:00")},
            Answer.OWED,
            ["schedulerStopped"],
            id="stopped",
        ),
        pytest.param("2024-05-31T02:30", [], {"alive": True}, Answer.OWED, ["noDowntimeOnRecord"], id="owed"),
        pytest.param(
            "2024-05-31T02:30",
            [],
            {"served_through": Minute(at("2024-05-31T02:30") // 1_000_000)},
            Answer.UNKNOWN,
            ["noRecord"],
            id="served, not on record",
        ),
        pytest.param(
            "2024-05-02T02:30",
            [],
            {"history_complete_since": at("2024-05-10T00:00")},
            Answer.UNKNOWN,
            ["historyTrimmed"],
            id="history no longer reaches back",
        ),
        pytest.param(
            "2024-05-02T02:30",
            [DAYS_BEFORE, AT_ONCE_AFTER_DOWNTIME],
            {**DOWN, "arrivals": [at("2024-03-01T00:00"), at("2024-05-02T02:30:01")]},
            Answer.RAN,
            ["schedulerStopped", "servedOnceForMany", "succeeded"],
            id="on time, and for earlier minutes",
        ),
        pytest.param("2024-06-02T02:30", [], {}, Answer.NOT_YET, ["notYet", "due"], id="still to come"),
        pytest.param("2024-06-02T02:31", [], {}, Answer.NOT_YET, ["notYet", "nearest"], id="to come, not due"),
    ],
)
def test_a_situation_and_its_explanation(
    when: str, runs: list[RunRecord], known: dict[str, Any], verdict: Answer, expected: list[str]
) -> None:
    """The reasons `explain` knows, each from durable state, history and cron algebra."""
    answer = ask(when, runs, **known)
    assert (answer.verdict, codes(answer)) == (verdict, expected)


def test_the_lateness_is_that_of_the_minute_asked_about() -> None:
    """A start that served several minutes is late by another time for each of them."""
    known = {**DOWN, "arrivals": [at("2024-03-01T00:00"), at("2024-05-02T02:30:01")]}
    assert ask("2024-05-02T02:30", [DAYS_BEFORE, AT_ONCE_AFTER_DOWNTIME], **known).headline == (
        "ran on time, for earlier minutes as well"
    )
    late = AT_ONCE_AFTER_DOWNTIME._replace(started_at=at("2024-05-02T02:30:31"))
    assert ask("2024-05-02T02:30", [DAYS_BEFORE, late], **known).headline == "ran, late by 31 s"
    assert ask("2024-05-01T02:30", [DAYS_BEFORE, late], **known).headline == "ran 1 d later, at 2024-05-02 02:30:31"


def test_a_minute_that_daylight_saving_skips() -> None:
    """SPEC 2.2: it does not exist, and is not missed."""
    answer = ask("2024-03-31T02:30")
    assert answer.verdict is Answer.NOT_RUN
    assert codes(answer) == ["skippedByDst", "nearest"]
    assert "2024-03-30 02:30 before it, 2024-04-01 02:30 after it" in texts(answer)
    assert ask("2024-03-31T02:31").verdict is Answer.NOT_DUE


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
    assert again.verdict is Answer.NOT_RUN
    assert codes(again) == ["repeatedByDst", "alreadyServed"]


def test_a_due_minute_that_took_the_place_of_a_retry() -> None:
    """SPEC 3.5: with the time of the retry that was not needed."""
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
    assert "last seen at 2024-04-30 12:00, back at 08:00" in texts(answer)


# --- hosts -----------------------------------------------------------------------------------------------------------


def cluster(**gone: Any) -> ClusterRecord:
    """Two hosts; the second one had its last beat at 02:31."""
    hosts = [
        StoredHost(
            key, f"{key:032x}", f"web-{key}", at("2024-05-01T00:00"), 30_000_000, 1, at("2024-05-02T02:31"), None
        )
        for key in (1, 2)
    ]
    hosts[1] = replace(hosts[1], **gone)
    return ClusterRecord(hosts, 1, at("2024-05-01T00:00"), {}, 9, None)


ONE, TWO = HostName(1, "web-1"), HostName(2, "web-2")
# Each host numbers its own runs, so the numbers have no order in time.
CUT_SHORT = ran("2024-05-02T02:30", outcome="interrupted", number=2 * 10**12 + 9)._replace(host=TWO)
REPEATED = ran("2024-05-02T02:33", "2024-05-02T02:34", cause="interrupted", scheduled="2024-05-02T02:30", number=10**12)
REPEATED = REPEATED._replace(host=ONE)


def test_a_run_of_a_shared_store_names_its_host() -> None:
    on_time = ran("2024-05-02T02:30", "2024-05-02T02:31", number=10**12 + 4)._replace(host=ONE)
    found = ask("2024-05-02T02:30", [on_time], cluster=cluster(), declarations=[declared(since="2024-05-02T00:00")])
    assert codes(found) == ["onTime", "ranOn", "succeeded"]
    assert found.reasons[1].text == "host 1 (web-1) ran it"
    assert found.reasons[1].facts == {"host": 1, "label": "web-1"}


def test_a_burial_is_the_reason_of_an_interruption_and_another_host_takes_the_task_over() -> None:
    """SPEC 9.5: the record of a host that was buried has its last beat."""
    known: dict[str, Any] = {"cluster": cluster(gone="buried"), "declarations": [declared(since="2024-05-02T00:00")]}
    found = ask("2024-05-02T02:30", [CUT_SHORT, REPEATED], **known)
    assert codes(found) == ["onTime", "ranOn", "interrupted", "hostBuried"]
    assert found.reasons[2].text == "it was cut short by a crash, and started again at 02:33"
    assert found.reasons[3].text == "host 2 (web-2) was buried: its last beat was at 02:31"
    found = ask("2024-05-02T02:33", [CUT_SHORT, REPEATED], **known)
    assert codes(found) == ["interruptedAndRestarted", "hostBuried", "ranOn", "takenOver", "succeeded"]
    assert found.reasons[3].text == "it took the task over from host 2 (web-2), which ran it before"
    assert found.reasons[3].facts == {"host": 1, "from": 2}


def holds(*times: tuple[str, str]) -> dict[str, Any]:
    """Evidence of a shared store in which host 1 held its callbacks at these times."""
    made = [Hold(at(since), at(until)) for since, until in times]
    return {"holds": lambda host, since, until: made if host == 1 else (), "cluster": cluster()}


def test_a_run_whose_steps_were_held_says_from_when_to_when() -> None:
    """SPEC 9.6: its host did not reach the store, and went on when it did."""
    run = ran("2024-05-02T02:30", "2024-05-02T02:40", number=10**12 + 4)._replace(host=ONE)
    found = ask("2024-05-02T02:30", [run], **holds(("2024-05-02T02:31:30", "2024-05-02T02:33:00")))
    assert codes(found)[-3:] == ["ranOn", "stepsHeld", "succeeded"]
    assert found.reasons[-2].text == (
        "host 1 (web-1) did not reach the store in time: from 02:31:30 to 02:33 it took no step of its coroutines"
    )
    since, until = (datetime.fromisoformat(f"2024-05-02T02:{when}+02:00") for when in ("31:30", "33:00"))
    assert found.reasons[-2].facts == {
        "host": 1,
        "label": "web-1",
        "since": since,
        "until": until,
        "times": 1,
        "heldMs": 90_000,
    }
    twice = holds(("2024-05-02T02:31:30", "2024-05-02T02:33:00"), ("2024-05-02T02:35:00", "2024-05-02T02:35:30"))
    held = ask("2024-05-02T02:30", [run], **twice).reasons[-2]
    assert held.text == (
        "host 1 (web-1) did not reach the store in time: between 02:31:30 and 02:35:30 it took no step of its "
        "coroutines 2 times, for 2 min in all"
    )
    assert (held.facts["times"], held.facts["heldMs"]) == (2, 120_000)
    elsewhere = run._replace(host=TWO)
    assert "stepsHeld" not in codes(ask("2024-05-02T02:30", [elsewhere], **twice))


def test_a_run_whose_steps_are_held_says_since_when() -> None:
    """SPEC 9.6: the last beat of its host was at 02:31, its lease is of half a minute, and it is not gone."""
    run = ran("2024-05-02T02:30", None, "running", number=10**12 + 4)._replace(host=ONE)
    found = ask("2024-05-02T02:30", [run], cluster=cluster(), now=at("2024-05-02T02:31:31"))
    assert codes(found)[-3:] == ["ranOn", "stepsHeld", "running"]
    assert found.reasons[-2].text == (
        "host 1 (web-1) has not reached the store in time: since 02:31:30 it takes no step of its coroutines"
    )
    assert found.reasons[-2].facts["until"] is None
    assert "stepsHeld" not in codes(ask("2024-05-02T02:30", [run], cluster=cluster(), now=at("2024-05-02T02:31:30")))
    ended = run._replace(outcome="success", ended_at=at("2024-05-02T02:31"))
    assert "stepsHeld" not in codes(ask("2024-05-02T02:30", [ended], cluster=cluster()))
    buried = cluster(gone="buried")
    assert "stepsHeld" not in codes(ask("2024-05-02T02:30", [run._replace(host=TWO)], cluster=buried))


def test_a_host_that_left_is_named_as_well() -> None:
    assert "hostLeft" in codes(ask("2024-05-02T02:30", [CUT_SHORT], cluster=cluster(gone="left")))
    assert not {"hostLeft", "hostBuried"} & set(codes(ask("2024-05-02T02:30", [CUT_SHORT], cluster=cluster())))


def test_without_a_host_nothing_ran() -> None:
    """In the words of hosts: they beat, and no single one is the scheduler."""
    alone: dict[str, Any] = {"cluster": cluster(), "last_poll": at("2024-05-02T02:31")}
    found = ask("2024-05-03T02:30", **alone)
    assert found.reasons[-1].text == "no host is running; the last beat was at 2024-05-02 02:31"
    back: dict[str, Any] = {
        "arrivals": [at("2024-05-03T07:00")],
        "last_sign_of_life": lambda before: at("2024-05-02T02:31"),
    }
    late = ran("2024-05-03T07:00", "2024-05-03T07:01", number=10**12 + 1)._replace(host=ONE)
    found = ask("2024-05-03T02:30", [late], cluster=cluster(), **back)
    assert "every host was down: last seen at 2024-05-02 02:31, back at 07:00" in [each.text for each in found.reasons]


def test_an_explanation_has_one_json_form() -> None:
    """The run in it has the form that `duly history` gives it; facts are times, numbers or null."""
    form = json_form(ask("2024-05-02T02:41", [FAILED, RETRIED]), BERLIN)
    assert list(form) == ["task", "at", "zone", "verdict", "headline", "reasons", "run"]
    assert (form["at"], form["zone"], form["verdict"]) == ("2024-05-02T02:41:00+02:00", "Europe/Berlin", "ran")
    assert form["reasons"][0] == {
        "code": "retry",
        "text": "a retry, due at 02:41: the run of 02:30 had failed at 02:31, and the delay is 10 min",
        "facts": {"retryAt": "2024-05-02T02:41:00+02:00", "latenessMs": 0},
    }
    assert (form["run"]["runId"], form["run"]["latenessMs"], form["run"]["durationMs"]) == (2, 0, 60_000)
    assert json_form(ask("2024-05-02T02:35"), BERLIN)["run"] is None


@pytest.mark.parametrize(("runs", "told"), [(6, 6), (7, 5), (60, 5)])
def test_of_many_runs_of_one_minute_the_first_and_the_last_are_told(runs: int, told: int) -> None:
    """A retry delay of a second made a list of 179 reasons."""
    story = [ran("2024-05-02T02:30:00", "2024-05-02T02:30:00", "failure")]
    story += [
        ran(f"2024-05-02T02:30:{n:02}", f"2024-05-02T02:30:{n:02}", "failure", "retry", f"2024-05-02T02:30:{n:02}")
        for n in range(1, runs)
    ]
    answer = ask("2024-05-02T02:30", story)
    assert codes(answer).count("failed") == told
    counted = [reason for reason in answer.reasons if reason.code == "moreRuns"]
    assert [reason.facts for reason in counted] == ([{"runs": runs - 5, "failed": runs - 5}] if told < runs else [])
    assert [reason.text for reason in counted] == (
        [f"{runs - 5} more runs began in this minute, and all of them failed"] if told < runs else []
    )
    last = [reason for reason in answer.reasons if reason.code == "failed"][-1]
    assert last.facts["runId"] == runs


def test_of_runs_that_are_only_counted_it_is_said_how_many_failed() -> None:
    outcomes = ["failure"] * 6 + ["success"] * 3
    runs = [
        ran(f"2024-05-02T02:30:{n:02}", f"2024-05-02T02:30:{n:02}", outcome, "retry" if n else "cron")
        for n, outcome in enumerate(outcomes)
    ]
    assert "4 more runs began in this minute, and 2 of them failed" in texts(ask("2024-05-02T02:30", runs))
    runs = [run._replace(outcome="success", error=None) for run in runs]
    assert "4 more runs began in this minute\n" in texts(ask("2024-05-02T02:30", runs))


def test_every_documented_reason_is_expected_in_a_test() -> None:
    """Codes are for programs: docs/reference/json.md lists them, and each is expected in a test above."""
    documented = {each for codes, _, _ in rows(sections("json.md")["Reasons"]) for each in code(codes)}
    assert len(documented) > 20
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [each for each in sorted(documented) if f'"{each}"' not in tests] == []


def test_without_a_history_the_explanation_says_that_none_is_kept() -> None:
    """With `--history 0` nothing ever reaches back."""
    now = at("2024-06-01T00:00")
    assert "no history is kept (--history 0)" in texts(ask("2024-05-02T02:30", history_complete_since=now))
    assert "no longer reaches back" in texts(ask("2024-05-02T02:30", history_complete_since=Instant(now - 1)))


def test_a_minute_during_a_run_that_goes_on_is_said_to_start_when_it_ends() -> None:
    """Asked while the run is under way."""
    answer = ask("2024-05-03T02:30", [UNDER_WAY])
    assert "the run of 2024-05-02 02:30 is still running; what falls due meanwhile starts when it ends" in texts(answer)
