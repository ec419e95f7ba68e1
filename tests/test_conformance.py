"""The conformance test of targets: it passes what works and names what is broken.

The faults are planted: each target here is broken in one place, and the check that
looks at that place must be among those that fail.
"""

import re

import pytest
import torch
from test_chat_templates import GEMMA, talking
from tiny import tiny_model
from typer.testing import CliRunner

from eagle3 import conformance
from eagle3.__main__ import app
from eagle3.cache import KVCache
from eagle3.conformance import CHECKS, check_model, check_target
from eagle3.target import Target, TargetOutput

NAMES = [name for name, _ in CHECKS]


def failed(findings) -> dict[str, str]:
    return {f.name: f.said for f in findings if not f.passed}


def with_eos(family: str = "Llama", **changes):
    return tiny_model(family, eos_token_id=7, **changes)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Llama", {}),
        ("Gemma3Text", {"head_dim": 16, "sliding_window": 5}),
        ("Phi3", {"pad_token_id": 0, "sliding_window": 30}),
    ],
)
def test_a_sound_target_passes_every_check(family, changes):
    model = with_eos(family, **changes)
    findings = check_model(model, lambda taps: Target(model, taps=taps))
    assert [finding.name for finding in findings] == NAMES
    assert failed(findings) == {}
    assert float(findings[-1].said.split()[-1][:-1]) > 2  # the acceptance length


class OffByOne(KVCache):
    def rollback(self, count: int) -> None:
        super().rollback(max(0, count - 1))


class KeepsTheFirst(KVCache):
    """Counts right, but closes up nothing: a tree's rejected rows stay."""

    def keep(self, start, rows) -> None:
        self.length = start + len(rows)


class Broken(Target):
    """A target with one fault; the subclasses say which."""

    cache_class = KVCache

    def new_cache(self, max_length=None, spare=0):
        cache = super().new_cache(max_length, spare)
        cache.__class__ = self.cache_class
        return cache


class RollbackOffByOne(Broken):
    cache_class = OffByOne


class TreeKeepsWrongRows(Broken):
    cache_class = KeepsTheFirst


class TreeMaskLeaks(Broken):
    """Every node sees all nodes before it."""

    def forward(self, input_ids, cache=None, *, tree_mask=None, **options):
        if tree_mask is not None:
            n = len(tree_mask)
            return self._leaking(input_ids, cache, tree_mask, torch.ones(n, n).tril())
        return super().forward(input_ids, cache, **options)

    @torch.inference_mode()
    def _leaking(self, input_ids, cache, tree_mask, leak):
        start = cache.length
        positions = start + tree_mask.sum(-1)[None] - 1
        mask = torch.cat([torch.ones(len(leak), start), leak], 1).bool()[None]
        return TargetOutput(
            *self._network.forward(input_ids, cache, positions, mask, False)
        )


class TreePositionsCountRows(Broken):
    """Nodes stand where they lie in the block, not where their path ends."""

    @torch.inference_mode()
    def _run_tree(self, input_ids, cache, tree_mask, last_only):
        n, start = len(tree_mask), cache.length
        mask = torch.cat([torch.ones(n, start).bool(), tree_mask], dim=1)[None]
        positions = start + torch.arange(n)[None]
        return TargetOutput(
            *self._network.forward(input_ids, cache, positions, mask, last_only)
        )


class NotCausal(Broken):
    """The whole block sees the whole block."""

    @torch.inference_mode()
    def _run(self, input_ids, cache, attention_mask, last_only):
        seen, rows = cache.length, input_ids.shape[1]
        positions = torch.arange(seen, seen + rows)[None]
        mask = torch.ones(1, rows, seen + rows, dtype=torch.bool)
        return TargetOutput(
            *self._network.forward(input_ids, cache, positions, mask, last_only)
        )


class TapsOutputs(Broken):
    """Features are the outputs of the tapped layers: one layer late."""

    def __init__(self, model, taps=None):
        super().__init__(model, taps=taps)
        self._network.taps = tuple(tap + 1 for tap in self.taps)


class PositionsStartAgain(Broken):
    """Every block begins at position 0."""

    @torch.inference_mode()
    def _run(self, input_ids, cache, attention_mask, last_only):
        seen, rows = cache.length, input_ids.shape[1]
        mask = torch.ones(rows, seen + rows).tril(seen).bool()[None]
        positions = torch.arange(rows)[None]
        return TargetOutput(
            *self._network.forward(input_ids, cache, positions, mask, last_only)
        )


