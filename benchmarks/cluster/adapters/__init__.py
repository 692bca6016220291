"""duly, and schedulers that people would use instead on the same PostgreSQL; their version is pinned."""
