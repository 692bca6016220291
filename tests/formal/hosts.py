"""Traces of a shared store told in letters, as `story` tells those of an embedded one.

`hosts_story("1:Join 2:Join Due 2:RS 2:REs")` is the trace of one task x, hourly, on two hosts. A word with a number is
about that host:

    Join            BT, IS and IE; the first host that declares x registers it. JoinOld joins as outdated
    Override        an initialize that declares x anew, as a new edition
    BT IS IE SS SE SF CK WK LR  one event; returns close the oldest open call of the host
    RS REs REf      starts and ends of x; `1:RS:y` and so on of another task; `1:REs@2:x` ends the run of host 2
    BY              `1:BY:2`: host 1 buries host 2
    RN              `1:RN:2`: host 1 has put the set in force that host 2 declares, too

and words without one move the clock: Due, RetryDue and Rest, as in `story`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from duly.core.moments import Delay, Instant
from duly.formal.trace import (
    BT,
    BY,
    CK,
    IE,
    IF,
    IS,
    LR,
    NEW,
    OVERRIDDEN,
    RE,
    RG,
    RN,
    RS,
    SE,
    SF,
    SS,
    WK,
    Event,
    HostEvent,
)
from tests.formal.story import BEGIN, DELAY, HOUR, SECOND

EDITION = 5
"""Of the first set: there is room for older ones."""


@dataclass
class _Host:
    calls: int = 0
    runs: int = 0
    inits: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    going_on: dict[str, tuple[int, int]] = field(default_factory=dict)  # run and declaration, by task


class HostsStory:
    """A trace of several hosts that is being told."""

    def __init__(self, *, tasks: str = "x", cron: str = "0 * * * *", mode: str = "restart", zone: str = "UTC") -> None:
        self.events: list[HostEvent] = []
        self.now = BEGIN
        self.tasks, self.cron, self.mode, self.zone = tasks, cron, mode, zone
        self.generations: dict[str, int] = {}
        self.hosts: dict[int, _Host] = {}
        self.edition = EDITION
        self._used = 0
        self._retry_at: dict[str, int] = {}

    def tell(self, text: str) -> "HostsStory":
        """Go on with some words."""
        for word in text.split():
            head, _, rest = word.partition(":")
            if head.isdigit():
                letters, _, about = rest.partition(":")
                self._word(int(head), letters, about or "x")
            elif head == "Due":
                self.now += HOUR - self.now % HOUR
            elif head == "RetryDue":
                self.now = max(self.now, self._retry_at.get(rest or "x", self.now + 60 * SECOND))
            elif head == "Rest":
                self.now += 120 * SECOND
            else:
                raise ValueError(f"no such word: {word}")
        return self

    def add(self, host: int, kind: type[Event], *fields: object) -> None:
        """Add the next event."""
        self.now += 1_000
        self.events.append(HostEvent(host, kind(len(self.events) + 1, Instant(self.now), *fields)))  # type: ignore[arg-type]

    def _word(self, key: int, letters: str, about: str) -> None:  # noqa: C901  # one table of words
        host = self.hosts.setdefault(key, _Host())
        letters, _, other = letters.partition("@")
        match letters:
            case "Join":
                self.tell(f"{key}:BT {key}:IS {key}:IE")
            case "JoinOld":
                self.tell(f"{key}:BT {key}:IS {key}:IEold")
            case "Override":
                self.tell(f"{key}:IS")
                self.edition += 1
                self._register(key, about, OVERRIDDEN if about in self.generations else NEW)
                self.tell(f"{key}:IE")
            case "BT":
                self.add(key, BT, f"host-{key}-{len(self.events)}", 0)
            case "IS" | "SS":
                host.calls += 1
                (host.inits if letters == "IS" else host.stops).append(host.calls)
                self.add(key, IS if letters == "IS" else SS, host.calls)
            case "IE" | "IEold":
                self._take_effect(key, host, outdated=letters == "IEold")
            case "SE":
                self.add(key, SE, host.stops.pop(0) if host.stops else 0)
            case "SF":
                self.add(key, SF, host.stops.pop(0) if host.stops else 0, "StopSchedulerError")
            case "WK":
                self.add(key, WK, 0)
            case "LR":
                self.add(key, LR)
            case "CK":
                self.add(key, CK, Instant(self.now))
            case "RN":
                self.add(key, RN, int(about))
            case "BY":
                self.add(key, BY, int(about))
                self.hosts.setdefault(int(about), _Host()).going_on.clear()
            case "RS":
                host.runs += 1
                run, generation = key * 1_000 + host.runs, self.generations.get(about, 0)
                self.add(key, RS, about, generation, run, "cron", len(host.going_on))
                host.going_on[about] = (run, generation)
            case "REs" | "REf":
                whose = self.hosts.setdefault(int(other or key), _Host())
                run, generation = whose.going_on.pop(about, (0, self.generations.get(about, 0)))
                self.add(key, RE, about, generation, run, letters == "REs")
                self._retry_at[about] = self.now + DELAY * 1_000
            case _:
                raise ValueError(f"no such letters: {letters}")

    def _take_effect(self, key: int, host: _Host, *, outdated: bool) -> None:
        call = host.inits.pop(0) if host.inits else 0
        edition = self.edition
        if outdated:
            edition -= 1
        else:
            for task in self.tasks:
                if task not in self.generations:
                    self._register(key, task, NEW)
        declared = len(self.generations)
        self.add(key, IE, call, declared, "", self.mode, None, None, self.zone, edition, outdated)

    def _register(self, key: int, task: str, change: str) -> None:
        self._used += 1
        generation = self.generations[task] = self._used
        known = Instant(self.now + 1_000)
        self.add(key, RG, task, generation, change, self.cron, Delay(DELAY), self.zone, known, "loop")


def hosts_story(text: str, *, tasks: str = "x", mode: str = "restart") -> list[HostEvent]:
    """The events of a trace told in letters."""
    return HostsStory(tasks=tasks, mode=mode).tell(text).events


def as_hosts(events: Sequence[Event]) -> tuple[list[HostEvent], dict[int, int]]:
    """The trace of an embedded store as one of a shared store: each boot is a host of its own, each crash a burial.

    Also the number that each event had, by the number that it has now.
    """
    told: list[HostEvent] = []
    before: dict[int, int] = {}
    key, is_open, latest = 0, False, Instant(0)

    def add(event: Event, number: int) -> None:
        told.append(HostEvent(key, event._replace(seq=len(told) + 1)))
        before[len(told)] = number

    for event in events:
        if isinstance(event, BT):
            if is_open:
                add(BY(0, told[-1].at, key), event.seq)
            key += 1
        add(event._replace(edition=1, outdated=False) if isinstance(event, IE) else event, event.seq)
        if isinstance(event, BT) and event.at < latest:
            add(CK(0, event.at, latest), event.seq)  # in a shared store a boot does not set the clock
        latest = max(latest, event.at)
        if isinstance(event, BT | SE):
            is_open = isinstance(event, BT)
    return told, before


def is_told_boot_by_boot(events: Sequence[Event]) -> bool:
    """Whether each process begins with its boot, and nothing of it outlives its stop: then each is a host."""
    booted = quiet = False
    stops: set[int] = set()
    inits: set[int] = set()
    for event in events:
        if isinstance(event, BT):
            if quiet and (stops or inits):
                return False
            booted, quiet = True, False
            stops, inits = set(), set()
            continue
        if not booted or (quiet and not stops):
            return False
        if isinstance(event, SS | IS):
            (stops if isinstance(event, SS) else inits).add(event.call)
        elif isinstance(event, SE | SF | IE | IF):
            (stops if isinstance(event, SE | SF) else inits).discard(event.call)
            quiet = isinstance(event, SE) or (quiet and not isinstance(event, IE))
    return True
