"""Files that others could read, own or have prepared: private by default, no foreign code runs, no link is followed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import duly
from duly.cli.file_trust import reason_for_distrust
from tests.cli.program import Service, environment
from tests.cli.program import duly as run_duly
from tests.stores.helpers import change, contents, without_privileges
from tests.system.load_program import DELAY
from tests.system.record import record

ROOT = Path(__file__).parents[2]
NEVER_TODAY = "0 0 1 1 *"

UNDER_AN_OPEN_UMASK = """
import asyncio, os, sys
from datetime import timedelta
import duly

async def nothing(): ...

async def main():
    os.umask(int(sys.argv[2], 8))
    scheduler = duly.Scheduler(sys.argv[1], trace=True)
    await scheduler.initialize([("a", "* * * * *", nothing, timedelta(minutes=1))])
    for name in sorted(os.listdir(os.path.dirname(sys.argv[1]))):
        print(name, oct(os.stat(os.path.join(os.path.dirname(sys.argv[1]), name)).st_mode & 0o777))
    await scheduler.stop()

asyncio.run(main())
"""


async def _nothing() -> None:
    pass


async def _store_at(path: Path) -> None:
    scheduler = duly.Scheduler(path)
    await scheduler.initialize([("a", NEVER_TODAY, _nothing, DELAY)])
    await scheduler.stop()


@pytest.mark.parametrize("umask", ["0000", "0022", "0077"])
def test_what_duly_creates_is_private_whatever_the_umask(tmp_path: Path, umask: str) -> None:
    """Store, log, index and lock are for their owner alone: names and errors of tasks are private."""
    said = subprocess.run(
        [sys.executable, "-c", UNDER_AN_OPEN_UMASK, str(tmp_path / "store.db"), umask],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    modes = dict(line.split() for line in said.splitlines())
    assert modes == dict.fromkeys(["store.db", "store.db-shm", "store.db-wal", "store.db.lock"], "0o600")
    record("hostile, files", checks=4)


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("trigger", "CREATE TRIGGER t AFTER UPDATE ON states BEGIN DELETE FROM tasks; END"),
        ("trigger", "CREATE TRIGGER t BEFORE INSERT ON runs BEGIN SELECT RAISE(ROLLBACK, 'no'); END"),
        ("view", "CREATE VIEW v AS SELECT * FROM tasks"),
        ("virtual table", "CREATE VIRTUAL TABLE v USING fts5(x)"),
    ],
)
async def test_a_store_that_brings_code_of_its_own_is_refused_untouched(
    tmp_path: Path, kind: str, statement: str
) -> None:
    """A prepared file is data or nothing: triggers and views would act with the rights of its user (SPEC 5.5)."""
    store = tmp_path / "store.db"
    await _store_at(store)
    change(store, statement)
    before = contents(store)
    with pytest.raises(duly.StoreError, match=f"holds a {kind}"):
        await _store_at(store)
    assert contents(store) == before
    outcome = run_duly("status", "--store", store, folder=tmp_path)
    assert (outcome.code, "Traceback" in outcome.err) == (4, False), outcome.err
    assert f"holds a {kind}" in outcome.err
    assert contents(store) == before
    record("hostile, files", checks=2)


TARGET = """
from datetime import timedelta
async def nothing(): ...
registrations = [("a", "0 0 1 1 *", nothing, timedelta(minutes=1))]
"""


def test_a_target_in_the_hands_of_others_is_used_with_a_warning(tmp_path: Path) -> None:
    """Decided in SECURITY.md: warn, once, on standard error; the output for programs stays clean."""
    target = tmp_path / "tasks.py"
    target.write_text(TARGET)
    quiet = run_duly("next", target, folder=tmp_path)
    assert (quiet.code, quiet.err) == (0, "")
    target.chmod(0o646)
    warned = run_duly("next", "--json", target, folder=tmp_path)
    assert warned.code == 0
    assert "can be changed by every user (mode 0646): others can run code as you" in warned.err
    assert warned.json["format"] == 1
    checks = 2
    if os.geteuid() == 0:
        target.chmod(0o644)
        os.chown(target, 12345, 12345)
        foreign = run_duly("next", target, folder=tmp_path)
        assert "is owned by another user (uid 12345)" in foreign.err
        checks += 1
    record("hostile, files", checks=checks)


@pytest.mark.parametrize("how", ["of another user", "that everybody may write"])
def test_a_store_in_the_hands_of_others_is_used_with_a_warning(tmp_path: Path, how: str) -> None:
    """Decided in SECURITY.md: `duly run` warns about a store as well; its mode stays as it is."""
    (tmp_path / "tasks.py").write_text(TARGET)
    store = tmp_path / "store.db"
    asyncio.run(_store_at(store))
    if how == "of another user":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away; the test of owners alone needs no root")
        os.chown(store, 12345, 12345)
        expected = "is owned by another user (uid 12345)"
    else:
        store.chmod(0o666)
        expected = "can be changed by every user (mode 0666)"
    mode = store.stat().st_mode
    with Service("tasks.py", "--store", str(store), folder=tmp_path) as service:
        service.expect("ProgramReady")
        service.send(signal.SIGTERM)
        outcome = service.end()
    assert outcome.code == 0, outcome.err
    assert outcome.err.count(f"{expected}: others can change what runs, and when") == 1
    assert store.stat().st_mode == mode
    record("hostile, files", checks=2)


def test_a_file_is_in_good_hands_if_its_owner_is_who_asks_or_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ground of the warnings, tested without the right to give files away."""
    file = tmp_path / "file"
    file.touch(0o600)
    assert reason_for_distrust(file) is None
    if os.geteuid() == 0:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        assert reason_for_distrust(file) is None, "root can change everything anyway"
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert reason_for_distrust(file) == f"is owned by another user (uid {file.stat().st_uid})"


def test_a_store_of_someone_else_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """Another user's private store: a typed error that says what to look at, as any user but root meets it."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    store = folder / "store.db"
    asyncio.run(_store_at(store))
    store.chmod(0o600)
    folder.chmod(0o777)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            with contextlib.suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)

    def attempt() -> str:
        try:
            asyncio.run(_store_at(store))
        except duly.StoreError as error:
            return f"{error} {error.details.get('hint')}"
        return "accepted"

    if os.geteuid() != 0:
        store.chmod(0o000)
    said = without_privileges(attempt)
    assert "owner and mode" in said or "accessed" in said, said
    record("hostile, files", checks=1)
