"""The book's settings: every chapter is in it, and badges lead to files that exist.

No page is built here; `make book-check` builds the site and looks at it. Right values:
the files in notebooks/, the addresses that Binder and Colab document, and notebooks
made for the purpose.
"""

import base64
import hashlib
import io
import re
import runpy
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import make_book as book
import nbformat
import pytest

ADDRESS = "https://github.com/OWNER/NAME"
ON_DISK = sorted(path.stem for path in book.NOTEBOOKS.glob("*.ipynb"))
SVG = '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="x"/>'
PNG = b"\x89PNG and more"


def test_every_chapter_is_in_the_table_of_contents_once() -> None:
    assert sorted(book.chapters()) == ON_DISK
    text = book.contents(book.chapters())
    listed = re.findall(r"^notebooks/(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == ON_DISK
    assert re.findall(r"\(notebooks/(\w+)\.ipynb\)", text) == book.chapters()
    assert "<!-- chapters -->" in (book.PARTS / "index.md").read_text(encoding="utf-8")


def test_appendices_have_a_heading_of_their_own_where_there_are_any() -> None:
    both = book.contents(["00_start_here", "A_notation"])
    chapters, appendices = both.split(":caption: Appendices")
    assert ":caption: Chapters" in chapters
    assert "notebooks/00_start_here\n```" in chapters
    assert "notebooks/A_notation\n```" in appendices
    assert "Appendices" not in book.contents(["00_start_here"])


@pytest.mark.parametrize("name", ON_DISK)
def test_badges_point_at_files_that_exist(name: str) -> None:
    links = book.run_links(name, ADDRESS)
    assert list(links) == ["Binder", "Colab", "Notebook"]
    binder = urlsplit(links["Binder"])
    assert (binder.netloc, binder.path) == (
        "mybinder.org",
        f"/v2/gh/OWNER/NAME/{book.BRANCH}",
    )
    (opened,) = parse_qs(binder.query)["urlpath"]
    assert opened == f"lab/tree/notebooks/{name}.ipynb"
    colab = urlsplit(links["Colab"])
    assert colab.netloc == "colab.research.google.com"
    start = f"/github/OWNER/NAME/blob/{book.BRANCH}/"
    assert colab.path.startswith(start)
    for file in (opened.removeprefix("lab/tree/"), colab.path.removeprefix(start)):
        assert (book.ROOT / unquote(file)).is_file()
    assert (book.NOTEBOOKS / links["Notebook"]).is_file()


def test_without_a_public_address_nothing_is_made_up() -> None:
    assert book.run_links("00_start_here", "") == {"Notebook": "00_start_here.ipynb"}
    assert book.colab_note("") == ""
    assert f"git clone -q {ADDRESS} book" in book.colab_note(ADDRESS)


@pytest.mark.parametrize(
    "given",
    [
        ADDRESS,
        f"{ADDRESS}/",
        f"{ADDRESS}.git",
        "git@github.com:OWNER/NAME.git",
    ],
)
def test_an_address_is_brought_to_one_form(given: str) -> None:
    assert book.public_address(given) == ADDRESS


@pytest.mark.parametrize("given", ["OWNER/NAME", "https://example.org/OWNER/NAME"])
def test_an_address_that_binder_cannot_open_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=f"'{given}' is no address .*OWNER/NAME, or"):
        book.public_address(given)


