"""The mutation runner itself: what it changes, what it leaves alone, and that it tells killed from survived."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.mutation import court, covering, records, survivors, trials
from tests.mutation.covering import ROOT
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.survivors import PACKAGE
from tests.mutation.trials import Outcome, Verdict
from tests.mutation.verdicts import KeptVerdicts

SOURCE = '''"""A module."""

LIMIT: int = 7


def smaller(a: int, b: int = 3) -> bool:
    """Text with < and 1 in it."""
    assert a != 0
    if a < b and not (a == 5):  # a < b
        return True
    raise ValueError(f"no {a}")
'''


def changes(source: str) -> set[tuple[int, str, str]]:
    return {(mutant.line, mutant.before, mutant.after) for mutant in mutants_of("module.py", source)}


def test_each_place_that_could_be_wrong_is_made_wrong_once() -> None:
    """Operators, numbers, conditions, results, statements; not texts, annotations, docstrings, comments and assert."""
    assert changes(SOURCE) == {
        (3, "7", "(8)"),
        (6, "3", "(4)"),
        (9, "a < b and not (a == 5)", "not (a < b and not (a == 5))"),
        (9, "<", "<="),
        (9, "and", "or"),
        (9, "not (a == 5)", "(a == 5)"),
        (9, "==", "!="),
        (9, "5", "(6)"),
        (10, "return True", "return None"),
        (10, "True", "False"),
        (11, 'raise ValueError(f"no {a}")', "pass"),
    }


def test_a_mutant_differs_in_its_place_only_and_compiles() -> None:
    """The rest of the module stays where it is, so tracebacks and coverage still fit."""
    for mutant in mutants_of("module.py", SOURCE):
        wrong = mutant.applied_to(SOURCE)
        compile(wrong, "module.py", "exec")
        assert wrong != SOURCE
        assert wrong[: mutant.begin] == SOURCE[: mutant.begin]
        assert wrong.endswith(SOURCE[mutant.end :])
        assert mutant.line in mutant.lines


def test_a_key_outlives_lines_that_are_added_elsewhere() -> None:
    """A reason that was written down once stays with its mutant."""

    def keys(source: str) -> set[str]:
        return {mutant.key for mutant in mutants_of("module.py", source)}

    assert keys(SOURCE) == keys(SOURCE.replace("LIMIT", "\n\nMORE = None\nLIMIT"))
    assert keys(SOURCE) != keys(SOURCE.replace("a < b", "b > a"))
    twice = "a = f()\nb = 1\nb = 1\n"
    assert len(keys(twice)) == len(mutants_of("module.py", twice)) == 2


def test_a_mutant_inside_a_function_can_be_put_into_a_loaded_module() -> None:
    """A mutant of a constant or of a default cannot: they are not computed again."""
    inside = {
        mutant.line: court.is_of_functions(mutant, SOURCE) for mutant in mutants_of("src/duly/nowhere.py", SOURCE)
    }
    assert inside == {3: False, 6: False, 9: True, 10: True, 11: True}


@pytest.mark.slow
def test_a_mutant_in_a_loaded_module_fares_as_one_that_is_imported(tmp_path: Path) -> None:
    """The quick way to judge and the long one come to the same verdicts."""
    program = """
import sys
from functools import partial
from pathlib import Path
from tests.mutation import court, running
from tests.mutation.covering import Coverage
from tests.mutation import court
from tests.mutation.mutants import mutants_of
from tests.mutation.trials import Trial, tried

path = "src/duly/core/moments.py"
sources = {path: Path(path).read_text()}
running.warm_up()
coverage = Coverage(["tests/core/test_moments.py"], 60.0, Path(sys.argv[1]))
cases = {mutant: coverage.tests_of(mutant)[:1] for mutant in mutants_of(path, sources[path])}
cases = {mutant: tests for mutant, tests in cases.items() if tests and not coverage.is_run_at_import(mutant)}
quick = dict(court.held(cases, sources, coverage, jobs=2, until=float("inf")))
trials = (
    Trial(mutant, cases[mutant], partial(running._imported, mutant, sources, cases[mutant], coverage), coverage)
    for mutant in quick
)
long = dict(tried(trials, jobs=2))
print(len(quick), len({outcome.verdict for outcome in quick.values()}), quick == long)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    judged, kinds, same = run.stdout.split()
    assert int(judged) >= 10
    assert int(kinds) == 2  # one test is enough for some of them, and not for others
    assert same == "True"


