"""Builds the book as a static site: every chapter a page, readable without a network.

`make book` runs the chapters afresh and builds from those copies; `make book
OUTPUTS=saved` takes what is saved in the repository. The notebooks themselves are not
touched. What is not in the repository, the scripts that typeset formulas and show
widgets, comes from npm in fixed versions and is checked before use. The site lies in
build/book/html and can be opened as a file.

A widget without Python behind it is dead, so pages show its still picture. One that
left pictures behind for such pages stays alive, if its chapter was run afresh.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
from execute_notebooks import WIDGET, run
from nbformat import NotebookNode
from readme import CHAPTERS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
PARTS = ROOT / "book"
BUILD = ROOT / "build" / "book"
SITE = BUILD / "html"
BRANCH = "main"


@dataclass(frozen=True)
class Script:
    """A file of a package of npm, and the name that it has in the site."""

    package: str
    sha512: str  # of the package
    path: str
    name: str


SCRIPTS = (
    Script(  # formulas as SVG: one file, no fonts
        "mathjax@3.2.2",
        "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+"
        "geW0OhGw==",
        "package/es5/tex-svg-full.js",
        "mathjax.js",
    ),
    Script(
        "requirejs@2.3.7",
        "DouTG8T1WanGok6Qjg2SXuCMzszOo0eHeH9hDZ5Y4x8Je+9JB38HdTLT4/VA8OaUhBa0JPVHJ0pyBk"
        "M1z+pDsw==",
        "package/require.js",
        "require.js",
    ),
    Script(
        "@jupyter-widgets/html-manager@1.0.15",
        "5thBIV6ymNgmPVOHvzx+gGy8ZSKmSazhtGw4/c4xJDVzRhG9PTeQsRjF3FUTopvFi//SABeNz1yp47"
        "bCrJ3CQA==",
        "package/dist/embed-amd.js",
        "embed-amd.js",
    ),
)
_ICONS = Path("@jupyter-widgets", "html-manager", "dist")
_STATE = "application/vnd.jupyter.widget-state+json"
_LINK = re.compile(r"\]\((\.\./[^)#\s]+)")


def chapters() -> list[str]:
    """The names of the chapters and appendices that exist, in the book's order."""
    return [name for name in CHAPTERS if (NOTEBOOKS / f"{name}.ipynb").is_file()]


def public_address(given: str) -> str:
    """Where readers find the repository: https://github.com/OWNER/NAME, or "".

    given: what make's variable REPOSITORY says; where it says nothing, the clone's
        origin is asked, and an origin elsewhere than on GitHub counts as none
    Raises ValueError for an address that Binder and Colab could not open.
    """
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    origin = (
        given
        or subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8"
        ).stdout
    )
    shape = r"(?:https://|git@)github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?"
    found = re.fullmatch(shape, origin.strip())
    if found:
        return f"https://github.com/{found[1]}"
    if given:
        raise ValueError(
            f"{given!r} is no address of a repository that Binder and Colab can open: "
            "give one such as https://github.com/OWNER/NAME, or none."
        )
    return ""


def run_links(name: str, address: str) -> dict[str, str]:
    """Label -> link of each place where a chapter can be run, or taken from.

    address: of `public_address`; without one only the notebook itself is left
    """
    links = {}
    if address:
        project = address.removeprefix("https://github.com/")
        file = quote(f"notebooks/{name}.ipynb")
        links["Binder"] = (
            f"https://mybinder.org/v2/gh/{project}/{BRANCH}?urlpath="
            + quote(f"lab/tree/{file}", safe="")
        )
        colab = "https://colab.research.google.com/github"
        links["Colab"] = f"{colab}/{project}/blob/{BRANCH}/{file}"
    return {**links, "Notebook": f"{name}.ipynb"}


def badge(name: str, address: str) -> str:
    """The line under a chapter's title that says where to run it, as HTML."""
    parts = []
    for label, link in run_links(name, address).items():
        more = ' download=""' if label == "Notebook" else ""
        title = {"Notebook": "download this page as a notebook"}.get(
            label, f"run this chapter on {label}"
        )
        parts.append(f'<a href="{escape(link)}" title="{title}"{more}>{label}</a>')
    home = "<span>on your machine: <code>make lab</code></span>"
    line = ["<span>Run this chapter:</span>", *parts, home]
    return f'<div class="run-chapter">{"".join(line)}</div>'


