"""Medusa's heads: what they compute, what they learn, their files.

Right values: the formula written out for one row and one head, and the text itself.
"""

import json
import math
from types import SimpleNamespace

import helpers
import pytest
import torch
from helpers import toy
from safetensors.torch import load_file, save_file

from eagle3 import medusa
from eagle3.engine import generate
from eagle3.medusa import MedusaConfig, MedusaHeads, load_medusa, save_medusa
from eagle3.model_files import CheckpointError
from eagle3.training.batches import FeatureBatch
from eagle3.training.distillation import HeadRows
from eagle3.training.features import look
from eagle3.training.medusa import (
    MedusaRecipe,
    least_squares_mix,
    medusa_alphas,
    medusa_losses,
    new_recipe,
)
from eagle3.training.recipe import Start
from eagle3.training.trainer import TrainConfig, Trainer

CONFIG = MedusaConfig(hidden_size=6, vocab_size=10, num_heads=3)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_heads(config: MedusaConfig = CONFIG, head: torch.Tensor | None = None):
    k, num = config.hidden_size, config.num_heads
    head = random(config.vocab_size, k, seed=1) if head is None else head
    heads = MedusaHeads(config, head)
    heads.weight.data = random(num, k, k, seed=2)
    heads.bias.data = random(num, k, seed=3)
    heads.mix.data = random(num, k, k, seed=6)
    return heads


def fake_target(**change) -> SimpleNamespace:
    values = {
        "hidden_size": 6,
        "vocab_size": 10,
        "head": random(10, 6, seed=1),
        "device": torch.device("cpu"),
    }
    return SimpleNamespace(**values | change)


def test_each_head_is_its_residual_block_alone():
    heads, hidden = some_heads(), random(2, 5, 6)
    states = heads(hidden)
    assert states.shape == (3, 2, 5, 6)
    for j in range(3):
        for b in range(2):
            for t in range(5):
                x = hidden[b, t]
                inner = heads.weight[j] @ x + heads.bias[j]
                right = heads.mix[j] @ (x + inner / (1 + torch.exp(-inner)))
                torch.testing.assert_close(states[j, b, t], right)
    right = states @ random(10, 6, seed=1).T
    torch.testing.assert_close(heads.logits(states), right)


def test_new_heads_say_what_the_target_says():
    heads = MedusaHeads(MedusaConfig(64, 96), toy().head)
    output = toy().forward(torch.tensor([[3, 4, 5]]))
    states = heads(output.hidden)
    assert torch.equal(states, output.hidden.expand(4, -1, -1, -1))
    torch.testing.assert_close(heads.logits(states[2]), output.logits)


def test_only_the_blocks_are_trained():
    trained = {n for n, p in some_heads().named_parameters() if p.requires_grad}
    assert trained == {"weight", "bias", "mix"}


@pytest.mark.parametrize("shape", [(10, 5), (11, 6)])
def test_a_head_of_another_target_is_refused(shape):
    with pytest.raises(ValueError, match=r"target's head of \[10, 6\], not"):
        MedusaHeads(CONFIG, torch.zeros(shape))


