"""Starts and ends by the thousand, in blocks of those that differ in their tasks alone.

To most code they are the sequences of `Start` and `End` that they stand for. Who decides, writes or settles thousands
of them goes from block to block instead: a run whose callback is over then leaves no object to the collector.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Any, TypeVar

from duly.core.moments import Instant
from duly.core.task import Change, Correction, End, Grounds, Start, Task

T = TypeVar("T", Start, End)


class StartBlock:
    """Tasks that start for the same reason, with consecutive run numbers."""

    __slots__ = ("first_run", "grounds", "tasks")

    def __init__(self, tasks: list[Task], first_run: int, grounds: Grounds) -> None:
        self.tasks = tasks
        self.first_run = first_run
        self.grounds = grounds


class SuccessBlock:
    """Runs that started for the same reason, and whose callbacks returned at the same instant."""

    __slots__ = ("at", "grounds", "runs", "tasks")

    def __init__(self, at: Instant, grounds: Grounds, tasks: list[Task], runs: list[int]) -> None:
        self.at = at
        self.grounds = grounds
        self.tasks = tasks
        self.runs = runs  # their numbers


class _Blocks(Sequence[T]):
    """What `Starts` and `Ends` have in common: to look like a list of single ones."""

    def __init__(self) -> None:
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        position = range(self._size)[index]  # as a list counts, and complains
        return next(islice(self, position, None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list: it grows


class Starts(_Blocks[Start]):
    """Starts, in the order of their run numbers."""

    def __init__(self, starts: Iterable[Start] = ()) -> None:
        super().__init__()
        self.blocks: list[StartBlock] = []
        for task, run, grounds in starts:
            self.add((task,), run, grounds)

    def __iter__(self) -> Iterator[Start]:
        for block in self.blocks:
            for run, task in enumerate(block.tasks, block.first_run):
                yield Start(task, run, block.grounds)

    def add(self, tasks: Sequence[Task], first_run: int, grounds: Grounds) -> None:
        """Some more, that all start for this reason."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and last.grounds is grounds and last.first_run + len(last.tasks) == first_run:
            last.tasks.extend(tasks)
        else:
            self.blocks.append(StartBlock(list(tasks), first_run, grounds))
        self._size += len(tasks)


class Ends(_Blocks[End]):
    """Ends, in the order in which the callbacks were over; each that failed stands by itself."""

    def __init__(self, blocks: Iterable[SuccessBlock | End] = ()) -> None:
        super().__init__()
        self.blocks: list[SuccessBlock | End] = list(blocks)
        self._size = sum(len(block.runs) if isinstance(block, SuccessBlock) else 1 for block in self.blocks)
        self._last: SuccessBlock | None = None

    def __iter__(self) -> Iterator[End]:
        for block in self.blocks:
            if isinstance(block, End):
                yield block
            else:
                for task, run in zip(block.tasks, block.runs, strict=True):
                    yield End(task, run, block.grounds, block.at)

    def succeeded(self, task: Task, run: int, grounds: Grounds, at: Instant) -> None:
        """One more callback returned."""
        last = self._last
        if last is not None and last.at == at and last.grounds is grounds:
            last.tasks.append(task)
            last.runs.append(run)
        else:
            self._last = block = SuccessBlock(at, grounds, [task], [run])
            self.blocks.append(block)
        self._size += 1

    def append(self, end: End) -> None:
        """One more end, however it came."""
        if end.error is None:
            self.succeeded(end.task, end.run, end.grounds, end.at)
        else:
            self.blocks.append(end)
            self._last = None
            self._size += 1

    def divided(self, most: int) -> tuple["Ends", "Ends"]:
        """The first so many, and the others."""
        if self._size <= most:
            return self, Ends()
        first: list[SuccessBlock | End] = []
        others: list[SuccessBlock | End] = []
        left = most
        for block in self.blocks:
            if isinstance(block, End):
                (first if left else others).append(block)
                left -= bool(left)
                continue
            if left:
                first.append(SuccessBlock(block.at, block.grounds, block.tasks[:left], block.runs[:left]))
            if left < len(block.runs):
                others.append(SuccessBlock(block.at, block.grounds, block.tasks[left:], block.runs[left:]))
            left -= min(left, len(block.runs))
        return Ends(first), Ends(others)


class Batch(Sequence[Change]):
    """What is written together, part after part."""

    def __init__(self, parts: Sequence[Sequence[Change]]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Change]:
        return chain.from_iterable(self.parts)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


def in_blocks(changes: Sequence[Change]) -> Iterator[StartBlock | SuccessBlock | End | Correction]:
    """The same, in the same order, and thousands at once where they came so."""
    for part in changes.parts if isinstance(changes, Batch) else (changes,):
        if isinstance(part, Starts | Ends):
            yield from part.blocks
        else:
            yield from _grouped(part)


def _grouped(changes: Iterable[Change]) -> Iterator[StartBlock | SuccessBlock | End | Correction]:
    for kind, alike in groupby(changes, type):
        singles: Any = alike
        if kind is Start:
            yield from Starts(singles).blocks
        elif kind is End:
            ends = Ends()
            for end in singles:
                ends.append(end)
            yield from ends.blocks
        else:
            yield from singles
