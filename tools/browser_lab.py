"""JupyterLab in Chromium, driven by keys and mouse as a reader drives it.

The tests in tests/browser/ and tools/widget_latency.py use it. Nothing leaves the
machine: server, browser and axe-core are all local. Screenshots are left in the folder
`screenshots/` of the repository, which git ignores. `make test-browser` installs what
it needs.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import nbformat
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
SHOTS = ROOT / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTINGS = {
    "notification": {"fetchNews": "false", "checkForUpdates": False},
}
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
SECONDS = 600
expect.set_options(timeout=120_000)  # for machines that do much else

# What JupyterLab is asked in its own words.
_IDLE = """() => window.jupyterapp?.shell.currentWidget?.context?.sessionContext
    .session?.kernel?.status === 'idle'"""
_RAN = """(least) => { const lab = window.jupyterapp.shell.currentWidget;
    const cells = [...lab.content.model.sharedModel.cells];
    return lab.context.sessionContext.session.kernel.status === 'idle' && cells.every(
        (cell) => cell.cell_type !== 'code' || cell.execution_count > least); }"""
_COUNT = """() => Math.max(0, ...[...window.jupyterapp.shell.currentWidget.content.model
    .sharedModel.cells].map((cell) => cell.execution_count ?? 0))"""
_OUTPUTS = """() => [...window.jupyterapp.shell.currentWidget.content.model
    .sharedModel.cells].map((cell) => cell.outputs ?? [])"""
_ASK = """async (code) => { const context = window.jupyterapp.shell.currentWidget
    .context; let said = '';
    const future = context.sessionContext.session.kernel.requestExecute({code});
    future.onIOPub = (message) => { said += message.content.text ?? ''; };
    await future.done; return said; }"""
_HAMMER = """(keys) => keys.forEach((key) => document.activeElement.dispatchEvent(
    new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true})))"""
# Milliseconds from a key press to the next change of the picture, drawn.
_LATENCY = """async ([key, times]) => {
    const slider = document.activeElement, view = slider.closest('.eagle3-view');
    const found = [];
    for (let i = 0; i < times; i++) {
        const press = typeof key === 'string' ? key : key[i % key.length];
        const start = performance.now();
        const seen = new Promise((done, fail) => {
            setTimeout(() => fail(new Error(`${press} changed nothing`)), 20000);
            new MutationObserver((_, watch) => {
                watch.disconnect(); requestAnimationFrame(() => done()); }).observe(
                view.querySelector('.eagle3-stage > div'), {childList: true}); });
        slider.dispatchEvent(new KeyboardEvent(
            'keydown', {key: press, bubbles: true, cancelable: true}));
        await seen;
        found.push(performance.now() - start);
        await new Promise((done) => setTimeout(done, 30));
    }
    return found; }"""


class Notebook:
    """A notebook in JupyterLab, with every cell run."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", self._refuse)

    def _refuse(self, dialog: Dialog) -> None:
        self.errors.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def outside(self) -> list[str]:
        """What the page asked of other machines."""
        local = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
        return [url for url in self.requests if not url.startswith(local)]

    def run_all(self) -> None:
        """Run every cell and wait for the last."""
        least = self.page.evaluate(_COUNT)
        self.command("notebook:run-all-cells")
        self.page.wait_for_function(_RAN, arg=least, timeout=SECONDS * 1000)

    def run_again(self) -> None:
        """Run every cell once more and wait until new widgets stand in the page."""
        old = self.page.locator(".eagle3-view").element_handles()
        self.run_all()
        for handle in old:
            self.page.wait_for_function("(view) => !view.isConnected", arg=handle)
        expect(self.views()).to_have_count(len(old))

    def command(self, name: str, **arguments: object) -> None:
        """One of JupyterLab's own commands."""
        self.page.evaluate(
            "([name, given]) => window.jupyterapp.commands.execute(name, given)",
            [name, arguments],
        )

    def set_theme(self, name: str) -> None:
        """Change JupyterLab's colours and wait until they have changed."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_function(
            "(name) => document.body.dataset.jpThemeName === name", arg=name
        )

    def views(self) -> Locator:
        """The explorers on the page."""
        return self.page.locator(".eagle3-view")

    def picture(self, at: int = 0) -> Locator:
        """The picture of one explorer."""
        return self.views().nth(at).locator(".eagle3-stage svg")

    def slider(self, name: str, at: int = 0) -> Locator:
        """A handle of one explorer, by its label."""
        return self.views().nth(at).get_by_role("slider", name=name, exact=True)

    def area(self, handle: Locator) -> dict[str, float]:
        """Where a handle is on the screen; the page is scrolled to it if need be."""
        handle.scroll_into_view_if_needed()
        return handle.bounding_box()

    def control(self, role: str, name: str, at: int = 0) -> Locator:
        """A control of one explorer, by its label."""
        explorer = self.page.locator(".eagle3-live").nth(at)
        return explorer.get_by_role(role, name=name, exact=True)

    def enter(self, name: str, text: object, at: int = 0) -> None:
        """Type into the field of that label, and press Enter."""
        explorer = self.page.locator(".eagle3-live").nth(at)
        field = explorer.get_by_label(name, exact=True)
        field.fill(str(text))
        field.press("Enter")

    def trouble(self, at: int = 0) -> Locator:
        """The sentence about refused input, empty where all is well."""
        return self.views().nth(at).locator("[role=alert]")

    def words(self, at: int = 0) -> str:
        """What the picture says now."""
        return self.picture(at).get_attribute("aria-label")

    def says(self, words: str, at: int = 0) -> None:
        """Wait until the picture's words hold these."""
        held = re.compile(re.escape(words))
        expect(self.picture(at)).to_have_attribute("aria-label", held)

    def changed_from(self, words: str, at: int = 0) -> None:
        """Wait until the picture's words are others."""
        expect(self.picture(at)).not_to_have_attribute("aria-label", words)

    def save(self) -> None:
        """Save the notebook, as at the end of a day."""
        self.command("docmanager:save")
        self.page.wait_for_function(
            "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
        )

    def outputs(self) -> list:
        """The outputs of all cells as they would be saved."""
        return self.page.evaluate(_OUTPUTS)

    def ask(self, code: str) -> str:
        """What the kernel prints when it runs this code."""
        return self.page.evaluate(_ASK, code)

    def hammer(self, keys: Sequence[str]) -> None:
        """Press these keys as fast as the page can; a handle has the focus."""
        self.page.evaluate(_HAMMER, list(keys))
        self.ask("")

    def latencies(self, keys: str | list[str], times: int = 60) -> list[float]:
        """Milliseconds from key press to changed picture; a handle has the focus."""
        return self.page.evaluate(_LATENCY, [keys, times])

    def violations(self) -> list[str]:
        """What axe-core finds serious or critical in the outputs."""
        found = Axe().run(self.page, context=".jp-OutputArea").response["violations"]
        return [
            f"{rule['id']}: {node['html'][:200]}"
            for rule in found
            for node in rule["nodes"]
            if rule["impact"] in ("serious", "critical")
        ]

    def shoot(self, name: str) -> None:
        """A screenshot of the page for people to look at."""
        SHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")


