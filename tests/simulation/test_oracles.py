"""The oracles can fail: each is shown evidence that was tampered with, and must say so (FORMAL D4).

The evidence is real: a life of a scenario with a death in it. Every doctored piece is one that a defect of the
scheduler or the store could have left, and the same piece undoctored is judged right.
"""

import asyncio
import dataclasses
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly.formal import Header, Writer
from tests.simulation.crashes import Life, base
from tests.simulation.oracles import (
    ContradictionError,
    Evidence,
    Witness,
    complaints,
    conservation,
    fold,
    judge,
    properties,
    refinement,
    witnessed,
)
from tests.simulation.reference import HOUR, MINUTE, SECOND, Row, Started, due_minutes, minute_of, next_due, predicted
from tests.simulation.scenarios import Act, Deed, Scenario, Task, takes
from tests.stores.helpers import change

NOON = 1_704_110_400 * SECOND  # 2024-01-01T12:00:00Z
UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")

STORY = Scenario(
    "story",
    "2024-01-01T12:00:30",
    (
        Act(
            0,
            (
                Task("every", "* * * * *", 30, takes(5)),
                Task("fails", "1,3,5 * * * *", 600, lambda _: Deed(2, True)),
                Task("long", "2,3,4,5 * * * *", 30, takes(100)),
            ),
        ),
    ),
    minutes=7,
    points_min=0,
    pairs=0,
    downtimes=(30,),
    run_on=4,
)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """A death in the third minute, while two runs were under way, and what came after; its store is kept."""
    logging.getLogger("duly").setLevel(logging.CRITICAL + 1)
    first = base(STORY)
    cut = next(
        number
        for number, point in enumerate(first.points)
        if point.kind == "after write" and point.at >= NOON + 3 * MINUTE + SECOND
    )
    second = first.dies_at(cut)
    asyncio.run(second.run(tmp_path_factory.mktemp("life")))
    yield second
    logging.getLogger("duly").setLevel(logging.NOTSET)


@pytest.fixture
def evidence(life: Life, tmp_path: Path) -> Evidence:
    """A copy of what it left, to be tampered with."""
    assert life.evidence is not None
    copy = tmp_path / "copy.db"
    shutil.copy(life.evidence.store, copy)
    return again(life.evidence, copy)


def again(
    evidence: Evidence,
    store: Path | None = None,
    *,
    rows: Sequence[Row] | None = None,
    witness: list[tuple[str, str, int]] | None = None,
) -> Evidence:
    """Evidence read again, with other rows or another witness; rows are numbered and sealed as they should."""
    assert evidence.witness is not None
    return Evidence(
        store or evidence.store,
        evidence.now,
        clean=True,
        witness=evidence.witness if witness is None else Witness(witness),
        deaths=evidence.deaths,
        trace=b"" if rows is None else written(rows),
    )


def written(rows: Sequence[Row]) -> bytes:
    """Rows as a trace."""
    lines: list[bytes] = []
    writer = Writer(lines.append, Header("doctored"))
    for seq, (letters, _, *rest) in enumerate(rows, 1):
        writer.put(json.dumps([letters, seq, *rest]).encode() + b"\n")
    writer.seal(clean=True)
    return b"".join(lines)


def test_a_true_story_is_believed(evidence: Evidence) -> None:
    """And it has something in it: a crash, retries owed, interrupted runs that started again."""
    assert list(complaints(evidence)) == []
    judge(evidence)
    causes = Counter(row[6] for row in evidence.rows if row[0] == "RS")
    assert causes["cron"] > 5
    assert causes["interrupted"] == 2
    assert evidence.stored["fails"]["pending_retry_until"] is not None
    assert [row[0] for row in evidence.rows].count("BT") == 2


def test_rows_that_are_written_again_are_believed(evidence: Evidence) -> None:
    """The ground of the tampering below: re-encoding alone changes nothing."""
    assert list(complaints(again(evidence, rows=evidence.rows))) == []


def test_a_contradiction_says_everything_and_shows_the_trace(evidence: Evidence) -> None:
    """The message of a failure holds the findings of all oracles."""
    change(evidence.store, "UPDATE states SET served_through = served_through + 60")
    with pytest.raises(ContradictionError) as caught:
        judge(again(evidence))
    assert "fold: served_through of 'every'" in str(caught.value)
    assert "'RS'" in str(caught.value)


