"""Stores are read as they are: live, crashed, copied or damaged, and never changed by it."""

import fcntl
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from duly.cli.output import Exit, failure_of
from duly.cli.store import unknown_task
from duly.errors import (
    DulyError,
    StoreCorruptedError,
    StoreError,
    StoreUnusedError,
    StoreVersionError,
    TaskInvalidStructureError,
    TraceError,
)
from duly.stores import SqliteReader, View
from duly.stores.port import Holder, TaskSelection
from duly.stores.sqlite import schema
from duly.stores.sqlite.lock import LockFile, read_holder
from duly.stores.sqlite.reader import SqliteView
from tests.cli.program import Service, ago, duly, failing, fingerprint, forever, nothing, simulated, write_target
from tests.stores.helpers import change, contents_of, older_layout, query, read, without_privileges

HOUR = timedelta(hours=1)


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A store that was used for some minutes and then stopped."""
    path = tmp_path / "state.db"
    async with simulated(path, ago(minutes=10)) as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("good", "* * * * *", nothing, HOUR), ("bad", "* * * * *", failing, HOUR)])
        await host.advance(minutes=2)
        await scheduler.initialize([("good", "* * * * *", nothing, HOUR)])
        await scheduler.stop()
    return path


def test_a_live_store_is_read_while_its_scheduler_runs(tmp_path: Path) -> None:
    """The holder is alive and known by name; main file, log and lock stay as they are, and no file is added."""
    write_target(tmp_path, '[("backup", "* * * * *", endless, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted")
        with service.frozen():
            before = fingerprint(tmp_path)
            found = contents_of(tmp_path / "state.db")
            assert fingerprint(tmp_path) == before
        assert "state.db-wal" in before
    holder = found.snapshot.holder
    assert (holder.alive, holder.pid) == (True, service.pid)
    assert holder.since is not None
    assert holder.last_poll_at is not None
    assert holder.last_poll_at <= found.snapshot.at
    assert [(task.name, task.running, task.interrupted) for task in found.tasks] == [("backup", True, False)]
    assert [(run.task, run.outcome) for run in found.runs] == [("backup", "running")]
    assert len(found.snapshot.arrivals) == 1


def test_after_a_kill_the_holder_is_dead_and_known(tmp_path: Path) -> None:
    """The kernel released the lock; what was marked running is interrupted, before and after the next start."""
    write_target(
        tmp_path, '[("backup", "0 0 1 1 *", endless, timedelta(0)), ("now", "* * * * *", endless, timedelta(0))]'
    )
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted")
        service.send(signal.SIGKILL)
        service.end()
    before = fingerprint(tmp_path)
    found = contents_of(tmp_path / "state.db")
    assert fingerprint(tmp_path) == before
    assert (found.snapshot.holder.alive, found.snapshot.holder.pid) == (False, service.pid)
    assert [task.interrupted for task in found.tasks] == [False, True]
    assert [run.outcome for run in found.runs] == ["interrupted"]
    # The next scheduler was told to wait: its store still names the run, which is nobody's.
    write_target(tmp_path, '[("backup", "0 0 1 1 *", endless, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        assert [task.name for task in contents_of(tmp_path / "state.db").tasks] == ["backup"]


async def test_an_interrupted_run_that_waits_is_not_running(tmp_path: Path) -> None:
    """interrupted="wait": a living scheduler holds the store, and the record of the dead one's run still stands."""
    path = tmp_path / "state.db"
    async with simulated(path, ago(minutes=5)) as host:
        tasks = [("long", "0 0 1 1 *", forever, HOUR), ("now", f"{host.now.minute} * * * *", forever, HOUR)]
        await host.scheduler().initialize(tasks)
        await host.advance(seconds=1)
        await host.crash()
        for history in (100, 0):
            await host.scheduler(interrupted="wait", history=history).initialize(tasks)
            found = contents_of(path)
            assert found.snapshot.holder.alive
            assert [(task.name, task.running, task.interrupted) for task in found.tasks] == [
                ("long", False, False),
                ("now", False, True),
            ]
            assert len(found.runs) == 1
            assert found.runs[0].outcome == "interrupted"
            await host.crash()


def test_a_stopped_store_is_read_without_any_helper_file(store: Path) -> None:
    """No write-ahead log, no holder: the file stands still, and stands alone. Orphaned tasks stay in history."""
    before = fingerprint(store.parent)
    assert set(before) == {"state.db", "state.db.lock"}
    found = contents_of(store)
    assert fingerprint(store.parent) == before
    assert [task.name for task in found.tasks] == ["good"]
    assert {run.task for run in found.runs} == {"good", "bad"}
    assert [each.retired_at is None for each in read(store, lambda view: view.declarations("bad"))] == [False]
    assert read(store, lambda view: view.history_begins()) == min(run.started_at for run in found.runs)
    assert (found.snapshot.holder.alive, found.snapshot.holder.pid) == (False, None)


