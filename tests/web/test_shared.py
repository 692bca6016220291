"""A dashboard of a store that hosts share, on a real PostgreSQL: what it says of hosts, and of a server in trouble."""

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from starlette.types import ASGIApp

import duly
from duly.core.moments import Instant
from duly.core.news import RUNS_OF_A_HOST
from duly.core.task import Cause
from duly.insight.health import Examination
from duly.insight.json_form import json_form
from duly.integrations.prometheus import StoreCollector
from duly.stores import PostgresStore
from duly.stores.postgres.connection import Connection
from duly.stores.postgres.install import install
from duly.stores.postgres.url import StoreUrl, read_url
from duly.web import dashboard, openapi, verdict
from duly.web.api import ENDPOINTS
from duly.web.app import over
from duly.web.child import NotAnsweredError
from duly.web.frame import Settings
from tests.cli.shop import SharedStage
from tests.postgres_server import PostgresServer, bundled_binaries
from tests.stores.shared_hosts import NOON, TestHost, generations
from tests.stores.shared_stores import PostgresStoreUnderTest
from tests.web.conftest import Stage, client
from tests.web.hostile import MARKUP, NAMES
from tests.web.shared_stage import LABELS, SharedPast
from tests.web.stage import FixedClock
from tests.web.test_api import asked, fits, printed, resolved, without
from tests.web.test_live import Stream
from tests.web.test_metrics import scraped, values
from tests.web.test_pages import FAILING, PAGES, page_of, pages_of, rows_of, said, tiles_of

SECRET = "s3cret"


@pytest.fixture(scope="module")
def made(server: PostgresServer) -> Iterator[SharedStage]:
    """A store that the functions of hosts have filled; its moments are those of the last minutes."""
    filled = SharedStage(server)
    filled.fill()
    yield filled
    filled.close()


def url_of(filled: SharedStage) -> str:
    return filled.url.replace("duly@", f"duly:{SECRET}@")


async def counted(app: ASGIApp) -> str:
    """The overview, once the tasks are counted: on a busy machine a server takes longer than a page waits."""
    for _ in range(20):
        (answer,) = await pages_of(app, "/api/v1/health")  # waits for the counts
        if '"counting"' not in answer.text:
            break
    return await page_of(app, "/")


# --- what it says of hosts -------------------------------------------------------------------------------------------


async def test_the_overview_lists_hosts_with_editions_and_beats(shared: SharedPast) -> None:
    """SPEC 9.16: what `status` lists; a label that is hostile stays text."""
    page = await counted(shared.dashboard())
    health = shared.reader().read(lambda view: Examination(view, shared.clock.zone()).health)
    assert health.cluster is not None
    assert "2 living hosts, last beat 3 s ago" in said(page)
    assert "Hosts · edition 2 in force since 14:20:35" in said(page)
    hosts = [row for row in rows_of(page) if "living" in row]
    assert hosts[0].startswith("1 web-1 ● living 2 3 s ago 30 s 2 ")
    assert hosts[1].startswith("3 <b>worker</b> \\u202e3 ● living ◔ outdated for 2 h 1 4 s ago 30 s 0 ")
    assert "Hosts that went within the last hour: 1 buried." in said(page)
    assert "2, first seen 14:20:35 , 1 living host." in said(page)
    assert tiles_of(page)["tasks"] == str(health.tasks) == "14"
    assert [problem.code for problem in health.problems] == ["host-outdated"]
    assert health.problems[0].text in said(page)
    running = [row for row in rows_of(page) if row.startswith("users/sync-crm")]
    assert "1 web-1" in running[0]


async def test_lists_of_runs_and_tasks_name_the_host(shared: SharedPast, stage: Stage) -> None:
    """In an embedded store there are no hosts, and no column for them."""
    app = shared.dashboard()
    runs = await page_of(app, "/runs")
    assert rows_of(runs)[0].startswith("task run host due start")
    labels = [f"{key} {label}" for key, label in zip((1, 2, 3), ("web-1", "web-2", "<b>worker</b>"), strict=True)]
    assert all(any(label in row for row in rows_of(runs)) for label in labels)
    assert "▶ running 2 min 35 s on 1 web-1" in said(await page_of(app, "/tasks?state=running"))
    for place in ("/runs", "/", f"/task?name={quote(FAILING)}"):
        assert ">host<" not in await page_of(stage.dashboard(), place)


