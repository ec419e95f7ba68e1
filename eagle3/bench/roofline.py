"""What a pass should cost: bytes to fetch, arithmetic to do, the slower of the two.

A machine fetches so many bytes and computes so many products a second. A pass needs
both, and they overlap, so it takes at least as long as the slower of the two. Batch
and block enter as rows that share one reading of the weights; that sharing is the
spare compute that speculative decoding spends. [Derived; the EAGLE-3 paper, section
4.3, calls decoding memory-bound]

Left out: activations, which are small beside the weights, and all overheads.
Letters: B batch, n rows of a block, L layers, k hidden size, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """Two speeds: bandwidth in bytes per second, peak in FLOP per second. [Derived]"""

    bandwidth: float
    peak: float

    @property
    def ridge(self) -> float:
        """FLOP per byte above which arithmetic is the slower half. [Derived]"""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """The roof: FLOP per second that this intensity (FLOP per byte) allows."""
        return min(self.peak, intensity * self.bandwidth)


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a Llama-like model: gated MLP, grouped-query attention. [Code]"""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int

    @classmethod
    def from_config(cls, config: Any) -> "ModelShape":
        """The shape in a transformers config, as in `target.config`."""
        return cls(
            config.num_hidden_layers,
            config.hidden_size,
            config.intermediate_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.vocab_size,
        )

    @property
    def layer_products(self) -> int:
        """Weights in the matrices of all decoder layers."""
        attention = 2 * self.head_dim * (self.num_heads + self.num_kv_heads)
        per_layer = self.hidden_size * (attention + 3 * self.intermediate_size)
        return self.num_layers * per_layer

    @property
    def head_products(self) -> int:
        """Weights in the output head: k * V."""
        return self.hidden_size * self.vocab_size

    @property
    def weights_read(self) -> int:
        """Weights that every pass reads: layers, norms and head.

        Of the embedding a pass reads one row per token, which is not counted; where
        the head is the embedding (tied), it is counted as the head.
        """
        norms = (2 * self.num_layers + 1) * self.hidden_size
        return self.layer_products + norms + self.head_products

    @property
    def cached_per_position(self) -> int:
        """Numbers that the cache holds for one position: keys and values."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


@dataclass(frozen=True)
class Pass:
    """One target pass: `batch` requests of `rows` new tokens after `context` old ones.

    last_only: logits for the last row of each request alone, as in prefill
    """

    rows: int = 1
    batch: int = 1
    context: int = 0
    last_only: bool = False


@dataclass(frozen=True)
class Work:
    """What a pass needs: arithmetic in FLOP, and bytes from memory. [Derived]"""

    flops: float
    num_bytes: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.num_bytes

    def seconds(self, machine: Machine) -> float:
        """The least time: fetching or computing, whichever is longer."""
        return max(self.num_bytes / machine.bandwidth, self.flops / machine.peak)

    def is_memory_bound(self, machine: Machine) -> bool:
        """Whether fetching is the longer half."""
        return self.intensity < machine.ridge


def work_of(shape: ModelShape, step: Pass, number_bytes: int = 4) -> Work:
    """Count the work of one pass.

    number_bytes: bytes of one weight or cached number: 4 in float32, 2 in bfloat16
    Each weight of a matrix makes one product and one sum for each row: 2 FLOP. Row i
    of a request attends to context + i + 1 positions, with 2 FLOP for each number of
    key and of value. [Derived]
    """
    total_rows = step.rows * step.batch
    head_rows = step.batch if step.last_only else total_rows
    attended = step.batch * step.rows * (step.context + (step.rows + 1) / 2)
    products = (
        shape.layer_products * total_rows
        + shape.head_products * head_rows
        + 2 * shape.num_layers * shape.num_heads * shape.head_dim * attended
    )
    cached = step.batch * (step.context + step.rows) * shape.cached_per_position
    return Work(2 * products, number_bytes * (shape.weights_read + cached))
