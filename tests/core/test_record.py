"""Rows of a store: read back into the states that were written, or refused with an error that names the field."""

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duly.core.moments import LAST_INSTANT, Instant
from duly.core.record import FIELDS, EqualRows, StoredTask, read_equal, read_records
from duly.core.task import AwaitingRetry, AwaitingRun, Cause, Obligation, Running, TaskState
from duly.errors import (
    InvalidCronExpressionError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
)
from tests.core.helpers import (
    NEAR,
    SECOND,
    at,
    awaiting_run,
    delays,
    instants,
    maybe_instants,
    minute,
    minutes,
    obligations,
    stored_tasks,
)

NEW: dict[str, Any] = {
    "generation": 1,
    "name": "a",
    "cron": "* * * * *",
    "delay_ms": 5_000,
    "known_since": at("2025-06-15T12:00:30"),
    "served_through": minute("2025-06-15T11:59"),
    "last_attempt_at": None,
    "last_success_at": None,
    "last_failure_at": None,
    "pending_retry_until": None,
    "failures": 0,
    "interruptions": 0,
    "run": None,
    "run_cause": None,
    "run_scheduled": None,
    "written_by": 1,
    "first_started_at": None,
    "first_scheduled": None,
    "attempt": None,
}
SUCCEEDED = NEW | {"last_attempt_at": at("2025-06-15T12:01"), "last_success_at": at("2025-06-15T12:01:05")}
FAILED = NEW | {
    "last_attempt_at": at("2025-06-15T12:01"),
    "last_failure_at": at("2025-06-15T12:01:05"),
    "pending_retry_until": at("2025-06-15T12:01:10"),
    "failures": 2,
    "first_started_at": at("2025-06-15T11:58:03"),
    "first_scheduled": at("2025-06-15T11:58"),
    "attempt": 2,
}
RUNNING = SUCCEEDED | {"run": 17, "run_cause": "cron", "run_scheduled": at("2025-06-15T12:01")}
RERUNNING = FAILED | {"run": 18, "run_cause": "retry", "run_scheduled": at("2025-06-15T12:01:10"), "interruptions": 1}
REPEATED = Obligation(FAILED["first_started_at"], FAILED["first_scheduled"], 2)


def row(record: dict[str, Any], **changes: Any) -> list[Any]:
    """A row as a store returns it."""
    assert changes.keys() <= record.keys()
    return [(record | changes)[field] for field in FIELDS]


def read(*rows: Sequence[Any]) -> list[StoredTask]:
    return list(read_records(rows))


def state_of(record: dict[str, Any], **changes: Any) -> TaskState:
    return read(row(record, **changes))[0].state


# --- what duly writes ------------------------------------------------------------------------------------------------


def test_a_record_has_these_fields_in_this_order() -> None:
    """SPEC 3: configuration, known_since, served_through, attempt, success, failure, retry, run, and the scheduler."""
    assert tuple(NEW) == FIELDS


def test_a_record_gives_back_identity_and_configuration() -> None:
    """SPEC 5.1: compared by name, cron text, delay."""
    (stored,) = read(row(RUNNING, generation=7, name="näme", cron=" 0 3  * * *", delay_ms=12, written_by=3))
    assert (stored.generation, stored.name, stored.delay, stored.run, stored.written_by) == (7, "näme", 12, 17, 3)
    assert stored.expression.text == " 0 3  * * *"


def test_a_new_task_never_started() -> None:
    assert state_of(NEW) == AwaitingRun(NEW["served_through"], None, None, None)


def test_a_task_that_succeeded_awaits_its_next_run() -> None:
    assert state_of(SUCCEEDED) == AwaitingRun(
        NEW["served_through"], SUCCEEDED["last_attempt_at"], SUCCEEDED["last_success_at"], None
    )


def test_a_task_that_failed_awaits_its_retry() -> None:
    assert state_of(FAILED) == AwaitingRetry(
        NEW["served_through"],
        FAILED["last_attempt_at"],
        None,
        FAILED["last_failure_at"],
        FAILED["pending_retry_until"],
        failures=2,
        obligation=REPEATED,
    )


