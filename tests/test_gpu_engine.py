"""The batch engine answers as the teaching engine does, whoever shares the batch.

The right value is always the teaching engine, one request at a time: the same tokens
and the same number of accepted tokens in each cycle, at temperature 0 and above it.
"""

import functools
import gc
import random
from dataclasses import replace

import helpers
import pytest
import torch
from helpers import PROMPT, VOCAB, request, toy
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.drafters import EagleDrafter, PromptLookupDrafter, VanillaDrafter
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.engine import Engine, Request
from eagle3.gpu import Answer, BatchEngine, Slots
from eagle3.growth import DynamicTree, StaticTree, chain
from eagle3.sampling import SamplingParams
from eagle3.target import Target

STATIC = StaticTree(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1)))
GROWTHS = {
    "vanilla": None,
    "chain 1": chain(1),
    "chain 3": chain(3),
    "chain best": chain(4, "best"),
    "static": STATIC,
    "static best": replace(STATIC, children="best"),
    "dynamic": DynamicTree(total_tokens=14, depth=4, top_k=3),
    "dynamic deep": DynamicTree(total_tokens=30, depth=6, top_k=4),
    "dynamic few": DynamicTree(total_tokens=40, depth=2, top_k=3),  # padded to 12
}


@functools.cache
def drafter(growth: str, target: Target | None = None):
    target = target or toy()
    if GROWTHS[growth] is None:
        return VanillaDrafter()
    draft = helpers.trained_draft()
    return EagleDrafter(target, draft, GROWTHS[growth])


def teach(one: Request, growth: str, target: Target | None = None):
    """The teaching engine's tokens, reason, and accepted tokens of each cycle."""
    engine = Engine(target or toy(), drafter(growth, target), one)
    accepted = [cycle.num_accepted for cycle in engine.cycles()][1:]
    return tuple(engine.emitted), engine.finish_reason, tuple(accepted)


def told(answer: Answer):
    return answer.token_ids, answer.finish_reason, answer.accepted


def check(requests, growth: str, count: int, target: Target | None = None) -> None:
    """One batch engine gives the teaching engine's answers to all requests."""
    target = target or toy()
    slots = Slots(count, min(128, target.max_positions))
    engine = BatchEngine(target, drafter(growth, target), slots)
    answers = engine.run(requests)
    for one, answer in zip(requests, answers, strict=True):
        assert told(answer) == teach(one, growth, target), one


