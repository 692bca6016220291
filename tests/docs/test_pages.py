"""Tutorial and moving-in pages are followed from top to bottom, as a reader would: every file, every command."""

import itertools
import re
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.cli.test_pages import wait_for_the_middle_of_a_minute
from tests.compute import NotInTimeError
from tests.conftest import require
from tests.docs.pages import DOCS, SESSIONS, TUTORIAL, differences, fences, files_before, needs_real_time, steps_of


def followed(pages: tuple[Path, ...]) -> ParameterSet:
    """A session; one with a scheduler that runs meanwhile is on real time."""
    marks = [pytest.mark.real_time] if needs_real_time(pages) else []
    name = pages[0].stem if len(pages) == 1 else pages[0].parent.name
    return pytest.param(pages, id=name, marks=marks)


@pytest.mark.parametrize("pages", [followed(tuple(pages)) for pages in SESSIONS])
def test_what_a_page_shows_is_what_is_printed(pages: tuple[Path, ...], tmp_path: Path) -> None:
    """`python -m tests.docs.pages` writes new output into the pages."""
    output = ""
    for attempt in ("first", "second", "third"):  # where a scheduler is running, a minute may begin meanwhile
        folder = tmp_path / attempt
        folder.mkdir()
        if needs_real_time(pages):
            wait_for_the_middle_of_a_minute()
        try:
            found = list(differences(pages, folder))
        except NotInTimeError:
            raise
        except AssertionError as unexpected:
            output = str(unexpected)
            continue
        if not found:
            return
        output = "\n".join(f"{fence.page.name}, block {fence.number}, is now:\n{text}" for fence, text in found)
    pytest.fail(output, pytrace=False)


def test_the_tutorial_has_five_steps_and_every_page_points_at_the_next() -> None:
    """docs/tutorial: a newcomer is never left without a way on."""
    assert len(TUTORIAL) == 5
    for page, following in itertools.pairwise(TUTORIAL):
        assert f"]({following.name})" in page.read_text().rstrip().splitlines()[-1]
    index = (DOCS / "tutorial" / "index.md").read_text()
    assert [f"]({page.name})" in index for page in TUTORIAL] == [True] * 5


@pytest.mark.parametrize("page", [*TUTORIAL, *sorted((DOCS / "moving").glob("*.md"))], ids=lambda page: page.name)
def test_a_page_that_is_followed_is_short(page: Path) -> None:
    """A tutorial step or a guide that takes more than a sitting is two."""
    assert len(page.read_text().splitlines()) < 300


def test_files_of_earlier_steps_are_there_in_later_ones() -> None:
    """Step 5 tests the file that step 3 has changed."""
    test = next(each for each in fences(TUTORIAL[4]) if each.file == "test_tasks.py")
    files = files_before(test)
    assert '("report", "* * * * *", report, timedelta(seconds=2))' in files["tasks.py"]
    assert "hello.py" in files


@pytest.mark.parametrize("page", sorted((DOCS / "moving").glob("*.md")), ids=lambda page: page.name)
def test_a_page_about_moving_in_answers_the_same_questions(page: Path) -> None:
    """Counterparts, refusals, and what differs: clocks both ways, downtime, crashes, several workers, PostgreSQL."""
    text = page.read_text()
    if page.name == "index.md":
        assert [f"]({other.name})" in text for other in sorted(page.parent.glob("[a-z]*.md")) if other != page] == [
            True
        ] * 5
        return
    for heading in ("Counterparts", "Refusals and their reasons", "Differences in behaviour"):
        assert f"\n## {heading}\n" in text
    rows = re.findall(r"^\| ([^|]+) \|", text.split("## Differences in behaviour")[1], re.MULTILINE)
    for wanted in ("clocks go forward", "clocks go back", "downtime", "a crash", "several|two beats"):
        assert any(re.match(wanted, row) for row in rows), wanted
    assert "](../cluster.md)" in text


def test_manifests_on_pages_can_be_read() -> None:
    """Kubernetes would refuse what YAML does not understand."""
    require("yaml", "pip install -r requirements/dev.txt", package="pyyaml")
    import yaml

    pages = sorted((DOCS / "moving").glob("*.md"))
    manifests = [each.text for page in pages for each in fences(page) if each.kind == "yaml"]
    assert manifests
    for text in manifests:
        assert {"apiVersion", "kind", "metadata", "spec"} <= set(yaml.safe_load(text))


def test_every_command_of_a_session_is_found() -> None:
    """The pattern that finds them still finds them."""
    blocks = [each for pages in SESSIONS for page in pages for each in fences(page)]
    commands = [step.command for each in blocks for step in steps_of(each)]
    assert len(commands) > 25
    assert sum(command.startswith("duly import") for command in commands) == 3