@pytest.mark.parametrize("record", [RUNNING, RERUNNING])
def test_a_record_with_a_run_is_running(record: dict[str, Any]) -> None:
    """SPEC 3.7: whether that run is alive, the store cannot know."""
    assert state_of(record) == Running(
        record["served_through"],
        record["last_attempt_at"],
        record["last_success_at"],
        record["last_failure_at"],
        pending_retry_until=record["pending_retry_until"],
        failures=record["failures"],
        interruptions=record["interruptions"],
        obligation=REPEATED
        if record is RERUNNING
        else Obligation(RUNNING["last_attempt_at"], RUNNING["run_scheduled"], 1),
    )


def test_a_restarted_run_has_dropped_its_retry_and_still_counts_the_failures_before_it() -> None:
    """SPEC 3.7: the run is owed again, merged with anything else owed."""
    state = state_of(RERUNNING, pending_retry_until=None, run_cause="interrupted")
    assert isinstance(state, Running)
    assert (state.pending_retry_until, state.failures) == (None, 2)


def record_of(state: TaskState) -> dict[str, Any]:
    """How a store keeps a state."""
    record = {name: getattr(state, name, default) for name, default in NEW.items()}
    if isinstance(state, Running):
        record |= {"run": 5, "run_cause": "retry", "run_scheduled": state.last_attempt_at}
    if isinstance(state, AwaitingRetry | Running):
        first, scheduled, attempt = astuple(state.obligation)
        record |= {"first_started_at": first, "first_scheduled": scheduled, "attempt": attempt}
    return record


known_failures = st.one_of(
    st.builds(
        AwaitingRetry,
        minutes,
        instants,
        maybe_instants,
        instants,
        instants,
        st.integers(1, 9),
        obligations,
    ),
    st.builds(
        Running,
        minutes,
        instants,
        maybe_instants,
        maybe_instants,
        st.none(),
        st.integers(0, 9),
        st.integers(0, 9),
        obligations,
    ),
    st.builds(
        Running,
        minutes,
        instants,
        maybe_instants,
        instants,
        instants,
        st.integers(1, 9),
        st.integers(0, 9),
        obligations,
    ),
    awaiting_run.filter(lambda state: state.last_attempt_at is not None),
)


@given(known_failures, delays)
def test_a_state_survives_being_stored(state: TaskState, delay: int) -> None:
    """SPEC 3.9: what is durable is what was decided."""
    (stored,) = read(row(record_of(state), delay_ms=delay))
    assert stored.state == state
    assert stored.delay == delay


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_of_a_run_is_read(cause: Cause) -> None:
    assert isinstance(state_of(RUNNING if cause is Cause.CRON else RERUNNING, run_cause=cause.value), Running)


@pytest.mark.parametrize("field", ["known_since", "last_attempt_at", "last_success_at", "last_failure_at"])
@pytest.mark.parametrize("value", [-62_135_596_800 * SECOND, -1, 0, LAST_INSTANT, LAST_INSTANT + 60 * SECOND])
def test_any_moment_of_the_calendar_is_read(field: str, value: int) -> None:
    """SPEC 6.3: years 1 to 9999."""
    assert state_of(SUCCEEDED, **{field: value}) is not None


