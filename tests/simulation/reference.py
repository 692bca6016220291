"""An obvious scheduler, written a second time: what happened to a scheduler in, the starts it owed the world out.

Nothing of `duly.core` is used. Due minutes are found by walking through all minutes; a record is a plain object that
is changed in place; the scheduler asks every task at every instant at which something can come due. It walks along the
trace of a real run and takes from it what a scheduler cannot decide: when it was called, when callbacks ended, when it
died. Starts it decides itself. Among equals within one instant it follows the real one's choice, and there only.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Final, NamedTuple

MILLISECOND: Final = 1_000
SECOND: Final = 1_000 * MILLISECOND
MINUTE: Final = 60 * SECOND
DAY: Final = 1440 * MINUTE
HOUR: Final = 60 * MINUTE
END_OF_CALENDAR: Final = 253_402_300_740 * SECOND
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEARCH_DAYS: Final = 12 * 366

Row = Sequence[Any]
"""A line of the trace: letters, seq, at, and the other fields in the order of `duly.formal.trace`."""


# --- the calendar, minute by minute -----------------------------------------------------------------------------------


def local(instant: int, zone: tzinfo) -> datetime:
    """The wall-clock time."""
    return (_EPOCH + timedelta(microseconds=instant)).astimezone(zone)


def minute_of(instant: int, zone: tzinfo) -> int:
    """The beginning of the minute that contains an instant."""
    when = local(instant, zone)
    return instant - when.second * SECOND - when.microsecond


@cache
def _fields(cron: str) -> tuple[frozenset[int], ...]:
    limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    return tuple(frozenset(_values(text, *limit)) for text, limit in zip(cron.split(), limits, strict=True))


def _values(text: str, lowest: int, highest: int) -> Iterator[int]:
    for part in (f"{lowest}-{highest}" if text == "*" else text).split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


@cache
def _date_matches(cron: str, day: date) -> bool:
    _, _, days, months, weekdays = _fields(cron)
    _, _, day_text, _, weekday_text = cron.split()
    on_day, on_weekday = day.day in days, day.isoweekday() % 7 in weekdays
    either = "*" not in (day_text, weekday_text)
    return day.month in months and ((on_day or on_weekday) if either else (on_day and on_weekday))


@cache
def due_on(cron: str, zone: tzinfo, day: int) -> tuple[int, ...]:
    """The due minutes of a day of UTC, by number since the epoch; a minute that comes again is due the first time."""
    begin = day * DAY
    if not any(_date_matches(cron, local(begin + edge, zone).date()) for edge in (0, DAY - MINUTE)):
        return ()
    minutes, hours, *_ = _fields(cron)
    return tuple(
        instant
        for instant, when in ((instant, local(instant, zone)) for instant in range(begin, begin + DAY, MINUTE))
        if when.minute in minutes and when.hour in hours and not when.fold and _date_matches(cron, when.date())
    )


def due_minutes(cron: str, zone: tzinfo, after: int, until: int) -> list[int]:
    """The due minutes after one instant and up to another."""
    found: list[int] = []
    for day in range(after // DAY, until // DAY + 1):
        minutes = due_on(cron, zone, day)
        found += minutes[bisect_right(minutes, after) : bisect_right(minutes, until)]
    return found


def next_due(cron: str, zone: tzinfo, after: int) -> int:
    """The first due minute after an instant."""
    for day in range(after // DAY, after // DAY + _SEARCH_DAYS):
        minutes = due_on(cron, zone, day)
        if minutes and minutes[-1] > after:
            return minutes[bisect_right(minutes, after)]
    return END_OF_CALENDAR


# --- a record ---------------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """The durable record of a declaration in force; a record with a run that no living scheduler has is interrupted."""

    generation: int
    cron: str
    delay_ms: int
    known_since: int
    mark: int  # no minute up to this one is still owed
    thread: bool
    served_before: int | None = None  # by starts of earlier declarations of the name, until this one has started
    last_start: int | None = None
    last_success: int | None = None
    last_failure: int | None = None
    retry_at: int | None = None
    failures: int = 0
    interruptions: int = 0
    run: int | None = None
    cause: str | None = None
    written_by: str = ""

    @property
    def effective_delay(self) -> int:
        """In microseconds; never nothing (SPEC 3.6)."""
        return 1_000 * max(self.delay_ms, 1_000)

    @property
    def rest(self) -> int:
        """The wait from its last start, once it has been interrupted before (SPEC 3.7)."""
        return 1_000 * max(self.delay_ms, 60_000) if self.interruptions else 0

    def start(self, at: int, minute: int, run: int, cause: str, *, restart: bool) -> None:
        """A run is on record; if the one before was interrupted, it is one more in a row."""
        if self.run is not None:
            self.interruptions += 1
            if restart:
                self.retry_at = None
        self.mark = max(self.mark, minute)
        self.last_start, self.run, self.cause = at, run, cause

    def end(self, at: int, *, ok: bool) -> None:
        """Its outcome is on record."""
        if ok:
            self.last_success, self.retry_at, self.failures = at, None, 0
        else:
            self.last_failure = at
            self.retry_at = min(at + self.effective_delay, END_OF_CALENDAR)
            self.failures += 1
        self.interruptions, self.run, self.cause = 0, None, None

    def correct(self, now: int, minute: int) -> bool:
        """The clock may have been set back: lower what lies too far ahead (SPEC 2.5); whether anything did."""
        before, mark = (self.mark, self.retry_at), self.mark
        served = self.served
        if served is not None and served > minute + 3 * HOUR:
            self.mark = minute
            self.served_before = None if self.served_before is None else minute
        elif self.last_start is None and mark + MINUTE > minute + 3 * HOUR:
            self.mark = max(minute - MINUTE, served or 0)
        if self.mark != mark or self.known_since >= minute + 3 * HOUR + MINUTE:  # both together
            self.known_since = min(self.known_since, now)
        if self.retry_at is not None:
            self.retry_at = min(self.retry_at, now + self.effective_delay)
        return before != (self.mark, self.retry_at)

    @property
    def served(self) -> int | None:
        """The latest minute that a start of the name has served."""
        return self.served_before if self.last_start is None else self.mark


class Names:
    """The marks of withdrawn declarations, by name (SPEC 5.1)."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}

    def registered(self, record: Record | None, row: Row, zone: tzinfo) -> Record | None:
        """The record that an RG makes of that of its name."""
        name, change = row[3], row[5]
        if record is not None and change in ("orphaned", "overridden"):
            self._served.pop(name, None)
            if record.served is not None:
                self._served[name] = record.served
        return registered(record, row, zone, self._served.get(name))

    def correct(self, minute: int) -> None:
        """The clock may have been set back (SPEC 2.5)."""
        for name, served in self._served.items():
            if served > minute + 3 * HOUR:
                self._served[name] = minute

    def forget(self, at: int, records: Mapping[str, Record]) -> None:
        """They are kept for a day."""
        self._served = {name: served for name, served in self._served.items() if served >= at - DAY}
        for record in records.values():
            if record.served_before is not None and record.served_before < at - DAY:
                record.served_before = None


