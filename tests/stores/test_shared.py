"""A shared store grants, refuses and remembers; each test on the pure object and on PostgreSQL."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from duly.core.moments import Instant, Minute
from duly.core.news import Buried, Changes, Corrected, Joined, Left, Position, Replaced, Written
from duly.core.record import read_equal
from duly.core.task import Cause, Obligation
from duly.errors import ClusterZoneError, ForeignSetError, HostGoneError, StoreRewoundError
from duly.stores.port import Outcome
from duly.stores.shared import Act, Arrival, EditionVerdict, arrivals_digest, outcome_of, set_digest
from tests.cluster.judged_trace import judge_lines
from tests.postgres_server import bundled_binaries, debian_binaries, server_of
from tests.stores.shared_hosts import HOUR, LEASE, MINUTE, NOON, SharedStore, TaskSet, TestHost, generations, state
from tests.stores.shared_stores import MemoryStoreUnderTest, PostgresStoreUnderTest

OLD: TaskSet = {"backup": ("0 3 * * *", 1_000), "report": ("* * * * *", 0)}
NEW: TaskSet = {"backup": ("0 4 * * *", 1_000), "report": ("* * * * *", 0), "mail": ("* * * * *", 0)}
NEWER: TaskSet = {"report": ("* * * * *", 0), "mail": ("1 * * * *", 0)}
OTHER: TaskSet = {"cleanup": ("* * * * *", 0)}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server_of(bundled_binaries()))
    yield store
    store.connection.close()


@pytest.fixture(scope="module")
def debian() -> Iterator[PostgresStoreUnderTest]:
    store = PostgresStoreUnderTest(server_of(debian_binaries()))
    yield store
    store.connection.close()


@pytest.fixture(params=["memory", "postgres", pytest.param("debian", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> SharedStore:
    if request.param == "memory":
        return MemoryStoreUnderTest()
    on_a_server: PostgresStoreUnderTest = request.getfixturevalue(request.param)
    on_a_server.empty()
    return on_a_server


def host(store: SharedStore, letter: str, tasks: TaskSet = OLD, **changes: object) -> TestHost:
    """A host that has joined, and read the log up to now."""
    joined = TestHost(store, letter * 32)
    joined.join(tasks, **changes)
    joined.read()
    return joined


def passes(store: SharedStore, microseconds: int) -> None:
    store.now = Instant(store.now + microseconds)


def outcomes(store: SharedStore) -> list[tuple[str, int]]:
    return [(each["outcome"], each["host"]) for each in store.tables()["runs"]]


# --- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_is_gapless_and_names_what_each_host_did(store: SharedStore) -> None:
    """SPEC 9.9: each transaction adds one entry, and hosts read them in order."""
    a = host(store, "a")
    b = host(store, "b")
    a.start(1)
    a.bury(b)
    a.leave()
    entries = store.news(Position(0, None)).entries
    assert [each.seq for each in entries] == [1, 2, 3, 4, 5]
    assert [type(each.content) for each in entries] == [Replaced, Joined, Written, Buried, Left]
    assert [each.host for each in entries] == [1, 2, 1, 1, 1]
    assert len({each.nonce for each in entries}) == 5
    assert {each.at for each in entries} == {NOON}


def test_a_repeated_write_is_answered_as_the_first_time(store: SharedStore) -> None:
    """0003: applied, and reported failed; the number is known, so its entry is the answer."""
    a, b = host(store, "a"), host(store, "b")
    a.start(1)
    first = b.start(1, 2, read=False)
    before = store.tables()
    assert first.refused == (1,)
    assert b.again() == first
    assert store.tables() == before


def test_a_repeated_declaration_is_answered_as_the_first_time(store: SharedStore) -> None:
    a = TestHost(store, "a" * 32)
    first = a.join(OLD)
    before = store.tables()
    assert a.again() == first
    assert store.tables() == before


def test_what_every_host_has_read_is_pruned_and_a_late_reader_loads_anew(store: SharedStore) -> None:
    """SPEC 9.20: `behind`, not an error."""
    a = host(store, "a")
    for _ in range(5):
        a.start(1)
        a.end(1, a.runs + 1_000_000_000_000)
    a.read()
    a.beat()
    assert store.prune(100_000, HOUR, 5_000) == a.seen.seq - 1
    assert store.news(Position(3, None)).behind
    assert store.news(a.seen).entries == ()
    assert store.load().position == a.seen
    assert a.start(2).refused == ()


def test_the_answer_to_a_repetition_is_never_pruned(store: SharedStore) -> None:
    """A host that is silent for hours repeats its last number, and must not be told that its own start was refused."""
    slow, quick = host(store, "a"), host(store, "b")
    answer = slow.start(1)
    for _ in range(6):
        quick.start(2)
        quick.end(2, quick.runs + 2_000_000_000_000)
    passes(store, 2 * HOUR)
    store.prune(2, HOUR, 5_000)
    assert slow.again() == answer


def test_a_log_that_was_set_back_is_noticed_by_write_beat_and_news(store: SharedStore) -> None:
    """SPEC 9.21: a host whose last entry is not there gets an error that says so."""
    a = host(store, "a")
    for lost in (Position(a.seen.seq, "0" * 31 + "9"), Position(99, a.seen.nonce)):
        a.seen = lost
        for asked in (a.beat, lambda: a.write(Changes()), lambda: store.news(a.seen)):
            with pytest.raises(StoreRewoundError, match="was set back"):
                asked()


def test_a_key_that_another_host_has_now_grants_nothing(store: SharedStore) -> None:
    """SPEC 9.2, 9.21: after a restored backup the number of a host may be another's."""
    host(store, "a")
    stranger = TestHost(store, "c" * 32, key=1)
    for asked in (lambda: stranger.start(1, read=False), stranger.beat, stranger.leave):
        with pytest.raises(StoreRewoundError, match="host 1"):
            asked()