@pytest.mark.parametrize("value", [-62_135_596_800, -60, 0, LAST_INSTANT // SECOND])
def test_any_minute_of_the_calendar_may_have_been_served(value: int) -> None:
    """SPEC 6.3: the first and the last one included."""
    assert state_of(SUCCEEDED, served_through=value).served_through == value


# --- sharing ---------------------------------------------------------------------------------------------------------


def test_records_that_say_the_same_share_one_state() -> None:
    """Task states are values: a million tasks in one situation cost one object, and one check."""
    rows = [row(RUNNING, generation=n, name=f"t{n}", run=n) for n in range(1, 50)]
    stored = read(*rows)
    assert len({id(each.state) for each in stored}) == 1
    assert [each.run for each in stored] == list(range(1, 50))
    assert len({id(each.expression) for each in stored}) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("served_through", minute("2025-06-15T11:58")),
        ("last_attempt_at", at("2025-06-15T12:02")),
        ("last_success_at", at("2025-06-15T12:02")),
        ("last_failure_at", at("2025-06-15T12:02")),
        ("interruptions", 3),
    ],
)
def test_records_that_differ_do_not_share(field: str, value: int) -> None:
    first, second = read(row(RUNNING), row(RUNNING, generation=2, name="b", run=18, **{field: value}))
    assert first.state != second.state
    assert getattr(second.state, field) == value


# --- what duly never writes ------------------------------------------------------------------------------------------

REQUIRED = ("generation", "name", "cron", "delay_ms", "known_since", "served_through", "failures", "interruptions")
NUMBERS = tuple(field for field in FIELDS if field not in ("name", "cron", "run_cause"))


def refusal(*rows: Sequence[Any]) -> TaskTryDeserializeError:
    with pytest.raises(TaskTryDeserializeError) as caught:
        read(*rows)
    return caught.value


@pytest.mark.parametrize("field", [*REQUIRED, "written_by"])
def test_a_missing_field_is_named(field: str) -> None:
    """SPEC 5.5, 000: "Missing required field: <field>"."""
    error = refusal(row(NEW, **{field: None}))
    assert type(error) is TaskMissingFieldError
    assert error.message == f"Missing required field: {field}"
    assert field == "name" or str(error).endswith(": in the record of 'a'")
    assert error.details["field"] == field
    assert error.details["taskName"] == (None if field == "name" else "a")


@pytest.mark.parametrize("field", ["run_cause", "run_scheduled"])
def test_a_run_without_its_particulars_is_refused(field: str) -> None:
    """SPEC 5.5: the history could not name what was interrupted."""
    error = refusal(row(RUNNING, **{field: None}))
    assert type(error) is TaskMissingFieldError
    assert error.details["field"] == field


@pytest.mark.parametrize("record", [FAILED, RERUNNING])
@pytest.mark.parametrize("field", ["first_started_at", "first_scheduled", "attempt"])
def test_what_is_repeated_without_its_obligation_is_refused(record: dict[str, Any], field: str) -> None:
    """SPEC 10.1: the attempts after it would have another key."""
    error = refusal(row(record, **{field: None}))
    assert type(error) is TaskMissingFieldError
    assert error.details["field"] == field


@pytest.mark.parametrize("record", [NEW, SUCCEEDED, RUNNING])
@pytest.mark.parametrize("field", ["first_started_at", "first_scheduled", "attempt"])
def test_an_obligation_that_nothing_repeats_is_refused(record: dict[str, Any], field: str) -> None:
    """SPEC 10.1: a run of cause cron begins its obligation."""
    assert type(refusal(row(record, **{field: 1}))) is TaskInvalidStructureError


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", ["12", 1.5, b"x", True, [1]], ids=lambda value: type(value).__name__)
def test_a_number_of_the_wrong_type_is_named(field: str, value: object) -> None:
    """SPEC 5.5, 000: expected and actual type; bool is not a number."""
    error = refusal(row(RERUNNING, **{field: value}))
    assert type(error) is TaskInvalidTypeError
    actual = type(value).__name__
    assert error.message == f"Invalid type for field '{field}': expected int, got {actual}"
    assert {key: error.details[key] for key in ("field", "value", "expectedType", "actualType")} == {
        "field": field,
        "value": value,
        "expectedType": "int",
        "actualType": actual,
    }
    assert error.details["taskName"] == "a"


