"""TARGET: what it may be, and the message if it is anything else."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.cli.output import Exit, Failure
from duly.cli.target import load, load_now, looks_like_target, parse_target
from tests.cli.program import duly

GOOD = '[("job", "* * * * *", print, timedelta(seconds=1))]'
HEAD = "from datetime import timedelta\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with whatever loading does to the interpreter undone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = dict(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - set(modules):
        if (
            name.partition(".")[0] not in modules
        ):  # a package that stays keeps its modules, or it would have two of them
            del sys.modules[name]


def names(text: str) -> list[str]:
    return [registration.name for registration in load_now(text).registrations]


def failure(text: str) -> Failure:
    with pytest.raises(Failure) as caught:
        load_now(text)
    assert caught.value.code is Exit.TARGET
    return caught.value


# --- what it may be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("tasks.py", f"registrations = {GOOD}"),
        ("./tasks.py", f"registrations = {GOOD}"),
        ("tasks.py:mine", f"mine = {GOOD}"),
        ("tasks:registrations", f"registrations = {GOOD}"),
        ("tasks", f"registrations = {GOOD}"),
        ("tasks:here.there", f"class here:\n    there = {GOOD}"),
        ("tasks.py", f"def registrations(): return {GOOD}"),
        ("tasks.py", f"async def registrations(): return {GOOD}"),
        ("tasks.py", f"registrations = tuple({GOOD})"),
        ("tasks.py:make", f"class Make:\n    def __call__(self): return {GOOD}\nmake = Make()"),
    ],
)
def test_a_list_or_a_function_that_returns_one(target: str, source: str, folder: Path) -> None:
    """module:attribute, or a file; the default attribute is `registrations`; functions may be async."""
    (folder / "tasks.py").write_text(f"{HEAD}{source}\n")
    assert names(target) == ["job"]


def test_a_target_imports_its_neighbours(folder: Path) -> None:
    """The folder of a file is on the path, as if the file were run, even if it is not the current folder."""
    (folder / "deep").mkdir()
    (folder / "deep" / "neighbour_of_tasks.py").write_text("NAME = 'found'\n")
    registrations = "[(neighbour_of_tasks.NAME, '* * * * *', print, timedelta(0))]"
    source = f"{HEAD}import neighbour_of_tasks\nregistrations = {registrations}\n"
    (folder / "deep" / "tasks.py").write_text(source)
    assert names("deep/tasks.py") == ["found"]
    loaded = load_now("deep/tasks.py")
    assert {path.name for path in loaded.files} >= {"tasks.py"}


def test_expressions_are_told_from_targets(folder: Path) -> None:
    """The questions of `duly next` to its argument."""
    (folder / "odd name.py").touch()
    assert looks_like_target("tasks.py")
    assert looks_like_target("package.module:attribute")
    assert looks_like_target("odd name.py")
    assert not looks_like_target("* * * * *")
    assert not looks_like_target("@daily")


# --- loading again ---------------------------------------------------------------------------------------------------


def test_loading_again_sees_every_change_and_a_failure_undoes_itself(folder: Path) -> None:
    """Even quick changes of the same length, which a cache by time stamps would miss, and in imported modules."""
    (folder / "inner.py").write_text("NAME = 'a'\n")
    (folder / "tasks.py").write_text(
        f"{HEAD}import inner\nregistrations = [(inner.NAME, '* * * * *', print, timedelta(0))]\n"
    )

    async def story() -> list[str]:
        target = parse_target("tasks.py")
        seen = []
        first = await load(target)
        seen.append(first.registrations[0].name)
        (folder / "inner.py").write_text("NAME = 'b'\n")
        second = await load(target, first)
        seen.append(second.registrations[0].name)
        before = sys.modules["inner"]
        (folder / "inner.py").write_text("NAME = ]\n")
        with pytest.raises(Failure):
            await load(target, second)
        assert sys.modules["inner"] is before
        (folder / "inner.py").write_text("NAME = 'c'\n")
        seen.append((await load(target, second)).registrations[0].name)
        return seen

    assert asyncio.run(story()) == ["a", "b", "c"]


# --- anything else ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "message", "hint"),
    [
        ("task.py", "no such file: task.py", "did you mean tasks.py?"),
        ("nowhere/tasks.py", "no such file", "the folder nowhere does not exist"),
        ("tasks.py:registration", "there is no 'registration'", "did you mean registrations?"),
        ("tasks.py:nightly", "there is no 'nightly'", "define nightly: a list of (name, cron, callback, retry delay)"),
        ("tasks.py:number", "tasks.py:number is a value of type int, not a list of registrations", "make it a list"),
        ("tasks.py:nothing", "tasks.py:nothing is None", "make it a list"),
        ("tasks.py:wrong", "tasks.py:wrong() is a value of type dict", "make it a list"),
        ("tasks.py:needy", "needy() cannot be called without arguments: missing a required argument: 'x'", None),
        ("no_such_module_at_all:x", "no such module: no_such_module_at_all", "looked in"),
        ("sub.tasks:x", "no such module: sub", "looked in"),
        (":x", "not a target", "module:attribute"),
        ("tasks.py:1x", "not a target", "module:attribute"),
        ("a b:c", "not a target", "module:attribute"),
        ("./", "is a folder", None),
    ],
)
def test_what_is_wrong_is_said_in_a_line(target: str, message: str, hint: str | None, folder: Path) -> None:
    """Missing file or module, unknown attribute with a suggestion, wrong type."""
    (folder / "tasks.py").write_text(
        f"{HEAD}registrations = {GOOD}\nnumber = 3\nnothing = None\ndef wrong(): return {{}}\ndef needy(x): return []\n"
    )
    found = failure(target)
    assert message in found.message
    assert found.excerpt == ""
    if hint is not None:
        assert hint in str(found.hint)


def test_a_near_name_that_fits_is_suggested_rather_than_the_nearest_one(folder: Path) -> None:
    """Also if the nearest one is only something that TARGET imports."""
    (folder / "tasks.py").write_text(f"{HEAD}from datetime import time as weekly_\nweekly_jobs = {GOOD}\n")
    assert failure("tasks.py:weekly").hint == "did you mean weekly_jobs?"
    assert failure("tasks.py:weekl_").hint == "did you mean weekly_?"


def test_a_name_that_is_far_off_is_no_suggestion(folder: Path) -> None:
    """The hint says what to define, and that a list of registrations has another name."""
    (folder / "tasks.py").write_text(f"{HEAD}registrations = {GOOD}\n")
    hint = str(failure("tasks.py:wrong").hint)
    assert "did you mean" not in hint
    assert hint.endswith("; registrations is such a list")


def test_the_frames_of_a_deep_recursion_that_are_not_shown_are_all_counted(folder: Path) -> None:
    """Of a thousand frames only the last ones are looked at."""
    (folder / "tasks.py").write_text("def f(n): f(n - 1) if n else {}['missing']\nf(500)\n")
    shown = failure("tasks.py").excerpt
    assert shown.startswith("  … 498 more\n")
    assert "missing" in shown


@pytest.mark.parametrize(
    ("item", "message", "hint"),
    [
        ("('b', '* * * * *', print)", "registration 1: Invalid registration shape", "expected four items, got 3"),
        ("('b', '* * * * *', 3, timedelta(0))", "registration 1: Invalid", "the callback must be callable, got int"),
        ("('job', '* * * * *', print, timedelta(0))", 'registration 1 (job): Task with name "job" is', "unique"),
        ("('b', '*/5 * * * *', print, timedelta(0))", "registration 1 (b): Invalid cron", "50,55 * * * *'"),
        ("('b', '0 0 L * *', print, timedelta(0))", "registration 1 (b): Invalid cron", "last day"),
        (
            "('b', '* * * * *', print, timedelta(-1))",
            "registration 1 (b): Retry delay must be",
            "timedelta(seconds=86400)",
        ),
        ("('', '* * * * *', print, timedelta(0))", "registration 1: Invalid registration name: must not be", None),
    ],
)
def test_a_bad_tuple_is_named_by_its_index(item: str, message: str, hint: str | None, folder: Path) -> None:
    """duly's own errors (SPEC 1.4), with the place in TARGET."""
    (folder / "tasks.py").write_text(f"{HEAD}registrations = {GOOD} + [{item}]\n")
    found = failure("tasks.py")
    assert found.message.startswith(f"tasks.py: {message}")
    if hint is not None:
        assert hint in str(found.hint)


