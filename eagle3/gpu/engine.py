"""The batch engine: requests in slots, one cycle for all of them, one copy back.

A cycle has five steps. Random numbers are drawn, if anyone samples. The *draft* phase
catches up and grows a tree in every slot. The *target* phase runs the target on all
trees. The *accept* phase decides, closes up the cache and leaves the state as the next
cycle needs it. All three are kernels alone: nothing in them asks the device. Then one
small tensor goes to the host, which emits tokens, stops answers and gives free slots to
waiting requests. [Paper, section 3.1; fixed shapes and slots: Ours]
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from eagle3.drafters import Drafter, EagleDrafter, VanillaDrafter
from eagle3.engine import Request, check_request
from eagle3.gpu.accept import Decision, decide, first_token
from eagle3.gpu.cache import CacheSize, SlotCache, block_mask
from eagle3.gpu.clock import Clock, Lap
from eagle3.gpu.draft import Branches, SlotDraft
from eagle3.gpu.draws import Draws, Filters, Needed, RowSampling
from eagle3.gpu.graphs import Phases, use_graphs
from eagle3.gpu.trees import Chance, DeviceGrowth, Nodes, no_nodes, on_device
from eagle3.target import Target, TargetOutput

STEPS = ("prefill", "draw", "draft", "target", "accept", "copy", "host")
SPAN = 128  # attention reads this many columns, doubled until all texts fit


@dataclass(frozen=True)
class Slots:
    """How many requests run at once, and how long they may become.

    count: slots       length: tokens of prompt and answer together, in each

    Raises ValueError below 1 slot or 2 tokens. [Ours]
    """

    count: int = 8
    length: int = 1024

    def __post_init__(self) -> None:
        if self.count < 1 or self.length < 2:
            raise ValueError(
                f"{self.count} slots of {self.length} tokens hold no answer: take at "
                "least 1 slot of 2 tokens."
            )


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    ticket: the number that `submit` gave    token_ids: the emitted tokens
    finish_reason: "eos", "length", "context", "cancelled", or "not finite" where the
        target's logits were no numbers after these tokens
    accepted: drafted tokens that each cycle kept

    [Ours]
    """

    ticket: int
    token_ids: tuple[int, ...]
    finish_reason: str
    accepted: tuple[int, ...]

    @property
    def acceptance_length(self) -> float:
        """tau: tokens emitted per cycle, the target's own included. [Paper]"""
        return max(0, len(self.token_ids) - 1) / max(1, len(self.accepted))


@dataclass
class _Running:
    """A request in a slot, as the host knows it.

    emitted: the answer so far, its last token pending   length: the most tokens
    """

    ticket: int
    request: Request
    length: int
    window: int
    generator: torch.Generator | None
    emitted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    @property
    def committed(self) -> int:
        return len(self.request.prompt_ids) + len(self.emitted) - 1

    @property
    def limit(self) -> int:
        """Levels there is room for; the device works it out in the same way."""
        room = self.length - self.committed - 2
        return max(0, min(room, self.window - self.committed + 1))


@dataclass
class State:
    """What a cycle finds and leaves, on the device.

    length: [B] int64  committed tokens, all of them in the target's cache
    unseen: [B] int64  how many of them the draft has not run, 1 to D + 1
    ids: [B, D + 1] int64  the tokens after those; the last that counts is pending
    features: [B, D + 1, F]  the target's features of those, F numbers each
    max_length: [B] int64  where the answer ends     window: [B] int64  and the draft

    [Ours]
    """

    length: Tensor
    unseen: Tensor
    ids: Tensor
    features: Tensor
    max_length: Tensor
    window: Tensor

    def limit(self) -> Tensor:
        """Levels that each slot has room for: [B]; 0 in a slot that is free."""
        room = self.max_length - self.length - 2
        return torch.minimum(room, self.window - self.length + 1).clamp(min=0)

    def pending(self) -> Tensor:
        """The tokens that are chosen and not yet committed: [B, 1]"""
        return self.ids.gather(1, self.unseen[:, None] - 1)


