"""`duly simulate`: the real scheduler through simulated time, with stand-in callbacks."""

from pathlib import Path

import pytest

from tests.cli.program import Terminal, duly, write_target

TASKS = (
    '[("backup", "30 2 * * *", quick, timedelta(minutes=5)), ("poll", "0,30 * * * *", broken, timedelta(minutes=1))]'
)


def test_a_timeline_and_a_summary(tmp_path: Path) -> None:
    """Starts with their lateness, and one line for each task; callbacks of the target are not called."""
    target = write_target(tmp_path, TASKS)
    done = duly(
        "simulate", target, "--from", "2024-03-30", "--to", "2024-04-02", "--down",
        "2024-04-01T01:10..2024-04-01T06:00", "--limit", "0", folder=tmp_path, TZ="Europe/Berlin",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "2 tasks, 2024-03-30 00:00 to 2024-04-02 00:00, Europe/Berlin: 135 starts"
    assert "Mon 2024-04-01 01:10:00  stopped" in lines
    assert "Mon 2024-04-01 06:00:00  backup  success      late by 3 h 30 min" in lines
    assert "Mon 2024-04-01 06:00:00  poll    success      late by 4 h 30 min, serves 10 occurrences" in lines
    [row] = [line.split() for line in lines if line.startswith("backup ")]
    assert row == ["backup", "2", "-", "-", "-", "1", "1", "-", "2024-04-01", "06:00", "3", "h", "30", "min"]
    assert not list(tmp_path.glob("*.db*"))


def test_the_json_shape(tmp_path: Path) -> None:
    """docs/commands.md, simulate: all starts, whatever --limit says."""
    target = write_target(tmp_path, TASKS)
    done = duly(
        "simulate", target, "--from", "2024-05-01", "--to", "2024-05-02", "--fail", "*=100%", "--duration", "poll=90s",
        "--crash-at", "2024-05-01T12:00:10", "--limit", "1", "--json", folder=tmp_path, TZ="Europe/Berlin",
    )  # fmt: skip
    assert done.code == 0, done.err
    backup, poll = done.json["tasks"]
    assert backup["failures"] == backup["starts"] > 200
    assert (poll["interrupted"], poll["restarts"]) == (1, 1)
    assert done.json["starts"][0] == {
        "task": "poll",
        "at": "2024-05-01T00:00:00+02:00",
        "cause": "cron",
        "outcome": "failure",
        "owedSince": "2024-05-01T00:00:00+02:00",
        "latenessMs": 0,
        "serves": 1,
        "durationMs": 90000,
    }
    assert len(done.json["starts"]) == backup["starts"] + poll["starts"]


@pytest.mark.parametrize("name", ["picture.svg", "picture.png"])
def test_a_picture(tmp_path: Path, name: str) -> None:
    """`--plot` draws the timeline and the load per minute."""
    target = write_target(tmp_path, TASKS)
    done = duly("simulate", target, "--from", "2024-05-01", "--to", "2024-05-02", "--plot", name, folder=tmp_path)
    assert done.code == 0, done.err
    drawn_file = (tmp_path / name).read_bytes()
    assert drawn_file.startswith(b"<?xml" if name.endswith("svg") else b"\x89PNG")
    assert len(drawn_file) > 5000


def test_without_matplotlib_it_says_what_to_install_before_it_simulates(tmp_path: Path) -> None:
    """Extra `duly[plot]`: a clear message when it is missing."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    target = write_target(tmp_path, TASKS)
    path = f"{Path(__file__).parents[2] / 'src'}:{tmp_path}"
    done = duly(
        "simulate", target, "--from", "2024-05-01", "--to", "2034-05-02", "--plot", "p.svg", folder=tmp_path,
        PYTHONPATH=path,
    )  # fmt: skip
    assert done.code == 2
    assert 'pip install "duly[plot]"' in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fail", "bakup=1"], "did you mean backup?"),
        (["--fail", "backup=2"], "use a number from 0 to 1"),
        (["--fail", "backup"], "is not TASK=VALUE"),
        (["--duration", "poll=soon"], "not a duration"),
        (["--down", "2024-05-01T01:00"], "is not FROM..TO"),
        (["--down", "2024-05-01T03:00..2024-05-01T01:00"], "is not before"),
        (["--down", "2024-06-01..2024-06-02"], "is not between --from and --to"),
        (["--crash-at", "never"], "--crash-at: 'never' is not a moment"),
        (["--plot", "picture.txt"], "ends neither in .svg nor in .png"),
        (["--to", "2024-04-01"], "is not before --to"),
    ],
)
def test_wrong_usage(tmp_path: Path, options: list[str], message: str) -> None:
    """One clear message, the documented exit code, no traceback."""
    target = write_target(tmp_path, TASKS)
    done = duly("simulate", target, "--from", "2024-05-01", "--to", "2024-05-02", *options, folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_on_80_columns_the_summary_is_whole(tmp_path: Path) -> None:
    """Columns in which nothing is counted go first; what there is no room for is named."""
    name = "copy-the-warehouse"
    target = write_target(tmp_path, TASKS.replace("poll", name))
    what = [
        "--from", "2024-03-30", "--to", "2024-04-02", "--tz", "Europe/Berlin", "--fail", f"{name}=0.5",
        "--down", "2024-03-31T05:10..2024-03-31T08:00",
    ]  # fmt: skip
    with Terminal("simulate", target, *what, folder=tmp_path, columns=80, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    lines = [line.rstrip() for line in terminal.shown.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("task "))
    headings, backup, copy, left_out = lines[begin : begin + 4]
    assert headings.split() == ["task", "starts", "failures", "retries", "missed", "skipped", "longest", "lateness"]
    assert backup.split() == ["backup", "2", "-", "-", "-", "1", "-"]
    assert copy.split()[0] == name
    assert left_out == "too narrow for: interrupted, repeated, latest start"
    assert max(map(len, (headings, backup, copy))) <= 80


def test_a_progress_bar_on_a_terminal_only(tmp_path: Path) -> None:
    """It is drawn on standard error, and gone at the end."""
    target = write_target(tmp_path, TASKS)
    with Terminal("simulate", target, "--from", "2024-05-01", "--to", "2024-06-01", folder=tmp_path) as terminal:
        terminal.expect("simulating")
        assert terminal.end() == 0
    assert "31" in terminal.shown
