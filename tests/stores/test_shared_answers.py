"""Answers of a shared store as the engine takes them, and digests that hosts and the database compute alike."""

import hashlib

from duly.core.moments import Delay, Minute
from duly.core.news import BEGINNING, NOT_MOVED, Changes, Position, Started, Statement
from duly.core.task import Cause, Obligation
from duly.stores.port import DEFAULT_HISTORY, Outcome
from duly.stores.shared import (
    Act,
    Arrival,
    EditionRequest,
    InForce,
    WriteAnswer,
    arrivals_digest,
    outcome_of,
    set_digest,
)
from tests.stores.shared_hosts import NOON

EVERY_MINUTE = "* * * * *"


def started(first_run: int, *generations: int) -> Started:
    obligation = Obligation(NOON, NOON, 1)
    return Started(generations, first_run, Cause.CRON, NOON, NOON, Minute(0), None, 0, obligation)


def test_what_was_refused_is_named_by_its_run() -> None:
    """The store names generations; each block of starts has consecutive runs from its first one on."""
    changes = Changes(starts=(started(100, 7, 8, 9), started(200, 4, 5)))
    answer = WriteAnswer(12, refused=(8, 4), fenced=(55,), corrected=None, nonce="a")
    assert outcome_of(changes, answer) == Outcome(frozenset({101, 200}), frozenset({55}), 12)
    granted = WriteAnswer(12, refused=(), fenced=(), corrected=None, nonce="a")
    assert outcome_of(changes, granted) == Outcome(frozenset(), frozenset(), 12)
    assert answer.position == Position(12, "a")


def test_two_stores_that_answer_alike_may_have_drawn_other_nonces() -> None:
    one, other = (WriteAnswer(12, (), (), None, nonce) for nonce in "ab")
    assert one == other
    assert one.position != other.position


def test_a_set_has_one_digest_whatever_its_order() -> None:
    """SPEC 9.13: names, cron texts, delays and `interrupted`."""
    tasks = [("a", EVERY_MINUTE, Delay(0)), ("b", "0 3 * * *", Delay(1_000))]
    digest = set_digest(tasks, interrupted="restart")
    assert digest == set_digest(tasks[::-1], interrupted="restart")
    others = [
        set_digest(tasks, interrupted="skip"),
        set_digest(tasks[:1], interrupted="restart"),
        set_digest([tasks[0], ("b", "0 3 * * *", Delay(1_001))], interrupted="restart"),
        set_digest([tasks[0], ("b", "0 4 * * *", Delay(1_000))], interrupted="restart"),
        set_digest([tasks[0], ("c", "0 3 * * *", Delay(1_000))], interrupted="restart"),
    ]
    assert len({digest, *others}) == 6


def test_a_name_that_looks_like_two_tasks_is_not_taken_for_them() -> None:
    two = [("a", EVERY_MINUTE, Delay(0)), ("b", EVERY_MINUTE, Delay(0))]
    one = [(f"a\n0 9 {EVERY_MINUTE} b", EVERY_MINUTE, Delay(0))]
    assert set_digest(one, interrupted="restart") != set_digest(two, interrupted="restart")


def test_the_digest_of_arrivals_is_that_of_their_digests_in_order() -> None:
    """`replace_1` in schema.sql computes it in the same way: places count from 1, and none have an empty text."""
    arrivals = [Arrival("a", EVERY_MINUTE, Delay(0)), Arrival("b", "0 3 * * *", Delay(1_000))]
    each = [f"1 0 9 {EVERY_MINUTE} a", "2 1000 9 0 3 * * * b"]
    parts = "".join(hashlib.sha256(text.encode()).hexdigest() for text in each)
    assert arrivals_digest(arrivals) == hashlib.sha256(parts.encode()).hexdigest()
    assert arrivals_digest([]) == ""


def test_a_host_that_says_no_more_keeps_no_trace_and_corrects_nothing() -> None:
    said = Statement(1, 0, "", "restart", None, None, 0)
    request = EditionRequest(
        "a" * 32, None, 1, BEGINNING, Act.JOIN, "", InForce(0, 0), False, (), 0, "", "UTC", None, 30_000_000, said
    )
    assert (request.traced, request.correct, request.label, request.moved) == (False, False, None, NOT_MOVED)
    assert request.history == DEFAULT_HISTORY == 100_000
