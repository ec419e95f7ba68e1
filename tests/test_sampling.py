"""eagle3.sampling against transformers, exact enumeration, and 200,000 trials.

Oracles: transformers' own logits warpers for the distributions; for the acceptance
rule the law of ordinary sampling from the target, reached by summing over every
drafted chain and every equally likely uniform, with no sampling noise. Each known
way to get the rule wrong is planted in a copy of the module and must be caught.
"""

import importlib.util
import itertools
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from eagle3 import sampling
from eagle3.sampling import (
    ChainDecision,
    SamplingParams,
    acceptance_probability,
    next_token_distribution,
    residual,
    sample,
    verify_chain,
    verify_chain_greedy,
)

STEPS = 12  # the enumeration splits the unit interval of each uniform into 12 cells


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------ SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", -0.5),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_k", 0),
        ("top_k", -3),
        ("top_k", 2.5),
        ("seed", -1),
        ("seed", 1.5),
    ],
)
def test_a_value_outside_its_range_is_refused_with_its_name_and_value(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value!r}; use ") as caught:
        SamplingParams(**{field: value})
    assert str(caught.value).count("\n") == 0


def test_the_borders_of_each_range_are_allowed():
    SamplingParams(temperature=0, top_k=1, top_p=1.0, seed=0)
    SamplingParams(temperature=1e-6, top_p=1e-9, seed=2**63 - 1)


# --------------------------------------------------------- next_token_distribution


def by_transformers(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    scores = TemperatureLogitsWarper(params.temperature)(None, logits)
    if params.top_k is not None:
        scores = TopKLogitsWarper(params.top_k)(None, scores)
    if params.top_p < 1:
        scores = TopPLogitsWarper(params.top_p)(None, scores)
    return scores.softmax(-1)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [None, 1, 20, 10_000])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.35, 1e-6])
def test_distribution_equals_transformers_warpers(temperature, top_k, top_p):
    # Spread 0.5 leaves wide rows (top-p reaches past its sorted head), 6 narrow ones.
    spread = torch.tensor([0.5, 2.0, 6.0])[:, None]
    logits = torch.randn(3, 5_000, generator=generator(1)) * spread
    params = SamplingParams(temperature, top_k, top_p)
    ours = next_token_distribution(logits, params)
    theirs = by_transformers(logits, params)
    assert torch.equal(ours > 0, theirs > 0)
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=1e-8)


def test_filters_act_in_the_order_temperature_top_k_top_p():
    # Mass .4 .3 .2 .1. After top-2 the pair holds 4/7 and 3/7, so top-p 0.5 keeps one
    # token. Top-p first would keep two (.4 < .5), and top-2 both of them.
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    probs = next_token_distribution(logits, SamplingParams(1.0, top_k=2, top_p=0.5))
    assert probs.tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.2}])
def test_temperature_0_is_one_hot_at_the_first_maximum(filters):
    logits = torch.tensor([[0.0, 7.0, 7.0, -1.0], [5.0, 1.0, 5.0, 5.0]])
    probs = next_token_distribution(logits, SamplingParams(**filters))
    assert probs.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


def test_a_tiny_temperature_goes_to_the_argmax_without_overflow():
    probs = next_token_distribution(
        torch.tensor([3e4, 1.0, 2.0]), SamplingParams(1e-38)
    )
    assert probs.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_float_type_comes_out_as_float32_in_the_same_shape(dtype):
    logits = torch.randn(2, 3, 11, generator=generator()).to(dtype)
    probs = next_token_distribution(logits, SamplingParams(0.8, top_k=5, top_p=0.9))
    assert probs.dtype == torch.float32
    assert probs.shape == logits.shape
    torch.testing.assert_close(probs.sum(-1), torch.ones(2, 3))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_or_infinite_logits_raise(temperature, bad):
    logits = torch.zeros(3, 5)
    logits[1, 2] = bad
    with pytest.raises(FloatingPointError, match="NaN or \\+inf"):
        next_token_distribution(logits, SamplingParams(temperature))


def test_a_forbidden_token_is_fine_and_a_row_of_them_is_not():
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    probs = next_token_distribution(logits, SamplingParams(1.0))
    assert probs.tolist() == [[0.5, 0.0, 0.5]]
    with pytest.raises(FloatingPointError, match="no finite value"):
        next_token_distribution(torch.full((1, 3), -math.inf), SamplingParams(1.0))


# ----------------------------------------------------------------------- sampling


