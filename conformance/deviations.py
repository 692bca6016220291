"""Every kind of deviation, and what it is: a difference from our specification by design, or a defect by any reading.

A deviation is a *defect* only where POSIX, the calendar or the clock decide, and no documented cron behaves so: a text
that no cron takes, an occurrence that is left out, a local time that does not exist. Where documented crons differ, or
our specification alone decides, it is *by design*. A project that documents its own reading of a rule is taken at its
word: `DOCUMENTED` has the place.
"""

from enum import Enum
from typing import Final, NamedTuple


class Class(Enum):
    """The class of a deviation."""

    DESIGN = "by design"
    DEFECT = "defect"


class Kind(NamedTuple):
    """One way to deviate: what the implementation does, which class that is, and why."""

    does: str
    is_a: Class
    because: str


_OURS: Final = "our specification alone decides this"
_DIALECT: Final = (
    "documented by other crons; ours has numbers, lists, ranges and `*` alone ([6.1](specification.md#61))"
)
_POSIX: Final = "POSIX `crontab`"

KINDS: Final[dict[str, Kind]] = {
    # cron-parse
    "refuses-posix": Kind("refuses an expression of POSIX", Class.DEFECT, _POSIX),
    "refuses-blanks": Kind(
        "refuses tabs, or several blanks, between fields", Class.DEFECT, "POSIX: blanks separate fields"
    ),
    "refuses-day-or-weekday": Kind(
        "refuses a day that its months lack, although the weekday matches", Class.DEFECT, "POSIX: either is enough"
    ),
    "refuses-leading-zeros": Kind("refuses leading zeros", Class.DESIGN, "POSIX does not speak of them"),
    "refuses-outer-blanks": Kind("refuses blanks before or after the fields", Class.DESIGN, "POSIX speaks of lines"),
    "accepts-step": Kind("accepts steps", Class.DESIGN, _DIALECT),
    "accepts-name": Kind("accepts names of months and weekdays", Class.DESIGN, _DIALECT),
    "accepts-macro": Kind("accepts macros", Class.DESIGN, _DIALECT),
    "accepts-quartz": Kind("accepts marks of Quartz: `?`, `L`, `W`, `#`", Class.DESIGN, _DIALECT),
    "accepts-jenkins": Kind("accepts values that are chosen for you: `H`, `~`", Class.DESIGN, _DIALECT),
    "accepts-seven": Kind("accepts 7 for Sunday", Class.DESIGN, _DIALECT),
    "accepts-wrap": Kind("accepts ranges that run backwards", Class.DESIGN, _DIALECT),
    "accepts-star-in-list": Kind("accepts `*` beside other elements", Class.DESIGN, _DIALECT),
    "accepts-more-fields": Kind("accepts fields for seconds or years", Class.DESIGN, _DIALECT),
    "accepts-separator": Kind(
        "accepts separators that are neither space nor tab", Class.DESIGN, "ours takes space and tab alone"
    ),
    "accepts-never": Kind(
        "accepts an expression that never matches", Class.DESIGN, "ours refuses it ([6.3](specification.md#63))"
    ),
    "accepts-fewer-fields": Kind("accepts fewer than five fields", Class.DEFECT, _POSIX),
    "accepts-odd-number": Kind(
        "accepts numbers of another form: signs, underscores, digits of other scripts", Class.DEFECT, "no cron has them"
    ),
    "accepts-malformed": Kind("accepts malformed text", Class.DEFECT, "no cron has it"),
    "accepts-out-of-range": Kind("accepts a value outside of its field's range", Class.DEFECT, _POSIX),
    "another-set": Kind("reads other values from a field", Class.DEFECT, _POSIX),
    "another-field": Kind("blames another field", Class.DESIGN, _OURS),
    "another-reason": Kind("names another reason", Class.DESIGN, _OURS),
    # calendar
    "calendar-plain": Kind("finds other occurrences of plain fields", Class.DEFECT, _POSIX),
    "calendar-strictly-after": Kind("does not begin after the moment asked about", Class.DEFECT, "the question"),
    "calendar-month-lengths": Kind("finds other days at the end of months", Class.DEFECT, "the calendar"),
    "calendar-leap-day": Kind("finds other leap days", Class.DEFECT, "the calendar"),
    "calendar-weekday": Kind("reads weekday numbers otherwise than 0 for Sunday", Class.DEFECT, _POSIX),
    "calendar-either-day": Kind(
        "does not take either day field where both are restricted", Class.DEFECT, "POSIX: either is enough"
    ),
    "calendar-month-and-either-day": Kind(
        "joins month and day fields otherwise",
        Class.DESIGN,
        "POSIX, crontab(5) and ours ([6.2](specification.md#62)) differ",
    ),
    "calendar-range-restricts": Kind(
        "does not count a range over all days as a restriction",
        Class.DESIGN,
        "crons differ; ours: [6.2](specification.md#62)",
    ),
    "no-answer-either-day": Kind(
        "finds no occurrence of a day that its month lacks, although the weekday matches",
        Class.DEFECT,
        "POSIX: either is enough",
    ),
    # transitions
    "nonexistent-time": Kind(
        "names a local time that does not exist: the clock skips it, or has another offset then",
        Class.DEFECT,
        "the clock",
    ),
    "not-increasing": Kind(
        "names an instant twice, or one that is not after the moment asked about", Class.DEFECT, "the clock"
    ),
    "lost": Kind("leaves out a minute that exists and that the expression names", Class.DEFECT, "the clock"),
    "unnamed": Kind("names a minute that the expression does not name", Class.DEFECT, "the clock"),
    "moved": Kind(
        "moves a skipped time of day to a minute after the gap",
        Class.DESIGN,
        "Debian's cron(8) does; ours does not ([2.2](specification.md#22))",
    ),
    "both-copies": Kind(
        "runs a time of day twice when the clock is set back",
        Class.DESIGN,
        "cron(8) of FreeBSD does with `-o`, Debian's does not; nor does ours ([2.3](specification.md#23))",
    ),
    "every-copy": Kind(
        "runs every minute or every hour through the repeated hour too",
        Class.DESIGN,
        "Debian's cron(8) does; ours does not ([2.3](specification.md#23))",
    ),
    "second-copy": Kind(
        "names the second copy of a repeated time, and not the first",
        Class.DESIGN,
        "ours: the first ([2.3](specification.md#23))",
    ),
    # all of them
    "no-answer": Kind(
        "raises, finds fewer occurrences than asked for, or none that is an instant", Class.DEFECT, "they exist"
    ),
    "another-start": Kind("starts otherwise", Class.DESIGN, _OURS),
    "another-verdict": Kind("judges a trace otherwise", Class.DESIGN, _OURS),
    "another-error": Kind("answers a wrong registration otherwise", Class.DESIGN, _OURS),
}

