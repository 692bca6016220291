"""The pictures of docs/architecture.md are true: each is read from its text and compared with the code."""

import asyncio
import inspect
import re
import sys
import types
import typing
from datetime import timedelta
from pathlib import Path

from duly.core import task as tasks
from duly.core.agenda import Agenda
from duly.events import Event, TaskRunCompleted
from duly.testing import SimulatedHost
from tests.test_architecture import LAYERS, MODULES, PACKAGE, PUBLIC_MODULES, imports, is_within, layer

PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")


def picture(heading: str) -> str:
    """The text of the picture below a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"^```mermaid\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no picture below {heading!r}"
    return found[1]


# --- the layers ------------------------------------------------------------------------------------------------------


def layer_arrows(text: str, arrow: str = "-->") -> set[tuple[str, str]]:
    """Which layer points to which, with one kind of arrow."""
    return set(re.findall(rf"^ *(\w+)(?:\[.*\])? {re.escape(arrow)} (\w+)", text, re.MULTILINE))


def reachable(arrows: set[tuple[str, str]], start: str) -> set[str]:
    """All that can be reached along the arrows."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        here = waiting.pop()
        below = {end for begin, end in arrows if begin == here} - found
        found |= below
        waiting += below
    return found


def real_imports() -> set[tuple[str, str]]:
    """Which layer imports which, in the source as it is; what is not allowed, the architecture test finds."""
    found = set()
    for module in MODULES:
        here = layer(module.name)
        found |= {(here, layer(name)) for _, name in imports(module) if is_within(name, "duly")}
    return {(begin, end) for begin, end in found if end in LAYERS[begin]}


def public_imports() -> set[tuple[str, str]]:
    """From which layers integrations import public names."""
    return {
        ("integrations", layer(name))
        for module in MODULES
        if layer(module.name) == "integrations"
        for _, name in imports(module)
        if name in PUBLIC_MODULES
    }


def layer_faults(text: str) -> list[str]:
    """In which ways a picture of the layers is not the truth."""
    arrows, dotted, public = layer_arrows(text), layer_arrows(text, "-.->"), public_imports()
    drawn = {name for arrow in arrows | dotted for name in arrow}
    existing = {layer(module.name) for module in MODULES}
    real = real_imports()
    faults = [f"{name} is not drawn" for name in sorted(existing - drawn)]
    faults += [f"{name} has no module" for name in sorted(drawn - existing)]
    for begin, end in sorted(arrows):
        if end not in LAYERS.get(begin, set()):
            faults.append(f"{begin} may not import {end}")
        elif (begin, end) not in real:
            faults.append(f"{begin} does not import {end}")
        if begin in reachable(arrows, end):
            faults.append(f"{begin} and {end} point to each other")
    faults += [f"{begin} does not import public names of {end}" for begin, end in sorted(dotted - public)]
    for begin, end in sorted(real | public):
        if end not in reachable(arrows | dotted, begin):
            faults.append(f"{begin} imports {end}, and no arrow leads there")
    return faults


def test_the_picture_of_the_layers_is_that_of_the_imports() -> None:
    """Every layer is drawn, every arrow is an import that exists and is allowed, every import follows the arrows."""
    assert layer_faults(picture("The layers")) == []


def test_a_wrong_picture_of_the_layers_is_noticed() -> None:
    """An arrow too many, one that is turned round, one that is missing."""
    truth = picture("The layers")
    assert "core may not import stores" in layer_faults(truth + "    core --> stores\n")
    assert "words may not import core" in layer_faults(truth + "    words --> core\n")
    assert "core and words point to each other" in layer_faults(truth + "    words --> core\n")
    assert "integrations does not import public names of engine" in layer_faults(
        truth + "    integrations -.-> engine\n"
    )
    without = "\n".join(line for line in truth.splitlines() if "--> clock" not in line)
    assert any(fault.startswith("engine imports clock") for fault in layer_faults(without))


def test_every_layer_of_the_picture_is_described() -> None:
    """The table below the picture names each of them, but for three that hold one module each."""
    section = PAGE.split("## The layers\n")[1].split("\n## ")[0]
    described = {name for cell in re.findall(r"^\| ([\w, ]+) \|", section, re.MULTILINE) for name in cell.split(", ")}
    text = picture("The layers")
    drawn = {name for arrow in layer_arrows(text) | layer_arrows(text, "-.->") for name in arrow}
    assert drawn - described == {"clock", "leaves", "threads"}


# --- the way of one occurrence ---------------------------------------------------------------------------------------

Step = tuple[str, str, str]
"""The caller, the callee, and the function."""


def participants(text: str) -> dict[str, str]:
    """The module of each participant."""
    return dict(re.findall(r"^ *participant (\w+) as (.+)$", text, re.MULTILINE))


def steps(text: str) -> list[Step]:
    """The calls of the picture, in order."""
    return re.findall(r"^ *(\w+)->>(\w+): (\w+)$", text, re.MULTILINE)


