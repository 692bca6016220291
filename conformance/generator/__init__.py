"""Writes the vectors: each module computes one group, by code that duly does not contain.

cron_parse    which texts are expressions, by a second parser (`conformance.calendar`)
occurrences   next occurrences away from clock changes, and round those of every zone, minute by minute
scenarios     the starts of a scheduler's life, by the reference scheduler of tests/simulation
traces        verdicts on traces, by the formulas themselves, as tests/formal/reference evaluates them
errors        the errors of wrong registrations, by a second validator

`python -m conformance generate` writes the committed files; `--full --to FOLDER` all clock changes since 1970.
"""

from conformance.generator import cron_parse, errors, occurrences, scenarios, traces
from conformance.vector_files import Group, VectorFile

__all__ = ["committed", "full"]


def committed(group: Group) -> VectorFile:
    """A vector file as it is committed."""
    match group:
        case Group.CRON_PARSE:
            return cron_parse.vector_file()
        case Group.CALENDAR:
            return occurrences.calendar_file()
        case Group.TRANSITIONS:
            return occurrences.transitions_file()
        case Group.SCENARIOS:
            return scenarios.vector_file()
        case Group.TRACES:
            return traces.vector_file()
        case Group.ERRORS:
            return errors.vector_file()


def full(group: Group) -> VectorFile:
    """A vector file with everything: only the clock changes are too many to be committed."""
    return occurrences.full_transitions_file() if group is Group.TRANSITIONS else committed(group)
