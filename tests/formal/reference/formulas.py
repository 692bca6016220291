"""The reference: past and future LTL on finite traces, evaluated the slow and obvious way.

A trace is a list of sets of letters. A formula is read from its text (the syntax of `properties`) and evaluated at
every position, subformula by subformula. What lies beyond the end is answered in one of three views:

    weak       the end of the trace is forgiven: what is still open counts as kept
    strong     only what the trace itself shows counts
    neutral    the trace is all there is: G looks at its positions, F wants one of them, X at the last is forgiven

A formula that is false in the weak view is violated by every continuation; one that is true in the strong view is
satisfied by every continuation; between these, the neutral view tells holding from pending.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, Literal

from duly.formal.properties import REGISTERS, Value

Trace = Sequence[Set[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """An operator and its operands, or a letter; the same formula is always the same object."""

    operator: str
    operands: tuple["Formula", ...]
    looks_ahead: bool  # has X, U or W in it; if not, the end of a trace does not matter


_formulas: dict[tuple[str, tuple[Formula, ...]], Formula] = {}


def formula(operator: str, *operands: Formula) -> Formula:
    """The formula of an operator and its operands, in terms of ¬ ∧ ∨ Y S X U W."""
    if operator in _SHORT:
        return _SHORT[operator](*operands)
    found = _formulas.get((operator, operands))
    if found is None:
        looks_ahead = operator in _AHEAD or any(each.looks_ahead for each in operands)
        found = _formulas[operator, operands] = Formula(operator, operands, looks_ahead)
    return found


_AHEAD: Final = ("X", "U", "W")
_SHORT: Final[dict[str, Callable[..., Formula]]] = {
    "→": lambda a, b: formula("∨", formula("¬", a), b),
    "G": lambda a: formula("W", a, formula("¬", formula("true"))),
    "F": lambda a: formula("U", formula("true"), a),
    "O": lambda a: formula("S", formula("true"), a),
    "H": lambda a: formula("¬", formula("O", formula("¬", a))),
}

View = Literal[1, 0, -1]
"""The assumption about what lies beyond the end of a trace."""

WEAK: Final[View] = 1
NEUTRAL: Final[View] = 0
STRONG: Final[View] = -1


# --- reading ----------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"\s*(Hold|[GFXYHOSWU](?![A-Za-z0-9_])|true|[A-Za-z][A-Za-z0-9_]*|[¬∧∨→(),])")
_UNARY: Final = frozenset("¬GFXYHO")
_BINARY: Final = {"→": 1, "∨": 2, "∧": 3, "S": 4, "U": 4, "W": 4}  # how strongly they bind


def read(text: str, definitions: Mapping[str, str] | None = None) -> Formula:
    """The formula of a text; names that `definitions` has (the registers, if not given) stand for their formulas."""
    if definitions is None:
        return _read_with_registers(text)
    return _read(text, definitions)


@lru_cache(maxsize=10_000)
def _read_with_registers(text: str) -> Formula:
    return _read(text, {each.name: each.formula for each in REGISTERS})


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"cannot read {text[position:]!r}")
        tokens.append(found[1])
        position = found.end()
    return tokens


def _read(text: str, names: Mapping[str, str]) -> Formula:
    tokens = _tokens(text)

    def expect(token: str) -> None:
        if not tokens or tokens.pop(0) != token:
            raise ValueError(f"{token!r} is missing in {text!r}")

    def operand() -> Formula:
        if not tokens:
            raise ValueError(f"something is missing at the end of {text!r}")
        token = tokens.pop(0)
        if token in _UNARY:
            return formula(token, operand())
        if token == "(":
            inside = expression(1)
            expect(")")
            return inside
        if token == "Hold":
            expect("(")
            raised = expression(1)
            expect(",")
            cleared = expression(1)
            expect(")")
            return formula("S", formula("¬", cleared), raised)
        return _read(names[token], names) if token in names else formula(token)

    def expression(strength: int) -> Formula:
        left = operand()
        while tokens and _BINARY.get(tokens[0], 0) >= strength:
            operator = tokens.pop(0)
            # → S U W group to the right, the others either way
            left = formula(operator, left, expression(_BINARY[operator] + (operator in "∧∨")))
        return left

    result = expression(1)
    if tokens:
        raise ValueError(f"{' '.join(tokens)!r} is left over in {text!r}")
    return result


# --- evaluating -------------------------------------------------------------------------------------------------------


class Evaluation:
    """The truth of formulas at every position of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[tuple[Formula, View], list[bool]] = {}

    def at(self, formula: Formula, view: View = NEUTRAL) -> list[bool]:
        """The truth of a formula, position by position."""
        if not formula.looks_ahead:
            view = NEUTRAL
        found = self._known.get((formula, view))
        if found is None:
            found = self._known[formula, view] = self._evaluate(formula, view)
        return found

    def _evaluate(self, formula: Formula, view: View) -> list[bool]:
        operator, operands = formula.operator, formula.operands
        if not operands:
            return [operator == "true" or operator in letters for letters in self._trace]
        if operator == "¬":  # to forgive a negation is to be strict with what it negates
            return [not value for value in self.at(operands[0], _opposite(view))]
        a, b = self.at(operands[0], view), self.at(operands[-1], view)
        match operator:
            case "∧":
                return [x and y for x, y in zip(a, b, strict=True)]
            case "∨":
                return [x or y for x, y in zip(a, b, strict=True)]
            case "Y":
                return [False, *a[:-1]]
            case "X":
                return [*a[1:], view != STRONG]
            case "S":
                return _holding(a, b, False)
            case "U" | "W":
                # Beyond the end: what is open counts as kept, or not; and W alone may stay open in a trace that ended.
                kept = view == WEAK or (view == NEUTRAL and operator == "W")
                return _holding(a[::-1], b[::-1], kept)[::-1]
            case _:
                raise ValueError(f"unknown operator {operator!r}")

    def judge(self, formula: Formula, *, ended: bool = False) -> Value:
        """The value of a formula on a trace; `ended` if nothing can follow."""
        if not self._trace:
            return Value.SATISFIED if ended else Value.HOLDING
        if not self.at(formula, WEAK)[0]:
            return Value.VIOLATED
        if self.at(formula, STRONG)[0]:
            return Value.SATISFIED
        neutral = self.at(formula)[0]
        if ended:
            return Value.SATISFIED if neutral else Value.VIOLATED
        return Value.HOLDING if neutral else Value.PENDING


def _opposite(view: View) -> View:
    return STRONG if view == WEAK else WEAK if view == STRONG else NEUTRAL


def _holding(a: list[bool], b: list[bool], beginning: bool) -> list[bool]:
    """The recurrence of S, and backwards that of U and W: h' = b ∨ (a ∧ h)."""
    held = accumulate(zip(a, b, strict=True), lambda h, now: now[1] or (now[0] and h), initial=beginning)
    return list(held)[1:]


def judge(formula: Formula, trace: Trace, *, ended: bool = False) -> Value:
    """The value of one formula on a trace."""
    return Evaluation(trace).judge(formula, ended=ended)
