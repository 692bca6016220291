"""Test what you schedule without waiting: a simulated host for your tests, and for duly's own.

host         `SimulatedHost`: lets time pass, dies, and starts again
sim_clock    its clock: time that passes on request
cluster      `SimulatedCluster`: several hosts that share a store
shared       `SharedMemory`: a shared store as a pure object
sim_threads  chance from a seed, for orders that threads and timers could have produced
"""

from duly.testing.cluster import SimulatedCluster
from duly.testing.host import SimulatedHost

__all__ = ["SimulatedCluster", "SimulatedHost"]
