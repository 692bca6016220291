"""Measurements of duly alone on PostgreSQL, each in a process of its own: `measure(folder, url, …)`."""
