"""From events to positions, the slow way: which letters stand where, for traces that can be checked by hand."""

import pytest

from duly.core.moments import Instant
from duly.formal.trace import BT, CK, OVERRIDDEN, PRESERVED, RE, RG, RS, WK, Event
from tests.formal.reference.unfold import unfold, violated
from tests.formal.story import HOUR, SECOND, Story, story
from tests.formal.test_monitor_against_formulas import compare


def told(events: list[Event], name: str = "x") -> str:
    """Positions as lines: the number of the event, and the letters."""
    return "\n".join(f"{position.seq} {' '.join(sorted(position))}".rstrip() for position in unfold(events, name))


def lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_a_life_with_a_retry_a_crash_and_a_stop() -> None:
    """Pulses stand before the event that comes after them; a crash before its boot; Resume at once, the first time."""
    events = story("IS IE Due RS REf RetryDue RS Crash IS IE RS SS REs SE IS IE")
    assert told(events) == lines("""
        1 BT
        2 IS IS_1
        3 First
        4 IE IE_1
        5 Due
        5 RS RS_1g1
        6 RE RE_1g1 REf
        7 RetryDue
        7 RS RS_2g1
        8 Crash
        8 BT
        9 IS IS_2
        10 IE IE_2
        11 Resume
        11 RS RS_3g1
        12 SS SS_3
        13 RE RE_3g1 REs
        14 SE SE_3 Settled
        15 BT
        16 IS IS_4
        17 IE IE_4
    """)


def test_with_wait_a_retry_outlives_the_crash() -> None:
    """With `wait`, nothing resumes."""
    events = story("IS IE Due RS REf RetryDue RS Crash IS IE RS", mode="wait")
    assert told(events).splitlines()[-5:] == [
        "8 BT Wait", "9 IS IS_2 Wait", "10 IE IE_2 Wait", "11 RetryDue Wait", "11 RS RS_3g1 Wait",
    ]  # fmt: skip
    assert all("Wait" in position for position in unfold(events, "x"))
    assert not any("Wait" in position for position in unfold(story("IS IE Due RS"), "x"))


def test_a_second_interruption_in_a_row_waits_and_a_new_declaration_does_not() -> None:
    """SPEC 3.7, 5.1."""
    events = story("IS IE Due RS Crash IS IE RS Crash IS IE Rest RS Override REs IS IE∅ IS IE")
    assert (
        told(events).splitlines()[11:]
        == lines("""
        9 RS RS_2g1
        10 Crash
        10 BT
        11 IS IS_3
        12 IE IE_3
        13 Resume
        13 RS RS_3g1
        14 IS IS_4
        15 First
        16 IE IE_4
        17 RE RE_3g1
        18 IS IS_5
        19 Gone
        20 IE IE_5
        21 IS IS_6
        22 First
        23 IE IE_6
    """).splitlines()
    )
    early = story("IS IE Due RS Crash IS IE RS Crash IS IE RS")
    assert told(early).splitlines()[-1] == "13 RS RS_3g1"
    assert told(early).splitlines()[-2] == "12 IE IE_3"


def test_calls_that_overlap() -> None:
    """An initialize that overtakes a stop, a stop that is refused, two stops of which the last one settles."""
    assert told(story("IS IE SS IS IE SE")).splitlines()[4:] == [
        "5 SS SS_2", "6 IS IS_3", "7 IE IE_3 Overtaking", "8 SE SE_2 Settled",
    ]  # fmt: skip
    assert told(story("IS SS IE SE SF")).splitlines()[2:] == [
        "3 SS SS_2", "4 First", "5 IE IE_1", "6 SE SE_2 Settled", "7",
    ]  # fmt: skip
    assert told(story("IS IE SS SS SF SE")).splitlines()[4:] == [
        "5 SS SS_2", "6 SS SS_3", "7 SF SF_2", "8 SE SE_3 Settled",
    ]  # fmt: skip
    assert told(story("IS IE SS Crash IS IE")).splitlines()[-1] == "8 IE IE_3"


def test_what_has_come_since_the_last_event_stands_at_the_end() -> None:
    """With the number of the last event there is; an empty trace has no positions."""
    events = story("IS IE Due RS REf")
    late = Instant(events[-1].at + 2 * HOUR)
    assert told([*events, WK(7, late, 0)]).splitlines()[-3:] == ["7 WK", "7 Due", "7 RetryDue"]
    assert told([*events, WK(7, Instant(events[-1].at + 60 * SECOND), 0)]).splitlines()[-1] == "7 RetryDue"
    assert told([*events, WK(7, Instant(events[-1].at + 60 * SECOND - 1), 0)]).splitlines()[-1] == "7 WK"
    assert unfold([], "x") == []


