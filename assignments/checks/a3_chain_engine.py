"""Hidden checks of assignment 3, the chain engine and a bug hunt. Not for students.

The target and the draft are functions that answer from here, so that passes and rows
are counted where student code can't reach them.
"""

import zlib

import numpy as np
from eagle3.grading.questions import (
    Assignment,
    Idea,
    Question,
    value_question,
)

VOCAB = 50


def best(seed, text):
    """What the target says after a text: fixed, and different for any other text."""
    return zlib.crc32(repr((seed, [int(t) for t in text])).encode()) % VOCAB


def guesses(seed, text, count, skill):
    """What the draft says: the target's own token, or another one now and then."""
    text, found = [int(t) for t in text], []
    for _ in range(count):
        right = best(seed, text)
        luck = zlib.crc32(repr(("draft", seed, text)).encode()) % 100
        found.append(right if luck < skill else (right + 1) % VOCAB)
        text = [*text, found[-1]]
    return found


class Target:
    """A target with a cache, behind the wall."""

    def __init__(self, seed):
        self.seed = seed
        self.begin()

    def begin(self):
        self.cache, self.passes, self.rows = [], 0, 0

    def seen(self):
        return {"passes": self.passes, "rows": self.rows}

    def __call__(self, keep, tokens):
        keep, tokens = (
            int(keep),
            [int(t) for t in np.asarray(tokens).reshape(-1)],
        )
        if not 0 <= keep <= len(self.cache):
            raise ValueError(
                f"target: keep is {keep}, but {len(self.cache)} positions are cached"
            )
        if not 1 <= len(tokens) <= 100:
            raise ValueError("target: pass from 1 to 100 tokens")
        self.cache = self.cache[:keep]
        self.passes, self.rows = self.passes + 1, self.rows + len(tokens)
        out = []
        for token in tokens:
            self.cache.append(token)
            out.append(best(self.seed, self.cache))
        return out


class Draft:
    """A draft without a memory, behind the wall."""

    def __init__(self, seed, skill):
        self.seed, self.skill = seed, skill
        self.begin()

    def begin(self):
        self.calls = 0

    def seen(self):
        return {}

    def __call__(self, text, count):
        count = int(count)
        if not 1 <= count <= 20:
            raise ValueError("draft: ask for 1 to 20 guesses")
        return guesses(
            self.seed, np.asarray(text).reshape(-1), count, self.skill
        )


# --- by_hand --------------------------------------------------------------------------


def numbers(variant):
    rng = np.random.default_rng([3, variant])
    drafted = int(rng.integers(4, 7))
    return {
        "CACHED": int(rng.integers(11, 40)),
        "DRAFTED": drafted,
        "KEPT": int(rng.integers(1, drafted - 1)),
        "PROMPT": [int(t) for t in rng.integers(0, VOCAB, 5)],
        "SUSPECTS": suspects(variant),
    }


def by_hand(variant):
    n = numbers(variant)
    cached, drafted, kept = n["CACHED"], n["DRAFTED"], n["KEPT"]
    right = {
        "rows": drafted + 1,
        "forget": drafted - kept,
        "target_cache": cached + 1 + kept,
        "unseen": 1 + kept,
        "draft_cache": cached,
    }
    wrong = {
        "the pending token is in the block as well": {
            "rows": drafted,
            "target_cache": cached + kept,
            "unseen": kept,
        },
        "the pending token's row stays, too: it is committed": {
            "forget": drafted - kept + 1
        },
        "the replacement has not been through the target yet": {
            "target_cache": cached + 2 + kept,
            "unseen": 2 + kept,
        },
        "this is before the rollback": {"target_cache": cached + 1 + drafted},
        "that is the number of tokens that are kept, not of those that go": {
            "forget": kept
        },
        "rows that were made from guesses are forgotten, even where the guess was "
        "right: they hold a, not g": {"draft_cache": cached + kept},
        "rows of guesses are forgotten before the next cycle": {
            "draft_cache": cached + drafted
        },
    }
    says = {
        "rows": "rows of the target's pass",
        "forget": "positions that the target's cache forgets",
        "target_cache": "positions that the target's cache then holds",
        "unseen": "features that are new for the draft",
        "draft_cache": "positions of the draft's cache before it catches up",
    }
    return value_question("by_hand", says, right, wrong)


