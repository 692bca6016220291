"""Cron as it is written elsewhere, and the POSIX text that means the same; where there is none, why not.

    */15 * * * *       0,15,30,45 * * * *
    0 9 * * mon-fri    0 9 * * 1-5
    @daily             0 0 * * *
    0 0 L * *          none: POSIX cron cannot name the last day of a month

Understood are Vixie cron and its children (steps, names, macros, 7 for Sunday, ranges that wrap), six and seven
fields as in Quartz, Spring or EventBridge, and the marks L, W, #, H and ~, if only to say that POSIX has no such thing.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from duly.core.cron import CronExpression, parse_cron
from duly.errors import InvalidCronExpressionError
from duly.insight.cron_words import MONTHS, WEEKDAYS, spans

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST: Final = 1000
"""No cron text that a person wrote is longer."""


class Remark(NamedTuple):
    """Something to say about a place in the text."""

    field: str
    begin: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Translation:
    """What a text means in POSIX cron: `posix` if there is an equivalent, `obstacles` if there is none."""

    text: str
    posix: str | None = None
    rewritten: tuple[Remark, ...] = ()
    obstacles: tuple[Remark, ...] = ()

    @property
    def expression(self) -> CronExpression | None:
        """The equivalent, parsed."""
        return None if self.posix is None else parse_cron(self.posix)


def translate(text: str) -> Translation | None:
    """The meaning of a text in POSIX cron; None if it is no cron of any kind known here."""
    if len(text) > _LONGEST:
        return None
    words = [(each.group(), each.start()) for each in re.finditer(r"[^ \t]+", text)]
    if not words:
        return None
    if words[0][0].startswith("@"):
        return _translate_macro(text, words)
    layout = _layout([word for word, _ in words])
    if layout is None:
        return None
    reading = _Reading()
    found: dict[str, _Values] = {}
    try:
        for (word, begin), (name, spoken) in zip(words, layout, strict=True):
            if name in _DROPPED:
                reading.drop(name, spoken, word, begin)
            else:
                found[name] = reading.values(_FIELDS[name], word, begin, quartz=spoken == "quartz weekday")
    except _UnknownError:
        return None
    reading.check_day_fields(found, words, layout)
    obstacles = tuple(sorted(reading.obstacles, key=lambda remark: remark.begin))
    rewritten = tuple(sorted(reading.rewritten, key=lambda remark: remark.begin))
    if obstacles:
        return Translation(text, None, rewritten, obstacles)
    posix = " ".join(found[name].posix for name in _FIELDS)
    try:
        parse_cron(posix)
    except InvalidCronExpressionError:
        return None  # not because of its dialect: it never matches
    return Translation(text, posix, rewritten)


def _translate_macro(text: str, words: list[tuple[str, int]]) -> Translation | None:
    macro, begin = words[0][0].lower(), words[0][1]
    end = len(text.rstrip(" \t"))
    if len(words) == 1 and macro in MACROS:
        return Translation(text, MACROS[macro], (Remark("expression", begin, end, "a macro"),))
    if len(words) == 1 and macro == "@reboot":
        reason = "@reboot is no time: call the function yourself when your program starts"
    elif macro == "@every":
        reason = "@every counts from the start of a process, cron counts by the wall clock"
    else:
        return None
    return Translation(text, None, (), (Remark("expression", begin, end, reason),))


# --- fields ----------------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # from `low` on


_FIELDS: Final = {
    each.name: each
    for each in (
        _Field("minute", 0, 59),
        _Field("hour", 0, 23),
        _Field("day", 1, 31),
        _Field("month", 1, 12, MONTHS),
        _Field("weekday", 0, 6, WEEKDAYS),
    )
}
_FIVE: Final = [(name, "") for name in _FIELDS]
_DROPPED: Final = frozenset({"second", "year"})


def _layout(words: list[str]) -> list[tuple[str, str]] | None:
    """Which field each word is: name, and how it is read where that is not plain."""
    if len(words) == 5:
        return _FIVE
    quartz = [*_FIVE[:4], ("weekday", "quartz weekday")]
    if len(words) == 7:
        return [("second", "the first of seven fields"), *quartz, ("year", "the last of seven fields")]
    if len(words) != 6:
        return None
    if "?" in (words[2], words[4]):  # the place of '?' tells which fields are the days
        return [*quartz, ("year", "the last of six fields (as in EventBridge)")]
    if "?" in (words[3], words[5]):
        return [("second", "the first of six fields (as in Quartz)"), *quartz]
    return [("second", "the first of six fields"), *_FIVE]


@dataclass(frozen=True, slots=True)
class _Values:
    """What a field stands for, and how POSIX writes it."""

    posix: str
    members: frozenset[int] = frozenset()
    restricted: bool = True
    starred: bool = False  # begins with '*' and restricts all the same: Vixie cron joins such day fields with AND


class _UnknownError(Exception):
    """Not a dialect: wrong in every cron."""


@dataclass(slots=True)
class _Reading:
    """One pass over the fields, and what there is to say about them."""

    rewritten: list[Remark] = field(default_factory=list)
    obstacles: list[Remark] = field(default_factory=list)

    def drop(self, name: str, spoken: str, word: str, begin: int) -> None:
        """A field that POSIX does not have: harmless if it says nothing."""
        end = begin + len(word)
        if word in (("0", "00") if name == "second" else ("*", "?")):
            self.rewritten.append(Remark(name, begin, end, f"{spoken} is the {name}, which cron does not have"))
        else:
            grain = "cron's grain is the minute" if name == "second" else "cron repeats every year"
            self.obstacles.append(Remark(name, begin, end, f"{spoken} is the {name}: {grain}"))

    def values(self, field: _Field, word: str, begin: int, *, quartz: bool) -> _Values:
        """Read one field; raises _UnknownError if no cron takes it."""
        if word == "*":
            return _Values("*", _every(field), restricted=False)
        if word == "?":
            if field.name not in ("day", "weekday"):
                raise _UnknownError
            self.rewritten.append(Remark(field.name, begin, begin + 1, "'?' is '*' in POSIX"))
            return _Values("*", _every(field), restricted=False)
        members: set[int] = set()
        plain, blocked, star = True, False, False
        place = begin
        for text in word.split(","):
            element = _Element(field, text, quartz=quartz)
            end = place + len(text)
            if obstacle := element.obstacle():
                self.obstacles.append(Remark(field.name, place, end, obstacle))
                blocked = True
            else:
                read, remark = element.read()
                members |= read
                star |= text.startswith("*")
                if remark:
                    plain = False
                    self.rewritten.append(Remark(field.name, place, end, remark))
            place = end + 1
        if blocked:
            return _Values("")
        if plain:
            return _Values(word, frozenset(members))
        every = members == _every(field)
        if every and (star or field.name not in ("day", "weekday")):
            return _Values("*", frozenset(members), restricted=False)
        return _Values(posix_set(members), frozenset(members), starred=word.startswith("*"))

    def check_day_fields(
        self, found: dict[str, _Values], words: list[tuple[str, int]], layout: list[tuple[str, str]]
    ) -> None:
        """A day field such as */2 beside another: AND in Vixie cron, where POSIX has OR."""
        day, weekday = found.get("day"), found.get("weekday")
        if day is None or weekday is None or not (day.restricted and weekday.restricted):
            return
        for name, values in (("day", day), ("weekday", weekday)):
            if values.starred:
                word, begin = words[[each for each, _ in layout].index(name)]
                reason = (
                    f"Vixie cron lets a {name} field that begins with '*' and the other day field both have to match; "
                    "in POSIX either is enough"
                )
                self.obstacles.append(Remark(name, begin, begin + len(word), reason))


# --- elements --------------------------------------------------------------------------------------------------------


class _Element:
    """One element of a list."""

    def __init__(self, field: _Field, text: str, *, quartz: bool) -> None:
        self.field = field
        self.text = text
        self.quartz = quartz

    def obstacle(self) -> str | None:
        """Why POSIX cannot say this; None if it may."""
        name, text = self.field.name, self.text.upper()
        day, weekday = name == "day", name == "weekday"
        for applies, pattern, reason in (
            (weekday, r"[0-9A-Z]+#[1-5]", "POSIX cron cannot count the weekdays of a month"),
            (weekday, r"[0-9A-Z]*L", "POSIX cron cannot name the last of a weekday in a month"),
            (day, r"(LW|[0-9]+W)", "POSIX cron cannot name the nearest working day"),
            (day, r"L(-[0-9]+)?", "POSIX cron cannot name the last day of a month"),
            (True, r"H(\([0-9]+-[0-9]+\))?(/[0-9]+)?", "'H' lets Jenkins choose; choose a value yourself"),
            (True, r"[0-9]*~[0-9]*(/[0-9]+)?", "'~' is a random value; choose one yourself"),
        ):
            if applies and re.fullmatch(pattern, text):
                return reason + self._advice(text)
        return None

    def _advice(self, text: str) -> str:
        if self.field.name == "day" and text == "L":
            return ": use the days 28-31, and let the callback return unless tomorrow is another month's first day"
        if match := re.fullmatch(r"[0-9A-Z]+#([1-5])", text):
            first = 7 * int(match[1]) - 6
            last = min(first + 6, 31)
            return f": use the days {first}-{last}, and let the callback return on other weekdays"
        return ""

    def read(self) -> tuple[set[int], str | None]:
        """The values, and what had to be rewritten, if anything."""
        body, slash, step_text = self.text.partition("/")
        step = 1
        if slash:
            if not re.fullmatch(r"[0-9]{1,4}", step_text) or int(step_text) == 0:
                raise _UnknownError
            step = int(step_text)
        remarks: list[str] = []
        if body in ("*", "?"):
            values = list(range(self.field.low, self.field.high + 1))
            if not slash:
                remarks.append("'*' among others is every value")
        else:
            values = self._stretch(body, open_end=bool(slash), remarks=remarks)
        if slash:
            remarks.insert(0, "a step: the values one by one")
        weekday = self.field.name == "weekday"
        members = {value % 7 if weekday else value for value in values[::step]}
        return members, "; ".join(remarks) or None

    def _stretch(self, body: str, *, open_end: bool, remarks: list[str]) -> list[int]:
        field = self.field
        low_text, dash, high_text = body.partition("-")
        low = self._number(low_text, remarks)
        high = self._number(high_text, remarks) if dash else field.high if open_end else low
        if field.name == "weekday" and low == 7 and dash:
            low = 0  # 7-2 is Sunday to Tuesday, written in another way
        if low > high:
            size = field.high - field.low + 1
            remarks.append("a range that wraps around")
            return [(value - field.low) % size + field.low for value in range(low, high + size + 1)]
        return list(range(low, high + 1))

    def _number(self, text: str, remarks: list[str]) -> int:
        field = self.field
        if re.fullmatch(r"[0-9]+", text):
            number = int(text.lstrip("0")[:4] or "0")
            if self.quartz:
                if not 1 <= number <= 7:
                    raise _UnknownError
                remarks.append(f"{number} is {WEEKDAYS[number - 1]} where 1 is Sunday, as in Quartz")
                return number - 1
            if field.name == "weekday" and number == 7:
                remarks.append("7 is 0 in POSIX, Sunday")
                return 7
            if not field.low <= number <= field.high:
                raise _UnknownError
            return number
        for place, name in enumerate(field.names):
            # Whole names, and their first three letters.
            if text.lower() in (name.lower(), name[:3].lower()):
                remarks.append(f"{text} is {place + field.low}")
                return place + field.low
        raise _UnknownError


def posix_set(members: Iterable[int]) -> str:
    """Numbers as POSIX writes them: stretches of three and more as ranges."""
    return ",".join(_elements(sorted(members)))


def _elements(values: list[int]) -> Iterator[str]:
    for first, last in spans(values):
        if last - first >= 2:
            yield f"{first}-{last}"
        else:
            yield from map(str, range(first, last + 1))


def _every(field: _Field) -> frozenset[int]:
    return frozenset(range(field.low, field.high + 1))