def colab_note(address: str) -> str:
    """What Colab needs before a chapter's first cell, folded, as HTML."""
    if not address:
        return ""
    commands = f"!git clone -q {address} book\n%pip install -q -e ./book"
    return (
        "<details><summary>On Colab, install the module first</summary>"
        f"<pre>{escape(commands)}</pre>Run this in a cell of its own, restart the "
        "session when Colab asks for it, then run the chapter.</details>"
    )


def page(notebook: NotebookNode, name: str, address: str, pictures: Path) -> None:
    """Turns a notebook into a page, in place.

    Below the title comes the badge. Pictures go to files of the folder `pictures`, with
    their words as alt texts, and what was printed below as words becomes a caption.
    Widgets without pictures for a page without a kernel go, and their stills stay.
    """
    alive = keep_alive(notebook)
    first = notebook.cells[0]
    title, _, rest = first.source.partition("\n")
    line = f"{badge(name, address)}\n{colab_note(address)}".strip()
    first.source = f"{title}\n\n{line}\n\n{rest}"
    files = (pictures / f"{name}-{i}" for i in count())
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _shown(cell.outputs, alive, files)


def keep_alive(notebook: NotebookNode) -> set[str]:
    """Ids of the widgets that work without a kernel; the state of all others goes."""
    widgets = notebook.metadata.get("widgets", {}).get(_STATE, {})
    models, alive, kept = widgets.get("state", {}), set(), set()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            shown = output.get("data", {}).get(WIDGET, {}).get("model_id")
            parts = _parts(shown, models)
            if any(models[p].state.get("left_behind", {}).get("walked") for p in parts):
                alive.add(shown)
                kept |= parts
    if kept:
        widgets["state"] = {part: models[part] for part in sorted(kept)}
    else:
        notebook.metadata.pop("widgets", None)
    return alive


def _parts(model: str | None, models: Mapping[str, Any]) -> set[str]:
    """A widget and all that it is made of, by id; nothing for one without a state."""
    found: set[str] = set()
    waiting = [model]
    while waiting:
        part = waiting.pop()
        if part in models and part not in found:
            found.add(part)
            waiting += re.findall(r"IPY_MODEL_(\w+)", json.dumps(models[part]))
    return found


def _shown(
    outputs: list[NotebookNode], alive: set[str], files: Iterator[Path]
) -> list[NotebookNode]:
    """The outputs of a cell as the page shows them. files: names for its pictures"""
    shown: list[NotebookNode] = []
    for output in outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            shown += _with_caption(output)
        elif data.get(WIDGET, {}).get("model_id") in alive:
            shown[-1:] = [output]  # in the place of its still picture
        else:
            data.pop(WIDGET, None)
            for kind, ending in (("image/svg+xml", "svg"), ("image/png", "png")):
                if kind in data:
                    file = next(files).with_suffix(f".{ending}")
                    _write_picture(file, data.pop(kind))
                    source = f"../{file.parent.name}/{file.name}"
                    alt = escape(_words(output, kind))
                    data["text/html"] = f'<img src="{source}" alt="{alt}">'
            shown.append(output)
    return shown


def _with_caption(printed: NotebookNode) -> list[NotebookNode]:
    """What was printed; if it begins with a picture's words, they become a caption."""
    words, _, rest = printed.text.partition("\n")
    if not words.startswith("Figure: "):
        return [printed]
    html = {"text/html": f'<p class="picture-words">{escape(words)}</p>'}
    printed.text = rest
    return [nbformat.v4.new_output("display_data", html), *([printed] if rest else [])]


def _write_picture(file: Path, content: str) -> None:
    if file.suffix == ".svg":
        file.write_text(content, encoding="utf-8")
    else:
        file.write_bytes(base64.b64decode(content))


def _words(output: NotebookNode, kind: str) -> str:
    """The alt text of a picture: its own, or the words beside it."""
    alt = output.metadata.get(kind, {}).get("alt")
    return alt or output.data["text/plain"].removeprefix("Figure: ")


def contents(names: list[str]) -> str:
    """The table of contents of the start page, which is also the side bar's."""
    lines = ["| chapter | what it is about |", "|---|---|"]
    for name in names:
        title, subject = CHAPTERS[name]
        number = name.split("_")[0].lstrip("0") or "0"
        label = title if title.startswith("Appendix") else f"{number}. {title}"
        lines.append(f"| [{label}](notebooks/{name}.ipynb) | {subject} |")
    groups = {
        "Chapters": [name for name in names if name[0].isdigit()],
        "Appendices": [name for name in names if not name[0].isdigit()],
    }
    for caption, group in groups.items():
        if group:
            lines += ["", "```{toctree}", ":hidden:", f":caption: {caption}", ""]
            lines += [f"notebooks/{name}" for name in group] + ["```"]
    return "\n".join(lines)


