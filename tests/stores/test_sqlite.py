"""The embedded store on a real disk: places it cannot live in, files it must not touch, faults it must survive."""

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.events import (
    Event,
    StoreFault,
    StoreRecovered,
    TaskAdded,
    TaskInterrupted,
    TaskPreserved,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from duly.stores import SqliteStore
from duly.stores.sqlite import schema
from duly.stores.sqlite.lock import LockFile
from duly.testing import SimulatedHost
from duly.threads import Inline
from tests.spec.helpers import told
from tests.spec.workload import DELAY, HOURLY, MINUTELY, NEVER_TODAY, Workload
from tests.stores.helpers import (
    change,
    contents,
    create_empty,
    everything,
    files_in,
    full_disk,
    history,
    integrity,
    query,
    stored_state,
    stored_tasks,
    without_privileges,
)


async def nothing() -> None:
    """Work that is done at once."""


REGISTRATIONS = [("a", NEVER_TODAY, nothing, DELAY)]


async def refusal(path: Path | str) -> duly.StoreError:
    """The error of initialize() about a place that it cannot use."""
    with pytest.raises(duly.StoreError) as caught:
        await duly.Scheduler(path).initialize(REGISTRATIONS)
    return caught.value


async def use(path: Path | str, **options: Any) -> None:
    """A short life of a scheduler."""
    scheduler = duly.Scheduler(path, **options)
    await scheduler.initialize(REGISTRATIONS)
    await scheduler.stop()


def link(path: Path, target: Path) -> Path:
    """A symbolic link."""
    path.symlink_to(target)
    return path


def write(path: Path, data: bytes) -> Path:
    """A file with these bytes."""
    path.write_bytes(data)
    return path


def make_folder(path: Path) -> Path:
    """A folder."""
    path.mkdir()
    return path


# --- places ----------------------------------------------------------------------------------------------------------


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """A missing folder is a `StoreError` that says so; it is not created."""
    error = await refusal(tmp_path / "missing" / "state.db")
    assert type(error) is duly.StoreError
    assert str(tmp_path / "missing") in str(error)
    assert "does not exist" in str(error)
    assert error.details["hint"]
    assert error.details["store"] == str(tmp_path / "missing" / "state.db")
    assert files_in(tmp_path) == set()


async def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    """A path below a file is no place either."""
    create_empty(tmp_path / "file")
    assert str(tmp_path / "file") in str(await refusal(tmp_path / "file" / "state.db"))
    assert files_in(tmp_path) == {"file"}


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    """A folder as the path: a `StoreError` that says so."""
    folder = make_folder(tmp_path / "folder")
    assert "is a folder" in str(await refusal(folder))
    assert files_in(folder) == set()


def _refused_as_another_user(path: Path) -> str:
    async def attempt() -> str:
        try:
            await use(path)
        except duly.StoreError as error:
            return f"{error} ({error.details['hint']})"
        return "accepted"

    return without_privileges(lambda: asyncio.run(attempt()))


def test_a_folder_that_cannot_be_written_is_refused(public_folder: Path) -> None:
    """An unwritable path is a `StoreError` that says so: SQLite's WAL and the lock live beside the store."""
    public_folder.chmod(0o555)
    said = _refused_as_another_user(public_folder / "state.db")
    assert str(public_folder) in said
    assert "not writable" in said
    assert files_in(public_folder) == set()


@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_that_cannot_be_read_and_written_is_refused(public_folder: Path, mode: int) -> None:
    """A read-only file is a `StoreError` that says so, and stays as it is."""
    asyncio.run(use(public_folder / "state.db"))
    public_folder.chmod(0o777)
    (public_folder / "state.db").chmod(mode)
    (public_folder / "state.db.lock").chmod(0o666)
    before = contents(public_folder / "state.db") if os.geteuid() == 0 else None
    said = _refused_as_another_user(public_folder / "state.db")
    assert str(public_folder / "state.db") in said
    assert "writable" in said
    if before is not None:
        assert contents(public_folder / "state.db") == before


def test_a_lock_file_that_cannot_be_opened_is_named(public_folder: Path) -> None:
    """Somebody else's lock file beside a store of one's own: the error says which file it is."""
    create_empty(public_folder / "state.db.lock")
    (public_folder / "state.db.lock").chmod(0o000)
    public_folder.chmod(0o777)
    said = _refused_as_another_user(public_folder / "state.db")
    assert "state.db.lock" in said
    assert files_in(public_folder) == {"state.db.lock"}


@pytest.mark.parametrize(
    "name",
    [
        "with blank.db",
        "per%20cent.db",
        "question?mark=1.db",
        "hash#tag.db",
        "ünï☂.db",
        "'quote\".db",
        "no-suffix",
        "-dash",
    ],
)
async def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    """A path is a path, whatever it would mean in a URI."""
    for _ in range(2):
        await use(tmp_path / name)
    assert files_in(tmp_path) == {name, f"{name}.lock"}


async def test_a_file_name_that_is_no_text_will_do(tmp_path: Path) -> None:
    """POSIX file names are bytes; Python hands them on as surrogates."""
    name = os.fsdecode(b"caf\xe9.db")
    for _ in range(2):
        await use(tmp_path / name)
    assert files_in(tmp_path) == {name, f"{name}.lock"}


async def test_a_relative_path_means_the_folder_it_was_given_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon may change its folder between construction and initialize()."""
    make_folder(tmp_path / "first")
    make_folder(tmp_path / "second")
    monkeypatch.chdir(tmp_path / "first")
    scheduler = duly.Scheduler("state.db")
    monkeypatch.chdir(tmp_path / "second")
    await scheduler.initialize(REGISTRATIONS)
    await scheduler.stop()
    assert files_in(tmp_path / "first") == {"state.db", "state.db.lock"}
    assert files_in(tmp_path / "second") == set()


# --- files that are not ours, or not any more ------------------------------------------------------------------------


def _foreign(path: Path, *, application_id: int = 0, wal: bool = False) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE customers (name)")
        connection.execute("INSERT INTO customers VALUES ('important')")
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.commit()


STRANGERS: dict[str, tuple[Callable[[Path], object], type[duly.StoreError], str]] = {
    "text": (lambda path: write(path, b"Dear diary,\n" * 500), duly.StoreCorruptedError, "not a database"),
    "a single byte": (lambda path: write(path, b"x"), duly.StoreCorruptedError, "not a database"),
    "a line of text": (lambda path: write(path, b"Dear diary,\n"), duly.StoreCorruptedError, "not a database"),
    "noise": (lambda path: write(path, random.Random(1).randbytes(8192)), duly.StoreCorruptedError, "not a database"),
    "zeros": (lambda path: write(path, bytes(8192)), duly.StoreCorruptedError, "not a database"),
    "another database": (_foreign, duly.StoreError, "something else"),
    "another application's": (
        lambda path: _foreign(path, application_id=0x47504B47),
        duly.StoreError,
        "something else",
    ),
    "another database in WAL mode": (lambda path: _foreign(path, wal=True), duly.StoreError, "something else"),
}


@pytest.mark.parametrize("kind", STRANGERS)
async def test_a_file_that_is_not_ours_is_refused_and_left_alone(store: Path, kind: str) -> None:
    """Not a database, a database of something else: a clear error, and not a byte changed, nothing put beside it."""
    make, error_type, words = STRANGERS[kind]
    make(store)
    before, beside = contents(store), files_in(store.parent)
    error = await refusal(store)
    assert type(error) is error_type
    assert str(store) in str(error)
    assert words in str(error)
    assert error.details["hint"]
    assert contents(store) == before
    assert files_in(store.parent) == beside


async def test_a_foreign_database_that_is_in_use_is_refused_and_left_alone(store: Path) -> None:
    """Its own program has it open, with a WAL: we look through SQLite, and see that it is not ours."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE customers (name)")
        connection.commit()
        before = contents(store)
        assert "something else" in str(await refusal(store))
        assert contents(store) == before
        connection.execute("INSERT INTO customers VALUES ('still ours')")
        connection.commit()
    assert integrity(store) == "ok"


