"""Tasks of a Django project: an app, the setting DULY, and the command `manage.py duly`.

configuration   the setting DULY, checked
tasks           the registrations of the project; blocking callbacks close old connections to the database
apps            the app: system checks, and the link in the admin
management/     `manage.py duly`, the command line of duly with target and store from the settings

    INSTALLED_APPS += ["duly.integrations.django"]
    DULY = {"STORE": BASE_DIR / "state.db", "TASKS": "shop.tasks.registrations"}
"""
