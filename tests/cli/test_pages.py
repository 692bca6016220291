"""Every session that the documentation shows of the command line is what the program still prints."""

import time
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from duly.cli.app import COMMANDS
from tests.cli.pages import Block, Step, a_week_long_ago, blocks, form, matches, replay, session, stage_of
from tests.compute import NotInTimeError

ALL = blocks()
MIDDLE = 6, 50
"""Seconds of a minute; a start is on time in its first five."""


def replayed(block: Block) -> ParameterSet:
    """A session; one with a scheduler that runs meanwhile is on real time."""
    marks = [] if stage_of(block.text) is a_week_long_ago else [pytest.mark.real_time]
    return pytest.param(block, id=f"{block.page.name}-{block.number}", marks=marks)


def wait_for_the_middle_of_a_minute() -> None:
    """A task that is due in this minute is then late, as on the pages, and no other minute begins for a while."""
    into = time.time() % 60
    if not MIDDLE[0] <= into <= MIDDLE[1]:
        time.sleep((MIDDLE[0] - into) % 60)


@pytest.mark.parametrize("block", [replayed(block) for block in ALL])
def test_what_a_page_shows_is_what_is_printed(block: Block, tmp_path: Path) -> None:
    """The commands run again on the same stage; times are compared by their form.

    `python -m tests.cli.pages` writes new output into the pages.
    """
    output = ""
    for attempt in ("first", "second", "third"):  # where a scheduler is running, a minute may begin meanwhile
        folder = tmp_path / attempt
        folder.mkdir()
        if stage_of(block.text) is not a_week_long_ago:
            wait_for_the_middle_of_a_minute()
        try:
            now = replay(block, folder)
        except NotInTimeError:
            raise
        except AssertionError as unexpected:
            output = str(unexpected)
            continue
        if all(map(matches, block.steps, now)):
            return
        output = session(now)
    pytest.fail(f"{block.page.name}, block {block.number}, is now:\n{output}", pytrace=False)


@pytest.mark.parametrize("page", ["README.md", "commands.md"])
def test_every_command_is_shown_with_its_output(page: str) -> None:
    """The README shows each command with real output, and so does the reference; `import` differs, three have none."""
    shown = {
        step.command.split("duly ", 1)[1].split()[0]
        for block in ALL
        if block.page.name == page
        for step in block.steps
        if "duly " in step.command and step.shown
    }
    assert shown >= {*COMMANDS} - {"import", "mcp", "web", "completion"}
    assert any("duly import" in block.text for block in ALL if block.page.name == page)


def test_the_comparison_can_fail() -> None:
    """Times, durations and process numbers may differ, words and other numbers may not."""
    assert form("since 02:25:14, 3.2 s ago") == form("since 13:00, 1 min 4 s ago")
    assert form("backup at Mon 2026-11-16 23:12: ran") == form("backup at Tue 2026-11-17 00:07: ran")
    assert form("^C04:03:37  duly") == form("^C15:07:42  duly")
    assert agrees("a  b\n…\nz\n", "a  b\nc\nd\nz\n")
    assert agrees("a\nz\n", "a\nb\nz\n", "duly run")
    assert not agrees("a\nz\n", "a\nb\nz\n")
    assert not agrees("healthy\n", "unhealthy\n")
    assert not agrees("z\na\n", "a\nz\n", "duly run")
    assert not agrees("4 tasks\n", "5 tasks\n")


def agrees(shown: str, now: str, command: str = "duly status") -> bool:
    return matches(Step(command, shown), Step(command, now))
