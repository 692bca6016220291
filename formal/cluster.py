"""Two hosts, one task, one shared store: starts, leases, fences, take-over and changed declarations, exhaustively.

    python -m formal.cluster            every interleaving; then each guard removed, with the property that notices it
    python -m formal.cluster GUARD ...  the shortest counterexample without these guards

The protocol is that of SPEC 9.4 to 9.10 and 9.16. The store applies one transaction at a time. Messages are apart from
their effect and from their answer: a write, a beat or its answer can be as late as it likes, arrive after its sender
was buried, or be sent again. Hosts act whenever they want, or never: a frozen, partitioned or killed host is one that
does not act. Time passes in ticks, for everybody. Minutes fall due at any moment.

In the first configuration host 1 watches host 0 and may bury it, and host 1 replaces the declaration once; host 0 does
not know the new one. The others extend it, each in one way, and leave out what would make them too large:

    looks         a look at the other host's beat is a message and an answer, each as late as it likes
    leases        the two hosts have leases of different lengths
    burials       each host watches the other one, and a burial is a message: the burier may be buried before it arrives
    replacements  the declaration is replaced twice, with a run of the first one going on

In every state:

    C1  no step of a run after a step of a later run of the task
    C2  an end is recorded for the run that is on record, and for no other
    C3  a start is granted only when something is owed: no minute is served twice
    C4  a callback begins only after its start is durable
    C5  a host that lives, alone from any moment on, can serve all that is owed: nothing is lost
    C6  nothing is written by a buried host
    C7  a host starts only declarations that it knows
    C8  a host's run is never taken from it while it may still take a step
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from formal.state_graph import Broken, Move, StateGraph, Verdict

GUARDS: Final = {
    "gate": "a step is taken only while the lease is trusted",
    "from_send": "trust counts from before the beat was sent, not from its answer",
    "patience": "a host is buried only after its beat stood still for its lease and a grace, by the watcher's own time",
    "same_beat": "a burial is refused if there was a beat since the one that was watched",
    "gone": "a buried host writes nothing",
    "premise": "a start is granted only if its row has not changed since what the host had seen",
    "numbers": "a repeated write is answered as the first time, and not applied again",
    "in_order": "before it decides again, a host reads what came between its own writes",
    "durable": "a callback begins after its start was answered",
    "blocked": "a new declaration waits for the run of an old one",
    "bump": "a replaced declaration counts as a change of its row",
    "free_on_burial": "a burial lets the successor of a run of an old declaration go",
    "interrupted": "a run of a buried host is owed again",
}
"""The guards that the protocol rests on. Without any one of them a property is violated."""

SECOND_LINES: Final = {
    ("premise", "vacant"): "the row itself must be vacant",
    ("numbers", "same_run"): "an end names its run",
}
"""The guards behind which a second line of defence holds, and that line."""

EXTENDED_GUARDS: Final = {
    "from_answer": ("looks", "a beat stands still from the answer that first showed it on, not from the look"),
    "their_lease": ("leases", "the watched host's lease counts, not the watcher's own"),
    "burier_lives": ("burials", "a burial is refused if its burier was buried"),
    "inherited_block": ("replacements", "a declaration is blocked by the run under its name, of any earlier one"),
}
"""Guards that only a larger configuration needs, and which one."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """How much of the world is modelled."""

    dues: int = 2
    """How many minutes fall due."""
    leases: tuple[int, int] = (2, 2)
    grace: int = 1
    """How much longer than the lease a beat must stand still."""
    replacements: int = 1
    other_writes: bool = True
    """Whether each host once writes about another task, and so learns a position without reading."""
    looks: bool = False
    mutual: bool = False
    """Whether each host has a lease that can lapse, and watches the other."""


CONFIGURATIONS: Final = {
    "first": Configuration(),
    "looks": Configuration(dues=1, other_writes=False, looks=True),
    "leases": Configuration(dues=1, leases=(4, 2), other_writes=False),
    "burials": Configuration(dues=1, leases=(1, 1), replacements=0, other_writes=False, mutual=True),
    "replacements": Configuration(leases=(1, 1), replacements=2, other_writes=False),
}

NOBODY: Final = -1


class Row(NamedTuple):
    """The task in the store, or as a host has read it."""

    declaration: int
    mark: int  # the minutes up to this one are served
    run: int  # 0 if none
    by: int
    blocked: int  # the run of an earlier declaration that goes on; 0 if none
    blocked_by: int


class Message(NamedTuple):
    """A write under way to the store."""

    kind: str
    argument: int
    declaration: int


class Beat(NamedTuple):
    """A beat under way: how long ago it was sent, and whether the store has applied it."""

    age: int
    applied: bool


class Look(NamedTuple):
    """A look at the other host's beat: how long ago it was sent, whether it was answered, and by the latest beat."""

    age: int
    answered: bool
    latest: bool


