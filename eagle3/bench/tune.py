"""Which chain or tree is fastest with this draft on this machine: a race.

A longer chain or a wider tree gains tokens per cycle and pays for rows and draft steps.
What each costs depends on the machine, what it gains on the draft, so both are
measured. All candidates answer one prompt of each kind, taking turns; the faster half
goes on to new prompts, until three or fewer have raced to the end. Prompts are over
training topics: the evaluation's stay unseen. [Ours]
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.table import Table
from tqdm import tqdm

from eagle3.drafters import Drafter, EagleDrafter, VanillaDrafter
from eagle3.engine import Cycle, Request, prompt_to_ids, run
from eagle3.feature_draft import FeatureDraft
from eagle3.growth import DynamicTree, Growth, StaticTree, chain
from eagle3.sampling import SamplingParams
from eagle3.target import Target
from eagle3.training.prompts import KINDS, training_prompts

VANILLA = "vanilla"
NUM_FINALISTS = 3
CHAINS = (1, 2, 3, 4, 5, 6)
# Tokens in all, levels, children of a node.
TREES = (
    *((4, 2, 2), (5, 3, 2), (7, 3, 3), (9, 4, 3)),
    *((12, 4, 4), (16, 5, 4), (24, 5, 5), (32, 6, 6)),
)
# Above temperature 0 these draw their nodes, where the trees above take the best ones.
STATIC_TREES = (
    StaticTree(((0,), (1,))),
    StaticTree(((0,), (1,), (0, 0))),
    StaticTree(((0,), (1,), (0, 0), (0, 1))),
    StaticTree(((0,), (1,), (2,), (0, 0), (1, 0))),
    StaticTree(((0,), (1,), (0, 0), (0, 1), (0, 0, 0))),
    StaticTree(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0))),
)


@dataclass
class Racer:
    """One way to draft, and what it has run so far.

    growth: None decodes without a draft
    cycles: of all its answers, prefills left out
    seconds_per_token: one number for each prompt

    [Ours]
    """

    name: str
    growth: Growth | None
    drafter: Drafter
    cycles: list[Cycle] = field(default_factory=list)
    seconds_per_token: list[float] = field(default_factory=list)

    @property
    def acceptance_length(self) -> float:
        """tau: tokens emitted per cycle. [Paper, section 4]"""
        emitted = sum(len(cycle.emitted) for cycle in self.cycles)
        return emitted / max(1, len(self.cycles))

    @property
    def rows(self) -> int:
        """Rows of a whole block: the pending token and what is drafted."""
        return 1 + (0 if self.growth is None else self.growth.max_nodes)

    def milliseconds(self, part: str) -> float:
        """Median of a cycle's "draft" or "target" time."""
        times = [getattr(cycle, f"{part}_seconds") for cycle in self.cycles]
        return 1000 * statistics.median(times)

    def speedup(self, vanilla: "Racer", prompts: int | None = None) -> float:
        """Mean over the prompts that both answered of the ratio of their times.

        prompts: only so many, from the first
        """
        pairs = zip(vanilla.seconds_per_token, self.seconds_per_token, strict=False)
        return statistics.mean(plain / mine for plain, mine in [*pairs][:prompts])


@dataclass(frozen=True)
class TuneConfig:
    """How long the race is.

    temperature: of all answers      max_new_tokens: of each answer
    seed: of prompts and sampling

    Raises ValueError for a number out of range. [Ours]
    """

    temperature: float = 0.0
    max_new_tokens: int = 64
    seed: int = 11

    def __post_init__(self) -> None:
        SamplingParams(self.temperature)  # refuses what is out of range
        if self.max_new_tokens < 2:
            raise ValueError(
                f"max_new_tokens is {self.max_new_tokens}: take at least 2, since the "
                "first comes from the prompt's own pass."
            )


