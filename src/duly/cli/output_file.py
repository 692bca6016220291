"""A file that a command writes: checked before the work, and replaced as a whole after it."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from duly.cli.output import Exit, fail, reason_of
from duly.stores.sqlite.file import is_database, kind


def check_output_file(output: Path) -> None:
    """Fail if the file cannot be written, or is a store, which would be lost."""
    folder = output.parent
    try:
        found, beside, taken = kind(output), kind(folder), is_database(output)
    except OSError as fault:
        hint = "a store would be lost there: name another file"
        fail(f"{output} cannot be looked at: {reason_of(fault)}", hint, Exit.STORE)
    if found == stat.S_IFDIR:
        fail(f"{output} is a folder", "name the file to write")
    if taken:
        fail(f"{output} is a store: it would be lost", "name another file")
    if beside != stat.S_IFDIR:
        fail(f"the folder {folder} does not exist")
    if not os.access(folder, os.W_OK):
        fail(f"{folder} cannot be written to: permission denied")


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
