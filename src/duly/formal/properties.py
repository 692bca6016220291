"""The registers and the properties as data, in one place: name, formula, sentence, kind.

From here come the formulas of the reference evaluator (`tests/formal/reference` reads these very texts), the table in
the documentation and the names in verdicts; tests compare the monitor with the reference. Formulas are past and future
LTL over single-event traces, for one task x, one run r, one call c, each standing for all of them:

    ¬ ∧ ∨ →     not, and, or, implies
    G F X W U   always, eventually, next, weak until, until
    Y S H O     the previous position, since, always so far, once
    Hold(s, c)  s has happened and no c since, that is (¬c) S s

Letters are those of `trace`; RE is an end, REs and REf one of the declaration in force that succeeded or failed.

    Due, RetryDue   a due minute of x, the end of its retry delay
    Resume          an interrupted run may start again: at once, or, if it is not the first interruption in a row, when
                    max(delay, 60 s) have passed since its last start
    First, Gone     RG new or overridden, RG orphaned
    Stale           with RS: the declaration is not in force
    Miscounted      with RS: `slots` is not the number of runs that go on
    SF_c            a stop that was accepted has raised; one that was refused is not a letter
    Settled         with SE or SF: no stop is open any more
    Overtaking      with IE: a stop that was called before its IS is open
    Back            with CK or BT: the wall clock shows less than it has shown
    Wait            everywhere, if an interrupted run waits for the next due minute (`interrupted="wait"`)

The trace of a shared store has events of several hosts. A letter with h is about one host h, which stands for all of
them; `∃h` is a disjunction over all hosts. RS is a start of x on any host, RS_h one on h. What differs for many hosts
is in `SHARED_REGISTERS` and `SHARED_FORMULAS`; everything else is as above. A host that is buried does not come back:
what it writes afterwards is wrong for ever, while an embedded store is opened again.

    Crash_h         BY names h: it was buried
    Alike_h         RN names h: it declares the set that was just put in force
    Of_h            every event of h
    Settled_h       with SE_h or SF_h: no stop of h is open any more
    Left_h          with SE_h: no stop of h is open any more, so h has left
    InForce_h       everywhere, while the edition that h declares is in force
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Value(Enum):
    """The verdict of a finite trace on a property."""

    VIOLATED = "violated"  #: by this prefix, and so by every continuation
    SATISFIED = "satisfied"  #: the trace has ended, and it is so
    HOLDING = "holding"  #: not violated, and nothing is open
    PENDING = "pending"  #: not violated, and something is still to happen


class PropertyKind(Enum):
    """Which values a property can take on a trace that has not ended."""

    SAFETY = "safety"  # violated, holding
    WELL_FORMED = "well-formedness"  # violated, holding; a violation means a broken log or a fabricated event
    LIVENESS = "liveness"  # holding, pending; no prefix decides it
    BOUNDED = "bounded liveness"  # the shadow of a liveness property: violated, holding


@dataclass(frozen=True, slots=True)
class Register:
    """A fact about the past of a trace, at a position."""

    name: str
    formula: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Property:
    """A statement that a trace must satisfy."""

    id: str  #: its number, such as `S1`
    formula: str  #: what must hold, in past and future LTL
    sentence: str  #: what that says
    kind: PropertyKind  #: which values it can take on a trace that has not ended
    checked_at: str  #: the letters at which it is checked
    status: str  #: primitive, or what it follows from

    @property
    def is_formula(self) -> bool:
        """Whether the formula is LTL; the bounded shadows speak of seconds."""
        return self.kind is not PropertyKind.BOUNDED


REGISTERS: Final = (
    Register("Running", "Hold(RS, RE ∨ Crash)", "a run of x has started and not ended"),
    Register("Stopping", "Hold(SS, Settled ∨ Crash)", "a stop is open"),
    Register("Active", "Hold(IE ∧ ¬Y Stopping, SS ∨ SE ∨ Crash)", "initialised, no stop open, no crash since"),
    Register("Quiet", "Hold(SE, IE)", "a stop has completed, and no initialize since"),
    Register("Registered", "Hold(First, Gone)", "x is declared"),
    Register("Pending", "Hold(Due, RS ∨ First ∨ Gone ∨ Back)", "a due minute of x has not been served"),
    Register("OwnRun", "Hold(RS, RE ∨ Crash ∨ First ∨ Gone)", "a run of the declaration in force has not ended"),
    Register("Hit", "Crash ∧ Y OwnRun", "a crash cuts a run short"),
    Register("Failed", "Hold(REf, REs ∨ First ∨ Gone ∨ (Hit ∧ ¬Wait))", "the last outcome was a failure"),
    Register(
        "RetryPending",
        "Hold(RetryDue ∧ Y (Failed ∧ ¬Running), RS ∨ First ∨ Gone ∨ Back)",
        "the delay after a failure has passed",
    ),
    Register("Interrupted", "Hold(Hit ∧ ¬Wait, RS ∨ First ∨ Gone)", "the last run was cut short by a crash"),
    Register("Rested", "Hold(Resume, Hit ∨ RS ∨ First ∨ Back)", "and may start again"),
    Register("InterruptedPending", "Interrupted ∧ Rested", "an interrupted run is owed again"),
    Register("EffectiveDue", "Pending ∨ RetryPending ∨ InterruptedPending", "there is a reason to start x"),
    Register("Obl", "Active ∧ Registered ∧ ¬Running ∧ EffectiveDue", "x must start"),
    Register("Good", "RS ∧ X(¬(REf ∨ Crash ∨ RS ∨ First ∨ Gone) U REs)", "a start whose run ends in success"),
)

PROPERTIES: Final = (
    Property(
        "S1",
        "G(RS → ¬Y Running)",
        "A task never overlaps itself: no start while a run of it has not ended.",
        PropertyKind.SAFETY,
        "RS",
        "primitive",
    ),
    Property(
        "S2",
        "G(RS → ¬Stale ∧ Y(Active ∧ Registered ∧ EffectiveDue))",
        "A task starts only when it is owed: while the scheduler is active, for a declaration in force, and for a "
        "due minute, a ripe retry or an interrupted run that no start has served yet.",
        PropertyKind.SAFETY,
        "RS",
        "primitive",
    ),
    Property(
        "S3",
        "G(Good → X(¬Good W (Due ∨ First)))",
        "Of the starts between two due minutes, at most one ends in success.",
        PropertyKind.SAFETY,
        "RE",
        "follows from E2, S1, S2",
    ),
    Property(
        "S4",
        "G(RS → Y ¬Quiet)",
        "After a completed stop nothing starts until the next initialize.",
        PropertyKind.SAFETY,
        "RS",
        "follows from S2",
    ),
    Property(
        "S5",
        "G(RE → Y ¬Quiet)",
        "After a completed stop nothing ends until the next initialize.",
        PropertyKind.SAFETY,
        "RE",
        "follows from E2, S2, S5⁺",
    ),
    Property(
        "S5⁺",
        "G(SE → ¬Y Running)",
        "When a stop completes, nothing runs.",
        PropertyKind.SAFETY,
        "SE",
        "primitive",
    ),
    Property(
        "S6a",
        "G(Crash → (¬RS W IE))",
        "After a crash nothing starts until an initialize has taken effect.",
        PropertyKind.SAFETY,
        "RS",
        "follows from S2",
    ),
    Property(
        "S6b",
        "G(Crash → (¬RE W RS))",
        "After a crash a task ends only what it has started since.",
        PropertyKind.SAFETY,
        "RE",
        "follows from E2",
    ),
    Property(
        "E2",
        "G(RE_r → Y Hold(RS_r, RE_r ∨ Crash))",
        "Every end belongs to a run that has started, and to no other end; by number and declaration.",
        PropertyKind.WELL_FORMED,
        "RE",
        "well-formedness",
    ),
    Property(
        "EW",
        "G((IE_c ∨ IF_c → Y Hold(IS_c, IE_c ∨ IF_c ∨ BT)) ∧ (IE_c → ¬Overtaking)"
        " ∧ (SE_c ∨ SF_c → Y Hold(SS_c, SE_c ∨ SF_c ∨ BT)) ∧ (RS → ¬Miscounted))",
        "Calls return at most once, and only if they were made since the last boot; registrations add up to what was "
        "declared; an initialize does not overtake a stop called before it; instants of starts go back only with the "
        "clock; a start says how many runs go on.",
        PropertyKind.WELL_FORMED,
        "IE, IF, SE, SF, RG, RS",
        "well-formedness",
    ),
    Property(
        "L1",
        "G(Obl → F ¬Obl)",
        "What is owed is eventually started, or withdrawn.",
        PropertyKind.LIVENESS,
        "any event",
        "primitive",
    ),
    Property(
        "L2",
        "G(SS_c → F(SE_c ∨ SF_c ∨ Crash))",
        "Every stop eventually completes or raises.",
        PropertyKind.LIVENESS,
        "any event",
        "primitive",
    ),
    Property(
        "L3",
        "G(IS_c → F(IE_c ∨ IF_c ∨ Crash))",
        "Every initialize eventually takes effect or raises.",
        PropertyKind.LIVENESS,
        "any event",
        "primitive",
    ),
    Property(
        "R1",
        "Obl by a due minute or a retry lasts at most B while slots are free and the process has compute",
        "What is owed starts within B = 60 s × max(1, tasks / 10,000).",
        PropertyKind.BOUNDED,
        "any event",
        "shadow of L1",
    ),
    Property(
        "R2",
        "Obl by an interruption lasts at most B while slots are free and the process has compute",
        "After a crash, what was interrupted starts again within B of being owed.",
        PropertyKind.BOUNDED,
        "any event",
        "shadow of L1",
    ),
    Property(
        "L2ᵇ",
        "a stop lasts at most 60 s after the last run ended, while the process has compute",
        "A stop completes or raises soon after the last callback has ended.",
        PropertyKind.BOUNDED,
        "any event",
        "shadow of L2",
    ),
)
"""Every property that a trace must satisfy, in the order of docs/formal.md."""

SHARED_REGISTERS: Final = (
    Register("On_h", "Hold(RS_h, RE ∨ (RS ∧ ¬RS_h) ∨ Crash_h)", "a run of x goes on, on h"),
    Register("Running", "∃h On_h", "a run of x has started and not ended"),
    Register("Cut", "∃h(Crash_h ∧ Y On_h)", "the host on which a run of x goes on is buried"),
    Register("Present_h", "O BT_h ∧ ¬O(Crash_h ∨ Left_h)", "h has joined, and is not gone"),
    Register("Stopping_h", "Hold(SS_h, Settled_h ∨ Crash_h)", "a stop of h is open"),
    Register(
        "Active_h",
        "Hold(IE_h ∧ ¬Y Stopping_h, SS_h ∨ SE_h ∨ Crash_h) ∧ ¬O Crash_h",
        "h is initialised, has no stop open, and is not buried",
    ),
    Register("Quiet_h", "Hold(SE_h, IE_h)", "a stop of h has completed, and no initialize since"),
    Register("OwnRun", "Hold(RS, RE ∨ Cut ∨ First ∨ Gone)", "a run of the declaration in force has not ended"),
    Register("Hit", "Cut ∧ Y OwnRun", "a burial cuts a run short"),
    Register("Obl", "∃h(Active_h ∧ InForce_h) ∧ Registered ∧ ¬Running ∧ EffectiveDue", "x must start"),
    Register("Good", "RS ∧ X(¬(REf ∨ Cut ∨ RS ∨ First ∨ Gone) U REs)", "a start whose run ends in success"),
)
"""The registers that read otherwise in the trace of a shared store."""

SHARED_FORMULAS: Final = {
    "S2": "G(RS_h → ¬Stale ∧ Y(Active_h ∧ Registered ∧ EffectiveDue))",
    "S4": "G(RS_h → Y ¬Quiet_h)",
    "S5": "G(RE_h → Y ¬Quiet_h)",
    "S5⁺": "G(SE_h → ¬Y On_h)",
    "S6a": "G(Crash_h → G ¬RS_h)",
    "S6b": "G(Crash_h → G ¬RE_h)",
    "E2": "G(RE_hr → Y Hold(RS_hr, RE_hr ∨ Crash_h))",
    "EW": "G((IE_hc ∨ IF_hc → Y Hold(IS_hc, IE_hc ∨ IF_hc ∨ BT_h)) ∧ (IE_hc → ¬Overtaking)"
    " ∧ (SE_hc ∨ SF_hc → Y Hold(SS_hc, SE_hc ∨ SF_hc ∨ BT_h)) ∧ (RS_h → ¬Miscounted)"
    " ∧ (BT_h → ¬Y O(Of_h ∨ Crash_h)) ∧ (Of_h ∧ ¬BT_h → Y Present_h) ∧ (Crash_h ∨ Alike_h → Y Present_h))",
    "L2": "G(SS_hc → F(SE_hc ∨ SF_hc ∨ Crash_h))",
    "L3": "G(IS_hc → F(IE_hc ∨ IF_hc ∨ Crash_h))",
}
"""The properties that read otherwise in the trace of a shared store."""


def register_table() -> str:
    """The registers, as the documentation shows them."""
    return _table(
        ("register", "formula", "means"), [(each.name, f"`{each.formula}`", each.sentence) for each in REGISTERS]
    )


def property_table() -> str:
    """The properties, as the documentation shows them."""
    return _table(
        ("", "formula", "in words", "kind", "checked at", "status"),
        [
            (
                f"**{each.id}**",
                f"`{each.formula}`" if each.is_formula else each.formula,
                each.sentence,
                each.kind.value,
                each.checked_at,
                each.status,
            )
            for each in PROPERTIES
        ],
    )


def shared_register_table() -> str:
    """The registers that read otherwise in a shared store, as the documentation shows them."""
    return _table(
        ("register", "formula", "means"), [(each.name, f"`{each.formula}`", each.sentence) for each in SHARED_REGISTERS]
    )


def shared_property_table() -> str:
    """The properties that read otherwise in a shared store, as the documentation shows them."""
    return _table(("", "formula"), [(f"**{name}**", f"`{formula}`") for name, formula in SHARED_FORMULAS.items()])


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


BY_ID: Final = {each.id: each for each in PROPERTIES}
