"""The statements that write: set-based, so that a tick of thousands of tasks is a handful of them.

Each runs inside the caller's transaction. A statement over many rows takes their numbers as one JSON array; while it
works, the interpreter is free for the event loop.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeVar

from duly.core.changes import Batch, Ends, StartBlock, SuccessBlock
from duly.core.moments import Instant
from duly.core.resolution import MARK_KEPT, Mark
from duly.core.task import SERVED_AHEAD_SECONDS_MAX, SHORTEST_DELAY, Cause, Correction, End, Grounds, Task
from duly.stores.port import Replacement

T = TypeVar("T")
Verb = Literal["replaced", "written"]

DECLARED_TOGETHER_MIN: Final = 8
"""At least this many declarations that differ only in their names are inserted by one statement."""

DECLARED_TOGETHER_MAX: Final = 20_000
"""One such statement takes at most this many: joining and splitting their names has no pause."""

OFFSET_BITS: Final = 20
"""An end is packed as `generation << 20 | milliseconds since the first end`, which has room for 17 minutes."""

RUN: Final = (
    "run, generation, cause, scheduled, started_at, ended_at, outcome, error, first_started_at, attempt, called_at, "
    "traceback"
)
"""The columns of a run record, in the order in which they are written."""

CALLS_MAX: Final = 16
"""Different moments of a call, one after the other, that one statement can tell apart."""

INSTANTS_MAX: Final = 32
"""Different instants of ends that one statement over neighbours can tell apart."""


@dataclass(slots=True)
class Statements:
    """The statements of one scheduler: `key` stands in every record it touches, `history` bounds the runs kept."""

    identifier: str
    key: int
    history: int

    def finished(self, connection: sqlite3.Connection, verb: Verb, number: int) -> None:
        """Note that the call with this number has been applied."""
        connection.execute("UPDATE meta SET value = ? WHERE key = ?", (number, verb))

    def write(self, connection: sqlite3.Connection, batch: Batch) -> None:
        """Starts, ends and corrections, in their order."""
        highest = 0
        ended = False
        for kind, blocks in groupby(batch.blocks, type):
            alike: list[Any] = list(blocks)
            if kind is SuccessBlock:
                self._write_successes(connection, alike)
            elif kind is StartBlock:
                for block in alike:
                    self._write_starts(connection, block)
                    highest = max(highest, block.first_run + len(block.tasks) - 1)
            else:
                for change in alike:
                    (self._write_failure if kind is End else self._correct)(connection, change)
            ended |= kind in (SuccessBlock, End)
        if highest:
            connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'run'", (highest,))
        if ended:
            self._trim_history(connection)

    def already(self, connection: sqlite3.Connection, verb: Verb, number: int) -> bool:
        """Whether the call with this number has been applied before: a commit can succeed and report a fault.

        Each verb has its own count: between a failed write and its repetition an initialize() may have succeeded.
        """
        return bool(connection.execute("SELECT value FROM meta WHERE key = ?", (verb,)).fetchone()[0] >= number)

    def arrive(self, connection: sqlite3.Connection, replacement: Replacement) -> None:
        """A scheduler has taken over: it is known by name, and runs without an end become history."""
        connection.execute(
            "INSERT OR IGNORE INTO schedulers VALUES (?, ?, ?)", (self.key, self.identifier, replacement.at)
        )
        connection.execute(
            f"INSERT INTO runs ({RUN}) "
            "SELECT run, generation, run_cause, run_scheduled, last_attempt_at, NULL, 'interrupted', NULL, "
            "first_started_at, attempt, NULL, NULL FROM states WHERE run IS NOT NULL "
            "AND run NOT IN (SELECT run FROM runs WHERE outcome = 'interrupted')"
        )
        self._trim_history(connection)
        # Declarations that are neither in force nor in history any more, and schedulers that no record names.
        connection.execute(
            "DELETE FROM tasks WHERE retired_at IS NOT NULL AND generation NOT IN (SELECT generation FROM runs)"
        )
        if connection.execute("SELECT count(*) FROM schedulers").fetchone()[0] > 1_000:
            connection.execute(
                "DELETE FROM schedulers WHERE key != ? AND key NOT IN (SELECT written_by FROM states)", (self.key,)
            )

    def apply(self, connection: sqlite3.Connection, replacement: Replacement) -> None:
        """All that an initialize() changes."""
        resolution = replacement.resolution
        if replacement.correction is not None:
            self._correct(connection, replacement.correction)
        self._remember_marks(connection, resolution.marks, replacement.at)
        gone = [each.task.generation for each in resolution.orphaned]
        gone += [each.old.generation for each in resolution.overridden]
        if gone:
            numbers = json.dumps(gone)
            connection.execute("DELETE FROM states WHERE generation IN (SELECT value FROM json_each(?))", (numbers,))
            connection.execute(
                "UPDATE tasks SET retired_at = ? WHERE generation IN (SELECT value FROM json_each(?))",
                (replacement.at, numbers),
            )
        arrivals = resolution.added + [each.new for each in resolution.overridden]
        if arrivals:
            arrivals.sort(key=_generation)
            self._declare(connection, arrivals, replacement.at)
            connection.execute(
                "UPDATE meta SET value = max(value, ?) WHERE key = 'generation'", (arrivals[-1].generation,)
            )
        connection.execute("UPDATE meta SET value = ? WHERE key = 'zone'", (replacement.zone,))

    def _remember_marks(self, connection: sqlite3.Connection, marks: Mapping[str, Mark], at: Instant) -> None:
        """Write what withdrawn declarations have served, and forget what no longer counts (SPEC 5.1)."""
        connection.execute("DELETE FROM marks WHERE 1000000 * served_through < ?", (at - MARK_KEPT,))
        for mark, alike in groupby(sorted(marks.items(), key=itemgetter(1, 0)), itemgetter(1)):
            names = [name for name, _ in alike]
            for begin in range(0, len(names), DECLARED_TOGETHER_MAX):
                connection.execute(
                    "INSERT OR REPLACE INTO marks SELECT value, ?, ? FROM json_each(?)",
                    (*mark, json.dumps(names[begin : begin + DECLARED_TOGETHER_MAX])),
                )

    def _declare(self, connection: sqlite3.Connection, arrivals: Sequence[Task], at: Instant) -> None:
        """Insert new declarations and their states; those of one expression have consecutive generations."""
        marks = {task.state.served_through for task in arrivals}
        few: list[Task] = []
        for (cron, delay), alike in groupby(arrivals, _configuration):
            tasks = list(alike)
            first, last = tasks[0].generation, tasks[-1].generation
            if len(tasks) < DECLARED_TOGETHER_MIN or last - first != len(tasks) - 1:
                few += tasks
                continue
            for begin in range(0, len(tasks), DECLARED_TOGETHER_MAX):
                names = json.dumps([task.name for task in tasks[begin : begin + DECLARED_TOGETHER_MAX]])
                connection.execute(
                    "INSERT INTO tasks SELECT :first + j.key, j.value, :cron, :delay, :at, NULL "
                    "FROM json_each(:names) AS j",
                    {"first": first + begin, "cron": cron, "delay": delay, "at": at, "names": names},
                )
        connection.executemany(
            "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, NULL)",
            ((task.generation, task.name, task.expression.text, task.delay, at) for task in few),
        )
        if len(marks) == 1:
            connection.execute(
                "INSERT INTO states (generation, served_through, failures, interruptions, written_by) "
                "SELECT generation, ?, 0, 0, ? FROM tasks NOT INDEXED WHERE generation BETWEEN ? AND ?",
                (*marks, self.key, arrivals[0].generation, arrivals[-1].generation),
            )
        else:
            connection.executemany(
                "INSERT INTO states (generation, served_through, failures, interruptions, written_by) "
                "VALUES (?, ?, 0, 0, ?)",
                ((task.generation, task.state.served_through, self.key) for task in arrivals),
            )

    def _write_starts(self, connection: sqlite3.Connection, block: StartBlock) -> None:
        grounds = block.grounds
        after = grounds.after
        first_started_at, first_scheduled, attempt = _repeated(grounds)
        numbers = [task.generation for task in block.tasks]
        neighbours = _are_neighbours(numbers)
        connection.execute(
            "UPDATE states SET served_through = :mark, last_attempt_at = :at, pending_retry_until = :retry, "
            f"interruptions = :interruptions, run = :first_run + {'generation - :first' if neighbours else 'j.key'}, "
            "run_cause = :cause, run_scheduled = :scheduled, written_by = :key, first_started_at = :first_started_at, "
            "first_scheduled = :first_scheduled, attempt = :attempt "
            + (
                "WHERE generation BETWEEN :first AND :last"
                if neighbours
                else "FROM json_each(:generations) AS j WHERE states.generation = j.value"
            ),
            {
                "mark": after.served_through,
                "at": after.last_attempt_at,
                "retry": after.pending_retry_until,
                "interruptions": after.interruptions,
                "first_run": block.first_run,
                "cause": grounds.cause.value,
                "scheduled": grounds.scheduled,
                "key": self.key,
                "first_started_at": first_started_at,
                "first_scheduled": first_scheduled,
                "attempt": attempt,
                **({"first": numbers[0], "last": numbers[-1]} if neighbours else {"generations": _array(numbers)}),
            },
        )

    def _write_successes(self, connection: sqlite3.Connection, blocks: Sequence[SuccessBlock]) -> None:
        """All at once: between two statements this thread would wait for the interpreter, which the loop needs, too."""
        for some in _few_calls(blocks):
            for rows in _ended_rows(some):
                self._keep_history(connection, rows, "success")
                connection.execute(
                    f"UPDATE states SET last_success_at = {rows.at}, pending_retry_until = NULL, failures = 0, "
                    "interruptions = 0, run = NULL, run_cause = NULL, run_scheduled = NULL, written_by = :key, "
                    f"first_started_at = NULL, first_scheduled = NULL, attempt = NULL {rows.updated}",
                    {**rows.values, "key": self.key},
                )

    def _write_failure(self, connection: sqlite3.Connection, end: End) -> None:
        obligation = end.grounds.obligation
        self._keep_history(connection, _neighbours(Ends([end])), "failure", end.error, end.traceback)
        connection.execute(
            "UPDATE states SET last_failure_at = ?, pending_retry_until = ?, failures = ?, "
            "interruptions = 0, run = NULL, run_cause = NULL, run_scheduled = NULL, written_by = ?, "
            "first_started_at = ?, first_scheduled = ?, attempt = ? WHERE generation = ?",
            (
                end.at,
                end.pending_retry_until,
                end.failures,
                self.key,
                obligation.first_started_at,
                obligation.scheduled,
                obligation.attempt,
                end.task.generation,
            ),
        )

    def _keep_history(
        self,
        connection: sqlite3.Connection,
        rows: "EndedRows",
        outcome: str,
        error: str | None = None,
        traceback: str | None = None,
    ) -> None:
        if not self.history:
            return
        called_at, calls = _calls(rows)
        kept = connection.execute(
            f"INSERT INTO runs ({RUN}) "
            f"SELECT s.run, s.generation, s.run_cause, s.run_scheduled, s.last_attempt_at, {rows.at}, :outcome, "
            f":error, s.first_started_at, s.attempt, {called_at}, :traceback {rows.selected}",
            {**rows.values, "outcome": outcome, "error": error, "traceback": traceback, **calls},
        ).rowcount
        if kept == rows.ends.count:
            return
        # Some declarations were withdrawn while they ran: their states are gone, history hears of the end all the same.
        in_force = {number for (number,) in connection.execute(f"SELECT s.generation {rows.selected}", rows.values)}
        connection.executemany(
            f"INSERT INTO runs ({RUN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    end.run,
                    end.task.generation,
                    end.grounds.cause.value,
                    end.grounds.scheduled,
                    end.grounds.at,
                    end.at,
                    outcome,
                    error,
                    first_started_at,
                    attempt,
                    end.called_at,
                    traceback,
                )
                for end in rows.ends.singles()
                if end.task.generation not in in_force
                for first_started_at, _, attempt in (_repeated(end.grounds),)
            ),
        )

    def _trim_history(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM runs WHERE seq <= (SELECT max(seq) FROM runs) - ?", (self.history,))

    def _correct(self, connection: sqlite3.Connection, correction: Correction) -> None:
        now, minute = correction.now, correction.minute
        facts = {
            "now": now, "minute": minute, "too_far": minute + SERVED_AHEAD_SECONDS_MAX, "key": self.key,
        }  # fmt: skip
        # `known_since` goes first: what is too far ahead is no longer so after the second statement.
        connection.execute(
            f"UPDATE tasks SET known_since = :now FROM ({_TOO_FAR_AHEAD}) AS far "
            "WHERE tasks.generation = far.generation AND tasks.known_since > :now",
            facts,
        )
        connection.execute(
            "UPDATE tasks SET known_since = :now WHERE retired_at IS NULL AND known_since >= 1000000 * (:too_far + 60)",
            facts,
        )
        connection.execute(
            f"UPDATE states SET served_through = far.lowered, written_by = :key FROM ({_TOO_FAR_AHEAD}) AS far "
            "WHERE states.generation = far.generation",
            facts,
        )
        connection.execute(
            "UPDATE marks SET served_through = :minute, retired_at = :now WHERE served_through > :too_far", facts
        )
        connection.execute(
            "UPDATE states SET pending_retry_until = :now + 1000 * max(:shortest, t.delay_ms), written_by = :key "
            "FROM tasks AS t WHERE t.generation = states.generation "
            "AND pending_retry_until > :now + 1000 * max(:shortest, t.delay_ms)",
            {"now": now, "shortest": SHORTEST_DELAY, "key": self.key},
        )


class EndedRows(NamedTuple):
    """Ends as a statement names them: which rows of `states`, and for each the instant of its end."""

    ends: Ends
    at: str
    """The instant, an expression."""

    selected: str
    """The rows in a SELECT, as `s`."""

    updated: str
    """The rows in an UPDATE."""

    values: dict[str, int | str]

    place: str
    """The place of a row in the order of the ends, an expression in a SELECT."""

    last_places: list[int]
    """The place of the last row of each block."""


def _ended_rows(blocks: Sequence[SuccessBlock]) -> Iterator[EndedRows]:
    """Ends in order, nearly always by one statement."""
    instants = sum(1 for _ in groupby(blocks, _instant))
    if instants <= INSTANTS_MAX and _are_neighbours([task.generation for block in blocks for task in block.tasks]):
        yield _neighbours(Ends(blocks))
        return
    base = blocks[0].at
    for packable, some in groupby(blocks, lambda block: _fits(block.at, base)):
        together = list(some)
        if packable:
            yield _scattered(Ends(together), base)
        else:  # the clock was stepped in between, or an end shares the microsecond of its start
            yield from _ended_rows(together)


def _neighbours(ends: Ends) -> EndedRows:
    """One walk along the table, which takes half as long as finding each row."""
    tasks = [_tasks(block) for block in ends.blocks]
    places = [ended[-1].generation for ended in tasks]
    values: dict[str, int | str] = {"first": tasks[0][0].generation, "last": places[-1]}
    until = []
    for number, (ended_at, last) in enumerate(_parts(ends, places, _instant)):
        values |= {f"until{number}": last, f"ended{number}": ended_at}
        until.append(f"WHEN generation <= :until{number} THEN :ended{number}")
    between = "generation BETWEEN :first AND :last"
    at = f"CASE {' '.join(until)} END"
    return EndedRows(ends, at, f"FROM states AS s WHERE {between}", f"WHERE {between}", values, "s.generation", places)


def _scattered(ends: Ends, base: Instant) -> EndedRows:
    """Rows by their numbers, packed: nested arrays take SQLite twice as long."""
    ended = (
        f"SELECT key AS place, value >> {OFFSET_BITS} AS generation, "
        f":base + 1000 * (value & {(1 << OFFSET_BITS) - 1}) AS at FROM json_each(:ends)"
    )
    return EndedRows(
        ends,
        "ended.at",
        f"FROM ({ended}) AS ended CROSS JOIN states AS s ON s.generation = ended.generation",
        f"FROM ({ended}) AS ended WHERE states.generation = ended.generation",
        {"ends": _packed(ends, base), "base": base},
        "ended.place",
        [number - 1 for number in accumulate(len(_tasks(block)) for block in ends.blocks)],
    )


def _are_neighbours(generations: list[int]) -> bool:
    """Whether they follow each other without a gap: nearly always those of one expression, and so of a burst."""
    first, last = generations[0], generations[-1]
    return last - first == len(generations) - 1 and generations == list(range(first, last + 1))


def _few_calls(blocks: Sequence[SuccessBlock]) -> Iterator[Sequence[SuccessBlock]]:
    """Blocks in order, in parts that were called at few different moments: nearly always all of them."""
    alike = [list(some) for _, some in groupby(blocks, _call)]
    for begin in range(0, len(alike), CALLS_MAX):
        yield [block for some in alike[begin : begin + CALLS_MAX] for block in some]


def _parts(ends: Ends, last_places: list[int], key: Callable[[SuccessBlock | End], T]) -> Iterator[tuple[T, int]]:
    """The key that neighbouring blocks have in common, and the place of the last row of the last of them."""
    for common, some in groupby(zip(ends.blocks, last_places, strict=True), lambda each: key(each[0])):
        *_, (_, last) = some
        yield common, last


def _instant(block: SuccessBlock | End) -> Instant:
    return block.at


def _call(block: SuccessBlock | End) -> tuple[bool, Instant | None]:
    """Whether runs were called when they ended, which is so if they took no millisecond; otherwise, when."""
    return (True, None) if block.called_at == block.at else (False, block.called_at)


def _calls(rows: EndedRows) -> tuple[str, dict[str, int | None]]:
    """When runs were called, an expression and its values."""
    cases = []
    values: dict[str, int | None] = {}
    moment = ""
    for number, ((at_its_end, called_at), last) in enumerate(_parts(rows.ends, rows.last_places, _call)):
        moment = rows.at if at_its_end else f":called{number}"
        values |= {f"called{number}": called_at, f"called{number}_until": last}
        cases.append(f"WHEN {rows.place} <= :called{number}_until THEN {moment}")
    return moment if len(cases) == 1 else f"CASE {' '.join(cases)} END", values


def _repeated(grounds: Grounds) -> tuple[Instant | None, Instant | None, int | None]:
    """The columns of the obligation that a start repeats; of one that begins its obligation, other columns say all."""
    if grounds.cause is Cause.CRON:
        return None, None, None
    obligation = grounds.obligation
    return obligation.first_started_at, obligation.scheduled, obligation.attempt


# As `corrected` in core/task.py: what a task that never started has served is the minute before `known_since`, or what
# earlier declarations of its name have served, if that is later.
_TOO_FAR_AHEAD: Final = """
SELECT generation, lowered FROM (
    SELECT s.generation, s.served_through, CASE
        WHEN s.last_attempt_at IS NOT NULL THEN iif(s.served_through > :too_far, :minute, s.served_through)
        WHEN m.served_through > :too_far THEN :minute
        WHEN s.served_through + 60 > :too_far THEN max(:minute - 60, ifnull(m.served_through, :minute - 60))
        ELSE s.served_through END AS lowered
    FROM states AS s CROSS JOIN tasks AS t ON t.generation = s.generation LEFT JOIN marks AS m ON m.name = t.name
) WHERE lowered != served_through
"""


def _configuration(task: Task) -> tuple[str, int]:
    return task.expression.text, task.delay


def _generation(task: Task) -> int:
    return task.generation


def _array(numbers: list[int]) -> str:
    return str(numbers)  # which is JSON, and takes half as long as joining them


def _fits(at: Instant, base: Instant) -> bool:
    """Whether an end can be told in milliseconds from `base`, exactly."""
    milliseconds, rest = divmod(at - base, 1000)
    return not rest and 0 <= milliseconds < 1 << OFFSET_BITS


def _packed(ends: Ends, base: Instant) -> str:
    """For each run one number: its generation, and in the lowest bits the milliseconds from `base` to its end."""
    numbers: list[int] = []
    for block in ends.blocks:
        offset = (block.at - base) // 1000
        numbers += [(task.generation << OFFSET_BITS) + offset for task in _tasks(block)]
    return _array(numbers)


def _tasks(ended: SuccessBlock | End) -> Sequence[Task]:
    return (ended.task,) if isinstance(ended, End) else ended.tasks
