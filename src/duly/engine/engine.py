"""One running scheduler: the parts it is made of, wired; from the first initialize() to the stop() that ends it."""

import asyncio
from collections.abc import Iterator

from duly.core.agenda import Agenda
from duly.engine.gate import Gate
from duly.engine.journal import Journal
from duly.engine.loop import Loop
from duly.engine.runner import Runner
from duly.engine.settle import ReplacedRuns, Settlement
from duly.engine.setup import Setup
from duly.engine.trace import Trace
from duly.engine.traffic import Traffic
from duly.engine.watchdog import LoopWatchdog
from duly.stores.port import Persisted


class Engine:
    """The parts, and what the store counted before them.

    Made by the first initialize() once its transaction is durable. The journal writes from then on; the loop polls
    only when initialize() has returned.
    """

    def __init__(
        self,
        setup: Setup,
        agenda: Agenda,
        persisted: Persisted,
        generations: Iterator[int],
        trace: Trace | None,
        open_stops: int,
    ) -> None:
        self.setup = setup
        self.agenda = agenda
        self.generations = generations
        """Numbers for new declarations, each higher than any before."""
        self.key = persisted.scheduler_key
        """The scheduler's key in the store."""
        self.identifiers = persisted.identifiers
        """Schedulers that wrote to the store, by their keys."""
        self.trace = trace
        self.gate = Gate(open_stops)
        self.traffic = Traffic()
        self.journal = Journal(setup, self.gate, self.traffic, trace, first_number=persisted.next_number)
        watchdog = LoopWatchdog(setup, self.traffic) if setup.host.watches_the_loop else None
        self.runner = Runner(setup, self.journal, self.gate, self.traffic, watchdog)
        self.replaced = ReplacedRuns()
        settlement = Settlement(setup, agenda, self.runner, self.replaced, self.gate, self.traffic)
        self.loop = Loop(
            setup, agenda, self.journal, self.runner, self.gate, self.traffic, first_run=persisted.next_run
        )
        event_loop = asyncio.get_running_loop()
        self.helpers = [event_loop.create_task(self.journal.run(settlement.settle), name="duly-journal")]
        if setup.options.run_timeout is not None:
            self.helpers.append(event_loop.create_task(self.runner.keep_time(), name="duly-deadlines"))
