"""SPEC 9.5: what a host must have seen before it buries another one, in its own elapsed seconds."""

import pytest

from duly.core.watch import Seen, Watch

LEASE = 30.0


def seen(key: int = 2, beat: int = 7, edition: int = 1, lease: float = LEASE) -> Seen:
    return Seen(key, beat, edition, lease)


def look_every(watch: Watch, seconds: float, first: float, last: float, *running: Seen) -> list[float]:
    """Look again and again, each look taking 0.1 s; returns the seconds at which a host could be buried."""
    found = []
    at = first
    while at <= last:
        if watch.look(at, at + 0.1, running):
            found.append(at)
        at += seconds
    return found


def test_a_beat_that_stands_still_for_a_lease_and_a_third_is_a_death() -> None:
    """Counted from the answer that showed it first to the sending of the look that shows it last."""
    assert look_every(Watch(1, LEASE), 5, 0, 60, seen()) == [45, 50, 55, 60]


def test_it_tells_when_the_next_look_may_bury_a_host() -> None:
    """The earliest of them; one that could be buried already is seen again at the next look anyway."""
    watch = Watch(1, LEASE)
    assert watch.next_verdict(after=0) is None
    watch.look(0, 0.1, [seen(1), seen(2), seen(3, lease=60)])
    assert watch.next_verdict(after=0) == pytest.approx(40.1)
    assert watch.next_verdict(after=41) == pytest.approx(80.1)
    assert watch.next_verdict(after=81) is None
    watch.look(5, 5.1, [seen(2, beat=8)])
    assert watch.next_verdict(after=5) == pytest.approx(45.1)


def test_the_lease_of_the_host_that_is_watched_counts() -> None:
    """With the watcher's own, hosts with a longer lease would be buried while they still trust theirs."""
    assert look_every(Watch(1, LEASE), 5, 0, 100, seen(lease=60))[0] == 85
    assert look_every(Watch(1, LEASE), 5, 0, 100, seen(lease=6))[0] == 10


def test_a_beat_that_moves_begins_the_watch_anew() -> None:
    watch = Watch(1, LEASE)
    assert look_every(watch, 5, 0, 35, seen(beat=7)) == []
    assert look_every(watch, 5, 40, 100, seen(beat=8))[0] == 85


def test_a_host_does_not_watch_itself() -> None:
    assert look_every(Watch(2, LEASE), 5, 0, 200, seen(key=2)) == []


@pytest.mark.parametrize("gap", [15.1, 40, 300])
def test_after_a_gap_in_its_own_looks_it_begins_to_watch_anew(gap: float) -> None:
    """A host that could not look cannot judge: an outage buries no host that beats soon after it."""
    watch = Watch(1, LEASE)
    assert look_every(watch, 5, 0, 35, seen()) == []
    back = 35 + gap
    assert look_every(watch, 5, back, back + 40, seen()) == []
    assert look_every(watch, 5, back + 45, back + 60, seen()) != []


def test_a_host_that_has_not_looked_for_half_its_lease_may_still_judge() -> None:
    watch = Watch(1, LEASE)
    assert not any(watch.look(at, at, [seen()]) for at in (0, 15, 30))
    assert watch.look(45, 45, [seen()]) == [seen()]


def test_an_answer_that_took_long_is_a_gap_too() -> None:
    watch = Watch(1, LEASE)
    assert look_every(watch, 5, 0, 35, seen()) == []
    assert watch.look(40, 56, [seen()]) == []  # the store hung: others could not beat either
    assert watch.look(61, 61.1, [seen()]) == []


def test_a_host_that_is_not_running_any_more_is_forgotten() -> None:
    watch = Watch(1, LEASE)
    assert look_every(watch, 5, 0, 35, seen()) == []
    assert watch.look(40, 40.1, []) == []
    assert watch.look(45, 45.1, [seen()]) == []


def test_an_edition_is_deserted_two_leases_after_its_last_host_was_seen() -> None:
    """SPEC 9.17."""
    watch = Watch(1, LEASE)
    old = [seen(key=1, edition=1)]
    found = []
    for at in range(0, 101, 5):
        running = [*old, seen(key=2, edition=2, beat=at)] if at < 20 else old
        watch.look(at, at + 0.1, running)
        if watch.is_deserted(2, at, at + 0.1, running):
            found.append(at)
    assert found == [85, 90, 95, 100]


def test_an_edition_is_deserted_after_two_leases_to_the_second() -> None:
    watch = Watch(1, LEASE)
    running = [seen(key=1, edition=1)]
    found = []
    for at in range(0, 71, 10):
        watch.look(at, at, running)
        if watch.is_deserted(2, at, at, running):
            found.append(at)
    assert found == [60, 70]


def test_an_edition_whose_host_was_seen_again_is_deserted_two_leases_after_that() -> None:
    watch = Watch(1, LEASE)
    found = []
    for at in range(0, 131, 5):
        running = [seen(key=1, edition=1)] + [seen(key=2, edition=2, beat=at)] * (at in (0, 40))
        watch.look(at, at, running)
        if watch.is_deserted(2, at, at, running):
            found.append(at)
    assert found[0] == 105


def test_a_gap_counts_for_editions_as_for_hosts() -> None:
    watch = Watch(1, LEASE)
    running = [seen(key=1, edition=1)]
    for at in (0, 5, 10, 60, 65):
        watch.look(at, at + 0.1, running)
        assert not watch.is_deserted(2, at, at + 0.1, running)
