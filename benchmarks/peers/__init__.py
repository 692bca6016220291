"""The measurements of duly, done by its peers; each module says how it is set up, and what exactly is measured."""
