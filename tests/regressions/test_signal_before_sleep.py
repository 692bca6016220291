"""A signal that came in the instant before the event loop slept was handled only when something else woke the loop.

A test of Ctrl-C waited in vain, once in some hundred runs.
"""

import signal
from pathlib import Path

import pytest

from tests.cli.program import Service, Terminal

# The signal and the sleep follow each other in C, where no bytecode runs the handler: the instant that a user's signal
# meets by chance. That sleep has no end of its own: nothing but the signal can wake the loop.
TARGET = """
import asyncio, ctypes, operator, os
from functools import partial

libc = ctypes.CDLL(None)

class LateSignal:
    def __init__(self, real, number):
        self.real, self.number = real, number

    def __getattr__(self, name):
        return getattr(self.real, name)

    def poll(self, duration, most):  # epoll, on Linux
        return self.sleep(duration, partial(self.real.poll, duration, most), partial(self.real.poll, -1, most))

    def control(self, changes, most, duration):  # kqueue, on macOS
        control = partial(self.real.control, changes, most)
        return self.sleep(duration, partial(control, duration), partial(control, None))

    def sleep(self, duration, asleep, endlessly_asleep):
        if duration == 0 or self.number is None:
            return asleep()
        number, self.number = self.number, None
        return list(map(operator.call, (partial(libc.kill, os.getpid(), number), endlessly_asleep)))[1]

def sleep_with(number):
    selector = asyncio.get_running_loop()._selector
    selector._selector = LateSignal(selector._selector, number)
"""
LOADING = """
async def registrations():
    sleep_with({number})
    await asyncio.Event().wait()
"""
RUNNING = """
async def when_ready():
    while not os.path.exists("ready"):
        await asyncio.sleep(0.01)
    sleep_with({number})

async def registrations():
    registrations.kept = asyncio.create_task(when_ready())
    return []
"""


@pytest.mark.parametrize("command", ["run", "plan"])
def test_ctrl_c_in_the_instant_before_the_loop_sleeps_is_heard(tmp_path: Path, command: str) -> None:
    """While a target loads, there is nothing else that would wake the loop."""
    (tmp_path / "tasks.py").write_text(TARGET + LOADING.format(number=int(signal.SIGINT)))
    with Terminal(command, "tasks.py", "--store", "state.db", folder=tmp_path) as terminal:
        assert terminal.end() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_the_instant_before_the_loop_sleeps_is_heard(tmp_path: Path, number: signal.Signals) -> None:
    """A scheduler sleeps until its next minute, and without a task until it is woken."""
    (tmp_path / "tasks.py").write_text(TARGET + RUNNING.format(number=int(number)))
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("ProgramReady")
        (tmp_path / "ready").touch()
        ended = service.end()
    assert ended.code == 0
    assert service.events[-1] == "ProgramStopped"
