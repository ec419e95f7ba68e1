"""EAGLE behind transformers' own `generate`: one argument more, the same tokens.

`generate` does what it always does with its arguments: it builds the logits processors,
the stopping criteria and the lengths, then hands the decoding loop to a function if it
is given one, as its public argument `custom_generate`. The function here runs our
engine on the model, which stays as it is:

    eagle = eagle3_generate(draft)
    model.generate(**inputs, custom_generate=eagle)
    print(eagle.result.acceptance_length)

Processors see exactly the texts that they would see in vanilla decoding, because the
engine asks for the target's distribution only along the path that it accepts. [Ours]
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from eagle3.drafters import Drafter
from eagle3.engine import Engine, GenerationResult, Request, as_drafter
from eagle3.growth import Growth
from eagle3.sampling import SamplingParams
from eagle3.target import Target

# What `generate` itself adds to the call, and what our own cache makes needless.
PREPARED = {
    "attention_mask",
    "cache",
    "cache_position",
    "logits_to_keep",
    "past_key_values",
    "position_ids",
    "use_cache",
}
# Settings that ask for more than tokens, with the values that ask for nothing.
EXTRAS = (
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "return_dict_in_generate",
)


def eagle3_generate(
    draft: nn.Module | Drafter | None, growth: Growth | None = None
) -> "EagleGenerate":
    """A value for the argument `custom_generate` of a model's `generate`.

    draft: an EAGLE draft of that model, any drafter, or None for vanilla decoding
    growth: which tree an EAGLE draft proposes, a chain of three if not given

    The draft is copied at the first call. Temperature 0 gives the tokens of `generate`
    without this argument; sampling gives its distribution, seeded by torch's global
    generator, from which one number is drawn.

    Honoured: all settings of the generation config that become logits processors or
    stopping criteria (max_new_tokens, eos_token_id, temperature, top_k, top_p,
    repetition_penalty, ...), `logits_processor`, `stopping_criteria`,
    `prefix_allowed_tokens_fn` and `streamer`. The answer ends where the model's context
    window does, with a warning.
    `generate` doesn't pass a tokenizer on to functions: instead of stop_strings and
    tokenizer, pass stopping_criteria=[StopStringCriteria(tokenizer, strings)].

    Calls raise ValueError, by name, for what can't be honoured, for a model that can't
    be a target, and for a draft that doesn't fit it. [Ours]
    """
    return EagleGenerate(draft, growth)


class EagleGenerate:
    """What `eagle3_generate` returns.

    result: of the last call, with its trace; None before the first
    """

    def __init__(self, draft: nn.Module | Drafter | None, growth: Growth | None):
        self.draft, self.growth = draft, growth
        self.result: GenerationResult | None = None
        self._model: nn.Module | None = None

    def __call__(
        self,
        model: nn.Module,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **others: Any,
    ) -> Tensor:
        """Continue a text: input_ids [1, T] -> [1, T + new tokens].

        The names are those of transformers, which makes this call. [Ours]
        """
        others = _not_passed_on(self) | others
        streamer = others.pop("streamer", None)
        refuse_unsupported_call(model, input_ids, generation_config, others)
        target, drafter = self._on(model)
        request = _request(
            input_ids, logits_processor, stopping_criteria, generation_config
        )
        engine = Engine(target, drafter, request)
        for cycle in engine.cycles():
            for token in cycle.emitted if streamer is not None else ():
                streamer.put(torch.tensor([token]))
        if streamer is not None:
            streamer.end()
        self.result = engine.result()
        if self.result.finish_reason == "context":
            warnings.warn(
                f"the answer ends at the model's context of {target.max_positions} "
                "tokens, before the length that was asked for.",
                stacklevel=2,
            )
        new = input_ids.new_tensor([self.result.token_ids])
        return torch.cat([input_ids, new], dim=1)

    def _on(self, model: nn.Module) -> tuple[Target, Drafter]:
        """The model as a target, and the drafter on it; kept for the next call."""
        if self._model is not model:
            # Not lean: that copies weights, and this model may change between calls.
            target = Target(model, taps=_taps_of(self.draft), lean=False)
            self._kept = target, as_drafter(target, self.draft, growth=self.growth)
            self._model = model
        return self._kept


def _taps_of(draft: nn.Module | Drafter | None) -> tuple[int, ...]:
    """The layers whose inputs a draft or a drafter with a draft reads, () for none."""
    model = getattr(draft, "draft", draft)
    return getattr(getattr(model, "config", None), "taps", ())


def _request(input_ids: Tensor, processors: Any, criteria: Any, config: Any) -> Request:
    """The call as a request of our engine.

    Processors hold temperature, top-k and top-p too, so what they leave is drawn from
    as it is. The draft draws in the same way as well as it can.
    """
    prompt = tuple(input_ids[0].tolist())
    sampling, drafting = SamplingParams(), None
    if config.do_sample:
        seed = int(torch.randint(2**63 - 1, ()))  # torch's global generator
        sampling = SamplingParams(1.0, seed=seed)
        drafting = SamplingParams(
            1.0 if config.temperature is None else float(config.temperature),
            config.top_k or None,
            1.0 if config.top_p is None else float(config.top_p),
        )
    device = input_ids.device
    return Request(
        prompt,
        config.max_length - len(prompt),
        sampling,
        process=_process(processors, device) if len(processors) else None,
        ends=_ends(criteria, device),
        drafting=drafting,
    )


def _process(
    processors: Any, device: torch.device
) -> Callable[[list[int], Tensor], Tensor]:
    def process(text: list[int], scores: Tensor) -> Tensor:
        # They may keep what they are given, so it should be usual tensors.
        with torch.inference_mode(False), torch.no_grad():
            ids = torch.tensor([text], device=device)
            own = scores.to(device, torch.float32, copy=True)[None]  # [1, V]
            return processors(ids, own)[0].to(scores.device)

    return process


def _ends(criteria: Any, device: torch.device) -> Callable[[list[int]], bool]:
    def ends(text: list[int]) -> bool:
        with torch.inference_mode(False), torch.no_grad():
            return bool(criteria(torch.tensor([text], device=device), None).all())

    return ends


def _not_passed_on(loop: EagleGenerate) -> dict[str, Any]:
    """Arguments of `generate` that it keeps to itself when it calls a function.

    A streamer would get the prompt and then nothing, an assistant would be ignored, and
    a cache of the caller's looks like one of the library's own. The library (5.0 to
    5.24) leaves no other way to them than the caller's frame.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_locals.get("custom_generate") is not loop:
        frame = frame.f_back
    found = {} if frame is None else frame.f_locals
    options = found.get("kwargs", {})
    return {
        "streamer": found.get("streamer"),
        "assistant_model": found.get("assistant_model"),
        "own_cache": options.get("cache", options.get("past_key_values")),
    }


