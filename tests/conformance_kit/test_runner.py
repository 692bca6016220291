"""The runner and the protocol: programs that answer well, badly, late or not at all."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.adapters import NAMES
from conformance.adapters.service import Adapter
from conformance.protocol import Hello, Program, ProtocolError
from conformance.runner import NOT_OFFERED, OTHER_DATABASE, hold
from conformance.vector_files import FOLDER, Group, load, path_of
from tests.programs import ROOT

ANSWERS_HELLO = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"name": "mine", "version": "1", "groups": ["calendar"]} if request["ask"] == "hello" else ANSWER
    print(json.dumps({"id": request["id"], **answer}), flush=True)
"""


def program(source: str, patience_seconds: float = 60.0) -> Program:
    return Program([sys.executable, "-c", source], patience_seconds=patience_seconds)


def answering(answer: str) -> Program:
    return program(ANSWERS_HELLO.replace("ANSWER", answer))


class Fixed(Adapter):
    """Answers every question in one way, in this process."""

    name = "fixed"
    version = "1"
    groups = (Group.TRANSITIONS,)

    def __init__(self, answer: dict[str, Any], database: str | None = None) -> None:
        self._fixed = answer
        self._database = database

    def hello(self) -> Hello:
        return Hello("fixed", "1", ("transitions",), self._database)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._fixed


def run(*arguments: str, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "conformance", *arguments]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


# --- programs --------------------------------------------------------------------------------------------------------


def test_a_program_in_any_language_is_held_against_the_vectors() -> None:
    with answering('{"failed": "always"}') as mine:
        report = hold(mine, [Group.CALENDAR, Group.CRON_PARSE])
    assert report.hello == Hello("mine", "1", ("calendar",), None)
    assert report.results[Group.CALENDAR].kinds["no-answer"] > 0
    assert {outcome.answered for outcome in report.results[Group.CRON_PARSE].outcomes} == {NOT_OFFERED}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("print('hello')", "not JSON"),
        ("print('{}')", "not one of the protocol"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("""print('{"id": 7, "name": "a", "version": "1", "groups": []}')""", "another question"),
        ("""print('{"id": 0, "name": "a", "version": "1", "groups": [], "protocol": 2}')""", "protocol 2"),
        ("""print('{"id": 0, "valid": true}')""", "lacks 'name'"),
    ],
)
def test_a_program_that_does_not_speak_the_protocol_is_named_with_what_it_did(source: str, reason: str) -> None:
    with program(source) as mine, pytest.raises(ProtocolError, match=reason):
        mine.hello()


def test_a_program_that_cannot_be_started_is_named() -> None:
    with Program(["/no/such/program"]) as mine, pytest.raises(ProtocolError, match="/no/such/program"):
        mine.hello()


def test_a_question_without_an_answer_costs_its_patience_and_the_program_is_started_again() -> None:
    silent = program("import sys; [None for line in sys.stdin]", patience_seconds=0.2)
    with silent:
        assert silent.ask({"ask": "parse", "expression": "*"}) == {"failed": "no answer within 0.2 seconds"}
        assert silent.ask({"ask": "parse", "expression": "*"}) == {"failed": "no answer within 0.2 seconds"}


def test_what_a_program_prints_on_stderr_is_no_answer() -> None:
    with program("import sys; print('noise', file=sys.stderr)" + ANSWERS_HELLO.replace("ANSWER", "{}")) as mine:
        assert mine.hello().name == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_a_known_library_introduces_itself_over_the_protocol(name: str) -> None:
    with Program([sys.executable, "-m", "conformance", "serve", name]) as served:
        hello = served.hello()
        assert hello.name == name
        assert "calendar" in hello.groups
        question = {"ask": "next", "expression": "0 0 * * *", "zone": "UTC", "from": "2025-01-01T12:00:00Z", "count": 2}
        assert served.ask(question) == {"next": ["2025-01-02T00:00:00+00:00", "2025-01-03T00:00:00+00:00"]}
        assert "notApplicable" in served.ask({"ask": "something new"})


# --- tz databases ----------------------------------------------------------------------------------------------------


