"""A process that was signalled together with its group got two signals to stop at once, and abandoned its runs.

`timeout -s INT 2 duly run …` does so: it signals the process and the group.
"""

import signal
from pathlib import Path

from tests.cli.program import Service

TARGET = """
import asyncio, pathlib
from datetime import timedelta

async def slow() -> None:
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)

registrations = [("slow", "* * * * *", slow, timedelta(0))]
"""


def test_two_signals_at_once_are_one_graceful_stop(tmp_path: Path) -> None:
    """The run goes on to its end; both signals are pending while the program is frozen, and arrive together."""
    (tmp_path / "tasks.py").write_text(TARGET)
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted")
        with service.frozen():
            service.send(signal.SIGTERM)
            service.send(signal.SIGINT)
        assert service.expect("ProgramStopping")["waitingFor"] == ["slow"]
        (tmp_path / "go").touch()
        assert service.end().code == 0
    assert "TaskRunCompleted" in service.events
