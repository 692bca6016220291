"""`python -m benchmarks.since OLD.json`: which rows are worse than in an earlier results.json?

Both runs are put into the rows of today's table, from their samples. A row is worse if its median lies beyond the range
of the earlier rounds, on the wrong side. Rows that only one of the two runs has are left out. Exits with 1 if a row is
worse. The machine has to be the same, and as quiet: ratios to peers carry over better than seconds.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import report
from benchmarks.figures import Figures
from benchmarks.judging import Verdict, is_worse
from benchmarks.plan import FULL, Size
from benchmarks.targets import verdicts


class Change(NamedTuple):
    """One row in both runs."""

    before: Verdict
    now: Verdict

    @property
    def is_worse(self) -> bool:
        """Whether the median is beyond every earlier round."""
        assert self.before.figure is not None
        assert self.now.figure is not None
        return is_worse(self.now.figure, self.before.figure, more_is_better=self.now.more_is_better)


def changes(before: Path, now: Path, size: Size = FULL) -> Iterator[Change]:
    """The rows that both have, in the order of the table."""
    rows = [
        {
            (row.section, row.what): row
            for row in verdicts(Figures(report.read(path)[1]), size)
            if row.figure is not None
        }
        for path in (before, now)
    ]
    for key, row in rows[1].items():
        if key in rows[0]:
            yield Change(rows[0][key], row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both figures of each row, and say which are worse."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.since", description="Compare the results with those of an earlier run."
    )
    parser.add_argument("before", type=_results, metavar="OLD.json", help="the results.json of the earlier run")
    parser.add_argument("now", type=_results, nargs="?", default=report.RESULTS / "results.json", metavar="NEW.json",
                        help="the results.json to compare with it (default: the committed one)")  # fmt: skip
    options = parser.parse_args(arguments)
    found = list(changes(options.before, options.now))
    worse = [change for change in found if change.is_worse]
    for change in found:
        mark = "WORSE " if change.is_worse else ""
        print(f"{mark}{change.now.section}: {change.now.what}: {change.before.measured} → {change.now.measured}")
    print(f"{len(found)} rows in both, {len(worse)} worse")
    return 1 if worse else 0


def _results(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text} is not a file")
    return path


if __name__ == "__main__":
    sys.exit(main())