def test_sample_repeats_with_its_seed_and_leaves_the_global_generator_alone():
    probs = torch.rand(4, 6, 30, generator=generator(2))
    before = torch.get_rng_state()
    first = sample(probs, generator(5))
    assert first.shape == (4, 6)
    assert first.dtype == torch.int64
    assert torch.equal(first, sample(probs, generator(5)))
    assert not torch.equal(first, sample(probs, generator(6)))
    assert torch.equal(before, torch.get_rng_state())


def test_sample_follows_the_distribution_and_never_draws_a_zero():
    probs = torch.tensor([0.1, 0.0, 0.6, 0.3])
    drawn = sample(probs.expand(100_000, 4), generator(3))
    counts = torch.bincount(drawn, minlength=4)
    assert counts[1] == 0
    kept = [0, 2, 3]
    test = scipy.stats.chisquare(counts[kept], 100_000 * np.array([0.1, 0.6, 0.3]))
    assert test.pvalue > 1e-4


# -------------------------------------------------------- acceptance and residual


def test_the_worked_numbers():
    # Target 0.6 against draft 0.8 keeps 0.75; an under-confident draft is always kept.
    over = torch.tensor([0.8, 0.2], dtype=torch.float64)
    under = torch.tensor([0.4, 0.6], dtype=torch.float64)
    target = torch.tensor([0.6, 0.4], dtype=torch.float64)
    assert acceptance_probability(target, over, 0) == pytest.approx(0.75, abs=1e-12)
    assert acceptance_probability(target, under, 0) == 1.0
    assert residual(target, over).tolist() == [0.0, 1.0]
    assert residual(target, under).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("zeros", [0, 3])
def test_mean_acceptance_is_the_sum_of_the_smaller_probabilities(zeros):
    for seed in range(20):
        p, q = random_pair(8, seed, zeros)
        mean = sum(
            float(q[x]) * acceptance_probability(p, q, x) for x in range(8) if q[x] > 0
        )
        assert mean == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-12)


@pytest.mark.parametrize("q_token", [0.0, math.nan])
def test_a_token_that_its_q_cannot_draw_is_refused(q_token):
    q = torch.tensor([q_token, 1.0])
    p = torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match="drafted token 0"):
        acceptance_probability(p, q, 0)
    with pytest.raises(ValueError, match="drafted token 0"):
        verify_chain([0], q[None], p.expand(2, 2), generator())


def test_residual_falls_back_to_p_where_rounding_leaves_nothing():
    p = torch.tensor([0.25, 0.75])
    assert torch.equal(residual(p, p), p)
    larger = p + 2**-24  # q above p everywhere, as two float paths can make it
    assert torch.equal(residual(p, larger), p)


def test_verify_chain_survives_a_residual_of_zero():
    p = torch.tensor([[0.25, 0.75], [0.25, 0.75]])
    q = p[:1] * 4  # four times too large: 3 in 4 are rejected, and nothing is owed
    kinds = {verify_chain([1], q, p, generator(seed)).kind for seed in range(20)}
    assert kinds == {"replacement", "bonus"}


# -------------------------------------------------------------- exact enumeration


def random_pair(vocab: int, seed: int, zeros: int) -> tuple[torch.Tensor, ...]:
    """Two float64 distributions [V]; each has `zeros` entries that are exactly 0."""
    draw = generator(seed)
    pair = []
    for _ in range(2):
        weights = torch.rand(vocab, generator=draw, dtype=torch.float64)
        weights[torch.randperm(vocab, generator=draw)[:zeros]] = 0
        pair.append(weights / weights.sum())
    return tuple(pair)


def gridded_pair(vocab: int, seed: int, zeros: int) -> tuple[torch.Tensor, ...]:
    """p, q [V] whose ratios p / q below 1 are whole twelfths.

    So a uniform decides the same way all over one twelfth of the unit interval, and
    twelve equal cells stand for every uniform exactly. `zeros` entries of p are 0.
    """
    draw = generator(seed)
    q = torch.rand(vocab, generator=draw, dtype=torch.float64) + 0.05
    q /= q.sum()
    twelfths = torch.randint(1, STEPS + 1, (vocab,), generator=draw)
    twelfths[:zeros] = 0
    p = q * twelfths / STEPS
    p[-1] = 1 - p[:-1].sum()  # at least q[-1]: the others gave up what it takes
    order = torch.randperm(vocab, generator=draw)
    return p[order], q[order]


