"""The alphabet of a trace as frozen values, and JSON Lines, the form in which traces are exchanged.

A trace is the durable log of a scheduler: an event happened if and only if its record is durable (SPEC 7.6). There is
one event per position; `seq` numbers positions without gaps, in commit order. `at` is the clock sample that the
decision used, in microseconds since the epoch. A task is named by its name and its generation, the number that the
store gave to this very declaration; a run by an integer.

An event is one of the classes below, in the scheduler that makes it as in the checker that judges it. A scheduler does
not know its number: it makes events with `UNNUMBERED`, and the store numbers them as it writes them. Where there are
thousands, an event is a row on its way: a scheduler's row is the letters and the fields without `seq` (`row_of`), and
`encode_row` turns it into a line; a reader's row is a line as it is parsed, the letters and all fields.

The trace of a shared store (SPEC 9) is that of all its hosts: each event is that of one host, `HostEvent`, and BY says
that a host was buried, which is its Crash. An embedded store has one host, `ALONE`, and its events do not name it.

The form, version 2. UTF-8, one JSON value per line, lines end with a newline. A segment is

    a header    {"trace": "duly", "version": 2, "scheduler": ..., "segment": n, "previous": hash or null,
                 "first": seq of the first event, "registers": null or a snapshot}
    events      ["RS", seq, at, ...]: the letters of the event, then its fields, in the order of its class below
    a seal      {"seal": "clean" or "open", "count": events, "hash": hash}; it may be missing

`scheduler` names the store the trace comes from, so that traces are not mixed. `registers` is what a monitor knew
before the first event (`registers.RegisterSnapshot`); null is an empty start. A hash is SHA-256, in hexadecimal.
`previous` is the hash of all lines of the segment before, without its seal. The hash of a seal covers all lines before
it, and its own words (`seal_hash`). A seal says "clean" if a stop had completed and nothing was going on: only then has
the trace ended, and the verdicts are final. It says "open" if the segment was closed for another reason: it is full, or
it is an export of a scheduler that runs.

Version 1 differs in two things: its seal hashes the lines before it and not its own words, and its registers lack
`boot_seq` of the scheduler and `served_before` of each task. Version 3 is that of a shared store. Its header also says
`"store": "shared"`, an event has the key of its host after `at`, IE has `edition` and `outdated`, there are BY, LR and
RN, and the registers have those of each host. All versions are read; a segment is written in the version of its
header: that is 2 for an embedded store, unless the segment was begun by an older duly, and 3 for a shared one.

`encode` writes the canonical bytes: no blanks, ASCII, equal values always as equal bytes. Readers accept blanks.

The checker derives more letters, and never takes them from the scheduler's word: Crash (the process went away without
closing the store), Due (a minute began that a task's expression names), RetryDue (the delay after a failure has passed)
and Resume (an interrupted task has waited long enough since its last start, SPEC 3.7).
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from duly.core.moments import Delay, Instant

VERSION: Final = 2
"""The version in which a new segment of an embedded store is written."""

SHARED_VERSION: Final = 3
"""The version in which a segment of a shared store is written."""

VERSIONS: Final = (1, 2, 3)
"""All versions that are read."""

ALONE: Final = 1
"""The only host of an embedded store."""

NEW, OVERRIDDEN, ORPHANED, PRESERVED = CHANGES = ("new", "overridden", "orphaned", "preserved")
LOOP, THREAD = PLACES = ("loop", "thread")
RESTART, WAIT = MODES = ("restart", "wait")
CAUSES: Final = ("cron", "retry", "interrupted")
EMBEDDED, SHARED = STORES = ("embedded", "shared")

TEXT_CHARACTERS_MAX: Final = 1 << 21
"""No text of an event is longer, so that a line can be read in little memory."""

CRON_CHARACTERS_MAX: Final = 1 << 16
"""No cron expression is longer: one of megabytes would take seconds to read."""

UNNUMBERED: Final = 0
"""`seq` of an event that is not written yet."""

# --- the alphabet -----------------------------------------------------------------------------------------------------


class BT(NamedTuple):
    """Boot: a process opened the store. If the process before did not close it, a Crash comes directly before this.

    In a shared store a host has joined, and this says nothing about other hosts.
    """

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    boot: str  #: an identifier of this opening
    mono: int  #: microseconds of the steady clock


class IS(NamedTuple):
    """Initialize was called."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    call: int  #: the number of the call


