"""The source of the site: the pages of the repository, with links that hold there.

The pages are written to be read in the repository, where a link leads to a file. The site has fewer files and other
places for some, so a copy of the pages is made, in which

- a link to a page leads to where that page stands on the site,
- a link to another file (an example, a test) leads to a copy of it,
- an anchor that is not a heading (`<a id="...">`) is a label of Sphinx,
- a picture in the language of mermaid is the SVG that was made of it, or its text if there is none,
- the first page begins with the first screen of the README instead of its own title, and has the navigation,
- each public module has a page that is filled from its docstrings.
"""

import ast
import importlib
import inspect
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Final

from docs.site.contents import API, BESIDE, CONTENTS, ELSEWHERE, FOLLOWED, FRONT
from docs.site.pictures import picture_of

ROOT: Final = Path(__file__).resolve().parents[2]
COPIES: Final = "repository"
"""The folder of the site that files from outside of the pages are copied into."""

_BLOCK = re.MULTILINE | re.DOTALL
_LINK = re.compile(r"(?<=\]\()([^)\s#]*)((?:#[^)\s]*)?)(?=\))")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>([^|]+?)(?= \|)')
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", _BLOCK)


def pages() -> dict[str, str]:
    """Every page: its path in the repository, and its path on the site."""
    inside = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))}
    return {name: name.removeprefix("docs/") for name in inside} | ELSEWHERE


def outside_code(text: str) -> str:
    """A page with its code blanked, so that positions stay what they are."""
    return re.sub(r"^```.*?^```|`[^`\n]+`", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=_BLOCK)


def replaced(text: str, pattern: re.Pattern[str], new: Callable[[re.Match[str]], str]) -> str:
    """A page in which what a pattern finds outside of code is replaced."""
    parts, done = [], 0
    for found in pattern.finditer(outside_code(text)):
        parts += [text[done : found.start()], new(found)]
        done = found.end()
    return "".join([*parts, text[done:]])


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page that are not headings; none if it is not a page."""
    if path.suffix != ".md" or not path.is_file():
        return frozenset()
    return frozenset(found[1] for found in _ANCHOR.finditer(path.read_text(encoding="utf-8")))


def label(anchor: str) -> str:
    """The name of such an anchor on the site, where it must begin with a letter."""
    return f"at-{anchor}"


class Assembly:
    """A folder with the source of the site."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.places: Mapping[str, str] = pages()
        self.copied: set[str] = set()
        self.texts_of_pictures: list[str] = []
        """Pictures that are shown as text, because no SVG was made of what they say now."""

    def write(self) -> None:
        """Write all of it."""
        shutil.rmtree(self.target, ignore_errors=True)
        for name, place in self.places.items():
            if name != "README.md":
                self.put(place, self.page(name, place))
        self.put("decisions/index.md", self.decisions())
        for module, title in API.items():
            self.put(f"reference/api/{module}.md", api_page(module, title))
        for name in ("growth.svg",):
            shutil.copy2(ROOT / "docs" / name, self.target / name)
        if (ROOT / "docs/images").is_dir():
            shutil.copytree(ROOT / "docs/images", self.target / "images")

    def put(self, place: str, text: str) -> None:
        """Write one page."""
        path = self.target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def page(self, name: str, place: str) -> str:
        """A page of the repository, as the site has it."""
        text = self.linked(name, place, (ROOT / name).read_text(encoding="utf-8"))
        if name == FRONT:
            text = f"{self.linked('README.md', place, first_screen())}## Documentation\n\n{without_title(text)}"
        text = _ANCHOR.sub(lambda found: f"[{found[2]}]{{#{label(found[1])}}}", text)
        text = _MERMAID.sub(lambda found: self.picture(name, place, found[1]), text)
        return text + self.navigation(name)

    def linked(self, name: str, place: str, text: str) -> str:
        """The text of a page, with links that hold at this place on the site."""
        return replaced(text, _LINK, lambda found: self.link(name, place, found[1], found[2]))

    def link(self, name: str, place: str, target: str, anchor: str) -> str:
        """A link of a page, as it holds on the site."""
        if "://" in target or target.startswith("mailto:"):
            return target + anchor
        path = (ROOT / name).parent.joinpath(target).resolve() if target else ROOT / name
        if not target and anchor[1:] not in anchors(path):
            return anchor
        wanted = path.relative_to(ROOT).as_posix()
        there = self.places.get(wanted)
        if there is None and wanted.startswith("docs/") and path.suffix in (".png", ".svg"):
            there = wanted.removeprefix("docs/")
        if there is None:
            there = self.copy(wanted)
            anchor = ""  # a copy is text, and has no headings
        if anchor[1:] in anchors(path):
            return f"#{label(anchor[1:])}"
        return os.path.relpath(there, Path(place).parent) + anchor

    def copy(self, name: str) -> str:
        """Copy a file from outside of the pages, or list a folder; its path on the site."""
        place = f"{COPIES}/{name}"
        if name.endswith(".md") or (ROOT / name).is_dir():
            place += ".txt"  # to be read as it is: it is not a page of the site
        if name not in self.copied:
            self.copied.add(name)
            (self.target / place).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                found = sorted(path.name for path in (ROOT / name).iterdir() if not path.name.startswith(("_", ".")))
                (self.target / place).write_text("".join(f"{name}/{each}\n" for each in found), encoding="utf-8")
            else:
                shutil.copyfile(ROOT / name, self.target / place)
        return place

    def picture(self, name: str, place: str, text: str) -> str:
        """A picture as SVG, or as text if none was made of it."""
        found = picture_of(text)
        if found is None:
            self.texts_of_pictures.append(name)
            return f"```text\n{text}```"
        there = found.relative_to(ROOT / "docs")
        return f"![{caption_of(text)}]({os.path.relpath(there, Path(place).parent)})"

    def navigation(self, name: str) -> str:
        """The navigation that is added to a page."""
        if name == FRONT:
            return "".join(toctree(self.entries(list(listed)), caption) for caption, listed in CONTENTS.items())
        if name in FOLLOWED:
            text = (ROOT / name).read_text(encoding="utf-8")
            linked = dict.fromkeys(re.findall(r"\]\(([\w-]+\.md)\)", text))
            return toctree([each.removesuffix(".md") for each in linked])
        if name == "docs/reference/api.md":
            return toctree([f"api/{module}" for module in API])
        if name == "docs/architecture.md":
            return toctree(["decisions/index"])
        return ""

    def entries(self, names: list[str]) -> Iterator[str]:
        """Places on the site for a navigation on its first page; a page that is not written yet is left out."""
        for name in names:
            if name in self.places:
                yield self.places[name].removesuffix(".md")

    def decisions(self) -> str:
        """A page that leads to every decision."""
        found = sorted((ROOT / "docs/decisions").glob("*.md"))
        lines = [f"- [{title_of(path.read_text(encoding='utf-8'))}]({path.name})" for path in found]
        listed = "\n".join(lines)
        tree = toctree([path.stem for path in found])
        return f"# Decisions\n\nChoices that may be questioned, with context and consequence.\n\n{listed}\n{tree}"


