"""`make demo-cluster`: three processes on one PostgreSQL, faults, and the verdict on what happened."""

import re
import subprocess
import sys
from datetime import datetime

import pytest

from tests.programs import ROOT, environment

pytestmark = pytest.mark.system

SHOWN_SECONDS_MAX = 180
"""By the times that it prints: two minutes, and up to 40 seconds more to begin with a minute."""

PATIENCE_SECONDS = 300
"""Until it has ended; the machine may be slow before its first line and after its last one."""


@pytest.mark.long
def test_the_demo_shows_who_ran_what_through_a_freeze_a_kill_and_a_restart_and_ends_with_the_verdict() -> None:
    """SPEC 9.3, 9.5, 9.6, 9.20: as a newcomer sees it; the exit code is that of `duly verify`."""
    told = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "cluster.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    story = told.stdout
    print(story)  # for whoever reads why it failed
    assert (told.returncode, told.stderr) == (0, "")
    said = re.findall(r"^\d\d:\d\d:\d\d  (\w+) +(.*)$", story, re.MULTILINE)
    assert _shown_seconds(story) <= SHOWN_SECONDS_MAX

    freeze, frozen = _one(said, r"(\w+) is frozen \(SIGSTOP\)")
    kill, killed = _one(said, r"(\w+) is killed \(SIGKILL\)")
    outage, _ = _one(said, r"(The database) stops, and is back")
    assert frozen != killed
    for fault, victim in ((freeze, frozen), (kill, killed)):
        # A host that was there first knows the others by their numbers alone.
        buried = rf"has buried ({victim}|host \d+): .*"
        assert any(who != victim and re.fullmatch(buried, text) for who, text in said[fault:])
    assert (frozen, "learns that it was buried; it will join again") in said[freeze:]
    assert any(who == frozen and "is cancelled: another host has started it again" in text for who, text in said)
    assert any(who != frozen and re.fullmatch(r"starts slow-\w again, .*", text) for who, text in said[freeze:])
    survivors = {"anna", "ben", "cleo"} - {killed}
    for sentence in ("gets no answer any more: it starts nothing and holds its callbacks", "is answered again: "):
        assert {who for who, text in said[outage:] if text.startswith(sentence)} == survivors

    table = [line.split() for line in story.splitlines() if line.startswith("slow-")]
    assert {row[0] for row in table} == {"slow-a", "slow-b", "slow-c"}
    assert any(host == frozen and outcome == "interrupted" for _, _, host, _, outcome in table)
    assert any(host != frozen and cause == "interrupted" for _, _, host, cause, _ in table)  # started again elsewhere
    assert {task for task, _, _, _, outcome in table if outcome == "success"} == {"slow-a", "slow-b", "slow-c"}
    assert re.search(r"^\d+ due minutes were served, 0 of them twice\.$", story, re.MULTILINE)
    assert re.search(r"^Runs: \w+ \d+(, \w+ \d+)+$", story, re.MULTILINE)
    assert re.fullmatch(r"\d+ properties hold, \d+ events, \d+ crashes", story.splitlines()[-1])


def _shown_seconds(story: str) -> float:
    """The seconds from the first time that the demo prints to the last one."""
    times = [datetime.strptime(each, "%H:%M:%S") for each in re.findall(r"^(\d\d:\d\d:\d\d)  ", story, re.MULTILINE)]
    return (times[-1] - times[0]).total_seconds() % 86_400  # it may begin before midnight


def _one(said: list[tuple[str, str]], pattern: str) -> tuple[int, str]:
    """The place of the one sentence of the tour that matches, and the name in it."""
    found = [
        (place, match[1])
        for place, (who, text) in enumerate(said)
        if who == "tour" and (match := re.match(pattern, text))
    ]
    assert len(found) == 1, pattern
    return found[0]
