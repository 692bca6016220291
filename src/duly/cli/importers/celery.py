"""Drafts from Celery's beat schedule; Celery itself is imported only here, and only when this is used."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from duly.cli.importers.draft import Draft, Drafts, literal, task_name
from duly.cli.output import Exit, fail
from duly.cli.target import Target, Wanted, blamed, load_object, parse_target
from duly.core.moments import zone_name

_SETS: Final = {
    "minute": "minute", "hour": "hour", "day": "day_of_month", "month": "month_of_year", "weekday": "day_of_week",
}  # fmt: skip

_ADVICE: Final = "name a Celery application, or a dict of beat entries"

_DIFFERENCES: Final = (
    "a run is the sending of a message: it succeeds when the broker has taken it, whatever the task does then",
    "a failed sending is retried after RETRY_DELAY; beat waits for the next time",
    "minutes missed while the scheduler was down are served later, once; beat does so only from its own schedule file",
    "times are the host's local times; beat computes in the application's, and what differs is left out",
    "minutes that daylight saving skips run nothing; repeated ones run the first time only",
    "weekdays are numbered alike: 0 is Sunday in Celery as in POSIX",
    "arguments are copied as they are now; the schedule is read once, by this import, not when the application starts",
)

_HELPERS: Final = '''
def send(task: str, *arguments: Any, keywords: dict[str, Any] | None = None, **options: Any) -> Callable[[], None]:
    """A callback that sends a task to its workers."""

    def run() -> None:
        app.send_task(task, arguments, keywords, **options)

    return run
'''


def read_celery(text: str) -> Drafts:
    """The beat schedule of an application, or a beat schedule by itself."""
    try:
        from celery import Celery  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        fail("importing from Celery needs Celery itself", "run it where the application runs, or pip install celery")
    target = parse_target(text, "app")
    found = load_object(target, Wanted(_ADVICE, "an application", lambda value: isinstance(value, Celery)))
    schedule, theirs = _schedule_of(found, target)
    origin = "the zone of the application"
    if isinstance(found, Mapping):
        origin = "the zone of Celery itself: this schedule does not name one, but its application may"
    drafts = [_draft(str(name), each, theirs, origin) for name, each in schedule.items()]
    reachable = not isinstance(found, Mapping) and "." not in target.attribute
    application = _import_line(target, "app") if reachable else "from celery import current_app as app"
    imports = ("from collections.abc import Callable", "from typing import Any", application)
    return Drafts(f"the beat schedule of {text}", drafts, _DIFFERENCES, imports, _HELPERS)


def _import_line(target: Target, name: str) -> str:
    """The line of Python that imports the attribute of a target under a name."""
    if not target.module.replace(".", "_").isidentifier():
        fail(f"{target.text}: no Python file can import {target.module}", "rename the file", Exit.TARGET)
    return f"from {target.module} import {target.attribute}" + ("" if target.attribute == name else f" as {name}")


def _schedule_of(found: Any, target: Target) -> tuple[Mapping[Any, Any], str | None]:
    """The schedule, and the name of its time zone; None if it is the host's."""
    if isinstance(found, Mapping):
        return found, "UTC"
    with blamed(target, "raised when its settings were read"):  # an application loads them when they are first needed
        settings = getattr(found, "conf", found)
        schedule = getattr(settings, "beat_schedule", None)
    if not isinstance(schedule, Mapping):
        fail(f"{target.text} has no beat_schedule", _ADVICE, Exit.TARGET)
    theirs = getattr(settings, "timezone", None) or ("UTC" if getattr(settings, "enable_utc", True) else None)
    return schedule, theirs if theirs is None or isinstance(theirs, str) else zone_name(theirs)


def _draft(name: str, given: Any, theirs: str | None, origin: str) -> Draft:
    values = given if isinstance(given, Mapping) else {
        key: getattr(given, key, None) for key in ("task", "schedule", "args", "kwargs", "options")
    }  # fmt: skip
    task, schedule = values.get("task"), values.get("schedule")
    draft = Draft(f"{name!r}: {task}, {schedule!r}", task_name(name) or "task")
    if not isinstance(task, str):
        draft.obstacles.append("it does not name a task")
        return draft
    _read_schedule(draft, schedule, theirs, origin)
    _read_call(draft, task, values)
    return draft


def _read_schedule(draft: Draft, schedule: Any, zone: str | None, origin: str) -> None:
    from celery import schedules

    if isinstance(schedule, schedules.crontab):
        draft.zone, draft.zone_origin = zone, origin
        draft.set_fields({ours: {int(each) for each in getattr(schedule, theirs)} for ours, theirs in _SETS.items()})
        written = [str(getattr(schedule, f"_orig_{theirs}", "*")) for theirs in _SETS.values()]
        if any("/" in each or any(map(str.isalpha, each)) for each in written):
            draft.notes.append(f"steps and names rewritten, from {' '.join(written)!r}")
    elif isinstance(schedule, schedules.solar):
        draft.obstacles.append(f"{schedule.event} follows the sun, which cron cannot express")
    elif isinstance(schedule, schedules.schedule):
        draft.set_interval(schedule.run_every)
        if schedule.relative:
            draft.notes.append("relative=True rounds to whole intervals of the clock, as cron does")
    elif isinstance(schedule, timedelta):
        draft.set_interval(schedule)
    elif isinstance(schedule, int | float) and not isinstance(schedule, bool):
        draft.set_interval(timedelta(seconds=schedule))
    else:
        draft.obstacles.append(f"a schedule of type {type(schedule).__name__}, which only Celery knows how to ask")


def _read_call(draft: Draft, task: str, values: Mapping[str, Any]) -> None:
    arguments = list(values.get("args") or ())
    keywords, options = dict(values.get("kwargs") or {}), dict(values.get("options") or {})
    parts = [literal(task)] + [literal(each) for each in arguments]
    if keywords:
        parts.append(None if (text := literal(keywords)) is None else f"keywords={text}")
    for key, value in options.items():
        fine = key.isidentifier() and key not in ("task", "keywords", "args", "kwargs")
        parts.append(f"{key}={text}" if fine and (text := literal(value)) is not None else None)
    if any(part is None for part in parts):
        draft.obstacles.append(
            "its arguments or options cannot be written as Python source: write the callback by hand"
        )
        return
    draft.call = f"send({', '.join(str(part) for part in parts)})"
    if "expires" in options:
        draft.notes.append("expires counts from the sending, which may be later than the due minute")
