"""The engine's borders: context, draft window, trace, bad input, damaged models.

Right values are invariants and brute-force twins: a second, plain computation of the
same number with neither cache nor packing.
"""

import copy
import math
from dataclasses import replace

import helpers
import pytest
import torch
from helpers import PROMPT, ScriptDrafter, check_invariants, request, toy
from torch import nn

from eagle3 import engine as engine_module
from eagle3 import sampling
from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.drafters import EagleDrafter, VanillaDrafter
from eagle3.engine import (
    Engine,
    Request,
    generate,
    prompt_to_ids,
    stream_text,
    text_pieces,
)
from eagle3.growth import chain
from eagle3.sampling import SamplingParams, next_token_distribution
from eagle3.target import Target, TargetOutput
from eagle3.tree import DraftTree
from eagle3.verify import TreeDecision


@pytest.fixture
def passes(monkeypatch):
    """The (first, last) position of every pass of the toy target."""
    seen, forward = [], toy().forward

    def spy(input_ids, cache=None, **others):
        first = 0 if cache is None else cache.length
        seen.append((first, first + input_ids.shape[1] - 1))
        return forward(input_ids, cache, **others)

    monkeypatch.setattr(toy(), "forward", spy)
    return seen


# Context and windows


@pytest.mark.parametrize("length", [1, 3, 6])
@pytest.mark.parametrize("num_prompt", [1, 10, 22, 23])
def test_generation_stops_at_the_context_and_no_position_passes_it(
    monkeypatch, num_prompt, length
):
    """With P prompt tokens and a context of C there is room for C - P."""
    context = 24
    target = helpers.short_toy(context)
    prompt = list(range(num_prompt))
    wanted = helpers.vanilla(toy(), prompt, context - num_prompt)
    drafter = EagleDrafter(target, helpers.trained_draft_for(target), chain(length))
    run_by_target, run_by_draft = [], []
    _record_positions(monkeypatch, target, drafter, run_by_target, run_by_draft)
    result = check_invariants(Engine(target, drafter, request(prompt, 1000)))
    assert result.finish_reason == "context"
    assert result.token_ids == wanted
    assert max(run_by_target) <= context - 1
    assert max(run_by_draft, default=0) <= context - 1
    # The newest token has not been run: nothing was computed in vain.
    assert max(run_by_target) == context - 2


def _record_positions(monkeypatch, target, drafter, by_target, by_draft) -> None:
    target_forward, draft_forward = target.forward, drafter.draft.forward

    def target_spy(input_ids, cache=None, **others):
        by_target.extend(range(cache.length, cache.length + input_ids.shape[1]))
        return target_forward(input_ids, cache, **others)

    def draft_spy(token_ids, x, positions, cache=None, mask=None):
        by_draft.extend(positions.tolist())
        return draft_forward(token_ids, x, positions, cache, mask)

    monkeypatch.setattr(target, "forward", target_spy)
    monkeypatch.setattr(drafter.draft, "forward", draft_spy)


@pytest.mark.parametrize(
    ("max_new_tokens", "reason"), [(13, "length"), (14, "length"), (15, "context")]
)
def test_the_context_is_the_reason_only_where_more_was_asked_for(
    max_new_tokens, reason
):
    target = helpers.short_toy(24)
    result = generate(target, None, list(range(10)), max_new_tokens=max_new_tokens)
    assert (result.finish_reason, len(result.token_ids)) == (
        reason,
        min(max_new_tokens, 14),
    )


def test_past_the_drafts_own_window_the_target_goes_on_alone(monkeypatch):
    draft = helpers.trained_draft_for(toy())
    draft.config = replace(draft.config, max_positions=12)
    drafter = EagleDrafter(toy(), draft, chain(3))
    by_target, by_draft = [], []
    _record_positions(monkeypatch, toy(), drafter, by_target, by_draft)
    result = check_invariants(Engine(toy(), drafter, request(PROMPT, 20)))
    assert result.token_ids == helpers.vanilla(toy(), PROMPT, 20)
    assert max(by_draft) == 11  # every position of the window is used, and no more
    kinds = [cycle.kind for cycle in result.cycles]
    assert kinds[0] != "target" and kinds[-1] == "target"


