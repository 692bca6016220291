"""Parsing and searching cron expressions, side by side in one process with cronsim and croniter."""

import importlib.util
import math
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duly

EXPRESSIONS = {
    # as in the table of docs/guide.md ...
    "0,15,30,45 * * * *": 500,
    "0 0 * * *": 500,
    "0 9 * * 1-5": 500,
    "0 0 * * 0": 500,
    "0 22,23,0-2 * * *": 500,
    # ... its example, the densest, and the sparse ones
    "30 2 * * 1-5": 500,
    "* * * * *": 500,
    "0 0 1 1 *": 50,
    "0 0 29 2 *": 20,
}
"""Expression, and how many occurrences are searched in a row."""

FROM = datetime(2024, 3, 29, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
REPEATS = 10
PARSED = 200


def measure(folder: Path, repeats: int = REPEATS) -> dict[str, float]:
    """Microseconds per call, the best of a few repeats, because disturbance only adds.

    The libraries take turns, so that a disturbance affects all of them.
    """
    figures: dict[str, float] = {}
    libraries = ["duly", *(name for name in ("cronsim", "croniter") if importlib.util.find_spec(name))]
    for expression, steps in EXPRESSIONS.items():
        for _, library in product(range(repeats), libraries):
            parse, search = _LIBRARIES[library]
            for figure, calls, call in (
                ("parse_us", PARSED, partial(_parse_often, parse, expression)),
                ("next_us", steps, partial(search, expression, steps)),
            ):
                key = f"{expression}|{library}|{figure}"
                figures[key] = min(figures.get(key, math.inf), _microseconds(call) / calls)
    return figures


def _microseconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - begun)


def _parse_often(parse: Callable[[str], object], expression: str) -> None:
    for _ in range(PARSED):
        parse(expression)


def _duly_parse(expression: str) -> object:
    return duly.parse_cron(expression)


def _duly_search(expression: str, steps: int) -> None:
    parsed, when = duly.parse_cron(expression), FROM
    for _ in range(steps):
        when = parsed.next_after(when)


def _cronsim_parse(expression: str) -> object:
    from cronsim import CronSim

    return CronSim(expression, FROM)  # it parses when it is made


def _cronsim_search(expression: str, steps: int) -> None:
    from cronsim import CronSim

    occurrences = CronSim(expression, FROM)
    for _ in range(steps):
        next(occurrences)


def _croniter_parse(expression: str) -> object:
    croniter: Any = importlib.import_module("croniter")
    return croniter.croniter(expression, FROM)


def _croniter_search(expression: str, steps: int) -> None:
    croniter: Any = importlib.import_module("croniter")
    # Without this limit it gives up on what is further away than fifty years.
    occurrences = croniter.croniter(expression, FROM, max_years_between_matches=200)
    for _ in range(steps):
        occurrences.get_next(datetime)


_LIBRARIES: dict[str, tuple[Callable[[str], object], Callable[[str, int], None]]] = {
    "duly": (_duly_parse, _duly_search),
    "cronsim": (_cronsim_parse, _cronsim_search),
    "croniter": (_croniter_parse, _croniter_search),
}
