"""The methods of the paper's Table 1 by name, each as a drafter for the default target.

All run on one engine and differ only in how they draft. Their sizes here suit a CPU,
where each row has its price; on a GPU trees of 60 tokens cost hardly more than one.
EAGLE-3's trees were the fastest on five prompts over training topics, the dynamic one
at temperature 0 and the static one, which draws its nodes, at temperature 1. [Ours]
"""

from collections.abc import Callable
from dataclasses import dataclass

from eagle3.checkpoint import SHIPPED, load_draft
from eagle3.draft_lm import load_draft_lm
from eagle3.drafters import (
    Drafter,
    DraftLMDrafter,
    EagleDrafter,
    MedusaDrafter,
    PromptLookupDrafter,
    VanillaDrafter,
)
from eagle3.growth import DynamicTree, StaticTree, chain
from eagle3.medusa import load_medusa
from eagle3.target import Target

SMALL_STATIC_TREE = StaticTree(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)))
MEDUSA_TREE = StaticTree(((0,), (1,), (2,), (0, 0), (1, 0), (0, 0, 0)))
DRAWN_TREE = StaticTree(((0,), (1,), (0, 0)))
SMALL_DYNAMIC_TREE = DynamicTree(total_tokens=7, depth=3, top_k=3)


@dataclass(frozen=True)
class Method:
    """One way to decode.

    label: its name in tables       build: makes its drafter, with the weights that
        ship with the package
    """

    label: str
    build: Callable[[Target], Drafter]


def _eagle(folder: str, growth: object) -> Callable[[Target], Drafter]:
    def build(target: Target) -> Drafter:
        draft = load_draft(SHIPPED.parent / folder, target)
        return EagleDrafter(target, draft, growth)

    return build


def _draft_lm(target: Target) -> Drafter:
    return DraftLMDrafter(target, load_draft_lm(target=target), chain(2))


def _medusa(target: Target) -> Drafter:
    return MedusaDrafter(target, load_medusa(target=target), MEDUSA_TREE)


METHODS: dict[str, Method] = {
    "vanilla": Method("Vanilla", lambda target: VanillaDrafter()),
    "prompt-lookup": Method("Prompt lookup", lambda target: PromptLookupDrafter()),
    "draft-lm": Method("Speculative sampling", _draft_lm),
    "medusa": Method("Medusa", _medusa),
    "eagle1": Method("EAGLE-1", _eagle("smollm2_eagle1", SMALL_STATIC_TREE)),
    "hass": Method("HASS", _eagle("smollm2_hass", SMALL_DYNAMIC_TREE)),
    "eagle2": Method("EAGLE-2", _eagle("smollm2_eagle1", SMALL_DYNAMIC_TREE)),
    "eagle3-chain": Method("EAGLE-3 chain 3", _eagle("smollm2_eagle3", chain(3))),
    "eagle3-static": Method(
        "EAGLE-3 static tree", _eagle("smollm2_eagle3", DRAWN_TREE)
    ),
    "eagle3": Method("EAGLE-3 tree", _eagle("smollm2_eagle3", SMALL_DYNAMIC_TREE)),
}
# With a length behind it, any chain.
_CHAINS = {
    "eagle3-chain-": ("EAGLE-3", "smollm2_eagle3"),
    "eagle1-chain-": ("EAGLE-1", "smollm2_eagle1"),
}


def drafter_for(name: str, target: Target) -> Drafter:
    """The drafter of a method.

    name: of `METHODS`, or eagle3-chain-N or eagle1-chain-N for a chain of N tokens

    Raises ValueError for an unknown name, and for a target that the shipped weights
    were not made for. [Ours]
    """
    return _method(name).build(target)


def label_of(name: str) -> str:
    """What a method is called in tables. Raises ValueError for an unknown one."""
    return _method(name).label


def require_methods(names: list[str]) -> None:
    """Raise ValueError unless all are methods. [Ours]"""
    for name in names:
        _method(name)


def _method(name: str) -> Method:
    for start, (title, folder) in _CHAINS.items():
        length = name.removeprefix(start)
        if name.startswith(start) and length.isdigit():
            label = f"{title} chain {length}"
            return Method(label, _eagle(folder, chain(int(length))))
    if name not in METHODS:
        raise ValueError(
            f"there is no method '{name}': take one of {', '.join(METHODS)}, or "
            f"{' or '.join(f'{start}N' for start in _CHAINS)} for a chain of N tokens."
        )
    return METHODS[name]
