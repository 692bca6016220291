"""An answer against a vector: they agree, the answer deviates in a known way, or the vector does not apply."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from conformance.calendar import Expression, instant_of, offset_at, read
from conformance.deviations import GRAVEST_FIRST, KINDS
from conformance.vector_files import Group, Vector

Answer = dict[str, Any]

NEAR: Final = timedelta(hours=1)
"""How long after a gap a minute still counts as one that was moved there, beside the length of the gap."""


class Outcome(NamedTuple):
    """The result of a comparison; `kind` is None where the two agree."""

    applies: bool
    kind: str | None = None
    answered: str = ""
    """The implementation's answer, for people; or why the vector does not apply."""


AGREES: Final = Outcome(True)


def question(group: Group, vector: Vector) -> dict[str, Any]:
    """The request that asks an implementation about a vector, without the answer."""
    match group:
        case Group.CRON_PARSE:
            return {"ask": "parse", "expression": vector["expression"]}
        case Group.CALENDAR | Group.TRANSITIONS:
            head = {"ask": "next", "expression": vector["expression"], "zone": vector["zone"]}
            return {**head, "from": vector["from"], "count": len(vector["next"])}
        case Group.SCENARIOS:
            left_out = ("id", "clause", "about", "starts")
            return {"ask": "scenario", **{name: value for name, value in vector.items() if name not in left_out}}
        case Group.TRACES:
            return {"ask": "verdict", "lines": vector["lines"]}
        case Group.ERRORS:
            return {"ask": "register", "registrations": vector["registrations"]}


def compare(group: Group, vector: Vector, answer: Answer) -> Outcome:
    """Compare an answer with what a vector expects."""
    if "notApplicable" in answer:
        return Outcome(False, None, str(answer["notApplicable"]))
    try:
        return _compared(group, vector, answer)
    except (ValueError, OverflowError) as fault:  # a text that is no instant
        return _deviates("no-answer", fault)


def _compared(group: Group, vector: Vector, answer: Answer) -> Outcome:
    match group:
        case Group.CRON_PARSE:
            return _parsed(vector, answer)
        case Group.CALENDAR:
            return _calendar(vector, answer)
        case Group.TRANSITIONS:
            return _round_a_change(vector, answer)
        case Group.SCENARIOS:
            return _starts(vector, answer)
        case Group.TRACES:
            return _same(vector["expected"], answer, "another-verdict")
        case Group.ERRORS:
            return _error(vector["expected"], answer)


def _deviates(kind: str, answered: object) -> Outcome:
    assert kind in KINDS, kind
    return Outcome(True, kind, str(answered))


def _same(expected: dict[str, Any], answer: Answer, kind: str) -> Outcome:
    return AGREES if answer == expected else _deviates(kind, answer)


# --- parsing ---------------------------------------------------------------------------------------------------------


def _parsed(vector: Vector, answer: Answer) -> Outcome:
    valid = answer.get("valid")
    if not isinstance(valid, bool):
        return _deviates("no-answer", answer.get("failed", answer))
    if valid != vector["valid"]:
        verb, said = ("accepts", "accepted") if valid else ("refuses", answer.get("says", "refused"))
        return _deviates(f"{verb}-{vector['rule']}", said)
    if valid:
        sets = answer.get("sets")
        return AGREES if sets is None or sets == vector["sets"] else _deviates("another-set", sets)
    if answer.get("field") not in (None, vector["field"]):
        return _deviates("another-field", answer["field"])
    if None not in (answer.get("reason"), vector.get("reason")) and answer["reason"] != vector["reason"]:
        return _deviates("another-reason", answer["reason"])
    return AGREES


# --- occurrences -----------------------------------------------------------------------------------------------------


def _calendar(vector: Vector, answer: Answer) -> Outcome:
    found = answer.get("next")
    if not isinstance(found, list) or len(found) < len(vector["next"]):
        joins_days = vector["rule"] == "month-and-either-day"
        return _deviates("no-answer-either-day" if joins_days else "no-answer", answer.get("failed", found))
    if list(map(instant_of, found)) == list(map(instant_of, vector["next"])):
        return AGREES
    return _deviates(f"calendar-{vector['rule']}", ", ".join(found))


