"""`duly explain`: why a task ran, did not run, or ran late at a minute."""

import click
from rich.text import Text

from duly.cli.completion import complete_task, complete_zone
from duly.cli.output import Exit, Failure, fail, json_option, note, print_json, say
from duly.cli.store import reader_of, store_option, unknown_task
from duly.cli.time_text import host_zone, zone_named
from duly.core.moments import instant_of, zone_name
from duly.core.zones import is_zone
from duly.errors import InvalidCronExpressionError
from duly.insight.explanation import Answer, Explanation, minute_to_explain
from duly.insight.explanation import explain as explain_minute
from duly.insight.json_form import json_form
from duly.insight.moment_text import MOMENT_FORMS, parse_moment
from duly.insight.zone import zone_in_use
from duly.stores import View
from duly.stores.place import StorePlace
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
@click.option(
    "--at",
    "at",
    metavar="TIME",
    help=f"Explain this minute: {MOMENT_FORMS}; the default is the latest at which the task was due, "
    "or the present one if it has not been due yet.",
)
@click.option(
    "--tz",
    metavar="ZONE",
    shell_complete=complete_zone,
    help="Read TIME in this zone; the default is the zone that the store is used in.",
)
@store_option
@json_option
def explain(task: str, at: str | None, tz: str | None, store: StorePlace, as_json: bool) -> int:
    """Explain why a task ran, did not run, or ran late.

    \b
    Example:
      duly explain backup --store state.db
      duly explain backup --at 2024-03-31T02:30 --store state.db
    """
    explanation, zone_of_store = reader_of(store).read(lambda view: _explain(view, task, at, tz))
    zone = explanation.at.tzinfo
    assert zone is not None
    if not is_zone(zone, zone_of_store, instant_of(explanation.at)):
        note(f"the store is used in {zone_of_store}; here, what is due is computed in {explanation.zone}")
    if as_json:
        print_json("explain", json_form(explanation, zone))
    else:
        _show(explanation)
    return Exit.OK


def _explain(view: View, task: str, at: str | None, tz: str | None) -> tuple[Explanation, str]:
    """The explanation, and the name of the zone in which the store is used."""
    snapshot = view.snapshot()
    used = zone_in_use(snapshot.zone, host_zone())
    zone = used if tz is None else zone_named(tz)
    if not (declarations := view.declarations(task)):
        raise unknown_task(view, task)
    try:
        if at is None:
            asked = minute_to_explain(declarations, snapshot.at, zone)
        else:
            asked = parse_moment(at, zone, snapshot.at)
    except (ValueError, OverflowError) as fault:
        fail(f"--at: {fault}")
    except InvalidCronExpressionError as fault:
        raise _unreadable(task, fault) from fault
    try:
        return explain_minute(view, task, asked), zone_name(used)
    except InvalidCronExpressionError as fault:
        raise _unreadable(task, fault) from fault


def _unreadable(task: str, fault: InvalidCronExpressionError) -> Failure:
    return Failure(f"the store holds a declaration of {plain(task)} that cannot be read: {fault}", None, Exit.STORE)


# --- for people ------------------------------------------------------------------------------------------------------


def _show(explanation: Explanation) -> None:
    style = _STYLES.get(explanation.verdict, "bold")
    asked = f" at {explanation.at:%a %Y-%m-%d %H:%M}: "
    say(Text.assemble((plain(explanation.task), "bold"), asked, (explanation.headline, style)))
    for reason in explanation.reasons:
        say(f"  - {plain(reason.text)}")
