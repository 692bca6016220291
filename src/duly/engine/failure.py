"""The record of an exception: a text for events and tables, and the end of its traceback.

A callback that fails often says little by its own exception: the reason is what it was raised from, or one of several
in a group. So the text goes on to the first exception in a group and along the chain of causes, and from its end to
what the group was raised from.
"""

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ERROR_TEXT_BYTES_MAX: Final = 4096
TRACEBACK_BYTES_MAX: Final = 8192
TRACEBACK_FRAMES_MAX: Final = 50
"""Frames kept per exception: about what fits into the bytes, however deep a recursion went."""

_PIECE_BYTES_MAX: Final = 2048
"""Bytes that are kept of one message, or one frame, in a traceback that is too long."""

FRAMES_READ_MAX: Final = 200
"""Frames of a traceback that are looked at: of a deep recursion the last ones."""

CHAIN_MAX: Final = 10
"""Exceptions that the text of an error names."""

_OWN: Final = str(Path(__file__).parent.parent) + os.sep


def error_text(error: BaseException) -> str:
    """The text of an exception, the first one in a group, and what each was raised from; storable, at most 4 KiB."""
    text = "; ".join(_parts(error))
    return _storable(text)[:ERROR_TEXT_BYTES_MAX].decode("utf-8", "ignore")


def _parts(error: BaseException) -> Iterator[str]:
    seen, groups = set[int](), list[BaseException]()
    link = ""
    following: BaseException | None = error
    while len(seen) < CHAIN_MAX:
        if following is not None and id(following) not in seen:
            seen.add(id(following))
            yield link + _what_it_says(following)
            if isinstance(following, BaseExceptionGroup):
                groups.append(following)
                link, following = "first: ", following.exceptions[0]
            else:
                link, following = _origin(following)
        elif groups:  # its first exception has come to an end, and it may have a cause of its own
            link, following = _origin(groups.pop(0))
            link = f"the group {link}"
        else:
            return


def _origin(error: BaseException) -> tuple[str, BaseException | None]:
    """The cause or the context of an exception, with the words that lead there; None if it has neither."""
    if error.__cause__ is not None:
        return "caused by ", error.__cause__
    return "raised while handling ", None if error.__suppress_context__ else error.__context__


def _what_it_says(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # an exception whose __str__ raises
        return type(error).__name__


def traceback_text(error: BaseException) -> str:
    """The end of the formatted exception, with its causes and members and without duly's own frames; at most 8 KiB.

    Of one that is longer, each message loses its middle first: with a long one the frames would be cut off.
    """
    try:
        pieces = [*map(_storable, own_frames_left_out(error, TRACEBACK_FRAMES_MAX).format())]
    except Exception:
        return error_text(error)
    encoded = b"".join(pieces).rstrip(b"\n")
    if len(encoded) > TRACEBACK_BYTES_MAX:
        encoded = b"".join(map(_middle_left_out, pieces)).rstrip(b"\n")
    if len(encoded) <= TRACEBACK_BYTES_MAX:
        return encoded.decode()
    mark = "…\n"
    _, _, whole_lines = encoded[len(mark.encode()) - TRACEBACK_BYTES_MAX :].partition(b"\n")
    return mark + whole_lines.decode("utf-8", "ignore")


def _middle_left_out(piece: bytes) -> bytes:
    if len(piece) <= _PIECE_BYTES_MAX:
        return piece
    begin, end = piece[: _PIECE_BYTES_MAX // 2], piece[-_PIECE_BYTES_MAX // 2 :]
    return "…".join(part.decode("utf-8", "ignore") for part in (begin, end)).encode()


def own_frames_left_out(error: BaseException, frames_max: int) -> traceback.TracebackException:
    """An exception, ready to be formatted: the last frames of each traceback in it, without those of duly."""
    shown = traceback.TracebackException.from_exception(error, limit=-FRAMES_READ_MAX)
    waiting: list[traceback.TracebackException | None] = [shown]
    while waiting:
        each = waiting.pop()
        if each is None:
            continue
        if each.stack:
            each.stack[:] = [frame for frame in each.stack if not _is_own(frame.filename)][-frames_max:]
        waiting += [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
    return shown


def frames_without_own(error: BaseException) -> int:
    """How many frames the traceback of an exception has without those of duly, however many of them are looked at."""
    return sum(not _is_own(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__))


def _is_own(filename: str) -> bool:
    return filename.startswith((_OWN, "<frozen importlib")) or f"{os.sep}importlib{os.sep}" in filename


def _storable(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")
