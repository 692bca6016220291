"""The checks of `make dist`, each of them failing; and what can be said about a release without building it."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from docs.site import manual
from docs.site.contents import API, WITHOUT_PAGE
from tests.programs import ROOT, environment
from tests.release import packages

SOURCES = packages.source_files()


def test_man_pages_and_completion_are_those_of_the_commands() -> None:
    """`make manual` writes them again after a change of a command."""
    committed = [path for path in manual.SHARE.rglob("*") if path.is_file()]
    assert {path.relative_to(manual.SHARE).as_posix(): path.read_text() for path in committed} == manual.files()


def test_the_page_of_options_is_that_of_the_commands() -> None:
    """docs/reference/commands.md: a section for each command, a row for each option; `make manual` writes it."""
    page = manual.REFERENCE.read_text()
    assert page == manual.reference()
    for name, command in manual.commands():
        section = page.split(f"\n## `{name}`\n")[1].split("\n## ")[0]
        options = [each for each in command.params if isinstance(each, click.Option)]
        for option in options:
            assert re.search(rf"^\| `[^|]*{max(option.opts, key=len)}\b", section, re.MULTILINE), (name, option.opts)
    for name, word in (("web", "--title"), ("run", "--web-token-file"), ("web", "--hide-errors")):
        assert word in page.split(f"\n## `duly {name}`\n")[1].split("\n## ")[0]


def test_every_command_has_a_man_page_with_its_options() -> None:
    """Groups, too, and the commands in them."""
    files = manual.files()
    assert {"man/man1/duly.1", "man/man1/duly-run.1", "man/man1/duly-trace-export.1"} <= set(files)
    assert "\\fB\\-\\-max\\-concurrency N\\fR" in files["man/man1/duly-run.1"]
    assert "\\fBduly\\-trace\\-export\\fR(1)" in files["man/man1/duly-trace.1"]


@pytest.mark.parametrize("name", sorted(name for name in manual.files() if name.endswith(".1")))
def test_a_man_page_has_no_line_that_roff_takes_for_a_command(name: str) -> None:
    """Only requests that this generator writes."""
    known = {".TH", ".SH", ".B", ".BR", ".PP", ".TP", ".nf", ".fi"}
    lines = manual.files()[name].splitlines()
    assert {line.split()[0] for line in lines if line.startswith((".", "'"))} <= known
    assert lines[0].startswith(".TH ")


def test_bash_accepts_its_completion(tmp_path: Path) -> None:
    """Whatever else it does: it is a script of bash."""
    (tmp_path / "duly").write_text(manual.files()["bash-completion/completions/duly"])
    subprocess.run(["bash", "-n", "duly"], cwd=tmp_path, check=True)


def test_a_wheel_that_lacks_a_file_or_has_another_is_noticed() -> None:
    """Templates, static files and py.typed are as easily forgotten as a cache is packed."""
    expected = packages.expected_in_wheel(SOURCES, "9.9.9")
    assert {"duly/py.typed", "duly/web/static/duly.css", "duly-9.9.9.data/data/share/man/man1/duly.1"} <= expected
    found = (expected - {"duly/py.typed"}) | {"duly/__pycache__/x.pyc"}
    assert list(packages.differing(found, expected)) == [
        "missing: duly/py.typed",
        "not expected: duly/__pycache__/x.pyc",
    ]
    assert list(packages.differing(expected, expected)) == []


def test_a_source_archive_has_the_checkout_without_its_ci() -> None:
    """Tests and pages are in it: a distribution can run the first and build the second."""
    expected = packages.expected_in_source_archive(SOURCES, "9.9.9")
    assert {"duly-9.9.9/PKG-INFO", "duly-9.9.9/tests/README.md", "duly-9.9.9/docs/index.md"} <= expected
    assert not any("/.ci/" in name for name in expected)


def test_files_that_are_not_committed_are_noticed(tmp_path: Path) -> None:
    """They would be part of the source archive."""
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    (tmp_path / "kept").write_text("1")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "First")):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    assert packages.uncommitted(tmp_path) == []
    (tmp_path / "kept").write_text("2")
    (tmp_path / "new").write_text("1")
    assert packages.uncommitted(tmp_path) == ["kept", "new"]


def test_two_builds_that_differ_are_noticed(tmp_path: Path) -> None:
    """By one byte, or because one of them is missing."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, text in ((first, "a"), (second, "b")):
        folder.mkdir()
        (folder / "duly.whl").write_text(text)
    (first / "duly.tar.gz").write_text("")
    assert list(packages.unlike(first, second)) == [
        "duly.tar.gz was built once only",
        "duly.whl differs between two builds",
    ]
    assert list(packages.unlike(first, first)) == []


