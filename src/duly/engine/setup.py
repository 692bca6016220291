"""The set-up of one scheduler for its whole life: its options, its host, its store, its outbox."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.clock import Clock
from duly.engine.host import Host
from duly.engine.options import Options
from duly.engine.outbox import Outbox
from duly.stores.port import Store

if TYPE_CHECKING:  # an embedded store does without it
    from duly.stores.shared import SharedStore


@dataclass(frozen=True, slots=True)
class Setup:
    """Given to every part of an engine."""

    options: Options
    host: Host
    store: "Store | SharedStore"
    outbox: Outbox

    @property
    def embedded(self) -> Store:
        """The store, which belongs to this scheduler alone."""
        assert isinstance(self.store, Store)
        return self.store

    @property
    def clock(self) -> Clock:
        """The host's clock."""
        return self.host.clock

    @property
    def threads(self) -> int:
        """How many blocking callbacks can run at once."""
        return self.options.max_concurrency or self.host.default_threads
