"""The site: pages as it has them, what is checked when it was built, and what a browser makes of it from a disk."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from docs.site import check, llms
from docs.site.assemble import ROOT, Assembly, outside_code, pages, public_names
from docs.site.contents import API, CONTENTS, ELSEWHERE, FOLLOWED, FRONT
from docs.site.descriptions import DESCRIPTIONS, Kind
from docs.site.pictures import FOLDER, name_of, picture_of
from tests.conftest import missing
from tests.web.browser import browser

SITE = ROOT / "build" / "site"


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The source of the site."""
    made = Assembly(tmp_path_factory.mktemp("site") / "source")
    made.write()
    return made


# --- its source ------------------------------------------------------------------------------------------------------


def test_something_leads_to_every_page() -> None:
    """A page that is not in the navigation is found by nobody."""
    led_to = {FRONT, "README.md", *(name for names in CONTENTS.values() for name in names)}
    folders = (*(f"{name.rpartition('/')[0]}/" for name in FOLLOWED), "docs/decisions/")
    assert [name for name in pages() if name not in led_to and not name.startswith(folders)] == []


def test_links_of_a_page_hold_on_the_site(assembly: Assembly) -> None:
    """To pages that stand elsewhere, to files outside of the pages, and to themselves."""
    link = assembly.link
    assert link("docs/guide.md", "guide.md", "reference/events.md", "#fields") == "reference/events.md#fields"
    assert link("docs/operations.md", "operations.md", "../SECURITY.md", "") == "project/security.md"
    assert link("CONTRIBUTING.md", "project/contributing.md", "docs/guide.md", "#cron") == "../guide.md#cron"
    assert link("docs/reference/metrics.md", "reference/metrics.md", "", "#there") == "#there"
    assert link("docs/guide.md", "guide.md", "https://example.org/x.md", "#y") == "https://example.org/x.md#y"
    assert link("docs/operations.md", "operations.md", "../examples/duly.service", "") == (
        "repository/examples/duly.service"
    )
    assert (assembly.target / "repository/examples/duly.service").exists()


def test_the_first_page_begins_with_the_first_screen_of_the_readme(assembly: Assembly) -> None:
    """Before the list of pages; its links lead to the site's own pages."""
    front = (assembly.target / "index.md").read_text()
    readme = (ROOT / "README.md").read_text()
    shown, _, listed = front.partition("## Documentation")
    assert shown == readme[: readme.index("\n## ") + 1]
    assert "kill -9" in shown
    assert "coming from" in shown
    assert re.findall("^#.*", front, re.MULTILINE) == ["# duly", "## Documentation"]
    assert "[Tutorial](tutorial/index.md)" in listed


def test_every_link_of_the_source_leads_to_a_file(assembly: Assembly) -> None:
    """Sphinx says so, too, where it is installed."""
    paths = [assembly.target / page for name, page in pages().items() if name != "README.md"]
    assert [
        f"{path}: {target}"
        for path in paths
        for target in re.findall(r"\]\(([^)\s#]+)", outside_code(path.read_text()))
        if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists()
    ] == []


def test_code_is_left_as_it_is(assembly: Assembly) -> None:
    """Text in it that looks like a link is not one."""
    assert "[text](page.md#part)" not in outside_code("`[text](page.md#part)`")
    text = (assembly.target / "reference/api.md").read_text()
    assert 'assert public == ["initialize", "stop"]' in text


def test_anchors_of_the_specification_can_be_linked_to(assembly: Assembly) -> None:
    """They are HTML in the repository."""
    text = (assembly.target / "specification.md").read_text()
    assert "| [002 S1]{#at-002-s1} |" in text
    assert "<a id=" not in text
    assert assembly.link("docs/formal.md", "formal.md", "specification.md", "#002-s1") == "#at-002-s1"
    assert assembly.link("docs/specification.md", "specification.md", "", "#p12") == "#at-p12"


