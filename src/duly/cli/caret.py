"""A text, and a caret under the place in it that an error is about."""

from typing import Final

from rich.cells import cell_len

from duly.text import plain

_SHOWN_MAX: Final = 200


def pointed_at(text: str, begin: int, end: int, indent: str = "") -> list[str]:
    """Two lines: the text around a place, and a caret under it, counted in columns of a terminal."""
    first = max(0, min(begin - _SHOWN_MAX // 2, len(text) - _SHOWN_MAX))
    shown = text[first : first + _SHOWN_MAX]
    head = "…" if first else ""
    tail = "…" if first + _SHOWN_MAX < len(text) else ""
    line = head + "".join(map(_letter, shown)) + tail
    before = cell_len(head + "".join(map(_letter, shown[: begin - first])))
    before += max(0, begin - len(text))  # the place of a field that is missing
    width = max(1, cell_len("".join(map(_letter, shown[begin - first : end - first]))))
    return [indent + line, indent + " " * before + "^" + "~" * (min(width, _SHOWN_MAX) - 1)]


def _letter(letter: str) -> str:
    return " " if letter == "\t" else plain(letter)