def with_transitions(tmp_path: Path, **changes: Any) -> Path:
    content = json.loads(path_of(Group.TRANSITIONS, FOLDER).read_text(encoding="utf-8"))
    content["vectors"] = [vector for vector in content["vectors"] if vector["zone"] == "Europe/Berlin"][:4]
    content |= changes
    path_of(Group.TRANSITIONS, tmp_path).write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def test_another_tz_database_is_stated_and_not_taken_for_a_deviation(tmp_path: Path) -> None:
    folder = with_transitions(tmp_path, tzDatabase="1999z")
    report = hold(Fixed({"failed": "x"}, "2000a"), [Group.TRANSITIONS], folder=folder)
    assert report.tz_remark is not None
    assert "made with tz database 1999z" in report.tz_remark
    assert "the runner has tz database" in report.tz_remark
    assert "fixed has tz database 2000a" in report.tz_remark


def test_a_vector_that_the_tz_database_in_use_contradicts_does_not_apply(tmp_path: Path) -> None:
    vectors = load(Group.TRANSITIONS).vectors
    wrong = [{**vector, "zone": "Asia/Tokyo"} for vector in vectors if vector["zone"] == "Europe/Berlin"][:3]
    folder = with_transitions(tmp_path, vectors=wrong)
    report = hold(Fixed({"failed": "x"}), [Group.TRANSITIONS], folder=folder)
    assert {outcome.answered for outcome in report.results[Group.TRANSITIONS].outcomes} == {OTHER_DATABASE}
    assert report.deviations == 0
    assert report.tz_remark is not None
    assert "does not say which tz database it has" in report.tz_remark


# --- the command line ------------------------------------------------------------------------------------------------


def test_the_exit_code_says_whether_a_program_deviates() -> None:
    agreeing = run("run", "--group", "calendar", "--", sys.executable, "-m", "conformance", "serve", "cronsim")
    assert agreeing.returncode == 0, agreeing.stderr
    assert "calendar: 44 of 44 agree, 0 do not apply" in agreeing.stdout
    deviating = run("run", "--group", "calendar", "--", sys.executable, "-m", "conformance", "serve", "apscheduler")
    assert deviating.returncode == 1
    assert "10 × defect: reads weekday numbers otherwise than 0 for Sunday" in deviating.stdout


def test_a_program_that_cannot_be_asked_is_exit_code_2_and_a_sentence() -> None:
    found = run("run", "--", "/no/such/program")
    assert found.returncode == 2
    assert found.stderr.startswith("conformance: the adapter '/no/such/program' cannot be started")


def test_a_library_that_is_not_installed_is_named() -> None:
    start = "import sys; sys.path.insert(0, '.'); from conformance.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", start, "serve", "croniter"]
    found = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stderr == "conformance: croniter cannot be asked: No module named 'croniter'; install it first\n"


def test_the_full_set_is_not_written_over_the_committed_files() -> None:
    found = run("generate", "--full", "--group", "calendar")
    assert found.returncode == 2
    assert "--to" in found.stderr


def test_the_runner_works_as_a_copy_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """Neither duly nor its tests are needed, nor any other package: -I and -S leave all of them out."""
    shutil.copytree(
        ROOT / "conformance", tmp_path / "conformance", ignore=shutil.ignore_patterns("generator", "__pycache__")
    )
    mine = tmp_path / "mine.py"
    mine.write_text(ANSWERS_HELLO.replace("ANSWER", '{"notApplicable": "it is an example"}'), encoding="utf-8")
    start = "import sys; sys.path.insert(0, '.'); from conformance.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", start, "run", "--", sys.executable, "-I", "-S", str(mine)]
    found = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert "calendar: 0 of 44 agree, 44 do not apply" in found.stdout


def test_a_copy_without_the_generator_says_where_vectors_are_generated(tmp_path: Path) -> None:
    """It was a traceback."""
    shutil.copytree(
        ROOT / "conformance", tmp_path / "conformance", ignore=shutil.ignore_patterns("generator", "__pycache__")
    )
    start = "import sys; sys.path.insert(0, '.'); from conformance.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-I", "-S", "-c", start, "generate"]
    found = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stderr.startswith("conformance: vectors are generated in a checkout of duly alone: ")
