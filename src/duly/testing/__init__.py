"""Test what you schedule without waiting: a simulated host for your tests, and for duly's own.

simulated   `SimulatedHost`: passes time, dies, and starts again
"""

from duly.testing.simulated import SimulatedHost

__all__ = ["SimulatedHost"]
