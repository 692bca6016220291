"""A retry delay of `timedelta.max` is legal, and was a defect of duly in `plan` and `simulate`.

In whole milliseconds, rounded up, it is longer than any timedelta.
"""

import signal
from pathlib import Path

from duly.insight.words import stretch
from tests.cli.program import Service, duly, write_target

LONG = stretch(86_400 * 1_000_000_000)
LONGEST = '[("job", "* * * * *", broken, timedelta.max)]'


def test_the_longest_delay_can_be_planned_simulated_and_run(tmp_path: Path) -> None:
    """SPEC 3.6: a retry beyond the year 9999 is stored as the last minute of 9999."""
    write_target(tmp_path, LONGEST)
    planned = duly("plan", "tasks.py", "--store", "state.db", folder=tmp_path)
    assert (planned.code, planned.err) == (0, "")
    assert f"retry after {LONG}" in planned.out
    simulated = duly(
        "simulate", "tasks.py", "--from", "2024-05-01T12:00", "--to", "2024-05-01T12:10", "--fail", "job=1", "--json",
        folder=tmp_path,
    )  # fmt: skip
    assert (simulated.code, simulated.err) == (0, ""), simulated
    with Service("tasks.py", "--store", "state.db", folder=tmp_path) as service:
        failed = service.expect("TaskRunFailed")
        assert failed["nextRetryAt"].startswith("9999-12-31T2"), failed
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    status = duly("status", "--store", "state.db", "--json", folder=tmp_path)
    assert status.json["tasks"][0]["retryDelayMs"] == 86_400_000_000_000_000
    changed = write_target(tmp_path, LONGEST.replace("timedelta.max", "timedelta(1)"))
    assert f"{LONG}  →  1 d" in duly("plan", changed, "--store", "state.db", folder=tmp_path).out
