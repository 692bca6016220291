"""The verdict on the trace, property by property; computed in a child process, and kept while the trace stays."""

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from duly.core.moments import as_datetime
from duly.insight.words import counted
from duly.insight.zone import zone_in_use
from duly.text import plain
from duly.web.api import without_errors
from duly.web.child import NotAnsweredError
from duly.web.display import is_long, long_names
from duly.web.forms import Form
from duly.web.frame import Frame


def page(frame: Frame, form: Form) -> str:
    """Show the judgement; what is not known is said to be so, and why."""
    snapshot = frame.source.read(lambda view: view.snapshot())
    display = frame.display(zone_in_use(snapshot.zone, frame.source.clock.zone()), snapshot.at)
    document: Mapping[str, Any] | None = None
    refusal: NotAnsweredError | None = None
    try:
        document = frame.source.judgement()
    except NotAnsweredError as fault:
        if fault.status == 429:
            raise
        refusal = fault
    if document is not None and not frame.settings.show_errors:
        document = without_errors(document)
    firsts = [] if document is None else [each["first"] for each in document["properties"]]
    names = {first["task"] for first in firsts if first is not None and first["task"] is not None}
    if any(map(is_long, names)):
        display = display.knowing(frame.source.read(lambda view: long_names(view, names)))
    return frame.rendered("verify.html", display, "Verify", "Verify", refusal=refusal, **shown(document))


def shown(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of the document of `duly verify --json` that the template shows."""
    if document is None:
        return {"judgement": None}
    properties = document["properties"]
    return {
        "judgement": document,
        "headline": _headline(document),
        "read": _what_was_read(document),
        "violated": [(each, _registers(each), _sub_trace(each)) for each in properties if each["value"] == "violated"],
        "pending": [each for each in properties if each["value"] == "pending"],
    }


def _headline(document: Mapping[str, Any]) -> str:
    """The verdict in a few words."""
    properties = document["properties"]
    by_value = {
        value: ", ".join(each["property"] for each in properties if each["value"] == value)
        for value in ("violated", "pending")
    }
    if by_value["violated"]:
        return f"Violated: {by_value['violated']}"
    if by_value["pending"]:
        return f"Nothing violated; pending: {by_value['pending']}"
    so_far = "" if document["ended"] else " so far"
    return f"{len(properties)} properties hold{so_far}"


def _what_was_read(document: Mapping[str, Any]) -> str:
    crashes = document["crashes"]
    facts = [
        counted(document["events"], "event"),
        counted(document["segments"], "segment"),
        counted(document["tasks"], "task"),
        "no crash" if not crashes else "1 crash" if crashes == 1 else f"{crashes:,} crashes",
    ]
    return ", ".join(facts)


def _registers(judged: Mapping[str, Any]) -> list[str]:
    """The registers before the first violation: what holds, what does not, and the others with their values."""
    known = {} if judged["first"] is None else judged["first"]["registers"]
    truths = [name if value else f"¬{name}" for name, value in known.items() if isinstance(value, bool)]
    return truths + [
        f"{name} = {value}" for name, value in known.items() if value is not None and not isinstance(value, bool)
    ]


def _sub_trace(judged: Mapping[str, Any]) -> list[str]:
    """The events of the smallest sub-trace, a line each: number, instant, host, letters, and what else they say.

    In UTC, as the trace has them: the zone may change within it.
    """
    first = judged["first"]
    found = None if first is None else first["subTrace"]
    if found is None:
        return []
    shared = "host" in first["registers"]  # then each event names its host
    return [_line(letters, seq, at, fields, shared=shared) for letters, seq, at, *fields in found["events"]]


def _line(letters: str, seq: int, at: int, fields: Sequence[Any], *, shared: bool) -> str:
    when = as_datetime(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    host = f"host {fields[0]}  " if shared else ""
    said = "  ".join(plain(field, longest=200) for field in fields[shared:] if field not in (None, ""))
    return f"{seq:>6}  {when}  {host}{letters}  {said}".rstrip()
