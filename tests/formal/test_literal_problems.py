"""Every row of FORMAL A5: what the formulas of the source documents literally say, and what is adopted instead.

For each row, the smallest trace with the verdict of the literal reading (evaluated as it is written) and of the
adopted one, and a neighbour that shows that the adopted reading still forbids, or still allows, what it should.
"""

from collections.abc import Set
from itertools import product

import pytest

from duly import parse_cron
from duly.core.moments import Instant
from duly.errors import InvalidCronExpressionError
from duly.formal.monitor import Monitor
from duly.formal.properties import Value
from duly.formal.trace import CK, Event
from tests.formal.reference.formulas import NEUTRAL, Evaluation, judge, read
from tests.formal.story import HOUR, Story, letters_of, story

V, H, P = Value.VIOLATED, Value.HOLDING, Value.PENDING

# The macros and formulas of 002, letter by letter.
MACROS = {
    "Active": "(¬(SS ∨ Crash)) S IE",
    "Running": "((¬RE) S RS) ∧ ((¬Crash) S RS)",
    "Pending": "Hold(Due, RS)",
    "RetryEligible": "Hold(RetryDue, REf)",
    "RetryPending": "RetryEligible ∧ Hold(REf, REs)",
    "EffectiveDue": "Pending ∨ RetryPending",
    "Registered": "Hold(IEin, IEout)",
}
LITERAL = {
    "S1": "G(RS → (¬RS W (RE ∨ Crash)))",
    "S2": "G(RS → (Active ∧ Registered ∧ EffectiveDue))",
    "S3": "G(¬REs W (Due ∨ (REs ∧ (¬REs W Due))))",
    "S4": "G(SE → (¬RS W IE))",
    "S5": "G(SE → (¬RE W IE))",
    "L1": "G((Active ∧ Registered ∧ EffectiveDue) → F(RS ∨ ¬Active))",
    "L2": "G(SS → F SE)",
    "L3": "G(IS → F IE)",
    "E3": "G(RE → ¬Y Frozen)",
    "E5": "G(Due → ¬X Due)",
    "RD2": "G(¬RetryDue W (REf ∨ (RetryDue ∧ (¬RetryDue W REf))))",
    "RD3": "G(REf → F RetryDue)",
    "RD4": "G(RetryDue → (¬RetryDue S REf))",
}


def literally(property_id: str, text: str) -> Value:
    """The value of the formula of 002 on bare letters."""
    return judge(read(LITERAL[property_id], MACROS), letters_of(text))


def adopted(text: str, *, mode: str = "restart") -> dict[str, Value]:
    """The monitor's verdicts on the trace that the letters tell."""
    return verdicts(story(text, mode=mode))


def verdicts(events: list[Event]) -> dict[str, Value]:
    monitor = Monitor()
    for event in events:
        monitor.step(event)
    return {property_id: verdict.value for property_id, verdict in monitor.verdicts().items()}


def holds(text: str) -> bool:
    """Whether the adopted reading finds nothing violated."""
    return V not in adopted(text).values()


def owed(text: str, *, mode: str = "restart") -> bool:
    """Whether x must start at the end of the trace."""
    told = Story(mode=mode).tell(text)
    monitor = Monitor()
    for event in told.events:
        monitor.step(event)
    return monitor.obliged("x", Instant(told.now + 1_000))


# --- the example traces of the source documents -----------------------------------------------------------------------

