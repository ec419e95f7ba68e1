"""Chapter 10: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "10.1": "answer",
    "10.2": "quick_mask",
    "10.3": "best_path",
    "10.4": "with_replacement",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "10.1": {
        "path from below up": ('"path": [0, 3, 6]', '"path": [6, 3, 0]'),
        "root counted as a node": ('"path": [0, 3, 6]', '"path": [-1, 0, 3, 6]'),
        "position is the row": ('"position": 13', '"position": 17'),
        "position starts at T - 1": ('"position": 13', '"position": 12'),
        "sees all earlier nodes": ('"sees": [1, 4]', '"sees": [0, 1, 2, 3, 4]'),
        "sees not itself": ('"sees": [1, 4]', '"sees": [1]'),
        "nodes for rows": ('"rows": [0, 1, 4, 7]', '"rows": [0, 3, 6]'),
        "pending row lost": ('"rows": [0, 1, 4, 7]', '"rows": [1, 4, 7]'),
        "inner node a leaf": ("[2, 4, 5, 6]", "[1, 2, 4, 5, 6]"),
    },
    "10.2": {
        "parent's row without the shift": ("|= mask[parent + 1]", "|= mask[parent]"),
        "parent alone": (
            "mask[node + 1] |= mask[parent + 1]",
            "mask[node + 1, parent + 1] = True",
        ),
        "sees all before": (
            "mask[node + 1] |= mask[parent + 1]",
            "mask[node + 1, : node + 1] = True",
        ),
        "not itself": (
            "torch.eye(len(parents) + 1",
            "torch.zeros(2 * [len(parents)+1]",
        ),
        "numbers for booleans": ("return mask,", "return mask.float(),"),
        "depth counts rows": ("depths[parent + 1] + 1", "node + 1"),
        "depth of the parent": ("depths[parent + 1] + 1", "depths[parent + 1]"),
    },
    "10.3": {
        "shortest run wins": ("run > len(best)", "run < len(best)"),
        "judged by its own row": ("choices[before + 1]", "choices[node + 1]"),
        "row without the shift": ("choices[before + 1]", "choices[before]"),
        "goes on after a miss": ("break", "continue"),
        "whole path of the best leaf": ("best = path[:run]", "best = path"),
        "next token of the parent": ("choices[last + 1]", "choices[last]"),
        "next token always the root's": ("choices[last + 1]", "choices[0]"),
    },
    "10.4": {
        "p never changes": ("p = residual(p, q)", "pass"),
        "q loses a token": (
            "p = residual(p, q)",
            "p, q = residual(p, q), without(q, int(q.argmax()))",
        ),
        "last part forgotten": ("return law + reached * p", "return law"),
        "last draw from q": ("return law + reached * p", "return law + reached * q"),
        "probability of refusal": (", 1 - reached", ", reached"),
        "one sibling for all": ("range(count)", "range(1)"),
        "reached not multiplied": ("reached = reached *", "reached = 1.0 *"),
    },
}

CHAPTER = Chapter(
    "10_draft_trees",
    ANSWERS,
    half={"10.1": "[0, 3, 6]"},
    wrong=WRONG,
)
