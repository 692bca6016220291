"""A small real project of Django with the app: its command, its connections, its checks, its admin."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.compute import NotInTimeError
from tests.conftest import require
from tests.postgres_server import PostgresServer
from tests.programs import environment
from tests.system.children import PATIENCE_SECONDS

SETTINGS = """
from pathlib import Path
BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = "a test"
USE_TZ = True
ALLOWED_HOSTS = ["testserver"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "duly.integrations.django", "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
ROOT_URLCONF = "shop.urls"
DULY = {"STORE": BASE_DIR / "state.db", "TASKS": "shop.tasks.registrations", "WEB": "/duly/"}
"""
FILES = {
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
execute_from_command_line(sys.argv)
""",
    "shop/__init__.py": "",
    "shop/settings.py": SETTINGS,
    "shop/urls.py": """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
""",
    "shop/models.py": """
from django.db import models
class Visit(models.Model):
    at = models.DateTimeField(auto_now_add=True)
""",
    "shop/migrations/__init__.py": "",
    "shop/migrations/0001_initial.py": """
from django.db import migrations, models
class Migration(migrations.Migration):
    operations = [migrations.CreateModel("Visit", [
        ("id", models.BigAutoField(primary_key=True)), ("at", models.DateTimeField(auto_now_add=True)),
    ])]
""",
    "shop/tasks.py": """
from datetime import timedelta
from shop.models import Visit

def visit():
    Visit.objects.create()
    print("visited", Visit.objects.count(), flush=True)

async def visit_async():
    await Visit.objects.acreate()
    print("visited", await Visit.objects.acount(), flush=True)

async def registrations():
    return [
        ("visit", "* * * * *", visit, timedelta(minutes=1)),
        ("visit-async", "0 0 1 1 *", visit_async, timedelta(minutes=1)),
    ]
""",
}


class Project:
    """The project in a folder of its own, and its command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        with self.start(*arguments) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def manage(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.run("manage.py", *arguments)

    def python(self, code: str) -> str:
        """The output of a program that has set up Django."""
        head = "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'shop.settings'; import django; django.setup()\n"
        done = self.run("-W", "error", "-c", head + code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def configure(self, text: str) -> None:
        """Replace the setting DULY."""
        head = SETTINGS.split("DULY = ", maxsplit=1)[0]
        (self.folder / "shop/settings.py").write_text(head + text)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    require("django", "pip install -r requirements/dev.txt")
    return Project(tmp_path)


@pytest.mark.system
def test_the_commands_know_the_tasks_and_the_store(project: Project) -> None:
    """plan, check, next, status: with their own options, exit codes and JSON; the store is that of the settings."""
    plan = project.manage("duly", "plan", "--json")
    assert plan.returncode == 0, plan.stderr
    document = json.loads(plan.stdout)
    assert [task["task"] for task in document["new"]] == ["visit", "visit-async"]
    assert Path(document["store"]) == project.folder / "state.db"
    coming = json.loads(project.manage("duly", "next", "-n", "1", "--tz", "UTC", "--json").stdout)
    assert [task["task"] for task in coming["tasks"]] == ["visit", "visit-async"]
    expression = json.loads(project.manage("duly", "next", "30 2 * * *", "-n", "1", "--json").stdout)
    assert [task["expression"] for task in expression["tasks"]] == ["30 2 * * *"]
    status = project.manage("duly", "status")
    assert status.returncode == 4
    assert "state.db" in status.stderr


@pytest.mark.system
def test_a_task_uses_the_database_of_the_project(project: Project) -> None:
    """Blocking and asynchronous, each run once, with the ORM; and the help is that of duly."""
    assert project.manage("migrate", "-v", "0").returncode == 0
    once = project.manage("duly", "run", "--once", "visit")
    assert (once.returncode, "visited 1" in once.stdout + once.stderr) == (0, True), once.stderr
    once = project.manage("duly", "run", "--once", "visit-async")
    assert (once.returncode, "visited 2" in once.stdout + once.stderr) == (0, True), once.stderr
    assert "Run the tasks of TARGET" in project.manage("duly", "run", "--help").stdout


def test_a_blocking_callback_leaves_no_connection_behind_that_is_too_old(project: Project) -> None:
    """With CONN_MAX_AGE = 0 it is closed after each run; without the app it would stay open in its thread."""
    printed = project.python(
        """
