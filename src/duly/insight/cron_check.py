"""Whether a text is POSIX cron, what it says, and what to write instead."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from duly.core.cron import CronExpression, parse_cron
from duly.core.dialects import Remark, translate
from duly.core.fields import FIELDS
from duly.errors import InvalidCronExpressionError
from duly.insight.cron_words import in_words

_SEARCHED_MAX: Final = 4000
"""Characters of a text, and half as many of a field, in which the place of an error is looked for."""


@dataclass(frozen=True, slots=True)
class CronFault:
    """Why a text is not POSIX cron, and where."""

    field: str
    """`minute`, `hour`, `day`, `month`, `weekday`, or `expression` for the whole."""

    reason: str  #: what is wrong with the field
    hint: str | None  #: what to do about it
    begin: int  #: where the wrong part begins in the text, from 0
    end: int  #: where it ends


@dataclass(frozen=True, slots=True)
class CronCheck:
    """The findings about one text."""

    expression: str
    """The text."""

    valid: bool  #: whether it is POSIX cron that can match
    words: str | None
    """The expression in words, if it is valid."""

    warnings: Sequence[str]
    """Effects that many would not expect, if it is valid."""

    error: CronFault | None  #: what is wrong with it, if it is not valid
    posix: str | None
    """POSIX cron that means the same, if it is cron of another dialect."""

    posix_words: str | None  #: what `posix` says, in words
    rewritten: Sequence[Remark]
    """The differences between the text and `posix`."""

    obstacles: Sequence[Remark]
    """Why there is no POSIX cron that means the same."""

    parsed: CronExpression | None = field(repr=False)  #: the expression, if it is valid

    @property
    def advice(self) -> str | None:
        """The advice about an invalid text, in a line."""
        if self.posix is not None:
            return f"write '{self.posix}'"
        if self.obstacles:
            return self.obstacles[0].text
        return self.error.hint if self.error is not None else None


@dataclass(frozen=True, slots=True)
class TaskWarning:
    """An effect of a task's expression that many would not expect."""

    task: str
    expression: str
    text: str


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """A target whose registrations are all valid."""

    target: str
    tasks: int
    expressions: int
    """How many different ones there are."""

    warnings: Sequence[TaskWarning]


def examine_tasks(target: str, tasks: Sequence[tuple[str, CronExpression]]) -> TargetCheck:
    """Look at the expressions of a target, each once, for what may surprise; it is named with its first task."""
    first: dict[CronExpression, str] = {}
    for name, expression in tasks:
        first.setdefault(expression, name)
    warnings = [
        TaskWarning(name, expression.text, warning)
        for expression, name in first.items()
        for warning in examine(expression.text).warnings
    ]
    return TargetCheck(target, len(tasks), len(first), warnings)


def examine(text: str) -> CronCheck:
    """Read a text; if that fails, find the place, the reason, and the POSIX cron that means the same.

    Parameters:
        text: the text.

    Returns:
        What there is to say about it. A text that is wrong raises nothing.
    """
    try:
        parsed = parse_cron(text)
    except InvalidCronExpressionError as error:
        where, reason, hint = error.details["field"], error.details["reason"], error.details.get("hint")
        begin, end = _place(text, where)
        translation = translate(text)
        posix = None if translation is None else translation.posix
        return CronCheck(
            expression=text,
            valid=False,
            words=None,
            warnings=(),
            error=CronFault(where, reason, hint, begin, end),
            posix=posix,
            posix_words=None if posix is None else in_words(parse_cron(posix)),
            rewritten=() if translation is None else translation.rewritten,
            obstacles=() if translation is None else translation.obstacles,
            parsed=None,
        )
    return CronCheck(text, True, in_words(parsed), _warnings(parsed), None, None, None, (), (), parsed)


def _warnings(expression: CronExpression) -> list[str]:
    _, _, day, _, weekday = expression.text.split()
    if day == "*" or weekday == "*":
        return []
    if len(expression.days) == 31 or len(expression.weekdays) == 7:
        return ["both day fields are restricted, so either is enough, and one of them is every day"]
    return ["both day fields are restricted, so either is enough: day of the month or weekday"]


# --- the place of an error -------------------------------------------------------------------------------------------


def _place(text: str, where: str) -> tuple[int, int]:
    """The first element of a field that cannot be read, as offsets in the text."""
    words = [(each.start(), each.end()) for each in re.finditer(r"[^ \t]+", text[:_SEARCHED_MAX])]
    if where == "expression" or len(words) < 5:
        return _place_in_expression(text, words)
    index = list(FIELDS).index(where)
    begin, end = words[index]
    for element in text[begin : min(end, begin + _SEARCHED_MAX // 2)].split(","):
        if not _is_readable(index, element):
            for bound in re.finditer(r"[0-9]+", element) if re.fullmatch(r"[0-9]+-[0-9]+", element) else ():
                if not _is_readable(index, bound.group()):
                    return begin + bound.start(), begin + bound.end()
            # Where there is nothing between two commas, the first of them is one too many.
            first = begin == words[index][0]
            return (begin, begin + max(1, len(element))) if element or first else (begin - 1, begin)
        begin += len(element) + 1
    return words[index]  # each element can be read, and together they never match


def _place_in_expression(text: str, words: list[tuple[int, int]]) -> tuple[int, int]:
    if not words:
        return 0, 1
    if text[words[0][0]] == "@":
        return words[0][0], words[-1][1]
    if len(words) > 5:  # the fields that are too many
        return words[5][0], words[-1][1]
    return words[-1][1] + 1, words[-1][1] + 2  # where the next field would stand


def _is_readable(index: int, element: str) -> bool:
    fields = ["*"] * len(FIELDS)
    fields[index] = element
    try:
        parse_cron(" ".join(fields))
    except InvalidCronExpressionError:
        return False
    return element != "*"
