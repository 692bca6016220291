"""The classification of an answer to a vector: agreement, one of the kinds of deviation, or not applicable."""

from typing import Any

import pytest

from conformance.comparison import compare, premise_holds, question
from conformance.deviations import DOCUMENTED, GRAVEST_FIRST, KINDS, REMARKS, Class, class_of
from conformance.vector_files import Group, Vector, load
from tests.counts import share

SKIPPED: Vector = {
    "id": "skipped", "rule": "skipped", "expression": "30 2 * * *", "zone": "Europe/Berlin",
    "from": "2025-03-30T00:59:00Z", "change": ["2025-03-30T01:59:59+01:00", "2025-03-30T03:00:00+02:00"],
    "next": ["2025-03-31T02:30:00+02:00", "2025-04-01T02:30:00+02:00"],
}  # fmt: skip
REPEATED: Vector = {
    "id": "repeated", "rule": "repeated", "expression": "30 2 * * *", "zone": "Europe/Berlin",
    "from": "2025-10-25T23:59:00Z", "change": ["2025-10-26T02:59:59+02:00", "2025-10-26T02:00:00+01:00"],
    "next": ["2025-10-26T02:30:00+02:00", "2025-10-27T02:30:00+01:00"],
}  # fmt: skip
HOURLY: Vector = {
    **REPEATED, "expression": "30 * * * *",
    "next": ["2025-10-26T02:30:00+02:00", "2025-10-26T03:30:00+01:00", "2025-10-26T04:30:00+01:00"],
}  # fmt: skip


def kind(vector: Vector, *found: str, group: Group = Group.TRANSITIONS) -> str | None:
    outcome = compare(group, vector, {"next": list(found)})
    assert outcome.applies
    return outcome.kind


@pytest.mark.parametrize("vector", [SKIPPED, REPEATED, HOURLY], ids=lambda vector: vector["expression"])
def test_the_expected_answer_agrees(vector: Vector) -> None:
    assert kind(vector, *vector["next"]) is None
    assert premise_holds(vector)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (("2025-03-30T02:30:00+01:00", "2025-03-31T02:30:00+02:00"), "nonexistent-time"),
        (("2025-03-30T03:00:00+02:00", "2025-03-31T02:30:00+02:00"), "moved"),
        (("2025-03-30T03:30:00+02:00", "2025-03-31T02:30:00+02:00"), "moved"),
        (("2025-03-30T12:00:00+02:00", "2025-03-31T02:30:00+02:00"), "unnamed"),
        (("2025-04-01T02:30:00+02:00", "2025-04-02T02:30:00+02:00"), "lost"),
        (("2025-03-31T02:30:00+02:00", "2025-03-31T02:30:00+02:00"), "not-increasing"),
        (("2025-03-29T02:30:00+01:00", "2025-03-31T02:30:00+02:00"), "not-increasing"),
        (("2025-03-31T02:30:00+02:00",), "no-answer"),
    ],
)
def test_an_answer_at_a_skipped_time_has_a_kind(found: tuple[str, ...], expected: str) -> None:
    """SPEC 2.2."""
    assert kind(SKIPPED, *found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (("2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00"), "both-copies"),
        (("2025-10-26T02:30:00+01:00", "2025-10-27T02:30:00+01:00"), "second-copy"),
        (("2025-10-27T02:30:00+01:00", "2025-10-28T02:30:00+01:00"), "lost"),
    ],
)
def test_an_answer_at_a_repeated_time_has_a_kind(found: tuple[str, ...], expected: str) -> None:
    """SPEC 2.3."""
    assert kind(REPEATED, *found) == expected


def test_an_hourly_expression_that_goes_on_through_the_repeated_hour_is_another_kind() -> None:
    """crontab(5) distinguishes times of day from every hour and every minute."""
    both = ("2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00", "2025-10-26T03:30:00+01:00")
    assert kind(HOURLY, *both) == "every-copy"


def test_an_offset_is_a_claim_about_the_local_time_and_z_is_none() -> None:
    assert kind(SKIPPED, "2025-03-31T00:30:00+00:00", "2025-04-01T00:30:00+00:00") == "nonexistent-time"
    assert kind(SKIPPED, "2025-03-31T00:30:00Z", "2025-04-01T00:30:00Z") is None


@pytest.mark.parametrize("text", ["tomorrow", "2025-03-31", "2025-03-31T02:30:00", "0001-01-01T00:00:00+14:00", ""])
def test_a_text_that_is_no_instant_is_no_answer(text: str) -> None:
    """A program in another language may answer anything."""
    assert kind(SKIPPED, text, text) == "no-answer"
    assert kind({**SKIPPED, "rule": "plain"}, text, text, group=Group.CALENDAR) == "no-answer"
    start = {"task": "a", "cause": "cron", "at": text}
    assert compare(Group.SCENARIOS, {"starts": []}, {"starts": [start]}).kind == "no-answer"


def test_a_vector_whose_clock_change_the_database_in_use_does_not_have_cannot_be_judged() -> None:
    assert not premise_holds({**SKIPPED, "zone": "Asia/Tokyo"})
    assert not premise_holds({**SKIPPED, "zone": "Mars/Olympus"})


