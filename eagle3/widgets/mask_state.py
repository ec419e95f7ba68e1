"""The mask explorer's state: which mask, which query, and what they mean in words.

The masks are those of eagle3/masks.py and of the draft tree. Nothing here decides who
may attend to whom; it only names the rows and columns. [Ours]
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from eagle3.masks import causal_mask, ttt_mask
from eagle3.tree_plots import TreePicture

CAUSAL, NAIVE = "causal", "naive"
TTT, TREE = "training-time test", "tree verification"
VIEWS = (CAUSAL, NAIVE, TTT, TREE)
MAX_WORDS, MAX_STEP = 12, 6

# The paper's example: what each word of the data is followed by, step by step.
_FIGURE_6 = ("How can I", (("are", "we", "do"), ("you", "help", "it")))
_MORE = ("How", "can", "I", "do", "it", "?", "You", "just", "need", "to", "ask", ".")
_EXAMPLE = TreePicture(
    "I", ("get", "do", "it", "it", "?", "?"), parents=(-1, -1, 0, 1, 2, 3)
)


@dataclass(frozen=True)
class MaskState:
    """A mask with one query chosen.

    view: one of VIEWS
    text: 2 to 12 words, one row and one key of each step for every word
    step: simulated steps, 0 to 6; the rows are those of the last one
    row: the query, counted from 0
    block: the draft tree of the view "tree verification"

    Raises ValueError where a field is out of its range. [Ours]
    """

    view: str = TTT
    text: str = _FIGURE_6[0]
    step: int = 2
    row: int = 1
    block: TreePicture = _EXAMPLE

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ValueError(f"{self.view!r} is no view; take one of {VIEWS}.")
        if not 2 <= self.length <= MAX_WORDS:
            raise ValueError(
                f"The text has {self.length} words; write 2 to {MAX_WORDS}, with "
                "spaces between them."
            )
        if not 0 <= self.step <= MAX_STEP:
            raise ValueError(
                f"{self.step} simulated steps are out of range; take 0 to {MAX_STEP}."
            )
        if not 0 <= self.row < len(self.mask):
            raise ValueError(
                f"There is no row {self.row}; the mask has {len(self.mask)}, counted "
                "from 0."
            )

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the text."""
        return tuple(self.text.split())

    @property
    def length(self) -> int:
        """T, the number of words."""
        return len(self.words)

    @cached_property
    def mask(self) -> Tensor:
        """[rows, keys] bool, True = may attend, as the view has it."""
        if self.view == TREE:
            return self.block.tree.mask()
        if self.view == CAUSAL:
            return causal_mask(self.length, self.length)
        if self.view == NAIVE:  # as if the steps were one long text
            return causal_mask(self.length, (self.step + 1) * self.length)
        return ttt_mask(self.length, self.step)

    @cached_property
    def wrong(self) -> Tensor:
        """[rows, keys] bool: what this view lets a query see and inference will not."""
        if self.view != NAIVE:
            return torch.zeros_like(self.mask)
        return self.mask & ~ttt_mask(self.length, self.step)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of the columns."""
        if self.view == TREE:
            return (self.block.pending, *self.block.labels)
        last = 0 if self.view == CAUSAL else self.step
        steps = range(last + 1)
        return tuple(self.name(s, i) for s in steps for i in range(self.length))

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of the rows: the rows of a mask are its last columns."""
        return self.keys[-len(self.mask) :]

    def name(self, step: int, i: int) -> str:
        """What stands at row i of a step: a word of the text, or what follows it.

        Step s has moved s words on. The raised number says how often the draft's own
        output has taken the place of the target's feature there.
        """
        if step == 0:
            return self.words[i]
        if self.text == _FIGURE_6[0] and step <= len(_FIGURE_6[1]):
            return _FIGURE_6[1][step - 1][i]
        moved = i + step
        return f"{self.words[moved]}{'⁰¹²³⁴⁵⁶'[step]}" if moved < self.length else "…"

    @property
    def scores(self) -> tuple[int, int]:
        """Scores that a full product computes, and how many are enough.

        Enough are all of the first block and one for each row and later step.
        [Paper, section 3.2]
        """
        full = self.mask.numel()
        if self.view != TTT:
            return full, full
        return full, self.length * (self.length + self.step)

    @property
    def sentence(self) -> str:
        """The picture in words."""
        seen = [self.keys[j] for j in self.mask[self.row].nonzero().flatten()]
        which = f"row {self.row}"
        if self.view in (NAIVE, TTT):
            which += f" of step {self.step}"
        query = self.queries[self.row]
        return f"'{query}' ({which}) attends to {_listed(seen)}. {self._remark}"

    @property
    def _remark(self) -> str:
        if self.view == CAUSAL:
            return "The native step: a word sees itself and all before it."
        if self.view == TREE:
            depth = int(self.mask[self.row].sum()) - 1
            return (
                "A token sees its ancestors and itself, never a sibling; it stands at "
                f"position T + {depth}."
            )
        if self.view == NAIVE:
            extra = int(self.wrong[self.row].sum())
            return (
                f"{extra} of these it will not see at inference: they belong to other "
                "branches."
            )
        full, enough = self.scores
        end = " The text has no word there." if self.queries[self.row] == "…" else ""
        return (
            f"A full product computes {full} scores; {enough} are enough, since later "
            f"blocks are diagonal: {1 - enough / full:.0%} saved.{end}"
        )

    def changed(self, name: str, value: Any) -> "MaskState":
        """The state after one control was moved; the row stays where it can.

        name: a field, or "length", which shortens the text or adds words to it
        Raises ValueError with the field's sentence.
        """
        if name == "length":
            if not 2 <= value <= MAX_WORDS:
                raise ValueError(
                    f"{value} words are out of range; take 2 to {MAX_WORDS}."
                )
            words = [*self.words, *_MORE[self.length :]][:value]
            return self.changed("text", " ".join(words))
        if name == "row":
            return replace(self, row=value)
        moved = replace(self, row=0, **{name: value})
        return replace(moved, row=min(self.row, len(moved.mask) - 1))


def _listed(words: list[str], most: int = 20) -> str:
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[: most - 2])}, … and {words[-1]}, {len(words)} in all"