def test_an_error_inside_the_target_shows_its_own_traceback_once_and_shortened(folder: Path) -> None:
    """Only the last frames, without those of duly and of the import machinery; in the real program."""
    steps = "".join(f"def f{n}(): f{n - 1}()\n" for n in range(1, 21))
    (folder / "inner.py").write_text(f"def f0(): {{}}['missing']\n{steps}")
    (folder / "tasks.py").write_text("import inner\ninner.f20()\n")
    ended = duly("plan", "tasks.py", "--store", "state.db", folder=folder)
    assert (ended.code, ended.out) == (3, "")
    assert "error: tasks.py cannot be imported: KeyError: 'missing'" in ended.err
    assert ended.err.count("KeyError") == 1
    assert "… 18 more" in ended.err
    assert ended.err.count("inner.py") == 4
    assert "importlib" not in ended.err
    assert "src/duly" not in ended.err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_thing_inside", "ModuleNotFoundError: No module named 'no_such_thing_inside'"),
        ("x = (\n", "SyntaxError: '(' was never closed"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def registrations(): raise OSError('no network')", "tasks.py raised when it was called: OSError: no network"),
        ("x = '\\ud800'\nraise ValueError(x)", "ValueError"),
    ],
)
def test_every_kind_of_error_inside_is_shown(source: str, message: str, folder: Path) -> None:
    """Import errors of its imports, syntax errors with their place, exits, and what its function raises."""
    (folder / "tasks.py").write_text(source + "\n")
    found = failure("tasks.py")
    assert message in found.message
    assert "tasks.py" in found.excerpt


def test_a_message_of_several_lines_keeps_its_type_and_its_first_line(folder: Path) -> None:
    """Libraries write whole instructions into an exception; the last line alone means nothing."""
    (folder / "tasks.py").write_text(r'raise RuntimeError("\nFirst, set FOO.\n\n    $ export FOO=1\n")')
    ended = duly("plan", "tasks.py", "--store", "state.db", folder=folder)
    assert (ended.code, ended.out) == (3, "")
    assert "error: tasks.py cannot be imported: RuntimeError: First, set FOO.\n" in ended.err
    assert "    $ export FOO=1" in ended.err
    (folder / "tasks.py").write_text("raise RuntimeError")
    assert "cannot be imported: RuntimeError\n" in duly("check", "tasks.py", folder=folder).err