async def test_a_copy_with_its_log_but_without_its_index_is_read(tmp_path: Path) -> None:
    """A backup of files: SQLite would have to create `-shm` beside it, so a private copy is read instead."""
    path = tmp_path / "state.db"
    copy = tmp_path / "copy"
    copy.mkdir()
    async with simulated(path, ago(minutes=5)) as host:
        await host.scheduler().initialize([("task", "* * * * *", nothing, HOUR)])
        await host.advance(minutes=2)
        for name in ("state.db", "state.db-wal"):
            shutil.copyfile(tmp_path / name, copy / name)
        expected = contents_of(path)
    before = fingerprint(copy)
    found = contents_of(copy / "state.db")
    assert fingerprint(copy) == before
    assert found.runs == expected.runs
    assert found.runs
    assert found.snapshot.holder.last_poll_at is None


@pytest.mark.parametrize("copied", [False, True])
def test_nothing_can_be_written_through_a_reader(store: Path, *, copied: bool) -> None:
    """WEB 4: `query_only`. Temporary tables are the reader's own, and made within its methods alone."""
    writer = sqlite3.connect(store, isolation_level=None)
    writer.execute("UPDATE meta SET value = 'Asia/Tokyo' WHERE key = 'zone'")
    if copied:
        Path(f"{store}-shm").rename(f"{store}-hidden")

    def question(view: View) -> int:
        connection = cast("SqliteView", view)._connection
        found = view.page(TaskSelection(order="expression", ranks={"* * * * *": 1}), 5)
        for statement in ("DELETE FROM runs", "CREATE TABLE mine (a)", "CREATE TEMP TABLE mine (a)"):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute(statement)
        return len(found)

    assert read(store, question) == 1
    writer.close()


