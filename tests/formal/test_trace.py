"""Events as bytes: one canonical line each, however it is put together."""

import json

from hypothesis import given
from hypothesis import strategies as st

from duly.core.moments import Instant
from duly.formal.trace import RE, RS, UNNUMBERED, WK, Event, encode, encode_row, row_of


@given(st.text(), st.integers(0, 1 << 62), st.booleans(), st.sampled_from(["cron", "retry", "interrupted"]))
def test_a_line_is_canonical_json_whatever_a_task_is_called(task: str, number: int, ok: bool, cause: str) -> None:
    """SPEC 7.6: starts and ends are put together by hand, and equal what the standard library writes."""
    events: list[Event] = [
        RE(number, Instant(number + 1), task, 2, number + 3, ok),
        RS(number, Instant(number + 1), task, 2, number + 3, cause, 4),
        WK(number, Instant(number + 1), 2),
    ]
    for event in events:
        canonical = json.dumps([type(event).__name__, *event], separators=(",", ":"), ensure_ascii=True)
        assert encode(event) == f"{canonical}\n".encode("ascii")


def test_a_store_numbers_an_event_that_a_scheduler_made_without_a_number() -> None:
    """A row does not say which event it will be."""
    made = RS(UNNUMBERED, Instant(7), "x", 1, 2, "cron", 0)
    assert row_of(made) == ("RS", 7, "x", 1, 2, "cron", 0)
    assert encode_row(5, row_of(made)).encode() + b"\n" == encode(made._replace(seq=5))
