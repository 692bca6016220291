"""`duly.events.RunFilter`: log records that are made inside a run name it."""

import asyncio
import logging
import logging.handlers
import queue
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duly
from duly.events import RunFilter
from duly.testing import SimulatedHost
from tests.cli.program import Service

HOUR = timedelta(hours=1)


class Kept(logging.Handler):
    """Keeps what a filter has noted."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, object, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        noted = vars(record)
        self.seen.append((record.getMessage(), noted["duly_task"], noted["duly_run_id"]))


def _logger() -> logging.Logger:
    """A logger that nobody else has."""
    return logging.Logger("shop")  # noqa: LOG001


async def test_records_of_callbacks_their_tasks_and_threads_name_the_run() -> None:
    """On the event loop, in spawned asyncio tasks and in blocking callbacks; None outside."""
    logger, handler = _logger(), Kept()
    handler.addFilter(RunFilter())
    logger.addHandler(handler)

    async def spawned() -> None:
        logger.info("spawned")

    async def on_the_loop() -> None:
        logger.info("loop")
        await asyncio.create_task(spawned())

    def in_a_thread() -> None:
        logger.info("thread")

    logger.info("before")
    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        scheduler = host.scheduler()
        await scheduler.initialize([("a", "0 12 * * *", on_the_loop, HOUR), ("b", "1 12 * * *", in_a_thread, HOUR)])
        await host.advance(minutes=2)
        await scheduler.stop()
    logger.info("after")
    assert handler.seen == [
        ("before", None, None),
        ("loop", "a", 1),
        ("spawned", "a", 1),
        ("thread", "b", 2),
        ("after", None, None),
    ]


async def test_a_record_that_is_handled_elsewhere_keeps_its_run() -> None:
    """A QueueHandler with the filter, and a listener whose handler has it, too."""
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    logger, first, last = _logger(), logging.handlers.QueueHandler(records), Kept()
    first.addFilter(RunFilter())
    last.addFilter(RunFilter())
    logger.addHandler(first)

    async def work() -> None:
        logger.info("inside")

    async with SimulatedHost("2024-06-01T12:00", "UTC") as host:
        await host.scheduler().initialize([("a", "0 12 * * *", work, HOUR)])
        await host.advance(minutes=1)
    last.handle(records.get())
    assert last.seen == [("inside", "a", 1)]


def test_the_library_changes_no_logging_of_others_and_loads_the_filter_when_it_is_used() -> None:
    """`import duly.events` makes no logger and no handler, and the pure core does without `logging`."""
    program = "import sys, duly.events; assert 'duly.log_filter' not in sys.modules; import logging; "
    program += "assert not logging.getLogger().handlers and not logging.getLogger().filters; "
    program += "assert issubclass(duly.events.RunFilter, logging.Filter)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert duly.events.RunFilter is RunFilter


TASKS = """
import logging
from datetime import timedelta


async def report():
    logging.getLogger("shop").warning("3 orders")
    print("printed")


registrations = [("report", "* * * * *", report, timedelta(hours=1))]
logging.getLogger("shop").warning("imported")
"""


def test_the_json_log_of_duly_run_names_the_run_of_a_record(tmp_path: Path) -> None:
    """Records and prints of a callback name its run; records made elsewhere have none."""
    (tmp_path / "tasks.py").write_text(TASKS)
    with Service("tasks.py", "--store", "state.db", "--log-format", "json", folder=tmp_path) as service:
        started = service.expect("TaskRunStarted", taskName="report")
        logged = service.expect("LogRecord", message="3 orders")
        printed = service.expect("LogRecord", message="printed")
    assert {(line["taskName"], line["runId"]) for line in (logged, printed)} == {("report", started["runId"])}


def test_the_text_log_of_duly_run_names_the_run_of_a_record(tmp_path: Path) -> None:
    """For people: the task, the run, the logger."""
    (tmp_path / "tasks.py").write_text(TASKS)
    with Service("tasks.py", "--store", "state.db", "--log-format", "text", folder=tmp_path) as service:
        line = service.expect_text("3 orders")
    assert "report  run 1, shop: 3 orders" in line
