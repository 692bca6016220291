"""Drafts from the jobs of an APScheduler 3; the library is imported only here, and only when this is used."""

from collections.abc import Iterator
from typing import Any, Final

from duly.cli.importers.draft import Draft, Drafts, literal, task_name
from duly.cli.output import Exit, fail
from duly.cli.target import Wanted, blamed, call_object, load_object, parse_target
from duly.core.fields import FIELDS

_FIELDS: Final = {"minute": "minute", "hour": "hour", "day": "day", "month": "month", "weekday": "day_of_week"}

_DIFFERENCES: Final = (
    "a missed minute is served once, however late; APScheduler drops it after misfire_grace_time",
    "a failed run is retried after RETRY_DELAY; APScheduler waits for the next time",
    "a task never overlaps itself: a due minute during a run starts when that run ends; APScheduler skips it",
    "times are the host's local times; each APScheduler trigger has a zone of its own, and is left out if it differs",
    "minutes that daylight saving skips run nothing; repeated ones run the first time only",
    "weekdays are renumbered: 0 is Monday in APScheduler, and Sunday in POSIX",
    "functions that are not coroutine functions run in worker threads of duly's own; executors are not imported",
)


def read_apscheduler(text: str) -> Drafts:
    """The jobs of a scheduler, or of the one that a function returns."""
    try:
        from apscheduler.schedulers.base import BaseScheduler  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        fail(
            "importing from APScheduler needs APScheduler 3 itself",
            "run it where the application runs, or pip install 'apscheduler<4'",
        )
    target = parse_target(text, "scheduler")
    advice = "name the scheduler, or a function without arguments that returns it"
    found = load_object(target, Wanted(advice, "a scheduler", lambda value: isinstance(value, BaseScheduler)))
    if not isinstance(found, BaseScheduler) and callable(found):
        found = call_object(target, found)
    if not isinstance(found, BaseScheduler):
        fail(
            f"{text} is a value of type {type(found).__name__}, not an APScheduler scheduler",
            advice,
            Exit.TARGET,
        )
    drafts: list[Draft] = []
    imports: set[str] = set()
    with blamed(target, "raised when its jobs were read"):
        jobs = found.get_jobs()  # if TARGET has started it, from its job stores, which may be databases
    for job in jobs:
        drafts += _drafts(job, imports)
    if any(draft.call is not None and draft.call.startswith("partial(") for draft in drafts):
        imports.add("from functools import partial")
    return Drafts(f"the jobs of {text}", drafts, _DIFFERENCES, tuple(imports))


def _drafts(job: Any, imports: set[str]) -> Iterator[Draft]:
    """One draft for each trigger of a job."""
    named = task_name(str(job.name if len(str(job.id)) == 32 else job.id)) or "job"
    several = type(job.trigger).__name__ == "OrTrigger"
    for number, trigger in enumerate(job.trigger.triggers if several else [job.trigger], 1):
        draft = Draft(f"{job.id!r}: {job.func_ref or job.name}, {trigger}", f"{named}-{number}" if several else named)
        if several:
            draft.notes.append(
                "one of several triggers joined by OR: each is a task of its own, so two may run at once"
            )
        _read_trigger(draft, trigger)
        _read_limits(draft, job)
        _read_call(draft, job, imports)
        yield draft


def _read_trigger(draft: Draft, trigger: Any) -> None:
    kind = type(trigger).__name__
    if kind == "CronTrigger":
        _read_cron(draft, trigger)
    elif kind == "IntervalTrigger":
        draft.set_interval(trigger.interval)
    elif kind == "CalendarIntervalTrigger":
        _read_calendar(draft, trigger)
    elif kind == "DateTrigger":
        draft.obstacles.append(f"runs once, at {trigger.run_date}; duly has no one-shot tasks")
    else:
        draft.obstacles.append(f"a trigger of type {kind}, which cron cannot express")
    theirs = getattr(trigger, "timezone", None)
    if theirs is not None and kind != "IntervalTrigger":
        draft.zone, draft.zone_origin = str(theirs), "the trigger's timezone"
    for limit in ("start_date", "end_date"):
        given = getattr(trigger, limit, None)
        # An interval always has a start: it is how it counts.
        if given is not None and not (limit == "start_date" and kind == "IntervalTrigger"):
            draft.notes.append(f"{limit} {given} is not kept: a task runs as long as it is declared")
    if getattr(trigger, "jitter", None):
        draft.notes.append(f"jitter of {trigger.jitter} s is not kept: every start is due at second 0 of its minute")


