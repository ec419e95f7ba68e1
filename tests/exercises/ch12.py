"""Chapter 12: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "12.1": "from_log",
    "12.2": "from_counters",
    "12.3": "difference",
    "12.4": "flaws",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "12.1": {
        "own tokens forgotten": ('"emitted": 10', '"emitted": 6'),
        "tau without the own token": ('"tau": 2.5', '"tau": 1.5'),
        "own token counted twice": (
            '"accepted_per_cycle": 1.5',
            '"accepted_per_cycle": 2.5',
        ),
        "chains of three throughout": ("6 / 11", "6 / 12"),
        "products instead of chances": ("2 / 3, 1 / 1", "1 / 2, 1 / 4"),
        "unjudged guesses counted": ("[3 / 4, 2 / 3, 1 / 1]", "[3 / 4, 2 / 4, 1 / 4]"),
        "prefill's token forgotten": ('"answer_length": 11', '"answer_length": 10'),
    },
    "12.2": {
        "passes without draft left out": (
            '/ counters["num_passes"]',
            '/ counters["num_drafts"]',
        ),
        "accepted for emitted": (
            'counters["num_emitted_tokens"] / counters["num_passes"]',
            '1 + accepted / counters["num_passes"]',
        ),
        "own token forgotten": ("1 + accepted / drafts", "accepted / drafts"),
        "rate per draft": ('(drafts * counters["length"])', "drafts"),
        "rates per position": (
            "[drafts, *kept[:-1]]",
            "[drafts] * len(kept)",
        ),
        "one place off": ("[drafts, *kept[:-1]]", "kept"),
    },
    "12.3": {
        "sign": (
            "np.array(speedups_x) - np.array(speedups_y)",
            "np.array(speedups_y) - np.array(speedups_x)",
        ),
        "ratio": (
            "np.array(speedups_x) - np.array(speedups_y)",
            "np.array(speedups_x) / np.array(speedups_y)",
        ),
        "not in pairs": (
            "np.array(speedups_x) - np.array(speedups_y)",
            "np.array(speedups_x) - rng.permutation(speedups_y)",
        ),
        "ends of two intervals": (
            "return tuple(bootstrap(gaps, rng, repeats))",
            "x, y = bootstrap(speedups_x, rng, repeats), "
            "bootstrap(speedups_y, rng, repeats)\n    return x[0] - y[1], x[1] - y[0]",
        ),
        "spread of single questions": (
            "return tuple(bootstrap(gaps, rng, repeats))",
            "return tuple(np.percentile(gaps, [2.5, 97.5]))",
        ),
    },
    "12.4": {
        "1 is the baseline": ('1: "order"', '1: "slow baseline"'),
        "2 is the unit": ('2: "two definitions"', '2: "wrong unit"'),
        "3 is the questions": ('3: "unequal answers"', '3: "one kind"'),
        "4 is the order": ('4: "wrong unit"', '4: "order"'),
        "5 is the warm-up": ('5: "past the end"', '5: "warm-up"'),
    },
}

CHAPTER = Chapter(
    "12_measuring",
    ANSWERS,
    half={"12.1": "2.5", "12.4": '"order"'},
    wrong=WRONG,
)