def registered(record: Record | None, row: Row, zone: tzinfo, served: int | None) -> Record | None:
    """The record that an RG makes of that of its name, of which a start has served this minute."""
    _, _, _, _, generation, change, cron, delay_ms, _, known_since, place = row
    if change == "orphaned":
        return None
    if change == "preserved":
        assert record is not None
        record.thread = place == "thread"
        return record
    mark = minute_of(known_since, zone) - MINUTE
    if served is not None:
        mark = max(mark, served)
    return Record(generation, cron, delay_ms, known_since, mark, place == "thread", served)


# --- the scheduler ----------------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """A start: what, why, when."""

    task: str
    cause: str
    at: int


class Reference:
    """The scheduler: it is given what happens, and returns what it starts."""

    def __init__(self, zone: tzinfo, pauses: Sequence[tuple[int, int]] = ()) -> None:
        self.zone = zone
        self.pauses = pauses
        self.now = 0
        self.active = self.restart = False
        self.limit: int | None = None
        self.threads: int | None = None
        self.records: dict[str, Record] = {}
        self.names = Names()
        self.alive: dict[str, tuple[int, bool]] = {}  # by name: the run's declaration, and whether it has a thread
        self.resume_at: dict[str, int] = {}  # the interrupted ones
        self.starts: list[Started] = []

    def owed(self, name: str) -> tuple[int, str] | None:
        """Since when, and why, a task must start now."""
        record, due = self.records[name], next_due(self.records[name].cron, self.zone, self.records[name].mark)
        if name in self.alive or not self.active:
            return None
        resume_at, retry_at = self.resume_at.get(name), record.retry_at
        if resume_at is not None and self.restart:
            if resume_at <= self.now:
                return min(resume_at, due), "interrupted"
            retry_at = None
        if retry_at is not None and retry_at <= self.now and retry_at < due:
            return retry_at, "retry"
        return (due, "cron") if due <= self.now else None

    def startable(self) -> dict[str, tuple[int, str]]:
        """The owed tasks that find a slot."""
        if self.limit is not None and len(self.alive) >= self.limit:
            return {}
        no_thread = self.threads is not None and sum(thread for _, thread in self.alive.values()) >= self.threads
        names = (name for name, record in self.records.items() if not (record.thread and no_thread))
        return {name: owed for name in names if (owed := self.owed(name)) is not None}

    def start(self, name: str, cause: str) -> None:
        """One of them starts."""
        record = self.records[name]
        record.start(self.now, minute_of(self.now, self.zone), 0, cause, restart=self.restart)
        self.resume_at.pop(name, None)
        self.alive[name] = (record.generation, record.thread)
        self.starts.append(Started(name, cause, self.now))

    def follow(self, name: str) -> None:
        """Start what the real scheduler starts now, if it is owed and, where slots are scarce, next in turn."""
        ready = self.startable()
        scarce = self.limit is not None and len(ready) > self.limit - len(self.alive)
        if name in ready and (not scarce or ready[name][0] == min(since for since, _ in ready.values())):
            self.start(name, ready[name][1])

    def start_all(self) -> None:
        """Everything that can start does, longest owed first."""
        while ready := self.startable():
            name = min(ready, key=lambda each: ready[each][0])
            self.start(name, ready[name][1])

    def pass_until(self, until: int) -> None:
        """Time passes; all that is owed on the way is started, but for the last instant, which may bring more."""
        while self.now < until:
            self.start_all()
            moments = [next_due(each.cron, self.zone, max(each.mark, self.now)) for each in self.records.values()]
            moments += [each.retry_at for each in self.records.values() if each.retry_at is not None]
            moments += self.resume_at.values()
            self.now = min([until, *(self.looked_at(each) for each in moments if each > self.now)])

    def come_to(self, at: int, step: tuple[int, int] | None, *, is_noticed: bool) -> None:
        """Time passes until something happens; it may have been stamped by a clock that was set, before any notice."""
        old, new = step or (at, at)
        if new > old and at > old:  # set forward: up to then, time passed as it would have
            self.pass_until(old)
        elif new < old and at <= new < self.now:  # set back: and whatever had come due by then has been served
            self.pass_until(old) if is_noticed else self.start_all()
            self.now = at
        else:
            self.pass_until(at)

    def looked_at(self, instant: int) -> int:
        """When a scheduler that was held up meanwhile comes to look."""
        return max([instant, *(end for begin, end in self.pauses if begin < instant < end)])

    def correct(self, at: int) -> None:
        """The clock shows something else."""
        self.now = at
        self.names.correct(minute_of(at, self.zone))
        for name, record in self.records.items():
            record.correct(at, minute_of(at, self.zone))
            if name in self.resume_at:
                self.resume_at[name] = min(self.resume_at[name], at + record.rest)

    def take(self, row: Row) -> None:
        """Something happened."""
        letters, at = row[0], row[2]
        if letters == "BT":  # whatever ran is gone
            self.active, self.alive = False, {}
            runs = {name: each for name, each in self.records.items() if each.run is not None}
            self.resume_at = {name: min(each.last_start or 0, at) + each.rest for name, each in runs.items()}
            self.correct(at)
        elif letters == "RG":
            record = self.names.registered(self.records.pop(row[3], None), row, self.zone)
            if row[5] != "preserved":
                self.resume_at.pop(row[3], None)
            if record is not None:
                self.records[row[3]] = record
        elif letters == "IE":
            self.active, self.restart, self.limit, self.threads = True, row[6] == "restart", row[7], row[8]
            self.names.forget(at, self.records)
        elif letters == "RE":
            self.alive.pop(row[3], None)
            record = self.records.get(row[3])
            if record is not None and record.generation == row[4]:
                record.end(at, ok=row[6])
        elif letters == "SS":
            self.active = False
        elif letters == "CK":
            self.correct(at)


