"""The properties as data: every text can be read, and the documentation shows them as they are."""

import re
from pathlib import Path

import pytest

from duly.formal import trace
from duly.formal.properties import (
    BY_ID,
    PROPERTIES,
    REGISTERS,
    SHARED_FORMULAS,
    SHARED_REGISTERS,
    PropertyKind,
    property_table,
    register_table,
    shared_property_table,
    shared_register_table,
)
from tests.formal.reference.formulas import Formula, read
from tests.formal.reference.shared import expanded, read_for

PAGE = (Path(__file__).parent.parent.parent / "docs" / "formal.md").read_text()
LETTERS = set(trace.LETTERS) | {
    "Crash", "Due", "RetryDue", "Resume", "REs", "REf", "First", "Gone", "Stale", "Miscounted", "Settled",
    "Overtaking", "Back", "Wait", "true",
}  # fmt: skip


def letters_in(formula: Formula) -> set[str]:
    return set().union(*map(letters_in, formula.operands)) if formula.operands else {formula.operator}


@pytest.mark.parametrize("text", [each.formula for each in (*REGISTERS, *PROPERTIES) if getattr(each, "is_formula", 1)])
def test_a_formula_can_be_read_and_names_only_what_exists(text: str) -> None:
    """A register that is misspelt would be a letter that never comes."""
    assert {re.sub("_[rc]$", "", letter) for letter in letters_in(read(text))} <= LETTERS


@pytest.mark.parametrize("text", [*(each.formula for each in SHARED_REGISTERS), *SHARED_FORMULAS.values()])
def test_a_formula_about_hosts_can_be_read_and_names_only_what_exists(text: str) -> None:
    """For two hosts: each letter is one of a host, of a host's run or call, or of the task."""
    of_hosts = LETTERS | {"Of", "Left", "InForce", "Alike"}
    of_one = re.sub(r"_h([rc]?)\b", r"_h1\1", expanded(text, (1, 2)))
    found = {re.sub("_h[12][rc]?$", "", letter) for letter in letters_in(read_for(of_one, (1, 2)))}
    assert found <= of_hosts


def test_a_register_of_hosts_replaces_one_or_is_new() -> None:
    """Definitions do not go in circles, and a name that is read otherwise keeps its place."""
    names = {each.name.removesuffix("_h") for each in SHARED_REGISTERS}
    assert names - {each.name for each in REGISTERS} == {"On", "Cut", "Present"}
    assert set(SHARED_FORMULAS) <= set(BY_ID)


def test_a_register_is_defined_before_it_is_used() -> None:
    """Definitions do not go in circles."""
    known: set[str] = set()
    names = {each.name for each in REGISTERS}
    for each in REGISTERS:
        used = set(re.findall(r"[A-Za-z]+", each.formula)) & names
        assert used <= known, each.name
        known.add(each.name)


def test_the_numbering_is_complete() -> None:
    """FORMAL A4, and the shadows of SPEC 7.5."""
    assert list(BY_ID) == [
        "S1", "S2", "S3", "S4", "S5", "S5⁺", "S6a", "S6b", "E2", "EW", "L1", "L2", "L3", "R1", "R2", "L2ᵇ",
    ]  # fmt: skip
    assert {each.id for each in PROPERTIES if each.kind is PropertyKind.LIVENESS} == {"L1", "L2", "L3"}


def test_the_documentation_shows_the_registers_and_the_properties() -> None:
    """One source of truth: the tables are written by `properties`."""
    for table in (register_table(), property_table(), shared_register_table(), shared_property_table()):
        assert table in PAGE


def test_the_documentation_shows_the_fields_of_every_event() -> None:
    for letters, event in trace.LETTERS.items():
        fields = ", ".join(f"`{field}`" for field in event._fields[2:])
        assert f"| `{letters}` | {fields} |" in PAGE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "something is missing at the end of ''"),
        ("G(", "something is missing at the end of 'G('"),
        ("a ∧", "something is missing at the end of 'a ∧'"),
        ("(a", "')' is missing in '(a'"),
        ("(a b)", "')' is missing in '(a b)'"),
        ("Hold(a)", "',' is missing in 'Hold(a)'"),
        ("Hold a", "'(' is missing in 'Hold a'"),
        ("Hold(a, b", "')' is missing in 'Hold(a, b'"),
        ("a b", "'b' is left over in 'a b'"),
        ("a)", "')' is left over in 'a)'"),
        ("a ? b", "cannot read ' ? b'"),
    ],
)
def test_a_text_that_is_not_a_formula_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        read(text)
    assert str(refused.value) == why