def fetch(script: Script, folder: Path) -> Path:
    """A script out of its package from npm, which must have the right checksum.

    Fonts of the package go to the folder `fonts` beside it.

    Raises SystemExit with one sentence where npm is missing, can't be reached, or sends
    something else.
    """
    name = re.sub("[/@]", "-", script.package.removeprefix("@"))
    package = folder / f"{name}.tgz"
    if not package.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        npm = shutil.which("npm")
        if npm is None:
            sys.exit("npm is missing: install Node.js, which brings it.")
        command = [npm, "pack", script.package, "--silent"]
        command += ["--pack-destination", str(folder)]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"npm could not fetch {script.package}: try again with a network.")
    found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    if found != script.sha512:
        package.unlink()
        sys.exit(f"{package.name} had the wrong checksum and was deleted: try again.")
    (folder / "fonts").mkdir(exist_ok=True)
    with tarfile.open(package) as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isfile() else None
            if content and entry.name == script.path:
                (folder / script.name).write_bytes(content.read())
            elif content and entry.name.endswith(".woff2"):
                (folder / "fonts" / Path(entry.name).name).write_bytes(content.read())
    return folder / script.name


def lay_out(folder: Path, address: str, fresh: bool) -> None:
    """Writes all that Sphinx reads into the folder.

    fresh: run every chapter, in a copy, instead of taking its saved outputs
    """
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("notebooks", "_static", "extra/pictures", "extra/notebooks"):
        (folder / part).mkdir(parents=True)
    shutil.copy(PARTS / "conf.py", folder)
    shutil.copy(PARTS / "book.css", folder / "_static")
    names = chapters()
    start = (PARTS / "index.md").read_text(encoding="utf-8")
    start = start.replace("<!-- chapters -->", contents(names))
    (folder / "index.md").write_text(start, encoding="utf-8")
    for name in names:
        copy = folder / "notebooks" / f"{name}.ipynb"
        shutil.copy(NOTEBOOKS / copy.name, copy)
        shutil.copy(copy, folder / "extra" / "notebooks")
        if fresh:
            print(f"running {name}", flush=True)
        notebook = run(copy) if fresh else nbformat.read(copy, as_version=4)
        page(notebook, name, address, folder / "extra" / "pictures")
        nbformat.write(notebook, copy)
        for cell in notebook.cells:
            for link in _LINK.findall(
                cell.source if "markdown" in cell.cell_type else ""
            ):
                _take_along(link, folder)


def _take_along(link: str, folder: Path) -> None:
    """Copies a file of the repository that a chapter links to."""
    source = (NOTEBOOKS / link).resolve()
    copy = folder / source.relative_to(ROOT)
    if source.is_file() and not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def build(address: str, fresh: bool) -> None:
    """The whole site. Raises SystemExit where Sphinx has anything to complain about."""
    scripts = [fetch(script, BUILD / "npm") for script in SCRIPTS]
    source = BUILD / "source"
    lay_out(source, address, fresh)
    for script in scripts:
        shutil.copy(script, source / "_static")
    shutil.copy(PARTS / "widgets.js", source / "_static")
    # What pages with widgets ask for by name, beside themselves: icons, and the
    # frontend that comes with Python's package.
    beside = source / "extra" / "notebooks"
    shutil.copytree(BUILD / "npm" / "fonts", beside / _ICONS)
    frontend = Path("share", "jupyter", "nbextensions", "anywidget", "index.js")
    shutil.copy(sys.prefix / frontend, beside / "anywidget.js")
    shutil.rmtree(SITE, ignore_errors=True)
    options = [
        "-W",
        "--keep-going",
        "-n",
        "-q",
        "-b",
        "html",
        "-d",
        str(BUILD / "cache"),
    ]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(SITE)]
    environment = {**os.environ, "BOOK_REPOSITORY": address}
    if subprocess.run(command, env=environment).returncode:
        sys.exit("Sphinx warns, see above: mend what it names and build again.")
    print(f"the book is built: open {SITE.relative_to(ROOT) / 'index.html'}")
    if not address:
        print("no public address is known, so no page links to Binder or Colab:")
        print("give one with make book REPOSITORY=https://github.com/OWNER/NAME")


def main() -> None:
    """The command line of `make book`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outputs", choices=("fresh", "saved"), default="fresh")
    parser.add_argument("--repository", default="")
    given = parser.parse_args()
    try:
        address = public_address(given.repository)
    except ValueError as error:
        sys.exit(str(error))
    build(address, given.outputs == "fresh")


if __name__ == "__main__":
    main()
