"""Wrong registrations, and the error that each of them is answered with: checks in their order, first failure wins.

The answers come from a second validator, below, which knows nothing but the order of the checks (SPEC 1.4) and the
texts (SPEC 1.5).
"""

import random
from collections.abc import Iterator
from typing import Any, Final

from conformance.calendar import UnreadableError, read
from conformance.vector_files import Group, Vector, VectorFile

SEED: Final = 1
MIXED: Final = 120

CALLBACK: Final = {"$callback": "function"}
MINUTE: Final = {"$duration": 60_000}


def good(name: Any = "a", cron: Any = "* * * * *", callback: Any = CALLBACK, delay: Any = MINUTE) -> list[Any]:
    """A correct registration, with changes."""
    return [name, cron, callback, delay]


_NOT_ARRAYS: Final[tuple[Any, ...]] = (None, "abcd", "", 5, 0, True, 1.5, {}, {"a": 1}, CALLBACK)
_NOT_ITEMS: Final[tuple[Any, ...]] = (
    None,
    "abcd",
    7,
    True,
    {},
    {"name": "a"},
    [],
    good()[:3],
    [*good(), 1],
    good()[:1],
    [[*good()]],
)
_WRONG_TYPES: Final[dict[str, tuple[Any, ...]]] = {
    "name": (None, 7, True, 1.5, ["a"], {}),
    "cron": (None, 5, False, ["*", "*", "*", "*", "*"], {}),
    "callback": (None, "print", 7, True, [], {}),
    "delay": (None, 0, 60_000, 1.5, True, "60", [], {}),
}
_WRONG_NAMES: Final = (
    "",
    {"$utf16": ["0000"]},
    {"$utf16": ["0061", "0000", "0062"]},
    {"$utf16": ["d800"]},
    {"$utf16": ["00e4", "dfff"]},
)
_FINE_NAMES: Final = (" ", "\t", "\n", "a b", "\u00e4", "\U0001f389", "'\";--", "x" * 1_000)
_WRONG_CRONS: Final = (
    "",
    "*",
    "*/5 * * * *",
    "60 * * * *",
    "0 24 * * *",
    "0 0 32 * *",
    "0 0 * 13 *",
    "0 0 * * 7",
    "0 0 30 2 *",
    "@daily",
)
_WRONG_DELAYS: Final = (-1, -60_000, -0.5, -1.5, -86_400_000)
_FINE_DELAYS: Final = (0, 1, 0.5, 86_400_000)


def vector_file() -> VectorFile:
    """The group `errors`."""
    return VectorFile(
        Group.ERRORS,
        "What initialize answers to registrations that are wrong in one way or in several.",
        "SPEC 1.2, 1.4, 1.5",
        list(vectors()),
        more={"seed": SEED},
    )


def vectors() -> Iterator[Vector]:
    """All of them."""
    for about, cases in _cases():
        for number, registrations in enumerate(cases, 1):
            yield {
                "id": f"{about.replace(' ', '-')}/{number}",
                "about": about,
                "registrations": registrations,
                "expected": expected(registrations),
            }


def _cases() -> Iterator[tuple[str, list[Any]]]:
    first = good(name="before")
    yield "the collection", [*_NOT_ARRAYS, [], [first]]
    yield "one registration instead of a list", [good()]
    wrong = [good(**{part: value}) for part, values in _WRONG_TYPES.items() for value in values]
    yield "shape", [[first, item] for item in (*_NOT_ITEMS, *wrong)]
    yield "name", [[first, good(name=name)] for name in _WRONG_NAMES]
    yield "fine name", [[first, good(name=name)] for name in _FINE_NAMES]
    yield (
        "duplicate",
        [
            [good(), good()],
            [good("x"), good("y"), good("x")],
            [good("a"), good("A"), good("a "), good(" a")],
            [good("\u00e9"), good("e\u0301")],
            [good("a"), good("b"), good("b"), good("a")],
        ],
    )
    yield "cron", [[first, good(cron=cron)] for cron in _WRONG_CRONS]
    yield "delay", [[first, good(delay={"$duration": delay})] for delay in (*_WRONG_DELAYS, *_FINE_DELAYS)]
    yield "several faults", list(_mixed())


def _mixed() -> Iterator[list[Any]]:
    """Several faults at once, in one registration or in several: only the order of the checks decides."""
    dice = random.Random(SEED)
    for _ in range(MIXED):
        items = []
        for index in range(dice.randint(1, 4)):
            name: Any = dice.choice((f"task {index}", f"task {index}", "same", ""))
            cron: Any = dice.choice(("* * * * *", "0 0 * * *", "60 * * * *", 5))
            callback: Any = dice.choice((CALLBACK, CALLBACK, CALLBACK, None))
            delay: Any = dice.choice((MINUTE, MINUTE, {"$duration": -1}, 60))
            items.append([name, cron, callback, delay])
        yield items


# --- the second validator --------------------------------------------------------------------------------------------


def expected(registrations: Any) -> dict[str, Any]:
    """The answer of initialize."""
    if not isinstance(registrations, list):
        return {"error": "RegistrationsNotArrayError", "message": "Registrations must be an array"}
    names: list[Any] = []
    for index, item in enumerate(registrations):
        fault = _fault(item, names)
        if fault is not None:
            details = fault.pop("details", {})
            return {**fault, "details": {"registrationIndex": index, **details}}
        names.append(item[0])
    return {"accepted": True}


def _fault(item: Any, names: list[Any]) -> dict[str, Any] | None:
    if not _has_shape(item):
        message = "Invalid registration shape: expected [string, string, function, Duration]"
        return {"error": "RegistrationShapeError", "message": message}
    name, cron, _, delay = item
    if name == "" or isinstance(name, dict):
        return {"error": "InvalidRegistrationError", "details": {"field": "name"}}
    if name in names:
        message = f'Task with name "{name}" is already scheduled'
        return {"error": "ScheduleDuplicateTaskError", "message": message, "details": {"taskName": name}}
    try:
        read(cron)
    except UnreadableError as fault:
        details = {"taskName": name, "expression": cron, "field": fault.field}
        return {"error": "CronExpressionInvalidError", "details": details}
    milliseconds = delay["$duration"]
    if milliseconds < 0:
        rounded = int(milliseconds) if milliseconds == int(milliseconds) else int(milliseconds) - 1
        details = {"taskName": name, "retryDelayMs": rounded}
        return {"error": "NegativeRetryDelayError", "message": "Retry delay must be non-negative", "details": details}
    return None


def _has_shape(item: Any) -> bool:
    if not isinstance(item, list) or len(item) != 4:
        return False
    name, cron, callback, delay = item
    is_name = isinstance(name, str) or (isinstance(name, dict) and "$utf16" in name)
    is_delay = isinstance(delay, dict) and "$duration" in delay
    return is_name and isinstance(cron, str) and callback == CALLBACK and is_delay