def refuse_unsupported_call(
    model: nn.Module, input_ids: Tensor, config: Any, others: dict[str, Any]
) -> None:
    """Refuse what our engine can't do as `generate` would, before any work.

    input_ids: [B, T]        others: the remaining arguments of the call

    Raises ValueError that names the setting and the remedy. [Ours]
    """
    others = {name: value for name, value in others.items() if value is not None}
    for what, remedy in _problems(model, input_ids, config, others):
        raise ValueError(f"eagle3_generate can't honour {what}: {remedy}.")


def _problems(model, input_ids, config, others):
    if others.pop("assistant_model", None) is not None:
        yield "assistant_model", "leave it out, the draft is its assistant"
    mode = str(getattr(config.get_generation_mode(), "value", ""))
    if mode not in ("greedy_search", "sample"):
        yield f"the generation mode {mode}", "choose greedy search or sampling"
    if (config.num_return_sequences or 1) > 1:
        yield (
            f"num_return_sequences={config.num_return_sequences}",
            "call generate once for each answer",
        )
    for name in EXTRAS:
        if getattr(config, name, None):
            yield f"{name}=True", "leave it out; the trace is in .result of this object"
    if getattr(config, "cache_implementation", None) not in (None, "dynamic"):
        yield (
            f"cache_implementation={config.cache_implementation!r}",
            "leave it out, the engine has a cache of its own",
        )
    if others.pop("synced_gpus", False):
        yield "synced_gpus", "run the model on one device or pipeline, without it"
    if getattr(model.config, "is_encoder_decoder", False):
        yield "an encoder-decoder model", "use a decoder-only language model"
    if model.training:
        yield "a model in training mode", "call model.eval() first"
    yield from _input_problems(input_ids, others)


def _input_problems(input_ids, others):
    if len(input_ids) > 1:
        yield f"a batch of {len(input_ids)}", "call generate once for each prompt"
    if not input_ids.shape[1]:
        yield "inputs without token ids", "pass input_ids with at least one token"
    mask, positions = others.get("attention_mask"), others.get("position_ids")
    if mask is not None and not bool((mask == 1).all()):
        yield "padding or another attention_mask", "pass the prompt without padding"
    usual = torch.arange(input_ids.shape[1], device=input_ids.device)
    if positions is not None and not torch.equal(positions.flatten(), usual):
        yield "position_ids of your own", "leave them out"
    if others.pop("own_cache", None) is not None:
        yield "a cache of your own", "leave it out and pass the whole text as input_ids"
    for name in sorted(set(others) - PREPARED):
        yield f"the model argument {name}", "pass token ids alone"