@pytest.mark.parametrize("version", [schema.VERSION + 1, 99, 0])
async def test_another_schema_version_is_refused_and_left_alone(store: Path, version: int) -> None:
    """A newer schema: `StoreVersionError`, which says what was found and what is supported."""
    await use(store)
    change(store, f"PRAGMA user_version = {version}")
    before = contents(store)
    error = await refusal(store)
    assert isinstance(error, duly.StoreVersionError)
    assert (error.details["found"], error.details["supported"]) == (version, schema.VERSION)
    assert contents(store) == before
    assert files_in(store.parent) == {store.name, f"{store.name}.lock"}


async def test_an_empty_file_is_a_new_store(store: Path) -> None:
    """An empty file is a new store."""
    create_empty(store)
    await use(store)
    assert set(stored_tasks(store)) == {"a"}


@pytest.mark.parametrize("with_wal", [False, True])
async def test_a_database_that_was_never_filled_is_a_new_store(store: Path, tmp_path: Path, with_wal: bool) -> None:
    """SPEC 4.5: what a first initialize() leaves that is killed before its commit must not be refused for ever."""
    draft = make_folder(tmp_path / "draft") / store.name
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # as far as the store got
        if with_wal:
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("BEGIN IMMEDIATE")
            for index in range(200):  # pages spill into the WAL before any commit
                connection.execute(f"CREATE TABLE t{index} (x)")
        for suffix, left in contents(draft).items():  # what a kill leaves
            write(Path(f"{store}{suffix}"), left)
    assert contents(store)[""]
    assert ("-wal" in contents(store)) == with_wal
    await use(store)
    assert set(stored_tasks(store)) == {"a"}
    assert integrity(store) == "ok"


