"""A store that the disk did not show for a moment was taken for missing, removed and created again.

`os.path.exists` says no to a disk that does not answer. The first initialize() then created its tables in a file that
had them, failed, removed what it took for its own work, and the next attempt began with an empty store.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.stores import SqliteStore
from duly.stores.sqlite import file as place
from duly.testing import SimulatedHost
from tests.spec.workload import Workload
from tests.stores.helpers import contents, everything, files_in, history, stored_tasks


class Blink:
    """A disk that fails at one system call about the store's files: the k-th."""

    def __init__(self, folder: Path, question: str, fails_at: int) -> None:
        self._folder = str(folder)
        self._real: Callable[..., Any] = getattr(os, question)
        self._fails_at = fails_at
        self.asked = 0

    def __call__(self, file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).startswith(self._folder) or isinstance(file, int):
            self.asked += 1
            if self.asked == self._fails_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), file)
        return self._real(file, *arguments, **options)


async def used_store(folder: Path, *, crashed: bool) -> None:
    """A store with runs on record; after a crash all of them are in its log alone."""
    os.mkdir(folder)
    async with SimulatedHost("2024-01-01T12:00:30", "UTC", store=folder / "state.db") as host:
        work = Workload(host)
        scheduler = host.scheduler()
        await scheduler.initialize([work.task("a"), work.task("b", fails=True)])
        await host.advance(minutes=3)
        await (host.crash() if crashed else scheduler.stop())


@pytest.mark.parametrize("question", ["stat", "lstat"])
@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
async def test_a_disk_that_does_not_answer_once_is_an_error_and_never_an_empty_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: bool, question: str
) -> None:
    """SPEC 4.5, 5.2, 5.5: each system call in turn; a store that is refused stays as it was."""
    await used_store(tmp_path / "template", crashed=crashed)
    refused = fails_at = 0
    while True:
        fails_at += 1
        folder = tmp_path / str(fails_at)
        shutil.copytree(tmp_path / "template", folder)
        store = folder / "state.db"
        before, rows, runs = contents(store), everything(store), history(store)
        assert runs
        async with SimulatedHost("2024-01-01T13:00:30", "UTC", store=store) as host:
            work = Workload(host)
            tasks = [work.task("a"), work.task("b", fails=True), work.task("c")]
            scheduler = host.scheduler()
            with monkeypatch.context() as patched:
                blink = Blink(folder, question, fails_at)
                patched.setattr(os, question, blink)
                try:
                    await scheduler.initialize(tasks)
                except duly.DulyError as error:
                    refused += 1
                    fault = error if isinstance(error, duly.StoreError) else error.__cause__
                    assert isinstance(fault, duly.StoreError)
                    assert os.strerror(errno.EIO) in str(fault)
                    patched.undo()
                    assert everything(store) == rows
                    assert crashed or contents(store) == before
                    await scheduler.initialize(tasks)
            assert set(stored_tasks(store)) == {"a", "b", "c"}
            assert history(store)[: len(runs)] == runs, f"lost when question {fails_at} had no answer"
            await host.advance(minutes=1)
            await scheduler.stop()
        if blink.asked < fails_at:
            break
    assert refused >= (3 if question == "stat" else 1)


async def test_a_first_start_removes_no_file_that_it_has_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 4.5: another process made a file there after the check; duly must not remove it."""
    store = tmp_path / "state.db"
    create = place.create

    def create_second(path: str) -> None:
        Path(path).write_text("somebody else's")
        create(path)

    monkeypatch.setattr("duly.stores.sqlite.store.create", create_second)
    async with SimulatedHost("2024-01-01T12:00:30", "UTC") as host:
        scheduler = host.scheduler(SqliteStore(store))
        with pytest.raises(duly.ScheduleTaskError) as caught:
            await scheduler.initialize([Workload(host).task("a")])
        assert isinstance(caught.value.__cause__, duly.StoreError)
    assert store.read_text() == "somebody else's"


async def test_a_link_that_could_not_be_followed_is_not_taken_for_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 5.7: its lock would be beside the link, where a scheduler that uses another name does not see it."""
    await used_store(tmp_path / "template", crashed=False)
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "template" / "state.db")
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "realpath", os.path.abspath)  # what it answers when the disk does not
        store = SqliteStore(link)
    async with SimulatedHost("2024-01-01T13:00:30", "UTC") as host:
        with pytest.raises(duly.StoreError, match="link"):
            await host.scheduler(store).initialize([Workload(host).task("a")])
    assert "link.db.lock" not in files_in(tmp_path)
