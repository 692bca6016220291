"""Death at every point: before and after every commit, at every callback's first step and return; and in pairs.

FORMAL D3: what survives a process changes only there, so this is exhaustive for crashes of processes. After each death
the program is started again, lives on for a while, is stopped, and is judged by all oracles: the properties of SPEC 7,
conservation, the store against the fold of its trace, the reference scheduler, and what the callbacks witnessed.
"""

import asyncio
import io
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import duly.core.task
import duly.engine.declare
from duly.core.changes import Batch
from duly.core.moments import Delay, Instant
from duly.core.task import Interrupted, Running, Start, fail, interrupt
from duly.events import TaskRunFailed
from duly.formal import check
from duly.stores.port import TraceRow
from duly.stores.sqlite.trace import Tracing
from tests.conftest import soak_seconds
from tests.counts import count, share
from tests.simulation.crashes import Life, WatchedStore, a_disk, base, first_life, lived
from tests.simulation.reference import MINUTE, local
from tests.simulation.scenarios import (
    BOOT,
    CHANGING,
    FAILING,
    LONG,
    QUEUE,
    QUICK,
    SCENARIOS,
    STOPPING,
    TIMEOUTS,
    YEAR,
    Scenario,
)
from tests.simulation.shrinking import KEPT
from tests.system.record import record

SINGLES_MIN: Final = 1_500
PAIRS_MIN: Final = 2_000
YEARS_MIN: Final = 8

CHUNKS: Final = 3
"""Tests of one scenario, so that all cores have something to do."""

SECONDS_OF_A_FIRST: Final = 10
"""Second deaths that are tried after one and the same first death."""

YEARS_OF_A_CHUNK: Final = 3
_YEAR_SECONDS: Final = 365 * 86_400

by_name: Final = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
in_chunks: Final = pytest.mark.parametrize("chunk", range(CHUNKS))


pytestmark = pytest.mark.usefixtures("ignored")


def died(life: Life, number: int, *, again: bool = False) -> Life:
    """The life after a death, lived and judged."""
    return lived(life.dies_at(number, again=again))


# --- one death --------------------------------------------------------------------------------------------------------


@in_chunks
@by_name
def test_whatever_the_moment_of_its_death_a_scheduler_goes_on_as_if_it_had_only_been_away(
    scenario: Scenario, chunk: int
) -> None:
    """FORMAL D3, every crash point of every base scenario; SPEC 3.1, 3.2, 3.7, 3.9, 5.2, 5.3."""
    life = base(scenario)
    assert len(life.points) >= scenario.points_min, "fewer crash points than there were: the enumeration has eroded"
    numbers = share(range(chunk, len(life.points), CHUNKS), 3)
    for number in numbers:
        died(life, number)
    print(f"{scenario.name}: {len(numbers)} of {len(life.points)} crash points, {kinds(life)}")
    record("simulation, a crash at every point", crashes=len(numbers))


def kinds(life: Life) -> dict[str, int]:
    """How many points of each kind a life has."""
    return dict(Counter(point.kind for point in life.points))


def test_death_in_the_minute_of_the_first_start_up() -> None:
    """SPEC 3.1: known since before the crash, owed after it; not known before it, not owed. The fast one of them."""
    life = base(BOOT)
    for number in range(0, len(life.points), 3):
        died(life, number)


def test_there_are_enough_crash_points() -> None:
    """Each scenario asserts its own share; this is the sum."""
    assert len(SCENARIOS) >= 5
    assert sum(scenario.points_min for scenario in SCENARIOS) >= SINGLES_MIN
    assert sum(scenario.pairs for scenario in SCENARIOS) >= PAIRS_MIN
    assert CHUNKS * YEARS_OF_A_CHUNK >= YEARS_MIN


def test_every_kind_of_point_occurs() -> None:
    """Before and after the commits of initialize() and of starts and ends, at first steps, at returns."""
    assert set(kinds(base(BOOT))) == {
        "before replace",
        "after replace",
        "before write",
        "after write",
        "first step",
        "return",
    }


