"""Whether the packages of a release are right: what is in them, whether they are reproducible, what their types say.

Functions here take files or values and say what is wrong with them; `python -m tests.release` runs them all, and
test_packages.py shows each of them failing.
"""

import hashlib
import inspect
import re
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from docs.site.assemble import is_error, public_names
from docs.site.contents import API, WITHOUT_PAGE
from tests.programs import ROOT

ALONE = {"duly", "tzdata", "tzlocal"}
"""The packages of an environment that duly was installed into, without extras."""


def version() -> str:
    """The version that pyproject.toml names."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def source_files(root: Path = ROOT) -> list[str]:
    """Every file of the checkout that is not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return sorted(name for name in listed.stdout.splitlines() if (root / name).is_file())


def uncommitted(root: Path = ROOT) -> list[str]:
    """The files of a checkout that are not as its last commit has them; a release has none."""
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return sorted(line[3:] for line in listed.stdout.splitlines())


def expected_in_wheel(sources: Iterable[str], version: str) -> set[str]:
    """The files that a wheel has to hold: the package, man pages and completion, and what describes the wheel."""
    data, info = f"duly-{version}.data/data", f"duly-{version}.dist-info"
    described = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    return (
        {name.removeprefix("src/") for name in sources if name.startswith("src/duly/")}
        | {f"{data}/{name}" for name in sources if name.startswith("share/")}
        | {f"{info}/{name}" for name in described}
    )


def expected_in_source_archive(sources: Iterable[str], version: str) -> set[str]:
    """The files that a source archive has to hold: the checkout without its CI, and what describes the archive."""
    kept = {name for name in sources if not name.startswith(".ci/")}
    return {f"duly-{version}/{name}" for name in kept | {"PKG-INFO"}}


def names_in(archive: Path) -> set[str]:
    """The files in a wheel or a source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return {name for name in opened.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as opened_tar:
        return {member.name for member in opened_tar.getmembers() if member.isfile()}


def differing(found: set[str], expected: set[str]) -> Iterator[str]:
    """Files that are missing, and files that should not be there."""
    yield from (f"missing: {name}" for name in sorted(expected - found))
    yield from (f"not expected: {name}" for name in sorted(found - expected))


def unlike(first: Path, second: Path) -> Iterator[str]:
    """Files of two folders that are not the same, byte by byte."""
    names = {path.name for folder in (first, second) for path in folder.iterdir()}
    for name in sorted(names):
        if not ((first / name).exists() and (second / name).exists()):
            yield f"{name} was built once only"
        elif (first / name).read_bytes() != (second / name).read_bytes():
            yield f"{name} differs between two builds"


def checksums(folder: Path) -> str:
    """A line for each file, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def installed(listing: Sequence[Mapping[str, str]]) -> set[str]:
    """The packages of an environment, from what `pip list --format json` says."""
    return {each["name"].lower() for each in listing}


def example_of(readme: str, number: int = 1) -> str:
    """An example of the README, counted from 1."""
    found: list[str] = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    return found[number - 1]


# --- types -----------------------------------------------------------------------------------------------------------


def public_definitions() -> set[str]:
    """Where the public names are defined, as a type checker calls them."""
    found = set()
    with_page = {module_name: public_names(import_module(module_name)) for module_name in API}
    for module_name, names in {**with_page, **WITHOUT_PAGE}.items():
        module = import_module(module_name)
        for name in names:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value) or is_error(value):
                found.add(f"{value.__module__}.{value.__qualname__}")
            else:
                found.add(f"{module_name}.{name}")
    return found


def incomplete(report: Mapping[str, Any], public: set[str]) -> Iterator[str]:
    """Public names, and members of public classes, that are not completely typed, from pyright's report."""
    symbols = report["typeCompleteness"]["symbols"]
    if not symbols:
        yield "the report names no symbols"
    for symbol in symbols:
        name: str = symbol["name"]
        if symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]:
            continue
        above = name
        while above not in public and "." in above:
            above = above.rpartition(".")[0]
        is_private = any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
        if above in public and not is_private:
            reasons = "; ".join(each["message"].splitlines()[0] for each in symbol["diagnostics"])
            yield f"{name}: {reasons or 'its type is not known'}"
