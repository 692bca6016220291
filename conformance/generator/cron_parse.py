"""Texts that are expressions, and texts that are not: with the field to blame and the reason, or with their five sets.

The answers come from `conformance.calendar.read`. Each vector has a `rule`: what an implementation that answers
otherwise does, which decides whether that is its dialect or a defect (`conformance.deviations`).
"""

import random
from collections.abc import Callable, Iterator
from typing import Final

from conformance.calendar import FIELDS, UnreadableError, read
from conformance.vector_files import Group, Vector, VectorFile

SEED: Final = 1
RANDOM_VALID: Final = 150
RANDOM_BROKEN: Final = 150

_STEPS: Final = (
    "*/5 * * * *", "0-30/10 * * * *", "5/15 * * * *", "0 */2 * * *", "0 0 */2 * *", "0 0 * */3 *", "0 0 * * */2",
    "*/1 * * * *", "0 0 1-31/7 * *", "0,*/20 * * * *",
)  # fmt: skip
_NAMES: Final = (
    "0 0 * jan *", "0 0 * JAN *", "0 0 * * mon", "0 0 * * MON-FRI", "0 0 * * Sun,Sat", "0 0 1 JAN-MAR *",
    "0 0 * january *", "0 0 * * monday",
)  # fmt: skip
_MACROS: Final = (
    "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@reboot", "@every 5m",
)  # fmt: skip
_QUARTZ: Final = (
    "0 0 ? * *", "0 0 * * ?", "0 0 L * *", "0 0 * * 5L", "0 0 15W * *", "0 0 LW * *", "0 0 * * 1#2", "0 0 L-3 * *",
)  # fmt: skip
_JENKINS: Final = ("H * * * *", "H/15 * * * *", "H(0-29) * * * *", "~ * * * *", "0~30 * * * *")
_SEVEN: Final = ("0 0 * * 7", "0 0 * * 5-7", "0 0 * * 0,7", "0 0 * * 1,2,7")
_WRAP: Final = ("50-10 * * * *", "0 22-2 * * *", "0 0 25-5 * *", "0 0 * 11-2 *", "0 0 * * 5-1", "5-4 * * * *")
_STAR: Final = ("*,5 * * * *", "5,* * * * *", "0 *,1 * * *", "** * * * *", "0 0 *-5 * *", "0 0 1-* * *", "0 0 * * *,1")
_MORE_FIELDS: Final = ("0 0 0 * * *", "* * * * * *", "0 0 12 * * ? 2025", "* * * * * * *", "0 0 * * * 2025")
_FEWER_FIELDS: Final = ("*", "* *", "* * *", "* * * *", "0 0 * *", "*****", "0,0,*,*,*", "0")
_EMPTY: Final = ("", " ", "\t", " \t ")
_SEPARATORS: Final = (
    "0\n0 * * *", "0 0 * * *\n", "0 0\u00a0* * *", "0 0 * * *\r", "0\v0 * * *", "0\u20030 * * *", "\ufeff0 0 * * *",
    "0 0\u200b* * *", "0\f0 * * *", "\n0 0 * * *",
)  # fmt: skip
_ODD_NUMBERS: Final = (
    "\u0663 * * * *", "\uff15 * * * *", "+5 * * * *", "0x1 * * * *", "1e1 * * * *", "1_0 * * * *", "5.0 * * * *",
    "1.5 * * * *", "\u0967 * * * *", "\u2460 * * * *", "0 +1 * * *", "0 0 0x1 * *", "0 0 1 \u0661 *", "0b1 * * * *",
    "0 0 * * +1", "\u00b2 * * * *", "1\u0663 * * * *",
)  # fmt: skip
_MALFORMED: Final = (
    ", * * * *", "5, * * * *", ",5 * * * *", "1,,2 * * * *", "- * * * *", "5- * * * *", "-5 * * * *", "1--2 * * * *",
    "1-2-3 * * * *", "a * * * *", "0 b * * *", "0 0 ! * *", "0 0 1;2 * *", "0 0 * # *", "0 0 (1) * *", "0 0 * * $",
    "5/ * * * *", "*/0 * * * *", "*/ * * * *", "/5 * * * *", "0 0 1/-1 * *", "0 0 foo * *", "0 0 * foo *",
    "0 0 * * foo", "0 0 * * 1-", "0 1, * * *", "0 0 * 1,,2 *", "0 0 -1 * *", "\u0000 * * * *", "'0' 0 * * *",
    "0 0 \U0001f600 * *", "%d * * * *", "0 0 * * &",
)  # fmt: skip
_OUT_OF_RANGE: Final = (
    "60 * * * *", "99 * * * *", "0 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 0 *", "0 0 * 13 *", "0 0 * * 8",
    "0-60 * * * *", "0 0-24 * * *", "0 0 0-5 * *", "0 0 28-32 * *", "0 0 * 0-3 *", "0 0 * 10-13 *", "0 0 * * 6-8",
    "5,60 * * * *", "100000000000000000000 * * * *", "0 0 1,32 * *", "0 0 00 * *", "9" * 2_000 + " * * * *",
    "0 0 * 1-99 *",
)  # fmt: skip
_NEVER: Final = (
    "0 0 30 2 *", "0 0 31 2 *", "0 0 30-31 2 *", "0 0 31 4 *", "0 0 31 4,6,9,11 *", "0 0 31 2,4,6,9,11 *",
    "* * 30,31 2 *",
)  # fmt: skip
_SEVERAL_FAULTS: Final = (
    "60 24 * * *", "a b c d e", "0 24 32 * *", "0 0 32 13 *", "0 0 * 13 8", "0 0 30 2 8", "60 0 30 2 *", "0 0 , , ,",
)  # fmt: skip