# --- generate -------------------------------------------------------------------------


def generate(prompt, length, count, stop, seed, skill, **fault):
    """The reference engine; `fault` plants a mistake."""
    target, draft = Target(seed), Draft(seed, skill)
    prompt = [int(t) for t in prompt]
    text = [*prompt, target(0, prompt)[-1]]
    cached, end = len(prompt), len(prompt) + count

    def over():
        if fault.get("late_stop"):
            return text[-1] == stop
        return stop in text[len(prompt) :]

    while len(text) < end and not over():
        room = end - len(text)
        ask = min(length, room if fault.get("no_room") else room - 1)
        drafted = draft(text, ask) if ask > 0 else []
        block = [text[-1], *drafted]
        if fault.get("resets"):
            out = target(0, [*text, *drafted])[len(text) - 1 :]
        else:
            out = target(cached, block)
        judged = [*out[1:], out[-1]] if fault.get("own_row") else out
        kept = 0
        while kept < len(drafted) and drafted[kept] == judged[kept]:
            kept += 1
        if fault.get("one_by_one"):
            kept = 0
        new = [*drafted[:kept], out[kept]]
        if fault.get("no_bonus") and kept == len(drafted) and drafted:
            new = drafted
        text += new
        cached += len(new)
        if fault.get("keeps_rejected") and kept < len(drafted):
            cached += 1
        if fault.get("keeps_all"):
            cached += len(drafted) - kept
        cached = min(cached, len(target.cache))
    answer = text[len(prompt) :]
    if (
        not (fault.get("late_stop") or fault.get("late_cut"))
        and stop in answer
    ):
        answer = answer[: answer.index(stop) + 1]
    if not fault.get("overshoots"):
        answer = answer[:count]
    if fault.get("with_prompt"):
        answer = [*prompt, *answer]
    if fault.get("forgets_first"):
        answer = answer[1:]
    return {"answer": answer, "target": target.seen(), "draft": {}}


def _faulty(**fault):
    return lambda *case: generate(*case, **fault)


GENERATE_MISTAKES = {
    "each guess is judged by its own row; the row before it says what should stand "
    "there": _faulty(own_row=True),
    "the target's cache keeps a rejected guess": _faulty(keeps_rejected=True),
    "the target's cache keeps all rejected guesses; keep only what is committed": (
        _faulty(keeps_all=True)
    ),
    "the bonus token is thrown away when all guesses are kept": _faulty(
        no_bonus=True
    ),
    "the answer begins with the prompt; return the new tokens only": _faulty(
        with_prompt=True
    ),
    "the first new token is missing: the prompt's pass gives one already": _faulty(
        forgets_first=True
    ),
    "the stop token is looked for only at the end of a block; what stands behind it in "
    "the block is emitted": (_faulty(late_stop=True), _faulty(late_cut=True)),
    "the answer is longer than asked: the last block brought more tokens than there was "
    "room for": _faulty(overshoots=True, no_room=True),
    "the guesses are not used: each pass gives one token": _faulty(
        one_by_one=True
    ),
    "the whole text is run in every pass; the cache holds it already": _faulty(
        resets=True
    ),
    "more guesses are asked for than there is room: the target's own token needs a "
    "place, too": _faulty(no_room=True),
}