class BatchEngine:
    """Runs many requests at once on a target with one drafter.

    target, drafter: as the teaching engine takes them; the drafter is an `EagleDrafter`
        or a `VanillaDrafter`
    slots: how many at once, and how long
    graphs: whether to record CUDA graphs; None records them where that can be done

    seconds: time by step: "draw", "draft", "target", "accept", "copy", "host" and
        "prefill". On a GPU, launching and waiting: the device's time is in "copy"
    laps: None, or a list that takes each step of each cycle; the device is then waited
        for after every step, so that each has its own time

    Raises ValueError for a drafter or a growth without fixed shapes, for slots longer
    than the target's context, and for graphs where there are none. [Ours]
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        slots: Slots | None = None,
        graphs: bool | None = None,
    ) -> None:
        if not isinstance(drafter, (EagleDrafter, VanillaDrafter)):
            raise ValueError(
                f"a {type(drafter).__name__} has no form with fixed shapes: draft with "
                "an EagleDrafter, or with nothing."
            )
        self.target, self.slots = target, slots or Slots()
        if self.slots.length > target.max_positions:
            raise ValueError(
                f"slots of {self.slots.length} tokens are longer than the target's "
                f"context of {target.max_positions}: make them shorter."
            )
        self.growth: DeviceGrowth | None = None
        if isinstance(drafter, EagleDrafter):
            vocab = len(drafter.draft.d2t)
            self.growth = on_device(drafter.growth, vocab, target.device)
        self._allocate(drafter, use_graphs(graphs, target.device))
        self.running: list[_Running | None] = [None] * self.slots.count
        self.waiting: deque[_Running] = deque()
        self._dirty: set[int] = set()  # slots to be cleaned before their next request
        self.seconds = dict.fromkeys(STEPS, 0.0)
        self.laps: list[Lap] | None = None
        self.num_cycles, self._num_tickets = 0, 0

    @torch.inference_mode()
    def _allocate(self, drafter: Drafter, graphs: bool) -> None:
        """Take all memory that the engine will ever use, but for passing results."""
        target, count, device = self.target, self.slots.count, self.target.device
        self.depth, self.spare = block_sizes(self.growth)
        length = cache_length(self.slots, self.growth)
        probe, output = _probe(target)
        size = CacheSize(
            target.num_layers, count, probe.shape[1], length, probe.shape[3]
        )
        self.cache = SlotCache(size, probe)
        self.draft: SlotDraft | None = None
        self.window = 0
        if self.growth is not None:
            self.draft = SlotDraft(drafter.draft, count, length)
            self.window = drafter.draft.config.max_positions
        self.reads = "features" if self.draft is None else drafter.draft.reads
        features = getattr(output, self.reads)
        rows = self.depth + 1
        zeros = torch.zeros(count, dtype=torch.int64, device=device)
        self.state = State(
            length=zeros + 1,
            unseen=zeros + 1,
            ids=zeros[:, None].repeat(1, rows),
            features=features.new_zeros(count, rows, features.shape[2]),
            max_length=zeros.clone(),
            window=zeros.clone(),
        )
        self.nothing = no_nodes(count, device)
        self.sampling = RowSampling(count, device)
        self.draws: Draws | None = None  # until someone samples
        # Accepted tokens, whether the logits were finite, and the emitted tokens.
        pinned = device.type == "cuda"
        self.report = torch.zeros(count, 2 + rows, dtype=torch.int64, pin_memory=pinned)
        self.phases = Phases(graphs, self._save)

    # Requests come and go

    def submit(self, request: Request) -> int:
        """Put a request at the end of the queue; returns its ticket.

        Raises ValueError for a request that can't be run here, before any work. [Ours]
        """
        length = self._length(request)
        generator = None
        if not request.sampling.is_greedy:
            generator = torch.Generator(self.target.device)
            generator.manual_seed(request.sampling.seed)
        ticket, self._num_tickets = self._num_tickets, self._num_tickets + 1
        window = min(length, self.window)
        self.waiting.append(_Running(ticket, request, length, window, generator))
        return ticket

    def _length(self, request: Request) -> int:
        """Tokens of prompt and answer at most; ValueError if they don't fit."""
        check_request(self.target, request)
        wanted = len(request.prompt_ids) + request.max_new_tokens
        length = min(wanted, self.target.max_positions)
        if length > self.slots.length:
            raise ValueError(
                f"prompt and answer take {length} tokens and a slot holds "
                f"{self.slots.length}: ask for less, or make the engine with longer "
                "slots."
            )
        return length

    @torch.inference_mode()
    def cancel(self, ticket: int) -> Answer:
        """End a request that waits or runs, with what it has so far.

        Raises ValueError for a ticket that does neither. [Ours]
        """
        for one in self.waiting:
            if one.ticket == ticket:
                self.waiting.remove(one)
                return _answer(one, "cancelled")
        for slot, one in enumerate(self.running):
            if one is not None and one.ticket == ticket:
                return self._release(slot, "cancelled")
        raise ValueError(f"ticket {ticket} neither waits nor runs: it has its answer.")

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs. [Ours]"""
        return not self.waiting and not any(self.running)

    def run(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer these requests, and all that are already here; theirs in order.

        When it is interrupted, all these requests are given up. Raises ValueError for
        one that can't be run, before any is. [Ours]
        """
        for request in requests:
            self._length(request)
        tickets, answers = [self.submit(request) for request in requests], {}
        try:
            while not self.is_idle:
                answers |= {answer.ticket: answer for answer in self.step()}
        except BaseException:  # Ctrl-C above all
            others = (one for one in self.waiting if one.ticket not in tickets)
            self.waiting = deque(others)
            raise
        return [answers[ticket] for ticket in tickets]

    @torch.inference_mode()
    def step(self) -> list[Answer]:
        """Fill free slots, then run one cycle; returns the ended answers.

        When it is interrupted, all running requests are given up: what the device has
        committed by then is not known here. Those that wait stay. [Ours]
        """
        clock = Clock(self.seconds, self.num_cycles, self.laps, self.target.device)
        answers = []
        try:
            for slot in range(self.slots.count):
                while self.waiting and self.running[slot] is None:
                    answers += self._admit(slot, self.waiting.popleft())
            clock.lap("prefill")
            if any(self.running):
                answers += self._cycle(clock)
        except BaseException:  # Ctrl-C above all
            self._give_up()
            raise
        return answers

    def _give_up(self) -> None:
        """Free all slots, to be cleaned before they are used again."""
        self._dirty.update(range(self.slots.count))
        for slot, one in enumerate(self.running):
            if one is not None:
                self._release(slot, "cancelled")

    def _admit(self, slot: int, one: _Running) -> list[Answer]:
        """Run a prompt into a slot; returns its answer if one token was all of it."""
        state, device = self.state, self.target.device
        if slot in self._dirty:
            self._clean(slot)
        prompt = torch.tensor([one.request.prompt_ids], device=device)  # [1, T]
        self.sampling.set(slot, one.request.sampling)
        self.running[slot] = one
        filters = self.sampling.filters([slot])
        if filters is not None:
            self._draws().fill(slot, one.generator, Needed((), 0))
        cache = self.cache.as_target_cache(slot)
        output = self.target.forward(prompt, cache, last_only=True)
        last = None if self.draws is None else self.draws.last[slot : slot + 1]
        token = first_token(output.logits, self.sampling.of(slot), filters, last)
        features = getattr(output, self.reads)  # [1, T, F]
        num_prompt = prompt.shape[1]
        # The last position waits for its token: it is the first cycle's to catch up.
        if self.draft is not None and 1 < num_prompt <= one.window:
            self.draft.prefill(slot, prompt[:, 1:], features[:, :-1])
        state.length[slot], state.unseen[slot] = num_prompt, 1
        state.max_length[slot], state.window[slot] = one.length, one.window
        state.ids[slot, :1], state.features[slot, 0] = token, features[0, -1]
        finite = torch.isfinite(output.logits.amax(-1))[:, 0].long()
        self.report[slot, 1:3].copy_(torch.cat([finite, token]))
        finite, token = self.report[slot, 1:3].tolist()
        return self._emit(slot, [token], bool(finite))

    def _clean(self, slot: int) -> None:
        """Zero a slot in which something was no number, and has gone on since."""
        self.cache.clear(slot)
        if self.draft is not None:
            self.draft.cache.clear(slot)
        self.state.features[slot].zero_()
        self._dirty.remove(slot)

    def _draws(self) -> Draws:
        """The buffers for random numbers, made when the first request samples."""
        if self.draws is None:
            count, vocab = self.slots.count, self.target.vocab_size
            races, nodes, words = 0, 0, 1
            if self.growth is not None:
                races, nodes = self.growth.num_races, self.growth.num_nodes
                words = len(self.draft.draft.d2t)
            shapes = (count, races, words), (count, nodes), (count, vocab)
            self.draws = Draws(
                *(torch.ones(shape, device=self.target.device) for shape in shapes)
            )
        return self.draws

    # One cycle

    def _cycle(self, clock: Clock) -> list[Answer]:
        used = [i for i, one in enumerate(self.running) if one is not None]
        filters = self.sampling.filters(used)
        if filters is not None:
            self._fill_draws(used)
        clock.lap("draw")
        span = self._span(max(self.running[slot].committed for slot in used))
        nodes = self.nothing
        if self.draft is not None:
            nodes = self.phases.run(
                ("draft", span, filters), lambda: self._draft(span, filters)
            )
        clock.lap("draft")
        block, output = self.phases.run(
            ("target", span, filters), lambda: self._run_target(nodes, span)
        )
        clock.lap("target")
        report = self.phases.run(
            ("accept", span, filters),
            lambda: self._accept(nodes, block, output, filters),
        )
        clock.lap("accept")
        rows = self._to_host(report)
        clock.lap("copy")
        answers = []
        for slot in used:
            num_accepted, finite, *tokens = rows[slot]
            if finite:
                self.running[slot].accepted.append(num_accepted)
            answers += self._emit(slot, tokens[: num_accepted + 1], bool(finite))
        self.num_cycles += 1
        clock.lap("host")
        return answers

    def _span(self, longest: int) -> int:
        """Columns to look at: few different numbers, since each is a graph."""
        span = SPAN
        while span < longest + self.spare:
            span *= 2
        return min(span, self.cache.size.length)

    def _fill_draws(self, used: Sequence[int]) -> None:
        for slot in used:
            one = self.running[slot]
            if one.generator is not None:
                needed = Needed((), 0)
                if self.growth is not None:
                    needed = self.growth.needed(one.limit)
                self._draws().fill(slot, one.generator, needed)

    def _chance(self, filters: Filters | None) -> Chance | None:
        return None if filters is None else Chance(self.sampling, filters, self.draws)

    def _draft(self, span: int, filters: Filters | None) -> Nodes:
        """The draft phase: catch up on committed tokens, then grow a tree."""
        state = self.state
        start = state.length - state.unseen
        last = self.draft.catch_up(state.ids, state.features, state.unseen, start, span)
        branches = Branches(self.draft, last, state.length, span, self.growth.max_rows)
        return self.growth.grow(branches, state.limit(), self._chance(filters))

    def _run_target(self, nodes: Nodes, span: int) -> tuple[Tensor, TargetOutput]:
        """The target phase: one pass over the blocks [B, n + 1], which it returns."""
        length = self.state.length[:, None]
        block = torch.cat([self.state.pending(), nodes.tokens], dim=1)
        rows = torch.arange(block.shape[1], device=block.device)
        self.cache.place(length + rows, span)
        # Padding may stand past the context; it is moved to where there is a position.
        positions = (length + nodes.depth).clamp(max=self.target.max_positions - 1)
        mask = block_mask(nodes.sees, self.state.length, span)
        return block, self.target.forward_at(block, self.cache, positions, mask)

    def _accept(
        self,
        nodes: Nodes,
        block: Tensor,
        output: TargetOutput,
        filters: Filters | None,
    ) -> Tensor:
        """The accept phase: the decision, and the state as the next cycle needs it."""
        chance = self._chance(filters)
        decision = decide(nodes, output.logits, self.depth, chance)
        self._close_up(decision)
        return self._advance(block, output, decision)

    def _close_up(self, decision: Decision) -> None:
        """Move the accepted path, which lies scattered over the block, together."""
        if self._lies_in_place:
            return
        place = torch.arange(self.depth + 1, device=decision.path.device)[None]
        accepted = place <= decision.num_accepted[:, None]  # [B, D + 1]
        source = torch.where(accepted, decision.path, place)
        start = self.state.length[:, None]
        self.cache.move(start + source, start + place)

    @property
    def _lies_in_place(self) -> bool:
        return self.growth is None or self.growth.num_nodes == self.depth  # a chain

    def _save(self) -> Callable[[], None]:
        """Note what a cycle reads and changes; returns what puts it back.

        Of the cache that is where an accepted path is moved to. What else is written
        there is written before it is read.
        """
        tensors = tuple(vars(self.state).values())
        saved = [tensor.clone() for tensor in tensors]
        place = torch.arange(self.depth + 1, device=self.target.device)
        columns = self.state.length[:, None] + place  # [B, D + 1]
        block = None if self._lies_in_place else self.cache.take(columns)

        def put_back() -> None:
            for tensor, before in zip(tensors, saved, strict=True):
                tensor.copy_(before)
            if block is not None:
                self.cache.put(columns, block)

        return put_back

    def _advance(
        self, block: Tensor, output: TargetOutput, decision: Decision
    ) -> Tensor:
        """Commit in every slot; returns what the host must know: [B, 2 + D + 1]."""
        state, path, count = self.state, decision.path, decision.num_accepted
        features = getattr(output, self.reads)  # [B, n + 1, F]
        index = path[:, :, None].expand(-1, -1, features.shape[2])
        state.features.copy_(features.gather(1, index))
        # The token after each row of the path: the next row's, and last the target's.
        state.ids[:, :-1] = block.gather(1, path[:, 1:])
        state.ids.scatter_(1, count[:, None], decision.next_token[:, None])
        state.unseen.copy_(count + 1)
        state.length += (count + 1) * (state.max_length > 0)  # free slots stay
        finite = decision.is_finite.long()
        return torch.cat([count[:, None], finite[:, None], state.ids], dim=1)

    def _to_host(self, report: Tensor) -> list[list[int]]:
        """The one copy of a cycle, and the one place where the host waits."""
        self.report.copy_(report, non_blocking=True)
        if report.is_cuda:
            torch.cuda.current_stream().synchronize()
        return self.report.tolist()

    def _emit(self, slot: int, tokens: Sequence[int], finite: bool) -> list[Answer]:
        """Emit token by token until a stop; the answer, if it ended."""
        one = self.running[slot]
        if not finite:
            self._dirty.add(slot)
            return [self._release(slot, "not finite")]
        for token in tokens:
            one.emitted.append(token)
            if reason := self._stop(one, token):
                return [self._release(slot, reason)]
        return []

    def _stop(self, one: _Running, token: int) -> str:
        if token in one.request.eos_token_ids:
            return "eos"
        if len(one.emitted) == one.request.max_new_tokens:
            return "length"
        total = one.committed + 1
        return "context" if total == self.target.max_positions else ""

    def _release(self, slot: int, reason: str) -> Answer:
        """Free a slot. Its row goes on computing, on a text of one token."""
        one, state = self.running[slot], self.state
        self.running[slot] = None
        state.length[slot], state.unseen[slot], state.max_length[slot] = 1, 1, 0
        return _answer(one, reason)


