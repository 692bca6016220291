"""What is imported from another scheduler, with everything that will be different, as a Python file for duly."""

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

from duly.core.cron import CronExpression, parse_cron
from duly.core.dialects import posix_set
from duly.core.fields import FIELDS
from duly.core.moments import zone_name
from duly.errors import InvalidCronExpressionError
from duly.insight.cron_words import in_words
from duly.insight.words import listed
from duly.insight.zone_changes import leaps
from duly.text import plain

AHEAD: Final = timedelta(days=366)
"""How far ahead changes of the clock are looked for."""


@dataclass(slots=True)
class Entry:
    """One task of the other scheduler; it is imported if it has an expression, a call, and no obstacle."""

    source: str
    name: str
    posix: str | None = None
    call: str | None = None
    notes: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)

    @property
    def imported(self) -> bool:
        """Whether it became a registration."""
        return self.posix is not None and self.call is not None and not self.obstacles

    def express(self, sets: dict[str, set[int]]) -> None:
        """Have the expression of five sets of values; both day fields restricted would mean something else."""
        full = {name: sets[name] == set(range(each.low, each.high + 1)) for name, each in FIELDS.items()}
        if not full["day"] and not full["weekday"]:
            self.obstacles.append(
                "day of month and weekday both have to match there; in POSIX cron either is enough: use one of them, "
                "and let the callback return unless the other one matches"
            )
        self.posix = " ".join("*" if full[name] else posix_set(sets[name]) for name in FIELDS)

    def meant_in(self, theirs: str, zone: tzinfo) -> None:
        """Tell of another zone, where that makes a difference: a minute of every hour is the same in most."""
        if theirs != zone_name(zone) and self.posix is not None and self.posix.split()[1:] != ["*"] * 4:
            self.notes.append(f"meant in the time zone {theirs}; duly reads it in {zone_name(zone)}: shift the hours")

    def checked(self) -> CronExpression | None:
        """The expression, if it is one."""
        if self.posix is None:
            return None
        try:
            return parse_cron(self.posix)
        except InvalidCronExpressionError as fault:
            self.obstacles.append(f"{fault.details['field']} field {fault.details['reason']}")
            return None


@dataclass(slots=True)
class Import:
    """All that was found: entries, what is different for all of them, and the Python that the calls need."""

    origin: str
    entries: list[Entry]
    differences: Sequence[str]
    imports: Sequence[str]
    helpers: str = ""

    @property
    def imported(self) -> list[Entry]:
        """Those that became registrations."""
        return [entry for entry in self.entries if entry.imported]


def finish(found: Import, zone: tzinfo, since: datetime) -> None:
    """Check expressions, make names unique, and tell what the coming changes of the clock will do to each."""
    taken: set[str] = set()
    for entry in found.entries:
        expression = entry.checked()
        if expression is not None and not entry.obstacles:
            entry.notes += _clock_changes(expression, zone, since)
        name, number = entry.name or "task", 1
        while entry.name in taken or not entry.name:
            number += 1
            entry.name = f"{name}-{number}"
        taken.add(entry.name)


def _clock_changes(expression: CronExpression, zone: tzinfo, since: datetime) -> list[str]:
    told = []
    for leap in leaps(expression, zone, since, since + AHEAD):
        minutes = [f"{minute:%H:%M}" for minute in leap.minutes]
        what = listed(minutes) if len(minutes) <= 3 else f"{minutes[0]} to {minutes[-1]}"
        day = f"{leap.minutes[0]:%Y-%m-%d}"
        if leap.kind == "skipped":
            told.append(f"on {day}, {what} does not exist in {zone_name(zone)}: duly runs nothing for it")
        else:
            told.append(f"on {day}, {what} occurs twice in {zone_name(zone)}: duly runs it the first time only")
    return told


