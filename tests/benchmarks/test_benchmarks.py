"""The benchmarks hold together: everything runs, every target has its row, nothing is judged without a measurement."""

import asyncio
import dataclasses
import json
import os
import re
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import duly
from benchmarks import __main__ as program
from benchmarks import report, witness, workload
from benchmarks.children import Outcomes, Ran, interpreter_for, run_all, run_one
from benchmarks.clocks import LeapingClock
from benchmarks.figures import Figure, Figures, number
from benchmarks.plan import FULL, QUICK, TINY, Measurement, groups, measurements
from benchmarks.source import source
from benchmarks.targets import verdicts
from benchmarks.watching import percentile

ROOT = Path(__file__).parents[2]

# The table of targets, row by row: words of the row, and the bound that it must be held against.
PROMISED = [
    ("APScheduler 3, SQLite", "≥ 150×"),
    ("APScheduler 3, SQLite tuned to WAL", "≥ 180×"),
    ("APScheduler 4, SQLite", "≥ 1,000×"),
    ("APScheduler 3, memory, nothing on disk", "≥ 30×"),
    ("APScheduler 4, memory, nothing on disk", "≥ 30×"),
    ("aiocron", "≥ 5×"),
    ("taskiq", "≥ 10×"),
    ("arq", "≥ 130×"),
    ("Celery beat", "≥ 2,500×"),
    ("schedule, nothing on disk, Python 3.11", "≥ 0.85×"),
    ("schedule, nothing on disk, Python 3.12", "≥ 0.95×"),
    ("schedule, nothing on disk, Python 3.13", "≥ 0.7×"),
    ("schedule, nothing on disk, Python 3.14", "≥ 0.7×"),
    ("schedule, nothing on disk, Python 3.15", "≥ 0.7×"),
    ("last start, 100,000 tasks", "≤ 1.5 s"),
    ("last start, 1,000,000 tasks, Python 3.11", "≤ 6 s"),
    ("last start, 1,000,000 tasks, Python 3.12", "≤ 5.5 s"),
    ("last start, 1,000,000 tasks, Python 3.13", "≤ 5.5 s"),
    ("last start, 1,000,000 tasks, Python 3.14", "≤ 5.5 s"),
    ("last start, 1,000,000 tasks, Python 3.15", "≤ 5.5 s"),
    ("first start, 1,000,000 tasks", "≤ 0.3 s"),
    ("all ends durable after the last end, 1,000,000 tasks", "≤ 0.2 s"),
    ("last start", "≤ 1.15"),
    ("`initialize`, cold", "≤ 1.15"),
    ("`initialize`, warm", "≤ 1.15"),
    ("cold, 1,000,000 tasks", "≤ 5 s"),
    ("warm, 1,000,000 tasks", "≤ 4 s"),
    ("comparing the index of names with the table, a part of warm", "stated"),
    ("a loop that builds 1,000,000 tuples, and one SQLite insert of them", "stated"),
    ("cold ÷ that loop and insert", "stated"),
    ("warm ÷ that loop and insert", "stated"),
    ("APScheduler 3, SQLite ÷ duly (cold), 10,000 tasks", "≥ 400×"),
    ("APScheduler 3, memory ÷ duly (cold), 10,000 tasks", "≥ 30×"),
    ("processor time", "≤ 5 ms a minute"),
    ("wake-ups", "≤ 1 a minute"),
    ("files written", "≤ 0"),
    ("start after the boundary", "≤ 5 ms"),
    ("p99.9 of it (the latest of 60)", "stated"),
    ("cost ÷ cost among 1,000", "≤ 2×"),
    ("start after the boundary, p50", "stated"),
    ("start after the boundary, p99", "stated"),
    ("start after the boundary, p99.9", "stated"),
    ("start after the boundary, p99.9 (the latest of 10)", "stated"),
    ("processor time, share of one core", "stated"),
    ("a commit with a checkpoint, longest", "stated"),
    ("the store's file, largest", "stated"),
    ("its WAL, largest", "stated"),
    ("processor time while the other process is measured", "stated"),
    ("commits of a tick, 1,000,000 tasks", "≤ 420"),
    ("event loop's thread, beyond a bare `create_task`", "≤ 3 µs"),
    ("event loop's thread, the collector switched off", "stated"),
    ("writer thread", "stated"),
    ("÷ `import asyncio`", "≤ 2.4×"),
    ("beyond the caller's registrations", "≤ 300 bytes a task"),
    ("left behind by 1,000,000 runs", "≤ 1,000 kB"),
    ("during initialize", "≤ 15 ms"),
    ("during tick", "≤ 15 ms"),
    ("… without the time for which its thread had no processor, during tick", "stated"),
    ("longest collector pause during tick", "stated"),
    ("cronsim ÷ `parse_cron`", "≥ 4×"),
    ("cronsim ÷ `next_after`", "≥ 2×"),
    ("croniter ÷ `parse_cron`", "≥ 15×"),
    ("croniter ÷ `next_after`", "≥ 15×"),
    ("cronsim ÷ `next_after` of the sparse `0 0 29 2 *`", "≥ 20×"),
    ("croniter ÷ `next_after` of the sparse `0 0 29 2 *`", "≥ 20×"),
    ("safety properties", "≥ 500,000 events a second"),
    ("all properties, with the bounded ones", "stated"),
    ("1,000,000 tasks, 1 % fail once: last start", "stated"),
    ("100,000 of 1,000,000 overridden while running", "stated"),
    ("100,000 of 1,000,000 overridden while running: event loop kept", "≤ 15 ms"),
    ("100,000 due, `max_concurrency=100`: last start", "stated"),
    ("10,000 due, blocking callbacks: last start", "stated"),
    ("100,000 due, on_event", "stated"),
    ("100,000 due, INFO logging", "stated"),
    ("100,000 due, processor time of a run without log lines", "stated"),
    ("100,000 due, processor time of a run with a log line for each start and end", "stated"),
    ("100,000 due, trace", "≤ 2×"),
    ("100,000 due, monitor", "≤ 2×"),
    ("8 threads, APScheduler 3 in memory ÷ duly", "stated"),
    ("32 threads, APScheduler 3 in memory ÷ duly", "stated"),
    ("200 threads, APScheduler 3 in memory ÷ duly", "stated"),
    ("scattered, rows", "stated"),
    ("scattered, spans", "stated"),
    ("a task that is not there, p95", "≤ 100 ms"),
    ("a task that is not there, p95", "≤ 300 ms"),
    ("first page of a new process", "≤ 500 ms"),
    ("all tasks counted", "≤ 10 s"),
    ("transferred, first load", "≤ 30 kB"),
    ("memory", "≤ 100 MB"),
    ("latest start, with clients of its own process, `duly run --web`", "stated"),
    ("latest start beside clients of its store ÷ beside clients of another store", "≤ 1.25×"),
    ("its WAL, largest, beside clients of its store ÷ alone", "≤ 1.25×"),
]


