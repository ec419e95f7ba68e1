"""The loss of training-time test. [Paper, section 3.2; Code: eagle/traineagle3]

The draft is trained the way that it will be used: step 0 reads the target's features,
and every later step reads what the draft itself put out one step before, so that it
learns from its own errors. Each step is a cross-entropy against the target's
distribution; there is no loss on features.

At step s, row i reads the embedding of token i+1+s, is compared with the target's
distribution for token i+2+s, and counts where the loss mask is set at i+s.

Only tensors come in here. What the target said is a `Teacher`; nothing calls a target.
Of several processes each has some sequences of a batch: whatever is divided here is
divided by the count of all of them, so that their losses add up.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from eagle3.draft import Eagle3Draft
from eagle3.layers import KeyValue
from eagle3.training import processes
from eagle3.training.batches import FeatureBatch


class Teacher(NamedTuple):
    """What the target said at every position, as far as the draft can say it too.

    logits: [B, T, Vd]  the target's logits of the draft's tokens
    argmax: [B, T] int64  its best token in the whole vocabulary
    log_mass: [B, T]  log of the probability that it gives to the draft's tokens in
        all; None counts acceptance as if it were 1
    """

    logits: Tensor
    argmax: Tensor
    log_mass: Tensor | None = None


@dataclass(frozen=True)
class TttBatch(FeatureBatch):
    """One batch of training-time test, right-padded.

    features: [B, T, 3kt]  the target's taps   input_ids, loss_mask: [B, T]
    teacher: what the target said at the same T positions
    """

    teacher: Teacher


@dataclass(frozen=True)
class TttConfig:
    """How the steps are run and added up.

    steps: S, number of steps   decay: weight of step s is decay ** s [Code]
    mean_over: "supervised" divides a step's sum by the positions that count; "all"
        divides by B * T, as the official code does, so that the loss shrinks with
        the share of prompts and padding [Ours; Code]
    tokens: whose tokens the later steps read: those of the "text", as in the official
        code, or the draft's "own" best guesses [Code; Ours]

    Raises ValueError for values that are out of range.
    """

    steps: int = 7
    decay: float = 0.8
    mean_over: Literal["supervised", "all"] = "supervised"
    tokens: Literal["text", "own"] = "text"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"Training needs at least 1 step, not {self.steps}.")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, not {self.decay}.")
        if self.mean_over not in ("supervised", "all"):
            raise ValueError(
                f"mean_over must be 'supervised' or 'all', not '{self.mean_over}'."
            )
        if self.tokens not in ("text", "own"):
            raise ValueError(f"tokens must be 'text' or 'own', not '{self.tokens}'.")


class TttLosses(NamedTuple):
    """The loss and what to watch; all but `total` are without gradient.

    total: []  sum over s of decay ** s * per_step[s]
    per_step: [S]  cross-entropy of S steps in nats
    accuracy: [S]  share of masked positions where the draft's best token is the
        target's; tokens outside the draft vocabulary count as wrong
    num_supervised: [S] int64  positions that count in the loss: masked, and the
        target's best token is one that the draft knows
    acceptance: [S]  mean over those of sum_v min(p(v), q(v)): the chance that the
        target accepts a token drawn from q, at temperature 1 [Code: SpecForge]
    A step without such positions has 0 everywhere. With several processes each holds
    its part of these numbers; num_supervised counts the whole batch.
    """

    total: Tensor
    per_step: Tensor
    accuracy: Tensor
    acceptance: Tensor
    num_supervised: Tensor


@torch.no_grad()
def restrict_teacher(logits: Tensor, draft: Eagle3Draft) -> Teacher:
    """Keep of the target's logits what training needs.

    logits: [B, T, V]
    Returns the `Teacher` of the draft's vocabulary, [B, T, Vd] instead of [B, T, V].
    """
    kept = logits[..., draft.d2t]
    mass = kept.float().logsumexp(-1) - logits.float().logsumexp(-1)
    return Teacher(kept, logits.argmax(-1), mass)


def shift(ids: Tensor) -> Tensor:
    """Row i gets what row i + 1 has; the last row gets 0. ids: [B, T] -> [B, T]"""
    return torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], dim=1)


class _Rows(NamedTuple):
    """The R positions j that count in the loss, with what the target says there.

    batch, column: [R]  where they are
    probs: [R, Vd]  p, restricted to the draft's tokens and normalised
    mass: [R]  how much of the target's probability that is
    best: [R]  the target's best token
    """

    batch: Tensor
    column: Tensor
    probs: Tensor
    mass: Tensor
    best: Tensor


@torch.no_grad()
def _counting_rows(batch: TttBatch, draft: Eagle3Draft) -> _Rows:
    logits, argmax, log_mass = batch.teacher
    # The teacher of position j is the target at j + 1. Past the end the official code
    # has zero logits: a uniform teacher whose best token is 0. A mask made by
    # `next_token_mask` never asks for that.
    known = draft.in_draft[shift(argmax)] & batch.loss_mask.bool()
    b, j = known.nonzero(as_tuple=True)
    past_end = j + 1 == argmax.shape[1]
    after = j + 1 - past_end.long()
    probs = logits[b, after].float().masked_fill(past_end[:, None], 0.0).softmax(-1)
    best = shift(argmax)[b, j]
    mass = torch.ones_like(probs[:, 0])
    if log_mass is not None:
        share = draft.config.draft_vocab_size / draft.config.vocab_size
        mass = log_mass[b, after].float().exp().masked_fill(past_end, share)
    return _Rows(b, j, probs, mass, best)


class _Step(NamedTuple):
    """Sums over the rows of one step, each []; only loss carries a gradient."""

    loss: Tensor
    num_rows: Tensor
    num_correct: Tensor
    overlap: Tensor


def _score(draft: Eagle3Draft, a: Tensor, rows: _Rows, step: int) -> _Step:
    # Position j is scored by row j - s; the first s positions have no row.
    rows = _Rows(*(values[rows.column >= step] for values in rows))
    # The head is the widest matrix of the draft: it runs on the rows that count only.
    logits = draft.logits(a[rows.batch, rows.column - step]).float()  # [R, Vd]
    log_q = logits.log_softmax(-1)
    loss = -torch.dot(rows.probs.flatten(), log_q.flatten())  # one pass, no copy
    with torch.no_grad():
        correct = draft.d2t[log_q.argmax(-1)] == rows.best
        overlap = torch.minimum(rows.probs * rows.mass[:, None], log_q.exp()).sum()
    num_rows = torch.tensor(len(correct), device=a.device)
    return _Step(loss, num_rows, correct.sum(), overlap)


def ttt_loss(
    draft: Eagle3Draft, batch: TttBatch, config: TttConfig | None = None
) -> TttLosses:
    """Unroll the draft on its own output and compare every step with the target.

    draft: gradients reach all its weights but the embedding, through all steps
    batch: sequences with the target's features and words
    config: steps, decay and mean; None for the paper's 7 steps

    Raises ValueError when the shapes of the batch do not agree.
    """
    config = config or TttConfig()
    _check(draft, batch)
    rows = _counting_rows(batch, draft)
    columns = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    ids, x = shift(batch.input_ids), draft.fuse(batch.features)
    keys: list[KeyValue] = []
    scores = []
    for s in range(config.steps):
        x = draft.forward_ttt(ids, x, columns + s, keys)
        scores.append(_score(draft, x, rows, s))
        ids = shift(ids) if config.tokens == "text" else _best_tokens(draft, x)
    sums = _Step(*(torch.stack(values) for values in zip(*scores, strict=True)))
    # At step s the mask is shifted by s: its first s columns have no row.
    masked = torch.stack([batch.loss_mask[:, s:].sum() for s in range(config.steps)])
    masked = processes.total(masked).clamp(min=1)
    num_supervised = processes.total(sums.num_rows)
    num_rows = num_supervised.clamp(min=1)  # a step without rows gives 0, not NaN
    in_mean = num_rows if config.mean_over == "supervised" else _num_positions(ids)
    per_step = sums.loss / in_mean
    weights = config.decay ** torch.arange(config.steps, device=x.device)
    return TttLosses(
        (weights * per_step).sum(),
        per_step.detach(),
        sums.num_correct / masked,
        sums.overlap / num_rows,
        num_supervised,
    )


@torch.no_grad()
def _best_tokens(draft: Eagle3Draft, a: Tensor) -> Tensor:
    """The draft's own guess of what the next step's rows should read: [B, T]."""
    return draft.d2t[draft.logits(a).argmax(-1)]


def _num_positions(ids: Tensor) -> int:
    """B * T of the whole batch, of which each process pads its own share."""
    num_rows, length = map(torch.tensor, ids.shape)
    return int(processes.total(num_rows) * processes.largest(length))


def _check(draft: Eagle3Draft, batch: TttBatch) -> None:
    shape = tuple(batch.input_ids.shape)
    vocab = draft.config.draft_vocab_size
    for name, values, want in (
        ("features", batch.features, (*shape, draft.feature_width)),
        ("loss_mask", batch.loss_mask, shape),
        ("teacher.logits", batch.teacher.logits, (*shape, vocab)),
        ("teacher.argmax", batch.teacher.argmax, shape),
    ):
        if tuple(values.shape) != want:
            raise ValueError(
                f"{name} has shape {list(values.shape)}, but these input_ids and "
                f"this draft need {list(want)}."
            )
