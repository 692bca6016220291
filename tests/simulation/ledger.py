"""Conservation: what was owed is what was served, what was withdrawn, and what is still owed (FORMAL D4).

Three things can be owed: due minutes, found by walking through all minutes of a declaration's life; retries, one for
each failure; interrupted runs, one for each that a crash cut short. A start pays all that its task owes. What is still
owed at the end is the store's word, so neither side can forget something without the other one noticing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from tests.simulation.reference import DAY, HOUR, MINUTE, Row, due_minutes, local, minute_of


@dataclass
class Account:
    """The debts and payments of one declaration."""

    name: str
    generation: int
    cron: str
    since: int  # minutes after this one are owed
    before: int | None = None  # what starts of earlier declarations have served, until this one has started
    starts: list[tuple[int, str, int]] = field(default_factory=list)  # when, why, which run
    owed: Counter[str] = field(default_factory=Counter)
    paid: Counter[str] = field(default_factory=Counter)
    open: set[str] = field(default_factory=set)
    has_started: bool = False
    running: bool = False
    cut_short: bool = False
    kept_retry: bool = False  # the last run took its place, and a crash may give it back

    def owe(self, what: str) -> None:
        """Something more is owed."""
        self.owed[what] += 1
        self.open.add(what)

    def withdraw(self, what: str) -> None:
        """It is not owed any more."""
        self.owed[what] -= 1
        self.open.discard(what)

    def mark(self, zone: tzinfo) -> int:
        """No minute up to this one is still owed."""
        return max([self.since, *(minute_of(at, zone) for at, _, _ in self.starts)])

    def served(self, zone: tzinfo) -> int | None:
        """The latest minute that a start of the name has served."""
        return self.mark(zone) if self.has_started else self.before


class Ledger:
    """The accounts of all declarations that a trace tells of."""

    def __init__(self, zone: tzinfo, scheduled: Mapping[int, int]) -> None:
        self.zone = zone
        self.scheduled = scheduled  # by run: what the store's history says it served
        self.in_force: dict[str, Account] = {}
        self.served: dict[str, int] = {}  # by withdrawn declarations
        self.withdrawn: dict[tuple[str, int], Account] = {}  # runs of theirs may still end
        self.restart = True
        self.wrong: list[str] = []

    def take(self, row: Row) -> None:
        """One event of the trace."""
        letters, _, at, *fields = row
        book: dict[str, Callable[..., None]] = {
            "BT": self._boot,
            "CK": self._step,
            "RG": self._register,
            "RS": self._start,
            "RE": self._end,
        }
        if letters == "IE":
            self._take_effect(at, restart=fields[3] == "restart")
        elif letters in book:
            book[letters](at, *fields)

    def _boot(self, at: int, *_: Any) -> None:
        for account in self.in_force.values():
            account.cut_short |= account.running
            account.running = False
        self._step(at)

    def _take_effect(self, at: int, *, restart: bool) -> None:
        """The scheduler after the crash decides what an interrupted run owes: itself, or the retry it was."""
        self.restart = restart
        self.served = {name: served for name, served in self.served.items() if served >= at - DAY}
        for account in self.in_force.values():
            if account.before is not None and account.before < at - DAY:
                account.before = None
            if account.cut_short:
                owed = {"interruptions"} if restart else {"retries"} if account.kept_retry else set[str]()
                for what in account.open - owed:
                    account.withdraw(what)
                for what in owed - account.open:
                    account.owe(what)

    def _step(self, at: int, *_: Any) -> None:
        minute = minute_of(at, self.zone)
        too_far = minute + 3 * HOUR
        self.served = {name: minute if served > too_far else served for name, served in self.served.items()}
        for account in self.in_force.values():
            served = account.served(self.zone)
            if served is not None and served > too_far:  # the clock was corrected: count anew (SPEC 2.5)
                lowered = minute
            elif not account.has_started and account.since + MINUTE > too_far:  # what is lowered: when it became known
                lowered = max(minute - MINUTE, served or 0)
            else:
                continue
            self._walk(account, at)
            account.since, account.starts = lowered, []
            account.before = None if served is None else min(served, lowered)

    def _register(
        self, at: int, name: str, generation: int, change: str, cron: str, _delay: int, _zone: str, known: int, _: str
    ) -> None:
        if change == "preserved":
            return
        since = minute_of(known, self.zone) - MINUTE
        old = self.in_force.pop(name, None)
        if old is not None:
            self._walk(old, at)
            self.withdrawn[name, old.generation] = old
            if (served := old.served(self.zone)) is not None:
                self.served[name] = served
        if change != "orphaned":
            before = self.served.get(name)
            since = since if before is None else max(since, before)
            self.in_force[name] = Account(name, generation, cron, since, before)

    def _start(self, at: int, name: str, generation: int, run: int, cause: str, _slots: int) -> None:
        account = self.in_force.get(name)
        if account is None or account.generation != generation:
            self.wrong.append(f"run {run} of {name!r} belongs to no declaration in force")
            return
        if (cause == "retry" and "retries" not in account.open) or (
            cause == "interrupted" and "interruptions" not in account.open
        ):
            self.wrong.append(f"run {run} of {name!r} says {cause}, and no such thing was owed")
        account.paid.update(account.open)
        account.kept_retry = account.open == {"retries"}
        account.open.clear()
        account.has_started = account.running = True
        account.cut_short = False
        account.starts.append((at, cause, run))

    def _end(self, _at: int, name: str, generation: int, _run: int, ok: bool) -> None:
        account = self.in_force.get(name)
        if account is not None and account.generation == generation:
            account.running = account.kept_retry = False
            if not ok:
                account.owe("retries")

    def _walk(self, account: Account, until: int) -> tuple[int, int]:
        """Minute by minute: to which start each of them belongs. How many were owed, and how many no start served."""
        # What has been served was owed, even if the clock was set back since.
        owed = due_minutes(account.cron, self.zone, account.since, max(until, account.mark(self.zone)))
        unpaid = owed
        for at, cause, run in account.starts:
            minute = minute_of(at, self.zone)
            settled = [each for each in unpaid if each <= minute]
            unpaid = unpaid[len(settled) :]
            if cause == "cron" and not settled:
                self.wrong.append(f"run {run} of {account.name!r} says cron, and no due minute was left to serve")
            elif cause == "cron" and self.scheduled.get(run, settled[-1]) != settled[-1]:
                when = local(self.scheduled[run], self.zone)
                self.wrong.append(f"run {run} of {account.name!r} is on record for {when}, which is not what it served")
        return len(owed), len(unpaid)

    def balance(self, stored: Mapping[str, Mapping[str, Any]], now: int) -> Iterator[str]:
        """The sums that do not add up, given the store's rows at the end."""
        for name, account in self.in_force.items():
            if name not in stored:
                continue  # the fold complains of that
            row = stored[name]
            mark = row["served_through"] * 1_000_000
            owed, unpaid = self._walk(account, now)
            still_owed = len(due_minutes(account.cron, self.zone, mark, now))
            if unpaid != still_owed:
                yield f"{name!r}: {owed} minutes were owed, {owed - unpaid} served, and the store owes {still_owed}"
            at_work, retry = row["run"] is not None, row["pending_retry_until"] is not None
            dead = at_work and not account.running
            still = {
                "retries": retry and (not at_work or (dead and not self.restart)),
                "interruptions": dead and self.restart,
            }
            for kind, is_open in still.items():
                if account.owed[kind] != account.paid[kind] + is_open:
                    paid = account.paid[kind]
                    yield f"{name!r}: {account.owed[kind]} {kind} were owed, {paid} served, {int(is_open)} still owed"
        yield from self.wrong
