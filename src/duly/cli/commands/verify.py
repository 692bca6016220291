"""`duly verify`: a verdict on a trace, property by property, with the smallest sub-trace that shows a violation."""

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from duly.cli.html_file import check_html, html_option, say_written, write_html
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
from duly.cli.output_file import check_apart
from duly.cli.progress import progress
from duly.cli.store import StoreText, schema_option
from duly.cli.time_text import now
from duly.cli.trace_input import Input, open_input, place_of
from duly.core.moments import Instant, as_datetime
from duly.errors import TraceError
from duly.formal.checking import NO_SEAL, Checker, Report
from duly.formal.judgement import INSTANTS, Judgement, first_witnesses, judgement_of
from duly.formal.properties import Value
from duly.formal.reader import BLOCK_BYTES, Source
from duly.formal.verdicts import Verdict, Violation
from duly.formal.witnesses import Witness
from duly.insight.json_form import json_form
from duly.insight.words import counted
from duly.stores.postgres.url import is_url
from duly.text import plain

LONG_BYTES: Final = 4 << 20
"""From this length on a terminal shows how far the reading is; what is shorter takes a fraction of a second."""

_STYLES: Final = {
    Value.VIOLATED: "bold red", Value.SATISFIED: "green", Value.HOLDING: "green", Value.PENDING: "yellow",
}  # fmt: skip
_EPILOG: Final = (
    "Exit code 0 if nothing is violated, 1 if a property is, 4 if a source is missing or unreadable or the page cannot "
    "be written, 7 if there is no whole trace to judge."
)


@click.command(epilog=_EPILOG)
@click.argument(
    "sources", nargs=-1, required=True, metavar="STORE|FILE...", type=StoreText(readable=False, allow_dash=True)
)
@schema_option
@click.option("--no-bounds", is_flag=True, help="Leave out R1, R2 and L2ᵇ, which bound times; this is faster.")
@click.option("--unsealed", is_flag=True, help="Judge a trace even if the seal at its end is missing.")
@click.option("-v", "--verbose", is_flag=True, help="Show each property, with its sentence and its verdict.")
@html_option
@json_option
def verify(
    sources: tuple[str, ...],
    schema: str,
    no_bounds: bool,
    unsealed: bool,
    verbose: bool,
    html: Path | None,
    as_json: bool,
) -> int:
    """Check a trace against every formal property.

    The trace is in a store (a file, or a postgresql:// URL), in files, or on standard input (-). Several sources are
    one trace: its segments, in their order. A trace that is cut, edited, reordered or mixed with another is refused,
    with the line: half a trace cannot be judged.

    \b
    Example:
      duly verify state.db
      duly verify segment-7.jsonl segment-8.jsonl
      duly verify state.db --html verdict.html
      ssh host duly trace export /var/lib/app/state.db | duly verify - --json
    """
    check_html(html)
    check_apart({"--html": html}, [Path(each) for each in sources if not is_url(each)])
    with contextlib.ExitStack() as stack:
        inputs = [open_input(source, schema, stack) for source in sources]
        checker = _judge(inputs, bounded=not no_bounds)
        report = checker.report()
        if not (report.sealed or unsealed):
            raise _no_seal(inputs[-1], checker.line)
        shown = first_witnesses([each.file for each in inputs], report, checker.start)
    names = [each.name if is_url(source) else source for source, each in zip(sources, inputs, strict=True)]
    current = all(each.stored is None or each.stored.current for each in inputs)
    judgement = judgement_of(report, shown, names, current=current)
    document = json_form(judgement, UTC)
    if html is not None:
        from duly.web import verify as page  # it needs the extra `web`

        write_html(html, "verify.html", "Verify", UTC, now(), {"refusal": None, **page.shown(document)})
    if as_json:
        print_json("verify", document)
    else:
        _show(judgement, report, shown, verbose=verbose)
        say_written(html)
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
    failure = failure_of(error)
    failure.message = f"{place_of(source.name, error, stored=source.stored is not None)}: {error.details['reason']}"
    if failure.hint is None and error.details["fault"] in ("mixed", "hash", "registers") and not alone:
        failure.hint = "several sources are the segments of one trace, in their order; verify other traces one by one"
    return failure


def _no_seal(last: Input, line: int) -> Failure:
    return Failure(
        f"{plain(last.name)}, line {line}: {NO_SEAL}",
        "--unsealed judges what is there; `duly trace export` always writes a seal",
        Exit.TRACE,
    )


# --- for people ------------------------------------------------------------------------------------------------------


def _show(judgement: Judgement, report: Report, shown: dict[str, Witness], *, verbose: bool) -> None:
    _note_limits(judgement)
    if judgement.verdict in (Value.HOLDING, Value.SATISFIED) and not verbose:
        say(_all_is_well(judgement))
        return
    say(Text(plain(" ".join(judgement.sources)), "bold"))
    say(_what_was_read(report))
    if verbose:
        if report.first_segment > 1:
            say("the state before its first segment is in the header of that segment", style="dim")
        _show_properties(judgement)
    for each in report.verdicts.values():
        if each.value is Value.VIOLATED:
            say()
            _show_violation(each, shown.get(each.property))
        elif each.value is Value.PENDING:
            say()
            _show_open(each)
    say()
    say(_conclusion(report))


def _all_is_well(judgement: Judgement) -> Text:
    """One line: what was judged, and that nothing is violated or open."""
    so_far = "" if judgement.ended else " so far"
    counts = f", {counted(judgement.events, 'event')}, {_crashes(judgement.crashes)}"
    return Text.assemble((f"{len(judgement.properties)} properties hold{so_far}", "green"), counts)


def _crashes(number: int) -> str:
    return "1 crash" if number == 1 else f"{number:,} crashes" if number else "no crash"


def _show_properties(judgement: Judgement) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for each in judgement.properties:
        table.add_row(Text(each.value.value, _STYLES[each.value]), each.property, each.sentence)
    say()
    show(table)


def _what_was_read(report: Report) -> str:
    last = report.first_segment + report.segments - 1
    segments = counted(report.segments, "segment")
    if report.first_segment > 1:
        segments += f" ({report.first_segment} to {last})" if report.segments > 1 else f" (number {last})"
    counts = (counted(report.events, "event"), segments, counted(report.tasks, "task"), _crashes(report.crashes))
    until = f", until {_utc(report.until)}" if report.events else ""
    return f"trace of {plain(report.scheduler)!r}: {', '.join(counts)}{until}"


def _note_limits(judgement: Judgement) -> None:
    if not judgement.sealed:
        note("the trace has no seal: lines may be missing at its end")
    if not judgement.current:
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
        f"{name}={_utc(Instant(value)) if name in INSTANTS else value}"
        for name, value in violation.registers.items()
        if not isinstance(value, bool) and value is not None
    ]
    return " ".join((*truths, *numbers))


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
