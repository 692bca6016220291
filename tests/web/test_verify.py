"""The verdict on a trace: as the command has it, kept while the trace stays, and never better than what is known."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duly.stores import SqliteReader
from duly.testing import SimulatedHost
from duly.web import verdict
from duly.web.app import over
from duly.web.child import NotAnsweredError
from duly.web.frame import Settings
from tests.programs import ROOT
from tests.stores.helpers import change
from tests.web.conftest import Stage
from tests.web.hostile import MARKUP, NAMES
from tests.web.test_api import asked, printed
from tests.web.test_pages import page_of, rows_of, said

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


async def test_the_verdict_is_that_of_the_command(traced_stage: Stage) -> None:
    """SPEC 10.4: one value, wherever it is shown."""
    app = traced_stage.dashboard()
    command = printed("verify", str(traced_stage.path))
    assert await asked(app, "/api/v1/verify") == command
    page = await page_of(app, "/verify")
    assert command["verdict"] == "satisfied"
    assert f"{len(command['properties'])} properties hold" in said(page)
    assert f"{command['events']:,} events, 1 segment, 2 tasks, 1 crash" in said(page)
    assert "the verdicts are final" in said(page)
    assert len(rows_of(page)) == 1 + len(command["properties"])


async def test_a_trace_is_judged_once_and_again_when_it_has_grown(
    traced_stage: Stage, tmp_path: Path, children: list[str]
) -> None:
    path = tmp_path / "state.db"
    shutil.copy(traced_stage.path, path)
    app = Stage(path, traced_stage.clock).dashboard()
    first = await asked(app, "/api/v1/verify")
    assert await asked(app, "/api/v1/verify") == first
    assert "properties hold" in said(await page_of(app, "/verify"))
    assert children == ["verify"]

    async def work() -> None: ...

    async with SimulatedHost("2026-10-26T14:00:30", "Europe/Berlin", store=path) as host:
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("export", "* * * * *", work, timedelta(minutes=1))])
        await host.advance(minutes=3)
        await scheduler.stop()
    assert (await asked(app, "/api/v1/verify"))["events"] > first["events"]
    assert children == ["verify", "verify"]


async def test_its_times_are_in_the_zone_of_the_store(traced_stage: Stage) -> None:
    """As on every other page, with the offset as title."""
    page = await page_of(traced_stage.dashboard(), "/verify")
    assert re.search(r'until <time datetime="2026-10-26T13:00:[^"]*\+01:00" title="[^"]*\+01:00">13:00', page)
    assert "Europe/Berlin read-only" in said(page)


async def test_a_store_without_a_trace_is_not_shown_as_fine(stage: Stage, children: list[str]) -> None:
    page = said(await page_of(stage.dashboard(), "/verify"))
    assert "Not known This store holds no trace" in page
    assert "duly run --trace" in page
    assert "hold so far" not in page
    assert "no trace" in (await asked(stage.dashboard(), "/api/v1/verify", 404))["error"]
    assert children == []


async def test_a_trace_that_ends_before_the_present_says_so(traced_stage: Stage, tmp_path: Path) -> None:
    """A scheduler without `trace=True` has used the store since."""
    path = tmp_path / "state.db"
    shutil.copy(traced_stage.path, path)

    async def work() -> None: ...

    async with SimulatedHost("2026-10-26T14:00:30", "Europe/Berlin", store=path) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("export", "* * * * *", work, timedelta(minutes=1))])
        await scheduler.stop()
    assert "nothing is known about what came then" in said(
        await page_of(Stage(path, traced_stage.clock).dashboard(), "/verify")
    )


async def test_a_trace_that_was_edited_has_no_verdict(traced_stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    shutil.copy(traced_stage.path, path)
    first = "(SELECT min(seq) FROM trace WHERE line LIKE '%export%')"
    change(path, f"UPDATE trace SET line = replace(line, 'export', 'report') WHERE seq = {first}")
    app = Stage(path, traced_stage.clock).dashboard()
    page = said(await page_of(app, "/verify"))
    assert "Not known The trace is refused: line" in page
    assert "properties hold" not in page
    assert "refused" in (await asked(app, "/api/v1/verify", 503))["error"]


async def test_a_violation_is_shown_with_its_grounds_and_its_smallest_sub_trace(
    traced_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = printed("verify", str(ROOT / "examples" / "traces" / "overlap-after-a-pause.jsonl"))
    monkeypatch.setattr("duly.web.source.StoreSource.judgement", lambda self: document)
    page = await page_of(traced_stage.dashboard(), "/verify")
    (first, *_) = [each for each in document["properties"] if each["value"] == "violated"]
    assert f"Violated: {first['property']}" in said(page)
    assert first["first"]["sentence"] in said(page)
    for letters, seq, *_ in first["first"]["subTrace"]["events"]:
        assert re.search(rf"\b{seq} 2025-06-02T\S+Z {letters}\b", said(page))
    assert "Active · ¬Quiet" in said(page)
    assert "properties hold" not in page


def renamed(value: Any, name: str) -> Any:
    """A verdict in which the task and the scheduler have another name, which the sentence quotes."""
    if isinstance(value, dict):
        return {key: renamed(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, name) for each in value]
    if value == "starts while run 1 has not ended":
        return f"{name} {value}"
    return name if value in ("report", "a scheduler that trusts its timer") else value


@pytest.mark.parametrize("name", NAMES)
async def test_a_hostile_name_in_a_violation_breaks_out_of_no_page(
    name: str, traced_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WEB 6.5: the sentence, the grounds and the sub-trace of a violation."""
    document = renamed(printed("verify", str(ROOT / "examples" / "traces" / "overlap-after-a-pause.jsonl")), name)
    assert document["properties"][0]["first"]["task"] == name
    monkeypatch.setattr("duly.web.source.StoreSource.judgement", lambda self: document)
    page = await page_of(traced_stage.dashboard(), "/verify")
    assert "Violated: S1" in said(page)
    assert [markup for markup in MARKUP if markup in page] == []


