"""Whether a site that was built can be used: every link and citation leads somewhere, nothing comes from elsewhere."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docs.site import citations

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """The links, the anchors and what is loaded of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADED and _LOADED[tag] in given:
            self.loaded.append(given[_LOADED[tag]])


def faults(site: Path) -> Iterator[str]:
    """The faults of a site."""
    parsed = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in parsed.items():
        where = path.relative_to(site)
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    yield f"{where}: loads something from another host: {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{where}: leads to no file: {link}"
            elif parts.fragment and target in parsed and unquote(parts.fragment) not in parsed[target].anchors:
                yield f"{where}: leads to no anchor: {link}"
    for name in ("index.html", "search.html", "searchindex.js", "llms.txt", "llms-full.txt"):
        if not (site / name).exists():
            yield f"{name} is missing"


def citation_faults() -> Iterator[str]:
    """Citations of the repository behind which there is nothing: of clauses, properties, files, decisions, headings."""
    for text in citations.repository():
        yield from citations.faults(text)