def premise_holds(vector: Vector) -> bool:
    """Whether the tz database in use shows the wall clock that a vector was made with; else it cannot be judged."""
    try:
        zone = ZoneInfo(vector["zone"])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    moments = [datetime.fromisoformat(text) for text in (*vector.get("change", ()), *vector["next"])]
    return all(moment.utcoffset() == offset_at(zone, moment) for moment in moments)


class _Clock(NamedTuple):
    """The expression, the zone and the change, as a comparison round a clock change needs them."""

    expression: Expression
    zone: ZoneInfo
    change: tuple[datetime, datetime] | None  # the last second before it, and the first after it, as the clock shows

    def is_shown(self, text: str) -> bool:
        """Whether the zone's clock shows this local time at this instant; `Z` makes no claim about a local time."""
        moment = datetime.fromisoformat(text)
        return text.endswith("Z") or moment.utcoffset() == offset_at(self.zone, moment)

    def kind_of_extra(self, instant: datetime, all_of_them: set[datetime]) -> str:
        """The kind of an occurrence that should not be there."""
        wall = instant.astimezone(self.zone)
        if self.expression.names(wall) and wall.fold:
            if not self.expression.is_at_fixed_times:
                return "every-copy"
            if wall.replace(fold=0).timestamp() not in {each.timestamp() for each in all_of_them}:
                return "second-copy"
            return "both-copies"
        if self.change is not None:
            before, after = self.change
            gap = after.utcoffset() - before.utcoffset()  # type: ignore[operator]
            if gap > timedelta(0) and after <= instant <= after + gap + NEAR:
                return "moved"
        return "unnamed"


def _round_a_change(vector: Vector, answer: Answer) -> Outcome:
    texts = answer.get("next")
    if not isinstance(texts, list) or len(texts) < len(vector["next"]):
        return _deviates("no-answer", answer.get("failed", texts))
    if texts == vector["next"]:
        return AGREES
    change = tuple(map(datetime.fromisoformat, vector["change"])) if "change" in vector else None
    clock = _Clock(read(vector["expression"]), ZoneInfo(vector["zone"]), change)  # type: ignore[arg-type]
    found, expected = list(map(instant_of, texts)), list(map(instant_of, vector["next"]))
    kinds = {"nonexistent-time" for text in texts if not clock.is_shown(text)}
    line = [instant_of(vector["from"]), *found]
    if any(later <= earlier for earlier, later in pairwise(line)):
        kinds.add("not-increasing")
    horizon = min(found[-1], expected[-1])
    extra = {instant for instant in found if instant <= horizon} - set(expected)
    kinds |= {clock.kind_of_extra(instant, set(found)) for instant in extra}
    missing = {instant for instant in expected if instant <= horizon} - set(found)
    again = {instant.astimezone(clock.zone).replace(fold=0) for instant in extra}
    if any(instant.astimezone(clock.zone) not in again for instant in missing):
        kinds.add("lost")
    if not kinds:
        return AGREES
    return _deviates(min(kinds, key=GRAVEST_FIRST.index), ", ".join(texts))


# --- schedulers ------------------------------------------------------------------------------------------------------


def _starts(vector: Vector, answer: Answer) -> Outcome:
    """Starts in any order among those of one instant; each may be as late as the vector allows."""
    found = answer.get("starts")
    if not isinstance(found, list):
        return _deviates("no-answer", answer.get("failed", found))
    allowed = timedelta(seconds=vector.get("withinSeconds", 0))
    left = sorted((each["task"], each["cause"], instant_of(each["at"])) for each in found)
    expected = sorted((each["task"], each["cause"], instant_of(each["at"])) for each in vector["starts"])
    if [each[:2] for each in left] != [each[:2] for each in expected]:
        return _deviates("another-start", found)
    if any(not due <= at <= due + allowed for (*_, at), (*_, due) in zip(left, expected, strict=True)):
        return _deviates("another-start", found)
    return AGREES


def _error(expected: dict[str, Any], answer: Answer) -> Outcome:
    """The class, and those details and texts that the vector states."""
    if "error" not in expected or "error" not in answer:
        return AGREES if expected == answer else _deviates("another-error", answer)
    details = answer.get("details", {})
    wrong = [name for name, value in expected.get("details", {}).items() if details.get(name) != value]
    same_text = expected.get("message") in (None, answer.get("message"))
    if answer["error"] != expected["error"] or wrong or not same_text:
        return _deviates("another-error", answer)
    return AGREES
