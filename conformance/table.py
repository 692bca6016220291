"""docs/conformance.md from the committed results: who deviates where, in which way, with one example each."""

from collections.abc import Iterator
from typing import Any, Final

from conformance.deviations import DOCUMENTED, KINDS, REMARKS, Class, class_of
from conformance.results import ImplementationResult
from conformance.vector_files import Group, Vector, load

_HEAD: Final = """\
# Who deviates where

[conformance/](../conformance/README.md) holds vectors about cron expressions, occurrences, scheduling, traces and
errors, which anybody may use, and a runner that holds implementations against them. `make conformance` writes this
page: duly and what people use today, against the [specification](specification.md). {about_cron} vectors concern
expressions and occurrences, and {ours} the rest. Their answers were computed by other code than duly's;
[the kit](../conformance/README.md#where-the-answers-come-from) says by which, and what the two share.

Two things look alike in such a table, and are not. A deviation is **by design** where documented crons differ, where
the project documents its own reading, or where our specification alone decides: names and steps are another dialect,
not a mistake. It is a **defect** where POSIX, the calendar or the clock decide and no documented cron behaves so. The
tz database is {tz_database}.

Each cell has three numbers: vectors that agree, deviations by design, defects. — stands where a group, or a number of
its vectors, does not concern the implementation.
"""

_GROUPS: Final = {
    Group.CRON_PARSE: "reading expressions",
    Group.CALENDAR: "occurrences, away from clock changes",
    Group.TRANSITIONS: "occurrences at clock changes",
    Group.SCENARIOS: "scheduling scenarios",
    Group.TRACES: "verdicts on traces",
    Group.ERRORS: "wrong registrations",
}

_HOW: Final = {
    "duly": "`parse_cron`, the scheduler on `duly.testing.SimulatedHost`, `duly.formal.check`",
    "croniter": "`croniter(expression, start).get_next(datetime)`",
    "cronsim": "`CronSim(expression, start)`",
    "apscheduler": "APScheduler 3, `CronTrigger.from_crontab`",
    "celery": "`crontab.from_string`, asked as beat asks: `is_due`, then sleep as long as it says",
    "schedule": "its calls, where they can say what an expression says, run as `run_pending` does",
}


def page(results: list[ImplementationResult], tz_database: str) -> str:
    """The page."""
    about_cron = sum(len(load(group).vectors) for group in (Group.CRON_PARSE, Group.CALENDAR, Group.TRANSITIONS))
    ours = sum(len(load(group).vectors) for group in (Group.SCENARIOS, Group.TRACES, Group.ERRORS))
    lines = [_HEAD.format(about_cron=f"{about_cron:,}", ours=f"{ours:,}", tz_database=tz_database)]
    lines += _overview(results)
    for result in results:
        lines += ["", f"## {result.name}", "", *_details(result)]
    return "\n".join(lines) + "\n"


def _overview(results: list[ImplementationResult]) -> Iterator[str]:
    yield "| | " + " | ".join(f"[{each.name}](#{each.name})" for each in results) + " |"
    yield "|---" * (len(results) + 1) + "|"
    for group, title in _GROUPS.items():
        yield f"| {title} | " + " | ".join(_cell(each, group) for each in results) + " |"


def _cell(result: ImplementationResult, group: Group) -> str:
    found = result.groups[group]
    if found.not_applicable == len(found.signs):
        return "—"
    counts = dict.fromkeys(Class, 0)
    for kind in found.examples:
        counts[class_of(result.name, kind)] += found.count(kind)
    left_out = f" ({found.not_applicable:,} —)" if found.not_applicable else ""
    return f"{found.count(None):,} · {counts[Class.DESIGN]:,} · {counts[Class.DEFECT]:,}{left_out}"


def _details(result: ImplementationResult) -> Iterator[str]:
    yield f"{_HOW[result.name]}; {_version(result)}."
    yield ""
    rows = [(group, kind) for group, found in result.groups.items() for kind in found.examples]
    if not rows:
        yield "No deviations."
        return
    yield "| it | class | vectors | smallest example | why this class |"
    yield "|---|---|---|---|---|"
    for group, kind in sorted(rows, key=lambda row: class_of(result.name, row[1]) is Class.DESIGN):
        found = result.groups[group]
        example = found.examples[kind]
        vector = next(each for each in load(group).vectors if each["id"] == example.vector)
        because = DOCUMENTED.get((result.name, kind)) or KINDS[kind].because
        if remark := REMARKS.get((result.name, kind)):
            because = f"{because}; {remark}"
        yield (
            f"| {KINDS[kind].does} | {_class(result.name, kind)} | {found.count(kind):,} | "
            f"{_example(group, vector, example.answered)} | {because} |"
        )


def _version(result: ImplementationResult) -> str:
    return result.version if result.name == "duly" else f"version {result.version}"


def _class(name: str, kind: str) -> str:
    return "**defect**" if class_of(name, kind) is Class.DEFECT else "by design"


def _example(group: Group, vector: Vector, answered: str) -> str:
    if group is Group.CRON_PARSE:
        return f"{_code(vector['expression'])}: {_short(answered)}"
    if group in (Group.CALENDAR, Group.TRANSITIONS):
        expected, found = _first_difference(vector["next"], answered.split(", "))
        return f"{_code(vector['expression'])} in {vector['zone']} after {vector['from']}: {found}, and not {expected}"
    return f"{vector['id']}: {_short(answered)}"


def _first_difference(expected: list[str], found: list[str]) -> tuple[str, str]:
    for one, other in zip(expected, found, strict=False):
        if one != other:
            return one, _short(other)
    return expected[-1], _short(found[-1])


def _short(text: Any) -> str:
    words = " ".join(str(text).split())
    words = words if len(words) <= 100 else words[:99] + "…"
    return words.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def _code(text: str) -> str:
    """An expression as code; what cannot be seen is escaped."""
    shown = "".join(letter if letter.isprintable() and letter.isascii() else f"\\u{ord(letter):04x}" for letter in text)
    return f"`{shown}`" if len(shown) <= 60 else f"`{shown[:59]}…`"