class RG(NamedTuple):
    """A registration changed, in the transaction of its IE; preserved tasks have none, unless their place changed."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    task: str  #: the name of the task
    generation: int  #: the number of its declaration
    change: str  #: one of CHANGES: `new`, `overridden`, `orphaned`, `preserved`
    cron: str  #: its expression
    delay_ms: Delay  #: its retry delay in milliseconds
    zone: str  #: IANA name, or UTC+02:00
    known_since: Instant  #: occurrences before this are not owed
    place: str  #: one of PLACES: where its callback runs, and so which slots it needs


class IE(NamedTuple):
    """Initialize has taken effect: what the trace has registered is what was declared."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    call: int  #: the number of the call
    declared: int  #: how many tasks are declared
    digest: str  #: `digest` of them, or "" if not stated
    interrupted: str  #: one of MODES: `restart`, `wait`
    max_concurrency: int | None  #: that option of the scheduler
    threads: int | None  #: size of the thread pool
    zone: str  #: the host's, in force for all tasks from here on
    edition: int | None = None  #: of the set that this host declares; None in an embedded store
    outdated: bool | None = None  #: whether another edition stays in force; None in an embedded store


class IF(NamedTuple):
    """A re-initialisation raised, or was cancelled; nothing changed."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    call: int  #: the number of the call
    error: str  #: type and text of the exception


class SS(NamedTuple):
    """Stop was accepted: nothing may start from here on."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    call: int  #: the number of the call


class SE(NamedTuple):
    """Stop has completed: nothing runs."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    call: int  #: the number of the call


class SF(NamedTuple):
    """Stop raised; without an SS of the same call it was refused, and had no effect."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    call: int  #: the number of the call
    error: str  #: type and text of the exception


class RS(NamedTuple):
    """A run has started."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    task: str  #: the name of the task
    generation: int  #: the number of its declaration
    run: int  #: the number of the run
    cause: str  #: one of CAUSES: what the scheduler says; the checker forms its own opinion
    slots: int  #: callbacks in use just before, on this host


class RE(NamedTuple):
    """A run has ended, and its outcome is durable."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    task: str  #: the name of the task
    generation: int  #: the number of its declaration
    run: int  #: the number of the run
    ok: bool  #: whether it succeeded


class CK(NamedTuple):
    """The loop noticed that the wall clock was stepped: any step back, and forward ones worth reporting."""

    seq: int  #: the position of the event
    at: Instant  #: what the clock shows now
    old: Instant  #: what it would have shown


class WK(NamedTuple):
    """The loop woke up: evidence that the process had compute, so that lateness can be told from a freeze."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    mono: int  #: microseconds of the steady clock


class BY(NamedTuple):
    """A host was buried by this one, or buries itself: its Crash (SPEC 9.5). Only in the trace of a shared store."""

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    who: int  #: the key of the host that was buried


class LR(NamedTuple):
    """This host reaches the store again, after it could not: what it did not do meanwhile is not late.

    Only in the trace of a shared store.
    """

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch


class RN(NamedTuple):
    """Another host declares the set that this one has just put in force, whose number is its own, too (SPEC 9.15).

    Only in the trace of a shared store.
    """

    seq: int  #: the position of the event
    at: Instant  #: the clock sample that the decision used, in microseconds since the epoch
    who: int  #: the key of the host that declares the same set


Event = BT | IS | RG | IE | IF | SS | SE | SF | RS | RE | CK | WK | BY | LR | RN
"""An event of one host."""

LETTERS: Final[dict[str, type[Event]]] = {
    kind.__name__: kind for kind in (BT, IS, RG, IE, IF, SS, SE, SF, RS, RE, CK, WK, BY, LR, RN)
}
OF_SHARED_STORES: Final = frozenset({"BY", "LR", "RN"})
"""Letters that the trace of an embedded store does not have."""


class HostEvent(NamedTuple):
    """An event of a shared store, and the key of the host whose event it is."""

    host: int  #: the key of the host
    event: Event  #: the event

    @property
    def seq(self) -> int:
        """The position of the event."""
        return self.event.seq

    @property
    def at(self) -> Instant:
        """The clock sample that the decision used."""
        return self.event.at


AnyEvent = Event | HostEvent
"""An event of an embedded store, or one of a shared store with its host."""

# --- the form ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a segment."""

    scheduler: str  #: the store that the trace comes from
    segment: int = 1  #: the number of the segment, from 1
    previous: str | None = None  #: the hash of the segment before; None: there is none
    first: int = 1  #: the position of its first event
    registers: dict[str, Any] | None = None  #: what a monitor knew before the first event; None: an empty start
    version: int = VERSION  #: the version of the form

    @property
    def is_shared(self) -> bool:
        """Whether this is the trace of a shared store, whose events name their hosts."""
        return self.version >= SHARED_VERSION

    @property
    def store(self) -> str:
        """One of STORES."""
        return SHARED if self.is_shared else EMBEDDED