def test_columns_are_counted_in_characters() -> None:
    """Python's tree counts bytes; what stands before an operator may be longer in bytes than it looks."""
    assert changes('x = "ääää" if 1 < 2 else 3\n') >= {(1, "<", "<="), (1, "3", "(4)")}


@pytest.mark.parametrize("name", ["core/moments.py", "formal/verdicts.py"])
def test_real_modules_have_mutants(name: str) -> None:
    """The finder walks through the language as it is used there."""
    file = Path(__file__).parents[2] / "src" / "duly" / name
    assert len(mutants_of(name, file.read_text())) >= 10


def test_every_reason_belongs_to_a_mutant() -> None:
    """A list without reasons would be a list of excuses, and a reason without a mutant explains nothing."""
    for record in records.every():
        known = [each for each in record.survivors if each.reason is not None]
        assert len({each.mutant for each in known}) == len(known)
        assert all(len(each.reason or "") > 20 for each in known)
        there = {survivors.identity(mutant) for mutant in mutants_of(record.path, (ROOT / record.path).read_text())}
        lost = [each for each in known if each.mutant not in there]
        assert not lost, (
            f"its line was edited; run `python -m tests.mutation --repair`:\n# {record.file}\n{lost[0].text()}"
        )


@pytest.mark.parametrize(("package", "least"), [("engine", 2_500), ("stores", 2_500)])
def test_of_the_mutants_that_were_judged_nine_in_ten_are_noticed_or_argued(package: str, least: int) -> None:
    """The committed records: what `python -m tests.mutation` found on the sources that they name."""
    judged = unargued = 0
    for record in records.every():
        if (counts := record.judged) is None or not record.module.startswith(f"{package}/"):
            continue
        assert 0 <= counts.timed_out <= counts.killed <= counts.judged <= counts.mutants, record.module
        assert bool(record.judges) == (counts.killed > 0), record.module
        judged += counts.judged
        unargued += record.unargued
    assert judged >= least
    assert judged - unargued >= 0.9 * judged


def test_modules_of_engine_and_stores_that_were_never_judged_are_named() -> None:
    """docs/reliability.md names them: a new module with mutants is judged, or stands there."""
    recorded = {record.path for record in records.every() if record.judged is not None}
    files = [path for package in ("engine", "stores") for path in (ROOT / PACKAGE / package).rglob("*.py")]
    paths = {str(file.relative_to(ROOT)): file for file in files}
    unjudged = {path for path in paths.keys() - recorded if mutants_of(path, paths[path].read_text())}
    page = (ROOT / "docs" / "reliability.md").read_text()
    (sentence,) = [line for line in page.splitlines() if line.startswith("In `engine/` and `stores/`, every module")]
    named = re.findall(r"`((?:engine|stores)/[\w/]+\.py)`", sentence)
    assert unjudged == {PACKAGE + module for module in named}


def test_a_reason_finds_its_mutant_after_an_edit_a_rename_and_a_move() -> None:
    """The change must be the same, on a line that reads much the same; what is gone has no mutant any more."""
    old = {each.line: each for each in mutants_of("src/duly/core/old.py", SOURCE) if each.before in {"<", "7"}}
    known = [survivors.Survivor(survivors.identity(each), "for a reason") for each in old.values()]
    edited = SOURCE.replace("LIMIT: int = 7\n", "").replace("if a < b and", "if a < limit and")
    found, lost = survivors.repaired(known, mutants_of("src/duly/core/new.py", edited))
    assert [each.mutant[:4] for each in found] == [
        ("core/new.py", "if a < limit and not (a == 5):  # a < b", "<", "<="),
    ]
    assert [each.mutant.line for each in lost] == ["LIMIT: int = 7"]
    assert survivors.repaired(found, mutants_of("src/duly/core/new.py", edited)) == (found, [])