GRAVEST_FIRST: Final = (
    "no-answer", "nonexistent-time", "not-increasing", "lost", "unnamed",
    "second-copy", "both-copies", "every-copy", "moved",
)  # fmt: skip
"""Of several deviations in one answer, the one that is reported."""

_EVERY_FIELD: Final = "its user guide says that a cron trigger satisfies the conditions of every field"
_ALL_THREE: Final = "the docstring of `crontab` says that day of week, day of month and month must all match"

DOCUMENTED: Final[dict[tuple[str, str], str]] = {
    ("apscheduler", "calendar-either-day"): _EVERY_FIELD,
    ("apscheduler", "no-answer-either-day"): _EVERY_FIELD,
    ("celery", "calendar-either-day"): _ALL_THREE,
    ("celery", "no-answer-either-day"): _ALL_THREE,
    ("celery", "refuses-day-or-weekday"): _ALL_THREE,
}
"""Where a project documents its own reading of a rule that POSIX decides: then it is by design."""

REMARKS: Final[dict[tuple[str, str], str]] = {
    ("apscheduler", "calendar-weekday"): (
        "the docstring of `from_crontab` calls it a historical mistake that is kept for compatibility"
    ),
}
"""Notes for a reader about a deviation."""


def class_of(implementation: str, kind: str) -> Class:
    """The class of a deviation of one implementation."""
    return Class.DESIGN if (implementation, kind) in DOCUMENTED else KINDS[kind].is_a
