"""The same work done by others; each module says how it is set up, and what exactly is measured."""
