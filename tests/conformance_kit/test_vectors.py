"""The vector files: their form, what they cover, and that they are what the generator writes."""

import importlib.resources
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from conformance import schema, tz_database
from conformance.calendar import instant_of, local_text, occurrences, read, transitions
from conformance.comparison import premise_holds
from conformance.generator.occurrences import YEARS
from conformance.vector_files import SCHEMAS, Group, VectorFileError, load, path_of, schema_of
from tests.counts import share
from tests.programs import ROOT

BYTES_MAX = 3_000_000
each_group = pytest.mark.parametrize("group", Group, ids=lambda group: group.value)


@each_group
def test_a_file_follows_its_schema_and_names_its_licence(group: Group) -> None:
    """`load` refuses a file that does not."""
    found = load(group)
    assert found.vectors
    assert json.loads(path_of(group).read_text(encoding="utf-8"))["licence"] == "CC0-1.0"


@each_group
def test_every_vector_has_a_name_of_its_own(group: Group) -> None:
    names = Counter(vector["id"] for vector in load(group).vectors)
    assert [name for name, times in names.items() if times > 1] == []


def test_all_files_together_are_small() -> None:
    """They live in a repository; the full set is written on demand."""
    assert sum(path_of(group).stat().st_size for group in Group) < BYTES_MAX


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "something else"}, "is not a vector file of the group calendar"),
        ({"version": 2}, "format version 2, and this runner reads version 1"),
        ({"vectors": []}, "does not follow its schema"),
        ({"vectors": [{"id": "a"}]}, "does not follow its schema"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_reason(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    content = json.loads(path_of(Group.CALENDAR).read_text(encoding="utf-8"))
    path_of(Group.CALENDAR, tmp_path).write_text(json.dumps({**content, **change}), encoding="utf-8")
    with pytest.raises(VectorFileError, match=reason):
        load(Group.CALENDAR, tmp_path)


# --- schemas ---------------------------------------------------------------------------------------------------------


def spoiled(value: Any) -> list[Any]:
    """A value with one thing wrong, in several ways: parts left out, parts of another type, parts too many."""
    found: list[Any] = [None, "text", 7]
    if isinstance(value, dict):
        found += [{name: part for name, part in value.items() if name != left_out} for left_out in value]
        found += [{**value, "more": 1}]
        found += [{**value, name: wrong} for name, part in value.items() for wrong in spoiled(part)[:6]]
    elif isinstance(value, list) and value:
        found += [[*value[:-1], wrong] for wrong in spoiled(value[-1])[:6]] + [[]]
    return found


@pytest.mark.parametrize("name", [*(group.value for group in Group), "protocol"])
def test_the_validator_here_answers_as_a_complete_one_does(name: str) -> None:
    """On the first vectors of each group, and on hundreds of wrong ones."""
    if importlib.util.find_spec("jsonschema") is None:
        pytest.skip("jsonschema is not installed: openapi-spec-validator, which brings it, has no wheel here")
    import jsonschema  # type: ignore[import-untyped]

    complete = jsonschema.Draft202012Validator(schema_of(name))
    complete.check_schema(schema_of(name))
    if name == "protocol":
        values = [{"id": 1, "next": ["x"]}, {"id": 1, "valid": True}, {"id": 0, "ask": "parse", "expression": "*"}]
    else:
        content = json.loads((path_of(Group(name))).read_text(encoding="utf-8"))
        values = [{**content, "vectors": content["vectors"][:1]}, {**content, "vectors": content["vectors"][-1:]}]
    for value in values:
        assert schema.faults(value, schema_of(name)) == []
        for wrong in spoiled(value):
            assert bool(schema.faults(wrong, schema_of(name))) != complete.is_valid(wrong), wrong


def test_a_schema_with_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="maxItems"):
        schema.faults([], {"maxItems": 1})


def test_every_schema_belongs_to_a_group_or_to_the_protocol() -> None:
    names = {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}
    assert names == {*(group.value for group in Group), "protocol"}


# --- what they cover -------------------------------------------------------------------------------------------------


def test_every_zone_and_every_clock_change_of_the_stated_years_has_a_vector() -> None:
    """Of a share of the zones in `make test`."""
    require_its_database(Group.TRANSITIONS)
    vectors = load(Group.TRANSITIONS).vectors
    assert {vector["zone"] for vector in vectors} == set(tz_database.all_zones())
    changes = {(vector["zone"], instant_of(vector["change"][1])) for vector in vectors if "change" in vector}
    begin, end = datetime(YEARS[0], 1, 1, tzinfo=UTC), datetime(YEARS[1] + 1, 1, 1, tzinfo=UTC)
    for name in share(tz_database.all_zones(), 40):
        with importlib.resources.files("tzdata").joinpath("zoneinfo", name).open("rb") as file:
            zone = ZoneInfo.from_file(file, key=name)  # the machine may have another version
        for change in transitions(zone, begin, end):
            assert (name, change) in changes


def test_every_scheduling_clause_has_a_scenario() -> None:
    """SPEC 2 to 5, as far as starts can show them."""
    clauses = {vector["clause"] for vector in load(Group.SCENARIOS).vectors}
    assert clauses >= {"2.1", "2.2", "2.3", "2.5", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.10"}
    assert clauses >= {"4.1", "4.3", "4.4", "5.1", "5.3"}


# --- what the generator writes ---------------------------------------------------------------------------------------


def generated(group: Group, folder: Path) -> str:
    """The file of a group as the generator writes it now, in a process with the zones of the package."""
    command = [sys.executable, "-m", "conformance", "generate", "--group", group.value, "--to", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return path_of(group, folder).read_text(encoding="utf-8")


def require_its_database(group: Group) -> None:
    """Skip if a file was made with another tz database than the installed one."""
    import tzdata  # type: ignore[import-untyped]

    made_with = load(group).tz_database
    if made_with not in (None, tzdata.IANA_VERSION):
        pytest.skip(f"made with tz database {made_with}, and {tzdata.IANA_VERSION} is installed")


@pytest.mark.parametrize(
    "group", [group for group in Group if group is not Group.TRANSITIONS], ids=lambda each: each.value
)
def test_a_committed_file_is_what_the_generator_writes(group: Group, tmp_path: Path) -> None:
    require_its_database(group)
    assert generated(group, tmp_path) == path_of(group).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_committed_clock_changes_are_what_the_generator_writes(tmp_path: Path) -> None:
    require_its_database(Group.TRANSITIONS)
    assert generated(Group.TRANSITIONS, tmp_path) == path_of(Group.TRANSITIONS).read_text(encoding="utf-8")


def test_a_walk_through_every_minute_finds_the_occurrences_of_a_share_of_them() -> None:
    """SPEC 2.1 to 2.3: whatever the generator's order of dice, each vector is true."""
    for vector in share(load(Group.TRANSITIONS).vectors, 60):
        if premise_holds(vector):
            zone = ZoneInfo(vector["zone"])
            found = occurrences(read(vector["expression"]), zone, instant_of(vector["from"]))
            texts = [local_text(instant, zone) for instant in islice(found, len(vector["next"]))]
            assert texts == vector["next"], vector
