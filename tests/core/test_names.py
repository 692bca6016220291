"""A set of names in parts says what a plain set says."""

from hypothesis import given
from hypothesis import strategies as st

from duly.core.names import Names
from duly.core.steps import finish

TEXTS = st.text(alphabet="abä", max_size=3)


@given(st.lists(st.lists(TEXTS, max_size=6)))
def test_names_are_added_together_or_not_at_all(groups: list[list[str]]) -> None:
    """SPEC 1.4: a name that appears twice is found, within one step of a check and between two."""
    names, plain = Names(), set[str]()
    for group in groups:
        are_new = len({*group}) == len(group) and plain.isdisjoint(group)
        assert names.add_new(group) is are_new
        if are_new:
            plain.update(group)
        assert all((text in names) == (text in plain) for text in [*group, "", "a", "b", "ä"])


def test_all_names_go_in_steps() -> None:
    """A million names that go at once keep the event loop for longer than a slice."""
    names = Names()
    names.add("a")
    assert names.add_new([f"{number}" for number in range(1_000)])
    assert "a" in names
    assert "999" in names
    steps = names.clear()
    next(steps)
    assert sum(f"{number}" in names for number in range(1_000)) > 800
    finish(steps)
    assert not any(f"{number}" in names for number in range(1_000))
    assert "a" not in names
