"""The dashboard in a real browser: keys, live updates, no JavaScript, no message, no foreign request, accessibility."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from duly.web import dashboard
from duly.web.server import hosts_for
from tests.stores.helpers import change
from tests.stores.made import Row, make_store
from tests.web.browser import WIDTHS, axe_source, browser, served
from tests.web.conftest import Stage
from tests.web.hostile import NAMES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.system

FAILING = "partners/sync-acme-mirror"
PLACES = (
    "/",
    "/tasks",
    "/tasks?q=nobody",
    "/tasks?state=failing&sort=failure",
    f"/task?name={quote(FAILING)}",
    f"/task?name={quote(FAILING)}&at=2026-10-25T18:16",
    "/runs",
    "/runs?outcome=failure",
    "/calendar",
    "/next?cron=30+2+*+*+*&from=2027-03-27",
    "/next?cron=61+*+*+*+*",
    "/about",
    "/task?name=nobody",
    "/runs?since=soon",
    "/nowhere",
)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def opened(stage: Stage, hostile_stage: Stage) -> Iterator["Browser"]:
    """One browser for all tests; stores are made before it, because it brings an event loop."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def address(stage: Stage) -> Iterator[str]:
    with served(stage.dashboard()) as found:
        yield found


class Witness:
    """Notes what a page says on its console, what fails, and what it asks other hosts for."""

    def __init__(self, page: "Page", address: str) -> None:
        self.faults: list[str] = []
        page.on("console", lambda message: self.faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda request: self._request(request.url, urlsplit(address).netloc))

    def _request(self, url: str, ours: str) -> None:
        if not url.startswith("data:") and urlsplit(url).netloc != ours:
            self.faults.append(f"foreign request: {url}")


def test_the_keyboard_leads_everywhere(opened: "Browser", address: str) -> None:
    page = opened.new_page()
    witness = Witness(page, address)
    page.goto(f"{address}/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/tasks")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent") == "backup/full"
    page.keyboard.press("/")
    page.keyboard.type("acme g t")  # keys inside a field are letters
    assert page.input_value("input[type=search]") == "acme g t"
    page.fill("input[type=search]", "acme")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=acme**")
    assert page.locator("tbody tr").count() == 1
    page.locator("tbody a").first.press("Enter")
    page.wait_for_url("**/task?name=**")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(f"{address}/")
    assert witness.faults == []
    page.close()


def test_a_change_appears_without_a_reload(opened: "Browser", tmp_path: Path) -> None:
    """The list changes in the page that is open; what the user types into meanwhile stays."""
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.1)) as address:
        page = opened.new_page()
        witness = Witness(page, address)
        page.goto(f"{address}/tasks")
        page.evaluate("window.stays = true")
        page.fill("input[type=search]", "half a wo")
        change(store, "UPDATE tasks SET name = 'renamed'")
        page.wait_for_selector("text=renamed", timeout=30_000)
        assert page.evaluate("window.stays") is True
        assert page.input_value("input[type=search]") == "half a wo"
        assert witness.faults == []
        page.close()


