"""Chapter 7: the answers of its exercises, and mistakes that must be caught."""

from exercises.chapter import Chapter

ANSWERS = {
    "7.1": "answers",
    "7.2": "pair_up",
    "7.3": "on_trial",
    "7.4": "diagnosis",
}

# Exercise -> what is wrong: (text of the solution, what stands there instead).
WRONG = {
    "7.1": {
        "pending token forgotten": ("[10, 11, 12]", "[11, 12]"),
        "replacement has features": ("[10, 11, 12]", "[10, 11, 12, 13]"),
        "wrong token without features": ('"no_g": 13', '"no_g": 12'),
        "replacement cached": ('"target_cache": 13', '"target_cache": 14'),
        "accepted guesses stay in the draft's": (
            '"draft_cache": 10',
            '"draft_cache": 12',
        ),
        "accepted guesses alone are read": ('"rows": 3', '"rows": 2'),
        "pairs with its own token": ('("d2", "r")', '("d2", "d2")'),
        "feature of a rejected guess": ('("d2", "r")', '("d3", "r")'),
    },
    "7.2": {
        "each with its own token": ("[*ids[1:], pending]", "ids"),
        "pending token first": ("[*ids[1:], pending]", "[pending, *ids[1:]]"),
        "shifted block by block": (
            "return features, [*ids[1:], pending]",
            "return features, [t for b, _ in blocks for t in [*b[1:], pending]]",
        ),
        "last block alone": (
            "torch.cat([part for _, part in blocks], dim=1)",
            "blocks[-1][1]",
        ),
        "blocks in another order": (
            "torch.cat([part for _, part in blocks], dim=1)",
            "torch.cat([part for _, part in reversed(blocks)], dim=1)",
        ),
        "pending token missing": ("[*ids[1:], pending]", "ids[1:]"),
    },
    "7.3": {
        "forgets nothing": ("cache.rollback(cache.length - known)", "pass"),
        "forgets all": (
            "cache.rollback(cache.length - known)",
            "cache.rollback(cache.length)",
        ),
        "only when all goes well": (
            "    try:\n        yield\n    finally:\n        cache",
            "    yield\n    if True:\n        cache",
        ),
        "swallows the interruption": (
            "    finally:",
            "    except BaseException:\n        pass\n    finally:",
        ),
        "hides lost rows": (
            "cache.rollback(cache.length - known)",
            "cache.length = known",
        ),
        "remembers too late": (
            "    known = cache.length\n    try:\n        yield\n",
            "    try:\n        yield\n        known = cache.length\n",
        ),
    },
    "7.4": {
        "A and C swapped": (
            '"A": "last rows",\n    "B": "own row",\n    "C": "unshifted"',
            '"A": "unshifted",\n    "B": "own row",\n    "C": "last rows"',
        ),
        "B and D swapped": (
            '"B": "own row",\n    "C": "unshifted",\n    "D": "keeps rejected"',
            '"B": "keeps rejected",\n    "C": "unshifted",\n    "D": "own row"',
        ),
        "E is not refreshed": ('"keeps guesses"', '"no refresh"'),
        "D takes no bonus": ('"keeps rejected"', '"no bonus"'),
    },
}

CHAPTER = Chapter(
    "07_chain_engine",
    ANSWERS,
    half={"7.1": '("d2", "r")', "7.4": '"own row"'},
    wrong=WRONG,
    # A trial that forgets to remember fails in its own way.
    errors=(AssertionError, UnboundLocalError),
)
