"""eagle3.training.losses against the official trainer, SpecForge, and a slow twin."""

from dataclasses import replace

import oracles
import pytest
import torch
from torch.testing import assert_close

from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.rope import RopeConfig
from eagle3.training.batches import next_token_mask
from eagle3.training.losses import (
    Teacher,
    TttBatch,
    TttConfig,
    restrict_teacher,
    ttt_loss,
)

OFFICIAL = ["train_losses_nopad", "train_losses_rightpad"]
SPECFORGE = [
    "specforge_losses_nopad",
    "specforge_losses_rightpad",
    "specforge_losses_nopad_rawmask",
    "specforge_losses_rightpad_rawmask",
]
AS_OFFICIAL = TttConfig(mean_over="all")
SMALL = DraftConfig(
    hidden_size=12,
    target_hidden_size=12,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=20,
    vocab_size=30,
    draft_vocab_size=20,
    rms_norm_eps=1e-5,
    rope=RopeConfig(10_000.0),
    max_positions=64,
    taps=(2, 4, 5),
)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def oracle_batch(name: str, draft: Eagle3Draft) -> TttBatch:
    given = oracles.tensors(name)
    features, logits = oracles.run_target(given["input_ids"], given["attention_mask"])
    teacher = restrict_teacher(logits, draft)
    return TttBatch(features, given["input_ids"], given["loss_mask"], teacher)


def small_case(length: int = 9) -> tuple[Eagle3Draft, TttBatch, torch.Tensor]:
    """A draft, a batch of two sequences, and the target's logits [2, T, 30]."""
    g = generator(1)
    vocab = torch.randperm(30, generator=g)[:20].sort().values
    draft = Eagle3Draft(SMALL, torch.randn(30, 12, generator=g), vocab)
    ids = torch.randint(0, 30, (2, length), generator=g)
    logits = 3 * torch.randn(2, length, 30, generator=g)
    features = torch.randn(2, length, 36, generator=g)
    mask = next_token_mask(torch.ones(2, length))
    mask[:, :1] = False
    batch = TttBatch(features, ids, mask, restrict_teacher(logits, draft))
    return draft, batch, logits


@pytest.mark.parametrize("name", OFFICIAL + SPECFORGE)
def test_losses_accuracies_and_gradients_are_the_official_ones(name):
    want, draft = oracles.tensors(name), oracles.official_draft(RopeConfig(10_000.0))
    got = ttt_loss(draft, oracle_batch(name, draft), AS_OFFICIAL)
    assert_close(got.per_step, want["losses"], atol=oracles.ATOL_LOSS, rtol=0)
    assert_close(got.total.detach(), want["total"], atol=oracles.ATOL_LOSS, rtol=0)
    assert_close(got.accuracy, want["accuracies"], atol=1e-6, rtol=0)
    if "acceptance_rates" in want:
        assert_close(got.acceptance, want["acceptance_rates"], atol=1e-5, rtol=0)

    got.total.backward()
    grads = {name: p.grad for name, p in draft.named_parameters() if p.requires_grad}
    for theirs, norm in oracles.meta(name)["grad_norms"].items():
        found = float(grads[oracles.NAMES[theirs]].norm())
        assert found == pytest.approx(norm, rel=1e-4, abs=1e-5), theirs
    for key, value in want.items():
        if key.startswith("grad."):
            ours = grads[oracles.NAMES[key.removeprefix("grad.")]]
            assert_close(ours, value, atol=oracles.ATOL_GRAD, rtol=1e-4)


@pytest.mark.parametrize("name", OFFICIAL)
def test_one_optimiser_step_ends_where_the_official_one_does(name):
    draft = oracles.official_draft(RopeConfig(10_000.0))
    batch = oracle_batch(name, draft)
    trained = [p for p in draft.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, 5e-5, (0.9, 0.95), weight_decay=0.0)
    ttt_loss(draft, batch, AS_OFFICIAL).total.backward()
    torch.nn.utils.clip_grad_norm_(trained, 0.5)
    optimiser.step()
    got = ttt_loss(draft, batch, AS_OFFICIAL).per_step
    want = oracles.tensors(name)["losses_after_one_adamw_step"]
    assert_close(got, want, atol=oracles.ATOL_LOSS, rtol=0)


