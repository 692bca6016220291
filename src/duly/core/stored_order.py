"""Registrations in the order in which their tasks are stored, against the rows of a store."""

from array import array
from operator import itemgetter

from duly.core.record import EqualRows
from duly.core.registration import Registrations
from duly.core.steps import STEP_TASKS, Steps


class StoredOrder:
    """Registrations in the order in which tasks are stored: by expression, and within one as they are declared.

    New tasks are stored in this order. An application that declares again what it declared before therefore finds its
    registrations block after block by comparing two lists of names, without the dictionary of all stored tasks in which
    `resolve` looks up name after name. What is left to `resolve` are tasks that are new, gone, changed, or declared in
    another order.
    """

    def __init__(self, declared: Registrations, indices: "dict[str, array[int]]") -> None:
        self._declared = declared
        self._indices = indices  # of the registrations, by cron text
        self._found = dict.fromkeys(indices, 0)  # how many of these were found

    @classmethod
    def of(cls, declared: Registrations) -> Steps["StoredOrder"]:
        """The order of these registrations, none of which was found yet."""
        indices: dict[str, array[int]] = {}
        for first in range(0, declared.count, STEP_TASKS):
            for index, expression in enumerate(declared.expressions[first : first + STEP_TASKS], first):
                try:
                    indices[expression.text].append(index)
                except KeyError:
                    indices[expression.text] = array("Q", (index,))
            yield
        return cls(declared, indices)

    def find(self, block: EqualRows) -> "array[int] | None":
        """The indices of the registrations that declare what stored rows say, if these are the next in this order."""
        cron, delay_ms = block.rest[:2]
        indices = self._indices.get(cron) if type(cron) is str else None
        if indices is None:
            return None
        begin, names = self._found[cron], block.names
        some = indices[begin : begin + len(names)]
        declared = self._declared
        if (
            len(some) != len(names)
            or [*map(declared.names.__getitem__, some)] != [*names]
            or {*map(declared.delays.__getitem__, some)} != {delay_ms}
        ):
            return None
        self._found[cron] = begin + len(some)
        return some

    def remaining(self) -> "list[array[int]]":
        """The indices of registrations that were not found, by expression, that of the leftmost one first."""
        rest = [indices[self._found[cron] :] for cron, indices in self._indices.items()]
        return sorted(filter(None, rest), key=itemgetter(0))

    def flags(self) -> Steps[bytearray]:
        """For each registration, whether it was found."""
        found = bytearray(self._declared.count)
        for cron, indices in self._indices.items():
            for first in range(0, self._found[cron], STEP_TASKS):
                for index in indices[first : min(first + STEP_TASKS, self._found[cron])]:
                    found[index] = True
                yield
        return found