async def calls_of_one_occurrence(store: Path, modules: set[str]) -> list[tuple[str, str]]:
    """Run one task once, on a real store; which functions of these modules were entered, in order."""
    calls: list[tuple[str, str]] = []
    ended = asyncio.Event()

    async def callback() -> None: ...

    def hear(event: Event) -> None:
        if isinstance(event, TaskRunCompleted):
            ended.set()

    def watch(frame: types.FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call":
            return
        if code is callback.__code__:
            calls.append(("your callback", code.co_name))
        elif (path := Path(code.co_filename)).is_relative_to(PACKAGE) and str(path.relative_to(PACKAGE)) in modules:
            calls.append((str(path.relative_to(PACKAGE)), code.co_name))

    async with SimulatedHost("2024-05-01T12:00:30", "UTC", store=store) as host:
        scheduler = host.scheduler(on_event=hear)
        await scheduler.initialize([("report", "1 12 * * *", callback, timedelta(minutes=1))])
        await host.advance(seconds=29)
        sys.setprofile(watch)
        try:
            await host.advance(seconds=2)
        finally:
            sys.setprofile(None)
        assert ended.is_set()
        await scheduler.stop()
    return calls


def occurrence_faults(text: str, calls: list[tuple[str, str]]) -> list[str]:
    """In which ways a picture of the occurrence is not what happened."""
    modules = participants(text)
    faults = []
    rest = iter(calls)
    for caller, callee, function in steps(text):
        if (modules[callee], function) not in rest:
            faults.append(f"{function} of {modules[callee]} is not entered after what stands above it")
            rest = iter(calls)
        source = (PACKAGE / modules[caller]).read_text(encoding="utf-8")
        if not re.search(rf"\b{function}\(", source):
            faults.append(f"{modules[caller]} does not call {function}")
    return faults


async def test_the_picture_of_one_occurrence_is_what_happens(tmp_path: Path) -> None:
    """Each call of the picture happens, in this order, and its caller names it."""
    text = picture("The way of one occurrence")
    calls = await calls_of_one_occurrence(tmp_path / "state.db", set(participants(text).values()))
    assert len(steps(text)) > 10
    assert occurrence_faults(text, calls) == []


async def test_a_wrong_picture_of_one_occurrence_is_noticed(tmp_path: Path) -> None:
    """A launch before the commit, and a function that is not there."""
    text = picture("The way of one occurrence")
    calls = await calls_of_one_occurrence(tmp_path / "state.db", set(participants(text).values()))
    hasty = text.replace("loop->>runner: launch\n", "").replace("loop->>journal: commit", "loop->>runner: launch")
    assert occurrence_faults(hasty, calls) != []
    invented = text.replace("runner: admit", "runner: adopt")
    assert any("adopt" in fault for fault in occurrence_faults(invented, calls))


# --- the states of a task --------------------------------------------------------------------------------------------


def state_arrows(text: str) -> set[tuple[str, str, str]]:
    """From which state, by which function, to which."""
    return {
        (begin, function, end)
        for begin, end, function in re.findall(r"^ *(\[\*\]|\w+) --> (\w+): (\w+)$", text, re.MULTILINE)
    }


STATES = {state.__name__: state for state in typing.get_args(tasks.TaskState)}


def states_in(hint: object) -> set[str]:
    """The states that a type hint names; none if it names anything else."""
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    names = {getattr(member, "__name__", "") for member in members}
    return names if names <= set(STATES) else set()


def transitions() -> set[tuple[str, str, str]]:
    """The functions of core/task.py that take a state, or none, and return another one."""
    found = set()
    for name, function in inspect.getmembers(tasks, inspect.isfunction):
        if function.__module__ != tasks.__name__ or name == "__annotate__":  # a module has that one since Python 3.14
            continue
        hints = typing.get_type_hints(function)
        ends = states_in(hints.pop("return"))
        begins = states_in(next(iter(hints.values()), None))
        if len(ends) == 1:
            found |= {(begin, name, end) for begin in begins or {"[*]"} for end in ends if begin != end}
    return found


def withdrawals() -> set[tuple[str, str, str]]:
    """A declaration may be withdrawn in every state but the last, by the agenda."""
    assert "Withdrawn(" in inspect.getsource(Agenda.leave)
    return {(state, "leave", "Withdrawn") for state in STATES if state != "Withdrawn"}


def test_the_picture_of_the_states_is_that_of_the_functions() -> None:
    """Every arrow is a function with these types, and every such function is an arrow."""
    assert state_arrows(picture("The states of a task")) == transitions() | withdrawals()


def test_the_functions_are_found() -> None:
    """The transitions read from the types are those that a reader of core/task.py would name."""
    assert ("Running", "fail", "AwaitingRetry") in transitions()
    assert ("[*]", "newly_declared", "AwaitingRun") in transitions()
    assert not any(name in ("corrected", "obligation") for _, name, _ in transitions())
