"""Writes formal/registers.pml: the registers and checks of `duly.formal.properties`, as Promela inlines.

The formulas are data. `Hold(s, c)` is `(¬c) S s`, whose recurrence is `h' = s ∨ (h ∧ ¬c)`; at one event every letter
is known, and what stands under Y is the value from before. So each event becomes a few assignments, and each property
of the form G(event → past) an assertion in front of them. `G(a → (¬b W c))` is checked as `G(b → ¬Y Hold(a, c))`, which
is the same where there is one event per position. Run `python -m formal.generate` after changing the properties.
"""

from pathlib import Path
from typing import Final

from duly.formal.properties import BY_ID, REGISTERS
from tests.formal.reference.formulas import Formula, read

TARGET: Final = Path(__file__).parent / "registers.pml"
TASK_EVENTS: Final = {
    "Due": {"Due"},
    "RetryDue": {"RetryDue"},
    "Resume": {"Resume"},
    "First": {"First"},
    "Gone": {"Gone"},
    "RS": {"RS"},
    "REs": {"RE", "REs"},
    "REf": {"RE", "REf"},
    "REold": {"RE"},  # of a declaration that is not in force any more
}
COMMON_EVENTS: Final = ("IE", "SS", "SE", "Crash")
OF_A_TASK: Final = {letter for letters in TASK_EVENTS.values() for letter in letters}
PARAMETERS: Final = {"Settled": ("SE", "settled"), "Stale": ("RS", "stale"), "Wait": ("", "waits")}
"""An event in the model: with which it can come, and as what."""
CHECKED: Final = ("S1", "S2", "S4", "S5", "S5⁺", "S6a", "S6b")

Value = bool | str