THEMES: Final[dict[str, set[str]]] = {
    "quick": {"RG new", "RS cron", "on a thread"},
    "failing": {"RS cron", "RS retry", "TaskRetryPreempted", "TaskRetryStarted"},
    "long": {"TaskRunOverdue", "RS cron", "RE False", "a start between two minutes"},
    "queue": {"on a thread", "a start between two minutes", "all slots in use"},
    "changing": {"RG new", "RG overridden", "RG orphaned", "TaskSkipped", "an end of an old declaration"},
    "stopping": {"SS", "SE", "an end while stopping", "RE False"},
    "spring": {"03:00", "RS retry", "01:59"},
    "autumn": {"02:58", "03:00", "RS retry"},
    "waiting": {"wait", "RS retry"},
    "boot": {"12:00", "RG overridden", "RG orphaned"},
    "clock": {"RS retry", "TaskRunOverdue"},
    "timeouts": {"TimeoutError", "on a thread", "RS retry"},
}
"""The events of each scenario even without a crash."""


@by_name
def test_the_scenarios_are_about_what_they_say(scenario: Scenario) -> None:
    """A scenario in which nothing happens would be survived by anything."""
    assert themes(base(scenario)) >= THEMES[scenario.name]


def themes(life: Life) -> set[str]:
    """A life in a few words."""
    assert life.evidence is not None
    assert life.host is not None
    seen = {event.name for event in life.host.events}
    seen |= {event.error.partition(":")[0] for event in life.host.events if isinstance(event, TaskRunFailed)}
    generations: dict[str, int] = {}
    stopping, limit = False, None
    for letters, _, at, *fields in life.evidence.rows:
        seen.add(letters)
        if letters == "RG":
            generations[fields[0]] = fields[1] if fields[2] != "orphaned" else 0
            seen |= {f"RG {fields[2]}", "on a thread" if fields[7] == "thread" else ""}
        elif letters == "IE":
            seen.add(fields[3])
            limit = fields[4]
        elif letters == "RS":
            seen |= {f"RS {fields[3]}", f"{local(at, life.evidence.zone):%H:%M}"}
            seen.add("a start between two minutes" if at % MINUTE and fields[3] == "cron" else "")
            seen.add("all slots in use" if limit == fields[4] + 1 else "")
        elif letters == "RE":
            seen |= {f"RE {fields[3]}", "an end while stopping" if stopping else ""}
            seen.add("an end of an old declaration" if generations[fields[0]] != fields[1] else "")
        stopping = letters == "SS" or (stopping and letters != "SE")
    return seen


@pytest.mark.parametrize("scenario", [QUEUE, CHANGING, STOPPING, TIMEOUTS], ids=lambda each: each.name)
def test_a_process_that_really_dies_leaves_what_the_enumeration_says(scenario: Scenario) -> None:
    """The points are taken from a process that lives on; one that is killed there must leave the same, and no more."""
    life = base(scenario)
    for number in share(range(0, len(life.points), 11), 3):
        point = life.points[number]
        victim = first_life(scenario)
        victim.dies_in_place_at = number
        with a_disk() as folder:
            asyncio.run(victim.run(folder))
            assert victim.is_dead
            path = folder / "life-1.db"
            assert contents(path.read_bytes() if path.exists() else None) == contents(point.image)
        assert victim.witness.entries == life.witness.entries[: point.witnessed]


def contents(image: bytes | None) -> list[str]:
    """All rows of a database."""
    if not image:
        return []
    with closing(sqlite3.connect(":memory:")) as connection:
        unlogged = image[:18] + b"\x01\x01" + image[20:]  # a database in memory has no write-ahead log
        connection.deserialize(unlogged)
        return list(connection.iterdump())


# --- two deaths and more ----------------------------------------------------------------------------------------------


