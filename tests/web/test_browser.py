"""The dashboard in a real browser: keys, live updates, no JavaScript, no message, no foreign request, accessibility."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from duly.web import dashboard
from duly.web.server import hosts_for
from tests.cli.program import duly, write_target
from tests.programs import ROOT
from tests.stores.helpers import change
from tests.stores.made import Row, make_store
from tests.web.browser import WIDTHS, axe_source, browser, served
from tests.web.conftest import Stage
from tests.web.hostile import NAMES
from tests.web.shared_stage import SharedPast

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
    "/verify",
    "/whatif",
    "/whatif?from=2026-10-27&to=2026-10-28&down=2026-10-27T02:30..2026-10-27T05:30&crash=2026-10-27T08:05",
    "/whatif?from=2026-10-28&to=2026-10-27",
    "/task?name=nobody",
    "/runs?since=soon",
    "/nowhere",
)
SHARED_PLACES = ("/", "/tasks?state=running", f"/task?name={quote(FAILING)}", "/runs", "/about", "/verify")
"""Pages that a store shared by hosts makes different."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def opened(stage: Stage, hostile_stage: Stage, traced_stage: Stage, shared: SharedPast) -> Iterator["Browser"]:
    """One browser for all tests; stores are made before it, because it brings an event loop."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def address(stage: Stage) -> Iterator[str]:
    with served(stage.dashboard()) as found:
        yield found


@pytest.fixture(scope="module")
def shared_address(shared: SharedPast) -> Iterator[str]:
    with served(shared.dashboard()) as found:
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


def test_a_section_that_a_page_did_not_have_appears_and_goes_without_a_reload(
    opened: "Browser", tmp_path: Path
) -> None:
    """The first failure of a task; what the user types meanwhile stays."""
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.1)) as address:
        page = opened.new_page()
        witness = Witness(page, address)
        page.goto(f"{address}/task?name=first")
        page.evaluate("window.stays = true")
        page.fill("input[name=at]", "2026-10-25T02:30")
        assert page.locator("#failure").count() == 0
        change(
            store,
            "INSERT INTO runs (seq, run, generation, cause, scheduled, started_at, ended_at, outcome, error) "
            "VALUES (1, 1, 1, 'cron', 1, 1, 2, 'failure', 'KeyError: 7')",
        )
        page.wait_for_selector("#failure >> text=KeyError: 7", timeout=30_000)
        ids = page.eval_on_selector_all("main section", "found => found.map(each => each.id)")
        assert ids == ["days", "took", "why", "next", "state", "failure", "runs"]
        change(store, "DELETE FROM runs")
        page.wait_for_selector("#failure", state="detached", timeout=30_000)
        assert page.evaluate("window.stays") is True
        assert page.input_value("input[name=at]") == "2026-10-25T02:30"
        assert witness.faults == []
        page.close()


def test_an_error_of_something_in_between_leaves_the_page_as_it_is(opened: "Browser", tmp_path: Path) -> None:
    """A proxy whose dashboard is being restarted answers with a page of its own."""
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.1)) as address:
        page = opened.new_page()
        page.goto(f"{address}/tasks")
        page.route("**/tasks", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
        with page.expect_response(lambda answer: answer.status == 502):
            change(store, "UPDATE tasks SET name = 'second'")
        page.evaluate("new Promise(done => setTimeout(done))")  # what follows the answer is done
        assert page.locator("#list >> text=first").count() == 1
        page.unroute("**/tasks")
        change(store, "UPDATE tasks SET name = 'third'")
        page.wait_for_selector("text=third", timeout=30_000)
        page.close()


def test_a_page_without_a_connection_says_so(opened: "Browser", tmp_path: Path) -> None:
    """Nothing that may have changed is shown as fine."""
    store = make_store(tmp_path / "state.db", [Row("first")])
    said = "getComputedStyle(document.querySelector('main'), '::before').content"
    with served(dashboard(store, refresh=0.1)) as address:
        page = opened.new_page()
        page.goto(f"{address}/tasks")
        change(store, "UPDATE tasks SET name = 'second'")
        page.wait_for_selector("text=second", timeout=30_000)
        assert page.evaluate(said) == "none"
    page.wait_for_selector("html.lost", timeout=30_000)
    assert "Not connected" in page.evaluate(said)
    page.close()


def test_a_page_connects_again_after_an_answer_that_is_no_stream(opened: "Browser", tmp_path: Path) -> None:
    """A proxy answers with 502 while its dashboard is restarted; the browser itself gives up then, for good."""
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.1)) as address:
        page = opened.new_page()
        page.add_init_script(HIDDEN % 100)  # a tenth of a second instead of fifteen
        page.route("**/live?*", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
        page.goto(f"{address}/tasks")
        page.wait_for_selector("html.lost", timeout=30_000)
        page.unroute("**/live?*")
        page.wait_for_selector("html:not(.lost)", timeout=30_000)
        change(store, "UPDATE tasks SET name = 'second'")
        page.wait_for_selector("text=second", timeout=30_000)
        page.close()


HIDDEN = """
window.hiddenNow = true;
window.delays = [];
Object.defineProperty(document, "hidden", { get: () => window.hiddenNow });
const wait = window.setTimeout;
window.setTimeout = (work, milliseconds) => {
  window.delays.push(milliseconds);
  return wait(work, milliseconds === 15000 ? %d : milliseconds);
};
"""


def test_a_hidden_page_follows_a_store_that_never_rests(opened: "Browser", tmp_path: Path) -> None:
    """Changes come more often than a hidden page asks for itself; here it waits one second instead of fifteen."""
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.05)) as address:
        page = opened.new_page()
        page.add_init_script(HIDDEN % 1000)
        page.goto(f"{address}/tasks")
        for number in range(300):
            change(store, "UPDATE tasks SET name = ?", f"name {number}")
            page.wait_for_timeout(100)
            if page.inner_text("tbody a") != "first":
                break
        assert page.inner_text("tbody a") != "first"
        assert set(page.evaluate("window.delays")) == {15_000}
        page.close()


def test_a_page_that_is_shown_again_asks_at_once(opened: "Browser", tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.05)) as address:
        page = opened.new_page()
        page.add_init_script(HIDDEN % 3_600_000)
        page.goto(f"{address}/tasks")
        change(store, "UPDATE tasks SET name = 'second'")
        for _ in range(300):  # not `wait_for_function`, which the policy of the page forbids
            if page.evaluate("window.delays.length"):
                break
            page.wait_for_timeout(100)
        assert page.evaluate("window.delays.length") > 0
        assert page.inner_text("tbody a") == "first"
        page.evaluate("window.hiddenNow = false; document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_selector("text=second", timeout=30_000)
        page.close()


def test_what_has_the_focus_is_not_replaced(opened: "Browser", tmp_path: Path) -> None:
    """A reader of the list with the keyboard keeps the place; the list follows when the focus has left it."""
    store = make_store(tmp_path / "state.db", [Row("first")])
    with served(dashboard(store, refresh=0.1)) as address:
        page = opened.new_page()
        page.goto(f"{address}/tasks")
        page.locator("tbody a").focus()
        for name in ("second", "third"):  # the page asks for itself, and takes nothing over
            with page.expect_response(f"{address}/tasks") as answer:
                change(store, "UPDATE tasks SET name = ?", name)
            answer.value.finished()
        assert page.inner_text("tbody a") == "first"
        page.evaluate("document.activeElement.blur()")
        change(store, "UPDATE tasks SET name = 'fourth'")
        page.wait_for_selector("text=fourth", timeout=30_000)
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
    """A page shows without JavaScript what it shows with it."""
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


def faults_of(opened: "Browser", places: Sequence[str]) -> list[str]:
    """Findings of axe-core, WCAG 2.2 AA and best practice: light, dark, desktop, phone; and sideways scrolling."""
    axe = axe_source()
    faults = []
    for look, context in contexts(opened):
        page = context.new_page()
        for place in places:
            page.goto(place)
            page.evaluate(axe)
            faults += [f"{look} {place}: {each}" for each in violations(page)]
            if (sideways := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
                faults.append(f"{look} {place}: scrolls sideways by {sideways} px")
    return faults


@pytest.mark.long
def test_no_page_violates_a_rule_of_accessibility(
    opened: "Browser", address: str, shared_address: str, hostile_stage: Stage, traced_stage: Stage
) -> None:
    with served(hostile_stage.dashboard()) as hostile, served(traced_stage.dashboard()) as traced:
        places = [address + place for place in PLACES] + [f"{hostile}{place}" for place in ("/", "/tasks", "/runs")]
        places += [f"{hostile}/task?generation={number}" for number in (1, 11)]
        places += [f"{hostile}/whatif?from=now", f"{traced}/verify"]
        places += [shared_address + place for place in SHARED_PLACES]
        assert faults_of(opened, places) == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, traced_stage: Stage) -> list[Path]:
    """Pages that the commands wrote with --html: plans, verdicts with and without a violation, a simulation."""
    folder = tmp_path_factory.mktemp("files")
    declared = ", ".join(f'({name!r}, "0,30 * * * *", quick, timedelta(minutes=1))' for name in NAMES[:10])
    target = write_target(folder, f'[("export", "0,5 * * * *", quick, timedelta(minutes=1)), {declared}]')
    times = ("--from", "2027-03-27T22:00", "--to", "2027-03-28T22:00", "--tz", "Europe/Berlin")
    trouble = ("--down", "2027-03-27T23:15..2027-03-28T01:10", "--crash-at", "2027-03-28T07:00:10", "--fail", "*=20%")
    commands: list[tuple[str | Path, ...]] = [
        ("plan", target, "--store", traced_stage.path),
        ("plan", target, "--store", "new.db"),
        ("verify", traced_stage.path),
        ("verify", ROOT / "examples" / "traces" / "overlap-after-a-pause.jsonl"),
        ("simulate", target, *times, *trouble, "--duration", "*=20"),
    ]
    written = []
    for number, command in enumerate(commands):
        written.append(folder / f"{command[0]}-{number}.html")
        assert duly(*command, "--html", written[-1], folder=folder).code in {0, 1}
    return written


def test_a_file_asks_for_nothing_and_says_nothing_on_the_console(opened: "Browser", files: list[Path]) -> None:
    """Its content security policy blocks nothing that it has, and it has its style."""
    for file in files:
        page = opened.new_page()
        witness = Witness(page, "file://elsewhere")  # which reports every request
        page.goto(file.as_uri())
        page.wait_for_load_state("load")
        assert witness.faults == [f"foreign request: {file.as_uri()}"]
        assert page.evaluate("getComputedStyle(document.querySelector('.card')).borderTopLeftRadius") == "10px"
        cut = "all => all.filter(each => each.scrollWidth > each.clientWidth).length"
        assert page.eval_on_selector_all(".err.whole", cut) == 0
        page.close()


def test_no_file_violates_a_rule_of_accessibility(opened: "Browser", files: list[Path]) -> None:
    assert faults_of(opened, [file.as_uri() for file in files]) == []


def test_nothing_is_cut_beside_free_space(opened: "Browser", hostile_stage: Stage) -> None:
    """An error ends where its table does; the last row of figures is filled; no card is stretched."""
    with served(hostile_stage.dashboard()) as address:
        page = opened.new_page(viewport={"width": 1320, "height": 1000})
        page.goto(f"{address}/")
        beside = page.eval_on_selector_all(
            "#troubles .err",
            "errors => errors.filter(each => each.scrollWidth > each.clientWidth).map(each => "
            "each.closest('table').getBoundingClientRect().right - each.getBoundingClientRect().right)",
        )
        assert all(free < 2 for free in beside)
        assert page.eval_on_selector("#troubles .err", "each => each.clientWidth") > 500
        assert page.eval_on_selector("#running", "card => card.clientHeight") < 120
        page.set_viewport_size({"width": 390, "height": 844})
        page.evaluate("tiles.append(tiles.firstElementChild.cloneNode(true))")  # seven, as with interrupted tasks
        right = page.eval_on_selector_all(
            ".tile", "all => all.map(each => Math.round(each.getBoundingClientRect().right))"
        )
        assert len(right) == 7
        assert right[-1] == max(right)
        page.goto(f"{address}/tasks")
        lines = page.eval_on_selector_all("th.name > a", "all => all.map(each => each.clientHeight / 20.3)")
        assert 2.5 < max(lines) < 3.5
        page.close()


def test_wide_pictures_show_that_they_go_on(opened: "Browser", address: str) -> None:
    """At the edge of a narrow screen they fade; where there is room there is no shade."""
    for width, shades in ((390, True), (1320, False)):
        page = opened.new_page(viewport={"width": width, "height": 844})
        for place in ("/calendar", f"/task?name={quote(FAILING)}"):
            page.goto(address + place)
            shade = page.evaluate(
                "getComputedStyle(document.querySelector('.scroll:has(svg.wide)'), '::after').position"
            )
            assert (shade == "sticky") == shades
        page.close()


def test_wide_pictures_show_the_hour_in_question_on_a_phone(opened: "Browser", address: str) -> None:
    """The present one, or the one that a week begins with, and not the midnight that all days begin with."""
    page = opened.new_page(viewport={"width": 390, "height": 844})

    def hours() -> tuple[float, float]:
        """The hours at both edges of the screen."""
        left, seen, whole = page.eval_on_selector(
            "[data-hour]", "each => [each.scrollLeft, each.clientWidth, each.scrollWidth]"
        )
        assert whole > seen
        return 24 * left / whole, 24 * (left + seen) / whole

    for place, hour in (("/calendar?from=2027-03-01T12:00", 12), ("/calendar?from=2027-03-01T23:30", 23.5)):
        page.goto(address + place)
        first, last = hours()
        assert first < hour < last
    page.goto(f"{address}/calendar?from=2027-03-01T00:00")
    assert hours()[0] == 0
    page.goto(f"{address}/task?name={quote(FAILING)}")
    share = page.eval_on_selector("#days [data-hour]", "each => each.dataset.hour")
    first, last = hours()
    assert first - 0.1 <= 24 * float(share) <= last + 0.1
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("scripted", [True, False], ids=["script", "no script"])
def test_the_days_of_a_picture_are_named_wherever_it_is_scrolled(
    opened: "Browser", address: str, scheme: Any, scripted: bool
) -> None:
    """On a phone: the names stand at the left edge, on the ground of their card, each beside its row."""
    context = opened.new_context(
        viewport={"width": 390, "height": 844}, color_scheme=scheme, java_script_enabled=scripted
    )
    page = context.new_page()
    for place, rows in (("/calendar", 8), (f"/task?name={quote(FAILING)}", 14)):
        page.goto(address + place)
        region = page.locator(".scroll:has(.rows)")
        for wheel in (0, 5_000):
            region.hover()
            page.mouse.wheel(wheel, 0)
            page.wait_for_timeout(200)
            edge, names = region.bounding_box(), region.locator(".labels").bounding_box()
            picture = region.locator("[role=img]").bounding_box()
            assert edge is not None
            assert names is not None
            assert picture is not None
            assert names["x"] == pytest.approx(edge["x"], abs=0.5)
            assert names["height"] == pytest.approx(picture["height"], abs=0.5)
            assert region.locator(".labels text").count() == rows
            widest = max(each.bounding_box()["width"] for each in region.locator(".labels text").all())  # type: ignore[index]
            assert 40 < widest < names["width"]
            at_its_end = picture["x"] + picture["width"] <= edge["x"] + edge["width"]
            assert at_its_end == (wheel > 0)
        ground = "each => getComputedStyle(each).backgroundColor"
        card = page.locator(".card:has(.rows)").evaluate(ground)
        assert region.locator(".labels").evaluate(ground) == card
        assert not card.startswith("rgba")  # it hides what is scrolled below it
    context.close()


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


def test_no_page_says_anything_on_the_console_or_asks_another_host(
    opened: "Browser", address: str, shared_address: str
) -> None:
    """The content security policy blocks nothing that a page has; 4xx pages are reported by the browser itself."""
    for begin, places in ((address, PLACES), (shared_address, SHARED_PLACES)):
        page = opened.new_page()
        witness = Witness(page, begin)
        refused = 0
        for place in places:
            answer = page.goto(begin + place)
            assert answer is not None
            refused += answer.status >= 400
            page.wait_for_load_state("load")
        reported = [fault for fault in witness.faults if "Failed to load resource" in fault]
        assert len(reported) <= refused  # a style sheet or a script that is missing would be one more
        assert [fault for fault in witness.faults if fault not in reported] == []
        page.close()


def test_what_the_policy_forbids_is_reported(opened: "Browser", address: str) -> None:
    """The test above can fail: the browser says on the console what the policy has blocked."""
    page = opened.new_page()
    witness = Witness(page, address)
    page.goto(f"{address}/tasks")
    page.evaluate("document.body.setAttribute('style', 'color: red')")
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    assert page.evaluate("window.ran") is None
    assert sum("Content Security Policy" in fault for fault in witness.faults) >= 1
    page.close()


def test_the_browser_asks_for_the_token_and_the_stream_has_it_too(opened: "Browser", stage: Stage) -> None:
    """Basic authentication: no login page, no cookie; pages, assets and events are all behind it."""
    app = dashboard(stage.path, token="secret", allowed_hosts=hosts_for("127.0.0.1", ()))
    with served(app) as address:
        context = opened.new_context(http_credentials={"username": "me", "password": "secret"})
        page = context.new_page()
        refused: list[str] = []
        page.on("response", lambda response: refused.append(response.url) if response.status == 401 else None)
        with page.expect_response("**/live?*") as stream:
            page.goto(f"{address}/")
        assert stream.value.status == 200
        assert "Overview" in page.inner_text("body")
        assert context.cookies() == []
        context.close()
