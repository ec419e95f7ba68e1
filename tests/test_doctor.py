"""The doctor names what was planted, and calls healthy drafts healthy.

The right answer is what the test itself did to the draft. On the real model the drafts
are the shipped ones, and the texts three of the target's own greedy answers.
"""

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from eagle3.bench.environment import read_results
from eagle3.checkpoint import SHIPPED, load_draft
from eagle3.doctor import diagnose
from eagle3.doctor.evidence import look_at
from eagle3.doctor.files import load_pair
from eagle3.doctor.finding import Finding

RESULTS = Path(__file__).parents[1] / "figures" / "results"
DRAFTS = [path.name for path in sorted(SHIPPED.parent.glob("*_*")) if path.is_dir()]
FEW = 12  # tokens that the engine writes per text, where acceptance is not the question


def real_texts(target):
    chosen = read_results("answers", RESULTS)["held_out"][:3]
    return [look_at(target, t["token_ids"][:110], t["num_prompt"]) for t in chosen]


@pytest.fixture(scope="module")
def texts(real_target):
    return real_texts(real_target)


@pytest.fixture
def shipped(real_target):
    return load_draft(SHIPPED, real_target)


def planted(folder: Path, change, source: Path = SHIPPED) -> Path:
    """A copy of a checkpoint folder; change(tensors, config) spoils it."""
    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text("utf-8"))
    change(tensors, config)
    save_file(
        {n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def told(target, draft, texts) -> str:
    found = diagnose(target, draft, texts, FEW)
    for f in found.findings:
        print(f.verdict, f.part, f.found, f.remedy, f.weight, sep=" | ")
    return f"{found.cause.verdict}: {found.cause.part}" if found.cause else "healthy"


# Wrong files


def map_dropped(tensors, config):
    tensors["d2t"] = torch.arange(len(tensors["d2t"]))


def map_shifted(tensors, config):
    tensors["d2t"] = tensors["d2t"] + 1


def map_one_place_on(tensors, config):
    tensors["d2t"] = torch.cat([tensors["d2t"][1:], torch.tensor([49151])])


def head_of_other_tokens(tensors, config):
    order = torch.randperm(
        len(tensors["d2t"]), generator=torch.Generator().manual_seed(0)
    )
    tensors["lm_head.weight"] = tensors["lm_head.weight"][order]


def head_of_another_model(tensors, config):
    head = tensors["lm_head.weight"]
    noise = torch.randn(head.shape, generator=torch.Generator().manual_seed(0))
    tensors["lm_head.weight"] = (noise * head.float().std()).to(head.dtype)


def hidden_norm_of_ones(tensors, config):
    tensors["layer.hidden_norm.weight"].fill_(1)


def input_norm_of_ones(tensors, config):
    tensors["layer.input_norm.weight"].fill_(1)


def base_of_100(tensors, config):
    config["rope"]["theta"] = 100.0


def base_of_10_000(tensors, config):
    config["rope"]["theta"] = 10_000.0


def base_of_a_million(tensors, config):
    config["rope"]["theta"] = 1e6


@pytest.mark.real
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (map_dropped, "fault: vocabulary map"),
        (map_shifted, "fault: vocabulary map"),
        (map_one_place_on, "fault: vocabulary map"),
        (head_of_other_tokens, "fault: head"),
        (head_of_another_model, "fault: head"),
        (hidden_norm_of_ones, "fault: norms"),
        (input_norm_of_ones, "fault: norms"),
        (base_of_100, "fault: RoPE base"),
        # No more than a suspicion: on short texts these bases are as good.
        (base_of_10_000, "warning: RoPE base"),
        (base_of_a_million, "warning: RoPE base"),
    ],
)
def test_a_wrong_file_is_named(real_target, texts, tmp_path, change, cause):
    draft = load_draft(planted(tmp_path, change), real_target)
    assert told(real_target, draft, texts) == cause


@pytest.mark.real
@pytest.mark.parametrize("by", [-1, 1])
def test_taps_off_by_one_are_named(tmp_path, by):
    def other_taps(tensors, config):
        config["taps"] = [tap + by for tap in config["taps"]]

    target, draft = load_pair(planted(tmp_path, other_taps), None)
    assert target.taps == draft.config.taps
    assert told(target, draft, real_texts(target)) == "fault: taps"


def to_eagle1_weights(tensors, config):
    tensors.clear()
    tensors |= load_file(SHIPPED.parent / "smollm2_eagle1" / "model.safetensors")


@pytest.mark.real
def test_weights_of_eagle1_given_as_eagle3_are_named(
    tmp_path, monkeypatch, real_target
):
    monkeypatch.setattr("eagle3.doctor.files.load_target", lambda *_, **__: real_target)
    found = load_pair(planted(tmp_path, to_eagle1_weights), None)
    assert isinstance(found, Finding)
    assert (found.verdict, found.part) == ("fault", "EAGLE-1 weights")
    assert "fc.bias" in found.found  # the loader's own sentence


# Wrong code


def no_hidden_norm(draft):
    draft.layer.hidden_norm = nn.Identity()


def no_norm_before_the_head(draft):
    draft.logits = draft.lm_head.forward


def no_embedding_norm(draft):
    norm = draft.layer.hidden_norm
    draft.layer.side_by_side = lambda e, x: torch.cat([e, norm(x)], dim=-1)


def embedding_of_another_model(draft):
    draft.embed = nn.Embedding.from_pretrained(draft.embed.weight.roll(999, 0))


def frozen_positions(draft):
    forward = draft.forward
    draft.forward = lambda ids, x, at, *more: forward(ids, x, 0 * at, *more)


def frozen_while_drafting(draft):
    forward = draft.forward

    def frozen(ids, x, at, cache=None, mask=None):
        if cache is not None and cache.length:
            at = at.clamp(max=cache.length - 1)
        return forward(ids, x, at, cache, mask)

    draft.forward = frozen


@pytest.mark.real
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (no_hidden_norm, "norms"),
        (no_norm_before_the_head, "norms"),
        (no_embedding_norm, "norms"),
        (embedding_of_another_model, "embedding"),
        (frozen_positions, "positions"),
        (frozen_while_drafting, "positions"),
    ],
)
def test_wrong_code_is_named(real_target, texts, shipped, change, cause):
    change(shipped)
    assert told(real_target, shipped, texts) == f"fault: {cause}"


# Healthy drafts


@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    [n for n in ("smollm2_eagle3", "smollm2_eagle1", "smollm2_hass") if n in DRAFTS],
)
def test_a_healthy_draft_is_called_healthy_and_left_as_it_was(real_target, texts, name):
    draft = load_draft(SHIPPED.parent / name, real_target)
    before = copy.deepcopy(draft.state_dict())
    found = diagnose(real_target, draft, texts, 24)
    assert found.cause is None, found.cause
    assert all(torch.equal(v, before[k]) for k, v in draft.state_dict().items())
