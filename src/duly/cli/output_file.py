"""A file that a command writes: checked before the work, and replaced as a whole after it."""

import contextlib
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from duly.cli.output import Exit, fail, reason_of
from duly.stores.sqlite.file import is_database, kind


def check_output_file(output: Path) -> None:
    """Fail if the file cannot be written, or is a store, which would be lost: that is wrong usage."""
    folder = output.parent
    try:
        found, beside, taken = kind(output), kind(folder), is_database(output)
    except OSError as fault:
        hint = "a store would be lost there: name another file"
        fail(f"{output} cannot be looked at: {reason_of(fault)}", hint, Exit.STORE)
    if found == stat.S_IFDIR:
        fail(f"{output} is a folder", "name the file to write", Exit.STORE)
    if taken:
        fail(f"{output} is a store: it would be lost", "name another file")
    if beside != stat.S_IFDIR:
        fail(f"the folder {folder} does not exist", None, Exit.STORE)
    if not os.access(folder, os.W_OK):
        fail(f"{folder} cannot be written to: permission denied", None, Exit.STORE)


def check_apart(outputs: Mapping[str, Path | None], read: Sequence[Path]) -> None:
    """Fail if an output, given by its option, is a file that the command reads, or if two outputs are one file."""
    given = [(option, file) for option, file in outputs.items() if file is not None]
    for option, file in given:
        if any(_is_same(file, each) for each in read):
            fail(f"{option}: {file} is what the command reads: it would be lost", "name another file")
    for (option, file), (other, second) in itertools.combinations(given, 2):
        if _is_same(file, second):
            fail(f"{option} and {other} name the same file: {file}", "name two files")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist yet
        return os.path.realpath(one) == os.path.realpath(other)


@contextlib.contextmanager
def replacing(output: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `output` when it is complete; a device or a pipe is written last."""
    if kind(output) not in (0, stat.S_IFREG):
        with tempfile.TemporaryFile(prefix="duly-output-") as copy, output.open("wb") as device:
            yield copy
            copy.seek(0)
            shutil.copyfileobj(copy, device, 1 << 20)
        return
    handle, name = tempfile.mkstemp(prefix=f".{output.name[:100]}.", dir=output.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, output)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
