"""The verdict of a store's trace on every property; computed in a child process."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC
from typing import Any, Final

from duly.core.moments import Instant
from duly.errors import TraceError
from duly.formal.checking import Checker
from duly.formal.judgement import first_witnesses, judgement_of
from duly.insight.json_form import json_form
from duly.stores import View, reader_of
from duly.stores.port import StoredTrace
from duly.stores.trace_copy import LongTraceError, copy_trace
from duly.web.child import NotAnsweredError, no_trace, store_in

EVENTS_MAX: Final = 500_000
"""Copying and judging this many takes a few seconds; the copy is made in one read transaction, which must be short."""


def judge(request: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the trace of a store; the answer has the document of `duly verify --json`, and which trace was read."""
    reader = reader_of(store_in(request), lambda: Instant(request["now"]))
    with tempfile.TemporaryFile(prefix="duly-trace-") as copy:

        def question(view: View) -> StoredTrace:
            stored = view.trace()
            if stored is None:
                raise no_trace()
            copy_trace(view, copy, events_max=EVENTS_MAX)
            return stored  # as the store describes it, to be compared with what it says later

        try:
            stored = reader.read(question)
            copy.seek(0)
            checker = Checker()
            checker.take(copy)
        except LongTraceError:
            raise NotAnsweredError(
                f"The trace has more than {EVENTS_MAX:,} events, and the dashboard judges no longer ones.",
                "`duly verify` judges a trace of any length",
            ) from None
        except TraceError as fault:
            raise NotAnsweredError(
                f"The trace is refused: line {fault.details['line']}: {fault.details['reason']}.",
                "half a trace cannot be judged; `duly verify` says the same",
            ) from fault
        report = checker.report()
        shown = first_witnesses([copy], report, checker.start)
    judgement = judgement_of(report, shown, [request["name"]], current=stored.current)
    return {"read": asdict(stored), "document": json_form(judgement, UTC)}
