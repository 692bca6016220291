"""The five fields of a cron expression, and sets of their values as integers."""

import pytest

from duly.core.fields import FIELDS, MONTHS, WEEKDAYS, Field, spans


def values(members: int) -> list[int]:
    """The values of a set."""
    return [value for value in range(members.bit_length()) if members >> value & 1]


def test_the_fields_have_the_names_and_ranges_of_posix() -> None:
    """SPEC 6.1: in the order of the text."""
    assert [(name, each.name, each.low, each.high) for name, each in FIELDS.items()] == [
        ("minute", "minute", 0, 59),
        ("hour", "hour", 0, 23),
        ("day", "day", 1, 31),
        ("month", "month", 1, 12),
        ("weekday", "weekday", 0, 6),
    ]
    assert FIELDS["month"].words == MONTHS
    assert FIELDS["weekday"].words == WEEKDAYS
    assert (MONTHS[0], MONTHS[11], len(MONTHS)) == ("January", "December", 12)
    assert (WEEKDAYS[0], WEEKDAYS[6], len(WEEKDAYS)) == ("Sunday", "Saturday", 7)


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_knows_the_sets_of_its_simplest_texts(name: str) -> None:
    """SPEC 6.1: '*' and single numbers of one digit or two; all others are read."""
    known = FIELDS[name]
    field = Field(known.name, known.low, known.high)
    everything = list(range(field.low, field.high + 1))
    assert values(field.every) == everything
    assert field.numbers == {text: 1 << n for n in everything for text in (f"{n}", f"{n:02}")}
    assert field.simple == {"*": field.every} | field.numbers


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
