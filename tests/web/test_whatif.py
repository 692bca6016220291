"""What if: the stored declarations in a time to come, simulated with what history says about each task."""

from pathlib import Path
from typing import Any

import pytest

from duly.core.moments import MICROSECONDS
from duly.insight.habits import habits_of
from duly.stores.port import RunSelection
from duly.web import forecast
from duly.web.child import NotAnsweredError
from tests.stores.made import Row, make_store
from tests.web.conftest import Stage
from tests.web.test_pages import page_of, rows_of, said, tiles_of

FAILING = "partners/sync-acme-mirror"
HOUR = 3600 * MICROSECONDS


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory, stage: Stage) -> Stage:
    """Two tasks without a history: stand-ins take no time and succeed."""
    rows = [Row("hourly", "0 * * * *"), Row("often", "0,10,20,30,40,50 * * * *"), Row("yearly", "0 0 1 1 *")]
    path = make_store(tmp_path_factory.mktemp("young") / "state.db", rows, zone="Europe/Berlin")
    return Stage(path, stage.clock)


async def test_the_page_says_what_can_be_asked(young: Stage) -> None:
    page = await page_of(young.dashboard(), "/whatif")
    assert "Nothing of the store changes" in said(page)
    assert "at most 20,000 starts" in said(page)
    assert "Tasks" not in rows_of(page)


async def test_an_outage_and_a_crash_do_what_they_do_to_the_real_scheduler(young: Stage) -> None:
    """SPEC 3.2: one start serves all that was missed. `yearly` is not due, and left out."""
    place = "/whatif?from=2026-10-27T00:00&to=2026-10-27T12:00&down=2026-10-27T02:30..2026-10-27T05:30"
    page = await page_of(young.dashboard(), f"{place}&crash=2026-10-27T08:05")
    tiles = tiles_of(page)
    # 12 and 72 due minutes. 3 and 17 of them pass in the outage; the start at 05:30 serves those of one task each, and
    # for one of the tasks it is that of a due minute, too.
    assert tiles["starts"] == str(12 - 3 + 1 + 72 - 17)
    assert tiles["due minutes served later"] == str(3 + 17)
    assert tiles["failures"] == tiles["still owed at the end"] == "0"
    assert "1 task is not due in this time" in said(page)
    assert "1 time without a scheduler. 1 crash." in page
    notable = rows_of(page.partition('id="notable"')[2])
    assert len(notable) == 3
    assert all("05:30" in row for row in notable[1:])


async def test_stand_ins_behave_as_history_says(stage: Stage) -> None:
    """The median of the task's runs, and the share of them that failed."""
    (habit,) = [
        each for each in stage.reader.read(lambda view: habits_of(view, ["16,46 * * * *"], 10)) if each.task == FAILING
    ]
    runs = stage.reader.read(lambda view: list(view.runs(RunSelection(FAILING, outcomes=("success", "failure")))))
    took = sorted((run.ended_at or 0) - (run.called_at or run.started_at) for run in runs)
    middle = (took[(len(took) - 1) // 2] + took[len(took) // 2]) / 2000
    assert (habit.runs, habit.median_ms) == (len(runs), middle)
    assert habit.failure_rate == sum(run.outcome == "failure" for run in runs) / len(runs) > 0.2
    page = await page_of(stage.dashboard(), "/whatif?from=now")
    (row,) = [each for each in rows_of(page.partition('id="tasks"')[2].partition("</table>")[0]) if FAILING in each]
    assert f"{100 * habit.failure_rate:.1f} %" in row
    assert int(tiles_of(page)["failures"]) > 0


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("from=soon", "from: 'soon' is not a moment"),
        ("from=2026-10-28&to=2026-10-27", "from is not before to"),
        ("from=2026-10-28&to=2028-10-27", "more than a year apart"),
        ("down=02:00", "down is a time without a scheduler: FROM..TO"),
        ("from=2026-10-27&down=2026-10-29..2026-10-30", "down is not between from and to"),
        ("from=2026-10-27&to=2026-10-28&down=2026-10-27T03:00..2026-10-27T02:00", "is not before its end"),
        (
            "from=2026-10-27&to=2026-10-28&down=2026-10-27T01:00..2026-10-27T03:00,2026-10-27T02:00..2026-10-27T04:00",
            "two times overlap",
        ),
        ("from=2026-10-27&crash=2026-11-29", "crash is not between from and to"),
        ("crash=" + ",".join(["now"] * 21), "crash names more than 20"),
    ],
)
async def test_what_means_nothing_is_answered_with_a_sentence(young: Stage, query: str, sentence: str) -> None:
    assert sentence in said(await page_of(young.dashboard(), f"/whatif?{query}", 400))


def asked_for(stage: Stage, begin: int, end: int) -> dict[str, Any]:
    return {
        "store": {"path": str(stage.path)},
        "now": stage.clock.now(),
        "zone": "Europe/Berlin",
        "begin": begin,
        "end": end,
        "down": [],
        "crashes": [],
    }


def test_more_than_20_000_starts_or_5_000_tasks_are_left_to_the_command(stage: Stage, tmp_path: Path) -> None:
    at = stage.clock.now()
    often = make_store(tmp_path / "often.db", [Row(f"t{number}") for number in range(20)])
    with pytest.raises(NotAnsweredError, match="More than 20,000 starts"):
        forecast.simulate(asked_for(Stage(often, stage.clock), at, at + 17 * HOUR))
    many = make_store(tmp_path / "many.db", [Row(f"t{number:05}", "0 * * * *") for number in range(5_001)])
    with pytest.raises(NotAnsweredError, match="More than 5,000 tasks"):
        forecast.simulate(asked_for(Stage(many, stage.clock), at, at + HOUR))


async def test_what_is_refused_is_not_shown_as_a_result(stage: Stage, tmp_path: Path) -> None:
    path = make_store(tmp_path / "often.db", [Row(f"t{number}") for number in range(20)])
    page = said(await page_of(Stage(path, stage.clock).dashboard(), "/whatif?from=2026-10-27&to=2026-10-29"))
    assert "Not simulated More than 20,000 starts are due in this time" in page
    assert "Nothing: every start came in its minute" not in page


def test_a_task_without_runs_on_record_has_no_habits(young: Stage) -> None:
    habits = young.reader.read(lambda view: habits_of(view, ["0 * * * *"], 10))
    assert [(each.task, each.runs, each.median_ms, each.failure_rate) for each in habits] == [("hourly", 0, 0.0, 0.0)]
    assert young.reader.read(lambda view: habits_of(view, [], 10)) == []
