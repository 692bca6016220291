"""`duly verify`: a verdict on a trace, property by property, with the smallest sub-trace that shows a violation."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from duly.cli.output import (
    Exit,
    Failure,
    failure_of,
    json_option,
    note,
    print_json,
    reason_of,
    say,
    show,
)
from duly.cli.progress import progress
from duly.cli.trace_input import Input, open_input
from duly.core.moments import Instant, as_datetime
from duly.errors import TraceError
from duly.formal.checking import Checker, Report
from duly.formal.properties import BY_ID, PROPERTIES, Value
from duly.formal.reader import BLOCK_BYTES, Rows, Source, TraceReader
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import LETTERS, Event
from duly.formal.verdicts import Verdict, Violation
from duly.formal.witnesses import Witness, witnesses
from duly.text import plain

LONG_BYTES: Final = 4 << 20
"""From this length on a terminal shows how far the reading is; what is shorter takes a fraction of a second."""

_STYLES: Final = {
    Value.VIOLATED: "bold red", Value.SATISFIED: "green", Value.HOLDING: "green", Value.PENDING: "yellow",
}  # fmt: skip
_EPILOG: Final = (
    "Exit code 0 if nothing is violated, 1 if a property is, 4 if a source is missing or unreadable, 7 if there is "
    "no whole trace to judge."
)


@click.command(epilog=_EPILOG)
@click.argument(
    "sources", nargs=-1, required=True, metavar="STORE|FILE...", type=click.Path(readable=False, allow_dash=True)
)
@click.option("--no-bounds", is_flag=True, help="Leave out R1, R2 and L2ᵇ, which bound times; this is faster.")
@click.option("--unsealed", is_flag=True, help="Judge a trace even if the seal at its end is missing.")
@json_option
def verify(sources: tuple[str, ...], no_bounds: bool, unsealed: bool, as_json: bool) -> int:
    """Check a trace against every formal property.

    The trace is in a store, in files, or on standard input (-). Several sources are one trace: its segments, in their
    order. A trace that is cut, edited, reordered or mixed with another is refused, with the line: half a trace cannot
    be judged.

    \b
    Example:
      duly verify state.db
      duly verify segment-7.jsonl segment-8.jsonl
      ssh host duly trace export /var/lib/app/state.db | duly verify - --json
    """
    with contextlib.ExitStack() as stack:
        inputs = [open_input(source, stack) for source in sources]
        checker = _judge(inputs, bounded=not no_bounds)
        report = checker.report()
        if not (report.sealed or unsealed):
            raise _no_seal(inputs[-1], checker.line)
        shown = _find_witnesses(inputs, report, checker.start)
    verdict = _overall(report)
    if as_json:
        print_json("verify", _document(sources, inputs, report, shown, verdict))
    else:
        _show(sources, inputs, report, shown)
    return Exit.NO if report.violated else Exit.OK


# --- judging ---------------------------------------------------------------------------------------------------------


def _judge(inputs: Sequence[Input], *, bounded: bool) -> Checker:
    checker = Checker(bounded=bounded)
    total = sum(each.size for each in inputs)
    with progress("verifying", total, shown=total >= LONG_BYTES) as report:
        done = 0
        for each in inputs:
            try:
                checker.take(_CountedFile(each.file, report, done))
            except TraceError as error:
                raise _refused(each, error, alone=len(inputs) == 1) from error
            except OSError as fault:
                raise Failure(f"{each.name} cannot be read: {reason_of(fault)}", None, Exit.STORE) from fault
            done += each.size
    return checker


class _CountedFile:
    """A file that reports how many bytes have been read, from it and from those before it."""

    def __init__(self, file: Source, report: Callable[[float], object], done: int) -> None:
        self._file = file
        self._report = report
        self._done = self._reported = done
        getattr(file, "seek", lambda _: None)(0)

    def read(self, size: int, /) -> bytes:
        read = self._file.read(size)
        self._done += len(read)
        if self._done - self._reported >= 64 * BLOCK_BYTES:  # a few times a second: blocks come by the thousand
            self._report(self._done)
            self._reported = self._done
        return read


def _refused(source: Input, error: TraceError, *, alone: bool) -> Failure:
    of_store = " of its trace" if source.stored is not None else ""
    place = f"{plain(source.name)}, line {error.details['line']}{of_store}"
    failure = failure_of(error)
    failure.message = f"{place}: {error.details['reason']}"
    if failure.hint is None and error.details["fault"] in ("mixed", "hash", "registers") and not alone:
        failure.hint = "several sources are the segments of one trace, in their order; verify other traces one by one"
    return failure


def _no_seal(last: Input, line: int) -> Failure:
    return Failure(
        f"{plain(last.name)}, line {line}: the trace ends here without a seal, so its end may be missing",
        "--unsealed judges what is there; `duly trace export` always writes a seal",
        Exit.TRACE,
    )


def _find_witnesses(inputs: Sequence[Input], report: Report, start: RegisterSnapshot | None) -> dict[str, Witness]:
    """Find the smallest sub-trace of the first violation of each property, reading the trace a second time."""
    first = [each.first for each in report.verdicts.values() if each.first is not None]
    if not first:
        return {}
    found = witnesses(_events(inputs), first, start)
    return {each.violation.property: each for each in found if each is not None}


def _events(inputs: Sequence[Input]) -> Iterator[Event]:
    reader = TraceReader()
    for each in inputs:
        each.file.seek(0)
        for part in reader.read(each.file):
            if isinstance(part, Rows):
                yield from (LETTERS[row[0]](*row[1:]) for row in part.rows)


def _overall(report: Report) -> Value:
    """The worst verdict of all properties."""
    values = {verdict.value for verdict in report.verdicts.values()}
    order = (Value.VIOLATED, Value.PENDING, Value.HOLDING, Value.SATISFIED)
    return next(value for value in order if value in values)


# --- for people ------------------------------------------------------------------------------------------------------


def _show(sources: Sequence[str], inputs: Sequence[Input], report: Report, shown: dict[str, Witness]) -> None:
    say(Text(plain(" ".join(sources)), "bold"))
    say(_what_was_read(report))
    _say_limits(inputs, report)
    say()
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for each in report.verdicts.values():
        table.add_row(Text(each.value.value, _STYLES[each.value]), each.property, BY_ID[each.property].sentence)
    show(table)
    for each in report.verdicts.values():
        if each.value is Value.VIOLATED:
            say()
            _show_violation(each, shown.get(each.property))
        elif each.value is Value.PENDING:
            say()
            _show_open(each)
    say()
    say(_conclusion(report))


def _what_was_read(report: Report) -> str:
    last = report.first_segment + report.segments - 1
    segments = "1 segment" if report.segments == 1 else f"{report.segments} segments"
    if report.first_segment > 1:
        segments += f" ({report.first_segment} to {last})" if report.segments > 1 else f" (number {last})"
    counted = (
        f"{report.events:,} {'event' if report.events == 1 else 'events'}",
        segments,
        "1 task" if report.tasks == 1 else f"{report.tasks:,} tasks",
        "1 crash" if report.crashes == 1 else f"{report.crashes:,} crashes" if report.crashes else "no crash",
    )
    until = f", until {_utc(report.until)}" if report.events else ""
    return f"trace of {plain(report.scheduler)!r}: {', '.join(counted)}{until}"


def _say_limits(inputs: Sequence[Input], report: Report) -> None:
    if report.first_segment > 1:
        say("the state before its first segment is in the header of that segment", style="dim")
    if not report.sealed:
        note("the trace has no seal: lines may be missing at its end")
    if any(each.stored is not None and not each.stored.current for each in inputs):
        note("a scheduler that kept no trace has used the store since; the trace ends before it")


def _show_violation(verdict: Verdict, shown: Witness | None) -> None:
    violation = verdict.first
    heading = Text.assemble((f"{verdict.property} violated", _STYLES[Value.VIOLATED]))
    if violation is None:  # the trace has ended, and something never came
        say(Text.assemble(heading, " at the end of the trace: still open"))
        _show_open_list(verdict)
        return
    task = "" if violation.task is None else f", task {plain(violation.task)!r}"
    place = f" at {violation.seq} ({violation.event}), {_utc(violation.at)}{task}: "
    say(Text.assemble(heading, place, plain(violation.sentence)))
    if verdict.violations > 1:
        say(f"  the first of {verdict.violations:,}", style="dim")
    say(Text.assemble(("  registers before  ", "dim"), _registers(violation)))
    if shown is not None:
        say("  smallest sub-trace" + ("" if shown.start is None else ", after the state in its registers"), style="dim")
        for line in str(shown).splitlines():
            if not line.startswith("  ("):
                say(plain(line))


def _registers(violation: Violation) -> str:
    truths = [name if value else f"¬{name}" for name, value in violation.registers.items() if isinstance(value, bool)]
    numbers = [
        f"{name}={_utc(Instant(value)) if name in _INSTANTS else value}"
        for name, value in violation.registers.items()
        if not isinstance(value, bool) and value is not None
    ]
    return " ".join((*truths, *numbers))


_INSTANTS: Final = frozenset({"mark", "nextDue", "retryAt", "resumeAt"})


def _show_open(verdict: Verdict) -> None:
    say(Text.assemble((f"{verdict.property} pending", _STYLES[Value.PENDING]), ": still open when the trace ends"))
    _show_open_list(verdict)


def _show_open_list(verdict: Verdict) -> None:
    for each in verdict.open:
        say(f"  {plain(each.what)}, since {_utc(each.since)}")
    if verdict.open_count > len(verdict.open):
        say(f"  … and {verdict.open_count - len(verdict.open):,} more", style="dim")


def _conclusion(report: Report) -> Text:
    violated = [each for each in report.verdicts.values() if each.value is Value.VIOLATED]
    if violated:
        names = ", ".join(each.property for each in violated)
        return Text.assemble(("violated: ", _STYLES[Value.VIOLATED]), names)
    pending = [each.property for each in report.verdicts.values() if each.value is Value.PENDING]
    ended = "the trace has ended, and the verdicts are final" if report.ended else "the trace may go on"
    if pending:
        return Text.assemble(("nothing violated", "green"), f"; pending: {', '.join(pending)}; {ended}")
    return Text.assemble(("nothing violated", "green"), f"; {ended}")


def _utc(at: Instant) -> str:
    # In UTC: the zone may change within a trace.
    text = as_datetime(at, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


# --- for programs ----------------------------------------------------------------------------------------------------


def _document(
    sources: Sequence[str], inputs: Sequence[Input], report: Report, shown: dict[str, Witness], verdict: Value
) -> dict[str, Any]:
    return {
        "sources": list(sources),
        "verdict": verdict.value,
        "scheduler": report.scheduler,
        "events": report.events,
        "segments": report.segments,
        "firstSegment": report.first_segment,
        "tasks": report.tasks,
        "crashes": report.crashes,
        "until": _utc(report.until) if report.events else None,
        "ended": report.ended,
        "sealed": report.sealed,
        "current": all(each.stored is None or each.stored.current for each in inputs),
        "properties": [
            {
                "property": each.id,
                "kind": each.kind.value,
                "sentence": each.sentence,
                "value": found.value.value,
                "violations": found.violations,
                "first": None if found.first is None else _violation(found.first, shown.get(each.id)),
                "open": [{"what": one.what, "since": _utc(one.since)} for one in found.open],
                "openCount": found.open_count,
            }
            for each in PROPERTIES
            if (found := report.verdicts.get(each.id)) is not None
        ],
    }


def _violation(violation: Violation, shown: Witness | None) -> dict[str, Any]:
    return {
        "seq": violation.seq,
        "at": _utc(violation.at),
        "event": violation.event,
        "task": violation.task,
        "sentence": violation.sentence,
        "registers": {
            name: _utc(Instant(value)) if name in _INSTANTS and value is not None else value
            for name, value in violation.registers.items()
        },
        "subTrace": None
        if shown is None
        else {
            "afterRegisters": shown.start is not None,
            "events": [[type(event).__name__, *event] for event in shown.events],
        },
    }
