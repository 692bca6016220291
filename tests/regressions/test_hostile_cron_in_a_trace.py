"""A crafted cron field in a trace kept the checker busy for ever, and one that never matches for minutes."""

import io
import multiprocessing

import pytest

from duly.core.moments import Delay, Instant
from duly.errors import TraceError
from duly.formal.checking import check
from duly.formal.trace import BT, IS, RG, Header, Writer

AT = Instant(1_748_833_110_000_000)


def trace_with(cron: str) -> bytes:
    """A trace that declares one task."""
    lines: list[bytes] = []
    writer = Writer(lines.append, Header(scheduler="someone else's"))
    writer.add(BT(1, AT, "boot", 0))
    writer.add(IS(2, AT, 1))
    writer.add(RG(3, AT, "task", 1, "new", cron, Delay(60_000), "UTC", AT, "loop"))
    return b"".join(lines)


def _refused(cron: str) -> None:
    with pytest.raises(TraceError) as refused:
        check(io.BytesIO(trace_with(cron)))
    assert refused.value.details["line"] == 4
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "cron",
    [
        "00," * 100 + "x * * * *",  # a pattern that matched each element in two ways tried all 2 ** 100 of them
        "0-0," * 100 + "x * * * *",
        "0" * 200_000 + "x * * * *",
        "1 " * 500_000,
        "9" * 1_000_000 + " * * * *",
        "0," * 5_000_000 + "0 * * * *",  # ten megabytes that mean 0: eleven seconds, before texts had a limit
    ],
    ids=["many elements", "many ranges", "many zeros", "many fields", "many digits", "ten megabytes"],
)
def test_a_crafted_field_is_refused_at_once(cron: str) -> None:
    """Whatever a trace says, reading it takes time in proportion to its length."""
    # In a process of its own: a regular expression that runs away cannot be interrupted.
    process = multiprocessing.get_context("spawn").Process(target=_refused, args=(cron,))
    process.start()
    process.join(60)
    try:
        assert process.exitcode == 0, "it is still being read, or was not refused"
    finally:
        process.kill()
        process.join()


def test_an_expression_that_never_matches_is_refused() -> None:
    """SPEC 6.3: it cannot have been declared, and a search for its next due minute goes on until the year 9999."""
    _refused("0 0 30 2 *")
    _refused("0 0 31 2,4,6,9,11 *")
    check(io.BytesIO(trace_with("0 0 31 4 1")), unsealed=True)  # Mondays in April
    check(io.BytesIO(trace_with("0 0 29 2 *")), unsealed=True)
