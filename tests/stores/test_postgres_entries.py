"""Batches as a host sends them to PostgreSQL, and entries as it reads them."""

import json

import pytest

from duly.core.changes import Batch
from duly.core.cron import parse_cron
from duly.core.moments import Delay, Instant, Minute
from duly.core.news import (
    Changes,
    Corrected,
    Joined,
    Left,
    LogEntry,
    Moved,
    Replaced,
    Statement,
    Unreadable,
    Written,
)
from duly.core.registration import RunsOn
from duly.core.request import TEXT_MAX, changes_of, storable
from duly.core.task import AwaitingRun, Cause, Correction, End, Grounds, Obligation, Running, Start, Task
from duly.stores.postgres.entries import array, entry_of, json_of, news_of, numbers, said_form, spans_form
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


def test_notes_and_the_count_of_runs_come_back_from_the_log() -> None:
    starts = changes_of(Batch.of([Start(task(1), 2_000_000_000_003, GROUNDS)])).starts
    content = written(Changes(starts=starts, running=4, notes=(("LR", NOON), ("SS", NOON, 2)))).content
    assert isinstance(content, Written)
    assert (content.running, content.notes) == (4, (("LR", NOON), ("SS", NOON, 2)))


def test_a_batch_says_nothing_of_what_it_does_not_hold() -> None:
    """The count of runs is that before starts; of an entry without any it is 0."""
    assert json_of(Changes(running=4)) == {"ends": [], "starts": []}
    content = written(Changes(running=4)).content
    assert isinstance(content, Written)
    assert (content.running, content.notes, content.corrected) == (0, (), None)


def test_a_declaration_comes_back_from_the_log() -> None:
    said, spans = Statement(3, 2, "d" * 64, "again", 8, None, 17), ((1, 3), (7, 7))
    row = {"seq": 7, "host": 2, "number": 3, "nonce": "0", "at": NOON, "refused": None}
    entry = {"edition": 4, "zone": "UTC", "said": said_form(said), "corrected": {"at": NOON, "minute": 9}}
    joined = {**row, "kind": "joined", "entry": {**entry, "outdated": True, "to_threads": spans_form(spans)}}
    corrected = Corrected(NOON, Minute(9))
    assert entry_of(json.loads(json.dumps(joined))).content == Joined(
        4, True, "UTC", corrected, said, Moved(to_threads=spans)
    )
    put = {"known_since": NOON, "first_generation": 8, "added": 2, "removed": "{1,5}", "reinstated": False}
    replaced = {**entry, **put, "blocked": [[8, "2000000000001"]], "to_loop": spans_form(spans)}
    replaced["renumbered"] = "{1,4}"
    assert entry_of(json.loads(json.dumps({**row, "kind": "replaced", "entry": replaced}))).content == Replaced(
        4, NOON, 8, 2, (1, 5), ((8, 2_000_000_000_001),), False, "UTC", corrected, said, Moved(to_loop=spans), (1, 4)
    )


def test_a_host_that_leaves_says_how_its_calls_ended() -> None:
    row = {"seq": 7, "host": 2, "number": 3, "nonce": "0", "at": NOON, "kind": "left", "refused": None}
    assert entry_of({**row, "entry": {"notes": [["SE", NOON, 1]]}}).content == Left((("SE", NOON, 1),))
    assert entry_of({**row, "entry": {}}).content == Left(())


def test_spans_are_two_arrays_and_none_are_nothing() -> None:
    assert spans_form(((1, 3), (7, 7))) == ["{1,7}", "{3,7}"]
    assert spans_form(()) is None


def test_an_entry_of_a_kind_that_is_not_known_is_no_error() -> None:
    """SPEC 9.20: hosts of two versions work side by side; the older one loads anew."""
    row = {"seq": 7, "host": 2, "number": 3, "nonce": "0", "at": NOON, "kind": "halted", "refused": None, "entry": {}}
    assert entry_of(row).content == Unreadable("halted")


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"ends": [], "starts": [{"cause": "manual"}]},
        {"ends": [], "starts": None},
        {"ends": [], "starts": [], "fenced": "{x}"},
        [],
    ],
)
def test_an_entry_of_a_later_version_is_no_error(entry: object) -> None:
    """SPEC 9.20: a known kind with a cause, or with fields, that this version does not know."""
    row = {"seq": 7, "host": 2, "number": 3, "nonce": "0", "at": NOON, "kind": "written", "refused": None}
    assert news_of({**row, "entry": entry}).content == Unreadable("written")
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        entry_of({**row, "entry": entry})  # for a trace: that is refused


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
