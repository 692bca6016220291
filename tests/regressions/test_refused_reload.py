"""The log of a reload that was refused had frames of pathlib, or a hint without what goes on meanwhile."""

import signal
from pathlib import Path

from tests.cli.program import Service, write_target

QUICK = '[("job", "0 0 1 1 *", quick, timedelta(0))]'


def test_a_target_that_was_removed_is_no_such_file(tmp_path: Path) -> None:
    """As at the start; when the file is back, a reload finds it."""
    target = Path(write_target(tmp_path, QUICK))
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        removed = (tmp_path / "tasks.py").rename(tmp_path / "kept")
        service.send(signal.SIGHUP)
        failed = service.expect("ProgramFailed")
        removed.rename(tmp_path / target.name)
        service.send(signal.SIGHUP)
        service.expect("ProgramReloaded")
    assert failed["error"] == "no such file: tasks.py"
    assert failed["hint"] == "the old registrations go on"
    assert "excerpt" not in failed


def test_the_old_registrations_are_said_to_go_on_beside_a_hint(tmp_path: Path) -> None:
    """Only an error without a hint said so."""
    write_target(tmp_path, QUICK)
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        write_target(tmp_path, '[("job", "0 0 31 2 *", quick, timedelta(0))]')
        service.send(signal.SIGHUP)
        failed = service.expect("ProgramFailed")
    assert failed["hint"].startswith("the old registrations go on; ")
