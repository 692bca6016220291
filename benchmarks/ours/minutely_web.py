"""N tasks that are due every minute, in a process that serves a dashboard of its store, as `duly run --web` does."""

from pathlib import Path

from benchmarks.ours import minutely
from duly.cli.service.dashboard import Access, DashboardThread, open_dashboard

ADDRESS = "address"
"""The file in the folder that says where the dashboard is."""


async def measure(folder: Path, tasks: int, minutes: int) -> dict[str, float]:
    """Serve it in a thread with an event loop of its own; nobody asks for anything but whoever reads the address."""
    opened = open_dashboard(folder / "store.db", "127.0.0.1", 0, Access(None, (), False, "--web-"))
    (folder / ADDRESS).write_text(opened.address)
    dashboard = DashboardThread(opened)
    dashboard.start()
    try:
        return await minutely.measure(folder, tasks, minutes)
    finally:
        dashboard.end()
