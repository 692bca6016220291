"""Implementations behind the protocol: duly, and what people use today.

service       the adapter's side of the protocol, which the modules here share
duly          all groups
croniter, cronsim, apscheduler, celery
              expressions and occurrences
schedule      occurrences, as far as its calls can say what an expression says

`python -m conformance serve NAME` runs one of them. Each imports its library when it is made.
"""

import importlib
from typing import Final

from conformance.adapters.service import Adapter

NAMES: Final = ("duly", "croniter", "cronsim", "apscheduler", "celery", "schedule")


def adapter(name: str) -> Adapter:
    """Make the adapter of this name. Raises ImportError if its library is not installed."""
    made: Adapter = importlib.import_module(f"conformance.adapters.{name}").adapter()
    return made
