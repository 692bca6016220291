"""`duly trace export` and `duly verify`: a verdict from stores and files, and never a false one."""

import asyncio
import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from duly.core.moments import Delay, Instant
from duly.formal import IS, RE, RS, SE, SS, Header, Writer, check
from duly.formal.checking import Checker
from duly.formal.reader import events
from duly.formal.trace import BT, IE, RG, WK, Event, shared_header
from duly.stores import SqliteStore
from duly.stores.sqlite.trace import Tracing
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.cli.program import (
    ROOT,
    Outcome,
    Service,
    Terminal,
    ago,
    duly,
    environment,
    failing,
    fingerprint,
    nothing,
    simulated,
    write_target,
)
from tests.formal.hosts import hosts_story
from tests.stores.helpers import older_layout

EXAMPLES = ROOT / "examples" / "traces"
NOON = Instant(1_748_865_600_000_000)  # 2 June 2025, 12:00 UTC
FOREVER = "[('a', '* * * * *', quick, timedelta(0)), ('b', '0 0 1 1 *', endless, timedelta(0))]"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store of a traced scheduler that was stopped, and one that never was traced."""
    folder = tmp_path_factory.mktemp("stores")

    async def live() -> None:
        async with simulated(folder / "state.db", ago(minutes=30)) as host:
            scheduler = host.scheduler(trace=True)
            await scheduler.initialize(
                [("a", "* * * * *", nothing, timedelta(0)), ("b", "0,15,30,45 * * * *", failing, timedelta(minutes=5))]
            )
            await host.advance(minutes=20)
            await scheduler.stop()
        async with simulated(folder / "untraced.db", ago(minutes=1)) as host:
            scheduler = host.scheduler()
            await scheduler.initialize([("a", "* * * * *", nothing, timedelta(0))])
            await scheduler.stop()

    asyncio.run(live())
    return folder


@pytest.fixture
def folder(stores: Path, tmp_path: Path) -> Path:
    """A copy of the folder, for one test alone."""
    shutil.copytree(stores, tmp_path, dirs_exist_ok=True)
    return tmp_path


def lines(trace: list[Event], *, clean: bool | None = False) -> list[bytes]:
    """A trace as lines."""
    out = io.BytesIO()
    writer = Writer(out.write, Header("a test"))
    writer.add_all(trace)
    if clean is not None:
        writer.seal(clean=clean)
    return out.getvalue().splitlines(keepends=True)


def after(seconds: float) -> Instant:
    """This long after noon."""
    return Instant(NOON + round(seconds * 1_000_000))


def begun(runs: int = 0, task: str = "a", boot: str = "boot-1") -> list[Event]:
    """A minutely task, and some runs of it."""
    trace: list[Event] = [
        BT(1, NOON, boot, 0),
        IS(2, NOON, 1),
        RG(3, NOON, task, 1, "new", "* * * * *", Delay(0), "UTC", NOON, "loop"),
        IE(4, NOON, 1, 1, "", "restart", None, None, "UTC"),
    ]
    for run in range(runs):
        trace += [
            RS(len(trace) + 1, after(60 * run + 0.001), task, 1, run + 1, "cron", 0),
            RE(len(trace) + 2, after(60 * run + 0.002), task, 1, run + 1, True),
        ]
    return trace


# --- a store's trace -------------------------------------------------------------------------------------------------


def test_the_trace_of_a_store_is_exported_and_verified(folder: Path) -> None:
    """Standard output and a file get equal bytes: a whole trace, sealed as clean after a stop, and satisfied."""
    before = fingerprint(folder)
    result = duly("trace", "export", "state.db", folder=folder)
    assert (result.code, result.err) == (0, "")
    assert fingerprint(folder) == before
    report = check(io.BytesIO(result.out.encode()))
    assert report.ended
    assert not report.violated
    assert report.tasks == 2
    written = duly("trace", "export", "state.db", "-o", "out.jsonl", folder=folder)
    assert written.code == 0
    assert written.out == f"out.jsonl: {report.events} events in 1 segment, sealed clean\n"
    assert (folder / "out.jsonl").read_text() == result.out
    for source in ("state.db", "out.jsonl"):
        verdict = duly("verify", source, folder=folder)
        assert verdict.code == 0
        assert verdict.out == f"{len(report.verdicts)} properties hold, {report.events} events, no crash\n"
        whole = duly("verify", source, "-v", folder=folder)
        assert whole.code == 0
        assert "nothing violated; the trace has ended, and the verdicts are final" in whole.out
        assert whole.out.count("satisfied") == len(report.verdicts)
    assert fingerprint(folder).keys() == {*before, "out.jsonl"}


def test_export_tells_about_itself_in_json(folder: Path) -> None:
    """Standard output has the trace, so `--json`, which describes the export, needs a file for the trace."""
    document = duly("trace", "export", "state.db", "-o", "out.jsonl", "--json", folder=folder).json
    facts = {"command": "trace export", "format": 1, "store": "state.db", "segments": 1, "firstSegment": 1}
    assert facts.items() <= document.items()
    assert (document["seal"], document["current"], document["firstSeq"]) == ("clean", True, 1)
    assert document["bytes"] == (folder / "out.jsonl").stat().st_size
    assert document["events"] == len(list(events(io.BytesIO((folder / "out.jsonl").read_bytes()))))
    assert document["position"] == document["firstSeq"] + document["events"] - 1
    refused = duly("trace", "export", "state.db", "--json", folder=folder)
    assert (refused.code, refused.out) == (2, "")
    assert "give -o FILE" in refused.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["trace", "export", "untraced.db"], 7, "untraced.db holds no trace"),
        (["verify", "untraced.db"], 7, "run --trace"),
        (["trace", "export", "stat.db"], 4, "did you mean state.db?"),
        (["verify", "stat.db"], 4, "did you mean state.db?"),
        (["verify", "."], 4, "is a folder"),
        (["trace", "export", "."], 4, "is a folder"),
        (["trace", "export", "foreign.db"], 4, "is a database of something else"),
        (["verify", "foreign.db"], 4, "is a database of something else"),
        (["trace", "export", "state.db", "-o", "."], 4, "is a folder"),
        (["trace", "export", "state.db", "-o", "untraced.db"], 2, "is a store: it would be lost"),
        (["trace", "export", "state.db", "-o", "nowhere/out.jsonl"], 4, "does not exist"),
        (["trace", "export", "state.db", "-o", "/dev/full"], 4, "/dev/full cannot be written: no space left on device"),
        (["trace", "export"], 2, "Missing argument"),
        (["trace", "exprot", "state.db"], 2, "exprot"),
        (["verify"], 2, "Missing argument"),
        (["verify", "/dev/null"], 7, "there is nothing here"),
        (["verify", "tasks.py"], 7, "tasks.py, line 1: the line is not JSON"),
    ],
)
def test_wrong_usage_is_one_message(folder: Path, arguments: list[str], code: int, message: str) -> None:
    """One message, what to do, the documented code, nothing on standard output, and no file changed."""
    with sqlite3.connect(folder / "foreign.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    write_target(folder, "[]")
    before = fingerprint(folder)
    result = duly(*arguments, folder=folder)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert result.err.count("error:") == 1
    assert "Traceback" not in result.err
    assert fingerprint(folder) == before


async def test_a_trace_that_ends_before_the_last_scheduler_says_so(folder: Path) -> None:
    """The verdict does not cover what an untraced scheduler did afterwards."""
    async with simulated(folder / "state.db", ago(minutes=5)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("a", "* * * * *", nothing, timedelta(0))])
        await scheduler.stop()
    result = duly("verify", "state.db", folder=folder)
    assert result.code == 0
    assert "a scheduler that kept no trace has used the store since" in result.err
    assert duly("verify", "state.db", "--json", folder=folder).json["current"] is False
    exported = duly("trace", "export", "state.db", folder=folder)
    assert "a scheduler that kept no trace has used the store since" in exported.err


def test_an_older_store_holds_no_trace(folder: Path) -> None:
    """Version 1 of the schema had no tables for one."""
    older_layout(folder / "untraced.db", 1)
    result = duly("verify", "untraced.db", folder=folder)
    assert (result.code, result.out) == (7, "")
    assert "holds no trace" in result.err


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            "UPDATE trace SET line = replace(line, '* * * * *', '0 0 1 1 *')",
            "state.db, line 1 of its trace: the trace was changed in segment 1",
        ),
        ("UPDATE trace SET line = replace(line, 'false', 'true')", "its hash differs"),
        ("UPDATE segments SET header = replace(header, 'null', '{}')", "the trace was changed in segment 1"),
        ("DELETE FROM trace WHERE seq > 40", "state.db, line 42 of its trace: the trace was cut: event 41 is missing"),
        ("DELETE FROM trace WHERE seq = (SELECT max(seq) FROM trace)", "was the last one written"),
        ("DELETE FROM trace", "state.db, line 2 of its trace: the trace was cut: event 1 is missing"),
        ("DELETE FROM trace WHERE seq = 7", "state.db, line 8 of its trace: the trace was cut: event 7 is missing"),
        ("INSERT INTO trace SELECT max(seq) + 1, line FROM trace", "the trace was changed in segment 1"),
        ("UPDATE trace SET line = x'ff' WHERE seq = 7", "the trace was changed in segment 1"),
        ("UPDATE meta SET value = 'x' WHERE key = 'trace_end'", "the trace was changed in segment 1"),
        ("UPDATE trace SET line = 'ä' WHERE seq = 7", "the trace was changed in segment 1"),
        ("UPDATE segments SET header = '{}'", "is not what duly wrote"),
        ("UPDATE trace SET line = '[]' WHERE seq = 7", "the trace was changed in segment 1"),
    ],
)
def test_a_store_whose_trace_was_edited_or_cut_gets_no_verdict(folder: Path, edit: str, message: str) -> None:
    """Even in the open segment, which no header follows: export and verify refuse it, with the place."""
    connection = sqlite3.connect(folder / "state.db")
    with connection:
        connection.execute(edit)
    connection.close()
    for command in (["verify"], ["trace", "export"]):
        result = duly(*command, "state.db", folder=folder)
        assert (result.code, result.out) == (7, "")
        assert message in result.err


async def test_a_trace_whose_oldest_segments_are_gone_is_judged_from_its_registers_on(tmp_path: Path) -> None:
    """A bounded trace: the rest is whole, and the state before it is in the registers of its header."""
    store = SqliteStore(tmp_path / "state.db", worker=Inline(), synchronous="OFF")
    store.tracing = Tracing(segment_events=100, segments_kept=3)
    async with SimulatedHost("2024-05-01T12:30", "Europe/Berlin") as host:
        scheduler = host.scheduler(store, trace=True)
        await scheduler.initialize([("a", "* * * * *", nothing, timedelta(0))])
        await host.advance(hours=6)
        await scheduler.stop()
    exported = duly("trace", "export", "state.db", "-o", "t.jsonl", "--json", folder=tmp_path).json
    assert exported["segments"] == 3
    assert exported["firstSegment"] > 3
    assert exported["firstSeq"] > 300
    last = exported["firstSegment"] + 2
    for source in ("state.db", "t.jsonl"):
        result = duly("verify", source, "--verbose", folder=tmp_path)
        assert result.code == 0
        assert f"3 segments ({exported['firstSegment']} to {last})" in result.out
        assert "the state before its first segment is in the header of that segment" in result.out
    # An edit within a closed segment does not fit the hash in the header of the next one.
    connection = sqlite3.connect(tmp_path / "state.db")
    with connection:
        connection.execute("UPDATE trace SET line = replace(line, 'cron', 'retry') WHERE seq < ?", [last * 100 - 150])
    connection.close()
    edited = duly("verify", "state.db", folder=tmp_path)
    assert (edited.code, edited.out) == (7, "")
    assert "its hash differs" in edited.err


def test_verify_and_export_work_while_a_scheduler_runs(tmp_path: Path) -> None:
    """They read in one transaction: the trace so far, sealed as open; the scheduler goes on and ends well."""
    write_target(tmp_path, FOREVER)
    with Service("tasks.py", "--store", "state.db", "--trace", "--monitor", folder=tmp_path) as service:
        service.expect("TaskRunCompleted", taskName="a")
        before = fingerprint(tmp_path).keys()
        result = duly("verify", "state.db", "--json", folder=tmp_path)
        assert result.code == 0, result.err
        assert result.json["verdict"] == "holding"
        assert (result.json["ended"], result.json["sealed"], result.json["current"]) == (False, True, True)
        assert result.json["tasks"] == 2
        exported = duly("trace", "export", "state.db", folder=tmp_path)
        assert '{"seal":"open"' in exported.out.splitlines()[-1]
        assert fingerprint(tmp_path).keys() == before
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    assert duly("verify", "state.db", "--json", folder=tmp_path).json["verdict"] == "satisfied"


# --- files -----------------------------------------------------------------------------------------------------------


def test_the_traces_of_other_schedulers_are_caught() -> None:
    """One overlaps after a pause, one drops a late run; the documentation shows exactly what is printed."""
    shown = (ROOT / "docs" / "formal.md").read_text()
    for name, violated in (("overlap-after-a-pause", "S1"), ("late-run-dropped", "R1")):
        result = duly("verify", f"examples/traces/{name}.jsonl", folder=ROOT)
        assert result.code == 1
        assert result.out.endswith(f"violated: {violated}\n")
        assert result.out.split("\n\n")[-2] in shown
        document = duly("verify", EXAMPLES / f"{name}.jsonl", "--json", folder=ROOT).json
        assert document["verdict"] == "violated"
        assert [each["property"] for each in document["properties"] if each["value"] == "violated"] == [violated]


def test_the_json_of_a_violation_is_complete() -> None:
    """Property, position, task, registers before, and the smallest sub-trace as events."""
    document = duly("verify", EXAMPLES / "overlap-after-a-pause.jsonl", "--json", folder=ROOT).json
    first = document["properties"][0]
    assert (first["property"], first["kind"], first["value"], first["violations"]) == ("S1", "safety", "violated", 1)
    found = first["first"]
    assert (found["seq"], found["event"], found["task"]) == (11, "RS", "report")
    assert found["at"] == "2025-06-02T12:31:07.003000+00:00"
    assert found["registers"]["Running"] is True
    assert found["registers"]["nextDue"] == "2025-06-02T12:10:00+00:00"
    assert [event[:2] for event in found["subTrace"]["events"]] == [
        ["IS", 2], ["RG", 3], ["IE", 4], ["RS", 7], ["RS", 11],
    ]  # fmt: skip
    assert found["subTrace"]["afterRegisters"] is False
    others = document["properties"][1:]
    assert {each["first"] for each in others} == {None}
    assert all(each["value"] == "holding" and each["openCount"] == 0 for each in others)


def test_a_trace_of_many_hosts_is_judged_and_its_violations_name_their_hosts(tmp_path: Path) -> None:
    """SPEC 7.6: the file says that it is that of a shared store; its sub-trace has lines as the file has them."""
    out = io.BytesIO()
    writer = Writer(out.write, shared_header("a test"))
    writer.add_all(hosts_story("1:Join 2:Join Due 1:RS Due 2:RS"))
    writer.seal(clean=False)
    (tmp_path / "hosts.jsonl").write_bytes(out.getvalue())
    result = duly("verify", "hosts.jsonl", folder=tmp_path)
    assert result.code == 1
    assert "task 'x': starts while run 1001 on host 1 has not ended" in result.out
    assert "RS  host=2 task=x generation=1 run=2001 cause=cron slots=0" in result.out
    found = duly("verify", "hosts.jsonl", "--json", folder=tmp_path).json["properties"][0]["first"]
    assert (found["registers"]["host"], found["registers"]["runHost"]) == (2, 1)
    assert [json.loads(line) for line in out.getvalue().splitlines()][-2] == found["subTrace"]["events"][-1]


def test_what_is_open_is_pending_or_at_a_clean_end_violated(tmp_path: Path) -> None:
    """FORMAL A2: on a sealed trace pending becomes violated; a pending property is not a failure."""
    owed = [*begun(1), WK(7, after(61), 0)]
    (tmp_path / "open.jsonl").write_bytes(b"".join(lines(owed)))
    result = duly("verify", "open.jsonl", folder=tmp_path)
    assert result.code == 0
    assert "L1 pending: still open when the trace ends\n  a, since 2025-06-02T12:01:00.000Z" in result.out
    assert result.out.endswith("nothing violated; pending: L1; the trace may go on\n")
    stopping = [*owed, SS(8, after(61), 2), SS(9, after(61), 3), SE(10, after(61), 2)]
    (tmp_path / "ended.jsonl").write_bytes(b"".join(lines(stopping, clean=True)))
    result = duly("verify", "ended.jsonl", folder=tmp_path)
    assert result.code == 1
    assert "L2 violated at the end of the trace: still open\n  stop 3, since" in result.out


def test_a_stop_that_completes_over_a_running_task_is_a_violation_not_a_broken_trace(tmp_path: Path) -> None:
    """S5⁺: a store sealed as clean after such a stop must be judged, and not be called malformed."""
    at = after(1)
    trace = [*begun(), RS(5, at, "a", 1, 1, "cron", 0), SS(6, at, 2), SE(7, at, 2)]
    (tmp_path / "t.jsonl").write_bytes(b"".join(lines(trace, clean=True)))
    result = duly("verify", "t.jsonl", "--json", folder=tmp_path)
    assert result.code == 1
    assert [each["property"] for each in result.json["properties"] if each["value"] == "violated"] == ["S5⁺"]
    assert result.json["ended"] is False


def _broken() -> list[tuple[str, list[bytes], str]]:
    whole = lines(begun(5))
    snapshot = b'{"tasks":[],"scheduler":{"clock":"x"}}}'
    other = lines(begun(2, "b", "boot-2"))
    return [
        ("cut within a line", [*whole[:8], whole[8][:20]], "line 9: the line is cut"),
        ("cut between lines", whole[:8], "line 8: the trace ends here without a seal"),
        ("cut and sealed", [*whole[:8], whole[-1]], "line 9: the seal counts 14 events, but there are 7"),
        ("edited", [*whole[:8], whole[8].replace(b"true", b"false"), *whole[9:]], "line 16: the seal's hash differs"),
        ("swapped", [*whole[:6], whole[7], whole[6], *whole[8:]], "line 7: event 7 follows event 5"),
        ("repeated", [*whole[:7], *whole[6:]], "line 8: event 6 follows event 6"),
        ("left out", [*whole[:6], *whole[7:]], "line 7: event 7 follows event 5: 1 event is missing, or comes later"),
        ("mixed", [*whole[:6], other[6], *whole[7:]], "line 16: the seal's hash differs"),
        ("two traces", [*whole, *other], "line 17: the segment does not follow the one before"),
        ("without a header", whole[1:], "line 1: a trace begins with a header"),
        ("of another version", [whole[0].replace(b'"version":2', b'"version":4'), *whole[1:]], "line 1: the trace has"),
        ("no JSON", [*whole[:5], b"hello\n", *whole[6:]], "line 6: the line is not JSON"),
        ("a foreign event", [*whole[:5], b'["XX",5]\n', *whole[6:]], "line 6: there is no event 'XX'"),
        ("a false snapshot", [whole[0].replace(b"null}", snapshot)], "line 1: the register snapshot"),
        ("a false number", [*whole[:5], b'["WK",5,1e99,0]\n', *whole[6:]], "line 6: at of WK is a number with"),
    ]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), [pytest.param(b"".join(d), m, id=i) for i, d, m in _broken()])
def test_what_is_not_a_whole_trace_is_refused_with_its_line(tmp_path: Path, data: bytes, message: str) -> None:
    """Malformed, truncated, reordered, mixed: exit code 7, the file and the line, and no verdict."""
    (tmp_path / "t.jsonl").write_bytes(data)
    result = duly("verify", "t.jsonl", *(["--json"] if len(data) % 2 else []), folder=tmp_path)
    assert (result.code, result.out) == (7, "")
    assert f"error: t.jsonl, {message}" in result.err
    assert "Traceback" not in result.err


def test_a_trace_without_a_seal_is_judged_on_request_only(tmp_path: Path) -> None:
    """Whether its end is missing cannot be known; a note says that the seal is missing."""
    (tmp_path / "t.jsonl").write_bytes(b"".join(lines(begun(3), clean=None)))
    assert duly("verify", "t.jsonl", folder=tmp_path).code == 7
    result = duly("verify", "t.jsonl", "--unsealed", folder=tmp_path)
    assert result.code == 0
    assert "note: the trace has no seal" in result.err
    assert duly("verify", "t.jsonl", "--unsealed", "--json", folder=tmp_path).json["sealed"] is False


def _segments() -> list[bytes]:
    """Three segments of one trace; each begins with the registers that the one before leads to."""
    trace = begun(9)
    header, parts = Header("a test"), []
    for begin, end in ((0, 8), (8, 14), (14, len(trace))):
        out = io.BytesIO()
        writer = Writer(out.write, header)
        writer.add_all(trace[begin:end])
        writer.seal(clean=False)
        parts.append(out.getvalue())
        checker = Checker()
        for part in parts:
            checker.take(io.BytesIO(part))
        header = writer.following(checker.monitor.snapshot().as_json())
    return parts


def test_several_files_are_the_segments_of_one_trace(tmp_path: Path) -> None:
    """In their order; from any segment on; in another order or with a gap they are refused, with file and line."""
    for number, part in enumerate(_segments(), 1):
        (tmp_path / f"{number}.jsonl").write_bytes(part)
    whole = duly("verify", "1.jsonl", "2.jsonl", "3.jsonl", "--json", folder=tmp_path)
    assert whole.code == 0, whole.err
    assert (whole.json["segments"], whole.json["events"], whole.json["firstSegment"]) == (3, 22, 1)
    rest = duly("verify", "2.jsonl", "3.jsonl", "-v", folder=tmp_path)
    assert rest.code == 0
    assert "2 segments (2 to 3)" in rest.out
    assert "the state before its first segment is in the header" in rest.out
    for files, place in ((["1.jsonl", "3.jsonl"], "3.jsonl, line 1"), (["2.jsonl", "1.jsonl"], "1.jsonl, line 1")):
        result = duly("verify", *files, folder=tmp_path)
        assert (result.code, result.out) == (7, "")
        assert f"error: {place}: the segment does not follow the one before" in result.err
        assert "hint: several sources are the segments of one trace, in their order" in result.err


def test_standard_input_is_a_source_as_a_pipe_and_as_a_file(tmp_path: Path) -> None:
    """`duly trace export STORE | duly verify -`, with the second reading that finds the smallest sub-trace."""
    command = [sys.executable, "-m", "duly", "verify", "-", "--json"]
    path = EXAMPLES / "overlap-after-a-pause.jsonl"
    piped = subprocess.run(
        command, input=path.read_bytes(), capture_output=True, env=environment(), cwd=tmp_path, check=False
    )
    with path.open("rb") as file:
        redirected = subprocess.run(
            command, stdin=file, capture_output=True, env=environment(), cwd=tmp_path, check=False
        )
    assert (piped.returncode, redirected.returncode) == (1, 1)
    assert piped.stdout == redirected.stdout
    assert len(json.loads(piped.stdout)["properties"][0]["first"]["subTrace"]["events"]) == 5
    with Terminal("verify", "-", folder=tmp_path) as terminal:
        assert terminal.end() == 2
    assert "standard input is a terminal" in terminal.shown


def test_a_named_pipe_is_a_source(tmp_path: Path) -> None:
    """Such as <(...) of a shell: it can be read only once, and is read whole."""
    os.mkfifo(tmp_path / "pipe")
    path = EXAMPLES / "overlap-after-a-pause.jsonl"
    with subprocess.Popen(["/bin/sh", "-c", f"cat {path} > pipe"], cwd=tmp_path):
        result = duly("verify", "pipe", folder=tmp_path)
    assert result.code == 1, result.err
    assert result.out.endswith("violated: S1\n")


def test_without_bounds_only_what_speaks_of_seconds_is_left_out() -> None:
    """R1, R2, L2ᵇ; so the trace that only drops a late run is not violated then, but pending."""
    result = duly("verify", EXAMPLES / "late-run-dropped.jsonl", "--no-bounds", "--json", folder=ROOT)
    assert result.code == 0
    assert result.json["verdict"] == "pending"
    assert {"R1", "R2", "L2ᵇ"}.isdisjoint(each["property"] for each in result.json["properties"])


def test_a_task_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    """Names come from the trace, which may be hostile."""
    evil = "x\x1b[2J\n"
    trace = [*begun(1, evil), RS(7, after(2), evil, 1, 9, "cron", 0)]
    (tmp_path / "t.jsonl").write_bytes(b"".join(lines(trace)))
    result = duly("verify", "t.jsonl", folder=tmp_path)
    assert result.code == 1
    assert "\x1b" not in result.out
    assert "task=x\\x1b[2J\\n" in result.out


def long_trace(folder: Path) -> Path:
    """A file that is long enough for a bar."""
    path = folder / "long.jsonl"
    path.write_bytes(b"".join(lines(begun(45_000))))
    return path


def test_a_bar_shows_progress_on_long_files_on_a_terminal_only(tmp_path: Path) -> None:
    """On standard error, and gone at the end; a short file and a pipe have no bar."""
    path = long_trace(tmp_path)
    with Terminal("verify", path, folder=tmp_path) as terminal:
        assert terminal.end() == 0
    assert "verifying" in terminal.shown
    assert "100%" in terminal.shown
    assert "16 properties hold so far" in terminal.shown
    with Terminal("verify", EXAMPLES / "late-run-dropped.jsonl", folder=tmp_path) as terminal:
        assert terminal.end() == 1
    assert "verifying" not in terminal.shown
    result: Outcome = duly("verify", path, folder=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "verifying" not in result.out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux has the peak of a single program")
def test_memory_does_not_grow_with_the_length_of_the_trace(tmp_path: Path) -> None:
    """The peak of memory does not depend on the length: five times the events, an equal peak."""
    peaks = []
    for runs in (9_000, 45_000):
        path = tmp_path / f"{runs}.jsonl"
        path.write_bytes(b"".join(lines(begun(runs))))
        program = (
            # Not ru_maxrss: it begins with the peak of the process that started this one.
            "import sys; from duly.formal import check; check(open(sys.argv[1], 'rb'));"
            "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
        )
        result = subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, env=environment(), check=True
        )
        peaks.append(int(result.stdout))
    assert peaks[1] < peaks[0] * 1.1


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (gzip.compress(b"".join(lines(begun()))), "gzip -dc FILE | duly verify -"),
        (lzma.compress(b"".join(lines(begun()))), "xz -dc FILE | duly verify -"),
        (bz2.compress(b"".join(lines(begun()))), "bzip2 -dc FILE | duly verify -"),
    ],
    ids=["gzip", "xz", "bzip2"],
)
def test_a_compressed_trace_is_refused_with_what_to_do(tmp_path: Path, data: bytes, hint: str) -> None:
    """Archived traces are compressed; the message was about surrogates."""
    (tmp_path / "t.jsonl.gz").write_bytes(data)
    result = duly("verify", "t.jsonl.gz", folder=tmp_path)
    assert (result.code, result.out) == (7, "")
    assert "t.jsonl.gz, line 1: the file is compressed with" in result.err
    assert hint in result.err
