"""Every page shows what the store holds, whatever is in it, and an answer to whatever is asked."""

import asyncio
import contextlib
import html
import json
import platform
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from urllib.parse import quote
from zoneinfo import ZoneInfo

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from duly.core.moments import MICROSECONDS, as_datetime, instant_of
from duly.insight.health import Examination
from duly.stores.port import RunSelection
from duly.stores.sqlite import schema
from duly.testing import SimulatedHost
from duly.web import dashboard
from duly.web.app import over
from duly.web.child import NotAnsweredError
from duly.web.display import marked
from duly.web.frame import Settings
from tests.stores.helpers import change
from tests.stores.made import Row, make_store
from tests.web.conftest import Asking, Stage, client
from tests.web.hostile import MARKUP, NAMES
from tests.web.stage import FixedClock

AT = 1_790_000_000 * MICROSECONDS
FAILING = "partners/sync-acme-mirror"
PAGES = (
    "/",
    "/tasks",
    f"/task?name={FAILING}",
    "/runs",
    "/calendar",
    "/next?cron=30+2+*+*+*",
    "/whatif",
    "/verify",
    "/about",
)


async def pages_of(app: ASGIApp, *places: str) -> list[httpx.Response]:
    async with client(app) as opened:
        return [await opened.get(place) for place in places]


async def page_of(app: ASGIApp, place: str, status: int = 200) -> str:
    (answer,) = await pages_of(app, place)
    assert answer.status_code == status, answer.text
    return answer.text


