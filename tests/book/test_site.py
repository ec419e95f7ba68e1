"""The built site, page by page: links, alt texts, widths, the dark, no error, offline.

`make book-check` builds the site and runs this; pages are opened as files, as by a
reader without a server. Screenshots are left in `screenshots/book/`, which git ignores.
"""

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import make_book as book
import pytest

pytest.importorskip("playwright", reason="make book-check installs what it needs")

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

if not (book.SITE / "index.html").is_file():
    pytest.skip("make book-check builds the site first", allow_module_level=True)

SHOTS = book.ROOT / "screenshots" / "book"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDTHS = (375, 768, 1440)
FILES = [  # the theme leaves a template among the pages
    path for path in sorted(book.SITE.rglob("*.html")) if "_static" not in path.parts
]
PAGES = [path.relative_to(book.SITE).as_posix() for path in FILES]
READ = ["index.html", *(f"notebooks/{name}.html" for name in book.chapters())]
_WIDE = """() => [...document.querySelectorAll('.bd-article *')].filter((part) =>
    part.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(part)
    .position !== 'fixed' && !part.closest('pre, mjx-container, div.math, ' +
    '.pst-scrollable-table-container')).map((part) => part.outerHTML.slice(0, 120))"""
_UNFOLD = """() => document.querySelectorAll('details').forEach(
    (part) => { part.open = true; })"""
_PICTURES = """() => [...document.images].map((picture) => [picture.naturalWidth,
    picture.getAttribute('src')])"""


class Parts(HTMLParser):
    """What a page links to, loads, names and shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.pictures: list[dict[str, str | None]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        """Sort one element's addresses."""
        values = dict(given)
        self.names |= {values[key] or "" for key in ("id", "name") if key in values}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        if tag == "img":
            self.pictures.append(values)
        if tag in ("script", "img", "iframe", "source") and values.get("src"):
            self.loads.append(values["src"] or "")
        if tag == "link" and values.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(values["href"] or "")


SITE = {path: Parts(path) for path in FILES}


def leads_nowhere(page: Path, link: str) -> bool:
    """A link into the site whose file or whose place in the file is missing."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not file.is_file():
        return True
    if not parts.fragment or file.suffix != ".html":
        return False
    return unquote(parts.fragment) not in SITE[file].names


@pytest.mark.parametrize("path", FILES, ids=PAGES)
def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(path: Path) -> None:
    parts = SITE[path]
    every = [link for link in parts.links + parts.loads if link != "#"]
    assert [link for link in every if leads_nowhere(path, link)] == []
    assert [link for link in parts.loads if urlsplit(link).netloc] == []


@pytest.mark.parametrize("path", FILES, ids=PAGES)
def test_every_picture_has_words(path: Path) -> None:
    without = [
        p["src"] for p in SITE[path].pictures if not (p.get("alt") or "").strip()
    ]
    assert without == []


def test_every_chapter_is_there_with_badge_and_neighbours() -> None:
    for i, name in enumerate(book.chapters()):
        html = (book.SITE / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert 'class="run-chapter"' in html, name
        assert f'href="{name}.ipynb"' in html, name
        assert html.count('class="left-prev"') == 1, name
        assert html.count('class="right-next"') == (i + 1 < len(book.chapters())), name


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, as the system installed it."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail("No Chromium found; on Debian run 'apt-get install chromium'.")
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=path, args=list(QUIET))
        yield opened
        opened.close()


class Reader:
    """A window on the site that takes note of all that goes wrong in it."""

    def __init__(self, browser: Browser, width: int, scheme: str = "light") -> None:
        view = {"width": width, "height": 900}
        self.page: Page = browser.new_page(viewport=view, color_scheme=scheme)
        self.page.set_default_timeout(120_000)
        self.trouble: list[str] = []
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("requestfailed", lambda r: self.trouble.append(f"failed: {r.url}"))
        self.page.on("console", self._listen)
        self.page.on("request", self._watch)

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type == "error":  # the widgets' scripts warn of themselves
            self.trouble.append(message.text)

    def _watch(self, request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.trouble.append(f"asked for {request.url}")

    def open(self, name: str, query: str = "") -> None:
        """Open a page of the site as a file and wait for its formulas."""
        self.page.goto((book.SITE / name).as_uri() + query)
        self.page.wait_for_function(
            "() => !window.MathJax?.startup || MathJax.startup.promise"
        )
        self.page.evaluate("async () => { await window.MathJax?.startup?.promise; }")

    def shoot(self, name: str) -> None:
        """A screenshot of what is in the window."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_load_without_trouble(browser: Browser, width: int) -> None:
    reader = Reader(browser, width)
    for name in READ:
        reader.open(name)
        page = reader.page
        page.evaluate(_UNFOLD)
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= width, f"{name} scrolls sideways"
        assert page.evaluate(_WIDE) == [], f"{name} is cut off"
        assert page.locator("mjx-merror").count() == 0, f"{name}: a broken formula"
        empty = [src for size, src in page.evaluate(_PICTURES) if not size]
        assert empty == [], f"{name}: pictures that don't show"
        reader.shoot(f"{Path(name).stem}_{width}")
    assert reader.trouble == []
    reader.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_dark_keeps_pictures_on_white(browser: Browser, width: int) -> None:
    reader = Reader(browser, width, "dark")
    reader.open(READ[1])
    expect(reader.page.locator("html")).to_have_attribute("data-theme", "dark")
    picture = reader.page.locator(".bd-article .cell_output img").first
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_css("background-color", "rgb(255, 255, 255)")
    expect(picture).to_have_css("filter", "none")
    reader.shoot(f"dark_{width}")
    assert reader.trouble == []
    reader.page.close()


def test_formulas_are_set() -> None:
    """Pages with formulas load the script that sets them, and it is in the site."""
    with_formulas = [p for p in FILES if 'class="math' in p.read_text(encoding="utf-8")]
    assert with_formulas
    for path in with_formulas:
        assert any("mathjax.js" in load for load in SITE[path].loads), path.name


def test_the_search_finds_chapters(browser: Browser) -> None:
    reader = Reader(browser, 1440)
    reader.open("search.html", "?q=residual")
    found = reader.page.locator("#search-results ul.search li")
    expect(found.first).to_be_visible()
    names = found.locator("a").evaluate_all("(links) => links.map((a) => a.href)")
    assert any("02_accept_or_resample" in name for name in names)
    reader.shoot("search")
    reader.page.close()


def test_widgets_that_left_pictures_behind_move_without_a_kernel(
    browser: Browser,
) -> None:
    """Only a site of freshly run chapters has them."""
    alive = [
        name for name in READ if "left_behind" in (book.SITE / name).read_text("utf-8")
    ]
    for name in alive:
        reader = Reader(browser, 1440)
        reader.open(name)
        view = reader.page.locator(".eagle3-view").first
        picture = view.locator(".eagle3-stage svg")
        expect(picture).to_be_visible(timeout=120_000)
        words = picture.get_attribute("aria-label")
        moved = []
        for key in ("ArrowRight", "ArrowLeft"):
            for slider in view.get_by_role("slider").all():
                slider.press(key)
                moved.append(picture.get_attribute("aria-label") != words)
        assert any(moved), name
        reader.shoot(f"{Path(name).stem}_alive")
        assert reader.trouble == [], name
        reader.page.close()


def test_a_click_leads_on(browser: Browser) -> None:
    reader = Reader(browser, 1440)
    reader.open(READ[1])
    reader.page.locator("a.right-next").click()
    expect(reader.page).to_have_url(re.compile(re.escape(READ[2])))
    assert reader.trouble == []
    reader.page.close()
