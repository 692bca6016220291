"""`duly plan`: what initialize() would do, without doing it."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.program import ROOT, Service, ago, duly, failing, fingerprint, nothing, simulated, write_target

HOUR = timedelta(hours=1)
YEARLY = "0 0 1 1 *"


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A store with a kept, a failed, an owed, an interrupted and an idle task."""
    async with simulated(tmp_path / "state.db", ago(minutes=30)) as host:

        async def long() -> None:
            await host.sleep(100_000)

        scheduler = host.scheduler()
        await scheduler.initialize(
            [
                ("calm", YEARLY, nothing, HOUR),
                ("cut-short", "* * * * *", long, HOUR),
                ("cut-short-too", "* * * * *", long, HOUR),
                ("failed", "* * * * *", failing, timedelta(days=2)),
                ("kept", YEARLY, nothing, HOUR),
            ]
        )
        await host.advance(seconds=5)
        await host.crash()
    return tmp_path


DECLARED = """[
    ("calm", "5 4 1 1 *", quick, timedelta(hours=2)),
    ("cut-short", "* * * * *", quick, timedelta(hours=1)),
    ("failed", "1 * * * *", quick, timedelta(days=2)),
    ("fresh", "0 6 * * *", quick, timedelta(minutes=5)),
    ("kept", "0 0 1 1 *", quick, timedelta(hours=1)),
]"""


def test_a_plan_shows_everything_that_would_happen(folder: Path) -> None:
    """New, preserved, overridden field by field with what is dropped, orphaned, interrupted; and nothing is changed."""
    write_target(folder, DECLARED)
    before = fingerprint(folder)
    plan = duly("plan", "tasks.py", "--store", "state.db", "--json", folder=folder).json
    shown = duly("plan", "tasks.py", "--store", "state.db", folder=folder)
    assert fingerprint(folder) == before

    assert [each["task"] for each in plan["new"]] == ["fresh"]
    assert len(plan["new"][0]["nextStarts"]) == 5
    assert all(start[11:16] == "06:00" for start in plan["new"][0]["nextStarts"])
    assert plan["preserved"] == ["cut-short", "kept"]
    calm, failed = plan["overridden"]
    assert calm["stored"] == {"expression": YEARLY, "retryDelayMs": 3_600_000}
    assert calm["declared"] == {"expression": "5 4 1 1 *", "retryDelayMs": 7_200_000}
    assert calm["dropped"] == []
    assert [each.split(" ")[0] for each in failed["dropped"]] == ["pending", "owed"]
    (orphan,) = plan["orphaned"]
    assert orphan["task"] == "cut-short-too"
    assert orphan["dropped"][0].startswith("interrupted run of ")
    (interrupted,) = plan["interrupted"]
    assert (interrupted["task"], interrupted["interruptions"]) == ("cut-short", 1)
    assert plan["losses"] == ["cut-short-too", "failed"]

    for line in (
        "Plan for tasks.py on state.db, which no scheduler holds",
        "  + fresh  new  0 6 * * *, retry after 5 min",
        "      cron         0 0 1 1 *  →  5 4 1 1 *",
        "      retry after  1 h  →  2 h",
        "      dropped      pending retry at ",
        "  - cut-short-too  orphaned  * * * * *, last started ",
        "  ! cut-short  interrupted  its run of ",
        "starts again at once",
        "  = 2 preserved",
        "1 new, 2 overridden, 1 orphaned, 2 preserved, 1 interrupted",
        "Busiest minutes of the coming day",
    ):
        assert line in shown.out


def test_check_exits_with_2_when_something_would_be_lost(folder: Path) -> None:
    """For CI: orphaned or dropped is 2; new, preserved, and overridden without a loss are 0."""
    write_target(folder, DECLARED)
    lossy = duly("plan", "tasks.py", "--store", "state.db", "--check", folder=folder)
    assert lossy.code == 2
    assert "2 of the changes above lose something" in lossy.err
    kept = """[
        ("calm", "5 4 1 1 *", quick, timedelta(hours=1)), ("cut-short", "* * * * *", quick, timedelta(hours=1)),
        ("cut-short-too", "* * * * *", quick, timedelta(hours=1)), ("failed", "* * * * *", quick, timedelta(days=2)),
        ("kept", "0 0 1 1 *", quick, timedelta(hours=1)), ("more", "0 0 1 1 *", quick, timedelta(hours=1)),
    ]"""
    write_target(folder, kept)
    assert duly("plan", "tasks.py", "--store", "state.db", "--check", folder=folder).code == 0


def test_what_plan_says_is_what_run_does(folder: Path) -> None:
    """The events of the next start name the tasks that the plan named."""
    write_target(folder, DECLARED)
    plan = duly("plan", "tasks.py", "--store", "state.db", "--json", folder=folder).json
    with Service("tasks.py", "--store", "state.db", folder=folder) as service:
        service.expect("ProgramReady")
        service.send(signal.SIGTERM)
        service.end()
    done: dict[str, list[str]] = {}
    for line in service.lines:
        done.setdefault(line["event"], []).append(line.get("taskName", ""))
    assert done["TaskAdded"] == [each["task"] for each in plan["new"]]
    assert done["TaskOverridden"] == [each["task"] for each in plan["overridden"]]
    assert done["TaskOrphaned"] == [each["task"] for each in plan["orphaned"]]
    assert done["TaskInterrupted"] == [each["task"] for each in plan["interrupted"]]


