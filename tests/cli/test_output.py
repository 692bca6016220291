"""Long lists: written piece by piece, they look as they would as a whole."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from duly.cli import output
from duly.cli.output import json_text, show
from duly.cli.tables import Cell, LongTable, table

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), values, max_size=5))
def test_a_document_is_what_json_dumps_makes_of_it(document: dict[str, Any]) -> None:
    """With an indent of two, whatever it holds."""
    document = {key: value for key, value in document.items() if key not in ("command", "format")}
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    expected = json.dumps({"command": "test", "format": 1, **document}, indent=2, ensure_ascii=ascii_only)
    assert "".join(json_text("test", document)) == f"{expected}\n"


@given(st.lists(values, max_size=5))
def test_an_iterator_is_written_as_a_list(elements: list[Any]) -> None:
    """One element after the other, also none."""
    whole = "".join(json_text("test", {"before": 1, "elements": elements, "after": [1]}))
    assert "".join(json_text("test", {"before": 1, "elements": iter(elements), "after": [1]})) == whole


def rows(count: int) -> list[list[Cell]]:
    return [
        [
            (f"task-{number}" + "x" * (number % 7), "bold"),
            ("überfällig" if number % 3 else "-", "yellow"),
            (str(number * 37), ""),
            ("-" if number % 2 else f"12:00 error {number}: " + "so it goes, " * (number % 30), "red"),
        ]
        for number in range(count)
    ]


@pytest.mark.parametrize("width", [1000, 120, 60, 40])
def test_a_long_table_looks_as_a_short_one_does(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide or narrow, with remarks that are wrapped beside their row or stand below it."""
    monkeypatch.setattr(output, "_PIPE_WIDTH", width)
    output.console.cache_clear()
    try:
        headings = ("task", "state", "runs")
        whole = table(
            headings,
            [[Text(*cell) for cell in row] for row in rows(30)],
            right=("runs",),
            spare=("state",),
            remark="failure",
        )
        show(whole)
        expected = capsys.readouterr().out
        with LongTable(headings, right=("runs",), spare=("state",), remark="failure") as long:
            for row in rows(30):
                long.add(row)
            long.print()
        found = capsys.readouterr().out
    finally:
        output.console.cache_clear()
    assert [line.rstrip() for line in found.splitlines()] == expected.splitlines()


def test_nothing_is_written_if_what_is_spooled_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """No half of a document on standard output."""

    def spool(*, fails: bool) -> None:
        with output.spooled() as file:
            file.write("half of a document")
            if fails:
                raise RuntimeError
            file.write(", and the other half")

    with pytest.raises(RuntimeError):
        spool(fails=True)
    assert capsys.readouterr().out == ""
    spool(fails=False)
    assert capsys.readouterr().out == "half of a document, and the other half"