async def test_the_timeline_says_which_host_ran_what(shared: SharedPast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mark names its host, or each hour how many of its runs were on which; below it stands how many in all."""
    app = shared.dashboard()
    place = f"/task?name={quote(FAILING)}"
    page = await page_of(app, place)
    titles = re.findall(r"<title>([^<]*)</title><rect", page)
    runs = shared.reader().read(lambda view: list(view.runs(_of(FAILING))))
    for key, label in enumerate(LABELS[:2], 1):
        count = sum(run.host is not None and run.host.key == key for run in runs)
        assert sum(title.endswith(f", host {key} ({label})") for title in titles) == count > 0
        assert f"{key} {label} : {count} runs" in said(page)
    monkeypatch.setattr("duly.web.task._TARGETS_MAX", 1)
    hours = re.findall(r"<title>([^<]*)</title><rect", await page_of(app, place))
    hours = [title for title in hours if not title.endswith("why?")]
    assert hours
    assert all(re.search(r": \d+ runs? \((host \d \(.*\) \d+(, )?)+\)$", title) for title in hours)
    assert "runs on 1 web-1" in said(page)


def _of(task: str) -> "duly.stores.RunSelection":
    return duly.stores.RunSelection(task)


async def test_an_explanation_says_which_host_ran_it_and_why_another_took_it_over(made: SharedStage) -> None:
    """As `explain` does: a burial cut the run short, and the other host repeated it."""
    app = dashboard(url_of(made), schema=made.schema)
    page = said(await page_of(app, f"/task?name=backup&at={quote(made.moment(2))}"))
    assert "host 2 (web-2) ran it" in page
    assert "host 2 (web-2) was buried: its last beat was at " in page
    again = said(await page_of(app, f"/task?name=backup&at={quote(made.moment(4))}"))
    assert "it took the task over from host 2 (web-2), which ran it before" in again


async def test_about_says_which_edition_is_in_force_and_how_many_hosts_live(shared: SharedPast) -> None:
    page = said(await page_of(shared.dashboard(), "/about"))
    assert "living hosts 2, and 1 on record that are gone or silent" in page
    assert "edition in force 2, since 14:20:35" in page
    assert re.search(r"size \d+\.\d [kM]B", page)
    assert re.search(r"database PostgreSQL \d+", page)
    assert f"store {shared.url.name} " in page


async def test_commands_name_the_store_as_a_terminal_needs_it(shared: SharedPast) -> None:
    """By its address without a password, and its schema."""
    page = await page_of(shared.dashboard(), "/task?name=cache/warm")
    assert f"duly history cache/warm --store {shared.url.address} --schema &#39;web past&#39;" in page


async def test_every_page_of_a_url_is_there_and_none_shows_its_password(made: SharedStage) -> None:
    app = dashboard(url_of(made), schema=made.schema)
    places = [
        *PAGES,
        "/task?name=backup",
        "/metrics",
        "/whatif?from=now",
        *(f"/api/v1/{each}" for each in ("status", "runs")),
    ]
    answers = await pages_of(app, *(place for place in places if FAILING not in place))
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert not any(SECRET in answer.text for answer in answers)


async def test_hostile_names_and_labels_break_out_of_no_page(server: PostgresServer, hostile_stage: Stage) -> None:
    """WEB 9.4, on a server."""
    shared = SharedPast(server, 'web "hostile"; --', hostile_stage.path, hostile_stage.clock)
    app = shared.dashboard()
    listed = await page_of(app, "/tasks")
    links = re.findall(r'name">\s*<a href="([^"]*)"', listed)
    assert len(links) == len(NAMES)
    places = [*links, "/", "/runs", "/about", "/verify", "/calendar", "/whatif?from=now&to=2026-10-27"]
    for answer in await pages_of(app, *(place.replace("&amp;", "&") for place in places)):
        assert answer.status_code == 200, answer.text
        page = re.sub(r'value="[^"]*"', "", answer.text)
        assert not any(markup in page for markup in (*MARKUP, "<b>worker"))


@given(
    page=st.sampled_from(["/", "/tasks", "/task", "/runs", "/about", "/api/v1/tasks", "/api/v1/runs", "/api/v1/task"]),
    query=st.dictionaries(
        st.sampled_from(["q", "state", "sort", "after", "before", "name", "generation", "at", "runs_before", "task",
                         "outcome", "cause", "since", "until", "limit"]),
        st.one_of(
            st.text(max_size=30),
            st.sampled_from([FAILING, "failing", "owed", "next", "failure", "0~x", "-1~", "99999999999999999~a", "0-0",
                             "2h", "9999-12-31T23:59", "0001-01-01", "%_\\", "'; drop table tasks; --", "9" * 18]),
        ),
        max_size=4,
    ),
)  # fmt: skip
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_query_leads_to_an_error_of_the_server(shared: SharedPast, page: str, query: dict[str, str]) -> None:
    """WEB 9.5, on a server."""
    (answer,) = await pages_of(shared.dashboard(), str(httpx.URL(page, params=query)))
    assert answer.status_code < 500, (page, query, answer.text)


# --- JSON, metrics, live ---------------------------------------------------------------------------------------------


async def test_documents_are_those_of_the_commands_with_their_hosts(made: SharedStage) -> None:
    """SPEC 10.4; both stamp them with the clock of the database."""
    app = dashboard(url_of(made), schema=made.schema)
    status = await asked(app, "/api/v1/status")
    command = printed("status", *made.options)
    moving = {"beatAgeMs", "lateMs"}
    assert [without(each, *moving) for each in status["cluster"]["hosts"]] == [
        without(each, *moving) for each in command["cluster"]["hosts"]
    ]
    assert without(status["cluster"], "hosts") == without(command["cluster"], "hosts")
    assert [without(each, *moving) for each in status["tasks"]] == [without(each, *moving) for each in command["tasks"]]
    runs = await asked(app, "/api/v1/runs")
    assert without(runs, "at", "before") == without(printed("history", *made.options), "at")
    assert [run["host"]["label"] for run in runs["runs"]] == ["web-1", "web-2", "web-1"]
    at = quote(made.moment(2))
    explained = await asked(app, f"/api/v1/explain?task=backup&at={at}")
    assert explained == printed("explain", "backup", "--at", made.moment(2), *made.options)
    assert {reason["code"] for reason in explained["reasons"]} >= {"ranOn", "hostBuried"}


@pytest.mark.parametrize("path", [path for path in ENDPOINTS if path != "/api/v1/verify"])
async def test_an_answer_has_the_shape_that_the_document_says(shared: SharedPast, path: str) -> None:
    """Hosts, editions and beats are in the OpenAPI document."""
    required = {"name": FAILING, "task": FAILING, "cron": "30 2 * * *"}
    query = "&".join(
        f"{each.name}={quote(required[each.name])}" for each in ENDPOINTS[path].parameters if each.required
    )
    (answer,) = await pages_of(shared.dashboard(), f"{path}?{query}")
    responses = openapi.document()["paths"][path]["get"]["responses"]
    assert fits(answer.json(), resolved(responses[str(answer.status_code)]["content"]["application/json"]["schema"]))


async def test_the_health_of_the_page_and_of_the_library_are_one(shared: SharedPast) -> None:
    answer = await asked(shared.dashboard(), "/api/v1/health", 503)
    health = shared.reader().read(lambda view: Examination(view, shared.clock.zone()).health)
    assert without(answer, "command", "format") == json_form(health, shared.clock.zone())


async def test_the_figures_are_those_of_the_collector(made: SharedStage) -> None:
    """The label is the database and the schema, and no password."""
    registry = CollectorRegistry()
    StoreCollector(url_of(made), schema=made.schema, registry=registry)
    expected = values(generate_latest(registry).decode())
    found = values((await scraped(dashboard(url_of(made), schema=made.schema))).text)
    assert found == {series: pytest.approx(value) for series, value in expected.items()}
    store = frozenset({("store", f"postgres.{made.schema}")})
    assert (found["duly_tasks", store], found["duly_runs_running", store]) == (2, 1)
    assert found["duly_scheduler_up", store] == 1


async def test_a_change_of_the_store_is_sent_to_every_stream(made: SharedStage) -> None:
    app = dashboard(made.url, schema=made.schema, refresh=0.02)
    stream = Stream(app)
    await stream.until(lambda: "retry" in stream.text)
    made.store.now = type(made.store.now)(made.store.now + 60_000_000)
    made.first.beat()
    await stream.until(lambda: "event: changed" in stream.text)
    await stream.leave()


async def test_numbers_are_of_the_clock_of_the_database(shared: SharedPast) -> None:
    """A dashboard whose own clock is an hour ahead neither says "as of" nor makes beats an hour old."""
    page = said(await counted(shared.dashboard()))
    ahead = FixedClock(shared.clock.now() + 3_600_000_000, shared.clock.zone())
    assert said(await counted(over(shared.url, shared.reader(), ahead, Settings()))) == page
    assert "now 16:20:35" in page


# --- what if, and the trace ------------------------------------------------------------------------------------------


async def test_a_time_is_simulated_with_the_declarations_of_a_server(shared: SharedPast, stage: Stage) -> None:
    """Equal declarations with an equal past give one answer, wherever they are stored."""
    place = "/whatif?from=2026-10-27&to=2026-10-28&down=2026-10-27T01:00..2026-10-27T05:00"
    there, here = await page_of(shared.dashboard(), place), await page_of(stage.dashboard(), place)
    assert tiles_of(there)["due minutes served later"] == tiles_of(here)["due minutes served later"] != "0"
    assert len(rows_of(there)) > 20


async def test_a_store_without_a_trace_is_not_shown_as_fine(shared: SharedPast) -> None:
    page = said(await page_of(shared.dashboard(), "/verify"))
    assert "Not known This store holds no trace" in page
    assert "no trace" in (await asked(shared.dashboard(), "/api/v1/verify", 404))["error"]


@pytest.fixture
def traced(server: PostgresServer) -> Iterator[PostgresStoreUnderTest]:
    """A store whose hosts keep a trace: one is buried while it runs a task, and the other repeats the run."""
    store = PostgresStoreUnderTest(server)
    store.now = NOON
    first, second = TestHost(store, "a" * 32), TestHost(store, "b" * 32)
    for host in (first, second):
        host.join({"report": ("* * * * *", 60_000)}, traced=True)
        host.read()
    (report,) = generations(store).values()
    first.start(report)
    store.now = Instant(NOON + 5_000_000)
    second.read()
    second.bury(first)
    second.start(report, cause=Cause.INTERRUPTED, scheduled=NOON, interruptions=1)
    second.end(report, 2 * RUNS_OF_A_HOST + 1, cause=Cause.INTERRUPTED, scheduled=NOON)
    yield store
    store.connection.close()


async def test_the_verdict_on_the_trace_of_many_hosts_is_that_of_the_command(traced: PostgresStoreUnderTest) -> None:
    """It is made of the log, whose entries are counted when it is read."""
    app = dashboard(traced.url)
    command = printed("verify", *named(traced))
    assert await asked(app, "/api/v1/verify") == command
    page = said(await page_of(app, "/verify"))
    assert command["verdict"] == "holding"
    assert f"{len(command['properties'])} properties hold so far" in page
    assert f"{command['events']} events, 1 segment, 1 task, 1 crash" in page


def named(store: PostgresStoreUnderTest) -> list[str]:
    """A store as `duly verify` is given it."""
    folder = store.url.parameters["host"]
    return [f"postgresql://duly@/postgres?host={folder}", "--schema", store.url.schema]


async def test_a_violation_of_many_hosts_names_the_host_of_each_event(traced: PostgresStoreUnderTest) -> None:
    """The store grants a start that nothing is owed for: it compares rows, and does not know the calendar."""
    third = TestHost(traced, "c" * 32)
    third.join({"report": ("* * * * *", 60_000)}, traced=True)
    third.start(*generations(traced).values())
    page = await page_of(dashboard(traced.url), "/verify")
    assert "S2 violated" in said(page)
    assert "host = 3" in said(page)
    sub_trace = re.search(r'aria-label="Sub-trace">(.*?)</pre>', page, re.DOTALL)
    assert sub_trace is not None
    lines = [line.split()[2:5] for line in sub_trace[1].strip().splitlines()]
    assert lines[-1] == ["host", "3", "RS"]
    assert all(line[0] == "host" for line in lines)


async def test_a_verdict_is_kept_until_the_log_has_grown(traced: PostgresStoreUnderTest, children: list[str]) -> None:
    app = dashboard(traced.url)
    for _ in range(2):
        await page_of(app, "/verify")
    assert children == ["verify"]
    traced.now = Instant(NOON + 60_000_000)
    other = TestHost(traced, "c" * 32)
    other.join({"report": ("* * * * *", 60_000)}, traced=True)
    await page_of(app, "/verify")
    assert children == ["verify"] * 2


def test_a_trace_of_too_many_events_is_left_to_the_command(
    traced: PostgresStoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "EVENTS_MAX", 5)
    store = {"parameters": traced.url.parameters, "schema": traced.url.schema}
    with pytest.raises(NotAnsweredError, match="more than 5 events, and the dashboard judges no longer"):
        verdict.judge({"store": store, "name": "shop", "now": NOON})


# --- servers and schemas that are not as they should be --------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server of the test's own, which may be stopped."""
    server = PostgresServer(bundled_binaries())
    yield server
    server.discard()


async def work() -> None: ...


async def declared(url: str, schema: str, name: str) -> None:
    """A host that declares one task, and leaves."""
    scheduler = duly.Scheduler(PostgresStore(url, schema=schema))
    await scheduler.initialize([(name, "0 0 1 1 *", work, timedelta(minutes=1))])
    await scheduler.stop()


async def until(opened: httpx.AsyncClient, place: str, status: int) -> httpx.Response:
    """Ask until the answer has this status: the sampler looks again within its interval."""
    answer = await opened.get(place)
    for _ in range(400):
        if answer.status_code == status:
            return answer
        await asyncio.sleep(0.05)
        answer = await opened.get(place)
    raise AssertionError(f"{place} is still answered with {answer.status_code}: {answer.text}")


async def test_a_server_that_is_down_is_a_page_that_says_so_and_comes_back(own: PostgresServer) -> None:
    """The store is named without its password; nothing that is known of before is shown as the present."""
    await declared(own.url(), "duly", "first")
    app = dashboard(own.url(password=SECRET), refresh=0.05)
    async with client(app) as opened:
        assert "first" in (await until(opened, "/tasks", 200)).text
        await until(opened, "/", 200)
        await asyncio.to_thread(own.stop)
        answer = await until(opened, "/tasks", 503)
        assert "The store cannot be read" in said(answer.text)
        assert "is the server running, and the URL right?" in said(answer.text)
        assert 'http-equiv="refresh"' in answer.text
        assert SECRET not in answer.text
        overview = await until(opened, "/", 503)
        assert "Healthy" not in said(overview.text)
        health = await opened.get("/api/v1/health")
        assert (health.status_code, SECRET in health.text) == (503, False)
        down = {("duly_scheduler_up", frozenset({("store", "postgres.duly")})): 0.0}
        assert values((await opened.get("/metrics")).text) == down
        await asyncio.to_thread(own.start)
        assert "first" in (await until(opened, "/tasks", 200)).text
        await until(opened, "/", 200)


async def test_a_schema_that_is_missing_empty_or_gone_says_so(server: PostgresServer) -> None:
    """And becomes the dashboard when the first host has declared its tasks."""
    server.execute("drop schema if exists appearing cascade")
    app = dashboard(server.url(), schema="appearing", refresh=0.02)
    async with client(app) as opened:
        assert "Nothing here yet no host has used this store yet" in said((await until(opened, "/", 503)).text)
        there = read_url(server.url(), "appearing")
        connection = Connection(there)
        install(connection, there)
        connection.close()
        assert "a host that declares tasks is the first" in said((await until(opened, "/runs", 503)).text)
        assert (await opened.get("/api/v1/health")).status_code == 503
        await declared(server.url(), "appearing", "first")
        assert "first" in (await until(opened, "/tasks", 200)).text
        await until(opened, "/", 200)
        server.execute("drop schema appearing cascade")
        await declared(server.url(), "appearing", "second")
        assert "second" in (await until(opened, "/task?name=second", 200)).text
        server.execute("drop schema appearing cascade")
        assert "Nothing here yet" in said((await until(opened, "/tasks", 503)).text)


async def test_a_newer_schema_a_foreign_one_and_a_missing_right_say_what_to_do(server: PostgresServer) -> None:
    server.execute("drop schema if exists trying cascade", "drop role if exists looker", "create role looker login")
    await declared(server.url(), "trying", "first")
    with_rights = dashboard(server.url(), schema="trying", refresh=0.02)
    without_rights = dashboard(server.url(user="looker"), schema="trying")
    refused = said(await page_of(without_rights, "/tasks", 503))
    assert "may not be read by the role" in refused
    assert "grant select on all tables in schema" in refused
    server.execute("grant usage on schema trying to looker", "grant select on all tables in schema trying to looker")
    assert "first" in await page_of(without_rights, "/tasks")  # asked again, it is readable
    async with client(with_rights) as opened:
        await until(opened, "/", 200)
        server.execute("update trying.cluster set version = 99")
        for place in ("/runs", "/"):
            newer = said((await until(opened, place, 503)).text)
            assert "has schema version 99, this duly reads up to" in newer
        server.execute("drop table trying.cluster cascade", "create table trying.cluster (id int)")
        assert "is a schema of something else" in said((await opened.get("/runs")).text)
    server.execute("drop schema trying cascade", "drop role looker")


async def test_a_record_that_duly_did_not_write_is_damage(server: PostgresServer, stage: Stage) -> None:
    damaged = SharedPast(server, "web damaged", stage.path, stage.clock)
    damaged.change("update tasks set cron = 'never' where name = 'cache/warm'")
    async with client(damaged.dashboard()) as opened:
        for place, status in (("/", 503), ("/tasks", 503), ("/task?name=cache/warm", 404)):
            answer = await until(opened, place, status)
            assert "cannot be read" in said(answer.text) or "damaged" in said(answer.text)
    damaged.change("update tasks set cron = '1,31 * * * *' where name = 'cache/warm'", "delete from states")
    async with client(damaged.dashboard()) as opened:
        assert "Healthy" not in said((await until(opened, "/", 503)).text)


@pytest.mark.slow
async def test_a_question_that_takes_too_long_is_ended_by_the_server(server: PostgresServer, stage: Stage) -> None:
    """WEB 4: a table that somebody has locked holds up one page for a second, and no thread for ever."""
    locked = SharedPast(server, "web locked", stage.path, stage.clock)
    app = dashboard(locked.url)
    connection = Connection(locked.url)
    connection.send(f"begin; lock table {connection.schema}.tasks", limit_seconds=15)
    try:
        page = said(await page_of(app, "/tasks", 503))
        assert "did not answer a question within 1 s" in page
        assert "the server is busy" in page
    finally:
        connection.send("rollback", limit_seconds=15)
        connection.close()
    assert "cache/warm" in said(await page_of(app, "/tasks"))


@pytest.mark.slow
async def test_many_requests_share_few_connections_and_leave_no_transaction_open(
    server: PostgresServer, stage: Stage
) -> None:
    """Each question is a transaction that ends with it; two connections are kept for pages, one for the sampler."""
    there = SharedPast(server, "web crowd", stage.path, stage.clock)
    url = there.url.parameters | {"application_name": "crowd"}
    app = dashboard(StoreUrl(url, there.url.schema))
    places = [place for place in PAGES if place not in {"/verify", "/whatif"}]
    async with client(app) as opened:
        statuses = await asyncio.gather(*((opened.get(places[number % len(places)])) for number in range(200)))
    assert {answer.status_code for answer in statuses} == {200}
    ((connections, transactions),) = server.execute(
        "select count(*), count(*) filter (where state like 'idle in%') from pg_stat_activity "
        "where application_name = 'crowd'"
    )
    assert (connections in {2, 3}, transactions) == (True, 0)
