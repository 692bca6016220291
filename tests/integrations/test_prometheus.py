"""Metrics for Prometheus: counts from events, gauges from stores, a bounded number of series, and the files beside."""

import asyncio
import json
import logging
import re
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from duly import Scheduler
from duly.errors import StoreLockedError
from duly.events import (
    ClockJumped,
    Event,
    HostClockSkewed,
    HostLost,
    HostZoneChanged,
    LeaseLost,
    LeaseSuspended,
    PropertyViolated,
    SchedulerInitializationFailed,
    StoreFault,
    TaskRunCompleted,
    TaskRunFenced,
    TaskRunOverdue,
    TaskRunStarted,
    TaskStartDelayed,
)
from duly.insight import Examination
from duly.integrations import prometheus
from duly.integrations.prometheus import TABLE, Metrics, StoreCollector
from duly.stores import PostgresStore, View
from duly.testing import SimulatedHost
from tests.conftest import require
from tests.postgres_server import PostgresServer
from tests.programs import ROOT
from tests.stores.made import Row, make_store

MONITORING = ROOT / "examples" / "monitoring"
RARELY = timedelta(hours=1)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
Labels = frozenset[tuple[str, str]]


def scrape(registry: CollectorRegistry) -> dict[tuple[str, Labels], float]:
    """The samples that Prometheus would read, by name and labels."""
    text = generate_latest(registry).decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    found = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
    assert len(found) == len(samples)
    assert len(re.findall("^# TYPE", text, re.MULTILINE)) == len(set(re.findall("^# TYPE .*", text, re.MULTILINE)))
    return found


def series(name: str, **labels: str) -> tuple[str, Labels]:
    return name, frozenset({"store": "state.db", **labels}.items())


async def test_the_numbers_are_those_of_what_has_run(store: Path) -> None:
    """Starts, ends, durations and lateness of an hour: one task succeeds, one fails, one is interrupted by a crash."""
    registry = CollectorRegistry()
    async with SimulatedHost(NOON, "UTC", store) as host:

        async def succeeds() -> None:
            await host.sleep(3)

        async def fails() -> None:
            raise RuntimeError("no")

        async def hangs() -> None:
            await host.sleep(10_000)

        declared = [
            ("succeeds", "* * * * *", succeeds, timedelta(minutes=1)),
            ("fails", "0 * * * *", fails, timedelta(minutes=20)),
            ("hangs", "30 12 * * *", hangs, timedelta(minutes=20)),
        ]
        metrics = Metrics(store, registry=registry)
        await host.scheduler(on_event=metrics).initialize(declared)
        await host.advance(minutes=45, seconds=30)
        await host.crash()
        await host.scheduler(on_event=metrics).initialize(declared)
        await host.advance(seconds=1)
        found = scrape(registry)
    assert found[series("duly_run_starts_total", cause="cron")] == 46 + 1 + 1
    assert found[series("duly_run_starts_total", cause="retry")] == 2
    assert found[series("duly_run_starts_total", cause="interrupted")] == 1
    assert found[series("duly_runs_total", outcome="success")] == 46
    assert found[series("duly_runs_total", outcome="failure")] == 3
    assert found[series("duly_runs_total", outcome="interrupted")] == 1
    assert found[series("duly_run_duration_seconds_count", outcome="success")] == 46
    assert found[series("duly_run_duration_seconds_sum", outcome="success")] == pytest.approx(46 * 3)
    assert found[series("duly_run_duration_seconds_bucket", outcome="success", le="1.0")] == 0
    assert found[series("duly_run_duration_seconds_bucket", outcome="success", le="5.0")] == 46
    assert found[series("duly_start_lateness_seconds_count", cause="cron")] == 48
    assert found[series("duly_start_lateness_seconds_bucket", cause="retry", le="+Inf")] == 2
    assert found[series("duly_initializations_total", result="completed")] == 2