async def test_a_wal_that_a_deleted_store_left_behind_does_not_come_back(store: Path) -> None:
    """After the store was deleted, everything begins anew, even if its WAL was left behind."""
    old = store.with_name("old.db")
    scheduler = duly.Scheduler(old)
    await scheduler.initialize([("old", NEVER_TODAY, nothing, DELAY)])
    shutil.copyfile(f"{old}-wal", f"{store}-wal")
    await scheduler.stop()
    await use(store)
    assert set(stored_tasks(store)) == {"a"}
    assert integrity(store) == "ok"


# --- damage ----------------------------------------------------------------------------------------------------------

RAN = "last_attempt_at IS NOT NULL"
DAMAGE: dict[str, tuple[str, type[duly.TaskTryDeserializeError], str | None]] = {
    "name is a number": ("UPDATE tasks SET name = x'00' WHERE name = 'a'", duly.TaskInvalidTypeError, "name"),
    "name is empty": ("UPDATE tasks SET name = '' WHERE name = 'a'", duly.TaskInvalidValueError, "name"),
    "cron is a blob": ("UPDATE tasks SET cron = x'FF' WHERE name = 'a'", duly.TaskInvalidTypeError, "cron"),
    "cron is not UTF-8": (
        "UPDATE tasks SET cron = CAST(x'302030202AFF' AS TEXT) WHERE name = 'a'",
        duly.TaskInvalidTypeError,
        "cron",
    ),
    "cron is nonsense": ("UPDATE tasks SET cron = '* * *' WHERE name = 'a'", duly.TaskInvalidValueError, "cron"),
    "cron can never match": (
        "UPDATE tasks SET cron = '0 0 30 2 *' WHERE name = 'a'",
        duly.TaskInvalidValueError,
        "cron",
    ),
    "delay is text": ("UPDATE tasks SET delay_ms = 'soon'", duly.TaskInvalidTypeError, "delay_ms"),
    "delay is a fraction": ("UPDATE tasks SET delay_ms = 1.5", duly.TaskInvalidTypeError, "delay_ms"),
    "delay is negative": ("UPDATE tasks SET delay_ms = -1", duly.TaskInvalidValueError, "delay_ms"),
    "known since the stone age": (
        "UPDATE tasks SET known_since = -9000000000000000000",
        duly.TaskInvalidValueError,
        "known_since",
    ),
    "mark is text": ("UPDATE states SET served_through = 'x'", duly.TaskInvalidTypeError, "served_through"),
    "mark beyond the calendar": (
        "UPDATE states SET served_through = 999999999999",
        duly.TaskInvalidValueError,
        "served_through",
    ),
    "attempt is a fraction": (
        f"UPDATE states SET last_attempt_at = 0.5 WHERE {RAN}",
        duly.TaskInvalidTypeError,
        "last_attempt_at",
    ),
    "failures negative": ("UPDATE states SET failures = -3", duly.TaskInvalidValueError, "failures"),
    "interruptions are text": ("UPDATE states SET interruptions = 'x'", duly.TaskInvalidTypeError, "interruptions"),
    "writer zero": ("UPDATE states SET written_by = 0", duly.TaskInvalidValueError, "written_by"),
    "a run that never began": (
        "UPDATE states SET run = 5 WHERE last_attempt_at IS NULL",
        duly.TaskInvalidStructureError,
        None,
    ),
    "a run without cause": (
        f"UPDATE states SET run = 5, run_scheduled = 1 WHERE {RAN}",
        duly.TaskMissingFieldError,
        "run_cause",
    ),
    "a run of no known cause": (
        f"UPDATE states SET run = 5, run_scheduled = 1, run_cause = 'magic' WHERE {RAN}",
        duly.TaskInvalidValueError,
        "run_cause",
    ),
    "a run that serves nothing": (
        f"UPDATE states SET run = 5, run_cause = 'cron' WHERE {RAN}",
        duly.TaskMissingFieldError,
        "run_scheduled",
    ),
    "a retry without a failure": (
        f"UPDATE states SET pending_retry_until = 1 WHERE {RAN}",
        duly.TaskInvalidStructureError,
        None,
    ),
    "an outcome without an attempt": (
        "UPDATE states SET last_success_at = 1 WHERE last_attempt_at IS NULL",
        duly.TaskInvalidStructureError,
        None,
    ),
    "a task without a state": (
        "DELETE FROM states WHERE generation = (SELECT max(generation) FROM states)",
        duly.TaskTryDeserializeError,
        None,
    ),
    "a state without a task": (
        "INSERT INTO states (generation, served_through, failures, interruptions, written_by) VALUES (99, 0, 0, 0, 1)",
        duly.TaskInvalidStructureError,
        None,
    ),
}
"""Damage to a store, the error that names it, and the field it blames."""


