"""Chapter 13: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "13.1": "answer",
    "13.2": "speedup_over_tau",
    "13.3": ("isolating", "EXPERIMENTS"),
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "13.1": {
        "MT-bench's column": ('"first_percent": 11.2', '"first_percent": 20.9'),
        "percent of the first row": (
            '"second_percent": 18.8',
            '"second_percent": 20.9',
        ),
        "a ratio of tau": ('"first_tau": 0.98', '"first_tau": 1.23'),
        "of both steps": ('"second_tau": 1.01', '"second_tau": 1.99'),
        "the wrong one": ('"larger": "fusion"', '"larger": "constraint"'),
        "upside down": ('"price": 1.39', '"price": 0.72'),
    },
    "13.2": {
        "tau over speedup": ("speedup / tau\n", "tau / speedup\n"),
        "mean of ratios": (
            "ratios[row.key] = speedup / tau",
            "ratios[row.key] = fmean(c.ratio for c in row.cells)",
        ),
        "printed means": (
            "tau = fmean(cell.tau for cell in row.cells)",
            "speedup, tau = row.printed_mean",
        ),
        "equal counts as beyond": (
            "if cell.speedup > cell.tau",
            "if cell.speedup >= cell.tau",
        ),
        "the last row's cells alone": ("beyond +=", "beyond ="),
    },
    "13.3": {
        "parts need only differ": ("parts == {part}", "part in parts"),
        "no common measure asked": (" and common:", ":"),
        "all measures": (
            "experiments[one][1] & experiments[other][1]",
            "experiments[one][1] | experiments[other][1]",
        ),
        "both have it": (
            "experiments[one][0] ^ experiments[other][0]",
            "experiments[one][0] & experiments[other][0]",
        ),
        "pairs twice": ("names[i + 1 :]", "names"),
    },
}

CHAPTER = Chapter(
    "13_reading_the_results",
    ANSWERS,
    half={"13.1": "1.01"},
    wrong=WRONG,
    setup=("EXPERIMENTS = {", "\n\n\n"),
)
