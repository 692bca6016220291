"""The read side: what a store means to people, as values that the command line and a dashboard show.

json_form     the one JSON form of every value, derived from its fields
health        the situation of each task, what is owed, and whether that is healthy
cluster       the hosts of a shared store: which live, what they declare, and what a host that joins would do
problem       what is wrong with a store, or may soon be
history       what has run, and how long the runs of each task took
coming        the coming starts of an expression
gauges        figures about a store as a whole, for a monitoring system
habits        how long the runs of a task usually take, and how often they fail
load          how many tasks are due in each minute to come
explanation   why a task ran, did not run, or ran late at a minute; evidence: what that rests on
plan          what initialize() would do with a store
run           one run: how late, how long, what became of it
zone          the zone that a store is used in
zone_changes  where a zone changes its offset, and the minutes of an expression that it skips or repeats
cron_check    whether a text is POSIX cron, what it says, and what to write instead
cron_words    a cron expression in words
moment_text   moments and durations as people write them
closest_name  the task that was probably meant by an unknown name
words         times, durations and lists in words

Everything here is pure: values in, values out, `now` and the zone always arguments. Nothing here opens a file, parses
arguments or prints. docs/reference/insight.md shows how to read a store with it.
"""

from typing import TYPE_CHECKING

from duly import lazy

if TYPE_CHECKING:
    from duly.insight.cluster import ClusterStatus, EditionPlan, EditionStatus, HostStatus, edition_plan
    from duly.insight.coming import Calendar, Coming, ComingStart
    from duly.insight.cron_check import CronCheck, CronFault, examine
    from duly.insight.cron_words import in_words
    from duly.insight.evidence import Evidence, evidence_of
    from duly.insight.explanation import Answer, Explanation, Reason, explain, explanation_of, minute_to_explain
    from duly.insight.gauges import NOT_READABLE, STORE_GAUGES, Gauge, GaugeFamily, holder_gauges, task_gauges
    from duly.insight.health import Examination, Health, Situations, TaskStatus
    from duly.insight.history import Comparison, History, compare, history_of, runs_of
    from duly.insight.load import ComingLoad, LoadMinute, load_of
    from duly.insight.plan import (
        BusyMinute,
        Configuration,
        InterruptedTask,
        NewTask,
        OrphanedTask,
        OverriddenTask,
        Plan,
        plan_for,
        plan_of,
    )
    from duly.insight.problem import Problem
    from duly.insight.run import RunReport, run_report
    from duly.insight.zone import zone_in_use
    from duly.insight.zone_changes import Leap, ZoneChange

__all__ = [
    "NOT_READABLE",
    "STORE_GAUGES",
    "Answer",
    "BusyMinute",
    "Calendar",
    "ClusterStatus",
    "Coming",
    "ComingLoad",
    "ComingStart",
    "Comparison",
    "Configuration",
    "CronCheck",
    "CronFault",
    "EditionPlan",
    "EditionStatus",
    "Evidence",
    "Examination",
    "Explanation",
    "Gauge",
    "GaugeFamily",
    "Health",
    "History",
    "HostStatus",
    "InterruptedTask",
    "Leap",
    "LoadMinute",
    "NewTask",
    "OrphanedTask",
    "OverriddenTask",
    "Plan",
    "Problem",
    "Reason",
    "RunReport",
    "Situations",
    "TaskStatus",
    "ZoneChange",
    "compare",
    "edition_plan",
    "evidence_of",
    "examine",
    "explain",
    "explanation_of",
    "history_of",
    "holder_gauges",
    "in_words",
    "load_of",
    "minute_to_explain",
    "plan_for",
    "plan_of",
    "run_report",
    "runs_of",
    "task_gauges",
    "zone_in_use",
]

# A command loads what it shows: words for an error message do not load the examination of a store.
__getattr__, __dir__ = lazy.attributes(
    __name__,
    {
        "cluster": ("ClusterStatus", "EditionPlan", "EditionStatus", "HostStatus", "edition_plan"),
        "coming": ("Calendar", "Coming", "ComingStart"),
        "cron_check": ("CronCheck", "CronFault", "examine"),
        "cron_words": ("in_words",),
        "evidence": ("Evidence", "evidence_of"),
        "explanation": ("Answer", "Explanation", "Reason", "explain", "explanation_of", "minute_to_explain"),
        "gauges": ("NOT_READABLE", "STORE_GAUGES", "Gauge", "GaugeFamily", "holder_gauges", "task_gauges"),
        "health": ("Examination", "Health", "Situations", "TaskStatus"),
        "load": ("ComingLoad", "LoadMinute", "load_of"),
        "history": ("Comparison", "History", "compare", "history_of", "runs_of"),
        "plan": (
            "BusyMinute",
            "Configuration",
            "InterruptedTask",
            "NewTask",
            "OrphanedTask",
            "OverriddenTask",
            "Plan",
            "plan_for",
            "plan_of",
        ),
        "problem": ("Problem",),
        "run": ("RunReport", "run_report"),
        "zone": ("zone_in_use",),
        "zone_changes": ("Leap", "ZoneChange"),
    },
)