def test_a_prompt_beyond_the_drafts_window_is_answered_without_drafts():
    draft = helpers.trained_draft_for(toy())
    draft.config = replace(draft.config, max_positions=3)
    result = generate(toy(), draft, PROMPT, max_new_tokens=5)
    assert result.token_ids == helpers.vanilla(toy(), PROMPT, 5)
    assert {cycle.kind for cycle in result.cycles} == {"target"}


def test_drafts_use_positions_without_gaps(monkeypatch):
    """Position i of the draft is token i's; a cycle starts after the committed ones."""
    drafter = EagleDrafter(toy(), helpers.trained_draft(), chain(3))
    by_draft = []
    _record_positions(monkeypatch, toy(), drafter, [], by_draft)
    engine = Engine(toy(), drafter, request(PROMPT, 12))
    cached = 0
    for cycle in engine.cycles():
        if cycle.drafted:
            known = cycle.draft_cache
            end = known + len(cycle.drafted) - 1
            assert by_draft == list(range(cached, end))
            cached = known
        by_draft.clear()


# The trace


def _recomputed_probs(draft, tokens, drafted, params) -> list[float]:
    """q of each drafted token by plain passes over everything, without any cache."""
    features = toy().forward(torch.tensor([tokens[:-1]])).features
    x = draft.fuse(features)  # [1, P, k] for positions 0 .. P-1
    ids, found = list(tokens[1:]), []
    for token in drafted:
        a = draft(torch.tensor([ids]), x, torch.arange(len(ids)))
        q = next_token_distribution(draft.logits(a)[0, -1], params)
        place = (draft.d2t == token).nonzero()
        found.append(float(q[place]))
        # The drafted position reads the a of the one before as its feature.
        ids, x = [*ids, token], torch.cat([x, a[:, -1:]], dim=1)
    return found


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(0.8, top_k=20, seed=1),
        SamplingParams(1.0, seed=2),
        SamplingParams(1.3, top_p=0.7, seed=3),
    ],
)
@torch.no_grad()
def test_the_traced_q_is_the_q_that_each_token_was_drawn_from(params):
    draft = helpers.trained_draft()
    drafter = EagleDrafter(toy(), draft, chain(3))
    engine = Engine(toy(), drafter, request(PROMPT, 14, sampling=params))
    emitted_before, num_checked = 0, 0
    for cycle in engine.cycles():
        tokens = [*PROMPT, *engine.emitted[:emitted_before]]
        wanted = _recomputed_probs(draft, tokens, cycle.drafted, params)
        assert cycle.draft_probs == pytest.approx(wanted, abs=2e-4)
        emitted_before, num_checked = len(engine.emitted), num_checked + len(wanted)
    assert num_checked > 8


def test_a_drafter_without_q_is_traced_as_a_point_mass():
    script = ScriptDrafter(helpers.vanilla(toy(), PROMPT, 30), 3, [True])
    result = generate(toy(), script, PROMPT, max_new_tokens=9)
    assert {prob for cycle in result.cycles for prob in cycle.draft_probs} == {1.0}


def test_the_times_of_a_cycle_are_parts_of_the_whole():
    result = generate(toy(), helpers.trained_draft(), PROMPT, max_new_tokens=9)
    parts = [
        seconds
        for cycle in (result.prefill, *result.cycles)
        for seconds in (
            cycle.draft_seconds,
            cycle.target_seconds,
            cycle.other_seconds,
        )
    ]
    assert min(parts) >= 0
    assert 0 < sum(parts) <= result.seconds


def test_cycles_can_be_left_and_taken_up_again():
    engine = Engine(toy(), VanillaDrafter(), request(PROMPT, 8))
    next(engine.cycles())
    assert len(engine.emitted) == 1 and engine.finish_reason == ""
    assert check_invariants_from(engine) == helpers.vanilla(toy(), PROMPT, 8)