class Burial(NamedTuple):
    """A burial under way: whether the beat that it names is still the latest."""

    latest: bool


class Host(NamedTuple):
    """A host: what it knows, and what of it is under way."""

    trust: int  # for how long the lease is still trusted
    beat: Beat | None
    watching: bool  # the latest beat of the other host is the one that is watched
    age: int  # for how long it has been watched
    look: Look | None
    burial: Burial | None
    stale: bool  # the row has changed since what it has seen
    view: Row
    view_gone: bool
    message: Message | None
    answer: str  # what the store said to this message when it was first applied
    sent: bool
    run: int  # 0 if none, -1 if it has begun before it was granted
    stepped: bool  # the callback has taken its last step
    out: bool  # it knows that it was buried
    wrote_other: bool


class State(NamedTuple):
    """The store, the hosts, and what is under way between them."""

    due: int
    granted: int
    row: Row
    gone: tuple[bool, bool]
    hosts: tuple[Host, Host]
    latest_step: int  # the highest run that has taken a step
    replaced: int


ROW: Final = Row(0, 0, 0, NOBODY, 0, NOBODY)


def check(holds: bool, what: str) -> None:
    """Raise Broken unless a property holds."""
    if not holds:
        raise Broken(what)


def changed(state: State, h: int, **fields: object) -> State:
    """The state in which fields of one host are others."""
    one, other = state.hosts
    host = state.hosts[h]._replace(**fields)  # type: ignore[arg-type]
    return state._replace(hosts=(host, other) if h == 0 else (one, host))