# --- properties -------------------------------------------------------------------------------------------------------


def starts(evidence: Evidence, name: str, cause: str = "cron") -> list[int]:
    """The indices of a task's starts in the trace."""
    return [index for index, row in enumerate(evidence.rows) if row[0] == "RS" and row[3] == name and row[6] == cause]


def without_run(evidence: Evidence, run: int) -> list[Row]:
    """The trace with a run taken out, start and end."""
    return [row for row in evidence.rows if not (row[0] in ("RS", "RE") and row[5] == run)]


def test_a_start_that_was_not_owed_is_a_violation(evidence: Evidence) -> None:
    """002 S2, and S1 for what is running."""
    index = starts(evidence, "every")[1]
    rows = list(evidence.rows)
    rows.insert(index + 1, [*rows[index][:5], 999, *rows[index][6:]])
    assert any("S1 violated" in each for each in properties(again(evidence, rows=rows)))


def test_an_end_that_never_came_is_a_violation(evidence: Evidence) -> None:
    """002 S5⁺: the stop completed while that run went on."""
    end = max(index for index, row in enumerate(evidence.rows) if row[0] == "RE")
    rows = [row for index, row in enumerate(evidence.rows) if index != end]
    assert any("S5" in each for each in properties(again(evidence, rows=rows)))


def test_a_minute_that_was_never_served_is_a_violation(evidence: Evidence) -> None:
    """R1: it stays owed while the scheduler has compute."""
    runs = [evidence.rows[index][5] for index in starts(evidence, "every")[2:]]
    rows = [row for row in evidence.rows if not (row[0] in ("RS", "RE") and row[5] in runs)]
    assert any("R1 violated" in each for each in properties(again(evidence, rows=rows)))


# --- conservation -----------------------------------------------------------------------------------------------------


def test_a_lost_minute_is_missed(evidence: Evidence) -> None:
    """A start that left no trace, but raised the mark: one minute was neither served nor is it still owed."""
    run = evidence.rows[starts(evidence, "every")[-1]][5]
    assert any("minutes were owed" in each for each in conservation(again(evidence, rows=without_run(evidence, run))))


def test_a_mark_that_ran_ahead_is_missed(evidence: Evidence) -> None:
    """The other way round: the store forgets what is owed."""
    later = dataclasses.replace(evidence, now=evidence.now + 3 * MINUTE)
    assert list(conservation(later)) == []  # three minutes more are owed, and the store knows it
    change(evidence.store, "UPDATE states SET served_through = served_through + 120")
    later = dataclasses.replace(evidence, now=evidence.now + 3 * MINUTE)
    assert any("minutes were owed" in each for each in conservation(later))


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("UPDATE states SET pending_retry_until = NULL WHERE pending_retry_until IS NOT NULL", "retries were owed"),
        ("UPDATE states SET run = 3 WHERE last_success_at IS NOT NULL", "interruptions were owed"),
        ("UPDATE runs SET scheduled = scheduled - 60000000 WHERE cause = 'cron'", "which is not what it served"),
    ],
)
def test_a_store_that_forgets_or_invents_is_noticed(evidence: Evidence, statement: str, word: str) -> None:
    """Retries, interruptions, and what a run is said to have served."""
    change(evidence.store, statement)
    assert any(word in each for each in conservation(again(evidence)))


@pytest.mark.parametrize("cause", ["retry", "interrupted", "cron"])
def test_a_cause_that_was_not_there_is_noticed(evidence: Evidence, cause: str) -> None:
    """Each start pays something that was owed, of the kind it names."""
    index = starts(evidence, "long", "interrupted")[0] if cause == "cron" else starts(evidence, "every")[0]
    rows = list(evidence.rows)
    if cause == "cron":  # by then, no minute of it was unserved
        rows = without_run(evidence, rows[starts(evidence, "long")[-1]][5])
        index = next(at for at, row in enumerate(rows) if row[0] == "RS" and row[6] == "interrupted")
        rows[index] = [*rows[index][:2], rows[index - 1][2], *rows[index][3:]]
        rows.insert(index + 1, [*rows[index][:5], 998, "cron", 0])
    else:
        rows[index] = [*rows[index][:6], cause, rows[index][7]]
    found = list(conservation(again(evidence, rows=rows)))
    assert any(f"says {cause}" in each for each in found), found