@pytest.mark.parametrize("in_wal", [False, True], ids=["in the file", "in the WAL"])
@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_record_is_refused_by_name_and_the_store_stays_as_it_is_byte_for_byte(
    host: SimulatedHost, work: Workload, store: Path, damage: str, in_wal: bool
) -> None:
    """SPEC 5.5: its `TaskTryDeserializeError` subclass; main file and WAL are left exactly as they were."""
    statement, error_type, blamed = DAMAGE[damage]
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", "0 12 * * *"), work.task("b", NEVER_TODAY)])
    await host.advance(seconds=1)
    await scheduler.stop()
    if in_wal:
        damage_in_wal(store, statement)
    else:
        change(store, statement)
    before = contents(store)
    assert ("-wal" in before) == in_wal
    with pytest.raises(error_type) as caught:
        await host.scheduler().initialize([work.task("c")])
    assert caught.value.details.get("field") == blamed
    assert contents(store) == before
    # It stays refused, and nobody holds it.
    with pytest.raises(error_type):
        await host.scheduler().initialize([])
    assert contents(store) == before


def damage_in_wal(store: Path, statement: str) -> None:
    """Change a store so that the change stands in its WAL only, as after a crash."""
    copy = store.with_name("copy")
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(statement)
        connection.commit()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{store}{suffix}", f"{copy}{suffix}")
    for suffix in ("", "-wal"):
        shutil.move(f"{copy}{suffix}", f"{store}{suffix}")


