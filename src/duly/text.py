"""Text from outside, written so that a log, a terminal or a message shows it and is not changed by it.

And the word that was meant by one that is not known; and the names of attributes in logs and in JSON.
"""

from collections.abc import Iterable

_PREFIX_MIN = 3
"""Letters of a word that may be the beginning of the one that was meant."""


def plain(value: object, *, longest: int | None = None, lines: bool = False) -> str:
    """The text of a value with its unprintable characters as escapes, so that it stays on one line.

    At most `longest` characters of it, and an ellipsis for the rest; with `lines`, line ends stay as they are.
    """
    text = str(value)
    if longest is not None and len(text) > longest:
        text = text[:longest] + "…"
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or (lines and letter == "\n") else letter.encode("unicode_escape").decode()
        for letter in text
    )


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant: few letters differ, or it begins with the one given; None if none does.

    A suggestion that is far off is worse than none. Letters may differ in a third of the word, and in three at most;
    one of two may, and a word of one letter has to be there as it is.
    """
    asked = word.lower()
    most = min(3, max(1, len(asked) // 3)) if len(asked) > 1 else 0
    best: tuple[int, int, str] | None = None
    for each in known:
        other = each.lower()
        begins = len(asked) >= _PREFIX_MIN and other.startswith(asked)
        if not begins and abs(len(other) - len(asked)) > most:
            continue
        distance = most if begins else _distance(asked, other)
        if distance <= most and (best is None or (distance, len(each), each) < best):
            best = distance, len(each), each
    return None if best is None else best[2]


def _distance(one: str, other: str) -> int:
    """How many letters have to be inserted, left out, changed or swapped with their neighbour."""
    before, row = list[int](), list(range(len(other) + 1))
    for n, letter in enumerate(one, 1):
        earlier, before, row = before, row, [n]
        for m, facing in enumerate(other, 1):
            cost = min(before[m] + 1, row[m - 1] + 1, before[m - 1] + (letter != facing))
            if n > 1 and m > 1 and letter == other[m - 2] and facing == one[n - 2]:
                cost = min(cost, earlier[m - 2] + 1)
            row.append(cost)
    return row[-1]


def wire_name(attribute: str) -> str:
    """The name of an attribute in logs and in JSON: `task_name` is `taskName`."""
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)