@contextmanager
def server(home: Path) -> Iterator[tuple[str, Path]]:
    """JupyterLab with settings of its own below `home`: its address and its folder."""
    (home / "root").mkdir()
    names = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    places = {f"JUPYTER_{name}": str(home / name) for name in names}
    for name in ("SETTINGS_DIR", "WORKSPACES_DIR"):
        places[f"JUPYTERLAB_{name}"] = str(home / name)
    settings = home / "SETTINGS_DIR" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.write_text(json.dumps(values), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": home / "root",
        "ServerApp.disable_check_xsrf": True,  # it is asked by us alone
        "IdentityProvider.token": "",
    }
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser"]
    command += ["--ip=127.0.0.1", "--expose-app-in-browser"]
    command += [f"--{name}={value}" for name, value in options.items()]
    # Kernels find the module and the examples of the tests.
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    places |= {"IPYTHONDIR": str(home / "IPYTHON"), "PYTHONPATH": paths}
    log = (home / "log").open("w", encoding="utf-8")
    process = subprocess.Popen(
        command, env={**os.environ, **places}, stdout=log, stderr=log
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/status", process, home / "log")
        yield address, home / "root"
    finally:
        process.terminate()
        process.wait(SECONDS)
        log.close()


def _wait_for(url: str, process: subprocess.Popen, log: Path) -> None:
    for _ in range(SECONDS * 2):
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url).close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')}")


def chromium() -> str | None:
    """Where the system has its Chromium, if it has one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, as the system installed it.

    Raises RuntimeError where there is none.
    """
    path = chromium()
    if path is None:
        raise RuntimeError("No Chromium found; on Debian: apt-get install chromium.")
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=path, args=list(QUIET))
        yield opened
        opened.close()


class Lab:
    """JupyterLab as a reader meets it: notebooks in windows of their own."""

    def __init__(self, browser: Browser, server: tuple[str, Path]) -> None:
        self.browser, (self.address, self.folder) = browser, server
        self.opened: list[Notebook] = []

    def copy(self, name: str, to: str) -> None:
        """Copy a saved notebook, as one takes it home."""
        shutil.copy(self.folder / f"{name}.ipynb", self.folder / f"{to}.ipynb")

    def open(self, name: str, *cells: str, run: bool = True) -> Notebook:
        """Make a notebook of these cells, if any, open it and run it."""
        if cells:
            fresh = nbformat.v4.new_notebook()
            fresh.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
            fresh.metadata.kernelspec = {"name": "python3", "display_name": "Python"}
            nbformat.write(fresh, self.folder / f"{name}.ipynb")
        page = self.browser.new_page(viewport={"width": 1100, "height": 900})
        page.set_default_timeout(120_000)
        notebook = Notebook(page)
        self.opened.append(notebook)
        url = f"{self.address}/doc/tree/{name}.ipynb?reset"
        page.goto(url, timeout=SECONDS * 1000)
        if run:
            page.wait_for_function(_IDLE, timeout=SECONDS * 1000)
            notebook.run_all()
        return notebook

    def close(self) -> list[str]:
        """Close all windows and end their kernels.

        Returns what the pages asked of other machines.
        """
        outside = [url for notebook in self.opened for url in notebook.outside()]
        for notebook in self.opened:
            notebook.page.close()
        self.opened.clear()
        for session in json.loads(self._ask("GET", "sessions")):
            self._ask("DELETE", f"sessions/{session['id']}")
        return outside

    def _ask(self, method: str, what: str) -> bytes:
        """One request to the server's own interface."""
        url = f"{self.address}/api/{what}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method)) as got:
            return got.read()


@contextmanager
def lab() -> Iterator[Lab]:
    """JupyterLab and a browser, in a folder that goes when they are closed."""
    with (
        tempfile.TemporaryDirectory() as home,
        server(Path(home)) as running,
        browser() as opened,
    ):
        fresh = Lab(opened, running)
        yield fresh
        fresh.close()
