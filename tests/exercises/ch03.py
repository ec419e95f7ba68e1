"""Chapter 3: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "3.1": "answer",
    "3.2": "crop",
    "3.3": "speculate_with_chance",
    "3.4": "best_chain",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "3.1": {
        "pending token forgotten": ('"rows": 5', '"rows": 4'),
        "own row judges": ('"judges_d1": 0', '"judges_d1": 1'),
        "replacement from its own row": ('"replacement": 2', '"replacement": 3'),
        "pending token not cached": ('"cached": 17', '"cached": 16'),
        "replacement counted as cached": ('"forget": 2', '"forget": 1'),
        "replacement not emitted": ('"emitted": 3', '"emitted": 2'),
    },
    "3.2": {
        "may keep the whole text": ("len(text) - 1)", "len(text))"),
        "forgets all": ("return len(cached) - same", "return len(cached)"),
        "returns what stays": ("return len(cached) - same", "return same"),
        "looks at the length alone": (" and cached[same] == text[same]", ""),
        "one too few": ("len(cached) - same", "max(0, len(cached) - same - 1)"),
    },
    "3.3": {
        "target not rolled back": (
            "cache.rollback(len(drafted) - decision.num_accepted)",
            "pass",
        ),
        "draft not rolled back": (
            "small_cache.rollback(max(0, small_cache.length - len(text)))",
            "pass",
        ),
        "one row late": (
            "output.logits[0, -len(drafted) - 1 :]",
            "output.logits[0, -len(drafted) - 1 :].roll(-1, 0)",
        ),
        "q of another draw": ("torch.stack(q) if q", "torch.stack(q).flip(0) if q"),
        "draws from the favourite only": (
            "int(sampling.sample(q[-1], generator))",
            "int(q[-1].argmax())",
        ),
        "p sharpened": (
            "-len(drafted) - 1 :].softmax(-1)",
            "-len(drafted) - 1 :].mul(1.3).softmax(-1)",
        ),
        "accepts everything": ("[: decision.num_accepted], dec", ", dec"),
        "no token of the target's own": (
            ", decision.next_token]",
            "] or [decision.next_token]",
        ),
        "may write too much": ("min(n, end - len(text) - 1)", "n"),
    },
    "3.4": {
        "chances not multiplied": ("reached *= alpha", "reached = alpha"),
        "target's own token forgotten": (
            "tokens, reached, best = 1.0",
            "tokens, reached, best = 0.0",
        ),
        "drafting counted once": ("n * draft_cost", "draft_cost"),
        "block of n rows": ("row_costs[n])", "row_costs[n - 1])"),
        "stops at the first fall": (
            "            best = n, gain\n",
            "            best = n, gain\n        else:\n            break\n",
        ),
        "always drafts": ("(0, 1.0 / row_costs[0])", "(0, 0.0)"),
    },
}

CHAPTER = Chapter(
    "03_draft_then_verify",
    ANSWERS,
    half={"3.1": "17"},
    wrong=WRONG,
    errors=(AssertionError, ValueError),  # a missing row is refused by the module
)
