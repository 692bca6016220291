"""How much work the questions of a reader are to SQLite; `test_reader_contract.py` has the answers."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.core.moments import instant_of
from duly.errors import TaskInvalidTypeError
from duly.stores import SqliteReader
from duly.stores.port import (
    Holder,
    RunSelection,
)
from duly.stores.sqlite.reader import SqliteView
from tests.stores.helpers import change
from tests.stores.made import Row, Run, make_store

AT = instant_of(datetime(2024, 5, 1, 12, 30, 20, tzinfo=UTC))
NOBODY = Holder(alive=False, pid=None, host=None, since=None, last_poll_at=None)


def asked(path: Path) -> SqliteReader:
    return SqliteReader(path, lambda: AT)


def test_a_number_that_is_text_is_found_while_cohorts_are_counted(tmp_path: Path) -> None:
    """SPEC 5.5: what would be computed with is checked, and the record is named."""
    path = make_store(tmp_path / "state.db", [Row("a"), Row("b", last_attempt_at=1, last_success_at=2), Row("c")])
    change(path, "UPDATE states SET last_success_at = 'noon' WHERE generation = 2")
    with pytest.raises(TaskInvalidTypeError) as caught:
        asked(path).read(lambda view: list(view.cohorts(AT)))
    assert caught.value.details["taskName"] == "b"


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A few tasks, and a run of each."""
    rows = [Row("a", retired_at=AT - 100), *(Row(name) for name in "abc")]
    return make_store(tmp_path / "state.db", rows, [(n, n, "cron", n, n, n + 1, "success", None) for n in range(1, 5)])


def test_a_name_that_is_not_there_is_found_out_without_comparing_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing those of a million tasks takes most of a second, and anybody can ask for such a name."""
    path = make_store(tmp_path / "state.db", [Row("one"), Row("two")])
    monkeypatch.setattr("duly.stores.sqlite.damage._FEW_TASKS", 1)
    compared: list[str] = []
    monkeypatch.setattr("duly.stores.sqlite.reader.check_indexes", lambda _, path: compared.append(path))
    assert asked(path).read(lambda view: view.declarations("three")) == []
    assert compared == []


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


def test_the_runs_of_a_task_are_found_without_those_that_others_have_under_way(tmp_path: Path) -> None:
    """A third of a million tasks may run at once, and the page of one of them is asked for."""

    def effort_beside(running: int) -> int:
        rows = [
            Row(f"task-{n:06}", last_attempt_at=n, run=n + 100, run_cause="cron", run_scheduled=n)
            for n in range(running)
        ]
        path = make_store(tmp_path / f"{running}.db", rows, [(1, 8, "cron", 1, 1, 5, "success", None)])
        connection = sqlite3.connect(path, isolation_level=None)
        view = SqliteView(connection, str(path), 2, AT, NOBODY)
        steps = [0]

        def counted() -> int:
            steps[0] += 1
            return 0

        connection.set_progress_handler(counted, 10)
        which = RunSelection(task="task-000007")
        assert [len(list(view.runs(which, limit=5))) for _ in range(3)] == [2, 2, 2]
        assert len(view.run_marks(which, 5)) == 2
        connection.close()
        return steps[0]

    assert effort_beside(4_000) <= effort_beside(40) + 5


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