class Cluster:
    """The model: a configuration, without some guards."""

    def __init__(self, configuration: Configuration, without: tuple[str, ...] = ()) -> None:
        self._set = configuration
        self._off = frozenset(without)
        self._leased = (0, 1) if configuration.mutual else (0,)
        self._watchers = (0, 1) if configuration.mutual else (1,)
        self._hosts: dict[Host, Host] = {}
        self._rows: dict[Row, Row] = {}
        idle = [
            Host(lease, None, False, 0, None, None, False, ROW, False, None, "", False, 0, False, False, False)
            for lease in configuration.leases
        ]
        self.start = State(0, 0, ROW, (False, False), (idle[0], idle[1]), 0, 0)

    def compact(self, state: State) -> State:
        """An equal state that shares its rows and hosts with others."""
        one, other = (self._hosts.setdefault(host, host) for host in state.hosts)
        return state._replace(row=self._rows.setdefault(state.row, state.row), hosts=(one, other))

    def moves(self, state: State) -> Iterator[Move[State]]:
        """All that can happen next, with who acts."""
        if state.due < self._set.dues:
            yield Move("time", "a minute falls due", state._replace(due=state.due + 1))
        yield Move("time", "a tick", self._tick(state))
        for h in (0, 1):
            yield from self._at_the_store(state, h)
            if state.hosts[h].out:
                continue
            yield from self._beating(state, h)
            if h in self._watchers:
                yield from self._watching(state, h)
            yield from self._deciding(state, h)
            yield from self._running(state, h)

    # --- time --------------------------------------------------------------------------------------------------------

    def _patience(self, h: int) -> int:
        """How long a host watches the other one's beat stand still."""
        lease = self._set.leases[h if "their_lease" in self._off else 1 - h]
        return lease - 1 if "patience" in self._off else lease + self._set.grace

    def _tick(self, state: State) -> State:
        one, other = (self._one_tick_later(h, host) for h, host in enumerate(state.hosts))
        return state._replace(hosts=(one, other))

    def _one_tick_later(self, h: int, host: Host) -> Host:
        lease, watched_for_max = self._set.leases[h], self._set.leases[1 - h] + self._set.grace
        beat, look = host.beat, host.look
        return host._replace(
            trust=max(0, host.trust - 1) if h in self._leased else host.trust,
            beat=beat and beat._replace(age=min(lease, beat.age + 1)),
            age=min(watched_for_max, host.age + 1) if host.watching else 0,
            look=look and look._replace(age=min(watched_for_max, look.age + 1)),
        )

    # --- what was sent, whatever became of its sender ----------------------------------------------------------------

    def _at_the_store(self, state: State, h: int) -> Iterator[Move[State]]:
        host, me = state.hosts[h], f"host {h}"
        if host.beat is not None and not host.beat.applied:
            if state.gone[h]:
                yield Move("store", f"the beat of {me} is refused", changed(state, h, beat=None, out=True, run=0))
            else:
                after = changed(state, h, beat=host.beat._replace(applied=True))
                yield Move("store", f"the beat of {me} is applied", self._another_beat(after, of=h))
        if host.sent:
            assert host.message is not None
            after, answer = self._write(state, h, host.message)
            what = f"the {host.message.kind} of {me} is {answer}"
            yield Move("store", what, changed(after, h, answer=answer, sent=False))
        if host.look is not None and not host.look.answered:
            look = host.look._replace(answered=True, latest=True)
            yield Move("store", f"the look of {me} is answered", changed(state, h, look=look))
        if host.burial is not None:
            after = self._bury(changed(state, h, burial=None), h, latest=host.burial.latest)
            yield Move("store", f"the burial by {me} arrives", after)

    def _another_beat(self, state: State, *, of: int) -> State:
        """The watched beat is not the latest one any more."""
        h = 1 - of
        if h not in self._watchers:
            return state
        watcher = state.hosts[h]
        look, burial = watcher.look, watcher.burial
        return changed(
            state,
            h,
            watching=False,
            age=watcher.age if "same_beat" in self._off else 0,
            look=look and look._replace(latest=False),
            burial=burial and Burial(latest=False),
        )

    def _write(self, state: State, h: int, message: Message) -> tuple[State, str]:
        """The store carries out a write: one transaction, alone."""
        host, row, off = state.hosts[h], state.row, self._off
        if state.gone[h] and "gone" not in off:
            return state, "gone"
        if host.answer and "numbers" not in off:
            return state, host.answer
        check(not state.gone[h], "C6 a buried host writes")
        if message.kind == "start":
            return self._start(state, h, message)
        if message.kind == "end":
            if row.run == message.argument or (row.run and "same_run" in off):
                check(row.run == message.argument, "C2 an end over another run")
                return self._with_row(state, row._replace(run=0, by=NOBODY), seen_by=h), "done"
            if row.blocked == message.argument:
                return self._with_row(state, row._replace(blocked=0, blocked_by=NOBODY)), "done"
        return state, "done"

    def _start(self, state: State, h: int, message: Message) -> tuple[State, str]:
        row, off = state.row, self._off
        free = not row.blocked or "blocked" in off
        vacant = not row.run or state.gone[row.by] or "vacant" in off
        if not (free and vacant and ("premise" in off or not state.hosts[h].stale)):
            return state, "refused"
        check(row.declaration == message.declaration, "C7 a host starts a declaration that it does not know")
        # What is owed is owed, whether or not the hosts know that an interrupted run is.
        is_owed = state.gone[row.by] if row.run else row.mark < state.due
        check(is_owed, "C3 a start although nothing is owed")
        run = state.granted + 1
        row = row._replace(mark=max(row.mark, message.argument), run=run, by=h)
        return self._with_row(state._replace(granted=run), row, seen_by=h), f"granted {run}"

    def _with_row(self, state: State, row: Row, seen_by: int = NOBODY) -> State:
        """The row is another one: a host that has not made it so has not seen it."""
        state = state._replace(row=row)
        for h in (0, 1):
            if h != seen_by and not state.hosts[h].stale:
                state = changed(state, h, stale=True)
        return state

    # --- beats and burials -------------------------------------------------------------------------------------------

    def _beating(self, state: State, h: int) -> Iterator[Move[State]]:
        host, me, lease = state.hosts[h], f"host {h}", self._set.leases[h]
        if h in self._leased and host.beat is None and host.trust < lease:
            yield Move(me, f"{me} sends a beat", changed(state, h, beat=Beat(0, applied=False)))
        if host.beat is not None and host.beat.applied:
            trust = lease - (0 if "from_send" in self._off else host.beat.age)
            after = changed(state, h, beat=None, trust=max(host.trust, trust))
            yield Move(me, f"{me} trusts its lease for {trust}", after)

    def _watching(self, state: State, h: int) -> Iterator[Move[State]]:
        host, other, me = state.hosts[h], 1 - h, f"host {h}"
        if state.gone[other]:
            return
        begun = host.age if "same_beat" in self._off else 0
        if self._set.looks:
            yield from self._looking(state, h)
        elif not host.watching:
            yield Move(me, f"{me} sees a new beat of host {other}", changed(state, h, watching=True, age=begun))
        if (host.watching or "same_beat" in self._off) and host.age >= self._patience(h) and host.burial is None:
            if self._set.mutual:
                after = changed(state, h, burial=Burial(latest=host.watching))
                yield Move(me, f"{me} sends a burial of host {other}", after)
            else:
                yield Move(me, f"{me} buries host {other}", self._bury(state, h, latest=host.watching))

    def _looking(self, state: State, h: int) -> Iterator[Move[State]]:
        host, other, me = state.hosts[h], 1 - h, f"host {h}"
        if host.look is None and not host.watching:
            yield Move(me, f"{me} looks at host {other}", changed(state, h, look=Look(0, answered=False, latest=False)))
        elif host.look is not None and host.look.answered:
            age = host.look.age if "from_answer" in self._off else 0
            watching = {"watching": True, "age": age} if host.look.latest else {}
            yield Move(me, f"{me} is shown a beat of host {other}", changed(state, h, look=None, **watching))

    def _bury(self, state: State, h: int, *, latest: bool) -> State:
        """The store buries the other host, if the beat that was watched is still its latest."""
        other = 1 - h
        if state.gone[h] and "burier_lives" not in self._off:
            return state
        if state.gone[other] or not (latest or "same_beat" in self._off):
            return state
        check(not state.gone[h], "C6 a buried host writes")
        buried = state.hosts[other]
        check(buried.trust == 0 or not buried.run, "C8 a run is taken from a host that may still take a step")
        after = state._replace(gone=(True, state.gone[1]) if other == 0 else (state.gone[0], True))
        after = changed(after, h, stale=True, watching=False, age=0, look=None)  # there is news
        row = state.row
        if row.blocked and row.blocked_by == other and "free_on_burial" not in self._off:
            after = self._with_row(after, row._replace(blocked=0, blocked_by=NOBODY))
        return after

    # --- reading, deciding, writing ----------------------------------------------------------------------------------

    def _knows(self, h: int, declaration: int) -> bool:
        return h == 1 or declaration == 0

    def _seems_owed(self, host: Host, due: int) -> bool:
        """Whether a host thinks that it must start the task."""
        if host.view.blocked and "blocked" not in self._off:
            return False
        if host.view.run:
            return host.view_gone and "interrupted" not in self._off
        return host.view.mark < due

    def _deciding(self, state: State, h: int) -> Iterator[Move[State]]:
        host, me = state.hosts[h], f"host {h}"
        if host.message is not None:
            if not host.sent:
                yield from self._hearing(state, h, host.message)
            return
        if host.stale:
            after = changed(state, h, stale=False, view=state.row, view_gone=state.gone[1 - h])
            yield Move(me, f"{me} reads the log", after)
        if not host.run and self._knows(h, host.view.declaration) and self._seems_owed(host, state.due):
            after = self._sending(state, h, Message("start", state.due, host.view.declaration))
            if "durable" in self._off:
                after = changed(after, h, run=-1, stepped=False)
            yield Move(me, f"{me} asks for a start", after)
        if self._set.other_writes and not host.wrote_other:
            after = changed(self._sending(state, h, Message("other", 0, 0)), h, wrote_other=True)
            yield Move(me, f"{me} writes about another task", after)
        if h == 1 and state.replaced < self._set.replacements and not state.gone[h]:
            yield Move("operator", f"{me} replaces the declaration", self._replace(state))
        if host.run > 0 and host.stepped:
            after = self._sending(state, h, Message("end", host.run, 0))
            yield Move(me, f"{me} records the end of run {host.run}", after)

    def _sending(self, state: State, h: int, message: Message) -> State:
        return changed(state, h, message=message, sent=True, answer="")

    def _replace(self, state: State) -> State:
        """The declaration is another one; a run of an earlier one that goes on blocks it."""
        old, number = state.row, state.replaced + 1
        blocked = (old.run, old.by) if old.run and not state.gone[old.by] else (0, NOBODY)
        if not blocked[0] and "inherited_block" not in self._off:
            blocked = (old.blocked, old.blocked_by)
        row = Row(number, old.mark, 0, NOBODY, *blocked)
        after = state._replace(row=row, replaced=number)
        return after if "bump" in self._off else self._with_row(after, row)

    def _hearing(self, state: State, h: int, message: Message) -> Iterator[Move[State]]:
        """A write was answered, or the answer was lost."""
        host, me = state.hosts[h], f"host {h}"
        if host.answer != "gone" and message.kind != "other":
            yield Move(me, f"{me} hears nothing, and sends the {message.kind} again", changed(state, h, sent=True))
        after = changed(state, h, message=None, answer="", sent=False)
        if host.answer == "gone":
            yield Move(me, f"{me} hears that it is gone", changed(after, h, out=True, run=0))
            return
        if host.answer.startswith("granted"):
            run = int(host.answer.split()[1])
            view = host.view._replace(run=run, by=h, mark=max(host.view.mark, message.argument))
            after = changed(after, h, run=run, stepped=False, view=view)
        elif message.kind == "start":
            after = changed(after, h, run=0)
        elif message.kind == "end":
            view = host.view._replace(run=0, by=NOBODY) if host.view.run == message.argument else host.view
            after = changed(after, h, run=0, stepped=False, view=view)
        if "in_order" in self._off and host.answer != "refused":
            after = changed(after, h, stale=False)
        yield Move(me, f"{me} hears: {host.answer}", after)

    # --- the callback ------------------------------------------------------------------------------------------------

    def _running(self, state: State, h: int) -> Iterator[Move[State]]:
        host, me = state.hosts[h], f"host {h}"
        if not host.run or host.stepped or not (host.trust > 0 or "gate" in self._off):
            return
        check(host.run > 0, "C4 a callback begins before its start is durable")
        check(state.latest_step <= host.run, "C1 a step of a run after a step of a later one")
        after = state._replace(latest_step=host.run)
        yield Move(me, f"run {host.run} on {me} takes its last step", changed(after, h, stepped=True))
        if state.latest_step < host.run:
            yield Move(me, f"run {host.run} on {me} takes a step", after)


