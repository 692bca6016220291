"""Batches and entries of the log as JSON, and back.

Numbers of many tasks stand in one text, as PostgreSQL writes arrays: `{1,2,3}`. Runs are beyond what JSON can hold
exactly in other languages, so they are text everywhere.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from duly.core.moments import Instant, Minute
from duly.core.news import (
    Buried,
    Changes,
    Content,
    Corrected,
    Ended,
    FailedRun,
    Joined,
    Left,
    LogEntry,
    Moved,
    Note,
    Replaced,
    Spans,
    Started,
    Statement,
    Unreadable,
    Written,
)
from duly.core.task import Cause, Obligation

Json = dict[str, Any]


def json_of(changes: Changes) -> Json:
    """The request of a host, as `write_1` takes it."""
    form: Json = {
        "ends": [_end_form(each) for each in changes.ends],
        "starts": [_start_form(e) for e in changes.starts],
    }
    if changes.starts:
        form["running"] = changes.running
    if changes.notes:
        form["notes"] = changes.notes
    if changes.correct:
        form["correct"] = True
    return form


def said_form(said: Statement) -> Json:
    """A host's description of itself, as `replace_1` takes it."""
    return asdict(said)


def spans_form(spans: Spans) -> list[str] | None:
    """Spans as two arrays of PostgreSQL; None for none."""
    return [array(first for first, _ in spans), array(last for _, last in spans)] if spans else None


def entry_of(row: Json) -> LogEntry:
    """An entry of the log; a kind that this version does not know is `Unreadable`."""
    return _entry(row, _content(row["kind"], row["entry"], row["refused"]))


def news_of(row: Json) -> LogEntry:
    """An entry for a host, which loads anew if it is `Unreadable`: a later version may have written it."""
    try:
        return entry_of(row)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return _entry(row, Unreadable(row["kind"]))


def _entry(row: Json, content: Content) -> LogEntry:
    return LogEntry(
        seq=row["seq"],
        host=row["host"],
        number=row["number"],
        nonce=row["nonce"].replace("-", ""),
        at=Instant(row["at"]),
        content=content,
    )


def array(numbers: Iterable[int]) -> str:
    """Numbers as PostgreSQL writes an array."""
    return f"{{{','.join(map(str, numbers))}}}"


def numbers(text: str | None) -> tuple[int, ...]:
    """An array of PostgreSQL as numbers."""
    inner = (text or "")[1:-1]
    return tuple(map(int, inner.split(","))) if inner else ()


def corrected_of(form: Json | None) -> Corrected | None:
    """A correction that the store has made, or None."""
    return None if form is None else Corrected(Instant(form["at"]), Minute(form["minute"]))


def _content(kind: str, entry: Json, refused: str | None) -> Content:
    match kind:
        case "written":
            ends = tuple(_end_of(each) for each in entry["ends"])
            starts = tuple(_start_of(each) for each in entry["starts"])
            fenced = numbers(entry.get("fenced"))
            return Written(
                ends,
                starts,
                corrected_of(entry.get("corrected")),
                numbers(refused),
                fenced,
                _notes_of(entry),
                entry.get("running", 0),
            )
        case "joined":
            return Joined(
                entry["edition"],
                entry["outdated"],
                entry["zone"],
                corrected_of(entry.get("corrected")),
                _said_of(entry["said"]),
                _moved_of(entry),
                entry.get("label"),
            )
        case "replaced":
            return Replaced(
                edition=entry["edition"],
                known_since=Instant(entry["known_since"]),
                first_generation=entry["first_generation"],
                added=entry["added"],
                removed=numbers(entry["removed"]),
                blocked=tuple((generation, int(run)) for generation, run in entry["blocked"]),
                reinstated=entry["reinstated"],
                zone=entry["zone"],
                corrected=corrected_of(entry.get("corrected")),
                said=_said_of(entry["said"]),
                moved=_moved_of(entry),
                renumbered=numbers(entry.get("renumbered")),
                label=entry.get("label"),
            )
        case "buried":
            return Buried(entry["host"])
        case "left":
            return Left(_notes_of(entry))
        case _:
            return Unreadable(kind)


def _notes_of(entry: Json) -> tuple[Note, ...]:
    return tuple(tuple(note) for note in entry.get("notes", ()))


def _said_of(form: Json) -> Statement:
    return Statement(
        call=form["call"],
        declared=form["declared"],
        digest=form["digest"],
        interrupted=form["interrupted"],
        max_concurrency=form.get("max_concurrency"),
        threads=form.get("threads"),
        mono=form["mono"],
    )


def _moved_of(entry: Json) -> Moved:
    return Moved(_spans_of(entry.get("to_threads")), _spans_of(entry.get("to_loop")))


def _spans_of(form: list[str] | None) -> Spans:
    return () if form is None else tuple(zip(numbers(form[0]), numbers(form[1]), strict=True))


def _start_form(block: Started) -> Json:
    return {
        "g": array(block.generations),
        "run": str(block.first_run),
        "cause": block.cause.value,
        "at": block.at,
        "scheduled": block.scheduled,
        "mark": block.served_through,
        "retry": block.pending_retry_until,
        "interruptions": block.interruptions,
        "of": _obligation_form(block.obligation),
    }


def _start_of(form: Json) -> Started:
    return Started(
        generations=numbers(form["g"]),
        first_run=int(form["run"]),
        cause=Cause(form["cause"]),
        at=Instant(form["at"]),
        scheduled=Instant(form["scheduled"]),
        served_through=Minute(form["mark"]),
        pending_retry_until=form.get("retry"),
        interruptions=form["interruptions"],
        obligation=_obligation_of(form["of"]),
    )


def _end_form(block: Ended) -> Json:
    form: Json = {
        "g": array(block.generations),
        "r": array(block.runs),
        "at": block.at,
        "cause": block.cause.value,
        "scheduled": block.scheduled,
        "started": block.started_at,
        "called": block.called_at,
        "of": _obligation_form(block.obligation),
    }
    if (failure := block.failure) is not None:
        form |= {"error": failure.error, "traceback": failure.traceback}
        form |= {"retry": failure.pending_retry_until, "failures": failure.failures}
    return form


def _end_of(form: Json) -> Ended:
    failure = None
    if "error" in form:
        failure = FailedRun(form["error"], form.get("traceback"), form.get("retry"), form["failures"])
    return Ended(
        generations=numbers(form["g"]),
        runs=numbers(form["r"]),
        at=Instant(form["at"]),
        cause=Cause(form["cause"]),
        scheduled=Instant(form["scheduled"]),
        started_at=Instant(form["started"]),
        called_at=form.get("called"),
        obligation=_obligation_of(form["of"]),
        failure=failure,
    )


def _obligation_form(obligation: Obligation) -> list[int]:
    return [obligation.first_started_at, obligation.scheduled, obligation.attempt]


def _obligation_of(form: list[int]) -> Obligation:
    first_started_at, scheduled, attempt = form
    return Obligation(Instant(first_started_at), Instant(scheduled), attempt)
