"""Histories for hypothesis: the same as seeds make, drawn choice by choice, so that it can make them smaller."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.simulation.generation import Maker
from tests.simulation.histories import History


class Drawn:
    """Hypothesis' choices; its smallest, 0, is the generator's simplest."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        return int(self._draw(st.integers(0, bound - 1)))


@st.composite
def histories(draw: Callable[[Any], Any]) -> History:
    """Any history that a seed could make."""
    return Maker(Drawn(draw)).history()
