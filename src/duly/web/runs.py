"""The list of runs: of one task or of all, filtered, the latest first, a page at a time."""

from dataclasses import dataclass
from typing import Final

from duly.core.moments import Instant
from duly.insight.run import RunReport, run_report
from duly.insight.zone import zone_in_use
from duly.stores.port import RunSelection, View
from duly.web.display import Display, long_names
from duly.web.forms import Form, run_place_text
from duly.web.frame import Frame
from duly.web.missing import check_known, name_of_declaration

PAGE: Final = 50
OUTCOMES: Final = ("success", "failure", "interrupted", "running")
CAUSES: Final = ("cron", "retry", "interrupted")


@dataclass(frozen=True, slots=True)
class RunList:
    """A page of the list."""

    display: Display
    task: str
    """The name of the only task whose runs are listed, or nothing."""

    runs: list[RunReport]
    earlier: str | None
    history_begins: Instant | None
    shared: bool
    """Whether hosts share the store, so that each run has one."""


def page(frame: Frame, form: Form) -> str:
    """Show one page of the list."""
    name, generation = form.text("task"), form.number("generation", 1, 2**62)
    outcome, cause = form.choice("outcome", OUTCOMES), form.choice("cause", CAUSES)
    since_text, until_text, before = form.text("since"), form.text("until"), form.run_place("before")
    host_zone = frame.source.clock.zone()
    sample = frame.source.sample_if_any()

    def question(view: View) -> RunList:
        snapshot = view.snapshot()
        display = frame.display(zone_in_use(snapshot.zone, host_zone), snapshot.at)
        task = name if generation is None else name_of_declaration(view, generation)
        if task:
            check_known(view, task, display)
        which = RunSelection(
            task or None,
            form.moment("since", display.zone, snapshot.at),
            form.moment("until", display.zone, snapshot.at),
            (outcome,) if outcome else (),
            causes=(cause,) if cause else (),
            before=before,
        )
        found = [run_report(run) for run in view.runs(which, limit=PAGE + 1)]
        shown = found[:PAGE]
        earlier = None
        if len(found) > PAGE:
            place = run_place_text(shown[-1].started_at, shown[-1].run_id)
            keep = {
                "task": name,
                "generation": generation,
                "outcome": outcome,
                "cause": cause,
                "since": since_text,
                "until": until_text,
            }
            earlier = display.link("runs", **keep, before=place)
        # The earliest start takes a scan of history, which the sample has made; without any run on the page it matters.
        begins = view.history_begins() if not shown else None if sample is None else sample.history_begins
        display = display.knowing(long_names(view, [run.task for run in shown]))
        return RunList(display, task, shown, earlier, begins, snapshot.cluster is not None)

    found = frame.source.read(question)
    return frame.rendered(
        "runs.html",
        found.display,
        "Runs",
        "Runs",
        found=found,
        task=name,
        generation=generation,
        outcome=outcome,
        cause=cause,
        since=since_text,
        until=until_text,
        outcomes=OUTCOMES,
        causes=CAUSES,
        newest=before is not None,
        slow=sample is not None and sample.has_long_history,
    )