def test_other_tasks_are_nothing() -> None:
    """Events of other tasks keep their positions, without a letter."""
    events = story("IS IE Due RS:y REs:y RS", tasks="xy")
    assert told(events).splitlines()[2:] == ["3 First", "4", "5 IE IE_1", "6", "7", "8 Due", "8 RS RS_2g1"]
    assert told(events, "y").splitlines()[2:] == [
        "3", "4 First", "5 IE IE_1", "6 Due", "6 RS RS_1g2", "7 RE RE_1g2 REs", "8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("back", "letters"),
    [
        (HOUR // 2, ["7 Back CK", "8 WK"]),  # what was served stays served
        (4 * HOUR, ["7 Back CK", "8 WK", "8 Due"]),  # what lies too far ahead is lowered, and comes again
        (0, ["7 CK", "8 WK"]),
        (-HOUR, ["7 CK", "8 WK", "8 Due"]),
    ],
)
def test_a_clock_that_steps(back: int, letters: list[str]) -> None:
    """SPEC 2.5: Back stands with the step; what had come has not come."""
    events = story("IS IE Due RS REs")
    now = events[-1].at
    step = CK(7, Instant(now - back), now)
    after = WK(8, Instant(now - back + (HOUR if back > HOUR else 0)), 0)
    assert told([*events, step, after]).splitlines()[-len(letters) :] == letters


def redeclared(events: list[Event], **change: object) -> list[Event]:
    """The events, with another value in every declaration."""
    return [each._replace(**change) if isinstance(each, RG) else each for each in events]  # type: ignore[arg-type]


def seen_again(events: list[Event], at: int) -> list[Event]:
    """The events, with one more event of the task that does nothing."""
    (declaration,) = (each for each in events if isinstance(each, RG))
    return [*events, declaration._replace(seq=len(events) + 1, at=Instant(at), change=PRESERVED)]


@pytest.mark.parametrize(
    ("text", "pulses"), [("IS IE Due RS REf", ["Due", "RetryDue"]), ("IS IE Due RS Crash IS IE", ["Due", "Resume"])]
)
def test_a_pulse_comes_once(text: str, pulses: list[str]) -> None:
    """Before the first event of the task that follows it; one that changes nothing has no letter."""
    events = story(text)
    seen = seen_again(events, events[-1].at + 2 * HOUR)
    number = len(seen)
    assert told(seen).splitlines()[-3:] == [*(f"{number} {pulse}" for pulse in pulses), f"{number}"]
    again = [*seen, seen[-1]._replace(seq=number + 1), WK(number + 2, seen[-1].at, 0)]
    assert told(again).splitlines()[-3:] == [f"{number}", f"{number + 1}", f"{number + 2} WK"]


@pytest.mark.parametrize(
    ("text", "seconds", "pulse"),
    [
        ("IS IE", 3000, "Due"),
        ("IS IE Due RS REf", 60, "RetryDue"),
        ("IS IE Due RS Crash IS IE RS Crash IS IE", 60, "Resume"),
    ],
)
def test_what_had_come_before_the_clock_went_back_comes_again(text: str, seconds: int, pulse: str) -> None:
    """SPEC 2.5: when its instant comes again."""
    events = story(text)
    late = events[-1].at + seconds * SECOND
    seen = seen_again(events, late)
    number = len(seen)
    stepped = [*seen, CK(number + 1, Instant(late - 30 * SECOND), Instant(late))]
    until_step = [f"{number} {pulse}", f"{number}", f"{number + 1} Back CK"]
    assert told(stepped).splitlines()[-3:] == until_step
    after = [*stepped, WK(number + 2, Instant(late), 0)]
    assert told(after).splitlines()[-5:] == [*until_step, f"{number + 2} WK", f"{number + 2} {pulse}"]


@pytest.mark.parametrize(
    "text",
    [
        "IS IE Due RS REf Override RetryDue RS",
        "IS IE Due RS Crash IS IE RS Crash Override Rest RS",
        "IS IE Due RS Override Crash IS IE RS",
        "IS IE Due RS Crash Override Crash IS IE RS",
        "IS IE IS IE∅ Due RS",
    ],
)
def test_nothing_comes_of_a_declaration_that_is_gone(text: str) -> None:
    """SPEC 5.1, 5.3."""
    positions = unfold(story(text), "x")
    declared = max(index for index, position in enumerate(positions) if position & {"First", "Gone"})
    assert not any(position & {"Due", "RetryDue", "Resume"} for position in positions[declared:])


def test_a_crash_before_the_first_declaration_cuts_nothing_short() -> None:
    assert told(story("IS Crash IS IE")).splitlines()[-3:] == ["4 IS IS_2", "5 First", "6 IE IE_2"]


@pytest.mark.parametrize(("delay_ms", "seconds"), [(0, 1), (5_000, 5)])
def test_a_retry_comes_after_its_delay_and_at_least_a_second(delay_ms: int, seconds: int) -> None:
    """SPEC 3.4, 3.6."""
    events = redeclared(story("IS IE Due RS REf"), delay_ms=delay_ms)
    ripe = events[-1].at + seconds * SECOND
    assert told([*events, WK(7, Instant(ripe - 1), 0)]).splitlines()[-1] == "7 WK"
    assert told([*events, WK(7, Instant(ripe), 0)]).splitlines()[-1] == "7 RetryDue"


@pytest.mark.parametrize(("delay_ms", "seconds"), [(5_000, 60), (300_000, 300)])
def test_a_task_rests_for_its_delay_and_at_least_a_minute(delay_ms: int, seconds: int) -> None:
    """SPEC 3.7: after two interruptions in a row."""
    events = redeclared(story("IS IE Due RS Crash IS IE RS Crash IS IE"), delay_ms=delay_ms)
    rested = [each for each in events if isinstance(each, RS)][-1].at + seconds * SECOND
    assert told([*events, WK(13, Instant(rested - 1), 0)]).splitlines()[-1] == "13 WK"
    assert told([*events, WK(13, Instant(rested), 0)]).splitlines()[-1] == "13 Resume"


def test_a_first_interruption_is_owed_at_once() -> None:
    """SPEC 3.7: to the microsecond."""
    *events, start, boot = story("IS IE Due RS Crash")
    assert told([*events, start, boot._replace(at=start.at)]).splitlines()[-3:] == ["6 Crash", "6 BT", "6 Resume"]


def test_a_trace_may_begin_anywhere() -> None:
    """At the first instant there is; with a declaration that replaces one the trace does not have."""
    assert told([BT(1, Instant(0), "boot", 0)]) == "1 BT"
    events = story("IS IE Due RS")
    assert told(redeclared(events, change=OVERRIDDEN)) == told(events)


def test_a_start_of_another_declaration_is_stale() -> None:
    events = story("IS IE Due RS")
    start = events[-1]
    assert isinstance(start, RS)
    assert told([*events[:-1], start._replace(generation=7)]).splitlines()[-1] == "5 RS RS_1g7 Stale"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([RS(1, Instant(0), "x", 1, 1, "cron", 0)], {"S2": 1, "S4": 1}),
        ([RE(1, Instant(0), "x", 1, 1, True)], {"E2": 1, "S5": 1}),
        ([WK(1, Instant(0), 0)], {}),
        (story("IS IE Due RS Due RS Due RS"), {"S1": 6}),
        (story("SE"), {"EW": 1}),
        (story("IE"), {"EW": 2}),
        (story("IS IE Due RS REs REs"), {"E2": 7}),
    ],
)
def test_what_is_violated_and_where(events: list[Event], expected: dict[str, int]) -> None:
    """At the first event that no continuation makes good; before the first event nothing holds, not even ¬Quiet."""
    assert violated(events) == expected


