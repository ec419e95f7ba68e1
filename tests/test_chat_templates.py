"""Prompts of each family: what a target makes of chat messages and of plain text.

The templates are short ones in the manner of the families'. The right texts are
written out by hand.
"""

import pytest
import transformers
from tiny import tiny_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from eagle3.engine import prompt_to_ids
from eagle3.target import Target

LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MISTRAL = (  # no word about system messages: they would be lost
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
    "[INST] {{ m['content'] }} [/INST]{% elif m['role'] == 'assistant' %}"
    "{{ m['content'] }}</s>{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
SYSTEM = {"role": "system", "content": "Be brief."}
CHAT = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Ho"},
    {"role": "user", "content": "Why?"},
]


def talking(template: str | None) -> Target:
    """A target with a tokenizer of single bytes that opens a text with <bos>."""
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE({sign: i for i, sign in enumerate(signs)}, []))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens(["<bos>"])
    plain.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", plain.token_to_id("<bos>"))]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<bos>"
    )
    tokenizer.chat_template = template
    return Target(tiny_model(vocab_size=300), tokenizer)


def text_of(target: Target, prompt) -> str:
    return target.decode(prompt_to_ids(target, prompt), keep_special=True)


RIGHT = [
    (
        LLAMA,
        "<bos><|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>Ho<|end|>"
        "<|user|>Why?<|end|><|assistant|>",
    ),
    (
        CHATML,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHo<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n",
    ),
    (MISTRAL, "<bos>[INST] Be brief.\n\nHi [/INST]Ho</s>[INST] Why? [/INST]"),
    (
        GEMMA,
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
        "Ho<end_of_turn>\n<start_of_turn>user\nWhy?<end_of_turn>\n"
        "<start_of_turn>model\n",
    ),
]


@pytest.mark.parametrize(("template", "right"), RIGHT)
def test_a_system_message_is_never_lost(template, right):
    assert text_of(talking(template), [SYSTEM, *CHAT]) == right


@pytest.mark.parametrize(("template", "right"), RIGHT)
def test_without_a_system_message_the_template_is_followed(template, right):
    asked = text_of(talking(template), CHAT)
    assert "brief" not in asked
    assert asked.startswith("<bos>") == ("<bos>" in right)
    assert asked.count("<bos>") <= 1  # no second one from the tokenizer
    assert asked.endswith(right[-30:])


def test_a_system_message_alone_is_asked_by_the_user():
    expected = (
        "<bos><start_of_turn>user\nBe brief.<end_of_turn>\n<start_of_turn>model\n"
    )
    assert text_of(talking(GEMMA), [SYSTEM]) == expected


def test_what_the_template_refuses_is_told_in_one_sentence():
    with pytest.raises(ValueError, match=r"Roles must alternate.*take turns") as caught:
        prompt_to_ids(talking(GEMMA), [SYSTEM, CHAT[0], CHAT[0]])
    assert "\n" not in str(caught.value)


def test_a_plain_text_begins_as_the_tokenizer_begins_a_text():
    """Without template; Gemma and Llama write nonsense without their first token."""
    target = talking(None)
    assert text_of(target, "Hi") == "<bos>Hi"
    assert text_of(target, "Hi") == target.decode(
        target.tokenizer("Hi")["input_ids"], keep_special=True
    )
    assert target.decode(target.encode("Hi"), keep_special=True) == "Hi"
    with pytest.raises(ValueError, match="has no chat template"):
        prompt_to_ids(target, CHAT)