def shared_header(
    scheduler: str,
    *,
    segment: int = 1,
    previous: str | None = None,
    first: int = 1,
    registers: dict[str, Any] | None = None,
) -> Header:
    """The header of a segment of a shared store.

    Parameters:
        scheduler: the store that the trace comes from.
        segment: the number of the segment, from 1.
        previous: the hash of the segment before; None: there is none.
        first: the position of its first event.
        registers: what a monitor knew before the first event; None: an empty start.
    """
    return Header(scheduler, segment, previous, first, registers, SHARED_VERSION)


@dataclass(frozen=True, slots=True)
class Seal:
    """The last line of a segment."""

    clean: bool  #: whether a stop had completed, so that the trace has ended
    count: int  #: how many events the segment has
    hash: str  #: that of the lines before it, and of its own words


Row = tuple[Any, ...]
"""An event on its way to a store: the letters, then the fields without `seq` and without the host."""


def row_of(event: Event) -> Row:
    """An event as a row; its number is left out."""
    return (type(event).__name__, *_fields(event)[1:])


def _fields(event: Event) -> tuple[Any, ...]:
    """The fields of an event; the two of IE that an embedded store does not have are left out there."""
    return event[:-2] if isinstance(event, IE) and event.edition is None else event


def line_of(event: AnyEvent) -> Row:
    """The letters and the fields of an event, as they stand in its line."""
    if isinstance(event, HostEvent):
        letters, at, *fields = row_of(event.event)
        return (letters, event.seq, at, event.host, *fields)
    return (type(event).__name__, *_fields(event))


def encode(event: AnyEvent) -> bytes:
    """The line of an event.

    Parameters:
        event: the event; one of a shared store is a `HostEvent`.
    """
    if isinstance(event, HostEvent):
        text = encode_shared_row(event.seq, event.host, row_of(event.event))
    else:
        text = encode_row(event.seq, row_of(event))
    return text.encode("ascii") + b"\n"


def encode_row(seq: int, row: Row) -> str:
    """The line of a row that has become event `seq` of an embedded store, without its newline."""
    # Starts and ends are nearly all of a trace: put together by hand they take a third of the time.
    match row:
        case ("RE", at, task, generation, run, ok):
            return f'["RE",{seq},{at},{_quoted(task)},{generation},{run},{"true" if ok else "false"}]'
        case ("RS", at, task, generation, run, cause, slots):
            return f'["RS",{seq},{at},{_quoted(task)},{generation},{run},"{cause}",{slots}]'
        case _:
            return _json([row[0], seq, *row[1:]])


def encode_shared_row(seq: int, host: int, row: Row) -> str:
    """The line of a row that has become event `seq` of a shared store, without its newline."""
    match row:
        case ("RE", at, task, generation, run, ok):
            return f'["RE",{seq},{at},{host},{_quoted(task)},{generation},{run},{"true" if ok else "false"}]'
        case ("RS", at, task, generation, run, cause, slots):
            return f'["RS",{seq},{at},{host},{_quoted(task)},{generation},{run},"{cause}",{slots}]'
        case _:
            return _json([row[0], seq, row[1], host, *row[2:]])


def numbered(line: str, seq: int) -> str:
    """A line that was encoded with `UNNUMBERED`, as that of event `seq`: for a store that numbers lines, not rows."""
    return f"{line[:_NUMBER_PLACE]}{seq}{line[_NUMBER_PLACE + 1 :]}"


_NUMBER_PLACE: Final = len('["RS",')  # all letters have this length, and UNNUMBERED is one digit


def shared_lines(rows: Iterable[Row], first: int, host: int) -> list[str]:
    """The lines of rows of one host, without newlines; `first` is the number of the first one."""
    return [encode_shared_row(seq, host, row) for seq, row in enumerate(rows, first)]


