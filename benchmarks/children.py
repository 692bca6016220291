"""Runs each measurement in a process of its own, round after round, and keeps what they print."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Protocol

from benchmarks.child import scratch_folder
from benchmarks.plan import Measurement
from benchmarks.source import source

ROOT = Path(__file__).parent.parent
BENCH = ROOT / ".venv-bench"
"""Where `make bench` puts what it needs, when another environment runs this."""

Sample = dict[str, float]


class Limits(Protocol):
    """How long a run may take."""

    @property
    def patience_s(self) -> float:
        """With one child."""
        ...

    @property
    def budget_s(self) -> float:
        """With all of them: no further round begins that would not end within this, and no child after it."""
        ...


@dataclass
class Ran:
    """When a measurement ran: the begin of its first child, and the seconds of all its children together."""

    at: str  # local time, to the minute
    seconds: float = 0.0
    commit: str = ""  # of the code that was measured, with its digest; empty in earlier results
    source: str = ""

    @classmethod
    def beginning(cls) -> "Ran":
        """A measurement that begins now, with the code as it is now."""
        return cls(datetime.now().strftime("%Y-%m-%d %H:%M"), 0.0, *source())


@dataclass
class Outcomes:
    """The output of the children by key: samples, one per round; when they ran; why some are missing; what broke."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    broken: dict[str, list[str]] = field(default_factory=dict)
    ran: dict[str, Ran] = field(default_factory=dict)
    rounds: int = 0
    seconds: float = 0.0

    def forget(self, key: str) -> None:
        """Forget a measurement that is about to be repeated: results of an earlier run may be in here."""
        for kept in (self.samples, self.absent, self.broken, self.ran):
            kept.pop(key, None)


def run_all(
    planned: Sequence[Measurement],
    size: Limits,
    rounds: int,
    tell: Callable[[int, int, Measurement], None],
    outcomes: Outcomes | None = None,
    save: Callable[[], object] = lambda: None,
) -> Outcomes:
    """Run all measurements, round after round, so that a disturbance affects duly and its peers alike.

    `outcomes` may hold earlier results, which are replaced one by one. `save` is called at the end of each section in
    each round, so an interrupted run keeps what it has measured.
    """
    outcomes = Outcomes() if outcomes is None else outcomes
    begun = time.monotonic()
    seen: set[str] = set()
    for number in range(rounds):
        lap = time.monotonic()
        for position, measurement in enumerate(planned):
            key = measurement.key
            if measurement.once and number > 0:
                continue
            if key not in seen:
                seen.add(key)
                outcomes.forget(key)
            if time.monotonic() - begun > size.budget_s:
                outcomes.absent.setdefault(key, f"the {size.budget_s:.0f} s of this run were over")
                continue
            tell(number, position, measurement)
            run_one(measurement, size, outcomes, number)
            outcomes.seconds = time.monotonic() - begun
            if position + 1 == len(planned) or planned[position + 1].group != measurement.group:
                save()
        outcomes.rounds = number + 1
        outcomes.seconds = time.monotonic() - begun
        if outcomes.seconds + (time.monotonic() - lap) > size.budget_s:
            break
    return outcomes


def run_one(measurement: Measurement, size: Limits, outcomes: Outcomes, number: int) -> None:
    """One child, from its start to its last line; whatever goes wrong with it is noted, and the others go on."""
    key = measurement.key
    if key in outcomes.absent:
        return
    if key not in outcomes.ran:
        outcomes.ran[key] = Ran.beginning()
    ran = outcomes.ran[key]
    begun = time.monotonic()
    try:
        _run_child(measurement, size, outcomes, number)
    except Exception as error:
        _note_broken(outcomes, key, number, f"{type(error).__name__}: {error}")
    ran.seconds += time.monotonic() - begun


def _note_broken(outcomes: Outcomes, key: str, number: int, what: str) -> None:
    outcomes.broken.setdefault(key, []).append(f"round {number + 1}: {what}")


def _run_child(measurement: Measurement, size: Limits, outcomes: Outcomes, number: int) -> None:
    key = measurement.key
    interpreter = interpreter_for(measurement.python, measurement.needs)
    if interpreter is None:
        is_version = measurement.python[:1].isdigit()
        if is_version and interpreter_for(measurement.python, "") is None:
            outcomes.absent[key] = f"Python {measurement.python} was not found"
        else:
            outcomes.absent[key] = f"{measurement.needs} is not installed"
        return
    command = [interpreter, "-m", "benchmarks.child", measurement.module, json.dumps(measurement.arguments)]
    with scratch_folder() as folder:  # made here, so that a child that is ended leaves nothing behind
        answer = _call([*command, str(folder)], size.patience_s + measurement.real_seconds)
    if isinstance(answer, str):
        _note_broken(outcomes, key, number, answer)
    elif answer is None:
        outcomes.absent[key] = "this version of duly has no such option"
    else:
        outcomes.samples.setdefault(key, []).append(answer)


def _call(command: list[str], patience_s: float) -> Sample | str | None:
    """The measurement of the child, None if there is nothing to measure, or a text that says what went wrong."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(command[0]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # children of its own go with it
    ) as child:
        try:
            output, errors = child.communicate(timeout=patience_s)
        except BaseException as reason:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            if isinstance(reason, subprocess.TimeoutExpired):
                return f"not done after {patience_s:.0f} s"
            raise
    if child.returncode != 0:
        return f"exit code {child.returncode}: {errors.strip().splitlines()[-1] if errors.strip() else 'no message'}"
    try:
        answer: Sample | None = json.loads(output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return f"no figures in its output: {output[-200:]!r}"
    return answer


# --- interpreters ----------------------------------------------------------------------------------------------------


@cache
def interpreter_for(python: str, needs: str) -> str | None:
    """An interpreter of that version or environment that has the package; None if there is none on this machine."""
    if python == "":
        candidates = [sys.executable, str(BENCH / "bin" / "python")]
    elif python[0].isdigit():
        installed = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{python}.*"))
        candidates = [str(folder / "bin" / "python") for folder in reversed(installed)]
        candidates += [found] if (found := shutil.which(f"python{python}")) else []
    else:
        candidates = [f"{prefix}-{python}/bin/python" for prefix in (sys.prefix, BENCH)]
    for candidate in candidates:
        if _has(candidate, python, needs or "tzlocal"):
            return candidate
    return None


def _has(interpreter: str, python: str, package: str) -> bool:
    version = python if python[:1].isdigit() else ""
    check = (
        "import importlib.util as u, sys; "
        f"sys.exit(not (sys.version.startswith({version!r}) and u.find_spec({package!r})))"
    )
    try:
        return subprocess.run(
            [interpreter, "-c", check], env=_environment(interpreter), capture_output=True, check=False
        ).returncode == 0  # fmt: skip
    except OSError:
        return False


def _environment(interpreter: str) -> dict[str, str]:
    """duly from this checkout; for an interpreter without an environment of ours, also what duly itself needs."""
    path = [str(ROOT / "src")]
    if not (Path(interpreter).parent.parent / "pyvenv.cfg").exists():
        path += [str(folder) for folder in (Path(sys.prefix) / "any", BENCH / "any") if folder.is_dir()][:1]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