def started(scheduled: datetime, actual: datetime) -> TaskRunStarted:
    return TaskRunStarted("task", scheduled, actual, "cron", 1)


def test_lateness_across_a_change_of_the_clocks_is_that_of_passing_time() -> None:
    """Due at 01:59 and started at 03:00, when clocks go forward, is a minute late, not an hour and a minute."""
    registry, berlin = CollectorRegistry(), ZoneInfo("Europe/Berlin")
    metrics = Metrics(":memory:", registry=registry, name="state.db")
    metrics(started(datetime(2026, 3, 29, 1, 59, tzinfo=berlin), datetime(2026, 3, 29, 3, 0, tzinfo=berlin)))
    metrics(started(datetime(2026, 10, 25, 2, 59, tzinfo=berlin), datetime(2026, 10, 25, 2, 0, tzinfo=berlin, fold=1)))
    found = scrape(registry)
    assert found[series("duly_start_lateness_seconds_sum", cause="cron")] == 120
    assert found[series("duly_start_lateness_seconds_bucket", cause="cron", le="60.0")] == 2


def test_every_kind_of_event_that_the_table_names_is_counted() -> None:
    """Warnings by their kind, faults by operation, violations by property, initialisations by result."""
    registry = CollectorRegistry()
    metrics = Metrics(":memory:", registry=registry, name="state.db")
    events: list[Event] = [
        TaskStartDelayed("task", NOON, NOON, 1, 1),
        TaskRunOverdue("task", NOON, NOON),
        ClockJumped(NOON, NOON, 1),
        HostZoneChanged("UTC", "Europe/Berlin"),
        HostLost(2, "pod-2", 0),
        LeaseSuspended(NOON),
        LeaseLost(1, "HostGoneError: buried"),
        TaskRunFenced("task", 1),
        HostClockSkewed(2_001),
        StoreFault("write", "StoreError", "disk full", 100),
        PropertyViolated("S1", "no overlap", 1, NOON, "task", {}),
        SchedulerInitializationFailed("StoreLockedError", "held"),
        SchedulerInitializationFailed("ScheduleDuplicateTaskError", "twice"),
        TaskRunCompleted("task", 12.5, 1),
    ]
    before = scrape(registry)
    for event in events:
        metrics(event)
    after = scrape(registry)
    grown = {key for key in after if key[0].endswith("_total") and after[key] - before[key] == 1}
    assert grown == {
        series("duly_warnings_total", kind="start_delayed"),
        series("duly_warnings_total", kind="run_overdue"),
        series("duly_warnings_total", kind="clock_jumped"),
        series("duly_warnings_total", kind="zone_changed"),
        series("duly_warnings_total", kind="host_lost"),
        series("duly_warnings_total", kind="lease_suspended"),
        series("duly_warnings_total", kind="lease_lost"),
        series("duly_warnings_total", kind="run_fenced"),
        series("duly_warnings_total", kind="host_clock_skewed"),
        series("duly_store_faults_total", operation="write"),
        series("duly_property_violations_total", property="S1"),
        series("duly_initializations_total", result="refused"),
        series("duly_initializations_total", result="failed"),
        series("duly_runs_total", outcome="success"),
    }


async def test_a_locked_store_counts_as_a_refused_initialization(store: Path) -> None:
    """The second scheduler on a store, with a real lock."""
    registry = CollectorRegistry()
    holder, second = Scheduler(store), Scheduler(store, on_event=Metrics(store, registry=registry))
    await holder.initialize([])
    with pytest.raises(StoreLockedError):
        await second.initialize([])
    assert scrape(registry)[series("duly_initializations_total", result="refused")] == 1
    await holder.stop()