def test_next_token_mask_moves_the_natural_one_left():
    natural = torch.tensor([[0, 0, 1, 1, 0], [0, 1, 1, 1, 1]])
    # Row 1 is an answer up to the end: its last position has no next token.
    want = torch.tensor([[0, 1, 1, 0, 0], [1, 1, 1, 1, 0]]).bool()
    assert torch.equal(next_token_mask(natural), want)
    assert torch.equal(next_token_mask(natural.bool()), want)


def test_restricted_teacher_keeps_what_the_target_said():
    draft, _, logits = small_case()
    kept, argmax, log_mass = restrict_teacher(logits, draft)
    full = logits.softmax(-1)
    assert_close(kept.softmax(-1) * log_mass.exp()[..., None], full[..., draft.d2t])
    assert torch.equal(argmax, full.argmax(-1))


def slow_twin(draft: Eagle3Draft, batch: TttBatch, logits: torch.Tensor, s: int, own):
    """Step s by its definition: one sequence, one row, one drafted chain at a time.

    own: the chain reads what it drafts, not what the text has there
    """
    losses, correct, overlap, num_masked = [], 0, [], 0
    known = set(draft.d2t.tolist())
    for b in range(len(logits)):
        ids, g = batch.input_ids[b], draft.fuse(batch.features[b : b + 1])
        length = len(ids)
        for j in range(s, length):  # position of the mask
            if not batch.loss_mask[b, j]:
                continue
            num_masked += 1
            best = int(logits[b, j + 1].argmax())
            if best not in known:
                continue
            i = j - s  # row: real features up to i, then a chain
            cache = draft.new_cache(length)
            a = draft(ids[None, 1 : i + 2], g[:, : i + 1], torch.arange(i + 1), cache)
            for step in range(1, s + 1):
                token = ids[None, i + 1 + step, None]
                if own:
                    token = draft.d2t[draft.logits(a[:, -1:]).argmax(-1)]
                a = draft(token, a[:, -1:], torch.tensor([i + step]), cache)
            log_q = draft.logits(a[0, -1]).log_softmax(-1)
            p = logits[b, j + 1].softmax(-1)[draft.d2t]
            losses.append(-(p / p.sum() * log_q).sum())
            correct += int(draft.d2t[log_q.argmax()] == best)
            overlap.append(torch.minimum(p, log_q.exp()).sum())
    losses, overlap = torch.stack(losses), torch.stack(overlap)
    return losses.mean(), correct / num_masked, overlap.mean(), len(losses)


@torch.no_grad()
@pytest.mark.parametrize("tokens", ["text", "own"])
def test_every_step_equals_its_definition(tokens):
    draft, batch, logits = small_case()
    got = ttt_loss(draft, batch, TttConfig(steps=3, decay=0.5, tokens=tokens))
    for s in range(3):
        twin = slow_twin(draft, batch, logits, s, tokens == "own")
        loss, accuracy, acceptance, count = twin
        assert_close(got.per_step[s], loss, atol=1e-5, rtol=0)
        assert_close(got.acceptance[s], acceptance, atol=1e-5, rtol=0)
        assert float(got.accuracy[s]) == pytest.approx(accuracy)
        assert int(got.num_supervised[s]) == count
    total = got.per_step[0] + 0.5 * got.per_step[1] + 0.25 * got.per_step[2]
    assert_close(got.total, total)


def test_gradients_equal_finite_differences():
    draft, batch, _ = small_case(length=5)
    draft.double()
    names = ["fc.weight", "layer.k.weight", "layer.input_norm.weight", "lm_head.weight"]
    weights = dict(draft.named_parameters())
    ttt_loss(draft, batch, TttConfig(steps=4)).total.backward()
    for name in names:
        direction = torch.randn(
            weights[name].shape, generator=generator(3), dtype=torch.float64
        )
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                weights[name] += sign * 1e-4 * direction
                ends.append(float(ttt_loss(draft, batch, TttConfig(steps=4)).total))
                weights[name] -= sign * 1e-4 * direction
        slope = (ends[0] - ends[1]) / 2e-4
        # Scores pass through float32, which bounds the agreement.
        found = float((weights[name].grad * direction).sum())
        assert found == pytest.approx(slope, rel=2e-2, abs=2e-3), name
    assert draft.embed.weight.grad is None