# --- fold -------------------------------------------------------------------------------------------------------------

COLUMNS = {
    "cron": ("tasks", "'0 0 * * *'"),
    "delay_ms": ("tasks", "delay_ms + 1"),
    "known_since": ("tasks", "known_since + 1"),
    "served_through": ("states", "served_through - 60"),
    "last_attempt_at": ("states", "last_attempt_at + 1"),
    "last_success_at": ("states", "last_success_at + 1"),
    "last_failure_at": ("states", "last_failure_at + 1"),
    "pending_retry_until": ("states", "pending_retry_until + 1"),
    "failures": ("states", "failures + 1"),
    "interruptions": ("states", "interruptions + 1"),
    "run": ("states", "77"),
    "run_cause": ("states", "'cron'"),
}


SAME = "run, generation, cause, scheduled, started_at, ended_at, outcome, error"
DUPLICATE = f"INSERT INTO runs (seq, {SAME}) SELECT seq + 999, {SAME} FROM runs"


@pytest.mark.parametrize("column", COLUMNS)
def test_a_row_that_says_something_else_than_the_trace_is_noticed(evidence: Evidence, column: str) -> None:
    """SPEC 7.6, column by column."""
    table, value = COLUMNS[column]
    change(evidence.store, f"UPDATE {table} SET {column} = {value}")
    assert any(each.startswith(f"{column} of ") for each in fold(again(evidence)))


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("UPDATE states SET written_by = (SELECT min(key) FROM schedulers)", "identifier of"),
        ("DELETE FROM runs WHERE run = (SELECT max(run) FROM runs)", "is in the trace only"),
        ("UPDATE runs SET outcome = 'success' WHERE outcome = 'failure'", "is in the store only"),
        ("UPDATE runs SET outcome = 'failure' WHERE outcome = 'interrupted'", "is in the store only"),
        (DUPLICATE, "records of runs"),
        ("UPDATE meta SET value = value + 1 WHERE key = 'run'", "the counter run"),
        ("UPDATE meta SET value = value - 1 WHERE key = 'generation'", "the counter generation"),
        ("UPDATE tasks SET retired_at = 1 WHERE name = 'long'", "'long' is declared in the trace only"),
    ],
)  # fmt: skip
def test_a_store_that_says_something_else_than_the_trace_is_noticed(
    evidence: Evidence, statement: str, word: str
) -> None:
    """Writers, the history of runs, counters, declarations."""
    change(evidence.store, statement)
    found = list(fold(again(evidence)))
    assert any(word in each for each in found), found


def test_a_declaration_that_was_lost_on_the_way_is_noticed(evidence: Evidence) -> None:
    """SPEC 5.1: trace and store may agree, and both be wrong about what the program asked for."""
    asked = {name: (row["cron"], row["delay_ms"]) for name, row in evidence.stored.items()}
    assert list(fold(dataclasses.replace(evidence, declared=asked))) == []
    forgotten = dataclasses.replace(evidence, declared={**asked, "forgotten": ("* * * * *", 0)})
    assert any("was declared" in each for each in fold(forgotten))


def test_a_run_that_only_the_store_knows_is_noticed(evidence: Evidence) -> None:
    """The trace lost a run."""
    run = evidence.rows[starts(evidence, "every")[1]][5]
    found = list(fold(again(evidence, rows=without_run(evidence, run))))
    assert any("is in the store only" in each for each in found)


# --- the reference ----------------------------------------------------------------------------------------------------


def test_a_start_that_did_not_happen_is_missed(evidence: Evidence) -> None:
    """D4, refinement: it should have."""
    run = evidence.rows[starts(evidence, "every")[1]][5]
    found = list(refinement(again(evidence, rows=without_run(evidence, run))))
    assert any("'every' should have started at 2024-01-01 12:01:00" in each for each in found), found