def racers(target: Target, draft: FeatureDraft) -> list[Racer]:
    """Vanilla first, then every chain and tree of the list. [Ours]"""
    growths: dict[str, Growth] = {f"chain {n}": chain(n) for n in CHAINS}
    for total, depth, top_k in TREES:
        name = f"tree of {total}, {depth} deep"
        growths[name] = DynamicTree(total_tokens=total, depth=depth, top_k=top_k)
    for tree in STATIC_TREES:
        growths[f"static tree of {tree.max_nodes}, {tree.depth} deep"] = tree
    drafted = [
        Racer(name, growth, EagleDrafter(target, draft, growth))
        for name, growth in growths.items()
    ]
    return [Racer(VANILLA, None, VanillaDrafter()), *drafted]


def faster_half(vanilla: Racer, others: Sequence[Racer]) -> list[Racer]:
    """The faster half of them, rounded up, in their order. [Ours]"""
    ranked = sorted(others, key=lambda racer: -racer.speedup(vanilla))
    kept = ranked[: (len(ranked) + 1) // 2]
    return [racer for racer in others if racer in kept]


def race(target: Target, draft: FeatureDraft, config: TuneConfig) -> list[Racer]:
    """Run the race: vanilla, then all others, those that went furthest and best first.

    [Ours]
    """
    everyone = racers(target, draft)
    vanilla, running = everyone[0], everyone[1:]
    left: list[Racer] = []
    prompts = iter(training_prompts(len(KINDS) * len(everyone), config.seed))
    decode = decoder(target, config)
    last = False
    while not last:
        last = len(running) <= NUM_FINALISTS
        for _ in tqdm(range(len(KINDS)), desc=f"{len(running)} candidates"):
            prompt = next(prompts)
            for racer in (vanilla, *running):
                decode(racer, prompt.text)
        if not last:
            kept = faster_half(vanilla, running)
            gone = [racer for racer in running if racer not in kept]
            left, running = _ranked(vanilla, gone) + left, kept
    return [vanilla, *_ranked(vanilla, running), *left]


def _ranked(vanilla: Racer, racers: Sequence[Racer]) -> list[Racer]:
    return sorted(racers, key=lambda racer: -racer.speedup(vanilla))


def decoder(target: Target, config: TuneConfig) -> Callable[[Racer, str], None]:
    """A function that has a racer answer a prompt, and notes what it took. [Ours]"""
    sampling = SamplingParams(config.temperature, seed=config.seed)

    def decode(racer: Racer, text: str) -> None:
        ids = prompt_to_ids(target, text)
        # No stop: answers of one length, so that a short one doesn't weigh more.
        result = run(
            target, racer.drafter, Request(ids, config.max_new_tokens, sampling, ())
        )
        cycles = result.cycles
        spent = sum(
            c.draft_seconds + c.target_seconds + c.other_seconds for c in cycles
        )
        racer.cycles += cycles
        racer.seconds_per_token.append(spent / sum(len(c.emitted) for c in cycles))

    return decode


def table_of(racers: Sequence[Racer]) -> Table:
    """The cost curve and what came of it, by rows of a block. [Ours]

    Prompts differ in how much can be gained, and who left early answered few. So the
    winner's speedup on the same prompts stands beside each.

    racers: as `race` returns them
    """
    vanilla, winner = racers[:2]
    plain = vanilla.milliseconds("target")
    table = Table(title="what a cycle costs and what it gives")
    for name in ("rows", "candidate", "draft ms", "target ms", "of a plain step"):
        table.add_column(name, justify="left" if name == "candidate" else "right")
    for name in ("tau", "prompts", "speedup", "winner's there"):
        table.add_column(name, justify="right")
    for racer in sorted(racers, key=lambda racer: (racer.rows, racer.name)):
        draft, verify = (racer.milliseconds(part) for part in ("draft", "target"))
        table.add_row(
            str(racer.rows),
            racer.name,
            f"{draft:.1f}",
            f"{verify:.1f}",
            f"{(draft + verify) / plain:.2f}",
            f"{racer.acceptance_length:.2f}",
            str(num_prompts := len(racer.seconds_per_token)),
            f"{racer.speedup(vanilla):.2f}",
            f"{winner.speedup(vanilla, num_prompts):.2f}",
        )
    return table
