"""The site for language models: llms.txt lists the pages, llms-full.txt has all of them as one text."""

import re
from collections.abc import Iterator
from pathlib import Path

from docs.site.assemble import ROOT, pages, title_of
from docs.site.contents import CONTENTS, FOLLOWED, FRONT
from docs.site.descriptions import DESCRIPTIONS


def listed() -> Iterator[tuple[str, list[str]]]:
    """The captions of the navigation, and the pages under each, those of a folder after the page that leads to them."""
    known = pages()
    for caption, names in CONTENTS.items():
        found: list[str] = []
        for name in names:
            if name in known:
                found.append(name)
            if name in FOLLOWED:
                folder = name.rpartition("/")[0]
                linked = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / name).read_text(encoding="utf-8"))
                found += [f"{folder}/{each}" for each in dict.fromkeys(linked)]
        if caption == "Understand":
            found += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
        yield caption, found


def overview() -> str:
    """llms.txt: <https://llmstxt.org> says what it looks like."""
    lines = ["# duly", "", "> A declarative, durable cron scheduler for asyncio.", ""]
    places = pages()
    for caption, names in listed():
        lines += [f"## {caption}", ""]
        for name in names:
            place = places[name].removesuffix(".md") + ".html"
            title = re.sub(r"[`*]", "", title_of((ROOT / name).read_text(encoding="utf-8")))
            lines.append(f"- [{title}]({place}): {DESCRIPTIONS[name].sentence}")
        lines.append("")
    return "\n".join(lines)


def everything() -> str:
    """llms-full.txt: every page as it stands in the repository, after a line with its path."""
    names = ["README.md", FRONT, *(name for _, found in listed() for name in found)]
    return "\n".join(f"<!-- {name} -->\n\n{(ROOT / name).read_text(encoding='utf-8')}" for name in names)


def write(site: Path) -> None:
    """Write both beside the first page."""
    (site / "llms.txt").write_text(overview(), encoding="utf-8")
    (site / "llms-full.txt").write_text(everything(), encoding="utf-8")
