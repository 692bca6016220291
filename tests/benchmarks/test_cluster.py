"""The benchmark of many hosts holds together: what it says follows from the steps of callbacks, row by row."""

import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.children import ROOT, Outcomes, Ran, run_one
from benchmarks.cluster import __main__ as program
from benchmarks.cluster import due, judge, processor, report
from benchmarks.cluster.faults import Faults
from benchmarks.cluster.host import adapter
from benchmarks.cluster.idle import Idle
from benchmarks.cluster.ours.hosts import figures as figures_of_hosts
from benchmarks.cluster.plan import (
    FULL,
    LEASE_SECONDS,
    ORDINARY,
    QUICK,
    SCHEDULERS,
    Timetable,
    measurements,
    ours,
    sections,
)
from benchmarks.cluster.server import Server
from benchmarks.cluster.targets import beside, verdicts
from benchmarks.cluster.trio import Trio
from benchmarks.cluster.witness import BEGIN, CUT, END, READY, STEP, Reader, Step, Witness
from benchmarks.cluster.work import DORMANT, EACH_MINUTE, Tasks, at_minute, from_text, to_text
from benchmarks.figures import Figures
from benchmarks.plan import Measurement
from benchmarks.report import quoted, shortfalls
from tests.conftest import missing

# --- steps of callbacks, and what follows from them ------------------------------------------------------------------


def run(task: str, host: str, began: float, *steps: float, end: float | None = None, run: str = "") -> list[Step]:
    """The notes of one run."""
    number = run or f"{task}.{host}.{began}"
    notes = [Step(began, host, task, number, BEGIN), *(Step(at, host, task, number, STEP) for at in steps)]
    return notes if end is None else [*notes, Step(end, host, task, number, END)]


def test_runs_are_told_apart_and_come_in_the_order_of_their_begins() -> None:
    """Whatever the order of the files."""
    notes = [*run("b", "h1", 7.0), Step(6.0, "h0", "", "123", READY), *run("a", "h0", 5.0, 5.2, 5.4, end=5.6)]
    first, second = judge.runs_of(notes)
    assert (first.task, first.host, first.began, first.last, first.outcome) == ("a", "h0", 5.0, 5.6, END)
    assert (second.task, second.began, second.last, second.outcome) == ("b", 7.0, 7.0, None)


def test_what_a_cancelled_callback_does_to_clean_up_is_no_step() -> None:
    """duly cancels a run whose host was buried; its clean-up is not work that overlaps."""
    notes = [*run("a", "h0", 5.0, 5.2), Step(80.0, "h0", "a", "a.h0.5.0", CUT)]
    (cut,) = judge.runs_of(notes)
    assert (cut.last, cut.outcome) == (5.2, CUT)


def test_starts_are_counted_for_each_task_and_minute() -> None:
    """The least and the most: 1 is what was promised."""
    notes = [
        *run("a", "h0", 60.1),
        *run("b", "h1", 60.2),
        *run("a", "h0", 120.1),
        *run("a", "h1", 121.0),
        *run("b", "h2", 120.5),
    ]
    runs = judge.runs_of(notes)
    assert judge.starts_a_minute(runs, ["a", "b"], [60.0]) == (1, 1)
    assert judge.starts_a_minute(runs, ["a", "b"], [60.0, 120.0]) == (1, 2)
    assert judge.starts_a_minute(runs, ["a", "b", "c"], [60.0]) == (0, 1)


def test_overlap_is_the_time_in_which_a_resumed_run_took_steps_beside_others() -> None:
    """Not the pause itself, and what two others cover counts once."""
    notes = [
        *run("long", "h0", 0.0, 1.0, 75.0, 76.0, 77.0, 78.0, 79.0, run="paused"),
        *run("long", "h1", 60.0, 70.0, 77.5, end=77.5),
        *run("long", "h2", 76.5, 78.5, end=78.5),
        *run("quick", "h1", 76.0, 90.0),
    ]
    runs = judge.runs_of(notes)
    paused = judge.run_at(runs, "long", "h0", 5.0)
    assert paused is not None
    assert judge.overlap_seconds(runs, paused, 74.9) == 3.0  # 75 to 77, and on to 78
    assert judge.steps_beside(runs, paused, 74.9) == 4
    alone = [each for each in runs if each.host != "h2" and each.task == "long"]
    assert judge.overlap_seconds(alone, paused, 77.8) == 0.0
    assert judge.steps_beside(alone, paused, 77.8) == 0