def test_steps_beyond_the_sequence_add_nothing():
    # Two sequences of three positions, of which the mask names the middle one: row 1
    # serves it at step 0, row 0 at step 1, and no row is left for later steps.
    draft, batch, _ = small_case(length=3)
    draft.in_draft.fill_(True)  # so that no position drops out for its token
    got = ttt_loss(draft, batch, TttConfig(steps=7))
    assert got.num_supervised.tolist() == [2, 2, 0, 0, 0, 0, 0]
    for values in (got.per_step, got.accuracy, got.acceptance):
        assert values[2:].tolist() == [0.0] * 5
    assert_close(got.total, got.per_step[0] + 0.8 * got.per_step[1])
    got.total.backward()
    assert all(p.grad.isfinite().all() for p in draft.parameters() if p.requires_grad)


@pytest.mark.parametrize("mean_over", ["supervised", "all"])
def test_nothing_supervised_is_zero_and_not_nan(mean_over):
    draft, batch, _ = small_case()
    empty = torch.zeros_like(batch.loss_mask)
    batch = replace(batch, loss_mask=empty)
    got = ttt_loss(draft, batch, TttConfig(mean_over=mean_over))
    got.total.backward()
    assert got.total == 0 and not got.accuracy.any() and not got.acceptance.any()
    assert not draft.lm_head.weight.grad.any()


def padded(values: torch.Tensor, num: int, seed: int = 0) -> torch.Tensor:
    """`num` positions of rubbish after the end."""
    junk = torch.randn(
        *values.shape[:1], num, *values.shape[2:], generator=generator(seed)
    )
    if not values.is_floating_point():
        junk = (junk.abs() * 5).clamp(max=29)
    return torch.cat([values, junk.to(values.dtype)], dim=1)


def test_right_padding_changes_no_mean_and_no_gradient():
    draft, batch, logits = small_case()
    mask = torch.cat([batch.loss_mask, torch.zeros(2, 4, dtype=torch.bool)], dim=1)
    teacher = restrict_teacher(padded(logits, 4), draft)
    wide = TttBatch(
        padded(batch.features, 4), padded(batch.input_ids, 4), mask, teacher
    )
    want, got = ttt_loss(draft, batch), ttt_loss(draft, wide)
    # The last masked position reads the last real token: rubbish is read by no row
    # that counts.
    for one, two in zip(got, want, strict=True):
        assert_close(one, two, atol=1e-6, rtol=0)


def test_means_differ_by_the_share_of_supervised_positions():
    draft, batch, _ = small_case()
    per_row = ttt_loss(draft, batch, TttConfig()).per_step
    official = ttt_loss(draft, batch, AS_OFFICIAL)
    share = official.num_supervised / batch.input_ids.numel()
    assert_close(official.per_step, per_row * share)


def test_without_the_mass_acceptance_is_against_the_restricted_teacher():
    draft, batch, _ = small_case()
    bare = Teacher(batch.teacher.logits, batch.teacher.argmax)
    without = ttt_loss(draft, replace(batch, teacher=bare))
    got = ttt_loss(draft, batch)
    assert_close(without.per_step, got.per_step)
    assert bool((without.acceptance > got.acceptance).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "at least 1 step, not 0"),
        ({"decay": 0.0}, "decay must be above 0"),
        ({"decay": 1.5}, "at most 1, not 1.5"),
        ({"mean_over": "tokens"}, "'supervised' or 'all', not 'tokens'"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TttConfig(**change)


@pytest.mark.parametrize("part", ["features", "loss_mask", "logits", "argmax"])
def test_shapes_that_do_not_agree_are_refused(part):
    draft, batch, _ = small_case()
    if part in ("logits", "argmax"):
        short = getattr(batch.teacher, part)[:, 1:]
        batch = replace(batch, teacher=batch.teacher._replace(**{part: short}))
    else:
        batch = replace(batch, **{part: getattr(batch, part)[:, 1:]})
    with pytest.raises(ValueError, match=f"{part} has shape"):
        ttt_loss(draft, batch)