@pytest.mark.parametrize(
    ("rule", "valid", "answer", "expected"),
    [
        ("step", False, {"valid": True}, "accepts-step"),
        ("out-of-range", False, {"valid": True}, "accepts-out-of-range"),
        ("posix", True, {"valid": False}, "refuses-posix"),
        ("posix", True, {"valid": True}, None),
        ("posix", True, {"valid": True, "sets": {"minute": [1]}}, "another-set"),
        ("step", False, {"valid": False}, None),
        ("step", False, {"valid": False, "field": "hour"}, "another-field"),
        ("step", False, {"valid": False, "field": "minute", "reason": "empty"}, "another-reason"),
        ("step", False, {"failed": "RuntimeError"}, "no-answer"),
    ],
)
def test_an_answer_about_a_text_has_a_kind(
    rule: str, valid: bool, answer: dict[str, Any], expected: str | None
) -> None:
    """SPEC 6.1: field and reason are compared where the implementation names them."""
    more: dict[str, Any] = {"sets": {}} if valid else {"field": "minute", "reason": "foreign-character"}
    vector = {"id": "x", "rule": rule, "expression": "* * * * *", "valid": valid, **more}
    assert compare(Group.CRON_PARSE, vector, answer).kind == expected


def test_what_does_not_apply_is_not_a_deviation() -> None:
    outcome = compare(Group.CRON_PARSE, {}, {"notApplicable": "it reads no cron text"})
    assert not outcome.applies
    assert outcome.kind is None


# --- every vector can fail -------------------------------------------------------------------------------------------


def expected_answer(group: Group, vector: Vector) -> dict[str, Any]:
    """The answer that a vector expects, as an implementation gives it."""
    match group:
        case Group.CRON_PARSE:
            return {name: vector[name] for name in ("valid", "field", "reason", "sets") if name in vector}
        case Group.CALENDAR | Group.TRANSITIONS:
            return {"next": vector["next"]}
        case Group.SCENARIOS:
            return {"starts": vector["starts"]}
        case Group.TRACES | Group.ERRORS:
            return dict(vector["expected"])


def wrong_answers(group: Group, vector: Vector) -> list[dict[str, Any]]:
    right = expected_answer(group, vector)
    match group:
        case Group.CRON_PARSE:
            return [{"valid": not vector["valid"]}, {"failed": "ValueError"}]
        case Group.CALENDAR | Group.TRANSITIONS:
            return [{"next": []}, {"next": [*right["next"][:-1], "2099-01-01T00:00:01+00:00"]}]
        case Group.SCENARIOS:
            more = {"task": "a", "cause": "cron", "at": vector["at"]}
            return [{"starts": [*right["starts"], more]}, {"failed": "ValueError"}]
        case Group.TRACES:
            return [{"verdict": "violated", "seq": 99, "properties": ["S1"]}, {"broken": "nothing"}]
        case Group.ERRORS:
            return [{"error": "SomethingElse"}, {"failed": "ValueError"}]


@pytest.mark.parametrize("group", Group, ids=lambda group: group.value)
def test_every_vector_agrees_with_its_own_answer_and_with_no_wrong_one(group: Group) -> None:
    for vector in share(load(group).vectors, 400):
        assert compare(group, vector, expected_answer(group, vector)).kind is None, vector["id"]
        if group is Group.TRANSITIONS and not premise_holds(vector):
            continue
        for wrong in wrong_answers(group, vector):
            assert compare(group, vector, wrong).kind is not None, (vector["id"], wrong)


@pytest.mark.parametrize("group", Group, ids=lambda group: group.value)
def test_a_question_does_not_contain_its_answer(group: Group) -> None:
    for vector in load(group).vectors[:20]:
        assert {"next", "valid", "sets", "starts", "expected"}.isdisjoint(question(group, vector))


def test_a_start_may_be_as_late_as_a_scenario_allows_and_not_later() -> None:
    """SPEC 2.4: a clock step is noticed within a minute."""
    start = {"task": "a", "cause": "cron", "at": "2025-01-01T00:00:00Z"}
    late = {"starts": [{**start, "at": "2025-01-01T00:00:59+00:00"}]}
    assert compare(Group.SCENARIOS, {"starts": [start], "withinSeconds": 60}, late).kind is None
    assert compare(Group.SCENARIOS, {"starts": [start], "withinSeconds": 30}, late).kind == "another-start"
    assert compare(Group.SCENARIOS, {"starts": [start]}, late).kind == "another-start"


# --- kinds -----------------------------------------------------------------------------------------------------------


def test_every_rule_of_a_vector_leads_to_a_known_kind() -> None:
    for vector in load(Group.CRON_PARSE).vectors:
        assert f"{'refuses' if vector['valid'] else 'accepts'}-{vector['rule']}" in KINDS
    for vector in load(Group.CALENDAR).vectors:
        assert f"calendar-{vector['rule']}" in KINDS


def test_what_a_project_documents_is_by_design_and_only_there() -> None:
    assert KINDS["calendar-either-day"].is_a is Class.DEFECT
    assert class_of("celery", "calendar-either-day") is Class.DESIGN
    assert class_of("croniter", "calendar-either-day") is Class.DEFECT
    assert {kind for _, kind in (*DOCUMENTED, *REMARKS)} <= KINDS.keys()
    assert set(GRAVEST_FIRST) <= KINDS.keys()
