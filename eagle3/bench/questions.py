"""The field's question files: what MT-bench, Spec-Bench and EAGLE's own runs read.

One JSON object a line, with `question_id`, `category` and `turns`: the user's messages,
to be answered one after the other. [Code: evaluation/, the format of MT-bench]
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.engine import GenerationResult
from eagle3.target import Message
from eagle3.training.prompts import evaluation_prompts


@dataclass(frozen=True)
class Question:
    """Something to ask, in one turn or several. [Ours]

    id: unique in its file        category: for averages, as "coding"
    turns: the user's messages in order, at least one
    """

    id: int | str
    category: str
    turns: tuple[str, ...]


def read_questions(path: str | Path) -> list[Question]:
    """Read a question file; other keys, as MT-bench's "reference", are passed over.

    Raises ValueError with the file and the line for anything else than the format
    says, and for a file without a question. [Ours]
    """
    path, found = Path(path), {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        question = _question(_json_object(line, where), where)
        if question.id in found:
            raise ValueError(
                f"{where}: question_id {question.id!r} was on an earlier line: give "
                "each question its own."
            )
        found[question.id] = question
    if not found:
        raise ValueError(f"{path} holds no question: write one JSON object a line.")
    return list(found.values())


def evaluation_questions(per_kind: int, seed: int = 0) -> list[Question]:
    """Our own evaluation prompts as questions of one turn; the category is the kind.

    Raises ValueError as `evaluation_prompts` does. [Ours]
    """
    prompts = evaluation_prompts(per_kind, seed)
    return [
        Question(number, prompt.kind, (prompt.text,))
        for number, prompt in enumerate(prompts)
    ]


def answer_turns(
    question: Question, generate_one: Callable[[list[Message]], GenerationResult]
) -> list[GenerationResult]:
    """Answer all turns; each sees the earlier ones with the answers given to them.

    generate_one: chat messages to an answer, as
        `lambda chat: generate(target, draft, chat, max_new_tokens=256)`
    [Ours, as MT-bench is run]
    """
    chat: list[Message] = []
    results = []
    for turn in question.turns:
        chat = [*chat, {"role": "user", "content": turn}]
        results.append(generate_one(chat))
        chat = [*chat, {"role": "assistant", "content": results[-1].text}]
    return results


def _lines(path: Path) -> list[str]:
    try:
        # Not splitlines: a text may hold a line separator that JSON leaves as it is.
        return path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ValueError(
            f"{path} can't be read ({error.strerror}): give a question file."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: save it as UTF-8.") from error


def _json_object(line: str, where: str) -> Mapping[str, Any]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:  # or nested a thousand deep
        raise ValueError(
            f"{where}: not JSON ({error}): write one object a line."
        ) from error
    if not isinstance(item, dict):
        raise ValueError(
            f"{where}: {type(item).__name__} instead of an object: write "
            "question_id, category and turns."
        )
    return item


def _question(item: Mapping[str, Any], where: str) -> Question:
    missing = [key for key in ("question_id", "category", "turns") if key not in item]
    if missing:
        raise ValueError(f"{where}: no {missing[0]}: every question has one.")
    identity, category, turns = item["question_id"], item["category"], item["turns"]
    if not isinstance(identity, int | str) or isinstance(identity, bool):
        raise ValueError(
            f"{where}: question_id {identity!r} is neither a whole number nor a text: "
            "write one of them."
        )
    if not isinstance(category, str) or not category:
        raise ValueError(f"{where}: category {category!r} is no name: write a text.")
    texts = isinstance(turns, list) and all(isinstance(t, str) and t for t in turns)
    if not texts or not turns:
        raise ValueError(
            f"{where}: turns {turns!r:.60} is not a list of user messages: write one "
            "or more texts, none of them empty."
        )
    return Question(identity, category, tuple(turns))
