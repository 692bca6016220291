"""The fast monitor: one pass over a trace, constant memory per task, four-valued verdicts.

`step` takes one event and answers what it violates. Checks read the registers as they were before the event, which is
what Y means; then the event takes effect, also when it was wrong, so one mistake is reported once. `feed` takes rows as
a reader delivers them, and is what long files go through.

The same predicate that judges starts is there for others: `obliged` says whether a task must start now. A scheduler
that starts exactly those is correct; `testing` asserts it in every step.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from duly.core.moments import Instant
from duly.formal.calendar import NEVER, zone_of
from duly.formal.fast_path import feed
from duly.formal.machine import Machine
from duly.formal.properties import PROPERTIES, PropertyKind
from duly.formal.registers import RegisterSnapshot, row_of, tasks_of
from duly.formal.trace import Event, digest_of_one
from duly.formal.verdicts import Open, Verdict, Violation, verdict

_KEPT: Final = (
    "seq", "clock", "latest", "epoch", "active", "quiet", "crashed", "active_since", "compute_since",
)  # fmt: skip
_KEPT_PRIVATE: Final = ("booted", "boot", "boot_at", "restart", "free_total_since", "free_threads_since")


class Monitor(Machine):
    """The registers of a scheduler and its tasks, and the checks that read them."""

    def __init__(self, snapshot: RegisterSnapshot | None = None, *, bounded: bool = True) -> None:
        super().__init__(bounded=bounded)
        if snapshot is not None:
            self._restore(snapshot)

    # --- in and out --------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> Sequence[Violation]:
        """Take one event; returns what it violates, usually nothing."""
        found: list[Violation] = []
        self._found = found
        letters = type(event).__name__
        self._on[letters](letters, *event)
        return found

    def feed(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take events as rows: letters, then fields, as they stand in a file."""
        self._found = []
        feed(self, rows)

    def verdicts(self, *, sealed: bool = False) -> dict[str, Verdict]:
        """The verdict on every property so far; `sealed` if the trace has ended cleanly."""
        open_: dict[str, list[Open]] = {"L1": [], "L2": [], "L3": []}
        for task in self.tasks.values():
            if self.obliged(task.name, self.clock):
                since, _ = self.owed_since(task)
                open_["L1"].append(Open(task.name, max(since, self.active_since, task.ended)))
        open_["L1"].sort(key=lambda each: each.since)
        open_["L2"] = [Open(f"stop {call}", at) for call, (_, at) in self.stops.items()]
        open_["L3"] = [Open(f"initialize {call}", at) for call, (_, at) in self.inits.items()]
        return {
            each.id: verdict(
                each.id, self.counts[each.id], self.first.get(each.id), open_.get(each.id, []), sealed=sealed
            )
            for each in PROPERTIES
            if self._promptness is not None or each.kind is not PropertyKind.BOUNDED
        }

    def obliged(self, name: str, at: Instant) -> bool:
        """Obl: whether a task must start now."""
        task = self.tasks.get(name)
        if task is None or not task.declared or not self.active:
            return False
        if task.run is not None and task.epoch == self.epoch:
            return False
        return self.owed_since(task)[0] <= at

    def obligations(self, at: Instant) -> Iterator[str]:
        """Every task that must start now."""
        return (name for name in self.tasks if self.obliged(name, at))

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> RegisterSnapshot:
        """All registers, for the header of the next segment or for a checkpoint."""
        scheduler: dict[str, Any] = {name: getattr(self, name) for name in _KEPT}
        scheduler.update((name, getattr(self, f"_{name}")) for name in _KEPT_PRIVATE)
        scheduler["stepped_to"] = None if self._stepped_to == NEVER else self._stepped_to
        scheduler["limit"] = None if self._limit == NEVER else self._limit
        scheduler["pool"] = None if self._pool == NEVER else self._pool
        scheduler["zone"] = self._zone.name
        for name, calls in (("stops", self.stops), ("inits", self.inits)):
            scheduler[name] = [[call, seq, at] for call, (seq, at) in sorted(calls.items())]
        scheduler["overlapped"] = [list(each) for each in sorted(self.overlapped)]
        return RegisterSnapshot(scheduler, tuple(row_of(task) for task in self.tasks.values()))

    def _restore(self, snapshot: RegisterSnapshot) -> None:
        kept = snapshot.scheduler
        try:
            for name in _KEPT:
                setattr(self, name, kept[name])
            for name in _KEPT_PRIVATE:
                setattr(self, f"_{name}", kept[name])
            self._stepped_to = NEVER if kept["stepped_to"] is None else kept["stepped_to"]
            self._limit = NEVER if kept["limit"] is None else kept["limit"]
            self._pool = NEVER if kept["pool"] is None else kept["pool"]
            self.stops = {call: (seq, at) for call, seq, at in kept["stops"]}
            self.inits = {call: (seq, at) for call, seq, at in kept["inits"]}
            self.overlapped = {(name, run, generation) for name, run, generation in kept["overlapped"]}
            self._zone = zone_of(kept["zone"])
        except (KeyError, TypeError) as fault:
            raise ValueError(f"the register snapshot cannot be read: {fault!r}") from fault
        self.tasks = tasks_of(snapshot.tasks, self._schedule)
        for task in self.tasks.values():
            if task.declared and task.schedule is not None:
                self.declared += 1
                self._digest ^= digest_of_one(task.name, task.generation, task.schedule.text, task.delay_ms)
            if task.run is not None and task.epoch == self.epoch:
                self.running += 1
                self._threads_running += task.run_on_thread
        self._look_anew()
