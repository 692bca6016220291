"""A command that did not find a file asked whether that very file was meant.

A store that was removed leaves its lock file, and a symbolic link its name; both were taken for the thing itself.
"""

from pathlib import Path

import pytest

from tests.cli.program import duly


@pytest.mark.parametrize("command", ["status", "history", "plan"])
def test_a_store_of_which_only_the_lock_file_is_left_is_not_suggested(command: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("registrations = []")
    (tmp_path / "state.db.lock").touch()
    target = ["tasks.py"] if command == "plan" else []
    for asked in ("state.db", "state.bd"):
        assert "did you mean" not in duly(command, *target, "--store", asked, folder=tmp_path).err
    (tmp_path / "stats.db").touch()
    (tmp_path / "stats.db.lock").touch()
    if command != "plan":  # a plan for a new store is an answer
        assert "did you mean stats.db?" in duly(command, "--store", "state.db", folder=tmp_path).err


@pytest.mark.parametrize(
    ("arguments", "suffix"),
    [(["verify", "state.db"], ".db"), (["check", "state.py"], ".py"), (["plan", "state.py", "--store", "x.db"], ".py")],
)
def test_a_symbolic_link_that_leads_nowhere_is_not_suggested(arguments: list[str], suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"state{suffix}").symlink_to("nowhere")
    said = duly(*arguments, folder=tmp_path).err
    assert "no such" in said
    assert "did you mean" not in said
    (tmp_path / f"stats{suffix}").touch()
    assert f"did you mean stats{suffix}?" in duly(*arguments, folder=tmp_path).err


def test_a_module_with_a_value_that_cannot_be_looked_at_gets_a_suggestion(tmp_path: Path) -> None:
    """A lazy proxy raises when its class is asked for; that was called a defect of duly."""
    (tmp_path / "jobs.py").write_text(
        "class Settings:\n"
        "    @property\n"
        "    def __class__(self):\n"
        "        raise RuntimeError('settings are not configured')\n"
        "settings = Settings()\n"
        "tasks = []\n"
    )
    done = duly("check", "jobs.py:taskz", folder=tmp_path)
    assert (done.code, done.out) == (3, "")
    assert "there is no 'taskz'\nhint: did you mean tasks?" in done.err