@pytest.mark.parametrize(
    "tamper",
    [
        lambda row: [*row[:2], row[2] + 5 * SECOND, *row[3:]],  # too late
        lambda row: [*row[:6], "retry", *row[7:]],  # for another reason
        lambda row: [*row[:3], "long", *row[4:]],  # somebody else
    ],
)
def test_a_start_at_another_moment_or_for_another_reason_is_noticed(
    evidence: Evidence, tamper: Callable[[Row], list[Any]]
) -> None:
    """D4, refinement: the multiset of starts is predicted exactly."""
    rows = list(evidence.rows)
    index = starts(evidence, "every")[1]
    rows[index] = tamper(rows[index])
    found = list(refinement(again(evidence, rows=rows)))
    assert any("and should not have" in each for each in found), found
    assert any("'every' should have started" in each for each in found), found


# --- the witness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tamper", "word"),
    [
        (lambda seen: [*seen, ("begin", "every", 4_711)], "no start of it is on record"),
        (lambda seen: [seen[0], *seen], "was called 2 times"),
        (lambda seen: seen[:-2], "its callback: did not"),
        (lambda seen: [entry for entry in seen if entry != ("begin", "every", seen[-1][2])], "was never called"),
        (lambda seen: [("raise" if deed == "return" else deed, *run) for deed, *run in seen], "its callback: raise"),
    ],
)
def test_a_callback_that_saw_something_else_is_heard(
    evidence: Evidence, tamper: Callable[[list[tuple[str, str, int]]], list[tuple[str, str, int]]], word: str
) -> None:
    """SPEC 3.9: durable before the callback begins, once, and the end is the callback's."""
    assert evidence.witness is not None
    every = [entry for entry in evidence.witness.entries if entry[1] == "every"]
    others = [entry for entry in evidence.witness.entries if entry[1] != "every"]
    found = list(witnessed(again(evidence, witness=others + tamper(every))))
    assert any(word in each for each in found), found


# --- the reference, by hand -------------------------------------------------------------------------------------------


def told(*events: tuple[Any, ...], limit: int | None = None) -> list[Row]:
    """A trace: boots, declarations at noon plus some microseconds, and what else happens, numbered."""
    rows: list[Row] = []
    for letters, at, *fields in events:
        if letters == "boot":
            rows += [["BT", 0, NOON + at, f"{at}/1", 0], ["IS", 0, NOON + at, 1]]
        elif letters == "declare":
            for number, (name, cron, delay) in enumerate(fields[0], 1):
                rows.append(["RG", 0, NOON + at, name, number, "new", cron, delay, "UTC", NOON + at, "loop"])
        elif letters == "active":
            rows.append(["IE", 0, NOON + at, 1, 1, "", fields[0], limit, None, "UTC"])
        else:
            rows.append([letters, 0, NOON + at, *fields])
    return [[letters, seq, *rest] for seq, (letters, _, *rest) in enumerate(rows, 1)]


def foreseen(rows: Sequence[Row], until: int, deaths: dict[int, int] | None = None) -> list[tuple[str, str, float]]:
    """The prediction, in seconds after noon."""
    starts = predicted(rows, UTC, NOON + until, deaths={seq: NOON + at for seq, at in (deaths or {}).items()})
    ordered = sorted(starts.elements(), key=lambda each: (each.at, each.task))
    return [(each.task, each.cause, (each.at - NOON) / SECOND) for each in ordered]


X = [("x", "0,5 * * * *", 30_000)]


def test_the_minute_of_the_first_declaration_is_owed_and_those_before_it_are_not() -> None:
    """SPEC 3.1, by hand."""
    rows = told(("boot", 20 * SECOND, None), ("declare", 20 * SECOND, X), ("active", 20 * SECOND, "restart"))
    assert foreseen(rows, 4 * MINUTE) == [("x", "cron", 20.0)]
    late = told(("boot", MINUTE, None), ("declare", MINUTE, X), ("active", MINUTE, "restart"))
    assert foreseen(late, 4 * MINUTE) == []
    assert foreseen(late, 5 * MINUTE) == [("x", "cron", 300.0)]


def test_a_failure_is_retried_and_a_due_minute_comes_first() -> None:
    """SPEC 3.4, 3.5, by hand."""
    begin = [("boot", 0, None), ("declare", 0, X), ("active", 0, "restart"), ("RS", 0, "x", 1, 1, "cron", 0)]
    rows = told(*begin, ("RE", 10 * SECOND, "x", 1, 1, False))
    assert foreseen(rows, 2 * MINUTE) == [("x", "cron", 0.0), ("x", "retry", 40.0)]
    rows = told(*begin, ("RE", 280 * SECOND, "x", 1, 1, False))
    assert foreseen(rows, 6 * MINUTE) == [("x", "cron", 0.0), ("x", "cron", 300.0)]


