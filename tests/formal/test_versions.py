"""Traces of format version 1, as duly 0.1.0 wrote them: read, judged, and continued in the newest version."""

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from duly.errors import TraceError
from duly.formal.checking import check
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.registers import RegisterSnapshot, TaskRow
from duly.formal.trace import VERSION, Event, Header, Writer, digest, encode_header
from tests.formal.hosts import hosts_story
from tests.formal.story import story

LIFE = (
    "IS IE Due RS REf RetryDue RS REs Override Due RS REs Due RS IS IE∅ REs IS IE Due RS REs SS SE IS IE Due RS REs "
    "SS SE"
)
FIXTURE = Path(__file__).parent.parent / "fixtures" / "v0.1.0" / "trace.jsonl"


def as_version_1(registers: dict[str, Any]) -> dict[str, Any]:
    """Registers as a header of version 1 had them."""
    scheduler = {name: value for name, value in registers["scheduler"].items() if name != "boot_seq"}
    kept = (row for row in registers["tasks"] if row[1] or row[8] is not None)
    # A declaration that is gone, and whose run goes on, counted as started.
    return {"scheduler": scheduler, "tasks": [[*row[:-2], row[-2] and row[1]] for row in kept]}


def in_two(events: list[Event], cut: int, versions: tuple[int, int], change: Any = None) -> bytes:
    """A trace in two segments, each in its version."""
    lines: list[bytes] = []
    first = Writer(lines.append, Header("s", version=versions[0]))
    first.add_all(events[:cut])
    first.seal(clean=False)
    monitor = Monitor()
    for event in events[:cut]:
        monitor.step(event)
    registers = monitor.snapshot().as_json()
    if versions[1] == 1:
        registers = as_version_1(registers)
    if change is not None:
        change(registers)
    second = Writer(lines.append, Header("s", 2, first.hash, cut + 1, registers, versions[1]))
    second.add_all(events[cut:])
    second.seal(clean=True)
    return b"".join(lines)


def test_the_trace_of_the_release_is_read() -> None:
    """docs/releases.md: a newer duly reads every older format."""
    data = FIXTURE.read_bytes()
    assert json.loads(data.splitlines()[0])["version"] == 1
    report = check(io.BytesIO(data))
    assert report.sealed
    assert not report.violated


def test_the_hash_of_a_version_1_seal_is_that_of_the_lines_alone() -> None:
    """So its word can be edited: that is why there is a version 2."""
    *lines, seal = FIXTURE.read_bytes().splitlines(keepends=True)
    assert json.loads(seal)["hash"] == hashlib.sha256(b"".join(lines)).hexdigest()


@pytest.mark.parametrize("versions", [(1, 1), (1, 2), (2, 2)])
def test_segments_of_both_versions_follow_each_other(versions: tuple[int, int]) -> None:
    """A store that an older duly began has segments of version 1, and later ones of version 2."""
    events = story(LIFE)
    whole = check(io.BytesIO(in_two(events, 5, (VERSION, VERSION))))
    assert {verdict.value for verdict in whole.verdicts.values()} == {Value.SATISFIED}
    for cut in range(1, len(events)):
        assert check(io.BytesIO(in_two(events, cut, versions))).verdicts == whole.verdicts


def test_registers_of_version_1_are_compared_as_well() -> None:
    """A snapshot that hides an obligation is found out in either version."""

    def hidden(registers: Any) -> None:
        registers["scheduler"]["active"] = not registers["scheduler"]["active"]

    def served(registers: Any) -> None:
        registers["tasks"][0][6] += 60_000_000

    for change in (hidden, served):
        with pytest.raises(TraceError, match="registers"):
            check(io.BytesIO(in_two(story(LIFE), 7, (1, 1), change)))


def test_registers_of_the_other_version_are_refused() -> None:
    """The number in the header says which registers it has."""
    monitor = Monitor()
    for event in story(LIFE)[:6]:
        monitor.step(event)
    registers = monitor.snapshot().as_json()
    for version, wrong in ((1, registers), (2, as_version_1(registers))):
        with pytest.raises(ValueError, match="register snapshot"):
            RegisterSnapshot.from_json(wrong, version)
        with pytest.raises(TraceError, match="register snapshot"):
            check(io.BytesIO(encode_header(Header("s", 2, "0" * 64, 7, wrong, version))), unsealed=True)


def test_the_documentation_defines_every_register_of_a_header() -> None:
    """docs/formal.md: anybody can write a header, or check one."""
    page = (Path(__file__).parent.parent.parent / "docs" / "formal.md").read_text()
    section = page[page.index("### The register snapshot") : page.index("\n## The properties")]
    scheduler, tasks = section.split("A row of `tasks`")
    assert re.findall(r"^\| `(\w+)` \|", scheduler, re.MULTILINE) == sorted(Monitor().snapshot().scheduler)
    assert re.findall(r"^\| `(\w+)` \|", tasks, re.MULTILINE) == list(TaskRow._fields)


def test_the_documentation_defines_every_register_of_a_header_of_many_hosts() -> None:
    """docs/formal.md: those of all, and those of each host."""
    monitor = Monitor(shared=True)
    for event in hosts_story("1:Join"):
        monitor.step(event)
    kept = monitor.snapshot().scheduler
    page = (Path(__file__).parent.parent.parent / "docs" / "formal.md").read_text()
    section = page[page.index("### The registers of many hosts") : page.index("\n## Two traces of other schedulers")]
    of_all, of_a_host = section.split("| register of a host |")
    assert re.findall(r"^\| `(\w+)` \|", of_all, re.MULTILINE) == sorted(kept)
    assert re.findall(r"^\| `(\w+)` \|", of_a_host, re.MULTILINE) == sorted(kept["hosts"][0])


def test_the_documentation_defines_the_digest() -> None:
    """Its example, computed by its words."""
    page = (Path(__file__).parent.parent.parent / "docs" / "formal.md").read_text()
    example = re.search(r"For `(\[.*\])` alone it is `([0-9a-f]{16})`", page)
    assert example is not None
    name, generation, cron, delay_ms = json.loads(example[1])
    assert hashlib.sha256(example[1].encode()).hexdigest()[:16] == example[2]
    assert digest([(name, generation, cron, delay_ms)]) == example[2]
    assert digest([]) == "0" * 16
    assert digest([("ä", 1, "* * * * *", 0)]) == hashlib.sha256(b'["\\u00e4",1,"* * * * *",0]').hexdigest()[:16]
