"""Draw the pictures of the pages: `python -m tests.docs.pictures FOLDER`, where mermaid was installed; `make pictures`.

Each block in the language of mermaid becomes an SVG under a name that follows from its text (docs/site/pictures.py).
Pictures whose text is gone are removed.
"""

import re
import sys
from pathlib import Path

from docs.site.pictures import FOLDER, name_of
from tests.programs import ROOT
from tests.web.browser import browser

_SETTINGS = {
    "startOnLoad": False,
    "securityLevel": "strict",
    "theme": "neutral",
    "deterministicIds": True,
    "fontFamily": "sans-serif",
}

# What mermaid returns is HTML; a file of its own has to be XML.
_DRAW = """async text => {
    const { svg } = await mermaid.render('picture', text);
    const drawn = new DOMParser().parseFromString(svg, 'text/html').querySelector('svg');
    return new XMLSerializer().serializeToString(drawn);
}"""


def texts() -> dict[str, str]:
    """The text of each picture of each page, by the name of its file."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    blocks = [
        text
        for page in pages
        for text in re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    return {name_of(text): text for text in blocks}


def main(mermaid: Path) -> None:
    """Draw what is missing, and remove what is not shown any more."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = texts()
    for path in FOLDER.glob("*.svg"):
        if path.name not in wanted:
            path.unlink()
    with browser() as opened:
        page = opened.new_page()
        page.set_content("<!doctype html><body></body>")
        page.add_script_tag(path=mermaid / "node_modules/mermaid/dist/mermaid.min.js")
        page.evaluate("settings => mermaid.initialize(settings)", _SETTINGS)
        for name, text in wanted.items():
            if not (FOLDER / name).exists():
                drawn: str = page.evaluate(_DRAW, text)
                # In a page of either colour: a ground of its own.
                drawn = drawn.replace('style="', 'style="background: white; ', 1)
                (FOLDER / name).write_text(f"{drawn}\n", encoding="utf-8")
                sys.stdout.write(f"{(FOLDER / name).relative_to(ROOT)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
