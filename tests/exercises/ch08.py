"""Chapter 8: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "8.1": "answer",
    "8.2": "packed_mask",
    "8.3": "add_own",
    "8.4": ("flex_rule", "flex_scores"),
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "8.1": {
        "row is the token's place": ('"row": 1', '"row": 4'),
        "row of the last but one": ('"row": 1', '"row": 3'),
        "position of the start": ('"position": 3', '"position": 1'),
        "position of the token": ('"position": 3', '"position": 4'),
        "later keys causal": ("[0, 1, 8, 15]", "[0, 1, 7, 8, 14, 15]"),
        "newest key forgotten": ("[0, 1, 8, 15]", "[0, 1, 8]"),
        "shifted": ("[0, 1, 8, 15]", "[8, 15]"),
        "all tokens before": ("[0, 1, 8, 15]", "[0, 1, 2, 3, 8, 15]"),
        "feature of the target": ('"a"', '"g"'),
        "teacher is its own token": ('"now"', '"it"'),
    },
    "8.2": {
        "texts see each other": ("together.tril()", "torch.ones(T, T).bool().tril()"),
        "later tokens seen": ("together.tril()", "together"),
        "not itself": ("together.tril()", "together.tril(-1)"),
        "siblings seen": ("[own] * s", "[native] * s"),
        "one block too many": ("[own] * s", "[own] * (s + 1)"),
        "order of the blocks": ("[native] + [own] * s", "[own] * s + [native]"),
        "rows counted one too far": ("ahead = 2 + s", "ahead = 1 + s"),
        "rows of step 0": ("ahead = 2 + s", "ahead = 2"),
        "all rows count": (
            "counts[: T - ahead] = document[:-ahead] == document[ahead:]",
            "counts[: T - ahead] = True",
        ),
    },
    "8.3": {
        "two softmaxes": (
            "torch.stack([log_sum, *dots]",
            "torch.stack([dots[0], *dots]",
        ),
        "scores not scaled": (" / q.shape[-1] ** 0.5", ""),
        "causal part counts one": ("[log_sum, *dots]", "[0 * log_sum, *dots]"),
        "no exponent": ("dim=-1).softmax(-1)", "dim=-1)"),
        "values one late": ("weights[..., t, None]", "weights[..., t - 1, None]"),
        "overflows": (
            "torch.stack([log_sum, *dots], dim=-1).softmax(-1)",
            "torch.stack([log_sum, *dots], dim=-1).exp()\n"
            "    weights = weights / weights.sum(-1, keepdim=True)",
        ),
        "causal part not weighed": ("weights[..., :1] * out", "out"),
    },
    "8.4": {
        "not causal": ("(column <= row) & ", ""),
        "texts see each other": (
            "(document[column % T] == document[row])",
            "(column <= row)",
        ),
        "siblings seen": ("(column % T == row)", "(column % T <= row)"),
        "own keys of step 0 alone": ("(column >= T) & ", "(column < T) & "),
        "row by its token": ("document[column % T] ==", "column % T =="),
        "whole squares": ("n * (n + 1) // 2", "n * n"),
        "triangle without diagonal": ("n * (n + 1) // 2", "n * (n - 1) // 2"),
        "entries of a diagonal": ("+ s * n) * size**2", ") * size**2 + s * T"),
        "one step": ("for s in range(steps)", "for s in range(1)"),
        "tiles, not scores": (" * size**2 for", " for"),
    },
}

CHAPTER = Chapter(
    "08_training_time_test",
    ANSWERS,
    half={"8.1": "[0, 1, 8, 15]"},
    wrong=WRONG,
    errors=(AssertionError, RuntimeError, IndexError),
)
