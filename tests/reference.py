"""Reads the pages of docs/reference: sections, and the rows of their tables."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"


def sections(page: str) -> dict[str, str]:
    """The text below each heading of a page, up to the next heading; the code marks of a heading are left out."""
    text = re.sub(r"^```.*?^```$", "", (REFERENCE / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#+ (.+)\n", text, flags=re.MULTILINE)
    return {heading.replace("`", ""): below for heading, below in zip(parts[1::2], parts[2::2], strict=True)}


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in a text, without the heads of the tables."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {index - 1 for index, line in enumerate(lines) if set(line) <= set("|-")}
    return [
        [cell.strip() for cell in line[1:-1].split("|")]
        for index, line in enumerate(lines)
        if index not in heads and index - 1 not in heads
    ]


def code(cell: str) -> list[str]:
    """The words of a cell that are set as code."""
    return re.findall(r"`([^`]*)`", cell)
