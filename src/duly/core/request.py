"""A batch as a host asks a shared store to write it: values without tasks, and texts that any store can keep."""

from collections.abc import Iterable
from typing import Final

from duly.core.changes import Batch, StartBlock, SuccessBlock
from duly.core.moments import Instant
from duly.core.news import Changes, Ended, FailedRun, Note, Started
from duly.core.task import Correction, End, Grounds

TEXT_MAX: Final = 8_000
"""Characters of an error or a traceback that are kept."""


def changes_of(batch: Batch, notes: Iterable[Note] = (), on_record: int = 0) -> Changes:
    """A batch as a host asks for it to be written; `on_record` are its runs that have not ended before it."""
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
    running = on_record - sum(len(each.runs) for each in ends)
    return Changes(tuple(ends), tuple(starts), correct, storable_notes(notes), running)


def storable_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Notes whose texts any store can keep."""
    return tuple(tuple(storable(each) if isinstance(each, str) else each for each in note) for note in notes)


def storable(text: str) -> str:
    """A text as PostgreSQL can keep it: NUL and lone surrogates written out, at most `TEXT_MAX` characters (SPEC 9.20).

    An error text that could never be stored would stop its host for ever.
    """
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX - 1] + "…"
    text = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


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
