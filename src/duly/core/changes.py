"""Starts and ends by the thousand, in blocks: a list of tasks and what they share.

A run whose callback has returned then leaves no object behind for the garbage collector, and a store writes a block
with one statement. `singles()` iterates over single starts and ends where that is what a caller wants.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from duly.core.moments import Instant
from duly.core.task import Change, Correction, End, Grounds, Start, Task


class StartBlock:
    """Tasks that start for the same reason, with consecutive run numbers."""

    __slots__ = ("first_run", "grounds", "tasks")

    def __init__(self, tasks: list[Task], first_run: int, grounds: Grounds) -> None:
        self.tasks = tasks
        self.first_run = first_run
        self.grounds = grounds

    def singles(self) -> Iterator[Start]:
        """The starts one by one, in the order of their run numbers."""
        for run, task in enumerate(self.tasks, self.first_run):
            yield Start(task, run, self.grounds)


class SuccessBlock:
    """Runs that started for the same reason, and whose callbacks were called and returned at the same instants."""

    __slots__ = ("at", "called_at", "grounds", "runs", "tasks")

    def __init__(
        self, at: Instant, grounds: Grounds, tasks: list[Task], runs: list[int], called_at: Instant | None = None
    ) -> None:
        self.at = at
        self.called_at = called_at
        self.grounds = grounds
        self.tasks = tasks
        self.runs = runs  # their numbers

    def part(self, which: slice) -> "SuccessBlock":
        """Some of the runs."""
        return SuccessBlock(self.at, self.grounds, self.tasks[which], self.runs[which], self.called_at)

    def singles(self) -> Iterator[End]:
        """The ends one by one, in the order in which the callbacks returned."""
        for task, run in zip(self.tasks, self.runs, strict=True):
            yield End(task, run, self.grounds, self.at, called_at=self.called_at)


Block = StartBlock | SuccessBlock | End | Correction
"""Changes that a store writes together; a failure or a correction stands alone."""


class Starts:
    """Starts in the order of their run numbers."""

    __slots__ = ("blocks", "count", "fence")

    def __init__(self, starts: Iterable[Start] = ()) -> None:
        self.blocks: list[StartBlock] = []
        self.count = 0
        self.fence: int | None = None
        """Once they are durable in a shared store: a number that grows with every start of a task, across hosts."""
        for task, run, grounds in starts:
            self.add((task,), run, grounds)

    def singles(self) -> Iterator[Start]:
        """The starts one by one."""
        for block in self.blocks:
            yield from block.singles()

    def add(self, tasks: Sequence[Task], first_run: int, grounds: Grounds) -> None:
        """Append starts that all have this reason."""
        last = self.blocks[-1] if self.blocks else None
        if last is not None and last.grounds is grounds and last.first_run + len(last.tasks) == first_run:
            last.tasks.extend(tasks)
        else:
            self.blocks.append(StartBlock(list(tasks), first_run, grounds))
        self.count += len(tasks)


class Ends:
    """Ends in the order in which the callbacks returned or raised."""

    __slots__ = ("_last", "blocks", "count")

    def __init__(self, blocks: Iterable[SuccessBlock | End] = ()) -> None:
        self.blocks: list[SuccessBlock | End] = list(blocks)
        self.count = 0
        for block in self.blocks:
            self.count += len(block.runs) if isinstance(block, SuccessBlock) else 1
        self._last: SuccessBlock | None = None  # the block that the next success may join

    def singles(self) -> Iterator[End]:
        """The ends one by one."""
        for block in self.blocks:
            if isinstance(block, End):
                yield block
            else:
                yield from block.singles()

    def add(self, ended: "SuccessBlock | End") -> None:
        """Append the end of a run, or of runs that returned together; the block becomes part of this."""
        if isinstance(ended, End):
            if ended.error is None:
                self.add(SuccessBlock(ended.at, ended.grounds, [ended.task], [ended.run], ended.called_at))
                return
            self.blocks.append(ended)
            self._last = None
            self.count += 1
            return
        last = self._last
        if (
            last is not None
            and last.at == ended.at
            and last.grounds is ended.grounds
            and last.called_at == ended.called_at
        ):
            last.tasks += ended.tasks
            last.runs += ended.runs
        else:
            self._last = ended
            self.blocks.append(ended)
        self.count += len(ended.runs)

    def divide(self, runs: Collection[int]) -> tuple["Ends", "Ends"]:
        """The ends of these runs, and the rest."""
        these, others = Ends(), Ends()
        for end in self.singles():
            (these if end.run in runs else others).add(end)
        return these, others

    def count_up_to(self, failures: int) -> int:
        """How many ends there are up to this many failures, those included."""
        if len(self.blocks) <= failures:
            return self.count
        found = 0
        for block in self.blocks:
            if isinstance(block, End):  # in `Ends` only a failure stands alone
                if not failures:
                    break
                failures -= 1
                found += 1
            else:
                found += len(block.runs)
        return found

    def split(self, at: int) -> tuple["Ends", "Ends"]:
        """The first `at` ends, and the rest."""
        if self.count <= at:
            return self, Ends()
        first: list[SuccessBlock | End] = []
        rest: list[SuccessBlock | End] = []
        left = at
        for block in self.blocks:
            if isinstance(block, End):
                (first if left else rest).append(block)
                left -= bool(left)
                continue
            if left:
                first.append(block.part(slice(None, left)))
            if left < len(block.runs):
                rest.append(block.part(slice(left, None)))
            left -= min(left, len(block.runs))
        return Ends(first), Ends(rest)


class Batch:
    """All that a store writes in one transaction, in this order."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks: list[Block] = list(blocks)

    @classmethod
    def of(cls, changes: Iterable[Change]) -> "Batch":
        """Single changes as a batch; neighbours of one kind share blocks where they can."""
        blocks: list[Block] = []
        neighbours: Any
        for kind, neighbours in groupby(changes, type):
            if kind is Start:
                blocks += Starts(neighbours).blocks
            elif kind is End:
                ends = Ends()
                for end in neighbours:
                    ends.add(end)
                blocks += ends.blocks
            else:
                blocks += neighbours
        return cls(blocks)

    @property
    def count(self) -> int:
        """How many single changes there are."""
        return sum(len(block.tasks) if isinstance(block, StartBlock | SuccessBlock) else 1 for block in self.blocks)

    def singles(self) -> Iterator[Change]:
        """The changes one by one."""
        for block in self.blocks:
            if isinstance(block, StartBlock | SuccessBlock):
                yield from block.singles()
            else:
                yield block
