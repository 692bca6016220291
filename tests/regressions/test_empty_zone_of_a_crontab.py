"""An empty `CRON_TZ=` left out every later line, for a zone without a name that was not known here."""

from pathlib import Path

import pytest

from tests.cli.program import duly


@pytest.mark.parametrize("empty", ["CRON_TZ=", "CRON_TZ = ", 'CRON_TZ=""', "CRON_TZ=''"])
def test_an_empty_zone_is_the_one_of_the_host(tmp_path: Path, empty: str) -> None:
    """As in cronie, also after a line that named another one; and a note says so."""
    (tmp_path / "crontab").write_text(f"CRON_TZ=America/New_York\n{empty}\n30 4 * * * x\n")
    done = duly("import", "crontab", "crontab", folder=tmp_path)
    assert done.code == 0, done
    assert "('x', '30 4 * * *'" in done.out
    assert "CRON_TZ is empty: the zone of its times is the host's, here as in cron" in done.out
