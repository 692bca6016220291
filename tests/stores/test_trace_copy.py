"""The trace of a store in a file: replaced as a whole, and never longer than was asked for."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from duly.stores.port import StoredTrace, View
from duly.stores.trace_copy import LongTraceError, copy_trace

STORED = StoredTrace("a" * 32, 3, 1, None, 1, "clean", current=True)
LINES = [b"header 1\n", b"event 1\n", b"seal 1\n", b"header 2\n", b"event 2\n", b"seal 2\n"]
LINES += [b"header 3\n", b"event 3\n", b"seal 3\n"]
"""Three segments, each with a header and a seal: three events."""


class Shelf:
    """A view of a store that holds a trace, or none; it counts the lines that were taken."""

    def __init__(self, stored: StoredTrace | None) -> None:
        self._stored = stored
        self.taken = 0

    def trace(self) -> StoredTrace | None:
        return self._stored

    def trace_lines(self, stored: StoredTrace) -> Iterator[bytes]:
        assert stored is self._stored
        for line in LINES:
            self.taken += 1
            yield line


def copied(shelf: Shelf, file: io.BytesIO, events_max: int | None = None) -> StoredTrace | None:
    return copy_trace(cast(View, shelf), file, events_max=events_max)


def test_a_copy_takes_the_place_of_all_that_the_file_held() -> None:
    file = io.BytesIO(b"x" * 1_000)
    file.seek(500)
    assert copied(Shelf(STORED), file) == replace(STORED, events=3)
    assert file.getvalue() == b"".join(LINES)


def test_all_of_a_copy_can_be_read_from_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with path.open("wb") as file:
        copy_trace(cast(View, Shelf(STORED)), file)
        assert path.read_bytes() == b"".join(LINES)


def test_nothing_is_written_if_there_is_no_trace() -> None:
    file = io.BytesIO(b"as it was")
    assert copied(Shelf(None), file) is None
    assert file.getvalue() == b"as it was"


@pytest.mark.parametrize("counted", [True, False])
def test_a_trace_may_have_as_many_events_as_were_asked_for_and_no_more(counted: bool) -> None:
    """A store that has counted its events refuses before anything is written, any other one as soon as it knows."""
    shelf, file = Shelf(replace(STORED, events=3) if counted else STORED), io.BytesIO(b"as it was")
    with pytest.raises(LongTraceError):
        copied(shelf, file, 2)
    assert shelf.taken == (0 if counted else 9)
    assert counted == (file.getvalue() == b"as it was")
    copy = copied(shelf, file, 3)
    assert copy is not None
    assert copy.events == 3


def test_a_trace_without_an_end_is_not_written_to_its_end() -> None:
    shelf = Shelf(STORED)
    with pytest.raises(LongTraceError):
        copied(shelf, io.BytesIO(), 0)
    assert shelf.taken == 7, "as many headers and seals as there are, and one line more"
