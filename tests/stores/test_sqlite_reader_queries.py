"""What a reader answers: tasks by name and phase, runs by filter, names, and how much work that is."""

import fnmatch
import random
import sqlite3
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.core.moments import MICROSECONDS, Instant, instant_of
from duly.errors import TaskInvalidStructureError, TaskInvalidTypeError
from duly.stores import SqliteReader, View
from duly.stores.port import (
    Holder,
    KnownTask,
    RunRecord,
    RunSelection,
    TaskCounts,
    TaskFilter,
    TaskOrder,
    TaskPhase,
    TaskPlace,
    TaskSelection,
)
from duly.stores.sqlite.lock import LockFile
from duly.stores.sqlite.reader import SqliteView
from tests.stores.helpers import change
from tests.stores.made import Row, Run, make_store, random_rows

AT = instant_of(datetime(2024, 5, 1, 12, 30, 20, tzinfo=UTC))
SECOND = MICROSECONDS
NOBODY = Holder(alive=False, pid=None, host=None, since=None, last_poll_at=None)


def asked(path: Path) -> SqliteReader:
    return SqliteReader(path, lambda: AT)


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A store with tasks in every phase; a scheduler holds it."""
    rows = random_rows(random.Random(7), AT, 300)
    return make_store(tmp_path / "state.db", rows, schedulers=(0, 1))


def test_pages_by_name_come_to_all_tasks_once(mixed: Path) -> None:
    """Key by key, whatever the size of a page; a name that is no longer there is no obstacle."""

    def pages(view: View, size: int) -> list[str]:
        names: list[str] = []
        after = None
        while page := list(view.tasks(after=after, limit=size)):
            names += [task.name for task in page]
            after = names[-1]
        return names

    everything = asked(mixed).read(lambda view: [task.name for task in view.tasks()])
    assert everything == sorted(everything)
    assert len(everything) == 300
    for size in (1, 7, 1000):
        assert asked(mixed).read(lambda view, size=size: pages(view, size)) == everything  # type: ignore[misc]
    assert asked(mixed).read(lambda view: next(view.tasks(after="task-5")).name) > "task-5"


@pytest.mark.parametrize("phase", TaskPhase)
def test_a_phase_has_its_tasks_and_no_others(mixed: Path, phase: TaskPhase) -> None:
    """By name as well; with a living holder, what an earlier scheduler ran is interrupted."""
    lock = LockFile(str(mixed))
    lock.acquire(datetime.fromtimestamp(AT / SECOND, UTC))
    try:
        everything = asked(mixed).read(lambda view: [task for task in view.tasks() if task.phase is phase])
        found = asked(mixed).read(lambda view: list(view.tasks(phase=phase)))
        first = asked(mixed).read(lambda view: list(view.tasks(phase=phase, limit=3)))
    finally:
        lock.release()
    assert found == everything
    assert first == everything[:3]
    assert len(found) > 10


def test_the_latest_error_comes_with_a_task_that_has_failed(tmp_path: Path) -> None:
    """Looked up in history for those that are shown, or once for all; a failure that was dropped there has none."""
    failed = Row("a", last_attempt_at=1, last_failure_at=2, served_through=0)
    rows = [failed, replace(failed, name="b"), Row("c"), *(Row(f"d-{n:04}") for n in range(1500))]
    runs: list[Run] = [
        (1, 1, "cron", 0, 1, 2, "failure", "first"),
        (2, 1, "cron", 0, 1, 2, "failure", "second"),
        (3, 1, "cron", 0, 1, 2, "success", None),
    ]
    path = make_store(tmp_path / "state.db", rows, runs)
    for limit in (None, 3):
        found = asked(path).read(lambda view, limit=limit: list(view.tasks(limit=limit)))  # type: ignore[misc]
        assert [task.last_error for task in found[:3]] == ["second", None, None]
    one = asked(path).read(lambda view: view.task("a"))
    assert one is not None
    assert one.last_error == "second"
    assert asked(path).read(lambda view: view.task("z")) is None


def test_a_state_that_belongs_to_no_task_is_not_counted_as_one(tmp_path: Path) -> None:
    """Equal numbers of tasks and states are not enough."""
    path = make_store(tmp_path / "state.db", [Row("a"), Row("b")])
    change(path, "UPDATE states SET generation = 7 WHERE generation = 2")
    with pytest.raises(TaskInvalidStructureError):
        asked(path).read(lambda view: list(view.cohorts(AT)))


def test_a_number_that_is_text_is_found_while_cohorts_are_counted(tmp_path: Path) -> None:
    """SPEC 5.5: what would be computed with is checked, and the record is named."""
    path = make_store(tmp_path / "state.db", [Row("a"), Row("b", last_attempt_at=1, last_success_at=2), Row("c")])
    change(path, "UPDATE states SET last_success_at = 'noon' WHERE generation = 2")
    with pytest.raises(TaskInvalidTypeError) as caught:
        asked(path).read(lambda view: list(view.cohorts(AT)))
    assert caught.value.details["taskName"] == "b"


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Four hundred runs of five tasks, one of which was declared twice and one is gone; two are under way."""
    chance = random.Random(3)
    rows = [
        Row("a", retired_at=AT - 100),
        Row("a"),
        Row("b", last_attempt_at=AT - 9, run=401, run_cause="cron", run_scheduled=AT - 20),
        Row("c", last_attempt_at=AT - 8, run=400, run_cause="cron", run_scheduled=AT - 20),
        Row("gone", retired_at=AT - 50),
        Row("e"),
    ]
    runs: list[Run] = []
    for number in range(1, 401):
        started = AT - 1000 * SECOND + number * SECOND + chance.randrange(5 * SECOND)
        outcome = chance.choice(("success", "success", "failure", "interrupted"))
        ended = None if outcome == "interrupted" else started + chance.randrange(9 * SECOND)
        generation = chance.randrange(1, 7) if number < 400 else 4
        if number == 400:  # what a crash cut short is in history, and its state still names it
            started, ended, outcome = AT - 8, None, "interrupted"
        error = f"error {number}" if outcome == "failure" else None
        runs.append((number, generation, "cron", started - 10, started, ended, outcome, error))
    return make_store(tmp_path / "state.db", rows, runs)