# --- starts and ends -------------------------------------------------------------------------------------------------


def test_a_start_is_granted_once_and_its_fence_grows(store: SharedStore) -> None:
    """SPEC 9.7, 9.9."""
    a, b = host(store, "a"), host(store, "b")
    b.read()
    granted = a.start(1)
    assert (granted.refused, state(store, "backup")["run"]) == ((), 1_000_000_000_001)
    assert b.start(1, read=False).refused == (1,)
    a.end(1, 1_000_000_000_001)
    later = b.start(1)
    assert later.refused == ()
    assert later.seq > granted.seq


def test_a_start_by_old_knowledge_is_refused_although_the_task_is_vacant(store: SharedStore) -> None:
    """SPEC 9.9: the row has changed since the decision, so nothing may be owed any more."""
    a, b = host(store, "a"), host(store, "b")
    a.start(1)
    a.end(1, 1_000_000_000_001)
    assert b.start(1, read=False).refused == (1,)
    assert b.start(1).refused == ()


def test_a_stamp_ahead_of_the_clock_is_refused(store: SharedStore) -> None:
    """SPEC 9.9, 9.11."""
    a = host(store, "a")
    assert a.start(1, at=Instant(store.now + 1)).refused == (1,)
    assert a.start(1, at=store.now).refused == ()


def test_the_engine_learns_of_refused_starts_by_their_runs(store: SharedStore) -> None:
    """SPEC 9.9: of two starts in one batch, the one that another host was faster with."""
    a, b = host(store, "a"), host(store, "b")
    a.start(1)
    changes = Changes(starts=(b.starts(2, 1),))
    answer = b.write(changes)
    assert outcome_of(changes, answer) == Outcome(frozenset({2_000_000_000_002}), fence=answer.seq)
    assert outcome_of(changes, replace(answer, refused=())) == Outcome(fence=answer.seq)


def test_a_withdrawn_declaration_is_not_started(store: SharedStore) -> None:
    """SPEC 9.9: its declaration is in force."""
    a = host(store, "a")
    b = host(store, "b", NEW)
    assert a.start(1, 2).refused == (1,)
    assert b.start(generations(store)["backup"]).refused == ()


def test_an_end_names_its_run_and_is_fenced_without_it(store: SharedStore) -> None:
    """SPEC 9.10: never an error; an operator may have freed the task by hand."""
    a = host(store, "a")
    a.start(1, 2)
    assert a.end(1, 1_000_000_000_007).fenced == (1_000_000_000_007,)
    assert state(store, "backup")["run"] == 1_000_000_000_001
    ends = a.ended((1, 2), (1_000_000_000_009, 1_000_000_000_002))
    assert a.write(Changes(ends=(ends,))).fenced == (1_000_000_000_009,)
    assert outcomes(store) == [("success", 1)]


def test_a_failure_keeps_what_its_retry_repeats(store: SharedStore) -> None:
    """SPEC 10.1: attempts of one obligation share its first start."""
    a = host(store, "a")
    a.start(1)
    first = Obligation(NOON, NOON, 1)
    a.end(1, 1_000_000_000_001, "it broke", obligation=first)
    failed = state(store, "backup")
    assert (failed["pending_retry_until"], failed["failures"]) == (NOON + MINUTE, 1)
    assert (failed["first_started_at"], failed["first_scheduled"], failed["attempt"]) == (NOON, NOON, 1)
    passes(store, 2 * MINUTE)
    a.start(1, cause=Cause.RETRY, obligation=first.repeated())
    a.end(1, 1_000_000_000_002, cause=Cause.RETRY, obligation=first.repeated())
    assert [(e["cause"], e["attempt"], e["error"]) for e in store.tables()["runs"]] == [
        ("cron", None, "it broke"),
        ("retry", 2, None),
    ]


