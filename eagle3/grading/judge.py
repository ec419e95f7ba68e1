"""From what a student's code gave back to points and to words that help. [Ours]"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagle3.grading.questions import Arguments, Idea, Question
from eagle3.grading.worker import Answers, NoValue, Worker

MANY = 240  # inputs that print longer than this are not shown
MOST_TROUBLES = 5  # that are told of a notebook's cells


@dataclass(frozen=True)
class Mark:
    """What an idea got. words: what is wrong, or "" where nothing is"""

    question: str
    idea: str
    says: str
    points: int
    of: int
    words: str


def differs(got: Any, want: Any, tolerance: float = 1e-6) -> str | None:
    """What tells an answer from the right one, in words, or None.

    got: as it came      want: arrays, numbers, texts, lists and dicts of these
    """
    if isinstance(got, NoValue):
        return got.words
    if isinstance(want, NoValue):
        return want.words
    if isinstance(want, dict):
        return _dict_differs(got, want, tolerance)
    if isinstance(want, np.ndarray):
        return _array_differs(got, want, tolerance)
    if isinstance(want, (list, tuple)):
        if _ragged(want):
            return _list_differs(got, want, tolerance)
        return _array_differs(got, np.asarray(want), tolerance)
    if want is None or isinstance(want, (str, bool, np.bool_)):
        got = _single(got)
        same = type(got) is type(want) and got == want
        if isinstance(want, (bool, np.bool_)):
            same = type(got) is bool and got == bool(want)
        return None if same else f"it is {_show(got)}, not {_show(want)}"
    return _number_differs(_single(got), want, tolerance)


def _ragged(values: Sequence[Any]) -> bool:
    return any(v is None or isinstance(v, (str, list, tuple, dict)) for v in values)


def _single(value: Any) -> Any:
    """A number that came as an array of one is that number."""
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.reshape(())[()].item()
    return value


def _number_differs(got: Any, want: float, tolerance: float) -> str | None:
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return f"it is {_show(got)}, where a number is asked for"
    if isinstance(want, (int, np.integer)) and got == want:
        return None
    if isinstance(want, (int, np.integer)) and not isinstance(got, int):
        return f"it is {got}, where the whole number {want} is right"
    if not np.isfinite(want):
        return None if got == want else f"it is {got:.6g}, not {want}"
    close = abs(got - want) <= tolerance * max(1.0, abs(want))
    return None if close else f"it is {got:.6g}, not {want:.6g}"


def _dict_differs(got: Any, want: dict[str, Any], tolerance: float) -> str | None:
    if not isinstance(got, dict):
        return f"it is {_show(got)}, not a dict"
    for key, value in want.items():
        if key not in got:
            return f"there is no '{key}'"
        if wrong := differs(got[key], value, tolerance):
            return f"'{key}': {wrong}"
    return None


def _list_differs(got: Any, want: Sequence[Any], tolerance: float) -> str | None:
    if isinstance(got, np.ndarray):
        got = got.tolist()
    if not isinstance(got, list):
        return f"it is {_show(got)}, not a list or tuple"
    if len(got) != len(want):
        return f"it has {len(got)} parts, not {len(want)}: {_show(got)}"
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        if wrong := differs(a, b, tolerance):
            return f"part {index}: {wrong}"
    return None


def _array_differs(got: Any, want: np.ndarray, tolerance: float) -> str | None:
    if isinstance(got, list):
        try:
            got = np.array(got) if got else np.zeros(0, want.dtype)
        except ValueError:
            return "its rows differ in length"
        if got.dtype.kind not in "bif":
            return "it holds something that is no number"
    elif isinstance(got, (int, float)):
        got = np.array(got)
    if not isinstance(got, np.ndarray):
        return (
            f"it is {_show(got)}, where numbers of shape {list(want.shape)} are asked"
        )
    if got.shape != want.shape:
        return f"its shape is {list(got.shape)}, not {list(want.shape)}"
    if (got.dtype == bool) != (want.dtype == bool):
        asked = "True and False" if want.dtype == bool else "numbers"
        return f"it holds {got.dtype} where {asked} are asked for"
    return _first_difference(got, want, tolerance)


def _first_difference(
    got: np.ndarray, want: np.ndarray, tolerance: float
) -> str | None:
    if want.dtype.kind in "bi":
        wrong = got != want
    else:
        with np.errstate(invalid="ignore"):
            near = np.abs(got - want) <= tolerance * np.maximum(1.0, np.abs(want))
            near &= np.isfinite(want)
        wrong = ~(near | (got == want))  # NaN is never right
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    names = ("row", "column") if want.ndim == 2 else ("index",) * want.ndim
    place = ", ".join(f"{n} {i}" for n, i in zip(names, at, strict=True)) or "it"
    value, right = got[at].item(), want[at].item()
    show = (lambda v: f"{v:.6g}") if isinstance(right, float) else str
    if isinstance(value, float) and np.isnan(value):
        return f"{place} is not a number (NaN)"
    return f"{place} is {show(value)}, not {show(right)}"


def _show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def grade_question(
    worker: Worker,
    question: Question,
    cells: Sequence[Sequence[Any]],
    seed: int,
) -> list[Mark]:
    """One mark for each idea of a question.

    cells: of the submission      seed: of the hidden inputs
    """
    if question.is_value:
        return _grade_value(worker, question, cells)
    cases: list[Arguments] = []
    spans: list[range] = []
    for number, idea in enumerate(question.ideas):
        assert idea.cases is not None, f"{question.name}.{idea.name} has no cases"
        start = len(cases)
        cases += idea.cases(np.random.default_rng([seed, number]))
        spans.append(range(start, len(cases)))
    remotes = {
        number: {name: make(*case) for name, make in question.remotes.items()}
        for number, case in enumerate(cases)
    }
    own = [{"remote": name} for name in question.remotes]
    sent = [[*case[: len(case) - question.secret], *own] for case in cases]
    answers = worker.ask(question.name, cells, sent, remotes)
    if words := _nothing_to_grade(answers, question):
        return [_mark(question, idea, words) for idea in question.ideas]
    return [
        _mark(question, idea, _judge(question, idea, answers, cases, span))
        for idea, span in zip(question.ideas, spans, strict=True)
    ]


def _grade_value(
    worker: Worker, question: Question, cells: Sequence[Sequence[Any]]
) -> list[Mark]:
    answers = worker.ask(question.name, cells, None)
    value = answers.values.get((0, False))
    if words := _nothing_to_grade(answers, question):
        return [_mark(question, idea, words) for idea in question.ideas]
    marks = []
    for idea in question.ideas:
        right = question.reference(idea.name)
        if isinstance(value, NoValue):
            words = value.words
        elif not isinstance(value, dict) or value.get(idea.name) is None:
            words = "not answered yet"
        else:
            got = value[idea.name]
            words = differs(got, right, question.tolerance) or ""
            for told, twin in question.mistakes.items():
                if words and not differs(got, twin(idea.name), question.tolerance):
                    words = told
                    break
            else:
                words = "this is not right" if words else ""
        marks.append(_mark(question, idea, words))
    return marks


def _mark(question: Question, idea: Idea, words: str) -> Mark:
    points = 0 if words else idea.points
    return Mark(question.name, idea.name, idea.says, points, idea.points, words)


def _nothing_to_grade(answers: Answers, question: Question) -> str:
    """Words for a question whose name is not there at all."""
    what = "the dict" if question.is_value else "the function"
    told = list(answers.problems.items())[:MOST_TROUBLES]
    trouble = "".join(f" {cell}: {text}." for cell, text in told)
    if answers.ended and not answers.values:
        return f"your code {answers.ended}"
    if not answers.defined:
        return f"{what} `{question.name}` is missing from the notebook.{trouble}"
    if not question.is_value and not answers.callable:
        return f"`{question.name}` is not a function any more.{trouble}"
    return ""


def _judge(
    question: Question,
    idea: Idea,
    answers: Answers,
    cases: Sequence[Arguments],
    span: range,
) -> str:
    """What is wrong with an idea's answers, or ""."""
    for number in span:
        arguments, want = cases[number], None
        for again in (False, True):
            got = answers.values.get((number, again))
            if got is None and (number, again) not in answers.values:
                return f"your code {answers.ended or 'gave no answer'}"
            if isinstance(got, NoValue):
                return (
                    got.words
                    if got.empty
                    else f"{got.words}{_inputs(question, arguments)}"
                )
            got = _part(_whole(question, answers, (number, again)), idea)
            if want is None:
                want = _part(question.reference(*arguments), idea)
            wrong = differs(got, want, question.tolerance)
            if wrong is None:
                continue
            if again:
                return (
                    "the second call with the same tensors gives another answer: your "
                    "function changes its arguments in place"
                )
            words = _look(idea, got, want, arguments) or wrong
            # Two mistakes that both end in NaN are not the same one.
            known = (
                "" if _has_nan(got) else _explain(question, idea, answers, cases, span)
            )
            return known or words + _inputs(question, arguments)
    return ""