def test_every_subclass_of_the_deserialisation_error_is_among_them() -> None:
    """SPEC 5.5: the table above leaves none out."""
    assert {error for _, error, _ in DAMAGE.values()} >= set(duly.TaskTryDeserializeError.__subclasses__())


@pytest.mark.parametrize("table", ["tasks", "states", "meta", "sqlite_master"])
async def test_a_damaged_page_is_a_corrupted_store_and_stays_as_it_is(store: Path, table: str) -> None:
    """A damaged file: `StoreCorruptedError`, and nothing is made worse."""
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([(f"task {index}", NEVER_TODAY, nothing, DELAY) for index in range(500)])
    await scheduler.stop()
    page = (
        1
        if table == "sqlite_master"
        else query(store, "SELECT rootpage FROM sqlite_master WHERE name = ?", table)[0][0]
    )
    _scribble(store, (page - 1) * 4096 + (100 if page == 1 else 0), 3900)
    before = contents(store)
    with pytest.raises((duly.StoreError, duly.TaskTryDeserializeError)) as caught:
        await duly.Scheduler(store).initialize(REGISTRATIONS)
    assert isinstance(caught.value, duly.StoreCorruptedError | duly.TaskTryDeserializeError)
    assert contents(store) == before


def _scribble(path: Path, offset: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(random.Random(offset).randbytes(length))


async def test_a_truncated_file_is_a_corrupted_store_and_stays_as_it_is(store: Path) -> None:
    """A copy that was cut short."""
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([(f"task {index}", NEVER_TODAY, nothing, DELAY) for index in range(500)])
    await scheduler.stop()
    os.truncate(store, 3 * 4096)
    before = contents(store)
    with pytest.raises(duly.StoreCorruptedError):
        await duly.Scheduler(store).initialize(REGISTRATIONS)
    assert contents(store) == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta",
        "DELETE FROM meta WHERE key = 'generation'",
        "UPDATE meta SET value = 'x' WHERE key = 'run'",
        "UPDATE meta SET value = 1.5 WHERE key = 'written'",
        "DROP TABLE meta",
        "DROP TABLE states",
        "DROP TABLE schedulers",
    ],
)
async def test_a_store_without_its_counters_or_tables_is_refused_and_stays_as_it_is(
    store: Path, statement: str
) -> None:
    """Ours by its mark, but not what duly writes: an error that names the store, and nothing is changed."""
    await use(store)
    change(store, statement)
    before = contents(store)
    error = await refusal(store)
    assert str(store) in str(error)
    assert contents(store) == before


# --- what it puts on the disk ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077])
async def test_every_file_it_creates_is_private(store: Path, umask: int) -> None:
    """Names of tasks and reasons of failures are private: 0600, whatever the umask."""
    old = os.umask(umask)
    try:
        scheduler = duly.Scheduler(store)
        await scheduler.initialize(REGISTRATIONS)
        assert files_in(store.parent) == {store.name, f"{store.name}-wal", f"{store.name}-shm", f"{store.name}.lock"}
        assert set(_modes(store.parent).values()) == {0o600}
        await scheduler.stop()
    finally:
        os.umask(old)
    assert set(_modes(store.parent).values()) == {0o600}


def _modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_wal_and_full_synchronisation_are_in_force(store: Path) -> None:
    """A write that is reported as durable survives a loss of power: WAL, and `synchronous=FULL`."""
    embedded = SqliteStore(store)
    scheduler = duly.Scheduler(embedded)
    await scheduler.initialize(REGISTRATIONS)
    assert query(store, "PRAGMA journal_mode") == [("wal",)]
    assert embedded._connection is not None
    assert embedded._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    await scheduler.stop()
    assert query(store, "PRAGMA journal_mode") == [("wal",)]


