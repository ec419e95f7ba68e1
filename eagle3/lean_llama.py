"""A Llama decoder stack with few kernels, for CPU decoding.

At one to sixteen rows a small model on a CPU spends a third of its time between the
matrix products: in Python, in norms made of seven kernels, in copies of the cache.
This is the same network as transformers' `LlamaForCausalLM`, read from its weights,
written as one short loop:

- q, k and v are one product, gate and up are one product, all weights prepacked, and
  their strips are used as they come: one strip of the first is one head;
- a norm's weight scales the columns of the matrix behind it, once, when it is packed;
- keys and values go straight into the pre-allocated cache;
- the query heads that share a key head are folded into rows, so no key is copied.

It also returns the tapped features without hooks. It computes what the library's
own model computes up to the order of summation, and a test holds it to that. [Ours]
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagle3.cache import KVCache
from eagle3.packed import STRIP, PackedLinear, linear_from


class LeanLlama:
    """The frozen Llama network: token ids in, logits and tapped features out.

    model: a transformers `LlamaForCausalLM` in float32 on the CPU, without biases. All
        its weights are copied; the model may be dropped afterwards.
    taps: layer numbers, ascending; () when nobody reads features

    [Ours]
    """

    def __init__(self, model: nn.Module, taps: tuple[int, ...]):
        config, decoder = model.config, model.get_decoder()
        self.taps = taps
        self.embedding = model.get_input_embeddings().weight.detach().clone()  # [V, k]
        self.layers = [_Layer(layer, config) for layer in decoder.layers]
        self.norm, self.scale = _Norm(config), _scale(decoder.norm)
        self.head = PackedLinear(model.get_output_embeddings())
        rotary = decoder.rotary_emb
        positions = torch.arange(config.max_position_embeddings, dtype=torch.float32)
        angles = positions[:, None] * rotary.inv_freq.float()  # [P, d/2]
        cos, sin = angles.cos(), angles.sin()
        self.cos = torch.cat((cos, cos), dim=-1) * rotary.attention_scaling  # [P, d]
        self.sin = torch.cat((-sin, sin), dim=-1) * rotary.attention_scaling

    def forward(
        self,
        input_ids: Tensor,
        cache: KVCache,
        positions: Tensor,
        mask: Tensor | None,
        last_only: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the block through all layers and append its keys and values to `cache`.

        input_ids: [B, n]        positions: [B or 1, n]
        mask: [B or 1, n, cached + n] bool, True = may attend; None = attend to all
        last_only: logits of the last position alone
        Returns logits [B, n or 1, V], features [B, n, taps * k] and the hidden state
        after the final norm [B, n, k]. [Ours]
        """
        x = F.embedding(input_ids, self.embedding)
        # cos and sin of each position: [B or 1, 1, n, d], the same for all heads
        rope = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        mask = None if mask is None else _additive(mask, self.layers[0].groups)
        tapped = [x[..., :0]]  # without taps the features are [B, n, 0]
        for index, layer in enumerate(self.layers):
            if index in self.taps:
                tapped.append(x)
            x = layer.forward(x, rope, cache, index, mask)
        cache.advance(input_ids.shape[1])
        hidden = self.norm(x) * self.scale
        logits = self.head(hidden[:, -1:] if last_only else hidden)
        return logits, torch.cat(tapped, dim=-1), hidden


class _Layer:
    def __init__(self, layer: nn.Module, config):
        attention, mlp = layer.self_attn, layer.mlp
        self.head_dim = attention.head_dim
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.groups = self.num_heads // self.num_kv_heads
        self.norm = _Norm(config)
        qkv = attention.q_proj, attention.k_proj, attention.v_proj
        self.qkv = _packed_behind(layer.input_layernorm, qkv, self.head_dim)
        self.out = PackedLinear(attention.o_proj)
        strip = math.gcd(STRIP, config.intermediate_size)  # gate ends with a strip
        gate_up = mlp.gate_proj, mlp.up_proj
        self.gate_up = _packed_behind(layer.post_attention_layernorm, gate_up, strip)
        self.down = PackedLinear(mlp.down_proj)

    def forward(self, x, rope, cache: KVCache, index: int, mask) -> Tensor:
        x = x + self._attention(self.norm(x), rope, cache, index, mask)
        both = self.gate_up.strips(self.norm(x))
        gate, up = both.chunk(2)  # [S / 2, B * n, w] each
        # [S / 2, B * n, w] -> [B, n, intermediate]
        wide = (F.silu(gate) * up).transpose(0, 1).reshape(*x.shape[:-1], -1)
        return x + self.down(wide)

    def _attention(self, x, rope, cache: KVCache, index: int, mask) -> Tensor:
        (cos, sin), (batch, rows, _) = rope, x.shape
        heads, kv_heads, dim = self.num_heads, self.num_kv_heads, self.head_dim
        # [H + 2 Hkv, B * n, d] -> [B, H + 2 Hkv, n, d]
        qkv = self.qkv.strips(x).unflatten(1, (batch, rows)).transpose(0, 1)
        qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        # Rotate-half RoPE: what is negated in one half is in the table of sines.
        qk = torch.addcmul(qk * cos, qk.roll(dim // 2, -1), sin)
        keys, values = cache.write(index, qk[:, heads:], v)  # [B, Hkv, S, d]
        # Fold the query heads of one key head into rows: [B, Hkv, groups * n, d].
        query = qk[:, :heads].reshape(batch, kv_heads, self.groups * rows, dim)
        mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        mixed = mixed.view(batch, heads, rows, dim).transpose(1, 2)
        return self.out(mixed.reshape(batch, rows, heads * dim))


class _Norm:
    """RMSNorm without its weight and without sqrt(k), in few kernels.

    x / sqrt(|x|^2 / k + eps) = sqrt(k) x / hypot(|x|, sqrt(k eps))
    """

    def __init__(self, config):
        self.floor = torch.tensor(math.sqrt(config.hidden_size * config.rms_norm_eps))

    def __call__(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / torch.hypot(length, self.floor)


def _scale(norm: nn.Module) -> Tensor:
    """What `_Norm` leaves out: [k]"""
    return norm.weight.detach() * math.sqrt(len(norm.weight))


def _additive(mask: Tensor, groups: int) -> Tensor:
    """[B, n, S] bool -> [B, 1, groups * n, S] float: 0 to attend, -inf not to."""
    additive = torch.zeros(mask.shape).masked_fill_(~mask, float("-inf"))
    return additive.repeat(1, groups, 1).unsqueeze(1)


def _packed_behind(
    norm: nn.Module, linears: tuple[nn.Linear, ...], strip: int
) -> PackedLinear:
    """One packed layer that computes a norm's scaling and several linear layers."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    return PackedLinear(linear_from(weight * _scale(norm)), strip)
