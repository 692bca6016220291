"""Test what you schedule without waiting: a simulated host for your tests, and for duly's own.

simulated   `SimulatedHost`: passes time, dies, and starts again
passing     its clock: time that passes when told
seeded      chance from a seed, for orders that threads and timers could have produced
"""

from duly.testing.host import SimulatedHost

__all__ = ["SimulatedHost"]
