"""Settings of the book. tools/make_book.py lays out its pages and calls Sphinx."""

import os

project = "EAGLE-3, a textbook to read and run"
author = "The eagle3 textbook contributors"
html_title = "EAGLE-3"
language = "en"

extensions = ["myst_nb", "sphinx_copybutton"]
nb_execution_mode = "off"  # the pages come with outputs
nb_merge_streams = True
nb_ipywidgets_js = {"require.js": {}, "embed-amd.js": {}}  # in _static
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = ["widgets.js"]
html_extra_path = ["extra"]
html_copy_source = False
mathjax_path = "mathjax.js"  # in _static; nothing is fetched by a reader's browser
html_theme_options = {
    "use_download_button": False,  # the notebooks themselves are linked on each page
    "show_toc_level": 2,
    "show_navbar_depth": 1,
    "repository_url": os.environ.get("BOOK_REPOSITORY", ""),
    "use_repository_button": bool(os.environ.get("BOOK_REPOSITORY")),
}
copybutton_selector = "div.cell_input div.highlight pre"
