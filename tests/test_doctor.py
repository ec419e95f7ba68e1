"""The doctor names what was planted, and calls healthy drafts healthy.

The right answer is what the test itself did to the draft. On the real model the drafts
are the shipped ones, and the texts three of the target's own greedy answers.
"""

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import helpers
import pytest
import torch
from helpers import toy
from safetensors.torch import load_file, save_file
from tiny import tiny_model
from torch import nn
from typer.testing import CliRunner

from eagle3 import __main__ as cli
from eagle3.bench.environment import read_results
from eagle3.checkpoint import SHIPPED, load_draft, save_draft
from eagle3.doctor import answers, diagnose
from eagle3.doctor import environment as env
from eagle3.doctor.evidence import look_at
from eagle3.doctor.files import load_pair
from eagle3.doctor.finding import Change, Diagnosis, Finding
from eagle3.doctor.report import conclusion
from eagle3.eagle1 import Eagle1Config, Eagle1Draft
from eagle3.formats.export import write_stored
from eagle3.formats.stored import open_stored
from eagle3.target import Target, toy_target

RESULTS = Path(__file__).parents[1] / "figures" / "results"
DRAFTS = [path.name for path in sorted(SHIPPED.parent.glob("*_*")) if path.is_dir()]
FEW = 4  # tokens that the engine writes per text, where acceptance is not the question


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


def base_of_100(tensors, config):
    config["rope"]["theta"] = 100.0


def base_of_a_million(tensors, config):
    config["rope"]["theta"] = 1e6


@pytest.mark.real
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (map_dropped, "fault: vocabulary map"),
        (map_shifted, "fault: vocabulary map"),
        (head_of_other_tokens, "fault: head"),
        (head_of_another_model, "fault: head"),
        (hidden_norm_of_ones, "fault: norms"),
        (base_of_100, "fault: RoPE base"),
        # No more than a suspicion: on short texts this base is as good.
        (base_of_a_million, "warning: RoPE base"),
    ],
)
def test_a_wrong_file_is_named(real_target, texts, tmp_path, change, cause):
    draft = load_draft(planted(tmp_path, change), real_target)
    assert told(real_target, draft, texts) == cause


def taps_one_higher(tensors, config):
    config["taps"] = [tap + 1 for tap in config["taps"]]


@pytest.mark.real
def test_taps_off_by_one_are_named(tmp_path):
    target, draft = load_pair(planted(tmp_path, taps_one_higher), None)
    assert target.taps == draft.config.taps == (3, 16, 28)
    assert told(target, draft, real_texts(target)) == "fault: taps"


@pytest.mark.real
def test_a_target_of_another_family_is_named():
    """A random Qwen2 of the right width and vocabulary."""
    target = Target(
        tiny_model(
            "Qwen2",
            vocab_size=49152,
            hidden_size=576,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
        )
    )
    draft = load_draft(SHIPPED, target)
    found = diagnose(target, draft, answers(target, num_tokens=8), FEW).cause
    assert (found.part, found.verdict) == ("target", "fault")
    assert "qwen2, 30 layers" in found.remedy


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


def streams_the_other_way_round(draft):
    layer = draft.layer
    layer.side_by_side = lambda e, x: torch.cat(
        [layer.hidden_norm(x), layer.input_norm(e)], dim=-1
    )


def residual_after_the_norm(draft):
    enter = draft.enter

    def normed(ids, x):
        return enter(ids, x)[0], draft.layer.hidden_norm(x)

    draft.enter = normed


def embedding_of_another_model(draft):
    draft.embed = nn.Embedding.from_pretrained(draft.embed.weight.roll(999, 0))


def frozen_positions(draft):
    forward = draft.forward
    draft.forward = lambda ids, x, at, *more: forward(ids, x, 0 * at, *more)