def one_hot_pair(vocab: int, seed: int) -> tuple[torch.Tensor, ...]:
    """A deterministic child (q one-hot) whose p is a whole number of twelfths."""
    p, _ = gridded_pair(vocab, seed, 0)
    rest = p[1:] / p[1:].sum()
    share = 1 + seed % (STEPS - 1)
    p = torch.cat([p.new_tensor([share / STEPS]), rest * (1 - share / STEPS)])
    q = torch.zeros_like(p)
    q[0] = 1
    return p, q


PAIRS = [gridded_pair(4, seed, zeros) for seed in range(4) for zeros in (0, 1)]
PAIRS += [one_hot_pair(4, seed) for seed in (2, 7)]


class Scripted:
    """Replaces the chance inside a sampling module by values that we choose."""

    def __init__(self, module: types.ModuleType):
        self.module = module
        self.uniforms: tuple[float, ...] = ()
        self.drawn_from: torch.Tensor | None = None
        module.uniforms = lambda count, like, generator: list(self.uniforms)
        module.sample = self._record

    def _record(self, probs: torch.Tensor, generator: object) -> torch.Tensor:
        self.drawn_from = probs
        return torch.tensor(0)

    def decide(self, tokens, q, p, uniforms) -> tuple[int, torch.Tensor]:
        """Accepted count, and the distribution [V] that the next token comes from."""
        self.uniforms = uniforms
        decision = self.module.verify_chain(list(tokens), q, p, None)
        return decision.num_accepted, self.drawn_from


def exact_law(module: types.ModuleType, pairs: list[tuple]) -> torch.Tensor:
    """The law of the first n + 1 tokens, over every draft and every uniform.

    pairs: n (p, q) of one position each; the target's later rows don't depend on the
        earlier tokens here, so the right answer is the product of the rows of p.
    returns: [V, ..., V]  n + 1 axes
    """
    script = Scripted(module)
    p = torch.stack([pair[0] for pair in pairs] + [pairs[0][0]])  # [n + 1, V]
    q = torch.stack([pair[1] for pair in pairs])  # [n, V]
    n, vocab = q.shape
    cells = [(cell + 0.5) / STEPS for cell in range(STEPS)]
    law = torch.zeros((vocab,) * (n + 1), dtype=torch.float64)
    for tokens in itertools.product(range(vocab), repeat=n):
        weight = math.prod(float(q[i, t]) for i, t in enumerate(tokens)) / STEPS**n
        if weight == 0:
            continue
        for uniforms in itertools.product(cells, repeat=n):
            kept, source = script.decide(tokens, q, p, uniforms)
            # After the chain the target goes on alone.
            tail = weight * source
            for row in p[kept + 1 :]:
                tail = tail[..., None] * row
            law[tokens[:kept]] += tail
    return law


def right_law(pairs: list[tuple]) -> torch.Tensor:
    law = torch.ones((), dtype=torch.float64)
    for p in [pair[0] for pair in pairs] + [pairs[0][0]]:
        law = law[..., None] * p
    return law


def largest_error(module: types.ModuleType) -> float:
    """Largest entry-wise distance from the target's law over chains of 1 and 2."""
    chains = [[pair] for pair in PAIRS] + [[PAIRS[1], PAIRS[2]], [PAIRS[8], PAIRS[3]]]
    errors = []
    for pairs in chains:
        law = exact_law(module, pairs)
        errors.append(float((law - right_law(pairs)).abs().max()))
    return max(errors)