def test_every_row_of_the_table_of_targets_is_reported_also_when_it_was_not_measured() -> None:
    """The table shows each target, and says honestly what is missing."""
    rows = verdicts(Figures(Outcomes()), FULL)
    for what, target in PROMISED:
        found = [row for row in rows if row.what.startswith(what) and row.target == target]
        assert found, what
        assert all(row.met is None and row.measured == "not measured in this run" for row in found), what


def test_a_median_on_the_right_side_of_its_bound_meets_it() -> None:
    """Both directions, and on the bound itself."""
    outcomes = Outcomes(
        samples={
            "initialize 1000000": [{"tasks": 1e6, "cold_s": s, "warm_s": 4.0} for s in (7.0, 8.1, 30.0)],
            "duly 10000": [{"last_start_s": 0.1}, {"last_start_s": 0.2}, {"last_start_s": 0.1}],
            "APScheduler 3, SQLite 10000": [{"last_start_s": s, "started": 1e4} for s in (16.0, 32.0, 14.0)],
            "duly 500": [{"last_start_s": 0.1}] * 3,
            "APScheduler 4, SQLite 500": [{"last_start_s": 270.0, "started": 1e2}] * 3,
        }
    )
    rows = {(row.what, row.target): row for row in verdicts(Figures(outcomes), FULL)}
    assert rows["cold, 1,000,000 tasks", "≤ 5 s"].met is False
    assert rows["warm, 1,000,000 tasks", "≤ 4 s"].met is True
    # Each round by itself: 16/0.1, 32/0.2, 14/0.1.
    assert rows["APScheduler 3, SQLite", "≥ 150×"].measured == "160× (140–160)"
    assert rows["APScheduler 3, SQLite", "≥ 150×"].met is True
    # Who had not started everything when it was no longer waited for has taken longer than that.
    assert rows["APScheduler 4, SQLite; 500 tasks each", "≥ 1,000×"].measured.startswith("> ")