def test_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    """Two blanks between checksum and name."""
    (tmp_path / "a").write_text("")
    assert packages.checksums(tmp_path) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n"


def test_names_in_a_wheel_are_its_files(tmp_path: Path) -> None:
    """Folders are none."""
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("duly/", "")
        wheel.writestr("duly/a.py", "")
    assert packages.names_in(tmp_path / "x.whl") == {"duly/a.py"}


def test_a_package_beside_the_two_is_noticed() -> None:
    """`pip list` of the environment that the wheel was installed into."""
    listing = [{"name": name} for name in ("duly", "tzdata", "tzlocal", "Click")]
    assert list(packages.differing(packages.installed(listing), packages.ALONE)) == ["not expected: click"]


def symbol(name: str, *, known: bool = True, ambiguous: bool = False) -> dict[str, object]:
    faults = [] if known else [{"message": "Type is missing"}]
    return {"name": name, "isTypeKnown": known, "isTypeAmbiguous": ambiguous, "diagnostics": faults}


def test_a_public_name_without_a_complete_type_is_noticed() -> None:
    """Members of public classes count; private ones, and other modules, do not."""
    public = {"duly.scheduler.Scheduler"}
    symbols = [
        symbol("duly.scheduler.Scheduler"),
        symbol("duly.scheduler.Scheduler.stop", known=False),
        symbol("duly.scheduler.Scheduler.initialize", ambiguous=True),
        symbol("duly.scheduler.Scheduler._lifecycle", known=False),
        symbol("duly.engine.loop.Loop", known=False),
    ]
    assert list(packages.incomplete({"typeCompleteness": {"symbols": symbols}}, public)) == [
        "duly.scheduler.Scheduler.stop: Type is missing",
        "duly.scheduler.Scheduler.initialize: its type is not known",
    ]
    assert list(packages.incomplete({"typeCompleteness": {"symbols": []}}, public)) == ["the report names no symbols"]


def test_public_names_are_found_where_they_are_defined() -> None:
    """A type checker calls them by that."""
    assert {
        "duly.scheduler.Scheduler",
        "duly.errors.StoreLockedError",
        "duly.web.app.dashboard",
        "duly.__main__.main",
        "duly.integrations.pytest_plugin.simulated_host",
    } <= packages.public_definitions()


def test_types_are_checked_of_every_module_that_the_reference_calls_public() -> None:
    """docs/reference/api.md: all but the Django app, of which nothing is imported."""
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    modules = re.findall(r"^\| `(duly[\w.]*)` \|", page, re.MULTILINE)
    assert {*API, *WITHOUT_PAGE} == {*modules} - {"duly.integrations.django"}
    assert "duly.integrations.django" in modules


def test_the_examples_of_the_readme_are_found() -> None:
    """The first program, and the test with simulated time."""
    readme = (ROOT / "README.md").read_text()
    assert "async def heartbeat()" in packages.example_of(readme, 1)
    assert "SimulatedHost" in packages.example_of(readme, 2)


@pytest.mark.system
def test_two_builds_are_the_same_and_have_what_they_should(tmp_path: Path) -> None:
    """Without the other tools of `make dist`: hatchling alone, which the editable install needs anyway."""
    version = packages.version()
    for name in ("first", "second"):
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / name)]
        subprocess.run(
            command, cwd=ROOT, env=environment(SOURCE_DATE_EPOCH="1700000000"), check=True, capture_output=True
        )
    assert list(packages.unlike(tmp_path / "first", tmp_path / "second")) == []
    wheel = tmp_path / "first" / f"duly-{version}-py3-none-any.whl"
    archive = tmp_path / "first" / f"duly-{version}.tar.gz"
    assert list(packages.differing(packages.names_in(wheel), packages.expected_in_wheel(SOURCES, version))) == []
    assert (
        list(packages.differing(packages.names_in(archive), packages.expected_in_source_archive(SOURCES, version)))
        == []
    )
