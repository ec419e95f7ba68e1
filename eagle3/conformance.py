"""Add your own target: what a model must do before a draft can speed it up.

Every check is one small function. It gets the target and the library's own model, and
either says in a few words what it found or raises an error with the reason. All of
them together are the contract of `Target`: who adds a family knows that it stands when
they pass. [Ours]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from eagle3.engine import Engine, Request, generate, prompt_to_ids
from eagle3.library_network import refuse_unsupported
from eagle3.pretrained import library_model, load_config, load_tokenizer, source_of
from eagle3.target import Target, TargetOutput, tap_layers
from eagle3.tree import NOTHING, ROOT, DraftTree

TOLERANCE = 1e-3  # of the largest value; a wrong mask or position moves far more
LENGTH = 40  # tokens of the text
LARGEST_WINDOW = 1024  # up to here, the text is made longer than a sliding window
NEW_TOKENS = 24
# Two branches and two levels below one of them: siblings, cousins and a chain.
TREE_PARENTS = (ROOT, ROOT, 1, 1, 2, 0)
QUESTION = {"role": "user", "content": "How can I cook rice?"}


@dataclass(frozen=True)
class Subject:
    """What is checked.

    target: the target         model: the library's model, which it must equal
    text: [1, T]  ids of a text at random, longer than a sliding window if that is small
    """

    target: Target
    model: nn.Module
    text: Tensor


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: what it found, or the reason why it failed."""

    name: str
    passed: bool
    said: str


def check_target(name_or_path: str | Path) -> list[Finding]:
    """All checks on a model of a folder or hub id, in float32 on the CPU.

    A model that can't be a target gives one finding, with the reason. Raises ValueError
    when nothing can be read there. [Ours]
    """
    source = source_of(name_or_path)
    config = load_config(source)
    try:
        refuse_unsupported(config)
    except ValueError as error:
        return [Finding("architecture", False, str(error))]
    model, tokenizer = library_model(source), load_tokenizer(source)
    return check_model(model, lambda taps: Target(model, tokenizer, taps))


def check_model(
    model: nn.Module, make: Callable[[tuple[int, ...] | None], Target]
) -> list[Finding]:
    """All checks on a model.

    make: gives the target on it for these taps (None: the default ones)

    [Ours]
    """
    num_layers = model.config.get_text_config().num_hidden_layers
    try:  # too shallow for taps is a finding of its own
        target = make(None if num_layers >= 7 else ())
    except ValueError as error:
        return [Finding("architecture", False, str(error))]
    subject = Subject(target, model, random_text(target))
    return [_finding(name, check, subject) for name, check in CHECKS]


def random_text(target: Target) -> Tensor:
    """Token ids at random: [1, T]"""
    window = getattr(target.config, "sliding_window", None) or 0
    length = LENGTH if window > LARGEST_WINDOW else LENGTH + window
    length = max(16, min(length, target.max_positions - NEW_TOKENS))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(target.vocab_size, (1, length), generator=generator)
    return ids.to(target.device)


def _finding(name: str, check: Callable[[Subject], str], subject: Subject) -> Finding:
    try:
        return Finding(name, True, check(subject))
    except Exception as error:  # whatever it is, it is the reason
        lines = str(error).splitlines() or [""]
        return Finding(name, False, lines[0] or type(error).__name__)


def check_architecture(subject: Subject) -> str:
    """`Target` took the model, or we would not be here."""
    target, window = subject.target, getattr(subject.target.config, "sliding_window", 0)
    kind = "sliding windows of " + str(window) if window else "full attention"
    network = "lean network" if target.is_lean else "the library's modules"
    return f"{target.config.model_type}, {kind}, {network}"


def check_taps(subject: Subject) -> str:
    """Three distinct ascending layers."""
    taps = subject.target.taps or tap_layers(subject.target.num_layers)
    return f"inputs of layers {taps} of {subject.target.num_layers}"


@torch.no_grad()
def check_features(subject: Subject) -> str:
    """Features are the inputs of the tapped layers, hidden_states[i] of the library."""
    found = subject.target.forward(subject.text)
    right = subject.model(subject.text, output_hidden_states=True, use_cache=False)
    taps = [right.hidden_states[tap] for tap in subject.target.taps]
    features = torch.cat([found.features[..., :0], *taps], dim=-1)
    right = TargetOutput(right.logits, features, right.hidden_states[-1])
    return _require_same(found, right, "the target and the library's own pass")


