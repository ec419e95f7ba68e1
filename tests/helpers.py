"""What the tests of engine and trainer share: toys, scripted drafters, spies.

Everything here is small and seeded. Nothing is a right value by itself, except
`library_answer`, which is transformers' own decoding loop.
"""

import copy
import math
from collections.abc import Sequence
from functools import cache

import torch
import transformers

from eagle3.draft import DraftConfig, Eagle3Draft
from eagle3.drafters import EagleDrafter
from eagle3.engine import Engine, GenerationResult, Request, generate
from eagle3.target import Target, toy_target
from eagle3.training.data import Sequence as TrainingSequence
from eagle3.training.eagle3 import Eagle3Recipe
from eagle3.training.features import look
from eagle3.training.losses import TttConfig
from eagle3.tree import DraftTree

VOCAB = 96  # of the toy target
PROMPT = (5, 17, 80, 3)


@cache
def toy() -> Target:
    """The toy target; its answers end by length alone."""
    return toy_target(0)


@cache
def library_toy(**changes: int) -> torch.nn.Module:
    """The same network as `toy` as transformers runs it; changes: of its config."""
    config = copy.deepcopy(toy().config)
    for name, value in changes.items():
        setattr(config, name, value)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    model.lm_head.weight.data *= 8
    assert torch.equal(model.get_input_embeddings().weight, toy().embedding)
    return model


def short_toy(max_positions: int) -> Target:
    """The toy target with a smaller context window."""
    return Target(library_toy(max_position_embeddings=max_positions))


def new_draft(target: Target, size: int = 48, seed: int = 0) -> Eagle3Draft:
    """An untrained draft that knows every second token or more of the target's."""
    config = DraftConfig.for_target(target.config, size, target.taps)
    step = target.vocab_size // size
    draft = Eagle3Draft(
        config, target.embedding, torch.arange(0, target.vocab_size, step)[:size]
    )
    draft.reset_parameters(torch.Generator().manual_seed(seed))
    return draft


@cache
def trained_draft() -> Eagle3Draft:
    """A draft after 40 steps on four answers of the toy: right often, not always."""
    prompts = [PROMPT, (1, 2, 7), (9, 9), (40, 50, 60, 70, 80)]
    draft = new_draft(toy(), VOCAB)
    sequences = [greedy_sequence(prompt, 24) for prompt in prompts]
    overfit(toy(), draft, sequences, num_updates=40)
    return draft


def trained_draft_for(target: Target) -> Eagle3Draft:
    """A fresh copy of `trained_draft`, to be changed, for any window of the toy."""
    draft = new_draft(target, VOCAB)
    draft.load_state_dict(trained_draft().state_dict())
    return draft


def greedy_sequence(prompt: Sequence[int], count: int) -> TrainingSequence:
    """The toy's greedy answer to a prompt, as training data."""
    answer = generate(toy(), None, list(prompt), max_new_tokens=count).token_ids
    return TrainingSequence(torch.tensor([*prompt, *answer]), len(prompt), "chat", 0.0)


