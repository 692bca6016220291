"""Traces told in letters, as the tables of the model do, and turned into events with instants, numbers and names.

`story("IS IE Due RS REs")` is the trace of one task x, hourly, with a retry delay of a minute. Letters:

    IS IE IE∅ IF SS SE SF       calls; IE declares x, IE∅ declares nothing; returns close the oldest open call
    RS REs REf                  starts and ends of x; RS:y and so on of another task
    Due RetryDue                the clock moves to the next full hour, or to the instant of the retry
    Crash                       the next event is a boot, and the one before it had not closed the store
    Override                    an initialize that declares x anew
    Rest                        the clock moves on by two minutes: long enough for an interruption streak to resume
"""

from duly.core.moments import Delay, Instant
from duly.formal.trace import BT, IE, IF, IS, NEW, ORPHANED, OVERRIDDEN, RE, RG, RS, SE, SF, SS, Event

SECOND = 1_000_000
HOUR = 3600 * SECOND
BEGIN = 490_000 * HOUR + 600 * SECOND  # ten past: no due minute
DELAY = Delay(60_000)


class Story:
    """A trace that is being told."""

    def __init__(self, *, tasks: str = "x", cron: str = "0 * * * *", mode: str = "restart", zone: str = "UTC") -> None:
        self.events: list[Event] = []
        self.now = BEGIN
        self.tasks = tasks
        self.cron = cron
        self.mode = mode
        self.zone = zone
        self._generations: dict[str, int] = {}
        self._used = 0
        self._retry_at: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        self._run_generations: dict[str, int] = {}
        self._inits: list[int] = []
        self._stops: list[int] = []
        self._calls = self._run = self._boots = 0
        self._alive: set[tuple[str, int]] = set()
        self._closed = True

    def tell(self, text: str) -> "Story":
        """Go on with some letters."""
        for word in text.split():
            letters, _, task = word.partition(":")
            self._word(letters, task or "x")
        return self

    def _stamp(self) -> tuple[int, Instant]:
        self.now += 1_000
        return len(self.events) + 1, Instant(self.now)

    def _boot(self) -> None:
        self._boots += 1
        self._closed = False
        self.events.append(BT(*self._stamp(), f"boot-{self._boots}", 0))

    def _word(self, letters: str, task: str) -> None:
        if letters == "Due":
            self.now += HOUR - self.now % HOUR
        elif letters == "RetryDue":
            self.now = max(self.now, self._retry_at.get(task, self.now + 60 * SECOND))
        elif letters == "Rest":
            self.now += 120 * SECOND
        elif letters == "Crash":
            self._inits, self._stops = [], []
            self._alive.clear()
            self._boot()
        elif letters == "Override":
            self._word("IS", task)
            self._register(task, OVERRIDDEN if task in self._generations else NEW)
            self._word("IE", task)
        elif letters == "RS":
            self._run += 1
            self._runs[task] = self._run
            self._run_generations[task] = generation = self._generations.get(task, 0)
            self.events.append(RS(*self._stamp(), task, generation, self._run, "cron", len(self._alive)))
            self._alive.add((task, self._run))
        elif letters in ("REs", "REf"):
            stamp = self._stamp()
            self._retry_at[task] = stamp[1] + DELAY * 1_000
            generation = self._run_generations.get(task, self._generations.get(task, 0))
            self._alive.discard((task, self._runs.get(task, 0)))
            self.events.append(RE(*stamp, task, generation, self._runs.get(task, 0), letters == "REs"))
        else:
            self._call(letters)

    def _call(self, letters: str) -> None:
        if self._closed and letters == "IS":
            self._boot()
        if letters in ("IS", "SS"):
            self._calls += 1
            (self._inits if letters == "IS" else self._stops).append(self._calls)
            self.events.append((IS if letters == "IS" else SS)(*self._stamp(), self._calls))
            return
        calls = self._inits if letters.startswith("I") else self._stops
        call = calls.pop(0) if calls else 0
        if letters in ("IE", "IE∅"):
            for task in self.tasks:
                if letters == "IE" and task not in self._generations:
                    self._register(task, NEW)
                elif letters == "IE∅" and task in self._generations:
                    self._register(task, ORPHANED)
            declared = len(self._generations)
            self.events.append(IE(*self._stamp(), call, declared, "", self.mode, None, None, self.zone))
        elif letters == "SE":
            self._closed = True
            self.events.append(SE(*self._stamp(), call))
        elif letters == "IF":
            self.events.append(IF(*self._stamp(), call, "ScheduleTaskError"))
        elif letters == "SF":
            self.events.append(SF(*self._stamp(), call, "StopSchedulerError"))
        else:
            raise ValueError(f"no such letters: {letters}")

    def _register(self, task: str, change: str) -> None:
        seq, at = self._stamp()
        if change == ORPHANED:
            generation = self._generations.pop(task)
        else:
            self._used += 1
            generation = self._generations[task] = self._used
        self.events.append(RG(seq, at, task, generation, change, self.cron, DELAY, self.zone, at, "loop"))


def story(text: str, *, tasks: str = "x", mode: str = "restart") -> list[Event]:
    """The events of a trace told in letters."""
    return Story(tasks=tasks, mode=mode).tell(text).events


def letters_of(text: str) -> list[set[str]]:
    """Letters as bare positions, for formulas as the source documents have them; + joins simultaneous events."""
    return [_with_general(set(position.split("+"))) for position in text.split()]


def _with_general(letters: set[str]) -> set[str]:
    if letters & {"REs", "REf"}:
        letters = letters | {"RE"}
    if "IE∅" in letters:
        letters = letters | {"IE", "IEout"}
    elif "IE" in letters:
        letters = letters | {"IEin"}
    return letters
