"""A real file system that turns read-only under a running scheduler, as ext4 does when it finds itself damaged.

`test_disk_system.py` has the same with errors that strace injects, which needs no rights. Here the kernel does it: an
ext4 file system in a file, mounted with `errors=remount-ro` in a mount namespace that ends with its processes, and
aborted by its name in there, so that no other file system can be meant.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.programs import ROOT, environment
from tests.system.disk_program import command, words
from tests.system.fold import compare, look_into
from tests.system.kill_chain import judge
from tests.system.record import record

_MOUNT = 'mount -t ext4 -o loop,errors=remount-ro "$1" "$2" && shift 2 && exec "$@"'


class Disk:
    """A file system in a file, mounted only for the processes that are started with it."""

    def __init__(self, folder: Path) -> None:
        self.image, self.place = folder / "image", folder / "place"
        self.place.mkdir()
        self.image.write_bytes(bytes(8 << 20))
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", str(self.image)], check=True)

    def with_it(self, *command: str) -> list[str]:
        """A command that mounts it, in a namespace of its own, and then becomes another."""
        alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT, "sh")
        return [*alone, str(self.image), str(self.place), *command]

    def abort(self, pid: int) -> None:
        """Let it find itself damaged, under that process."""
        inside = ("nsenter", "--target", str(pid), "--mount")
        subprocess.run([*inside, "mount", "-o", "remount,abort", str(self.place)], check=True)

    def copy(self, folder: Path) -> Path:
        """The content of the disk, where it can be looked at."""
        folder.mkdir()
        subprocess.run(self.with_it("cp", "-r", f"{self.place}/.", str(folder)), check=True)
        return folder / "state.db"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root; the test with injected errors does not")
    for tool, package in (("mke2fs", "e2fsprogs"), ("unshare", "util-linux"), ("nsenter", "util-linux")):
        require(tool, f"apt-get install {package}")
    disk = Disk(tmp_path)
    tried = subprocess.run(disk.with_it("true"), capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no ext4 on a loop device here: {tried.stderr.decode().strip()}")
    return disk


@pytest.mark.system
def test_a_file_system_that_turns_read_only_in_the_middle_is_reported_and_loses_nothing(
    disk: Disk, tmp_path: Path
) -> None:
    """SPEC 3.9, 4.3, 4.6: the loop goes on, nothing more is reported as durable, and all that was is there."""
    store = disk.place / "state.db"
    said = _live_until_it_turns(disk, store)
    turned = words(said).index("TaskRunFailed") + 1
    heard = words(said[turned:])
    assert heard.count("StoreFault") == 1
    assert "StoreRecovered" not in heard
    assert heard[-1] == "longest pause"
    assert heard[-2] in {"gave up", "stopped"}
    # The process is gone, and its mount with it: the next one mounts what the journal of the file system brings back.
    left = compare(look_into(disk.copy(tmp_path / "left")))
    started = {facts[1] for word, *facts in said if word == "TaskRunStarted"}
    ended = {facts[1] for word, *facts in said if word in {"TaskRunCompleted", "TaskRunFailed"}}
    assert started <= left.starts.keys()
    assert ended <= left.ends.keys()
    assert len(left.starts) >= words(said).count("begin")
    again = subprocess.run(
        disk.with_it(*command(store, 3, 60)), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, check=True
    )
    assert words([json.loads(line) for line in again.stdout.splitlines()])[-2:] == ["stopped", "longest pause"]
    copy = disk.copy(tmp_path / "in the end")
    fold = compare(look_into(copy))
    judge(copy, clean=True)
    assert left.starts.items() <= fold.starts.items()
    record("disk, remounted read-only by the kernel", runs=len(fold.starts), faults=1)


def _live_until_it_turns(disk: Disk, store: Path) -> list[list[Any]]:
    """A life on it; once a run has ended, the disk turns read-only, and once that was reported, the life ends."""
    said: list[list[Any]] = []
    with subprocess.Popen(
        disk.with_it(*command(store, 1000, 60)), cwd=ROOT, env=environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(json.loads(line))
            if said[-1][0] == "TaskRunFailed" and words(said).count("TaskRunFailed") == 1:
                disk.abort(process.pid)
            if said[-1][0] == "StoreFault":
                process.terminate()
    assert process.returncode == 0
    return said
