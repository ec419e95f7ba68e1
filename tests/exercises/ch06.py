"""Chapter 6: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "6.1": "answer",
    "6.2": "draft_layer",
    "6.3": "to_target",
    "6.4": "smallest_vocabulary",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "6.1": {
        "one stream": ('"attention_in": [3, 16]', '"attention_in": [3, 8]'),
        "matrix turned round": ('"q_weight": [8, 16]', '"q_weight": [16, 8]'),
        "a key head for each query head": (
            '"k_weight": [4, 16]',
            '"k_weight": [8, 16]',
        ),
        "scores of key heads": ('"scores": [2, 3, 3]', '"scores": [1, 3, 3]'),
        "output of both streams": ('"a": [3, 8]', '"a": [3, 16]'),
        "a is scores": ('"a": [3, 8]', '"a": [3, 10]'),
        "head over all tokens": ('"logits": [3, 10]', '"logits": [3, 50]'),
        "q over draft tokens": ('"q_whole": [3, 50]', '"q_whole": [3, 10]'),
        "e in the residual": ("False", "True"),
    },
    "6.2": {
        "feature first": (
            'norm(e, w["input_norm"]), norm(x, w["hidden_norm"])',
            'norm(x, w["hidden_norm"]), norm(e, w["input_norm"])',
        ),
        "norms swapped": (
            'norm(e, w["input_norm"]), norm(x, w["hidden_norm"])',
            'norm(e, w["hidden_norm"]), norm(x, w["input_norm"])',
        ),
        "feature not normed": ('norm(x, w["hidden_norm"])', "x"),
        "token not normed": ('norm(e, w["input_norm"])', "e"),
        "e in the residual": ("r = x +", "r = x + e +"),
        "residual normed": ("r = x +", 'r = norm(x, w["hidden_norm"]) +'),
        "no residual": ("r = x +", "r ="),
        "no residual around the MLP": ("return r + inside", "return inside"),
        "MLP reads the un-normed": ('h = norm(r, w["post_norm"])', "h = r"),
        "gate and up swapped": (
            'silu(h @ w["gate"].T) * (h @ w["up"].T)',
            'silu(h @ w["up"].T) * (h @ w["gate"].T)',
        ),
        "not causal": (".triu(1).bool()", ".triu(1).bool() & False"),
        "not itself": (".triu(1)", ".triu(0)"),
        "not scaled": ("q @ k.mT / q.shape[-1] ** 0.5", "q @ k.mT"),
        "scaled by k": ("q.shape[-1] ** 0.5", "x.shape[-1] ** 0.5"),
        "eps outside the root": (
            "torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + eps)",
            "(torch.rsqrt(v.pow(2).mean(-1, keepdim=True)) + eps)",
        ),
        "norm of the whole block": ("mean(-1, keepdim=True)", "mean()"),
        "sum of squares": ("mean(-1, keepdim=True)", "sum(-1, keepdim=True)"),
        "heads not put back": (".transpose(0, 1).flatten(1) @", ".reshape(x.shape) @"),
        "normed at the end": (
            'return r + inside @ w["down"].T',
            'return norm(r + inside @ w["down"].T, w["post_norm"])',
        ),
    },
    "6.3": {
        "offsets for ids": ("torch.arange(len(offsets)) + offsets", "offsets"),
        "offsets taken away": ("+ offsets", "- offsets"),
        "ids of the draft": (
            "torch.arange(len(offsets)) + offsets",
            "torch.arange(len(offsets))",
        ),
        "temperature turned round": ("logits / temperature", "logits * temperature"),
        "temperature forgotten": ("(logits / temperature)", "logits"),
        "softmax over all tokens": (
            "return whole",
            "whole[..., ids] = logits / temperature\n    return whole.softmax(-1)",
        ),
        "a little for everybody": (
            "return whole",
            "return (whole + 1e-4) / (1 + 1e-4 * vocab_size)",
        ),
        "scores": ("(logits / temperature).softmax(-1)", "logits / temperature"),
    },
    "6.4": {
        "one too few": (".argmax()) + 1", ".argmax())"),
        "one too many": (".argmax()) + 1", ".argmax()) + 2"),
        "by frequency": (".sort().values", ""),
        "share of the kinds": (
            "covered >= share * counts.sum() - 1e-6",
            "torch.arange(len(counts)) + 1 >= share * len(counts)",
        ),
        "rarest first": ("descending=True", "descending=False"),
        "larger id first": (
            "counts.argsort(descending=True, stable=True)",
            "len(counts) - 1 - counts.flip(0).argsort(descending=True, stable=True)",
        ),
        "all that occur": ("order[:size]", "order[: int((counts > 0).sum())]"),
    },
}

CHAPTER = Chapter(
    "06_draft_model",
    ANSWERS,
    half={"6.1": "[2, 3, 3]"},
    wrong=WRONG,
    errors=(AssertionError, RuntimeError, IndexError),  # shapes or ids that don't fit
)
