"""The contents of the site, in order: captions of its navigation, and the pages under each of them.

A page is named by its path in the repository. The order is that of the navigation and of llms.txt; a page that is
missing here fails the build, because nothing would lead to it.
"""

from typing import Final

CONTENTS: Final[dict[str, tuple[str, ...]]] = {
    "Learn": ("docs/tutorial/index.md", "docs/wrong-tool.md"),
    "Use": (
        "docs/guide.md",
        "docs/operations.md",
        "docs/cluster.md",
        "docs/dashboard.md",
        "docs/how-to/dashboard-behind-a-proxy.md",
        "docs/moving/index.md",
        "docs/integrations/asgi.md",
        "docs/integrations/aiohttp.md",
        "docs/integrations/django.md",
        "docs/integrations/pytest.md",
        "docs/integrations/logging.md",
        "docs/integrations/prometheus.md",
        "docs/integrations/opentelemetry.md",
        "docs/integrations/pings.md",
        "docs/integrations/notifications.md",
        "docs/integrations/sentry.md",
    ),
    "Look up": (
        "docs/commands.md",
        "docs/reference/commands.md",
        "docs/reference/api.md",
        "docs/reference/errors.md",
        "docs/reference/events.md",
        "docs/reference/exit-codes.md",
        "docs/reference/json.md",
        "docs/reference/insight.md",
        "docs/reference/metrics.md",
        "docs/reference/store.md",
        "docs/glossary.md",
        "docs/releases.md",
        "CHANGELOG.md",
    ),
    "Understand": (
        "docs/guarantees.md",
        "docs/why-refuse.md",
        "docs/specification.md",
        "docs/formal.md",
        "docs/architecture.md",
        "docs/performance.md",
        "docs/reliability.md",
        "docs/conformance.md",
    ),
    "Contribute": (
        "CONTRIBUTING.md",
        "tests/README.md",
        "conformance/README.md",
        "formal/README.md",
        "SECURITY.md",
    ),
}

FRONT: Final = "docs/index.md"
FOLLOWED: Final = ("docs/tutorial/index.md", "docs/moving/index.md")
"""Pages that lead to the other pages of their folder, in the order in which they link to them."""

ELSEWHERE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "tests/README.md": "project/tests.md",
    "conformance/README.md": "project/conformance-kit.md",
    "formal/README.md": "project/spin.md",
}
"""Where pages from outside of docs/ stand on the site. The first page stands for the README."""

API: Final[dict[str, str]] = {
    "duly": "Declare and run tasks",
    "duly.errors": "Errors",
    "duly.events": "Events",
    "duly.stores": "Stores and readers",
    "duly.insight": "What a store means",
    "duly.testing": "Simulated time",
    "duly.formal": "Traces and their checker",
    "duly.web": "The dashboard",
    "duly.integrations.asgi": "FastAPI, Starlette, Litestar",
    "duly.integrations.opentelemetry": "OpenTelemetry",
    "duly.integrations.pings": "Pings",
    "duly.integrations.prometheus": "Prometheus",
}
"""Public modules that have a page made from their docstrings."""

WITHOUT_PAGE: Final[dict[str, tuple[str, ...]]] = {
    "duly.__main__": ("main",),
    "duly.integrations.pytest_plugin": ("simulated_host",),
}
"""Public names of modules that have no such page. `duly.integrations.django` has no public names: a project names the
app, the setting and the command, and imports nothing."""

BESIDE: Final = {"duly.events": ("both", "RunFilter")}
"""Public names that are not in the `__all__` of their module, which lists what can happen."""