def said(page: str) -> str:
    """The text of a page without its markup, on one line."""
    text = re.sub(r"<(script|svg).*?</\1>", " ", page.replace("<wbr>", ""), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def rows_of(page: str) -> list[str]:
    """The rows of all tables, as text."""
    return [said(row) for row in re.findall(r"<tr[ >].*?</tr>", page, re.DOTALL)]


def task_names(page: str) -> list[str]:
    """The names in a list of tasks."""
    return re.findall(r'name">\s*<a href="[^"]*">([^<]*)</a>', page.replace("<wbr>", ""))


def tiles_of(page: str) -> dict[str, str]:
    found = re.findall(r'<span class="n">(.*?)</span><span class="l">(.*?)</span>', page)
    return {label: number for number, label in found}


# --- overview --------------------------------------------------------------------------------------------------------


async def test_the_overview_has_the_numbers_that_status_has(stage: Stage) -> None:
    """SPEC 10.4: one function, two callers, equal verdicts."""
    page = await page_of(stage.dashboard(), "/")
    health = stage.reader.read(lambda view: Examination(view, stage.clock.zone()).health)
    tiles = tiles_of(page)
    assert tiles["tasks"] == str(health.tasks) == "14"
    assert tiles["owed, not interrupted"] == str(health.counts["owed"])
    assert tiles["interrupted"] == str(health.counts["interrupted"])
    assert ("Healthy" in said(page)) == health.healthy
    for problem in health.problems:
        assert problem.text in said(page)


AGAIN_WITHOUT_SCRIPT = '<noscript><meta http-equiv="refresh" content="5"></noscript>'


async def test_before_the_first_sample_nothing_is_shown_as_fine(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown figure is neither 0 nor healthy."""
    monkeypatch.setattr("duly.web.sampler.Sampler._take", lambda self: None)
    monkeypatch.setattr("duly.web.source.FIRST_SAMPLE_SECONDS", 0.01)
    app = stage.dashboard()
    page = said(await page_of(app, "/"))
    assert "Counting …" in page
    assert "Healthy" not in page
    assert "Nothing fails" not in page
    assert set(tiles_of(await page_of(app, "/")).values()) == {"…"}
    assert "tasks … runs on record … runs so far …" in said(await page_of(app, "/about"))
    assert "Counting …" in said(await page_of(app, "/tasks?state=owed"))
    assert "Counting …" in said(await page_of(app, "/tasks?sort=next"))
    for place in ("/", "/calendar", "/tasks?state=owed"):
        assert AGAIN_WITHOUT_SCRIPT in await page_of(app, place)
    assert AGAIN_WITHOUT_SCRIPT not in await page_of(app, "/tasks")
    monkeypatch.setattr("duly.web.api._HEALTH_SECONDS", 0.01)
    answer = json.loads(await page_of(app, "/api/v1/health", 503))
    assert (answer["healthy"], answer["problems"][0]["code"]) == (None, "counting")


async def test_a_blank_name_is_seen_in_the_verdict(tmp_path: Path, stage: Stage) -> None:
    """As in lists: between quotation marks."""
    app = Stage(make_store(tmp_path / "s.db", [Row(" "), Row("a")]), stage.clock).dashboard()
    assert '" ", a overdue, by' in said(await page_of(app, "/"))


async def test_hours_before_history_are_said_to_be_unknown(stage: Stage, tmp_path: Path) -> None:
    page = await page_of(stage.dashboard(), "/")
    assert "not known" not in said(page)
    young = make_store(tmp_path / "young.db", [Row("yearly", "0 0 1 1 *"), Row("daily", "30 18 * * *")])
    page = said(await page_of(Stage(young, stage.clock).dashboard(), "/"))
    assert "not known" in page
    assert "Nothing has run yet; the next start is 18:30 ( daily )." in page
    assert "Nothing is due in the next hour." in page


async def test_failures_and_interruptions_are_listed_with_their_errors(stage: Stage) -> None:
    page = await page_of(stage.dashboard(), "/")
    troubles = page.partition('id="troubles"')[2]
    assert len(rows_of(troubles)) == 11
    assert "ConnectionError" in said(troubles)


# --- tasks -----------------------------------------------------------------------------------------------------------


async def test_the_list_pages_through_all_tasks_forwards_and_backwards(tmp_path: Path, stage: Stage) -> None:
    names = [f"task-{number:03}" for number in range(120)]
    path = make_store(tmp_path / "many.db", [Row(name) for name in names])
    async with client(Stage(path, stage.clock).dashboard()) as opened:

        async def walk(place: str, relation: str) -> list[list[str]]:
            found = []
            while place:
                page = (await opened.get(place)).text
                found.append(re.findall(r'name">\s*<a href="/task\?name=([^"]*)"', page))
                links = re.findall(rf'href="([^"]*)" rel="{relation}"', page)
                place = html.unescape(links[0]) if links else ""
            return found

        forwards = await walk("/tasks", "next")
        assert [len(page) for page in forwards] == [50, 50, 20]
        assert [name for page in forwards for name in page] == names
        backwards = await walk("/tasks?before=0~task-999", "prev")
        assert [name for page in reversed(backwards) for name in page] == names


@pytest.mark.parametrize("sort", ["next", "failure", "failures"])
async def test_each_order_pages_without_a_gap(tmp_path: Path, stage: Stage, sort: str) -> None:
    """Ties are decided by name, on the next page too."""
    at = stage.clock.now()
    crons = ("0 * * * *", "30 2 * * *", "* * * * *")
    rows = [
        Row(f"t{n:03}", crons[n % 3], last_attempt_at=at - 9, last_failure_at=at - n // 40, failures=1 + n // 30,
            pending_retry_until=at + 1, served_through=at // MICROSECONDS)
        for n in range(120)
    ]  # fmt: skip
    app = Stage(make_store(tmp_path / "many.db", rows), stage.clock).dashboard()
    found: list[str] = []
    async with client(app) as opened:
        place = f"/tasks?sort={sort}"
        while place:
            page = (await opened.get(place)).text
            found += re.findall(r'name">\s*<a href="/task\?name=([^"]*)"', page)
            links = re.findall(r'href="([^"]*)" rel="next"', page)
            place = html.unescape(links[0]) if links else ""
    soonest = ("* * * * *", "0 * * * *", "30 2 * * *")
    keys: dict[str, Callable[[int], int]] = {
        "next": lambda n: soonest.index(rows[n].cron),
        "failure": lambda n: n // 40,
        "failures": lambda n: -(n // 30),
    }
    assert found == [f"t{n:03}" for n in sorted(range(120), key=lambda n: (keys[sort](n), f"t{n:03}"))]


async def test_a_search_finds_parts_of_names_and_takes_no_letter_for_a_pattern(hostile_stage: Stage) -> None:
    app = hostile_stage.dashboard()
    assert len(rows_of(await page_of(app, "/tasks?q=%25_"))) == 2  # the heading, and the one task called %_\
    assert len(rows_of(await page_of(app, "/tasks?q=ALERT"))) == 5
    assert "No task matches nobody." in said(await page_of(app, "/tasks?q=nobody"))


async def test_a_name_that_was_almost_right_is_suggested(stage: Stage) -> None:
    app = stage.dashboard()
    assert "Did you mean mail/newsletter" in said(await page_of(app, "/tasks?q=mail/newsleter"))
    assert "Did you mean mail/newsletter" in said(await page_of(app, "/task?name=mail/newsleter", 404))
    assert "Did you mean mail/newsletter" in said(await page_of(app, "/runs?task=mail/newsleter", 404))


async def test_filters_show_their_tasks_and_no_others(stage: Stage) -> None:
    app = stage.dashboard()
    everything = stage.reader.read(lambda view: list(Examination(view, stage.clock.zone()).all_tasks()))

    async def named(state: str) -> list[str]:
        return task_names(await page_of(app, f"/tasks?state={state}"))

    for state in ("interrupted", "retrying", "running"):
        assert await named(state) == sorted(task.task for task in everything if task.state == state)
    assert await named("failing") == sorted(task.task for task in everything if task.failures)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("sort=failures", "None of these tasks failed in its latest run."),
        ("sort=failure", "None of these tasks has failed."),
        ("sort=failures&state=running", "Nothing runs."),
        ("sort=failures&state=retrying", "No task waits for a retry."),
        ("sort=failures&q=heart", "None of these tasks failed in its latest run."),
        ("after=0~zzzzz", "No task of this list comes after this place. To its beginning"),
        ("before=0~a", "No task of this list comes before this place. To its beginning"),
        ("after=0~zzzzz&state=failing", "Nothing fails."),
        ("sort=next&after=99999999999~z", "No task of this list comes after this place. To its beginning"),
        ("q=heart&state=failing", "No task that matches heart fails."),
        ("q=heart&state=never", "Every task that matches heart has run."),
        ("q=heart&state=owed", "No task that matches heart is owed."),
        ("q=heartbaet&state=failing", "No task matches heartbaet. Did you mean heartbeat ?"),
        ("q=heartbaet&after=0~a", "No task matches heartbaet. Did you mean heartbeat ?"),
        ("state=owed", "Nothing is owed."),
    ],
)
async def test_an_empty_list_denies_no_more_than_was_asked_for(
    tmp_path: Path, stage: Stage, query: str, sentence: str
) -> None:
    """An empty page denies nothing that was not asked for: the store has a task, which is well."""
    at = stage.clock.now()
    row = Row(
        "heartbeat",
        served_through=at // MICROSECONDS,
        last_attempt_at=at - 9 * MICROSECONDS,
        last_success_at=at - 8 * MICROSECONDS,
    )
    app = Stage(make_store(tmp_path / "s.db", [row]), stage.clock).dashboard()
    page = said(await page_of(app, f"/tasks?{query}"))
    assert sentence in page
    assert ("Did you mean" in page) == ("Did you mean" in sentence)
    assert "The store has no tasks." not in page


async def test_an_empty_store_says_so(tmp_path: Path, stage: Stage) -> None:
    app = Stage(make_store(tmp_path / "s.db", []), stage.clock).dashboard()
    for query in ("", "?sort=failures", "?after=0~a", "?state=running", "?sort=next"):
        assert "The store has no tasks. " in said(await page_of(app, f"/tasks{query}"))


async def test_every_owed_task_is_reached_by_name(tmp_path: Path, stage: Stage) -> None:
    """The first list has the longest owed alone, and leads to all of them; a search looks among all."""
    minute = stage.clock.now() // MICROSECONDS // 60 * 60
    rows = [Row(f"t{number:03}", served_through=minute - 60 * (300 - number)) for number in range(250)]
    app = Stage(make_store(tmp_path / "s.db", rows), stage.clock).dashboard()
    first = await page_of(app, "/tasks?state=owed")
    assert "all by name 250 tasks · Longest owed first. These are the 200 longest owed." in said(first)
    assert task_names(first) == [f"t{number:03}" for number in range(200)]
    (place,) = re.findall(r'href="([^"]*)">all by name', first)
    found, backwards = list[str](), list[str]()
    while True:
        page = await page_of(app, html.unescape(place))
        assert "250 tasks" in said(page)
        found += task_names(page)
        if (later := re.search(r'href="([^"]*)" rel="next"', page)) is None:
            break
        place = later[1]
    assert found == [f"t{number:03}" for number in range(250)]
    while (earlier := re.search(r'href="([^"]*)" rel="prev"', page)) is not None:
        page = await page_of(app, html.unescape(earlier[1]))
        backwards = task_names(page) + backwards
    assert backwards == found[:200]
    assert task_names(await page_of(app, "/tasks?state=owed&q=T249")) == ["t249"]
    assert task_names(await page_of(app, "/tasks?state=owed&after=0~t247")) == ["t248", "t249"]
    by_name = said(await page_of(app, "/tasks?state=owed&sort=name"))
    assert said(await page_of(app, "/tasks?state=owed&sort=next")) == by_name  # each of them is next at once


async def test_owed_tasks_of_too_many_expressions_are_said_to_be_left_out(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is not complete says so; a ripe retry is in it, whatever its expression."""
    monkeypatch.setattr("duly.insight.health._OWING_MAX", 1)
    at = stage.clock.now()
    ripe = Row("ripe", "0 * * * *", last_attempt_at=9, last_failure_at=10, pending_retry_until=at - 1, failures=1)
    rows = [Row("a", "* * * * *"), Row("b", "0 * * * *"), Row("c", "0 * * * *"), ripe]
    app = Stage(make_store(tmp_path / "s.db", rows), stage.clock).dashboard()
    page = await page_of(app, "/tasks?state=owed&sort=name")
    assert task_names(page) in (["a", "ripe"], ["b", "c", "ripe"])
    left_out = 4 - len(task_names(page))
    assert f"{left_out} tasks are left out: too many different expressions owe something." in said(page)
    async with client(app) as opened:
        document = (await opened.get("/api/v1/tasks?state=owed")).json()
    assert (len(document["tasks"]), document["tasksLeftOut"]) == (4 - left_out, left_out)


async def test_interrupted_tasks_are_owed_too(tmp_path: Path, stage: Stage) -> None:
    """SPEC 8. `status` gives interrupted tasks a state of their own, and pages say that owed ones are without them."""
    at = stage.clock.now()
    cut = Row(
        "cut", served_through=at // MICROSECONDS, last_attempt_at=at - 9, run=1, run_cause="cron", run_scheduled=1
    )
    rows = [Row("owed"), cut, replace(cut, name="short", run=2)]
    app = Stage(make_store(tmp_path / "s.db", rows), stage.clock).dashboard()
    tiles = tiles_of(await page_of(app, "/"))
    assert (tiles["owed, not interrupted"], tiles["interrupted"]) == ("1", "2")
    assert re.search(r"^duly_tasks_owed\{.*\} 3", await page_of(app, "/metrics"), re.MULTILINE)
    owed = said(await page_of(app, "/tasks?state=owed"))
    assert "1 task · Longest owed first. Interrupted tasks are owed, too, and have a list of their own: 2." in owed
    nothing = said(await page_of(app, "/tasks?state=owed&q=cut"))
    assert "No task that matches cut is owed, interrupted ones aside." in nothing


async def test_ripe_retries_are_in_the_list_of_retries_and_said_to_be_owed(tmp_path: Path, stage: Stage) -> None:
    at = stage.clock.now()
    ripe = Row(
        "ripe",
        served_through=at // MICROSECONDS,
        last_attempt_at=at - 9,
        last_failure_at=at - 8,
        pending_retry_until=at - 1,
        failures=1,
    )
    rows = [ripe, replace(ripe, name="later", pending_retry_until=at + 60 * MICROSECONDS)]
    app = Stage(make_store(tmp_path / "s.db", rows), stage.clock).dashboard()
    page = await page_of(app, "/tasks?state=retrying")
    assert len(rows_of(page)) == 3
    assert "Tasks that are owed are among them" in said(page)
    assert "1 task" not in said(page)  # so many are counted as waiting for a retry


async def test_interruptions_of_the_past_are_not_denied(tmp_path: Path) -> None:
    """Nothing is interrupted now; history has a run that was."""
    path = make_store(tmp_path / "s.db", [Row("a")], [(1, 1, "cron", 1, 1, None, "interrupted", None)])
    page = said(await page_of(dashboard(path), "/tasks?state=interrupted"))
    assert "No task is interrupted now." in page


# --- one task --------------------------------------------------------------------------------------------------------


async def test_a_task_has_its_days_durations_next_starts_explanation_and_runs(stage: Stage) -> None:
    page = await page_of(stage.dashboard(), f"/task?name={quote(FAILING, safe='')}")
    text = said(page)
    assert "at minutes 16 and 46 of every hour" in text
    assert "ConnectionError" in text
    assert 'aria-label="The last 14 days, a row each:' in page
    assert "without a scheduler" in page
    assert len(rows_of(page.partition('id="runs"')[2])) == 26
    assert f"duly history {FAILING} --store" in text


def label_of(page: str) -> str:
    """The words of the picture of fourteen days, for those who do not see it."""
    labels: list[str] = re.findall(r'aria-label="(The last 14 days, a row each: [^"]*)"', page)
    assert len(labels) == 1
    return labels[0]


async def test_a_restart_between_two_due_minutes_is_no_outage(tmp_path: Path) -> None:
    """A scheduler with nothing to start gives no sign of life, and one that stops leaves none."""

    async def work() -> None: ...

    path = tmp_path / "state.db"
    daily = [("nightly", "30 2 * * *", work, timedelta(minutes=1))]
    async with SimulatedHost("2026-10-20T00:00", "UTC", store=path) as host:
        for day in range(21, 27):
            scheduler = host.scheduler()
            await scheduler.initialize(daily)
            await host.advance_to(datetime(2026, 10, day, 16, tzinfo=UTC))
            await scheduler.stop()
            await host.advance(seconds=5)
    at = instant_of(datetime(2026, 10, 26, 16, 1, tzinfo=UTC))
    page = await page_of(Stage(path, FixedClock(at, UTC)).dashboard(), "/task?name=nightly")
    assert label_of(page) == "The last 14 days, a row each: 7 success."


async def test_an_outage_is_shown_however_often_schedulers_were_restarted_since(tmp_path: Path) -> None:
    """A minute was due in it, and nothing started; forty deploys have no time without a scheduler."""

    async def work() -> None: ...

    path = tmp_path / "state.db"
    hourly = [("hourly", "0 * * * *", work, timedelta(minutes=1))]
    async with SimulatedHost("2026-10-25T00:30", "UTC", store=path) as host:
        scheduler = host.scheduler()
        await scheduler.initialize(hourly)
        await host.advance(hours=2)
        await scheduler.stop()
        await host.advance(hours=9)
        for _ in range(40):
            scheduler = host.scheduler()
            await scheduler.initialize(hourly)
            await host.advance(minutes=10)
            await scheduler.stop()
            await host.advance(seconds=30)
        at = instant_of(host.now)
    page = await page_of(Stage(path, FixedClock(at, UTC)).dashboard(), "/task?name=hourly")
    assert label_of(page).endswith(" success. 1 time without a scheduler.")


async def test_a_run_that_began_before_the_days_is_drawn(tmp_path: Path) -> None:
    """A task never overlaps itself, so there is one at most."""
    day = 86_400 * MICROSECONDS
    run = (1, 1, "cron", AT - 20 * day, AT - 20 * day, AT - 10 * day, "success", None)
    path = make_store(tmp_path / "state.db", [Row("long", known_since=AT - 30 * day)], [run])
    page = await page_of(Stage(path, FixedClock(AT, UTC)).dashboard(), "/task?name=long")
    assert label_of(page).startswith("The last 14 days, a row each: 1 success.")
    assert '<path class="f-success"' in page


async def test_runs_that_are_not_drawn_are_no_free_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that fails every five seconds has more runs than a picture can show."""
    monkeypatch.setattr("duly.web.task._RUNS_DRAWN_MAX", 5)
    hour = 3_600 * MICROSECONDS
    starts = [AT - hours * hour for hours in range(20, 0, -1)]
    runs = [(number, 1, "cron", at, at, at + 1, "failure", None) for number, at in enumerate(starts, 1)]
    path = make_store(tmp_path / "state.db", [Row("often", "0 0 1 1 *", known_since=starts[0])], runs)
    page = await page_of(Stage(path, FixedClock(AT, UTC)).dashboard(), "/task?name=often")
    assert label_of(page) == "The last 14 days, a row each: 5 failure, the latest 5 runs alone."
    assert "Only the latest 5 runs are drawn; the time before them is hatched." in said(page)
    assert 'fill="url(#hatch-days)"' in page


async def test_a_task_has_commands_for_a_terminal(stage: Stage, hostile_stage: Stage) -> None:
    """Copyable: quoted for a shell. A name that no terminal can take has none."""
    page = await page_of(stage.dashboard(), "/task?name=cache/warm&at=2026-10-26T12:31")
    assert f"duly explain cache/warm --at 2026-10-26T12:31 --store {stage.path}" in page
    assert f"duly history cache/warm --store {stage.path}" in page
    assert "duly next &#39;1,31 * * * *&#39;" in page
    app = hostile_stage.dashboard()
    quoted = await page_of(app, f"/task?name={quote(NAMES[2], safe='')}")
    assert f"duly history {shlex.quote(NAMES[2])} --store" in html.unescape(quoted)
    assert "In a terminal" not in await page_of(app, f"/task?name={quote(NAMES[4], safe='')}")


async def test_a_long_name_is_cut_and_has_two_thousand_characters_in_its_title(hostile_stage: Stage) -> None:
    """WEB 6.5. A name may have millions of characters; a page lists fifty."""
    page = await page_of(hostile_stage.dashboard(), "/tasks")
    shown = re.findall(r'<span title="(x+)[^"]*">(x+)…</span>', page)
    assert [(len(title) >= 1_900, len(cut) < 130) for title, cut in shown] == [(True, True)]


async def test_a_name_that_a_narrow_column_cuts_has_a_title(tmp_path: Path, stage: Stage) -> None:
    """After three lines, on a phone; the page of the task has all of it."""
    name = "exports/" + "quarterly-" * 5
    app = Stage(make_store(tmp_path / "s.db", [Row(name), Row("short")]), stage.clock).dashboard()
    page = await page_of(app, "/tasks")
    assert f'<span title="{name}">' in page
    assert 'title="short"' not in page
    assert name in said(await page_of(app, f"/task?name={name}"))


async def test_the_answer_about_a_run_that_failed_has_the_colour_of_a_failure(stage: Stage) -> None:
    """That it ran on time is true, and no success."""
    app = stage.dashboard()
    runs = stage.reader.read(lambda view: list(view.runs(RunSelection(FAILING))))
    failed = next(run for run in runs if run.outcome == "failure" and run.cause == "cron")
    at = as_datetime(failed.started_at, stage.clock.zone())
    page = await page_of(app, f"/task?name={quote(FAILING)}&at={at:%Y-%m-%dT%H:%M}")
    assert '<div class="why w-failure">' in page


async def test_a_minute_without_a_scheduler_is_explained(stage: Stage) -> None:
    """The outage began 1.8 days after the first start, and lasted nine hours."""
    begin = stage.clock.now() - int(3 * 0.4 * 86_400) * MICROSECONDS
    at = f"{as_datetime(begin + 3 * 3600 * MICROSECONDS, stage.clock.zone()):%Y-%m-%dT%H}:16"
    text = said(await page_of(stage.dashboard(), f"/task?name={FAILING}&at={at}"))
    assert "the scheduler was down" in text


async def test_a_change_of_the_clock_stands_between_the_next_starts(tmp_path: Path) -> None:
    """2027-03-28 has no 02:30 in Berlin."""
    berlin = ZoneInfo("Europe/Berlin")
    clock = FixedClock(instant_of(datetime(2027, 3, 26, 12, tzinfo=berlin)), berlin)
    row = Row("nightly", "30 2 * * *", served_through=clock.now() // MICROSECONDS)
    path = make_store(tmp_path / "s.db", [row], zone="Europe/Berlin")
    text = said(await page_of(Stage(path, clock).dashboard(), "/task?name=nightly"))
    assert "02:30 does not exist: clocks go forward" in text


async def test_marks_of_the_timeline_lead_to_their_run_or_to_the_explanation_of_their_minute(stage: Stage) -> None:
    app, name = stage.dashboard(), "users/sync-crm"
    page = await page_of(app, f"/task?name={name}")
    links = [html.unescape(link) for link in re.findall(r'<a href="([^"]*)" tabindex="-1">', page)]
    runs = {run.run_id for run in stage.reader.read(lambda view: list(view.runs(RunSelection(name))))}
    assert {int(link.partition("#run-")[2]) for link in links if "#run-" in link} == runs
    assert len(runs) > 50
    for link in [link for link in links if "#run-" in link][:3]:
        (first, *_) = re.findall(r'<tr id="(run-\d+)"', await page_of(app, link))
        assert first == link.partition("#")[2]
    unserved = [link for link in links if link.endswith("#why")]
    assert len(unserved) >= 8  # an outage of nine hours
    assert "the scheduler was down" in said(await page_of(app, unserved[len(unserved) // 2]))


async def test_hours_of_a_timeline_with_very_many_marks_lead_to_their_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of every minute has 20,160 marks: links for all of them would be megabytes."""
    monkeypatch.setattr("duly.web.task._TARGETS_MAX", 10)
    app, name = stage.dashboard(), "cache/warm"
    page = await page_of(app, f"/task?name={name}")
    links = [html.unescape(link) for link in re.findall(r'<a href="([^"]*)" tabindex="-1">', page)]
    assert 40 < len(links) < 14 * 24
    assert "which are too many to be marks of their own" in said(page)
    runs, unserved = [each for each in links if "#why" not in each], [each for each in links if "#why" in each]
    assert len(unserved) >= 8  # an outage of nine hours: hours without runs
    assert len({link.rpartition("T")[0] for link in unserved}) <= 2
    found = [row for link in runs for row in re.findall(r'<tr id="run-\d+"', await page_of(app, link))]
    assert len(found) == stage.reader.read(lambda view: view.count_runs(RunSelection(name)))


async def test_minutes_without_a_run_lead_to_their_explanation_however_many_they_are(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that went three weeks ago: the page has no run to lead to, and says nothing of runs."""
    day = 86_400 * MICROSECONDS
    row = Row("import", cron="0,30 * * * *", known_since=AT - 30 * day, served_through=(AT - 21 * day) // MICROSECONDS)
    run = (1, 1, "cron", AT - 21 * day, AT - 21 * day, AT - 21 * day, "success", None)
    app = Stage(make_store(store, [row], [run]), FixedClock(AT, ZoneInfo("UTC"))).dashboard()
    page = await page_of(app, "/task?name=import")
    assert "a mark leads to its run, or to why nothing ran" in said(page)
    links = [html.unescape(link) for link in re.findall(r'<a href="([^"]*)" tabindex="-1">', page)]
    hours = {re.search(r"at=([^&#]*?)%3A00", link)[1] for link in links}  # type: ignore[index]
    assert len(hours) == len(links) > 13 * 24  # 650 marks: a link for each hour
    monkeypatch.setattr("duly.web.task._TARGETS_MAX", 1000)
    links = re.findall(r'<a href="([^"]*)" tabindex="-1">', await page_of(app, "/task?name=import"))
    assert len(links) >= 2 * len(hours) - 2


async def test_a_task_that_is_no_longer_declared_is_shown_from_history(store: Path, asking: Asking) -> None:
    async def work() -> None: ...

    async with SimulatedHost("2026-10-26T12:00:30", "UTC", store=store) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("gone", "* * * * *", work, timedelta(minutes=1))])
        await host.advance(minutes=3)
        await scheduler.initialize([("kept", "* * * * *", work, timedelta(minutes=1))])
        await host.advance(minutes=1)
        await scheduler.stop()
    page = await page_of(dashboard(store), "/task?name=gone")
    assert "no longer declared" in said(page)
    assert len(rows_of(page.partition('id="runs"')[2])) == 5
    assert "no longer declared" not in said(await page_of(dashboard(store), "/task?name=kept"))


async def test_runs_of_a_task_go_on_page_after_page(stage: Stage) -> None:
    async with client(stage.dashboard()) as opened:
        place, found = f"/task?name={FAILING}", list[int]()
        while place:
            page = (await opened.get(place)).text.partition('id="runs"')[2]
            found += map(int, re.findall(r'<tr id="run-(\d+)"', page))
            links = re.findall(r'href="([^"]*)" rel="next"', page)
            place = html.unescape(links[0]) if links else ""
    expected = stage.reader.read(lambda view: [run.run_id for run in view.runs(RunSelection(FAILING))])
    assert found == expected
    assert len(found) > 60


# --- runs ------------------------------------------------------------------------------------------------------------


async def test_runs_are_filtered_by_task_outcome_cause_and_time(stage: Stage) -> None:
    app = stage.dashboard()
    page = await page_of(app, f"/runs?task={FAILING}&outcome=failure&cause=retry&since=1d")
    rows = rows_of(page)[1:]
    assert rows
    assert all("failure" in row and "retry" in row for row in rows)
    assert "No run matches" in said(await page_of(app, "/runs?until=2020-01-01"))


async def test_a_page_says_that_a_long_history_takes_its_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("/runs", f"/task?name={FAILING}")
    app = stage.dashboard()
    await page_of(app, "/metrics")  # which waits until the tasks are counted
    for place in places:
        assert "History is long" not in await page_of(app, place)
    monkeypatch.setattr("duly.web.sampler.LONG_HISTORY", 10)
    for place in places:
        assert "History is long" in await page_of(app, place)


# --- what comes ------------------------------------------------------------------------------------------------------


async def test_the_calendar_has_every_start_of_the_week(tmp_path: Path, stage: Stage) -> None:
    rows = [Row("a", "0 12 * * *"), Row("b", "0 12 * * *"), Row("c", "30 * * * *")]
    path = make_store(tmp_path / "s.db", rows, zone="Europe/Berlin")
    page = await page_of(Stage(path, stage.clock).dashboard(), "/calendar")
    assert f"{2 * 7 + 24 * 7} starts in seven days" in said(page)
    assert f'aria-label="{2 * 7 + 24 * 7} starts in 8 days, at most 2 in one minute."' in page
    assert f'aria-label="{2 + 24} starts in 24 hours, at most 2 in one minute."' in page
    hours = rows_of(page.partition('id="day"')[2].partition('id="busiest"')[0])[1:]
    assert len(hours) == 24
    assert sum(int(row.split()[-2]) for row in hours) == 2 + 24
    assert rows_of(page.partition('id="busiest"')[2])[1] == "Tue 12:00 2"
    later = await page_of(Stage(path, stage.clock).dashboard(), "/calendar?from=2027-01-01")
    assert "2027-01-01 12:00 2" in rows_of(later)


async def test_an_expression_is_explained_or_corrected(stage: Stage) -> None:
    app = stage.dashboard()
    text = said(await page_of(app, "/next?cron=30+2+*+*+*&tz=Europe/Berlin&from=2027-03-27"))
    assert "Runs at 02:30 every day, in Europe/Berlin." in text
    assert "02:30 does not exist: clocks go forward" in text
    wrong = said(await page_of(app, "/next?cron=*/5+*+*+*+*"))
    assert "not a POSIX cron expression" in wrong
    assert "0,5,10" in wrong  # what to write instead
    assert "Five fields" in said(await page_of(app, "/next"))


async def test_pages_are_made_where_duly_is_not_installed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from its sources: there is no version then, and everything else is there."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("duly.web.display.version", missing)
    assert "duly unknown" in said(await page_of(stage.dashboard(), "/about"))
    assert 'version="unknown"' in await page_of(stage.dashboard(), "/metrics")


async def test_about_says_how_far_history_reaches(stage: Stage) -> None:
    app = stage.dashboard()
    await page_of(app, "/metrics")  # which waits until the tasks are counted
    text = said(await page_of(app, "/about"))
    extent = stage.reader.read(lambda view: view.extent())
    assert f"runs on record {extent.runs:,}" in text
    assert f"layout {schema.VERSION}" in text


async def test_about_names_the_versions_in_use_and_explains_the_columns(stage: Stage) -> None:
    text = said(await page_of(stage.dashboard(), "/about"))
    assert f"Python {platform.python_implementation()} {platform.python_version()}" in text
    assert f"database SQLite {sqlite3.sqlite_version}" in text
    for column in ("next when it starts", "owed since the", "failures in a row the", "missed due", "skipped minutes",
                   "repeated minutes"):  # fmt: skip
        assert column in text


async def test_the_colours_of_the_calendar_are_explained(tmp_path: Path, stage: Stage) -> None:
    """Quantiles of the busiest minutes: an even load has one colour."""
    rows = [Row("a"), *(Row(f"b{number}", "0 4 * * *") for number in range(3))]
    app = Stage(make_store(tmp_path / "s.db", rows), stage.clock).dashboard()
    page = await page_of(app, "/calendar")
    assert said(page.partition('<ul class="heat"')[2].partition("</ul>")[0]).endswith(
        "the quieter half of the hours: up to 1 start in a minute "
        "the busiest hours: up to 4 starts in a minute no start"
    )
    assert 'class="b1"' in page
    assert 'class="b4"' in page
    assert 'class="b2"' not in page


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("/tasks?state=sleepy", "state is 'sleepy', and must be one of failing, interrupted"),
        ("/tasks?sort=colour", "sort is 'colour', and must be one of"),
        ("/tasks?after=x", "after is 'x', and must be what a link of this page has"),
        ("/runs?outcome=good", "outcome is 'good', and must be one of"),
        ("/runs?since=yesterday", "since: 'yesterday' is not a moment such as"),
        ("/runs?before=x", "before is 'x', and must be what a link of this page has"),
        ("/calendar?from=9999-12-20", "from is more than a century away"),
        ("/calendar?from=9999-12-31", "from: '9999-12-31' is outside of the calendar, which goes from 0001-01-03"),
        ("/next?tz=Mars", "tz is 'Mars', and must be a zone"),
        ("/task", "name is missing"),
        ("/task?generation=x", "generation is 'x', and must be a number from"),
        (f"/task?name={FAILING}&at=noon", "at: 'noon' is not a moment such as"),
        ("/tasks?q=%00", "q holds a character that no text has"),
        ("/?refresh=1", "refresh is '1', and must be a number from 5 to 3,600"),
    ],
)
async def test_a_parameter_that_means_nothing_is_answered_with_a_sentence(
    stage: Stage, place: str, sentence: str
) -> None:
    assert sentence in said(await page_of(stage.dashboard(), place, 400))


async def test_an_address_that_is_no_page_says_so(stage: Stage) -> None:
    for place in ("/nothing", "/static/0/other.css", "/static/app.py", "/api/v1/"):
        await page_of(stage.dashboard(), place, 404)


async def test_a_page_refreshes_itself_where_that_is_asked_for(stage: Stage) -> None:
    """For browsers without JavaScript."""
    app = stage.dashboard()
    assert '<meta http-equiv="refresh" content="30">' in await page_of(app, "/?refresh=30")
    assert "http-equiv" not in await page_of(app, "/")


async def test_every_link_and_asset_of_a_mounted_dashboard_stays_below_its_mount(stage: Stage) -> None:
    host = FastAPI()
    host.mount("/ops/duly", stage.dashboard(Settings(title="shop")))
    async with client(host) as opened:
        for place in PAGES:
            page = (await opened.get(f"/ops/duly{place}")).text
            links = [html.unescape(each) for each in re.findall(r'(?:href|src|action)="([^"]*)"', page)]
            assert len(links) > 5
            for link in links:
                assert link.startswith(("/ops/duly/", "#", "data:,")), link
            for link in sorted(set(links))[:20]:
                if link.startswith("/") and link != "/ops/duly/task#why":  # where the form leads to, with a name
                    assert (await opened.get(link)).status_code == 200, link
            assert "<title>" in page
            assert "· shop</title>" in page


async def test_pages_are_small(stage: Stage) -> None:
    """Transferred on the first load, page and assets: less than 30 kB."""
    async with client(stage.dashboard()) as opened:
        page = await opened.get("/")
        assets = re.findall(r'(?:href|src)="(/static/[^"]*)"', page.text)
        answers = [page, *[await opened.get(asset) for asset in assets]]
        assert len(answers) == 3
        assert all(answer.headers["content-encoding"] == "gzip" for answer in answers)
        sizes = [int(answer.headers["content-length"]) for answer in answers]
        assert sum(sizes) < 30_000
        assert sizes[2] < 2_000  # the script


# --- hostile ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "/mounted"])
async def test_hostile_names_break_out_of_no_page(hostile_stage: Stage, prefix: str) -> None:
    """Alone and mounted; each name is found again under the link that its page has."""
    app: ASGIApp = hostile_stage.dashboard()
    if prefix:
        host = FastAPI()
        host.mount(prefix, app)
        app = host
    async with client(app) as opened:
        listed = (await opened.get(f"{prefix}/tasks")).text
        links = [html.unescape(link) for link in re.findall(r'name">\s*<a href="([^"]*)"', listed)]
        assert len(links) == len(NAMES) >= 17
        places = [
            f"{prefix}/calendar",
            f"{prefix}/whatif?from=now&to=2026-10-27",
            f"{prefix}/verify",
            f"{prefix}/about",
            f"{prefix}/next?cron={quote(NAMES[0])}",
            f"{prefix}/",
            f"{prefix}/tasks?q={quote('<script>')}",
            f"{prefix}/runs",
            *links,
        ]
        places += [f"{prefix}/runs?task={quote(name, safe='')}" for name in NAMES if len(name) < 1000]
        places += [f"{prefix}/task?name={quote(name + '?', safe='')}" for name in NAMES if len(name) < 1000]
        for place in places:
            answer = await opened.get(place)
            assert answer.status_code in ({404} if place.endswith("%3F") else {200}), place
            assert "set-cookie" not in answer.headers
            page = re.sub(r'value="[^"]*"', "", answer.text)  # what a form sends back is sent as it is
            for markup in MARKUP:
                assert markup not in page, (place, markup)
            assert "49$49" not in answer.text  # a template inside a name is not evaluated


async def test_every_link_of_every_page_leads_somewhere_however_names_are(hostile_stage: Stage) -> None:
    """A name of 5,000 letters is too long for an address: its declaration's number stands for it, also in forms."""
    app = hostile_stage.dashboard()
    async with client(app) as opened:
        seen: set[str] = set()
        waiting = ["/", "/tasks?sort=failure", "/runs", "/whatif?from=now&to=2026-10-27", "/calendar", "/tasks?q=xxxxy"]
        long = [place async for place in _links(opened, "/tasks") if "generation=" in place]
        assert len(long) == 1
        waiting += [*long, long[0].replace("/task?", "/runs?")]
        while waiting:
            place = waiting.pop()
            async for link in _links(opened, place):
                # Of very many links that differ in the run or the minute alone, one is followed.
                kind = re.sub(r"(runs_before|before|at|since|until)=[^&]*", r"\1", link)
                if kind not in seen:
                    seen.add(kind)
                    answer = await opened.get(link)
                    assert answer.status_code == 200, (place, link[:200], answer.status_code)
                    assert len(link) < 3_000, place
        (page,) = await pages_of(app, long[0])
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text))
        assert fields == {"generation": long[0].partition("generation=")[2]}
        assert "x" * 100 in (await opened.get(long[0] + "&at=2026-10-26T16:00")).text


async def _links(opened: httpx.AsyncClient, place: str) -> AsyncIterator[str]:
    page = (await opened.get(place)).text
    for link in re.findall(r' href="([^"#]*)', page):
        if link.startswith("/"):
            yield html.unescape(link)


async def test_an_asset_is_served_under_its_own_hash_alone(stage: Stage) -> None:
    """A file that is kept for a year must be the one that its address names."""
    app = stage.dashboard()
    (address,) = re.findall(r'href="(/static/[^"]*)"', await page_of(app, "/about"))
    right, wrong = await pages_of(app, address, re.sub(r"/static/\w+/", "/static/000000000000/", address))
    assert (right.status_code, wrong.status_code) == (200, 404)
    assert "immutable" not in wrong.headers["cache-control"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`duly run` makes it", "<code>duly run</code> makes it"),
        ("a ` b", "a ` b"),
        ("`<b>` & </p>", "<code>&lt;b&gt;</code> &amp; &lt;/p&gt;"),
        ("\u202e`\x1b`", "\\u202e<code>\\x1b</code>"),
    ],
)
def test_commands_between_backticks_are_code_and_nothing_else_is_markup(text: str, shown: str) -> None:
    assert marked(text) == shown