async def test_two_names_of_one_file_are_one_store(store: Path, tmp_path: Path) -> None:
    """SPEC 5.7: links are followed: the lock is the file's, not the name's."""
    make_folder(tmp_path / "elsewhere")
    names = [
        link(tmp_path / "link.db", store),
        link(tmp_path / "elsewhere" / "link.db", tmp_path / "link.db"),
        link(tmp_path / "folder", tmp_path) / store.name,
        tmp_path / "elsewhere" / ".." / store.name,
    ]
    scheduler = duly.Scheduler(names[0])  # a link to what does not exist yet
    await scheduler.initialize(REGISTRATIONS)
    for name in [store, *names]:
        with pytest.raises(duly.StoreLockedError) as caught:
            await duly.Scheduler(name).initialize(REGISTRATIONS)
        assert caught.value.details["store"] == str(store)
    await scheduler.stop()
    await use(names[1])
    assert set(stored_tasks(store)) == {"a"}
    assert len([name for name in files_in(tmp_path) if name.endswith(".lock")]) == 1


async def test_what_the_holder_writes_before_it_leaves_is_known_to_the_next_one(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 5.7, 5.1: a store is loaded under its lock: what was read before may be out of date by then.

    The next scheduler is about to take the lock when the one that holds it declares another task and stops.
    """
    holder = duly.Scheduler(store)
    await holder.initialize(REGISTRATIONS)
    more = [*REGISTRATIONS, ("b", NEVER_TODAY, nothing, DELAY)]
    event_loop = asyncio.get_running_loop()
    acquire = LockFile.acquire

    async def declare_and_stop() -> None:
        await holder.initialize(more)
        await holder.stop()

    def acquire_late(lock: LockFile, *arguments: Any) -> None:
        monkeypatch.setattr(LockFile, "acquire", acquire)
        asyncio.run_coroutine_threadsafe(declare_and_stop(), event_loop).result(60)
        acquire(lock, *arguments)

    events: list[Event] = []
    monkeypatch.setattr(LockFile, "acquire", acquire_late)
    scheduler = duly.Scheduler(store, on_event=events.append)
    await scheduler.initialize(more)
    await scheduler.stop()
    assert LockFile.acquire is acquire, "nobody took the lock"
    assert [event.task_name for event in events if isinstance(event, TaskPreserved)] == ["a", "b"]
    assert not [event for event in events if isinstance(event, TaskAdded)]
    assert query(store, "SELECT name FROM tasks ORDER BY generation") == [("a",), ("b",)]


async def test_the_lock_file_stays_says_who_holds_it_and_when_the_last_poll_was(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """Never unlinked; holder text while held, none afterwards; its modification time is the last poll."""
    lock = f"{store}.lock"
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a")])
    await host.advance()
    assert str(os.getpid()) in _text(lock)
    os.utime(lock, (1, 1))
    begun = time.time() - 2
    await host.advance(minutes=1)
    assert os.stat(lock).st_mtime >= begun
    await scheduler.stop()
    assert _text(lock) == ""


def _text(path: str) -> str:
    return Path(path).read_text()


async def test_a_store_in_memory_leaves_nothing_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`":memory:"`: no file of that name, no lock, and two of them have nothing to do with each other."""
    monkeypatch.chdir(tmp_path)
    first, second = duly.Scheduler(":memory:"), duly.Scheduler(":memory:")
    await first.initialize(REGISTRATIONS)
    await second.initialize([])
    await first.stop()
    await second.stop()
    assert files_in(tmp_path) == set()


# --- history and growth ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0, 5])
async def test_the_scheduler_hands_its_bound_of_history_to_the_store(
    host: SimulatedHost, work: Workload, store: Path, bound: int
) -> None:
    """`history` is the number of run records kept; the newest stay."""
    scheduler = host.scheduler(history=bound)
    await scheduler.initialize([work.task("a"), work.task("b", fails=True, delay=timedelta(hours=1))])
    await host.advance(minutes=10)
    assert len(history(store)) == bound
    newest = query(store, "SELECT max(run) FROM runs")[0][0]
    assert newest == (22 if bound else None)
    assert len(work.begun) == 22


def test_the_default_bound_is_a_hundred_thousand(store: Path) -> None:
    """Default: newest 100,000 rows."""
    assert SqliteStore(store).history == 100_000


async def test_identifiers_of_schedulers_long_gone_are_forgotten(store: Path) -> None:
    """SPEC 5.4: the table stays bounded, and a scheduler that a record names stays in it."""
    await use(store)
    ((author,),) = query(store, "SELECT identifier FROM schedulers")
    change(
        store,
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) "
        "INSERT INTO schedulers SELECT i, 'visitor ' || i, 0 FROM n",
    )
    await use(store)
    identifiers = {identifier for (identifier,) in query(store, "SELECT identifier FROM schedulers")}
    assert author in identifiers
    assert len(identifiers) <= 1_000


