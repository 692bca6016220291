"""Long work in short steps returns its result."""

import pytest

from duly.core.steps import Steps, finish


def counted(most: int, fault: Exception | None = None) -> Steps[int]:
    for _ in range(most):
        yield
    if fault is not None:
        raise fault
    return most


@pytest.mark.parametrize("most", [0, 1, 100])
def test_finished_work_returns_its_result(most: int) -> None:
    """Architecture: however many steps it takes, even none."""
    assert finish(counted(most)) == most


def test_an_error_in_a_step_is_raised() -> None:
    """SPEC 1.4: the first failure is raised."""
    with pytest.raises(KeyError):
        finish(counted(3, KeyError("third")))


def test_steps_are_taken_one_at_a_time() -> None:
    """Architecture: others may run between any two of them."""
    steps = counted(2)
    next(steps)
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == 2