@pytest.fixture
def copy_of_sampling(tmp_path):
    """Builds a fresh module from eagle3/sampling.py with one piece of text replaced."""

    def build(old: str = "", new: str = "") -> types.ModuleType:
        text = Path(sampling.__file__).read_text(encoding="utf-8")
        if old:
            assert text.count(old) == 1, f"the mutant's anchor moved: {old!r}"
            text = text.replace(old, new)
        path = tmp_path / "sampling_copy.py"
        path.write_text(text + ONLY_REJECTED, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("sampling_copy", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["sampling_copy"] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    yield build
    sys.modules.pop("sampling_copy", None)


def test_every_outcome_summed_up_gives_the_target_law_to_1e_12(
    copy_of_sampling,
):
    assert largest_error(copy_of_sampling()) < 1e-12


MUTANTS = {
    "resample from p": ("residual(p[i], q[i])", "p[i]"),
    "no renormalisation": ("owed / total if", "owed if"),
    "only the rejected entry lowered": (
        "residual(p[i], q[i])",
        "_only_rejected(p[i], q[i], token)",
    ),
    "uniform fixed to 0": ("uniforms(n, p, generator)", "[0.0] * n"),
    "uniform fixed to 1": ("uniforms(n, p, generator)", "[1.0] * n"),
    "one uniform for the whole chain": (
        "uniforms(n, p, generator)",
        "uniforms(n, p, generator)[:1] * n",
    ),
    "q of the wrong row": ("q_drafted[i], token)", "q_drafted[0], token)"),
    "accept where p is at least q": (
        "return min(1.0, p_token / q_token)",
        "return float(p_token >= q_token)",
    ),
    "bonus from the last verified row": ("sample(p[n], g", "sample(p[n - 1], g"),
    "residual turned round": ("(p - q).clamp", "(q - p).clamp"),
}

ONLY_REJECTED = """

def _only_rejected(p, q, token):
    lowered = p.clone()
    lowered[token] = max(0.0, float(p[token] - q[token]))
    return lowered / lowered.sum() if lowered.sum() > 0 else p
"""


@pytest.mark.parametrize("name", MUTANTS)
def test_the_enumeration_catches(name, copy_of_sampling):
    assert largest_error(copy_of_sampling(*MUTANTS[name])) > 1e-3


@pytest.mark.parametrize("kind", ["plain", "zeros", "one-hot"])
def test_acceptance_and_residual_together_give_p_for_any_p_and_q(kind):
    for seed in range(30):
        p, q = random_pair(7, seed, zeros=3 if kind == "zeros" else 0)
        if kind == "one-hot":
            q = torch.nn.functional.one_hot(torch.tensor(seed % 7), 7).double()
        emitted = torch.zeros_like(p)
        for x in q.nonzero().flatten().tolist():
            keep = acceptance_probability(p, q, x)
            emitted[x] += q[x] * keep
            emitted += q[x] * (1 - keep) * residual(p, q)
        assert float((emitted - p).abs().max()) < 1e-12


# ------------------------------------------------------------------ sampled checks


def markov_toy(vocab: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Target and draft transition rows [V, V] of a Markov chain with some zeros."""
    logits = torch.randn(2, vocab, vocab, generator=generator(11)) * 1.5
    logits[0, 1, 2] = logits[1, 3, 0] = -math.inf
    target, draft = next_token_distribution(logits, SamplingParams(0.9))
    return target.double(), draft.double()


def two_tokens(target: torch.Tensor, draft: torch.Tensor, trials: int) -> torch.Tensor:
    """Counts [V, V] of two consecutive tokens after token 0, by chains of two."""
    draw = generator(12)
    vocab = target.shape[0]
    counts = torch.zeros(vocab, vocab)
    first = sample(draft[0].expand(trials, vocab), draw)  # [trials]
    second = sample(draft[first], draw)  # [trials]
    for d1, d2 in zip(first.tolist(), second.tolist(), strict=True):
        decision = verify_chain(
            [d1, d2], draft[[0, d1]], target[[0, d1, d2]], generator=draw
        )
        kept = [d1, d2][: decision.num_accepted]
        emitted = [*kept, decision.next_token]
        if len(emitted) == 1:  # the next cycle starts: let the target decode alone
            emitted.append(int(sample(target[emitted[0]], draw)))
        counts[emitted[0], emitted[1]] += 1
    return counts


def test_200_000_chains_on_a_markov_toy_follow_the_target():
    target, draft = markov_toy()
    trials = 200_000
    expected = (target[0][:, None] * target).flatten().numpy() * trials
    counts = two_tokens(target, draft, trials).flatten().numpy()
    possible = expected > 0
    assert counts[~possible].sum() == 0
    wanted = expected[possible] / expected.sum() * trials  # float32 rows sum to 1-ish
    assert scipy.stats.chisquare(counts[possible], wanted).pvalue > 1e-3
    # Each |count - expected| has mean sqrt(2 np / pi): about 0.004 in all here.
    assert 0.5 * np.abs(counts - expected).sum() / trials < 0.008
    # The draft alone would fail: it is far from the target.
    assert float((draft[0] - target[0]).abs().sum()) / 2 > 0.1


def sigmas_from_overlap(module: types.ModuleType, trials: int = 20_000) -> float:
    """How far the accepted share lies from sum(min(p, q)), in standard deviations."""
    p, q = random_pair(6, 4, zeros=1)
    draw = generator(13)
    tokens = sample(q.expand(trials, 6), draw).tolist()
    rows = torch.stack([p, p])
    kept = sum(
        module.verify_chain([t], q[None], rows, draw).num_accepted for t in tokens
    )
    overlap = float(torch.minimum(p, q).sum())
    return abs(kept / trials - overlap) / math.sqrt(overlap * (1 - overlap) / trials)


def test_share_of_accepted_tokens_is_the_overlap_of_p_and_q():
    assert sigmas_from_overlap(sampling) < 4


@pytest.mark.parametrize("name", ["uniform fixed to 0", "uniform fixed to 1"])
def test_the_accepted_share_catches(name, copy_of_sampling):
    assert sigmas_from_overlap(copy_of_sampling(*MUTANTS[name])) > 20


def test_a_filter_acts_on_both_sides_and_the_law_stays_the_filtered_target():
    logits = torch.randn(2, 12, generator=generator(14)).double() * 2
    params = SamplingParams(1.0, top_k=8, top_p=0.8)
    p, q = next_token_distribution(logits, params).double()
    p, q = p / p.sum(), q / q.sum()
    plain_q = next_token_distribution(logits[1], SamplingParams(1.0)).double()
    plain_p = next_token_distribution(logits[0], SamplingParams(1.0)).double()

    def law(p, drawn, judged):
        keep = torch.where(judged > 0, torch.minimum(p / judged, p.new_ones(())), 0)
        return drawn * keep + (drawn * (1 - keep)).sum() * residual(p, judged)

    assert float((law(p, q, q) - p).abs().max()) < 1e-12
    # An unfiltered draft is still lossless, as long as q is the one drawn from ...
    plain_q = plain_q / plain_q.sum()
    assert float((law(p, plain_q, plain_q) - p).abs().max()) < 1e-12
    # ... an unfiltered target answers another question, and a wrong q breaks the rule.
    assert float((law(plain_p, q, q) - p).abs().max()) > 0.01
    assert float((law(p, q, plain_q) - p).abs().max()) > 0.01


def test_same_seed_same_decision_whatever_the_global_generator_does():
    p = torch.rand(6, 40, generator=generator(15))
    p = p / p.sum(-1, keepdim=True)
    q = p[:5].roll(3, -1)
    tokens = sample(q, generator(16)).tolist()
    runs = []
    for seed in (1, 1, 2, 3):
        torch.rand(seed)  # a stray global draw
        draw = generator(seed)
        runs.append([verify_chain(tokens, q, p, draw) for _ in range(20)])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2] or runs[0] != runs[3]


# ------------------------------------------------------------------ greedy, errors


def test_greedy_rule_equals_the_sampling_rule_on_one_hot_rows():
    for tokens in itertools.product(range(3), repeat=2):
        for choices in itertools.product(range(3), repeat=3):
            p = torch.nn.functional.one_hot(torch.tensor(choices), 3).float()
            q = torch.nn.functional.one_hot(torch.tensor(tokens), 3).float()
            greedy = verify_chain_greedy(list(tokens), torch.tensor(choices))
            sampled = verify_chain(list(tokens), q, p, generator(17))
            assert greedy == sampled


def test_greedy_by_hand():
    choices = torch.tensor([4, 7, 9])
    assert verify_chain_greedy([4, 7], choices) == ChainDecision(2, 9, "bonus")
    assert verify_chain_greedy([4, 8], choices) == ChainDecision(1, 7, "replacement")
    assert verify_chain_greedy([5, 7], choices) == ChainDecision(0, 4, "replacement")


def test_a_chain_of_no_tokens_is_plain_decoding():
    p = torch.tensor([[0.0, 1.0]])
    bonus = ChainDecision(0, 1, "bonus")
    assert verify_chain([], p[:0], p, generator()) == bonus
    assert verify_chain_greedy([], torch.tensor([1])) == bonus


@pytest.mark.parametrize(
    ("q_shape", "p_shape"), [((1, 4), (2, 4)), ((2, 4), (2, 4)), ((2, 5), (3, 4))]
)
def test_shapes_that_disagree_are_refused(q_shape, p_shape):
    with pytest.raises(ValueError, match="2 drafted tokens came with q of shape"):
        verify_chain([0, 1], torch.ones(q_shape), torch.ones(p_shape), generator())


def test_greedy_lengths_that_disagree_are_refused():
    with pytest.raises(ValueError, match="pass one more choice"):
        verify_chain_greedy([0, 1], torch.tensor([0, 1]))