@pytest.mark.parametrize(("size", "rounds"), [(QUICK, 3), (TINY, 3), (FULL, 2)])
def test_nothing_is_judged_with_fewer_tasks_or_rounds_than_the_targets_ask_for(size: object, rounds: int) -> None:
    """At least three rounds, and the numbers of tasks that the table names."""
    assert isinstance(size, type(FULL))
    key = f"initialize {size.large}"
    outcomes = Outcomes(samples={key: [{"tasks": float(size.large), "cold_s": 1.0, "warm_s": 1.0}] * rounds})
    rows = verdicts(Figures(outcomes), size)
    assert any(row.measured.startswith("1.00 s") for row in rows)
    assert {row.met for row in rows} == {None}


def test_growth_is_the_exponent_between_two_numbers_of_tasks() -> None:
    """In proportion is 1, whatever the factor."""
    samples = {
        "a": [{"tasks": 10.0, "s": 1.0}],
        "b": [{"tasks": 1000.0, "s": 100.0}],
        "c": [{"tasks": 1000.0, "s": 1e4}],
    }
    figures = Figures(Outcomes(samples=samples))
    assert figures.slope("a", "b", "s") == Figure(1.0, 1.0, 1.0)
    assert figures.slope("a", "c", "s") == Figure(2.0, 2.0, 2.0)
    assert figures.slope("a", "nothing", "s") is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.00123, "0.00123"),
        (0.5, "0.500"),
        (12.34, "12.3"),
        (9.996, "10.0"),
        (1234.5, "1,234"),
        (-2.0, "-2.00"),
    ],
)
def test_numbers_are_shown_with_three_digits(value: float, shown: str) -> None:
    """So that medians and spreads can be compared by eye."""
    assert number(value) == shown


# --- the workload ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("day", [1, 2, 28, 31])
@pytest.mark.parametrize("minute", [0, 30])
def test_the_hard_case_is_1440_expressions_that_all_name_one_minute_and_none_of_those_before(
    day: int, minute: int
) -> None:
    """N tasks of 1,440 distinct expressions, all due in the same minute."""
    due = datetime(2024, 5, day, 12, minute)
    expressions = workload.distinct(due)
    assert len(set(expressions)) == len(expressions) == workload.EXPRESSIONS
    parsed = [duly.parse_cron(text) for text in expressions]
    assert all(expression.matches(due) for expression in parsed)
    before = [due - timedelta(minutes=minutes) for minutes in range(1, LeapingClock.minutes_ahead + 1)]
    assert not any(expression.matches(minute) for expression in parsed for minute in before)