def letters(store: SharedStore) -> list[str]:
    """The events of the trace: letters, host, and the task if there is one."""
    events = [json.loads(line) for line in list(store.trace_lines())[1:-1]]
    return [f"{each[0]} {each[3]}" + (f" {each[4]}" if each[0] in ("RG", "RS", "RE") else "") for each in events]


def test_only_what_was_granted_and_recorded_is_in_the_trace(store: SharedStore) -> None:
    """SPEC 9.9: refused starts were never made: no trace; 7.6: the trace is the durable log."""
    a, b = host(store, "a", traced=True), host(store, "b", traced=True)
    a.start(1)
    b.start(1, 2, read=False)
    b.end(1, 2_000_000_000_077)
    joins = ["BT 1", "IS 1", "RG 1 backup", "RG 1 report", "IE 1", "BT 2", "IS 2", "IE 2"]
    assert letters(store) == [*joins, "RS 1 backup", "RS 2 report"]


def test_a_trace_begins_with_what_is_there_and_ends_with_an_edition_that_keeps_none(store: SharedStore) -> None:
    """SPEC 9.3: `trace` is the cluster's, from the host that put the edition in force."""
    a = host(store, "a")
    a.start(2)
    assert list(store.trace_lines()) == []
    joined = host(store, "b", traced=True)
    assert list(store.trace_lines()) == []  # the set is in force already, and stays as it is
    joined.declare({"backup": ("0 3 * * *", 1_000), "more": ("* * * * *", 0)}, Act.REDECLARE, traced=True)
    lines = list(store.trace_lines())
    registers = json.loads(lines[0])["registers"]
    assert [each["key"] for each in registers["scheduler"]["hosts"]] == [1, 2]
    assert [(row[0], row[8]) for row in registers["tasks"]] == [("backup", None), ("report", 1_000_000_000_001)]
    assert letters(store) == ["IS 2", "RG 2 report", "RG 2 more", "IE 2"]
    assert not judge_lines(lines).violated
    joined.declare({"backup": ("0 3 * * *", 1_000)}, Act.REDECLARE)
    assert list(store.trace_lines()) == lines  # and what was kept is still there
    assert store.load().traced is False


def test_the_log_is_kept_while_it_is_the_trace(store: SharedStore) -> None:
    """A host that reads late loads anew, as without a trace."""
    a = host(store, "a", traced=True)
    for run in range(1, 5):
        a.start(2)
        a.end(2, 1_000_000_000_000 + run)
    a.beat()
    before = list(store.trace_lines())
    assert store.prune(0, 0, 5_000) == 6
    assert store.news(Position(3, None)).behind
    assert list(store.trace_lines()) == before
    a.declare({"backup": ("0 3 * * *", 1_000)}, Act.REDECLARE)
    a.declare(OLD, Act.REDECLARE, traced=True)  # another trace begins: the entries of the one before may go
    a.read()
    a.beat()
    store.prune(0, 0, 4)
    assert len(store.tables()["log"]) == 7
    assert [json.loads(line)[0] for line in list(store.trace_lines())[1:-1]] == ["IS", "RG", "IE"]


def test_a_long_trace_forgets_its_beginning(store: SharedStore) -> None:
    """Two parts are kept, and the registers of the older one stand for what was before."""
    a = host(store, "a", traced=True)
    for run in range(1, 20):
        a.start(2)
        store.rotate_trace(8)
        a.end(2, 1_000_000_000_000 + run)
        passes(store, MINUTE)
    assert len(store.tables()["bases"]) == 2
    lines = list(store.trace_lines())
    assert 8 <= len(lines) - 2 <= 20
    assert json.loads(lines[0])["segment"] > 2
    report = judge_lines(lines)
    assert (report.events, report.violated) == (len(lines) - 2, False)


def test_a_trace_is_followed_from_its_newest_base_on(store: SharedStore) -> None:
    """Each part has what its entries name for the first time: hosts, and declarations."""
    assert store.trace_start() is None
    a = host(store, "a", {})
    assert store.trace_start() is None
    a.declare(OLD, Act.REDECLARE, traced=True)
    start = store.trace_start()
    assert start is not None
    assert ([each.key for each in start.base.hosts], start.base.tasks, start.generation) == ([1], [], 0)
    part = store.trace_after(start.position, start.generation, 1)
    assert part is not None
    assert ([type(entry.content) for entry in part.entries], part.identifiers) == ([Replaced], {1: "a" * 32})
    assert {number: each.name for number, each in part.declarations.items()} == {1: "backup", 2: "report"}
    host(store, "b", NEW, traced=True)
    part = store.trace_after(part.entries[-1].position, 2, 200)
    assert part is not None
    assert part.identifiers == {2: "b" * 32}
    assert {number: each.name for number, each in part.declarations.items()} == {3: "backup", 4: "mail"}
    end = part.entries[-1].position
    assert store.trace_after(end, 4, 200) == replace(part, entries=(), identifiers={}, declarations={})