# --- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("existing", [False, True], ids=["no file", "an empty file"])
async def test_a_full_disk_at_the_start_leaves_no_file_or_an_empty_one(store: Path, existing: bool) -> None:
    """SPEC 4.5: store as before, and when there is room the same scheduler starts."""
    if existing:
        create_empty(store)
    scheduler = duly.Scheduler(store)
    with full_disk():
        call = asyncio.ensure_future(scheduler.initialize(REGISTRATIONS))
        await asyncio.wait([call])
    error = call.exception()
    assert isinstance(error, duly.ScheduleTaskError)
    assert isinstance(error.__cause__, duly.StoreError)
    assert contents(store) == ({"": b""} if existing else {})
    assert files_in(store.parent) == {f"{store.name}.lock"} | ({store.name} if existing else set())
    await scheduler.initialize(REGISTRATIONS)
    await scheduler.stop()
    assert set(stored_tasks(store)) == {"a"}


@pytest.mark.parametrize("room", [0, 100, 4096, 8192, 20_000, 60_000])
async def test_a_disk_that_fills_up_in_the_middle_of_an_initialize_keeps_the_previous_state(
    host: SimulatedHost, work: Workload, store: Path, room: int
) -> None:
    """SPEC 5.2: wherever in the transaction the disk ends, nothing of it is there afterwards."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("old", HOURLY)])
    before = everything(store)
    many = [work.task(f"new {index}", HOURLY) for index in range(1_000)]
    with full_disk(room=room):
        call = asyncio.ensure_future(scheduler.initialize(many))
        await asyncio.wait([call])
    assert isinstance(call.exception(), duly.ScheduleTaskError)
    assert everything(store) == before
    await host.advance_to("2024-01-01T13:00")
    assert work.begun == [("old", "13:00:00")]
    await scheduler.initialize(many)
    assert len(stored_tasks(store)) == 1_000
    assert integrity(store) == "ok"


@pytest.mark.parametrize("room", [0, 4096, 20_000, 100_000, 400_000])
async def test_a_disk_that_fills_up_while_running_is_reported_retried_and_nothing_is_lost(
    host: SimulatedHost, work: Workload, store: Path, room: int
) -> None:
    """SPEC 4.6: starts and ends alike, wherever the disk ends; each run is recorded exactly once afterwards."""
    scheduler = host.scheduler()
    await scheduler.initialize(
        [work.task(f"t{index:03}", "1,2,3 12 * * *", takes=50, fails=index % 3 == 0) for index in range(300)]
    )
    await host.advance_to("2024-01-01T12:01:10")
    with full_disk(room=room):
        await host.advance_to("2024-01-01T12:02:10")  # the ends of the first runs, then the starts of the second
    await host.advance_to("2024-01-01T12:04:30")
    assert integrity(store) == "ok"
    begun, ended = len(told(host, TaskRunStarted)), len(told(host, TaskRunCompleted)) + len(told(host, TaskRunFailed))
    assert begun == ended == len(work.begun) == len(history(store)) >= 900
    assert query(store, "SELECT count(*), count(DISTINCT run) FROM runs") == [(begun, begun)]
    assert query(store, "SELECT count(*) FROM states WHERE run IS NOT NULL") == [(0,)]
    faults, recoveries = told(host, StoreFault), told(host, StoreRecovered)
    assert len(faults) == len(recoveries)
    if room <= 20_000:  # there is no room for the first batch of ends
        assert faults
    await host.crash()
    await host.scheduler().initialize([work.task(f"t{index:03}", "1,2,3 12 * * *") for index in range(300)])
    assert told(host, TaskInterrupted) == []


async def test_sqlites_own_word_for_a_full_disk_is_passed_on(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 4.6: SQLITE_FULL, as a file system without room answers, is reported in words that help."""
    embedded = SqliteStore(store, worker=Inline())
    scheduler = host.scheduler(store=embedded)
    await scheduler.initialize([work.task("a", HOURLY)])
    assert embedded._connection is not None
    pages = embedded._connection.execute("PRAGMA page_count").fetchone()[0]
    embedded._connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [work.task(f"a task with quite a long name {index}", HOURLY) for index in range(2_000)]
    with pytest.raises(duly.ScheduleTaskError) as caught:
        await scheduler.initialize(many)
    assert isinstance(caught.value.__cause__, duly.StoreError)
    assert "disk is full" in str(caught.value)
    assert caught.value.__cause__.details["code"] == "SQLITE_FULL"
    embedded._connection.execute("PRAGMA max_page_count = 1000000")
    await scheduler.initialize(many)
    assert len(stored_tasks(store)) == 2_000
    await scheduler.stop()


