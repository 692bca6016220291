"""The five fields of a cron expression: their names, their ranges, and the names that months and weekdays have."""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


class Field:
    """One of the five fields. Sets of its values are integers: bit n stands for value n."""

    def __init__(self, name: str, low: int, high: int, words: tuple[str, ...] = ()) -> None:
        self.name: Final = name
        self.low: Final = low
        self.high: Final = high
        self.words: Final = words
        """The names that people give to the values, from `low` on."""
        self.every: Final = (2 << high) - (1 << low)
        self.numbers: Final = {f"{n:0{digits}}": 1 << n for digits in (1, 2) for n in range(low, high + 1)}
        """The sets of single numbers, written with one digit or two."""
        self.simple: Final = {"*": self.every, **self.numbers}
        """The sets of the texts that most fields consist of."""


MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day", 1, 31)
MONTH: Final = Field("month", 1, 12, MONTHS)
WEEKDAY: Final = Field("weekday", 0, 6, WEEKDAYS)
FIELDS: Final = {field.name: field for field in (MINUTE, HOUR, DAY, MONTH, WEEKDAY)}


def spans(values: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted numbers as the first and the last of each unbroken stretch."""
    found: list[tuple[int, int]] = []
    for _, stretch in groupby(enumerate(values), lambda pair: pair[1] - pair[0]):
        members = [value for _, value in stretch]
        found.append((members[0], members[-1]))
    return found