def frozen_in_one_pass(draft):
    forward = draft.forward

    def frozen(ids, x, at, cache=None, mask=None):
        return forward(ids, x, at if cache else 0 * at, cache, mask)

    draft.forward = frozen


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
        (no_norm_before_the_head, "norms"),
        (embedding_of_another_model, "embedding"),
        (frozen_positions, "positions"),
        (streams_the_other_way_round, "layer"),
        (residual_after_the_norm, "layer"),
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
    found = diagnose(real_target, draft, texts, 12)
    assert found.cause is None, found.cause
    assert all(torch.equal(v, before[k]) for k, v in draft.state_dict().items())


# On the toy, with a draft that knows every second of its tokens

PROMPTS = [(5, 17, 80, 3), (1, 2, 7), (9, 9), (40, 50, 60, 70, 80)]


@cache
def toy_texts():
    return answers(toy(), PROMPTS, 24)


@cache
def _half_draft():
    draft = helpers.new_draft(toy(), 48)
    sequences = [helpers.greedy_sequence(prompt, 24) for prompt in PROMPTS]
    helpers.overfit(toy(), draft, sequences, num_updates=60)
    return draft


@pytest.fixture
def half():
    """A fresh copy of the trained draft."""
    draft = helpers.new_draft(toy(), 48)
    draft.load_state_dict(_half_draft().state_dict())
    return draft


def in_place(change):
    """A change of files as one of the draft in memory."""

    def spoil(draft):
        with torch.no_grad():
            change(draft)

    return spoil


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda d: d.d2t.copy_(torch.arange(48)), "fault: vocabulary map"),
        (lambda d: d.d2t.add_(1), "fault: vocabulary map"),
        (lambda d: d.d2t.copy_(d.d2t.roll(-1)), "fault: vocabulary map"),
        (lambda d: d.layer.input_norm.weight.fill_(1), "fault: norms"),
        (no_hidden_norm, "fault: norms"),
        (no_embedding_norm, "fault: norms"),
        (no_norm_before_the_head, "fault: norms"),
        (embedding_of_another_model, "fault: embedding"),
        (frozen_positions, "fault: positions"),
        (frozen_in_one_pass, "fault: positions"),
        (frozen_while_drafting, "fault: positions"),
        (streams_the_other_way_round, "fault: layer"),
        (lambda d: None, "healthy"),
    ],
)
def test_what_is_planted_in_a_toy_draft_is_named(half, change, cause):
    in_place(change)(half)
    assert told(toy(), half, toy_texts()) == cause


@pytest.mark.parametrize("by", [-1, 1])
def test_taps_of_a_toy_draft_off_by_one_are_a_suspicion(half, by):
    """Layers of the random toy do next to nothing, so numbers can't prove it."""
    wrong = tuple(tap + by for tap in toy().taps)
    half.config = replace(half.config, taps=wrong)
    target = Target(helpers.library_toy(), taps=wrong)
    assert told(target, half, answers(target, PROMPTS, 24)) == "warning: taps"


def test_a_target_that_hands_over_other_layers_than_it_says_is_caught(half):
    """Its features are off by one, and nothing in its config is."""
    target = Target(helpers.library_toy(), taps=(3, 5, 6))
    target.taps = toy().taps
    found = diagnose(target, half, answers(target, PROMPTS, 24), FEW).cause
    assert found.part == "taps" and "handed (3, 5, 6)" in found.found


def test_a_draft_for_another_target_of_the_same_sizes_is_called_that(tmp_path):
    """By elimination: every part of it is sound."""
    save_draft(helpers.trained_draft(), tmp_path)
    other = toy_target(1)
    draft = load_draft(tmp_path, other)
    assert told(other, draft, answers(other, PROMPTS, 24)) == "fault: target"


def test_a_draft_that_does_not_fit_is_a_finding(half):
    small = helpers.short_toy(64)
    small.hidden_size = 32
    found = diagnose(small, half, []).cause
    assert found.part == "target" and "hidden_size 64" in found.found


