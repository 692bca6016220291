"""The monitor: one pass over a trace, constant memory per task, four-valued verdicts.

`step` takes one event and returns what it violates. Checks read the registers as they were before the event, which is
what Y means; then the event takes effect, even when it was wrong, so one mistake is reported once. `feed` takes rows as
a reader delivers them, and is what long files go through.

The predicate that judges starts can be asked as well: `obliged` says whether a task must start now. A scheduler that
starts exactly the tasks that are obliged is correct; `duly.testing` asserts it in every step.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from duly.core.moments import Instant
from duly.formal import fast_path
from duly.formal.machine import Machine
from duly.formal.properties import PROPERTIES, PropertyKind
from duly.formal.registers import Registers, RegisterSnapshot
from duly.formal.trace import Event
from duly.formal.verdicts import Open, Verdict, Violation, verdict


class Monitor:
    """Judges one trace, from its beginning or from a snapshot of registers."""

    def __init__(self, snapshot: RegisterSnapshot | None = None, *, bounded: bool = True) -> None:
        self.registers = Registers() if snapshot is None else Registers.restored(snapshot)
        self._bounded = bounded
        self._machine = Machine(self.registers, bounded=bounded)
        self._findings = self._machine.findings

    # --- in and out --------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> Sequence[Violation]:
        """Take one event; returns what it violates, usually nothing."""
        found = self._findings.forget_recent()
        letters = type(event).__name__
        self._machine.on[letters](letters, *event)
        return found

    def feed(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take events as rows: letters, then fields, as they stand in a file."""
        self._findings.forget_recent()
        fast_path.feed(self._machine, rows)

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self.registers.seq

    @property
    def violations(self) -> Sequence[Violation]:
        """What was violated, in order; the first hundred of them."""
        return self._findings.violations

    @property
    def counts(self) -> dict[str, int]:
        """How often each property was violated."""
        return self._findings.counts

    def verdicts(self, *, sealed: bool = False) -> dict[str, Verdict]:
        """The verdict on every property so far; `sealed` if the trace has ended cleanly."""
        registers, findings = self.registers, self._findings
        owed = [
            Open(task.name, max(registers.owed_since(task)[0], registers.active_since, task.ended))
            for task in registers.tasks.values()
            if registers.obliged(task.name, registers.clock)
        ]
        open_ = {
            "L1": sorted(owed, key=lambda each: each.since),
            "L2": [Open(f"stop {call}", at) for call, (_, at) in registers.stops.items()],
            "L3": [Open(f"initialize {call}", at) for call, (_, at) in registers.inits.items()],
        }
        return {
            each.id: verdict(
                each.id, findings.counts[each.id], findings.first.get(each.id), open_.get(each.id, []), sealed=sealed
            )
            for each in PROPERTIES
            if self._bounded or each.kind is not PropertyKind.BOUNDED
        }

    def obliged(self, name: str, at: Instant) -> bool:
        """Obl: whether a task must start now."""
        return self.registers.obliged(name, at)

    def obligations(self, at: Instant) -> Iterator[str]:
        """Every task that must start now."""
        return (name for name in self.registers.tasks if self.registers.obliged(name, at))

    def snapshot(self) -> RegisterSnapshot:
        """All registers, for the header of the next segment or for a checkpoint."""
        return self.registers.snapshot()