def test_the_series_are_as_many_at_a_million_tasks_as_at_one() -> None:
    """No label holds the name of a task unless that is asked for; faults with texts of their own stay bounded."""
    registry = CollectorRegistry()
    metrics = Metrics(":memory:", registry=registry)
    for number in range(1_000_000):
        metrics(TaskRunCompleted(f"task-{number}", 1.0, number))
    before = len(scrape(registry))
    assert before <= 100
    for number in range(1_000):
        metrics(StoreFault(f"operation {number}", "StoreError", "", 1))
        metrics(PropertyViolated(f"P{number}", "", 1, NOON, None, {}))
    found = scrape(registry)
    assert len(found) <= before + 2 * 50
    operations = [value for (name, _), value in found.items() if name == "duly_store_faults_total"]
    assert sum(operations) == 1_000


# --- gauges of a store -----------------------------------------------------------------------------------------------


async def test_the_gauges_of_a_store_are_those_of_its_health(store: Path) -> None:
    """Beside a scheduler and after it: the same numbers as `duly status`."""
    registry = CollectorRegistry()
    scheduler = Scheduler(store)
    never = ("0 0 1 1 *", print, timedelta(minutes=1))
    await scheduler.initialize([("a", *never), ("b", *never)])
    StoreCollector(store, registry=registry, per_task=True)
    found = scrape(registry)
    assert found[series("duly_scheduler_up")] == 1
    assert found[series("duly_tasks")] == 2
    assert found[series("duly_tasks_owed")] == found[series("duly_tasks_failing")] == 0
    assert found[series("duly_owed_oldest_seconds")] == 0
    assert found[series("duly_task_failures_in_a_row", task="a")] == 0
    assert series("duly_task_last_success_timestamp_seconds", task="a") not in found  # it never has
    assert abs(found[series("duly_last_poll_timestamp_seconds")] - datetime.now(UTC).timestamp()) < 3600
    assert {name for name, _ in found} <= {family.name for family in TABLE if family.of_store}
    await scheduler.stop()
    assert scrape(registry)[series("duly_scheduler_up")] == 0


def made(path: Path, tasks: int = 3) -> Path:
    """A store without a scheduler: one task has failed twice, the others are owed for a long time."""
    second = 1_000_000
    begin = int(NOON.timestamp())
    rows = [Row(f"task-{number:03}", served_through=begin) for number in range(1, tasks)]
    failing = Row(
        "failing", "0 0 1 1 *", served_through=begin, last_attempt_at=begin * second, last_success_at=second,
        last_failure_at=begin * second, pending_retry_until=(begin + 10**10) * second, failures=2,
    )  # fmt: skip
    ended = (1, 1, "cron", begin * second, begin * second, (begin + 4) * second, "failure", "RuntimeError: no")
    return make_store(path, [failing, *rows], [ended])


