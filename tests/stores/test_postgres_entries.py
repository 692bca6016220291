"""Batches as a host sends them to PostgreSQL, and entries as it reads them."""

import json

import pytest

from duly.core.changes import Batch
from duly.core.cron import parse_cron
from duly.core.moments import Delay, Instant, Minute
from duly.core.news import Changes, LogEntry, Unreadable, Written
from duly.core.registration import RunsOn
from duly.core.task import AwaitingRun, Cause, Correction, End, Grounds, Obligation, Running, Start, Task
from duly.stores.postgres.entries import TEXT_MAX, array, changes_of, entry_of, json_of, numbers, storable
from tests.stores.shared_hosts import MINUTE, NOON

RUNNING = Running(Minute(60), NOON, None, None, None, 0, 0, Obligation(NOON, NOON, 1))
GROUNDS = Grounds(Cause.CRON, NOON, NOON, NOON, 0, preempts_retry=False, after=RUNNING)


def task(generation: int) -> Task:
    state = AwaitingRun(Minute(0))
    return Task(generation, f"task {generation}", parse_cron("* * * * *"), Delay(0), state, print, RunsOn.THREAD)


def written(changes: Changes) -> LogEntry:
    """An entry of the log that holds these changes, after its way through JSON."""
    row = {"seq": 7, "host": 2, "number": 3, "nonce": "0" * 32, "at": NOON, "kind": "written", "refused": "{5,6}"}
    return entry_of(json.loads(json.dumps({**row, "entry": {**json_of(changes), "fenced": "{2000000000001}"}})))


def test_a_batch_comes_back_from_the_log_as_it_was_sent() -> None:
    one, other = task(1), task(2)
    batch = Batch.of(
        [
            End(one, 2_000_000_000_001, GROUNDS, NOON, called_at=NOON),
            End(other, 2_000_000_000_002, GROUNDS, NOON, "it broke", Instant(NOON + MINUTE), 1, traceback="line 1"),
            Start(one, 2_000_000_000_003, GROUNDS),
            Start(other, 2_000_000_000_004, GROUNDS),
            Correction(NOON, Minute(0)),
        ]
    )
    changes = changes_of(batch)
    assert [each.runs for each in changes.ends] == [(2_000_000_000_001,), (2_000_000_000_002,)]
    assert [each.generations for each in changes.starts] == [(1, 2)]
    assert changes.correct
    content = written(changes).content
    assert isinstance(content, Written)
    assert (content.ends, content.starts) == (changes.ends, changes.starts)
    assert (content.refused, content.fenced) == ((5, 6), (2_000_000_000_001,))


def test_an_entry_of_a_kind_that_is_not_known_is_no_error() -> None:
    """SPEC 9.20: hosts of two versions work side by side; the older one loads anew."""
    row = {"seq": 7, "host": 2, "number": 3, "nonce": "0", "at": NOON, "kind": "halted", "refused": None, "entry": {}}
    assert entry_of(row).content == Unreadable("halted")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain", "plain"),
        ("a\0b", "a\\x00b"),
        ("name \udcff", "name \\udcff"),
        ("x" * 9_000, "x" * (TEXT_MAX - 1) + "…"),
        ("\0" * TEXT_MAX, ("\\x00" * TEXT_MAX)[: TEXT_MAX - 1] + "…"),
        ("€😀", "€😀"),
    ],
)
def test_every_error_text_can_be_stored(text: str, stored: str) -> None:
    """SPEC 9.20: a batch that can never be stored would stop its host for ever."""
    assert storable(text) == stored
    end = End(task(1), 1, GROUNDS, NOON, text, NOON, 1, traceback=text)
    (ended,) = changes_of(Batch([end])).ends
    assert ended.failure is not None
    assert (ended.failure.error, ended.failure.traceback) == (stored, stored)


def test_arrays_are_written_as_postgresql_writes_them() -> None:
    assert array([1, 2]) == "{1,2}"
    assert numbers("{1,2}") == (1, 2)
    assert numbers(array([])) == numbers(None) == ()