def test_a_first_start_up_is_all_new_and_creates_nothing(tmp_path: Path) -> None:
    """A missing store is not an error: the first run creates it."""
    write_target(tmp_path, '[("every-minute", "* * * * *", quick, timedelta(0))]')
    shown = duly("plan", "tasks.py", "--store", "state.db", "--check", folder=tmp_path)
    assert shown.code == 0
    assert "which does not exist yet" in shown.out
    assert "  + every-minute  new" in shown.out
    assert "next         now, " in shown.out  # this very minute matches
    assert "Busiest" not in shown.out  # one task is never busier than another minute
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.py"]


def test_a_plan_without_tasks_says_so(tmp_path: Path) -> None:
    """Nothing is counted that is not there."""
    write_target(tmp_path, "[]")
    shown = duly("plan", "tasks.py", "--store", "state.db", folder=tmp_path)
    assert shown.out.splitlines()[1:] == ["", "Nothing changes: there are no tasks"]


def test_on_a_live_store_a_running_task_is_not_interrupted(tmp_path: Path) -> None:
    """A reload lets it go on; its end belongs to the old declaration (SPEC 5.3)."""
    write_target(tmp_path, '[("backup", "* * * * *", endless, timedelta(0))]')
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        service.expect("TaskRunStarted")
        write_target(tmp_path, '[("backup", "0 3 * * *", endless, timedelta(0))]', "changed.py")
        plan = duly("plan", "changed.py", "--store", "state.db", "--json", folder=tmp_path).json
        shown = duly("plan", "changed.py", "--store", "state.db", folder=tmp_path)
    assert plan["held"] is True
    assert plan["interrupted"] == []
    assert plan["overridden"][0]["running"] is True
    assert f"held by process {service.pid}" in shown.out
    assert "this run goes on; its end belongs to the old declaration" in shown.out


def test_another_zone_is_pointed_out(folder: Path) -> None:
    """The plan is for this host: in its zone the stored expressions would mean other instants."""
    write_target(folder, DECLARED)
    shown = duly("plan", "tasks.py", "--store", "state.db", folder=folder, TZ="Asia/Tokyo")
    assert "Africa/Lagos  →  Asia/Tokyo: the same expressions mean other instants" in shown.out


def test_the_busiest_minutes_are_those_where_most_tasks_fall_due(tmp_path: Path) -> None:
    """Counted over the coming day, in the host's zone; the busiest first."""
    write_target(
        tmp_path,
        '[(f"noon-{n}", "0 12 * * *", quick, timedelta(0)) for n in range(9)]'
        ' + [("half-hourly", "0,30 * * * *", quick, timedelta(0))]',
    )
    planned = duly("plan", "tasks.py", "--store", "state.db", "--json", folder=tmp_path).json
    first = planned["busiest"][0]
    assert (first["minute"][11:16], first["tasks"]) == ("12:00", 10)
    assert set(first["names"]) == {"half-hourly", *(f"noon-{n}" for n in range(9))}
    shown = duly("plan", "tasks.py", "--store", "state.db", folder=tmp_path)
    assert "10 tasks  noon-0, noon-1" in shown.out
    assert "more minutes with" not in shown.out  # in the others one task is due, which is not busy


def test_the_example_is_a_target(tmp_path: Path) -> None:
    """examples/tasks.py, from any folder."""
    shown = duly("plan", ROOT / "examples" / "tasks.py", "--store", "state.db", folder=tmp_path)
    assert shown.code == 0
    assert "  + sync-mirror  new  0,10,20,30,40,50 * * * *, retry after 30 s" in shown.out
    assert "4 new" in shown.out


def test_a_bad_cron_is_answered_with_the_whole_expression_to_write(tmp_path: Path) -> None:
    """As `duly next` and `duly check` do: it can be copied, all five fields of it."""
    write_target(tmp_path, '[("backup", "*/20 3 * * mon-fri", quick, timedelta(0))]')
    refused = duly("plan", "tasks.py", "--store", "state.db", folder=tmp_path)
    assert (refused.code, refused.out) == (3, "")
    assert "hint: write '0,20,40 3 * * 1-5'\n" in refused.err
    assert "hint: write '0,20,40 3 * * 1-5'\n" in duly("next", "*/20 3 * * mon-fri", folder=tmp_path).err


def test_a_long_plan_is_cut_for_people_only(tmp_path: Path) -> None:
    """People see a hundred changes of a kind, programs see all."""
    write_target(tmp_path, '[(f"task-{n:03}", "0 0 1 1 *", quick, timedelta(0)) for n in range(150)]')
    shown = duly("plan", "tasks.py", "--store", "state.db", folder=tmp_path)
    assert "… and 50 more new (--json has all)" in shown.out
    assert len(duly("plan", "tasks.py", "--store", "state.db", "--json", folder=tmp_path).json["new"]) == 150
