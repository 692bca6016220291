"""All vectors, or a share of them, against one implementation."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance import tz_database
from conformance.comparison import Outcome, compare, premise_holds, question
from conformance.deviations import Class, class_of
from conformance.protocol import Hello, Implementation
from conformance.vector_files import FOLDER, Group, Vector, load

KNOWN_ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Europe/London")
NOT_OFFERED = "the implementation does not offer this group"
OTHER_DATABASE = "the tz database in use shows other clock changes than the one that the vector was made with"


@dataclass(frozen=True)
class Result:
    """The result of one group for an implementation: one outcome per vector, in their order."""

    group: Group
    vectors: Sequence[Vector]
    outcomes: Sequence[Outcome]

    def count(self, implementation: str, wanted: Class | None) -> int:
        """The number of deviations of a class; of agreements, if None is asked for."""
        if wanted is None:
            return sum(outcome.applies and outcome.kind is None for outcome in self.outcomes)
        kinds = [outcome.kind for outcome in self.outcomes if outcome.kind is not None]
        return sum(class_of(implementation, kind) is wanted for kind in kinds)

    @property
    def not_applicable(self) -> int:
        """The number of vectors that do not concern the implementation."""
        return sum(not outcome.applies for outcome in self.outcomes)

    @property
    def kinds(self) -> Counter[str]:
        """How often it deviates in which way."""
        return Counter(outcome.kind for outcome in self.outcomes if outcome.kind is not None)

    def smallest(self, kind: str) -> tuple[Vector, Outcome]:
        """The deviation of a kind that is easiest to follow: in a zone that readers know, then the shortest."""
        found = [pair for pair in zip(self.vectors, self.outcomes, strict=True) if pair[1].kind == kind]
        return min(found, key=lambda pair: _effort(*pair))


def _effort(vector: Vector, outcome: Outcome) -> tuple[bool, int, int, str]:
    is_far = vector.get("zone", "UTC") not in KNOWN_ZONES
    return is_far, len(str(vector.get("expression", ""))), len(outcome.answered), vector["id"]


@dataclass(frozen=True)
class Report:
    """The result of all groups for an implementation."""

    hello: Hello
    results: dict[Group, Result] = field(default_factory=dict)
    tz_remark: str | None = None
    """A remark about tz databases; None if all of them are the one that the vectors were made with."""

    @property
    def defects(self) -> int:
        """The number of defects."""
        return sum(result.count(self.hello.name, Class.DEFECT) for result in self.results.values())

    @property
    def deviations(self) -> int:
        """The number of deviations, of either class."""
        return sum(sum(result.kinds.values()) for result in self.results.values())


def hold(
    implementation: Implementation,
    groups: Iterable[Group] = tuple(Group),
    *,
    folder: Path = FOLDER,
    choose: Callable[[Sequence[Vector]], Sequence[Vector]] = lambda vectors: vectors,
) -> Report:
    """Ask an implementation about vectors; `choose` takes a share of a group's."""
    hello = implementation.hello()
    report = Report(hello, {}, _tz_remark(hello, groups, folder))
    for group in groups:
        vectors = choose(load(group, folder).vectors)
        outcomes = [_outcome(implementation, hello, group, vector) for vector in vectors]
        report.results[group] = Result(group, vectors, outcomes)
    return report


def _outcome(implementation: Implementation, hello: Hello, group: Group, vector: Vector) -> Outcome:
    if group.value not in hello.groups:
        return Outcome(False, None, NOT_OFFERED)
    if group is Group.TRANSITIONS and not premise_holds(vector):
        return Outcome(False, None, OTHER_DATABASE)
    return compare(group, vector, implementation.ask(question(group, vector)))


def _tz_remark(hello: Hello, groups: Iterable[Group], folder: Path) -> str | None:
    """Say so if the runner or the implementation has another tz database than the vectors were made with."""
    made_with = {load(group, folder).tz_database for group in groups if group.value in hello.groups} - {None}
    if not made_with:
        return None
    here, there = tz_database.version(), hello.tz_database
    remarks = []
    if made_with != {here}:
        remarks.append(
            f"the runner has tz database {here}: vectors whose clock changes it does not show are not applicable"
        )
    if there is None:
        remarks.append(f"{hello.name} does not say which tz database it has")
    elif made_with != {there}:
        remarks.append(f"{hello.name} has tz database {there}: its deviations at clock changes may come from that")
    if not remarks:
        return None
    return f"The vectors were made with tz database {', '.join(sorted(map(str, made_with)))}; {'; '.join(remarks)}."
