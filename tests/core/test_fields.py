"""The five fields of a cron expression, and sets of their values as integers."""

import pytest

from duly.core.fields import FIELDS, MONTHS, WEEKDAYS, Field, spans


def values(members: int) -> list[int]:
    """The values of a set."""
    return [value for value in range(members.bit_length()) if members >> value & 1]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6)],
)
def test_a_field_knows_its_range_and_the_sets_of_its_simplest_texts(name: str, low: int, high: int) -> None:
    """SPEC 6.1: '*' and single numbers of one digit or two; all other texts are read."""
    everything = list(range(low, high + 1))
    for field in (FIELDS[name], Field(name, low, high)):
        assert (field.name, field.low, field.high) == (name, low, high)
        assert values(field.every) == everything
        assert field.numbers == {text: 1 << n for n in everything for text in (f"{n}", f"{n:02}")}
        assert field.simple == {"*": field.every} | field.numbers


def test_the_fields_come_in_the_order_of_the_text_and_two_have_names_for_their_values() -> None:
    assert list(FIELDS) == ["minute", "hour", "day", "month", "weekday"]
    assert FIELDS["month"].words == MONTHS
    assert FIELDS["weekday"].words == WEEKDAYS
    assert (MONTHS[0], MONTHS[11], len(MONTHS)) == ("January", "December", 12)
    assert (WEEKDAYS[0], WEEKDAYS[6], len(WEEKDAYS)) == ("Sunday", "Saturday", 7)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([3], [(3, 3)]),
        ([1, 2, 3, 7, 9, 10], [(1, 3), (7, 7), (9, 10)]),
        ([0, 2, 4], [(0, 0), (2, 2), (4, 4)]),
    ],
)
def test_spans_are_unbroken_stretches(numbers: list[int], expected: list[tuple[int, int]]) -> None:
    assert spans(numbers) == expected
