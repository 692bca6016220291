"""The reference says everything that a caller has to know: every parameter, every field, every error."""

import inspect
import re
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from textwrap import dedent, indent
from typing import Any

import pytest

import duly.errors
from docs.site.assemble import public_names, text_of
from docs.site.contents import API
from duly.errors import DulyError
from duly.testing import SimulatedCluster, SimulatedHost
from tests.docs.docstrings import (
    Documented,
    documented,
    error_named,
    fields_of,
    raised,
    sections,
    unexplained_fields,
)

MODULES = pytest.mark.parametrize("module_name", API)


@MODULES
def test_public_names_explain_their_parameters(module_name: str) -> None:
    """All that they take, and nothing that they do not take any more."""
    for entry in documented(module_name):
        assert entry.text.strip(), entry.name
        assert entry.section("Parameters") == (entry.parameters if entry.is_called else []), entry.name


@MODULES
def test_public_values_explain_their_fields(module_name: str) -> None:
    """Where they are declared: after `#:`, or in a text below."""
    found = [entry for entry in documented(module_name) if inspect.isclass(entry.value) and fields_of(entry.value)]
    assert {entry.name: unexplained_fields(entry.value) for entry in found} == {entry.name: [] for entry in found}


@MODULES
def test_public_constants_are_explained(module_name: str) -> None:
    """By a text below them."""
    module = import_module(module_name)
    constants = [name for name in public_names(module) if not callable(getattr(module, name))]
    assert [name for name in constants if not text_of(module, name)] == []


@MODULES
def test_public_names_name_the_errors_that_they_raise(module_name: str) -> None:
    """Each of them, or the family that it belongs to."""
    for entry in documented(module_name):
        named = [error_named(name) for name in entry.section("Raises")]
        assert None not in named, f"{entry.name}: a name under Raises is not an error"
        families = tuple(each for each in named if each is not None)
        unnamed = [name for name in raised(entry) if not issubclass(error_named(name) or object, families)]
        assert unnamed == [], entry.name


def test_every_error_is_named_by_something_that_raises_it() -> None:
    """By its own name, or by that of its family or of a member; or it is said to be the cause of another one."""
    entries = [each for module in API for each in documented(module)]
    named = {error_named(name) for each in entries for name in each.section("Raises")} - {DulyError, Exception}
    causes = {name for each in entries for name in re.findall(r"its cause is the `(\w+)`", each.text)}
    unnamed = [
        name
        for name in public_names(duly.errors)
        if name != "DulyError" and name not in causes
        if not any(error is not None and _related(error, getattr(duly.errors, name)) for error in named)
    ]
    assert unnamed == []


def _related(one: type, other: type) -> bool:
    return issubclass(one, other) or issubclass(other, one)


EXAMPLES = [
    pytest.param(example, id=each.name)
    for module in API
    for each in documented(module)
    for example in re.findall(r"^```python\n(.*?)^```$", each.text, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_in_a_docstring_runs(example: str) -> None:
    """Inside of a coroutine, with the names that a reader has at hand."""
    known = {"SimulatedCluster": SimulatedCluster, "SimulatedHost": SimulatedHost, "timedelta": timedelta}
    made: dict[str, Any] = {**known, "report": lambda: None}
    exec(f"async def example():\n{indent(example, '    ')}", made)
    await made["example"]()


def test_there_are_examples_in_docstrings() -> None:
    """The pattern that finds them still finds them."""
    assert len(EXAMPLES) >= 2


# --- the checks themselves -------------------------------------------------------------------------------------------


def test_sections_are_read() -> None:
    """Names at their margin; what follows a name may go on below it."""
    text = dedent("""\
        Do something.

        Parameters:
            first: a thing,
                with more: of it.
            **others: the rest.

        Raises:
            ValueError: never.

        After: not a section.
        """)
    assert sections(text) == {"Parameters": ["first", "**others"], "Raises": ["ValueError"]}


def helper(number: int) -> None:
    """Raise for what a caller of `raising` may not know."""
    if number < 0:
        raise ValueError("negative")


def made() -> KeyError:
    """Make an error for others to raise."""
    return KeyError("made")


class Raising:
    """Raises in several ways."""

    def __init__(self, number: int) -> None:
        self.check(number)

    def check(self, number: int) -> None:
        """Raise by a function, and by what another one makes."""
        helper(number)

        def inner() -> None:
            raise TypeError("not its own")

        if number > 1:
            raise made()


def test_errors_are_found_in_the_source() -> None:
    """Directly, in helpers of the module, in methods of the class, and made by a function; not in inner functions."""
    assert raised(Documented("check", Raising.check, "", Raising)) == {"ValueError", "KeyError"}
    assert raised(Documented("Raising", Raising, "")) == {"ValueError", "KeyError"}


def test_there_are_fields_to_explain() -> None:
    """The pattern that finds them still finds them, and sees what is not explained."""
    kinds = [each.value for module in API for each in documented(module) if inspect.isclass(each.value)]
    assert sum(len(fields_of(kind)) for kind in kinds) > 300
    assert unexplained_fields(Unexplained) == ["second"]


@dataclass
class Unexplained:
    """A value with a field that nothing explains."""

    first: int  #: the first
    second: int
    #: the third
    third: int
    fourth: int
    """The fourth."""
