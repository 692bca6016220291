"""SPEC 5.7 among real processes: one live scheduler per store, whose name a second one reads; a dead one's is free."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import duly
from tests.stores.helpers import integrity, stored_tasks
from tests.system.children import DELAY, NEVER_TODAY, Child, nothing


@contextlib.contextmanager
def trying(store: Path) -> Iterator[Child]:
    """A process that has tried to have the store."""
    with Child("attempt", store) as child:
        child.tell()
        yield child


def holder_of(store: Path) -> int | None:
    """The process that holds the store, found by trying to open it; None if it is free."""

    async def attempt() -> int | None:
        scheduler = duly.Scheduler(store)
        try:
            await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])
        except duly.StoreLockedError as error:
            return int(error.details["holder"]["pid"])
        await scheduler.stop()
        return None

    return asyncio.run(attempt())


def test_a_second_process_is_told_who_holds_the_store_since_when_and_what_to_do(store: Path) -> None:
    """SPEC 5.7: the second gets a clear error naming the holder; the hint is for web applications with workers."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    with Child("hold", store) as holder:
        pid = holder.hear("holding")
        with trying(store) as second:
            refused = second.hear("refused")
            assert second.exit_code() == 0
        assert refused["type"] == "StoreLockedError"
        named = refused["details"]["holder"]
        assert (named["pid"], named["host"]) == (pid, socket.gethostname())
        assert before <= datetime.fromisoformat(named["since"]) <= datetime.now(UTC)
        assert refused["details"]["store"] == str(store)
        for part in (str(store), str(pid), socket.gethostname(), named["since"]):
            assert part in refused["message"]
        assert "duly.standby" in refused["details"]["hint"]
        assert "own store" in refused["details"]["hint"]
        holder.tell()
        holder.hear("stopped")
    with trying(store) as third:
        third.hear("accepted")
        third.tell()
        third.hear("stopped")
        assert third.exit_code() == 0


async def test_this_process_is_refused_as_well_and_the_holder_does_not_notice(store: Path) -> None:
    """SPEC 5.7: in one process or in two."""
    with Child("hold", store) as holder:
        pid = holder.hear("holding")
        for _ in range(3):
            with pytest.raises(duly.StoreLockedError) as caught:
                await duly.Scheduler(store).initialize([("b", NEVER_TODAY, nothing, DELAY)])
            assert caught.value.details["holder"]["pid"] == pid
        assert set(stored_tasks(store)) == {"a"}
        holder.tell()
        holder.hear("stopped")
        assert holder.exit_code() == 0
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([("b", NEVER_TODAY, nothing, DELAY)])
    await scheduler.stop()
    assert set(stored_tasks(store)) == {"b"}


async def test_two_schedulers_in_one_process_do_not_share_a_store(store: Path) -> None:
    """SPEC 5.7: a lock that a process could take twice would not do."""
    first, second = duly.Scheduler(store), duly.Scheduler(str(store))
    await first.initialize([("a", NEVER_TODAY, nothing, DELAY)])
    with pytest.raises(duly.StoreLockedError) as caught:
        await second.initialize([("b", NEVER_TODAY, nothing, DELAY)])
    assert caught.value.details["holder"]["pid"] == os.getpid()
    await second.stop()
    with trying(store) as third:  # the refused one has not let go of what was never its own
        assert third.hear("refused")["details"]["holder"]["pid"] == os.getpid()
    await first.stop()
    await second.initialize([("b", NEVER_TODAY, nothing, DELAY)])
    await second.stop()


def test_a_holder_that_was_killed_frees_the_store(store: Path) -> None:
    """SPEC 5.7: a dead holder's store is free, at once, whatever its lock file says."""
    with Child("hold", store) as holder:
        pid = holder.hear("holding")
        holder.kill()
    assert json.loads(Path(f"{store}.lock").read_text())["pid"] == pid
    assert holder_of(store) is None
    assert integrity(store) == "ok"


def end(pid: int) -> None:
    """End a process that a child of ours has made."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("how", "where"),
    [
        ("fork", "application"),
        ("fork", "coroutine"),
        ("fork", "thread"),
        ("subprocess", "thread"),
        ("multiprocessing", "thread"),
    ],
)
def test_a_process_that_the_holder_forked_does_not_keep_the_store_when_the_holder_dies(
    store: Path, how: str, where: str
) -> None:
    """SPEC 5.7: a dead holder's store is free, even when a process it forked is still running."""
    with Child("hold_and_fork", store, how, where) as holder:
        made = holder.hear("forked")
        try:
            assert holder_of(store) == holder.pid  # the fork has not taken the lock away, either
            holder.kill()
            assert alive(made)
            assert holder_of(store) is None
            assert alive(made)
        finally:
            end(made)


def test_a_holder_whose_forked_child_died_still_holds_the_store(store: Path) -> None:
    """SPEC 5.7: the child's end releases nothing of the parent's."""
    with Child("hold_and_fork", store, "fork", "thread") as holder:
        os.kill(holder.hear("forked"), signal.SIGTERM)
        assert holder_of(store) == holder.pid
        holder.tell()
        holder.hear("stopped")
        assert holder.exit_code() == 0
    assert integrity(store) == "ok"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": "2020-01-01T00:00:00+00:00"}),
        json.dumps({"pid": 1, "host": "elsewhere", "since": "2020-01-01T00:00:00+00:00"}),
        "[1, 2, 3]",
        "\x00\xff nonsense",
        "",
    ],
    ids=["a living process's number", "another host's", "no holder", "nonsense", "empty"],
)
async def test_what_a_lock_file_says_holds_nobody_off(store: Path, text: str) -> None:
    """SPEC 5.7: free, even when the dead holder's pid was reused: the kernel's lock counts, not the text."""
    _write(store, text)
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])
    await scheduler.stop()
    assert set(stored_tasks(store)) == {"a"}


def _write(store: Path, text: str) -> None:
    Path(f"{store}.lock").write_text(text)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"pid": "\\u001b[31m"}'])
async def test_a_held_store_is_refused_also_when_its_lock_file_cannot_be_read(store: Path, text: str) -> None:
    """SPEC 5.7: somebody overwrote the courtesy; the lock is still the lock."""
    scheduler = duly.Scheduler(store)
    await scheduler.initialize([("a", NEVER_TODAY, nothing, DELAY)])
    _write(store, text)
    with pytest.raises(duly.StoreLockedError) as caught:
        await duly.Scheduler(store).initialize([])
    assert str(store) in str(caught.value)
    await scheduler.stop()


def test_of_several_workers_that_start_together_exactly_one_has_the_store(store: Path) -> None:
    """Several processes of one web application on one store: all but the first get `StoreLockedError`."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Child("attempt", store)) for _ in range(5)]
        for worker in workers:
            worker.hear("loaded")
        for worker in workers:
            worker.tell()
        answers = [worker.hear_one_of("accepted", "refused") for worker in workers]
        assert sorted(word for word, _ in answers) == ["accepted", *["refused"] * 4]
        assert {what["type"] for word, what in answers if word == "refused"} == {"StoreLockedError"}
        holder = workers[[word for word, _ in answers].index("accepted")]
        holder.tell()
        holder.hear("stopped")
    assert set(stored_tasks(store)) == {"a"}


def test_workers_forked_around_one_scheduler_object_share_it_no_more_than_others(store: Path) -> None:
    """A pre-forking server makes its application, scheduler included, before it forks."""
    with Child("prefork", store, 4) as parent:
        assert sorted(parent.hear("answers")) == ["accepted", "locked", "locked", "locked"]
        assert parent.exit_code() == 0
    assert integrity(store) == "ok"
