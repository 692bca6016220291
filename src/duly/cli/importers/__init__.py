"""`duly import`: schedules written for crontab, APScheduler and Celery, as a Python file of duly registrations.

draft        one schedule of the other scheduler, while it is read
crontab      drafts from crontabs, of users and of the system
apscheduler  drafts from the jobs of an APScheduler 3
celery       drafts from Celery's beat schedule
result       what became of the drafts: registrations, and what was left out, with reasons
python_file  the result as a Python file
"""