def test_an_interrupted_run_starts_again_at_once_or_waits_as_it_is_told() -> None:
    """SPEC 3.7, by hand; what was due at the very instant of a death may or may not have started."""
    begin = [("boot", 0, None), ("declare", 0, X), ("active", 0, "restart"), ("RS", 0, "x", 1, 1, "cron", 0)]
    for mode, expected in (("restart", [("x", "interrupted", 20.0)]), ("wait", [])):
        rows = told(*begin, ("boot", 20 * SECOND, None), ("active", 20 * SECOND, mode))
        assert foreseen(rows, 4 * MINUTE, {5: 10 * SECOND}) == [("x", "cron", 0.0), *expected]


def test_after_two_interruptions_in_a_row_a_task_rests() -> None:
    """SPEC 3.7, by hand: a minute from its last start."""
    rows = told(
        ("boot", 0, None), ("declare", 0, X), ("active", 0, "restart"), ("RS", 0, "x", 1, 1, "cron", 0),
        ("boot", 20 * SECOND, None), ("active", 20 * SECOND, "restart"),
        ("RS", 20 * SECOND, "x", 1, 2, "interrupted", 0),
        ("boot", 25 * SECOND, None), ("active", 25 * SECOND, "restart"),
    )  # fmt: skip
    expected = [("x", "cron", 0.0), ("x", "interrupted", 20.0), ("x", "interrupted", 80.0)]
    assert foreseen(rows, 4 * MINUTE, {5: 10 * SECOND, 9: 22 * SECOND}) == expected


def test_who_is_owed_longest_goes_first_and_the_rest_waits() -> None:
    """SPEC 3.10, by hand: one slot."""
    tasks = [("a", "1 * * * *", 0), ("b", "0 * * * *", 0)]
    begin = [("boot", 0, None), ("declare", 0, [*tasks, ("c", "0 * * * *", 0)]), ("active", 0, "restart")]
    rows = told(*begin, ("RS", 0, "c", 3, 1, "cron", 0), ("RE", 90 * SECOND, "c", 3, 1, True), limit=1)
    assert foreseen(rows, 3 * MINUTE) == [("c", "cron", 0.0), ("b", "cron", 90.0)]


def test_a_pause_delays_what_falls_due_in_it() -> None:
    """A frozen host looks when it is awake again."""
    rows = told(("boot", MINUTE, None), ("declare", MINUTE, X), ("active", MINUTE, "restart"))
    starts = predicted(rows, UTC, NOON + HOUR // 6, deaths={}, pauses=[(NOON + 4 * MINUTE, NOON + 7 * MINUTE)])
    assert starts == Counter({Started("x", "cron", NOON + 7 * MINUTE): 1})


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("30 2 * * *", "2024-03-30T12:00+01:00", "2024-04-01T02:30+02:00"),  # skipped on the 31st
        ("30 2 * * *", "2024-10-27T00:00+02:00", "2024-10-27T02:30+02:00"),  # the first of the two
        ("30 2 * * *", "2024-10-27T02:30+02:00", "2024-10-28T02:30+01:00"),
        ("0 12 13 * 5", "2024-09-01T00:00+02:00", "2024-09-06T12:00+02:00"),  # the 13th, or a Friday
        ("0 0 29 2 *", "2024-03-01T00:00+01:00", "2028-02-29T00:00+01:00"),
        ("0-10,50 1 * 1 *", "2024-01-01T01:10+01:00", "2024-01-01T01:50+01:00"),
    ],
)
def test_the_walk_through_all_minutes_finds_what_an_almanac_says(cron: str, after: str, expected: str) -> None:
    """SPEC 2.2, 2.3, 6.2, by hand."""
    begin, end = (int(datetime.fromisoformat(text).timestamp()) * SECOND for text in (after, expected))
    assert next_due(cron, BERLIN, begin) == end
    assert due_minutes(cron, BERLIN, begin, end) == [end]
    assert minute_of(end + 59 * SECOND, BERLIN) == end
