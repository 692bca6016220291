"""Reader and monitor together: the segments of a trace in, a report out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import TextIOBase
from typing import Final, cast

from duly.core.moments import Instant
from duly.errors import TraceError
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.reader import Rows, Source, TraceReader
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import Header, Seal
from duly.formal.verdicts import Verdict, Violation

NO_SEAL: Final = "the trace ends here without a seal, so its end may be missing"


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on each property, and what was read to reach it."""

    scheduler: str  #: the store that the trace comes from
    verdicts: dict[str, Verdict]  #: the verdict on each property, by its number
    violations: tuple[Violation, ...]  #: in their order; the first hundred of them
    events: int  #: how many events were judged
    segments: int  #: how many segments there are
    first_segment: int  #: 1, or the trace before it is known by a register snapshot only
    tasks: int  #: how many tasks occur
    crashes: int  #: how many crashes occur
    until: Instant  #: the instant of the last event
    ended: bool  #: cleanly: the verdicts are final
    sealed: bool  #: whether the last segment has its seal; without one, lines may be missing at its end

    @property
    def violated(self) -> bool:
        """Whether any property is violated."""
        return any(verdict.value is Value.VIOLATED for verdict in self.verdicts.values())


def check(
    *sources: Source | Iterable[Source],
    bounded: bool = True,
    unsealed: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Report:
    """Judge a trace.

    Parameters:
        *sources: a file opened in binary mode, or several that hold the segments of the trace in their order.
        bounded: False leaves out the bounded shadows of liveness.
        unsealed: True also judges a trace that ends without a seal, such as one that is still being written: the
            verdicts are about what is there, and say nothing of lines that may be missing at its end.
        progress: called now and then with the number of events so far.

    Raises:
        TraceError: the trace is not whole; there is no verdict on half a trace. `details["line"]` has the line.
        TypeError: something is not a file opened in binary mode, such as a path or a file opened in text mode.
    """
    checker = Checker(bounded=bounded, progress=progress)
    for source in sources:
        for each in _files_of(source):
            checker.take(each)
    report = checker.report()
    if not (report.sealed or unsealed):
        hint = "check(..., unsealed=True) judges what is there"
        raise TraceError("truncated", max(checker.line, 1), NO_SEAL, hint=hint)
    return report


def _files_of(source: object) -> Iterator[Source]:
    if isinstance(source, Iterable) and not isinstance(source, str | bytes) and not hasattr(source, "read"):
        for each in source:
            yield _binary(each)
    else:
        yield _binary(source)


def _binary(file: object) -> Source:
    if not hasattr(file, "read") or isinstance(file, TextIOBase):
        got = "one opened in text mode" if hasattr(file, "read") else type(file).__name__
        raise TypeError(f"check takes files opened in binary mode, got {got}")
    return cast(Source, file)


class Checker:
    """A check source by source, for callers that name the source of an error."""

    def __init__(self, *, bounded: bool = True, progress: Callable[[int], object] | None = None) -> None:
        self._bounded = bounded
        self._progress = progress
        self._reader = TraceReader()
        self.monitor = Monitor(bounded=bounded)
        self.start: RegisterSnapshot | None = None  # the registers with which the trace began; None: empty
        self._header: Header | None = None
        self._first_segment = 0
        self._segments = 0
        self._events = 0
        self._ended = False
        self._sealed = False

    @property
    def line(self) -> int:
        """The last line read of the present source."""
        return self._reader.line

    def take(self, source: Source) -> None:
        """Read one source to its end; the next one continues it."""
        for part in self._reader.read(source):
            if isinstance(part, Rows):
                self.monitor.feed(part.rows, part.hosts)
                self._events += len(part.rows)
                self._ended = False
                if self._progress is not None:
                    self._progress(self._events)
            elif isinstance(part, Seal):
                self._seal(part)
            else:
                self._begin(part)

    def _begin(self, header: Header) -> None:
        if self._header is None:
            self._first_segment = header.segment
            if header.registers is None:
                self.monitor = Monitor(bounded=self._bounded, shared=header.is_shared)
            else:
                try:
                    self.start = RegisterSnapshot.from_json(header.registers, header.version)
                    self.monitor = Monitor(self.start, bounded=self._bounded)
                except ValueError as fault:
                    raise TraceError("malformed", self.line, str(fault)) from fault
            if self.monitor.seq != header.first - 1:
                reason = f"the segment begins with event {header.first}, its registers end with {self.monitor.seq}"
                raise TraceError("registers", self.line, reason)
        elif not self.monitor.snapshot().follows(header.registers, header.version):
            reason = "the registers of the segment are not those that the segment before leads to"
            raise TraceError("registers", self.line, reason)
        self._header = header
        self._segments += 1
        self._sealed = False

    def _seal(self, seal: Seal) -> None:
        # Only a stop ends a trace. A run that outlives it is a violation, and the trace could go on.
        if seal.clean and not self.monitor.registers.is_closed:
            why = "a host is running" if self.monitor.registers.shared else "no stop has completed"
            raise TraceError("malformed", self.line, f"the seal is clean, but {why}")
        self._ended = seal.clean and not self.monitor.registers.running
        self._sealed = True

    def report(self) -> Report:
        """The verdicts on everything that was read."""
        monitor, registers = self.monitor, self.monitor.registers
        return Report(
            scheduler=self._header.scheduler if self._header is not None else "",
            verdicts=monitor.verdicts(sealed=self._ended),
            violations=tuple(monitor.violations),
            events=self._events,
            segments=self._segments,
            first_segment=self._first_segment,
            tasks=registers.declared,
            crashes=registers.crashes,
            until=registers.clock,
            ended=self._ended,
            sealed=self._sealed,
        )
