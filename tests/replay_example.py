"""A training replay made by hand: two runs, three evaluations of the first one.

The answer is "I do it now ." and its first token is the prefill's.
"""

TEXTS = {
    str(i): word for i, word in enumerate((" I", " do", " it", " now", ".", " go"))
}


def cycle(drafted: list[int], kept: int, emitted: list[int]) -> dict:
    return {"drafted": drafted, "kept": kept, "emitted": emitted}


PLAIN = [cycle([5, 5], 0, [token]) for token in (1, 2, 3, 4)]
HALF = [cycle([1, 5], 1, [1, 2]), cycle([5, 5], 0, [3]), cycle([5, 5], 0, [4])]
GOOD = [cycle([1, 2], 2, [1, 2, 3]), cycle([4, 5], 1, [4])]

FRAMES = [
    {"step": 0, "n_alpha": [0.0, 0.0], "cycles": PLAIN},
    {"step": 10, "n_alpha": [0.4, 0.2], "cycles": HALF},
    {"step": 40, "n_alpha": [0.75, 0.5], "cycles": GOOD},
]
LOSSES = [
    {"step": 5, "per_step": [8.0, 9.0]},
    {"step": 10, "per_step": [4.0, 6.0]},
    {"step": 40, "per_step": [2.0, 3.0]},
]
STORED = {
    "texts": TEXTS,
    "question": "How?",
    "answer": [0, 1, 2, 3, 4],
    "runs": {
        "two steps": {"steps": 50, "losses": LOSSES, "frames": FRAMES},
        "one step": {
            "steps": 50,
            "losses": [{"step": 20, "per_step": [3.5]}],
            "frames": [FRAMES[0], {"step": 30, "n_alpha": [0.5, 0.1], "cycles": HALF}],
        },
    },
}