CRONS = ("* * * * *", "0 0 29 2 *")


@given(
    page=st.sampled_from(["/", "/tasks", "/task", "/runs", "/calendar", "/next", "/about", "/whatif", "/verify",
                          "/api/v1/tasks", "/api/v1/runs", "/api/v1/next",
                          "/api/v1/explain", "/api/v1/load", "/api/v1/task", "/api/v1/status"]),
    query=st.dictionaries(
        st.sampled_from(["q", "state", "sort", "after", "before", "name", "generation", "at", "runs_before", "task",
                         "outcome", "cause", "since", "until", "refresh", "cron", "tz", "from", "n", "hours", "limit",
                         "to", "down", "crash"]),
        st.one_of(
            st.text(max_size=40),
            st.sampled_from([FAILING, "failing", "owed", "next", "failure", "0~x", "-1~", "99999999999999999~a", "0-0",
                             "2h", "now", "9999-12-31T23:59", "0001-01-01", "24:00", "2026-10-25T02:30", "30 2 * * *",
                             "0 0 29 2 *", "Europe/Berlin", "../etc/passwd", "1", "-1", "1e9", "٣", "9" * 20]),
        ),
        max_size=5,
    ),
)  # fmt: skip
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_query_leads_to_an_error_of_the_server(stage: Stage, page: str, query: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("duly.web.child.Children._answered", no_child)  # a process for each query takes too long
        await no_error(stage, page, query)


@pytest.mark.parametrize("moment", ["0001-01-01", "0001-01-03", "9999-12-29T23:59", "9999-12-31T23:59"])
@pytest.mark.parametrize(
    ("page", "of_moment"),
    [
        (f"/task?name={quote(FAILING)}", "at"),
        (f"/api/v1/explain?task={quote(FAILING)}", "at"),
        *((f"{page}?cron={quote(cron)}", "from") for page in ("/next", "/api/v1/next") for cron in CRONS),
        *((page, "from") for page in ("/calendar", "/api/v1/load", "/whatif")),
        *((page, word) for page in ("/runs", "/api/v1/runs") for word in ("since", "until")),
    ],
)
async def test_the_ends_of_the_calendar_lead_to_no_error_of_the_server(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, page: str, of_moment: str, moment: str
) -> None:
    """WEB 9: where everything else about the request is valid."""
    monkeypatch.setattr("duly.web.child.Children._answered", no_child)
    for zone in ("America/Adak", "Pacific/Kiritimati"):
        query = dict(httpx.URL(page).params) | {of_moment: moment, "tz": zone}
        await no_error(stage, httpx.URL(page).path, query)


def no_child(*_: object) -> dict[str, object]:
    raise NotAnsweredError("no child process here")


async def no_error(stage: Stage, page: str, query: dict[str, str]) -> None:
    answer = (await pages_of(stage.dashboard(), str(httpx.URL(page, params=query))))[0]
    assert answer.status_code < 500, (page, query, answer.text)


# --- stores that are not as they should be ---------------------------------------------------------------------------


async def test_a_store_that_is_not_there_yet_becomes_the_dashboard(store: Path) -> None:
    app = dashboard(store, refresh=0.01)
    async with client(app) as opened:
        answer = await opened.get("/")
        assert answer.status_code == 503
        assert "Nothing here yet" in answer.text
        assert (await opened.get("/api/v1/health")).status_code == 503

        async def work() -> None: ...

        async with SimulatedHost("2026-10-26T12:00:30", "UTC", store=store) as host:
            scheduler = host.scheduler()
            await scheduler.initialize([("first", "* * * * *", work, timedelta(minutes=1))])
            await scheduler.stop()
        assert (await opened.get("/tasks")).status_code in {200, 503}  # the sampler looks again within its interval
        for _ in range(500):
            if (await opened.get("/")).status_code == 200:
                break
        assert "first" in (await opened.get("/tasks")).text


RUN = (
    "INSERT INTO runs (seq, run, generation, cause, scheduled, started_at, ended_at, outcome) "
    f"VALUES (1, 1, 1, 'cron', {AT}, {AT}, {AT}, 'success')"
)


@pytest.mark.parametrize(
    ("damage", "places"),
    [
        ("UPDATE runs SET ended_at = 'x'", ("/runs", "/task?name=one", "/api/v1/runs")),
        ("UPDATE runs SET scheduled = 9223372036854775807", ("/runs", "/task?name=one", "/api/v1/runs")),
        ("UPDATE runs SET called_at = -1", ("/runs", "/task?name=one", "/api/v1/runs")),
        ("UPDATE schedulers SET since = 'x'", ("/tasks", "/task?name=one")),
        ("UPDATE tasks SET known_since = 'x'", ("/api/v1/explain?task=one",)),
    ],
)
def test_a_time_that_duly_did_not_write_is_damage(store: Path, damage: str, places: tuple[str, ...]) -> None:
    """SQLite keeps whatever it is given; the page names the store, and what to do, as a command does."""
    make_store(store, [Row("one")], schedulers=(AT,))
    change(store, RUN)
    app = Stage(store, FixedClock(AT + 60 * MICROSECONDS, ZoneInfo("UTC"))).dashboard()
    assert asyncio.run(pages_of(app, places[0]))[0].status_code == 200
    change(store, damage)
    for answer in asyncio.run(pages_of(app, *places)):
        assert answer.status_code == 503
        assert "has a time that is none" in answer.text
        assert "restore a backup" in answer.text


def test_a_store_that_is_swapped_truncated_or_removed_is_a_page_that_says_so(store: Path) -> None:
    make_store(store, [Row("one")])
    app = dashboard(store, refresh=0.01)

    def ask(place: str) -> httpx.Response:
        return asyncio.run(pages_of(app, place))[0]

    assert "one" in ask("/tasks").text
    store.unlink()
    make_store(store, [Row("other")])
    assert "other" in ask("/task?name=other").text
    whole = store.read_bytes()
    store.write_bytes(whole[: len(whole) // 2 - 100])
    assert ask("/task?name=other").status_code == 503
    assert "damaged" in ask("/task?name=other").text
    store.write_bytes(b"this is no database")
    assert ask("/runs").status_code == 503
    store.unlink()
    assert "Nothing here yet" in ask("/runs").text
    store.mkdir()
    assert "is a folder" in ask("/runs").text


@pytest.mark.parametrize("kind", ["trigger", "view", "virtual table"])
async def test_a_file_that_brings_code_of_its_own_is_refused(store: Path, kind: str) -> None:
    make_store(store, [Row("one")])
    added = {
        "trigger": "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM tasks; END",
        "view": "CREATE VIEW v AS SELECT * FROM tasks",
        "virtual table": "CREATE VIRTUAL TABLE v USING fts5(name)",
    }
    change(store, added[kind])
    assert f"holds a {kind} that duly did not make" in html.unescape(await page_of(dashboard(store), "/runs", 503))


async def test_a_store_of_a_newer_version_says_which(store: Path) -> None:
    """Also if it becomes so while pages are open; and the probe is told at once."""
    make_store(store, [Row("one")])
    app = dashboard(store, refresh=0.01)
    async with client(app) as opened:
        assert (await opened.get("/")).status_code == 200
        change(store, f"PRAGMA user_version = {schema.VERSION + 1}")
        answer = await opened.get("/tasks")
        assert answer.status_code == 503
        assert f"has schema version {schema.VERSION + 1}, this duly reads up to {schema.VERSION}" in said(answer.text)
        for place in ("/", "/api/v1/health"):  # what concerns all tasks is looked at again within its interval
            for _ in range(500):
                if (answer := await opened.get(place)).status_code == 503:
                    break
                await asyncio.sleep(0.01)
            assert f"schema version {schema.VERSION + 1}" in answer.text


def test_stores_of_older_versions_are_shown(tmp_path: Path) -> None:
    """Every store that version 0.1.0 left, one among them of a process that was killed."""
    copy = tmp_path / "v0.1.0"
    shutil.copytree(Path(__file__).parent.parent / "fixtures" / "v0.1.0", copy)
    stores = sorted(copy.rglob("*.db"))
    assert len(stores) > 5
    for store in stores:
        for answer in asyncio.run(pages_of(dashboard(store), "/", "/tasks", "/runs")):
            assert answer.status_code == 200, (store, answer.text)


async def test_a_store_that_a_writer_holds_is_still_read(store: Path) -> None:
    """In a write-ahead log, readers do not wait for the writer."""
    make_store(store, [Row("one")])
    writer = sqlite3.connect(store, isolation_level=None)
    try:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE states SET failures = 3")
        assert "one" in await page_of(dashboard(store), "/tasks")
        writer.execute("ROLLBACK")
    finally:
        writer.close()


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
async def test_a_store_that_another_program_locks_shows_what_is_durable(store: Path, mode: str) -> None:
    """As a careless hand may leave it: an exclusive lock, with a log or without one, and half a transaction."""
    make_store(store, [Row("one")])
    app = dashboard(store)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("UPDATE tasks SET name = 'two'")
        (row,) = rows_of(await page_of(app, "/tasks"))[1:]
        assert row.startswith("one ")
        writer.execute("COMMIT")
    (row,) = rows_of(await page_of(app, "/tasks"))[1:]
    assert row.startswith("two ")


def test_the_dashboard_changes_nothing_beside_the_store(store: Path, stage: Stage) -> None:
    store.write_bytes(stage.path.read_bytes())
    before = {each.name: each.read_bytes() for each in store.parent.iterdir()}
    asyncio.run(pages_of(over(store, Stage(store, stage.clock).reader, stage.clock, Settings()), *PAGES))
    assert {each.name: each.read_bytes() for each in store.parent.iterdir()} == before


def test_the_dashboard_imports_neither_the_command_line_nor_the_terminal() -> None:
    program = "import duly.web.app, duly.web.server, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert [name for name in done.stdout.split() if name.startswith(("duly.cli", "rich"))] == []