@pytest.mark.parametrize("change", [{"run": 2}, {"generation": 2}])
def test_an_end_belongs_to_its_run_by_number_and_declaration(change: dict[str, int]) -> None:
    """E2, of the formulas."""
    events = story("IS IE Due RS REs")
    end = events[-1]
    assert isinstance(end, RE)
    assert violated([*events[:-1], end._replace(**change)])["E2"] == 6  # type: ignore[arg-type]


def test_the_earliest_of_all_tasks_counts() -> None:
    """Whichever task comes first in the alphabet."""
    assert violated(story("IS IE Due RS:y RS:y RS:x RS:x", tasks="xy"))["S1"] == 7
    assert violated(story("IS IE Due RS:x RS:x RS:y RS:y", tasks="xy"))["S1"] == 7


# --- against the monitor, where a rule decides ------------------------------------------------------------------------

DECISIVE = [
    "IS IE Due RS REs Override RS", "IS IE Due RS REf Override RetryDue RS", "IS IE Due RS REf RetryDue Override RS",
    "IS IE Due RS REs Due Override RS", "IS IE Due RS REs IS IE∅ IS IE RS", "IS IE Due RS REs IS IE∅ Due RS",
    "IS IE Due RS Override REf RetryDue RS", "IS IE Due RS Override REs Due RS", "IS IE Due RS Override Crash IS IE RS",
    "IS IE Due RS Crash IS IE", "IS IE Due RS Crash IS IE Override RS", "IS IE Due RS Crash Override Due RS",
    "IS IE Due RS Crash IS IE RS Crash IS IE RS", "IS IE Due RS Crash IS IE RS Crash IS IE Rest RS",
    "IS IE Due RS Crash IS IE RS REs Due RS Crash IS IE RS", "IS IE Due RS Crash IS IE RS REf Rest RS Crash IS IE RS",
    "IS IE Due RS Crash IS IE RS Crash Override Due RS Crash IS IE RS", "IS IE Due RS REs Crash IS IE RS",
    "IS IE Due RS REf RetryDue RS REf RetryDue RS", "IS IE Due RS REf Due RS REs RetryDue RS",
    "IS IE Due RS Due REs RS",
    "IS IE Due RS REf Crash IS IE RetryDue RS", "IS IE Due RS REf RetryDue RS Crash IS IE RS REs RS",
    "IS IE Due Due RS RS", "IS Crash IS IE", "IS IE Due Crash IS Crash IS IE Due RS",
    "IS IE Due RS REs Due RS Crash IS IE Due RS", "Crash IS IE Due RS", "IS IE SS SE Crash IS IE Due RS",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["restart", "wait"])
