"""A student's page: points, and what to put right, in words. [Ours]"""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from eagle3.grading.judge import Mark

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 52em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4em .6em;
         border-bottom: 1px solid #bbb; }
td.points { white-space: nowrap; }
.right { color: #00694b; } .wrong { color: #a33b00; }
code { background: #eee; padding: 0 .2em; }
"""


def feedback_page(
    title: str, student: str, marks: Sequence[Mark], note: str = ""
) -> str:
    """The page as HTML that needs nothing else; all words are escaped."""
    score, total = sum(m.points for m in marks), sum(m.of for m in marks)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}: {escape(student)}</title>",
        f"<style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(student)}: <strong>{score} of {total} points</strong></p>",
    ]
    if note:
        parts.append(f'<p class="wrong">{escape(note)}</p>')
    for question, group in groupby(marks, lambda mark: mark.question):
        parts += _question(question, list(group))
    return "\n".join([*parts, "</body></html>", ""])


def _question(question: str, marks: list[Mark]) -> list[str]:
    points, of = sum(m.points for m in marks), sum(m.of for m in marks)
    rows = [
        f"<h2><code>{escape(question)}</code>: {points} of {of}</h2>",
        "<table><tr><th>Asked</th><th>Points</th><th>What the grader says</th></tr>",
    ]
    for mark in marks:
        kind, words = ("wrong", mark.words) if mark.words else ("right", "right")
        rows.append(
            f"<tr><td>{_code(escape(mark.says))}</td>"
            f'<td class="points">{mark.points} of {mark.of}</td>'
            f'<td class="{kind}">{_code(escape(words))}</td></tr>'
        )
    return [*rows, "</table>"]


def _code(text: str) -> str:
    """Words between backticks as code; the text is escaped already."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return text
    return "".join(
        f"<code>{piece}</code>" if number % 2 else piece
        for number, piece in enumerate(pieces)
    )