def block_sizes(growth: DeviceGrowth | None) -> tuple[int, int]:
    """Levels D of the trees, and columns that a cycle needs beyond what is committed.

    A cycle writes n + 1 rows behind the committed ones, the draft D + 1 and then as
    many as it runs. [Ours]
    """
    if growth is None:
        return 0, 1
    rows = (growth.num_nodes + 1, growth.depth + 1, growth.max_rows)
    return growth.depth, max(rows)


def cache_length(slots: Slots, growth: DeviceGrowth | None) -> int:
    """Columns S of a slot, in both caches. [Ours]"""
    return _round_up(slots.length + block_sizes(growth)[1])


def _probe(target: Target) -> tuple[Tensor, TargetOutput]:
    """The keys and the output of one token, for their shapes: keys [1, Hkv, 1, d].

    Raises ValueError where layers differ.
    """
    cache = target.new_cache(1)
    ids = torch.zeros(1, 1, dtype=torch.int64, device=target.device)
    output = target.forward(ids, cache)
    shapes = {tuple(buffer.shape) for buffer in (*cache.keys, *cache.values)}
    if len(shapes) != 1:
        raise ValueError(
            f"this target's layers keep keys and values of the shapes {shapes}: the "
            "batch engine needs them all alike; use the teaching engine."
        )
    return cache.keys[0], output


def _round_up(length: int) -> int:
    return -(-length // SPAN) * SPAN


def _answer(one: _Running, reason: str) -> Answer:
    return Answer(one.ticket, tuple(one.emitted), reason, tuple(one.accepted))
