"""Problems of a store, and warnings of what may become one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why a store is unhealthy, or a warning: a stable code for programs, and a sentence."""

    code: str  #: stable: `holder-gone`, `overdue`, `poll-too-old`, …; docs/reference/json.md has all
    text: str  #: the problem in a sentence
