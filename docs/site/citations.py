"""Whatever a docstring, a comment, a message or a page cites can be opened: `make docs` follows every citation.

    SPEC 3.9, SPEC 3        a clause or a section of docs/specification.md
    002 S1, 000 R1          a property of a source document: an anchor in its appendix G
    003 Logging Guarantees  a chapter of a source document: a row in its appendix I
    FORMAL A2               a heading of its appendix G; P12 a row there
    docs/guide.md, tests/…  a file or folder of this repository; core/task.py one of the package
    decisions/0007          a decision, by its number
    [text](page.md#part)    a link in a page: the file and the heading exist

In a page, a citation of a clause is a link to it, unless it is set as code.

The checks are functions from a text to faults, so that tests/test_citations.py can show each of them failing.
"""

import io
import re
import subprocess
import tokenize
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from duly import errors, events

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = ROOT / "docs" / "specification.md"
SUFFIXES = {".cfg", ".md", ".pml", ".py", ".service", ".toml"}
_BLOCK = re.MULTILINE | re.DOTALL
FOLDERS = "docs|tests|src|examples|benchmarks|conformance|formal|requirements"
PACKAGES = "core|engine|stores|formal|insight|testing|simulation|cli|web|integrations"


class Text(NamedTuple):
    """A file as it is searched, or a few lines that pretend to be one."""

    path: Path
    text: str

    @property
    def is_page(self) -> bool:
        """Whether it is Markdown."""
        return self.path.suffix == ".md"

    def fault(self, position: int, message: str) -> str:
        """A message with the place that it is about."""
        line = self.text.count("\n", 0, position) + 1
        return f"{self.path.relative_to(ROOT)}:{line}: {message}"


@cache
def repository() -> list[Text]:
    """Every text of the repository: what git knows, and what is new."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [
        Text(path, path.read_text(encoding="utf-8"))
        for path in paths
        if path.suffix in SUFFIXES and path.exists() and path != ROOT / "tests" / "test_citations.py"
    ]


# --- what can be cited -----------------------------------------------------------------------------------------------


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    kept = "".join(letter for letter in plain.lower() if letter in "-_ " or unicodedata.category(letter)[0] in "LN")
    return kept.replace(" ", "-")


def outside_code(page: str) -> str:
    """A page with its code blocks and code spans blanked, so that positions stay what they are."""
    return re.sub(r"^```.*?^```|`[^`\n]+`", lambda found: re.sub(r"[^\n]", " ", found[0]), page, flags=_BLOCK)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page, as they stand behind `#` in a link."""
    page = path.read_text(encoding="utf-8")
    blocks = re.sub(r"^```.*?^```", "", page, flags=_BLOCK)
    headings = re.findall(r"^#+ (.+)$", blocks, re.MULTILINE)
    return frozenset(map(slug, headings)) | frozenset(re.findall(r'<a id="([^"]+)">', page))


@cache
def chapters() -> dict[str, frozenset[str]]:
    """The chapters and sections of each source document, from the table that says where they stand."""
    table = SPECIFICATION.read_text(encoding="utf-8").split("## I. Where the source documents stand")[1]
    found: dict[str, set[str]] = {f"00{number}": set() for number in range(5)}
    for documents, titles in re.findall(r"^\| ((?:00\d(?:, )?)+) \| (.+?) \|", table, re.MULTILINE):
        for document in documents.split(", "):
            found[document] |= {re.sub(r" \(.*\)", "", title) for title in re.split(r": |; ", titles)}
    return {document: frozenset(titles) for document, titles in found.items()}


WIRE_NAMES = frozenset(vars(errors)) | frozenset(events.__all__)


# --- the checks ------------------------------------------------------------------------------------------------------

