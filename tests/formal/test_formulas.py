"""The reference evaluator: operators, views and verdicts on traces small enough to check by hand."""

from itertools import product

import pytest

from duly.formal.properties import Value
from tests.formal.reference.formulas import NEUTRAL, STRONG, WEAK, Evaluation, formula, judge, read
from tests.formal.story import letters_of


@pytest.mark.parametrize(
    ("text", "trace", "expected"),
    [
        ("Y a", "a b a", "010"),
        ("X a", "a b a", "011"),  # at the last position X is forgiven
        ("O a", "b a b", "011"),
        ("H a", "a a b", "110"),
        ("b S a", "a b c b", "1100"),
        ("b U a", "b b a b", "1110"),
        ("b W a", "b c b b", "0011"),
        ("G b", "a b b", "011"),
        ("F b", "b a a", "100"),
        ("Hold(a, c)", "b a b c b", "01100"),
        ("Hold(a ∧ b → a, a)", "b a", "11"),
        ("Hold(a, b → c)", "a b a b+c", "1110"),
        ("a → b", "a b c", "011"),
        ("¬a ∧ b ∨ c", "a b c", "011"),
        ("a ∨ b ∧ ¬a", "a b c", "110"),
        ("a → b → c", "d a a+b", "110"),  # to the right: a → (b → c); the other way the first would be false
        ("a S b S c", "b c a", "011"),
        ("(a S b) S c", "b c a", "010"),
        ("a ∧ b → c", "a b a+b", "110"),  # → binds weakest
        ("a U b ∧ c", "a c b+c", "001"),  # U binds strongest
        ("a ∧ b U c", "c", "0"),
        ("a S b U c", "c a", "11"),  # S, U and W bind equally, to the right: a S (b U c)
        ("a U b W c", "a c", "11"),
        ("a W b S c", "a", "1"),
    ],
)
def test_operators(text: str, trace: str, expected: str) -> None:
    values = Evaluation(letters_of(trace)).at(read(text, {}), NEUTRAL)
    assert "".join(str(int(value)) for value in values) == expected


@pytest.mark.parametrize(
    ("text", "trace", "expected"),
    [
        ("G a", "a a", Value.HOLDING),
        ("G a", "a b", Value.VIOLATED),
        ("F a", "b b", Value.PENDING),
        ("F a", "b a", Value.SATISFIED),
        ("G(a → F b)", "a", Value.PENDING),
        ("G(a → F b)", "a b", Value.HOLDING),
        ("b U a", "b b", Value.PENDING),
        ("b U a", "b c", Value.VIOLATED),
        ("b W a", "b b", Value.HOLDING),
        ("b W a", "b a", Value.SATISFIED),
        ("¬F a", "b b", Value.HOLDING),
        ("¬G a", "a a", Value.PENDING),
        ("X a", "b", Value.HOLDING),
    ],
)
def test_verdicts(text: str, trace: str, expected: Value) -> None:
    """FORMAL A2: weak false is violated, strong true is satisfied, between them the neutral view decides."""
    assert judge(read(text, {}), letters_of(trace)) is expected


def test_an_empty_trace_holds_until_it_ends() -> None:
    """Nothing has happened: nothing is violated, nothing is open."""
    for text in ("G a", "F a", "a"):
        assert judge(read(text, {}), []) is Value.HOLDING
        assert judge(read(text, {}), [], ended=True) is Value.SATISFIED


def test_an_operator_that_does_not_exist_is_refused() -> None:
    """A formula can be built by hand, with an operator that does not exist."""
    with pytest.raises(ValueError, match="unknown operator 'Z'"):
        Evaluation(letters_of("a")).at(formula("Z", formula("a")))


def test_an_end_decides() -> None:
    assert judge(read("G(a → F b)", {}), letters_of("a"), ended=True) is Value.VIOLATED
    assert judge(read("G(a → F b)", {}), letters_of("a b"), ended=True) is Value.SATISFIED


def test_strong_implies_neutral_implies_weak() -> None:
    """A formula that is violated, or satisfied, stays so whatever follows: on all traces of four over two letters."""
    texts = ["G(a → F b)", "a U b", "G(a → X(b W a))", "F(a ∧ Y b)", "G(a → Y(b S a))", "¬(a W b)", "X(a ∨ X b)"]
    for text in texts:
        always = read(text, {})
        for trace in product(({"a"}, {"b"}, set[str]()), repeat=4):
            strong, neutral, weak = (Evaluation(trace).at(always, view)[0] for view in (STRONG, NEUTRAL, WEAK))
            assert strong <= neutral <= weak
            verdict = judge(always, trace[:3])
            if verdict in (Value.VIOLATED, Value.SATISFIED):
                assert judge(always, trace) is verdict


def test_g_and_h_are_duals_and_s_has_its_recurrence() -> None:
    for trace in product(({"a"}, {"b"}, {"a", "b"}, set[str]()), repeat=4):
        evaluation = Evaluation(trace)
        assert evaluation.at(read("G a", {})) == evaluation.at(read("¬F ¬a", {}))
        assert evaluation.at(read("H a", {})) == evaluation.at(read("¬O ¬a", {}))
        assert evaluation.at(read("a S b", {})) == evaluation.at(read("b ∨ (a ∧ Y(a S b))", {}))
