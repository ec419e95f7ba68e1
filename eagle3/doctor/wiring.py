"""Diagnoses of a draft's wiring, one small function each.

Each looks at one part. Where it can, it changes that one thing, reads the same texts
again and compares: the change that brings acceptance back names the cause. What a
change can't show (a norm that nobody reads, positions that stand still) is found by
touching the part and looking whether anything moves. [Ours]
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from eagle3.doctor.evidence import Reading, Text, reading
from eagle3.doctor.finding import MIN_KEPT, STRUCTURAL, Change, Finding, best
from eagle3.engine import Request, as_drafter, run
from eagle3.layers import RMSNorm
from eagle3.rope import RopeConfig, RopeTable
from eagle3.target import Target, tap_layers

MIN_GAIN_OF_LAYER = 0.05  # in the share of tokens that are kept
LOW_ACCEPTANCE = 1.1  # tokens per target pass; 1 is what no draft at all gives
NO_BASE = RopeConfig(10_000.0)  # what drafts whose config names no base were trained by


@dataclass(frozen=True)
class Case:
    """A draft, the target that it is to draft for, and texts of that target.

    num_tokens: of each answer the most that the engine writes again with the draft

    [Ours]
    """

    target: Target
    draft: Any
    texts: Sequence[Text]
    num_tokens: int

    @cached_property
    def foretold(self) -> list[Tensor]:
        """q of each text, [R, Vd], as the draft is wired."""
        return [text.foretold(self.draft) for text in self.texts]

    @cached_property
    def wired(self) -> Reading:
        """How the draft does as it is wired."""
        return Reading.of(self.texts, self.foretold, self.draft.d2t)

    @property
    def kept(self) -> str:
        """How much of what it drafts is kept, in words."""
        return f"kept {self.wired.overlap.mean():.1%} as wired"

    def with_map(self, words: str, d2t: Tensor) -> Change:
        """What another vocabulary map would change: d2t [Vd]."""
        after = Reading.of(self.texts, self.foretold, d2t)
        return Change.of(words, self.wired.overlap, after.overlap)

    def with_features(self, words: str, taps: Sequence[int]) -> Change:
        """What other taps would change."""
        qs = [text.foretold(self.draft, text.tapped(taps)) for text in self.texts]
        after = Reading.of(self.texts, qs, self.draft.d2t)
        return Change.of(words, self.wired.overlap, after.overlap)

    def with_part(self, words: str, name: str, part: Any) -> Change:
        """What another part in the draft, an attribute, would change."""
        with swapped(self.draft, name, part):
            after = reading(self.draft, self.texts)
        return Change.of(words, self.wired.overlap, after.overlap)


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value of an attribute, for a while. [Ours]"""
    before = getattr(owner, name)
    of_class = name not in vars(owner) and hasattr(type(owner), name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if of_class:  # a method, which the owner didn't hold itself
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def vocabulary_map(case: Case) -> Finding:
    """Is every draft token the target's token that it was trained as?

    A map of offsets that was lost is the identity; one that was read with another
    convention is shifted. [Ours]
    """
    part, d2t = "vocabulary map", case.draft.d2t
    size, vocab = len(d2t), case.target.vocab_size
    if size == vocab:
        return Finding(part, f"the draft knows all {vocab} tokens, so it has no map")
    shift = best([*_shifted_maps(case, d2t)])
    if shift.is_better:
        found = f"{case.kept}, {shift}"
        remedy = "the map is shifted: convert the checkpoint again, and keep its ids."
        return Finding(part, found, "fault", remedy, shift.gain)
    if torch.equal(d2t, torch.arange(size, device=d2t.device)):
        right = case.wired.agrees.float().mean().item()
        found = (
            f"the first {size} of {vocab} ids in order, all offsets are 0; best tokens "
            f"right {right:.1%}"
        )
        has_width = case.draft.lm_head.in_features == case.target.hidden_size
        told = told_by_head(case) if has_width else None
        if told is not None:
            found += f", {told}"
        if right < MIN_KEPT or (told is not None and told.is_better):
            remedy = "the map was dropped: restore d2t from the original checkpoint."
            return Finding(part, found, "fault", remedy, STRUCTURAL)
        return Finding(part, found)
    return Finding(part, f"{size} of {vocab} ids; {case.kept}, {shift}")


def _shifted_maps(case: Case, d2t: Tensor) -> Iterator[Change]:
    last = case.target.vocab_size - 1
    for by in (-2, -1, 1, 2):
        yield case.with_map(f"with ids moved by {by:+}", (d2t + by).clamp(0, last))
        yield case.with_map(f"with places moved by {by:+}", d2t.roll(by))


def told_by_head(case: Case) -> Change:
    """How often the draft is right if its head's rows say which tokens they mean.

    A row of a draft's head stays near the row that the target has for the token, so
    the nearest row of the target names it, whatever the map says. [Ours]
    """
    columns = torch.cat(case.foretold).argmax(-1)  # [R]
    rows = nn.functional.normalize(case.draft.lm_head.weight[columns].float(), dim=-1)
    theirs = nn.functional.normalize(case.target.head.float(), dim=-1)  # [V, k]
    told = (rows @ theirs.T).argmax(-1)  # [R]
    said = torch.cat([text.probs for text in case.texts]).argmax(-1)
    words = "by the head's own rows"
    return Change.of(words, case.wired.agrees, told == said)


def head(case: Case) -> Finding:
    """Does the head have a row for each token of the map, in its order?

    Tried are the tokens that its rows resemble, and the target's own rows. [Ours]
    """
    part, draft = "head", case.draft
    ours, theirs = draft.lm_head.weight.float(), case.target.head[draft.d2t].float()
    if ours.shape != theirs.shape:
        found = f"{list(ours.shape)}: its width is not the target's, nothing to compare"
        return Finding(part, found)
    alike = torch.cosine_similarity(ours, theirs, dim=-1).mean()
    found = f"rows resemble the target's rows of their tokens by {alike:.2f}"
    right = case.wired.agrees.float().mean()
    told = told_by_head(case)
    linear = nn.Linear(*reversed(theirs.shape), bias=False, device="meta")
    linear.weight = nn.Parameter(theirs, requires_grad=False)
    rows = case.with_part("with the target's rows", "lm_head", linear)
    found += f"; best tokens right {right:.1%}, {told}; {case.kept}, {rows}"
    if told.is_better or rows.is_better:
        remedy = (
            "the head belongs to another vocabulary: take lm_head and d2t from one "
            "checkpoint."
        )
        gain = max(told.gain if told.is_better else 0, rows.gain)
        return Finding(part, found, "fault", remedy, gain)
    return Finding(part, found)


def embedding(case: Case) -> Finding:
    """Does the draft read tokens by the embedding that it was trained with?

    It is a frozen copy of the target's, unless their widths differ. [Code]
    """
    part, theirs = "embedding", case.target.embedding.float()
    ours = case.draft.embed.weight.float()
    if ours.shape != theirs.shape:
        found = f"the draft's own, {list(ours.shape)}: nothing to compare with"
        return Finding(part, found)
    if torch.equal(ours, theirs):
        return Finding(part, "the target's own")
    replacement = nn.Embedding.from_pretrained(theirs.to(case.draft.embed.weight.dtype))
    change = case.with_part("with the target's", "embed", replacement)
    found = f"not the target's; {case.kept}, {change}"
    if change.is_better:
        remedy = "it is another model's: load the draft with this target's embedding."
        return Finding(part, found, "fault", remedy, change.gain)
    remedy = "" if change.is_worse else "make sure that the draft was trained with it."
    return Finding(part, found, "ok" if change.is_worse else "warning", remedy)


def taps(case: Case) -> Finding:
    """Does the draft read the layers that it was trained on?

    The same numbers can mean inputs of layers, as here, or outputs, which lie one
    higher. [Code: SGLang and vLLM differ in this]
    """
    part, draft = "taps", case.draft
    if draft.reads != "features":
        return Finding(part, "none: the draft reads the state before the target's head")
    named, last = tuple(draft.config.taps), case.target.num_layers - 1
    handed = _handed_over(case.texts[0], named)
    if handed != named:
        found = f"the draft wants inputs of layers {named} and is handed {handed}"
        remedy = "load the target with the draft's taps, as inputs of layers."
        return Finding(part, found, "fault", remedy, STRUCTURAL)
    usual = tap_layers(case.target.num_layers) if last >= 6 else named
    tried = {usual, *(tuple(tap + by for tap in named) for by in (-1, 1))} - {named}
    tried = [taps for taps in tried if taps[0] >= 0 and taps[-1] <= last]
    changes = [case.with_features(f"with taps {t}", t) for t in sorted(tried)]
    if not changes:
        return Finding(part, f"inputs of layers {named}, and no others to try")
    change = best(changes)
    found = f"inputs of layers {named}; {case.kept}, {change}"
    if change.is_better:
        remedy = (
            "the checkpoint counts layers otherwise (inputs or outputs): correct its "
            "taps."
        )
        return Finding(part, found, "fault", remedy, change.gain)
    if named != usual and not case.with_features("", usual).is_worse:
        remedy = f"most drafts are trained on {usual}: make sure of it."
        return Finding(part, found, "warning", remedy)
    return Finding(part, found)


def _handed_over(text: Text, named: tuple[int, ...]) -> tuple[int, ...]:
    """Which layers' inputs the target's features really are."""
    layers = []
    for tap, block in zip(named, text.features.chunk(len(named), -1), strict=True):
        distance = (text.states - block).abs().amax((1, 2))  # [L]
        is_tap = bool(distance[tap] == distance.min())  # layers may be alike
        layers.append(tap if is_tap else int(distance.argmin()))
    return tuple(layers)


def norms(case: Case) -> Finding:
    """Are the draft's norms loaded, and does it use them?

    A norm that was never loaded has nothing but ones. One that is used moves the
    result when its weight changes. [Ours]
    """
    part, draft = "norms", case.draft
    names = _norm_names(draft)
    for name in names:
        norm = draft.get_submodule(name)
        if not isinstance(norm, RMSNorm):
            found = f"'{name}' is a {type(norm).__name__}"
            remedy = "a norm is skipped: put the RMSNorm with its weight back."
            return Finding(part, found, "fault", remedy, STRUCTURAL)
    for name in names:
        if not _is_used(case, draft.get_submodule(name)):
            found = f"a change of '{name}' changes nothing"
            remedy = f"'{name}' is skipped: apply it as the official draft does."
            return Finding(part, found, "fault", remedy, STRUCTURAL)
    flat = [n for n in names if bool((draft.get_submodule(n).weight == 1).all())]
    if flat:
        found = f"nothing but ones in {', '.join(flat)}"
        remedy = (
            "an untrained draft: train it."
            if flat == names
            else "it was never loaded: take the weight from the original checkpoint."
        )
        return Finding(part, found, "fault", remedy, STRUCTURAL)
    return Finding(part, f"{', '.join(names)}: loaded and used")


def _norm_names(draft: Any) -> list[str]:
    if draft.reads != "features":
        return ["layer.post_norm"]
    names = ["layer.input_norm", "layer.hidden_norm", "layer.post_norm", "norm"]
    if draft.config.fc_norm:
        names += [f"fc_norm.{tap}" for tap in range(len(draft.config.taps))]
    return names


def _is_used(case: Case, norm: RMSNorm) -> bool:
    text = case.texts[0]
    # Scaling all channels alike could be undone by the norm behind it.
    factors = torch.linspace(0.5, 2.0, len(norm.weight), device=norm.weight.device)
    changed = nn.Parameter(norm.weight.detach() * factors, requires_grad=False)
    before = case.foretold[0]
    with swapped(norm, "weight", changed):
        return not torch.equal(text.foretold(case.draft), before)


def rope_base(case: Case) -> Finding:
    """Do positions turn by the base that the draft was trained with?

    Some published drafts name a base that their training ignored, and were trained with
    10,000. [Code: eagle/traineagle3 passes none]
    """
    part, draft = "RoPE base", case.draft
    rope = draft.config.rope
    theirs = RopeConfig.from_hf(case.target.config.to_dict())
    changes = {}
    for other in dict.fromkeys((theirs, NO_BASE)):
        if other == rope:
            continue
        table = RopeTable(other, draft.config.head_dim)
        changes[other] = case.with_part(f"with {_named(other)}", "_rope", table)
    if not changes:
        return Finding(part, f"{_named(rope)}, as the target's and as without a base")
    found = f"{_named(rope)}; {case.kept}, {', '.join(map(str, changes.values()))}"
    change = best([*changes.values()])
    if change.is_better:
        remedy = f"the draft was trained {change.words}: write that into its config."
        return Finding(part, found, "fault", remedy, change.gain)
    if theirs in changes and not changes[theirs].is_worse:
        remedy = f"the target has {_named(theirs)}: make sure what it was trained with."
        return Finding(part, found, "warning", remedy)
    return Finding(part, found)


def _named(rope: RopeConfig) -> str:
    scaling = "" if rope.scaling == "none" else f" {rope.scaling} {rope.factor:g}"
    return f"{rope.theta:,.0f}{scaling}"


def positions(case: Case) -> Finding:
    """Do positions move on, from row to row and from one cached step to the next?

    Only distances count, so all positions three times as far apart must make a
    difference, and so must a last row that stands farther away. [Ours]
    """
    part, draft, text = "positions", case.draft, case.texts[0]
    ids = text.token_ids[None, 1:]
    with torch.no_grad():
        x = draft.fuse(getattr(text, draft.reads)[None, :-1])
        where = torch.arange(x.shape[1], device=x.device)
        whole = draft.forward(ids, x, where)
        spread = draft.forward(ids, x, 3 * where)
        steps = []
        for last in (where[-1:], where[-1:] + 20):
            cache = draft.new_cache(int(where[-1]) + 21)
            draft.forward(ids[:, :-1], x[:, :-1], where[:-1], cache)
            steps.append(draft.forward(ids[:, -1:], x[:, -1:], last, cache)[0, -1])
    remedy = "pass the row's position, and count on while drafting."
    if torch.equal(whole, spread) or torch.equal(*steps):
        which = "rows" if torch.equal(whole, spread) else "cached steps"
        found = f"the result for {which} is the same wherever they stand: frozen"
        return Finding(part, found, "fault", remedy, STRUCTURAL)
    error = (whole[0, -1] - steps[0]).abs().max() / whole[0, -1].abs().max()
    if error > 0.01:
        found = f"a cached step differs from the whole pass by {error:.1%}"
        return Finding(part, found, "fault", remedy, STRUCTURAL)
    return Finding(part, "count on; a cached step is the whole pass's last row")


def acceptance_length(case: Case) -> Finding:
    """Tokens per target pass on the same prompts, with chains of three. [Paper]"""
    part, tokens, passes = "acceptance length", 0, 0
    drafter = as_drafter(case.target, case.draft)
    for text in case.texts:
        prompt = tuple(text.token_ids[: text.num_prompt].tolist())
        count = min(case.num_tokens, len(text.token_ids) - text.num_prompt)
        result = run(case.target, drafter, Request(prompt, count))
        tokens += len(result.token_ids) - 1  # the first comes from the prompt's pass
        passes += result.target_passes
    tau = tokens / max(1, passes)
    right = case.wired.agrees.float().mean()
    found = (
        f"{tau:.2f} tokens per target pass; best token right {right:.1%}, {case.kept}"
    )
    if tau < LOW_ACCEPTANCE:
        remedy = f"below {LOW_ACCEPTANCE} a draft only costs time: see the faults here."
        return Finding(part, found, "warning", remedy)
    return Finding(part, found)


def layer(case: Case) -> Finding:
    """Does the layer read and carry on its two streams as it was trained to?

    Tried are both orders of embedding and feature in front of attention, each with the
    feature and with its norm as the residual stream. Drafts of both residuals exist,
    and their tensors look alike. [Code: cnets.py, speculators]
    """
    part, draft = "layer", case.draft
    changes = [
        case.with_part(words, "enter", enter) for words, enter in _entries(draft)
    ]
    change = best(changes)
    found = f"{case.kept}, {change}"
    # A draft for another target does a little better or worse with any layer.
    if change.is_better and change.gain >= MIN_GAIN_OF_LAYER:
        remedy = (
            f"it was trained {change.words}: get the code that it was trained with, or "
            "a draft of the official kind."
        )
        return Finding(part, found, "fault", remedy, change.gain)
    return Finding(part, found)


def _entries(draft: Any) -> Iterator[tuple[str, Callable]]:
    """The ways into the layer, in words and as `enter`; the first is the right one."""
    for embedding_first in (True, False):
        for normed in (False, True):

            def enter(
                ids: Tensor, x: Tensor, first: bool = embedding_first, n: bool = normed
            ) -> tuple[Tensor, Tensor]:
                e = draft.layer.input_norm(draft.embed(ids))
                feature = draft.layer.hidden_norm(x)
                both = [e, feature] if first else [feature, e]
                return torch.cat(both, dim=-1), feature if n else x

            order = "embedding" if embedding_first else "feature"
            stream = "the feature's norm" if normed else "the feature"
            yield f"with the {order} first and {stream} as residual", enter


def borrowed_head(case: Case) -> Finding:
    """Is the head of an EAGLE-1 draft the target's? [Code: eagle/model/cnets1.py]"""
    part, theirs = "head", case.target.head.float()
    if torch.equal(case.draft.lm_head.weight.float(), theirs):
        return Finding(part, "the target's own")
    remedy = "load the draft with this target's head."
    return Finding(part, "not the target's", "fault", remedy, STRUCTURAL)
