"""About: versions, the store, its hosts, how far its history reaches, and what the words and keys mean."""

import platform

from duly.insight.zone import zone_in_use
from duly.web.display import release
from duly.web.forms import Form
from duly.web.frame import Frame


def page(frame: Frame, form: Form) -> str:
    """Show what is known about the store as a whole."""
    host_zone = frame.source.clock.zone()
    sample = frame.source.sample_if_any()
    snapshot, size, engine = frame.source.read(lambda view: (view.snapshot(), view.size(), view.engine()))
    display = frame.display(zone_in_use(snapshot.zone, host_zone), snapshot.at)
    cluster = snapshot.cluster
    living = None if cluster is None else sum(host.is_living(snapshot.at) for host in cluster.hosts)
    return frame.rendered(
        "about.html",
        display,
        "About",
        "About",
        version=release(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        engine=engine,
        snapshot=snapshot,
        extent=None if sample is None else sample.extent,
        tasks=None if sample is None else sample.health.tasks,
        size=size,
        cluster=cluster,
        living=living,
    )