def test_an_untrained_draft_is_called_that():
    found = diagnose(toy(), helpers.new_draft(toy(), 48), toy_texts(), FEW).cause
    assert found.part == "norms" and "untrained" in found.remedy


# Files that the loader refuses


def test_a_refused_file_is_a_finding_with_the_loaders_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("eagle3.doctor.files.load_target", lambda *_, **__: toy())
    draft = helpers.trained_draft()
    save_draft(draft, tmp_path)

    def told_of(change) -> tuple[str, str]:
        folder = tmp_path / change.__name__
        folder.mkdir()
        found = load_pair(planted(folder, change, tmp_path), None)
        return found.part, found.found

    def all_zero_ids(tensors, config):
        tensors["d2t"].zero_()

    def a_tensor_less(tensors, config):
        del tensors["layer.q.weight"]

    part, sentence = told_of(all_zero_ids)
    assert part == "vocabulary map" and "every target id once" in sentence
    part, sentence = told_of(a_tensor_less)
    assert part == "files" and "layer.q.weight" in sentence
    assert load_pair(tmp_path / "nothing", None).part == "files"


def _official(half, folder: Path) -> Path:
    """The draft as an official checkpoint."""
    save_draft(half, folder / "ours")
    write_stored(open_stored(folder / "ours"), folder / "theirs", "official", toy())
    return folder / "theirs"


def test_an_official_checkpoint_is_healthy_or_named_by_its_fault(
    half, tmp_path, monkeypatch
):
    monkeypatch.setattr("eagle3.doctor.files.load_target", lambda *_, **__: toy())
    source = _official(half, tmp_path)
    target, draft = load_pair(source, None)
    assert told(target, draft, toy_texts()) == "healthy"

    def offsets_dropped(tensors, config):
        tensors["d2t"].zero_()

    def weights_of_eagle1(tensors, config):
        draft = Eagle1Draft(Eagle1Config.for_target(toy().config))
        save_draft(draft, tmp_path / "eagle1")
        path = tmp_path / "eagle1" / "as_official"
        write_stored(open_stored(tmp_path / "eagle1"), path, "official", toy())
        tensors.clear()
        tensors |= load_file(path / "model.safetensors")

    for change, part in (
        (offsets_dropped, "vocabulary map"),
        (weights_of_eagle1, "EAGLE-1 weights"),
    ):
        folder = tmp_path / change.__name__
        folder.mkdir()
        found = load_pair(planted(folder, change, source), None)
        assert isinstance(found, Finding) and found.part == part, found


# The numbers


def test_a_change_is_compared_row_by_row():
    """t by hand: differences 0.1, 0.3, 0.2 have mean 0.2 and standard error 0.0577."""
    before = torch.tensor([0.1, 0.2, 0.7])
    change = Change.of("x", before, before + torch.tensor([0.1, 0.3, 0.2]))
    assert change.gain == pytest.approx(0.2)
    assert change.t == pytest.approx(0.2 / 0.057735, rel=1e-4)
    assert change.is_better and not change.is_worse
    back = Change.of("x", before, before - torch.tensor([0.1, 0.3, 0.2]))
    assert back.is_worse and not back.is_better
    assert not Change.of("x", before, before).is_better
    chance = Change.of("x", before, before + torch.tensor([0.5, -0.4, 0.2]))
    assert chance.gain == pytest.approx(0.1) and not chance.is_better
    assert str(change) == "x 53.3%"


def test_texts_hold_what_the_draft_is_asked_for():
    """p of the answer's second token and on, from plain passes; all layers' inputs."""
    text = toy_texts()[0]
    ids, count = text.token_ids, text.num_prompt
    output = toy().forward(ids[None])
    for row, p in enumerate(text.probs[:-1]):
        assert int(p.argmax()) == int(ids[count + 1 + row])
    assert torch.equal(text.tapped(toy().taps), output.features[0])
    draft = helpers.trained_draft()
    q = text.foretold(draft)
    assert q.shape == text.probs.shape
    drafter = helpers.EagleDrafter(toy(), draft)
    for row in range(len(q) - 4):  # as the engine drafts
        asked = helpers.request(ids[: count + row].tolist(), 3)
        _, cycle, *_ = helpers.Engine(toy(), drafter, asked).cycles()
        assert cycle.drafted[0] == int(q[row].argmax())


