"""The observable trace of a scheduler, the properties it must satisfy, and the checker that compares the two.

trace        the alphabet as frozen values, and JSON Lines, the form in which traces are exchanged
reader       a streaming reader of that form: precise errors, never a silent gap
calendar     the checker's own cron arithmetic; it shares nothing with the scheduler's
properties   registers and properties as data: name, formula, sentence, kind
registers    what a monitor remembers of each host, of each task and of all, and all of it as a snapshot
promptness   the bounded shadows: how long an obligation may stay open while the process had compute
machine      what each event is checked for, and what it does to the registers
fast_path    ordinary starts and ends of long traces, in one loop
monitor      one pass over a trace, constant memory per task, four-valued verdicts
verdicts     violations, what is open, and the four values
witnesses    the smallest sub-trace that shows a violation
checking     reader and monitor together: segments in, a report out
judgement    a report as one value with one JSON form

The properties are evaluated a second time, slowly and from their texts, by `tests/formal/reference`.

Writing a trace (a store does it in the transaction that changes the state)::

    line = encode(RS(seq, at, "backup", generation, run, "cron", slots))

Watching a running scheduler, and checking a file::

    monitor = Monitor()
    for violation in monitor.step(event):  # usually none
        ...
    report = check(open("trace.jsonl", "rb"))
    print(report.verdicts["S1"].value)

The trace of a shared store is that of all its hosts: its events are `HostEvent`s, its header is a `shared_header`, and
`Monitor(shared=True)` judges it.
"""

import warnings
from typing import TYPE_CHECKING, Any

from duly import lazy

if TYPE_CHECKING:
    from duly.formal.checking import Report, check
    from duly.formal.monitor import Monitor
    from duly.formal.properties import PROPERTIES, Property, Value
    from duly.formal.registers import RegisterSnapshot
    from duly.formal.trace import (
        BT,
        BY,
        CK,
        IE,
        IF,
        IS,
        LR,
        RE,
        RG,
        RN,
        RS,
        SE,
        SF,
        SHARED_VERSION,
        SS,
        VERSION,
        WK,
        Event,
        Header,
        HostEvent,
        Seal,
        Writer,
        encode,
        shared_header,
    )  # fmt: skip
    from duly.formal.verdicts import Open, Verdict, Violation
    from duly.formal.witnesses import witness

__all__ = [
    "BT",
    "BY",
    "CK",
    "IE",
    "IF",
    "IS",
    "LR",
    "PROPERTIES",
    "RE",
    "RG",
    "RN",
    "RS",
    "SE",
    "SF",
    "SHARED_VERSION",
    "SS",
    "VERSION",
    "WK",
    "Event",
    "Header",
    "HostEvent",
    "Monitor",
    "Open",
    "Property",
    "RegisterSnapshot",
    "Report",
    "Seal",
    "Value",
    "Verdict",
    "Violation",
    "Writer",
    "check",
    "encode",
    "shared_header",
    "witness",
]

_load, __dir__ = lazy.attributes(
    __name__,
    {
        "checking": ("Report", "check"),
        "monitor": ("Monitor",),
        "properties": ("PROPERTIES", "Property", "Value"),
        "registers": ("RegisterSnapshot",),
        "trace": (
            "BT", "BY", "CK", "IE", "IF", "IS", "LR", "RE", "RG", "RN", "RS", "SE", "SF", "SHARED_VERSION", "SS",
            "VERSION", "WK", "Event", "Header", "HostEvent", "Seal", "Writer", "encode", "shared_header",
        ),
        "verdicts": ("Open", "Verdict", "Violation"),
        "witnesses": ("witness",),
    },
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a name at its first use: a scheduler imports `duly.formal.trace`, and that must not load the checker."""
    if name == "Snapshot":
        warnings.warn("duly.formal.Snapshot is called RegisterSnapshot now", DeprecationWarning, stacklevel=2)
        name = "RegisterSnapshot"
    return _load(name)