def _read_cron(draft: Draft, trigger: Any) -> None:
    fields = {each.name: each for each in trigger.fields}
    for name, what in (("year", "cron repeats every year"), ("week", "cron does not know weeks of the year")):
        if str(fields[name]) != "*":
            draft.obstacles.append(f"{name}={str(fields[name])!r}: {what}")
    second = str(fields["second"])
    if not second.isdigit():
        draft.obstacles.append(f"second={second!r}: the smallest unit of cron is the minute")
    elif int(second):
        draft.notes.append(f"started at second {second} of its minute; duly starts at second 0")
    sets: dict[str, set[int]] = {}
    for ours, theirs in _FIELDS.items():
        values = _values(fields[theirs], FIELDS[ours].low, FIELDS[ours].high)
        if values is None:
            draft.obstacles.append(f"{theirs}={str(fields[theirs])!r}: POSIX cron cannot say that")
        else:
            sets[ours] = {(value + 1) % 7 for value in values} if ours == "weekday" else values
    if len(sets) < len(_FIELDS):
        return
    draft.set_fields(sets)
    weekday = str(fields["day_of_week"])
    if weekday != "*":
        draft.notes.append(f"weekday {weekday!r}, where 0 is Monday, became {(draft.posix or '').split()[-1]!r}")
    if any("/" in str(fields[each]) for each in _FIELDS.values()):
        draft.notes.append(f"steps rewritten, from {trigger}")


def _values(field: Any, low: int, high: int) -> set[int] | None:
    """The values that a field stands for; None if they depend on the month."""
    found: set[int] = set()
    for expression in field.expressions:
        kind = type(expression).__name__
        if kind == "AllExpression":
            first, last = low, high
        elif kind in ("RangeExpression", "MonthRangeExpression", "WeekdayRangeExpression"):
            first = expression.first
            last = expression.last if expression.last is not None else high
        else:
            return None
        found |= set(range(first, last + 1, getattr(expression, "step", None) or 1))
    return found


def _read_calendar(draft: Draft, trigger: Any) -> None:
    every = (trigger.years, trigger.months, trigger.weeks, trigger.days)
    at = trigger._time if hasattr(trigger, "_time") else None
    hour, minute = (at.hour, at.minute) if at is not None else (0, 0)
    if at is not None and at.second:
        draft.notes.append(f"started at second {at.second} of its minute; duly starts at second 0")
    start = trigger.start_date
    days = {
        (0, 0, 0, 1): "* * *",
        (0, 0, 1, 0): f"* * {start.isoweekday() % 7}",
        (0, 1, 0, 0): f"{start.day} * *",
        (1, 0, 0, 0): f"{start.day} {start.month} *",
    }.get(every)
    if days is None:
        draft.obstacles.append("an interval of days, weeks, months or years that cron cannot express")
        return
    draft.posix = f"{minute} {hour} {days}"


def _read_limits(draft: Draft, job: Any) -> None:
    grace = getattr(job, "misfire_grace_time", None)
    if isinstance(grace, int | float):
        draft.notes.append(f"misfire_grace_time={grace}: duly serves later minutes, too")
    if getattr(job, "coalesce", None) is False:
        draft.notes.append("coalesce=False: duly serves all missed minutes with one start")
    if isinstance(most := getattr(job, "max_instances", None), int) and most > 1:
        draft.notes.append(f"max_instances={most}: a task never overlaps itself under duly")


def _read_call(draft: Draft, job: Any, imports: set[str]) -> None:
    reference = job.func_ref
    if not isinstance(reference, str) or ":" not in reference or "<" in reference:
        draft.obstacles.append(
            "its function has no name to import it by (a lambda, a local function): write the callback by hand"
        )
        return
    module, _, path = reference.partition(":")
    if not module.replace(".", "_").isidentifier():
        draft.obstacles.append(f"no Python file can import its module, {module}: rename the file")
        return
    if module.startswith("__"):
        draft.notes.append(f"its function was found in {module}; correct the import")
    first = path.split(".")[0]
    arguments = [literal(each) for each in job.args or ()]
    keywords = {key: literal(value) for key, value in (job.kwargs or {}).items()}
    if any(each is None for each in (*arguments, *keywords.values())):
        draft.obstacles.append("its arguments cannot be written as Python source: write the callback by hand")
        return
    imports.add(f"from {module} import {first}")
    given = [path, *map(str, arguments), *(f"{key}={value}" for key, value in keywords.items())]
    draft.call = f"partial({', '.join(given)})" if len(given) > 1 else path
