"""The answers of every reader, of a file and of a schema of PostgreSQL: tasks, runs, names."""

import fnmatch
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from functools import partial
from pathlib import Path

import pytest

from duly.core.moments import MICROSECONDS, Instant
from duly.core.news import RUNS_OF_A_HOST
from duly.errors import TaskInvalidStructureError
from duly.insight import Examination
from duly.stores import Reader, View
from duly.stores.port import (
    KnownTask,
    RunMarks,
    RunRecord,
    RunSelection,
    TaskCounts,
    TaskFilter,
    TaskOrder,
    TaskPhase,
    TaskPlace,
    TaskSelection,
)
from tests.postgres_server import bundled_binaries, debian_binaries, server_of
from tests.stores.made import Row, Run
from tests.stores.shelves import AT, PostgresShelf, Shelf, SqliteShelf, put_mixed

SECOND = MICROSECONDS


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresShelf]:
    made = PostgresShelf(server_of(bundled_binaries()))
    yield made
    made.close()


@pytest.fixture(scope="module")
def debian() -> Iterator[PostgresShelf]:
    made = PostgresShelf(server_of(debian_binaries()))
    yield made
    made.close()


SERVERS = ("postgres", pytest.param("debian", marks=pytest.mark.slow))


@pytest.fixture(params=SERVERS)
def on_a_server(request: pytest.FixtureRequest) -> PostgresShelf:
    shelf: PostgresShelf = request.getfixturevalue(request.param)
    return shelf


@pytest.fixture(params=["sqlite", *SERVERS])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    chosen = SqliteShelf(tmp_path) if request.param == "sqlite" else request.getfixturevalue(request.param)
    yield chosen
    chosen.clear()


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(shelf: Shelf) -> Reader:
    """A store with tasks in every phase; a scheduler runs on it."""
    return put_mixed(shelf)


def test_pages_by_name_come_to_all_tasks_once(mixed: Reader) -> None:
    """Key by key, whatever the size of a page; a name that is no longer there is no obstacle."""

    def pages(view: View, size: int) -> list[str]:
        names: list[str] = []
        after = None
        while page := list(view.tasks(after=after, limit=size)):
            names += [task.name for task in page]
            after = names[-1]
        return names

    everything = mixed.read(lambda view: [task.name for task in view.tasks()])
    assert everything == sorted(everything)
    assert len(everything) == 300
    for size in (1, 7, 1000):
        assert mixed.read(lambda view, size=size: pages(view, size)) == everything  # type: ignore[misc]
    assert mixed.read(lambda view: next(view.tasks(after="task-5")).name) > "task-5"


@pytest.mark.parametrize("phase", TaskPhase)
def test_a_phase_has_its_tasks_and_no_others(mixed: Reader, phase: TaskPhase) -> None:
    """By name as well; with a living holder, what an earlier scheduler ran is interrupted."""
    everything = mixed.read(lambda view: [task for task in view.tasks() if task.phase is phase])
    found = mixed.read(lambda view: list(view.tasks(phase=phase)))
    first = mixed.read(lambda view: list(view.tasks(phase=phase, limit=3)))
    assert found == everything
    assert first == everything[:3]
    assert len(found) > 10


def test_the_latest_error_comes_with_a_task_that_has_failed(shelf: Shelf) -> None:
    """Looked up in history for those that are shown, or once for all; a failure that was dropped there has none."""
    failed = Row("a", last_attempt_at=1, last_failure_at=2, served_through=0)
    rows = [failed, replace(failed, name="b"), Row("c"), *(Row(f"d-{n:04}") for n in range(1500))]
    runs: list[Run] = [
        (1, 1, "cron", 0, 1, 2, "failure", "first"),
        (2, 1, "cron", 0, 1, 2, "failure", "second"),
        (3, 1, "cron", 0, 1, 2, "success", None),
    ]
    reader = shelf.put(rows, runs)
    for limit in (None, 3):
        found = reader.read(lambda view, limit=limit: list(view.tasks(limit=limit)))  # type: ignore[misc]
        assert [task.last_error for task in found[:3]] == ["second", None, None]
    one = reader.read(lambda view: view.task("a"))
    assert one is not None
    assert one.last_error == "second"
    assert reader.read(lambda view: view.task("z")) is None


