"""The table of names and symbols, held against the module's docstrings.

What is right stands in the docstrings and attributes that the table names: neither
side may change alone.
"""

import re

import pytest
from notebook_prose import ROOT, read
from test_docstrings import NAMES, SHAPE, TAG, doc, modules, unwrapped

import eagle3
from eagle3 import notation
from eagle3.notation import CLASHES, SIZES, SYMBOLS, WORDS, table

LETTERS = {size.letter for size in SIZES}
WORD = re.compile(r"[A-Za-z_]\w*")
# Words within a shape that say what they are: [B, cached + n], [num_queries, num_keys].
PLAIN = re.compile(r"[a-z_]{2,}|N|R|r|[A-Z]\w{3,}")


def shapes(text: str) -> list[str]:
    """What stands in brackets and looks like a shape: sizes, one after the other."""
    return [
        found[1:-1]
        for found in SHAPE.findall(TAG.sub("", text))
        if re.fullmatch(r"\[[\w\s,.+*/()'-]+\]", found) and "Code" not in found
    ]


def texts_about(name: str) -> str:
    """The docstrings of a name, of its class and of its module."""
    _, module, owner = NAMES[name]
    return "\n".join([doc(name), module.__doc__ or "", (owner and owner.__doc__) or ""])


def explained(letter: str, text: str) -> bool:
    """Whether a text says what a letter is, outside the brackets of its shapes."""
    return bool(re.search(rf"(?<!\w){letter}(?!\w)", SHAPE.sub("", text)))


def unexplained(name: str) -> set[str]:
    """Letters of a name's shapes that neither the table nor its texts explain."""
    words = {word for shape in shapes(doc(name)) for word in WORD.findall(shape)}
    unknown = {w for w in words - LETTERS if not PLAIN.fullmatch(w)}
    text = texts_about(name) if unknown else ""
    return {word for word in unknown if not explained(word, text)}


def test_letters_of_a_shape_are_in_the_table_or_explained() -> None:
    found = {name: letters for name in NAMES if (letters := unexplained(name))}
    assert found == {}


def test_a_letter_that_nobody_explains_is_seen() -> None:
    assert shapes("x: [B, Q, k]  and y [Code: a/b]") == ["B, Q, k"]
    assert not explained("Q", "x: [B, Q, k]")
    assert explained("Q", "x: [B, Q, k], Q queries")


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda s: s.name)
def test_docstrings_have_the_shape_or_name_of_the_table(symbol) -> None:
    assert symbol.where
    for name in symbol.where:
        assert name in NAMES, f"{name} is no public name of the module"
        if symbol.shape:
            assert symbol.shape in doc(name)
    assert TAG.match(symbol.tag)


def test_every_letter_of_the_tables_shapes_is_a_size() -> None:
    used = {w for s in SYMBOLS for w in WORD.findall(s.shape)}
    assert used - LETTERS == {"taps"}


def test_words_and_fields_lead_to_public_names() -> None:
    from eagle3.draft import DraftConfig

    for word in WORDS:
        assert not word.where or word.where in NAMES, word
    for size in SIZES:
        if size.field:
            owner, attribute = size.field.split(".")
            fields = (
                DraftConfig.__dataclass_fields__
                if owner == "DraftConfig"
                else vars(eagle3.toy_target())
            )
            assert attribute in fields, size


def test_nothing_stands_twice() -> None:
    for rows, key in ((SIZES, "letter"), (SYMBOLS, "sign"), (WORDS, "word")):
        names = [getattr(row, key) for row in rows]
        assert len(names) == len(set(names))


def test_chapter_0_says_the_same() -> None:
    """Its table of signs names each quantity as the table does."""
    page = "\n".join(c.source for c in read(ROOT / "notebooks/00_start_here.ipynb"))
    rows = re.findall(r"^\| \$([^$]+)\$ \| ([^|]+) \|", page, re.MULTILINE)
    named = dict(reversed(rows))  # the first table counts, not Sources
    ours = {symbol.sign: symbol.name for symbol in SYMBOLS}
    assert {"g", "e", "a", "p", "q", r"\tau"} <= set(named)
    for sign, name in named.items():
        if sign in ours:
            assert ours[sign] == name.split(" at ")[0]
    words = {word.word: word for word in WORDS}
    assert {"pending token", "committed token", "replacement", "bonus token"} <= set(
        words
    )


@pytest.mark.parametrize("rows", [SIZES, SYMBOLS, WORDS, CLASHES])
def test_tables_are_markdown_with_equal_rows(rows) -> None:
    lines = table(rows).splitlines()
    assert len(lines) == len(rows) + 2
    assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no columns"):
        table([])


def test_the_appendix_shows_the_tables_and_no_other() -> None:
    page = read(ROOT / "notebooks/A_notation.ipynb")
    shown = "\n".join(text for cell in page for text in cell.outputs)
    for rows in (SIZES, SYMBOLS, WORDS, CLASHES):
        assert table(rows) in shown
    assert not any(c.source.startswith("|") for c in page if c.kind == "markdown")


def test_the_search_for_names_sees_this_module() -> None:
    assert notation in list(modules())
    assert unwrapped(table) is table