def test_a_record_is_read_as_it_was_written() -> None:
    """Quotes, line breaks and signs beyond ASCII included."""
    strange = survivors.Identity("core/x.py", "a = \"é\\n\" + 'b'", 'f(\n    "x",\n)', "pass", 2)
    plain = survivors.Identity("core/x.py", "return 1", "1", "(2)", 0)
    known = (survivors.Survivor(strange, 'only "speed"'), survivors.Survivor(plain))
    record = records.Record("core/x.py", records.Judged("abc", 7, 6, 4, 1), ("tests/test_x.py::test[é]",), known)
    assert records.parsed("core/x.py", record.text()) == record
    assert (record.reasons, record.unargued) == (1, 1)


def test_a_record_counts_what_was_judged_and_keeps_reasons() -> None:
    """A reason stays with a survivor, goes when a test kills its mutant, and waits while that is not judged."""
    mutants = mutants_of("src/duly/core/task.py", SOURCE)
    reasons = [survivors.Survivor(survivors.identity(each), f"for reason {each.line}") for each in mutants[:4]]
    outcomes = {
        mutants[0]: Outcome(Verdict.SURVIVED),
        mutants[1]: Outcome(Verdict.KILLED, "tests/a.py::test_a"),
        mutants[2]: Outcome(Verdict.TIMED_OUT, "tests/a.py::test_b"),
        # mutants[3] is not judged
        mutants[4]: Outcome(Verdict.UNCOVERED),
        mutants[5]: Outcome(Verdict.TIMED_OUT, "tests/b.py::test_c"),
        mutants[6]: Outcome(Verdict.KILLED, "tests/b.py::test_c"),
    }
    record = records.updated(records.Record("core/task.py", survivors=tuple(reasons)), mutants, outcomes)
    assert record.judged is not None
    assert (record.judged.mutants, record.judged.judged) == (len(mutants), 6)
    assert (record.judged.killed, record.judged.timed_out) == (3, 1)
    assert record.judges == ("tests/b.py::test_c", "tests/a.py::test_a")
    assert {each.mutant: each.reason for each in record.survivors} == {
        **{each.mutant: each.reason for each in (reasons[0], reasons[2], reasons[3])},
        survivors.identity(mutants[4]): None,
    }
    assert record.is_current


def mutant_of(source: str) -> Mutant:
    return next(each for each in mutants_of("src/duly/core/task.py", source) if each.before == "<")


def test_a_verdict_is_kept_until_its_function_or_the_test_that_killed_it_is_edited(tmp_path: Path) -> None:
    """Lines elsewhere change nothing."""
    file = tmp_path / "verdicts.jsonl"
    here, there = "tests/mutation/test_mutants.py::test_real_modules_have_mutants[a]", "tests/core/test_task.py::test_y"
    killed = Outcome(Verdict.KILLED, here)
    mutant = mutant_of(SOURCE)
    KeptVerdicts(file).keep(mutant, [here, there], killed)
    assert KeptVerdicts(file).of(mutant, [there]) == killed
    assert KeptVerdicts(file).of(mutant_of(SOURCE.replace("LIMIT: int = 7", "LIMIT: int = 8\nA = 1 < 2"))) is None
    assert KeptVerdicts(file).of(mutant_of(SOURCE.replace("LIMIT: int = 7", "LIMIT: int = 8\n\n"))) == killed
    assert KeptVerdicts(file).of(mutant_of(SOURCE.replace("return True", "return 2"))) is None
    assert KeptVerdicts(file).left(mutant, [there, here]) == [here, there]
    file.write_text(file.read_text().replace(KeptVerdicts(file)._kept[mutant.fingerprint].digest, "edited"))
    assert KeptVerdicts(file).of(mutant, [here]) is None