@pytest.mark.parametrize("text", DECISIVE)
def test_formulas_and_monitor_agree_on_declarations_and_crashes(text: str, mode: str) -> None:
    """SPEC 3.4, 3.6, 3.7, 5.1, 5.3: first what is violated, and else what is open."""
    compare(story(text, mode=mode))


HOURS = HOUR // SECOND


@pytest.mark.parametrize("cron", ["0 * * * *", "* * * * *"])
@pytest.mark.parametrize(
    ("before", "back", "after"),
    [
        ("IS IE Due RS REs", 3 * HOURS, "RS"),
        ("IS IE Due RS REs", 3 * HOURS + 60, "RS"),
        ("IS IE Due RS REs", 3 * HOURS + 60, "Rest RS"),
        ("IS IE Due RS REs", 4 * HOURS, "Due RS"),
        ("IS IE", 3 * HOURS, "RS"),
        ("IS IE", 3 * HOURS + 60, "RS"),
        ("IS IE Due RS REs Override", 4 * HOURS, "RS"),
        ("IS IE Due RS REf", 2 * HOURS, "RS"),
        ("IS IE Due RS REf", 2 * HOURS, "Rest RS"),
        ("IS IE Due RS REf Rest", 2 * HOURS, "RS"),
        ("IS IE Due RS REf Due RS", HOURS, "REf Rest RS"),
        ("IS IE Due RS Crash IS IE RS Crash IS IE", HOURS, "RS"),
        ("IS IE Due RS Crash IS IE RS Crash IS IE", HOURS, "Rest RS"),
        ("IS IE Due RS Crash IS IE RS Crash IS IE Rest", HOURS, "RS"),
        ("IS IE Due RS Crash IS IE", HOURS, "RS"),
        ("IS IE Due RS REs", -HOURS, "RS"),
        ("IS IE Due RS REs Due", HOURS, "RS"),
    ],
)
@pytest.mark.parametrize("by", ["CK", "Crash IS IE"])
def test_formulas_and_monitor_agree_on_a_clock_that_steps(
    before: str, back: int, after: str, cron: str, by: str
) -> None:
    """SPEC 2.5: within a boot, and found by the next."""
    told_ = Story(cron=cron).tell(before)
    old = Instant(told_.now)
    told_.now -= back * SECOND
    if by == "CK":
        told_.events.append(CK(len(told_.events) + 1, Instant(told_.now), old))
    else:
        told_.tell(by)
    compare(told_.tell(after).events)