_POSIX: Final = (
    "* * * * *", "0 0 * * *", "0 0 1 1 *", "59 23 31 12 6", "0,30 * * * *", "0-59 * * * *", "1-5,10-15,20 * * * *",
    "0 0-23 * * *", "0 9-17 * * 1-5", "0 0 1-31 * *", "0 0 * 1-12 *", "0 0 * * 0-6", "30 4 1,15 * 5", "0 0 29 2 *",
    "0 0 31 1,3,5,7,8,10,12 *", "5,5,5 * * * *", "5-5 * * * *", "20,10 * * * *", "1-5,3-8 * * * *", "0 0 1 1 0",
    "0 12 * * 0", "0 0 31 2,3 *", ",".join(map(str, range(60))) + " * * * *",
)  # fmt: skip
_DAY_OR_WEEKDAY: Final = ("0 0 31 4 1", "0 0 30 2 0", "0 12 30,31 2 1-5")
_BLANKS: Final = ("0\t0\t*\t*\t*", "0  0  *  *  *", "0 \t 0 * * *", "0 0 *    * *")
_LEADING_ZEROS: Final = (
    "00 00 * * *", "05 09 01 02 *", "007 * * * *", "0 0 * * 00", "00-09 * * * *", "0 0 01,015 * *",
    "0" * 2_000 + "5 * * * *",
)  # fmt: skip
_OUTER_BLANKS: Final = (" 0 0 * * *", "0 0 * * * ", "\t0 0 * * *\t", "   0 0 * * *   ")

_TABLE: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("posix", _POSIX),
    ("day-or-weekday", _DAY_OR_WEEKDAY),
    ("blanks", _BLANKS),
    ("leading-zeros", _LEADING_ZEROS),
    ("outer-blanks", _OUTER_BLANKS),
    ("step", _STEPS),
    ("name", _NAMES),
    ("macro", _MACROS),
    ("quartz", _QUARTZ),
    ("jenkins", _JENKINS),
    ("seven", _SEVEN),
    ("wrap", _WRAP),
    ("star-in-list", _STAR),
    ("more-fields", _MORE_FIELDS),
    ("separator", _SEPARATORS),
    ("never", _NEVER),
    ("fewer-fields", (*_EMPTY, *_FEWER_FIELDS)),
    ("odd-number", _ODD_NUMBERS),
    ("malformed", _MALFORMED),
    ("out-of-range", _OUT_OF_RANGE),
)


def vector_file() -> VectorFile:
    """The group `cron-parse`."""
    return VectorFile(
        Group.CRON_PARSE,
        "Texts that are cron expressions, with their five sets, and texts that are not, with the field to blame and "
        "the reason.",
        "SPEC 6.1 to 6.3",
        list(vectors()),
        more={"seed": SEED},
    )


def vectors() -> Iterator[Vector]:
    """All of them."""
    for rule, texts in _TABLE:
        for number, text in enumerate(texts, 1):
            yield vector(f"{rule}/{number}", rule, text)
    # The leftmost bad field is named; which of its own faults is the reason is not specified.
    for number, text in enumerate(_SEVERAL_FAULTS, 1):
        yield vector(f"leftmost/{number}", "malformed", text, with_reason=False)
    dice = random.Random(SEED)
    for number, text in enumerate(_different(_random_valid, RANDOM_VALID, dice), 1):
        yield vector(f"random/{number}", "posix", text)
    for number, text in enumerate(_different(_random_broken, RANDOM_BROKEN, dice), 1):
        yield vector(f"broken/{number}", "malformed", text, with_reason=False)


def vector(name: str, rule: str, text: str, *, with_reason: bool = True) -> Vector:
    """One vector: the text, and what the second parser says about it."""
    head = {"id": name, "rule": rule, "expression": text}
    try:
        found = read(text)
    except UnreadableError as fault:
        reason = {"reason": fault.reason} if with_reason else {}
        return {**head, "valid": False, "field": fault.field, **reason}
    sets = {field: sorted(members) for (field, _, _), members in zip(FIELDS, found.sets, strict=True)}
    return {**head, "valid": True, "sets": sets}


# --- chance ----------------------------------------------------------------------------------------------------------


def _different(make: Callable[[random.Random], str | None], number: int, dice: random.Random) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < number:
        if (text := make(dice)) is not None:
            found[text] = None
    return list(found)


def _random_valid(dice: random.Random) -> str | None:
    text = " ".join(_random_field(dice, low, high) for _, low, high in FIELDS)
    return text if _is_valid(text) else None


def _random_field(dice: random.Random, low: int, high: int) -> str:
    if dice.random() < 0.4:
        return "*"
    elements = []
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        first, last = sorted((dice.randint(low, high), dice.randint(low, high)))
        elements.append(str(first) if dice.random() < 0.6 else f"{first}-{last}")
    return ",".join(elements)


def _random_broken(dice: random.Random) -> str | None:
    """A valid text in which one character was changed, so that it is no text of any cron any more."""
    text = _random_valid(dice)
    if text is None:
        return None
    at = dice.randrange(len(text))
    if text[at] == " ":
        return None
    text = text[:at] + dice.choice("!$%&=<>;:_xyz.") + text[at + 1 :]
    return None if _is_valid(text) else text


def _is_valid(text: str) -> bool:
    try:
        read(text)
    except UnreadableError:
        return False
    return True
