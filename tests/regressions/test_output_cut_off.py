"""With PYTHONUNBUFFERED=1, a long output that was written in part ended with exit code 0."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.cli.output import Exit
from tests.cli.program import PATIENCE_SECONDS, environment

LONG = "next '* * * * *' -n 10000"
BUFFERING = [pytest.param("", id="buffered"), pytest.param("1", id="unbuffered")]


def in_a_shell(script: str, folder: Path, unbuffered: str) -> "subprocess.CompletedProcess[str]":
    """Run a script of bash, in which DULY is the program."""
    return subprocess.run(
        ["bash", "-c", script.replace("DULY", f"{shlex.quote(sys.executable)} -m duly")],
        cwd=folder,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", BUFFERING)
@pytest.mark.parametrize("form", ["", "--json"], ids=["text", "json"])
def test_a_reader_that_takes_the_first_line_leads_to_141(tmp_path: Path, unbuffered: str, form: str) -> None:
    """The pipe has taken 64 KiB by then, which is a part of the output."""
    done = in_a_shell(f"DULY {LONG} {form} | head -1; echo ${{PIPESTATUS[0]}} >&2", tmp_path, unbuffered)
    assert done.stderr == f"{Exit.READER_GONE}\n"
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("unbuffered", BUFFERING)
def test_a_file_that_may_not_grow_leads_to_74(tmp_path: Path, unbuffered: str) -> None:
    """The first 64 KiB fit."""
    done = in_a_shell(f"ulimit -f 64; DULY {LONG} > out", tmp_path, unbuffered)
    assert (tmp_path / "out").stat().st_size == 64 * 1024
    assert done.returncode == Exit.OUTPUT
    assert done.stderr.startswith("error: standard output cannot be written: file too large\n")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 64 KiB; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False)
    if made.returncode:
        pytest.skip("mounting needs root and its capabilities")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.system
@pytest.mark.parametrize("unbuffered", BUFFERING)
def test_a_disk_that_fills_up_leads_to_74(tiny_disk: Path, unbuffered: str) -> None:
    """A full file system, as the kernel has it."""
    done = in_a_shell(f"DULY {LONG} > out", tiny_disk, unbuffered)
    assert done.returncode == Exit.OUTPUT
    assert done.stderr.startswith("error: standard output cannot be written: no space left on device\n")


@pytest.mark.parametrize("unbuffered", BUFFERING)
def test_a_pipe_that_does_not_wait_for_its_reader_leads_to_74(tmp_path: Path, unbuffered: str) -> None:
    """As some programs give it to their children; it takes 64 KiB, and then nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "duly", *shlex.split(LONG)],
            cwd=tmp_path,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert done.returncode == Exit.OUTPUT
    assert done.stderr.startswith("error: standard output cannot be written: resource temporarily unavailable\n")