FAULTS = [
    (RollbackOffByOne, "rollback", "differ by|holds"),
    (TreeKeepsWrongRows, "greedy answer", "a tree of drafts gives token"),
    (TreeMaskLeaks, "tree pass", "row 2 of a tree and its path differ"),
    (TreePositionsCountRows, "tree pass", "row 2 of a tree and its path differ"),
    (NotCausal, "causality", "texts that differ in a later token differ"),
    (TapsOutputs, "features and logits", "the features of the target and the library"),
    (PositionsStartAgain, "cached pass", "cached blocks and one pass differ"),
]


@pytest.mark.parametrize(("kind", "check", "words"), FAULTS)
def test_a_planted_fault_is_found_and_named(kind, check, words):
    """In the lean network and in the library's modules by turns."""
    model = with_eos(["Llama", "Qwen3"][[fault[0] for fault in FAULTS].index(kind) % 2])
    found = failed(check_model(model, lambda taps: kind(model, taps=taps)))
    assert check in found
    assert re.search(words, found[check])
    assert "architecture" not in found and "context" not in found


def test_a_window_that_is_ignored_is_found(monkeypatch):
    """The text is longer than the window, so that it shows."""
    model = with_eos("Mistral", sliding_window=12)
    target = Target(model)
    target._network.window = None
    found = failed(check_model(model, lambda taps: target))
    assert "features and logits" in found and "greedy answer" in found


def test_a_shallow_model_fails_by_its_taps_alone():
    model = with_eos(num_hidden_layers=4)
    found = failed(check_model(model, lambda taps: Target(model, taps=taps)))
    assert list(found) == ["taps"]
    assert "4 layers is too shallow" in found["taps"]


def test_a_missing_or_impossible_end_is_found():
    model = tiny_model()
    found = failed(check_model(model, lambda taps: Target(model, taps=taps)))
    assert list(found) == ["end of sequence"]
    model.generation_config.eos_token_id = [3, 500]
    found = failed(check_model(model, lambda taps: Target(model, taps=taps)))
    assert "eos_token_id 500 is outside" in found["end of sequence"]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (GEMMA, ""),
        (None, ""),
        ("{{ raise_exception('no chat') }}", "can't write these messages"),
        ("always the same", "loses the user's message"),
    ],
)
def test_a_chat_template_is_tried(template, words):
    talker = talking(template)
    model = with_eos(vocab_size=300)
    findings = check_model(
        model, lambda taps: Target(model, talker.tokenizer, taps=taps)
    )
    found = failed(findings)
    assert list(found) == (["chat template"] if words else [])
    assert words in found.get("chat template", "")


def test_a_tokenizer_of_another_model_is_found():
    model = with_eos(vocab_size=200)
    talker = talking(None)
    found = failed(
        check_model(model, lambda taps: Target(model, talker.tokenizer, taps=taps))
    )
    assert "it belongs to another model" in found["chat template"]


def test_a_short_context_is_told():
    model = with_eos(max_position_embeddings=50)
    found = failed(check_model(model, lambda taps: Target(model, taps=taps)))
    assert found == {"context": "50 tokens leave no room for an answer."}


@pytest.mark.parametrize(
    ("family", "words"), [("Jamba", "jamba"), ("Rwkv", "recurrent state")]
)
def test_a_recurrent_model_is_one_finding(family, words, tmp_path):
    tiny_model(family).save_pretrained(tmp_path)
    (finding,) = check_target(tmp_path)
    assert (finding.name, finding.passed) == ("architecture", False)
    assert words in finding.said and "cannot forget" in finding.said


def test_the_command_prints_a_table_and_fails_with_a_fault(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    with_eos().save_pretrained(good)
    with_eos(num_hidden_layers=3).save_pretrained(bad)
    runner = CliRunner(env={"COLUMNS": "200"})
    result = runner.invoke(app, ["check-target", str(good)])
    assert result.exit_code == 0, result.output
    assert all(name in result.output for name in NAMES)
    assert "FAIL" not in result.output
    result = runner.invoke(app, ["check-target", str(bad)])
    assert result.exit_code == 1
    assert "FAIL" in result.output and "too shallow" in result.output


def test_a_folder_without_model_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="no target can be loaded"):
        check_target(tmp_path / "nothing")


def test_a_tie_is_no_fault(monkeypatch):
    """Two tokens whose logits are equal: which of them comes is rounding."""
    model = with_eos()
    head = model.get_output_embeddings().weight.data
    head[1::2] = head[0::2]  # every token has a twin
    target = Target(model)
    right = conformance._library_answer

    def other_twin(subject, prompt):
        first, *rest = right(subject, prompt)
        return [first + 1 if first % 2 == 0 else first - 1, *rest]

    monkeypatch.setattr(conformance, "_library_answer", other_twin)
    assert failed(check_model(model, lambda taps: target)) == {}