async def test_a_scheduler_on_a_store_that_hosts_share_is_counted_and_read(
    server: PostgresServer, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By its URL; the label is the database and the schema, and no series or message has the password."""
    url = server.url(password="s3cret")
    registry = CollectorRegistry()
    metrics = Metrics(url, schema=schema, registry=registry, per_task=True)
    label = f"postgres.{schema}"
    down = {("duly_scheduler_up", frozenset({("store", label)})): 0.0}
    assert {
        key: value for key, value in scrape(registry).items() if key[0] in {"duly_scheduler_up", "duly_tasks"}
    } == down
    ran = asyncio.Event()

    async def job() -> None:
        ran.set()

    scheduler = Scheduler(PostgresStore(url, schema=schema), on_event=metrics)
    await scheduler.initialize([("job", "* * * * *", job, timedelta(minutes=1)), ("rare", "0 0 1 1 *", job, RARELY)])
    await ran.wait()
    await scheduler.stop()
    found = scrape(registry)

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset({"store": label, **labels}.items())]

    assert value("duly_tasks") == 2
    assert value("duly_scheduler_up") == 0  # it has left
    assert value("duly_last_poll_timestamp_seconds") == pytest.approx(time.time(), abs=300)
    starts = value("duly_run_starts_total", cause="cron")
    assert starts == value("duly_runs_total", outcome="success") >= 1
    assert value("duly_task_failures_in_a_row", task="job") == 0
    assert ("duly_task_last_success_timestamp_seconds", frozenset({("store", label), ("task", "job")})) in found
    assert value("duly_initializations_total", result="completed") == 1
    server.execute(f'update "{schema}".cluster set version = 99')
    assert scrape(registry)["duly_scheduler_up", frozenset({("store", label)})] == 0
    assert f"no gauges for {label}: Store postgresql://duly@" in caplog.text
    assert "s3cret" not in caplog.text + repr(found)


def test_failures_and_what_is_owed_are_shown_and_tasks_only_on_request(store: Path) -> None:
    """The series for single tasks: when it last succeeded, how often it has failed since, how long it took."""
    made(store)
    without, with_tasks = CollectorRegistry(), CollectorRegistry()
    StoreCollector(store, registry=without)
    StoreCollector(store, registry=with_tasks, per_task=lambda name: name == "failing")
    found = scrape(without)
    assert (found[series("duly_tasks_failing")], found[series("duly_tasks_retrying")]) == (1, 1)
    assert found[series("duly_tasks_owed")] == 2
    assert found[series("duly_owed_oldest_seconds")] > 0
    assert not any("task" in dict(labels) for _, labels in found)
    found = scrape(with_tasks)
    assert found[series("duly_task_last_success_timestamp_seconds", task="failing")] == 1
    assert found[series("duly_task_failures_in_a_row", task="failing")] == 2
    assert found[series("duly_task_last_duration_seconds", task="failing")] == 4
    assert {dict(labels)["task"] for name, labels in found if name.startswith("duly_task_")} == {"failing"}


def test_series_for_single_tasks_are_bounded(store: Path) -> None:
    """The first by name, at most `per_task_max`."""
    made(store, tasks=300)
    registry = CollectorRegistry()
    StoreCollector(store, registry=registry, per_task=True, per_task_max=7)
    rows = [dict(labels)["task"] for name, labels in scrape(registry) if name == "duly_task_failures_in_a_row"]
    assert sorted(rows) == ["failing", *(f"task-{number:03}" for number in range(1, 7))]
    bounded = CollectorRegistry()
    StoreCollector(store, registry=bounded, per_task=True)
    assert sum(name == "duly_task_failures_in_a_row" for name, _ in scrape(bounded)) == 200


def test_a_store_that_cannot_be_read_is_down_and_nothing_else_is_claimed(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not there yet: silently. Damaged: said once. Neither shows a zero where nothing is known."""
    registry = CollectorRegistry()
    StoreCollector(store, registry=registry)
    assert scrape(registry) == {series("duly_scheduler_up"): 0}
    assert caplog.records == []
    store.write_bytes(b"this is not a database" * 100)
    with caplog.at_level(logging.WARNING):
        assert scrape(registry) == {series("duly_scheduler_up"): 0}
        assert scrape(registry) == {series("duly_scheduler_up"): 0}
    assert len(caplog.records) == 1
    store.unlink()
    made(store)
    assert scrape(registry)[series("duly_tasks")] == 3


def test_scrapes_from_several_threads_read_the_store_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures about all tasks are counted at most once a second, and by one thread."""
    made(store)
    counted: list[int] = []

    class Counting(Examination):
        def __init__(self, view: View, host_zone: tzinfo) -> None:
            counted.append(1)
            super().__init__(view, host_zone)

    monkeypatch.setattr(prometheus, "Examination", Counting)
    monkeypatch.setattr(prometheus, "_SAMPLE_SECONDS_MIN", 3600.0)
    registry = CollectorRegistry()
    StoreCollector(store, registry=registry)
    threads = [threading.Thread(target=scrape, args=(registry,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [1]


def test_several_stores_share_a_registry_if_their_names_differ(tmp_path: Path) -> None:
    """Each family is shown once, with a series for each store; one name for two stores is refused."""
    registry = CollectorRegistry()
    made(tmp_path / "one.db")
    made(tmp_path / "two.db", tasks=5)
    StoreCollector(tmp_path / "one.db", registry=registry)
    Metrics(tmp_path / "two.db", registry=registry)
    found = scrape(registry)
    tasks = {dict(labels)["store"]: value for (name, labels), value in found.items() if name == "duly_tasks"}
    assert tasks == {"one.db": 3, "two.db": 5}
    with pytest.raises(ValueError, match=r"metrics of a store named 'one\.db' already: use one"):
        Metrics(tmp_path / "one.db", registry=registry)
    Metrics(tmp_path / "one.db", registry=registry, name="another")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"store": 7}, "store must be the path or the URL of a store, got int"),
        ({"store": b"state.db"}, "store must be the path or the URL of a store, got bytes"),
        ({"store": "state.db", "per_task": "yes"}, "per_task must be True, False or a function of a task's name"),
        ({"store": "state.db", "per_task_max": "many"}, "per_task_max must be an int, got str"),
        ({"store": "state.db", "registry": "default"}, "registry must be a prometheus_client.CollectorRegistry"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], complaint: str) -> None:
    """Before anything is registered."""
    for made_by in (Metrics, StoreCollector):
        with pytest.raises(TypeError, match=complaint):
            made_by(**{"registry": None, **arguments})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per_task_max must be at least 0, got -1"):
        Metrics("state.db", registry=None, per_task_max=-1)


# --- the files beside ------------------------------------------------------------------------------------------------


def metrics_named_in(text: str) -> set[str]:
    """Names of metrics in expressions, without the endings that a histogram's series have."""
    named = set(re.findall(r"\bduly_[a-z_]+", text))
    return {re.sub("_(bucket|sum|count)$", "", name) for name in named}


def test_every_metric_of_the_dashboard_and_of_the_alerts_exists() -> None:
    """A renamed metric takes its panels and its alerts along."""
    names = {family.name for family in TABLE}
    panels = json.loads((MONITORING / "grafana.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(panels) == 12
    assert all(metrics_named_in(each) for each in expressions)
    assert metrics_named_in(" ".join(expressions)) <= names
    require("yaml", "pip install -r requirements/dev.txt", package="pyyaml")
    import yaml

    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    assert len(group["rules"]) == 8
    for rule in group["rules"]:
        assert metrics_named_in(rule["expr"])
        assert metrics_named_in(rule["expr"]) <= names
        assert rule["labels"]["severity"] in {"critical", "warning"}


def test_the_dashboard_has_its_variables_and_no_overlapping_panels() -> None:
    """It can be imported for any data source, and shows the stores that are chosen."""
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    assert [each["name"] for each in dashboard["templating"]["list"]] == ["datasource", "store"]
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in taken) < 24
        cells |= taken
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all('store=~"$store"' in target["expr"] for target in panel["targets"])
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.system
def test_promtool_accepts_the_alerts() -> None:
    """The rules are what Prometheus reads."""
    require("promtool", "apt-get install prometheus")
    checked = subprocess.run(
        ["promtool", "check", "rules", str(MONITORING / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "8 rules found" in checked.stdout


ALERTS = """
rule_files: [RULES]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'duly_scheduler_up{store="down.db"}', values: "1 0x20"}
      - {series: 'duly_scheduler_up{store="stuck.db"}', values: "1x20"}
      - {series: 'duly_tasks{store="stuck.db"}', values: "5x20"}
      - {series: 'duly_last_poll_timestamp_seconds{store="stuck.db"}', values: "0 60 120x18"}
      - {series: 'duly_scheduler_up{store="idle.db"}', values: "1x20"}
      - {series: 'duly_tasks{store="idle.db"}', values: "0x20"}
      - {series: 'duly_last_poll_timestamp_seconds{store="idle.db"}', values: "0x20"}
      - {series: 'duly_owed_oldest_seconds{store="late.db"}', values: "0 60 120 180 240 301x15"}
      - {series: 'duly_tasks_failing{store="bad.db"}', values: "1x80"}
      - {series: 'duly_store_faults_total{store="full.db",operation="write"}', values: "0x5 1x15"}
      - {series: 'duly_property_violations_total{store="wrong.db",property="S1"}', values: "0x5 1x15"}
      - {series: 'duly_warnings_total{store="shop.duly",kind="host_lost"}', values: "0x5 1x15"}
      - {series: 'duly_warnings_total{store="shop.duly",kind="clock_jumped"}', values: "0x3 1x15"}
      - {series: 'duly_task_last_success_timestamp_seconds{store="old.db",task="backup"}', values: "-259200x20"}
    alert_rule_test:
      - {eval_time: 2m, alertname: DulySchedulerDown, exp_alerts: []}
      - {eval_time: 4m, alertname: DulySchedulerDown, exp_alerts: [{exp_labels: {severity: critical, store: down.db}}]}
      - {eval_time: 5m, alertname: DulyPollTooOld, exp_alerts: []}
      - {eval_time: 6m, alertname: DulyPollTooOld, exp_alerts: [{exp_labels: {severity: critical, store: stuck.db}}]}
      - {eval_time: 4m, alertname: DulyOwed, exp_alerts: []}
      - {eval_time: 5m, alertname: DulyOwed, exp_alerts: [{exp_labels: {severity: warning, store: late.db}}]}
      - {eval_time: 59m, alertname: DulyFailing, exp_alerts: []}
      - {eval_time: 61m, alertname: DulyFailing, exp_alerts: [{exp_labels: {severity: warning, store: bad.db}}]}
      - {eval_time: 5m, alertname: DulyStoreFault, exp_alerts: []}
      - eval_time: 7m
        alertname: DulyStoreFault
        exp_alerts: [{exp_labels: {severity: critical, store: full.db, operation: write}}]
      - eval_time: 7m
        alertname: DulyPropertyViolated
        exp_alerts: [{exp_labels: {severity: critical, store: wrong.db, property: S1}}]
      - {eval_time: 5m, alertname: DulyHostLost, exp_alerts: []}
      - eval_time: 7m
        alertname: DulyHostLost
        exp_alerts: [{exp_labels: {severity: warning, store: shop.duly, kind: host_lost}}]
      - eval_time: 1m
        alertname: DulyTaskSilent
        exp_alerts: [{exp_labels: {severity: warning, store: old.db, task: backup}}]
"""


@pytest.mark.system
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    """As Prometheus evaluates them; a scheduler without tasks does not poll, and that is no reason for an alert."""
    require("promtool", "apt-get install prometheus")
    rules = (MONITORING / "alerts.yml").read_text()
    without_texts = re.sub(r"^ +annotations: .*$", "", rules, flags=re.MULTILINE)  # promtool would compare them, too
    (tmp_path / "rules.yml").write_text(without_texts)
    (tmp_path / "test.yml").write_text(ALERTS.replace("RULES", "rules.yml"))
    tested = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.system
def test_promtool_accepts_what_is_scraped(store: Path) -> None:
    """The exposition, with all families."""
    require("promtool", "apt-get install prometheus")
    made(store)
    registry = CollectorRegistry()
    Metrics(store, registry=registry, per_task=True)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, b"")


def test_the_reference_page_has_the_table_of_the_code() -> None:
    """docs/reference/metrics.md: name, type, labels, where it comes from, what it tells."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(duly_\w+)` \| (\w+) \|(.*?)\| (store|events) \| (.+?) \|$", page, re.MULTILINE)
    documented = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), origin) for name, kind, labels, origin, _ in rows]
    assert documented == [
        (family.name, family.type, family.labels, "store" if family.of_store else "events") for family in TABLE
    ]