def check_cached_pass(subject: Subject) -> str:
    """Blocks of one and of several tokens with a cache give what one pass gives."""
    target, text = subject.target, subject.text
    cache, start, parts = target.new_cache(text.shape[1]), 0, []
    for rows in (text.shape[1] - 12, 1, 4, 1, 6):
        parts.append(target.forward(text[:, start : start + rows], cache))
        start += rows
    cached = TargetOutput(
        *(torch.cat(rows, dim=1) for rows in zip(*map(_tensors, parts), strict=True))
    )
    return _require_same(cached, target.forward(text), "cached blocks and one pass")


def check_causality(subject: Subject) -> str:
    """Another last token changes nothing before it."""
    text = subject.text.clone()
    text[0, -1] = (text[0, -1] + 1) % subject.target.vocab_size
    before = range(text.shape[1] - 1)
    found, right = map(subject.target.forward, (text, subject.text))
    return _require_same(
        found.rows(before), right.rows(before), "texts that differ in a later token"
    )


def check_tree(subject: Subject) -> str:
    """A tree in one pass gives what a pass over each of its paths gives."""
    target, text = subject.target, subject.text[:, :-1]
    pending = int(subject.text[0, -1])
    tree = DraftTree(tuple(subject.text[0, : len(TREE_PARENTS)].tolist()), TREE_PARENTS)
    cache = target.new_cache(text.shape[1] + 1 + len(tree))
    target.forward(text, cache)
    block = torch.tensor([[pending, *tree.tokens]], device=target.device)
    found = target.forward(block, cache, tree_mask=tree.mask())
    for row in range(len(tree) + 1):
        path = [pending, *(tree.tokens[node] for node in tree.path(row - 1))]
        ids = torch.tensor([path], device=target.device)
        alone = target.forward(torch.cat([text, ids], dim=1)).rows([-1])
        _require_same(found.rows([row]), alone, f"row {row} of a tree and its path")
    return f"a tree of {len(tree)} nodes and its paths agree"


def check_rollback(subject: Subject) -> str:
    """Rejected tokens leave no trace, of a chain and of a tree."""
    target, text = subject.target, subject.text
    half = text.shape[1] - 8
    cache = target.new_cache(text.shape[1])
    target.forward(text[:, :half], cache)
    target.forward(text[:, :5].flip(1), cache)  # five wrong tokens
    cache.rollback(5)
    target.forward(torch.cat([text[:, half : half + 1], text[:, :3]], 1), cache)
    cache.keep(half, [0])  # the first of a block, as when all drafts are rejected
    found = target.forward(text[:, half + 1 :], cache)
    right = target.forward(text).rows(range(half + 1, text.shape[1]))
    return _require_same(found, right, "a text after rejected tokens and the text")


def check_end_of_sequence(subject: Subject) -> str:
    """Some token ends an answer, and the target can choose it; else ValueError."""
    target = subject.target
    if not target.eos_token_ids:
        raise ValueError(
            "no end-of-sequence token is named: answers end by length alone; add "
            "eos_token_id to generation_config.json."
        )
    outside = [t for t in target.eos_token_ids if not 0 <= t < target.vocab_size]
    if outside:
        raise ValueError(
            f"eos_token_id {outside[0]} is outside the vocabulary of "
            f"{target.vocab_size}: correct generation_config.json."
        )
    return f"ids {', '.join(map(str, target.eos_token_ids))}"


def check_chat_template(subject: Subject) -> str:
    """A question becomes a prompt; a target without template takes plain text.

    Raises ValueError for a tokenizer or a template that doesn't fit.
    """
    target = subject.target
    if target.tokenizer is None:
        return "no tokenizer: prompts are token ids"
    ids = prompt_to_ids(target, QUESTION["content"])
    outside = [token for token in ids if token >= target.vocab_size]
    if outside:
        raise ValueError(
            f"the tokenizer gives id {outside[0]}, which is outside the vocabulary of "
            f"{target.vocab_size}: it belongs to another model."
        )
    if getattr(target.tokenizer, "chat_template", None) is None:
        return "none: prompts are plain text"
    if QUESTION["content"] not in target.decode(ids):
        raise ValueError("the chat template loses the user's message.")
    system = {"role": "system", "content": "Answer in one word."}
    target.encode_chat([system, QUESTION])
    return f"{len(ids)} tokens for '{QUESTION['content']}'"


def check_context(subject: Subject) -> str:
    """The context window, and whether it is the one that the config names.

    Raises ValueError for one that is too small for these checks.
    """
    target = subject.target
    named = target.config.max_position_embeddings
    if target.max_positions < LENGTH + NEW_TOKENS:
        raise ValueError(f"{target.max_positions} tokens leave no room for an answer.")
    if target.max_positions == named:
        return f"{named} tokens"
    return f"{target.max_positions} of {named} tokens: its RoPE changes after that"


