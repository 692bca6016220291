"""The alphabet of a trace as frozen values, and JSON Lines, the form in which traces are exchanged.

A trace is the durable log of a scheduler: an event happened if and only if its record is durable (SPEC 7.6). There is
one event per position; `seq` numbers positions without gaps, in commit order. `at` is the clock sample that the
decision used, in microseconds since the epoch. A task is named by its name and its generation, the number that the
store gave to this very declaration; a run by an integer.

An event is one of the classes below, in the scheduler that makes it as in the checker that judges it. A scheduler does
not know its number: it makes events with `UNNUMBERED`, and the store numbers them as it writes them. Where there are
thousands, an event is a row on its way: a scheduler's row is the letters and the fields without `seq` (`row_of`), and
`encode_row` turns it into a line; a reader's row is a line as it is parsed, the letters and all fields.

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
`boot_seq` of the scheduler and `served_before` of each task. Both versions are read; a segment is written in the
version of its header, which is the newest one unless the segment was begun by an older duly.

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
VERSIONS: Final = (1, 2)
"""All versions that are read, and the newest one, in which a new segment is written."""

NEW, OVERRIDDEN, ORPHANED, PRESERVED = CHANGES = ("new", "overridden", "orphaned", "preserved")
LOOP, THREAD = PLACES = ("loop", "thread")
RESTART, WAIT = MODES = ("restart", "wait")
CAUSES: Final = ("cron", "retry", "interrupted")

TEXT_CHARACTERS_MAX: Final = 1 << 21
"""No text of an event is longer, so that a line can be read in little memory."""

CRON_CHARACTERS_MAX: Final = 1 << 16
"""No cron expression is longer: one of megabytes would take seconds to read."""

UNNUMBERED: Final = 0
"""`seq` of an event that is not written yet."""

# --- the alphabet -----------------------------------------------------------------------------------------------------


class BT(NamedTuple):
    """Boot: a process opened the store. If the process before did not close it, a Crash comes directly before this."""

    seq: int
    at: Instant
    boot: str  # an identifier of this opening
    mono: int  # microseconds of the steady clock


class IS(NamedTuple):
    """Initialize was called."""

    seq: int
    at: Instant
    call: int


class RG(NamedTuple):
    """A registration changed, in the transaction of its IE; preserved tasks have none, unless their place changed."""

    seq: int
    at: Instant
    task: str
    generation: int
    change: str  # one of CHANGES
    cron: str
    delay_ms: Delay
    zone: str  # IANA name, or UTC+02:00
    known_since: Instant
    place: str  # one of PLACES: where its callback runs, and so which slots it needs


class IE(NamedTuple):
    """Initialize has taken effect: what the trace has registered is what was declared."""

    seq: int
    at: Instant
    call: int
    declared: int  # how many tasks
    digest: str  # `digest` of them, or "" if not stated
    interrupted: str  # one of MODES
    max_concurrency: int | None
    threads: int | None  # size of the thread pool
    zone: str  # the host's, in force for all tasks from here on


class IF(NamedTuple):
    """A re-initialisation raised, or was cancelled; nothing changed."""

    seq: int
    at: Instant
    call: int
    error: str


class SS(NamedTuple):
    """Stop was accepted: nothing may start from here on."""

    seq: int
    at: Instant
    call: int


class SE(NamedTuple):
    """Stop has completed: nothing runs."""

    seq: int
    at: Instant
    call: int


class SF(NamedTuple):
    """Stop raised; without an SS of the same call it was refused, and had no effect."""

    seq: int
    at: Instant
    call: int
    error: str


class RS(NamedTuple):
    """A run has started."""

    seq: int
    at: Instant
    task: str
    generation: int
    run: int
    cause: str  # one of CAUSES: what the scheduler says; the checker forms its own opinion
    slots: int  # callbacks in use just before


class RE(NamedTuple):
    """A run has ended, and its outcome is durable."""

    seq: int
    at: Instant
    task: str
    generation: int
    run: int
    ok: bool


class CK(NamedTuple):
    """The loop noticed that the wall clock was stepped: any step back, and forward ones worth reporting."""

    seq: int
    at: Instant  # what it shows now
    old: Instant  # what it would have shown


class WK(NamedTuple):
    """The loop woke up: evidence that the process had compute, so that lateness can be told from a freeze."""

    seq: int
    at: Instant
    mono: int


Event = BT | IS | RG | IE | IF | SS | SE | SF | RS | RE | CK | WK
LETTERS: Final[dict[str, type[Event]]] = {
    kind.__name__: kind for kind in (BT, IS, RG, IE, IF, SS, SE, SF, RS, RE, CK, WK)
}

# --- the form ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a segment."""

    scheduler: str
    segment: int = 1
    previous: str | None = None
    first: int = 1
    registers: dict[str, Any] | None = None
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Seal:
    """The last line of a segment."""

    clean: bool
    count: int
    hash: str


