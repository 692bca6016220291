"""One measurement, in this process: `python -m benchmarks.child ours.tick '{"tasks": 1000}'`.

The last line of its output is what it measured, as JSON. Its stores are in a folder below `build/`, which is removed
afterwards: on the disk of the project, because a temporary folder may be in memory.
"""

import asyncio
import contextlib
import importlib
import inspect
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCRATCH = Path(__file__).parent.parent / "build"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for the stores of one measurement."""
    SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=SCRATCH) as folder:
        yield Path(folder)


def main(module: str, arguments: str, folder: str | None = None) -> None:
    """Measure; a folder that is given is not removed."""
    measure = importlib.import_module(f"benchmarks.{module}").measure
    with contextlib.nullcontext(Path(folder)) if folder else scratch_folder() as place:
        outcome: Any = measure(folder=place, **json.loads(arguments))
        if inspect.iscoroutine(outcome):
            outcome = asyncio.run(outcome)
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
