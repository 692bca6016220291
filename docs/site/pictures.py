"""Pictures of pages as SVG: made once of their text in the language of mermaid, committed, and shown by the site.

mermaid is a program for browsers. On the site it would be a large script, or a request to another host; what it draws
is small and needs neither. So `make pictures` lets a browser draw each of them and keeps the result under a name
that follows from the text. If the text changes, the old picture is not found any more, and the site shows the text
until a new one is made. decisions/0020 has the reasons.
"""

import hashlib
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "images" / "pictures"


def name_of(text: str) -> str:
    """The file that the picture of a text is kept in."""
    return hashlib.sha256(text.encode()).hexdigest()[:16] + ".svg"


def picture_of(text: str) -> Path | None:
    """The picture that was made of a text; None if there is none."""
    path = FOLDER / name_of(text)
    return path if path.exists() else None