def everything(path: Path) -> list[RunRecord]:
    return asked(path).read(lambda view: list(view.runs(RunSelection(), oldest_first=True)))


def test_runs_are_those_of_history_and_those_under_way_once(history: Path) -> None:
    """In the order of their starts, and of their numbers where these are equal."""
    runs = everything(history)
    assert sorted(run.run_id for run in runs) == [*range(1, 402)]
    assert runs == sorted(runs, key=lambda run: (run.started_at, run.run_id))
    assert runs[-1].outcome == "interrupted"  # nobody holds the store
    newest_first = asked(history).read(lambda view: list(view.runs(RunSelection())))
    assert newest_first == runs[::-1]
    assert asked(history).read(lambda view: view.history_begins()) == runs[0].started_at


@pytest.mark.parametrize(
    "which",
    [
        RunSelection(task="a"),
        RunSelection(task="gone"),
        RunSelection(task="b", outcomes=("interrupted",)),
        RunSelection(outcomes=("failure", "interrupted")),
        RunSelection(since=Instant(AT - 700 * SECOND), until=Instant(AT - 650 * SECOND)),
        RunSelection(task="c", since=Instant(AT - 800 * SECOND), outcomes=("success",)),
        RunSelection(task="nothing of that name"),
        RunSelection(names=("a", "gone", "nothing of that name")),
        RunSelection(patterns=("[bc]", "go*")),
        RunSelection(names=("e",), patterns=("?",), outcomes=("failure",)),
        RunSelection(patterns=("nothing*",)),
    ],
    ids=str,
)
def test_filters_and_limits_are_those_of_the_list(history: Path, which: RunSelection) -> None:
    """What is asked for in SQL is what one would pick out of all runs."""
    picked = [
        run
        for run in everything(history)
        if (which.task is None or run.task == which.task)
        and (
            not (which.names or which.patterns)
            or run.task in which.names
            or any(fnmatch.fnmatchcase(run.task, pattern) for pattern in which.patterns)
        )
        and (which.since is None or run.started_at >= which.since)
        and (which.until is None or run.started_at < which.until)
        and (not which.outcomes or run.outcome in which.outcomes)
    ]
    assert asked(history).read(lambda view: list(view.runs(which, oldest_first=True))) == picked
    assert asked(history).read(lambda view: list(view.runs(which, limit=5))) == picked[::-1][:5]
    assert asked(history).read(lambda view: view.count_runs(which)) == len(picked)
    by_task: dict[str, list[RunRecord]] = {}
    for run in picked:
        by_task.setdefault(run.task, []).append(run)
    for limit in (2, 10):
        tasks, found = asked(history).read(
            lambda view, limit=limit: view.runs_by_task(which, limit=limit, latest=7)  # type: ignore[misc]
        )
        assert tasks == len(by_task)
        assert [each.task for each in found] == list(by_task)[:limit]
        for each in found:
            runs = by_task[each.task]
            took = [run.ended_at - run.started_at for run in runs if run.ended_at is not None]
            outcomes = [run.outcome for run in runs]
            assert each.runs == len(runs)
            assert (each.failures, each.interruptions) == (outcomes.count("failure"), outcomes.count("interrupted"))
            assert (each.longest, each.latest) == (max(took, default=None), took[-7:])
            assert each.median == (statistics.median(took) if took else None)