def test_a_picture_is_shown_as_drawn_or_as_text(assembly: Assembly, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never as a picture of an older text."""
    monkeypatch.setattr(assembly, "texts_of_pictures", [])
    drawn = next(FOLDER.glob("*.svg"))
    monkeypatch.setattr("docs.site.assemble.picture_of", lambda text: drawn if text == "flowchart\n" else None)
    assert assembly.picture("docs/x.md", "x.md", "flowchart\n").endswith(f"images/pictures/{drawn.name})")
    assert assembly.picture("docs/x.md", "x.md", "other\n") == "```text\nother\n```"
    assert assembly.texts_of_pictures == ["docs/x.md"]
    assert picture_of("a text that nobody has drawn") is None
    assert name_of("a") != name_of("b")


def test_pictures_and_screenshots_are_small() -> None:
    """They are in every checkout, for ever."""
    found = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".png", ".svg", ".webp")]
    assert found
    assert [path.name for path in found if path.stat().st_size > 200_000] == []


# --- the API ---------------------------------------------------------------------------------------------------------


def test_the_api_has_every_public_name(assembly: Assembly) -> None:
    """As many entries as there are names."""
    for module_name in API:
        page = (assembly.target / f"reference/api/{module_name}.md").read_text()
        assert len(re.findall(r"^\.\. (?:auto|py:data)", page, re.MULTILINE)) == len(
            public_names(import_module(module_name))
        )


# --- llms.txt --------------------------------------------------------------------------------------------------------


def test_llms_txt_lists_every_page_with_a_sentence() -> None:
    """And llms-full.txt has the text of all."""
    listed = llms.overview()
    places = set(pages().values()) - {"index.md"}
    assert set(re.findall(r"\]\(([^)]+)\.html\)", listed)) == {place.removesuffix(".md") for place in places}
    assert len(re.findall(r"\.html\): .{10,}\.$", listed, re.MULTILINE)) == len(places)
    full = llms.everything()
    assert all(f"<!-- {name} -->" in full for name in pages())


def test_every_page_has_a_kind_and_a_sentence() -> None:
    """docs/site/descriptions.py: each page once, described by a sentence of one line that no other page has."""
    assert sorted(DESCRIPTIONS) == sorted({*pages(), "README.md"})
    sentences = [each.sentence for each in DESCRIPTIONS.values()]
    assert [each for each in sentences if not re.fullmatch(r"[A-Z].{15,110}\.", each)] == []
    assert len(set(sentences)) == len(sentences)


def test_pages_to_learn_from_and_to_follow_are_short() -> None:
    """A tutorial or a how-to has at most 300 lines; a longer one is two pages."""
    followed = [name for name, each in DESCRIPTIONS.items() if each.kind in (Kind.TUTORIAL, Kind.HOW_TO)]
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in followed}
    assert {name: length for name, length in lengths.items() if length > 300} == {}
    assert len(followed) > 25


# --- what was built --------------------------------------------------------------------------------------------------


def test_faults_of_a_site_are_found(tmp_path: Path) -> None:
    """Links to nowhere, anchors that are not there, and anything from another host."""
    (tmp_path / "index.html").write_text(
        '<a href="a.html#there">1</a><a href="a.html#nowhere">2</a><a href="b.html">3</a><a href="https://x.org">4</a>'
        '<script src="https://x.org/x.js"></script><img src="data:image/png;base64,"><img src="gone.png">'
    )
    (tmp_path / "a.html").write_text('<p id="there"></p><a href="#">top</a>')
    for name in ("search.html", "searchindex.js", "llms.txt"):
        (tmp_path / name).write_text("")
    assert list(check.faults(tmp_path)) == [
        "index.html: leads to no anchor: a.html#nowhere",
        "index.html: leads to no file: b.html",
        "index.html: loads something from another host: https://x.org/x.js",
        "index.html: leads to no file: gone.png",
        "llms-full.txt is missing",
    ]


@pytest.mark.system
def test_the_site_works_from_a_disk() -> None:
    """In a browser without a server: search finds pages, pictures are there, no other host is asked."""
    if not (SITE / "index.html").exists():
        missing("build/site", "make docs")
    with browser() as opened:
        page = opened.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{SITE}/search.html?q=interrupted")
        found = page.locator("#search-results li a")
        found.filter(has_text="Glossary").first.wait_for()  # results are shown one by one
        found.filter(has_text="Specification").first.wait_for()
        page.goto(f"file://{SITE}/architecture.html")
        pictures = page.locator("img[src*='pictures']")
        for number in range(pictures.count()):
            pictures.nth(number).scroll_into_view_if_needed()
        page.wait_for_function("[...document.images].every(image => image.complete)")
        broken = page.evaluate("[...document.images].filter(image => image.naturalWidth === 0).map(each => each.src)")
        assert broken == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_pages_from_elsewhere_exist() -> None:
    """docs/site/contents.py names them by hand."""
    assert [name for name in ELSEWHERE if not (ROOT / name).is_file()] == []