def test_a_store_that_appears_becomes_the_dashboard_without_a_click(opened: "Browser", tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    with served(dashboard(store, refresh=0.1)) as address:
        page = opened.new_page()
        page.goto(f"{address}/tasks")
        assert "Nothing here yet" in page.inner_text("main")
        make_store(store, [Row("first")])
        page.wait_for_selector("text=first", timeout=30_000)
        page.close()


@pytest.mark.parametrize("place", PLACES)
def test_every_page_is_whole_without_javascript(opened: "Browser", address: str, place: str) -> None:
    """What a page shows with JavaScript it shows without."""
    texts = []
    for enabled in (True, False):
        context = opened.new_context(java_script_enabled=enabled)
        page = context.new_page()
        page.goto(address + place)
        texts.append(page.inner_text("body"))
        context.close()
    assert texts[0] == texts[1]
    assert len(texts[0]) > 80


def contexts(opened: "Browser") -> Iterator[tuple[str, "BrowserContext"]]:
    for scheme in ("light", "dark"):
        for width, (wide, high) in WIDTHS.items():
            context = opened.new_context(
                viewport={"width": wide, "height": high},
                color_scheme=scheme,
                reduced_motion="reduce",
                bypass_csp=True,  # axe-core is a script of its own
            )
            yield f"{scheme} {width}", context
            context.close()


def violations(page: "Page") -> list[str]:
    found: list[dict[str, Any]] = page.evaluate(
        f"axe.run(document, {{runOnly: {json.dumps(RULES)}}}).then(result => result.violations)"
    )
    return [f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}" for each in found]


def test_no_page_violates_a_rule_of_accessibility(opened: "Browser", address: str, hostile_stage: Stage) -> None:
    """axe-core, WCAG 2.2 AA and best practice: light and dark, desktop and phone; and no page scrolls sideways."""
    axe = axe_source()
    faults = []
    with served(hostile_stage.dashboard()) as hostile:
        places = [address + place for place in PLACES] + [f"{hostile}{place}" for place in ("/", "/tasks", "/runs")]
        places += [f"{hostile}/task?generation={number}" for number in (1, 11)]
        for look, context in contexts(opened):
            page = context.new_page()
            for place in places:
                page.goto(place)
                page.evaluate(axe)
                faults += [f"{look} {place}: {each}" for each in violations(page)]
                if (sideways := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
                    faults.append(f"{look} {place}: scrolls sideways by {sideways} px")
    assert faults == []


def test_axe_finds_a_fault_that_is_there(opened: "Browser", address: str) -> None:
    """The test above can fail."""
    axe = axe_source()
    context = opened.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(f"{address}/tasks")
    page.evaluate("document.querySelectorAll('label > span').forEach(each => each.remove())")
    page.evaluate(axe)
    assert any(each.startswith("select-name") for each in violations(page))
    context.close()


def test_hostile_names_run_no_script_and_ask_nobody(opened: "Browser", hostile_stage: Stage) -> None:
    with served(hostile_stage.dashboard()) as address:
        page = opened.new_page()
        witness = Witness(page, address)
        page.on("dialog", lambda dialog: witness.faults.append(f"dialog: {dialog.message}"))
        page.goto(f"{address}/tasks")
        links = page.eval_on_selector_all("tbody th a", "links => links.map(each => each.href)")
        assert len(links) == len(NAMES)
        for place in (f"{address}/", f"{address}/runs", *links):
            page.goto(place)
            assert page.locator("h1").count() == 1
        assert page.locator("nav a").first.is_visible()
        assert witness.faults == []
        page.close()


def test_no_page_says_anything_on_the_console_or_asks_another_host(opened: "Browser", address: str) -> None:
    """The content security policy blocks nothing that a page has; 4xx pages are reported by the browser itself."""
    page = opened.new_page()
    witness = Witness(page, address)
    for place in PLACES:
        page.goto(address + place)
        page.wait_for_load_state("load")
    assert [fault for fault in witness.faults if "Failed to load resource" not in fault] == []
    page.close()


def test_the_browser_asks_for_the_token_and_the_stream_has_it_too(opened: "Browser", stage: Stage) -> None:
    """Basic authentication: no login page, no cookie; pages, assets and events are all behind it."""
    app = dashboard(stage.path, token="secret", allowed_hosts=hosts_for("127.0.0.1", ()))
    with served(app) as address:
        context = opened.new_context(http_credentials={"username": "me", "password": "secret"})
        page = context.new_page()
        refused: list[str] = []
        page.on("response", lambda response: refused.append(response.url) if response.status == 401 else None)
        with page.expect_response("**/live") as stream:
            page.goto(f"{address}/")
        assert stream.value.status == 200
        assert "Overview" in page.inner_text("body")
        assert context.cookies() == []
        context.close()
