"""About: versions, the store, how far its history reaches, and what the words and keys mean."""

import os
from importlib.metadata import version

from duly.insight.zone import zone_in_use
from duly.stores.port import HistoryExtent, Snapshot, View
from duly.web.forms import Form
from duly.web.frame import Frame


def page(frame: Frame, form: Form) -> str:
    """Show what is known about the store as a whole."""
    host_zone = frame.source.clock.zone()

    def question(view: View) -> tuple[Snapshot, HistoryExtent, int]:
        return view.snapshot(), view.extent(), view.count_tasks()

    snapshot, extent, tasks = frame.source.read(question)
    display = frame.display(zone_in_use(snapshot.zone, host_zone), snapshot.at)
    try:
        size: int | None = os.path.getsize(snapshot.store)
    except OSError:
        size = None
    return frame.rendered(
        "about.html",
        display,
        "About",
        "About",
        version=version("duly"),
        snapshot=snapshot,
        extent=extent,
        tasks=tasks,
        size=size,
    )