# --- limits ----------------------------------------------------------------------------------------------------------


def request(stage: Stage) -> dict[str, Any]:
    return {"store": {"path": str(stage.path)}, "name": "state.db", "now": stage.clock.now()}


def test_a_trace_of_too_many_events_is_left_to_the_command(
    traced_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "EVENTS_MAX", 10)
    with pytest.raises(NotAnsweredError, match="more than 10 events, and the dashboard judges no longer") as refused:
        verdict.judge(request(traced_stage))
    assert "duly verify" in (refused.value.hint or "")


@pytest.mark.slow
def test_what_takes_too_long_or_too_much_memory_is_ended(tmp_path: Path) -> None:
    """WEB 6.8: the child bounds itself, so that it ends even if the dashboard is gone."""
    program = """
import asyncio, ctypes, operator
from functools import partial
import duly.web.worker as worker
def endless(request):
    while True: pass
async def asleep(): await asyncio.gather(*(asyncio.sleep(3600) for _ in range(3)))
async def spinning():
    while True: await asyncio.sleep(0)
class LateAlarm:  # arrives in the instant before the loop sleeps: both in C, where no bytecode runs the handler
    def __init__(self, real): self.real, self.called = real, False
    def __getattr__(self, name): return getattr(self.real, name)
    def poll(self, duration, most):
        if self.called or duration == 0: return self.real.poll(duration, most)
        self.called = True
        return list(map(operator.call, (ctypes.CDLL(None).pause, partial(self.real.poll, -1, most))))[1]
async def late():
    selector = asyncio.get_running_loop()._selector
    selector._selector = LateAlarm(selector._selector)
    await asyncio.sleep(3600)
loops = {each.__name__: lambda request, each=each: asyncio.run(each()) for each in (asleep, spinning, late)}
worker._questions = lambda: {**loops, "endless": endless, "large": lambda request: {"bytes": len(bytearray(2 << 30))}}
worker.main()
"""

    def answer(question: str) -> dict[str, Any]:
        asked_for = {"question": question, "secondsMax": 1, "memoryBytesMax": 512 << 20}
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(asked_for).encode(),
            capture_output=True,
            check=True,
            timeout=120,
        )
        refusal: dict[str, Any] = json.loads(done.stdout)["refusal"]
        return refusal

    for question in ("endless", "asleep", "late", "spinning"):
        assert answer(question)["text"] == "This takes more than the 1 s of processor time that the dashboard gives it."
    assert answer("large")["text"] == "This takes more memory than the dashboard gives it."


async def test_a_child_that_fails_is_not_an_answer(
    traced_stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.CompletedProcess([], 1, b"", b"Traceback: a secret")

    monkeypatch.setattr("duly.web.child.subprocess.run", broken)
    page = await page_of(traced_stage.dashboard(), "/verify")
    assert "Not known" in said(page)
    assert "secret" not in page
    assert "a secret" in caplog.text


async def test_one_is_computed_at_a_time(traced_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """WEB 6.8: the second gets 429, pages are served meanwhile, and afterwards it is free again."""
    begun, goes_on = threading.Event(), threading.Event()
    run: Run = subprocess.run

    def slow(*arguments: Any, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        begun.set()
        goes_on.wait(60)
        return run(*arguments, **options)

    monkeypatch.setattr("duly.web.child.subprocess.run", slow)
    app = over(
        traced_stage.path, SqliteReader(traced_stage.path, traced_stage.clock.now), traced_stage.clock, Settings()
    )
    first = asyncio.create_task(page_of(app, "/verify"))
    try:
        await asyncio.to_thread(begun.wait, 60)
        assert "Another verdict or simulation" in said(await page_of(app, "/verify", 429))
        assert "Another verdict" in (await asked(app, "/api/v1/verify", 429))["error"]
        assert "Another verdict" in said(await page_of(app, "/whatif?from=now", 429))
        for _ in range(4):
            assert "export" in await page_of(app, "/tasks")
    finally:
        goes_on.set()
    assert "properties hold" in said(await first)
    assert "properties hold" in said(await page_of(app, "/verify"))
