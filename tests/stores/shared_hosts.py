"""Hosts of a shared store, as tests drive them: each call is one of the store's functions, and time is the test's."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from duly.core.moments import Delay, Instant, Minute
from duly.core.news import (
    BEGINNING,
    NOT_MOVED,
    RUNS_OF_A_HOST,
    Changes,
    Ended,
    FailedRun,
    LogEntry,
    Moved,
    Position,
    Started,
    Statement,
    spans_of,
)
from duly.core.task import Cause, Obligation
from duly.stores.shared import (
    Act,
    Arrival,
    BeatAnswer,
    EditionAnswer,
    EditionRequest,
    EditionVerdict,
    HostIdentity,
    InForce,
    SharedFunctions,
    WriteAnswer,
    arrivals_digest,
    set_digest,
)

T = TypeVar("T")

NOON = Instant(1_704_110_400_000_000)  # 2024-01-01T12:00:00Z
MINUTE = 60_000_000
HOUR = 60 * MINUTE
LEASE = 30_000_000

TaskSet = Mapping[str, tuple[str, int]]
"""Names with their cron text and delay in milliseconds."""


class SharedStore(SharedFunctions, Protocol):
    """A store under test: its functions, and what a test may look at and turn."""

    now: Instant

    def tables(self) -> dict[str, list[dict[str, Any]]]: ...

    def prune(self, entries_kept: int, kept_for: int, rows_max: int, *, sweeps: bool = True) -> int: ...

    def rotate_trace(self, events_min: int) -> None: ...

    def trace_lines(self) -> Iterator[bytes]: ...


def digest_of(tasks: TaskSet, interrupted: str = "restart") -> str:
    return set_digest(((name, cron, Delay(delay)) for name, (cron, delay) in tasks.items()), interrupted=interrupted)


@dataclass
class TestHost:
    """One host, which knows what it has been told."""

    __test__ = False  # not a test class, pytest

    store: SharedStore
    identifier: str
    key: int | None = None
    number: int = 0
    seen: Position = BEGINNING
    runs: int = 0
    tasks: TaskSet = field(default_factory=dict)
    interrupted: str = "restart"
    calls: list[Callable[[], Any]] = field(default_factory=list)
    """The latest request, to be made again."""

    @property
    def me(self) -> HostIdentity:
        assert self.key is not None
        return HostIdentity(self.key, self.identifier)

    # --- declaring ---------------------------------------------------------------------------------------------------

    def join(self, tasks: TaskSet, **changes: Any) -> EditionAnswer:
        """Load, compare, send what is new, and declare; as often as the store says `again`."""
        for _ in range(3):
            answer = self.declare(tasks, **changes)
            if answer.verdict is not EditionVerdict.AGAIN:
                return answer
        raise AssertionError("again, three times")

    def declare(self, tasks: TaskSet, act: Act = Act.JOIN, **changes: Any) -> EditionAnswer:
        request, arrivals = self.request(tasks, act, **changes)
        self.store.arrive(self.identifier, arrivals)
        return self.send(request)

    def request(self, tasks: TaskSet, act: Act = Act.JOIN, **changes: Any) -> tuple[EditionRequest, list[Arrival]]:
        """The requests of this host, and the declarations that are new."""
        loaded = self.store.load()
        stored = {
            name: (generation, cron, delay)
            for block in loaded.records
            for generation, name, cron, delay, *_ in block.rows()
        }
        removed = [generation for name, (generation, cron, delay) in stored.items() if tasks.get(name) != (cron, delay)]
        arrivals = [
            Arrival(name, cron, Delay(delay))
            for name, (cron, delay) in tasks.items()
            if stored.get(name, (0, "", 0))[1:] != (cron, delay)
        ]
        if act is not Act.REINSTATE:
            self.tasks = tasks
        self.number += 1
        if self.key is None:
            self.seen = loaded.position
        asked: dict[str, Any] = {
            "identifier": self.identifier,
            "key": self.key,
            "number": self.number,
            "seen": self.seen,
            "act": act,
            "digest": digest_of(tasks, self.interrupted),
            "compared_with": loaded.in_force,
            "shares_names": bool(stored.keys() & tasks.keys()),
            "removed": tuple(sorted(removed)),
            "arrivals": len(arrivals),
            "arrivals_digest": arrivals_digest(arrivals),
            "zone": "UTC" if loaded.zone is None else loaded.zone,
            "zone_seen": loaded.zone,
            "lease": LEASE,
            "label": f"host {self.identifier[:2]}",
            "said": Statement(self.number, len(tasks), "", self.interrupted, None, 4, 0),
            "moved": Moved(spans_of(range(loaded.in_force.generation + 1, loaded.in_force.generation + 2)))
            if arrivals
            else NOT_MOVED,
        }
        return EditionRequest(**{**asked, **changes}), arrivals

    def send(self, request: EditionRequest) -> EditionAnswer:
        answer = self._ask(lambda: self.store.replace(request))
        if answer.key is not None:
            self.key = answer.key
        return answer

    # --- working -----------------------------------------------------------------------------------------------------

    def read(self) -> tuple[LogEntry, ...]:
        """Read the news, and know the log up to there; a host that comes too late for them loads anew."""
        news = self.store.news(self.seen)
        if news.behind:
            self.seen = self.store.load().position
        if news.entries:
            self.seen = news.entries[-1].position
        return news.entries

    def write(self, changes: Changes) -> WriteAnswer:
        self.number += 1
        number, seen = self.number, self.seen
        return self._ask(lambda: self.store.write(self.me, number, seen, changes))

    def start(self, *generations: int, read: bool = True, **changes: Any) -> WriteAnswer:
        """Start tasks, by what the log says now, or by what this host had read before."""
        if read:
            self.read()
        block = self.starts(*generations, **changes)
        return self.write(Changes(starts=(block,)))

    def starts(self, *generations: int, **changes: Any) -> Started:
        """Starts by this host at this moment."""
        now = self.store.now
        first = self.key_or_zero * RUNS_OF_A_HOST + self.runs + 1
        self.runs += len(generations)
        asked: dict[str, Any] = {
            "generations": generations,
            "first_run": first,
            "cause": Cause.CRON,
            "at": now,
            "scheduled": Instant(now // MINUTE * MINUTE),
            "served_through": Minute(now // MINUTE * 60),
            "pending_retry_until": None,
            "interruptions": 0,
            "obligation": Obligation(now, Instant(now // MINUTE * MINUTE), 1),
        }
        return Started(**{**asked, **changes})

    @property
    def key_or_zero(self) -> int:
        return self.key or 0

    def end(self, generation: int, run: int, error: str | None = None, **changes: Any) -> WriteAnswer:
        return self.write(Changes(ends=(self.ended((generation,), (run,), error, **changes),)))

    def ended(
        self, generations: tuple[int, ...], runs: tuple[int, ...], error: str | None = None, **changes: Any
    ) -> Ended:
        now = self.store.now
        failure = None if error is None else FailedRun(error, "traceback", Instant(now + MINUTE), 1)
        asked: dict[str, Any] = {
            "generations": generations,
            "runs": runs,
            "at": now,
            "cause": Cause.CRON,
            "scheduled": now,
            "started_at": now,
            "called_at": now,
            "obligation": Obligation(now, now, 1),
            "failure": failure,
        }
        return Ended(**{**asked, **changes})

    # --- living ------------------------------------------------------------------------------------------------------

    def beat(self, held: int = 0, fault: str | None = None) -> BeatAnswer:
        return self.store.beat(self.me, self.seen, held, fault)

    def bury(self, other: "TestHost", beat: int | None = None) -> int | None:
        seen = beat if beat is not None else self.row(other)["beat"]
        return self.store.bury(self.me, other.me.key, seen)

    def leave(self) -> int | None:
        return self.store.leave(self.me, [("SE", self.store.now, 1)])

    def again(self) -> Any:
        """Ask what was asked last, as a host does that was not answered."""
        return self.calls[-1]()

    def row(self, other: "TestHost | None" = None) -> dict[str, Any]:
        key = (other or self).key
        return next(each for each in self.store.tables()["hosts"] if each["key"] == key)

    def _ask(self, call: Callable[[], T]) -> T:
        self.calls[:] = [call]
        return call()


def generations(store: SharedStore) -> dict[str, int]:
    """The generation in force of each name."""
    return {each["name"]: each["generation"] for each in store.tables()["tasks"] if each["retired_at"] is None}


def state(store: SharedStore, name: str) -> dict[str, Any]:
    """The state of the declaration in force of a name."""
    generation = generations(store)[name]
    return next(each for each in store.tables()["states"] if each["generation"] == generation)


def in_force(store: SharedStore) -> InForce:
    return store.load().in_force
