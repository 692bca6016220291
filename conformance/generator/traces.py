"""Traces and what they say: verdicts by the formulas themselves, and traces that are broken.

The letters of a trace come from tests/formal/story.py; the verdict comes from tests/formal/reference, which evaluates
the texts of the formulas, position by position, and not from the monitor. What is compared is the first event at which
anything is violated: after it, a trace is not one of a scheduler any more. The lines are written and hashed here.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from conformance import tz_database
from conformance.vector_files import Group, Vector, VectorFile
from duly.formal.properties import PROPERTIES, PropertyKind, Value
from duly.formal.trace import CK, LETTERS, RG, Event, line_of
from tests.formal.reference.formulas import Evaluation, read
from tests.formal.reference.unfold import instances, unfold, violated
from tests.formal.story import HOUR, Story

Line = str

TOLD: Final = (
    ("the first example of the source documents", "IS IE Due RS REs Due RS REf RetryDue RS REs"),
    ("a due minute before the retry", "IS IE Due RS REs Due RS REf Due RS REs"),
    ("a stop and a new beginning", "IS IE SS SE IS IE Due RS REs"),
    ("a crash, and the interrupted run again", "IS IE Due RS Crash IS IE RS REs"),
    ("nothing has happened yet", "IS IE"),
    ("an initialize that has not returned", "IS"),
    ("a stop that has not returned", "IS IE SS"),
    ("a due minute that nothing has served yet", "IS IE Due IS IE"),
    ("a task overlaps itself", "IS IE Due RS Due RS"),
    ("a start while its run goes on, without a reason", "IS IE Due RS RS"),
    ("a start that nothing has asked for", "IS IE RS"),
    ("a second start for one due minute", "IS IE Due RS REs RS"),
    ("two successes in one period", "IS IE Due RS REs RS REs"),
    ("a run across a due minute, and its follow-up", "IS IE Due RS Due REs RS REs"),
    ("a third success", "IS IE Due RS Due REs RS REs RS REs"),
    ("a retry before its delay has passed", "IS IE Due RS REf RS"),
    ("a retry in time", "IS IE Due RS REf RetryDue RS REs"),
    ("a retry that came due and was not started", "IS IE Due RS REf RetryDue IS IE"),
    ("a success clears the retry", "IS IE Due RS REf Due RS REs RetryDue RS"),
    ("one start serves two due minutes", "IS IE Due Due RS REs"),
    ("and not a second one", "IS IE Due Due RS REs RS"),
    ("what is owed survives a stop", "IS IE Due SS SE IS IE RS REs"),
    ("a start after a completed stop", "IS IE Due SS SE RS"),
    ("a start while a stop is open", "IS IE Due SS RS"),
    ("an end after a completed stop", "IS IE Due RS SS SE REs"),
    ("a stop that returned while a run goes on", "IS IE Due RS SS SE"),
    ("an end without a start", "IS IE REs"),
    ("a run ends twice", "IS IE Due RS REs REs"),
    ("a run that a crash cut short ends", "IS IE Due RS Crash REs"),
    ("a start between a crash and an initialize", "IS IE Due RS Crash RS"),
    ("a return without a call", "IS IE IE"),
    ("a stop completes that nobody called", "IS IE SE"),
    ("a stop completes that was called before the crash", "IS IE SS Crash SE"),
    ("an initialize that failed", "IS IE IS IF Due RS REs"),
    ("a stop that was refused", "IS IE SF Due RS REs"),
    ("a stop that raised", "IS IE SS SF IS IE Due RS REs"),
    ("a task that is no longer declared starts", "IS IE Due IS IE∅ RS"),
    ("an obligation is withdrawn with its declaration", "IS IE Due IS IE∅"),
    ("an override drops what was owed", "IS IE Due Override RS"),
    ("an override drops the retry", "IS IE Due RS REf Override RetryDue RS"),
    ("a run outlives its declaration", "IS IE Due RS Override REs"),
    ("its successor starts before it ended", "IS IE Due RS Override Due RS"),
    ("its failure arms no retry", "IS IE Due RS Override REf RetryDue RS"),
    ("the second interruption in a row waits", "IS IE Due RS Crash IS IE RS Crash IS IE RS"),
    ("and starts when it has waited", "IS IE Due RS Crash IS IE RS Crash IS IE Rest RS REs"),
    ("an interrupted retry is owed again", "IS IE Due RS REf RetryDue RS Crash IS IE RS REs"),
    ("an initialize that a stop overtook does not activate", "IS SS IE SE Due RS"),
    ("two calls, one return", "IS IS IE"),
    ("a crash closes open calls", "IS IE SS IS Crash IS IE"),
)

WAITING: Final = (
    ("waiting: an interrupted cron run waits", "IS IE Due RS Crash IS IE RS"),
    ("waiting: until the next due minute", "IS IE Due RS Crash IS IE Due RS REs"),
    ("waiting: the retry that was pending is still owed", "IS IE Due RS REf RetryDue RS Crash IS IE RetryDue RS REs"),
)

TWO_TASKS: Final = (
    ("two tasks run at one time", "IS IE Due RS RS:y REs REs:y"),
    ("one task's stop waits for the other", "IS IE Due RS RS:y REs SS SE"),
    ("one is served, the other is not", "IS IE Due RS REs IS IE"),
    ("one overlaps itself", "IS IE Due RS RS:y Due REs:y RS RS:y"),
)

ENDED: Final = (
    ("ended: everything was served", "IS IE Due RS REs SS SE"),
    ("ended: nothing happened", "IS IE SS SE"),
    ("ended: a due minute is left to the next start", "IS IE Due SS SE"),
    ("ended: after a crash", "IS IE Due RS Crash IS IE RS REs SS SE"),
    ("ended: a call never returned", "IS IE IS SS SE"),
    ("ended: with a violation", "IS IE RS REs SS SE"),
)


RECORDED: Final = (
    ("recorded: an overlap after a pause, in version 1", "examples/traces/overlap-after-a-pause.jsonl"),
    ("recorded: a late run was dropped, in version 1", "examples/traces/late-run-dropped.jsonl"),
    ("recorded: a deployment of duly 0.1.0, killed once", "tests/fixtures/v0.1.0/trace.jsonl"),
)
ROOT: Final = Path(__file__).parent.parent.parent


def vector_file() -> VectorFile:
    """The group `traces`."""
    tz_database.use_package()
    return VectorFile(
        Group.TRACES,
        "Traces of a scheduler in the form of docs/formal.md, and the verdict on each: the first event at which "
        "properties are violated, or what is pending; or why a trace cannot be judged.",
        "SPEC 7",
        list(vectors()),
    )


def vectors() -> Iterator[Vector]:
    """All of them."""
    for about, text in TOLD:
        yield _judged(about, Story().tell(text).events)
    for about, text in WAITING:
        yield _judged(about, Story(mode="wait").tell(text).events)
    for about, text in TWO_TASKS:
        yield _judged(about, Story(tasks="xy").tell(text).events)
    for about, text in ENDED:
        yield _judged(about, Story().tell(text).events, clean=True)
    for about, zone in (
        ("the clock was set back a little", "UTC"),
        ("the clock was set back, in a zone", "Europe/Berlin"),
    ):
        yield _judged(about, _set_back(zone, HOUR // 2))
        yield _judged(f"{about}, far", _set_back(zone, 5 * HOUR))
    for about, file in RECORDED:
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        events = [LETTERS[letters](*fields) for letters, *fields in map(json.loads, lines[1:-1])]
        clean = json.loads(lines[-1])["seal"] == "clean"
        yield {"id": _identifier(about), "about": about, "lines": lines, "expected": verdict(events, clean=clean)}
    for about, lines, fault in _broken():
        yield {"id": _identifier(about), "about": about, "lines": lines, "expected": {"broken": fault}}


def _judged(about: str, events: list[Event], *, clean: bool = False) -> Vector:
    identifier = about.replace(" ", "-").replace(",", "").replace(":", "")
    return {
        "id": identifier,
        "about": about,
        "lines": lines_of(events, clean=clean),
        "expected": verdict(events, clean=clean),
    }


def _identifier(about: str) -> str:
    return about.replace(" ", "-").replace(",", "").replace(":", "")


def _set_back(zone: str, by: int) -> list[Event]:
    """A served minute comes again because the clock was set back: it is silenced, or, if far, due again."""
    told = Story(zone=zone).tell("IS IE Due RS REs")
    old = told.now
    told.now -= by
    told.events.append(CK(len(told.events) + 1, told.now, old))  # type: ignore[arg-type]
    return told.tell("Due RS REs").events


# --- verdicts --------------------------------------------------------------------------------------------------------


def verdict(events: list[Event], *, clean: bool) -> dict[str, Any]:
    """The verdict of the formulas."""
    found = violated(events)
    if found:
        first = min(found.values())
        names = sorted(name for name, seq in found.items() if seq == first)
        return {"verdict": "violated", "seq": first, "properties": names}
    pending = sorted(_pending(events))
    if pending:
        return {"verdict": "violated" if clean else "pending", "properties": pending}
    return {"verdict": "satisfied" if clean else "holding"}


def _pending(events: list[Event]) -> set[str]:
    found = set()
    for name in sorted({event.task for event in events if isinstance(event, RG)}) or [""]:
        evaluation = Evaluation(unfold(events, name))
        for each in PROPERTIES:
            for text in instances(each.formula, events, name) if each.kind is PropertyKind.LIVENESS else ():
                if evaluation.judge(read(text)) is Value.PENDING:
                    found.add(each.id)
    return found


# --- lines -----------------------------------------------------------------------------------------------------------


def lines_of(events: Sequence[Event], *, clean: bool) -> list[Line]:
    """A segment: header, events, seal."""
    head = {
        "trace": "duly",
        "version": 2,
        "scheduler": "a story",
        "segment": 1,
        "previous": None,
        "first": 1,
        "registers": None,
    }
    lines = [_json(head), *(_json(line_of(event)) for event in events)]
    return [*lines, seal(lines, clean=clean)]


def seal(lines: Sequence[Line], *, clean: bool) -> Line:
    """The last line: how many events there are, and a hash of all lines before it and of its own words."""
    words = {"seal": "clean" if clean else "open", "count": len(lines) - 1}
    text = "".join(f"{line}\n" for line in (*lines, _json(words)))
    return _json({**words, "hash": hashlib.sha256(text.encode("ascii")).hexdigest()})


def _json(value: object) -> Line:
    return json.dumps(value, separators=(",", ":"))


def _broken() -> Iterator[tuple[str, list[Line], str]]:
    whole = lines_of(Story().tell("IS IE Due RS REs").events, clean=False)
    header, events = whole[0], whole[1:-1]
    yield "broken nothing at all", [], "truncated"
    yield "broken the seal is missing", whole[:-1], "truncated"
    yield "broken the last event is missing", [*whole[:-2], whole[-1]], "truncated"
    yield "broken an event in the middle is missing", [*whole[:3], *whole[4:]], "reordered"
    yield "broken two events changed places", [*whole[:3], whole[4], whole[3], *whole[5:]], "reordered"
    edited = [line.replace('"cron",0', '"retry",0') for line in whole]
    yield "broken a line was edited", edited, "hash"
    yield "broken the seal was edited", [*whole[:-1], whole[-1].replace('"open"', '"clean"')], "hash"
    yield "broken the header is missing", events, "malformed"
    yield "broken a line is not JSON", [header, "RS 1 2 3", *events], "malformed"
    yield "broken an unknown event", [header, events[0].replace('"BT"', '"QQ"'), *events[1:]], "malformed"
    yield "broken an event with a field too few", [header, '["BT",1,0,"boot"]', *events[1:]], "malformed"
    yield "broken an event with a text for a number", [header, '["BT",1,"0","boot",0]', *events[1:]], "malformed"
    yield "broken a newer version", [header.replace('"version":2', '"version":99'), *whole[1:]], "version"
    yield "broken an event after the seal", [*whole, events[-1]], "mixed"
    yield "broken a clean seal without a stop", [*whole[:-1], seal(whole[:-1], clean=True)], "malformed"
    yield "broken another file instead of a trace", ["{}", "[]"], "malformed"