def test_the_extent_of_history_tells_what_was_dropped(history: Path) -> None:
    """Runs are numbered one after the other, so what is missing shows."""
    extent = asked(history).read(lambda view: view.extent())
    assert (extent.runs, extent.highest_run_id) == (401, 401)
    change(history, "DELETE FROM runs WHERE seq <= 100")
    extent = asked(history).read(lambda view: view.extent())
    first = next(run for run in everything(history) if run.outcome != "running")
    assert (extent.runs, extent.highest_run_id) == (301, 401)
    assert extent.oldest_end == (first.ended_at or first.started_at)


def test_the_last_sign_of_life_is_the_latest_instant_on_record_before_another(history: Path) -> None:
    """A start or an end of any run, a declaration, its withdrawal, an arrival."""
    runs = everything(history)
    signs = [instant for run in runs for instant in (run.started_at, run.ended_at) if instant is not None]
    for before in (AT, AT - 500 * SECOND, AT - 999 * SECOND, AT - 60):
        expected = max([*(sign for sign in (*signs, AT - 100, AT - 50) if sign < before), 0])
        found = asked(history).read(lambda view, before=before: view.last_sign_of_life(before))  # type: ignore[misc]
        assert found == expected
    assert asked(history).read(lambda view: view.last_sign_of_life(Instant(0))) is None


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_are_those_in_force_and_those_in_history_once(history: Path) -> None:
    """In order, from a prefix or a name on, and backwards."""

    def question(view: View) -> list[object]:
        return [
            view.names(limit=10),
            view.names(limit=2),
            view.names(after="b", limit=10),
            view.names(prefix="go", limit=10),
            view.names_before("c", limit=10),
            view.names_before("zzz", limit=1),
            view.count_names(),
            len(view.declarations("a")),
        ]

    assert asked(history).read(question) == [
        ["a", "b", "c", "e", "gone"], ["a", "b"], ["c", "e", "gone"], ["gone"], ["b", "a"], ["gone"], 5, 2,
    ]  # fmt: skip


# --- how much work ---------------------------------------------------------------------------------------------------


def effort(rows: int, runs: int, folder: Path, question: Callable[[SqliteView], object]) -> int:
    """How many thousands of steps SQLite needs for an answer, on a store of this size."""
    history: list[Run] = [(n + 1, n % rows + 1, "cron", n, n, n + 5, "success", None) for n in range(runs)]
    path = make_store(folder / f"{rows}-{runs}.db", [Row(f"task-{n:06}") for n in range(rows)], history)
    connection = sqlite3.connect(path, isolation_level=None)
    view = SqliteView(connection, str(path), 2, AT, NOBODY)
    view.count_tasks()  # counted once, and not part of the question
    steps = [0]

    def counted() -> int:
        steps[0] += 1
        return 0

    connection.set_progress_handler(counted, 10)
    question(view)
    connection.close()
    return steps[0]


@pytest.mark.parametrize(
    "question",
    [
        lambda view: list(view.tasks(limit=10)),
        lambda view: list(view.tasks(after="task-000500", limit=10)),
        lambda view: view.task("task-000700"),
    ],
    ids=["first page", "later page", "one task"],
)
def test_work_follows_the_limit_and_not_the_number_of_tasks(
    tmp_path: Path, question: Callable[[SqliteView], object]
) -> None:
    """Pages go along the index of names: ten times as many tasks are no more work."""
    few = effort(1_000, 10, tmp_path, question)
    assert effort(10_000, 10, tmp_path, question) <= few + 5


