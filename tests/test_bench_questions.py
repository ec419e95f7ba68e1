"""Question files: read as the field writes them, refused with file and line."""

import json

import pytest
from helpers import talking_toy

from eagle3.bench.questions import (
    Question,
    answer_turns,
    evaluation_questions,
    read_questions,
)
from eagle3.engine import generate
from eagle3.training.prompts import evaluation_prompts

GOOD = {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]}


def write(tmp_path, *lines):
    path = tmp_path / "question.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def test_reads_ids_categories_and_turns(tmp_path):
    """MT-bench's lines have a "reference" too; a blank line is no question."""
    other = {
        "question_id": "HumanEval/0",
        "category": "coding",
        "turns": ["def f():\u2028 Grüße"],
        "reference": ["x"],
    }
    path = write(tmp_path, GOOD, "", json.dumps(other, ensure_ascii=False))
    assert read_questions(path) == [
        Question(81, "writing", ("Write.", "Again.")),
        Question("HumanEval/0", "coding", ("def f():\u2028 Grüße",)),
    ]
    assert read_questions(str(path)) == read_questions(path)


def test_windows_line_ends(tmp_path):
    path = tmp_path / "question.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\r\n\r\n")
    assert [question.id for question in read_questions(path)] == [81]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "list instead of an object"),
        ({"category": "x", "turns": ["x"]}, "no question_id"),
        ({"question_id": 1, "turns": ["x"]}, "no category"),
        ({"question_id": 1, "category": "x"}, "no turns"),
        (GOOD | {"question_id": True}, "question_id True"),
        (GOOD | {"question_id": 1.5}, "question_id 1.5"),
        (GOOD | {"question_id": None}, "question_id None"),
        (GOOD | {"category": ""}, "category ''"),
        (GOOD | {"category": 3}, "category 3"),
        (GOOD | {"turns": []}, r"turns \[\]"),
        (GOOD | {"turns": "Write."}, "turns 'Write.'"),
        (GOOD | {"turns": ["Write.", ""]}, "none of them empty"),
        (GOOD | {"turns": [{"role": "user"}]}, "list of user messages"),
        (GOOD, "81 was on an earlier line"),
    ],
)
def test_refuses_with_file_and_line_in_one_sentence(tmp_path, line, says):
    path = write(tmp_path, GOOD, "", line)
    with pytest.raises(ValueError, match=says) as caught:
        read_questions(path)
    text = str(caught.value)
    assert text.startswith(f"{path}, line 3: ")
    assert text.endswith(".") and "\n" not in text


def test_refuses_an_empty_file_and_one_that_is_not_text(tmp_path):
    with pytest.raises(ValueError, match="holds no question"):
        read_questions(write(tmp_path, ""))
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"question_id": "\xfc"}')
    with pytest.raises(ValueError, match="UTF-8"):
        read_questions(path)
    with pytest.raises(ValueError, match=r"none\.jsonl can't be read"):
        read_questions(tmp_path / "none.jsonl")


def test_our_prompts_are_questions_of_one_turn():
    questions = evaluation_questions(2, seed=1)
    prompts = evaluation_prompts(2, seed=1)
    assert [(q.category, q.turns) for q in questions] == [
        (p.kind, (p.text,)) for p in prompts
    ]
    assert [question.id for question in questions] == list(range(10))


def test_turns_see_the_earlier_answers():
    """The right chat is written out; the answers are the toy's own."""
    target, chats = talking_toy(), []

    def generate_one(chat):
        chats.append(chat)
        return generate(target, None, chat, max_new_tokens=4, eos_token_ids=())

    results = answer_turns(Question(1, "x", ("a", "b", "c")), generate_one)
    answers = [result.text for result in results]
    assert len(results) == 3 and all(answers)
    assert chats[0] == [{"role": "user", "content": "a"}]
    assert chats[2] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": answers[0]},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": answers[1]},
        {"role": "user", "content": "c"},
    ]
