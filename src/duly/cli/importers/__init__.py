"""`duly import`: schedules written for crontab, APScheduler and Celery, as duly registrations."""