def test_a_reader_whose_place_in_the_trace_is_gone_begins_anew(store: SharedStore) -> None:
    """The trace was cut below it, the store was set back, or another trace has begun since."""
    a = host(store, "a", traced=True)
    start = store.trace_start()
    assert start is not None
    entry = a.start(2)
    seen = Position(entry.seq, entry.nonce)
    assert store.trace_after(seen, 2, 200) is not None
    assert store.trace_after(Position(entry.seq, "f" * 32), 2, 200) is None
    assert store.trace_after(Position(99, "f" * 32), 2, 200) is None
    store.rotate_trace(1)
    part = store.trace_after(seen, 2, 200)
    assert part is not None
    assert part.segment == start.base.segment + 1  # two parts are kept
    a.end(2, 1_000_000_000_001)
    for run in range(2, 6):  # a base follows when there are four events for each of its tasks
        a.start(2)
        a.end(2, 1_000_000_000_000 + run)
    store.rotate_trace(1)
    assert store.trace_after(start.position, 2, 200) is None
    newest = store.trace_start()
    assert newest is not None
    last = store.tables()["log"][-1]["seq"]
    assert (newest.base.segment, newest.position) == (start.base.segment + 2, Position(last, None))


def test_a_trace_that_is_over_is_read_to_its_end_and_no_further(store: SharedStore) -> None:
    """Entries without a trace have no notes: to judge them would be wrong."""
    a = host(store, "a", traced=True)
    seen = a.seen
    a.start(2)
    a.declare({"backup": ("0 3 * * *", 1_000)}, Act.REDECLARE)
    assert store.trace_start() is None
    part = store.trace_after(seen, 2, 200)
    assert part is not None
    assert [type(entry.content) for entry in part.entries] == [Written]
    last = part.entries[-1].position
    a.declare(OLD, Act.REDECLARE, traced=True)
    assert store.trace_after(last, 2, 200) is None


def test_history_keeps_as_many_runs_as_the_edition_in_force_says(store: SharedStore) -> None:
    """SPEC 9.3: `history` is the cluster's."""
    a = host(store, "a", history=2)
    for run in range(1, 5):
        a.start(1)
        a.end(1, 1_000_000_000_000 + run)
    assert [each["run"] % 100 for each in store.tables()["runs"]] == [3, 4]


# --- hosts that come and go ------------------------------------------------------------------------------------------


def test_a_beat_tells_the_clock_the_end_of_the_log_and_who_lives(store: SharedStore) -> None:
    """SPEC 9.4: each with its own lease."""
    a = host(store, "a")
    b = host(store, "b", lease=2 * LEASE)
    passes(store, 5_000_000)
    answer = b.beat()
    assert (answer.clock, answer.seq) == (store.now, 2)
    assert [tuple(each) for each in answer.living] == [(1, 0, 1, LEASE), (2, 1, 1, 2 * LEASE)]
    assert b.beat().living[1].beat == 2
    assert a.row(b)["renewed_at"] == store.now


def test_a_beat_puts_on_record_what_keeps_its_host_from_writing(store: SharedStore) -> None:
    """SPEC 9.20: until a beat says nothing of it."""
    a, b = host(store, "a"), host(store, "b")
    assert (a.row()["fault"], b.row()["fault"]) == (None, None)
    a.beat(fault="refuses 'duly' a right")
    assert (a.row()["fault"], b.row()["fault"]) == ("refuses 'duly' a right", None)
    a.beat()
    assert a.row()["fault"] is None


def test_a_beat_puts_on_record_for_how_long_its_host_held_the_steps_of_callbacks(store: SharedStore) -> None:
    """SPEC 9.6: each time once, although the answer may be lost and the beat repeated."""
    a, b = host(store, "a"), host(store, "b")
    passes(store, MINUTE)
    a.beat(held=20_000_000)
    b.beat(held=5_000_000)
    passes(store, 1_000_000)
    a.beat(held=21_000_000)
    a.beat()
    passes(store, HOUR)
    a.beat(held=MINUTE)
    after = NOON + MINUTE + 1_000_000
    assert store.tables()["holds"] == [
        {"host": 1, "since": after - 21_000_000, "until": after},
        {"host": 1, "since": after + HOUR - MINUTE, "until": after + HOUR},
        {"host": 2, "since": NOON + MINUTE - 5_000_000, "until": NOON + MINUTE},
    ]


def test_a_burial_is_refused_after_another_beat(store: SharedStore) -> None:
    """SPEC 9.5: the burial names the beat that was watched."""
    a, b = host(store, "a"), host(store, "b")
    watched = a.beat().living[1].beat
    b.beat()
    assert a.bury(b, watched) is None
    assert a.bury(b, watched + 1) == 3
    assert a.bury(b, watched + 1) is None