def test_other_sets_are_due_at_each_minute_of_the_day_or_not_for_weeks() -> None:
    """The registrations for measuring initialize() and the idle minute."""
    due = datetime(2024, 12, 31, 23, 59)
    spread = [duly.parse_cron(text) for text in workload.spread(due)]
    assert len({expression.next_after(due) for expression in spread}) == workload.EXPRESSIONS
    dormant = [duly.parse_cron(text) for text in workload.dormant(due)]
    assert len({expression.next_after(due) for expression in dormant}) == workload.EXPRESSIONS
    assert min(expression.next_after(due) for expression in dormant) > due + timedelta(days=60)


async def test_a_leap_wakes_who_sleeps_and_steps_neither_clock_against_the_other() -> None:
    """docs/guide.md, a clock of your own: to the scheduler, time has passed."""
    clock, wake = LeapingClock(), asyncio.Event()
    apart = clock.now() / 1e6 - clock.elapsed()
    sleeper = asyncio.create_task(clock.sleep_until(clock.now() + 3_600_000_000, wake))
    await asyncio.sleep(0)
    clock.leap(3_600_000_000)
    await asyncio.wait_for(sleeper, 10)
    assert abs(clock.now() / 1e6 - clock.elapsed() - apart) < 1
    await clock.make_room(60)
    assert clock.now() % 60_000_000 < 10_000_000


async def test_a_run_in_which_a_task_was_started_twice_measures_nothing() -> None:
    """The witness is asked at the end of every measurement."""
    witness.expect(1)
    await witness.callback()
    witness.check(1)
    witness.blocking_callback()
    with pytest.raises(RuntimeError, match="1 starts were due, 2 were seen"):
        witness.check(1)


# --- the harness ----------------------------------------------------------------------------------------------------


def test_a_child_that_breaks_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, with the child's own last words; what could be measured is reported."""
    planned = [
        Measurement("broken", "cron", "ours.nothing"),
        Measurement("missing", "cron", "ours.cron", needs="no_such_package"),
        Measurement("whole", "initialize", "ours.initialize", {"tasks": 1}),
    ]
    monkeypatch.setattr(program, "measurements", lambda size: planned)
    assert program.main(["--tiny", "--results", str(tmp_path)]) == 2
    document = json.loads((tmp_path / "results.json").read_text())
    (told,) = document["broken"]["broken"]
    assert "No module named 'benchmarks.ours.nothing'" in told
    assert document["absent"] == {"missing": "no_such_package is not installed"}
    assert list(document["samples"]) == ["whole"]


def test_a_child_that_hangs_is_ended() -> None:
    """Not after an hour."""
    patience = dataclasses.replace(TINY, patience_s=1.0)
    hanging = Measurement("idle", "idle", "ours.idle", {"tasks": 1, "minutes": 2, "system_clock": True})
    outcomes = Outcomes()
    run_one(hanging, patience, outcomes, 0)
    assert outcomes.broken == {"idle": ["round 1: not done after 1 s"]}


def test_rounds_go_through_all_measurements_in_turn_until_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours and the peers interleaved; `bench-quick` takes two minutes."""
    seen: list[tuple[int, str]] = []
    monkeypatch.setattr(
        "benchmarks.children.run_one",
        lambda measurement, size, outcomes, number: seen.append((number, measurement.key)),
    )
    planned = [Measurement(key, "x", "x") for key in "ab"]
    assert run_all(planned, FULL, 3, lambda *_: None).rounds == 3
    assert seen == [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b")]
    spent = run_all(planned, dataclasses.replace(QUICK, budget_s=-1.0), 3, lambda *_: None)
    assert (spent.rounds, set(spent.absent)) == (1, {"a", "b"})
    assert len(seen) == 6


def test_what_does_not_vary_is_measured_in_the_first_round_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full run fits into an hour without leaving out a line of the table."""
    seen: list[tuple[int, str]] = []
    monkeypatch.setattr(
        "benchmarks.children.run_one",
        lambda measurement, size, outcomes, number: seen.append((number, measurement.key)),
    )
    planned = [Measurement("once", "x", "x", once=True), Measurement("always", "x", "x")]
    assert run_all(planned, FULL, 3, lambda *_: None).rounds == 3
    assert seen == [(0, "once"), (0, "always"), (1, "always"), (2, "always")]
    repeated = {measurement.key for measurement in measurements(FULL) if not measurement.once}
    assert {"growth", "real minutes"}.isdisjoint(repeated)
    assert {
        "memory",
        "web 1000000",
        "duly 10000",
        "APScheduler 3, SQLite 10000",
        "Celery beat 10000",
        "tick 1000000",
    } <= repeated


