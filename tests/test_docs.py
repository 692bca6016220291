"""The documentation's examples run, and what it points at exists."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.cli.output import JSON_FORMAT
from duly.formal import trace
from duly.stores.sqlite import schema

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL), 1)
]


@contextlib.contextmanager
def start(code: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """An example as a reader would run it: from a file, in a folder of its own. It does not outlive its test."""
    (folder / "example.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "example.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_there_are_examples() -> None:
    """The pattern that finds them still finds them."""
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("code", [each for each in EXAMPLES if ".wait()\n" not in str(each.values[0])])
def test_an_example_runs(code: str, tmp_path: Path) -> None:
    """What the page shows is what happens; examples that promise something assert it themselves."""
    with start(code, tmp_path) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("code", [each for each in EXAMPLES if ".wait()\n" in str(each.values[0])])
async def test_an_example_that_serves_stops_at_ctrl_c(code: str, tmp_path: Path) -> None:
    """The first example of the README: it holds its store while it runs, and lets go of it when interrupted."""
    with start(code, tmp_path) as process:
        lock = tmp_path / "state.db.lock"
        while not (lock.exists() and lock.read_text() and (tmp_path / "state.db").exists()):
            assert process.poll() is None, process.communicate()
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert "Error:" not in errors
    assert lock.read_text() == ""


@pytest.mark.slow
def test_the_demo_tells_its_story_and_ends_by_itself(tmp_path: Path) -> None:
    """`make demo` without a terminal: a first run, a failure with its retry, a blocking task, and a catch-up."""
    with start((ROOT / "examples" / "hello.py").read_text(), tmp_path) as process:
        story, errors = process.communicate(timeout=110)
    assert process.returncode == 0, errors
    assert errors == ""
    for line in (
        "heartbeat: still here",
        "flaky: failed (ConnectionError: the upstream service is asleep)",
        "flaky: its delay has passed, retry number 1",
        "rotate-logs: blocked its own thread",
        "the minute that was missed is served, once",
        "Stopped: every run has ended, every end is recorded.",
    ):
        assert line in story
    caught_up = story.split("the minute that was missed is served, once")[1]
    assert caught_up.count("heartbeat: due at") == 1


def test_every_test_that_the_guarantees_name_exists() -> None:
    """A promise points at a test that would fail; a renamed test takes its promise along."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "guarantees.md").read_text()))
    source = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", source))
    assert len(named) > 30
    assert sorted(named - defined) == []


def test_the_numbers_of_the_releases_page_are_those_of_the_code() -> None:
    """docs/releases.md: the version of the package, the store's schema, the trace and the JSON forms."""
    page = (ROOT / "docs" / "releases.md").read_text()
    table = dict(re.findall(r"^\| ([\w (`)]+?) \| ([\d.]+) \|", page, re.MULTILINE))
    assert table == {
        "package": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        "store schema": str(schema.VERSION),
        "trace format": str(trace.VERSION),
        "JSON form (`format`)": str(JSON_FORMAT),
    }
