"""What a configuration takes: a ledger of memory, before anything is allocated.

Weights are most of it at batch 1; with the batch and the context, keys and values take
over. What speculative decoding adds is listed by itself: the draft's weights and cache,
room for drafted tokens in both caches, three features for each token of a block, and
with sampling one distribution per row. [Ours; Interpretation: the paper names the first
four and measures none]
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from eagle3.draft import NUM_TAPS, DraftConfig
from eagle3.gpu.cache import CacheSize
from eagle3.gpu.engine import SPAN, Slots, block_sizes, cache_length
from eagle3.gpu.trees import on_device
from eagle3.growth import Growth


@dataclass(frozen=True)
class Ledger:
    """Bytes by purpose.

    target_weights, draft_weights: the draft's with its copy of the embedding
    target_kv, draft_kv: keys and values of the tokens that the slots hold
    draft_positions: columns of both caches beyond those, for drafted tokens
    features: the target's taps, of the last block and of what the draft has not seen
    logits: of the last block
    sampling: distributions and random numbers, needed once a request samples
    graphs: what CUDA graphs keep besides: each span of columns that was recorded has
        logits, taps and hidden states of its own. Twice that once requests of both
        kinds, greedy and sampled, have run; nothing where no graphs are recorded

    [Ours]
    """

    target_weights: int
    draft_weights: int
    target_kv: int
    draft_kv: int
    draft_positions: int
    features: int
    logits: int
    sampling: int
    graphs: int

    @property
    def total(self) -> int:
        """All of them together."""
        return sum(vars(self).values())

    def lines(self) -> list[str]:
        """The ledger as text, in MiB, a line for each purpose. [Ours]"""
        entries = [*vars(self).items(), ("total", self.total)]
        return [
            f"{name.replace('_', ' '):<16}{count / 2**20:>12,.1f} MiB"
            for name, count in entries
        ]


def memory_ledger(
    target_config: Any,
    draft: DraftConfig | None = None,
    growth: Growth | None = None,
    slots: Slots | None = None,
    dtype: torch.dtype = torch.float32,
) -> Ledger:
    """What `BatchEngine` takes with these parts; nothing is loaded or allocated.

    target_config: of the Llama kind, object or dict    growth: with a draft

    Raises ValueError when one of draft and growth is missing. [Ours]
    """
    if (draft is None) != (growth is None):
        raise ValueError(
            f"the draft is {draft} and the growth {growth}: give both, or none for "
            "vanilla decoding."
        )
    hf = target_config
    hf = hf if isinstance(hf, Mapping) else hf.to_dict()
    slots, size = slots or Slots(), dtype.itemsize
    heads, layers = hf["num_attention_heads"], hf["num_hidden_layers"]
    hidden, vocab = hf["hidden_size"], hf["vocab_size"]
    kv_heads = hf.get("num_key_value_heads") or heads
    head_dim = hf.get("head_dim") or hidden // heads
    grown = draft and on_device(growth, draft.draft_vocab_size, torch.device("cpu"))
    nodes, races = (grown.num_nodes, grown.num_races) if draft else (0, 0)
    depth, _ = block_sizes(grown)
    length = cache_length(slots, grown)

    def cache(columns: int) -> tuple[int, int]:
        """Bytes of the target's and the draft's keys and values."""
        target = CacheSize(layers, slots.count, kv_heads, columns, head_dim).numel
        if draft is None:
            return target * size, 0
        of_draft = 1, slots.count, draft.num_kv_heads, columns, draft.head_dim
        return target * size, CacheSize(*of_draft).numel * size

    target_kv, draft_kv = cache(slots.length)
    rows = slots.count * (nodes + 1)
    spans = _num_spans(length)
    of_pass = (spans - 1) * (vocab + NUM_TAPS * hidden) + spans * hidden  # a row
    drawn_words = draft.draft_vocab_size if draft else 0
    numbers = races * drawn_words + nodes + vocab  # of each slot
    spread = races * vocab  # q of each inner row, over the target's vocabulary
    return Ledger(
        target_weights=_target_weights(hf, head_dim, kv_heads) * size,
        draft_weights=_draft_weights(draft) * size if draft else 0,
        target_kv=target_kv,
        draft_kv=draft_kv,
        draft_positions=sum(cache(length)) - target_kv - draft_kv,
        features=(rows + slots.count * (depth + 1)) * NUM_TAPS * hidden * size,
        logits=rows * vocab * size,
        sampling=4 * (rows * vocab + slots.count * (numbers + spread)),
        graphs=rows * of_pass * size,
    )


def _num_spans(length: int) -> int:
    """How many spans there are in a cache of so many columns."""
    return 1 + max(0, math.ceil(math.log2(length / SPAN)))


def _target_weights(hf: Mapping[str, Any], head_dim: int, kv_heads: int) -> int:
    """Numbers in a Llama's weights; the head counts once where it is tied."""
    k, wide = hf["hidden_size"], hf["num_attention_heads"] * head_dim
    layer = 2 * k * wide + 2 * k * kv_heads * head_dim
    layer += 3 * k * hf["intermediate_size"] + 2 * k
    tables = 1 if hf.get("tie_word_embeddings") else 2
    return hf["num_hidden_layers"] * layer + k + tables * hf["vocab_size"] * k


def _draft_weights(c: DraftConfig) -> int:
    """Numbers in an EAGLE-3 draft's weights, its copy of the embedding included."""
    k, wide, narrow = (
        c.hidden_size,
        c.num_heads * c.head_dim,
        c.num_kv_heads * c.head_dim,
    )
    attention = 2 * k * (wide + 2 * narrow) + wide * k  # two streams go in, one out
    layer = attention + 3 * k * c.intermediate_size + 3 * k  # three norms
    fusion = NUM_TAPS * c.target_hidden_size * k
    return fusion + layer + k + (c.draft_vocab_size + c.vocab_size) * k
