"""Entries of the log of a shared store as events of the trace, and the registers that a trace begins with."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from duly.core.moments import Instant, Minute, begin
from duly.core.news import (
    NOT_MOVED,
    Buried,
    Content,
    Corrected,
    Ended,
    FailedRun,
    Joined,
    Left,
    LogEntry,
    Moved,
    Replaced,
    Started,
    Statement,
    Unreadable,
    Written,
)
from duly.core.task import Cause, Obligation
from duly.errors import TraceError
from duly.formal.registers import RegisterSnapshot, TaskRow
from duly.stores.shared_trace import (
    LATE_MICROSECONDS,
    Base,
    BaseHost,
    BaseMark,
    BaseStray,
    BaseTask,
    LoggedTrace,
    NamedDeclaration,
    lines_of,
    registers_of,
)
from tests.stores.shared_hosts import MINUTE, NOON

RUN = 10**12
CRON = "* * * * *"
SAID = Statement(1, 2, "d" * 64, "restart", 8, 4, 17)
TASK = BaseTask(1, "a", CRON, 0, False, Minute(60), None, None, None, None, 0, None)


def base(**changes: Any) -> Base:
    """One with two tasks and a host."""
    known: dict[str, Any] = {
        "segment": 1,
        "first": 5,
        "at": NOON,
        "edition": 1,
        "interrupted": "restart",
        "zone": "UTC",
        "tasks": [TASK, TASK._replace(generation=2, name="b")],
        "hosts": [BaseHost(1, 1, None, None)],
    }
    return Base(**{**known, **changes})


def told(*contents: Content | LogEntry, declared: Iterable[tuple[int, str]] = (), **changes: Any) -> list[list[Any]]:
    """The events of entries of host 1, one a second, without their numbers; an entry stands as it is."""
    begins = base(**changes)
    entries = [
        each if isinstance(each, LogEntry) else entry(each, begins.first + place, at=NOON + place * 1_000_000)
        for place, each in enumerate(contents)
    ]
    lines = [json.loads(line) for line in lines_of(trace(begins, entries, declared=declared))][1:-1]
    assert [line[1] for line in lines] == list(range(1, len(lines) + 1))
    return [[letters, at, host, *rest] for letters, _, at, host, *rest in lines]


def trace(
    begins: Base, entries: list[LogEntry], *, last: int | None = None, declared: Iterable[tuple[int, str]] = ()
) -> LoggedTrace:
    declarations = {generation: NamedDeclaration(name, CRON, 0) for generation, name in declared}
    identifiers = {1: "one", 2: "two"}
    end = begins.first + len(entries) - 1 if last is None else last
    return LoggedTrace("s" * 32, begins, identifiers, declarations, entries, end, clean=False)


def entry(content: Content, seq: int = 5, *, host: int = 1, at: int = NOON) -> LogEntry:
    return LogEntry(seq, host, 1, "n", Instant(at), content)


def written(**changes: Any) -> Written:
    empty: dict[str, Any] = {"ends": (), "starts": (), "corrected": None, "refused": (), "fenced": ()}
    return Written(**{**empty, **changes})


def started(first_run: int, *generations: int, at: int = NOON) -> Started:
    return Started(
        generations, first_run, Cause.CRON, Instant(at), NOON, Minute(61), None, 0, Obligation(NOON, NOON, 1)
    )


def ended(generations: tuple[int, ...], runs: tuple[int, ...], error: str | None = None, at: int = NOON) -> Ended:
    failure = None if error is None else FailedRun(error, None, None, 1)
    obligation = Obligation(NOON, NOON, 1)
    return Ended(generations, runs, Instant(at), Cause.CRON, NOON, NOON, None, obligation, failure)


def joined(call: int = 1, *, outdated: bool = False, moved: Moved = NOT_MOVED, **changes: Any) -> Joined:
    said = Statement(call, 2, "d" * 64, "restart", 8, 4, 17)
    return Joined(changes.get("edition", 1), outdated, "UTC", changes.get("corrected"), said, moved)


def replaced(first: int, added: int, removed: tuple[int, ...] = (), moved: Moved = NOT_MOVED) -> Replaced:
    return Replaced(2, Instant(NOON - 5), first, added, removed, (), False, "Asia/Tokyo", None, SAID, moved)


def letters(events: list[list[Any]]) -> list[str]:
    return [event[0] for event in events]


# --- starts and ends -------------------------------------------------------------------------------------------------


def test_starts_count_the_slots_in_use_and_refused_ones_are_not_told() -> None:
    starts = (started(RUN + 1, 1), started(RUN + 7, 2, 1))
    assert told(written(starts=starts, running=3)) == [
        ["RS", NOON, 1, "a", 1, RUN + 1, "cron", 3],
        ["RS", NOON, 1, "b", 2, RUN + 7, "cron", 4],
        ["RS", NOON, 1, "a", 1, RUN + 8, "cron", 5],
    ]
    assert told(written(starts=starts, running=3, refused=(1,))) == [["RS", NOON, 1, "b", 2, RUN + 7, "cron", 3]]


def test_ends_come_before_notes_and_notes_before_starts() -> None:
    ends = (ended((1, 2), (RUN + 1, RUN + 2)), ended((1,), (RUN + 3,), "it broke"))
    notes = (("SS", NOON, 4), ("WK", NOON, 9))
    told_of = told(written(ends=ends, notes=notes, starts=(started(RUN + 9, 1),), fenced=(RUN + 2,)))
    assert told_of == [
        ["RE", NOON, 1, "a", 1, RUN + 1, True],
        ["RE", NOON, 1, "a", 1, RUN + 3, False],
        ["SS", NOON, 1, 4],
        ["WK", NOON, 1, 9],
        ["RS", NOON, 1, "a", 1, RUN + 9, "cron", 0],
    ]


@pytest.mark.parametrize("of", ["end", "start", "note"])
def test_an_entry_that_is_much_later_than_what_it_tells_shows_that_its_host_could_not_write(of: str) -> None:
    """A start that was owed while the store was out of reach is not late."""

    def tells(late: int) -> Written:
        at = NOON - late
        return {
            "end": written(ends=(ended((1,), (RUN + 1,), at=at), ended((1,), (RUN + 2,)))),
            "start": written(starts=(started(RUN + 1, 1, at=at), started(RUN + 2, 1))),
            "note": written(notes=(("WK", at, 1), ("WK", NOON, 2))),
        }[of]

    assert "LR" not in letters(told(tells(LATE_MICROSECONDS)))
    assert told(tells(LATE_MICROSECONDS + 1))[0] == ["LR", NOON, 1]
    assert LATE_MICROSECONDS == 10_000_000


def test_that_a_host_reaches_the_store_again_is_told_first_and_once() -> None:
    events = told(written(ends=(ended((1,), (RUN + 1,)),), notes=(("WK", NOON, 1), ("LR", NOON), ("WK", NOON, 2))))
    assert letters(events) == ["LR", "RE", "WK", "WK"]


# --- the clock of the store ------------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_is_told_by_the_next_entry() -> None:
    """From what the entry before showed, or the base; an equal clock was not set back."""
    back = NOON - 7
    for content in (written(), Buried(9), Left(())):
        assert told(entry(content, at=back))[0] == ["CK", back, 1, NOON]
        assert "CK" not in letters(told(entry(content, at=NOON)))
    events = told(entry(written(), at=NOON + 9), entry(written(), 6, at=NOON + 8), entry(written(), 7, at=NOON + 8))
    assert events == [["CK", NOON + 8, 1, NOON + 9]]


def test_a_correction_is_told_after_what_was_written() -> None:
    corrected = Corrected(Instant(NOON - 3), Minute(60))
    events = told(written(corrected=corrected, starts=(started(RUN + 1, 1),)))
    assert events[1:] == [["CK", NOON - 3, 1, NOON]]
    assert letters(events) == ["RS", "CK"]


def test_a_correction_at_a_declaration_is_told_although_the_clock_went_on() -> None:
    corrected = Corrected(Instant(NOON + 3), Minute(60))
    events = told(entry(joined(corrected=corrected), at=NOON + 3))
    assert events[0] == ["CK", NOON + 3, 1, NOON]
    assert letters(events) == ["CK", "IS", "IE"]


# --- calls -----------------------------------------------------------------------------------------------------------


def test_a_declaration_tells_of_a_new_host_and_of_its_call() -> None:
    """SPEC 9.14: the zone, the edition and the options stand in the IE."""
    first, again = entry(joined(), host=2), entry(joined(2), 6, host=2)
    assert told(first, again) == [
        ["BT", NOON, 2, "two", 17],
        ["IS", NOON, 2, 1],
        ["IE", NOON, 2, 1, 2, "d" * 64, "restart", 8, 4, "UTC", 1, False],
        ["IS", NOON, 2, 2],
        ["IE", NOON, 2, 2, 2, "d" * 64, "restart", 8, 4, "UTC", 1, False],
    ]
    assert letters(told(joined())) == ["IS", "IE"], "host 1 was there when the trace began"


def test_a_call_that_was_noted_is_not_told_twice() -> None:
    noted, late = written(notes=(("IS", NOON, 3),)), written(notes=(("IS", NOON, 3), ("IS", NOON, 4)))
    assert letters(told(noted, joined(3))) == ["IS", "IE"]
    events = told(joined(3), late)
    assert letters(events) == ["IS", "IE", "IS"]
    assert events[-1][3] == 4
    assert letters(told(noted, joined(3), joined(3))) == ["IS", "IE", "IS", "IE"]


def test_the_failure_of_a_call_is_told_if_its_beginning_was() -> None:
    """It was called before the trace began, or its host never heard that it took effect."""
    failed = ("IF", NOON, 3, "no")
    assert told(written(notes=(failed,))) == []
    assert letters(told(written(notes=(("IS", NOON, 3), failed, failed, ("WK", NOON, 1))))) == ["IS", "IF", "WK"]
    assert letters(told(joined(3), written(notes=(failed,)))) == ["IS", "IE"]


def test_a_stop_that_completes_has_a_beginning() -> None:
    """SPEC 9.19: even if the host made no note of it; a stop that raised is over."""
    left = Left((("SE", NOON, 6),))
    assert told(left) == [["SS", NOON, 1, 6], ["SE", NOON, 1, 6]]
    assert letters(told(written(notes=(("SS", NOON, 6),)), left)) == ["SS", "SE"]
    raised = written(notes=(("SS", NOON, 6), ("SF", NOON, 6, "no")))
    assert letters(told(raised, left)) == ["SS", "SF", "SS", "SE"]
    assert told(written(notes=(("SF", NOON, 6, "refused"),))) == [["SF", NOON, 1, 6, "refused"]]


def test_a_host_that_leaves_without_a_word_has_stopped_at_that_moment() -> None:
    at = NOON + 5
    assert told(entry(Left(()), at=at)) == [["SS", at, 1, 0], ["SE", at, 1, 0]]
    events = told(entry(Left((("WK", NOON, 1),)), at=at))
    assert events == [["WK", NOON, 1, 1], ["SS", at, 1, 0], ["SE", at, 1, 0]]
    two = Left((("SE", NOON, 6), ("SE", NOON, 6)))
    assert letters(told(two)) == ["SS", "SE", "SS", "SE"]


def test_a_host_that_is_gone_begins_anew() -> None:
    """SPEC 9.6: one that left, or was buried by another one."""
    assert letters(told(Left(()), joined())) == ["SS", "SE", "BT", "IS", "IE"]
    events = told(entry(Buried(1), host=2), entry(joined(), 6))
    assert letters(events) == ["BY", "BT", "IS", "IE"]
    assert events[0] == ["BY", NOON, 2, 1]
    assert letters(told(entry(Buried(7), host=1), entry(joined(), 6))) == ["BY", "IS", "IE"]


# --- declarations ----------------------------------------------------------------------------------------------------


def registrations(events: list[list[Any]]) -> list[tuple[str, int, str, str]]:
    return [(event[3], event[4], event[5], event[10]) for event in events if event[0] == "RG"]


def test_a_set_that_is_put_in_force_tells_what_changes() -> None:
    """SPEC 9.13: orphaned tasks first; an overriding one and a new one have generations of their own."""
    declared = [(3, "b"), (4, "c")]
    events = told(replaced(3, 2, (1, 2), Moved(to_threads=((1, 1), (4, 4)))), declared=declared)
    assert registrations(events) == [
        ("a", 1, "orphaned", "loop"),
        ("b", 3, "overridden", "loop"),
        ("c", 4, "new", "thread"),
    ]
    assert events[1][6:10] == [CRON, 0, "Asia/Tokyo", NOON - 5]
    assert events[-1][-3:] == ["Asia/Tokyo", 2, False]
    assert letters(events) == ["IS", "RG", "RG", "RG", "IE"]


def test_hosts_whose_set_comes_back_are_told_after_it_is_in_force() -> None:
    """SPEC 9.15: they have its number, too."""
    events = told(replace(replaced(3, 0), renumbered=(2, 4)))
    assert letters(events) == ["IS", "IE", "RN", "RN"]
    assert events[2:] == [["RN", NOON, 1, 2], ["RN", NOON, 1, 4]]


def test_a_name_that_was_orphaned_is_new_when_it_comes_back() -> None:
    events = told(replaced(3, 0, (1,)), replaced(3, 1), declared=[(3, "a")])
    assert registrations(events) == [("a", 1, "orphaned", "loop"), ("a", 3, "new", "loop")]
    again = told(replaced(3, 1, (1,)), replaced(4, 1, (3,)), declared=[(3, "a"), (4, "a")])
    assert [each[2] for each in registrations(again)] == ["overridden", "overridden"]


def test_preserved_tasks_are_told_where_their_place_changes() -> None:
    moved = Moved(to_threads=((1, 1), (9, 9)), to_loop=((2, 2),))
    for content in (joined(moved=moved), replaced(3, 0, moved=moved)):
        assert registrations(told(content)) == [("a", 1, "preserved", "thread"), ("b", 2, "preserved", "loop")]
    events = told(joined(moved=moved))
    assert events[1] == ["RG", NOON, 1, "a", 1, "preserved", CRON, 0, "UTC", NOON, "thread"]
    assert registrations(told(joined(moved=moved, outdated=True))) == []


def test_a_task_is_moved_only_as_it_is_in_force() -> None:
    """Withdrawn ones are not; of a set that is put in force, the new ones say themselves where they run."""
    moved = Moved(to_threads=((1, 3),))
    events = told(replaced(3, 1, (1,), moved), declared=[(3, "a")])
    assert registrations(events) == [("a", 3, "overridden", "thread"), ("b", 2, "preserved", "thread")]


# --- the log as a whole ----------------------------------------------------------------------------------------------


def refused(of: LoggedTrace) -> tuple[list[bytes], TraceError]:
    lines: list[bytes] = []
    with pytest.raises(TraceError) as error:
        lines.extend(lines_of(of))
    return lines, error.value


def test_a_log_with_a_hole_is_cut() -> None:
    noted = written(notes=(("WK", NOON, 1), ("WK", NOON, 2)))
    _, error = refused(trace(base(), [entry(noted), entry(noted, 7)], last=7))
    assert (error.details["fault"], error.details["line"]) == ("truncated", 4)
    assert error.details["reason"] == "the log was cut: entry 6 is missing, and entry 7 follows"


def test_a_log_without_its_last_entry_is_cut() -> None:
    noted = written(notes=(("WK", NOON, 1),))
    _, error = refused(trace(base(), [entry(noted)], last=6))
    assert (error.details["fault"], error.details["line"]) == ("truncated", 3)
    assert "entry 6 is missing, and it was the last one, or a host has read beyond it" in error.details["reason"]
    assert len(list(lines_of(trace(base(), [entry(noted)], last=5)))) == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (written(starts=(started(RUN + 1, 9),)), "entry 6 of the log names what is not on record: 9"),
        (Unreadable("halted"), "a 'halted', which this version of duly does not know"),
    ],
)
def test_an_entry_that_cannot_be_one_is_refused(content: Content, reason: str) -> None:
    noted = written(notes=(("WK", NOON, 1),))
    _, error = refused(trace(base(), [entry(noted), entry(content, 6)]))
    assert (error.details["fault"], error.details["line"]) == ("malformed", 3)
    assert reason in error.details["reason"]


# --- the base --------------------------------------------------------------------------------------------------------

UNUSED = base(tasks=[], hosts=[])
STRAY = BaseStray("c", 3 * RUN + 4, 7)
MARK = BaseMark("d", Minute(50))


def registers(begins: Base) -> RegisterSnapshot:
    found = registers_of(begins)
    assert found is not None
    return found


def rows(begins: Base) -> dict[str, TaskRow]:
    return {row.name: row for row in registers(begins).tasks}


def test_only_the_first_trace_of_a_store_that_holds_nothing_begins_without_registers() -> None:
    assert registers_of(UNUSED) is None
    nothing: dict[str, Any] = {"tasks": [], "hosts": []}
    for some in (
        {"segment": 2},
        {"tasks": [TASK]},
        {"hosts": [BaseHost(1, 1, None, None)]},
        {"strays": [STRAY]},
        {"marks": [MARK]},
    ):
        assert registers_of(base(**{**nothing, **some})) is not None


def test_the_hosts_that_live_when_a_trace_begins_have_registers() -> None:
    found = registers(base(hosts=[BaseHost(2, 4, 8, None), BaseHost(3, 5, None, 9)], edition=5, zone=None))
    assert [host["edition"] for host in found.scheduler["hosts"]] == [4, 5]
    assert (found.scheduler["edition"], found.scheduler["zone"]) == (5, "UTC")
    assert registers(base(zone="Asia/Tokyo")).scheduler["zone"] == "Asia/Tokyo"


@pytest.mark.parametrize(("interrupted", "restart"), [("restart", True), ("wait", False), (None, True)])
def test_a_trace_begins_with_the_option_in_force_for_interrupted_runs(interrupted: str | None, restart: bool) -> None:
    """SPEC 9.13: it belongs to the set in force; before the first set nothing can be interrupted."""
    assert registers(base(interrupted=interrupted)).scheduler["restart"] is restart


def test_a_task_that_never_ran_has_the_mark_of_its_name() -> None:
    """SPEC 5.1: what an earlier declaration of the name had served."""
    marks = [BaseMark("a", Minute(50)), BaseMark("b", Minute(51))]
    ran = TASK._replace(generation=2, name="b", last_attempt_at=Instant(NOON - 9))
    found = rows(base(tasks=[TASK, ran], marks=[*marks, MARK]))
    assert set(found) == {"a", "b", "d"}
    assert (found["a"].unstarted, found["a"].served_before, found["a"].started) == (True, begin(Minute(50)), 0)
    assert (found["b"].unstarted, found["b"].served_before, found["b"].started) == (False, None, NOON - 9)
    assert (found["a"].declared, found["a"].served_through) == (True, begin(Minute(60)))
    assert (found["d"].declared, found["d"].served_before) == (False, begin(Minute(50)))
    assert (found["a"].floor, found["a"].due_since_success, found["a"].fresh) == (0, True, True)


@pytest.mark.parametrize(("interruptions", "streak"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_a_run_that_goes_on_has_its_host_its_place_and_its_interruptions(interruptions: int, streak: int) -> None:
    task = TASK._replace(thread=True, run=2 * RUN + 5, interruptions=interruptions, last_attempt_at=NOON)
    row = rows(base(tasks=[task]))["a"]
    assert (row.run, row.run_generation, row.run_on_thread, row.epoch) == (2 * RUN + 5, 1, True, 2)
    assert (row.streak, row.thread) == (streak, True)
    on_loop = rows(base(tasks=[task._replace(thread=False)]))["a"]
    assert (on_loop.run_on_thread, on_loop.thread) == (False, False)


def test_a_task_that_waits_has_no_run_and_its_latest_end() -> None:
    task = TASK._replace(
        thread=True, interruptions=2, last_success_at=Instant(7), last_failure_at=Instant(9), pending_retry_until=NOON
    )
    row = rows(base(tasks=[task]))["a"]
    assert (row.run, row.run_generation, row.run_on_thread, row.epoch, row.streak) == (None, -1, False, -1, 0)
    assert (row.ended, row.retry_at) == (9, NOON)
    assert rows(base(tasks=[task._replace(last_success_at=Instant(11))]))["a"].ended == 11
    assert rows(base(tasks=[TASK]))["a"].ended == 0


def test_the_run_of_a_withdrawn_declaration_goes_on_under_its_name() -> None:
    """Whether the name is declared again or not."""
    found = rows(base(strays=[STRAY, BaseStray("a", 2 * RUN + 1, 6)]))
    assert (found["c"].declared, found["c"].run, found["c"].run_generation) == (False, 3 * RUN + 4, 7)
    assert (found["c"].epoch, found["c"].fresh, found["c"].served_before) == (3, True, None)
    assert (found["a"].declared, found["a"].generation, found["a"].run) == (True, 1, 2 * RUN + 1)
    assert (found["a"].run_generation, found["a"].epoch) == (6, 2)


def test_the_end_of_such_a_run_is_told_by_its_name() -> None:
    events = told(written(ends=(ended((7,), (3 * RUN + 4,)),)), strays=[STRAY])
    assert events == [["RE", NOON, 1, "c", 7, 3 * RUN + 4, True]]


def test_a_trace_that_is_over_is_sealed_as_such() -> None:
    left = entry(Left((("SE", NOON + MINUTE, 1),)))
    for clean in (True, False):
        whole = trace(base(), [left])
        sealed = LoggedTrace(
            whole.scheduler, whole.base, whole.identifiers, whole.declarations, [left], whole.last, clean=clean
        )
        assert (b'"clean"' in list(lines_of(sealed))[-1]) == clean
