"""Sphinx: how the source that `docs/site/assemble.py` has written becomes HTML. `make docs` runs it."""

import inspect
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.site.assemble import public_names  # noqa: E402 - found by the line above
from docs.site.contents import API  # noqa: E402

project = "duly"
author = "The duly authors"
copyright = "the duly authors"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["repository/**"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!duly\b).*"),  # the standard library: a build does not fetch its inventory
    ("py:.*", r"duly\.(?:core|engine|formal|insight|stores|testing|web)\.\w+\..*"),  # types that are not public
    ("py:.*", r"duly\.threads\..*|duly\..*\._\w+"),
]

# Pages are Markdown with GitHub's anchors.
myst_heading_anchors = 6
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["misc.highlighting_failure"]  # JSON with `…` in the place of more of it

# Docstrings have `code` between single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"duly {release}"
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"


def _public_places() -> dict[str, str]:
    """Where a class or function is defined, and the public name that its page has."""
    found: dict[str, str] = {}
    for module_name in API:
        module = import_module(module_name)
        for name in public_names(module):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(f"{value.__module__}.{value.__qualname__}", f"{module_name}.{name}")
    return found


_CODE = re.compile(r"(`[^`]+`)(\w?)")
_SECTION = re.compile(r"(Parameters|Returns|Yields|Raises):$")
_ENTRY = re.compile(r"    (\*{0,2})(\w+): (.+)")
_ROLES = {"Parameters": "param", "Raises": "raises", "Returns": "returns", "Yields": "yields"}


def _marked(found: re.Match[str]) -> str:
    return f"{found[1]}\\ {found[2]}" if found[2] else found[1]


def restructured(lines: list[str]) -> list[str]:
    """A docstring, which is Markdown with sections, as reStructuredText has it."""
    written: list[str] = []
    inside = False
    role: str | None = None
    for line in lines:
        if line.lstrip().startswith("```"):
            inside = not inside
            written += [f".. code-block:: {line.strip()[3:]}", ""] if inside else [""]
            continue
        if inside:
            written.append(f"    {line}")
            continue
        # A word may end in letters after its code, as in `StoreError`s; reStructuredText wants them marked.
        line = _CODE.sub(_marked, line)
        if section := _SECTION.match(line):
            role = _ROLES[section[1]]
            written += ["", f":{role}:"] if role in ("returns", "yields") else [""]
        elif role is not None and line.startswith("    "):
            entry = _ENTRY.match(line) if role in ("param", "raises") else None
            written.append(line if entry is None else _field(role, *entry.groups()))
        else:
            role = role if not line else None
            written.append(line)
    return written


def _field(role: str, stars: str, name: str, text: str) -> str:
    escaped = stars.replace("*", "\\\\*")
    return f":{role} {escaped}{name}: {text}"


def sentence(lines: list[str]) -> list[str]:
    """The explanation of a field, which may be a comment beside it, as a sentence."""
    text = " ".join(lines).strip()
    if not text or text[0] == "`" or text.endswith((".", ":")):
        return lines
    return [f"{text[0].upper()}{text[1:]}."]


def setup(app: Sphinx) -> None:
    """Read docstrings as they are written, and let types in signatures lead to the page of their public name."""
    places = _public_places()

    def rewrite(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
        lines[:] = restructured(sentence(lines) if what == "attribute" else lines)

    app.connect("autodoc-process-docstring", rewrite)

    def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: Any) -> Any:
        if node.get("refdomain") != "py":
            return None
        target = str(node["reftarget"])
        public = places.get(target) or places.get(f"{node.get('py:module')}.{target}")
        if public is None:
            public = next((place for place in places.values() if place.rpartition(".")[2] == target), None)
        if public is None:
            return None
        return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, content)

    app.connect("missing-reference", resolve)