def explore(configuration: Configuration, without: tuple[str, ...] = ()) -> Verdict:
    """Every state, and C5 on the whole graph."""
    graph = StateGraph(Cluster(configuration, without))
    if graph.broken is not None:
        return graph.verdict()

    def is_served(state: State) -> bool:
        return state.row.mark >= state.due == configuration.dues and not state.row.run

    for survivor in (0, 1) if configuration.mutual else (1,):
        # Declaring the task anew is no way to serve it: that makes another debt of it.
        reached = graph.reaching(is_served, without={f"host {1 - survivor}", "operator"})
        for number, state in enumerate(graph):
            if not reached[number] and not state.gone[survivor]:
                return graph.verdict(number, f"C5 host {survivor} alone can never serve what is owed")
    return graph.verdict()


def main(guards: list[str]) -> int:
    """Print what was asked for; 0 if all is as it should be."""
    known = {*GUARDS, *EXTENDED_GUARDS, *(second for _, second in SECOND_LINES)}
    if unknown := set(guards) - known:
        print(f"no such guard: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    if guards:
        names = [EXTENDED_GUARDS[guard][0] for guard in guards if guard in EXTENDED_GUARDS]
        found = explore(CONFIGURATIONS[names[0] if names else "first"], tuple(guards))
        print(found, *found.way, sep="\n")
        return 0
    as_it_should_be = True
    for name, configuration in CONFIGURATIONS.items():
        found = explore(configuration)
        as_it_should_be &= found.holds
        print(f"{name:34} {found}", flush=True)
    removals = [("first", (guard,)) for guard in GUARDS] + [("first", pair) for pair in SECOND_LINES]
    removals += [(name, (guard,)) for guard, (name, _) in EXTENDED_GUARDS.items()]
    for name, removed in removals:
        found = explore(CONFIGURATIONS[name], removed)
        as_it_should_be &= not found.holds
        print(f"without {' and '.join(removed):26} {found}", flush=True)
    return 0 if as_it_should_be else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