def predicted(
    rows: Sequence[Row], zone: tzinfo, until: int, *, deaths: Mapping[int, int], pauses: Sequence[tuple[int, int]] = ()
) -> Counter[Started]:
    """The starts of the history in a trace; `deaths` holds the instants of crashes, by the last durable `seq`.

    `pauses` are stretches of time in which the scheduler could not decide: the host was frozen, or the store hung.
    """
    reference = Reference(zone, pauses)
    for row, step in zip(rows, _steps_ahead(rows), strict=True):
        letters, seq, at, *fields = row
        if letters == "BT" and seq - 1 in deaths and reference.active:
            death = deaths[seq - 1]
            if death - reference.now >= MILLISECOND:  # no end has a finer stamp: it may be of this very moment
                reference.pass_until(death)
        elif letters != "BT":
            reference.come_to(at, step, is_noticed=letters == "CK")
        if letters != "RS":
            reference.take(row)
        elif at == reference.now:  # earlier: it has been decided then, and became durable late
            reference.follow(fields[0])
    reference.pass_until(until)
    reference.start_all()
    return Counter(reference.starts)


def _steps_ahead(rows: Sequence[Row]) -> Iterable[tuple[int, int] | None]:
    """For each row, the next step of the clock that this process will notice: what it would have shown, and shows."""
    answers: list[tuple[int, int] | None] = []
    step: tuple[int, int] | None = None
    for letters, _, at, *fields in reversed(rows):
        if letters == "CK":
            step = (fields[0], at)
        elif letters == "BT":
            step = None
        answers.append(step)
    return reversed(answers)
