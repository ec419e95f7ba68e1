"""Chapter 2: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "2.1": ("answer_a", "answer_b"),
    "2.2": "verify",
    "2.3": "acceptance_by_side",
    "2.4": "point_mass_rule",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "2.1": {
        "fraction turned round": ('"keep": 0.75', '"keep": 0.8'),
        "over-confidence forgotten": ('"keep": 0.75', '"keep": 1.0'),
        "half of the rejections become x again": (
            '"instead_of_x": 1.0',
            '"instead_of_x": 0.4',
        ),
        "B can be rejected": ('"instead_of_x": None', '"instead_of_x": 1.0'),
        "mean of B": ('None, "mean": 0.8', 'None, "mean": 0.4'),
    },
    "2.2": {
        "resamples from p": ("residual(p[i], q[i])", "p[i]"),
        "resamples from q": ("residual(p[i], q[i])", "q[i]"),
        "residual of the next position": (
            "residual(p[i], q[i])",
            "residual(p[i + 1], q[i])",
        ),
        "accepts where p >= q": (
            "uniform >= acceptance(p[i], q[i], token)",
            "p[i, token] < q[i, token]",
        ),
        "uniform stuck at 0": (
            "float(torch.rand(1, generator=generator, dtype=p.dtype))",
            "0.0",
        ),
        "p and q swapped": ("acceptance(p[i], q[i]", "acceptance(q[i], p[i]"),
        "always the first row of q": ("acceptance(p[i], q[i]", "acceptance(p[i], q[0]"),
        "bonus from the last verified row": ("sample(p[-1]", "sample(p[-2]"),
        "no bonus token": (
            "int(sampling.sample(p[-1], generator))",
            "draft_tokens[-1]",
        ),
        "goes on after a rejection": ("return i, int(replacement)", "continue"),
        "counts the rejected guess": ("return i, int", "return i + 1, int"),
        "only the rejected entry lowered": (
            "residual(p[i], q[i])",
            "(lambda r: r / r.sum())(p[i] - torch.nn.functional.one_hot("
            "torch.tensor(token), 3) * torch.minimum(p[i], q[i]))",
        ),
    },
    "2.3": {
        "unfiltered draft in both": ("minimum(p_top, q_top)", "minimum(p_top, q_all)"),
        "sides swapped": ("minimum(p_all, q_top)", "minimum(p_top, q_all)"),
        "draft_only called lossless": (
            '["both", "target_only"]',
            '["both", "target_only", "draft_only"]',
        ),
        "only both called lossless": ('["both", "target_only"]', '["both"]'),
    },
    "2.4": {
        "not scaled up": ("rest / rest.sum()", "rest"),
        "residual is p": ("rest[x] = 0", "pass"),
        "always accepted": ("return p[x]", "return 1.0"),
        "accepts by the rest": ("return p[x]", "return 1 - p[x]"),
    },
}

CHAPTER = Chapter(
    "02_accept_or_resample",
    ANSWERS,
    half={"2.1": "0.75"},
    wrong=WRONG,
)
