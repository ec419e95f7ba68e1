"""A few hundred damaged files of every kind; `make fuzz` reads ten thousand."""

import random

import fuzz
import pytest


def test_damaged_files_are_read_or_refused_in_a_sentence():
    counts, faults = fuzz.fuzz(320)
    assert faults == []
    assert min(counts.values()) > 20  # neither all harmless nor all hopeless


def two_lines() -> None:
    raise ValueError("one line\nand another")


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda folder: {}["x"], "KeyError in place of a sentence"),
        (lambda folder: two_lines(), "ValueError without a sentence"),
        (lambda folder: fuzz.sys.audit("os.system", b"ls"), "made this happen"),
    ],
)
def test_a_reader_that_does_harm_is_told(tmp_path, read, words):
    fuzz.sys.addaudithook(fuzz._hook)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "input").write_bytes(b"12345")
    kind = fuzz.Kind("x", tmp_path / "whole", read)
    assert words in fuzz.run_case(kind, 0, 0, tmp_path / "case")


def test_cases_are_many_and_repeat_with_their_seed():
    data = b'{"a": 1, "b": [2, 3]}' * 9
    seen = {fuzz.damaged(data, random.Random(n)) for n in range(200)}
    assert len(seen) > 150
    again = {fuzz.damaged(data, random.Random(n)) for n in range(200)}
    assert seen == again