def mixed_requests(seed: int, count: int, temperature: float = 0.0) -> list[Request]:
    dice = random.Random(seed)
    return [
        request(
            [dice.randrange(VOCAB) for _ in range(dice.randint(1, 30))],
            dice.randint(1, 18),
            sampling=SamplingParams(temperature, seed=dice.randrange(1000)),
            eos_token_ids=tuple(dice.sample(range(VOCAB), dice.choice([0, 3]))),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("growth", GROWTHS)
def test_every_growth_answers_as_the_teaching_engine(growth, temperature):
    check(mixed_requests(1, 6, temperature), growth, count=3)


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("growth", ["chain 3", "dynamic"])
def test_greedy_and_sampled_requests_share_a_batch_of_any_size(growth, count):
    """Each has filters of its own, and more requests come than there are slots."""
    settings = [
        SamplingParams(),
        SamplingParams(1.0, seed=3),
        SamplingParams(0.7, top_k=5, seed=4),
        SamplingParams(1.3, top_p=0.8, seed=5),
        SamplingParams(0.5, top_k=30, top_p=0.95, seed=6),
    ]
    requests = [
        replace(one, sampling=settings[i % len(settings)])
        for i, one in enumerate(mixed_requests(count, 11))
    ]
    check(requests, growth, count)


def test_siblings_that_filters_leave_out_are_padding():
    """With top_k=2, q has two tokens and a node of this tree three children.

    The teaching engine grows a smaller tree then and draws fewer numbers. At top_k=1
    everything is certain, so the answers are equal all the same.
    """
    certain = SamplingParams(1.0, top_k=1, seed=1)
    one = request(PROMPT, 20, sampling=certain)
    check([one], "static", 1)
    engine = BatchEngine(toy(), drafter("static"), Slots(1, 64))
    drafted = drafted_by(engine)
    [answer] = engine.run([replace(one, sampling=SamplingParams(1.0, 2, seed=1))])
    assert len(answer.token_ids) == 20
    # Of eight nodes the third child is left out.
    assert {len(tokens) for tokens, _ in drafted} <= {0, 2, 5, 7}
    assert max(len(tokens) for tokens, _ in drafted) == 7


@pytest.mark.parametrize("growth", ["chain 3", "dynamic"])
def test_each_token_as_end_of_sequence_cuts_inside_a_block(growth):
    answer = helpers.vanilla(toy(), PROMPT, 24)
    tokens = list(dict.fromkeys(answer))
    requests = [request(PROMPT, 24, eos_token_ids=(token,)) for token in tokens]
    engine = BatchEngine(toy(), drafter(growth), Slots(8, 64))
    inside = 0
    for token, got in zip(tokens, engine.run(requests), strict=True):
        assert got.token_ids == answer[: answer.index(token) + 1]
        assert got.finish_reason == "eos"
        inside += len(got.token_ids) < 1 + sum(n + 1 for n in got.accepted)
    assert inside  # some block was cut: the target kept more than was emitted


@pytest.mark.parametrize("growth", ["vanilla", "chain 3", "static", "dynamic"])
def test_answers_end_at_the_context_as_the_teaching_engines_do(growth):
    context = 24
    target = helpers.short_toy(context)
    requests = [request(range(n), 1000) for n in (1, 10, 20, 21, 22, 23)]
    check(requests, growth, 4, target)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_past_the_drafts_own_window_the_target_goes_on_alone(temperature):
    draft = helpers.trained_draft_for(toy())
    draft.config = replace(draft.config, max_positions=12)
    requests = [
        replace(one, sampling=SamplingParams(temperature, seed=i))
        for i, one in enumerate(request(range(n), 20) for n in (2, 7, 11, 12, 13, 20))
    ]
    requests.append(request(PROMPT, 24))  # whose answer the draft knows to its end
    engine = BatchEngine(toy(), EagleDrafter(toy(), draft, chain(3)), Slots(3, 64))
    for one, answer in zip(requests, engine.run(requests), strict=True):
        alone = Engine(toy(), EagleDrafter(toy(), draft, chain(3)), one)
        accepted = tuple(cycle.num_accepted for cycle in alone.cycles())[1:]
        assert told(answer) == (tuple(alone.emitted), "length", accepted)


def test_a_free_slot_stays_as_it_is():
    """Its row computes on, but its text doesn't grow: it would leave the cache."""
    engine = BatchEngine(toy(), drafter("chain 3"), Slots(2, 40))
    engine.submit(request(PROMPT, 36))
    while not engine.is_idle:
        engine.step()
        assert engine.state.length[1] == engine.state.unseen[1] == 1
    assert engine.state.length.tolist() == [1, 1]


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "growth": st.sampled_from(sorted(GROWTHS)),
        "slots": st.integers(1, 8),
        "count": st.integers(1, 9),
        "temperature": st.sampled_from([0.0, 1.0]),
    }
)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(CASES)
def test_any_requests_in_any_number_of_slots(case):
    requests = mixed_requests(case["seed"], case["count"], case["temperature"])
    check(requests, case["growth"], case["slots"])


def test_the_span_grows_with_the_longest_text_and_ends_at_the_cache():
    """Texts longer than 128 tokens: the first columns are not all that is read."""
    requests = [request(range(n % VOCAB), 8) for n in (60, 90)]
    requests.append(request([n % 90 for n in range(290)], 8))
    engine = BatchEngine(toy(), drafter("chain 3"), Slots(2, 300))
    spans, real = set(), engine._span
    engine._span = lambda longest: spans.add(real(longest)) or real(longest)
    for one, answer in zip(requests, engine.run(requests), strict=True):
        assert told(answer) == teach(one, "chain 3")
    assert spans == {128, 384}  # 300 tokens and room for drafts: three times 128


