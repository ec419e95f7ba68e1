"""What the doctor looks at: the target's own answers, and how a draft foretells them.

The target answers a few prompts at temperature 0. On these texts a draft is read once
over, with the target's real features at every position, and its distribution q for the
next token is laid beside the target's p. The number that counts is their overlap

    sum over v of min(p(v), q(v)),

the chance that the target keeps a token drawn from q. [Paper, section 2.1] One pass per
wiring is enough, and two wirings are compared row by row, so that a hundred tokens can
tell them apart. [Ours]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagle3.engine import Prompt, generate, prompt_to_ids
from eagle3.target import Target

PROMPTS = (
    "How can I cook rice without a rice cooker?",
    "Why is the sky blue? Answer in two sentences.",
    "Write a short letter to a friend about a day at the sea.",
)
ANSWER_TOKENS = 64


@dataclass(frozen=True)
class Text:
    """One prompt with the target's answer, and what the target computed on it.

    token_ids: [T]      num_prompt: tokens of the prompt
    features: [T, 3k]  as the target hands them over      hidden: [T, k]  as well
    states: [L, T, k]  the inputs of all L layers
    probs: [R, V]  p for the answer's tokens but the first, and for the one after it

    [Ours]
    """

    token_ids: Tensor
    num_prompt: int
    features: Tensor
    hidden: Tensor
    states: Tensor
    probs: Tensor

    def tapped(self, taps: Sequence[int]) -> Tensor:
        """The features [T, 3k] that these taps would give. [Ours]"""
        return torch.cat([self.states[tap] for tap in taps], dim=-1)

    def foretold(self, draft: Any, features: Tensor | None = None) -> Tensor:
        """The draft's distributions for the R tokens that `probs` is about: q [R, Vd].

        features: [T, *] to read instead of the target's

        Row i reads the feature of token i and the embedding of token i+1, and foretells
        token i+2. [Paper, section 3.1]
        """
        if features is None:
            features = getattr(self, draft.reads)
        with torch.no_grad():
            x = draft.fuse(features[None, :-1])
            positions = torch.arange(x.shape[1], device=x.device)
            a = draft.forward(self.token_ids[None, 1:], x, positions)
            return draft.logits(a[0, -len(self.probs) :]).float().softmax(-1)


def answers(
    target: Target,
    prompts: Sequence[Prompt] | None = None,
    num_tokens: int = ANSWER_TOKENS,
) -> list[Text]:
    """Let the target answer prompts and look at what it computes.

    prompts: as `generate` takes them, such as token ids [T]; None for three of ours, or
        for three random ones where the target has no tokenizer

    Raises what `generate` raises. [Ours]
    """
    if prompts is None:
        generator = torch.Generator().manual_seed(0)
        random = torch.randint(target.vocab_size, (3, 8), generator=generator)
        prompts = list(random) if target.tokenizer is None else PROMPTS
    texts = []
    for prompt in prompts:
        ids = prompt_to_ids(target, prompt)
        answer = generate(target, None, ids, max_new_tokens=num_tokens).token_ids
        texts.append(look_at(target, [*ids, *answer], len(ids)))
    return texts


def look_at(target: Target, token_ids: Sequence[int], num_prompt: int) -> Text:
    """A text of the target, with what the target computes on it.

    token_ids: T ids, the prompt first      num_prompt: tokens of the prompt

    [Ours]
    """
    ids = torch.tensor(list(token_ids), device=target.device)
    output = target.forward(ids[None])
    everywhere = target.tapping(range(target.num_layers))
    states = everywhere.forward(ids[None]).features[0]  # [T, L * k]
    return Text(
        ids,
        num_prompt,
        output.features[0],
        output.hidden[0],
        states.unflatten(-1, (target.num_layers, -1)).movedim(1, 0),
        output.logits[0, num_prompt:].float().softmax(-1),
    )


class Reading(NamedTuple):
    """How well a draft foretells texts, row by row.

    overlap: [R]  sum_v min(p(v), q(v)), the chance that a drafted token is kept
    agrees: [R] bool  the draft's best token is the target's
    """

    overlap: Tensor
    agrees: Tensor

    @classmethod
    def of(cls, texts: Sequence[Text], qs: Sequence[Tensor], d2t: Tensor) -> "Reading":
        """Lay what a draft foretells beside the target's word.

        qs: [R, Vd] of each text      d2t: [Vd] target ids, what each column stands for
        """
        p = torch.cat([text.probs for text in texts])  # [R, V]
        q = torch.cat(list(qs))
        overlap = torch.minimum(p[:, d2t], q).sum(-1)
        return cls(overlap, d2t[q.argmax(-1)] == p.argmax(-1))


def reading(draft: Any, texts: Sequence[Text]) -> Reading:
    """Read texts with a draft as it is wired at this moment. [Ours]"""
    return Reading.of(texts, [text.foretold(draft) for text in texts], draft.d2t)