import asyncio
from django.core.management import call_command
from django.db import connection
from duly.integrations.django.tasks import registrations, with_connections
call_command("migrate", verbosity=0)
connection.close()
from shop import tasks
(name, cron, wrapped, delay), (_, _, on_loop, _) = asyncio.run(registrations())
print(on_loop is tasks.visit_async, wrapped.__name__)
wrapped()
print(connection.connection is None)
tasks.visit()
print(connection.connection is None)
def fails():
    tasks.visit()
    raise RuntimeError("no")
((_, _, wrapped, _),) = with_connections([("fails", "* * * * *", fails, delay)])
try:
    wrapped()
except RuntimeError:
    print(connection.connection is None)
"""
    )
    assert printed.splitlines() == ["True visit", "visited 1", "True", "visited 2", "False", "visited 3", "True"]


@pytest.mark.system
def test_the_admin_links_the_dashboard_if_there_is_one(project: Project) -> None:
    """On its index, and not on the pages of other apps; without DULY["WEB"] there is none."""
    code = """
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
call_command("migrate", verbosity=0)
user, _ = User.objects.get_or_create(username="admin", is_staff=True, is_superuser=True)
client = Client()
client.force_login(user)
for page in ("/admin/", "/admin/auth/"):
    answer = client.get(page)
    print(answer.status_code, 'href="/duly/"' in answer.content.decode())
"""
    index, other = project.python(code).splitlines()
    assert index == "200 True"
    assert other.startswith("200")
    project.configure('DULY = {"STORE": "state.db", "TASKS": "shop.tasks:registrations"}')
    assert project.python(code).splitlines()[0] == "200 False"


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("", "the setting DULY is missing: write DULY = "),
        ("DULY = 'state.db'", "the setting DULY must be a dict, got str"),
        ("DULY = {'STORE': 'state.db'}", 'DULY["TASKS"] must be the dotted path of the registrations, got None'),
        ("DULY = {'TASKS': 'shop.tasks.registrations'}", 'DULY["STORE"] must be the path or the URL of'),
        ("DULY = {'STORE': 'a', 'TASKS': 'tasks'}", 'DULY["TASKS"] must be a dotted path, such as'),
        ("DULY = {'STORE': 'a', 'TASKS': 'a.b', 'TASK': 1}", "DULY has no key TASK: it takes STORE, SCHEMA, TASKS"),
        ("DULY = {'STORE': 'a', 'TASKS': 'a.b', 'SCHEMA': 7}", 'DULY["SCHEMA"] must be the name of a schema, got 7'),
        ("DULY = {'STORE': 'a', 'TASKS': 'a.b', 'WEB': 'duly'}", 'DULY["WEB"] must be the address of the dashboard'),
        ("DULY = {'STORE': 'a', 'TASKS': 'a.b', 'STANDBY': 1}", 'DULY["STANDBY"] must be True or False, got int'),
    ],
)
def test_a_wrong_setting_is_named(
    project: Project, setting: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function that all parts of the app ask; two of the cases go through `manage.py` below."""
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.test.utils import override_settings

    if not settings.configured:
        settings.configure()
    from duly.integrations.django.configuration import configuration

    given: dict[str, object] = {}
    exec(setting, given)
    with override_settings(DULY=given.get("DULY")), pytest.raises(ImproperlyConfigured) as raised:
        configuration()
    assert complaint in str(raised.value)


@pytest.mark.system
def test_check_and_the_command_say_what_is_wrong_with_the_setting(project: Project) -> None:
    """`manage.py check` has an error with an identifier; the command ends with one line and no traceback."""
    project.configure("DULY = {'STORE': 'state.db'}")
    checked = project.manage("check")
    assert checked.returncode == 1
    assert '(duly.E001) DULY["TASKS"] must be the dotted path' in checked.stderr
    command = project.manage("duly", "status")
    assert command.returncode == 1
    assert command.stderr.startswith('CommandError: DULY["TASKS"] must be')


