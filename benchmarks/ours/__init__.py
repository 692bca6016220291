"""Measurements of duly; each module has a `measure()` that runs in a process of its own."""
