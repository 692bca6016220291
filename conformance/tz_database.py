"""Which tz database is in use: zones change by decree, so vectors about them name the version they were made with."""

import importlib
import importlib.resources
import os
import zoneinfo
from pathlib import Path


def use_package() -> None:
    """Take zones from the package `tzdata` and not from the machine: its version is known, and can be pinned."""
    zoneinfo.reset_tzpath(to=())
    os.environ["PYTHONTZPATH"] = ""  # and in processes that are started from here


def version() -> str:
    """The IANA version of the zones that `zoneinfo` reads, such as "2025b"; "unknown" if nothing states it."""
    for folder in zoneinfo.TZPATH:
        if (Path(folder) / "UTC").exists():
            return _of_folder(Path(folder))
    try:
        return str(importlib.import_module("tzdata").IANA_VERSION)
    except ImportError:
        return "unknown"


def _of_folder(folder: Path) -> str:
    """The version that stands in a machine's database: `tzdata.zi` begins with it, and `+VERSION` is it."""
    for name in ("tzdata.zi", "+VERSION"):
        try:
            with (folder / name).open(encoding="ascii", errors="replace") as file:
                words = file.readline().split()
        except OSError:
            continue
        if words:
            return words[-1]
    return "unknown"


def all_zones() -> list[str]:
    """The names of all zones of the package `tzdata`, sorted."""
    names = importlib.resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return sorted(names)
