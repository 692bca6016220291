"""A history as data: what is declared, called, suffered; how callbacks behave; which operation of the store fails how.

`repr` of a history is the Python that makes it, and `as_test` wraps that into a test to paste.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tests.simulation.faults import Fault

IMPORTS = (
    "from tests.simulation.executor import check",
    "from tests.simulation.faults import Fault, Kind",
    "from tests.simulation.histories import (",
    "    Crash, Damage, Declared, Doing, Freeze, History, Initialize, Intrude, Pass, SetClock, Stop, Suspend,",
    ")",
)


class Value:
    """The base of all parts of a history: their text is the call that makes them, without what is as usual."""

    def __repr__(self) -> str:
        usual = {each.name: each.default for each in fields(self)}  # type: ignore[arg-type]
        told = ((name, getattr(self, name)) for name in usual)
        shown = (f"{name}={value!r}" for name, value in told if value != usual[name])
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False, slots=True)
class Doing(Value):
    """One run of a callback: it takes some time, and comes to an end.

    `returns`, `raises`, `exits` (SystemExit), `gives up` (a CancelledError of its own), `resists` (swallows a
    cancellation, and returns), `stops` (calls stop() from inside, is refused, and returns), `declares` (calls
    initialize() from inside, with what was declared last).
    """

    end: str = "returns"
    seconds: float = 0


@dataclass(frozen=True, repr=False, slots=True)
class Declared(Value):
    """A registration. Its runs do what `doings` says, one after the other, and then again from the first."""

    name: str = "a"
    cron: str = "* * * * *"
    delay_ms: int = 60_000
    blocking: bool = False
    doings: tuple[Doing, ...] = ()


@dataclass(frozen=True, repr=False, slots=True)
class Initialize(Value):
    """initialize(); with something wrong in it; in the background; by a caller that is cancelled after some rounds."""

    tasks: tuple[Declared, ...] = ()
    wrong: str = ""
    background: bool = False
    cancelled_after: int | None = None


@dataclass(frozen=True, repr=False, slots=True)
class Stop(Value):
    """stop(); the same."""

    background: bool = False
    cancelled_after: int | None = None


@dataclass(frozen=True, repr=False, slots=True)
class Pass(Value):
    """Time passes."""

    seconds: float = 0


@dataclass(frozen=True, repr=False, slots=True)
class Freeze(Value):
    """The process stands still while time passes."""

    seconds: float = 0


@dataclass(frozen=True, repr=False, slots=True)
class Suspend(Value):
    """The machine sleeps: the wall clock goes on, and the steady clock does not, as on Linux."""

    seconds: float = 0


@dataclass(frozen=True, repr=False, slots=True)
class SetClock(Value):
    """Somebody sets the wall clock, by so much."""

    seconds: float = 0


@dataclass(frozen=True, repr=False, slots=True)
class Crash(Value):
    """The process dies."""


@dataclass(frozen=True, repr=False, slots=True)
class Damage(Value):
    """Damage a free store; initialize() refuses it and leaves it as it is; then it is restored."""

    kind: str = ""


@dataclass(frozen=True, repr=False, slots=True)
class Intrude(Value):
    """Another scheduler wants the same store."""


Step = Initialize | Stop | Pass | Freeze | Suspend | SetClock | Crash | Damage | Intrude


@dataclass(frozen=True, repr=False, slots=True)
class History(Value):
    """All of it. `seed` is the order of what is ready at the same time."""

    seed: int = 0
    at: str = "2024-01-01T00:00"
    zone: str = "UTC"
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    faults: Mapping[int, Fault] = field(default_factory=dict)
    idle_looks: bool = True


def as_test(history: History, name: str = "found_by_simulation") -> str:
    """A test to paste, which runs this history and nothing else."""
    lines = [*IMPORTS, "", "", f"def test_{name}() -> None:", "    check(", "        History("]
    for each in fields(history):
        value = getattr(history, each.name)
        if isinstance(value, tuple):
            lines += [f"            {each.name}=(", *(f"                {part!r}," for part in value), "            ),"]
        elif isinstance(value, Mapping):
            lines += [f"            {each.name}={{"]
            lines += [f"                {key!r}: {part!r}," for key, part in value.items()]
            lines += ["            },"]
        else:
            lines.append(f"            {each.name}={value!r},")
    return "\n".join([*lines, "        )", "    )", ""])