def test_the_run_that_is_paused_is_the_last_that_its_host_began_before() -> None:
    runs = judge.runs_of([*run("long", "h0", 0.0, 1.0), *run("long", "h0", 60.0, 61.0), *run("long", "h1", 62.0)])
    found = judge.run_at(runs, "long", "h0", 70.0)
    assert found is not None
    assert found.began == 60.0
    assert judge.run_at(runs, "long", "h2", 70.0) is None


def test_a_killed_run_goes_on_when_its_task_is_next_started() -> None:
    runs = judge.runs_of([*run("once", "h0", 240.0, 241.0), *run("once", "h1", 291.0)])
    assert judge.first_start(runs, "once", 250.0, 385.0) == 41.0
    assert judge.first_start(runs, "once", 250.0, 280.0) is None


def test_missed_minutes_are_made_up_by_starts_in_which_no_minute_begins() -> None:
    notes = [*run("a", "h0", 494.0), *run("a", "h1", 495.0), *run("b", "h0", 494.0), *run("b", "h0", 541.0)]
    assert judge.made_up(judge.runs_of(notes), ["a", "b"], 490.0, 538.0) == (1, 2)
    assert judge.made_up(judge.runs_of(notes), ["a", "c"], 490.0, 538.0) == (0, 2)


def test_lateness_is_that_of_the_last_task_and_needs_all_of_them() -> None:
    runs = judge.runs_of([*run("a", "h0", 600.1), *run("a", "h1", 604.0), *run("b", "h1", 601.5)])
    assert judge.lateness(runs, ["a", "b"], 600.0, 10.0) == 1.5
    assert judge.lateness(runs, ["a", "b", "c"], 600.0, 10.0) is None
    assert judge.lateness(runs, ["a", "b"], 600.0, 1.0) is None


def test_tasks_that_are_due_together_have_a_last_start_if_all_were_started() -> None:
    """Started twice is said, and does not hide that one was never started."""
    notes = [*run("a", "h0", 60.25), *run("a", "h1", 60.5), *run("b", "h1", 61.0), *run("c", "h1", 80.0)]
    runs = judge.runs_of(notes)
    both = judge.due_together(runs, 2, 60.0, 70.0)
    assert (both.started, both.runs, both.first_start_s, both.last_start_s) == (2, 3, 0.25, 1.0)
    assert both.by_host == {"h0": 1, "h1": 2}
    assert judge.due_together(runs, 3, 60.0, 70.0).last_start_s is None
    assert judge.due_together([], 3, 60.0, 70.0) == judge.Due(3, 0, 0, None, None, {})


def test_a_callback_notes_its_steps_and_a_reader_reads_each_line_once(tmp_path: Path) -> None:
    """A line that is half written is read when it is whole."""
    witness, reader = Witness(tmp_path, "h1"), Reader(tmp_path)
    asyncio.run(witness.work("quick", 0))
    asyncio.run(witness.work("long", 0.4))
    assert [(step.host, step.task, step.what) for step in reader.read()] == [
        ("h1", "quick", BEGIN),
        ("h1", "long", BEGIN),
        ("h1", "long", STEP),
        ("h1", "long", STEP),
        ("h1", "long", END),
    ]
    assert len({step.run for step in reader.steps}) == 2
    (path,) = tmp_path.glob("*.steps")
    line = json.dumps([1.0, "h1", "a", "1", BEGIN])
    with open(path, "a") as file:
        file.write(f"{line}\n{line[:5]}")
        file.flush()
        assert len(reader.read()) == 1
        assert reader.read() == []
        file.write(f"{line[5:]}\n")
    assert len(reader.read()) == 1
    assert len(reader.steps) == 7