def test_the_span_holds_every_column_that_a_cycle_writes():
    """Committed tokens and the block after them, for each length a slot may have."""
    engine = BatchEngine(toy(), drafter("dynamic deep"), Slots(1, 500))
    spans = [engine._span(length) for length in range(1, 499)]
    for length, span in enumerate(spans, start=1):
        assert span >= length + engine.spare
    assert spans == sorted(spans) and spans[-1] <= engine.cache.size.length


@pytest.mark.parametrize("growth", ["vanilla", "chain 3", "dynamic"])
def test_texts_that_pass_the_end_of_a_span_are_answered_as_ever(growth):
    """Each cycle's first column is every number around 128, in one slot or another."""
    requests = [request([7 * n % 90 for n in range(size)], 12) for size in (116, 127)]
    engine = BatchEngine(toy(), drafter(growth), Slots(2, 160))
    for one, answer in zip(requests, engine.run(requests), strict=True):
        assert told(answer) == teach(one, growth)


def test_answers_do_not_depend_on_who_shares_the_batch():
    """The same request alone, among others, first and last."""
    one = request(PROMPT, 24)
    others = mixed_requests(5, 7)
    alone = BatchEngine(toy(), drafter("chain 3"), Slots(1, 128)).run([one])[0]
    for place in (0, 3, 7):
        batch = [*others[:place], one, *others[place:]]
        for count in (2, 5, 8):
            engine = BatchEngine(toy(), drafter("chain 3"), Slots(count, 128))
            assert told(engine.run(batch)[place]) == told(alone)


def test_a_target_through_the_librarys_modules_and_an_eagle1_draft():
    """The other network, and the other draft, which reads the last hidden state."""
    target = Target(helpers.library_toy(), lean=False)
    config = Eagle1Config.for_target(target.config)
    draft = Eagle1Draft(config, target.embedding, target.head)
    drafter = EagleDrafter(target, draft, STATIC)
    requests = mixed_requests(8, 4, 1.0)
    answers = BatchEngine(target, drafter, Slots(2, 64)).run(requests)
    for one, answer in zip(requests, answers, strict=True):
        alone = Engine(target, drafter, one)
        accepted = tuple(cycle.num_accepted for cycle in alone.cycles())[1:]
        assert told(answer)[::2] == (tuple(alone.emitted), accepted)


def test_a_draft_that_feeds_its_normed_output_back():
    """What engines call EAGLE-3.1. Its second token shows what was fed back."""
    config = DraftConfig.for_target(toy().config, VOCAB, toy().taps)
    config = replace(config, feed_normed=True, fc_norm=True)
    draft = Eagle3Draft(config, toy().embedding)
    generator = torch.Generator().manual_seed(1)
    draft.norm.weight.data.uniform_(0.2, 3.0, generator=generator)
    eagle = EagleDrafter(toy(), draft, chain(3))
    one = request(PROMPT, 12)
    engine = BatchEngine(toy(), eagle, Slots(1, 64))
    drafted = drafted_by(engine)
    engine.run([one])
    wanted = [list(cycle.drafted) for cycle in Engine(toy(), eagle, one).cycles()][1:]
    assert [tokens for tokens, _ in drafted] == wanted


def test_the_drafts_cache_holds_what_the_teaching_drafter_holds():
    """After each cycle, in every column that counts; and the target's cache, too."""
    one = request(PROMPT, 24)
    batch = BatchEngine(toy(), drafter("dynamic"), Slots(2, 64))
    teaching = Engine(
        toy(), EagleDrafter(toy(), helpers.trained_draft(), GROWTHS["dynamic"]), one
    )
    batch.submit(request((1, 2, 3, 4, 5, 6, 7), 24))
    batch.submit(one)
    cycles = teaching.cycles()
    next(cycles)
    for cycle in cycles:
        if batch.step():
            break
        count = batch.running[1].committed
        assert count == cycle.target_cache == int(batch.state.length[1])
        for layer in range(toy().num_layers):
            for ours, theirs in (
                (batch.cache.keys, teaching.cache.keys),
                (batch.cache.values, teaching.cache.values),
            ):
                torch.testing.assert_close(
                    ours[layer][1, :, :count],
                    theirs[layer][0, :, :count],
                    atol=2e-4,
                    rtol=0,
                )
        known = count - int(batch.state.unseen[1])
        assert known == cycle.draft_cache
        torch.testing.assert_close(
            batch.draft.cache.keys[0][1, :, :known],
            teaching.drafter.cache.keys[0, :, :known],
            atol=2e-4,
            rtol=0,
        )