@pytest.mark.parametrize(
    ("origin", "address"), [(f"{ADDRESS}.git", ADDRESS), ("/a/folder", "")]
)
def test_the_clones_origin_is_the_address_if_none_is_given(
    origin: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (["init", "-q"], ["remote", "add", "origin", origin]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    monkeypatch.setattr(book, "ROOT", tmp_path)
    assert book.public_address("") == address


def small_notebook() -> nbformat.NotebookNode:
    output, cells = nbformat.v4.new_output, nbformat.v4
    png = {"image/png": base64.b64encode(PNG).decode(), "text/plain": "Figure: b"}
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Run this."}
    outputs = [
        output("display_data", {"image/svg+xml": SVG, "text/plain": "Figure: <a>"}),
        output("display_data", widget),
        output("display_data", png, metadata={"image/png": {"alt": "the bars"}}),
        output("stream", text="Figure: the bars\nand more\n"),
        output("stream", text="Figure: alone\n"),
    ]
    code = cells.new_code_cell("draw()", outputs=outputs, execution_count=1)
    return cells.new_notebook(cells=[cells.new_markdown_cell("# Title\n\nText"), code])


def test_a_page_has_badge_pictures_with_words_and_no_dead_widget(
    tmp_path: Path,
) -> None:
    notebook, folder = small_notebook(), tmp_path / "pictures"
    folder.mkdir()
    book.page(notebook, "07_x", ADDRESS, folder)
    title, code = notebook.cells
    assert title.source.startswith('# Title\n\n<div class="run-chapter">')
    assert title.source.endswith("\n\nText")
    assert "mybinder.org" in title.source
    shown = [o.get("data", {}).get("text/html", o.get("text")) for o in code.outputs]
    assert shown == [
        '<img src="../pictures/07_x-0.svg" alt="&lt;a&gt;">',
        None,
        '<img src="../pictures/07_x-1.png" alt="the bars">',
        '<p class="picture-words">Figure: the bars</p>',
        "and more\n",
        '<p class="picture-words">Figure: alone</p>',
    ]
    assert code.outputs[1].data == {"text/plain": "Run this."}
    assert (folder / "07_x-0.svg").read_text(encoding="utf-8") == SVG
    assert (folder / "07_x-1.png").read_bytes() == PNG


def test_a_widget_that_left_pictures_behind_stays_in_the_place_of_its_still(
    tmp_path: Path,
) -> None:
    notebook = small_notebook()
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "b0"}}
    code = notebook.cells[1]
    code.outputs[1].data |= view
    walked = {"walked": "frame", "pictures": []}
    state = {
        "b0": {"state": {"children": ["IPY_MODEL_c1"]}},
        "c1": {"state": {"left_behind": walked}},
        "d2": {"state": {}},
    }
    widgets = {book._STATE: {"state": state, "version_major": 2}}
    notebook.metadata["widgets"] = nbformat.from_dict(widgets)
    book.page(notebook, "07_x", ADDRESS, tmp_path)
    assert list(notebook.metadata.widgets[book._STATE].state) == ["b0", "c1"]
    assert code.outputs[0].data["application/vnd.jupyter.widget-view+json"]
    assert "svg" not in str(code.outputs)


def test_a_widget_that_needs_its_kernel_leaves_no_state() -> None:
    notebook = small_notebook()
    models = {"b0": {"state": {"left_behind": {"walked": ""}}}}
    widgets = {book._STATE: {"state": models}}
    notebook.metadata["widgets"] = nbformat.from_dict(widgets)
    notebook.cells[1].outputs[1].data |= {book.WIDGET: {"model_id": "b0"}}
    assert book.keep_alive(notebook) == set()
    assert "widgets" not in notebook.metadata


def packed(folder: Path, content: bytes) -> book.Script:
    """A package as npm would have left it in the folder."""
    with tarfile.open(folder / "owner-tool-1.2.tgz", "w:gz") as archive:
        for name in ("package/x.js", "package/dist/a.woff2", "package/other.js"):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    digest = hashlib.sha512((folder / "owner-tool-1.2.tgz").read_bytes()).digest()
    right = base64.b64encode(digest).decode()
    return book.Script("@owner/tool@1.2", right, "package/x.js", "tool.js")


def test_a_script_is_used_only_with_the_right_checksum(tmp_path: Path) -> None:
    script = packed(tmp_path, b"script")
    assert book.fetch(script, tmp_path).read_bytes() == b"script"
    assert [path.name for path in (tmp_path / "fonts").iterdir()] == ["a.woff2"]
    assert not (tmp_path / "other.js").exists()
    with pytest.raises(SystemExit, match="wrong checksum"):
        book.fetch(replace(script, sha512="other"), tmp_path)
    assert not (tmp_path / "owner-tool-1.2.tgz").exists()


def test_scripts_have_fixed_versions() -> None:
    for script in book.SCRIPTS:
        assert re.search(r"@\d+\.\d+\.\d+$", script.package)
        assert len(base64.b64decode(script.sha512)) == 64


def test_a_missing_npm_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"^npm is missing: install Node\.js"):
        book.fetch(book.SCRIPTS[0], tmp_path)


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_readers_browsers_are_sent_nowhere_for_parts(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOK_REPOSITORY", address)
    conf = runpy.run_path(str(book.PARTS / "conf.py"))
    assert conf["nb_execution_mode"] == "off"
    names = {script.name for script in book.SCRIPTS}
    assert {conf["mathjax_path"], *conf["nb_ipywidgets_js"]} == names
    assert conf["html_theme_options"]["use_repository_button"] == bool(address)
    values = re.findall(
        r"https?://", str({k: v for k, v in conf.items() if k[0] != "_"})
    )
    assert len(values) == str(conf["html_theme_options"]).count("https://")
    style = (book.PARTS / "book.css").read_text(encoding="utf-8")
    assert "http" not in style
    assert "@import" not in style
