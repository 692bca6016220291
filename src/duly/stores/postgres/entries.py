"""Batches and entries of the log as JSON, and back.

Numbers of many tasks stand in one text, as PostgreSQL writes arrays: `{1,2,3}`. Runs are beyond what JSON can hold
exactly in other languages, so they are text everywhere.
"""

from collections.abc import Iterable
from typing import Any, Final

from duly.core.changes import Batch, StartBlock, SuccessBlock
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
    Replaced,
    Started,
    Unreadable,
    Written,
)
from duly.core.task import Cause, Correction, End, Grounds, Obligation

TEXT_MAX: Final = 8_000
"""Characters of an error or a traceback that are kept."""

Json = dict[str, Any]


def changes_of(batch: Batch) -> Changes:
    """A batch as a host asks for it to be written."""
    ends: list[Ended] = []
    starts: list[Started] = []
    correct = False
    for block in batch.blocks:
        if isinstance(block, StartBlock):
            starts.append(_started(block))
        elif isinstance(block, SuccessBlock):
            generations = tuple(task.generation for task in block.tasks)
            ends.append(_ended(generations, tuple(block.runs), block.at, block.called_at, block.grounds))
        elif isinstance(block, Correction):
            correct = True
        else:
            ends.append(_failed(block))
    return Changes(tuple(ends), tuple(starts), correct)


def storable(text: str) -> str:
    """A text as PostgreSQL can keep it: NUL and lone surrogates written out, at most `TEXT_MAX` characters (SPEC 9.20).

    An error text that could never be stored would stop its host for ever.
    """
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX - 1] + "…"
    text = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def json_of(changes: Changes) -> Json:
    """What a host asks, as `write_1` takes it."""
    form: Json = {
        "ends": [_end_form(each) for each in changes.ends],
        "starts": [_start_form(e) for e in changes.starts],
    }
    if changes.correct:
        form["correct"] = True
    return form


def entry_of(row: Json) -> LogEntry:
    """An entry of the log; a kind that this version does not know is `Unreadable`."""
    return LogEntry(
        seq=row["seq"],
        host=row["host"],
        number=row["number"],
        nonce=row["nonce"].replace("-", ""),
        at=Instant(row["at"]),
        content=_content(row["kind"], row["entry"], row["refused"]),
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
            return Written(ends, starts, corrected_of(entry.get("corrected")), numbers(refused), fenced)
        case "joined":
            return Joined(entry["edition"], entry["outdated"], corrected_of(entry.get("corrected")))
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
            )
        case "buried":
            return Buried(entry["host"])
        case "left":
            return Left()
        case _:
            return Unreadable(kind)


def _started(block: StartBlock) -> Started:
    grounds, after = block.grounds, block.grounds.after
    return Started(
        generations=tuple(task.generation for task in block.tasks),
        first_run=block.first_run,
        cause=grounds.cause,
        at=after.last_attempt_at,
        scheduled=grounds.scheduled,
        served_through=after.served_through,
        pending_retry_until=after.pending_retry_until,
        interruptions=after.interruptions,
        obligation=grounds.obligation,
    )


def _ended(
    generations: tuple[int, ...],
    runs: tuple[int, ...],
    at: Instant,
    called_at: Instant | None,
    grounds: Grounds,
    failure: FailedRun | None = None,
) -> Ended:
    return Ended(
        generations=generations,
        runs=runs,
        at=at,
        cause=grounds.cause,
        scheduled=grounds.scheduled,
        started_at=grounds.at,
        called_at=called_at,
        obligation=grounds.obligation,
        failure=failure,
    )


def _failed(end: End) -> Ended:
    failure = None
    if end.error is not None:
        traceback = None if end.traceback is None else storable(end.traceback)
        failure = FailedRun(storable(end.error), traceback, end.pending_retry_until, end.failures)
    return _ended((end.task.generation,), (end.run,), end.at, end.called_at, end.grounds, failure)


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
