"""The counters of `tests.tools.figures` notice planted examples, and leave alone what only looks like them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ROOT, environment
from tests.tools import figures
from tests.tools.figures import Place

PLANTED = {
    "engine/host.py": """
from collections.abc import Callable
from dataclasses import dataclass

@dataclass(frozen=True)
class Host:
    new_pool: Callable[[int], object]
""",
    "engine/part.py": """
import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

Ended = Callable[[int], None]

class Heard(Protocol):
    def __call__(self, event: object) -> None: ...

class Part:
    def __init__(self, other: "Other", ended: Ended, *, heard: Heard, ask: "Callable[[], bool]", on_event: Ended):
        self._other = other
        self._ready = asyncio.Event()
        self._closing = self._closed = False
        self.count = 1

    async def run(self, settle: Ended, call: Ended) -> None:
        self._ask(lambda: True)

    def _ask(self, ask: Ended) -> None: ...

    def close(self, twin: "Part") -> None:
        self._closing = True
        twin._closing = True
        self._other._name = os._exit
        part = Part._instance
        print(part._ready)

@dataclass
class Shared:
    bursting: bool
    idle: asyncio.Event = field(default_factory=asyncio.Event)

@dataclass(frozen=True)
class Value:
    traced: bool = False
""",
    "core/values.py": """
def ask(expression: object, event: tuple) -> None:
    print(expression._pattern, event._replace(a=1), expression.__class__)
""",
}


def names(places: list[Place]) -> list[str]:
    return [place.name for place in places]


def test_parameters_that_are_called_are_counted_with_their_aliases() -> None:
    """Not the application's listener, not what a thread runs, not the factories of the host, nothing inside a class."""
    assert names(figures.injected_callables(PLANTED)) == ["Part(ended)", "Part(heard)", "Part(ask)", "Part(settle)"]


def test_events_and_flags_are_counted_once_each() -> None:
    """An attribute that is set in two places is one; a field of a frozen value is not state."""
    assert sorted(names(figures.events(PLANTED))) == ["Part._ready", "Shared.idle"]
    assert sorted(names(figures.flags(PLANTED))) == ["Part._closed", "Part._closing", "Shared.bursting"]


def test_privates_of_other_modules_are_counted() -> None:
    """An object of a class of the same module may be looked into; so may a named tuple, and the standard library."""
    found = figures.foreign_privates(PLANTED)
    assert found == [
        Place("core/values.py", 3, "expression._pattern"),
        Place("engine/part.py", 28, "self._other._name"),
    ]


def test_lines_are_counted_by_package() -> None:
    """The engine's modules count as its package even in a tree that has no folder for them."""
    assert figures.lines({"loop.py": "a\n" * 3, "errors.py": "a\n", "core/cron.py": "a\n" * 2}) == {
        "core": 2,
        "duly": 1,
        "engine": 3,
    }


def test_a_folder_without_duly_is_refused(tmp_path: Path) -> None:
    """One sentence that says what to name."""
    with pytest.raises(SystemExit, match="holds no modules"):
        figures.main(["--src", str(tmp_path)])


def test_one_occurrence_goes_through_what_the_documentation_shows() -> None:
    """It runs on this tree, and the counts fit together."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.tools.occurrence"],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    counted = json.loads(told.stdout)
    assert counted["calls"] > counted["functions"] > counted["modules"] > 5
    assert counted["calls"] > counted["changes of file"] > counted["changes of file without leaves"] > 5