def test_a_peer_that_would_need_the_rest_of_the_hour_is_compared_with_fewer_tasks_and_that_is_said() -> None:
    """Each with as many: the ratio of one number of tasks to another says nothing."""
    outcomes = Outcomes(
        samples={
            "duly 500": [{"last_start_s": 0.02}] * 3,
            "duly 5000": [{"last_start_s": 0.1}] * 3,
            "duly 10000": [{"last_start_s": 0.1}] * 3,
            "APScheduler 4, SQLite 500": [{"last_start_s": 30.0, "started": 5e2}] * 3,
            "arq 5000": [{"last_start_s": 20.0}] * 3,
            "Celery beat 10000": [{"last_start_s": 300.0, "started": 1_500.0}] * 3,
        }
    )
    rows = {row.what: row for row in verdicts(Figures(outcomes), FULL)}
    assert rows["APScheduler 4, SQLite; 500 tasks each"].measured == "1,500×"
    assert rows["arq, nothing on disk (its scan alone); 5,000 tasks each"].measured == "200×"
    beat = next(row for what, row in rows.items() if what.startswith("Celery beat"))
    assert beat.what.endswith(", extrapolated from those that it reached")  # a number would make it another row
    assert beat.measured == "3,000×"


def test_a_section_is_measured_again_and_the_other_results_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row says when it ran; the page says which sections were repeated since the whole run."""
    planned = [
        Measurement("few", "initialize", "ours.initialize", {"tasks": 1}),
        Measurement("again", "idle", "ours.nothing"),
    ]
    asked: list[str] = []

    def run_one(measurement: Measurement, size: object, outcomes: Outcomes, number: int) -> None:
        asked.append(measurement.key)
        outcomes.ran[measurement.key] = Ran(f"2030-01-0{len(asked)} 12:00", 1.0)
        outcomes.samples.setdefault(measurement.key, []).append({"tasks": float(len(asked))})

    monkeypatch.setattr(program, "measurements", lambda size: planned)
    monkeypatch.setattr("benchmarks.children.run_one", run_one)
    assert program.main(["--tiny", "--results", str(tmp_path)]) == 0
    assert program.main(["--tiny", "--only", "idle", "--results", str(tmp_path)]) == 0
    assert asked == ["few", "again", "again"]
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["samples"] == {"few": [{"tasks": 1.0}], "again": [{"tasks": 3.0}]}
    assert document["ran"]["few"]["at"] == "2030-01-01 12:00"
    assert document["ran"]["again"]["at"] == "2030-01-03 12:00"
    code = str(source())
    assert f"`make bench ARGS=--tiny` ({code}), 1 round" in (tmp_path / "results.md").read_text()
    assert re.search(rf"again since then: idle \([^,]+, {code}\)", (tmp_path / "results.md").read_text())
    assert list(document["about"]["repeated"]) == ["idle"]
    assert "make bench ARGS=--tiny`" in (tmp_path / "results.md").read_text()
    assert "Measured again since then: idle (" in (tmp_path / "results.md").read_text()
    # A whole run replaces everything, and is not a repetition.
    assert program.main(["--tiny", "--results", str(tmp_path)]) == 0
    assert "repeated" not in json.loads((tmp_path / "results.json").read_text())["about"]


def test_a_run_that_is_interrupted_keeps_the_sections_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, and the page says that the run was not completed."""
    planned = [
        Measurement("one", "initialize", "x"),
        Measurement("two", "idle", "x"),
        Measurement("three", "tick", "x"),
    ]

    def run_one(measurement: Measurement, size: object, outcomes: Outcomes, number: int) -> None:
        if measurement.key == "three":
            # By now the sections before are in the file: a process that is killed keeps them, too.
            assert list(json.loads((tmp_path / "results.json").read_text())["samples"]) == ["one", "two"]
            raise KeyboardInterrupt
        outcomes.samples[measurement.key] = [{"tasks": 1.0}]

    monkeypatch.setattr(program, "measurements", lambda size: planned)
    monkeypatch.setattr("benchmarks.children.run_one", run_one)
    assert program.main(["--tiny", "--results", str(tmp_path)]) == 130
    assert list(json.loads((tmp_path / "results.json").read_text())["samples"]) == ["one", "two"]
    assert "The run was not completed" in (tmp_path / "results.md").read_text()


