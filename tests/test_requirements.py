"""The pins serve every supported Python, and tests of packages that one of them cannot have are skipped."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import left_out, require
from tests.programs import ROOT

SUPPORTED = [
    classifier.rpartition(" :: ")[2]
    for classifier in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    if classifier.startswith("Programming Language :: Python :: 3.")
]


def requirements(path: Path, version: str) -> Iterator[Requirement]:
    """The requirements or pins of a file, on one version of Python."""
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].removesuffix("\\").strip()
        if text and not text.startswith("-"):
            requirement = Requirement(text)
            here = {"python_version": version, "python_full_version": f"{version}.0"}
            if requirement.marker is None or requirement.marker.evaluate(here):
                yield requirement


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("name", ["run", "dev", "bench", "bench-any", "bench-apscheduler4", "docs", "dist"])
def test_every_requirement_is_pinned_once_for_every_supported_python(name: str, version: str) -> None:
    """`make lock` was run after the last change of requirements/*.in."""
    asked = list(requirements(ROOT / f"requirements/{name}.in", version))
    pinned = list(requirements(ROOT / f"requirements/{name}.txt", version))
    assert asked
    for requirement in asked:
        (pin,) = (each for each in pinned if each.name.lower() == requirement.name.lower())
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert requirement.specifier.contains(exact.version, prereleases=True)


def test_a_package_without_a_release_for_this_python_is_left_out_for_a_reason() -> None:
    """The comment of its line is what the skipped test says."""
    lines = 'plain\nabsent==1 ; python_version < "3" # no wheel yet\ndivided==1 ; python_version < "3"\ndivided==2\n'
    assert left_out("absent", lines) == "no wheel yet"
    assert left_out("plain", lines) is None
    assert left_out("divided", lines) is None
    assert left_out("unknown", lines) is None


def test_only_what_is_left_out_may_be_skipped_where_everything_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI sets DULY_REQUIRE_ALL: anything else that is missing there fails."""
    monkeypatch.setenv("DULY_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="no_such_component is missing: install it"):
        require("no_such_component", "install it")
    monkeypatch.setattr("tests.conftest.left_out", lambda *_: "no wheel yet")
    with pytest.raises(pytest.skip.Exception, match="no wheel yet"):
        require("no_such_component", "install it")
