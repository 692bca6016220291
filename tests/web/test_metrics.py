"""The figures of a store at `/metrics`: those of the collector for Prometheus, and none that is not known."""

from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp

from duly.integrations.prometheus import TABLE, StoreCollector
from duly.web import dashboard
from tests.stores.helpers import change
from tests.stores.made import Row, make_store
from tests.web.conftest import Stage, client

Series = tuple[str, frozenset[tuple[str, str]]]


async def scraped(app: ASGIApp) -> httpx.Response:
    async with client(app) as opened:
        answer = await opened.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return answer


def values(text: str) -> dict[Series, float]:
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {(each.name, frozenset(each.labels.items())): each.value for each in samples}


async def test_the_figures_are_those_of_the_collector(stage: Stage) -> None:
    """One table of names; whether the dashboard or the application is scraped, a series has one meaning."""
    registry = CollectorRegistry()
    StoreCollector(stage.path, registry=registry)
    expected = values(generate_latest(registry).decode())
    found = values((await scraped(dashboard(stage.path))).text)
    assert found.keys() == expected.keys()
    moving = {"duly_owed_oldest_seconds"}
    for series, value in expected.items():
        if series[0] not in moving:
            assert found[series] == pytest.approx(value), series
    assert {name for name, _ in found} == {each.name for each in TABLE if each.of_store and "task" not in each.labels}
    assert found["duly_tasks", frozenset({("store", "state.db")})] == 14


async def test_before_the_tasks_are_counted_there_are_no_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not known is not 0: a rule that alerts on owed tasks must not be told that there are none."""
    monkeypatch.setattr("duly.web.sampler.Sampler._take", lambda self: None)
    monkeypatch.setattr("duly.web.metrics._WAIT_SECONDS", 0.01)
    names = {name for name, _ in values((await scraped(stage.dashboard())).text)}
    assert names == {"duly_scheduler_up", "duly_last_poll_timestamp_seconds", "duly_info"}


async def test_a_store_that_cannot_be_read_is_a_scheduler_that_is_not_up(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    down = {("duly_scheduler_up", frozenset({("store", "state.db")})): 0.0}
    assert values((await scraped(dashboard(store))).text) == down
    store.write_bytes(b"no database" * 1000)
    assert values((await scraped(dashboard(store))).text) == down


async def test_labels_are_escaped(tmp_path: Path) -> None:
    store = make_store(tmp_path / 'a"b\\c\nd.db', [Row("one")])
    change(store, "UPDATE meta SET value = ? WHERE key = 'zone'", 'x"} 1\nduly_tasks 99')
    found = values((await scraped(dashboard(store))).text)
    assert {dict(labels)["store"] for _, labels in found} == {'a"b\\c\nd.db'}
    assert found["duly_tasks", frozenset({("store", 'a"b\\c\nd.db')})] == 1
    (zone,) = [dict(labels)["zone"] for name, labels in found if name == "duly_info"]
    assert zone == 'x"} 1\nduly_tasks 99'