@pytest.mark.parametrize(
    "question",
    [
        lambda view: list(view.runs(RunSelection(task="task-000007"), limit=5)),
        lambda view: view.count_runs(RunSelection(task="task-000007")),
        lambda view: list(view.runs(RunSelection(), limit=5)),
        lambda view: list(view.cohorts(AT)),
        lambda view: view.names(prefix="task-0000", limit=5),
    ],
    ids=["runs of a task", "count", "latest runs", "cohorts", "names"],
)
def test_what_has_to_look_at_everything_does_so_once(tmp_path: Path, question: Callable[[SqliteView], object]) -> None:
    """Twice as many tasks and runs are twice the work, and not four times: nothing is compared with everything."""
    few = effort(2_000, 4_000, tmp_path, question)
    assert effort(4_000, 8_000, tmp_path, question) <= 2.5 * few


def plans(path: Path, question: Callable[[SqliteView], object]) -> Sequence[str]:
    """How SQLite goes about the statements of an answer."""
    connection = sqlite3.connect(path, isolation_level=None)
    view = SqliteView(connection, str(path), 2, AT, NOBODY)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    question(view)
    connection.set_trace_callback(None)
    selects = [each for each in statements if each.lstrip().startswith(("SELECT", "WITH"))]
    assert selects
    found = [row[3] for each in selects for row in connection.execute(f"EXPLAIN QUERY PLAN {each}")]
    connection.close()
    return found


def test_tasks_are_found_by_the_index_of_names(history: Path) -> None:
    """Which is there for those in force."""
    for question in (
        lambda view: list(view.tasks(after="b", limit=10)),
        lambda view: view.task("b"),
        lambda view: view.names(prefix="b", limit=10),
    ):
        found = plans(history, question)
        assert any("INDEX tasks_in_force" in step for step in found), found


def test_cohorts_are_counted_without_the_index(history: Path) -> None:
    """Both tables in the order of generations: by the index SQLite would look up each task by itself."""
    found = plans(history, lambda view: list(view.cohorts(AT)))
    assert not any("SCAN t USING" in step for step in found), found
    assert any("SEARCH s USING INTEGER PRIMARY KEY" in step for step in found), found


def test_nothing_is_owed_longest_where_nothing_is_owed(mixed: Path) -> None:
    """A caller need not ask first whether there is anything."""
    assert asked(mixed).read(lambda view: view.longest_owed([], 5)) == []


def test_a_pattern_matches_names_in_force_and_in_history(tmp_path: Path) -> None:
    """As in a shell, letters in their case."""
    path = make_store(tmp_path / "state.db", [Row("backup"), Row("report", retired_at=5)])
    patterns = ("back*", "rep?rt", "*", "Back*", "x*", "port")
    assert asked(path).read(lambda view: [view.has_name_like(each) for each in patterns]) == [
        *(True, True, True),
        *(False, False, False),
    ]


def test_a_store_without_runs_has_a_history_of_none(tmp_path: Path) -> None:
    """No run has been dropped from it either: the highest number is 0."""
    path = make_store(tmp_path / "state.db", [Row("backup")])
    extent = asked(path).read(lambda view: view.extent())
    assert (extent.runs, extent.highest_run_id, extent.oldest_end) == (0, 0, None)


def test_one_selection_of_names_after_another_has_its_own_runs(tmp_path: Path) -> None:
    """Of one view, which a dashboard asks for several things."""
    runs: list[Run] = [(number, number, "cron", 0, number, number, "success", None) for number in (1, 2, 3)]
    path = make_store(tmp_path / "state.db", [Row("a"), Row("b"), Row("c")], runs)

    def names(view: View, *selections: RunSelection) -> list[list[str]]:
        return [[run.task for run in view.runs(which, oldest_first=True)] for which in selections]

    selections = [
        RunSelection(names=("a",)),
        RunSelection(names=("b", "c")),
        RunSelection(patterns=("[ab]",)),
        RunSelection(names=("c",), patterns=("a",)),
    ]
    expected = [["a"], ["b", "c"], ["a", "b"], ["a", "c"]]
    assert asked(path).read(lambda view: names(view, *selections)) == expected


# --- pages -----------------------------------------------------------------------------------------------------------


def value_in(order: TaskOrder, task: KnownTask) -> int:
    state = task.stored.state
    if order == "failure":
        return -(getattr(state, "last_failure_at", 0) or 0)
    return -getattr(state, "failures", 0) if order == "failures" else 0