def test_what_is_written_to_while_it_is_copied_is_copied_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the index cannot be shared, files are copied: a log of before and a file of after are no answer."""
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("UPDATE meta SET value = 'Asia/Tokyo' WHERE key = 'zone'")
    Path(f"{store}-shm").rename(f"{store}-hidden")
    assert [run.task for run in contents_of(store).runs]
    copied: list[str] = []
    copyfile = shutil.copyfile

    def disturbed(source: str, target: str) -> None:
        copyfile(source, target)
        copied.append(source)
        if len(copied) == 1:
            connection.execute("BEGIN")
            connection.execute("UPDATE meta SET value = 'Asia/Seoul' WHERE key = 'zone'")
            connection.execute("DELETE FROM runs")
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    monkeypatch.setattr(shutil, "copyfile", disturbed)
    found = contents_of(store)
    connection.close()
    assert (found.snapshot.zone, found.runs) == ("Asia/Seoul", [])
    assert copied == [f"{store}-wal", str(store)] * 2


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_an_older_layout_is_read_and_left_as_it_is(store: Path, version: int) -> None:
    """A scheduler migrates it when it takes over; a reader looks at a migrated copy in memory."""
    expected = contents_of(store)
    older_layout(store, version)
    before = fingerprint(store.parent)
    found = contents_of(store)
    assert fingerprint(store.parent) == before
    assert found.snapshot.schema_version == version
    # When a callback was called is not in older layouts.
    assert (found.tasks, found.runs) == (expected.tasks, [run._replace(called_at=None) for run in expected.runs])


def test_links_and_odd_names_lead_to_the_store(store: Path) -> None:
    """A link is followed to the file beside which the lock lies; a path may need quoting in a URI."""
    odd = store.with_name("50% ? #1.db")
    store.rename(odd)
    store.with_name("state.db.lock").rename(str(odd) + ".lock")
    link = store.with_name("link.db")
    link.symlink_to(odd)
    found = contents_of(link).snapshot
    assert found.store == str(odd)
    assert found.holder.last_poll_at is not None


# --- what cannot be read ---------------------------------------------------------------------------------------------


def failure(path: Path) -> DulyError:
    before = fingerprint(path.parent) if path.parent.is_dir() else {}
    with pytest.raises(DulyError) as caught:
        contents_of(path)
    assert (fingerprint(path.parent) if path.parent.is_dir() else {}) == before
    return caught.value


def test_what_is_no_store_is_named(store: Path) -> None:
    """Missing (with a suggestion), a folder, empty, not a database, another program's, a newer duly's."""
    folder = store.parent
    missing = failure(folder / "stat.db")
    assert missing.message == f"no such store: {folder}/stat.db"
    assert (type(missing), missing.details["hint"]) == (StoreUnusedError, f"did you mean {store}?")
    assert "does not exist" in failure(folder / "nowhere" / "state.db").details["hint"]
    assert "is a folder" in failure(folder).message
    alone = failure(Path(":memory:"))
    assert "only its own process sees a store in memory" in alone.details["hint"]
    assert type(alone) is StoreUnusedError  # `duly plan` takes it for a store that has no tasks
    (folder / "empty.db").touch()
    unused = failure(folder / "empty.db")
    assert (type(unused), unused.message) == (
        StoreUnusedError,
        f"no scheduler has used this store yet: {folder}/empty.db",
    )
    (folder / "text.db").write_text("this is not a database " * 100)
    assert "is not a database" in failure(folder / "text.db").message
    foreign = sqlite3.connect(folder / "foreign.db")
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    assert "is a database of something else" in failure(folder / "foreign.db").message
    connection = sqlite3.connect(store)
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    newer = failure(store)
    assert f"has schema version {schema.VERSION + 1}, this duly reads up to {schema.VERSION}" in newer.message
    assert (type(newer), failure_of(newer).code) == (StoreVersionError, Exit.STORE)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE states SET served_through = 'noon'", "Invalid type for field 'served_through'"),
        ("DELETE FROM states", "0 states for 1 tasks"),
        ("UPDATE tasks SET cron = 'at noon' WHERE retired_at IS NULL", "Invalid value for field 'cron'"),
    ],
)
def test_a_record_that_duly_did_not_write_is_named(damage: str, message: str, store: Path) -> None:
    """SPEC 5.5, with one clear message at the command line."""
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute(damage)
    connection.close()
    found = failure_of(failure(store))
    assert message in found.message
    assert (found.code, found.hint is not None) == (Exit.STORE, True)


def test_a_damaged_file_is_named_at_the_command_line(store: Path) -> None:
    """One message, the documented code, no traceback."""
    text = bytearray(store.read_bytes())
    text[1024:] = b"\xff" * (len(text) - 1024)
    store.write_bytes(text)
    ended = duly("status", "--store", store, folder=store.parent)
    assert (ended.code, ended.out) == (4, "")
    assert "is damaged" in ended.err
    assert "restore a backup" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("names", "mistyped", "hint"),
    [
        (["backup", "report"], "bakcup", "did you mean backup?"),
        (["backup", "report"], "x", "the store has backup, report"),
        (
            [f"task-{n:02}" for n in range(20)],
            "x",
            "the store has " + ", ".join(f"task-{n:02}" for n in range(8)) + " and 12 more",
        ),
        ([], "x", "the store has no tasks"),
    ],
)
async def test_an_unknown_task_gets_a_suggestion_or_a_list(
    tmp_path: Path, names: list[str], mistyped: str, hint: str
) -> None:
    """A typing error is corrected; for any other name, what there is is listed."""
    path = tmp_path / "state.db"
    async with simulated(path, ago(minutes=5)) as host:
        await host.scheduler().initialize([(name, "0 0 1 1 *", nothing, HOUR) for name in names])
        assert read(path, lambda view: unknown_task(view, mistyped)).hint == hint


# --- the lock --------------------------------------------------------------------------------------------------------


def test_looking_at_the_lock_creates_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    """No lock file: none afterwards. A free one: free afterwards. A held one: held, by whom it says."""
    store = tmp_path / "state.db"
    assert read_holder(str(store)) == Holder(False, None, None, None, None)
    assert list(tmp_path.iterdir()) == []
    lock = LockFile(str(store))
    lock.acquire(ago(minutes=3))
    held = read_holder(str(store))
    assert (held.alive, held.pid) == (True, os.getpid())
    lock.release()
    assert read_holder(str(store)).alive is False
    lock.acquire(ago(minutes=3))
    lock.release()


def test_a_lock_file_with_nonsense_in_it_is_no_disaster(tmp_path: Path) -> None:
    """The text is a courtesy; whether it is locked is what counts."""
    path = tmp_path / "state.db.lock"
    path.write_text('{"pid": "x", "since": 3}')
    found = read_holder(str(tmp_path / "state.db"))
    assert (found.alive, found.pid, found.host, found.since) == (False, None, None, None)
    path.write_bytes(b"\xff\xfe")
    assert read_holder(str(tmp_path / "state.db")).last_poll_at is not None


def test_an_observer_does_not_keep_a_scheduler_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To see whether a holder lives, an observer shares the lock for a moment; who arrives waits for that moment."""
    path = tmp_path / "state.db.lock"
    path.write_text("{}")
    observer = os.open(path, os.O_RDONLY)
    fcntl.flock(observer, fcntl.LOCK_SH)
    attempts: list[int] = []
    flock = fcntl.flock

    def counting(descriptor: int, operation: int) -> Any:
        attempts.append(operation)
        if len(attempts) == 10:
            flock(observer, fcntl.LOCK_UN)
        return flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", counting)
    lock = LockFile(str(tmp_path / "state.db"))
    lock.acquire(ago(minutes=1))
    lock.release()
    os.close(observer)
    assert len(attempts) >= 10


