"""Chapter 4: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {"4.1": "answer", "4.2": "both_losses", "4.3": "gains"}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "4.1": {
        "feature of the pending token": ('"first_feature": 4', '"first_feature": 5'),
        "token not moved": ('"first_token": "mat"', '"first_token": "the"'),
        "output is a token": ('"first_output": "mat"', '"first_output": "and"'),
        "estimate taken for a feature": ("False", "True"),
        "second row reads the pending token": (
            '"needs_token": "and"',
            '"needs_token": "mat"',
        ),
    },
    "4.2": {
        "feature not moved": ("feature[:, 1:][counts]", "feature[:, :-1][counts]"),
        "mask not moved": ("counts = mask[:, 1:]", "counts = mask[:, :-1]"),
        "all rows count": ("counts = mask[:, 1:]", "counts = mask[:, 1:] | True"),
        "plain square": ("torch.where(size < 1, size**2 / 2, size - 0.5)", "(size**2)"),
        "plain distance": (
            "torch.where(size < 1, size**2 / 2, size - 0.5)",
            "size",
        ),
        "summed over the feature": (".mean(-1)\n", ".sum(-1)\n"),
        "p and q swapped": (
            "-(p * (guess @ head.T).log_softmax(-1))",
            "-((guess @ head.T).softmax(-1) * p.log())",
        ),
        "best token only": (
            "(aim @ head.T).softmax(-1)",
            "torch.nn.functional.one_hot((aim @ head.T).argmax(-1), len(head))",
        ),
        "divergence instead": (
            "-(p * (guess @ head.T).log_softmax(-1))",
            "(p * (p.log() - (guess @ head.T).log_softmax(-1)))",
        ),
        "sum instead of mean": ("wrong.mean()", "wrong.sum()"),
        "losses swapped": ("far.mean(), wrong.mean()", "wrong.mean(), far.mean()"),
    },
    "4.3": {
        "order of the list": ("sorted(points, key=by_size)", "points"),
        "gain turned round": ("last[0] - first[0]", "first[0] - last[0]"),
        "share of the first point": ("last[1] / last[0]", "first[1] / first[0]"),
        "share turned round": ("last[1] / last[0]", "last[0] / last[1]"),
        "wrong n": ("last[1] - first[1]", "last[2] - first[2]"),
    },
}

CHAPTER = Chapter(
    "04_eagle_features",
    ANSWERS,
    half={"4.1": "False"},
    wrong=WRONG,
)