def toctree(entries: Iterator[str] | list[str], caption: str | None = None) -> str:
    """A hidden navigation for the end of a page."""
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return f"\n```{{toctree}}\n{options}\n" + "\n".join(entries) + "\n```\n"


def title_of(text: str) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def first_screen() -> str:
    """The README up to its first section: what duly is, what it does after a kill, what changes for its new users."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text[: text.index("\n## ") + 1]


def without_title(text: str) -> str:
    """A page without its title and its first paragraph."""
    _title, _introduction, rest = text.split("\n\n", 2)
    return rest


def caption_of(mermaid: str) -> str:
    """The caption of a picture, for people who cannot see it."""
    kind = {"flowchart": "layers and arrows", "sequenceDiagram": "calls in order", "stateDiagram-v2": "states"}
    return f"A picture of {kind.get(mermaid.split(maxsplit=1)[0], 'what the text says')}"


# --- the API ---------------------------------------------------------------------------------------------------------


def public_names(module: ModuleType) -> list[str]:
    """The public names of a module: its `__all__`, or what it defines itself without an underscore."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    if module.__name__ == "duly":  # errors and modules have pages of their own
        listed = [name for name in listed if not (is_error(value := getattr(module, name)) or inspect.ismodule(value))]
    return [*listed, *BESIDE.get(module.__name__, ())]


def text_of(module: ModuleType, name: str) -> str:
    """The text below a constant, in the module of the package that defines it; empty if there is none."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    for source in sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]:
        body = ast.parse(source.read_text(encoding="utf-8")).body
        for each, below in pairwise(body):
            targets = [each.target] if isinstance(each, ast.AnnAssign) else getattr(each, "targets", [])
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    return " ".join(str(below.value.value).split())
    return ""


def inherited_from(value: type) -> list[type]:
    """The protocols of duly that a protocol extends; their methods have no other page."""
    if not getattr(value, "_is_protocol", False):
        return []
    return [each for each in value.__mro__[1:] if each.__module__.startswith("duly.")]


def is_error(value: object) -> bool:
    """Whether something is a class of errors."""
    return isinstance(value, type) and issubclass(value, BaseException)


def api_page(name: str, title: str) -> str:
    """A page with the docstrings of a module's public names."""
    module = importlib.import_module(name)
    lines = [f"# {title}: `{name}`", "", "```{eval-rst}", f".. currentmodule:: {name}", ""]
    for each in public_names(module):
        value = getattr(module, each)
        if is_error(value):
            lines += [f".. autoexception:: {each}", "   :show-inheritance:", "   :members:", ""]
        elif isinstance(value, type):
            lines += [f".. autoclass:: {each}", "   :members:", "   :undoc-members:"]
            lines += ["   :inherited-members: Protocol", ""] if inherited_from(value) else [""]
        elif callable(value):
            lines += [f".. autofunction:: {each}", ""]
        else:
            lines += [f".. py:data:: {each}", "", f"   {text_of(module, each)}", ""]
    return "\n".join([*lines, "```", ""])
