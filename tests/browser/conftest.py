"""One JupyterLab server and one Chromium for all tests; a notebook for each class.

They press keys and move a mouse as a reader does. `make test-browser` installs what
they need and runs them; screenshots are left in `screenshots/`.
"""

from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason="make test-browser installs what it needs")

import browser_lab
from shown_widgets import WIDGETS


@pytest.fixture(scope="session")
def browser() -> Iterator[browser_lab.Browser]:
    """Chromium, as the system installed it."""
    with browser_lab.browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple]:
    """JupyterLab: its address and its folder."""
    with browser_lab.server(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="class")
def lab(browser: browser_lab.Browser, server: tuple) -> Iterator[browser_lab.Lab]:
    """JupyterLab for the tests of one widget, which share what they open."""
    fresh = browser_lab.Lab(browser, server)
    yield fresh
    assert fresh.close() == [], "a page asked another machine"


@pytest.fixture(scope="class")
def opened(lab: browser_lab.Lab, request: pytest.FixtureRequest) -> list:
    """The notebook of a class, its widget in it twice; and how often it was used."""
    code = WIDGETS[request.cls.name].code
    return [lab.open(request.cls.name, code, code), 0]


@pytest.fixture
def notebook(opened: list) -> Iterator[browser_lab.Notebook]:
    """The notebook, run again for each test, as a reader does to begin anew."""
    notebook, uses = opened
    if uses:
        notebook.run_again()
    opened[1] += 1
    yield notebook
    assert notebook.errors == []
