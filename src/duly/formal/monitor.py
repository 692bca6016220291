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
from duly.formal.calendar import NEVER
from duly.formal.machine import Machine
from duly.formal.properties import PROPERTIES, PropertyKind
from duly.formal.registers import Registers, RegisterSnapshot
from duly.formal.trace import AnyEvent, HostEvent
from duly.formal.verdicts import Open, Verdict, Violation, verdict


class Monitor:
    """Judges one trace, from its beginning or from a snapshot of registers.

    Parameters:
        snapshot: the registers with which the trace begins; None: empty ones.
        bounded: whether the bounded shadows of liveness are judged, too: how long something may stay open.
        shared: True for the trace of a shared store, whose events are `HostEvent`s; a snapshot says so itself.
    """

    registers: Registers

    def __init__(self, snapshot: RegisterSnapshot | None = None, *, bounded: bool = True, shared: bool = False) -> None:
        self.registers = Registers(shared=shared) if snapshot is None else Registers.restored(snapshot)
        self._bounded = bounded
        self._machine = Machine(self.registers, bounded=bounded)
        self._findings = self._machine.findings

    # --- in and out --------------------------------------------------------------------------------------------------

    def step(self, event: AnyEvent) -> Sequence[Violation]:
        """Take one event.

        Parameters:
            event: the next event.

        Returns:
            What it violates, usually nothing.

        Raises:
            ValueError: the event names a host where it must not, or does not where it must.
        """
        found = self._findings.forget_recent()
        if isinstance(event, HostEvent):
            self._check_form(shared=True)
            self._machine.turn_to(event.host)
            event = event.event
        else:
            self._check_form(shared=False)
        letters = type(event).__name__
        self._machine.on[letters](letters, *event)
        return found

    def feed(self, rows: Iterable[Sequence[Any]], hosts: Iterable[int] | None = None) -> None:
        """Take events as rows.

        Parameters:
            rows: the events: letters, then fields.
            hosts: those of a shared store, one for each row.

        Raises:
            ValueError: `hosts` is given where it must not be, or is missing.
        """
        self._findings.forget_recent()
        self._check_form(shared=hosts is not None)
        if hosts is None:
            fast_path.feed(self._machine, rows)
        else:
            fast_path.feed_shared(self._machine, rows, hosts)

    def _check_form(self, *, shared: bool) -> None:
        if shared is not self.registers.shared:
            known = "a shared store, so its events name" if self.registers.shared else "one host, so no event names"
            raise ValueError(f"this monitor judges the trace of {known} a host: Monitor(shared=...) decides which")

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self.registers.seq

    @property
    def violations(self) -> Sequence[Violation]:
        """The violations, in order; the first hundred of them."""
        return self._findings.violations

    @property
    def recent(self) -> Sequence[Violation]:
        """The violations that the last `step` or `feed` found, all of them."""
        return self._findings.recent

    @property
    def counts(self) -> dict[str, int]:
        """How often each property was violated."""
        return self._findings.counts

    def verdicts(self, *, sealed: bool = False) -> dict[str, Verdict]:
        """The verdict on every property so far, by its number.

        Parameters:
            sealed: whether the trace has ended cleanly, so that the verdicts are final.
        """
        registers, findings = self.registers, self._findings
        clock, serving_since = registers.clock, registers.serving_since()
        owed = [
            Open(task.name, max(registers.owed_since(task)[0], serving_since, task.ended))
            for task in registers.tasks.values()
            if serving_since != NEVER and registers.is_owed(task, clock)
        ]
        open_ = {
            "L1": sorted(owed, key=lambda each: each.since),
            "L2": self._open_calls("stop"),
            "L3": self._open_calls("initialize"),
        }
        return {
            each.id: verdict(
                each.id, findings.counts[each.id], findings.first.get(each.id), open_.get(each.id, []), sealed=sealed
            )
            for each in PROPERTIES
            if self._bounded or each.kind is not PropertyKind.BOUNDED
        }

    def _open_calls(self, method: str) -> list[Open]:
        registers = self.registers
        return [
            Open(f"{method} {call}{f' of host {host.key}' if registers.shared else ''}", at)
            for _, host in sorted(registers.hosts.items())
            for call, (_, at) in (host.stops if method == "stop" else host.inits).items()
        ]

    def obliged(self, name: str, at: Instant) -> bool:
        """Obl: whether a task must start now.

        Parameters:
            name: the name of the task.
            at: the instant of the question.
        """
        return self.registers.obliged(name, at)

    def obligations(self, at: Instant) -> Iterator[str]:
        """Every task that must start now.

        Parameters:
            at: the instant of the question.
        """
        registers = self.registers
        if registers.serving_since() == NEVER:
            return iter(())
        return (name for name, task in registers.tasks.items() if registers.is_owed(task, at))

    def snapshot(self) -> RegisterSnapshot:
        """All registers, for the header of the next segment or for a checkpoint."""
        return self.registers.snapshot()