def test_curves_that_cannot_be_drawn_cost_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tables are written, and the error is reported."""

    def no_fonts(*_: object) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr("benchmarks.plots.draw", no_fonts)
    assert program.main(["--tiny", "--only", "import", "--results", str(tmp_path)]) == 0
    assert "no curves: RuntimeError: no fonts" in capsys.readouterr().err
    assert json.loads((tmp_path / "results.json").read_text())["about"]["complete"]


@pytest.mark.parametrize(
    ("size", "machine", "ran", "reason"),
    [
        ("tiny", "another one", {"idle": {"at": "2030-01-01 12:00"}}, "on another machine (another one)"),
        ("full", "", {"idle": {"at": "2030-01-01 12:00"}}, "as full"),
        ("tiny", "", {}, "by an earlier version of this program"),
    ],
)
def test_results_that_do_not_belong_together_are_not_mixed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    size: str,
    machine: str,
    ran: dict[str, object],
    reason: str,
) -> None:
    """The ratio of two machines says nothing; one section cannot be repeated then, and a whole run starts anew."""
    here = {"processor": "this one", "memory": "1 GiB"}
    about = {"size": size, "machine": {**here, "processor": machine or "this one"}}
    results = {"about": about, "samples": {"idle": [{"tasks": 1.0}]}, "ran": ran, "absent": {}, "broken": {}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    monkeypatch.setattr("benchmarks.machine.facts", lambda *_: here)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert program.main(["--tiny", "--only", "import", "--results", str(tmp_path)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"measured {reason}, so one section cannot be measured again" in told
    monkeypatch.setattr(program, "measurements", lambda size: [Measurement("few", "import", "x")])
    monkeypatch.setattr(
        "benchmarks.children.run_one",
        lambda measurement, size, outcomes, number: outcomes.samples.update(few=[{"tasks": 2.0}]),
    )
    assert program.main(["--tiny", "--results", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "results.json").read_text())["samples"] == {"few": [{"tasks": 2.0}]}


def test_rows_with_too_few_rounds_are_shown_and_not_judged() -> None:
    """A median of two is an average. One row is judged by one round, and docs/performance.md says which and why."""
    outcomes = Outcomes(
        samples={
            "initialize 1000000": [{"cold_s": 1.0, "warm_s": 1.0}] * 2,
            "memory": [{"bytes_a_task": 100.0}],
            "growth": [{"grown_kb": 100.0}],
            "web 100000": [{"cold_ms": 1.0}],
        }
    )
    rows = {row.what: row for row in verdicts(Figures(outcomes), FULL)}
    assert rows["cold, 1,000,000 tasks"].measured == "1.00 s, 2 of 3 rounds"
    assert rows["cold, 1,000,000 tasks"].met is None
    assert {row.what for row in rows.values() if row.met is not None} == {"left behind by 1,000,000 runs"}
    assert (
        "*left behind by 1,000,000 runs*. That row is judged by one round" in (ROOT / "docs/performance.md").read_text()
    )


def test_missed_targets_are_listed_with_their_reason() -> None:
    """docs/performance.md quotes them, so no missed target is left out there."""
    outcomes = Outcomes(
        samples={
            "schedule on 3.13": [{"last_start_s": 0.5}] * 9,
            "duly beside schedule on 3.13": [{"last_start_s": 1.0}] * 9,
            "schedule on 3.12": [{"last_start_s": 0.5}] * 9,
            "duly beside schedule on 3.12": [{"last_start_s": 1.0}] * 8,  # one of three in the last round broke
            "tick 100000": [{"last_start_s": 1.0}] * 3,
        }
    )
    rows = verdicts(Figures(outcomes), FULL)
    (line,) = report.shortfalls(rows).splitlines()
    missed, _, reason = line.partition(" The reason: ")
    assert missed.endswith("*: schedule, nothing on disk, Python 3.13: 0.500× instead of ≥ 0.7×.")
    assert reason.startswith("`schedule` calls plain functions")
    assert report.shortfalls([row for row in rows if row.met]) == "Every target was met in this run.\n"


def test_every_target_that_is_missed_in_the_committed_run_has_its_reason() -> None:
    """One that was checked, or the statement that it is not known."""
    _, outcomes = report.read(report.RESULTS / "results.json")
    missed = [row for row in verdicts(Figures(outcomes), FULL) if row.met is False]
    assert [row.what for row in missed if not row.why] == []


def test_a_reason_about_a_peer_has_the_figures_of_the_run() -> None:
    """How far away the target is, and how much of the time is work."""
    outcomes = Outcomes(
        samples={
            "APScheduler 3, memory 10000": [{"last_start_s": 1.2}] * 3,
            "duly 10000": [{"last_start_s": 0.05, "cpu_until_last_start_s": 0.048}] * 3,
        }
    )
    line = report.shortfalls(verdicts(Figures(outcomes), FULL))
    assert "comes after 50.0 ms and would have to come after 40.0 ms; until then it uses 48.0 ms of processor" in line


def test_an_error_of_the_harness_is_told_like_that_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong with one measurement, the others go on."""

    def no_room(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("benchmarks.children.scratch_folder", no_room)
    outcomes = Outcomes()
    run_one(Measurement("cron", "cron", "ours.cron"), TINY, outcomes, 0)
    assert outcomes.broken == {"cron": ["round 1: OSError: No space left on device"]}


def test_measurements_of_a_section_stand_together() -> None:
    """A section is saved when the next one begins."""
    order = [measurement.group for measurement in measurements(FULL)]
    assert len([group for before, group in pairwise([None, *order]) if before != group]) == len(groups(FULL))


def test_a_percentile_is_a_value_that_was_measured() -> None:
    """Of fewer than a thousand values, 99.9 is the largest."""
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99.9) == 3.0
    assert percentile(range(1, 10_001), 99.9) == 9_990
    assert percentile([1.0], 0) == 1.0


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--rounds", "x"], ["--only", "nonsense"], ["--unknown"]])
def test_wrong_usage_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And never a traceback."""
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert arguments[-1] in told
    if "--only" in arguments:
        assert all(group in told for group in groups(FULL))


def test_results_that_cannot_be_written_or_read_are_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, exit code 2."""
    (tmp_path / "file").touch()
    assert program.main(["--tiny", "--results", str(tmp_path / "file" / "results")]) == 2
    assert program.main(["--publish", "--results", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "Not a directory" in told
    assert "No such file" in told
    assert "Traceback" not in told


def test_a_page_quotes_the_last_run_between_its_comments() -> None:
    """The rest of the page stays."""
    page = "before\n<!-- benchmarks:table -->\nold\n<!-- end -->\nafter\n"
    assert report.quoted(page, {"table": "| new |\n", "summary": "unused"}) == (
        "before\n<!-- benchmarks:table -->\n\n| new |\n\n<!-- end -->\nafter\n"
    )


def test_a_sentence_quotes_the_last_run_between_comments_in_its_line() -> None:
    """The rest of the line stays."""
    page = "takes <!-- benchmarks:indexes -->1 s<!-- end --> for all; <!-- end -->\n"
    assert report.quoted(page, {"indexes": "0.61 s (0.60–0.63)"}) == (
        "takes <!-- benchmarks:indexes -->0.61 s (0.60–0.63)<!-- end --> for all; <!-- end -->\n"
    )


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.name)
def test_what_pages_say_is_what_was_measured(page: Path) -> None:
    """Numbers come from the committed run alone: `python -m benchmarks --publish` writes them."""
    assert report.quoted(page.read_text(encoding="utf-8"), report.quotations(report.RESULTS)) == page.read_text(
        encoding="utf-8"
    )


def test_the_readme_shows_four_rows_and_one_that_is_lost() -> None:
    """The rest is in docs/performance.md; what is slower than a peer is not hidden there."""
    shown = report.quotations(report.RESULTS)["summary"]
    rows = [line for line in shown.splitlines() if line.count("|") == 5 and "**" not in line.split("|")[1]][2:]
    assert len(rows) == 4
    assert any("schedule, nothing on disk" in row for row in rows)
    everything = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert all(row in everything for row in rows)


# --- everything runs ------------------------------------------------------------------------------------------------

NEWEST = ("3.14", "3.15")
"""Measured where they are; the other versions have to be there where everything is required."""

SMALLEST = {measurement.key: measurement for measurement in measurements(TINY)}.values()


@pytest.mark.system
@pytest.mark.parametrize("measurement", SMALLEST, ids=lambda measurement: measurement.key)
def test_the_smallest_run_of_each_measurement_gives_the_figures_that_the_report_reads(
    measurement: Measurement,
) -> None:
    """Ours and each peer, in a process of its own."""
    if interpreter_for(measurement.python, measurement.needs) is None:
        if measurement.python in NEWEST and interpreter_for(measurement.python, "") is None:
            pytest.skip(f"Python {measurement.python} is not on this machine")
        missing = f"{measurement.needs or measurement.python} is missing: `make bench` sets it up"
        if os.environ.get("DULY_REQUIRE_ALL") == "1":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    outcomes = Outcomes()
    run_one(measurement, TINY, outcomes, 0)
    assert outcomes.broken == {}
    assert outcomes.absent == {}
    assert outcomes.ran[measurement.key].seconds > 0
    assert (outcomes.ran[measurement.key].commit, outcomes.ran[measurement.key].source) == source()
    sample = outcomes.samples[measurement.key][0]
    assert sample
    assert all(isinstance(value, float) for value in sample.values())


@pytest.mark.system
def test_a_whole_run_writes_tables_samples_and_curves(tmp_path: Path) -> None:
    """A Markdown table, a JSON file and plots, with the command and the machine; exit code 0, met or not."""
    assert program.main(["--tiny", "--only", "initialize", "--results", str(tmp_path)]) == 0
    text = (tmp_path / "results.md").read_text()
    document = json.loads((tmp_path / "results.json").read_text())
    assert "make bench ARGS='--tiny --only initialize'" in text
    for fact in ("processor", "memory", "Python", "SQLite", "fsync"):
        assert f"{fact}: {document['about']['machine'][fact]}" in text
    for row in document["verdicts"]:
        assert f"| {row['what']} | {row['target']} | {row['measured']} | – | {row['when']} |" in text
    assert "](initialize.svg)" in text
    assert "<svg" in (tmp_path / "initialize.svg").read_text()
    assert document["samples"].keys() == {"initialize 10", "initialize 100"}
