"""`duly run`: a scheduler as a service, its log, and what it says to systemd."""