def check_invariants_from(engine: Engine) -> tuple[int, ...]:
    for _ in engine.cycles():
        assert engine.cache.length == len(PROMPT) + len(engine.emitted) - 1
    return engine.result().token_ids


# Text in and out


def test_text_messages_and_ids_are_the_same_prompt():
    target = helpers.talking_toy()
    ids = prompt_to_ids(target, [{"role": "user", "content": "hello"}])
    assert list(ids) == target.tokenizer.encode("<user>hello")
    assert prompt_to_ids(target, "hello") == ids
    assert prompt_to_ids(target, list(ids)) == ids
    assert prompt_to_ids(target, torch.tensor(ids)) == ids
    assert prompt_to_ids(target, torch.tensor([ids])) == ids
    assert prompt_to_ids(target, torch.tensor(ids).numpy()) == ids


def test_a_text_for_a_target_without_chat_template_is_taken_as_it_is():
    target = helpers.talking_toy()
    target.tokenizer.chat_template = None
    assert list(prompt_to_ids(target, "hello")) == target.tokenizer.encode("hello")


def test_streamed_pieces_join_to_the_text_and_split_no_character():
    target = helpers.talking_toy()
    drafter = EagleDrafter(target, helpers.trained_draft(), chain(3))
    asked = request(PROMPT, 40, sampling=SamplingParams(1.0))
    wanted = Engine(target, drafter, asked)
    pieces = list(text_pieces(wanted))
    assert "".join(pieces) == wanted.result().text == target.decode(wanted.emitted)
    assert list(stream_text(target, drafter, asked)) == pieces
    assert len(pieces) > 3
    for piece in pieces[:-1]:
        assert not piece.endswith("\N{REPLACEMENT CHARACTER}")


def test_a_character_in_two_tokens_is_shown_when_it_is_whole():
    """Tokens 61 and 79 are the halves C3 and A1 of an accented a."""
    answer = [10, 61, 79, 11, 61]
    shown = []
    engine = _engine_that_says(answer)
    for piece in text_pieces(engine):
        shown.append((piece, len(engine.emitted)))
    # The last half never becomes whole and is shown at the end as what it is.
    assert shown == [("J", 1), ("á", 3), ("K", 4), ("\N{REPLACEMENT CHARACTER}", 5)]


def _engine_that_says(answer: list[int]) -> Engine:
    target = helpers.talking_toy()
    engine = Engine(target, VanillaDrafter(), request([1], len(answer)))

    def decide(proposal, logits):
        return TreeDecision((), answer[len(engine.emitted)], "bonus")

    engine._decide = decide
    return engine


def test_without_tokenizer_the_text_is_empty():
    assert generate(toy(), None, PROMPT, max_new_tokens=2).text == ""


# Bad input: one sentence, before the target runs


def _misfit(**changes) -> Eagle3Draft:
    config = replace(DraftConfig.for_target(toy().config, 96, toy().taps), **changes)
    return Eagle3Draft(config)