def check_greedy(subject: Subject) -> str:
    """Drafts right and wrong, in chains and trees, never change the greedy answer."""
    target, prompt = subject.target, tuple(subject.text[0, :LENGTH].tolist())
    right = _library_answer(subject, prompt)
    plain = generate(
        target, None, prompt, max_new_tokens=NEW_TOKENS, eos_token_ids=()
    ).token_ids
    _require_same_answer(subject, prompt, plain, right, "decoding without draft")
    right = list(plain)  # the library's may have ended with an end-of-sequence token
    for wide in (False, True):
        engine = Engine(target, _Rehearsed(plain, wide), Request(prompt, NEW_TOKENS))
        for _ in engine.cycles():
            pass
        name = "a tree of drafts" if wide else "a chain of drafts"
        _require_same_answer(subject, prompt, engine.emitted, right, name)
    tau = engine.result().acceptance_length
    return f"{NEW_TOKENS} tokens, the same with drafts (acceptance length {tau:.2f})"


CHECKS: tuple[tuple[str, Callable[[Subject], str]], ...] = (
    ("architecture", check_architecture),
    ("taps", check_taps),
    ("features and logits", check_features),
    ("cached pass", check_cached_pass),
    ("causality", check_causality),
    ("tree pass", check_tree),
    ("rollback", check_rollback),
    ("end of sequence", check_end_of_sequence),
    ("chat template", check_chat_template),
    ("context", check_context),
    ("greedy answer", check_greedy),
)


def print_findings(name: str, findings: Sequence[Finding]) -> None:
    """A table of what was found. [Ours]"""
    table = Table(title=f"{name} as a target")
    for column in ("check", "", "found"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        passed = Text("pass") if finding.passed else Text("FAIL", "bold red")
        table.add_row(finding.name, passed, Text(finding.said))
    Console().print(table)


class _Rehearsed:
    """Drafts from an answer that is known: three right tokens and then a wrong one.

    wide: with a wrong sibling before each right token, else as a chain
    """

    cache_length, max_nodes = 0, 8

    def __init__(self, answer: Sequence[int], wide: bool) -> None:
        self.answer, self.wide = answer, wide

    def start(self, max_length: int) -> None:
        self.num_seen, self.num_prompt = 0, 0

    def observe(self, token_ids: Sequence[int], output: TargetOutput) -> None:
        self.num_seen += len(token_ids)
        self.num_prompt = self.num_prompt or self.num_seen

    def propose(self, pending, limit, params, generator) -> DraftTree:
        first = self.num_seen - self.num_prompt + 1
        right = list(self.answer[first : first + min(limit, 4)])
        if not right:
            return NOTHING
        right[3:] = [_other(token) for token in right[3:]]
        if not self.wide:
            return DraftTree.chain(right)
        tokens, parents, parent = [], [], ROOT
        for token in right:
            tokens += [_other(token), token]
            parents += [parent, parent]
            parent = len(tokens) - 1
        return DraftTree(tuple(tokens), tuple(parents))


def _other(token: int) -> int:
    return token - 1 if token else 1


def _tensors(output: TargetOutput) -> tuple[Tensor, ...]:
    return tuple(vars(output).values())


def _require_same(found: TargetOutput, right: TargetOutput, what: str) -> str:
    """Raise ValueError unless all three outputs agree to rounding."""
    largest = 0.0
    for name, one, other in zip(
        vars(found), _tensors(found), _tensors(right), strict=True
    ):
        scale = float(other.abs().amax()) if other.numel() else 1.0
        off = float((one - other).abs().amax()) / scale if one.numel() else 0.0
        if not off <= TOLERANCE:
            raise ValueError(
                f"the {name} of {what} differ by {off:.1%} of the largest value."
            )
        largest = max(largest, off)
    return f"{what} agree to {largest:.0e}"


@torch.inference_mode()
def _library_answer(subject: Subject, prompt: Sequence[int]) -> list[int]:
    ids = torch.tensor([prompt], device=subject.target.device)
    output = subject.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        repetition_penalty=1.0,  # whatever the model's own settings say
        pad_token_id=0,
    )
    return output[0, len(prompt) :].tolist()


def _require_same_answer(
    subject: Subject,
    prompt: Sequence[int],
    found: Sequence[int],
    right: Sequence[int],
    what: str,
) -> None:
    """Raise ValueError where two answers part, unless two logits tie there.

    right: it may be the shorter one
    """
    pairs = zip(found, right, strict=False)
    place = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if place is None:
        return
    ids = torch.tensor([[*prompt, *right[:place]]], device=subject.target.device)
    best = subject.target.forward(ids, last_only=True).logits[0, -1].topk(2).values
    if float(best[0] - best[1]) > TOLERANCE * float(best.abs().amax()):
        raise ValueError(
            f"{what} gives token {found[place]} at place {place}, where the library's "
            f"generate gives {right[place]}."
        )