@pytest.mark.parametrize("field", ["name", "cron", "run_cause"])
@pytest.mark.parametrize("value", [12, 1.5, b"* * * * *", ["a"]], ids=lambda value: type(value).__name__)
def test_a_text_of_the_wrong_type_is_named(field: str, value: object) -> None:
    """SPEC 5.5: a value that is not text is not taken for text."""
    error = refusal(row(RUNNING, **{field: value}))
    assert type(error) is TaskInvalidTypeError
    assert (error.details["field"], error.details["value"], error.details["expectedType"]) == (field, value, "str")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("cron", ""),
        ("cron", "* * * *"),
        ("cron", "*/5 * * * *"),
        ("cron", "0 0 30 2 *"),
        ("delay_ms", -1),
        ("known_since", LAST_INSTANT + 61 * SECOND),
        ("known_since", -62_135_596_801 * SECOND),
        ("served_through", LAST_INSTANT // SECOND + 1),
        ("served_through", -62_135_596_801),
        ("last_attempt_at", 1 << 62),
        ("last_success_at", 1 << 62),
        ("last_failure_at", -(1 << 62)),
        ("pending_retry_until", 1 << 62),
        ("failures", -1),
        ("interruptions", -1),
        ("run", 0),
        ("run", -5),
        ("run_cause", "boredom"),
        ("run_cause", "CRON"),
        ("run_scheduled", 1 << 62),
        ("first_started_at", 1 << 62),
        ("first_scheduled", 1 << 62),
        ("attempt", 0),
        ("written_by", 0),
    ],
)
def test_a_value_that_duly_never_writes_is_named(field: str, value: object) -> None:
    """SPEC 5.5, 000: "Invalid value for field '<field>': <reason>"."""
    error = refusal(row(RERUNNING, **{field: value}))
    assert type(error) is TaskInvalidValueError
    assert (error.details["field"], error.details["value"]) == (field, value)
    assert error.message == f"Invalid value for field '{field}': {error.details['reason']}"


def test_a_stored_expression_that_does_not_parse_keeps_the_parser_error() -> None:
    """SPEC 1.5: wrapped errors keep the original."""
    error = refusal(row(NEW, cron="0 25 * * *"))
    assert isinstance(error.__cause__, InvalidCronExpressionError)
    assert error.details["reason"] == str(error.__cause__)


def test_a_name_stored_twice_is_refused() -> None:
    """SPEC 1.4: names are unique, in the store too."""
    error = refusal(row(NEW), row(NEW, generation=2))
    assert type(error) is TaskInvalidValueError
    assert (error.details["field"], error.details["value"]) == ("name", "a")
    assert "twice" in error.details["reason"]


@pytest.mark.parametrize(
    "record",
    [
        NEW | {"last_success_at": NEAR},
        NEW | {"last_failure_at": NEAR},
        NEW | {"run": 3, "run_cause": "cron", "run_scheduled": NEAR},
        FAILED | {"last_attempt_at": None},
        FAILED | {"failures": 0},
        FAILED | {"last_failure_at": None},
        FAILED | {"pending_retry_until": None},
        FAILED | {"pending_retry_until": None, "failures": 1},
        NEW | {"pending_retry_until": NEAR},
        RERUNNING | {"failures": 0},
        RUNNING | {"run": None},
        SUCCEEDED | {"run_cause": "cron"},
        FAILED | {"run_scheduled": NEAR},
    ],
)
def test_fields_that_contradict_each_other_are_refused(record: dict[str, Any]) -> None:
    """SPEC 5.5: TaskInvalidStructureError, with the fields as `value`."""
    error = refusal(row(record))
    assert type(error) is TaskInvalidStructureError
    assert error.details["taskName"] == "a"
    assert error.details["value"]


@pytest.mark.parametrize("length", [0, 4, len(FIELDS) - 1, len(FIELDS) + 1])
def test_a_record_of_another_length_is_refused(length: int) -> None:
    """SPEC 5.5: a store that returns other columns is not a store of this version."""
    given = [*row(NEW), None][:length]
    error = refusal(given)
    assert type(error) is TaskInvalidStructureError
    assert error.details["value"] == tuple(given)