def encode_header(header: Header) -> bytes:
    """The line of a header."""
    store = {"store": header.store} if header.is_shared else {}
    return _line(
        {
            "trace": "duly",
            "version": header.version,
            **store,
            "scheduler": header.scheduler,
            "segment": header.segment,
            "previous": header.previous,
            "first": header.first,
            "registers": header.registers,
        }
    )


def encode_seal(seal: Seal) -> bytes:
    """The line of a seal."""
    return _line({**_seal_words(clean=seal.clean, count=seal.count), "hash": seal.hash})


def seal_hash(version: int, lines: "hashlib._Hash", *, clean: bool, count: int) -> str:
    """The hash of a seal: of all lines before it and, from version 2 on, of the seal itself without its hash."""
    if version > 1:
        lines = lines.copy()
        lines.update(_line(_seal_words(clean=clean, count=count)))
    return lines.hexdigest()


def _seal_words(*, clean: bool, count: int) -> dict[str, Any]:
    return {"seal": "clean" if clean else "open", "count": count}


# ASCII by escapes, so that no editor, shell or terminal can change the bytes that are hashed.
_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
_quoted: Final = json.encoder.encode_basestring_ascii


def _line(value: object) -> bytes:
    return _json(value).encode("ascii") + b"\n"


class Writer:
    """Writes one segment, counting and hashing as it goes.

    Parameters:
        write: takes bytes, as that of a file does.
        header: the first line. The segment after this one begins with the header `following`.
    """

    count: int

    def __init__(self, write: Callable[[bytes], object], header: Header) -> None:
        self._write = write
        self._header = header
        self._hash = hashlib.sha256()
        self.count = 0
        self._put(encode_header(header))

    def _put(self, line: bytes) -> None:
        self._hash.update(line)
        self._write(line)

    def add(self, event: AnyEvent) -> None:
        """Append an event.

        Parameters:
            event: the next event; it names its host if the store is shared.

        Raises:
            ValueError: the event is not the next one, or names a host where it must not, or does not where it must.
        """
        expected = self._header.first + self.count
        if event.seq != expected:
            raise ValueError(f"event {event.seq} does not follow {expected - 1}: seq has no gaps")
        if isinstance(event, HostEvent) is not self._header.is_shared:
            needed = (
                "a HostEvent: the store is shared" if self._header.is_shared else "no HostEvent: the store has one host"
            )
            raise ValueError(f"event {event.seq} must be {needed}")
        self._put(encode(event))
        self.count += 1

    def put(self, line: bytes) -> None:
        """Append the line of the next event, already encoded.

        Parameters:
            line: the line, with its newline.
        """
        self._put(line)
        self.count += 1

    def add_all(self, events: Iterable[AnyEvent]) -> None:
        """Append events.

        Parameters:
            events: the next events, in order.

        Raises:
            ValueError: as for `add`.
        """
        for event in events:
            self.add(event)

    @property
    def hash(self) -> str:
        """The hash of what has been written so far; the next segment names it as `previous`."""
        return self._hash.hexdigest()

    def seal(self, *, clean: bool) -> None:
        """Write the last line.

        Parameters:
            clean: whether a stop has completed and nothing goes on, so that the trace has ended.
        """
        hash_ = seal_hash(self._header.version, self._hash, clean=clean, count=self.count)
        self._write(encode_seal(Seal(clean, self.count, hash_)))

    def following(self, registers: dict[str, Any] | None) -> Header:
        """The header of the next segment.

        Parameters:
            registers: what a monitor knows at this point.
        """
        header = self._header
        version = max(VERSION, header.version)
        return Header(header.scheduler, header.segment + 1, self.hash, header.first + self.count, registers, version)


def digest(tasks: Iterable[tuple[str, int, str, int]]) -> str:
    """The digest of a declared set in IE: a hash of names, generations, cron texts and delays, in any order."""
    combined = 0
    for task in tasks:
        combined ^= digest_of_one(*task)
    return digest_text(combined)


def digest_of_one(name: str, generation: int, cron: str, delay_ms: int) -> int:
    """The share of one task; shares are combined by exclusive or, so that a monitor can keep the result up to date."""
    text = json.dumps([name, generation, cron, delay_ms], separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], "big")


def digest_text(combined: int) -> str:
    """The combined shares as they stand in IE."""
    return f"{combined:016x}"
