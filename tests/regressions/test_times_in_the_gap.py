"""Around the spring change of the clocks, commands left out minutes: a time inside the gap was moved by an hour.

`explain` left out the first minute after the gap and spoke of a coming gap as if it had passed; `next --from`,
`history --since` and `--until`, and `simulate --from` read 02:30 as 03:30 without a word.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest

from duly.core.moments import instant_of
from duly.testing import SimulatedHost
from tests.cli.program import Outcome, duly, nothing, write_target
from tests.web.conftest import Stage, client
from tests.web.stage import FixedClock

BERLIN = "Europe/Berlin"
NOTE = (
    "note: 2027-03-28 02:30 does not exist in Europe/Berlin: clocks go forward from 02:00 to 03:00, and 03:00 is taken "
    "instead\n"
)

Command = Callable[..., Outcome]


@pytest.fixture
def berlin(tmp_path: Path) -> Command:
    """Run a command on a host in Berlin."""
    return lambda *arguments: duly(*arguments, folder=tmp_path, TZ=BERLIN)


async def make_store(folder: Path) -> Path:
    """A store of a night in which clocks went forward: an hourly task, and one at three."""
    store = folder / "state.db"
    async with SimulatedHost("2025-03-30T01:58", BERLIN, store=store) as host:
        scheduler = host.scheduler()
        tasks = {"every": "* * * * *", "three": "0 3 * * *", "half": "30 2 * * *"}
        await scheduler.initialize([(name, cron, nothing, timedelta(minutes=5)) for name, cron in tasks.items()])
        await host.advance(minutes=5)  # 03:03
        await scheduler.stop()
    return store


@pytest.mark.parametrize(
    ("expression", "first"), [("0 3 * * *", "2027-03-28T03:00:00+02:00"), ("* * * * *", "2027-03-28T03:00:00+02:00")]
)
@pytest.mark.parametrize("asked", ["2027-03-28T02:00", "2027-03-28T02:30", "2027-03-28T02:59:59"])
def test_starts_after_a_time_in_the_gap_begin_when_the_clocks_change(
    berlin: Command, expression: str, first: str, asked: str
) -> None:
    """SPEC 2.2: nothing between 02:00 and 03:00 exists, so nothing after it may be left out."""
    ended = berlin("next", expression, "-n", "1", "--from", asked, "--json")
    assert ended.json["from"] == first
    assert ended.json["tasks"][0]["starts"][0] == first
    assert "does not exist in Europe/Berlin" in ended.err


def test_next_says_what_it_takes_for_the_time(berlin: Command) -> None:
    """The heading has the time that was taken, and a note the one that was written."""
    ended = berlin("next", "0 3 * * *", "-n", "1", "--from", "2027-03-28T02:30")
    assert "Europe/Berlin, from 2027-03-28 03:00\n" in ended.out
    assert ended.err == NOTE


def test_a_time_with_an_offset_says_which_instant_is_meant(berlin: Command) -> None:
    """02:30 at +01:00 is 03:30 at +02:00: nothing to note."""
    ended = berlin("next", "* * * * *", "-n", "1", "--from", "2027-03-28T02:30+01:00", "--json")
    assert (ended.json["from"], ended.err) == ("2027-03-28T03:30:00+02:00", "")


def test_a_day_that_a_zone_left_out_is_the_beginning_of_the_next(tmp_path: Path) -> None:
    """Samoa had no 30 December 2011."""
    ended = duly("next", "0 * * * *", "-n", "1", "--from", "2011-12-30T12:00", "--tz", "Pacific/Apia", folder=tmp_path)
    assert "Sat 2011-12-31 00:00 +14:00" in ended.out
    assert "clocks go forward from 2011-12-30 00:00 to 2011-12-31 00:00" in ended.err


async def test_history_begins_and_ends_when_the_clocks_change(tmp_path: Path, berlin: Command) -> None:
    """SPEC 2.2: runs of 03:00 to 03:02 are after 02:30, and none of them is before it."""
    store = await make_store(tmp_path)
    after = berlin("history", "every", "--store", store, "--since", "2025-03-30T02:30", "--json")
    assert [run["startedAt"][11:16] for run in after.json["runs"]] == ["03:00", "03:01", "03:02", "03:03"]
    assert "2025-03-30 02:30 does not exist" in after.err
    before = berlin("history", "every", "--store", store, "--until", "2025-03-30T02:30", "--json")
    assert [run["startedAt"][11:16] for run in before.json["runs"]] == ["01:58", "01:59"]
    between = berlin(
        "history", "every", "--store", store, "--since", "2025-03-30T02:10", "--until", "2025-03-30T03:02", "--json"
    )
    assert [run["startedAt"][11:16] for run in between.json["runs"]] == ["03:00", "03:01"]


def test_a_simulation_begins_when_the_clocks_change(tmp_path: Path, berlin: Command) -> None:
    """It was refused: 02:30, taken for 03:30, was not before 03:05."""
    write_target(tmp_path, "[('a', '* * * * *', quick, timedelta(minutes=5))]")
    ended = berlin("simulate", "tasks.py", "--from", "2027-03-28T02:30", "--to", "2027-03-28T03:05", "--json")
    assert ended.code == 0, ended
    assert ended.json["from"] == "2027-03-28T03:00:00+02:00"
    assert "2027-03-28 02:30 does not exist" in ended.err


async def test_the_dashboard_takes_the_instant_at_which_the_clocks_change(tmp_path: Path) -> None:
    """SPEC 2.2, 10.4: as the commands do, and its pages say so."""
    store = await make_store(tmp_path)
    clock = FixedClock(instant_of(datetime(2025, 3, 30, 12, tzinfo=ZoneInfo(BERLIN))), ZoneInfo(BERLIN))
    async with client(Stage(store, clock).dashboard()) as opened:

        async def asked(place: str) -> httpx.Response:
            answer = await opened.get(place)
            assert answer.status_code == 200, answer.text
            return answer

        begins = (await asked("/api/v1/next?cron=0 3 * * *&from=2027-03-28T02:30&n=1")).json()
        assert begins["from"] == "2027-03-28T03:00:00+02:00"
        assert begins["tasks"][0]["starts"] == ["2027-03-28T03:00:00+02:00"]
        gap = "since=2025-03-30T02:30&until=2025-03-30T03:02"
        runs = (await asked(f"/api/v1/runs?task=every&{gap}")).json()["runs"]
        assert [run["startedAt"][11:16] for run in runs] == ["03:00", "03:01"]
        note = "2025-03-30 02:30 does not exist in Europe/Berlin: clocks go forward from 02:00 to 03:00"
        assert note in (await asked(f"/runs?task=every&{gap}")).text
        assert NOTE.removeprefix("note: ").strip() in (await asked("/next?cron=0 3 * * *&from=2027-03-28T02:30")).text
        assert NOTE.removeprefix("note: ").strip() in (await asked("/calendar?from=2027-03-28T02:30")).text
        assert "does not exist" not in (await asked("/calendar?from=2027-03-28T03:00")).text


async def test_an_explanation_of_the_gap_names_the_first_minute_after_it(tmp_path: Path, berlin: Command) -> None:
    """SPEC 2.2: the minute at which clocks go forward is not in the gap."""
    store = await make_store(tmp_path)
    three = berlin("explain", "three", "--at", "2025-03-30T02:30", "--store", store)
    assert "not due, and this minute does not exist" in three.out
    assert "2025-03-29 03:00 before it, 03:00 after it" in three.out
    every = berlin("explain", "every", "--at", "2025-03-30T02:30", "--store", store)
    assert "did not run: this minute does not exist" in every.out
    assert "01:59 before it, 03:00 after it" in every.out
    assert "clocks went forward from 02:00 to 03:00" in every.out


async def test_a_gap_that_is_still_to_come_is_spoken_of_as_such(tmp_path: Path, berlin: Command) -> None:
    """Nothing has failed to run that could not have run yet."""
    store = await make_store(tmp_path)
    spring = datetime.now(ZoneInfo(BERLIN)).year + 1
    last_sunday = max(day for day in range(25, 32) if datetime(spring, 3, day).weekday() == 6)
    ended = berlin("explain", "half", "--at", f"{spring}-03-{last_sunday}T02:30", "--store", store)
    assert "will not run: this minute does not exist" in ended.out
    assert "clocks go forward from 02:00 to 03:00" in ended.out
