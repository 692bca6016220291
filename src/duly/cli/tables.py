"""Tables that stay readable on a narrow terminal.

Where all columns fit, a table is one line for each row. Where they do not, columns that can be spared are left out and
named below, the remark of a row stands beneath it, and names that are longer than what is left are folded: nothing is
cut short.
"""

from collections.abc import Collection, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from duly.cli.output import console

NOTHING: Final = frozenset({"", "-"})
"""What a cell shows that has nothing to say."""

_GAP: Final = 2
_REMARK_ROOM: Final = 20
"""Columns that are enough for a remark beside its row, where its words are wrapped."""
_FOLDED_MIN: Final = 12

Row = Sequence[Text]


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
    widths = [max(cell_len(text) for text in (heading, *_plain(rows, n))) for n, heading in enumerate(headings)]
    room = console().width
    remark_width = 0
    if remark is not None:
        remark_width = _GAP + min(_REMARK_ROOM, max(cell_len(text) for text in (remark, *_plain(rows, len(headings)))))
    if _total(widths) + remark_width <= room:
        whole = _grid(header_style)
        for heading in headings:
            whole.add_column(heading, no_wrap=True, justify="right" if heading in right else "left")
        if remark is not None:
            whole.add_column(remark, overflow="fold")
        for row in rows:
            whole.add_row(*row)
        return whole
    kept = _kept(headings, rows, widths, spare, room)
    folded = headings.index(named_by) if named_by in headings else None
    if folded is not None and (beyond := _total([widths[n] for n in kept]) - room) > 0:
        widths[folded] = max(_FOLDED_MIN, widths[folded] - beyond)
    parts: list[RenderableType] = []
    for row in rows:
        line = _grid(header_style, header=not parts)
        for n in kept:
            line.add_column(
                headings[n], width=widths[n], overflow="fold", justify="right" if headings[n] in right else "left"
            )
        line.add_row(*(row[n] for n in kept))
        parts.append(line)
        if remark is not None and row[-1].plain not in NOTHING:
            said = Text.assemble((f"{remark}: ", header_style), row[-1], overflow="fold")
            parts.append(Padding(said, (0, 0, 0, _GAP), expand=False))
    if left_out := [heading for n, heading in enumerate(headings) if n not in kept]:
        parts.append(Text(f"too narrow for: {', '.join(left_out)}", "dim"))
    return Lines(*parts)


def _kept(
    headings: Sequence[str], rows: Sequence[Row], widths: Sequence[int], spare: Sequence[str], room: int
) -> list[int]:
    """The columns that stay: first those go in which no row says anything, then the others in the order of `spare`."""
    kept = list(range(len(headings)))
    candidates = [headings.index(each) for each in spare if each in headings]
    candidates.sort(key=lambda n: not NOTHING.issuperset(_plain(rows, n)))
    for n in candidates:
        if _total([widths[each] for each in kept]) <= room:
            break
        kept.remove(n)
    return kept


def _plain(rows: Sequence[Row], column: int) -> list[str]:
    return [row[column].plain for row in rows]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _grid(header_style: str, *, header: bool = True) -> Table:
    return Table(box=None, pad_edge=False, show_header=header, header_style=header_style, padding=(0, _GAP, 0, 0))