BAD_INPUT = {
    "empty text": ({"prompt": ""}, "empty"),
    "empty list": ({"prompt": []}, "empty"),
    "empty tensor": ({"prompt": torch.tensor([], dtype=torch.long)}, "empty"),
    "empty row": ({"prompt": torch.zeros(1, 0, dtype=torch.long)}, "empty"),
    "id too large": ({"prompt": [1, 96]}, "96"),
    "id negative": ({"prompt": [1, -1]}, "-1"),
    "no tokenizer": ({"prompt": "hello"}, "no tokenizer"),
    "two texts": ({"prompt": ["one", "two"]}, "str"),
    "two lists": ({"prompt": [[1, 2], [3, 4]]}, "list"),
    "two rows": ({"prompt": torch.tensor([[1, 2], [3, 4]])}, "2 prompts"),
    "fractions": ({"prompt": torch.tensor([1.0, 2.0])}, "float32"),
    "three dimensions": ({"prompt": torch.ones(1, 1, 2).long()}, "(1, 1, 2)"),
    "prompt too long": ({"prompt": [1] * 512}, "512"),
    "no tokens wanted": ({"max_new_tokens": 0}, "0"),
    "negative count": ({"max_new_tokens": -3}, "-3"),
    "fractional count": ({"max_new_tokens": 2.5}, "2.5"),
    "negative temperature": ({"temperature": -0.5}, "-0.5"),
    "temperature NaN": ({"temperature": math.nan}, "nan"),
    "temperature infinite": ({"temperature": math.inf}, "inf"),
    "top_p 0": ({"top_p": 0.0}, "0.0"),
    "top_p above 1": ({"top_p": 1.5}, "1.5"),
    "top_p NaN": ({"top_p": math.nan}, "nan"),
    "top_k 0": ({"top_k": 0}, "0"),
    "seed negative": ({"seed": -1}, "-1"),
    "chain 0": ({"chain_length": 0}, "0"),
    "chain negative": ({"chain_length": -2}, "-2"),
    "chain too long": ({"chain_length": 65}, "65"),
    "chain fractional": ({"chain_length": 1.5}, "1.5"),
    "chain without draft": ({"draft": None, "chain_length": 0}, "0"),
    "chain of a drafter": (
        {"draft": VanillaDrafter(), "chain_length": 2},
        "VanillaDrafter",
    ),
    "draft of another width": (
        {"draft": _misfit(target_hidden_size=32)},
        "hidden_size 32",
    ),
    "draft of another vocabulary": (
        {"draft": _misfit(vocab_size=95, draft_vocab_size=95)},
        "vocab_size 95",
    ),
    "draft of other taps": ({"draft": _misfit(taps=(1, 4, 5))}, "(1, 4, 5)"),
    "draft of a deeper target": ({"draft": _misfit(taps=(2, 4, 8))}, "8"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence_before_the_target_runs(name, passes):
    change, told = BAD_INPUT[name]
    arguments = {"draft": helpers.trained_draft(), "prompt": PROMPT} | change
    passes.clear()
    with pytest.raises(ValueError) as caught:
        generate(toy(), **arguments)
    message = str(caught.value)
    assert told in message
    assert "\n" not in message and message.endswith(".") and len(message) < 240
    assert passes == []


def test_a_bad_request_is_refused_before_a_draft_is_copied_and_packed(monkeypatch):
    def too_early(*args):
        raise AssertionError("the draft was prepared")

    monkeypatch.setattr(engine_module, "EagleDrafter", too_early)
    with pytest.raises(ValueError, match="outside the target's vocabulary"):
        generate(toy(), helpers.trained_draft(), [96])


def test_an_unknown_option_is_refused_and_not_ignored(passes):
    with pytest.raises(TypeError, match="repetition_penalty"):
        generate(toy(), None, PROMPT, repetition_penalty=1.1)
    assert passes == []


def test_the_smallest_allowed_values_are_allowed():
    result = generate(
        toy(), helpers.trained_draft(), [0], max_new_tokens=1, chain_length=1
    )
    assert len(result.token_ids) == 1
    assert (result.acceptance_length, result.target_passes) == (0.0, 0)


def test_an_engine_checks_its_request_too(passes):
    with pytest.raises(ValueError, match="empty"):
        Engine(toy(), VanillaDrafter(), Request(()))
    assert passes == []


# Numbers that are none


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_raise_and_name_the_step(
    monkeypatch, bad, temperature
):
    forward, count = toy().forward, iter(range(100))

    def damaged(*args, **others) -> TargetOutput:
        output = forward(*args, **others)
        if next(count) == 2:
            output.logits[0, -1, 40] = bad
        return output

    monkeypatch.setattr(toy(), "forward", damaged)
    with pytest.raises(FloatingPointError, match="after 2 emitted tokens") as caught:
        generate(toy(), None, PROMPT, max_new_tokens=9, temperature=temperature)
    assert "float32" in str(caught.value)


def test_damaged_weights_raise_and_are_no_stream_of_token_0():
    model = copy.deepcopy(helpers.library_toy())
    model.model.layers[3].mlp.down_proj.weight.data[0, 0] = math.nan
    with pytest.raises(FloatingPointError, match="after 0 emitted tokens"):
        generate(Target(model), None, PROMPT)


def test_a_draft_with_damaged_weights_changes_no_token():
    draft = helpers.trained_draft_for(toy())
    with torch.no_grad():
        draft.lm_head.weight[3] = math.nan
    result = generate(toy(), draft, PROMPT, max_new_tokens=8)
    assert result.token_ids == helpers.vanilla(toy(), PROMPT, 8)
    with pytest.raises(FloatingPointError):
        generate(toy(), draft, PROMPT, max_new_tokens=8, temperature=1.0)


def test_a_residual_of_zero_by_rounding_falls_back_to_p(monkeypatch):
    """q is p and a hair more at the drafted token, so that p - q is 0 or negative.

    With the largest uniform below 1 the token is rejected, nothing is left of p - q,
    and the replacement comes from p.
    """

    class Echo(VanillaDrafter):
        max_nodes = 1

        def propose(self, pending, limit, params, generator) -> DraftTree:
            if limit < 1:
                return DraftTree.chain(())
            p = next_token_distribution(
                toy().forward(torch.tensor([[*PROMPT, pending]])).logits[0, -1], params
            )
            q = torch.nextafter(p, p.new_ones(())) * (1 + 4e-7)
            return DraftTree.chain((int(p.argmax()),), q[None])

    largest = 1 - 2**-24
    monkeypatch.setattr(sampling, "uniforms", lambda n, like, generator: [largest] * n)
    result = generate(toy(), Echo(), PROMPT, max_new_tokens=3, temperature=1.0)
    assert result.cycles[0].kind == "replacement"
    assert len(result.token_ids) == 3


@pytest.mark.parametrize("draft", [None, "draft"])
def test_an_end_of_sequence_as_last_allowed_token_is_the_reason(draft):
    """An answer that ends by itself on the last token that was allowed has ended."""
    answer = helpers.vanilla(toy(), PROMPT, 12)
    count = 1 + max(answer.index(token) for token in answer)  # its last new token
    draft = draft and helpers.trained_draft()
    options = {"max_new_tokens": count, "eos_token_ids": answer[count - 1]}
    result = generate(toy(), draft, PROMPT, **options)
    assert (result.token_ids, result.finish_reason) == (answer[:count], "eos")


# The drafter's copy of the draft


def test_generation_leaves_the_draft_as_it_was():
    draft = helpers.trained_draft_for(toy())
    before = {name: value.clone() for name, value in draft.state_dict().items()}
    generate(toy(), draft, PROMPT, max_new_tokens=4)
    assert type(draft.lm_head) is nn.Linear and draft.lm_head.weight.requires_grad
    for name, value in draft.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_target_in_half_precision_leaves_a_float32_draft_alone():
    model = copy.deepcopy(helpers.library_toy()).to(torch.bfloat16)
    draft = helpers.trained_draft_for(toy())
    result = generate(Target(model), draft, PROMPT, max_new_tokens=6)
    assert len(result.token_ids) == 6
    assert {p.dtype for p in draft.parameters()} == {torch.float32}


def test_the_embedding_is_not_copied():
    draft = helpers.trained_draft()
    twin = EagleDrafter(toy(), draft).draft
    assert twin.embed.weight.data_ptr() == draft.embed.weight.data_ptr()
    assert twin.fc is not draft.fc


# Determinism


def test_a_seed_fixes_the_answer_whatever_the_global_generator_does():
    def answer(seed: int) -> tuple[int, ...]:
        torch.rand(seed + 3)  # a stray draw
        return generate(
            toy(),
            helpers.trained_draft(),
            PROMPT,
            max_new_tokens=20,
            temperature=1.0,
            seed=seed,
        ).token_ids

    assert answer(1) == answer(1)
    assert len({answer(seed) for seed in range(5)}) == 5


def test_generation_draws_nothing_from_the_global_generator():
    before = torch.get_rng_state()
    generate(toy(), helpers.new_draft(toy()), PROMPT, max_new_tokens=9, temperature=1.0)
    assert torch.equal(before, torch.get_rng_state())
