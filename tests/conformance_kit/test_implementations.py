"""duly against all vectors, and the committed results and page against fresh answers of every known library."""

import sys

import pytest

from conformance import results, table
from conformance.__main__ import PAGE
from conformance.adapters import NAMES, adapter
from conformance.comparison import premise_holds
from conformance.protocol import Program
from conformance.results import ImplementationResult, sign_of
from conformance.runner import Report, hold
from conformance.vector_files import Group, Vector, load
from tests.counts import count, share

CRON = [Group.CRON_PARSE, Group.CALENDAR, Group.TRANSITIONS]
AGAIN = "`make conformance` writes the results and the page anew"


@pytest.mark.parametrize("group", Group, ids=lambda group: group.value)
def test_duly_agrees_with_every_vector(group: Group) -> None:
    """Of the scenarios a share in `make test`: each of them is a life of the real scheduler."""
    report = hold(
        adapter("duly"), [group], choose=lambda vectors: share(vectors, 20) if group is Group.SCENARIOS else vectors
    )
    result = report.results[group]
    assert [
        (vector["id"], outcome.kind, outcome.answered)
        for vector, outcome in zip(result.vectors, result.outcomes, strict=True)
        if outcome.kind is not None
    ] == []
    assert result.count("duly", None) + result.not_applicable == len(result.vectors)
    assert result.not_applicable < len(result.vectors) / 10  # zones whose rules have changed since


def committed(name: str) -> ImplementationResult:
    found, _ = results.load()
    return next(each for each in found if each.name == name)


def fresh(name: str, groups: list[Group], number: int) -> Report:
    """A share of the vectors, asked over the protocol, with the zones of the package."""
    with Program([sys.executable, "-m", "conformance", "serve", name]) as program:
        return hold(program, groups, choose=lambda vectors: share(vectors, number))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "duly"])
def test_a_library_answers_as_the_committed_results_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of the vectors in `make test`, all of them in `make test-all`."""
    monkeypatch.setenv("PYTHONTZPATH", "")
    report = fresh(name, CRON, count(1_000_000, 100))
    expected = committed(name)
    assert report.hello.version == expected.version, AGAIN
    for group, result in report.results.items():
        places = {vector["id"]: place for place, vector in enumerate(load(group).vectors)}
        for vector, outcome in zip(result.vectors, result.outcomes, strict=True):
            if group is Group.TRANSITIONS and not premise_holds(vector):
                continue  # this machine's zones are not those of the vectors
            sign = expected.groups[group].signs[places[vector["id"]]]
            assert sign_of(outcome.kind, applies=outcome.applies) == sign, (AGAIN, group.value, vector["id"], outcome)


def test_the_page_is_what_the_committed_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == table.page(*results.load()), AGAIN


def test_the_committed_results_cover_every_vector_of_every_group_and_library() -> None:
    found, database = results.load()
    assert [each.name for each in found] == list(NAMES)
    assert database == load(Group.TRANSITIONS).tz_database
    for each in found:
        for group in Group:
            signs = each.groups[group].signs
            assert len(signs) == len(load(group).vectors), AGAIN
            assert set(signs) - {results.AGREES, results.NOT_APPLICABLE} == {
                results.SIGNS[kind] for kind in each.groups[group].examples
            }


def test_the_page_says_that_duly_deviates_nowhere() -> None:
    """A page that could not say otherwise would be worth nothing: with one wrong answer it does."""
    found, database = results.load()
    ours = found[0]
    assert "No deviations." in table.page([ours], database)
    vector: Vector = load(Group.CRON_PARSE).vectors[0]
    spoiled = results.GroupResult(
        results.SIGNS["refuses-posix"] + ours.groups[Group.CRON_PARSE].signs[1:],
        {"refuses-posix": results.Example(vector["id"], "no")},
    )
    page = table.page([ImplementationResult("duly", "x", {**ours.groups, Group.CRON_PARSE: spoiled})], database)
    assert "No deviations." not in page
    assert "| refuses an expression of POSIX | **defect** | 1 | `* * * * *`: no | POSIX `crontab` |" in page