def test_history_is_sorted_by_start(store: Path) -> None:
    """A long run ends after shorter ones that began later; history tells starts in their order."""
    starts = [run.started_at for run in contents_of(store).runs]
    assert starts == sorted(starts)
    assert len(starts) == 6


def test_what_a_question_raises_is_not_blamed_on_the_store(store: Path) -> None:
    """A full disk where the answer is written to says nothing about the store."""
    fault = OSError(28, "No space left on device")

    def ask(view: View) -> None:
        raise fault

    with pytest.raises(OSError, match="No space left") as caught:
        read(store, ask)
    assert caught.value is fault


def test_a_database_without_tables_is_a_store_that_nobody_used(tmp_path: Path) -> None:
    """A first initialize() was killed before its commit."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE gone (a)")
        connection.execute("DROP TABLE gone")
        connection.commit()
    error = failure(path)
    assert (type(error), error.message) == (StoreUnusedError, f"no scheduler has used this store yet: {path}")


async def test_a_store_says_whether_a_task_has_started_and_whether_its_trace_goes_on(tmp_path: Path) -> None:
    """A trace that a scheduler without one has interrupted is there, and is not current."""
    path = tmp_path / "state.db"
    found = []
    async with simulated(path, ago(minutes=10)) as host:
        for trace in (True, False):
            scheduler = host.scheduler(trace=trace)
            await scheduler.initialize([("good", "* * * * *", nothing, HOUR)])
            await scheduler.stop()
            found.append(read(path, lambda view: (view.has_started(), view.trace())))
        scheduler = host.scheduler()
        await scheduler.initialize([("good", "* * * * *", nothing, HOUR)])
        await host.advance(minutes=1)
        await scheduler.stop()
        assert read(path, lambda view: view.has_started())
    assert [started for started, _ in found] == [False, False]
    assert [trace is not None and trace.current for _, trace in found] == [True, False]
    first = found[0][1]
    assert first is not None
    (rows,) = query(path, "SELECT count(*) FROM trace")
    assert (first.segments, first.first_segment, first.first_seq, first.events, first.seal) == (1, 1, 1, *rows, "clean")


async def test_a_trace_whose_scheduler_was_not_stopped_is_open(tmp_path: Path) -> None:
    """Only a stop() that has completed seals it as clean, and an export says the same."""
    path = tmp_path / "state.db"
    async with simulated(path, ago(minutes=10)) as host:
        await host.scheduler(trace=True).initialize([("good", "* * * * *", nothing, HOUR)])
        await host.advance(minutes=2)
        await host.crash()

    def seals(view: View) -> tuple[str, bytes]:
        trace = view.trace()
        assert trace is not None
        return trace.seal, list(view.trace_lines(trace))[-1]

    seal, line = read(path, seals)
    assert seal == "open"
    assert line.startswith(b'{"seal":"open"')


# --- a store that changes while it is read ---------------------------------------------------------------------------


class Disturbed:
    """A question during which the file changes a given number of times."""

    def __init__(self, store: Path, times: int, fault: DulyError | None) -> None:
        self._store = store
        self._times = times
        self._fault = fault
        self.asked = 0

    def __call__(self, view: View) -> int:
        self.asked += 1
        if self.asked <= self._times:
            os.utime(self._store, ns=(self.asked, self.asked))
            if self._fault is not None:
                raise self._fault
        return view.count_tasks()


DAMAGED = StoreCorruptedError("damaged", store="state.db")
ODD_STATE = TaskInvalidStructureError(1, "0 states for 1 tasks")


@pytest.mark.parametrize("fault", [None, DAMAGED, ODD_STATE])
def test_a_question_is_asked_again_if_the_file_changed_meanwhile(store: Path, fault: DulyError | None) -> None:
    """A scheduler that arrives or leaves rewrites the file: half of the one and half of the other looks like damage."""
    question = Disturbed(store, 2, fault)
    assert read(store, question) == 1
    assert question.asked == 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [(None, "changes faster than it can be read"), (DAMAGED, "damaged"), (ODD_STATE, "changes faster")],
)
def test_a_file_that_never_stands_still_is_no_answer(store: Path, fault: DulyError | None, message: str) -> None:
    """It ends with an error of the store: a record that looks odd in each of them may be a record in transit."""
    question = Disturbed(store, 1_000, fault)
    with pytest.raises(StoreError, match=message):
        read(store, question)
    assert question.asked < 100


def test_damage_in_a_file_that_stands_still_is_reported_at_once(store: Path) -> None:
    """SPEC 5.5: with its own error."""
    asked = []

    def ask(view: View) -> None:
        asked.append(view)
        raise ODD_STATE

    with pytest.raises(TaskInvalidStructureError):
        read(store, ask)
    assert len(asked) == 1


def test_a_store_that_this_user_may_not_read_is_named(public_folder: Path, store: Path) -> None:
    """It is not taken for an unused one."""
    path = public_folder / "state.db"
    shutil.copyfile(store, path)
    path.chmod(0o600)

    def message() -> str:
        try:
            contents_of(path)
        except DulyError as error:
            return error.message
        return "it was read"

    assert without_privileges(message) == f"{path} cannot be read: permission denied"


def test_a_damaged_index_is_found_before_anything_is_answered(store: Path) -> None:
    """SPEC 5.5: SQLite looks into an index without comparing it with its table."""
    ((root,),) = query(store, "SELECT rootpage FROM sqlite_master WHERE name = 'tasks_in_force'")
    content = bytearray(store.read_bytes())
    content[content.index(b"good", (root - 1) * 4096, root * 4096)] ^= 1
    store.write_bytes(content)
    with pytest.raises(StoreCorruptedError, match="index tasks_in_force"):
        read(store, lambda view: view.count_names())


async def test_a_trace_without_events_yet_has_none(tmp_path: Path) -> None:
    """A segment begins with its header; what is changed there is refused, and not shown as a trace."""
    path = tmp_path / "state.db"
    async with simulated(path, ago(minutes=10)) as host:
        scheduler = host.scheduler(trace=True)
        await scheduler.initialize([("good", "* * * * *", nothing, HOUR)])
        await scheduler.stop()
    change(path, "DELETE FROM trace")
    trace = read(path, lambda view: view.trace())
    assert trace is not None
    assert (trace.events, trace.first_seq, trace.seal) == (0, 1, "open")
    change(path, 'UPDATE segments SET header = \'{"scheduler": "a"}\'')
    with pytest.raises(TraceError, match="is not what duly wrote") as caught:
        read(path, lambda view: list(view.trace_lines(trace)))
    assert (caught.value.details["fault"], caught.value.details["line"]) == ("malformed", 1)


def test_a_folder_that_cannot_be_listed_gives_no_suggestion_and_no_other_error(public_folder: Path) -> None:
    """A name that is meant is only suggested."""
    folder = public_folder / "closed"
    folder.mkdir()
    (folder / "state.db.lock").touch()
    folder.chmod(0o711)

    def hint() -> object:
        try:
            contents_of(folder / "stat.db")
        except StoreUnusedError as error:
            return error.details["hint"]
        return "it was read"

    assert without_privileges(hint) == "the first `duly run` on it creates it"


@pytest.mark.parametrize("change_of_zone", ["DELETE FROM meta WHERE key = 'zone'", "UPDATE meta SET value = 7"])
def test_a_store_without_a_zone_that_can_be_read_has_none(store: Path, change_of_zone: str) -> None:
    """It is shown to people; scheduling follows the host's."""
    change(store, change_of_zone)
    assert contents_of(store).snapshot.zone is None


def test_only_a_store_is_suggested_for_a_name_that_is_none(tmp_path: Path) -> None:
    """A lock file lies beside each; any other file with a name like it is not one."""
    (tmp_path / "stat.dc").touch()
    assert failure(tmp_path / "stat.db").details["hint"] == "the first `duly run` on it creates it"


def test_a_fault_that_ends_the_transaction_is_reported_as_it_is(store: Path) -> None:
    """SQLite ends a transaction itself when memory or disk fails: there is nothing to roll back any more."""

    def ask(view: View) -> None:
        cast(SqliteView, view)._connection.execute("ROLLBACK")
        raise ODD_STATE

    with pytest.raises(TaskInvalidStructureError):
        read(store, ask)


def test_a_reader_shows_which_store_it_reads(store: Path) -> None:
    """In a debugger, and in the message of an assertion."""
    assert repr(SqliteReader(store, lambda: 0)) == f"SqliteReader({str(store)!r})"
