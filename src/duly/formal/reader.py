"""A streaming reader of traces: constant memory, every line checked, and an error with its line for whatever is wrong.

What it lets pass is a chain of segments of one scheduler: each with a header of a known version, events whose letters,
fields and types are those of `trace`, numbered without a gap, and a seal, if there is one, that counts and hashes what
came before it. A trace that was cut, edited, reordered or mixed with another is refused, never judged.

Lines are parsed in blocks: for long files that is twice as fast as one by one. Where a block holds anything unusual, or
anything is wrong, its lines are looked at one by one.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final, NamedTuple, Protocol, get_type_hints

from duly.core.moments import LAST_INSTANT, MICROSECONDS, Delay, Instant
from duly.errors import TraceError
from duly.formal.calendar import parse, zone_named
from duly.formal.registers import RegisterSnapshot
from duly.formal.trace import (
    CAUSES,
    CHANGES,
    CRON_CHARACTERS_MAX,
    EMBEDDED,
    LETTERS,
    MODES,
    OF_SHARED_STORES,
    PLACES,
    TEXT_CHARACTERS_MAX,
    VERSIONS,
    AnyEvent,
    Header,
    HostEvent,
    Seal,
    seal_hash,
)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose names are all different. Raises ValueError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"it has {twice[:40]!r} twice")
    return found


def _unknown_constant(name: str) -> Any:
    raise ValueError(f"it contains {name}")


def _number(digits: str) -> int | float:
    """An integer as orjson reads it: one of more than 64 bits is not an integer."""
    number = int(digits) if len(digits) <= _LONGEST_DIGITS else None
    return number if number is not None and -(1 << 63) <= number < 1 << 64 else float(digits)


_LONGEST_DIGITS: Final = len(str(1 << 64))
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_unknown_constant)
_CAREFUL_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_unknown_constant, parse_int=_number)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_OBJECT: Final = re.compile(rb"[ \t\r]*\{")
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")


def standard_loads(data: bytes) -> Any:
    """Parse JSON with the standard library, as strictly as orjson does, and without names that come twice.

    Left alone, the standard library takes NaN, integers of any length, lone surrogates, and other encodings: the
    verdict would depend on what is installed.
    """
    # Long numbers and surrogates are looked for in the bytes, which costs a fraction of looking at every value.
    is_plain = b"0" * (_LONGEST_DIGITS - 1) not in data.translate(_DIGITS_TO_ZERO)
    value = (_DECODER if is_plain else _CAREFUL_DECODER).decode(data.decode())
    if _SURROGATE.search(data):
        json.dumps(value, ensure_ascii=False).encode()  # a UnicodeEncodeError is a ValueError
    return value


_loads: Callable[[bytes], Any]
try:
    import orjson
except ImportError:  # it comes with the extra `cli`; without it, long traces are read more slowly
    _loads = standard_loads
else:
    _loads = orjson.loads

BLOCK_BYTES: Final = 1 << 14  # what fits into the processor's caches, parsed
EVENT_BYTES_MAX: Final = 1 << 25
"""No event has a longer line; headers do, because they hold the registers of every task."""

_FIRST_INSTANT: Final = -62_135_596_800 * MICROSECONDS  # the year 1

Row = list[Any]
"""A line of an event, parsed: letters, seq, at, and the other fields of its class."""


class Rows(NamedTuple):
    """Events that follow each other, and the line of the first."""

    rows: list[Row]
    line: int
    hosts: list[int] | None = None
    """In the trace of a shared store, the host of each row; the rows themselves do not name it."""

    def events(self) -> Iterator[AnyEvent]:
        """The events as values."""
        bare = (LETTERS[row[0]](*row[1:]) for row in self.rows)
        return bare if self.hosts is None else map(HostEvent, self.hosts, bare)


class Source(Protocol):
    """A file opened in binary mode, or anything with its `read`."""

    def read(self, size: int, /) -> bytes:
        """Some bytes, at most `size`; none at the end."""
        ...


_TYPES: Final[dict[Any, tuple[type, ...]]] = {
    int: (int,), Instant: (int,), Delay: (int,), str: (str,), bool: (bool,), int | None: (int, type(None)),
    bool | None: (bool,),
}  # fmt: skip


class _Form:
    """The fields of each event, and their types, in the lines of a store, or in rows whose hosts stand beside them."""

    def __init__(self, *, shared: bool, with_host: bool = False) -> None:
        self.shared = shared
        self.fields: dict[str, tuple[str, ...]] = {}
        self.shapes: dict[str, frozenset[tuple[type, ...]]] = {}
        for letters, event in LETTERS.items():
            if letters in OF_SHARED_STORES and not shared:
                continue
            types = {name: _TYPES[kind] for name, kind in get_type_hints(event).items()}
            if letters == "IE":
                types["edition"] = (int,)
                if not shared:
                    del types["edition"], types["outdated"]
            if with_host:
                head = {name: types.pop(name) for name in ("seq", "at")}
                types = {**head, "host": (int,), **types}
            self.fields[letters] = ("event", *types)
            self.shapes[letters] = frozenset(product((str,), *types.values()))


_EMBEDDED: Final = _Form(shared=False)
_SHARED: Final = _Form(shared=True, with_host=True)
_WITHOUT_HOSTS: Final = _Form(shared=True)
_HOST_PLACE: Final = _SHARED.fields["WK"].index("host")


def events(source: Source) -> Iterator[AnyEvent]:
    """The events of a trace, as values."""
    for part in TraceReader().read(source):
        if isinstance(part, Rows):
            yield from part.events()


class TraceReader:
    """Reads one trace, from one source or from several, one after the other."""

    def __init__(self) -> None:
        self.line = 0  # the last one read of the present source
        self._header: Header | None = None  # the fields below are set with it
        self._sealed: bool
        self._form = _EMBEDDED
        self._expected: int
        self._count: int
        self._hash = hashlib.sha256()

    def read(self, source: Source) -> Iterator[Header | Rows | Seal]:
        """The parts of a trace, in their order. Raises TraceError at the first line that cannot be one."""
        self.line = 0
        for block in _blocks(source):
            lines = block.count(b"\n")
            rows = self._parse_together(block, lines)
            if rows is not None and self._header is not None and not self._sealed:
                yield self._take(rows, self.line + 1)
                self._hash.update(block)
                self.line += lines
            else:
                yield from self._one_by_one(block)
        if not self.line:
            raise TraceError("truncated", 1, "there is nothing here", hint="a trace begins with a header")

    # --- events ------------------------------------------------------------------------------------------------------

    def _parse_together(self, block: bytes, lines: int) -> list[Row] | None:
        """The events of a block, or None if its lines are not all plain events.

        Joined by commas, the lines are one array. The newlines stay in, so no string can reach over the end of a line.
        Every line ends with a bracket. When the fields are checked, none may be an array, so each of these brackets
        closes an event; and there are as many events as lines, so each line is one.
        """
        if not (block.endswith(b"]\n") and block.count(b"]\n") == lines):
            return None
        # A single byte is found ten times as fast as several, and most traces have no escapes at all.
        if len(block) > TEXT_CHARACTERS_MAX or (b"\\" in block and b"\\u0000" in block):
            return None  # perhaps a text that is too long, or one with a NUL
        try:
            rows: list[Row] = _loads(b"[" + block[:-1].replace(b"\n", b",\n") + b"]")
        except (ValueError, RecursionError):
            return None
        return rows if len(rows) == lines else None

    def _take(self, rows: list[Row], line: int) -> Rows:
        """Check the shape, the values and the numbers of events."""
        hosts = None
        if self._form.shared:
            hosts = self._take_hosts(rows, line)
        elif not self._is_plain(rows, _EMBEDDED):
            self._check_each(rows, line)
        self._count += len(rows)
        self._expected += len(rows)
        return Rows(rows, line, hosts)

    def _take_hosts(self, rows: list[Row], line: int) -> list[int]:
        """Check the events of a shared store, and take their hosts out of them."""
        if all(
            type(row) is list and len(row) > _HOST_PLACE and type(row[_HOST_PLACE]) is int and row[_HOST_PLACE] > 0
            for row in rows
        ):
            hosts = [row.pop(_HOST_PLACE) for row in rows]
            if self._is_plain(rows, _WITHOUT_HOSTS):
                return hosts
            for row, host in zip(rows, hosts, strict=True):
                row.insert(_HOST_PLACE, host)
        self._check_each(rows, line)
        return [row.pop(_HOST_PLACE) for row in rows]

    def _is_plain(self, rows: list[Row], form: _Form) -> bool:
        """Whether all rows are right. Starts and ends, which are nearly all of a trace, are checked without a call."""
        expected, causes, first, last = self._expected, _CAUSES, _FIRST_INSTANT, LAST_INSTANT
        try:
            for row in rows:
                letters = row[0]
                if letters == "RS":
                    _, seq, at, task, generation, run, cause, slots = row
                    right = type(slots) is int and slots >= 0 and cause in causes
                elif letters == "RE":
                    _, seq, at, task, generation, run, ok = row
                    right = ok is True or ok is False
                else:
                    _check_one(row, 0, form)
                    if row[1] != expected:
                        return False
                    expected += 1
                    continue
                if not (
                    right
                    and seq == expected
                    and type(seq) is int
                    and type(at) is int
                    and type(task) is str
                    and type(generation) is int
                    and type(run) is int
                    and first <= at <= last
                ):
                    return False
                expected += 1
        except (LookupError, TypeError, ValueError, TraceError):
            return False
        return True

    def _check_each(self, rows: list[Row], line: int) -> None:
        """Check rows one by one; raises for the first that is wrong."""
        for index, row in enumerate(rows):
            _check_one(row, line + index, self._form)
            if (found := row[1]) != (expected := self._expected + index):
                gap = f"event {found} follows event {expected - 1}"
                why = "a line was moved, repeated, or belongs to another trace"
                if found > expected:
                    missing = found - expected
                    why = "1 event is missing, or comes" if missing == 1 else f"{missing} events are missing, or come"
                    why += " later"
                raise TraceError("reordered", line + index, f"{gap}: {why}")

    # --- the other lines ---------------------------------------------------------------------------------------------

    def _one_by_one(self, block: bytes) -> Iterator[Header | Rows | Seal]:
        for line in block.splitlines(keepends=True):
            self.line += 1
            value = self._parse(line)
            if len(line) > TEXT_CHARACTERS_MAX and isinstance(value, list):
                _check_one(value, self.line, self._form)  # the fast check of starts and ends does not look at lengths
            if isinstance(value, dict):
                if "trace" in value:
                    yield self._begin(value)
                else:
                    yield self._end(value)
                    continue  # a seal is not part of what it seals
            elif self._header is None:
                raise self._broken("malformed", "a trace begins with a header", hint="is this file a trace?")
            elif self._sealed:
                raise self._broken("mixed", "an event follows the seal of its segment")
            else:
                yield self._take([value], self.line)
            self._hash.update(line)

    def _parse(self, line: bytes) -> Any:
        is_object = _OBJECT.match(line) is not None
        if len(line) > EVENT_BYTES_MAX and not is_object:
            raise self._broken("malformed", f"the line has {len(line):,} bytes, an event at most {EVENT_BYTES_MAX:,}")
        try:
            # There are few objects, headers and seals, and orjson takes the last of two values with the same name.
            value = standard_loads(line) if is_object else _loads(line)
            has_nul = b"\\u0000" in line and _contains_nul(value)
        except (ValueError, RecursionError) as fault:
            if self.line == 1 and (kind := _foreign(line)) is not None:
                raise self._broken("malformed", f"the file is {kind[0]}, not a trace", hint=kind[1]) from fault
            if not line.endswith(b"\n"):
                hint = "the end of the trace is missing; judge it up to the line before by removing this one"
                raise self._broken("truncated", "the line is cut", hint=hint) from fault
            raise self._broken("malformed", f"the line is not JSON: {fault}") from fault
        if has_nul:
            raise self._broken("malformed", "a text contains NUL, which no name has (SPEC 1.4)")
        return value

    def _begin(self, value: dict[str, Any]) -> Header:
        """A header: the first line, or the one after the segment before."""
        if value.get("trace") != "duly" or type(value.get("version")) is not int:
            raise self._broken("malformed", "the header is not that of a trace")
        if (found := value["version"]) not in VERSIONS:
            hint = "upgrade duly" if found > VERSIONS[-1] else None
            known = f"{', '.join(map(str, VERSIONS[:-1]))} and {VERSIONS[-1]}"
            raise self._broken("version", f"the trace has version {found}, this duly reads {known}", hint=hint)
        try:
            header = Header(*(value[field] for field in Header.__dataclass_fields__))
        except KeyError as missing:
            raise self._broken("malformed", f"the header lacks {missing}") from missing
        if value.get("store", EMBEDDED) != header.store:
            reason = "a trace of version 3 is that of a shared store, and one of another version is not"
            raise self._broken("malformed", f"{reason}: store is {value.get('store')!r}")
        types = (type(header.scheduler), type(header.segment), type(header.first))
        if types != (str, int, int) or not isinstance(header.previous, str | None):
            raise self._broken("malformed", "the header has fields of another type")
        if header.registers is not None:
            try:
                RegisterSnapshot.from_json(header.registers, header.version)
            except ValueError as fault:
                raise self._broken("malformed", str(fault)) from fault
        elif header.segment != 1 or header.first != 1:
            raise self._broken("malformed", "a segment that is not the first begins with a register snapshot")
        if self._header is not None:
            self._check_follows(header, self._header)
        self._header, self._sealed = header, False
        self._form = _SHARED if header.is_shared else _EMBEDDED
        self._expected, self._count, self._hash = header.first, 0, hashlib.sha256()
        return header

    def _check_follows(self, header: Header, before: Header) -> None:
        """Whether the segment of a header continues the one before."""
        for what, found, wanted in (
            ("store", header.store, before.store),
            ("scheduler", header.scheduler, before.scheduler),
            ("segment", header.segment, before.segment + 1),
            ("first", header.first, self._expected),
        ):
            if found != wanted:
                raise self._broken(
                    "mixed", f"the segment does not follow the one before: {what} is {found!r}, not {wanted!r}"
                )
        if header.previous != self._hash.hexdigest():
            raise self._broken("hash", "the segment before is not the one that this one follows: its hash differs")

    def _end(self, value: dict[str, Any]) -> Seal:
        if value.get("seal") not in ("clean", "open") or set(value) != {"seal", "count", "hash"}:
            raise self._broken("malformed", "the line is neither an event nor a header nor a seal")
        if self._header is None or self._sealed:
            raise self._broken("mixed", "a seal without a segment")
        if value["count"] != self._count:
            raise self._broken("truncated", f"the seal counts {value['count']} events, but there are {self._count}")
        clean = value["seal"] == "clean"
        if value["hash"] != seal_hash(self._header.version, self._hash, clean=clean, count=self._count):
            raise self._broken("hash", "the seal's hash differs: a line of the segment, or the seal, was changed")
        self._sealed = True
        return Seal(clean, self._count, value["hash"])

    def _broken(self, fault: str, reason: str, *, hint: str | None = None) -> TraceError:
        return TraceError(fault, max(self.line, 1), reason, hint=hint)


def _blocks(source: Source) -> Iterator[bytes]:
    """Whole lines, several at a time; the last one may lack its newline."""
    pieces: list[bytes] = []
    while chunk := source.read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join((*pieces, chunk[:end]))
            pieces = []
        if rest := chunk[end:]:
            pieces.append(rest)
    if pieces:
        yield b"".join(pieces)


def _foreign(line: bytes) -> tuple[str, str] | None:
    """The kind of file whose first line is not JSON, and what to do with it; None if it is not known."""
    return next((kind for magic, kind in _MAGIC.items() if line.startswith(magic)), None)


_MAGIC: Final = {
    b"\x1f\x8b": ("compressed with gzip", "gzip -dc FILE | duly verify -"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "zstd -dc FILE | duly verify -"),
    b"\xfd7zXZ\0": ("compressed with xz", "xz -dc FILE | duly verify -"),
    b"BZh": ("compressed with bzip2", "bzip2 -dc FILE | duly verify -"),
    b"SQLite format 3\0": ("a store", "duly verify STORE, or duly trace export STORE, reads the trace in it"),
}


def _contains_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_contains_nul(each) for pair in value.items() for each in pair)
    return isinstance(value, list) and any(map(_contains_nul, value))


def _check_one(row: Any, line: int, form: _Form) -> None:
    """Whether a row is an event, apart from its number. Raises TraceError."""
    if not isinstance(row, list) or not row or not isinstance(row[0], str):
        raise TraceError("malformed", line, "the line is not an event: an array that begins with its letters")
    letters = row[0]
    if letters not in LETTERS:
        hint = "Due, RetryDue and Crash are derived by the checker" if letters in _DERIVED else None
        raise TraceError("malformed", line, f"there is no event {letters[:20]!r}", hint=hint)
    if letters not in form.fields:
        hint = "an embedded store has one host, and a crash of it is derived by the checker"
        raise TraceError("malformed", line, f"{letters} is an event of a shared store", hint=hint)
    names = form.fields[letters]
    if len(row) != len(names):
        reason = f"{letters} has {len(names) - 1} fields ({', '.join(names[1:])}), not {len(row) - 1}"
        raise TraceError("malformed", line, reason, hint=_hint_about_hosts(letters, len(row), form))
    if tuple(map(type, row)) not in form.shapes[letters]:
        raise TraceError("malformed", line, _wrong_type(letters, row, form))
    _check_values(letters, dict(zip(names, row, strict=True)), line)


def _hint_about_hosts(letters: str, length: int, form: _Form) -> str | None:
    """The hint for a line that has the fields of the other kind of store."""
    if form.shared and length == len(_EMBEDDED.fields.get(letters, ())):
        return "in a shared store each event has the key of its host after its instant"
    if not form.shared and length == len(_SHARED.fields[letters]):
        return "only in a shared store, whose traces have version 3, do events name hosts"
    return None


def _wrong_type(letters: str, row: Row, form: _Form) -> str:
    """The field with a wrong type. There is one, because every combination of types that fields may have is a shape."""
    wanted = [{shape[position] for shape in form.shapes[letters]} for position in range(len(row))]
    position = next(position for position, value in enumerate(row) if type(value) not in wanted[position])
    types = " or ".join(sorted(_JSON_NAMES[kind] for kind in wanted[position]))
    return f"{form.fields[letters][position]} of {letters} is {_JSON_NAMES[type(row[position])]}, not {types}"


def _check_lengths(fields: dict[str, Any], line: int) -> None:
    for name, value in fields.items():
        most = CRON_CHARACTERS_MAX if name == "cron" else TEXT_CHARACTERS_MAX
        if isinstance(value, str) and len(value) > most:
            raise TraceError("malformed", line, f"{name} has {len(value):,} characters, and may have {most:,}")


def _check_numbers(fields: dict[str, Any], line: int) -> None:
    for name, what in (("declared", "tasks"), ("slots", "callbacks")):
        if fields.get(name, 0) < 0:
            raise TraceError("malformed", line, f"{name} is a number of {what}")
    for name, what in (("host", "the key of a host"), ("who", "the key of a host"), ("edition", "an edition")):
        if fields.get(name, 1) < 1:
            raise TraceError("malformed", line, f"{name} {fields[name]} is not {what}: these are numbered from 1")


def _check_values(letters: str, fields: dict[str, Any], line: int) -> None:
    for name in ("at", "known_since", "old"):
        if not _FIRST_INSTANT <= fields.get(name, 0) <= LAST_INSTANT:
            raise TraceError("malformed", line, f"{name} {fields[name]} is not a microsecond of the calendar")
    _check_lengths(fields, line)
    for name, known in _VALUES.items():
        if name in fields and fields[name] not in known:
            raise TraceError("malformed", line, f"{name} {fields[name][:20]!r} is none of {', '.join(known)}")
    _check_numbers(fields, line)
    if letters == "RG" and (not fields["task"] or fields["delay_ms"] < 0):
        raise TraceError("malformed", line, "a task has a name, and a delay that is not negative")
    try:
        if "zone" in fields:
            zone_named(fields["zone"])
        if "cron" in fields:
            parse(fields["cron"])
    except ValueError as fault:
        raise TraceError("malformed", line, str(fault)) from fault


_CAUSES: Final = frozenset(CAUSES)
_VALUES: Final = {"change": CHANGES, "place": PLACES, "interrupted": MODES, "cause": CAUSES}
_DERIVED: Final = ("Crash", "Due", "RetryDue", "Resume")
_JSON_NAMES: Final = {
    str: "a string", int: "an integer", float: "a number with a fraction or too large", bool: "true or false",
    type(None): "null", list: "an array", dict: "an object",
}  # fmt: skip
