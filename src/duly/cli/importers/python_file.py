"""An import as a Python file: it runs as it is, and its comments say what is different under duly."""

import sys
from collections.abc import Iterable
from datetime import timedelta

from duly.cli.importers.result import Import, ImportedEntry
from duly.text import plain


def python_source(found: Import, retry_delay: timedelta) -> str:
    """The text of the file."""
    blocks = [_docstring(found), *_import_blocks([*found.imports, "from datetime import timedelta"])]
    seconds = retry_delay.total_seconds()
    amount = f"seconds={seconds:g}" if seconds % 60 else f"minutes={seconds / 60:g}"
    blocks.append(f"RETRY_DELAY = timedelta({amount})  # after a failure; chosen by the import, choose your own")
    if found.helpers:
        blocks.append("\n" + found.helpers.strip("\n") + "\n")
    blocks.append("registrations = [\n" + "".join(_lines(found.entries)) + "]")
    return "\n\n".join(blocks) + "\n"


def _import_blocks(lines: Iterable[str]) -> list[str]:
    """Lines of imports in the usual order: the standard library first, one line for each module."""
    modules = [line for line in lines if line.startswith("import ")]
    names: dict[str, set[str]] = {}
    for line in set(lines) - set(modules):
        module, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(module, set()).add(name)
    standard, others = sorted(modules), list[str]()
    for module in sorted(names):
        known = module.split(".")[0] in sys.stdlib_module_names
        (standard if known else others).append(f"from {module} import {', '.join(sorted(names[module]))}")
    return ["\n".join(block) for block in (standard, others) if block]


def _docstring(found: Import) -> str:
    lines = [f"Registrations for duly, imported from {_docstring_text(found.origin)}.", ""]
    lines.append("What is different for all of them:")
    for difference in found.differences:
        lines += _wrapped(f"- {difference}", "", "  ")
    if found.left_out:
        names = ", ".join(_docstring_text(entry.task) for entry in found.left_out)
        lines += ["", f"NOT IMPORTED, see below: {names}."]
    return '"""' + "\n".join(lines) + '\n"""'


def _docstring_text(text: str) -> str:
    """Text that cannot end a docstring."""
    return plain(text).replace("\\", "/").replace('"', "'")


def _lines(entries: Iterable[ImportedEntry]) -> Iterable[str]:
    for entry in entries:
        head = "" if entry.imported else "NOT IMPORTED: "
        yield "".join(f"{line}\n" for line in _wrapped(f"{head}{plain(entry.source)}", "    # ", "    #   "))
        for text in (*entry.obstacles, *entry.notes):
            yield "".join(f"{line}\n" for line in _wrapped(f"- {plain(text)}", "    #   ", "    #     "))
        if entry.expression is not None:
            yield f"    # {entry.words}\n"
            yield f"    ({entry.task!r}, {entry.expression.text!r}, {entry.call}, RETRY_DELAY),\n"


def _wrapped(text: str, first: str, later: str) -> list[str]:
    """Lines of at most 110 columns; a long word stays whole."""
    lines, line = [], first
    for word in text.split(" "):
        if len(line) + len(word) > 110 and line.strip(" #"):
            lines.append(line.rstrip())
            line = later
        line += word + " "
    return [*lines, line.rstrip()]
