"""The comparison with an earlier run says which rows are worse, in either direction."""

import json
from pathlib import Path

import pytest

from benchmarks import since


def results(path: Path, *, warm_s: float, schedule_s: float) -> Path:
    """A results.json of three rounds, 0.1 apart."""
    samples = {
        "initialize 1000000": [{"warm_s": warm_s + spread} for spread in (-0.1, 0.0, 0.1)],
        "schedule on 3.13": [{"last_start_s": schedule_s + spread} for spread in (-0.1, 0.0, 0.1)],
        "duly beside schedule on 3.13": [{"last_start_s": 1.0}] * 3,
    }
    path.write_text(json.dumps({"about": {}, "samples": samples, "absent": {}, "broken": {}}))
    return path


@pytest.mark.parametrize(
    ("warm_s", "schedule_s", "worse"),
    [
        (4.0, 1.0, []),
        (4.09, 0.91, []),  # inside the range of the earlier rounds
        (4.2, 1.0, ["warm, 1,000,000 tasks"]),
        (4.0, 0.8, ["schedule, nothing on disk, Python 3.13"]),  # a peer that is faster by comparison
        (3.0, 2.0, []),
    ],
)
def test_a_row_is_worse_when_its_median_is_beyond_all_earlier_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], warm_s: float, schedule_s: float, worse: list[str]
) -> None:
    """Seconds may not grow, ratios to peers may not shrink."""
    before = results(tmp_path / "before.json", warm_s=4.0, schedule_s=1.0)
    now = results(tmp_path / "now.json", warm_s=warm_s, schedule_s=schedule_s)
    assert since.main([str(before), str(now)]) == (1 if worse else 0)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("WORSE")] == [
        line for line in lines if any(f": {what}: " in line for what in worse)
    ]
    assert lines[-1] == f"2 rows in both, {len(worse)} worse"


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """One message, and no traceback."""
    with pytest.raises(SystemExit):
        since.main(["nowhere.json"])
    assert "nowhere.json is not a file" in capsys.readouterr().err
