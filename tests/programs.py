"""Where the programs that tests start as processes find duly, and the tests themselves."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def environment(**extra: str) -> dict[str, str]:
    """This process's, with the sources of this checkout first on the path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **extra}