def test_the_host_that_runs_a_task_is_the_one_whose_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one whose run has just ended, nor one whose process has."""
    now = time.time()
    notes = [
        *run("long", "h0", now - 45, now - 0.2, end=now - 0.1),
        *run("long", "h1", now - 5, now - 0.3),
        *run("long", "h2", now - 50, now - 20),
    ]
    (tmp_path / "h.steps").write_text("".join(f"{json.dumps(step)}\n" for step in notes))
    trio = Trio("none", "", tmp_path, [])
    assert trio.runs_now("long", 1.5) is None
    monkeypatch.setattr(Trio, "living", lambda trio: ["h0", "h1", "h2"])
    assert trio.runs_now("long", 1.5) == "h1"
    assert trio.runs_now("long", 0.1) is None


def test_a_host_reads_the_work_that_it_is_given() -> None:
    work = [Tasks("quick", EACH_MINUTE, number=3), Tasks("long", "5 12 * * *", 45.0)]
    assert from_text(to_text(work)) == work
    assert [name for tasks in work for name in tasks.names] == ["quick-0", "quick-1", "quick-2", "long"]
    assert at_minute(1_704_110_465.0) == "1 12 * * *"


# --- the plan --------------------------------------------------------------------------------------------------------


def test_faults_come_when_they_show_something() -> None:
    """The pause outlives every lease and the killed run is watched for longer than duly promises, in real minutes."""
    full = FULL.timetable
    assert full.resume_at - full.pause_at == 75
    assert full.ordinary == [0.0, 60.0]
    assert full.missed == [420.0, 480.0]
    assert full.after_restart == [600.0, 660.0]
    assert full.killed_until - full.kill_at > 3 * LEASE_SECONDS
    for size in (FULL, QUICK):
        timetable = size.timetable
        order = dataclasses.astuple(timetable)[1:]
        assert list(order) == sorted(order)
        assert timetable.once_at % 60 == 0
        assert timetable.kill_at - timetable.once_at < timetable.long_s  # it still runs
        assert timetable.pause_at % 60 < timetable.long_s
        # The paused run ends while it is watched.
        begun = timetable.pause_at // 60 * 60
        assert timetable.resume_at + timetable.long_s - (timetable.pause_at - begun) < timetable.resumed_until
        assert timetable.up_at // 60 == timetable.made_up_until // 60  # no minute begins meanwhile
        assert timetable.missed


def test_every_scheduler_has_an_adapter_in_a_file_of_its_own() -> None:
    folder = ROOT / "benchmarks" / "cluster" / "adapters"
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *(module for module, _ in SCHEDULERS.values())}
    requirements = (ROOT / "requirements" / "bench-cluster.in").read_text().splitlines()
    asked = {line.split("[")[0].split("=")[0].split()[0] for line in requirements if line[:1].isalpha()}
    assert {package for _, package in SCHEDULERS.values()} <= asked


def test_every_measurement_belongs_to_a_section_that_can_be_repeated() -> None:
    assert sections(FULL) == [
        "faults",
        "idle",
        "due",
        "store",
        "hosts",
        "one-host",
        "mutex",
        "slow-commits",
        "fence",
        "most",
    ]
    keys = [measurement.key for measurement in measurements(FULL)]
    assert len(keys) == len(set(keys))
    assert {each.key for each in ours(FULL)} < set(keys)


# --- the tables ------------------------------------------------------------------------------------------------------

# The table of targets, row by row: words of the row, and the bound that it must be held against.
PROMISED = [
    ("runs of a task that is due, each minute", "1"),
    ("a host is paused for 75 s: overlap of its run with others", "≤ 0 s"),
    ("2 minutes while all hosts are down: runs for them afterwards", "1"),
    ("a host is killed: its run goes on after", "≤ 41 s"),
    ("`pg_ctl restart -m fast`: hosts that go on", "3"),
    ("… latest start of the next minutes", "≤ 1 s"),
    ("refused starts in ordinary minutes", "≤ 1 %"),
    ("last start, 2,000 tasks", "≤ 0.5 s"),
    ("last start, 10,000 tasks", "stated"),
    ("transactions", "≤ 40 a minute"),
    ("processor time of the database for a beat", "≤ 1 ms"),
    ("starts", "≤ 0.8 s"),
    ("their ends, with history", "≤ 1.5 s"),
    ("first start", "≤ 0.1 s"),
    ("last start", "≤ 5 s"),
    ("all ends durable", "≤ 6 s"),
    ("the least share of a host", "≥ 23 %"),
    ("the largest share of a host", "≤ 43 %"),
    ("refused starts", "≤ 10 %"),
    ("the log", "≤ 20 bytes a run"),
    ("last start, PostgreSQL ÷ SQLite", "≤ 3×"),
    ("3 hosts", "≥ 150 a second"),
    ("20 hosts, the longest write", "≤ 0.5 s"),
    ("loading, processor time of the database", "≤ 3 s"),
    ("loading, processor time of the host", "≤ 1 s"),
    ("burial of a host, under the lock", "≤ 0.5 s"),
    ("processor time for a step", "≤ 1 µs"),
]


@pytest.mark.parametrize(("what", "target"), PROMISED)
def test_every_row_of_the_table_of_targets_is_reported_also_when_it_was_not_measured(what: str, target: str) -> None:
    """The table shows each target, and says honestly what is missing."""
    found = [row for row in verdicts(Figures(Outcomes()), FULL) if row.what == what and row.target == target]
    assert found
    assert all(row.met is None and row.measured == "not measured in this run" for row in found)


FAULTS = {
    "runs_least": 1.0,
    "runs_most": 1.0,
    "late_s": 0.05,
    "paused_s": 75.0,
    "overlap_s": 0.0,
    "overlap_steps": 0.0,
    "elsewhere_s": 40.6,
    "killed": 1.0,
    "resumed_s": 41.2,
    "made_up_least": 1.0,
    "made_up_most": 1.0,
    "missed": 2.0,
    "hosts_before_restart": 3.0,
    "hosts_after_restart": 3.0,
    "minutes_after_restart": 2.0,
    "served_after_restart": 2.0,
    "late_after_restart_s": 0.06,
}


def test_what_is_measured_once_is_judged_by_one_and_the_rest_by_three_rounds() -> None:
    """Both directions, on the bound itself, and exact counts."""
    outcomes = Outcomes(
        samples={
            "faults duly": [FAULTS],
            ORDINARY: [{"refused_percent": 1.0}],
            "store": [{"starts_database_s": each, "ends_database_s": 1.6} for each in (0.7, 0.8, 2.0)],
            "mutex, 3 hosts": [{"writes_a_second": 149.0}] * 3,
            "fence": [{"fence_us_a_step": 0.5}] * 2,
        }
    )
    rows = {(row.what, row.target): row for row in verdicts(Figures(outcomes), FULL)}
    assert rows["runs of a task that is due, each minute", "1"].met is True
    assert rows["a host is paused for 75 s: overlap of its run with others", "≤ 0 s"].met is True
    assert rows["a host is killed: its run goes on after", "≤ 41 s"].met is False
    assert rows["`pg_ctl restart -m fast`: hosts that go on", "3"].met is True
    assert rows["refused starts in ordinary minutes", "≤ 1 %"].met is True
    assert rows["starts", "≤ 0.8 s"].met is True
    assert rows["their ends, with history", "≤ 1.5 s"].met is False
    assert rows["3 hosts", "≥ 150 a second"].met is False
    assert rows["processor time for a step", "≤ 1 µs"].met is None
    assert rows["processor time for a step", "≤ 1 µs"].measured == "0.500 µs, 2 of 3 rounds"


def test_a_count_that_varies_does_not_meet_an_exact_target() -> None:
    outcomes = Outcomes(samples={"faults duly": [{**FAULTS, "runs_most": 2.0, "made_up_least": 0.0}]})
    rows = {row.what: row for row in verdicts(Figures(outcomes), FULL)}
    assert rows["runs of a task that is due, each minute"].measured == "1–2"
    assert rows["runs of a task that is due, each minute"].met is False
    assert rows["2 minutes while all hosts are down: runs for them afterwards"].measured == "0–1"
    assert rows["2 minutes while all hosts are down: runs for them afterwards"].met is False


def test_what_never_happened_is_a_target_that_was_missed() -> None:
    """And not one that was not measured."""
    never = {name: value for name, value in FAULTS.items() if name != "resumed_s"} | {"served_after_restart": 1.0}
    rows = {row.what: row for row in verdicts(Figures(Outcomes(samples={"faults duly": [never]})), FULL)}
    killed = rows["a host is killed: its run goes on after"]
    assert (killed.measured, killed.met) == ("not within 135 s", False)
    restarted = rows["… latest start of the next minutes"]
    assert (restarted.measured, restarted.met) == ("not within 10 s", False)
    unmeasured = {row.what: row for row in verdicts(Figures(Outcomes()), FULL)}
    assert unmeasured["a host is killed: its run goes on after"].met is None


def test_nothing_is_judged_in_a_quick_run() -> None:
    outcomes = Outcomes(samples={"faults duly": [FAULTS], "fence": [{"fence_us_a_step": 0.5}] * 3})
    rows = verdicts(Figures(outcomes), QUICK)
    assert any(row.measured == "0.500 µs" for row in rows)
    assert {row.met for row in rows} == {None}
    assert shortfalls(rows) == "No target was judged in this run.\n"


def test_the_table_beside_others_says_what_became_of_each() -> None:
    """In words where there is no number; a scheduler that is not there is not left out."""
    other = {
        **FAULTS,
        "runs_least": 2.0,
        "runs_most": 3.0,
        "overlap_s": 20.9,
        "overlap_steps": 105.0,
        "made_up_least": 0.0,
        "made_up_most": 0.0,
        "hosts_after_restart": 0.0,
        "served_after_restart": 0.0,
    }
    for name in ("resumed_s", "elsewhere_s", "late_s"):
        del other[name]
    idle = {"transactions_a_minute": 38.4, "database_ms_a_minute": 27.6}
    burst = {"tasks": 2000.0, "started": 2000.0, "runs": 2000.0, "last_start_s": 0.314, "patience_s": 50.0}
    outcomes = Outcomes(
        samples={
            "faults duly": [FAULTS],
            "faults PgQueuer": [other],
            "faults Procrastinate": [{**other, "made_up_least": 1.0, "made_up_most": 2.0, "elsewhere_s": 111.0}],
            "idle duly": [idle],
            "due 2000 duly": [burst],
            "due 2000 PgQueuer": [{**burst, "runs": 4000.0}],
            "due 2000 Procrastinate": [{**burst, "started": 1500.0}],
        },
        absent={"faults oban": "oban is not installed"},
        broken={"faults APScheduler 4": ["a host has ended"]},
    )
    head, *rows = beside(Figures(outcomes), FULL)
    cells = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    assert head == ["", *SCHEDULERS]
    assert cells["runs of a task in each due minute"] == {
        "duly": "1",
        "APScheduler 4": "broken: see below",
        "PgQueuer": "2–3",
        "Procrastinate": "2–3",
        "oban": "oban is not installed",
    }
    paused = cells["overlap after one host was paused for 75 s"]
    assert (paused["duly"], paused["PgQueuer"]) == ("none", "**20.9 s**")
    elsewhere = cells["… the task starts on another host"]
    assert (elsewhere["duly"], elsewhere["PgQueuer"]) == ("after 41 s", "not before the host goes on")
    assert elsewhere["Procrastinate"] == "not before the host goes on"
    down = cells["2 minutes that fell due while all hosts were down"]
    assert (down["duly"], down["PgQueuer"], down["Procrastinate"]) == (
        "one run for them",
        "**lost**",
        "1–2 runs for them",
    )
    killed = cells["a run whose host was killed goes on (watched for 135 s)"]
    assert (killed["duly"], killed["PgQueuer"]) == ("after 41.2 s", "**no**")
    restarted = cells["after `pg_ctl restart -m fast`"]
    assert restarted["duly"] == "3 of 3 hosts go on; 2 of 2 minutes served"
    assert restarted["PgQueuer"] == "**all 3 hosts end**; 0 of 2 minutes served"
    last = cells["last start of 2,000 due"]
    assert last["duly"] == "0.31 s"
    assert last["PgQueuer"] == "0.31 s; **4,000 runs**"
    assert last["Procrastinate"] == "1,500 of them within 50 s; **2,000 runs**"
    assert last["oban"] == "not measured in this run"
    assert cells["start after the minute began"]["PgQueuer"] == "not within 10 s"
    assert cells["transactions per idle minute"]["duly"] == "38"
    assert cells["processor time of the database per idle minute"]["duly"] == "28 ms"


def about(size: str = "full") -> dict[str, object]:
    return {
        "date": "2030-01-01",
        "command": "make bench-cluster",
        "size": size,
        "rounds": 3,
        "judged": True,
        "seconds": 1500.0,
        "machine": {"processor": "2 cores"},
        "complete": True,
    }


def test_results_are_written_and_quoted_from_the_file_alone(tmp_path: Path) -> None:
    """Tables for people, every sample for programs."""
    outcomes = Outcomes(samples={"faults duly": [FAULTS]}, ran={"faults duly": Ran("2030-01-01 12:00", 700.0)})
    rows = report.write(tmp_path, about(), outcomes)
    text = (tmp_path / "cluster.md").read_text()
    document = json.loads((tmp_path / "cluster.json").read_text())
    assert document["samples"] == {"faults duly": [FAULTS]}
    for row in rows:
        assert f"| {row.what} | {row.target} | {row.measured} | {row.mark} | {row.when} |" in text
    assert "| after `pg_ctl restart -m fast` | 3 of 3 hosts go on; 2 of 2 minutes served |" in text
    quoted_rows = report.quotations(tmp_path)
    assert quoted_rows["cluster-targets"] in text
    assert "41.2 s instead of ≤ 41 s" in quoted_rows["cluster-shortfalls"]
    assert quoted_rows["cluster-beside"].startswith("Measured on 2030-01-01 with `make bench-cluster`")


def test_a_page_says_that_nothing_was_measured_yet(tmp_path: Path) -> None:
    assert set(report.quotations(tmp_path).values()) == {report.NOT_YET}


def test_the_page_says_what_was_measured() -> None:
    """Numbers come from the committed run alone: `make bench-cluster ARGS=--publish` writes them."""
    page = report.PAGE.read_text(encoding="utf-8")
    for name in report.quotations():
        assert f"<!-- benchmarks:{name} -->" in page
    assert quoted(page, report.quotations()) == page


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--only", "nonsense"], ["--unknown"]])
def test_wrong_usage_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And never a traceback."""
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)
    assert caught.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_starts_that_hosts_did_not_see_break_the_measurement() -> None:
    """A burst in which a task was not started, or twice, measures nothing."""
    host = {
        "starts": 30.0,
        "refused": 5.0,
        "writes": 2.0,
        "shortest_write_s": 0.004,
        "busy_hosts": 1.0,
        "durable_at": 104.0,
        "cpu_s": 0.5,
        "initialize_s": 1.0,
        "first_at": 100.5,
        "last_at": 103.0,
    }
    late = {**host, "starts": 70.0, "first_at": 101.0, "last_at": 103.5, "shortest_write_s": 0.006}
    sample = figures_of_hosts([host, late], 100, due=100.0)
    assert (sample["shortest_write_s"], sample["busy_hosts"]) == (0.004, 2.0)
    assert sample["first_start_s"] == 0.5
    assert sample["last_start_s"] == 3.5
    assert sample["ends_durable_s"] == 4.0
    assert (sample["share_least_percent"], sample["share_most_percent"]) == (30.0, 70.0)
    assert sample["refused_percent"] == pytest.approx(100 * 10 / 110)
    with pytest.raises(RuntimeError, match="100 starts were due, 60 were seen"):
        figures_of_hosts([host, host], 100, due=100.0)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux counts it")
