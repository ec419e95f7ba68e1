"""The default target, SmolLM2-135M-Instruct.

Right values: the model card's sizes, the vocabulary file read by hand, and the
library's own forward and `generate` on the same weights.
"""

import json

import pytest
import torch

from eagle3.pretrained import fetch_default_model
from eagle3.target import Target, library_model

pytestmark = pytest.mark.real

CHATS = ["How can I cook rice?", "Write a Python function that adds two numbers."]


@pytest.fixture(scope="module")
def library():
    return library_model()


def chat_ids(target, text):
    return torch.tensor([target.encode_chat([{"role": "user", "content": text}])])


def test_sizes_are_those_of_the_model_card(real_target):
    found = (
        real_target.num_layers,
        real_target.hidden_size,
        real_target.vocab_size,
        real_target.max_positions,
        real_target.taps,
        real_target.eos_token_ids,
    )
    assert found == (30, 576, 49_152, 8192, (2, 15, 27), (2,))
    assert real_target.embedding.shape == (49_152, 576)
    assert real_target.head is real_target.embedding  # a tied head, held once
    assert real_target.is_lean


# ---- text and ids


@pytest.fixture(scope="module")
def vocabulary():
    path = fetch_default_model() / "tokenizer.json"
    return json.loads(path.read_text("utf-8"))["model"]["vocab"]


def test_encode_finds_whole_words_in_the_vocabulary(real_target, vocabulary):
    # A space is written Ġ in vocabularies of this kind.
    assert real_target.encode("How can") == [vocabulary["How"], vocabulary["Ġcan"]]
    assert real_target.encode("") == []


@pytest.mark.parametrize(
    "text",
    [
        "How can",
        "  two  spaces ",
        "tabs\tand\nlines\n",
        "Grüße, 你好, 🦅!",
        "x = [1, 2]",
    ],
)
def test_decode_undoes_encode(real_target, text):
    ids = real_target.encode(text)
    assert real_target.decode(ids) == text
    assert real_target.decode(torch.tensor(ids)) == text
    assert not {0, 1, 2} & set(ids)  # no special token is added


def test_a_chat_is_written_in_the_models_template(real_target):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    ids = real_target.encode_chat(messages)
    right = (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert real_target.decode(ids, keep_special=True) == right
    assert real_target.decode(ids) == "system\nBe brief.\nuser\nHi\nassistant\n"
    assert [ids.count(1), ids.count(2)] == [3, 2]  # the marks are one token each


# ---- rounding


def test_blocks_single_rows_and_the_library_agree_to_rounding(real_target, library):
    """Logits reach 30 here; features reach thousands in a few channels."""
    ids = chat_ids(real_target, CHATS[0])
    one_pass = real_target.forward(ids)
    assert one_pass.logits.abs().max() > 10
    with torch.no_grad():
        right = library(ids, output_hidden_states=True)
    features = torch.cat([right.hidden_states[i] for i in (2, 15, 27)], dim=-1)
    cache, steps = real_target.new_cache(ids.shape[1]), []
    for rows in ids.split([ids.shape[1] - 11, 1, 1, 1, 6, 1, 1], dim=1):
        steps.append(real_target.forward(rows, cache))
    for name, whole in {"logits": right.logits, "features": features}.items():
        scale = 1.0 if name == "logits" else whole.abs().max()
        stepwise = torch.cat([getattr(step, name) for step in steps], dim=1)
        for found in (stepwise, getattr(one_pass, name)):
            assert (found - whole).abs().max() / scale < 1e-3
            assert (found - whole).abs().mean() / scale < 1e-4
    rebuilt = one_pass.hidden @ real_target.head.T
    torch.testing.assert_close(rebuilt, one_pass.logits, atol=1e-3, rtol=0)


@pytest.mark.parametrize("lean", [True, False], ids=["lean", "library"])
@pytest.mark.parametrize("text", CHATS)
def test_the_greedy_loop_gives_the_librarys_tokens(real_target, library, text, lean):
    target = real_target if lean else Target(library, lean=False)
    ids = chat_ids(real_target, text)
    right = library.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=32
    )
    cache, block, found = target.new_cache(ids.shape[1] + 32), ids, []
    while len(found) < 32 and not set(found) & set(target.eos_token_ids):
        logits = target.forward(block, cache, last_only=True).logits
        found.append(int(logits[0, -1].argmax()))
        block = torch.tensor([[found[-1]]])
    assert found == right[0, ids.shape[1] :].tolist()
