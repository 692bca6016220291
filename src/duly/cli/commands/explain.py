"""duly explain: why a task ran, did not run, or ran late at a minute."""

from collections.abc import Iterable
from datetime import tzinfo
from pathlib import Path

import click
from rich.text import Text

from duly.cli.completion import complete_task, complete_zone
from duly.cli.output import Exit, fail, json_option, note, print_json, say
from duly.cli.reading import Snapshot, read_store, store_option, unknown_task
from duly.cli.time_text import MOMENT_FORMS, parse_moment, zone_named
from duly.core.moments import Instant, zone_name
from duly.errors import InvalidCronExpressionError
from duly.insight.evidence import Evidence
from duly.insight.explanation import Answer, Explanation
from duly.insight.explanation import explain as explain_minute
from duly.insight.json_form import json_form
from duly.text import plain

_STYLES = {
    Answer.RAN: "bold green",
    Answer.RAN_LATE: "bold yellow",
    Answer.SERVED_LATER: "bold yellow",
    Answer.NOT_RUN: "bold yellow",
    Answer.OWED: "bold red",
    Answer.UNKNOWN: "bold magenta",
}


@click.command()
@click.argument("task", shell_complete=complete_task)
@click.option("--at", "at", metavar="TIME", required=True, help=f"The minute in question: {MOMENT_FORMS}.")
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=complete_zone,
    help="The zone of TIME; the default is the one the store was last used in.",
)
@store_option
@json_option
def explain(task: str, at: str, tz: str | None, store: Path, as_json: bool) -> int:
    """Explain why a task ran, did not run, or ran late at a minute.

    \b
    Example:
      duly explain backup --at 2024-03-31T02:30 --store state.db
    """
    snapshot = read_store(store)
    zone = snapshot.zone if tz is None else zone_named(tz)
    if not any(each.task == task for each in snapshot.declarations):
        raise unknown_task(task, sorted({each.task for each in snapshot.declarations}))
    try:
        asked = parse_moment(at, zone, snapshot.at)
    except (ValueError, OverflowError) as fault:
        fail(f"--at: {fault}")
    if zone_name(zone) != zone_name(snapshot.zone):
        note(f"the store is used in {zone_name(snapshot.zone)}; what is due is computed in {zone_name(zone)} here")
    try:
        explanation = explain_minute(evidence_of(snapshot, task, zone), asked)
    except InvalidCronExpressionError as fault:
        fail(f"the store holds a declaration of {plain(task)} that cannot be read: {fault}", None, Exit.STORE)
    if as_json:
        print_json("explain", json_form(explanation, zone))
    else:
        _show(explanation)
    return Exit.OK


def evidence_of(snapshot: Snapshot, task: str, zone: tzinfo) -> Evidence:
    """What a store knows about a task."""
    in_force = next((each for each in snapshot.tasks if each.name == task), None)
    state = in_force.stored.state if in_force is not None else None
    return Evidence(
        task=task,
        zone=zone,
        now=snapshot.at,
        declarations=[each for each in snapshot.declarations if each.task == task],
        runs=sorted((run for run in snapshot.runs if run.task == task), key=lambda run: run.run_id),
        served_through=state.served_through if state is not None else None,
        pending_retry_until=getattr(state, "pending_retry_until", None),
        history_complete_since=complete_since(snapshot),
        arrivals=sorted(since for _, since in snapshot.schedulers.values()),
        signs_of_life=sorted(_signs(snapshot)),
        alive=snapshot.holder.alive,
        last_poll=snapshot.holder.last_poll,
    )


def complete_since(snapshot: Snapshot) -> Instant | None:
    """From when on history has every run that ended; None if it has dropped nothing.

    Runs are numbered one after the other and enter history when they end, so what was dropped shows as missing numbers,
    and everything that ended after the oldest record is there.
    """
    numbers = {run.run_id for run in snapshot.runs}
    highest = max(numbers, default=0)
    if not numbers and any(getattr(each.stored.state, "last_attempt_at", None) is not None for each in snapshot.tasks):
        return snapshot.at  # nothing is kept at all
    if len(numbers) == highest:
        return None
    oldest = next((run for run in snapshot.runs if run.outcome != "running"), None)
    return snapshot.at if oldest is None else Instant(oldest.ended_at or oldest.started_at)


def _signs(snapshot: Snapshot) -> Iterable[Instant]:
    for run in snapshot.runs:
        yield run.started_at
        if run.ended_at is not None:
            yield run.ended_at
    for declaration in snapshot.declarations:
        yield declaration.known_since
        if declaration.retired_at is not None:
            yield declaration.retired_at
    for _, since in snapshot.schedulers.values():
        yield since


# --- for people ------------------------------------------------------------------------------------------------------


def _show(explanation: Explanation) -> None:
    style = _STYLES.get(explanation.verdict, "bold")
    asked = f" at {explanation.at:%a %Y-%m-%d %H:%M}: "
    say(Text.assemble((plain(explanation.task), "bold"), asked, (explanation.headline, style)))
    for reason in explanation.reasons:
        say(f"  - {plain(reason.text)}")