BAD_BY_FIELD: dict[str, Any] = {
    "generation": "x",
    "name": "",
    "cron": "x",
    "delay_ms": -1,
    "known_since": "x",
    "served_through": "x",
    "last_attempt_at": "x",
    "last_success_at": "x",
    "last_failure_at": "x",
    "pending_retry_until": "x",
    "failures": -1,
    "interruptions": -1,
    "run": "x",
    "run_cause": "x",
    "run_scheduled": "x",
    "written_by": 0,
    "first_started_at": "x",
    "first_scheduled": "x",
    "attempt": 0,
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["bad", "float", "bool"])
def test_no_record_hides_behind_a_good_one(field: str, value: str) -> None:
    """SPEC 5.5: states are shared, yet each record is checked: a value that only equals the right number is refused."""
    good = row(RERUNNING, written_by=1, interruptions=1)
    bad: Any = {"bad": BAD_BY_FIELD[field], "float": 1.0, "bool": True}[value]
    same = {"float": 1, "bool": 1}.get(value)
    if same is not None and field not in ("name", "cron", "run_cause"):
        good = row(RERUNNING, **{field: same})
    error = refusal(good, row(RERUNNING, **{"generation": 2, "name": "b", field: bad}))
    assert error.details["field"] == field


def test_the_first_bad_record_is_the_one_that_is_raised() -> None:
    """SPEC 5.5: and those before it were read."""
    records = read_records([row(NEW), row(NEW, name="b", delay_ms=-1), row(NEW, name="c", cron="x")])
    assert next(records).name == "a"
    with pytest.raises(TaskInvalidValueError) as caught:
        next(records)
    assert caught.value.details["taskName"] == "b"


# --- anything at all -------------------------------------------------------------------------------------------------

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 3),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    instants,
    minutes,
    st.sampled_from(["* * * * *", "0 3 * * *", "cron", "retry", "interrupted"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=1), st.none(), max_size=1),
)
near_misses = st.builds(
    lambda record, changes: row(record | changes),
    st.sampled_from([NEW, SUCCEEDED, FAILED, RUNNING, RERUNNING]),
    st.dictionaries(st.sampled_from(FIELDS), anything, max_size=3),
)
rows = st.lists(st.one_of(near_misses, st.lists(anything, max_size=20)), max_size=4)


@given(rows)
@example([row(RUNNING), row(RUNNING, generation=2, name="b", run="x")])
@example([row(NEW, cron=[])])
@example([row(NEW, known_since=[])])
@example([row(NEW, name=["a"])])
def test_any_rows_load_or_raise_a_deserialisation_error(given_rows: list[list[Any]]) -> None:
    """SPEC 5.5: a bad one raises its TaskTryDeserializeError subclass; there is no third way."""
    try:
        stored = read(*given_rows)
    except TaskTryDeserializeError as error:
        assert type(error) is not TaskTryDeserializeError, "a subclass says what is wrong"  # noqa: PT017
        return
    assert [each.name for each in stored] == [each[1] for each in given_rows]
    for each, record in zip(stored, given_rows, strict=True):
        assert each.run is None or (type(each.run) is int and isinstance(each.state, Running))
        for field in fields(each.state):
            if field.name == "served_before":  # of earlier declarations: another table
                continue
            value = getattr(each.state, field.name)
            if isinstance(value, Obligation):
                named = dict(zip(FIELDS, record, strict=True))
                begun = (named["last_attempt_at"], named["run_scheduled"], 1)
                repeated = (named["first_started_at"], named["first_scheduled"], named["attempt"])
                assert astuple(value) == (begun if named["run_cause"] == "cron" else repeated)
                assert set(map(type, astuple(value))) == {int}
                continue
            assert value is None or type(value) is int
            assert value == record[FIELDS.index(field.name)]


