"""The kind of each page in the sense of Diátaxis, and one sentence that says what the reader finds there.

A table and no front matter: GitHub shows front matter as a table above the title. decisions/0020 has the reasons.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """The purpose of a page."""

    TUTORIAL = "tutorial"
    """To learn, by doing."""
    HOW_TO = "how-to"
    """To reach a goal."""
    REFERENCE = "reference"
    """To look something up."""
    EXPLANATION = "explanation"
    """To understand why."""


class Description(NamedTuple):
    """A page in one line."""

    kind: Kind
    sentence: str


def _all(kind: Kind, sentences: dict[str, str]) -> dict[str, Description]:
    return {name: Description(kind, sentence) for name, sentence in sentences.items()}


_TUTORIAL: Final = _all(
    Kind.TUTORIAL,
    {
        "docs/tutorial/index.md": "Five steps in fifteen minutes: what you need, and where each step is.",
        "docs/tutorial/1-a-task.md": "Write a file with a task, and run it with `duly run`.",
        "docs/tutorial/2-a-kill.md": "Kill the scheduler in the middle of a run, and see that the run starts again.",
        "docs/tutorial/3-a-change.md": "Change the list of tasks, and let `duly plan` show beforehand what that does.",
        "docs/tutorial/4-a-look.md": "See in history and dashboard what failed, and with `duly next` what comes.",
        "docs/tutorial/5-a-test.md": "Test a night of tasks in milliseconds, with simulated time.",
    },
)

_HOW_TO: Final = _all(
    Kind.HOW_TO,
    {
        "docs/operations.md": "Run duly as a service or in a container: deploys, backups, health checks, alerts.",
        "docs/cluster.md": "Let several processes or machines be one scheduler, on a PostgreSQL database.",
        "docs/dashboard.md": "Show a store in the browser: start and protect the dashboard, its pages, its JSON API.",
        "docs/how-to/dashboard-behind-a-proxy.md": "Serve the dashboard behind nginx or Caddy, at a host or path.",
        "docs/moving/index.md": "What is the same and what is different for people who come from another scheduler.",
        "docs/moving/cron.md": "Move crontabs and systemd timers to duly, with `duly import crontab`.",
        "docs/moving/apscheduler.md": "Move jobs of APScheduler 3 or 4 to duly, with `duly import apscheduler`.",
        "docs/moving/celery.md": "Move a schedule of Celery beat to duly, with `duly import celery`.",
        "docs/moving/schedule.md": "Move jobs of schedule and aiocron to duly.",
        "docs/moving/kubernetes.md": "Move CronJobs of Kubernetes to duly, and when not to.",
        "docs/integrations/asgi.md": "Run tasks in FastAPI, Starlette or Litestar, with any number of workers.",
        "docs/integrations/aiohttp.md": "Run tasks in an aiohttp application.",
        "docs/integrations/django.md": "Declare tasks in a Django project, and run them with `manage.py duly`.",
        "docs/integrations/pytest.md": "Test scheduled code with the fixture `simulated_host`.",
        "docs/integrations/logging.md": "Log as JSON, or with structlog, and find the lines of one run.",
        "docs/integrations/prometheus.md": "Export metrics to Prometheus, with a Grafana dashboard and alerts.",
        "docs/integrations/opentelemetry.md": "Make a span of each run, and metrics, with OpenTelemetry.",
        "docs/integrations/pings.md": "Ping a dead man's switch, so that a missing run raises an alarm.",
        "docs/integrations/notifications.md": "Send a message to Slack or elsewhere when a run fails.",
        "docs/integrations/sentry.md": "Report runs to cron monitors of Sentry.",
        "CONTRIBUTING.md": "Set up a checkout, run the tests, and what a change needs.",
        "tests/README.md": "Where a new test goes, and what the marks of tests mean.",
        "conformance/README.md": "Hold a cron implementation, in any language, against the vectors.",
        "formal/README.md": "Check the models of the scheduler: one with SPIN, two with a search of their own.",
        "SECURITY.md": "Report a vulnerability; what duly trusts, and what it does not.",
    },
)

_REFERENCE: Final = _all(
    Kind.REFERENCE,
    {
        "docs/guide.md": "The Python API, part by part: methods, callbacks, options, cron, errors, events, testing.",
        "docs/commands.md": "Every command with an example, and what the commands share.",
        "docs/reference/commands.md": "Every option of every command.",
        "docs/reference/api.md": "The public modules and names, with their docstrings.",
        "docs/reference/errors.md": "Every error: its message, its details, and what to do about it.",
        "docs/reference/events.md": "Every event: its level and its fields.",
        "docs/reference/exit-codes.md": "Every exit code of every command.",
        "docs/reference/json.md": "Every field that a command prints with `--json`.",
        "docs/reference/insight.md": "The functions that read a store for a program of your own.",
        "docs/reference/metrics.md": "Every metric, with its labels and its meaning.",
        "docs/reference/store.md": "Every table and column of a store, in SQLite and in PostgreSQL.",
        "docs/glossary.md": "Every word that has one meaning here.",
        "docs/releases.md": "What a version number promises, and how a release is made.",
        "docs/specification.md": "Everything that duly promises, in numbered clauses.",
        "CHANGELOG.md": "What changed for users, release by release.",
    },
)

_EXPLANATION: Final = _all(
    Kind.EXPLANATION,
    {
        "README.md": "What duly is, what it promises, and a first program.",
        "docs/index.md": "Where to find what in this documentation.",
        "docs/wrong-tool.md": "When another tool serves you better than duly.",
        "docs/guarantees.md": "Each promise with its clause and its test, and what is not promised.",
        "docs/why-refuse.md": "Why there is no run now, pause, zone per task or retry limit; how to get the effect.",
        "docs/formal.md": "The trace of a scheduler, the properties that it must satisfy, and how they are checked.",
        "docs/architecture.md": "The layers, the way of one occurrence, and the states of a task.",
        "docs/performance.md": "How fast duly is beside other schedulers, and how that was measured.",
        "docs/reliability.md": "Which faults were tried, how often, and with what result.",
        "docs/conformance.md": "How cron libraries deviate from POSIX, the calendar and each other.",
    },
)

_DECISIONS: Final = {
    "0001-minutes-are-seconds": "Why a minute is named by its first second: some zones have odd offsets.",
    "0002-a-number-for-each-declaration": "Why an overridden task gets a new number.",
    "0003-numbered-writes": "How a commit that reported a fault is repeated without doing anything twice.",
    "0004-due-lists-and-shared-states": "How a million tasks fall due without a million queue entries.",
    "0005-small-modules": "Why the engine has many small modules.",
    "0006-readings": "How sentences of the specification that have two readings are read.",
    "0007-bursts": "How starts are handled in blocks, to spare the garbage collector.",
    "0008-engine": "How the parts of the engine know each other: named objects instead of callables.",
    "0009-blocked-event-loop": "How a callback that blocks the event loop is found and named.",
    "0010-what-an-oracle-shares": "Why independent oracles missed two defects, and what was done.",
    "0011-the-collector-is-the-applications": "Why duly leaves Python's garbage collector alone.",
    "0012-states-stay-rows": "Why neighbouring states are not stored as spans, with measurements.",
    "0013-functions-of-a-shared-store": "How the functions inside PostgreSQL read the rules.",
    "0014-a-dashboard-that-only-reads": "Why the dashboard has no buttons.",
    "0015-no-index-for-the-dashboard": "Why reading gets no index that writing would pay for.",
    "0016-strides": "How callbacks take their first step at once, up to 64 in a row.",
    "0017-traces-of-shared-stores": "The trace format of many hosts, and why it has a version of its own.",
    "0018-copies-leave-the-trace-behind": "What a copy between file and database keeps and leaves.",
    "0019-a-child-process-for-long-answers": "Why verdicts and forecasts are made in a child process.",
    "0020-the-site": "How the site is made of pages that are read in the repository.",
    "0021-hosts": "How the engine of one scheduler became that of many hosts.",
    "0022-the-log-is-the-trace": "Why the trace of a shared store is its log, read in another form.",
    "0023-standby-beside-the-scheduler": "Why waiting for a store is neither an option of the scheduler nor a lease.",
}

DESCRIPTIONS: Final = {
    **_TUTORIAL,
    **_HOW_TO,
    **_REFERENCE,
    **_EXPLANATION,
    **_all(Kind.EXPLANATION, {f"docs/decisions/{name}.md": sentence for name, sentence in _DECISIONS.items()}),
}
"""Every page, by its path in the repository."""
