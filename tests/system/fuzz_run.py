"""`python -m tests.system.fuzz_run TARGET [libFuzzer's options]`: coverage-guided fuzzing of one target with atheris.

Instrumented are duly's core and formal packages: what leads to a new branch is kept, and changed further. A case that
breaks a promise ends the process with its traceback and writes the case to a file, as libFuzzer does.
"""

import importlib
import sys
from typing import Any

atheris: Any = importlib.import_module("atheris")  # it has no types, and no build for every platform

with atheris.instrument_imports(include=["duly.core", "duly.formal"]):
    from tests.system import fuzz_targets


def main() -> None:
    """Hand the target to libFuzzer, with the options after it."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, fuzz_targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
