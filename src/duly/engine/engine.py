"""One running scheduler: the parts it is made of, wired; from the first initialize() to the stop() that ends it."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from duly.core.agenda import Agenda
from duly.engine.company import ALONE
from duly.engine.gate import Gate
from duly.engine.journal import Journal
from duly.engine.lease import ALWAYS, Lease
from duly.engine.loop import Loop
from duly.engine.runner import Runner
from duly.engine.settle import ReplacedRuns, Settlement
from duly.engine.setup import Setup
from duly.engine.trace import NotesOfAHost, Trace
from duly.engine.traffic import Traffic
from duly.engine.watchdog import LoopWatchdog
from duly.stores.port import Persisted, StoreWriter

if TYPE_CHECKING:  # an embedded store does without them
    from duly.engine.colleagues import Colleagues, Member


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
        trace: Trace | NotesOfAHost | None,
        open_stops: int,
        recorder: StoreWriter,
        member: "Member | None" = None,
    ) -> None:
        self.setup = setup
        self.agenda = agenda
        self.recorder = recorder
        """Where it writes: the store, or its membership of a shared one."""
        self.member = member
        """The host of a shared store that it is; None: the store is embedded."""
        self.lease: Lease = ALWAYS if member is None else member.membership.lease
        self.generations = generations
        """Numbers for new declarations, each higher than any before."""
        self.key = persisted.scheduler_key
        """The scheduler's key in the store."""
        self.identifiers = persisted.identifiers
        """Schedulers that wrote to the store, by their keys."""
        self.trace = trace
        self.gate = Gate(open_stops)
        self.traffic = Traffic()
        self.journal = Journal(
            setup, recorder, self.gate, self.traffic, trace, first_number=persisted.next_number, lease=self.lease
        )
        watchdog = LoopWatchdog(setup, self.traffic) if setup.host.watches_the_loop else None
        self.runner = Runner(setup, self.journal, self.gate, self.traffic, watchdog, self.lease)
        self.replaced = ReplacedRuns()
        self.settlement = Settlement(setup, agenda, self.runner, self.replaced, self.gate, self.traffic)
        self.colleagues: Colleagues | None = None
        """The other hosts of a shared store."""
        if member is not None:
            self.colleagues = member.meet(setup, agenda, self.journal, self.gate, self.replaced)
            self.settlement.on_fenced = self.colleagues.fenced
        self.loop = Loop(
            setup,
            agenda,
            self.journal,
            self.runner,
            self.gate,
            self.traffic,
            recorder,
            first_run=persisted.next_run,
            lease=self.lease,
            company=self.colleagues or ALONE,
        )
        event_loop = asyncio.get_running_loop()
        writing = self.journal.run(self.settlement.settle, self.settlement.fence)
        self.helpers = [event_loop.create_task(writing, name="duly-journal")]
        if setup.options.run_timeout is not None:
            self.helpers.append(event_loop.create_task(self.runner.keep_time(), name="duly-deadlines"))