@given(st.lists(near_misses, min_size=1, max_size=1))
def test_a_record_is_judged_by_itself(given_rows: list[list[Any]]) -> None:
    """SPEC 5.5: the verdict on a record does not depend on the good ones that were read before it."""
    before = [
        row(each, generation=n, name=f"good {n}")
        for n, each in enumerate([NEW, SUCCEEDED, FAILED, RUNNING, RERUNNING], 100)
    ]

    def verdict(rows: list[list[Any]]) -> tuple[type[BaseException], object] | TaskState:
        try:
            return read(*rows)[-1].state
        except TaskTryDeserializeError as error:
            return type(error), error.details.get("field")

    assert repr(verdict(before + given_rows)) == repr(verdict(given_rows))


def test_reading_is_lazy() -> None:
    """Architecture: a million records are read in slices, so that others may work in between."""
    seen: list[int] = []

    def source() -> Any:
        for n in range(3):
            seen.append(n)
            yield row(NEW, generation=n + 1, name=str(n))

    records = read_records(source())
    assert seen == []
    next(records)
    assert seen == [0]


# --- in blocks of equal rows -----------------------------------------------------------------------------------------

BLOCKS = [
    EqualRows((1, 2, 3), ("a", "b", "c"), row(NEW)[2:]),
    EqualRows((5,), ("d",), row(FAILED)[2:]),
    EqualRows((8, 9), ("e", "f"), row(RUNNING)[2:]),
]
ROWS = [
    tuple(row(record, generation=generation, name=name))
    for record, generation, name in (
        (NEW, 1, "a"),
        (NEW, 2, "b"),
        (NEW, 3, "c"),
        (FAILED, 5, "d"),
        (RUNNING, 8, "e"),
        (RUNNING, 9, "f"),
    )
]


def test_a_block_of_equal_rows_stands_for_its_rows() -> None:
    """Store port: a store may return rows in blocks, or each as a block of its own."""
    assert [each for block in BLOCKS for each in block.rows()] == ROWS
    assert [each for one in ROWS for each in EqualRows.single(one).rows()] == ROWS


def test_blocks_say_what_their_rows_say() -> None:
    """SPEC 5.5: equal tasks, in the same order."""
    assert list(read_equal([])) == []
    assert stored_tasks(BLOCKS) == list(read_records(ROWS))
    alone = [EqualRows.single(one) for one in ROWS]
    assert stored_tasks(alone) == list(read_records(ROWS))


@pytest.mark.parametrize(("generations", "names"), [((1, 2), ("a",)), ((1,), ("a", "b"))])
def test_a_block_of_more_names_than_generations_or_fewer_is_a_defect(
    generations: tuple[int, ...], names: tuple[str, ...]
) -> None:
    """SPEC 5.5: a store that returns half a record has a defect, and nothing is left out in silence."""
    with pytest.raises(ValueError, match="argument"):
        list(EqualRows(generations, names, row(NEW)[2:]).rows())


@pytest.mark.parametrize(
    "blocks",
    [
        [((1, 2), ("a", "a"))],
        [((1,), ("a",)), ((2, 3), ("b", "a"))],
        [((1, 2, 3), ("a", "", "a"))],
        [((1, 2), ("a", b"b"))],
        [((1, 2), ("a", None))],
        [((1, "2"), ("a", "b"))],
        [((1, None), ("a", "b"))],
        [((1,), ("a",)), ((2, 3.0), ("b", ""))],
    ],
)
def test_of_records_in_blocks_the_first_bad_one_is_raised(blocks: list[tuple[Any, Any]]) -> None:
    """SPEC 5.5: with the same error as row by row."""
    rest = row(NEW)[2:]
    together = [EqualRows(generations, names, rest) for generations, names in blocks]
    by_itself = refusal(*(each for block in together for each in block.rows()))
    with pytest.raises(type(by_itself)) as caught:
        list(read_equal(together))
    assert str(caught.value) == str(by_itself)
    assert caught.value.details == by_itself.details


def test_moments_are_integers_of_microseconds() -> None:
    """SPEC 3.4: sub-second timing survives the store."""
    assert state_of(SUCCEEDED, last_success_at=Instant(SUCCEEDED["last_success_at"] + 1)) != state_of(SUCCEEDED)
