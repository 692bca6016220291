"""Pictures that are made in a faster way than the plain one, compared with it."""

import random
from collections import Counter
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly.core.moments import Instant, instant_of
from duly.web.pictures import Days, Span

SECOND = 1_000_000


@pytest.mark.parametrize(("zone", "at"), [("UTC", "2026-10-26T16:20:35"), ("Europe/Berlin", "2026-10-26T00:00:10")])
@pytest.mark.parametrize("apart", [20, 61, 119, 125, 600, 5_000])
def test_runs_that_are_joined_before_they_are_drawn_look_like_runs_drawn_one_by_one(
    zone: str, at: str, apart: int
) -> None:
    """Some last for hours and into the next day, some end before they start: a clock was set back."""
    chance = random.Random(apart)
    now = datetime.fromisoformat(at).replace(tzinfo=ZoneInfo(zone))
    days = Days(instant_of(now), ZoneInfo(zone))
    begin, end = instant_of(now - timedelta(days=3)), instant_of(now)
    spans = []
    for start in range(begin, end, apart * SECOND):
        started = Instant(start + chance.randrange(30 * SECOND))
        took = chance.choice([-1, 0, 1, 15, 40, 130, 40_000 if chance.random() < 0.02 else 3]) * SECOND
        kind = chance.choices(["success", "failure", "interrupted"], [90, 9, 1])[0]
        spans.append(Span(kind, started, Instant(started + took)))
    spans.sort(key=lambda span: span.begin)
    counts = Counter(span.kind for span in spans)
    joined = list(days.merged(spans))
    assert days.picture(counts, joined, (), ()) == days.picture(counts, spans, (), ())
    if apart == 20:
        assert len(joined) < len(spans) / 2
