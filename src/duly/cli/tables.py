"""Tables that stay readable on a narrow terminal.

Where all columns fit, a table is one line for each row. Where they do not, columns that can be spared are left out and
named below, the remark of a row stands beneath it, and names that are longer than the space left are folded: no text
is cut.
"""

import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Final

from rich.cells import cell_len
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from duly.cli.output import console, styled

NOTHING: Final = frozenset({"", "-"})
"""The texts of a cell that has no content."""

_GAP: Final = 2
_REMARK_ROOM: Final = 20
"""Columns that are enough for a remark beside its row, where its words are wrapped."""
_FOLDED_MIN: Final = 12
_ROWS_IN_MEMORY_BYTES: Final = 1 << 22
_BETWEEN: Final = "\x1f"

Row = Sequence[Text]
Cell = tuple[str, str]
"""Printable text, and its style."""


def table(
    headings: Sequence[str],
    rows: Sequence[Row],
    *,
    named_by: str = "task",
    right: Collection[str] = (),
    spare: Sequence[str] = (),
    remark: str | None = None,
    header_style: str = "dim",
) -> RenderableType:
    """Rows under their headings, as wide as standard output allows; `remark` heads one more cell, the last of each row.

    `right` names columns of numbers, `spare` those that are left out first where it is narrow, `named_by` the one
    that may be folded.
    """
    layout = _Layout(headings, named_by, right, spare, remark, header_style)
    for row in rows:
        layout.measure([cell.plain for cell in row])
    if layout.fits():
        whole = _grid(header_style)
        for heading in headings:
            whole.add_column(heading, no_wrap=True, justify="right" if heading in right else "left")
        if remark is not None:
            whole.add_column(remark, overflow="fold")
        for row in rows:
            whole.add_row(*row)
        return whole
    return Lines(*layout.narrow(rows))


class LongTable:
    """A table of any number of rows: they are kept in a file, written line by line, and look as in `table`."""

    def __init__(
        self,
        headings: Sequence[str],
        *,
        named_by: str = "task",
        right: Collection[str] = (),
        spare: Sequence[str] = (),
        remark: str | None = None,
        header_style: str = "dim",
    ) -> None:
        self._layout = _Layout(headings, named_by, right, spare, remark, header_style)
        self._rows = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # closed by `__exit__`
            _ROWS_IN_MEMORY_BYTES, "w+", encoding="utf-8", errors="surrogatepass", newline="\n", prefix="duly-table-"
        )

    def __enter__(self) -> "LongTable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()

    def add(self, row: Sequence[Cell]) -> None:
        """Add a row: a cell for each heading, and one for the remark."""
        self._layout.measure([text for text, _ in row])
        self._rows.write(_BETWEEN.join([part for cell in row for part in cell]) + "\n")

    def print(self) -> None:
        """Write all rows to standard output."""
        if self._layout.fits():
            for line in self._layout.wide(self._read()):
                sys.stdout.write(f"{line if console().is_terminal else line.rstrip()}\n")
        else:
            for part in self._layout.narrow([Text(*cell) for cell in row] for row in self._read()):
                console().print(part)

    def _read(self) -> Iterator[list[Cell]]:
        self._rows.seek(0)
        for line in self._rows:
            parts = line.rstrip("\n").split(_BETWEEN)
            yield list(zip(parts[::2], parts[1::2], strict=True))


class _Layout:
    """Which columns a table has room for, and how wide they are."""

    def __init__(
        self,
        headings: Sequence[str],
        named_by: str,
        right: Collection[str],
        spare: Sequence[str],
        remark: str | None,
        header_style: str,
    ) -> None:
        self._headings = headings
        self._named_by = named_by
        self._right = right
        self._spare = spare
        self._remark = remark
        self._header_style = header_style
        self._widths = [cell_len(heading) for heading in (*headings, *([] if remark is None else [remark]))]
        self._empty = set(range(len(headings)))
        """Columns in which no row has content."""

    def measure(self, row: Sequence[str]) -> None:
        """Make room for a row."""
        for n, text in enumerate(row):
            if text not in NOTHING:
                self._empty.discard(n)
                width = len(text) if text.isascii() else cell_len(text)
                if width > self._widths[n]:
                    self._widths[n] = width

    def fits(self) -> bool:
        """Whether all columns fit, one line for each row."""
        remark = 0 if self._remark is None else _GAP + min(_REMARK_ROOM, self._widths[-1])
        return _total(self._widths[: len(self._headings)]) + remark <= console().width

    def wide(self, rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
        """All columns, one line for each row; a remark that is too long goes on below itself."""
        room = console().width - _total(self._widths[: len(self._headings)]) - _GAP
        titles = (*self._headings, *([] if self._remark is None else [self._remark]))
        heading: list[Cell] = [(title, self._header_style) for title in titles]
        rights = [title in self._right for title in self._headings]
        for row in chain([heading], rows):
            line = ""
            for (text, style), width, right in zip(row, self._widths, rights, strict=False):
                filling = " " * (width - (len(text) if text.isascii() else cell_len(text)))
                shown = styled(text, style)
                line += f"{filling}{shown}  " if right else f"{shown}{filling}  "
            if self._remark is None:
                yield line
                continue
            text, style = row[-1]
            if len(text) * 2 <= room or cell_len(text) <= room:
                yield line + styled(text, style)
                continue
            for part in Text(text).wrap(console(), room, overflow="fold"):
                yield line + styled(part.plain, style)
                line = " " * (console().width - room)

    def narrow(self, rows: Iterable[Row]) -> Iterator[RenderableType]:
        """The columns that there is room for, and the remark of each row below it."""
        headings, widths = self._headings, self._widths
        kept = self._kept(console().width)
        folded = headings.index(self._named_by) if self._named_by in headings else None
        if folded is not None and (beyond := _total([widths[n] for n in kept]) - console().width) > 0:
            widths[folded] = max(_FOLDED_MIN, widths[folded] - beyond)
        for number, row in enumerate(rows):
            line = _grid(self._header_style, header=number == 0)
            for n in kept:
                right = headings[n] in self._right
                line.add_column(headings[n], width=widths[n], overflow="fold", justify="right" if right else "left")
            line.add_row(*(row[n] for n in kept))
            yield line
            if self._remark is not None and row[-1].plain not in NOTHING:
                below = Text.assemble((f"{self._remark}: ", self._header_style), row[-1], overflow="fold")
                yield Padding(below, (0, 0, 0, _GAP), expand=False)
        if left_out := [heading for n, heading in enumerate(headings) if n not in kept]:
            yield Text(f"too narrow for: {', '.join(left_out)}", "dim")

    def _kept(self, room: int) -> list[int]:
        """The columns that stay: empty ones are dropped first, then the others in the order of `spare`."""
        kept = list(range(len(self._headings)))
        candidates = [self._headings.index(each) for each in self._spare if each in self._headings]
        candidates.sort(key=lambda n: n not in self._empty)
        for n in candidates:
            if _total([self._widths[each] for each in kept]) <= room:
                break
            kept.remove(n)
        return kept


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _grid(header_style: str, *, header: bool = True) -> Table:
    return Table(box=None, pad_edge=False, show_header=header, header_style=header_style, padding=(0, _GAP, 0, 0))
