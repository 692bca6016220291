"""Other people's frameworks and duly: one module for each, over duly's public names only.

asgi            tasks inside FastAPI, Starlette and Litestar, with any number of worker processes
django/         an app for Django: settings, `manage.py duly`, a link in the admin
opentelemetry   a span and measurements around each run
pings           a dead man's switch: an alarm when nothing happens
prometheus      metrics: counted from events, and read from a store
pytest_plugin   the fixture `simulated_host`
wrapping        registrations with something around each callback, for the others

A module imports its framework, and nothing of duly imports a module from here: an application does, if it wants it.
docs/integrations has a page for each.
"""
