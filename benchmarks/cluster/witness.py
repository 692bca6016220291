"""Notes of callbacks: one line for each step, written at once, so that a killed host leaves its steps behind."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

STEP_SECONDS = 0.2

READY, BEGIN, STEP, END, CUT = "ready", "begin", "step", "end", "cut"


class Step(NamedTuple):
    """One line: when, on which host, of which run of which task, and what happened."""

    at: float  # wall clock of the machine that all hosts share
    host: str
    task: str
    run: str
    what: str


class Witness:
    """The making of a host's callbacks."""

    def __init__(self, folder: Path, host: str) -> None:
        self._host = host
        self._runs = count(1)
        path = folder / f"{host}-{os.getpid()}.steps"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: str, task: str = "", run: str = "") -> None:
        """Write a line."""
        line = json.dumps([time.time(), self._host, task, run, what])
        os.write(self._file, f"{line}\n".encode())

    async def work(self, task: str, seconds: float) -> None:
        """Be the callback of a task."""
        run = f"{os.getpid()}.{next(self._runs)}"
        self.note(BEGIN, task, run)
        if not seconds:
            return
        try:
            for _ in range(round(seconds / STEP_SECONDS)):
                await asyncio.sleep(STEP_SECONDS)
                self.note(STEP, task, run)
        except BaseException:
            self.note(CUT, task, run)
            raise
        self.note(END, task, run)


class Reader:
    """Reads the files of a folder, again and again, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.steps: list[Step] = []

    def read(self) -> list[Step]:
        """Lines that have been written since the last time; all of them stand in `steps`, file by file."""
        found: list[Step] = []
        for path in sorted(self._folder.glob("*.steps")):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text.rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + len(whole) + (1 if whole else 0)
            found += parse(whole.decode())
        self.steps += found
        return found


def parse(text: str) -> Iterator[Step]:
    """Whole lines."""
    return (Step(*json.loads(line)) for line in text.splitlines())