Row = tuple[Any, ...]
"""An event on its way to a store: the letters, then the fields without `seq`."""


def row_of(event: Event) -> Row:
    """An event as a row; its number is left out."""
    return (type(event).__name__, *event[1:])


def encode(event: Event) -> bytes:
    """The line of an event."""
    return encode_row(event.seq, row_of(event)).encode("ascii") + b"\n"


def encode_row(seq: int, row: Row) -> str:
    """The line of a row that has become event `seq`, without its newline."""
    # Starts and ends are nearly all of a trace: put together by hand they take a third of the time.
    match row:
        case ("RE", at, task, generation, run, ok):
            return f'["RE",{seq},{at},{_quoted(task)},{generation},{run},{"true" if ok else "false"}]'
        case ("RS", at, task, generation, run, cause, slots):
            return f'["RS",{seq},{at},{_quoted(task)},{generation},{run},"{cause}",{slots}]'
        case _:
            return _json([row[0], seq, *row[1:]])


def encode_header(header: Header) -> bytes:
    """The line of a header."""
    return _line(
        {
            "trace": "duly",
            "version": header.version,
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

    `write` takes bytes, as that of a file does. The segment after this one begins with the header `following`.
    """

    def __init__(self, write: Callable[[bytes], object], header: Header) -> None:
        self._write = write
        self._header = header
        self._hash = hashlib.sha256()
        self.count = 0
        self._put(encode_header(header))

    def _put(self, line: bytes) -> None:
        self._hash.update(line)
        self._write(line)

    def add(self, event: Event) -> None:
        """Append an event; it must be the next one."""
        expected = self._header.first + self.count
        if event.seq != expected:
            raise ValueError(f"event {event.seq} does not follow {expected - 1}: seq has no gaps")
        self._put(encode(event))
        self.count += 1

    def put(self, line: bytes) -> None:
        """Append the line of the next event, already encoded."""
        self._put(line)
        self.count += 1

    def add_all(self, events: Iterable[Event]) -> None:
        """Append events."""
        for event in events:
            self.add(event)

    @property
    def hash(self) -> str:
        """The hash of what has been written so far; the next segment names it as `previous`."""
        return self._hash.hexdigest()

    def seal(self, *, clean: bool) -> None:
        """Write the last line."""
        hash_ = seal_hash(self._header.version, self._hash, clean=clean, count=self.count)
        self._write(encode_seal(Seal(clean, self.count, hash_)))

    def following(self, registers: dict[str, Any] | None) -> Header:
        """The header of the next segment, given what a monitor knows at this point."""
        header = self._header
        return Header(header.scheduler, header.segment + 1, self.hash, header.first + self.count, registers)


def digest(tasks: Iterable[tuple[str, int, str, int]]) -> str:
    """What IE says of the declared set: a hash of names, generations, cron texts and delays, in any order."""
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
