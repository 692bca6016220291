"""The coming starts of expressions, computed once for all tasks that share one."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly import parse_cron
from duly.insight.coming import Calendar, Coming
from duly.insight.json_form import json_form
from duly.insight.zone_changes import leaps
from tests.counts import share

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC"])
@pytest.mark.parametrize("seed", share(range(10), 3))
def test_leaps_within_a_year_are_those_that_the_expression_leads_to(zone: str, seed: int) -> None:
    """Looking at the few changes of a year comes to what following the expression does, and is faster."""
    chance = random.Random(seed)
    here = ZoneInfo(zone)
    for _ in range(20):
        since = datetime(2011, chance.randrange(1, 13), chance.randrange(1, 29), chance.randrange(24), tzinfo=here)
        fields = [str(chance.randrange(60)), str(chance.randrange(4)), "*", "*", "*"]
        for place in range(2):
            if chance.random() < 0.3:
                fields[place] = "*"
        expression = parse_cron(" ".join(fields))
        coming = Calendar(since, chance.choice((1, 10, 300))).coming(None, expression)
        before = (since.astimezone(UTC) - timedelta(microseconds=1)).astimezone(here)
        assert list(coming.leaps) == list(leaps(expression, here, before, coming.starts[-1])), (since, expression)


def test_tasks_of_one_expression_share_its_starts() -> None:
    """A million tasks have few expressions."""
    calendar = Calendar(datetime(2024, 5, 1, tzinfo=BERLIN), 3)
    expression = parse_cron("0 12 * * *")
    first, second = calendar.coming("a", expression), calendar.coming("b", expression)
    assert first.starts is second.starts
    assert (first.task, second.task, first.words) == ("a", "b", "at 12:00 every day")


def test_starts_of_several_tasks_are_merged_in_the_order_of_the_tasks() -> None:
    """The first ones of all of them together."""
    calendar = Calendar(datetime(2024, 5, 1, tzinfo=UTC), 2)
    tasks = [("b", parse_cron("0 1 * * *")), ("a", parse_cron("0 1 * * *")), ("c", parse_cron("0 0 * * *"))]
    merged = calendar.merged(tasks, 5)
    assert [(start.at.day, start.at.hour, start.task) for start in merged] == [
        (1, 0, "c"), (1, 1, "b"), (1, 1, "a"), (2, 0, "c"), (2, 1, "b"),
    ]  # fmt: skip
    assert json_form(merged[0], UTC) == {"at": "2024-05-01T00:00:00+00:00", "task": "c"}


def test_the_calendar_ends_with_the_year_9999() -> None:
    """The starts that there are, and the changes of the zone among them."""
    found = Calendar(datetime(9999, 12, 30, tzinfo=BERLIN), 5).coming(None, parse_cron("0 12 * * *"))
    assert len(found.starts) == 2
    assert list(json_form(found, BERLIN)) == ["task", "expression", "words", "starts", "leaps"]
    assert isinstance(found, Coming)