def drafted_by(engine: BatchEngine) -> list[tuple[list[int], list[int]]]:
    """Takes tokens and parents of slot 0's tree, cycle by cycle as they are drafted."""
    drafted, run = [], engine.phases.run

    def spy(key, phase):
        output = run(key, phase)
        if key[0] == "draft":
            alive = output.alive[0]
            drafted.append(
                (output.tokens[0, alive].tolist(), output.parents[0, alive].tolist())
            )
        return output

    engine.phases.run = spy
    return drafted


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("growth", ["chain 3", "static", "dynamic"])
def test_each_cycle_drafts_the_same_tree(growth, temperature):
    """Tokens and parents, to the last cycles, which have room for fewer levels."""
    one = request(PROMPT, 18, sampling=SamplingParams(temperature, seed=2))
    engine = BatchEngine(toy(), drafter(growth), Slots(2, 64))
    drafted = drafted_by(engine)
    engine.run([one])
    teaching = Engine(toy(), drafter(growth), one)
    wanted = [
        (list(cycle.drafted), [parent + 1 for parent in cycle.parents])
        for cycle in teaching.cycles()
    ][1:]
    assert drafted == wanted
    assert len(drafted[-1][0]) < len(drafted[0][0])
    assert engine.state.length.tolist() == [1, 1]  # free slots don't move


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("growth", ["chain 3", "dynamic"])
def test_a_draft_of_half_the_words_drafts_the_targets_ids(growth, temperature):
    """Its word 1 is the target's 2: an id of one is no id of the other."""
    eagle = EagleDrafter(toy(), helpers.new_draft(toy(), 48), GROWTHS[growth])
    assert eagle.draft.d2t.tolist() == list(range(0, VOCAB, 2))
    one = request(PROMPT, 12, sampling=SamplingParams(temperature, seed=4))
    engine = BatchEngine(toy(), eagle, Slots(1, 64))
    drafted = drafted_by(engine)
    [answer] = engine.run([one])
    teaching = Engine(toy(), eagle, one)
    wanted = [list(cycle.drafted) for cycle in teaching.cycles()][1:]
    assert [tokens for tokens, _ in drafted] == wanted
    assert answer.token_ids == tuple(teaching.emitted)
    assert not any(token % 2 for tokens in wanted for token in tokens)


# Requests come and go


def test_a_hundred_requests_in_random_order_with_random_arrivals_and_cancellations():
    """Every answer is the teaching engine's, or its beginning; memory stays flat."""
    dice = random.Random(11)
    requests = [
        replace(one, sampling=SamplingParams(dice.choice([0.0, 1.0]), seed=i))
        for i, one in enumerate(mixed_requests(12, 100))
    ]
    engine = BatchEngine(toy(), drafter("chain 3"), Slots(6, 64))
    waiting, asked, answers, sizes = list(requests), {}, {}, []
    while waiting or not engine.is_idle:
        for _ in range(dice.choice([0, 0, 1, 2, 5])):
            if waiting:
                one = waiting.pop()
                asked[engine.submit(one)] = one
        open_tickets = sorted(set(asked) - set(answers))
        if open_tickets and dice.random() < 0.1:
            ended = [engine.cancel(dice.choice(open_tickets))]
        else:
            ended = engine.step()
        answers |= {answer.ticket: answer for answer in ended}
        if engine.num_cycles % 30 == 29:
            sizes.append(live_bytes())
    assert len(answers) == len(requests)
    reasons = {answer.finish_reason for answer in answers.values()}
    assert reasons == {"eos", "length", "cancelled"}
    for ticket, answer in answers.items():
        tokens, reason, accepted = teach(asked[ticket], "chain 3")
        if answer.finish_reason == "cancelled":
            assert answer.token_ids == tokens[: len(answer.token_ids)]
        else:
            assert told(answer) == (tokens, reason, accepted)
    assert len(sizes) >= 3 and set(sizes) == {sizes[0]}


