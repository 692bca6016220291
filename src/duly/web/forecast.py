"""A forecast: the real scheduler with the stored declarations; computed in a child process.

Stand-ins take the place of the callbacks. They last as long as the median of the task's runs on record, and fail as
often as these did. Nothing of the application is imported.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from duly.core.cron import CronExpression, parse_cron
from duly.core.moments import Instant
from duly.core.registration import Registration, RunsOn
from duly.core.zones import zone_of_name
from duly.insight.habits import Habit, habits_of
from duly.insight.json_form import json_form
from duly.insight.load import count_starts
from duly.simulation.scenario import Downtime, Scenario
from duly.simulation.simulate import run_scenario
from duly.stores import View, reader_of
from duly.web.child import NotAnsweredError, store_in

STARTS_MAX: Final = 20_000
TASKS_MAX: Final = 5_000
EXPRESSIONS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class _Declared:
    """The stored declarations that are due in a time."""

    habits: Sequence[Habit]
    idle: int
    """Tasks that are not due in it, or whose expressions are too many to be looked at."""


def simulate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a time; the answer has the document of `duly simulate --json`, and what the stand-ins were like."""
    zone = zone_of_name(request["zone"])
    if zone is None:
        raise NotAnsweredError(f"The zone {request['zone']} is not known here.")
    begin, end = Instant(request["begin"]), Instant(request["end"])
    reader = reader_of(store_in(request), lambda: Instant(request["now"]))
    declared = reader.read(lambda view: _declared(view, begin, end, zone))
    scenario = Scenario(
        [
            Registration(each.task, each.expression, _nothing, RunsOn.LOOP, each.retry_delay_ms)
            for each in declared.habits
        ],
        begin,
        end,
        zone,
        down=[Downtime(Instant(since), Instant(until)) for since, until in request["down"]],
        crashes=[Instant(each) for each in request["crashes"]],
        failure_rates={each.task: each.failure_rate for each in declared.habits},
        durations={each.task: each.median_ms / 1000 for each in declared.habits},
    )
    logging.getLogger("duly").disabled = True  # failures of stand-ins are results here, not news
    simulation = asyncio.run(run_scenario(scenario))
    return {
        "document": json_form(simulation, zone),
        "standIns": {each.task: json_form(each, zone) for each in declared.habits},
        "idle": declared.idle,
    }


def _declared(view: View, begin: Instant, end: Instant, zone: tzinfo) -> _Declared:
    """The tasks that are due in the time; raises if they, or their starts, are too many."""
    known: list[tuple[CronExpression, int]] = [
        (parse_cron(text), tasks) for text, tasks in view.expressions(EXPRESSIONS_MAX)
    ]
    if count_starts(known, begin, end, zone, most=STARTS_MAX) > STARTS_MAX:
        raise NotAnsweredError(
            f"More than {STARTS_MAX:,} starts are due in this time, and the dashboard simulates no more.",
            "choose a shorter time; `duly simulate` simulates any number",
        )
    due = [(each, tasks) for each, tasks in known if count_starts([(each, 1)], begin, end, zone, most=0)]
    if sum(tasks for _, tasks in due) > TASKS_MAX:
        raise NotAnsweredError(
            f"More than {TASKS_MAX:,} tasks are due in this time, and the dashboard simulates no more.",
            "choose a shorter time; `duly simulate` simulates any number",
        )
    habits = habits_of(view, [each.text for each, _ in due], TASKS_MAX)
    return _Declared(habits, view.count_tasks() - len(habits))


def _nothing() -> None:
    """The callback of a stored declaration, which is never called: a stand-in takes its place."""