def test_a_buried_host_changes_nothing_any_more(store: SharedStore) -> None:
    """SPEC 9.5, 9.10: after a burial no end is recorded, whatever the callback did."""
    a, b = host(store, "a"), host(store, "b")
    b.start(1)
    a.bury(b)
    before = store.tables()
    asked = (
        lambda: b.end(1, 2_000_000_000_001),
        b.beat,
        b.leave,
        lambda: b.bury(a),
        lambda: b.declare(NEW, Act.REDECLARE),
    )
    for each in asked:
        with pytest.raises(HostGoneError, match="was buried"):
            each()
    after = store.tables()
    assert {name: rows for name, rows in after.items() if name != "arriving"} == {
        name: rows for name, rows in before.items() if name != "arriving"
    }


def test_the_run_of_a_buried_host_is_interrupted_and_may_start_again(store: SharedStore) -> None:
    """SPEC 3.7, 9.5: its record stays as it was, and history has it."""
    a, b = host(store, "a"), host(store, "b")
    b.start(1)
    assert a.start(1).refused == (1,)
    a.bury(b)
    assert state(store, "backup")["run"] == 2_000_000_000_001
    assert outcomes(store) == [("interrupted", 2)]
    assert a.start(1, cause=Cause.INTERRUPTED).refused == ()


