"""The commands of `duly`, one module each."""
