"""Text from outside, written so that a log, a terminal or a message shows it and is not changed by it."""


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
