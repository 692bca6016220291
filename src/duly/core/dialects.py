"""Cron as it is written elsewhere: the POSIX text that means the same, or why POSIX cron cannot say it.

    */15 * * * *       0,15,30,45 * * * *
    0 9 * * mon-fri    0 9 * * 1-5
    @daily             0 0 * * *
    0 0 L * *          none: POSIX cron cannot name the last day of a month

`translate` reads whole texts, for `duly check` and the importers; `foreign` and the hints beside it explain single
elements, for the errors of `parse_cron`. Both know Vixie cron and its descendants (steps, names, macros, 7 for Sunday,
ranges that wrap), six and seven fields as in Quartz, Spring or EventBridge, and the marks L, W, #, H and ~.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from duly.core.fields import DAY, FIELDS, WEEKDAY, WEEKDAYS, Field, spans
from duly.core.occurrences import can_match, pattern_of
from duly.text import plain

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
SEPARATORS: Final = "only spaces and tabs separate fields"

_NO_COUNTING: Final = "POSIX cron cannot count the weekdays of a month"
_NO_WORKING_DAY: Final = "POSIX cron cannot name the nearest working day"
_NO_LAST_DAY: Final = "POSIX cron cannot name the last day of a month"
_NO_LAST_WEEKDAY: Final = "POSIX cron cannot name the last of a weekday in a month"
_LONGEST: Final = 1000
"""Characters of the longest text that is translated; a person writes far fewer."""

_SEARCHED: Final = 40
"""Characters of an element in which an error looks for names."""


class Remark(NamedTuple):
    """A remark about a part of the text."""

    field: str
    begin: int
    end: int
    text: str


class Translation(NamedTuple):
    """The meaning of a text in POSIX cron: `posix` if there is an equivalent, `obstacles` if there is none."""

    text: str
    posix: str | None = None
    rewritten: tuple[Remark, ...] = ()
    obstacles: tuple[Remark, ...] = ()


def translate(text: str) -> Translation | None:
    """The meaning of a text in POSIX cron; None if it is not cron of any dialect known here."""
    if len(text) > _LONGEST:
        return None
    words = [(each.group(), each.start()) for each in re.finditer(r"[^ \t]+", text)]
    if not words:
        return None
    if words[0][0].startswith("@"):
        return _translate_macro(text, words)
    if re.fullmatch(r"rate\(\d+[ \t]+\w+\)", text.strip(" \t"), re.IGNORECASE):
        begin = words[0][1]
        reason = "rate(…), as in EventBridge, counts from the creation of a rule, cron counts by the wall clock"
        return Translation(text, None, (), (Remark("expression", begin, len(text.rstrip(" \t")), reason),))
    layout = _layout([word for word, _ in words])
    if layout is None:
        return None
    reading = _Reading()
    found: dict[str, _Values] = {}
    try:
        for (word, begin), (name, note) in zip(words, layout, strict=True):
            if name in _DROPPED:
                reading.drop(name, note, word, begin)
            else:
                found[name] = reading.values(FIELDS[name], word, begin, quartz=note == "quartz weekday")
    except _UnknownError:
        return None
    reading.check_day_fields(found, words, layout)
    obstacles = tuple(sorted(reading.obstacles, key=lambda remark: remark.begin))
    rewritten = tuple(sorted(reading.rewritten, key=lambda remark: remark.begin))
    if obstacles:
        return Translation(text, None, rewritten, obstacles)
    if not _can_match(found):
        return None  # not for its dialect: it never matches
    return Translation(text, " ".join(found[name].posix for name in FIELDS), rewritten)


def _translate_macro(text: str, words: list[tuple[str, int]]) -> Translation | None:
    macro, begin = words[0][0].lower(), words[0][1]
    end = len(text.rstrip(" \t"))
    if len(words) == 1 and macro in MACROS:
        return Translation(text, MACROS[macro], (Remark("expression", begin, end, "a macro"),))
    if len(words) == 1 and macro == "@reboot":
        reason = "@reboot is not a time: call the function yourself when your program starts"
    elif macro == "@every":
        reason = "@every counts from the start of a process, cron counts by the wall clock"
    else:
        return None
    return Translation(text, None, (), (Remark("expression", begin, end, reason),))


# --- hints of cron errors --------------------------------------------------------------------------------------------

_MARKS: Final = {
    "@": ("contains macros", "write the five fields instead"),
    "?": ("contains Quartz token '?'", "write '*' in a field that does not restrict"),
    "#": ("contains Quartz token '#'", _NO_COUNTING),
    "+": ("contains a sign '+'", "write the number alone"),
    ".": ("contains a decimal point", "write whole numbers"),
    "\r": ("contains a line break", SEPARATORS),
    "\n": ("contains a line break", SEPARATORS),
}


def foreign(field: Field, element: str, at: int) -> tuple[str, str | None]:
    """The meaning of the character at `at`, which POSIX cron does not know; and what to write instead."""
    letter, before = element[at], element[at - 1 : at]
    if letter == "/":
        return "contains step syntax '/'; list the values instead", _without_step(field, element)
    if letter in _MARKS:
        return _MARKS[letter]
    if letter.isspace():
        return "contains white space that is neither space nor tab", SEPARATORS
    if letter.isdecimal():
        return "contains digits of another script", "write the digits 0-9"
    if not (letter.isascii() and letter.isalpha()):
        return f"contains '{plain(letter)}' (U+{ord(letter):04X})", "write digits, '-' and ',', or '*' alone"
    part = element[at : at + _SEARCHED]
    word = re.split("[^A-Za-z]", part)[0].lower()
    if word in ("w", "lw"):
        return "contains Quartz token 'W'", _NO_WORKING_DAY
    if word == "l":
        return "contains Quartz token 'L'", _NO_LAST_DAY
    if before == "0" and word[0] in "xob":
        return "contains a number that is not decimal", "write it with the digits 0-9"
    if before.isdigit() and word == "e":
        return "contains scientific notation", "write the number with the digits 0-9"
    return "contains names", _without_names(field, part)


def _without_step(field: Field, element: str) -> str | None:
    if not re.fullmatch(r"(\*|[0-9]{1,2}(-[0-9]{1,2})?)/[0-9]{1,2}", element):
        return None
    try:
        members, _ = _Element(field, element).read()
    except _UnknownError:
        return None
    return f"write {'*' if members == _every(field) else ','.join(map(str, sorted(members)))}"


def _without_names(field: Field, text: str) -> str:
    words = dict.fromkeys(re.findall(r"[A-Za-z]+", text))
    known = [f"{number} for {word}" for word in words if (number := _called(field, word)) is not None]
    return f"write {' and '.join(known) or 'numbers'}"


def without_seven(first: int | None) -> str:
    """The POSIX form of Sunday as 7, alone or at the end of a range that begins with `first`."""
    if first is None:
        return "write 0"
    return "write 0-6" if first == 0 else f"write 0,{_span(first, 6)}"


def without_wrap(field: Field, first: int, last: int) -> str:
    """The POSIX form of a range that begins after its end."""
    return f"write {_span(field.low, last)},{_span(first, field.high)} if it is meant to wrap around"


def _span(low: int, high: int) -> str:
    return f"{low}-{high}" if low < high else f"{low}"


# --- fields ----------------------------------------------------------------------------------------------------------

_FIVE: Final = [(name, "") for name in FIELDS]
_DROPPED: Final = frozenset({"second", "year"})


def _layout(words: list[str]) -> list[tuple[str, str]] | None:
    """The name of the field that each word is, and a note on how it was recognised or has to be read."""
    if len(words) == 5:
        return _FIVE
    quartz = [*_FIVE[:4], ("weekday", "quartz weekday")]
    if len(words) == 7:
        return [("second", "the first of seven fields"), *quartz, ("year", "the last of seven fields")]
    if len(words) != 6:
        return None
    if "?" in (words[2], words[4]):  # only day fields may be '?', so its position tells which fields they are
        return [*quartz, ("year", "the last of six fields (as in EventBridge)")]
    if "?" in (words[3], words[5]):
        return [("second", "the first of six fields (as in Quartz)"), *quartz]
    return [("second", "the first of six fields"), *_FIVE]


class _Values(NamedTuple):
    """The values of a field, and how POSIX writes them."""

    posix: str
    members: frozenset[int]
    starred: bool = False  # begins with '*' and restricts nevertheless: Vixie cron joins such day fields with AND

    @property
    def restricted(self) -> bool:
        """Whether the field leaves out any value, or counts as if it did (SPEC 6.2)."""
        return self.posix != "*"


class _UnknownError(Exception):
    """Not a dialect: wrong in every cron."""


class _Reading:
    """One pass over the fields, and the remarks about them."""

    def __init__(self) -> None:
        self.rewritten: list[Remark] = []
        self.obstacles: list[Remark] = []

    def drop(self, name: str, note: str, word: str, begin: int) -> None:
        """Leave out a field that POSIX does not have, if it restricts nothing."""
        end = begin + len(word)
        if word in (("0", "00") if name == "second" else ("*", "?")):
            self.rewritten.append(Remark(name, begin, end, f"{note} is the {name}, which cron does not have"))
        else:
            grain = "cron's grain is the minute" if name == "second" else "cron repeats every year"
            self.obstacles.append(Remark(name, begin, end, f"{note} is the {name}: {grain}"))

    def values(self, field: Field, word: str, begin: int, *, quartz: bool) -> _Values:
        """Read one field; raises _UnknownError if no cron takes it."""
        if word == "*":
            return _Values("*", _every(field))
        if word == "?":
            if field not in (DAY, WEEKDAY):
                raise _UnknownError
            self.rewritten.append(Remark(field.name, begin, begin + 1, "'?' is '*' in POSIX"))
            return _Values("*", _every(field))
        members: set[int] = set()
        unchanged, star = True, False
        position = begin
        for text in word.split(","):
            element = _Element(field, text, quartz=quartz)
            end = position + len(text)
            if obstacle := element.obstacle():
                self.obstacles.append(Remark(field.name, position, end, obstacle))
            else:
                read, remark = element.read()
                members |= read
                star |= text.startswith("*")
                if remark:
                    unchanged = False
                    self.rewritten.append(Remark(field.name, position, end, remark))
            position = end + 1
        if unchanged:
            return _Values(word, frozenset(members))
        if members == _every(field) and (star or field not in (DAY, WEEKDAY)):
            return _Values("*", frozenset(members))
        return _Values(posix_set(members), frozenset(members), starred=word.startswith("*"))

    def check_day_fields(
        self, found: dict[str, _Values], words: list[tuple[str, int]], layout: list[tuple[str, str]]
    ) -> None:
        """Note a day field such as */2 beside another: both must match in Vixie cron, where POSIX takes either."""
        if not (found["day"].restricted and found["weekday"].restricted):
            return
        for name in ("day", "weekday"):
            if found[name].starred:
                word, begin = words[[each for each, _ in layout].index(name)]
                reason = (
                    f"Vixie cron lets a {name} field that begins with '*' and the other day field both have to match; "
                    "in POSIX either is enough"
                )
                self.obstacles.append(Remark(name, begin, begin + len(word), reason))


def _can_match(found: dict[str, _Values]) -> bool:
    minutes, hours, days, months, weekdays = (sum(1 << value for value in found[name].members) for name in FIELDS)
    return can_match(
        pattern_of(
            minutes,
            hours,
            days if found["day"].restricted else None,
            months,
            weekdays if found["weekday"].restricted else None,
        )
    )


# --- elements --------------------------------------------------------------------------------------------------------


class _Element:
    """One element of a list; `quartz` weekdays count from 1 for Sunday."""

    def __init__(self, field: Field, text: str, *, quartz: bool = False) -> None:
        self.field = field
        self.text = text
        self.quartz = quartz

    def obstacle(self) -> str | None:
        """Why POSIX cannot say this; None if it may."""
        text, day, weekday = self.text.upper(), self.field is DAY, self.field is WEEKDAY
        for applies, pattern, reason in (
            (weekday, r"[0-9A-Z]+#[1-5]", _NO_COUNTING),
            (weekday, r"[0-9A-Z]*L", _NO_LAST_WEEKDAY),
            (day, r"(LW|[0-9]+W)", _NO_WORKING_DAY),
            (day, r"L(-[0-9]+)?", _NO_LAST_DAY),
            (True, r"H(\([0-9]+-[0-9]+\))?(/[0-9]+)?", "'H' lets Jenkins choose; choose a value yourself"),
            (True, r"[0-9]*~[0-9]*(/[0-9]+)?", "'~' is a random value; choose one yourself"),
        ):
            if applies and re.fullmatch(pattern, text):
                return reason + self._advice(text)
        return None

    def _advice(self, text: str) -> str:
        if self.field is DAY and text == "L":
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
            values = self._range(body, open_end=bool(slash), remarks=remarks)
        if slash:
            remarks.insert(0, "a step: the values one by one")
            if body.isdigit():
                remarks.append(f"from {body} to the end of the field; some crons read {body} alone")
        members = {value % 7 if self.field is WEEKDAY else value for value in values[::step]}
        return members, "; ".join(remarks) or None

    def _range(self, body: str, *, open_end: bool, remarks: list[str]) -> list[int]:
        field = self.field
        low_text, dash, high_text = body.partition("-")
        low = self._number(low_text, remarks)
        high = self._number(high_text, remarks) if dash else field.high if open_end else low
        if low > high:
            size = field.high - field.low + 1
            remarks.append("a range that wraps around")
            return [(value - field.low) % size + field.low for value in range(low, high + size + 1)]
        return list(range(low, high + 1))

    def _number(self, text: str, remarks: list[str]) -> int:
        field = self.field
        if re.fullmatch(r"[0-9]+", text):
            number = int(text)
            if self.quartz:
                if not 1 <= number <= 7:
                    raise _UnknownError
                remarks.append(f"{number} is {WEEKDAYS[number - 1]} where 1 is Sunday, as in Quartz")
                return number - 1
            if field is WEEKDAY and number == 7:
                remarks.append("7 is 0 in POSIX, Sunday")
                return 7
            if not field.low <= number <= field.high:
                raise _UnknownError
            return number
        named = _called(field, text)
        if named is None:
            raise _UnknownError
        remarks.append(f"{text} is {named}")
        return named


def _called(field: Field, word: str) -> int | None:
    """The value that a name stands for, whole or cut after three letters or more."""
    for value, name in enumerate(field.words, field.low):
        if len(word) >= 3 and name.lower().startswith(word.lower()):
            return value
    return None


def posix_set(members: Iterable[int]) -> str:
    """Numbers as POSIX writes them: stretches of three and more as ranges."""
    return ",".join(_elements(sorted(members)))


def _elements(values: list[int]) -> Iterator[str]:
    for first, last in spans(values):
        if last - first >= 2:
            yield f"{first}-{last}"
        else:
            yield from map(str, range(first, last + 1))


def _every(field: Field) -> frozenset[int]:
    return frozenset(range(field.low, field.high + 1))
