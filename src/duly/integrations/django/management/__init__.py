"""The management command of the app."""