def test_the_main_cause_costs_most_and_structure_comes_first():
    def found(verdict: str, weight: float) -> Finding:
        return Finding(f"{verdict} {weight}", "", verdict, "do it.", weight)

    some = (found("warning", 9.0), found("fault", 0.1), found("fault", 0.3))
    assert Diagnosis(some).cause is some[2]
    assert conclusion(Diagnosis(some)) == "Main cause: fault 0.3. To do: do it."
    assert Diagnosis(some[:1]).cause is some[0]
    assert conclusion(Diagnosis(some[:1])).startswith("Main suspect: warning 9.0.")
    assert conclusion(Diagnosis((found("ok", 0.0),))) == "The draft is healthy."


# The installation


def test_the_installation_is_looked_at(monkeypatch, tmp_path):
    assert [f.part for f in env.environment()] == [
        "Python",
        "versions",
        "kernel",
        "widgets",
        "memory",
        "disk",
        "device",
        "threads",
        "package data",
        "cache folder",
        "default target",
    ]
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "cache"))
    assert env.cache().verdict == "ok" and env.model().verdict == "warning"
    (tmp_path / "file").touch()
    monkeypatch.setenv("EAGLE3_CACHE", str(tmp_path / "file"))
    assert env.cache().verdict == "fault"


def test_versions_out_of_range_are_told(monkeypatch):
    wanted = ["torch<3,>=2", "transformers>=99", 'pytest>=1; extra == "test"']
    monkeypatch.setattr(env.metadata, "requires", lambda name: wanted)
    found = env.versions()
    assert (
        found.verdict == "fault" and found.remedy == "`pip install 'transformers>=99'`"
    )
    wanted[1] = "transformers>=4"
    assert env.versions().verdict == "ok"


def test_threads_beyond_the_cores_are_told(monkeypatch):
    monkeypatch.setattr(env, "describe_environment", lambda: {"cores": 2})
    for used, verdict in ((2, "ok"), (1, "warning"), (8, "warning")):
        monkeypatch.setattr(torch, "get_num_threads", lambda used=used: used)
        assert env.threads().verdict == verdict


def test_package_data_are_whole_and_all_listed(monkeypatch, tmp_path):
    """After a change of a draft: sha256sum */*.safetensors > checksums.txt."""
    assert env.package_data().verdict == "ok"
    listed = env.CHECKSUMS.read_text("utf-8").split()[1::2]
    found = [
        p.relative_to(env.DATA).as_posix() for p in env.DATA.rglob("*.safetensors")
    ]
    assert sorted(listed) == sorted(found)
    sums = tmp_path / "checksums.txt"
    lines = env.CHECKSUMS.read_text("utf-8").splitlines()
    sums.write_text("\n".join(["0" * 64 + lines[0][64:], *lines[1:]]), encoding="utf-8")
    monkeypatch.setattr(env, "CHECKSUMS", sums)
    assert env.package_data() == Finding(
        "package data",
        listed[0],
        "fault",
        "they are damaged or missing: install the package again.",
    )


def test_the_command_tells_and_fails_on_a_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("eagle3.doctor.files.load_target", lambda *_, **__: toy())
    draft = helpers.trained_draft_for(toy())
    with torch.no_grad():
        draft.norm.weight.fill_(1)
    save_draft(draft, tmp_path)
    found = CliRunner().invoke(cli.app, ["doctor", str(tmp_path)])
    assert found.exit_code == 1
    assert "nothing but ones in norm" in found.output
    assert "Main cause: norms. To do: it was never loaded" in found.output
    for part in ("The installation", "package data", "RoPE base", "acceptance length"):
        assert part in found.output
