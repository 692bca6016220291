"""`--html FILE` of plan, verify and simulate: one file that has all it shows, whatever the names are."""

import html
import re
from datetime import timedelta
from pathlib import Path

import pytest

from duly.testing import SimulatedHost
from duly.web.report import POLICY
from tests.cli.program import duly, write_target
from tests.programs import ROOT
from tests.web.conftest import Stage
from tests.web.hostile import MARKUP, NAMES
from tests.web.test_pages import rows_of, said, tiles_of

TRACES = ROOT / "examples" / "traces"


def written(file: Path) -> str:
    """The text of a page, which refers to nothing outside of itself."""
    text = file.read_text(encoding="utf-8")
    assert POLICY in html.unescape(text)
    assert re.findall(r'(?:href|src|action)="([^"]*)"', text) == ["data:,"]
    assert "<script" not in text
    assert "url(http" not in text
    assert "@import" not in text
    return text


async def stored(path: Path, names: list[str], *, trace: bool = False) -> None:
    async def work() -> None: ...

    async with SimulatedHost("2026-10-26T12:00:30", "UTC", store=path) as host:
        scheduler = host.scheduler(trace=trace)
        await scheduler.initialize([(name, "0 * * * *", work, timedelta(minutes=1)) for name in names])
        await host.advance(hours=2)
        await scheduler.stop()


async def test_a_plan_is_a_page_with_all_that_changes(tmp_path: Path) -> None:
    await stored(tmp_path / "state.db", ["kept", "changed", "gone"])
    declared = (
        '[("kept", "0 * * * *", quick, timedelta(minutes=1)), ("changed", "5 * * * *", quick, timedelta(minutes=1)),'
    )
    target = write_target(tmp_path, f'{declared} ("fresh", "30 2 * * *", quick, timedelta(minutes=5))]')
    file = tmp_path / "plan.html"
    done = duly("plan", target, "--store", "state.db", "--html", "plan.html", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("written: plan.html\n")
    page = written(file)
    assert tiles_of(page) == {"new": "1", "overridden": "1", "orphaned": "1", "preserved": "1", "interrupted": "0"}
    assert "1 new, 1 overridden, 1 orphaned, 1 preserved" in said(page)
    rows = rows_of(page)
    assert any(row.startswith("gone 0 * * * *") for row in rows)
    assert any(row.startswith("changed 0 * * * * → 5 * * * *") for row in rows)
    assert any(row.startswith("fresh 30 2 * * * 5 min") for row in rows)
    file.unlink()
    checked = duly("plan", target, "--store", "state.db", "--html", file, "--check", "--json", folder=tmp_path)
    assert checked.code == 2
    assert "gone" in checked.json["losses"]
    assert written(file)  # with any exit code, and with --json


async def test_a_plan_shows_two_long_expressions_in_full_where_they_would_look_alike(tmp_path: Path) -> None:
    """As the text of `duly plan` does; shortened each by itself, a change looked like none."""
    every_five, without_thirty = ",".join(map(str, range(0, 60, 5))), "0,5,10,15,20,25,35,40,45,50,55"

    async def work() -> None: ...

    async with SimulatedHost("2026-10-26T12:00:30", "UTC", store=tmp_path / "state.db") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("changed", f"{every_five} * * * *", work, timedelta(minutes=1))])
        await scheduler.stop()
    target = write_target(tmp_path, f'[("changed", "{without_thirty} * * * *", quick, timedelta(minutes=1))]')
    duly("plan", target, "--store", "state.db", "--html", "plan.html", folder=tmp_path)
    rows = rows_of(written(tmp_path / "plan.html"))
    assert any(f"changed {every_five} * * * * → {without_thirty} * * * *" in row for row in rows)


async def test_a_verdict_is_a_page_with_its_witness(tmp_path: Path, traced_stage: Stage) -> None:
    file = tmp_path / "verdict.html"
    assert duly("verify", traced_stage.path, "--html", file, folder=tmp_path).code == 0
    assert "properties hold" in said(written(file))
    broken = TRACES / "overlap-after-a-pause.jsonl"
    assert duly("verify", broken, "--html", file, folder=tmp_path).code == 1
    page = said(written(file))
    assert "Violated: " in page
    assert "The smallest part of the trace that shows it" in page


def test_a_simulation_is_a_page_with_its_picture(tmp_path: Path) -> None:
    target = write_target(tmp_path, '[("backup", "0,30 * * * *", quick, timedelta(minutes=1))]')
    file = tmp_path / "simulation.html"
    times = ("--from", "2027-03-27T22:00", "--to", "2027-03-28T06:00", "--tz", "Europe/Berlin")
    down = ("--down", "2027-03-27T23:15..2027-03-28T01:10")
    assert duly("simulate", target, *times, *down, "--html", file, folder=tmp_path).code == 0
    page = written(file)
    # 14 due minutes, because 02:00 and 02:30 do not exist; four of them in the outage, served by one start.
    assert tiles_of(page)["starts"] == "11"
    assert "The simulated time: 11 success. 1 time without a scheduler." in page
    assert "Europe/Berlin" in said(page)


async def test_hostile_names_break_out_of_no_file(tmp_path: Path) -> None:
    names = [name for name in NAMES if "\0" not in name]
    await stored(tmp_path / "state.db", names, trace=True)
    declared = ", ".join(f'({name!r}, "0,30 * * * *", quick, timedelta(minutes=1))' for name in names)
    target = write_target(tmp_path, f"[{declared}]")
    file = tmp_path / "page.html"
    (tmp_path / "empty.py").write_text("registrations = []\n")
    times = ("--from", "2027-03-27T22:00", "--to", "2027-03-28T06:00")
    for arguments in (
        ("plan", target, "--store", tmp_path / "state.db"),
        ("plan", target, "--store", tmp_path / "new.db"),
        ("plan", tmp_path / "empty.py", "--store", tmp_path / "state.db"),
        ("simulate", target, *times, "--fail", "*=50%"),
        ("verify", tmp_path / "state.db"),
    ):
        done = duly(*arguments, "--html", file, folder=tmp_path)
        assert done.code == 0, (arguments, done.err)
        page = written(file)
        for markup in MARKUP:
            assert markup not in page, (arguments, markup)
        assert "49$49" not in page


@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        ("nowhere/page.html", 4, "does not exist"),
        (".", 4, "is a folder"),
        ("state.db", 2, "is a store: it would be lost"),
    ],
)
async def test_a_file_that_cannot_be_written_is_named_before_the_work(
    tmp_path: Path, file: str, code: int, message: str
) -> None:
    await stored(tmp_path / "state.db", ["kept"])
    before = (tmp_path / "state.db").read_bytes()
    done = duly("plan", "no-such-target.py", "--store", "state.db", "--html", file, folder=tmp_path)
    assert done.code == code
    assert message in done.err
    assert (tmp_path / "state.db").read_bytes() == before


def test_without_jinja_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise ModuleNotFoundError(name='jinja2')\n")
    target = write_target(tmp_path, "[]")
    places = str(ROOT / "src"), str(tmp_path)
    done = duly("plan", target, "--store", "s.db", "--html", "p.html", folder=tmp_path, PYTHONPATH=":".join(places))
    assert done.code == 2
    assert 'pip install "duly[web]"' in done.err
