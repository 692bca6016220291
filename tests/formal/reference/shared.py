"""The reference for traces of shared stores: positions with the letters of each host, and formulas about all hosts.

`SHARED_REGISTERS` and `SHARED_FORMULAS` of `duly.formal.properties` are read as texts. `∃h φ` is written out as a
disjunction over the hosts of the trace, and a register of h as one register for each of them. Nothing here is shared
with the monitor but the calendar.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile

from duly.core.moments import Instant
from duly.formal.properties import PROPERTIES, REGISTERS, SHARED_FORMULAS, SHARED_REGISTERS, Value
from duly.formal.trace import BY, CK, IE, IF, IS, RE, RG, RN, RS, SE, SF, SS, WAIT, Event, HostEvent
from tests.formal.reference.formulas import WEAK, Evaluation, Formula, judge, read
from tests.formal.reference.unfold import Position, Unfolding, run_letters

Hosts = tuple[int, ...]


def hosts_of(events: Sequence[HostEvent]) -> Hosts:
    """The hosts that a trace names."""
    named = {each.event.who for each in events if isinstance(each.event, BY | RN)}
    return tuple(sorted(named | {each.host for each in events}))


# --- formulas ---------------------------------------------------------------------------------------------------------


def expanded(text: str, hosts: Hosts) -> str:
    """A formula in which `∃h` is written out."""
    while (begin := text.find("∃h")) >= 0:
        rest = text[begin + 2 :].lstrip()
        scope = _group(rest) if rest.startswith("(") else "".join(takewhile(_is_of_a_name, rest))
        written_out = " ∨ ".join(f"({of_host(scope, host)})" for host in hosts) or "¬true"
        text = f"{text[:begin]}({written_out}){rest[len(scope) :]}"
    return text


def _group(text: str) -> str:
    depth = 0
    for end, character in enumerate(text, 1):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[:end]
    raise ValueError(f"a bracket is not closed in {text!r}")


def _is_of_a_name(character: str) -> bool:
    return character.isalnum() or character == "_"


def of_host(text: str, host: int) -> str:
    """A formula about h, for one host."""
    return re.sub(r"_h\b", f"_h{host}", text)


@lru_cache(maxsize=100)
def definitions(hosts: Hosts) -> dict[str, str]:
    """All registers, for these hosts."""
    found = {each.name: each.formula for each in REGISTERS}
    for each in SHARED_REGISTERS:
        if each.name.endswith("_h"):
            found.update((of_host(each.name, host), of_host(each.formula, host)) for host in hosts)
        else:
            found[each.name] = expanded(each.formula, hosts)
    return found


@lru_cache(maxsize=10_000)
def read_for(text: str, hosts: Hosts) -> Formula:
    """The formula of a text, in a trace with these hosts."""
    return read(expanded(text, hosts), definitions(hosts))


def shared_formula(property_id: str) -> str:
    """A property, as it reads in the trace of a shared store."""
    return SHARED_FORMULAS.get(property_id) or next(each.formula for each in PROPERTIES if each.id == property_id)


def shared_instances(formula: str, events: Sequence[HostEvent], name: str) -> Iterator[str]:
    """A formula for one task, for each of the hosts, runs and calls that it speaks of."""
    if not re.search(r"_h[rc]?\b", formula):
        yield formula
        return
    runs = {run_letters(each.event) for each in events if isinstance(each.event, RS | RE) and each.event.task == name}
    for host in hosts_of(events):
        calls = {each.event.call for each in events if each.host == host and isinstance(each.event, _CALLS)}
        texts = [formula]
        if "_hr" in formula:
            texts = [re.sub(r"_hr\b", f"_h{host}r{run}", formula) for run in sorted(runs)]
        elif "_hc" in formula:
            texts = [re.sub(r"_hc\b", f"_h{host}c{call}", formula) for call in sorted(calls) or [0]]
        yield from (of_host(text, host) for text in texts)


_CALLS = IS | IE | IF | SS | SE | SF


def violated_in_shared(events: Sequence[HostEvent]) -> dict[str, int]:
    """The properties that the formulas call violated, and the seq at which each becomes so."""
    found: dict[str, int] = {}
    names = sorted({each.event.task for each in events if isinstance(each.event, RG | RS | RE)})
    hosts = hosts_of(events)
    for name in names or [""]:
        trace = unfold_shared(events, name)
        whole = Evaluation(trace)
        for each in PROPERTIES:
            for text in shared_instances(shared_formula(each.id), events, name) if each.is_formula else ():
                formula = read_for(text, hosts)
                if whole.at(formula, WEAK)[0]:
                    continue
                low, high = 0, len(trace)
                while low < high:  # a prefix that violates stays one, whatever follows: bisect
                    middle = (low + high) // 2
                    bad = judge(formula, trace[:middle]) is Value.VIOLATED
                    low, high = (low, middle) if bad else (middle + 1, high)
                seq = trace[low - 1].seq
                found[each.id] = min(seq, found.get(each.id, seq))
    return found


# --- positions --------------------------------------------------------------------------------------------------------


def unfold_shared(events: Sequence[HostEvent], name: str) -> list[Position]:
    """The positions of a trace as one task sees them."""
    positions: list[Position] = []
    waits = any(isinstance(each.event, IE) and each.event.interrupted == WAIT for each in events)
    for seq, letters in _SharedUnfolding(name, waits).positions_of_hosts(events):
        position = Position({*letters, "Wait"} if waits else letters)
        position.seq = seq
        positions.append(position)
    return positions


class _SharedUnfolding(Unfolding):
    """The pulses of one task, the calls of each host, and the editions."""

    def __init__(self, name: str, waits: bool) -> None:
        super().__init__(name, waits)
        self.run_host: int | None = None
        self.going_on: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        self.stops: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.inits: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.editions: dict[int, int | None] = {}
        self.in_force: int | None = None

    def positions_of_hosts(self, events: Sequence[HostEvent]) -> Iterator[tuple[int, set[str]]]:
        for host, event in events:
            mine = isinstance(event, RG | RS | RE) and event.task == self.name
            if mine:
                yield from ((event.seq, {pulse, *self.declaring()}) for pulse in self.pulses(event.at))
            letters = self.letters_of_host(host, event, mine=mine)
            if isinstance(event, CK):
                self.latest = max(self.latest, self.clock)
                if event.at < self.latest:
                    letters.add("Back")
                    self.set_back(event.at)
                self.clock = event.at
            self.clock = max(self.clock, event.at)
            yield event.seq, letters | self.declaring()
        if events:
            yield from ((events[-1].seq, {pulse, *self.declaring()}) for pulse in self.pulses(self.clock))

    def declaring(self) -> set[str]:
        return {f"InForce_h{host}" for host, edition in self.editions.items() if edition == self.in_force}

    def letters_of_host(self, host: int, event: Event, *, mine: bool) -> set[str]:
        kind = type(event).__name__
        letters = {kind, f"{kind}_h{host}", f"Of_h{host}"}
        if isinstance(event, RG | RS | RE):
            letters = {f"Of_h{host}"} | self.counted_on(host, event)
            if mine:
                if isinstance(event, RS):
                    self.run_host = host
                letters |= self.letters_of_mine(event)
                if not isinstance(event, RG):
                    letters |= {f"{kind}_h{host}", f"{kind}_h{host}r{run_letters(event)}"}
        elif isinstance(event, SF) and event.call not in self.stops[host]:
            return {f"Of_h{host}"}  # refused: it never took effect
        elif isinstance(event, _CALLS):
            letters |= self.letters_of_call(host, event)
        elif isinstance(event, BY):
            letters.add(f"Crash_h{event.who}")
            self.bury(event.who, event.at)
        elif isinstance(event, RN):
            letters.add(f"Alike_h{event.who}")
            self.editions[event.who] = self.in_force
        return letters

    def letters_of_call(self, host: int, event: IS | IE | IF | SS | SE | SF) -> set[str]:
        letters = {f"{type(event).__name__}_h{host}c{event.call}"}
        stops = self.stops[host]
        if isinstance(event, SS):
            stops[event.call] = event.seq
        elif isinstance(event, IS):
            self.inits[host][event.call] = event.seq
        elif isinstance(event, IE):
            self.forget(event.at)
            self.editions[host] = event.edition
            if not event.outdated:
                self.in_force = event.edition
            if any(seq < self.inits[host].get(event.call, 0) for seq in stops.values()):
                letters.add("Overtaking")
        elif isinstance(event, SE | SF):
            stops.pop(event.call, None)
            if not stops:
                letters.add(f"Settled_h{host}")
                if isinstance(event, SE):
                    letters.add(f"Left_h{host}")
        return letters

    def counted_on(self, host: int, event: RG | RS | RE) -> set[str]:
        if isinstance(event, RG):
            return set()
        run = (event.task, run_letters(event))
        if isinstance(event, RE):
            for going_on in self.going_on.values():
                going_on.discard(run)
            return set()
        before = len(self.going_on[host])
        self.going_on[host].add(run)
        return {"Miscounted"} if event.slots != before and event.task == self.name else set()

    def bury(self, who: int, at: Instant) -> None:
        self.stops[who].clear()
        self.going_on[who].clear()
        if self.running and self.run_host == who:
            self.crash()
            self.boot(at)