def test_a_survivor_is_judged_again_by_tests_that_are_new_or_edited_only(tmp_path: Path) -> None:
    """A test that was added does not make all others run again; and what is killed later is killed."""
    file = tmp_path / "verdicts.jsonl"
    names = ("test_real_modules_have_mutants[a]", "test_columns_are_counted_in_characters", "test_of_tomorrow")
    one, other, new = (f"tests/mutation/test_mutants.py::{name}" for name in names)
    survived = Outcome(Verdict.SURVIVED)
    mutant = mutant_of(SOURCE)
    KeptVerdicts(file).keep(mutant, [one], survived)
    KeptVerdicts(file).keep(mutant, [other], survived)
    assert KeptVerdicts(file).of(mutant, [one, other]) == survived
    assert KeptVerdicts(file).of(mutant, [one, other, new]) is None
    assert KeptVerdicts(file).left(mutant, [one, other, new]) == [new]
    kept = KeptVerdicts(file)
    file.write_text(file.read_text().replace(kept._digest(one), "edited"))
    assert KeptVerdicts(file).left(mutant, [one, other]) == [one]
    KeptVerdicts(file).keep(mutant, [one], Outcome(Verdict.KILLED, one))
    assert KeptVerdicts(file).of(mutant, [one, other]) == Outcome(Verdict.KILLED, one)
    KeptVerdicts(file).keep(mutant, [other], survived)
    assert KeptVerdicts(file).of(mutant, [other]) == Outcome(Verdict.KILLED, one)
    KeptVerdicts(file).keep(mutant, [one], survived)  # what it calls was edited
    assert KeptVerdicts(file).of(mutant, [other]) == survived
    forgetful = KeptVerdicts(file)
    forgetful.forget([mutant])
    assert forgetful.of(mutant) is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the worker of a parallel run has threads
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux tells what a process waits for")
def test_a_process_that_waits_for_ever_is_ended_and_one_that_computes_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the kernel says of its processes, not by the clock: a busy machine changes no verdict."""
    monkeypatch.setattr(trials, "ASLEEP_SECONDS_MIN", 1.0)

    def wait_for_ever(announce: trials.Announce) -> int:
        announce(1)
        threading.Event().wait()
        return 0

    def compute(announce: trials.Announce) -> int:
        until = time.process_time() + 1.6
        while time.process_time() < until:
            pass
        return 0

    one, other, *_ = mutants_of("module.py", SOURCE)
    both = [trials.Trial(one, ["a", "b"], wait_for_ever), trials.Trial(other, ["a", "b"], compute)]
    assert dict(trials.tried(both, jobs=2)) == {
        one: Outcome(Verdict.TIMED_OUT, "b"),
        other: Outcome(Verdict.SURVIVED),
    }


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the worker of a parallel run has threads
def test_a_server_that_tests_have_started_ends_with_their_trial() -> None:
    """A test process ends its own when it exits; one that judges a mutant may be ended at any moment."""

    def start(announce: trials.Announce) -> int:
        data = Path(tempfile.mkdtemp(prefix="duly-pg-"), "data")
        data.mkdir()
        Path(data, "postmaster.pid").write_text(f"{server.pid}\n{data}\n")
        return 0

    # A shell that starts the tests in the background has them, and all that they start, ignore the signal.
    before = signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    try:
        server = subprocess.Popen(["sleep", "600"])
    finally:
        signal.signal(signal.SIGQUIT, before)
    try:
        assert [outcome for _, outcome in trials.tried([trials.Trial(mutant_of(SOURCE), ["a"], start)], jobs=1)] == [
            Outcome(Verdict.SURVIVED)
        ]
        assert server.wait(30) == -signal.SIGQUIT
    finally:
        server.kill()
        server.wait()


class Hasty:
    """Judges that have a tenth of a second for each mutant."""

    seconds_max = 0.1

    def tests_of(self, mutant: Mutant) -> list[str]:
        return ["a"]

    def is_run_at_import(self, mutant: Mutant) -> bool:
        return False

    def seconds(self, test: str) -> float:
        return 0.0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the worker of a parallel run has threads
def test_a_mutant_that_no_test_noticed_before_the_time_was_over_has_survived() -> None:
    """Time that is over because there is much to do says nothing about a mutant."""

    def think(announce: trials.Announce) -> int:
        announce(0)
        threading.Event().wait(60)
        return 1

    mutant = mutant_of(SOURCE)
    assert list(trials.tried([trials.Trial(mutant, ["a"], think, Hasty())], jobs=1)) == [
        (mutant, Outcome(Verdict.SURVIVED))
    ]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the worker of a parallel run has threads
def test_a_test_that_fails_without_a_mutant_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may fail for a reason of its own, on a busy machine; so each one that kills is run on the source as it is."""

    class Court(court._Court):
        def _judge(self, swaps: object, items: Sequence[object], announce: trials.Announce) -> int:
            return len(items)

    class Patient(Hasty):
        seconds_max = 600.0  # a busy machine may take its time to fork

    held = Court({}, {}, Patient(), jobs=1, until=0.0)
    monkeypatch.setattr(held, "_items", {"good": [], "bad": [None]})
    assert [held._is_sound(test) for test in ("good", "bad", "good", "bad")] == [True, False, True, False]


