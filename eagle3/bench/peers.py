"""The library's own decoding, to stand beside ours in the same run.

transformers has greedy search, prompt lookup decoding and assisted generation. Each
answers the same request as our method of the same kind, with the same draft length, and
is timed in the same run. [Ours]
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from eagle3.draft_lm import draft_lm_model
from eagle3.engine import Request
from eagle3.target import Target

Settings = Callable[[Target], dict[str, Any]]


@dataclass(frozen=True)
class Peer:
    """One way of the library to decode.

    label: its name in tables       settings: makes the arguments of `generate` that
        choose it, and loads what they need
    """

    label: str
    settings: Settings


def _assistant(target: Target) -> dict[str, Any]:
    model = draft_lm_model(target=target)
    model.generation_config.num_assistant_tokens = 2
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0
    return {"assistant_model": model}


PEERS: dict[str, Peer] = {
    "transformers": Peer("transformers generate", lambda target: {}),
    "transformers-lookup": Peer(
        "transformers prompt lookup",
        lambda target: {"prompt_lookup_num_tokens": 5, "max_matching_ngram_size": 3},
    ),
    "transformers-assisted": Peer("transformers assisted", _assistant),
}


@torch.inference_mode()
def answer_with_library(
    model: nn.Module, settings: dict[str, Any], request: Request
) -> tuple[tuple[int, ...], float]:
    """Token ids and seconds of the library's answer to a request of ours.

    model: a transformers model       settings: of a `Peer`

    Above temperature 0 it draws from torch's global generator, seeded by the request
    and put back afterwards. [Ours]
    """
    params = request.sampling
    arguments: dict[str, Any] = {"do_sample": False}
    if not params.is_greedy:
        arguments = {
            "do_sample": True,
            "temperature": params.temperature,
            "top_k": params.top_k or 0,
            "top_p": params.top_p,
        }
    ids = torch.tensor([request.prompt_ids], device=model.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(params.seed)
        started = time.perf_counter()
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            eos_token_id=list(request.eos_token_ids) or None,
            **arguments,
            **settings,
        )
        seconds = time.perf_counter() - started
    return tuple(output[0, len(request.prompt_ids) :].tolist()), seconds