@in_chunks
@by_name
def test_a_second_death_after_the_first_changes_nothing(scenario: Scenario, chunk: int) -> None:
    """FORMAL D3, pairs: the second is counted on after the restart. Sampled by a fixed seed; soak throws the dice."""
    dice = random.Random(f"{scenario.name} {chunk}")
    of_this_chunk = scenario.pairs // CHUNKS + (chunk < scenario.pairs % CHUNKS)
    wanted = min(of_this_chunk, count(of_this_chunk, 2))
    life = base(scenario, hesitation=chunk or None)  # with a store that takes its time in two chunks of three
    tried = 0
    while tried < wanted:
        second = died(life, dice.randrange(len(life.points)), again=True)
        numbers = dice.sample(range(len(second.points)), min(SECONDS_OF_A_FIRST, wanted - tried, len(second.points)))
        for number in numbers:
            died(second, number)
        tried += len(numbers)
    assert tried == wanted
    print(f"{scenario.name}: {tried} pairs")
    record("simulation, two crashes", pairs=tried)


@in_chunks
def test_a_year_with_a_death_in_it(chunk: int) -> None:
    """SPEC 2, 3.2: months of downtime, both changes of the clocks, and a year of simulated time after each death."""
    life = base(YEAR)
    assert len(life.points) >= YEAR.points_min
    dice = random.Random(f"year {chunk}")
    passed, years = 0.0, count(YEARS_OF_A_CHUNK, 1)
    for number in dice.sample(range(len(life.points)), years):
        passed += died(life, number).seconds
    assert passed >= years * _YEAR_SECONDS
    print(f"year: {passed / _YEAR_SECONDS:.1f} simulated years")


@pytest.mark.soak
@in_chunks
def test_many_deaths_in_a_row(chunk: int) -> None:
    """Two to five crashes, by fresh seeds, for DULY_SOAK_MINUTES; the seed of a failure is kept."""
    until = time.monotonic() + soak_seconds()
    first = random.SystemRandom().randrange(1 << 40)
    count = 0
    while time.monotonic() < until:
        seed = first + CHUNKS * count + chunk
        try:
            die_often(seed)
        except Exception as error:
            again = f"python -c 'from {__name__} import die_often; die_often({seed})'"
            with KEPT.open("a", encoding="utf-8") as file:
                file.write(f"# {type(error).__name__}; again: {again}\n")
            error.add_note(f"again: {again}")
            raise
        count += 1
    assert count
    print(f"{count} histories of several deaths, seeds from {first + chunk} in steps of {CHUNKS}")


def die_often(seed: int) -> None:
    """A scenario with two to five deaths, one after the other."""
    dice = random.Random(seed)
    life = base(dice.choice(SCENARIOS), hesitation=dice.choice([None, seed]))
    for _ in range(dice.randint(2, 5)):
        life = died(life, dice.randrange(len(life.points)), again=True)


@pytest.mark.parametrize("seed", [0, 1, 2, 605751171263])
def test_a_few_deaths_in_a_row(seed: int) -> None:
    """The soak's work, a few times; the last one dies within the millisecond of an end."""
    die_often(seed)


# --- a trace in many segments -----------------------------------------------------------------------------------------


class SegmentedStore(WatchedStore):
    """Begins a new segment of the trace every few events, and keeps them all."""

    def __init__(self, path: Path, life: Life) -> None:
        super().__init__(path, life)
        self.tracing = Tracing(segment_events=16, segments_kept=1_000)


@pytest.mark.parametrize("scenario", [FAILING, QUEUE, CHANGING, STOPPING], ids=lambda each: each.name)
def test_segments_fit_together_and_each_can_be_judged_alone_whenever_the_process_died(scenario: Scenario) -> None:
    """FORMAL A1: a segment begins with all registers, in the transaction that has filled the one before."""
    life = base(scenario, store_class=SegmentedStore)
    most = 0
    for number in share(range(3, len(life.points), 11), 3):
        evidence = died(life, number).evidence
        assert evidence is not None
        segments = evidence.trace.split(b'{"trace"')[1:]
        most = max(most, len(segments))
        for segment in segments:
            assert not check(io.BytesIO(b'{"trace"' + segment)).violated
    assert most > 3


# --- bugs that are put in, and must be found --------------------------------------------------------------------------


class HastyStore(WatchedStore):
    """Says that starts are durable, and makes them so with the next call only."""

    _held: tuple[Batch, int, Iterable[TraceRow]] | None = None

    def _write(self, batch: Batch, number: int, trace: Iterable[TraceRow]) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            super()._write(*held)
        if any(isinstance(change, Start) for change in batch.singles()):
            self._held = (batch, number, trace)
        else:
            super()._write(batch, number, trace)


