"""The situation of each task, what is owed, and whether that is healthy; counted by cohort, as one by one."""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from duly.core.groups import Group
from duly.core.moments import MICROSECONDS, Instant, begin, instant_of, minute_of
from duly.core.task import AwaitingRetry, Running, interrupt, lateness_threshold
from duly.insight.health import STATES, Examination, TaskStatus
from duly.insight.json_form import json_form
from duly.insight.words import stretch
from duly.stores import SqliteReader, View
from duly.stores.port import KnownTask, Snapshot
from duly.stores.sqlite.lock import LockFile
from tests.stores.made import Row, make_store, random_rows

AT = instant_of(datetime(2024, 5, 1, 12, 30, 20, 123_456, tzinfo=UTC))
MINUTE = minute_of(AT, UTC)
SECOND = MICROSECONDS


class Situation(NamedTuple):
    """Where one task stands, found without its neighbours."""

    task: KnownTask
    state: str
    next_at: Instant | None
    next_is: str | None
    owed_since: Instant | None
    late: int


def situation(task: KnownTask, snapshot: Snapshot) -> Situation:
    """The rule, task by task: the reference that counting by cohort is compared with."""
    state, at = task.stored.state, snapshot.at
    group, minute = Group(task.stored.expression), minute_of(at, UTC)
    owed = group.owed(state.served_through, minute, UTC)
    owed_since = begin(owed.earliest) if owed is not None else None
    group.look_ahead(minute, UTC)
    due: Instant | None = begin(group.next_due)
    if task.running:
        return Situation(task, "running", due if owed is None else None, "cron", owed_since, 0)
    word = "owed" if owed is not None else "waiting"
    reasons: list[tuple[Instant | None, str]] = [(due, "cron")] if owed_since is None else [(owed_since, "cron")]
    if isinstance(state, AwaitingRetry):
        reasons.append((state.pending_retry_until, "retry"))
        word = word if owed is not None else "retrying"
    elif isinstance(state, Running):
        reasons.append((interrupt(state, at, task.stored.delay, restart=True).resume_at, "interrupted"))
        word = "interrupted"
    first, why = min((moment, why) for moment, why in reasons if moment is not None)
    late = 0
    if first <= at:
        owed_since = first
        word = "owed" if word == "retrying" else word
        ended = max(getattr(state, "last_success_at", None) or 0, getattr(state, "last_failure_at", None) or 0)
        began = snapshot.holder.since or 0 if snapshot.holder.alive else 0
        late = max(0, at - max(first, ended, began))
    return Situation(task, word, first, why, owed_since, late)


def overdue(situations: list[Situation], snapshot: Snapshot) -> list[Situation]:
    threshold = lateness_threshold(len(situations))
    return [
        each
        for each in situations
        if each.late > threshold
        and each.next_is != "interrupted"
        and (snapshot.holder.alive or each.state != "interrupted")
    ]


