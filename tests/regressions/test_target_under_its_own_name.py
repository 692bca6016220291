"""Targets given as files were loaded as a module `__duly_target__`, which nothing else could import.

Process pools that start processes afresh failed, loggers carried that name, and `duly import apscheduler jobs.py` wrote
a file with `from __duly_target__ import job`.
"""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from duly.cli.output import Exit, Failure
from duly.cli.target import load_now
from tests.cli.program import Service, duly

HEAD = "from datetime import timedelta\n"
GOOD = HEAD + 'registrations = [("job", "* * * * *", print, timedelta(seconds=1))]\n'

POOL = """
import logging
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from helper import double

def work(number):
    return double(number)

def job():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        logging.getLogger(__name__).info("the answer is %d", pool.submit(work, 21).result())

registrations = [("job", "* * * * *", job, timedelta(minutes=5))]
"""

JOBS = """
from apscheduler.schedulers.background import BackgroundScheduler

def job():
    pass

scheduler = BackgroundScheduler(timezone="Africa/Lagos")
scheduler.add_job(job, "cron", hour=3, id="nightly")
"""


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


@pytest.mark.parametrize("name", ["work_pool.py", "work-pool.py"])
def test_a_process_that_a_pool_starts_afresh_can_import_the_target(tmp_path: Path, name: str) -> None:
    """`spawn` is the default on macOS, and `forkserver` on Linux from Python 3.14 on: both import by name."""
    place = tmp_path / "app"
    place.mkdir()
    (place / name).write_text(POOL)
    (place / "helper.py").write_text("def double(number):\n    return 2 * number\n")
    with Service(f"app/{name}", "--store", "state.db", folder=tmp_path) as service:
        record = service.expect("LogRecord")
        assert (record["logger"], record["message"]) == (name.removesuffix(".py"), "the answer is 42")
        service.expect("TaskRunCompleted", taskName="job")
        service.send(signal.SIGTERM)
        assert service.end().code == 0


def test_the_file_that_an_import_writes_can_be_imported(tmp_path: Path) -> None:
    """`duly import apscheduler FILE.py:scheduler`, as its help has it; the result runs as it is."""
    (tmp_path / "jobs.py").write_text(JOBS)
    written = duly("import", "apscheduler", "jobs.py:scheduler", folder=tmp_path)
    assert written.code == 0, written
    assert "from jobs import job\n" in written.out
    (tmp_path / "tasks.py").write_text(written.out)
    planned = duly("plan", "tasks.py", "--store", "state.db", "--json", folder=tmp_path)
    assert [each["task"] for each in planned.json["new"]] == ["nightly"], planned


def test_a_module_that_no_import_can_name_is_said_to_be_one(tmp_path: Path) -> None:
    """A dash is not part of a Python name: the job is left out, with a reason, and exit code 1."""
    (tmp_path / "my-jobs.py").write_text(JOBS)
    written = duly("import", "apscheduler", "my-jobs.py:scheduler", folder=tmp_path)
    assert written.code == 1
    assert "no Python file can import its module, my-jobs: rename the file" in written.out


@pytest.mark.parametrize(
    ("file", "module"),
    [("tasks.py", "tasks"), ("my-tasks.py", "my-tasks"), ("v1.2.py", "v1_2"), ("Taskfile", "Taskfile")],
)
def test_a_file_is_the_module_of_its_stem(folder: Path, file: str, module: str) -> None:
    """`__name__`, sys.modules and what a sibling imports are one module; its folder comes first on the path."""
    (folder / file).write_text(f"{GOOD}me = __name__\n")
    load_now(f"./{file}")
    assert (sys.modules[module].me, sys.path[0]) == (module, str(folder))


def test_a_sibling_that_imports_the_target_gets_the_target_itself(folder: Path) -> None:
    """Loaded twice, there would be two of everything in it."""
    (folder / "mine.py").write_text(
        f"{GOOD}import sibling\nassert sibling.mine is __import__('sys').modules[__name__]\n"
    )
    (folder / "sibling.py").write_text("import mine\n")
    assert [each.name for each in load_now("mine.py").registrations] == ["job"]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("json.py", "to `import`, json is a module of Python's standard library"),
        ("queue.py", "to `import`, queue is a module of Python's standard library"),
        ("sys.py", "to `import`, sys is a module of Python's standard library"),
        ("click.py", "to `import`, click is a module that is loaded already"),
        ("duly.py", "to `import`, duly is a module that is loaded already"),
        ("__main__.py", "to `import`, __main__ is the program itself"),
    ],
)
def test_a_file_with_the_name_of_another_module_is_refused(folder: Path, file: str, reason: str) -> None:
    """It would hide that module from everything else, or be hidden by it."""
    (folder / file).write_text(f"raise AssertionError('it was run')\n{GOOD}")
    before = dict(sys.modules)
    with pytest.raises(Failure) as caught:
        load_now(file)
    assert (caught.value.code, caught.value.hint) == (Exit.TARGET, "rename the file")
    assert reason in caught.value.message
    assert {name: before[name] for name in before} == {name: sys.modules[name] for name in before}


def test_a_file_beside_a_package_of_its_name_is_refused(folder: Path) -> None:
    """`import tasks` means the package: a process that a pool starts would get that."""
    (folder / "tasks.py").write_text(GOOD)
    (folder / "tasks").mkdir()
    assert [each.name for each in load_now("tasks.py").registrations] == ["job"]  # a mere folder hides nothing
    (folder / "tasks" / "__init__.py").touch()
    with pytest.raises(Failure, match=r"also .*tasks/__init__\.py beside it"):
        load_now("tasks.py")


def test_a_file_of_the_same_name_in_another_folder_takes_its_place(folder: Path) -> None:
    """Two targets one after the other in one process."""
    for place in ("first", "second"):
        (folder / place).mkdir()
        (folder / place / "tasks.py").write_text(GOOD.replace("job", place))
        assert [each.name for each in load_now(f"{place}/tasks.py").registrations] == [place]
