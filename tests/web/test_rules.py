"""The page that says which test shows which rule names tests that exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
FILES = (
    *HERE.glob("test_*.py"),
    *(TESTS / "integrations").glob("test_*.py"),
    TESTS / "cli" / "test_mcp.py",
    TESTS / "test_containers.py",
)


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(test_\w+)`", (HERE / "README.md").read_text())
    defined = {name for file in FILES for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    assert [name for name in named if name not in defined] == []
    assert len(named) > 100


def test_every_test_of_the_guard_is_named() -> None:
    """Each of them shows a rule."""
    named = (HERE / "README.md").read_text()
    guards = re.findall(r"def (test_\w+)\(", (HERE / "test_guard.py").read_text())
    others = {
        "test_a_host_header_is_a_name_and_perhaps_a_port",
        "test_a_web_socket_is_closed",
        "test_a_store_that_cannot_be_shown_is_refused_without_its_password",
        "test_options_that_mean_nothing_are_refused",
        "test_a_page_that_cannot_be_made_shows_no_traceback",
    }
    assert [name for name in guards if f"`{name}`" not in named and name not in others] == []