def live_bytes() -> int:
    """Bytes of all tensors that are alive in this process, each memory once."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]
    memory = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    return sum(storage.nbytes() for storage in memory.values())


def test_a_cancelled_request_gives_its_slot_to_the_next():
    engine = BatchEngine(toy(), drafter("chain 3"), Slots(1, 64))
    one, other, third = (request(p, 20) for p in (PROMPT, (7,), (8, 9)))
    tickets = [engine.submit(each) for each in (one, other, third)]
    engine.step()
    part = engine.cancel(tickets[0])  # it runs
    assert part.finish_reason == "cancelled"
    assert part.token_ids == teach(one, "chain 3")[0][: len(part.token_ids)]
    nothing = engine.cancel(tickets[1])  # it waits
    assert (nothing.token_ids, nothing.finish_reason) == ((), "cancelled")
    answers = []
    while not engine.is_idle:
        answers += engine.step()
    assert [told(answer) for answer in answers] == [teach(third, "chain 3")]
    for ticket in (*tickets, 99):
        with pytest.raises(ValueError, match=f"ticket {ticket} neither"):
            engine.cancel(ticket)


# Bad input and damaged models


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Slots(0, 10), "0 slots of 10 tokens"),
        (lambda: Slots(1, 1), "1 slots of 1 tokens"),
        (lambda: BatchEngine(toy(), PromptLookupDrafter()), "PromptLookupDrafter has"),
        (
            lambda: BatchEngine(toy(), VanillaDrafter(), Slots(1, 513)),
            "slots of 513 tokens are longer than the target's context of 512",
        ),
        (
            lambda: BatchEngine(toy(), VanillaDrafter(), Slots(1, 9), graphs=True),
            "the target is on 'cpu'",
        ),
        (
            lambda: BatchEngine(toy(), VanillaDrafter(), Slots(1, 9)).run(
                [request((1, 2, 3, 4), 6)]
            ),
            "prompt and answer take 10 tokens and a slot holds 9",
        ),
        (
            lambda: BatchEngine(toy(), VanillaDrafter(), Slots(1, 9)).run(
                [request((), 6)]
            ),
            "the prompt is empty",
        ),
    ],
)
def test_bad_input_is_refused_before_any_work(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_one_bad_request_of_several_leaves_nothing_behind():
    engine = BatchEngine(toy(), VanillaDrafter(), Slots(1, 9))
    with pytest.raises(ValueError, match="a slot holds 9"):
        engine.run([request((1, 2), 3), request((1, 2), 30)])
    assert engine.is_idle


def test_a_growth_of_another_kind_is_refused():
    class Odd:
        depth = max_nodes = max_rows = 1

    odd = EagleDrafter(toy(), helpers.trained_draft(), Odd())
    with pytest.raises(ValueError, match="no form with fixed shapes"):
        BatchEngine(toy(), odd, Slots(1, 64))


def test_a_text_that_makes_the_logits_overflow_ends_alone_and_leaves_nothing():
    """Token 0 is poisoned, and what isn't a number comes back through any mask.

    Its request ends alone. Its slot runs on idle, on that same token, while the other
    request goes on; then the slot answers the next request as ever.
    """
    target = Target(helpers.library_toy())
    target.embedding[0] = torch.nan
    # Some of the second one's drafts are right, if its draft reads a clean slot.
    asked = ((PROMPT, 20), ((9, 9), 9), ((1, 2), 9))
    first, *others = (request(prompt, count) for prompt, count in asked)
    assert sum(teach(others[0], "chain 3")[2]) > 0
    assert all(0 not in teach(one, "chain 3")[0] for one in (first, *others))
    engine = BatchEngine(target, drafter("chain 3"), Slots(2, 64))
    engine.submit(first)
    engine.submit(request((3, 0, *range(4, 20)), 12))  # longer than what comes next
    [poisoned] = engine.step()
    assert told(poisoned) == ((), "not finite", ())
    assert poisoned.acceptance_length == 0
    assert engine.step() == []  # the slot is free, and nobody has come yet
    for one, answer in zip(others, engine.run(others), strict=True):
        assert told(answer) == teach(one, "chain 3")
