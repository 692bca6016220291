"""A disk whose power can fail: what was synchronised is there, of the rest any part, and any piece of a part.

It replays a recording of what a program did to its files. A cut leaves each file with what was durable at that moment
and some of the writes after it, whole or torn, in any combination; names appear and vanish likewise.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SECTOR: Final = 512


class Write(NamedTuple):
    """Bytes at a place in a file."""

    file: str
    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file got this size."""

    file: str
    size: int


class Sync(NamedTuple):
    """All of a file is durable, and so is its name."""

    file: str


class SyncFolder(NamedTuple):
    """All names are durable."""


class Create(NamedTuple):
    """A file appeared, or was there already."""

    file: str


class Unlink(NamedTuple):
    """A file lost its name."""

    file: str


class Acknowledge(NamedTuple):
    """The program said something that relies on what it wrote: a callback began, an end was told."""

    what: str
    task: str = ""
    run: int = 0


Step = Write | Truncate | Sync | SyncFolder | Create | Unlink | Acknowledge
Files = dict[str, bytes]


@dataclass(eq=False)
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncate] = field(default_factory=list)

    def after(self, surviving: Sequence[Write | Truncate]) -> bytes:
        content = bytearray(self.durable)
        for step in surviving:
            _apply(content, step)
        return bytes(content)


def _apply(content: bytearray, step: Write | Truncate) -> None:
    if isinstance(step, Truncate):
        del content[step.size :]
        content.extend(bytes(step.size - len(content)))
        return
    if len(content) < step.offset:
        content.extend(bytes(step.offset - len(content)))
    content[step.offset : step.offset + len(step.data)] = step.data


class Disk:
    """The writes so far, and which of them are durable."""

    def __init__(self) -> None:
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}

    def perform(self, step: Step) -> None:
        """One step of the program."""
        if isinstance(step, Write | Truncate):
            self._file(step.file).pending.append(step)
        elif isinstance(step, Sync):
            inode = self._file(step.file)
            inode.durable = bytearray(inode.after(inode.pending))
            inode.pending = []
            self._durable_names[step.file] = inode
        elif isinstance(step, SyncFolder):
            self._durable_names = dict(self._names)
        elif isinstance(step, Create):
            self._file(step.file)
        elif isinstance(step, Unlink):
            self._names.pop(step.file, None)

    def _file(self, name: str) -> _Inode:
        return self._names.setdefault(name, _Inode())

    def everything(self) -> Files:
        """All writes have reached the disk: this is also what a killed process leaves."""
        return {name: inode.after(inode.pending) for name, inode in self._names.items()}

    def nothing(self) -> Files:
        """None of what was not synchronised has."""
        return {name: bytes(inode.durable) for name, inode in self._durable_names.items()}

    def torn(self, dice: random.Random) -> Files:
        """All but the end of the last write, at some byte of it."""
        files = self.everything()
        open_files = [(name, inode) for name, inode in self._names.items() if inode.pending]
        if open_files:
            name, inode = dice.choice(open_files)
            *whole, last = inode.pending
            files[name] = inode.after([*whole, *_piece_of(last, dice)])
        return files

    def some(self, dice: random.Random) -> Files:
        """Any subset, any of them torn at a sector; names as they are, or as they were when that was last durable."""
        names = dict(dice.choice([self._names, self._durable_names]))
        share = dice.random()
        files = {}
        for name, inode in names.items():
            surviving: list[Write | Truncate] = []
            for step in inode.pending:
                if dice.random() < share:
                    surviving.append(step)
                elif dice.random() < 0.3:
                    surviving += _piece_of(step, dice, SECTOR)
            files[name] = inode.after(surviving)
        return files


def _piece_of(step: Write | Truncate, dice: random.Random, grain: int = 1) -> list[Write | Truncate]:
    if isinstance(step, Truncate):
        return []
    length = dice.randrange(0, len(step.data), grain) if step.data else 0
    return [Write(step.file, step.offset, step.data[:length])]


class Cut(NamedTuple):
    """The disk after a power failure, and what had been acknowledged by then."""

    position: int
    kind: str
    files: Files
    acknowledged: int  # how many of the recording's acknowledgements


def cuts(recording: Sequence[Step], seed: int, subsets: int = 1) -> Iterator[Cut]:
    """Every prefix of a recording, with all, nothing, and pieces of what was not durable there."""
    dice = random.Random(seed)
    disk = Disk()
    acknowledged = 0
    for position, step in enumerate(recording):
        disk.perform(step)
        if isinstance(step, Acknowledge):
            acknowledged += 1
            continue  # the disk is as it was; the next cut knows of it
        yield Cut(position, "everything", disk.everything(), acknowledged)
        yield Cut(position, "nothing", disk.nothing(), acknowledged)
        if isinstance(step, Write):
            yield Cut(position, "torn", disk.torn(dice), acknowledged)
        for _ in range(subsets):
            yield Cut(position, "some", disk.some(dice), acknowledged)