def interval(entry: Entry, every: timedelta) -> None:
    """Have the expression of an interval, if cron can say it: one that divides an hour, a day or a week."""
    seconds = every.total_seconds()
    minutes = int(seconds // 60)
    if seconds <= 0 or seconds % 60:
        entry.obstacles.append(f"every {every} is no whole number of minutes, which is cron's grain")
        return
    hours, days = divmod(minutes, 60)[0], divmod(minutes, 1440)[0]
    if minutes < 60 and 60 % minutes == 0:
        entry.posix = f"{posix_set(range(0, 60, minutes)) if minutes > 1 else '*'} * * * *"
    elif minutes % 60 == 0 and hours < 24 and 24 % hours == 0:
        entry.posix = f"0 {posix_set(range(0, 24, hours)) if hours > 1 else '*'} * * *"
    elif minutes == 1440:
        entry.posix = "0 0 * * *"
    elif minutes == 7 * 1440:
        entry.posix = "0 0 * * 0"
    else:
        shown = f"{days} days" if days and minutes % 1440 == 0 else f"{minutes} minutes"
        entry.obstacles.append(
            f"every {shown} is an interval that cron cannot express: it divides neither an hour nor a day nor a week; "
            "choose an expression, or a shorter interval and a check in the callback"
        )
        return
    entry.notes.append(f"an interval of {every} counted from the last start; cron counts by the wall clock")


def literal(value: Any) -> str | None:
    """A value as Python source; None if its source does not give the same value again."""
    text = repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return text if same else None


def identifier(text: str) -> str:
    """A task's name from whatever something is called."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:60]


# --- the file --------------------------------------------------------------------------------------------------------


def python_source(found: Import, retry_delay: timedelta) -> str:
    """The Python file: it runs as it is, and says what is different."""
    blocks = [_docstring(found), *_import_blocks([*found.imports, "from datetime import timedelta"])]
    seconds = retry_delay.total_seconds()
    amount = f"seconds={seconds:g}" if seconds % 60 else f"minutes={seconds / 60:g}"
    blocks.append(f"RETRY_DELAY = timedelta({amount})  # after a failure; chosen by the import, choose your own")
    if found.helpers:
        blocks.append("\n" + found.helpers.strip("\n") + "\n")
    blocks.append("registrations = [\n" + "".join(_lines(found.entries)) + "]")
    return "\n\n".join(blocks) + "\n"


def _import_blocks(lines: Iterable[str]) -> list[str]:
    """Lines of imports as people order them: the standard library first, one line for each module."""
    modules = [line for line in lines if line.startswith("import ")]
    names: dict[str, set[str]] = {}
    for line in set(lines) - set(modules):
        module, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(module, set()).add(name)
    standard, others = sorted(modules), list[str]()
    for module in sorted(names):
        known = module.split(".")[0] in sys.stdlib_module_names
        (standard if known else others).append(f"from {module} import {', '.join(sorted(names[module]))}")
    return ["\n".join(block) for block in (standard, others) if block]


def _docstring(found: Import) -> str:
    lines = [f"Registrations for duly, imported from {_quiet(found.origin)}.", ""]
    lines.append("What is different for all of them:")
    for difference in found.differences:
        lines += _wrapped(f"- {difference}", "", "  ")
    left = [entry for entry in found.entries if not entry.imported]
    if left:
        lines += ["", f"NOT IMPORTED, see below: {', '.join(_quiet(entry.name) for entry in left)}."]
    return '"""' + "\n".join(lines) + '\n"""'


def _lines(entries: Iterable[Entry]) -> Iterable[str]:
    for entry in entries:
        head = "" if entry.imported else "NOT IMPORTED: "
        yield "".join(f"{line}\n" for line in _wrapped(f"{head}{plain(entry.source)}", "    # ", "    #   "))
        for text in entry.obstacles + entry.notes:
            yield "".join(f"{line}\n" for line in _wrapped(f"- {plain(text)}", "    #   ", "    #     "))
        if entry.imported:
            assert entry.posix is not None
            yield f"    # {in_words(parse_cron(entry.posix))}\n"
            yield f"    ({entry.name!r}, {entry.posix!r}, {entry.call}, RETRY_DELAY),\n"


def _wrapped(text: str, first: str, later: str) -> list[str]:
    """Lines of at most 110 columns; a long word stays whole."""
    lines, line = [], first
    for word in text.split(" "):
        if len(line) + len(word) > 110 and line.strip(" #"):
            lines.append(line.rstrip())
            line = later
        line += word + " "
    return [*lines, line.rstrip()]


def _quiet(text: str) -> str:
    """Text that cannot end a docstring."""
    return plain(text).replace("\\", "/").replace('"', "'")


# --- JSON ------------------------------------------------------------------------------------------------------------


def document(found: Import) -> dict[str, Any]:
    """What was found, as JSON has it."""
    return {
        "origin": found.origin,
        "differences": list(found.differences),
        "entries": [
            {
                "source": entry.source,
                "task": entry.name,
                "imported": entry.imported,
                "expression": entry.posix if entry.imported else None,
                "words": in_words(parse_cron(entry.posix)) if entry.imported and entry.posix is not None else None,
                "notes": entry.notes,
                "obstacles": entry.obstacles,
            }
            for entry in found.entries
        ],
    }
