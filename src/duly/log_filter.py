"""A filter for the application's own log records: in which run each of them was made."""

import logging

from duly.run_context import current_run


class RunFilter(logging.Filter):
    """Adds `duly_task` and `duly_run_id` to log records, both None for one that was made outside of a run.

    Give it to a handler: a filter of a logger does not see the records of the loggers below it. A record that was
    handed to another thread, as `logging.handlers.QueueHandler` does, keeps what it was given first.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Note the current run in a record, and let it pass.

        Parameters:
            record: the record; it gets the attributes `duly_task` and `duly_run_id`.

        Returns:
            True: no record is held back.
        """
        if not hasattr(record, "duly_task"):
            run = current_run()
            record.duly_task = None if run is None else run.task
            record.duly_run_id = None if run is None else run.run_id
        return True