def overfit(
    target: Target,
    draft: Eagle3Draft,
    sequences: list[TrainingSequence],
    num_updates: int,
) -> None:
    """Fit a draft to these few sequences, all in one batch."""
    views = [look(target, sequence.token_ids) for sequence in sequences]
    recipe = Eagle3Recipe(target, draft, TttConfig(4))
    batch = recipe.make_batch(sequences, views)
    parameters = [p for p in draft.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.0)
    with torch.enable_grad():
        for step in range(num_updates):
            loss, _ = recipe.loss(batch, step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def vanilla(target: Target, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """The target's greedy answer, one token per pass and no early end."""
    return generate(
        target, None, list(prompt), max_new_tokens=count, eos_token_ids=()
    ).token_ids


@torch.inference_mode()
def library_answer(
    model: torch.nn.Module, prompt: Sequence[int], count: int, eos: list[int]
) -> list[int]:
    """transformers' own greedy answer to token ids."""
    ids = torch.tensor([list(prompt)])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=eos or None,
        pad_token_id=0,
    )
    return output[0, len(prompt) :].tolist()


class ScriptDrafter:
    """Drafts from a known answer, right or wrong as told.

    answer: the answer that the target will give, and some tokens more
    right: for each answer token, whether it is drafted as it is; the last value is
        repeated. A wrong token is a neighbour, so it is in the vocabulary.
    """

    def __init__(self, answer: Sequence[int], length: int, right: Sequence[bool]):
        self.answer, self.length, self.right = answer, length, right
        self.max_nodes = length
        self.cache_length = 0

    def start(self, max_length: int) -> None:
        self.num_seen, self.num_prompt = 0, None

    def observe(self, token_ids, output) -> None:
        assert output.features.shape[:2] == (1, len(token_ids))
        self.num_seen += len(token_ids)
        if self.num_prompt is None:
            self.num_prompt = self.num_seen

    def propose(self, pending, limit, params, generator) -> DraftTree:
        first = self.num_seen - self.num_prompt + 1  # answer tokens with pending
        assert pending == self.answer[first - 1]
        count = min(limit, self.length, len(self.answer) - first)
        return DraftTree.chain(tuple(self._token(first + i) for i in range(count)))

    def _token(self, index: int) -> int:
        right, token = self.right[min(index, len(self.right) - 1)], self.answer[index]
        if right:
            return token
        return token - 1 if token else 1


class RandomDrafter:
    """Drafts tokens by dice that know nothing of target or text."""

    cache_length = 0

    def __init__(self, length: int, vocab_size: int = VOCAB):
        self.length, self.vocab_size = length, vocab_size
        self.max_nodes = length

    def start(self, max_length: int) -> None:
        self.generator = torch.Generator().manual_seed(5)

    def observe(self, token_ids, output) -> None:
        pass

    def propose(self, pending, limit, params, generator) -> DraftTree:
        count = max(0, min(limit, self.length))
        ids = torch.randint(self.vocab_size, (count,), generator=self.generator)
        return DraftTree.chain(tuple(ids.tolist()))


class ByteTokenizer:
    """Tokens 0 to 59 are letters and signs, the others halves of two-byte characters.

    So a text can end in the middle of a character, as it does with real tokenizers.
    """

    chat_template = "user: {}"

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [ord(sign) % 60 for sign in text]

    def apply_chat_template(self, messages, add_generation_prompt, tokenize) -> str:
        assert add_generation_prompt and not tokenize
        return "".join(f"<{m['role']}>{m['content']}" for m in messages)

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        signs = [i + 64 if i < 60 else 0xC3 if i < 78 else 0xA0 + i - 78 for i in ids]
        return bytes(signs).decode("utf-8", errors="replace")


def talking_toy(dtype: torch.dtype = torch.float32) -> Target:
    """The toy target with a tokenizer."""
    return Target(copy.deepcopy(library_toy()).to(dtype), ByteTokenizer())


def check_invariants(engine: Engine) -> GenerationResult:
    """Run an engine to its end and check its books after every cycle."""
    num_prompt, committed = len(engine.request.prompt_ids), 0
    is_chain = isinstance(engine.drafter, EagleDrafter)
    for cycle in engine.cycles():
        if is_chain and cycle.drafted:
            # All that was committed when it drafted, none of what it drafted.
            assert cycle.draft_cache == engine.drafter.cache.length == committed
        committed = num_prompt + len(engine.emitted) - 1
        assert cycle.target_cache == engine.cache.length == committed
        assert committed < engine.target.max_positions
        accepted = (cycle.drafted[node] for node in cycle.path)
        block = (*accepted, cycle.next_token)
        assert cycle.emitted == block[: len(cycle.emitted)]
        assert cycle.emitted == block or engine.finish_reason
    result = engine.result()
    told = result.acceptance_length * result.target_passes
    assert math.isclose(told, len(result.token_ids) - 1, abs_tol=1e-9)
    emitted = [cycle.emitted for cycle in (result.prefill, *result.cycles)]
    assert sum(emitted, ()) == result.token_ids == tuple(engine.emitted)
    return result


def request(prompt: Sequence[int], count: int, **others) -> Request:
    """A request without end-of-sequence tokens, unless others say so."""
    return Request(tuple(prompt), count, **others)