def test_a_correction_by_another_host_does_not_take_a_run_from_its_host(store: SharedStore) -> None:
    """SPEC 9.5: who runs a task is in the number of the run; `written_by` is who wrote last."""
    a, b = host(store, "a"), host(store, "b")
    a.start(1, served_through=Minute((store.now + 5 * HOUR) // MINUTE * 60))
    b.read()
    assert b.write(Changes(correct=True)).corrected == Corrected(NOON, Minute(NOON // 1_000_000))
    assert state(store, "backup")["written_by"] == 2
    c = host(store, "c")
    assert c.bury(b) is not None
    assert c.start(1).refused == (1,), "host a is alive, and runs it"
    c.bury(a)
    assert c.start(1).refused == ()


def test_a_host_buries_itself_whatever_its_beat(store: SharedStore) -> None:
    """SPEC 9.19: torn down without stop."""
    a, b = host(store, "a"), host(store, "b")
    a.start(1)
    a.beat()
    assert store.bury(a.me, 1, None) is not None
    assert b.start(1).refused == ()


def test_a_host_leaves_once_and_may_ask_again(store: SharedStore) -> None:
    """SPEC 9.19."""
    a, b = host(store, "a"), host(store, "b")
    left = a.leave()
    assert a.leave() == left
    with pytest.raises(HostGoneError, match="has left"):
        a.beat()
    assert [each.key for each in b.beat().living] == [2]


# --- the clock -------------------------------------------------------------------------------------------------------


def test_a_correction_is_made_once_by_the_clock_of_the_store(store: SharedStore) -> None:
    """SPEC 2.5, 9.11: `served_through` more than three hours ahead is lowered, and the second host changes nothing."""
    a, b = host(store, "a"), host(store, "b")
    a.start(1)
    a.end(1, 1_000_000_000_001, "it broke")
    passes(store, -4 * HOUR)
    a.read()
    b.read()
    minute = Minute(store.now // 1_000_000)
    assert a.write(Changes(correct=True)).corrected == Corrected(store.now, minute)
    assert state(store, "backup")["served_through"] == minute
    assert state(store, "backup")["pending_retry_until"] == store.now + 1_000_000
    assert b.write(Changes(correct=True)).corrected is None
    assert b.start(1, read=False).refused == (1,), "its row has changed"


def test_joining_corrects_as_well(store: SharedStore) -> None:
    """SPEC 2.5: also at `initialize`."""
    host(store, "a")
    passes(store, -4 * HOUR)
    host(store, "b", correct=True)
    assert {each["known_since"] for each in store.tables()["tasks"]} == {store.now}


# --- declarations ----------------------------------------------------------------------------------------------------


def test_the_first_host_puts_its_set_in_force_and_the_next_one_joins(store: SharedStore) -> None:
    """SPEC 9.14: the set in force: it joins, nothing changes."""
    a, b = TestHost(store, "a" * 32), TestHost(store, "b" * 32)
    applied = a.join(OLD)
    assert (applied.verdict, applied.key, applied.edition, applied.first_generation) == (
        EditionVerdict.APPLIED,
        1,
        1,
        1,
    )
    joined = b.join(OLD)
    assert (joined.verdict, joined.key, joined.edition) == (EditionVerdict.JOINED, 2, 1)
    assert generations(store) == {"backup": 1, "report": 2}


def test_a_new_set_is_put_in_force_and_an_old_one_does_not_come_back(store: SharedStore) -> None:
    """SPEC 9.14: no ping-pong; a restart of an old pod changes nothing while a new one lives."""
    host(store, "a")
    b = TestHost(store, "b" * 32)
    assert b.join(NEW).verdict is EditionVerdict.APPLIED
    assert generations(store) == {"report": 2, "backup": 3, "mail": 4}
    before = generations(store)
    restarted = TestHost(store, "c" * 32)
    assert restarted.join(OLD).verdict is EditionVerdict.OUTDATED
    assert generations(store) == before
    assert store.load().in_force.edition == 2


def test_an_old_set_is_put_in_force_again_when_nobody_lives(store: SharedStore) -> None:
    """SPEC 9.14."""
    a, b = host(store, "a"), host(store, "b", NEW)
    a.leave()
    b.leave()
    again = TestHost(store, "c" * 32)
    answer = again.join(OLD)
    assert (answer.verdict, answer.edition) == (EditionVerdict.APPLIED, 1)
    assert "mail" not in generations(store)


def test_declaring_another_set_again_always_makes_a_new_edition(store: SharedStore) -> None:
    """SPEC 9.15: an explicit act, even for a set that was seen before."""
    a, b = host(store, "a"), host(store, "b", NEW)
    answer = a.declare(OLD, Act.REDECLARE)
    assert (answer.verdict, answer.edition) == (EditionVerdict.APPLIED, 3)
    same = a.declare(OLD, Act.REDECLARE)
    assert (same.verdict, same.edition) == (EditionVerdict.JOINED, 3)
    assert b.row()["edition"] == 2


def test_the_host_that_takes_the_place_of_a_buried_one_declares_as_that_one_would_have(store: SharedStore) -> None:
    """SPEC 9.15: it has no row yet, and its set is put in force all the same, foreign or seen before."""
    host(store, "a")
    host(store, "b", NEW)
    for place, (letter, tasks) in enumerate((("c", OLD), ("d", {"alone": ("* * * * *", 0)}))):
        answer = TestHost(store, letter * 32).join(tasks, act=Act.REDECLARE)
        assert (answer.verdict, answer.key, answer.edition) == (EditionVerdict.APPLIED, 3 + place, 3 + place)
        assert generations(store).keys() == tasks.keys()


def test_what_was_compared_with_another_set_must_be_compared_again(store: SharedStore) -> None:
    """SPEC 9.14: the set in force changed between loading and declaring; nothing has changed then."""
    host(store, "a")
    late = TestHost(store, "b" * 32)
    request, arrivals = late.request(NEW)
    store.arrive(late.identifier, arrivals)
    host(store, "c", NEWER)
    before = store.tables()
    assert late.send(request).verdict is EditionVerdict.AGAIN
    assert store.tables() == before


def test_arrivals_that_were_cut_off_are_noticed(store: SharedStore) -> None:
    """Number and digest are compared with what arrived: a leftover of an earlier attempt must not be put in force."""
    a = TestHost(store, "a" * 32)
    request, arrivals = a.request(OLD)
    store.arrive(a.identifier, arrivals[:1])
    assert a.send(request).verdict is EditionVerdict.AGAIN
    store.arrive(a.identifier, [*arrivals[:1], Arrival("report", "1 * * * *", arrivals[1].delay)])
    assert a.send(request).verdict is EditionVerdict.AGAIN
    store.arrive(a.identifier, arrivals)
    assert a.send(request).verdict is EditionVerdict.APPLIED
    assert store.tables()["arriving"] == []


def test_a_set_that_shares_no_name_is_refused_while_the_other_lives(store: SharedStore) -> None:
    """SPEC 9.14: two applications in one schema; 9.6: a rejoin is never refused for its set."""
    a = host(store, "a")
    with pytest.raises(ForeignSetError, match="share no name"):
        TestHost(store, "b" * 32).join(OTHER)
    assert [each["key"] for each in store.tables()["hosts"]] == [1]
    assert TestHost(store, "c" * 32).declare(OTHER, Act.REJOIN).verdict is EditionVerdict.OUTDATED
    a.leave()
    assert TestHost(store, "d" * 32).join({**OTHER, "more": ("* * * * *", 0)}).verdict is EditionVerdict.APPLIED


def test_a_host_in_another_zone_is_refused_while_others_live(store: SharedStore) -> None:
    """SPEC 9.12: the first host sets the zone; one that is alone changes it."""
    a = host(store, "a", zone="Europe/Berlin")
    b = TestHost(store, "b" * 32)
    with pytest.raises(ClusterZoneError, match=r"zone UTC cannot join .* zone Europe/Berlin"):
        b.join(OLD, zone="UTC")
    a.leave()
    b.join(OLD, zone="UTC")
    assert store.load().zone == "UTC"


def test_the_last_host_of_a_newer_set_leaves_and_the_older_one_is_reinstated(store: SharedStore) -> None:
    """SPEC 9.17: what fell due during the wait is owed: `knownSince` is the moment of the leaving."""
    a, b = host(store, "a"), host(store, "b", NEW)
    assert a.declare(OLD, Act.REINSTATE).verdict is EditionVerdict.OUTDATED
    passes(store, HOUR)
    b.leave()
    left_at = store.now
    assert store.load().alone_since == left_at
    passes(store, 2 * LEASE)
    answer = a.declare(OLD, Act.REINSTATE)
    assert (answer.verdict, answer.edition, answer.known_since) == (EditionVerdict.APPLIED, 1, left_at)
    assert state(store, "backup")["served_through"] == left_at // 1_000_000 - 60
    assert store.load().alone_since is None


def test_a_set_that_comes_back_has_its_new_number_for_every_host_that_declares_it(store: SharedStore) -> None:
    """SPEC 9.15: nobody is outdated who declares the set in force; the log names the other hosts."""
    a, gone, b, other = host(store, "a"), host(store, "d"), host(store, "b", NEW), host(store, "c", NEW)
    gone.leave()
    answer = b.declare(OLD, Act.REDECLARE)
    assert (answer.verdict, answer.edition) == (EditionVerdict.APPLIED, 3)
    assert [each.row()["edition"] for each in (a, gone, b, other)] == [3, 1, 3, 2]
    (entry,) = [each for each in a.read() if isinstance(each.content, Replaced) and each.content.edition == 3]
    assert isinstance(entry.content, Replaced)
    assert entry.content.renumbered == (a.key,)
    b.leave()
    assert store.load().alone_since is None
    assert a.declare(OLD, Act.REINSTATE).verdict is EditionVerdict.JOINED


def test_a_host_is_on_record_with_the_number_of_its_declaration(store: SharedStore) -> None:
    """So that a host whose request was not answered knows whether its set is the one it declares."""
    a, b = host(store, "a"), host(store, "b", NEW)
    b.write(Changes())
    b.declare(OLD, Act.REDECLARE)
    assert [each.declaration for each in store.load().hosts] == [a.number, b.number] == [1, 3]


def test_the_option_for_interrupted_runs_is_that_of_the_set_in_force(store: SharedStore) -> None:
    """SPEC 9.13: whoever puts a set in force brings it; an outdated host does not."""
    assert store.load().interrupted is None
    host(store, "a")
    assert store.load().interrupted == "restart"
    b = TestHost(store, "b" * 32, interrupted="wait")
    assert b.join(OLD).verdict is EditionVerdict.APPLIED
    assert TestHost(store, "c" * 32).join(OLD).verdict is EditionVerdict.OUTDATED
    assert store.load().interrupted == "wait"


@pytest.mark.parametrize(("option", "granted"), [("restart", True), ("wait", False)])
def test_a_decision_about_an_interrupted_run_by_another_option_is_refused(
    store: SharedStore, option: str, *, granted: bool
) -> None:
    """SPEC 9.9: it was made by what is not in force any more."""
    a, dead = host(store, "a"), host(store, "b")
    goes_on, cut_short = generations(store)["backup"], generations(store)["report"]
    dead.start(cut_short)
    a.start(goes_on)
    a.bury(dead)
    a.read()
    TestHost(store, "c" * 32, interrupted=option).join({**OLD, "more": ("* * * * *", 0)})
    refused = a.start(cut_short, read=False, cause=Cause.INTERRUPTED).refused
    assert refused == (() if granted else (cut_short,))
    assert a.end(goes_on, 1_000_000_000_001).fenced == ()


def test_after_a_burial_the_reinstated_set_is_known_since_the_last_beat(store: SharedStore) -> None:
    """SPEC 9.17: its leaving, or its last beat."""
    a, b = host(store, "a"), host(store, "b", NEW)
    passes(store, HOUR)
    b.beat()
    beaten_at = store.now
    passes(store, 2 * LEASE)
    a.bury(b)
    passes(store, 2 * LEASE)
    assert a.declare(OLD, Act.REINSTATE).known_since == beaten_at


def test_a_minute_that_the_newer_set_has_served_is_not_served_again(store: SharedStore) -> None:
    """SPEC 5.1, 9.17: marks of the same name keep a reinstated declaration from serving it twice."""
    a, b = host(store, "a"), host(store, "b", NEW)
    passes(store, HOUR)
    b.start(generations(store)["backup"])
    served = state(store, "backup")["served_through"]
    b.end(generations(store)["backup"], 2_000_000_000_001)
    passes(store, -MINUTE)
    b.leave()
    a.declare(OLD, Act.REINSTATE)
    assert state(store, "backup")["served_through"] == served


def test_only_the_highest_edition_among_the_living_is_reinstated(store: SharedStore) -> None:
    """SPEC 9.17."""
    a, b, c = host(store, "a"), host(store, "b", NEW), host(store, "c", NEWER)
    c.leave()
    assert a.declare(OLD, Act.REINSTATE).verdict is EditionVerdict.OUTDATED
    assert b.declare(NEW, Act.REINSTATE).verdict is EditionVerdict.APPLIED


# --- replaced runs ---------------------------------------------------------------------------------------------------


def test_an_overriding_declaration_waits_for_the_run_of_the_old_one(store: SharedStore) -> None:
    """SPEC 5.3, 9.16: cluster-wide and durably; the end of the old run touches nothing but history."""
    a = host(store, "a")
    a.start(1)
    b = host(store, "b", NEW)
    new = generations(store)["backup"]
    assert store.load().blocked == {new: 1_000_000_000_001}
    assert b.start(new).refused == (new,)
    a.end(1, 1_000_000_000_001, "it broke")
    assert b.start(new, read=False).refused == (new,), "its row has changed"
    assert b.start(new).refused == ()
    assert state(store, "backup")["last_failure_at"] is None
    assert outcomes(store) == [("failure", 1)]


def test_a_name_that_was_withdrawn_in_between_still_waits_for_its_run(store: SharedStore) -> None:
    """SPEC 9.16: a declaration is blocked by the run under its name, whichever earlier declaration it belongs to."""
    a = host(store, "a")
    a.start(1)
    b = host(store, "b", NEWER)
    assert "backup" not in generations(store)
    b.declare(NEW, Act.REDECLARE)
    first = generations(store)["backup"]
    assert b.start(first).refused == (first,)
    b.declare({**NEW, "backup": ("0 5 * * *", 0)}, Act.REDECLARE)
    second = generations(store)["backup"]
    assert b.start(second).refused == (second,)
    a.end(1, 1_000_000_000_001)
    assert b.start(second).refused == ()


@pytest.mark.parametrize("how", ["buried", "left"])
def test_a_host_that_is_gone_blocks_nothing(store: SharedStore, how: str) -> None:
    """SPEC 5.3, 9.5: a run of an earlier declaration ends with its host."""
    a = host(store, "a")
    a.start(1)
    b = host(store, "b", NEW)
    new = generations(store)["backup"]
    if how == "buried":
        b.bury(a)
    else:
        a.leave()
    assert store.load().blocked == {}
    assert b.start(new).refused == ()


def test_the_run_of_a_gone_host_is_dropped_with_its_declaration(store: SharedStore) -> None:
    """SPEC 5.1: what was owed under the old one, an interrupted run included, is dropped."""
    a, b = host(store, "a"), host(store, "b")
    a.start(1)
    b.bury(a)
    b.declare(NEW, Act.REDECLARE)
    assert b.start(generations(store)["backup"]).refused == ()


# --- loading ---------------------------------------------------------------------------------------------------------


def test_what_is_loaded_can_be_read_as_tasks(store: SharedStore) -> None:
    """SPEC 5.5: rows of tasks in one situation come together."""
    many = {f"task {number}": ("* * * * *", 0) for number in range(20)}
    a = host(store, "a", many)
    a.start(1)
    loaded = store.load()
    tasks = {name: each for each in read_equal(loaded.records) for name in each.names}
    assert len(tasks) == 20
    assert tasks["task 0"].run == 1_000_000_000_001
    assert tasks["task 7"].written_by == 1
    assert loaded.digest == set_digest(((n, c, d) for n, (c, d) in many.items()), interrupted="restart")  # type: ignore[misc]
    assert [(each.key, each.identifier, each.gone) for each in loaded.hosts] == [(1, "a" * 32, None)]


def test_the_digest_of_a_set_does_not_depend_on_its_order() -> None:
    """SPEC 9.13."""
    one = [("a", "* * * * *", 0), ("b", "0 3 * * *", 1_000)]
    assert set_digest(one, interrupted="restart") == set_digest(reversed(one), interrupted="restart")  # type: ignore[arg-type]
    assert set_digest(one, interrupted="restart") != set_digest(one, interrupted="wait")  # type: ignore[arg-type]
    assert arrivals_digest([]) == ""


@pytest.mark.parametrize("emptied", [("hosts",), ("hosts", "log")], ids=" and ".join)
def test_a_key_is_not_used_again_although_tables_were_emptied(store: SharedStore, emptied: tuple[str, ...]) -> None:
    """SPEC 9.2, 9.21: a run bears the key of its host, and must not be taken for one of a new host."""
    host(store, "a").start(1)
    host(store, "b").start(2)
    for table in emptied:
        if isinstance(store, PostgresStoreUnderTest):
            store.connection.read(f"delete from {table}", within_schema=True, limit_seconds=15)
        else:
            getattr(store, table).clear()
    new = TestHost(store, "c" * 32)
    assert new.declare(OLD, Act.REJOIN).key == 3
    assert new.start(1, 2).refused == ()  # the hosts that ran them are gone
