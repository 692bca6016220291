"""The documentation's examples run, and what it points at exists."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from _pytest.mark import ParameterSet

from duly.formal import trace
from duly.insight.json_form import JSON_FORMAT
from duly.stores.postgres import script
from duly.stores.sqlite import schema
from tests.conftest import require
from tests.docs.pages import Fence, fences, files_before

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = [
    pytest.param(each, id=f"{page.relative_to(ROOT)}-{each.number}")
    for page in PAGES
    for each in fences(page)
    if each.kind == "python"
]


@contextlib.contextmanager
def start(
    code: str, folder: Path, files: Mapping[str, str] = MappingProxyType({})
) -> "Iterator[subprocess.Popen[str]]":
    """An example as a reader would run it: from a file, in a folder of its own. It does not outlive its test."""
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "example.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "example.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
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


def serves(example: ParameterSet) -> bool:
    """Whether it runs until it is stopped."""
    (fence,) = example.values
    assert isinstance(fence, Fence)
    return ".wait()\n" in fence.text


@pytest.mark.parametrize("fence", [each for each in EXAMPLES if not serves(each)])
def test_an_example_runs(fence: Fence, tmp_path: Path) -> None:
    """The output on the page is what happens; examples that promise something assert it themselves.

    Files that the page has shown before are there.
    """
    for framework in ("aiohttp", "litestar"):
        if f"from {framework} " in fence.text:
            require(framework, "pip install -r requirements/dev.txt")
    with start(fence.text, tmp_path, files_before(fence)) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: signal.Signals(number).name)
@pytest.mark.parametrize("fence", [each for each in EXAMPLES if serves(each)])
def test_an_example_that_serves_prints_at_once_and_stops_cleanly(fence: Fence, number: int, tmp_path: Path) -> None:
    """The first program of the README: a line at once, then a signal; no traceback, exit code 0, the store is free."""
    with start(fence.text, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "still here\n"
        assert (tmp_path / "state.db.lock").read_text() != ""
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert (tmp_path / "state.db.lock").read_text() == ""


def test_the_first_screen_of_the_readme_is_complete() -> None:
    """The purpose, a `kill -9` and an `explain`, and a line for each scheduler that people come from."""
    first = (ROOT / "README.md").read_text().split("\n## ")[0]
    assert len(first.splitlines()) <= 40
    assert "kill -9" in first
    assert "$ duly explain" in first
    coming_from = re.findall(r"^\| ([\w ]+) \| .{20,}\|$", first, re.MULTILINE)
    assert coming_from == ["cron", "APScheduler", "Celery beat", "schedule", "Kubernetes CronJob"]


@pytest.mark.long
@pytest.mark.real_time
def test_the_demo_tells_its_story_and_ends_by_itself(tmp_path: Path) -> None:
    """`make demo` without a terminal: a first run, a failure with its retry, a blocking task, and a catch-up."""
    with start((ROOT / "examples" / "hello.py").read_text(), tmp_path) as process:
        story, errors = process.communicate(timeout=110)
    assert process.returncode == 0, errors
    assert errors == ""
    for line in (
        "heartbeat: still here",
        "flaky: failed (ConnectionError: the upstream service is asleep)",
        "flaky: its retry delay has passed, retry number 1",
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


UNUSED_WORDS = re.compile(
    r"\b(?:mend(?:s|ed)?|(?<!here )is no (?!longer|more)\w+|also (?:while|across)|(?:is|are) told|waves?|strays?"
    r"|served marks?|the shell)\b"
)


def test_a_page_does_not_use_the_words_that_the_glossary_rules_out() -> None:
    """Outside of code and of what programs print; the glossary itself names them."""
    found = {}
    for page in PAGES:
        prose = re.sub(r"^```.*?^```|`[^`\n]+`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        found[str(page.relative_to(ROOT))] = UNUSED_WORDS.findall(prose)
    assert {page: words for page, words in found.items() if words and not page.endswith("glossary.md")} == {}


def test_the_words_that_the_glossary_rules_out_are_found() -> None:
    """Each of them, and none that only looks like one."""
    assert UNUSED_WORDS.findall("It is no disaster, and was mended.") == ["is no disaster", "mended"]
    assert UNUSED_WORDS.findall("A task that is no longer declared is told, also while a wave waits.") == [
        "is told",
        "also while",
        "wave",
    ]
    assert UNUSED_WORDS.findall("They commended what is no longer there.") == []


_DOCSTRING = re.compile(r'"""(?:The same|What|Who|Those) (?!if\b)[^?\n]*$', re.MULTILINE)


def test_a_docstring_begins_with_the_thing_that_it_is_about() -> None:
    """Not with a pronoun whose noun comes at the end of the sentence; a question is one, and so is `What if`."""
    folders = ("src", "tests", "benchmarks", "conformance", "formal", "examples", "docs")
    sources = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {path: _DOCSTRING.findall(path.read_text(encoding="utf-8")) for path in sources}
    assert {str(path.relative_to(ROOT)): lines for path, lines in found.items() if lines} == {}
    assert len(sources) > 500
    assert _DOCSTRING.search('    """What' + ' a store holds."""')
    assert not _DOCSTRING.search('    """What' + ' would change? New tasks."""')


def test_the_marks_of_the_tests_are_those_that_their_readme_explains() -> None:
    """tests/README.md has every mark, in the order of pyproject.toml."""
    explained = re.findall(r"^\| `(\w+)` \|", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE)
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert explained == [marker.split(":")[0] for marker in markers]


def test_the_numbers_of_the_releases_page_are_those_of_the_code() -> None:
    """docs/releases.md: the version of the package, the store's schema, the trace and the JSON forms."""
    page = (ROOT / "docs" / "releases.md").read_text()
    table = dict(re.findall(r"^\| ([\w (`),]+?) \| ([\d.]+) \| (?:`|src/|\[reference)", page, re.MULTILINE))
    assert table == {
        "package": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        "store schema": str(schema.VERSION),
        "store schema, PostgreSQL": str(script.VERSION),
        "trace format": str(trace.VERSION),
        "trace format of a shared store": str(trace.SHARED_VERSION),
        "JSON form (`format`)": str(JSON_FORMAT),
    }


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package() -> None:
    """Behind *Unreleased*, which always stands first; releases are dated, and the newest is above."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$", changelog, re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    versions, dates = zip(*headings[1:], strict=True)
    assert versions[0] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert all(dates)
    assert list(dates) == sorted(dates, reverse=True)
    assert len(headings) == len(re.findall(r"^## ", changelog, re.MULTILINE))


def test_the_limits_of_ci_are_those_that_it_says() -> None:
    """`.ci/run`: all steps together end before an hour and a half is over; one that hangs leaves time for others."""
    script = (ROOT / ".ci" / "run").read_text()
    limits = [int(minutes) for minutes in re.findall(r"^ *step \"[^\"]+\" (\d+) ", script, re.MULTILINE)]
    together = re.search(r"^ALL_SECONDS_MAX=\$\(\((\d+) \* 60\)\)$", script, re.MULTILINE)
    assert together is not None
    assert f"end within {together[1]} minutes" in script
    assert len(limits) == 6
    assert max(limits) < int(together[1]) < 90
