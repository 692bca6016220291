"""One command, `manage.py duly`."""