@contextlib.contextmanager
def held(path: Path, since: Instant | None) -> Iterator[None]:
    """Whether a living scheduler holds the store, and since when."""
    lock = LockFile(str(path))
    lock.acquire(datetime.fromtimestamp((since or AT) // SECOND, UTC))
    try:
        if since is None:
            lock.release()
        yield
    finally:
        lock.release()


def check(view: View, limit: int) -> None:
    """Everything that an examination says, against the reference."""
    examination = Examination(view, UTC, shown=limit)
    snapshot = view.snapshot()
    situations = [situation(task, snapshot) for task in view.tasks()]
    by_name = {each.task.name: each for each in situations}
    health = examination.health
    assert health.counts == Counter(each.state for each in situations)
    assert examination.anything_owed == any(each.owed_since is not None for each in situations)
    assert set(examination.latest_due) >= {
        each.task.stored.expression.text for each in situations if (each.state, each.next_is) == ("owed", "cron")
    }
    assert examination.owed_left_out == 0

    every = list(examination.all_tasks())
    assert [status.task for status in every] == sorted(by_name)
    for status in every:
        expected = by_name[status.task]
        assert (status.state, status.next_at, status.next_is, status.owed_since) == expected[1:5]
        assert status.late_ms == expected.late // 1000
    assert examination.count_failing() == sum(status.failures > 0 for status in every)
    # A running scheduler may let an interrupted run wait on purpose.
    lateness = [each.late for each in situations if not (snapshot.holder.alive and each.next_is == "interrupted")]
    assert examination.longest_late == max(lateness, default=0)

    late = overdue(situations, snapshot)
    texts = {problem.code: problem.text for problem in health.problems}
    assert ("overdue" in texts) == bool(late)
    if late:
        longest = sorted(late, key=lambda each: -each.late)
        names, _, rest = texts["overdue"].partition(" overdue, by ")
        assert rest == f"{stretch(longest[0].late / SECOND)} at most"
        listed = names.split(" and ")[0].split(", ")
        assert len(listed) == min(5, len(late))
        assert names.endswith(f" and {len(late) - 5} more") == (len(late) > 5)
        assert min(by_name[name].late for name in listed) == longest[: len(listed)][-1].late
    cut_short = sorted(each.task.name for each in situations if each.state == "interrupted")
    assert ("holder-gone" in texts) == (bool(cut_short) and not snapshot.holder.alive)
    if "holder-gone" in texts:
        assert f"left {', '.join(cut_short[:5])}" in texts["holder-gone"]

    urgent = list(examination.most_urgent(limit))
    assert len(urgent) == min(limit, len(situations))
    assert len({status.task for status in urgent}) == len(urgent)
    order = sorted(situations, key=lambda each: (STATES.index(each.state), -each.late))
    shown = [(status.state, by_name[status.task].late) for status in urgent]
    assert [state for state, _ in shown] == [each.state for each in order[: len(urgent)]]
    assert [late for state, late in shown if state == "owed"] == [
        each.late for each in order[: len(urgent)] if each.state == "owed"
    ]
    for state in ("running", "retrying", "waiting"):
        names_shown = [status.task for status in urgent if status.state == state]
        assert names_shown == sorted(each.task.name for each in situations if each.state == state)[: len(names_shown)]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("alive", [None, 20, 2_000], ids=["dead", "just arrived", "alive"])
def test_counting_by_cohort_comes_to_what_looking_at_each_task_does(
    tmp_path: Path, seed: int, alive: int | None
) -> None:
    """Counts, problems, names and the order of tasks; on stores in which tasks are in all kinds of situations."""
    chance = random.Random(seed)
    rows = random_rows(chance, AT, chance.choice((1, 7, 60)))
    interrupted = [
        (row.run, generation, "cron", 0, row.last_attempt_at, None, "interrupted", None)
        for generation, row in enumerate(rows, 1)
        if row.run is not None and chance.random() < 0.2
    ]
    path = make_store(tmp_path / "state.db", rows, interrupted, schedulers=(0, 1))  # type: ignore[arg-type]
    with held(path, None if alive is None else Instant(AT - alive * SECOND)):
        SqliteReader(path, lambda: AT).read(lambda view: check(view, chance.choice((1, 5, 20, 100))))


def examined(path: Path) -> tuple[Examination, list[TaskStatus]]:
    def question(view: View) -> tuple[Examination, list[TaskStatus]]:
        examination = Examination(view, UTC)
        return examination, list(examination.all_tasks())

    return SqliteReader(path, lambda: AT).read(question)


def test_a_task_that_was_owed_while_it_ran_is_late_since_its_end(tmp_path: Path) -> None:
    """It could not be started before its run had ended; nor before the scheduler that holds the store began."""
    ended = AT - 90 * SECOND
    row = Row("long", served_through=MINUTE - 600, last_attempt_at=AT - 700 * SECOND, last_success_at=ended)
    path = make_store(tmp_path / "state.db", [row])
    _, [status] = examined(path)
    assert (status.state, status.owed_since, status.late_ms) == (
        "owed",
        begin(minute_of(AT, UTC)) - 540 * SECOND,
        90_000,
    )
    with held(path, Instant(AT - 10 * SECOND)):
        _, [status] = examined(path)
    assert status.late_ms // 1000 == 10


def test_a_retry_that_waits_counts_when_it_is_ripe(tmp_path: Path) -> None:
    """Retrying until then; owed afterwards, since the retry and not since the next due minute."""
    waits = Row(
        "waits", "0 0 1 1 *", 60_000, 0, MINUTE, AT - 9 * SECOND, None, AT - 8 * SECOND, AT + 52 * SECOND, failures=1
    )
    ripe = replace(waits, name="ripe", pending_retry_until=AT - 2 * SECOND)
    examination, [first, second] = examined(make_store(tmp_path / "state.db", [waits, ripe]))
    assert [(status.state, status.next_is) for status in (first, second)] == [("owed", "retry"), ("retrying", "retry")]
    assert (first.owed_since, first.late_ms) == (AT - 2 * SECOND, 2_000)
    assert examination.counts == {"owed": 1, "retrying": 1}


def test_an_expression_whose_calendar_has_ended_is_due_no_more(tmp_path: Path) -> None:
    """There is no year after 9999."""
    at = instant_of(datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC))
    row = Row("last", served_through=minute_of(at, UTC))
    path = make_store(tmp_path / "state.db", [row])
    [status] = SqliteReader(path, lambda: at).read(lambda view: list(Examination(view, UTC).all_tasks()))
    assert (status.state, status.next_at, status.next_is) == ("waiting", None, None)


def test_the_json_form_has_the_documented_members(tmp_path: Path) -> None:
    """SPEC 10.4: one form, wherever it is shown."""
    examination, [status] = examined(make_store(tmp_path / "state.db", [Row("task")]))
    assert list(json_form(examination.health, UTC)) == [
        "store", "at", "healthy", "problems", "warnings", "zone", "hostZone", "holder", "cluster",
    ]  # fmt: skip
    assert list(json_form(status, UTC)) == [
        "task", "expression", "retryDelayMs", "state", "knownSince", "lastAttemptAt", "lastSuccessAt", "lastFailureAt",
        "lastError", "failures", "pendingRetryUntil", "nextAt", "nextIs", "owedSince", "lateMs", "runId", "host",
    ]  # fmt: skip
