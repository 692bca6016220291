"""The JSON API: the documents that the commands print with `--json`, a page at a time.

`ENDPOINTS` is the whole of it: paths, parameters, and the values whose JSON forms the answers are made of.
`openapi.json` is written from this table; a test compares them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, Final, get_args

from duly.core.moments import Instant, as_datetime, zone_name
from duly.insight.coming import Calendar, Coming
from duly.insight.cron_check import examine
from duly.insight.explanation import Explanation, explain, minute_to_explain
from duly.insight.health import Health, Situations, TaskStatus
from duly.insight.history import History, history_of, runs_of
from duly.insight.json_form import JSON_FORMAT, json_form
from duly.insight.load import ComingLoad
from duly.insight.moment_text import parse_moment
from duly.insight.run import RunReport
from duly.insight.words import iso
from duly.insight.zone import zone_in_use
from duly.stores.port import RunSelection, TaskFilter, TaskPlace, TaskSelection, View
from duly.text import plain
from duly.web.display import Display
from duly.web.forms import Form, ParameterError, place_text, run_place_text
from duly.web.load import HOURS_MAX, load_from
from duly.web.missing import check_known, name_of_declaration, orphaned_task, unknown_task
from duly.web.sampler import Sample
from duly.web.source import StoreSource

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
STARTS_MAX: Final = 100
_HEALTH_SECONDS: Final = 5.0
_ERRORS: Final = frozenset({"error", "lastError", "traceback"})
_OUTCOMES: Final = ("success", "failure", "interrupted", "running")
_CAUSES: Final = ("cron", "retry", "interrupted")


@dataclass(frozen=True, slots=True)
class Reply:
    """A document, and the status it is sent with."""

    document: Mapping[str, Any]
    status: int = 200

    def text(self) -> str:
        """The document as text; characters beyond ASCII are escaped, because names may hold any."""
        return json.dumps(self.document)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter: what it means, and what it may be."""

    name: str
    meaning: str
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of the API."""

    summary: str
    answer: Callable[[StoreSource, Form], Reply]
    parameters: Sequence[Parameter]
    value: type | str
    """The value whose JSON form the document has, or whose fields stand in it; named where it is costly to import."""

    members: Mapping[str, type]
    """Lists in the document, each with the value of its elements."""

    more: Mapping[str, Mapping[str, Any]]
    """Further members of the document."""

    statuses: Sequence[int] = (200, 400, 503)
    whole: Sequence[int] = (200,)
    """The statuses with which the document is sent; others come with a failure."""

    waits: bool = False
    """Whether it may take seconds: for a child process, or for tasks that are still being counted."""


def without_errors(value: Any) -> Any:
    """A document without the texts of errors, which may be confidential; what else is said about a failure stays."""
    if isinstance(value, Mapping):
        if value.get("code") == "failed":
            value = {**value, "text": "it failed"}
        return {key: None if key in _ERRORS else without_errors(each) for key, each in value.items()}
    if isinstance(value, list):
        if value[:1] in (["IF"], ["SF"]):  # events of a trace; the error is the last field
            value = [*value[:-1], None]
        return [without_errors(each) for each in value]
    return value


def failure(text: str, hint: object, status: int) -> Reply:
    """The answer to a request that cannot be met."""
    return Reply({"format": JSON_FORMAT, "error": text, "hint": None if hint is None else str(hint)}, status)


def _document(command: str, value: Mapping[str, Any], **members: object) -> dict[str, Any]:
    return {"command": command, "format": JSON_FORMAT, **value, **members}


# --- tasks -----------------------------------------------------------------------------------------------------------


def _status(source: StoreSource, form: Form) -> Reply:
    sample = _counted(source)
    if sample is None:
        return _counting("status", source)
    return Reply(_with_tasks("status", json_form(source.health(sample), sample.zone), source, form, TaskSelection()))


def _tasks(source: StoreSource, form: Form) -> Reply:
    which = form.choice("state", get_args(TaskFilter)) or "all"
    selection = TaskSelection(form.text("q"), which=which)  # type: ignore[arg-type]
    value: dict[str, Any] = {"store": source.name, "countedAt": None, "tasksLeftOut": 0}
    if which == "owed":
        sample = source.sample()
        if sample is None:
            return failure("the tasks are still being counted", "ask again in a few seconds", 503)
        selection = replace(selection, latest_due=sample.latest_due)
        value |= {"countedAt": iso(sample.at, sample.zone), "tasksLeftOut": sample.owed_left_out}
    return Reply(_with_tasks("tasks", value, source, form, selection))


def _with_tasks(
    command: str, value: Mapping[str, Any], source: StoreSource, form: Form, selection: TaskSelection
) -> dict[str, Any]:
    limit = form.number("limit", 1, LIMIT_MAX) or LIMIT
    chosen = replace(selection, after=form.place("after"))
    host_zone = source.clock.zone()

    def question(view: View) -> dict[str, Any]:
        situations = Situations(view.snapshot(), host_zone)
        found = [situations.status_of(task) for task in view.page(chosen, limit + 1)]
        after = place_text(TaskPlace(found[limit - 1].task)) if len(found) > limit else None
        tasks = [json_form(task, situations.zone) for task in found[:limit]]
        return _document(command, value, tasks=tasks, after=after)

    return source.read(question)


def _task(source: StoreSource, form: Form) -> Reply:
    named, host_zone = _Named(form, "name"), source.clock.zone()
    named.check_given()

    def question(view: View) -> dict[str, Any]:
        situations = Situations(view.snapshot(), host_zone)
        name = named.found(view)
        found = view.task(name)
        if found is None:
            if view.declarations(name):
                raise orphaned_task(name)
            raise unknown_task(view, name, _display(situations.zone, situations.snapshot.at))
        return _document("task", json_form(situations.status_of(found), situations.zone))

    return Reply(source.read(question))


class _Named:
    """The task that a request names: by its name, or by the number of one of its declarations."""

    def __init__(self, form: Form, parameter: str) -> None:
        self._parameter = parameter
        self._name = form.text(parameter)
        self._generation = form.number("generation", 1, 2**62)

    def check_given(self) -> None:
        """Raise if no task is named."""
        if not self._name and self._generation is None:
            raise ParameterError(f"{self._parameter} is missing: its name")

    def found(self, view: View) -> str:
        """The name of the task; raises if the store does not have that declaration."""
        return self._name if self._generation is None else name_of_declaration(view, self._generation)


def _display(zone: tzinfo, at: Instant) -> Display:
    return Display("", zone, at)


# --- runs ------------------------------------------------------------------------------------------------------------


def _runs(source: StoreSource, form: Form) -> Reply:
    named, before = _Named(form, "task"), form.run_place("before")
    outcome, cause = form.choice("outcome", _OUTCOMES), form.choice("cause", _CAUSES)
    limit = form.number("limit", 1, LIMIT_MAX) or LIMIT
    host_zone = source.clock.zone()

    def question(view: View) -> dict[str, Any]:
        snapshot = view.snapshot()
        zone = zone_in_use(snapshot.zone, host_zone)
        task = named.found(view)
        if task:
            check_known(view, task, _display(zone, snapshot.at))
        which = RunSelection(
            task or None,
            form.moment("since", zone, snapshot.at),
            form.moment("until", zone, snapshot.at),
            (outcome,) if outcome else (),
            causes=(cause,) if cause else (),
        )
        history = history_of(view, which)
        found = list(runs_of(view, replace(which, before=before), limit + 1))
        shown = found[-limit:]
        more = run_place_text(shown[0].started_at, shown[0].run_id) if len(found) > limit else None
        runs = [json_form(run, zone) for run in shown]
        return _document("history", json_form(history, zone), runs=runs, before=more)

    return Reply(source.read(question))


def _explain(source: StoreSource, form: Form) -> Reply:
    named, at_text, host_zone = _Named(form, "task"), form.text("at"), source.clock.zone()
    named.check_given()

    def question(view: View) -> dict[str, Any]:
        snapshot = view.snapshot()
        task = named.found(view)
        zone = form.zone("tz", zone_in_use(snapshot.zone, host_zone))
        check_known(view, task, _display(zone, snapshot.at))
        form.moment("at", zone, snapshot.at)
        asked = parse_moment(at_text, zone, snapshot.at) if at_text else None
        asked = asked or minute_to_explain(view.declarations(task), snapshot.at, zone)
        return _document("explain", json_form(explain(view, task, asked), zone))

    return Reply(source.read(question))


# --- what comes ------------------------------------------------------------------------------------------------------


def _next(source: StoreSource, form: Form) -> Reply:
    zone = form.zone("tz", source.clock.zone())
    at = Instant(source.clock.now())
    count = form.number("n", 1, STARTS_MAX) or 10
    since = as_datetime(form.moment("from", zone, at) or at, zone)
    check = examine(form.text("cron"))
    if check.parsed is None:
        assert check.error is not None
        about = "expression" if check.error.field == "expression" else f"{check.error.field} field"
        advice = f"; {check.advice}" if check.advice else ""
        raise ParameterError(f"cron: the {about} {plain(check.error.reason)}{plain(advice)}")
    coming = json_form(Calendar(since, count).coming(None, check.parsed), zone)
    return Reply(_document("next", {"zone": zone_name(zone), "from": since.isoformat(), "tasks": [coming]}))


def _load(source: StoreSource, form: Form) -> Reply:
    sample = _counted(source)
    if sample is None:
        return _counting("load", source)
    since = form.near_moment("from", sample.zone, sample.at) or sample.at
    load = load_from(sample, since, form.number("hours", 1, HOURS_MAX) or 24)
    return Reply(_document("load", json_form(load, sample.zone)))


# --- the trace -------------------------------------------------------------------------------------------------------


def _verify(source: StoreSource, form: Form) -> Reply:
    return Reply(_document("verify", source.judgement()))


# --- health ----------------------------------------------------------------------------------------------------------


def _health(source: StoreSource, form: Form) -> Reply:
    sample = _counted(source)
    if sample is None:
        return _counting("status", source)
    health = source.health(sample)
    return Reply(_document("status", json_form(health, sample.zone)), 200 if health.healthy else 503)


def _counted(source: StoreSource) -> Sample | None:
    return source.sample(_HEALTH_SECONDS)


def _counting(command: str, source: StoreSource) -> Reply:
    """Not known is not healthy."""
    problem = {"code": "counting", "text": "the tasks are still being counted"}
    return Reply(_document(command, {"store": source.name, "healthy": None, "problems": [problem]}), 503)


# --- the table -------------------------------------------------------------------------------------------------------

_TEXT: Final = {"type": "string"}
_LIMIT: Final = Parameter(
    "limit", "how many at most", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT}
)
_GENERATION: Final = Parameter(
    "generation",
    "the number of a declaration, instead of the name of its task: for names that are too long for an address",
    {"type": "integer", "minimum": 1, "maximum": 2**62},
)
_AFTER: Final = Parameter("after", "go on behind this place: `after` of the answer before", _TEXT)
_SINCE: Final = Parameter(
    "since", "runs that started at this moment or later: `2026-10-26T01:50`, `01:50`, `2h`", _TEXT
)
_UNTIL: Final = Parameter("until", "runs that started before this moment", _TEXT)
_NULLABLE_TEXT: Final = {"type": ["string", "null"]}


def _one_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "/api/v1/status": Endpoint(
        "Whether the store is healthy, and its tasks by name; as `duly status --json`",
        _status, (_AFTER, _LIMIT), Health, {"tasks": TaskStatus}, {"after": _NULLABLE_TEXT}, waits=True,
    ),
    "/api/v1/tasks": Endpoint(
        "Tasks by name", _tasks,
        (
            Parameter("q", "part of the name", _TEXT),
            Parameter(
                "state", "only tasks in this state; `owed` is without interrupted ones",
                _one_of(*get_args(TaskFilter)),
            ), _AFTER, _LIMIT,
        ),
        type(None), {"tasks": TaskStatus},
        {
            "store": _TEXT, "countedAt": {"type": ["string", "null"], "format": "date-time"},
            "tasksLeftOut": {"type": "integer"}, "after": _NULLABLE_TEXT,
        },
    ),
    "/api/v1/task": Endpoint(
        "One task", _task, (Parameter("name", "its name", _TEXT), _GENERATION), TaskStatus, {}, {},
        (200, 400, 404, 503),
    ),
    "/api/v1/runs": Endpoint(
        "Runs, the latest last; as `duly history --json`", _runs,
        (
            Parameter("task", "only runs of this task", _TEXT), _GENERATION,
            Parameter("outcome", "only runs that ended like this", _one_of(*_OUTCOMES)),
            Parameter("cause", "only runs of this cause", _one_of(*_CAUSES)), _SINCE, _UNTIL,
            Parameter("before", "runs before this place: `before` of the answer before", _TEXT), _LIMIT,
        ),
        History, {"runs": RunReport}, {"before": _NULLABLE_TEXT}, (200, 400, 404, 503),
    ),
    "/api/v1/explain": Endpoint(
        "Why a task ran, did not run, or ran late at a minute; as `duly explain --json`", _explain,
        (
            Parameter("task", "its name", _TEXT), _GENERATION,
            Parameter("at", "the minute; by default the latest that was due", _TEXT),
            Parameter("tz", "the zone of `at`; by default that of the store", _TEXT),
        ),
        Explanation, {}, {}, (200, 400, 404, 503),
    ),
    "/api/v1/next": Endpoint(
        "The coming starts of an expression; as `duly next --json`", _next,
        (
            Parameter("cron", "the expression", _TEXT, required=True),
            Parameter("tz", "the zone; by default the host's", _TEXT),
            Parameter("from", "starts from this moment on; by default now", _TEXT),
            Parameter("n", "how many", {"type": "integer", "minimum": 1, "maximum": STARTS_MAX, "default": 10}),
        ),
        type(None), {"tasks": Coming}, {"zone": _TEXT, "from": _TEXT}, (200, 400),
    ),
    "/api/v1/load": Endpoint(
        "How many tasks are due in the hours to come, and in which minutes most are", _load,
        (
            Parameter("from", "from this moment on; by default now", _TEXT),
            Parameter("hours", "how many", {"type": "integer", "minimum": 1, "maximum": HOURS_MAX, "default": 24}),
        ),
        ComingLoad, {}, {}, waits=True,
    ),
    "/api/v1/verify": Endpoint(
        "What the trace of the store says about every property; as `duly verify --json`", _verify, (),
        "duly.formal.judgement:Judgement", {}, {}, (200, 404, 429, 503), waits=True,
    ),
    "/api/v1/health": Endpoint(
        "For probes: 200 if the store is healthy, else 503", _health, (), Health, {}, {}, (200, 503), (200, 503),
        waits=True,
    ),
}  # fmt: skip