def test_a_module_of_tasks_that_cannot_be_imported_is_one_message(project: Project) -> None:
    """With the exit code of a target, as everywhere in duly."""
    project.configure("DULY = {'STORE': 'state.db', 'TASKS': 'shop.jobs.registrations'}")
    done = project.manage("duly", "plan")
    assert done.returncode == 3
    assert "No module named 'shop.jobs'" in done.stderr


def test_standby_is_for_run_and_not_for_a_single_run() -> None:
    """The arguments of the command line."""
    from django.conf import settings

    if not settings.configured:
        settings.configure()
    from duly.integrations.django.configuration import ProjectConfiguration
    from duly.integrations.django.management.commands.duly import TARGET, arguments_for

    configured = ProjectConfiguration("state.db", None, "shop.tasks", "registrations", standby=True, web=None)
    assert arguments_for("run", ["--max-concurrency", "4"], configured) == [
        "run", "--max-concurrency", "4", "--standby", TARGET,
    ]  # fmt: skip
    assert arguments_for("run", ["--once", "visit"], configured) == ["run", "--once", "visit", TARGET]
    assert arguments_for("run", ["--help"], configured) == ["run", "--help"]
    assert arguments_for("history", ["visit"], configured) == ["history", "visit"]
    assert arguments_for("check", [], configured) == ["check", TARGET]
    assert arguments_for("next", ["--from", "now"], configured) == ["next", "--from", "now", TARGET]
    assert arguments_for("next", ["0 0 * * *"], configured) == ["next", "0 0 * * *"]


@pytest.mark.real_time
def test_the_scheduler_of_a_project_runs_and_stops(project: Project) -> None:
    """`manage.py duly run`, seen by `manage.py duly status`, until SIGTERM."""
    assert project.manage("migrate", "-v", "0").returncode == 0
    with project.start("manage.py", "duly", "run", "--log-format", "json") as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            status = project.manage("duly", "status", "--json")
            document = json.loads(status.stdout) if status.stdout else {"tasks": []}
            if any(task["task"] == "visit" and task["lastSuccessAt"] for task in document["tasks"]):
                break
            if time.monotonic() > deadline:
                process.kill()
                raise NotInTimeError(f"no run has succeeded: {status}")
        assert document["holder"]["alive"]
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors


@pytest.mark.real_time
def test_a_project_on_a_store_that_hosts_share(project: Project, server: PostgresServer, schema: str) -> None:
    """The setting has its URL and its schema; two schedulers of the project are two hosts, and no password is shown."""
    assert project.manage("migrate", "-v", "0").returncode == 0
    url = server.url(password="s3cret")
    settings = {"STORE": url, "SCHEMA": schema, "TASKS": "shop.tasks.registrations", "STANDBY": True}
    project.configure(f"DULY = {settings!r}")
    unused = project.manage("duly", "status")
    assert (unused.returncode, "no host has used this store yet" in unused.stderr) == (4, True)
    command = ("manage.py", "duly", "run", "--log-format", "json")
    with project.start(*command) as one, project.start(*command) as other:
        try:
            document = _until_visited(project)
        finally:
            for each in (one, other):
                os.kill(each.pid, signal.SIGTERM)
        outputs = [each.communicate(timeout=PATIENCE_SECONDS) for each in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), outputs
    assert len(document["cluster"]["hosts"]) == 2
    assert document["store"].endswith(f"(schema {schema})")
    assert "s3cret" not in f"{outputs} {document} {unused}"


def _until_visited(project: Project) -> dict[str, Any]:
    """The document of `status` once both hosts are there and a visit has been made."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        status = project.manage("duly", "status", "--json")
        document: dict[str, Any] = json.loads(status.stdout) if status.stdout else {"tasks": []}
        visited = any(task["task"] == "visit" and task["lastSuccessAt"] for task in document["tasks"])
        if visited and len(document["cluster"]["hosts"]) == 2:
            return document
        if time.monotonic() > deadline:
            raise NotInTimeError(f"no run has succeeded: {status}")
