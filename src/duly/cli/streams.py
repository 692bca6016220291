"""The three standard streams: open whatever the caller closed, and with errors that say which stream failed."""

import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TextIO

from duly.run_context import CurrentRun, current_run

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT: Final = 1
_LONGEST_LINE: Final = 1 << 16
"""Bytes without the end of a line after which they are handed on as one."""


class OutputError(OSError):
    """Standard output takes nothing more: the disk it leads to is full, or fails."""


class ReaderGoneError(OutputError):
    """The reader of standard output is gone. It has no `errno`: click would exit with 1 if it saw EPIPE."""


class _Output(io.FileIO):
    """Standard output, whose errors cannot be taken for those of another file."""

    leads_to_errors = False
    """While it does, what cannot be written is dropped, as `_Errors` does."""

    def write(self, data: "ReadableBuffer") -> int:
        written: int | None = None
        try:
            written = super().write(data)
        except OSError as fault:
            if not self.leads_to_errors:
                raise _output_error(fault) from fault
        if written is None and not self.leads_to_errors:  # a pipe that does not let writers wait is full
            raise OutputError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return memoryview(data).nbytes if written is None else written


def _output_error(fault: OSError) -> OutputError:
    return ReaderGoneError() if isinstance(fault, BrokenPipeError) else OutputError(fault.errno, fault.strerror)


class _Errors(io.FileIO):
    """Standard error, which drops what it cannot write: there is no place left to say so, and the exit code remains."""

    def write(self, data: "ReadableBuffer") -> int:
        written: int | None
        try:
            written = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written


class _Unbuffered(io.BufferedWriter):
    """Keeps nothing back.

    Not the file itself: a disk that fills up, or a reader that goes away, takes the beginning of a long text, which is
    no error yet. Text streams do not ask how much was written; a buffer goes on with the rest, and then there is one.
    """

    def write(self, data: "ReadableBuffer") -> int:
        written = super().write(data)
        self.flush()
        return written


def prepare() -> None:
    """Open the streams that the caller closed as /dev/null is, and let those of a terminal show any letter.

    An open file must never get the number of a standard stream: what is printed would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = _stream(sys.stdout, 1, _Output)
    sys.stderr = _stream(sys.stderr, 2, _Errors)


def _stream(given: TextIO | None, number: int, kind: Callable[..., io.FileIO]) -> TextIO:
    """A stream like the one that Python has made, if that is a standard stream at all."""
    if given is not None and (not isinstance(given, io.TextIOWrapper) or _number_of(given) != number):
        return given
    raw = kind(number, "w", closefd=False)
    unbuffered = given is not None and given.write_through
    return io.TextIOWrapper(
        _Unbuffered(raw) if unbuffered else io.BufferedWriter(raw),
        encoding=None if given is None else given.encoding,
        # Names and error texts come from elsewhere: a letter that the terminal cannot show must not raise.
        errors="backslashreplace",
        line_buffering=number == 2 or raw.isatty(),
        write_through=unbuffered,
    )


def _number_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except OSError:  # a stream in memory, as in a test
        return None


class PrintedLines(io.BufferedIOBase):
    """Hands on what is written to it, line by line, with the run that has written the line.

    The beginning of a line waits for its end apart from those of other runs: callbacks in threads print at the same
    time. It keeps nothing else back, since a buffer would have the beginnings of all of them in one.
    """

    def __init__(self, take: Callable[[str, CurrentRun | None], object]) -> None:
        self._take = take
        self._begun: dict[_Author, tuple[CurrentRun | None, bytes]] = {}
        """Beginnings of lines, with their runs."""
        self._handed_on: set[_Author] = set()
        """Authors of a line that was too long to wait for its end, which comes yet."""
        # A signal handler may print in the midst of a print.
        self._lock = threading.RLock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STANDARD_OUTPUT  # for processes that are to print where this one does

    def write(self, data: "ReadableBuffer") -> int:
        given = bytes(memoryview(data))
        run = current_run()
        author = None if run is None else (run.task, run.run_id)
        with self._lock:
            _, begun = self._begun.pop(author, (run, b""))
            *lines, begun = (begun + given).split(b"\n")
            if given and author in self._handed_on:
                self._handed_on.remove(author)
                lines = lines[1:] if lines and lines[0] in (b"", b"\r") else lines
            if len(begun) > _LONGEST_LINE:
                lines, begun = [*lines, begun], b""
                self._handed_on.add(author)
            if begun:
                self._begun[author] = run, begun
        for line in lines:
            self._hand_on(line, run)
        return len(given)

    def end_run(self, task: str, run_id: int) -> None:
        """Hand on what a run has printed last, even without the end of the line."""
        self._end((task, run_id))

    def close(self) -> None:
        for author in list(self._begun):
            self._end(author)
        super().close()

    def _end(self, author: "_Author") -> None:
        with self._lock:
            run, begun = self._begun.pop(author, (None, b""))
            self._handed_on.discard(author)
        if begun:
            self._hand_on(begun, run)

    def _hand_on(self, line: bytes, run: CurrentRun | None) -> None:
        self._take(line.decode("utf-8", "backslashreplace").removesuffix("\r"), run)


_Author = tuple[str, int] | None
"""The task and the number of a run; None for all that is printed outside of one."""


@contextlib.contextmanager
def output_kept(take: Callable[[str, CurrentRun | None], object]) -> Iterator[tuple[TextIO, PrintedLines]]:
    """Keep standard output for the stream that this yields: lines that others print go to `take`, with their run.

    What child processes print goes to standard error. A pipe to read it from would end with this process, and they
    might not.
    """
    before = sys.stdout
    before.flush()
    number = os.dup(STANDARD_OUTPUT)  # not inherited: a child that lives on does not keep a reader waiting
    os.dup2(2, STANDARD_OUTPUT)
    with _Output(number, "w") as raw:
        own = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace")
        lines = PrintedLines(take)
        # Each piece at once, while it is known which run prints it.
        sys.stdout = io.TextIOWrapper(lines, encoding="utf-8", errors="backslashreplace", write_through=True)
        try:
            yield own, lines
        finally:
            sys.stdout.close()
            sys.stdout = before
            with contextlib.suppress(OSError):
                own.flush()
            os.dup2(number, STANDARD_OUTPUT)
            own.detach().detach()  # closed by the `with` above


@contextlib.contextmanager
def output_to_errors() -> Iterator[None]:
    """Send what is printed inside to standard error, by child processes, too; what that does not take is dropped.

    The stream stays the one it is: loggers that are made inside may keep it, and write their lines to standard output
    afterwards.
    """
    stream = sys.stdout
    stream.flush()
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    output = raw if isinstance(raw, _Output) else None
    number = os.dup(STANDARD_OUTPUT)
    os.dup2(2, STANDARD_OUTPUT)
    if output is not None:
        output.leads_to_errors = True
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # or closed inside
            stream.flush()
        if output is not None:
            output.leads_to_errors = False
        os.dup2(number, STANDARD_OUTPUT)
        os.close(number)


def discard_output() -> None:
    """From here on, standard output leads nowhere: what is left in a buffer would raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STANDARD_OUTPUT)