@pytest.mark.parametrize("name", ["hidden_size", "vocab_size", "num_heads"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} of the heads is 0"):
        MedusaConfig(**{"hidden_size": 1, "vocab_size": 1, "num_heads": 1} | {name: 0})


# ---- training


def test_least_squares_find_the_matrices_that_made_the_states():
    """States that follow x_{i+1} = A x_i exactly: head j finds A to the j-th power."""
    a = torch.linalg.qr(random(6, 6, seed=9).double()).Q
    states = []
    for seed in range(5):
        x = [random(6, seed=seed).double()]
        for _ in range(8):
            x.append(a @ x[-1])
        states.append(torch.stack(x))
    states.append(states[0][:2])  # too short for heads 2 and 3
    found = least_squares_mix(states, 3)
    for j in range(3):
        right = torch.linalg.matrix_power(a, j + 1).float()
        torch.testing.assert_close(found[j], right, atol=5e-3, rtol=0)  # the ridge


def test_new_heads_start_from_the_answers_states():
    """And not from the prompt's, whose next tokens no head has to guess."""
    views = [look(toy(), s.token_ids) for s in SEQUENCES]
    states = [
        v.hidden.float()[s.num_prompt - 1 :]
        for s, v in zip(SEQUENCES, views, strict=True)
    ]
    wanted = least_squares_mix(states, 2)
    mix = new_recipe(Start(toy(), SEQUENCES, {}), 2).model.mix
    torch.testing.assert_close(mix, wanted, atol=0.02, rtol=0)  # half precision
    assert (wanted - torch.eye(64)).abs().max() > 0.2


def some_batch(mask: list[list[int]]) -> FeatureBatch:
    mask = torch.tensor(mask).bool()
    ids = torch.randint(10, mask.shape, generator=torch.Generator().manual_seed(4))
    return FeatureBatch(random(*mask.shape, 6, seed=5), ids, mask)


def test_the_loss_is_the_formula_row_by_row():
    """Two answers of different length, one of them cut by a gap, and padding."""
    mask = [[0, 0, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0, 0]]
    heads, batch = some_heads(), some_batch(mask)
    total, losses, accuracies = medusa_losses(
        heads, batch, HeadRows(heads.lm_head.weight)
    )
    z = heads.logits(heads(batch.features))
    says = heads.logits(batch.features)  # the target at every position
    right_total = 0.0
    for j in (1, 2, 3):
        terms, agree = [], []
        for b, row in enumerate(mask):
            for i in range(len(row) - j):
                if row[i] and row[i + j]:
                    p = says[b, i + j].softmax(-1)
                    log_q = z[j - 1, b, i].log_softmax(-1)
                    terms.append(-sum(p[v] * log_q[v] for v in range(10)))
                    agree.append(bool(p.argmax() == log_q.argmax()))
        assert len(terms) == {1: 4, 2: 2, 3: 1}[j]
        mean = sum(terms) / len(terms)
        assert math.isclose(losses[j - 1], mean.item(), rel_tol=1e-5)
        assert math.isclose(accuracies[j - 1], sum(agree) / len(agree), rel_tol=1e-5)
        right_total = right_total + 0.8**j * mean
    torch.testing.assert_close(total, right_total)
    # Gradients reach the blocks as the formula's do.
    parts = heads.weight, heads.bias, heads.mix
    grads = torch.autograd.grad(total, parts, retain_graph=True)
    right = torch.autograd.grad(right_total, parts)
    torch.testing.assert_close(grads, right)


def test_a_head_without_rows_has_no_loss():
    heads, batch = some_heads(), some_batch([[0, 1, 1, 0]])
    total, losses, _ = medusa_losses(heads, batch, HeadRows(heads.lm_head.weight))
    assert losses[0] > 0 and losses[1:] == [0.0, 0.0]
    total.backward()
    assert heads.weight.grad.isfinite().all()
    assert not heads.weight.grad[1:].any()


def test_n_alpha_is_what_chains_from_every_row_give():
    """Brute force: guess from each row, token by token, and stop at the first miss."""
    sequences = [helpers.greedy_sequence((i, 7, 2 * i), 15 + i) for i in range(3)]
    views = [look(toy(), s.token_ids) for s in sequences]
    heads = some_heads(MedusaConfig(64, 96, 3), toy().head)
    heads.weight.data *= 0.02
    heads.bias.data *= 0.1
    heads.mix.data = torch.eye(64) + 0.02 * heads.mix
    batch = MedusaRecipe(toy(), heads).make_batch(sequences, views)
    reached, right = [0] * 3, [0] * 3
    for s, view in zip(sequences, views, strict=True):
        ids = s.token_ids
        for i in range(s.num_prompt - 1, len(ids) - 1):  # token i+1: the pending one
            states = heads(view.hidden[i].float()[None, None])[:, 0, 0]
            for n in range(3):
                if i + 2 + n == len(ids):
                    break
                reached[n] += 1
                if heads.logits(states[n]).argmax() != ids[i + 2 + n]:
                    break
                right[n] += 1
    assert right[0] and reached[1]
    wanted = [a / max(1, b) for a, b in zip(right, reached, strict=True)]
    assert medusa_alphas(heads, [batch]) == wanted


def recipe(num_heads: int = 3) -> MedusaRecipe:
    return new_recipe(Start(toy(), SEQUENCES, {}), num_heads)


SEQUENCES = [helpers.greedy_sequence((i, 3 * i + 2, 7), 10 + i) for i in range(4)]


def test_one_sample_is_learnt_by_heart(tmp_path):
    """Used from each state, the heads then say the text's next tokens."""
    sequence = helpers.greedy_sequence((60, 2, 50, 4), 16)
    config = TrainConfig(400, 1, 1e-2, 5, log_every=1000, evaluate_every=1000)
    run = Trainer(toy(), recipe(), ([sequence], [sequence]), tmp_path / "r", config)
    run.train()
    assert run.evaluate() == [1.0] * 3
    ids = sequence.token_ids.tolist()
    answer = generate(toy(), None, ids[:6], max_new_tokens=1)
    assert answer.token_ids[0] == ids[6]  # pending after the state of token 5
    hidden = toy().forward(torch.tensor([ids[:6]])).hidden[:, -1:]
    heads = run.recipe.model
    assert heads.logits(heads(hidden)).argmax(-1).flatten().tolist() == ids[7:10]


class Killed(Exception):
    pass


def test_a_killed_and_resumed_run_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = TrainConfig(2, 2, 1e-2, 1, log_every=1, evaluate_every=1)

    def run(name: str) -> Trainer:
        folder = tmp_path / name / "run"
        return Trainer(toy(), recipe(), (SEQUENCES, SEQUENCES[:1]), folder, config)

    whole, cut = run("whole"), run("cut")
    whole.train()
    update = Trainer._update

    def until_killed(self, batch):
        if self.step == 2:
            raise Killed
        return update(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", until_killed)
        with pytest.raises(Killed):
            cut.train()
    again = run("cut")
    again.train()
    assert again.step == 4
    want, got = whole.recipe.model.state_dict(), again.recipe.model.state_dict()
    assert want["weight"].any()
    assert all(torch.equal(got[name], value) for name, value in want.items())


def test_another_number_of_heads_is_another_run(tmp_path):
    assert recipe(2).identity() != recipe(3).identity() == recipe(3).identity()
    recipe(2).save(tmp_path, torch.float32)
    with pytest.raises(RuntimeError, match="size mismatch"):
        recipe(3).load(tmp_path)


# ---- files


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_saved_comes_back(tmp_path, dtype):
    saved = some_heads()
    save_medusa(saved, tmp_path, dtype)
    stored = load_file(tmp_path / "model.safetensors")
    assert {name: t.dtype for name, t in stored.items()} == {
        "weight": dtype,
        "bias": dtype,
        "mix": dtype,
    }
    loaded = load_medusa(tmp_path, fake_target())
    assert loaded.config == CONFIG
    for name, value in saved.state_dict().items():
        rounded = value if name == "lm_head.weight" else value.to(dtype).float()
        assert torch.equal(loaded.state_dict()[name], rounded), name


def test_the_default_heads_are_those_of_the_package(tmp_path, monkeypatch):
    save_medusa(some_heads(), tmp_path)
    monkeypatch.setattr(medusa, "SHIPPED_MEDUSA", tmp_path)
    assert load_medusa(target=fake_target()).config == CONFIG


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 8}, "hidden_size 6, but this target has 8"),
        ({"vocab_size": 12}, "vocab_size 10, but this target has 12"),
    ],
)
def test_heads_of_another_target_are_refused(tmp_path, change, message):
    save_medusa(some_heads(), tmp_path)
    (tmp_path / "model.safetensors").unlink()  # refused before it is read
    with pytest.raises(ValueError, match=message):
        load_medusa(tmp_path, fake_target(**change))
    with pytest.raises(ValueError, match=message):
        some_heads().require_fit(fake_target(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("bias"), r"lacks \['bias'\] and has nothing"),
        (lambda t: t.update(lm_head=t["bias"].clone()), r"has \['lm_head'\] left over"),
        (lambda t: t.update(weight=t["weight"][:2].clone()), r"needs \[3, 6, 6\]"),
        (lambda t: t["weight"].fill_(math.nan), "'weight' in .* holds NaN"),
        (lambda t: t.update(bias=t["bias"].int()), "'bias' .* must be floating point"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, change, message):
    save_medusa(some_heads(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_medusa(tmp_path, fake_target())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 4}, r"has shape \[3, 6, 6\], but its .* needs \[4, 6, 6\]"),
        ({"num_heads": 0}, "num_heads of the heads is 0"),
        ({"num_heads": "3"}, "'3' for num_heads"),
        ({"taps": [1]}, "missing or unknown fields: taps"),
        ({"format": "eagle3-draft"}, "does not say"),
    ],
)
def test_configs_that_do_not_fit_are_refused(tmp_path, change, message):
    save_medusa(some_heads(), tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text(encoding="utf-8")) | change
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_medusa(tmp_path, fake_target())
