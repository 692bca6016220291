"""The figures of a store in the text format of Prometheus, for a scrape."""

from collections.abc import Iterable
from typing import Final

from duly.errors import DulyError
from duly.insight.gauges import NOT_READABLE, Gauge, holder_gauges, task_gauges
from duly.web.display import release
from duly.web.source import StoreSource

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_WAIT_SECONDS: Final = 5.0
"""For so long a scrape waits for the first counts; without them they are left out, and not 0."""


def exposition(source: StoreSource) -> str:
    """All that is known about the store now."""
    try:
        snapshot = source.read(lambda view: view.snapshot())
        gauges = list(holder_gauges(snapshot, release()))
        if (sample := source.sample(_WAIT_SECONDS)) is not None:
            gauges += task_gauges(sample.health.counts, sample.tally.failing, sample.longest_late)
    except DulyError:
        gauges = list(NOT_READABLE)
    return "".join(_lines(gauges, source.label))


def _lines(gauges: Iterable[Gauge], store: str) -> Iterable[str]:
    for family, value, labels in gauges:
        pairs = zip(("store", *family.labels), (store, *labels), strict=True)
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in pairs)
        yield f"# HELP {family.name} {family.tells}\n# TYPE {family.name} gauge\n{family.name}{{{shown}}} {value!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