def test_processor_time_is_that_of_a_process_and_of_all_its_children() -> None:
    used = processor.of_process(os.getpid())
    assert used is not None
    assert used > 0
    assert processor.parent_of(os.getpid()) == os.getppid()
    assert processor.of_processes([os.getpid(), 2**22 + 1]) is None
    everything = processor.of_server(os.getpid())
    assert everything is not None
    assert everything >= used


# --- everything runs -------------------------------------------------------------------------------------------------

TINY = dataclasses.replace(
    QUICK,
    timetable=Timetable(
        long_s=18,
        pause_at=3,
        resume_at=5,
        resumed_until=19,
        once_at=0,
        kill_at=8,
        again_at=9,
        killed_until=19,
        down_at=20,
        up_at=24,
        made_up_until=33,
        restart_at=34,
        end_at=38,
    ),
    minutely=2,
    idle_s=6,
    settle_s=1,
    rolling_s=0.2,
    start_s=90,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A private server, as the benchmark has it."""
    made = Server()
    yield made
    made.discard()


@pytest.mark.long
@pytest.mark.system
def test_faults_are_done_to_three_hosts_and_what_came_of_it_is_told(server: Server, tmp_path: Path) -> None:
    """A pause that is shorter than the lease, so nothing is taken over; all hosts outlive a restart of PostgreSQL."""
    faults = Faults(server, TINY, tmp_path, lambda _: None)
    faults.run(["duly"], lambda: None)
    assert faults.broken == {}
    assert faults.patients["duly"].troubles == []
    assert faults.patients["duly"].trio.exits == []
    sample = faults.samples()["faults duly"]
    assert (sample["runs_least"], sample["runs_most"]) == (1.0, 1.0)
    assert (sample["overlap_s"], sample["overlap_steps"]) == (0.0, 0.0)
    assert (sample["hosts_before_restart"], sample["hosts_after_restart"]) == (3.0, 3.0)
    assert "resumed_s" not in sample
    # A task that is due each minute also runs in the minute in which it is declared.
    # How many minutes there are depends on how long the machine takes for the faults.
    starts = faults.samples()[ORDINARY]["starts"]
    assert starts > 0
    assert starts % TINY.ordinary == 0


@pytest.mark.system
def test_idle_hosts_are_counted(server: Server, tmp_path: Path) -> None:
    idle = Idle(server, TINY, tmp_path, lambda _: None)
    idle.run(["duly"])
    assert idle.broken == {}
    assert idle.found["idle duly"]["transactions_a_minute"] > 0
    assert server.rows("select count(*) from duly.hosts", "idle_duly") == [(3,)]


@pytest.mark.system
def test_tasks_that_are_due_together_are_started_once_each_on_three_hosts(server: Server, tmp_path: Path) -> None:
    sample = due.run("duly", 30, server, TINY, tmp_path, lambda _: None)
    assert (sample["tasks"], sample["started"], sample["runs"]) == (30.0, 30.0, 30.0)
    assert sample["on h0"] + sample["on h1"] + sample["on h2"] == 30.0
    assert 0 < sample["first_start_s"] <= sample["last_start_s"]


@pytest.mark.system
@pytest.mark.parametrize("measurement", ours(QUICK), ids=lambda measurement: measurement.key)
def test_the_smallest_run_of_each_measurement_gives_the_figures_that_the_report_reads(
    server: Server, measurement: Measurement
) -> None:
    """In a process of its own, on a real server."""
    if "url" in measurement.arguments:
        measurement = dataclasses.replace(measurement, arguments={**measurement.arguments, "url": server.url()})
    outcomes = Outcomes()
    run_one(measurement, dataclasses.replace(QUICK, patience_s=900), outcomes, 0)
    assert outcomes.broken == {}
    assert outcomes.absent == {}
    (sample,) = outcomes.samples[measurement.key]
    assert all(isinstance(value, float) for value in sample.values())
    others = {"one host": [{"last_start_s": 1.0}] * 3, "one host, SQLite": [{"last_start_s": 1.0}] * 3}
    others.pop(measurement.key, None)
    without, beside_it = ({**others}, {**others, measurement.key: [sample] * 3})
    missing_rows, rows = (
        [
            row
            for row in verdicts(Figures(Outcomes(samples=samples)), FULL)
            if row.measured == "not measured in this run"
        ]
        for samples in (without, beside_it)
    )
    assert len(rows) < len(missing_rows)


@pytest.mark.system
@pytest.mark.parametrize("name", SCHEDULERS)
def test_each_scheduler_can_be_set_up(server: Server, tmp_path: Path, name: str) -> None:
    """In the environment of the benchmark: its tables are created, and a host waits for its tasks."""
    python = ROOT / ".venv-bench-cluster" / "bin" / "python"
    if not python.exists():
        missing(".venv-bench-cluster", "make .venv-bench-cluster/.ready")
    module = SCHEDULERS[name][0]
    url = server.create(f"set_up_{module}")
    trio = Trio(module, url, tmp_path, [Tasks("rest", DORMANT, number=3)], hosts=("h0",), python=str(python))
    trio.prepare()
    trio.start()
    try:
        assert trio.wait_until_ready(time.time() + 300), trio.last_words("h0")
    finally:
        trio.kill()
        server.drop(f"set_up_{module}")


def test_an_adapter_says_how_long_its_set_up_takes() -> None:
    assert adapter("duly").SETUP_US > 0
