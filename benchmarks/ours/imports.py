"""The cost of `import duly` beside `import asyncio`, in processor time beyond that of an empty interpreter."""

from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.import_cost import measured


def measure(folder: Path, processes: int) -> dict[str, float]:
    """Medians of as many processes of each kind."""
    seconds = measured(ROOT / "src", processes)
    beside, ours = seconds["asyncio"] - seconds["empty"], seconds["duly"] - seconds["empty"]
    return {
        "empty_ms": 1000 * seconds["empty"],
        "asyncio_ms": 1000 * beside,
        "duly_ms": 1000 * ours,
        "ratio": ours / beside,
    }