EXAMPLES = [
    "IS IE Due RS REs Due RS REf RetryDue RS REs",  # 002 and 000, trace 1
    "IS IE Due RS REs Due RS REf Due RS REs",  # 001, trace 1
    "IS IE SS SE IS IE Due RS REs",  # trace 2
    "IS IE Due RS Crash IS IE Due RS REs",  # trace 3
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_example_traces_of_the_source_documents_pass(text: str) -> None:
    """002, example acceptable traces: nothing violated, nothing open at the end."""
    assert set(adopted(text).values()) == {H}


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_formulas_of_002_refute_them(text: str) -> None:
    """SPEC 7.1: which is why they are read as their prose says."""
    assert V in {literally("S1", text), literally("S2", text), literally("S3", text)}


# --- the rows ---------------------------------------------------------------------------------------------------------


def test_p1_a_start_does_not_forbid_itself() -> None:
    """P1: W includes now, so literally every start is an overlap."""
    assert literally("S1", "IS IE Due RS") is V
    assert adopted("IS IE Due RS")["S1"] is H


def test_p1_a_second_start_is_an_overlap() -> None:
    assert adopted("IS IE Due RS RS")["S1"] is V
    assert adopted("IS IE Due RS Crash IS IE RS")["S1"] is H


def test_p2_a_start_reads_the_state_just_before_it() -> None:
    """P2: at its own position the start has already cleared Pending."""
    assert literally("S2", "IS IE Due RS") is V
    assert adopted("IS IE Due RS")["S2"] is H


def test_p2_a_start_without_a_reason_is_forbidden() -> None:
    assert adopted("IS IE RS")["S2"] is V
    assert adopted("IS IE Due RS REs RS")["S2"] is V


def test_p3_one_success_in_a_period_is_at_most_one() -> None:
    """P3: the macro says none, not at most one."""
    assert literally("S3", "IS IE Due RS REs") is V
    assert adopted("IS IE Due RS REs")["S3"] is H


def test_p3_two_successes_in_a_period_are_too_many() -> None:
    assert adopted("IS IE Due RS REs RS REs")["S3"] is V


def test_p4_what_is_simultaneous_counts_in_neither_period() -> None:
    """P4: the macro with its X accepts a success at a due position and another one; the plain form does not."""
    both = letters_of("REs+Due REs")
    assert judge(read("G(¬REs W (Due ∨ (REs ∧ X(¬REs W Due))))"), both) is not V
    assert judge(read("G(REs → X(¬REs W Due))"), both) is V


def test_p4_single_events_leave_no_such_choice() -> None:
    assert judge(read("G(REs → X(¬REs W Due))"), letters_of("Due REs REs")) is V
    assert judge(read("G(REs → X(¬REs W Due))"), letters_of("REs Due REs")) is H


def test_p5_a_run_across_a_due_minute_and_its_follow_up_both_succeed() -> None:
    """P5: counting completions forbids what L1 and S2 demand; starts that succeed are counted (SPEC 7.2)."""
    text = "IS IE Due RS Due REs RS REs"
    assert judge(read("G(REs → X(¬REs W Due))"), letters_of(text)) is V
    assert set(adopted(text).values()) == {H}


def test_p5_but_not_a_third() -> None:
    assert adopted("IS IE Due RS Due REs RS REs RS REs")["S3"] is V


def test_p6_a_retry_pulse_comes_after_its_failure() -> None:
    """P6: RD2 and RD4 allow pulses at the failure itself only."""
    assert literally("RD2", "IS IE Due RS REf RetryDue") is V
    assert literally("RD4", "IS IE Due RS REf RetryDue") is V
    assert owed("IS IE Due RS REf RetryDue")


def test_p6_and_not_before_its_delay_has_passed() -> None:
    assert not owed("IS IE Due RS REf")
    assert adopted("IS IE Due RS REf RS")["S2"] is V


def test_p7_a_preempted_retry_has_no_pulse() -> None:
    """P7: RD3 demands one after each failure; cron may come first, for ever."""
    text = "IS IE Due RS REf Due RS REf Due RS REf"
    assert literally("RD3", text) is P
    assert judge(read("G(REf → F(RetryDue ∨ RS))"), letters_of(text + " Due RS")) is H
    assert holds(text)


def test_p7_a_failure_that_nothing_follows_is_pending_in_both() -> None:
    assert judge(read("G(REf → F(RetryDue ∨ RS))"), letters_of("IS IE Due RS REf")) is P


def test_p8_two_due_minutes_in_a_row_are_nothing_special() -> None:
    """P8: E5 forbids them at adjacent positions, which any quiet stretch brings about."""
    assert literally("E5", "Due Due") is V
    assert holds("IS IE Due Due RS REs")


def test_p8_and_one_start_serves_both() -> None:
    """SPEC 3.2."""
    assert adopted("IS IE Due Due RS REs RS")["S2"] is V


def test_p9_what_was_due_before_the_task_was_known_is_not_owed() -> None:
    """P9: literally, everything is pending at the very first initialize."""
    assert literally("L1", "Due IS IE") is P
    assert not owed("Due Rest IS IE")  # two minutes later: the minute in which it becomes known would count


def test_p9_the_minute_in_which_it_became_known_is() -> None:
    """SPEC 3.1: new tasks begin at this minute − 1."""
    told = Story()
    told.now -= told.now % HOUR  # on the hour
    told.tell("IS IE")
    assert verdicts(told.events)["L1"] is P
    told.tell("RS REs")
    assert set(verdicts(told.events).values()) == {H}


def test_p10_an_expression_that_never_comes_is_refused() -> None:
    """P10: E4, G F Due, is false for 30 February; SPEC 6.3 makes it true by construction."""
    with pytest.raises(InvalidCronExpressionError):
        parse_cron("0 0 30 2 *")


def test_p10_and_a_rare_one_is_not() -> None:
    assert parse_cron("0 0 29 2 *").text == "0 0 29 2 *"


def test_p11_a_stop_does_not_forget_what_is_owed() -> None:
    """P11: the prose says reset, no formula does; what is owed is durable."""
    assert literally("L1", "IS IE Due SS SE IS IE") is P
    assert adopted("IS IE Due SS SE IS IE")["L1"] is P
    assert holds("IS IE Due SS SE IS IE RS REs")


def test_p11_one_start_catches_up() -> None:
    assert adopted("IS IE Due SS SE IS IE RS REs RS")["S2"] is V
    assert not owed("IS IE Due SS SE")


def test_p12_an_initialize_that_a_stop_overtook_does_not_activate() -> None:
    """P12: literally it does, L1 then obliges for ever what S4 forbids."""
    text = "IS SS IE SE Due"
    assert literally("L1", text) is P
    assert literally("S4", text + " RS") is V
    assert not owed(text)
    assert set(adopted(text).values()) == {H}


def test_p12_without_the_stop_it_does() -> None:
    assert owed("IS IE Due")
    assert adopted("IS SS IE SE Due RS")["S2"] is V


def test_p13_an_initialize_during_a_stop_waits_for_it() -> None:
    """P13: as in P12, L1 and S4 contradict each other; lifecycle calls are serialised, so the trace itself is wrong."""
    text = "IS IE SS IS IE SE Due"
    assert literally("L1", text) is P
    assert adopted(text)["EW"] is V
    assert not owed(text)


def test_p13_afterwards_it_takes_effect() -> None:
    assert owed("IS IE SS SE IS IE Due")
    assert adopted("IS IE SS SE IS IE Due")["EW"] is H


def test_p14_a_retry_that_success_withdraws_is_not_owed() -> None:
    """P14: RetryDue during a cron run that succeeds: literally open until the next due minute."""
    text = "IS IE Due RS REf Due RS RetryDue REs"
    assert judge(read("G((Active ∧ Registered ∧ EffectiveDue) → F RS)", MACROS), letters_of(text)) is P
    assert adopted(text)["L1"] is H


def test_p14_one_that_failure_renews_is() -> None:
    assert not owed("IS IE Due RS REf Due RS RetryDue REf")
    assert owed("IS IE Due RS REf Due RS RetryDue REf RetryDue")


def test_p15_a_running_task_is_not_owed() -> None:
    """P15: L1 is open although S1 forbids the start."""
    assert literally("L1", "IS IE Due RS Due") is P
    assert adopted("IS IE Due RS Due")["L1"] is H


def test_p15_when_its_run_ends_it_is() -> None:
    """SPEC 3.3."""
    assert owed("IS IE Due RS Due REs")
    assert adopted("IS IE Due RS Due RS")["S1"] is V


def test_p16_what_is_no_longer_declared_is_not_owed() -> None:
    """P16: literally (without Registered in the escape) never dischargeable."""
    literal = "G((Active ∧ Registered ∧ EffectiveDue) → F RS)"
    assert judge(read(literal, MACROS), letters_of("IS IE Due IS IE∅")) is P
    assert adopted("IS IE Due IS IE∅")["L1"] is H


def test_p16_what_still_is_stays_owed() -> None:
    assert adopted("IS IE Due IS IE")["L1"] is P
    assert adopted("IS IE Due IS IE∅ RS")["S2"] is V


def test_p17_a_stop_waits_for_what_runs() -> None:
    """P17: S5 accepts an end after the next initialize; S5⁺ does not accept the stop."""
    text = "IS IE Due RS SS SE IS IE REs"
    assert literally("S5", text) is not V
    assert adopted(text)["S5⁺"] is V


def test_p17_and_completes_when_it_has_ended() -> None:
    assert set(adopted("IS IE Due RS SS REs SE").values()) == {H}
    assert adopted("IS IE Due RS SS SE REs")["S5"] is V


@pytest.mark.parametrize(("text", "property_id"), [("IS Crash", "L3"), ("SS Crash", "L2")])
def test_p18_a_crash_ends_open_calls(text: str, property_id: str) -> None:
    """P18: literally the call stays open for ever."""
    assert literally(property_id, text) is P
    assert adopted("IS IE " * (property_id == "L2") + text)[property_id] is H


def test_p18_one_return_answers_one_call() -> None:
    assert literally("L3", "IS IS IE") is H
    assert adopted("IS IS IE")["L3"] is P
    assert adopted("IS IS IE IF")["L3"] is H
    assert adopted("IS IE IE")["EW"] is V


def test_p19_interrupted_runs_are_owed_whatever_started_them() -> None:
    """P19: literally an interrupted cron run is not owed, an interrupted retry is (SPEC 3.7 makes them equal)."""
    cron, retry = "IS IE Due RS Crash IS IE", "IS IE Due RS REf RetryDue RS Crash IS IE"
    assert literally("L1", cron) is H
    assert literally("L1", retry) is P
    assert owed(cron)
    assert owed(retry)


def test_p19_with_wait_the_kept_retry_alone_is() -> None:
    assert not owed("IS IE Due RS Crash IS IE", mode="wait")
    assert owed("IS IE Due RS REf RetryDue RS Crash IS IE", mode="wait")


def test_p20_a_retry_outlives_the_crash_of_the_run_that_took_its_place() -> None:
    """P20: cleared at the start (000's prose), it would be lost."""
    assert owed("IS IE Due RS REf RetryDue RS Crash IS IE", mode="wait")
    assert set(adopted("IS IE Due RS REf RetryDue RS Crash IS IE RS REs", mode="wait").values()) == {H}


def test_p20_but_not_the_success_of_it() -> None:
    assert not owed("IS IE Due RS REf RetryDue RS REs Crash IS IE", mode="wait")


def test_p21_a_retry_run_does_not_oblige_another() -> None:
    """P21: literally RetryPending lasts through the run, and S2 alone would admit the overlap."""
    text = "IS IE Due RS REf RetryDue RS RS"
    before = Evaluation(letters_of(text)).at(read("Y(Active ∧ Registered ∧ EffectiveDue)", MACROS), NEUTRAL)
    assert before[-1]
    assert adopted(text)["S1"] is V
    assert adopted(text)["S2"] is V


def test_p21_once_is_right() -> None:
    assert set(adopted("IS IE Due RS REf RetryDue RS REs").values()) == {H}


def test_p22_before_any_failure_nothing_is_eligible() -> None:
    """P22: the text says it is, the formula does not; harmless, because RetryPending wants a failure."""
    assert not Evaluation(letters_of("IS IE Due")).at(read("RetryEligible", MACROS), NEUTRAL)[-1]
    assert not owed("IS IE RetryDue")


def test_p22_after_one_it_is() -> None:
    assert Evaluation(letters_of("IS IE Due RS REf RetryDue")).at(read("RetryEligible", MACROS), NEUTRAL)[-1]
    assert owed("IS IE Due RS REf RetryDue")


def test_p23_a_success_clears_the_retry_that_waited() -> None:
    """P23, SPEC 3.4: a later pulse does nothing."""
    text = "IS IE Due RS REf Due RS REs RetryDue"
    assert not Evaluation(letters_of(text)).at(read("RetryPending", MACROS), NEUTRAL)[-1]
    assert not owed(text)


def test_p23_without_the_success_the_pulse_counts() -> None:
    assert owed("IS IE Due RS REf RetryDue")


def test_p24_a_task_that_comes_back_is_new() -> None:
    """P24: literally Pending survives removal and re-adding."""
    text = "IS IE SS SE IS IE∅ Due SS SE IS IE"
    assert literally("L1", text) is P
    told = Story().tell("IS IE SS SE IS IE∅ Due")
    told.now += 120 * 1_000_000  # past the due minute: the minute in which it becomes known would count
    told.tell("SS SE IS IE")
    assert verdicts(told.events)["L1"] is H


def test_p24_one_that_stays_is_owed() -> None:
    assert owed("IS IE SS SE IS IE Due SS SE IS IE")


def test_p25_running_is_one_hold() -> None:
    """P25: the two S pick the same start; on single events 002's Running is Hold(RS, RE ∨ Crash)."""
    alphabet: tuple[Set[str], ...] = ({"RS"}, {"RE"}, {"Crash"}, {"Due"})
    for length in range(1, 6):
        for trace in product(alphabet, repeat=length):
            evaluation = Evaluation(trace)
            assert evaluation.at(read("Running", MACROS)) == evaluation.at(read("Hold(RS, RE ∨ Crash)", {}))


def test_p25_simultaneous_events_split_the_two_readings_of_s1() -> None:
    both = letters_of("RS RE+RS")
    assert judge(read("G(RS → X(¬RS W (RE ∨ Crash)))"), both) is H
    assert judge(read("G(RS → ¬Y Running)"), both) is V


def test_p26_a_callback_may_end_within_one_tick() -> None:
    """P26: E3 with T1 makes every interval of equal stamps frozen, and the end within it impossible."""
    frozen = [{"RS", "Frozen"}, {"RE", "REs", "Frozen"}]
    assert judge(read(LITERAL["E3"]), frozen) is V
    events = story("IS IE Due RS REs")
    events[-1] = events[-1]._replace(at=events[-2].at)
    assert set(verdicts(events).values()) == {H}


def test_p26_an_end_without_a_start_is_still_wrong() -> None:
    assert adopted("IS IE Due REs")["E2"] is V


def test_p27_the_wall_clock_may_go_back() -> None:
    """P27: positions are ordered by seq, not by the clock (SPEC 2.5)."""
    events = story("IS IE Due RS")
    last = events[-1]
    events.append(CK(last.seq + 1, Instant(last.at - 60_000_000), last.at))
    told = story("IS IE Due RS REs")
    events.append(told[-1]._replace(seq=last.seq + 2, at=Instant(last.at - 59_000_000)))
    assert set(verdicts(events).values()) == {H}


def test_p27_a_start_that_goes_back_alone_may_not() -> None:
    events = story("IS IE Due RS REs Due RS")
    events[-1] = events[-1]._replace(at=Instant(events[-3].at - 1))
    assert verdicts(events)["EW"] is V


def test_p28_the_edge_macro_is_never_true_for_what_it_is_for() -> None:
    """P28: ¬φ includes now, where φ holds, so only a reset at that very position counts; unused, and dropped."""
    edge = read("a ∧ ((¬a) S reset)")
    assert not any(Evaluation(letters_of("reset a a")).at(edge))
    assert Evaluation(letters_of("reset+a")).at(edge) == [True]


def test_p28_with_a_y_it_would_be() -> None:
    assert Evaluation(letters_of("reset a a")).at(read("a ∧ Y((¬a) S reset)")) == [False, True, False]


def test_p29_backoff_does_not_block_cron() -> None:
    """P29: 001's S3 wants Due ∧ RetryEligible; 002 and 000 let cron preempt the retry (SPEC 3.5)."""
    text = "IS IE Due RS REf Due RS"
    assert not Evaluation(letters_of(text)).at(read("Due ∧ RetryEligible", MACROS))[-2]
    assert holds(text)


def test_p29_nor_does_it_start_anything_early() -> None:
    assert adopted("IS IE Due RS REf RS")["S2"] is V