class Registers:
    """All `Hold` registers, those of the W properties included, and the momentary ones between them."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[Formula, Formula]] = {}  # what raises it, what clears it
        self.momentary: dict[str, Formula] = {}
        self.checks: list[tuple[str, str, Formula]] = []  # property, event, what must be so
        for each in REGISTERS:
            formula = read(each.formula, {})
            if formula.looks_ahead:
                continue  # Good, which S3 speaks of: kept by hand, as `fresh`
            self._define(each.name, formula)
        for property_id in CHECKED:
            self._check(property_id, read(BY_ID[property_id].formula, {}))
        self.of_a_task = {name for name in self.held if self._speaks_of_a_task(name)}

    def _define(self, name: str, formula: Formula) -> None:
        if formula.operator == "S" and formula.operands[0].operator == "¬":
            self.held[name] = (formula.operands[1], formula.operands[0].operands[0])
        else:
            self.momentary[name] = formula

    def _check(self, property_id: str, formula: Formula) -> None:
        inner = formula.operands[0]  # G φ is φ W false, and a → b is ¬a ∨ b
        assert (formula.operator, inner.operator, inner.operands[0].operator) == ("W", "∨", "¬"), property_id
        event, claim = inner.operands[0].operands[0].operator, inner.operands[1]
        if claim.operator != "W":
            self.checks.append((property_id, event, claim))
            return
        forbidden, until = claim.operands[0].operands[0], claim.operands[1]
        name = f"Since{property_id}"
        self.held[name] = (inner.operands[0].operands[0], until)
        self.checks.append((property_id, forbidden.operator, read(f"¬Y {name}", {})))

    def _speaks_of_a_task(self, name: str) -> bool:
        formulas = self.held[name] if name in self.held else (self.momentary[name],)
        letters = set().union(*map(_letters, formulas))
        names = {each for each in letters if each in self.held or each in self.momentary}
        return bool(letters & OF_A_TASK) or any(self._speaks_of_a_task(each) for each in names - {name})

    # --- expressions -------------------------------------------------------------------------------------------------

    def now(self, formula: Formula, letters: set[str]) -> Value:
        """A formula at an event, in terms of the registers before it."""
        operator, operands = formula.operator, formula.operands
        if operator == "Y":
            return self.before(operands[0])
        if not operands:
            if operator in self.momentary:
                return self.now(self.momentary[operator], letters)
            with_, parameter = PARAMETERS.get(operator, ("", ""))
            return parameter if parameter and (not with_ or with_ in letters) else operator in letters
        return _combine(operator, [self.now(each, letters) for each in operands])

    def before(self, formula: Formula) -> Value:
        """A formula of registers, as they were before the event."""
        operator, operands = formula.operator, formula.operands
        if not operands:
            if operator in self.momentary:
                return self.before(self.momentary[operator])
            return f"m{operator}[x]" if operator in self.of_a_task else f"m{operator}"
        return _combine(operator, [self.before(each) for each in operands])

    # --- inlines -----------------------------------------------------------------------------------------------------

    def updates(self, letters: set[str], *, of_a_task: bool) -> list[str]:
        """The effect of an event on the registers of a task, or to the common ones."""
        changes: dict[str, str] = {}
        for name, (raised, cleared) in self.held.items():
            if (name in self.of_a_task) is not of_a_task:
                continue
            variable = f"m{name}[x]" if of_a_task else f"m{name}"
            kept = _combine("∧", [variable, _combine("¬", [self.now(cleared, letters)])])
            value = _combine("∨", [self.now(raised, letters), kept])
            if value != variable:
                changes[variable] = str(int(value)) if isinstance(value, bool) else value
        lines = []
        while changes:  # one that others still read waits until they have been assigned
            ready = next(
                each for each in changes if not any(each in value for other, value in changes.items() if other != each)
            )
            lines.append(f"  {ready} = {changes.pop(ready)};")
        return lines

    def asserts(self, event: str, letters: set[str]) -> list[str]:
        """The checks before an event takes effect."""
        lines = []
        for property_id, at, claim in self.checks:
            if at in letters:
                ascii_id = property_id.replace("⁺", "plus")
                lines.append(f"  check({self.now(claim, letters)}, {ascii_id});")
        return lines

    def text(self) -> str:
        """The whole file."""
        common = sorted(set(self.held) - self.of_a_task)
        lines = [
            "/* Written by formal/generate.py from duly.formal.properties; do not edit. */",
            f"bool {', '.join(f'm{name}' for name in common)};",
            f"bool {', '.join(f'm{name}[N]' for name in sorted(self.of_a_task))};",
            f"#define OBLIGED(x) {self.before(read('Obl', {}))}",
        ]
        for event, letters in TASK_EVENTS.items():
            parameters = "x, stale" if event == "RS" else "x"
            body = [*self.asserts(event, letters), *self.updates(letters, of_a_task=True)]
            lines += [f"inline on_{event}({parameters}) {{", *body, "}"]
            assert not self.updates(letters, of_a_task=False), event
        for event in COMMON_EVENTS:
            settled = "settled" if event == "SE" else ""
            of_all = [*self.asserts(event, {event}), *self.updates({event}, of_a_task=True)]
            lines += [f"inline on_{event}_task(x) {{", *(of_all or ["  skip;"]), "}"]
            lines += [f"inline on_{event}({settled}) {{", *self.updates({event}, of_a_task=False), "}"]
        return "\n".join(lines) + "\n"


def _letters(formula: Formula) -> set[str]:
    return set().union(*map(_letters, formula.operands)) if formula.operands else {formula.operator}


def _combine(operator: str, values: list[Value]) -> Value:
    if operator == "¬":
        (value,) = values
        return not value if isinstance(value, bool) else f"!{value}"
    absorbing = operator == "∨"
    if absorbing in values:
        return absorbing
    left = [value for value in values if isinstance(value, str)]
    if not left:
        return not absorbing
    return left[0] if len(left) == 1 else f"({(' || ' if absorbing else ' && ').join(left)})"


if __name__ == "__main__":
    TARGET.write_text(Registers().text())
