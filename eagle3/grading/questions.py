"""What a question is: points, inputs, a slow reference, and mistakes with names. [Ours]

The checks of an assignment are a Python file that holds one `Assignment`. It is loaded
by path, never installed, and never seen by student code.
"""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Arguments = tuple[Any, ...]
# What is wrong with an answer, in words, or None: (got, wanted, arguments) -> words.
Look = Callable[[Any, Any, Arguments], str | None]


class Remote(Protocol):
    """A function that the grader answers while a student's code runs."""

    def begin(self) -> None:
        """Forget all: a new call of the student's function begins."""

    def seen(self) -> Any:
        """What is to be judged of the calls since."""

    def __call__(self, *arguments: Any) -> Any:
        """Answer a call; ValueError, TypeError or IndexError reach the student."""


@dataclass(frozen=True)
class Idea:
    """One thing that a question asks for, all or nothing.

    name: as in the notebook's test cell, after the question's name
    points: what it is worth
    says: what is asked, in a learner's words
    cases: random generator -> the inputs that show it
    look: what is wrong beyond "differs", asked first
    part: key of the answer that counts here, where a question has remotes
    """

    name: str
    points: int
    says: str
    cases: Callable[[np.random.Generator], Sequence[Arguments]] | None = None
    look: Look | None = None
    part: str | None = None


@dataclass(frozen=True)
class Question:
    """One thing to write: a function, or a value that has a name.

    name: of the function or value      ideas: what is asked of it
    reference: arguments -> right answer, slow and independent of `eagle3`; for a
        value: idea's name -> its right part
    mistakes: words for a learner -> what the function gives with that mistake, or
        several such functions
    tolerance: largest difference of numbers that counts as equal
    is_value: whether the name is a dict with one key for each idea
    remotes: names of functions that the grader answers -> how one is made for a case;
        the answer is then {"answer": what the function gave, and what each of them
        has seen under its name}
    secret: how many of a case's last values stay with the grader
    """

    name: str
    ideas: tuple[Idea, ...]
    reference: Callable[..., Any]
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    tolerance: float = 1e-6
    is_value: bool = False
    remotes: Mapping[str, Callable[..., "Remote"]] = field(default_factory=dict)
    secret: int = 0

    @property
    def points(self) -> int:
        """Points of all its ideas."""
        return sum(idea.points for idea in self.ideas)


def value_question(
    name: str,
    says: Mapping[str, str],
    right: Mapping[str, Any],
    wrong: Mapping[str, Mapping[str, Any]],
    tolerance: float = 1e-6,
) -> Question:
    """A question for a dict of values, 4 points each.

    name: of the dict      says: key -> what is asked      right: key -> value
    wrong: words for a learner -> the values that this mistake gives
    """
    return Question(
        name,
        tuple(Idea(key, 4, words) for key, words in says.items()),
        right.__getitem__,
        {words: parts.get for words, parts in wrong.items()},
        tolerance=tolerance,
        is_value=True,
    )


@dataclass(frozen=True)
class Assignment:
    """An assignment's checks.

    name: of the notebook, without ending      title: in words
    questions: seed of the variant -> the questions
    numbers: seed of the variant -> name -> value, as the notebook's cell of given
        numbers has them
    """

    name: str
    title: str
    questions: Callable[[int], tuple[Question, ...]]
    numbers: Callable[[int], Mapping[str, Any]]

    def ideas(self, variant: int = 0) -> Iterator[tuple[Question, Idea]]:
        """All that is asked, in order."""
        for question in self.questions(variant):
            for idea in question.ideas:
                yield question, idea


def load_assignment(path: Path) -> Assignment:
    """The `ASSIGNMENT` of a file of checks.

    Raises ValueError for a file without one.
    """
    spec = importlib.util.spec_from_file_location(f"checks_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"there are no checks at '{path}'.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, "ASSIGNMENT", None)
    if not isinstance(found, Assignment):
        raise ValueError(f"'{path}' holds no ASSIGNMENT; it is no file of checks.")
    return found
