"""The Promela model under spin: interleavings, liveness under weak fairness, and mistakes that must be found.

FORMAL B3, B5: `formal/scheduler.pml` is the scheduler's steps, `formal/registers.pml` its monitor, generated from the
properties. Exhaustive: no bitstate hashing, no bound on depth that is reached. Each instance bounds crashes, stops and
re-initialisations; minutes, retries and starts are not bounded.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from formal.generate import Registers
from tests.conftest import require

FORMAL = Path(__file__).parent.parent.parent / "formal"
NAMES = ("", "S1", "S2", "S3", "S4", "S5", "S5plus", "S6a", "S6b", "E2", "EW")


@dataclass(frozen=True)
class Verification:
    """The result of spin."""

    states: int
    transitions: int
    errors: int
    trace: list[str]

    @property
    def violated(self) -> str:
        """The property whose assertion failed."""
        numbers = [line.split()[1] for line in self.trace if line.startswith("VIOLATED ")]
        return NAMES[int(numbers[0])] if numbers else ""


@dataclass(frozen=True)
class Verifier:
    """A compiled model."""

    folder: Path
    arguments: tuple[str, ...] = ()

    def run(self, *arguments: str, **bounds: int) -> Verification:
        """Search everything within the bounds, up to the first error."""
        environment = {**os.environ, **{name.upper(): str(value) for name, value in bounds.items()}}
        trail = self.folder / "scheduler.pml.trail"
        trail.unlink(missing_ok=True)
        output = self._pan(environment, "-m200000", "-E", *self.arguments, *arguments)
        assert "max search depth too small" not in output
        found = [re.search(rf"(\d+) {what}", output) for what in ("states, stored", "transitions")]
        errors = re.search(r"errors: (\d+)", output)
        assert found[0] is not None, output
        assert found[1] is not None, output
        assert errors is not None, output
        trace = self._pan(environment, "-r", *arguments).splitlines() if trail.exists() else []
        return Verification(int(found[0][1]), int(found[1][1]), int(errors[1]), trace)

    def _pan(self, environment: dict[str, str], *arguments: str) -> str:
        command = [str(self.folder / "pan"), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        return done.stdout


def built(folder: Path, *options: str, model: tuple[str, ...] = ()) -> Path:
    require("spin", "apt-get install spin")
    require("gcc", "apt-get install gcc")
    for source in FORMAL.glob("*.pml"):
        shutil.copy(source, folder)
    subprocess.run(["spin", "-a", *model, "scheduler.pml"], cwd=folder, check=True, capture_output=True)
    subprocess.run(["gcc", "-O2", "-w", *options, "-o", "pan", "pan.c"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def safety(tmp_path_factory: pytest.TempPathFactory) -> Verifier:
    return Verifier(built(tmp_path_factory.mktemp("safety"), "-DSAFETY", "-DNOCLAIM", "-DNOFAIR"))


@pytest.fixture(scope="module")
def liveness(tmp_path_factory: pytest.TempPathFactory) -> Verifier:
    folder = built(tmp_path_factory.mktemp("liveness"), "-DNFAIR=3", model=("-DLIVE",))
    return Verifier(folder, ("-a", "-f"))


def test_the_registers_are_those_of_the_properties() -> None:
    """One source of truth: run `python -m formal.generate` after changing the properties."""
    assert (FORMAL / "registers.pml").read_text() == Registers().text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "states", "transitions"),
    [
        ({"crashes": 2, "stops": 2, "inits": 0, "waits": 0}, 577_280, 1_960_505),
        ({"crashes": 2, "stops": 2, "inits": 0, "waits": 1}, 668_278, 2_272_576),
        ({"crashes": 0, "stops": 2, "inits": 1, "waits": 0}, 955_869, 3_304_838),
        ({"crashes": 1, "stops": 1, "inits": 1, "waits": 0}, 1_178_423, 4_321_340),
        ({"crashes": 1, "stops": 1, "inits": 1, "waits": 1}, 1_358_058, 4_953_557),
    ],
    ids=str,
)
def test_every_interleaving_is_safe(safety: Verifier, bounds: dict[str, int], states: int, transitions: int) -> None:
    """S1 to S6b, E2, EW: crashes between any two steps, overlapping stops, overrides, late acknowledgement."""
    found = safety.run(**bounds)
    print(f"{found.states:,} states, {found.transitions:,} transitions")
    assert found.errors == 0, "\n".join(found.trace)
    assert (found.states, found.transitions) == (states, transitions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "bounds"),
    [
        ("L1", {"crashes": 2, "stops": 1, "inits": 0, "waits": 0}),
        ("L1", {"crashes": 2, "stops": 1, "inits": 0, "waits": 1}),
        ("L1", {"crashes": 0, "stops": 0, "inits": 1, "waits": 0}),
        ("L2", {"crashes": 1, "stops": 2, "inits": 0, "waits": 0}),
        ("L3", {"crashes": 0, "stops": 0, "inits": 1, "waits": 0}),
        ("L3", {"crashes": 0, "stops": 1, "inits": 1, "waits": 0}),
    ],
    ids=str,
)
def test_what_is_promised_comes(liveness: Verifier, claim: str, bounds: dict[str, int]) -> None:
    """SPEC 7.5: under weak fairness of processes, nothing owed, no stop and no initialize stays open for ever."""
    found = liveness.run("-N", claim, **bounds)
    print(f"{found.states:,} states, {found.transitions:,} transitions")
    assert found.errors == 0, "\n".join(found.trace)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "violated", "bounds"),
    [
        pytest.param(1, "S5plus", {"crashes": 0, "stops": 1}, id="a stop does not wait for runs"),
        pytest.param(2, "S2", {"crashes": 0, "stops": 1}, id="a start goes on although a stop was called"),
        pytest.param(4, "S2", {"crashes": 0, "stops": 0}, id="minutes before the first declaration are owed"),
        pytest.param(6, "S2", {"crashes": 1, "stops": 0, "waits": 1}, id="an interrupted run has failed"),
        pytest.param(7, "S2", {"crashes": 0, "stops": 0}, id="the event is apart from the row"),
        pytest.param(8, "S1", {"crashes": 0, "stops": 0}, id="a repeated write is applied again"),
        pytest.param(9, "S2", {"crashes": 0, "stops": 0, "inits": 1}, id="an end of an old declaration arms the new"),
        pytest.param(10, "S1", {"crashes": 0, "stops": 0, "inits": 1}, id="nobody waits for a run of the old one"),
        pytest.param(11, "S2", {"crashes": 2, "stops": 0}, id="an interrupted run never has to rest"),
        pytest.param(12, "S2", {"crashes": 2, "stops": 0}, id="interruptions in a row are not counted"),
        pytest.param(13, "S2", {"crashes": 0, "stops": 2, "inits": 1}, id="one stop that completes ends them all"),
    ],
)
def test_spin_finds(safety: Verifier, mutant: int, violated: str, bounds: dict[str, int]) -> None:
    """A mistake in the model breaks the assertion that is meant to find it."""
    found = safety.run(mutant=mutant, **{"inits": 0, **bounds})
    print("\n".join(line for line in found.trace if re.match(r"[A-Z]", line)))
    assert found.errors == 1
    assert found.violated == violated


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "claim", "bounds"),
    [
        pytest.param(3, "L1", {"inits": 0}, id="a failure is not stored"),
        pytest.param(5, "L1", {"inits": 0, "waits": 1}, id="the retry is forgotten at the start"),
        pytest.param(6, "L1", {"inits": 0}, id="an interrupted run has failed"),
        pytest.param(14, "L3", {"inits": 1}, id="the lock does not queue"),
    ],
)
def test_spin_finds_what_never_comes(liveness: Verifier, mutant: int, claim: str, bounds: dict[str, int]) -> None:
    """A mistake that breaks no assertion, but a liveness property: spin shows a cycle on which it stays open."""
    found = liveness.run("-N", claim, mutant=mutant, crashes=1, stops=0, **bounds)
    assert found.errors == 1
    assert not found.violated