async def test_a_full_disk_while_running_is_told_once_and_so_is_its_end(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.6: a fault of hours is one report, not thousands."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a")])
    await host.advance(seconds=20)
    with full_disk():
        await host.advance(hours=2)
    await host.advance(minutes=1)
    assert len(told(host, StoreFault)) == len(told(host, StoreRecovered)) == 1
    fault = told(host, StoreFault)[0]
    assert fault.level > told(host, StoreRecovered)[0].level
    assert stored_state(store, "a")["last_success_at"] is not None


# --- other programs --------------------------------------------------------------------------------------------------


async def test_a_foreign_writer_that_holds_a_lock_is_a_fault_that_passes(
    host: SimulatedHost, work: Workload, store: Path
) -> None:
    """SPEC 4.6: a lock held by another program: reported, retried, recovered, nothing lost."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", takes=10)])
    await host.advance(seconds=5)
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        await host.advance(seconds=5.05)
        (fault,) = told(host, StoreFault)
        assert "locked by another program" in fault.error
        with pytest.raises(duly.ScheduleTaskError) as caught:
            await scheduler.initialize([work.task("a", takes=10), work.task("b")])
        assert "locked by another program" in str(caught.value)
        foreign.execute("ROLLBACK")
    await host.advance(seconds=5)
    assert len(told(host, StoreRecovered)) == 1
    assert history(store) == [("a", "cron", "success")]
    assert set(stored_tasks(store)) == {"a"}
    await host.advance_to("2024-01-01T12:01:30")
    assert work.starts("a") == ["12:00:30", "12:01:00"]


async def test_a_foreign_reader_disturbs_nobody(host: SimulatedHost, work: Workload, store: Path) -> None:
    """A tool that reads for minutes sees one moment of the store; the scheduler goes on writing."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a")])
    await host.advance()
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM runs").fetchone()
        await host.advance(minutes=10)
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == before
        reader.execute("ROLLBACK")
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (11,)
    await scheduler.stop()
    assert told(host, StoreFault) == []


async def test_a_crash_between_two_commits_loses_neither(host: SimulatedHost, work: Workload, store: Path) -> None:
    """SPEC 3.9: what was durable when the process died is what the next one finds, WAL included."""
    scheduler = host.scheduler()
    await scheduler.initialize([work.task("a", MINUTELY), work.task("long", HOURLY, takes=600)])
    await host.advance_to("2024-01-01T13:00:30")
    await host.crash()
    assert len([entry for entry in history(store) if entry == ("a", "cron", "success")]) == 61
    await host.scheduler().initialize([work.task("a", MINUTELY), work.task("long", HOURLY, takes=600)])
    assert [event.task_name for event in told(host, TaskInterrupted)] == ["long"]
    assert integrity(store) == "ok"