class TornStore(WatchedStore):
    """Raises the mark in a transaction of its own, before the start is on record."""

    def _write(self, batch: Batch, number: int, trace: Iterable[TraceRow]) -> None:
        for change in batch.singles():
            if isinstance(change, Start):
                self._writer().execute(
                    "UPDATE states SET served_through = ? WHERE generation = ?",
                    (change.grounds.after.served_through, change.task.generation),
                )
        self.life.point("between two halves")
        super()._write(batch, number, trace)


class ChattyStore(WatchedStore):
    """Writes the trace in a transaction of its own, after the state that it tells of."""

    def _write(self, batch: Batch, number: int, trace: Iterable[TraceRow]) -> None:
        super()._write(batch, number, ())
        self.tracing.append(self._writer(), trace)
        self.life.point("after the trace")


def wait_for_the_next_minute(patch: pytest.MonkeyPatch) -> None:
    """An interrupted run waits for its next due minute although it should start at once."""

    def wrong(run: Running, now: Instant, delay: Delay, **_: Any) -> Interrupted:
        return interrupt(run, now, delay, restart=False)

    patch.setattr(duly.engine.declare, "interrupt", wrong)


def take_it_for_a_failure(patch: pytest.MonkeyPatch) -> None:
    """An interrupted run is treated like one that failed (FORMAL B3)."""
    patch.setattr(duly.engine.declare, "interrupt", lambda run, now, delay, **_: fail(run, now, delay))


def forget_the_brake(patch: pytest.MonkeyPatch) -> None:
    """A task that is interrupted again and again starts at once, each time."""
    patch.setattr(duly.core.task, "CRASH_LOOP_DELAY", Delay(0))


def nothing_else(_: pytest.MonkeyPatch) -> None:
    """The bug is the store's."""


BUGS: Final = {
    "interrupted judged by the wait rule": (wait_for_the_next_minute, WatchedStore, FAILING),
    "interrupted taken for failed": (take_it_for_a_failure, WatchedStore, QUICK),
    "called before it is durable": (nothing_else, HastyStore, QUICK),
    "mark raised before the start": (nothing_else, TornStore, QUEUE),
    "trace apart from the state": (nothing_else, ChattyStore, CHANGING),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_that_only_a_crash_shows_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORMAL D3: put in a bug; without a crash nothing is wrong, and the enumeration finds it."""
    put_in, store_class, scenario = BUGS[bug]
    put_in(monkeypatch)
    life = base(scenario, store_class=store_class)
    tried = range(0, len(life.points), 6)
    caught = [number for number in tried if is_caught(life, number)]
    print(f"{bug}: {len(caught)} of {len(tried)} crash points show it, {scenario.name}")
    assert caught


def test_a_bug_that_only_two_crashes_show_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 3.7: the brake on crash loops takes hold from the second interruption in a row on."""
    forget_the_brake(monkeypatch)
    life = base(CRASH_LOOP)
    firsts = range(0, len(life.points), 9)
    assert not any(is_caught(life, number) for number in firsts), "one crash cannot show this"
    seconds = [died(life, number, again=True) for number in firsts]
    caught = [
        (*second.died_at, number)
        for second in seconds
        for number in range(0, len(second.points), 8)
        if is_caught(second, number)
    ]
    assert caught


CRASH_LOOP: Final = Scenario(LONG.name, LONG.begin, LONG.acts, 4, 0, 0, downtimes=(1, 5), run_on=2)
"""Long runs, so that many crashes cut one short."""


def is_caught(life: Life, number: int) -> bool:
    """Whether a death there is judged wrong."""
    try:
        died(life, number)
    except AssertionError:
        return True
    return False


def test_the_bugs_are_bugs_and_the_stores_are_none() -> None:
    """The ground of the search for bugs: the same points without a bug are judged right."""
    life = base(BOOT)
    assert not any(is_caught(life, number) for number in range(0, len(life.points), 9))
