"""What if: the stored declarations in a time to come, with an outage or a crash; simulated in a child process."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Any, Final

from duly.core.moments import MICROSECONDS, Instant, as_datetime, instant_of, zone_name
from duly.insight.zone import zone_in_use
from duly.stores.port import View
from duly.web.child import NotAnsweredError
from duly.web.display import is_long, long_names
from duly.web.forms import Form, ParameterError
from duly.web.frame import Frame
from duly.web.pictures import OUTCOMES, Interval, simulated

_MINUTE: Final = 60 * MICROSECONDS
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_LONGEST: Final = 366 * _DAY
_EVENTS_MAX: Final = 20
"""Downtimes, and crashes, that one address may name."""

BARS: Final = 96
TASKS_SHOWN: Final = 200
STARTS_SHOWN: Final = 50
_LATE_MS: Final = 1_000


def page(frame: Frame, form: Form) -> str:
    """Show the form, and, if it was filled in, what would come of the time."""
    host_zone = frame.source.clock.zone()

    def question(view: View) -> tuple[tzinfo, Instant]:
        snapshot = view.snapshot()
        return zone_in_use(snapshot.zone, host_zone), snapshot.at

    zone, at = frame.source.read(question)
    display = frame.display(zone, at)
    fields = {name: form.text(name) for name in ("from", "to", "down", "crash")}
    answer: Mapping[str, Any] | None = None
    refusal: NotAnsweredError | None = None
    if any(fields.values()):
        request = _request(form, zone, at)
        try:
            answer = frame.source.children.ask("whatif", request)
        except NotAnsweredError as fault:
            if fault.status == 429:
                raise
            refusal = fault
    if answer is not None:
        document = answer["document"]
        names = {each["task"] for each in (*document["tasks"][:TASKS_SHOWN], *document["starts"])}
        if any(map(is_long, names)):
            display = display.knowing(frame.source.read(lambda view: long_names(view, names)))
    return frame.rendered(
        "whatif.html",
        display,
        "What if",
        "What if",
        fields=fields,
        example=_example(zone, at),
        refusal=refusal,
        zone=zone_name(zone),
        stand_ins=None if answer is None else answer["standIns"],
        idle=None if answer is None else answer["idle"],
        **shown(None if answer is None else answer["document"], zone),
    )


def _request(form: Form, zone: tzinfo, at: Instant) -> dict[str, Any]:
    begin = form.near_moment("from", zone, at)
    # From a whole minute on: a scheduler that begins within one would serve it late, which is of no interest here.
    begin = Instant(-(-(at if begin is None else begin) // _MINUTE) * _MINUTE)
    end = form.near_moment("to", zone, at)
    end = Instant(begin + _DAY) if end is None else end
    if not begin < end:
        raise ParameterError("from is not before to")
    if end - begin > _LONGEST:
        raise ParameterError("from and to are more than a year apart")
    return {
        "now": at,
        "zone": zone_name(zone),
        "begin": begin,
        "end": end,
        "down": _downtimes(form, zone, at, begin, end),
        "crashes": [
            _inside("crash", form.moment_of("crash", text, zone, at), begin, end) for text in _listed(form, "crash")
        ],
    }


def _example(zone: tzinfo, at: Instant) -> dict[str, str]:
    """Examples for the fields, with times of the coming hours."""
    first, second, third = (f"{as_datetime(at + hours * _HOUR, zone):%Y-%m-%dT%H:00}" for hours in (2, 6, 8))
    return {"down": f"{first}..{second}", "crash": third}


def _listed(form: Form, name: str) -> list[str]:
    texts = [text.strip() for text in form.text(name).split(",") if text.strip()]
    if len(texts) > _EVENTS_MAX:
        raise ParameterError(f"{name} names more than {_EVENTS_MAX} of them")
    return texts


def _downtimes(form: Form, zone: tzinfo, at: Instant, begin: Instant, end: Instant) -> list[tuple[Instant, Instant]]:
    found = []
    for text in _listed(form, "down"):
        since_text, dots, until_text = text.partition("..")
        if not dots:
            raise ParameterError("down is a time without a scheduler: FROM..TO, such as 01:00..06:00")
        since = _inside("down", form.moment_of("down", since_text, zone, at), begin, end)
        until = _inside("down", form.moment_of("down", until_text, zone, at), begin, end)
        if not since < until:
            raise ParameterError("down: the begin of a time without a scheduler is not before its end")
        found.append((since, until))
    found.sort()
    if any(later[0] <= earlier[1] for earlier, later in pairwise(found)):
        raise ParameterError("down: two times overlap; join them into one")
    return found


def _inside(name: str, when: Instant, begin: Instant, end: Instant) -> Instant:
    if not begin <= when <= end:
        raise ParameterError(f"{name} is not between from and to")
    return when


# --- the result ------------------------------------------------------------------------------------------------------


def shown(document: Mapping[str, Any] | None, zone: tzinfo) -> dict[str, Any]:
    """The part of the document of `duly simulate --json` that the template shows."""
    if document is None:
        return {"simulation": None}
    intervals = _intervals(document)
    down = [(_instant(each["from"]), _instant(each["to"])) for each in document["down"]]
    crashes = [_instant(each) for each in document["crashes"]]
    notable = [each for each in document["starts"] if _is_notable(each)]
    return {
        "simulation": document,
        "intervals": intervals,
        "outcomes": OUTCOMES,
        "picture": simulated(intervals, down, crashes, zone),
        "tasks": document["tasks"][:TASKS_SHOWN],
        "notable": notable[:STARTS_SHOWN],
        "notable_more": max(0, len(notable) - STARTS_SHOWN),
        "totals": _totals(document["tasks"]),
    }


def _instant(text: str) -> Instant:
    return instant_of(datetime.fromisoformat(text))


def _intervals(document: Mapping[str, Any]) -> list[Interval]:
    """The simulated time in equal parts, of whole minutes if there are as many."""
    begin, end = _instant(document["from"]), _instant(document["to"])
    width = max(1, -(-(end - begin) // BARS))
    width = -(-width // _MINUTE) * _MINUTE if end - begin > _MINUTE else width
    bounds = list(range(begin, end, width))
    starts: Sequence[Counter[str]] = [Counter() for _ in bounds]
    for each in document["starts"]:
        starts[max(0, bisect_right(bounds, _instant(each["at"])) - 1)][each["outcome"]] += 1
    return [
        Interval(Instant(bound), Instant(bound + width), found) for bound, found in zip(bounds, starts, strict=True)
    ]


def _is_notable(start: Mapping[str, Any]) -> bool:
    """Whether it is anything but a start for one due minute, in that minute, that succeeded."""
    plain = start["cause"] == "cron" and start["outcome"] in {"success", "running"} and start["serves"] == 1
    return not plain or start["latenessMs"] >= _LATE_MS


def _totals(tasks: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """Number, label and colour."""
    tones = {
        "starts": ("starts", "running"),
        "failures": ("failures", "failure"),
        "retries": ("retries", "owed"),
        "interrupted": ("interrupted", "interrupted"),
        "missed": ("due minutes served later", "owed"),
        "stillOwed": ("still owed at the end", "owed"),
    }
    return [(sum(each[field] for each in tasks), label, tone) for field, (label, tone) in tones.items()]