@pytest.mark.parametrize("order", ["name", "failure", "failures"])
@pytest.mark.parametrize("which", ["all", "running", "interrupted", "retrying", "failing", "never"])
def test_a_page_is_a_part_of_all_tasks_in_its_order(mixed: Path, which: TaskFilter, order: TaskOrder) -> None:
    """Compared with all tasks, filtered and sorted here; forwards, backwards, and from places between."""
    passes: dict[str, Callable[[KnownTask], bool]] = {
        "all": lambda task: True,
        "running": lambda task: task.phase is TaskPhase.RUNNING,
        "interrupted": lambda task: task.phase is TaskPhase.INTERRUPTED,
        "retrying": lambda task: task.phase is TaskPhase.RETRYING,
        "failing": lambda task: getattr(task.stored.state, "failures", 0) > 0,
        "never": lambda task: getattr(task.stored.state, "last_attempt_at", None) is None,
    }

    def question(view: View) -> None:
        found = [task for task in view.tasks() if passes[which](task) and "7" in task.name]
        if order != "name":
            found = [task for task in found if value_in(order, task)]
        found.sort(key=lambda task: (value_in(order, task), task.name))
        selection = TaskSelection("7", which=which, order=order)
        assert list(view.page(selection, 1000)) == found
        for index in range(0, len(found), 5):
            place = TaskPlace(found[index].name, value_in(order, found[index]))
            assert list(view.page(replace(selection, after=place), 3)) == found[index + 1 : index + 4]
            assert list(view.page(replace(selection, before=place), 3)) == found[max(0, index - 3) : index]

    asked(mixed).read(question)


def test_a_page_by_expression_follows_the_ranks(mixed: Path) -> None:
    ranks = {"0 * * * *": 7, "* * * * *": 9}

    def question(view: View) -> None:
        found = [task for task in view.tasks() if task.stored.expression.text in ranks]
        found.sort(key=lambda task: (ranks[task.stored.expression.text], task.name))
        selection = TaskSelection(order="expression", ranks=ranks)
        assert list(view.page(selection, 1000)) == found
        place = TaskPlace(found[4].name, ranks[found[4].stored.expression.text])
        assert list(view.page(replace(selection, after=place), 6)) == found[5:11]

    asked(mixed).read(question)


@pytest.mark.parametrize(
    ("names", "part", "found"),
    [
        (["a%b", "aXb"], "%", ["a%b"]),
        (["a_b", "aXb"], "_", ["a_b"]),
        (["a\\b", "ab"], "\\", ["a\\b"]),
        (["Backup", "restore"], "BACK", ["Backup"]),
    ],
)
def test_a_part_of_a_name_is_text_and_no_pattern(tmp_path: Path, names: list[str], part: str, found: list[str]) -> None:
    path = make_store(tmp_path / "state.db", [Row(name) for name in names])
    assert asked(path).read(lambda view: [task.name for task in view.page(TaskSelection(part), 9)]) == found


def test_counts_and_expressions_are_those_of_the_tasks_in_force(mixed: Path) -> None:
    def question(view: View) -> None:
        tasks = list(view.tasks())
        failing = sum(getattr(task.stored.state, "failures", 0) > 0 for task in tasks)
        never = sum(getattr(task.stored.state, "last_attempt_at", None) is None for task in tasks)
        assert view.tally() == TaskCounts(failing, never)
        counts = Counter(task.stored.expression.text for task in tasks)
        assert dict(view.expressions(100)) == counts
        assert view.expressions(2) == [(text, counts[text]) for text, _ in view.expressions(100)[:2]]

    asked(mixed).read(question)


def test_runs_before_a_place_are_all_that_come_after_it_in_the_list(tmp_path: Path) -> None:
    """Many start at one instant; their numbers then decide."""
    runs: list[Run] = [(n, 1, "cron", n // 4, n // 4, n // 4 + 1, "success", None) for n in range(1, 30)]
    path = make_store(tmp_path / "state.db", [Row("a")], runs)

    def question(view: View) -> None:
        everything = list(view.runs(RunSelection()))
        for index, run in enumerate(everything):
            earlier = RunSelection(before=(run.started_at, run.run_id))
            assert list(view.runs(earlier)) == everything[index + 1 :]
        assert view.runs_by_time(Instant(2), 3)[0, "success"] == sum(2 <= run.started_at < 5 for run in everything)

    asked(path).read(question)


def test_the_version_changes_with_the_store_and_with_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    seen = [asked(path).version()]
    make_store(path, [Row("a")])
    seen.append(asked(path).version())
    change(path, "UPDATE states SET failures = 9")
    seen.append(asked(path).version())
    Path(f"{path}.lock").write_text("{}")
    seen.append(asked(path).version())
    assert len(set(seen)) == 4
    assert asked(path).version() == seen[-1]
