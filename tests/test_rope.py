"""eagle3.rope against the oracles' tables, complex numbers, and bad configs."""

import math

import oracles
import pytest
import torch
from torch.testing import assert_close

from eagle3.rope import RopeConfig, RopeTable, cos_sin, inverse_frequencies, rotate


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", oracles.ROPES)
def test_tables_equal_the_official_ones(name):
    want = oracles.tensors(name)
    inv_freq = inverse_frequencies(oracles.ROPES[name], 16)
    if "linear" not in name:  # the official code divides positions, we frequencies
        assert_close(inv_freq, want["rope.inv_freq"], atol=0, rtol=1e-6)
    cos, sin = cos_sin(want["rope.positions"], inv_freq)
    assert_close(cos, want["rope.cos"], atol=5e-6, rtol=0)
    # Our first half carries the minus sign of rotate-half.
    sign = torch.tensor([-1.0] * 8 + [1.0] * 8)
    assert_close(sin * sign, want["rope.sin"], atol=5e-6, rtol=0)


def test_llama3_frequencies_equal_specforge():
    want = oracles.tensors("specforge_draft_llama3")["inv_freq"]
    config = oracles.ROPES["draft_forward_rope_llama3"]
    assert_close(inverse_frequencies(config, 16), want, atol=0, rtol=1e-6)


def test_llama3_keeps_fast_pairs_and_slows_slow_ones():
    # By the definition: wavelength under 64 / 4 unchanged, over 64 / 1 divided by 8.
    config = RopeConfig(500_000.0, "llama3", 8.0, 1.0, 4.0, 64)
    plain = inverse_frequencies(RopeConfig(500_000.0), 64)
    ratio = plain / inverse_frequencies(config, 64)
    wavelength = 2 * math.pi / plain
    assert_close(ratio[wavelength < 16], torch.ones(int((wavelength < 16).sum())))
    assert_close(ratio[wavelength > 64], torch.full_like(ratio[wavelength > 64], 8.0))
    between = ratio[(wavelength > 16) & (wavelength < 64)]
    assert len(between) and bool(((between > 1) & (between < 8)).all())


def test_rotation_is_a_turn_in_the_complex_plane():
    x, positions = random(2, 3, 5, 8), torch.tensor([0, 1, 2, 40, 1000])
    inv_freq = inverse_frequencies(RopeConfig(10_000.0), 8)
    turn = torch.polar(
        torch.ones(5, 4, dtype=torch.float64), positions[:, None].double() * inv_freq
    )
    pairs = torch.complex(x[..., :4].double(), x[..., 4:].double()) * turn
    want = torch.cat([pairs.real, pairs.imag], dim=-1).float()
    assert_close(rotate(x, positions, inv_freq), want, atol=1e-4, rtol=0)


def test_dot_products_depend_on_the_distance_only():
    query, key = random(2, 1, 16).double()
    inv_freq = inverse_frequencies(RopeConfig(10_000.0), 16)

    def product(i: int, j: int) -> torch.Tensor:
        turned = rotate(query, torch.tensor([i]), inv_freq)
        return (turned * rotate(key, torch.tensor([j]), inv_freq)).sum()

    assert_close(product(7, 3), product(104, 100), atol=1e-5, rtol=0)
    assert abs(product(7, 3) - product(7, 6)) > 0.1


def test_table_rows_equal_fresh_ones_while_it_grows():
    config = RopeConfig(10_000.0)
    table, inv_freq = RopeTable(config, 8), inverse_frequencies(config, 8)
    for positions in ([0], [3, 1], [17], [40, 41], [2]):
        at = torch.tensor(positions)
        got = table.rows(at, max(positions) + 1, random(1))
        assert_close(got, cos_sin(at, inv_freq), atol=0, rtol=0)
    half = table.rows(torch.tensor([40]), 41, random(1).bfloat16())
    want = cos_sin(torch.tensor([40]), inv_freq)  # far angles stay exact: cast last
    assert_close(half, tuple(w.bfloat16() for w in want), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("hf", "want"),
    [
        ({"rope_theta": 1e5}, RopeConfig(1e5)),
        ({"rope_theta": 1e5, "rope_scaling": None}, RopeConfig(1e5)),
        (
            {"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}},
            RopeConfig(1e5),
        ),
        (
            {"rope_theta": 1e5, "rope_scaling": {"type": "linear", "factor": 2}},
            RopeConfig(1e5, "linear", 2),
        ),
        (
            {
                "rope_theta": 7.0,  # the new layout wins where both are given
                "rope_parameters": {
                    "rope_theta": 5e5,
                    "rope_type": "llama3",
                    "factor": 32.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            RopeConfig(5e5, "llama3", 32.0, 1.0, 4.0, 8192),
        ),
        (  # Gemma 3: the layers that see the whole text have a base of their own
            {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                    "full_attention": {
                        "rope_type": "linear",
                        "factor": 8.0,
                        "rope_theta": 1e6,
                    },
                }
            },
            RopeConfig(1e6, "linear", 8.0),
        ),
    ],
)
def test_config_is_read_from_both_layouts(hf, want):
    assert RopeConfig.from_hf(hf) == want


@pytest.mark.parametrize(
    ("hf", "message"),
    [
        ({}, "names no RoPE base"),
        ({"rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn"}}, "'yarn' is not"),
        ({"rope_theta": 1e4, "rope_scaling": {"type": "linear"}}, "needs factor"),
        (
            {"rope_theta": 1e4, "rope_scaling": {"type": "llama3", "factor": 8.0}},
            "needs low_freq_factor, high_freq_factor, original_max_position",
        ),
        ({"rope_theta": 1e4, "partial_rotary_factor": 0.5}, "a part of the channels"),
        (
            {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}},
            "names RoPEs for sliding_attention and none for 'full_attention'",
        ),
    ],
)
def test_unsupported_configs_are_refused(hf, message):
    with pytest.raises(ValueError, match=message):
        RopeConfig.from_hf(hf)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"theta": 0.0}, "base must be above 1"),
        ({"theta": math.nan}, "base must be above 1"),
        ({"theta": 1e4, "factor": 0.5, "scaling": "linear"}, "factor must be"),
        ({"theta": 1e4, "scaling": "dynamic"}, "'dynamic' is not supported"),
        ({"theta": 1e4, "scaling": "llama3", "low_freq_factor": 4.0}, "low_freq"),
    ],
)
def test_bad_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        RopeConfig(**values)


def test_odd_head_dim_is_refused():
    with pytest.raises(ValueError, match="even head_dim, not 7"):
        inverse_frequencies(RopeConfig(1e4), 7)


def test_far_angles_keep_their_precision():
    """A table in bfloat16 is the float32 table, rounded once.

    bfloat16 has 8 bits: a position of 1,023 times a frequency in it would be off by
    whole turns.
    """
    config, like = RopeConfig(1e4), torch.zeros(1, dtype=torch.bfloat16)
    far = torch.tensor([1, 500, 1023])
    rows = RopeTable(config, 8).rows(far, 1024, like)
    exact = cos_sin(far, inverse_frequencies(config, 8))
    for row, wanted in zip(rows, exact, strict=True):
        assert torch.equal(row, wanted.bfloat16())