_SPEC = re.compile(r"\bSPEC (\d+(?:\.\d+)?)((?:(?:, and |, | and | to |–)\d+\.\d+(?![\d ]?(?:ms|s|h|%)\b))*)")
_FORMAL = re.compile(r"\bFORMAL ([A-Z]\d+)((?:, [A-DP]\d+\b)*)")
_PROPERTY = re.compile(r"(?<![\d,._/:#-])(00[0-4])(?:,? )([A-Z]{1,2}\d+[ab]?)(?![\w⁺ᵇ])")
_CHAPTER = re.compile(r"(?<![\d,._/:#-])(00[0-4])(?::|,)? ([A-Z][a-z][\w-]*(?:(?: & | |/)[A-Z][\w-]*)*)")
_PATH = re.compile(
    rf"(?<![\w/.~^{{}}-])((?:{FOLDERS})/(?:[\w./-]|\*(?!\*))*(?:\w|\*(?!\*))|(?:{PACKAGES})/[\w/]+\.py\b)",
)
_DECISION = re.compile(r"\bdecisions/(\d{4})\b(?!-)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
CITATIONS = (_SPEC, _FORMAL, _PROPERTY, _CHAPTER, _PATH, _LINK)
"""Patterns of citations, one for each kind."""


def unknown_clauses(text: Text) -> Iterator[str]:
    """SPEC n.m that is not a heading of the specification."""
    known = anchors(SPECIFICATION)
    page = SPECIFICATION.read_text(encoding="utf-8")
    for found in _SPEC.finditer(text.text):
        for number in (found[1], *re.findall(r"\d+\.\d+", found[2])):
            is_known = slug(number) in known if "." in number else f"\n## {number}. " in page
            if not is_known:
                yield text.fault(found.start(), f"the specification has no clause {number}")


def unknown_properties(text: Text) -> Iterator[str]:
    """A property or a chapter of a source document that the specification does not have."""
    known = anchors(SPECIFICATION)
    prose = text._replace(text=prose_of(text))
    for found in _PROPERTY.finditer(prose.text):
        if slug(f"{found[1]} {found[2]}") not in known:
            yield prose.fault(found.start(), f"the specification has no property {found[1]} {found[2]}")
    for found in _CHAPTER.finditer(prose.text):
        document, title = found[1], found[2]
        if not (title in WIRE_NAMES or any(title.startswith(each) for each in chapters()[document])):
            yield prose.fault(found.start(), f"the specification names no chapter {title!r} of {document}")


def unknown_formal(text: Text) -> Iterator[str]:
    """FORMAL X that is not a heading of the specification."""
    known = anchors(SPECIFICATION)
    for found in _FORMAL.finditer(text.text):
        for part in (found[1], *re.findall(r"[A-Z]\d+", found[2])):
            if (part.lower() if part.startswith("P") else slug(f"FORMAL {part}")) not in known:
                yield text.fault(found.start(), f"the specification has no FORMAL {part}")


def missing_files(text: Text) -> Iterator[str]:
    """A path of this repository, or the number of a decision, behind which there is nothing."""
    in_package = text.path.is_relative_to(ROOT / "src")  # where messages cite, too
    for found in _PATH.finditer(text.text if in_package else prose_of(text)):
        path = found[1]
        if "NNNN" in path or _DECISION.search(path):
            continue
        if not any(any(base.glob(path)) for base in (ROOT, ROOT / "src" / "duly", text.path.parent)):
            yield text.fault(found.start(), f"there is no {path}")
    for found in _DECISION.finditer(text.text):
        if not any((ROOT / "docs" / "decisions").glob(f"{found[1]}-*.md")):
            yield text.fault(found.start(), f"there is no decision {found[1]}")


def broken_links(text: Text) -> Iterator[str]:
    """A link of a page that leads nowhere in this repository."""
    if not text.is_page:
        return
    for found in _LINK.finditer(outside_code(text.text)):
        target, _, anchor = found[1].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (text.path.parent / target).resolve() if target else text.path
        if not path.exists():
            yield text.fault(found.start(), f"the link leads to no file: {found[1]}")
        elif anchor and anchor not in anchors(path):
            yield text.fault(found.start(), f"the link leads to no heading: {found[1]}")


def citations_without_link(text: Text) -> Iterator[str]:
    """A clause that a page cites in its prose, and that a reader could not click on."""
    if not text.is_page:
        return
    prose = outside_code(text.text)
    for found in _SPEC.finditer(prose):
        anchor = slug(found[1]) if "." in found[1] else ""
        behind = prose[found.end() :]
        if not (prose[found.start() - 1 : found.start()] == "[" and re.match(rf"\]\([^)#]*#{anchor}[^)]*\)", behind)):
            yield text.fault(found.start(), f"{found[0]} is not a link to its clause")


@cache
def prose_of(text: Text) -> str:
    """The text that people read in a file: all of a page, comments and strings of a program; the rest is blanked."""
    if text.path.suffix != ".py":
        return text.text
    kept = [" " * len(line) for line in text.text.splitlines()]
    lines = text.text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text.text).readline):
        is_docstring = token.type == tokenize.STRING and token.string.lstrip("rRbB").startswith('"""')
        if token.type == tokenize.COMMENT or is_docstring:
            (first, begin), (last, end) = token.start, token.end
            for number in range(first, last + 1):
                left, right = begin if number == first else 0, end if number == last else len(lines[number - 1])
                line = kept[number - 1]
                kept[number - 1] = line[:left] + lines[number - 1][left:right] + line[right:]
    return "\n".join(kept)


CHECKS = (
    unknown_clauses,
    unknown_properties,
    unknown_formal,
    missing_files,
    broken_links,
    citations_without_link,
)


def faults(text: Text) -> list[str]:
    """Citations of a text that cannot be followed."""
    return [fault for check in CHECKS for fault in check(text)]
