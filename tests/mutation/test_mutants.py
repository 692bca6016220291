"""The mutation runner itself: what it changes, what it leaves alone, and that it tells killed from survived."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import court, survivors
from tests.mutation.covering import ROOT
from tests.mutation.mutants import mutants_of

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
coverage = Coverage(["tests/core/test_moments.py"], Path(sys.argv[1]))
cases = {mutant: coverage.tests_of(mutant)[:1] for mutant in mutants_of(path, sources[path])}
cases = {mutant: tests for mutant, tests in cases.items() if tests and not coverage.is_run_at_import(mutant)}
quick = dict(court.held(cases, sources, coverage, jobs=2, until=float("inf")))
imported = partial(running._imported, sources=sources, coverage=coverage)
long = dict(tried((Trial(mutant, partial(imported, mutant, tests=cases[mutant])) for mutant in quick), jobs=2))
print(len(quick), len({verdict for verdict in quick.values()}), quick == long)
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
    known = survivors.read(survivors.FILE.read_text(encoding="utf-8"))
    assert len({each.mutant for each in known}) == len(known)
    assert all(len(each.reason) > 20 for each in known)
    texts = {path: (ROOT / path).read_text() for path in {path_of(each.mutant) for each in known}}
    every = {survivors.identity(mutant) for path, source in texts.items() for mutant in mutants_of(path, source)}
    lost = [each for each in known if each.mutant not in every]
    assert not lost, f"its line was edited; run `python -m tests.mutation --repair`:\n{lost[0].text()}"


def path_of(mutant: survivors.Identity) -> str:
    return mutant.module if mutant.module.startswith("tests/") else survivors.PACKAGE + mutant.module


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


def test_reasons_are_read_as_they_were_written() -> None:
    """Quotes, line breaks and signs beyond ASCII included."""
    strange = survivors.Identity("core/x.py", "a = \"é\\n\" + 'b'", 'f(\n    "x",\n)', "pass", 2)
    known = [survivors.Survivor(strange, 'only "speed"')]
    assert survivors.read(survivors.written(known)) == known