def _cases(rng, skill, stops, many=6):
    """Prompts with the number of guesses and tokens; a stop token that occurs, or none."""
    cases = []
    for _ in range(many):
        seed, length = int(rng.integers(2**31)), int(rng.integers(2, 6))
        prompt = [int(t) for t in rng.integers(0, VOCAB, rng.integers(2, 7))]
        count = int(rng.integers(12, 30))
        stop = -1
        if stops:
            plain = generate(prompt, length, count, -1, seed, skill)["answer"]
            stop = plain[int(rng.integers(len(plain) // 2, len(plain) - 1))]
        cases.append((prompt, length, count, stop, seed, skill))
    return cases


def question_generate():
    return Question(
        "generate",
        (
            Idea(
                "text",
                14,
                "the text is the target's own, token for token",
                lambda rng: _cases(rng, 65, stops=False),
                part="answer",
            ),
            Idea(
                "passes",
                10,
                "as few passes as the guesses allow",
                lambda rng: _cases(rng, 80, stops=False),
            ),
            Idea(
                "full",
                8,
                "a perfect draft: all guesses and a bonus token in every pass",
                lambda rng: _cases(rng, 100, stops=False),
            ),
            Idea(
                "stop",
                8,
                "the answer ends with the stop token, wherever in a block it stands",
                lambda rng: _cases(rng, 90, stops=True, many=10),
                part="answer",
            ),
        ),
        generate,
        GENERATE_MISTAKES,
        remotes={
            "target": lambda prompt, length, count, stop, seed, skill: Target(
                seed
            ),
            "draft": lambda prompt, length, count, stop, seed, skill: Draft(
                seed, skill
            ),
        },
        secret=2,
    )


# --- hunt and diagnose ----------------------------------------------------------------

FAULTS = (
    "own row",
    "keeps rejected",
    "keeps guesses",
    "unshifted",
    "no bonus",
)


def trace(prompt, fault, seed, cycles=6, skill=75, length=3):
    """The log of an engine with one fault, or with "none"."""
    prompt = [int(t) for t in prompt]
    text, unseen = list(prompt), list(prompt)
    text.append(best(seed, text))
    cached, drafted_cache, log = len(prompt), 0, []
    for _ in range(cycles):
        pending = text[-1]
        read = unseen if fault == "unshifted" else [*unseen[1:], pending]
        drafted_cache += len(unseen)
        drafted = guesses(seed, text, length, skill)
        choices = [best(seed, text + drafted[:i]) for i in range(length + 1)]
        judged = [*choices[1:], choices[-1]] if fault == "own row" else choices
        kept = 0
        while kept < length and drafted[kept] == judged[kept]:
            kept += 1
        emitted = [*drafted[:kept], choices[kept]]
        if fault == "no bonus" and kept == length:
            emitted = drafted[:]
        cached += 1 + kept
        if fault == "keeps rejected" and kept < length:
            cached += 1
        if fault == "keeps guesses":
            drafted_cache += length - 1
        log.append(
            {
                "pending": pending,
                "draft_read": list(read),
                "drafted": drafted,
                "choices": choices,
                "emitted": emitted,
                "target_cache": cached,
                "draft_cache": drafted_cache,
            }
        )
        unseen = [pending, *drafted[:kept]]
        text += emitted
    return log


def _telling(log, fault):
    """Whether a trace shows its fault: a refused chain and a fully kept one."""
    kept = [len(c["emitted"]) - 1 for c in log]
    if fault == "own row":
        return any(c["drafted"][0] == c["choices"][0] for c in log)
    if fault == "no bonus":
        return any(c["emitted"] == c["drafted"] for c in log) and min(kept) < 3
    return 3 in kept and min(kept) < 3


def trace_of(rng, fault, prompt=None):
    if prompt is None:
        prompt = [int(t) for t in rng.integers(0, VOCAB, rng.integers(3, 7))]
    while True:
        log = trace(prompt, fault, int(rng.integers(2**31)))
        if _telling(log, fault):
            return prompt, log


def order_of(variant):
    return list(np.random.default_rng([33, variant]).permutation(FAULTS))


def suspects(variant):
    rng = np.random.default_rng([3, variant])
    rng.integers(0, VOCAB, 3)
    prompt = [
        int(t)
        for t in np.random.default_rng([333, variant]).integers(0, VOCAB, 4)
    ]
    return {
        name: dict(
            zip(("prompt", "trace"), trace_of(rng, fault, prompt), strict=True)
        )
        for name, fault in zip("ABCDE", order_of(variant), strict=True)
    }


def question_hunt(variant):
    right = {
        name: str(fault)
        for name, fault in zip("ABCDE", order_of(variant), strict=True)
    }
    wrong = {
        f"'{fault}' would show elsewhere: {where}": {
            name: fault for name in right if right[name] != fault
        }
        for fault, where in {
            "own row": "`emitted` would not follow from `drafted` and `choices`",
            "keeps rejected": "`target_cache` would grow by more than it should",
            "keeps guesses": "`draft_cache` would grow by more than `draft_read` has",
            "unshifted": "`draft_read` would begin with the prompt's first token",
            "no bonus": "a chain that is kept whole would emit no further token",
        }.items()
    }
    says = {name: f"the fault of suspect {name}" for name in right}
    return value_question("hunt", says, right, wrong)


def diagnose(prompt, log):
    """By what the invariants of a right engine say, one after the other."""
    return _diagnose(prompt, log)


def _diagnose(prompt, log, skip=(), kept_of=None):
    cached, drafted_cache, first = len(prompt), 0, True
    for cycle in log:
        kept = 0
        while (
            kept < len(cycle["drafted"])
            and cycle["drafted"][kept] == cycle["choices"][kept]
        ):
            kept += 1
        right = [*cycle["drafted"][:kept], cycle["choices"][kept]]
        if first and cycle["draft_read"] != [*prompt[1:], cycle["pending"]]:
            return "none" if "unshifted" in skip else "unshifted"
        first = False
        if cycle["emitted"] != right:
            whole = kept == len(cycle["drafted"])
            name = (
                "no bonus"
                if whole and cycle["emitted"] == cycle["drafted"]
                else ("own row")
            )
            return "none" if name in skip else name
        cached += 1 + kept
        if cycle["target_cache"] != cached and "keeps rejected" not in skip:
            return "keeps rejected"
        drafted_cache += len(cycle["draft_read"])
        if (
            cycle["draft_cache"] != drafted_cache
            and "keeps guesses" not in skip
        ):
            return "keeps guesses"
    return "none"


def _blind(*names):
    return lambda prompt, log: _diagnose(prompt, log, names)


def _swap(a, b):
    other = {a: b, b: a}
    return lambda prompt, log: other.get(
        diagnose(prompt, log), diagnose(prompt, log)
    )


DIAGNOSE_MISTAKES = {
    **{
        f"a trace with the fault '{name}' is called sound": _blind(name)
        for name in FAULTS
    },
    "'own row' and 'no bonus' are mixed up: the second one shows only where a whole "
    "chain was kept": _swap("own row", "no bonus"),
    "the two caches are mixed up": _swap("keeps rejected", "keeps guesses"),
    "a sound engine is called broken": lambda prompt, log: (
        "own row" if diagnose(prompt, log) == "none" else diagnose(prompt, log)
    ),
}


def question_diagnose():
    def cases(fault):
        return lambda rng: [
            trace_of(rng, name)
            for name in (fault, fault, fault, "none", "none")
        ]

    return Question(
        "diagnose",
        tuple(
            Idea(
                f.replace(" ", "_"),
                4,
                f"'{f}' is found, sound engines are not blamed",
                cases(f),
            )
            for f in FAULTS
        ),
        diagnose,
        DIAGNOSE_MISTAKES,
    )


def questions(variant):
    return (
        by_hand(variant),
        question_generate(),
        question_hunt(variant),
        question_diagnose(),
    )


ASSIGNMENT = Assignment(
    "a3_chain_engine", "The chain engine, and a bug hunt", questions, numbers
)