def _whole(question: Question, answers: Answers, key: tuple[int, bool]) -> Any:
    """An answer, with what the grader's own functions saw of it."""
    got = answers.values.get(key, NoValue("no answer"))
    if not question.remotes or isinstance(got, NoValue):
        return got
    return {"answer": got, **answers.seen[key]}


def _part(value: Any, idea: Idea) -> Any:
    if idea.part is None or isinstance(value, NoValue):
        return value
    if not isinstance(value, dict):
        return NoValue(f"it is {_show(value)}, not a dict")
    return value.get(idea.part, NoValue(f"there is no '{idea.part}'"))


def _look(idea: Idea, got: Any, want: Any, arguments: Arguments) -> str | None:
    """What the idea's own look says; odd answers must not stop it."""
    if idea.look is None:
        return None
    try:
        return idea.look(got, want, arguments)
    except Exception:  # it looks at what a student's code gave
        return None


def _explain(
    question: Question,
    idea: Idea,
    answers: Answers,
    cases: Sequence[Arguments],
    span: range,
) -> str:
    """The mistake that gives just these answers, if it is a known one."""

    def gives(twin: Callable[..., Any]) -> bool:
        return all(
            not differs(
                _filled(_part(_whole(question, answers, (number, False)), idea)),
                _filled(_part(_try(twin, cases[number]), idea)),
                question.tolerance,
            )
            for number in span
        )

    for words, twins in question.mistakes.items():
        if any(map(gives, twins if isinstance(twins, tuple) else (twins,))):
            return words
    return ""


def _has_nan(value: Any) -> bool:
    return isinstance(value, np.ndarray) and bool(np.isnan(value).any())


def _filled(value: Any) -> Any:
    """NaN as a number, so that it equals itself."""
    return np.where(np.isnan(value), 1e300, value) if _has_nan(value) else value


def _try(twin: Any, arguments: Arguments) -> Any:
    try:
        with np.errstate(all="ignore"):
            return twin(*arguments)
    except (ValueError, IndexError, ZeroDivisionError, KeyError, TypeError):
        return NoValue("a mistake that fails here")


def _inputs(question: Question, arguments: Arguments) -> str:
    """The inputs of a call, where they are short."""
    arguments = arguments[: len(arguments) - question.secret]
    shown = [_short(value) for value in arguments]
    text = ", ".join(map(str, shown))
    return f" [inputs: {text}]" if text and len(text) <= MANY else ""


def _short(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return (np.round(value, 3) if value.dtype.kind == "f" else value).tolist()