def test_a_state_that_belongs_to_no_task_is_not_counted_as_one(shelf: Shelf) -> None:
    """Equal numbers of tasks and states are not enough."""
    reader = shelf.put([Row("a"), Row("b")])
    shelf.change("UPDATE states SET generation = 7 WHERE generation = 2")
    with pytest.raises(TaskInvalidStructureError):
        reader.read(lambda view: list(view.cohorts(AT)))


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def history(shelf: Shelf) -> Reader:
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
    return shelf.put(rows, runs)


def everything(reader: Reader) -> list[RunRecord]:
    return reader.read(lambda view: list(view.runs(RunSelection(), oldest_first=True)))


def test_runs_are_those_of_history_and_those_under_way_once(history: Reader) -> None:
    """In the order of their starts, and of their numbers where these are equal."""
    runs = everything(history)
    assert sorted(run.run_id for run in runs) == [*range(1, 402)]
    assert runs == sorted(runs, key=lambda run: (run.started_at, run.run_id))
    assert runs[-1].outcome == "interrupted"  # nobody holds the store
    newest_first = history.read(lambda view: list(view.runs(RunSelection())))
    assert newest_first == runs[::-1]
    assert history.read(lambda view: view.history_begins()) == runs[0].started_at


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
def test_filters_and_limits_are_those_of_the_list(history: Reader, which: RunSelection) -> None:
    """A question in SQL finds what one would pick out of all runs."""
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
    assert history.read(lambda view: list(view.runs(which, oldest_first=True))) == picked
    assert history.read(lambda view: list(view.runs(which, limit=5))) == picked[::-1][:5]
    assert history.read(lambda view: view.count_runs(which)) == len(picked)
    by_task: dict[str, list[RunRecord]] = {}
    for run in picked:
        by_task.setdefault(run.task, []).append(run)
    for limit in (2, 10):
        tasks, found = history.read(
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


def test_the_extent_of_history_tells_what_was_dropped(history: Reader, shelf: Shelf) -> None:
    """Runs are numbered one after the other, so what is missing shows."""
    extent = history.read(lambda view: view.extent())
    assert (extent.runs, extent.runs_ever) == (401, 401)
    shelf.change("DELETE FROM runs WHERE seq <= 100")
    extent = history.read(lambda view: view.extent())
    first = next(run for run in everything(history) if run.outcome != "running")
    assert (extent.runs, extent.runs_ever) == (301, 401)
    assert extent.oldest_end == (first.ended_at or first.started_at)


def test_the_last_sign_of_life_is_the_latest_instant_on_record_before_another(history: Reader) -> None:
    """A start or an end of any run, a declaration, its withdrawal, an arrival."""
    runs = everything(history)
    signs = [instant for run in runs for instant in (run.started_at, run.ended_at) if instant is not None]
    for before in (AT, AT - 500 * SECOND, AT - 999 * SECOND, AT - 60):
        expected = max([*(sign for sign in (*signs, AT - 100, AT - 50) if sign < before), 0])
        found = history.read(lambda view, before=before: view.last_sign_of_life(before))  # type: ignore[misc]
        assert found == expected
    assert history.read(lambda view: view.last_sign_of_life(Instant(0))) is None


# --- names -----------------------------------------------------------------------------------------------------------


def test_names_are_those_in_force_and_those_in_history_once(history: Reader) -> None:
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

    assert history.read(question) == [
        ["a", "b", "c", "e", "gone"], ["a", "b"], ["c", "e", "gone"], ["gone"], ["b", "a"], ["gone"], 5, 2,
    ]  # fmt: skip


def test_nothing_is_owed_longest_where_nothing_is_owed(mixed: Reader) -> None:
    """A caller need not ask first whether there is anything."""
    assert mixed.read(lambda view: view.longest_owed([], 5)) == []


def test_a_pattern_matches_names_in_force_and_in_history(shelf: Shelf) -> None:
    """As in a shell, letters in their case."""
    reader = shelf.put([Row("backup"), Row("report", retired_at=5)])
    patterns = ("back*", "rep?rt", "*", "Back*", "x*", "port")
    assert reader.read(lambda view: [view.has_name_like(each) for each in patterns]) == [
        *(True, True, True),
        *(False, False, False),
    ]


def test_a_store_without_runs_has_a_history_of_none(shelf: Shelf) -> None:
    """No run has been dropped from it either: the highest number is 0."""
    reader = shelf.put([Row("backup")])
    extent = reader.read(lambda view: view.extent())
    assert (extent.runs, extent.runs_ever, extent.oldest_end) == (0, 0, None)


def test_one_selection_of_names_after_another_has_its_own_runs(shelf: Shelf) -> None:
    """Of one view, which a dashboard asks for several things."""
    runs: list[Run] = [(number, number, "cron", 0, number, number, "success", None) for number in (1, 2, 3)]
    reader = shelf.put([Row("a"), Row("b"), Row("c")], runs)

    def names(view: View, *selections: RunSelection) -> list[list[str]]:
        return [[run.task for run in view.runs(which, oldest_first=True)] for which in selections]

    selections = [
        RunSelection(names=("a",)),
        RunSelection(names=("b", "c")),
        RunSelection(patterns=("[ab]",)),
        RunSelection(names=("c",), patterns=("a",)),
    ]
    expected = [["a"], ["b", "c"], ["a", "b"], ["a", "c"]]
    assert reader.read(lambda view: names(view, *selections)) == expected


# --- pages -----------------------------------------------------------------------------------------------------------


def value_in(order: TaskOrder, task: KnownTask) -> int:
    state = task.stored.state
    if order == "failure":
        return -(getattr(state, "last_failure_at", 0) or 0)
    return -getattr(state, "failures", 0) if order == "failures" else 0


@pytest.mark.parametrize("order", ["name", "failure", "failures"])
@pytest.mark.parametrize("which", ["all", "running", "interrupted", "owed", "retrying", "failing", "never"])
def test_a_page_is_a_part_of_all_tasks_in_its_order(
    mixed: Reader, which: TaskFilter, order: TaskOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with all tasks, filtered and sorted here; forwards, backwards, and from places between."""
    monkeypatch.setattr("duly.stores.sqlite.reader._NEAR", 20)  # some pages are filled by those, and some are not
    passes: dict[str, Callable[[KnownTask], bool]] = {
        "all": lambda task: True,
        "running": lambda task: task.phase is TaskPhase.RUNNING,
        "interrupted": lambda task: task.phase is TaskPhase.INTERRUPTED,
        "retrying": lambda task: task.phase is TaskPhase.RETRYING,
        "failing": lambda task: getattr(task.stored.state, "failures", 0) > 0,
        "never": lambda task: getattr(task.stored.state, "last_attempt_at", None) is None,
    }

    def question(view: View) -> None:
        examination = Examination(view, UTC)
        passes["owed"] = lambda task: examination.status_of(task).state == "owed"
        found = [task for task in view.tasks() if passes[which](task) and "7" in task.name]
        if order != "name":
            found = [task for task in found if value_in(order, task)]
        found.sort(key=lambda task: (value_in(order, task), task.name))
        selection = TaskSelection("7", which=which, order=order, latest_due=examination.latest_due)
        assert list(view.page(selection, 1000)) == found
        for index in range(0, len(found), 5):
            place = TaskPlace(found[index].name, value_in(order, found[index]))
            assert list(view.page(replace(selection, after=place), 3)) == found[index + 1 : index + 4]
            assert list(view.page(replace(selection, before=place), 3)) == found[max(0, index - 3) : index]

    mixed.read(question)


def test_owed_tasks_are_all_that_are_counted_as_owed(mixed: Reader) -> None:
    """Ripe retries among them; by expression as well. Of expressions that are not named, only the retries are owed."""

    def question(view: View) -> None:
        examination = Examination(view, UTC)
        owed = TaskSelection(which="owed", latest_due=examination.latest_due)
        found = view.page(owed, 1000)
        assert len(found) == examination.counts["owed"] > 100
        retries = [task for task in found if examination.status_of(task).next_is == "retry"]
        assert any(task.stored.expression.text not in examination.latest_due for task in retries)
        ranks = {"0 * * * *": 7, "* * * * *": 9}
        ranked = view.page(replace(owed, order="expression", ranks=ranks), 1000)
        expected = [task for task in found if task.stored.expression.text in ranks]
        assert ranked == sorted(expected, key=lambda task: (ranks[task.stored.expression.text], task.name))
        ripe = [task for task in found if (getattr(task.stored.state, "pending_retry_until", None) or AT + 1) <= AT]
        assert view.page(TaskSelection(which="owed"), 1000) == ripe

    mixed.read(question)


def test_a_page_by_expression_follows_the_ranks(mixed: Reader) -> None:
    ranks = {"0 * * * *": 7, "* * * * *": 9}

    def question(view: View) -> None:
        found = [task for task in view.tasks() if task.stored.expression.text in ranks]
        found.sort(key=lambda task: (ranks[task.stored.expression.text], task.name))
        selection = TaskSelection(order="expression", ranks=ranks)
        assert list(view.page(selection, 1000)) == found
        place = TaskPlace(found[4].name, ranks[found[4].stored.expression.text])
        assert list(view.page(replace(selection, after=place), 6)) == found[5:11]

    mixed.read(question)


@pytest.mark.parametrize(
    ("names", "part", "found"),
    [
        (["a%b", "aXb"], "%", ["a%b"]),
        (["a_b", "aXb"], "_", ["a_b"]),
        (["a\\b", "ab"], "\\", ["a\\b"]),
        (["Backup", "restore"], "BACK", ["Backup"]),
    ],
)
def test_a_part_of_a_name_is_text_and_no_pattern(shelf: Shelf, names: list[str], part: str, found: list[str]) -> None:
    reader = shelf.put([Row(name) for name in names])
    assert reader.read(lambda view: [task.name for task in view.page(TaskSelection(part), 9)]) == found


def test_counts_and_expressions_are_those_of_the_tasks_in_force(mixed: Reader) -> None:
    def question(view: View) -> None:
        tasks = list(view.tasks())
        failing = sum(getattr(task.stored.state, "failures", 0) > 0 for task in tasks)
        never = sum(getattr(task.stored.state, "last_attempt_at", None) is None for task in tasks)
        assert view.tally() == TaskCounts(failing, never)
        counts = Counter(task.stored.expression.text for task in tasks)
        assert dict(view.expressions(100)) == counts
        assert view.expressions(2) == [(text, counts[text]) for text, _ in view.expressions(100)[:2]]

    mixed.read(question)


def test_runs_before_a_place_are_all_that_come_after_it_in_the_list(shelf: Shelf) -> None:
    """Many start at one instant; their numbers then decide."""
    runs: list[Run] = [(n, 1, "cron", n // 4, n // 4, n // 4 + 1, "success", None) for n in range(1, 30)]
    reader = shelf.put([Row("a")], runs)

    def question(view: View) -> None:
        everything = list(view.runs(RunSelection()))
        for index, run in enumerate(everything):
            earlier = RunSelection(before=(run.started_at, run.run_id))
            assert list(view.runs(earlier)) == everything[index + 1 :]
        assert view.runs_by_time(Instant(2), 3)[0, "success"] == sum(2 <= run.started_at < 5 for run in everything)

    reader.read(question)


def _both(which: RunSelection, limit: int, view: View) -> tuple[RunMarks, list[RunRecord]]:
    return view.run_marks(which, limit), list(view.runs(which, limit=limit))


def test_the_first_runs_are_those_of_all_tables_together(shelf: Shelf) -> None:
    """Each table is cut by itself first; runs under way are the latest, or the earliest, or between ended ones."""
    minutes = [(1, 9), (2, 3), (4, 5), (6, 8)]
    runs: list[Run] = [
        (number, 1, "cron", begin * SECOND, begin * SECOND, end * SECOND, "success", None)
        for number, (begin, end) in enumerate(minutes, 1)
    ]
    rows = [
        Row("ended"),
        Row("early", last_attempt_at=0, run=5, run_cause="cron", run_scheduled=0),
        Row("between", last_attempt_at=3 * SECOND, run=6, run_cause="cron", run_scheduled=0),
        Row("late", last_attempt_at=7 * SECOND, run=7, run_cause="cron", run_scheduled=0),
    ]
    reader = shelf.put(rows, runs)

    def found(limit: int | None, *, oldest_first: bool) -> list[int]:
        return reader.read(
            lambda view: [run.run_id for run in view.runs(RunSelection(), limit=limit, oldest_first=oldest_first)]
        )

    for limit in (1, 2, 3, 6, 7, 9, None):
        assert found(limit, oldest_first=False) == [7, 4, 3, 6, 2, 1, 5][:limit]
        assert found(limit, oldest_first=True) == [5, 1, 2, 6, 3, 4, 7][:limit]
    for task, limit in ((None, 9), (None, 3), ("ended", 9), ("ended", 2), ("late", 9), ("nobody", 9)):
        which = RunSelection(task)
        marks, same = reader.read(partial(_both, which, limit))
        assert list(marks.started_at) == [run.started_at for run in same]
        assert list(marks.ended_at) == [run.ended_at for run in same]
        assert list(marks.outcomes) == [run.outcome for run in same]
        assert list(marks.lateness) == [run.started_at - run.scheduled_time for run in same]
        assert list(marks.hosts) in ([], [run.host for run in same])
    assert reader.read(lambda view: view.history_begins()) == 0
    extent = reader.read(lambda view: view.extent())
    assert (extent.runs, extent.runs_ever, extent.oldest_end) == (7, 7, 0)
    by_time = reader.read(lambda view: view.runs_by_time(Instant(0), 4 * SECOND))
    assert by_time == {(0, "success"): 2, (0, "interrupted"): 2, (1, "success"): 2, (1, "interrupted"): 1}


# --- one reader beside the other -------------------------------------------------------------------------------------


def without_host(task: KnownTask) -> KnownTask:
    """A task whose run has the number that it would have in an embedded store."""
    run = task.stored.run
    return task if run is None else replace(task, stored=task.stored._replace(run=run % RUNS_OF_A_HOST))


@pytest.mark.parametrize("held", [True, False], ids=["held", "free"])
@pytest.mark.parametrize("seed", range(3))
def test_both_readers_say_the_same_of_the_same_tasks(
    tmp_path: Path, on_a_server: PostgresShelf, seed: int, held: bool
) -> None:
    """Cohorts, what is owed for longest, and what follows from them."""

    def question(view: View) -> list[object]:
        examination = Examination(view, UTC, shown=40)
        urgent = [(each.task, each.state, each.late_ms, each.next_at) for each in examination.most_urgent(40)]
        owed = [without_host(each) for each in examination.owed_for_longest]
        cohorts = sorted(view.cohorts(Instant(AT - 90 * SECOND)), key=str)
        return [
            cohorts,
            urgent,
            owed,
            examination.counts,
            examination.latest_due,
            examination.longest_late,
            [each.text for each in examination.health.problems if each.code == "overdue"],
            [without_host(each) for each in view.tasks()],
            view.tally(),
            view.expressions(3),
            view.has_started(),
        ]

    try:
        theirs = put_mixed(on_a_server, seed, held=held).read(question)
    finally:
        on_a_server.clear()
    shelf = SqliteShelf(tmp_path)
    try:
        in_a_file = put_mixed(shelf, seed, held=held).read(question)
    finally:
        shelf.clear()
    for one, other in zip(theirs, in_a_file, strict=True):
        assert one == other


PATTERNS = (
    *("a*", "?", "[abc]", "[^abc]*", "[a-c]x", "[c-a]", "[]]", "[^]]", "[", "[a", "a.b", "a\\b", "a+", "[.]b", "*[*]*"),
    *("é?", "[à-ü]*", "a|b", "^a", "$", "(a)", "[a-]", "[-a]", "", "[[]", "{a}"),
)
NAMES = (
    *(
        "a",
        "b",
        "ax",
        "cx",
        "abc",
        "a.b",
        "a\\b",
        "a+",
        "aa",
        "]",
        "^a",
        ".b",
        "a*b",
        "éa",
        "ü",
        "a|b",
        "[",
        "-",
        "(a)",
    ),
    *("$", "{a}", "line\nend"),
)


def test_a_pattern_means_the_same_to_every_reader(tmp_path: Path, on_a_server: PostgresShelf) -> None:
    """SQLite's GLOB, and a regular expression of PostgreSQL that is made of it."""

    def question(view: View) -> dict[str, tuple[bool, set[str]]]:
        return {
            pattern: (view.has_name_like(pattern), {run.task for run in view.runs(RunSelection(patterns=(pattern,)))})
            for pattern in PATTERNS
        }

    rows = [Row(name) for name in NAMES]
    runs: list[Run] = [(n, n, "cron", 0, n, n, "success", None) for n in range(1, len(NAMES) + 1)]
    try:
        theirs = on_a_server.put(rows, runs).read(question)
    finally:
        on_a_server.clear()
    assert theirs == SqliteShelf(tmp_path).put(rows, runs).read(question)
