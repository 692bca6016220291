"""The checker accepted an initialize() that was called before a boot and took effect after it.

EW closed open calls only at a crash: after a clean stop, or before the first boot, the next process could answer a
call that it had never received.
"""

import pytest

from duly.core.moments import Delay, Instant
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.trace import BT, IE, IF, IS, RG, SE, SF, SS, Event
from tests.formal.reference.unfold import violated

AT = Instant(1_748_865_600_000_000)
BOOT = BT(0, AT, "boot-1", 0)
NEXT_BOOT = BT(0, AT, "boot-2", 0)
DECLARED = RG(0, AT, "x", 1, "new", "0 0 1 1 *", Delay(0), "UTC", AT, "loop")


def effect(call: int) -> IE:
    return IE(0, AT, call, 1, "", "restart", None, None, "UTC")


def judged(*events: Event) -> tuple[dict[str, int], dict[str, int], dict[str, Value]]:
    """The properties that monitor and formulas find violated, where first; and all verdicts."""
    numbered = [event._replace(seq=number) for number, event in enumerate(events, 1)]
    monitor = Monitor()
    found: dict[str, int] = {}
    for event in numbered:
        for violation in monitor.step(event):
            found.setdefault(violation.property, event.seq)
    return found, violated(numbered), {name: each.value for name, each in monitor.verdicts().items()}


BEGUN = (BOOT, IS(0, AT, 1), DECLARED, effect(1))


@pytest.mark.parametrize(
    ("events", "position"),
    [
        pytest.param((IS(0, AT, 1), BOOT, DECLARED, effect(1)), 4, id="before the first boot"),
        pytest.param((*BEGUN, SS(0, AT, 2), IS(0, AT, 3), SE(0, AT, 2), NEXT_BOOT, effect(3)), 9, id="after a stop"),
        pytest.param(
            (*BEGUN, SS(0, AT, 2), IS(0, AT, 3), SE(0, AT, 2), NEXT_BOOT, IF(0, AT, 3, "E")), 9, id="that failed"
        ),
        pytest.param((*BEGUN, SS(0, AT, 2), SS(0, AT, 3), SE(0, AT, 2), NEXT_BOOT, SE(0, AT, 3)), 9, id="a stop"),
        pytest.param(
            (*BEGUN, SS(0, AT, 2), SS(0, AT, 3), SE(0, AT, 2), NEXT_BOOT, SF(0, AT, 3, "E")), 9, id="a stop that failed"
        ),
    ],
)
def test_a_call_of_another_boot_does_not_return(events: tuple[Event, ...], position: int) -> None:
    """FORMAL A4, EW: an IE, IF, SE or SF only for an open call of the same boot."""
    found, by_formulas, _ = judged(*events)
    assert found == by_formulas == {"EW": position}


def test_calls_of_the_same_boot_return() -> None:
    """The neighbours that are right, with a number that the process before had used, and a stop that was refused."""
    again = (NEXT_BOOT, IS(0, AT, 1), effect(1), SF(0, AT, 3, "refused"), SS(0, AT, 2), SF(0, AT, 2, "E"))
    found, by_formulas, _ = judged(*BEGUN, SS(0, AT, 2), SE(0, AT, 2), *again)
    assert found == by_formulas == {}


def test_a_call_that_a_clean_boot_left_behind_stays_open() -> None:
    """L3: it was called, and never returned; that its process is gone does not change it."""
    events = (*BEGUN, SS(0, AT, 2), IS(0, AT, 3), SE(0, AT, 2), NEXT_BOOT, IS(0, AT, 4), effect(4))
    found, by_formulas, values = judged(*events)
    assert found == by_formulas == {}
    assert values["L3"] is Value.PENDING