# --- which tests run which lines -------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[list[str]]]:
    """A project with a module and two files of tests, and which of these are run when, to find out what they cover."""
    monkeypatch.setattr(covering, "ROOT", tmp_path)
    for folder in ("src/duly/core", "tests/core"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/duly/core/task.py").write_text(SOURCE)
    for name in ("task", "other"):
        (tmp_path / f"tests/core/test_{name}.py").write_text(f"# {name}")
    runs: list[list[str]] = []

    def collect(files: Sequence[str], kept: Mapping[str, Path], jobs: int) -> dict[str, object]:
        runs.append(list(files))
        for file in files:
            name = f"{file}::test_of_{file.removeprefix('tests/core/test_').removesuffix('.py')}"
            tests = ["", f"{name}[slow]", f"{name}[quick]", f"{name}_more"]
            kept[file].parent.mkdir(parents=True, exist_ok=True)
            lines = {"src/duly/core/task.py": {3: [0], 6: [0], 9: [1, 2, 3], 10: [2]}}
            seconds = {tests[1]: 6.0, tests[2]: 1.0, tests[3]: 2.0}
            found = {"tests": tests, "seconds": seconds, "lines": lines, "forking": tests[3:]}
            kept[file].write_text(json.dumps(found))
        return {}

    monkeypatch.setattr(covering, "_collect", collect)
    return tmp_path, runs


def test_after_an_edit_only_the_tests_of_the_edited_file_are_run_for_coverage(
    tree: tuple[Path, list[list[str]]],
) -> None:
    """An edit to what all of them use makes all of them run again."""
    root, runs = tree

    def coverage() -> None:
        covering.Coverage(["tests/core"], 60.0, root / "kept")

    one, other = "tests/core/test_other.py", "tests/core/test_task.py"
    coverage()
    coverage()
    assert runs == [[one, other]]
    (root / one).write_text("# edited")
    coverage()
    assert runs[1:] == [[one]]
    (root / "tests/helpers.py").write_text("# new")
    coverage()
    assert runs[2:] == [[one, other]]


def test_judges_are_those_that_run_a_line_the_modules_own_first_then_one_case_of_each(
    tree: tuple[Path, list[list[str]]],
) -> None:
    """As many as fit into the time; the cases of one test are much alike."""
    root, _ = tree
    of_line = {each.line: each for each in mutants_of("src/duly/core/task.py", SOURCE)}
    near, far = "tests/core/test_task.py::test_of_task", "tests/core/test_other.py::test_of_other"
    every = [f"{near}[quick]", f"{near}_more", f"{near}[slow]", f"{far}[quick]", f"{far}_more", f"{far}[slow]"]
    coverage = covering.Coverage(["tests/core"], 60.0, root / "kept")
    assert coverage.tests_of(of_line[9]) == every
    assert coverage.tests_of(of_line[10]) == [f"{near}[quick]", f"{near}_more", f"{far}[quick]"]  # one of them forks
    assert coverage.tests_of(of_line[11]) == [f"{near}_more"]  # in the other process, perhaps
    assert coverage.tests_of(of_line[3]) == every  # run at import
    assert [line for line, mutant in of_line.items() if coverage.is_run_at_import(mutant)] == [3, 6]
    assert covering.Coverage(["tests/core"], 9.5, root / "kept").tests_of(of_line[9]) == every[:3]
